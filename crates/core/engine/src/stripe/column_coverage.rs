//! The readable, loaded and touched sectors of one column of a batch or a reconstructing read, and
//! the facts for a plan.

use braid_geometry::{MemberSector, Slot};

use super::band::Band;
use super::plan::ColumnFacts;
use crate::array::ArrayView;
use crate::context::Common;
use crate::ids::MemberId;
use crate::sectors::{Extent, SectorSet};

/// For each slot, whether its member is up to date in full: then no range of that member needs a
/// lookup in the view. Mostly true for all members that are present.
#[derive(Debug)]
pub(super) struct EntireSlots(Box<[bool]>);

impl EntireSlots {
    /// For the time before the first view of the array: no slot counts as entire.
    pub(super) fn of_none(slots: u16) -> Self {
        Self(vec![false; usize::from(slots)].into_boxed_slice())
    }

    pub(super) fn note_view(&mut self, view: &ArrayView) {
        for (slot, is_entire) in (0..).map(Slot).zip(&mut self.0) {
            *is_entire = view.member(slot).is_some_and(|member| {
                member.recovered_sectors == u64::MAX && member.bad_blocks.is_empty()
            });
        }
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        self.0[usize::from(slot.0)]
    }

    pub(super) fn has_all(&self) -> bool {
        self.0.iter().all(|is_entire| *is_entire)
    }
}

/// One column: the sectors that its member and its block hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnCoverage<'a> {
    pub(super) common: &'a Common,
    pub(super) is_entire: bool,
    /// Parity was made to agree in all of the band.
    pub(super) is_synced: bool,
    /// No write was interrupted in the band.
    pub(super) is_consistent: bool,
    pub(super) band: &'a Band,
    pub(super) slot: Slot,
    /// The sectors that the batch or the read covers.
    pub(super) window: SectorSet,
    /// Sectors that are written, or wanted by the read.
    pub(super) touched: SectorSet,
    /// Sectors whose content is in the column's block.
    pub(super) valid: SectorSet,
    pub(super) unreadable: SectorSet,
    /// Whether the batch or the read tries sectors that the member's bad-block log names.
    pub(super) tries_named: bool,
}

impl ColumnCoverage<'_> {
    fn is_readable(&self, extent: &Extent) -> bool {
        let (start, sectors) = self.band.range(*extent);
        let sectors = u64::from(sectors);
        if self.tries_named {
            return self
                .common
                .view
                .member(self.slot)
                .is_some_and(|member| member.holds(start, sectors));
        }
        self.common.view.readable(self.slot, start, sectors).is_some()
    }

    /// The facts for a plan. If `is_left_out`, the column counts as unreadable.
    pub(super) fn facts(&self, is_left_out: bool) -> ColumnFacts {
        let wanted = if is_left_out { SectorSet::EMPTY } else { self.window };
        let wanted = wanted.without(self.unreadable);
        let extents = wanted.extents();
        let is_accepted =
            self.is_consistent && self.common.view.accepts_risk_of(self.slot) && !self.is_held();
        let readable = match self.is_synced && !is_accepted {
            true if self.is_entire => wanted,
            true => extents.filter(|extent| self.is_readable(extent)).collect(),
            // Where no client has written, or parity may not agree, solving gives bytes that the
            // member does not hold. So solve for single unreadable sectors only.
            false => {
                let sectors = extents.flat_map(|extent| extent.offset..extent.end());
                let alone = sectors.map(|offset| Extent { offset, sectors: 1 });
                alone.filter(|extent| self.is_readable(extent)).collect()
            }
        };
        ColumnFacts {
            readable,
            writable: self.common.view.member(self.slot).is_some(),
            loaded: self.valid.common(self.window),
            touched: self.touched.common(self.window),
            is_accepted,
            is_named: !self.is_entire && self.named().contains(self.window),
        }
    }

    /// Sectors of the window that the member's bad-block log names, and that the shard has not
    /// written since.
    pub(super) fn named(&self) -> SectorSet {
        if self.is_entire {
            return SectorSet::EMPTY;
        }
        let Some(member) = self.common.view.member(self.slot) else { return SectorSet::EMPTY };
        let is_named = |start: MemberSector| {
            let is_in = |(id, (first, sectors)): &(MemberId, (MemberSector, u32))| {
                *id == member.id && (first.0..first.0 + u64::from(*sectors)).contains(&start.0)
            };
            member.bad_blocks.touches(start, 1) && !self.common.made_good().iter().any(is_in)
        };
        if member.bad_blocks.is_empty() {
            return SectorSet::EMPTY;
        }
        let sectors = self.window.extents().flat_map(|extent| extent.offset..extent.end());
        let alone = sectors.map(|offset| Extent { offset, sectors: 1 });
        alone.filter(|extent| is_named(self.band.range(*extent).0)).collect()
    }

    /// Whether the member is recovered in this window: then no accepted risk concerns the column.
    fn is_held(&self) -> bool {
        let holds = |extent: Extent| {
            let (start, sectors) = self.band.range(extent);
            self.common
                .view
                .member(self.slot)
                .is_some_and(|member| member.holds(start, u64::from(sectors)))
        };
        self.window.extents().all(holds)
    }

    /// Whether the member lacks some sectors but may hold others. A missing member lacks all
    /// sectors. A member with a bad-block log lacks the sectors that the log names.
    pub(super) fn lacks_some(&self) -> bool {
        let is_there = self.common.view.member(self.slot).is_some();
        let is_readable = |extent: Extent| self.is_readable(&extent);
        !self.unreadable.is_empty() || is_there && !self.window.extents().all(is_readable)
    }
}
