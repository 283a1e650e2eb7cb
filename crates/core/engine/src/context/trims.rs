//! A shard's record of clients' trims. Trims turn marks of a lockless bitmap back to unwritten.
//!
//! Clients have to trim all sectors of a mark, by one trim or several, on one shard or on several.
//! The array joins the shards' reports ([`crate::effect::Report::Trimmed`]). A sector has one
//! shard, whose families carry out overlapping requests in order of arrival. So a shard sees by
//! itself whether a write followed a trim, and takes back its report of the trim
//! ([`crate::effect::Report::WrittenAgain`]).
//!
//! # Invariants
//! - A mark to which a client has written since its trim does not become unwritten: the shard
//!   reports the write before it reports that the write is over
//!   [check: what_is_written_after_it_was_given_up_stays_written].

use std::ops::Range;

use braid_ondisk::Bits;
use braid_sim_hooks::{Bug, planted};

use super::pieces::{Extent, PieceKey};

#[derive(Debug, Default)]
pub(crate) struct Trims {
    /// Trims in flight, and whether a write to their marks has come since each trim.
    under_way: Vec<(PieceKey, Extent, bool)>,
    /// Marks that the shard has reported to the array as trimmed.
    told: Option<Bits>,
}

impl Trims {
    /// Whether no trim is in flight or reported, which is the usual case.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.told.is_none()
    }

    pub(crate) fn begins(&mut self, key: PieceKey, extent: Extent) {
        self.under_way.push((key, extent, false));
    }

    /// Called when a piece was answered: returns its extent, if the piece was a successful trim.
    pub(crate) fn ended(&mut self, key: PieceKey, is_well: bool) -> Option<Extent> {
        let index = self.under_way.iter().position(|(of, ..)| *of == key)?;
        let (_, extent, is_written_again) = self.under_way.swap_remove(index);
        (is_well && !is_written_again).then_some(extent)
    }

    /// Notes that the shard reports a trim of these marks. `none` makes an empty set of bits.
    pub(crate) fn tells(&mut self, marks: Range<u64>, none: impl FnOnce() -> Bits) {
        let told = self.told.get_or_insert_with(none);
        marks.for_each(|mark| told.set(mark));
    }

    /// Notes that a write to these marks has come. True if the array must take a trim back.
    pub(crate) fn writes(
        &mut self,
        marks: &Range<u64>,
        marks_of: impl Fn(Extent) -> Option<Range<u64>>,
    ) -> bool {
        if planted(Bug::TrimOutlivesWrite) {
            return false;
        }
        for (_, extent, is_written_again) in &mut self.under_way {
            let overlaps = |other: Range<u64>| marks.start < other.end && other.start < marks.end;
            *is_written_again |= marks_of(*extent).is_none_or(overlaps);
        }
        let Some(told) = self.told.as_mut().filter(|told| told.has_any(marks.clone())) else {
            return false;
        };
        marks.clone().for_each(|mark| told.clear(mark));
        if told.is_empty() {
            self.told = None;
        }
        true
    }

    /// Forgets all trims: the array has another bitmap, or none.
    pub(crate) fn forget(&mut self) {
        self.told = None;
        self.under_way.iter_mut().for_each(|(.., is_written_again)| *is_written_again = true);
    }
}
