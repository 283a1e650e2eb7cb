//! The state of a comparison. [`super::comparison`] computes the findings.

use braid_geometry::Slot;
use braid_sim_hooks::{Mark, reached};
use smallvec::SmallVec;

use crate::sectors::SectorSet;
use crate::work::{Candidates, Fate};

#[derive(Debug, Default)]
pub(super) struct Check {
    /// Sectors that, in some column, had to be computed from the other columns.
    pub(super) erased: SectorSet,
    /// Whether P is a witness for the erased sectors: P was read, and none of them was computed
    /// from P.
    pub(super) p_speaks: bool,
    /// Whether Q is a witness for the erased sectors: Q was read, and none of them was computed
    /// from Q.
    pub(super) q_speaks: bool,
    pub(super) rot: SmallVec<[Rot; 1]>,
    /// Sectors that disagree, and the columns that may be wrong.
    pub(super) unknown: SmallVec<[(SectorSet, Candidates); 1]>,
    /// The band is being read for the second time.
    pub(super) is_again: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rot {
    pub(super) slot: Slot,
    pub(super) set: SectorSet,
    pub(super) fate: Fate,
}

impl Check {
    pub(super) fn has_rot(&self) -> bool {
        !self.rot.is_empty()
    }

    /// Whether a repair was written, but not verified yet.
    pub(super) fn has_unverified(&self) -> bool {
        self.rot.iter().any(|rot| rot.fate == Fate::Unverified)
    }

    pub(super) fn wrong(&self, slot: Slot) -> SectorSet {
        let rot = self.rot.iter().filter(|rot| rot.slot == slot);
        rot.fold(SectorSet::EMPTY, |set, rot| set.union(rot.set))
    }

    /// Marks a slot's wrong sectors as written, and to be verified.
    pub(super) fn is_written(&mut self, slot: Slot) {
        let rot = self.rot.iter_mut().filter(|rot| rot.slot == slot);
        rot.for_each(|rot| rot.fate = Fate::Unverified);
    }

    /// Marks a slot's wrong sectors as left, because the member did not take the write.
    pub(super) fn is_missed(&mut self, slot: Slot) {
        let rot = self.rot.iter_mut().filter(|rot| rot.slot == slot);
        rot.for_each(|rot| rot.fate = Fate::Left);
    }

    pub(super) fn begin_again(&mut self) {
        reached(Mark::MendReadAgain);
        self.is_again = true;
    }
}
