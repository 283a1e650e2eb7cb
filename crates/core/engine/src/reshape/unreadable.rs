//! The search for the sectors of a failed read that no member can give.
//!
//! A reshape reads long runs of the old shape. If such a read fails, the driver reads the run again
//! in halves, until only single sectors fail: those are lost. The driver writes [`lost_sector`] in
//! their place, and names them to the array ([`crate::array::Array::handle_moved`]).
//!
//! ```text
//!   failed read ─▶ halves ─▶ halves of the failed halves ─▶ ... ─▶ single sectors: lost
//! ```
//!
//! Invariants
//! - exactly the sectors that fail alone are lost
//!   `[check: exactly_the_sectors_that_fail_are_lost]`.

use std::ops::Range;

use braid_sim_hooks::{Bug, planted};

use crate::lost_content::lost_sector;

/// The most lost sectors of one search. Each costs some ten reads.
const LOST_SECTORS_MAX: u64 = 1024;
/// At most one in this many sectors of a run may be lost, or sixteen if that is more. A member with
/// more lost sectors answers nothing any more: the job then ends, and the operator decides.
const LOST_PART: u64 = 32;
const LOST_SECTORS_LEAST: u64 = 16;

/// A search for the unreadable sectors of a run. Sectors count from the start of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableSearch {
    /// Parts to read, in reverse order. They do not overlap.
    left: Vec<Range<u64>>,
    /// Lost sectors, in ascending order.
    lost: Vec<Range<u64>>,
    lost_sectors: u64,
    lost_sectors_max: u64,
}

impl UnreadableSearch {
    /// Begins a search: a read of all of `run` has failed.
    #[must_use]
    pub fn of(run: Range<u64>) -> Self {
        assert!(!run.is_empty(), "a read has sectors");
        let part = (run.end - run.start) / LOST_PART;
        let lost_sectors_max = part.clamp(LOST_SECTORS_LEAST, LOST_SECTORS_MAX);
        let (left, lost) = (Vec::new(), Vec::new());
        let mut search = Self { left, lost, lost_sectors: 0, lost_sectors_max };
        search.halve(run);
        search
    }

    /// The part to read next; `None` if the search is over.
    #[must_use]
    pub fn next_part(&mut self) -> Option<Range<u64>> {
        if self.is_too_much() { None } else { self.left.pop() }
    }

    /// Takes the result of the read of a part.
    pub fn ended(&mut self, part: Range<u64>, is_read: bool) {
        match (is_read, part.end - part.start) {
            (true, _) => {}
            (false, 1) => self.lose(part),
            (false, _) => self.halve(part),
        }
    }

    /// The lost sectors, when the search is over; `None` if they are too many.
    #[must_use]
    pub fn lost(self) -> Option<Vec<Range<u64>>> {
        let is_too_much = self.is_too_much();
        (!is_too_much).then_some(self.lost)
    }

    fn is_too_much(&self) -> bool {
        self.lost_sectors > self.lost_sectors_max
    }

    fn halve(&mut self, run: Range<u64>) {
        let middle = run.start + (run.end - run.start) / 2;
        let halves = [middle..run.end, run.start..middle];
        self.left.extend(halves.into_iter().filter(|half| !half.is_empty()));
    }

    fn lose(&mut self, sector: Range<u64>) {
        self.lost_sectors += 1;
        match self.lost.last_mut() {
            Some(last) if last.end == sector.start => last.end = sector.end,
            _ => self.lost.push(sector),
        }
    }
}

/// Puts [`lost_sector`] in the place of the lost sectors of `bytes`, which begin at sector `start`.
/// Lost sectors outside of `bytes` do not count. Returns the lost sectors inside.
pub fn fill_lost(bytes: &mut [u8], start: u64, lost: &[Range<u64>]) -> Vec<Range<u64>> {
    let length = lost_sector().len();
    let end = start + (bytes.len() / length) as u64;
    let inside = |range: &Range<u64>| range.start.max(start)..range.end.min(end);
    let inside: Vec<Range<u64>> =
        lost.iter().map(inside).filter(|range| !range.is_empty()).collect();
    for sector in inside.iter().cloned().flatten() {
        let at = usize::try_from(sector - start).expect("in memory") * length;
        bytes[at..at + length].copy_from_slice(lost_sector());
    }
    if planted(Bug::LostSectorsUnsaid) {
        return Vec::new();
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lost sectors that a search over `run` finds, and the number of its reads.
    fn search(run: Range<u64>, is_bad: impl Fn(u64) -> bool) -> (Option<Vec<Range<u64>>>, u64) {
        let (mut search, mut reads) = (UnreadableSearch::of(run), 0);
        while let Some(part) = search.next_part() {
            reads += 1;
            let is_read = !part.clone().any(&is_bad);
            search.ended(part, is_read);
        }
        (search.lost(), reads)
    }

    #[test]
    fn exactly_the_sectors_that_fail_are_lost() {
        for length in 1..40 {
            for pattern in 1..1_u64 << length.min(10) {
                let bad = |sector: u64| pattern >> (sector - 7) & 1 == 1;
                let run = 7..7 + length;
                let expected: Vec<u64> = run.clone().filter(|sector| bad(*sector)).collect();
                let (lost, _) = search(run, bad);
                let lost: Vec<u64> = lost.expect("a few").into_iter().flatten().collect();
                assert_eq!(lost, expected, "{length} {pattern:b}");
            }
        }
    }

    #[test]
    fn one_sector_of_a_long_run_costs_few_reads() {
        let (lost, reads) = search(0..4096, |sector| sector == 2000);
        assert_eq!(lost.expect("one").as_slice(), std::slice::from_ref(&(2000..2001)));
        assert!(reads <= 24, "{reads}");
    }

    #[test]
    fn a_member_that_answers_nothing_ends_the_search() {
        assert_eq!(search(0..4096, |sector| sector % 4 < 2).0, None);
        // A member of a wide array that answers nothing has few sectors of a run.
        assert_eq!(search(0..4096, |sector| sector / 128 % 16 == 3).0, None);
        let (lost, _) = search(0..4096, |sector| sector < 128);
        let lost = lost.expect("as many as may be");
        assert_eq!(lost.as_slice(), std::slice::from_ref(&(0..128)), "neighbours are one range");
    }

    #[test]
    fn a_part_of_a_window_has_its_own_lost_sectors() {
        let mut bytes = vec![7; 4 * 512];
        let inside = fill_lost(&mut bytes, 10, &[0..11, 12..13, 14..20]);
        assert_eq!(inside, [10..11, 12..13]);
        assert_eq!(bytes[..512], *lost_sector());
        assert!(bytes[512..1024].iter().all(|byte| *byte == 7));
        assert_eq!(bytes[1024..1536], *lost_sector());
    }
}
