//! What a batch, and a read that needs the other members, know of one column; and what a plan is told of it.

use braid_geometry::Slot;
use braid_hooks::{Bug, spoiled};

use super::band::Band;
use super::damage::is_synced;
use super::plan::ColumnFacts;
use crate::array::ArrayView;
use crate::sectors::{Extent, SectorSet};

/// One column, as the members and the blocks hold it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) view: &'a ArrayView,
    /// All members are there, with all that they should hold: nothing of the view needs to be looked up.
    pub(super) is_whole: bool,
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
}

impl Known<'_> {
    fn is_readable(&self, extent: &Extent) -> bool {
        let (start, sectors) = self.band.range(*extent);
        self.view.readable(self.slot, start, u64::from(sectors)).is_some()
    }

    /// What a plan is told; nothing can be read of a column that is left out.
    pub(super) fn facts(&self, is_left_out: bool) -> ColumnFacts {
        let wanted = if is_left_out { SectorSet::EMPTY } else { self.window };
        let wanted = wanted.without(self.unreadable);
        let extents = wanted.extents();
        let is_synced = is_synced(self.view, self.band);
        let is_synced = spoiled(Bug::UnsyncedGoneAround, is_synced, true);
        let readable = match is_synced {
            true if self.is_whole => wanted,
            true => extents.filter(|extent| self.is_readable(extent)).collect(),
            // What is solved for where nobody wrote is not what the member holds: so no more of it than must be.
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
        }
    }

    /// Whether it lacks some of its sectors, and may have others: a member that is not there is missing everywhere; what it
    /// holds badly, here and there.
    pub(super) fn lacks_some(&self) -> bool {
        let is_there = self.view.member(self.slot).is_some();
        let is_readable = |extent: Extent| self.is_readable(&extent);
        !self.unreadable.is_empty() || is_there && !self.window.extents().all(is_readable)
    }
}
