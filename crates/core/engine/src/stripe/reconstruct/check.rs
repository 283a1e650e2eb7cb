//! How far a comparison is, and what it knows: [`super::comparison`] makes the findings.

use braid_geometry::Slot;
use braid_sim_hooks::{Mark, reached};
use smallvec::SmallVec;

use crate::sectors::SectorSet;
use crate::work::{Candidates, Fate};

/// How far a comparison is.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// Sectors that had to be made of the others in some column.
    pub(super) erased: SectorSet,
    /// What P says of these counts, and what Q does: it was read, and made none of them.
    pub(super) p_speaks: bool,
    pub(super) q_speaks: bool,
    /// What is wrong.
    pub(super) rot: SmallVec<[Rot; 1]>,
    /// What is unknown, and who may be wrong.
    pub(super) unknown: SmallVec<[(SectorSet, Candidates); 1]>,
    /// All of it is being read for the second time.
    pub(super) is_again: bool,
}

/// A column that is wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rot {
    pub(super) slot: Slot,
    pub(super) set: SectorSet,
    pub(super) fate: Fate,
}

impl Check {
    /// Whether something is wrong.
    pub(super) fn has_rot(&self) -> bool {
        !self.rot.is_empty()
    }

    /// Something has been written, and is to be looked at.
    pub(super) fn has_unverified(&self) -> bool {
        self.rot.iter().any(|rot| rot.fate == Fate::Unverified)
    }

    /// Sectors of a slot that are wrong.
    pub(super) fn wrong(&self, slot: Slot) -> SectorSet {
        let rot = self.rot.iter().filter(|rot| rot.slot == slot);
        rot.fold(SectorSet::EMPTY, |set, rot| set.union(rot.set))
    }

    /// What is wrong with a slot is being written.
    pub(super) fn is_written(&mut self, slot: Slot) {
        let rot = self.rot.iter_mut().filter(|rot| rot.slot == slot);
        rot.for_each(|rot| rot.fate = Fate::Unverified);
    }

    /// The member in a slot did not take it.
    pub(super) fn is_missed(&mut self, slot: Slot) {
        let rot = self.rot.iter_mut().filter(|rot| rot.slot == slot);
        rot.for_each(|rot| rot.fate = Fate::Left);
    }

    pub(super) fn begin_again(&mut self) {
        reached(Mark::MendReadAgain);
        self.is_again = true;
    }
}
