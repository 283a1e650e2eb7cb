//! What a batch, and a read that needs the other members, know of one column; and what a plan is
//! told of it.

use braid_geometry::Slot;

use super::band::Band;
use super::plan::ColumnFacts;
use crate::array::ArrayView;
use crate::sectors::{Extent, SectorSet};

/// By slot, whether its member is there with all that it should hold: then nothing of the view
/// needs to be looked up for a range. Nearly always all of them are, and of an array that lacks a
/// member all others.
#[derive(Debug)]
pub(super) struct EntireSlots(Box<[bool]>);

impl EntireSlots {
    /// Of no view yet: none is.
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

/// One column, as the members and the blocks hold it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) view: &'a ArrayView,
    /// See [`EntireSlots`].
    pub(super) is_entire: bool,
    /// Parity was made to fit in all of the band.
    pub(super) is_synced: bool,
    /// No write was left half done in the band.
    pub(super) is_consistent: bool,
    pub(super) band: &'a Band,
    pub(super) slot: Slot,
    /// What it is about.
    pub(super) window: SectorSet,
    /// Sectors that are written, or wanted.
    pub(super) touched: SectorSet,
    /// Sectors that are in the column's block.
    pub(super) valid: SectorSet,
    /// Sectors that could not be read.
    pub(super) unreadable: SectorSet,
    /// What its member's bad-block log names is read all the same.
    pub(super) tries_named: bool,
}

impl Known<'_> {
    fn is_readable(&self, extent: &Extent) -> bool {
        let (start, sectors) = self.band.range(*extent);
        let sectors = u64::from(sectors);
        if self.tries_named {
            return self.view.member(self.slot).is_some_and(|member| member.holds(start, sectors));
        }
        self.view.readable(self.slot, start, sectors).is_some()
    }

    /// What a plan is told; nothing can be read of a column that is left out.
    pub(super) fn facts(&self, is_left_out: bool) -> ColumnFacts {
        let wanted = if is_left_out { SectorSet::EMPTY } else { self.window };
        let wanted = wanted.without(self.unreadable);
        let extents = wanted.extents();
        let is_accepted =
            self.is_consistent && self.view.accepts_risk_of(self.slot) && !self.is_held();
        let readable = match self.is_synced && !is_accepted {
            true if self.is_entire => wanted,
            true => extents.filter(|extent| self.is_readable(extent)).collect(),
            // What is solved for where nobody wrote, or parity may not fit, is not what the member
            // holds: so no more of it than must be.
            false => {
                let sectors = extents.flat_map(|extent| extent.offset..extent.end());
                let alone = sectors.map(|offset| Extent { offset, sectors: 1 });
                alone.filter(|extent| self.is_readable(extent)).collect()
            }
        };
        ColumnFacts {
            readable,
            writable: self.view.member(self.slot).is_some(),
            loaded: self.valid.common(self.window),
            touched: self.touched.common(self.window),
            is_accepted,
        }
    }

    /// Whether its member was recovered here: then it holds what was written, and no risk was
    /// accepted of that.
    fn is_held(&self) -> bool {
        let holds = |extent: Extent| {
            let (start, sectors) = self.band.range(extent);
            self.view
                .member(self.slot)
                .is_some_and(|member| member.holds(start, u64::from(sectors)))
        };
        self.window.extents().all(holds)
    }

    /// Whether it lacks some of its sectors, and may have others: a member that is not there is
    /// missing everywhere; what it holds badly, here and there.
    pub(super) fn lacks_some(&self) -> bool {
        let is_there = self.view.member(self.slot).is_some();
        let is_readable = |extent: Extent| self.is_readable(&extent);
        !self.unreadable.is_empty() || is_there && !self.window.extents().all(is_readable)
    }
}
