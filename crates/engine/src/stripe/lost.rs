//! What was answered and then lost: sectors whose members hold something older than the client was told.
//!
//! In write-back mode a write is answered before the members have it. If it then cannot be carried out (more is
//! unreadable than the level can make up for, too many members have failed, no space is left below one), the old content
//! is still on the members. To read that without an error would be to lie, so these sectors cannot be read until they are
//! written again:
//!
//! ```text
//!   answered early ── its batch fails ──▶ lost: reads fail ── a later batch writes it ──▶ as any other sector
//!                                           └─ a later write is queued: reads are served from it ([`super::dirty`])
//! ```
//!
//! The set lives as long as the array runs: md's format has no place for it. Flushes fail until then ([`crate::array`]).
//!
//! - A lost sector is never read from its member [check: an_answered_write_that_was_lost_is_not_read_as_the_old_bytes].
//! - It can be read once it has been written again [check: an_answered_write_that_was_lost_is_not_read_as_the_old_bytes].

use std::ops::Range;

use braid_geometry::LogicalSector;
use braid_hooks::{Bug, planted};
use rangemap::RangeSet;

/// The lost sectors of one shard, counted from the start of the array.
#[derive(Debug, Default)]
pub(super) struct Lost {
    sectors: RangeSet<u64>,
}

impl Lost {
    /// Nearly always.
    pub(super) fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    /// Whether any sector of these ranges is lost.
    pub(super) fn meets(&self, mut ranges: impl Iterator<Item = Range<u64>>) -> bool {
        !self.is_empty()
            && ranges.any(|range| self.sectors.overlaps(&range))
            && !planted(Bug::LostReadsOld)
    }

    /// A batch that held these sectors failed.
    pub(super) fn add(&mut self, lost: &RangeSet<u64>) {
        self.sectors.extend(lost.iter().cloned());
    }

    /// A batch has written these sectors.
    pub(super) fn written(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        if self.is_empty() || planted(Bug::LostForGood) {
            return;
        }
        ranges.for_each(|range| self.sectors.remove(range));
    }
}

/// Sectors of the array, `from..to` of what starts at `start`.
pub(super) fn part_of(start: LogicalSector, (from, to): (u32, u32)) -> Range<u64> {
    start.0 + u64::from(from)..start.0 + u64::from(to)
}
