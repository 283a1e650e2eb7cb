//! Known damage in a shard's bands: parity that fits no data, and answered writes that were lost.
//!
//! Both kinds of damage come from writes that failed half way. They last as long as the array runs;
//! the sets are mostly empty.
//!
//! *Inconsistent* bands had a write that reached some members, not others, and could not be
//! completed. Their parity fits no data: the engine solves nothing from it, and no write modifies
//! it (I7) [check: inconsistent_band_is_not_reconstructed].
//!
//! *Lost* sectors were answered early, and then their write failed. The members still hold the
//! older bytes, and a read that returned these without an error would lie:
//!
//! ```text
//!   answered early ── its batch fails ──▶ lost: reads fail ── a batch writes it ──▶ normal again
//!                                           └─ a later write is queued: reads are served from it
//! ```
//!
//! `super::read_dirty` serves reads from the queued write. md's format records neither kind of
//! damage. Flushes fail until the array is started again ([`crate::array`]).
//!
//! - A lost sector is never read from its member. Once it is written again, it can be read again
//!   [check: an_answered_write_that_was_lost_is_not_read_as_the_old_bytes].

use std::collections::BTreeSet;
use std::ops::Range;

use braid_sim_hooks::{Bug, planted, spoiled};
use rangemap::RangeSet;

use super::band::{Band, BandKey};
use crate::array::ArrayView;
use crate::request::Piece;

#[derive(Debug, Default)]
pub(super) struct Damage {
    inconsistent: BTreeSet<BandKey>,
    lost: RangeSet<u64>,
}

impl Damage {
    pub(super) fn mark_inconsistent(&mut self, band: BandKey) {
        self.inconsistent.insert(band);
    }

    pub(super) fn is_inconsistent(&self, band: BandKey) -> bool {
        self.inconsistent.contains(&band)
    }

    pub(super) fn has_inconsistent(&self) -> bool {
        !self.inconsistent.is_empty()
    }

    /// Whether parity can be believed for sectors that clients have written in this band:
    /// redundancy is in sync there, and no write was interrupted (I7).
    pub(super) fn parity_solves(&self, view: &ArrayView, band: &Band) -> bool {
        let agrees = view.may_solve(band.start.0..band.end().0);
        let agrees = spoiled(Bug::DirtyBelieved, agrees, true);
        agrees && !self.is_inconsistent(band.key)
    }

    /// Whether parity agrees in all of this band, including sectors that no client has written.
    pub(super) fn parity_agrees(&self, view: &ArrayView, band: &Band) -> bool {
        self.parity_solves(view, band) && is_synced(view, band)
    }

    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    pub(super) fn is_lost(&self, mut ranges: impl Iterator<Item = Range<u64>>) -> bool {
        if planted(Bug::LostReadsOld) {
            return false;
        }
        self.has_lost() && ranges.any(|range| self.lost.overlaps(&range))
    }

    /// Marks the answered sectors `lost` as lost, because their batch failed.
    pub(super) fn lose(&mut self, lost: &RangeSet<u64>) {
        assert!(lost.iter().all(|range| !range.is_empty()), "a range that is lost has sectors");
        self.lost.extend(lost.iter().cloned());
    }

    pub(super) fn written(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        if !self.has_lost() {
            return;
        }
        ranges.for_each(|range| self.lost.remove(range));
    }
}

/// Whether parity was made to agree in all of a band, unless a client's write to the band was
/// interrupted.
pub(super) fn is_synced(view: &ArrayView, band: &Band) -> bool {
    if planted(Bug::UnsyncedModified) {
        return true;
    }
    view.is_synced(&(band.start.0..band.end().0))
}

/// The array sectors of a piece.
pub(super) fn sectors_of(piece: &Piece) -> Range<u64> {
    piece.start.0..piece.start.0 + u64::from(piece.sectors)
}
