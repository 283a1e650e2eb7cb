//! Taint: which bytes of the array can be wrong, given which sectors of its disks lie.
//!
//! This module stands between the overlays of the disks ([`crate::lie_overlay`]) and the checkers.
//! The levels here have no checksums, so clients can read wrong bytes, but only in certain sectors:
//!
//! ```text
//!   column ─┬─ tainted ──────────▶ a healthy read of it may be wrong
//!           │      └─▶ its strip is doubtful: bytes computed from it may be wrong
//!           └─ polluted ─────────▶ the array wrote wrong bytes, computed from a doubtful strip
//!   everything else is exact
//! ```
//!
//! A column is *tainted* while it differs from an honest disk's bytes. A *strip* is one sector of
//! every slot of a row, at one offset; in mirrors one sector and its copies; elsewhere one sector.
//! A strip stops being doubtful when, at rest, all its columns are present, none is tainted and
//! they fit. A sector stops being polluted when right bytes are written. The model, which does not
//! know about lies, says which bytes are right.
//!
//! # Invariants
//! - Wrong bytes come from lies and nothing else [check: a_lie_that_nobody_knows_of_is_noticed].
//! - A lie reaches no other strip [check: a_wrong_sector_of_another_strip_is_noticed].

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_geometry::{Geometry, LogicalSector, MemberSector, Role, Slot};

use crate::content::places;

#[derive(Debug)]
pub(crate) struct Taint {
    /// Disks may lie in this world.
    pub(crate) may_lie: bool,
    /// By slot: the disk of the member when the run began.
    pub(crate) occupants: Vec<Option<usize>>,
    /// The sector of each disk where its data area begins.
    pub(crate) data_offset: u64,
    /// The sectors of each disk that hold its superblock.
    pub(crate) superblock: Range<u64>,
    pub(crate) doubtful: BTreeSet<u64>,
    pub(crate) polluted: BTreeSet<u64>,
    /// Sectors that are no longer polluted. A power cut that undoes the right write pollutes them
    /// again, and so does the return of a disk that missed this write.
    cleansed: BTreeSet<u64>,
    /// By disk and sector: the last step of this run at which the sector became right or wrong.
    changed: BTreeMap<(usize, u64), u64>,
    /// By disk: rows that clients wrote since the disk last flushed in truth.
    asked: Vec<BTreeSet<u64>>,
}

impl Taint {
    pub(crate) fn new(
        may_lie: bool,
        disks: usize,
        (data_offset, superblock): (u64, Range<u64>),
    ) -> Self {
        Self {
            may_lie,
            occupants: (0..disks).map(Some).collect(),
            data_offset,
            superblock,
            doubtful: BTreeSet::new(),
            polluted: BTreeSet::new(),
            cleansed: BTreeSet::new(),
            changed: BTreeMap::new(),
            asked: vec![BTreeSet::new(); disks],
        }
    }

    /// Whether no disk lies now or lied earlier in this run.
    pub(crate) fn is_calm(&self) -> bool {
        self.doubtful.is_empty()
            && self.polluted.is_empty()
            && self.changed.is_empty()
            && self.cleansed.is_empty()
    }

    fn changed_since(&self, disk: usize, sectors: Range<u64>, step: u64) -> bool {
        let mut changed = self.changed.range((disk, sectors.start)..(disk, sectors.end));
        changed.any(|(_, at)| *at >= step)
    }

    /// The slot of a disk, and the sector of the data area, for a sector of the disk.
    pub(crate) fn column(&self, disk: usize, sector: u64) -> Option<(Slot, u64)> {
        let slot = self.occupants.iter().position(|occupant| *occupant == Some(disk))?;
        Some((Slot(slot as u16), sector.checked_sub(self.data_offset)?))
    }

    /// A disk has flushed in truth, while no client wrote: forgets the rows noted for the disk.
    pub(crate) fn forget_asked_of(&mut self, disk: usize) {
        self.asked[disk].clear();
    }

    /// All disks have flushed in truth, while no client wrote: forgets the rows noted for them.
    pub(crate) fn forget_asked(&mut self) {
        self.asked.iter_mut().for_each(BTreeSet::clear);
    }
}

/// The sector of the array that a member's sector holds, if the member's sector holds data.
fn logical(geometry: &Geometry, slot: Slot, sector: u64) -> Option<u64> {
    match geometry {
        Geometry::Direct(direct) => direct.logical(slot, MemberSector(sector)).map(|one| one.0),
        Geometry::Mirror(mirror) => {
            mirror.logical(slot, MemberSector(sector)).map(|(LogicalSector(one), _)| one)
        }
        Geometry::Stripe(stripe) => {
            let row = stripe.row_of(MemberSector(sector));
            if row.0 >= stripe.rows() {
                return None;
            }
            let Role::Data(index) = stripe.row_map(row).role(slot) else { return None };
            let offset = (sector - stripe.row_start(row).0) as u32;
            Some(stripe.logical(row, index, offset).0)
        }
    }
}

/// The strip that a member's sector belongs to, if the array uses the sector.
pub(crate) fn strip(geometry: &Geometry, slot: Slot, sector: u64) -> Option<u64> {
    match geometry {
        Geometry::Stripe(stripe) => Some(sector).filter(|sector| *sector < stripe.used_sectors()),
        _ => logical(geometry, slot, sector),
    }
}

pub(crate) fn columns(geometry: &Geometry, strip: u64) -> Vec<(Slot, MemberSector)> {
    match geometry {
        Geometry::Stripe(stripe) => {
            (0..stripe.slots()).map(|slot| (Slot(slot), MemberSector(strip))).collect()
        }
        _ => places(geometry, strip),
    }
}

/// The row of a strip. A falsely claimed flush can lose writes only in rows written since the last
/// true flush.
fn row(geometry: &Geometry, strip: u64) -> u64 {
    match geometry {
        Geometry::Stripe(stripe) => stripe.row_of(MemberSector(strip)).0,
        _ => strip,
    }
}
