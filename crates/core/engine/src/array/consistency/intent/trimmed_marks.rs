//! Collects the marks that clients have trimmed whole, from the trims that shards report.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_ondisk::Bits;

/// The most trimmed ranges that are kept. Beyond that number, the ranges that make no whole mark
/// yet are forgotten.
const RANGES_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct TrimmedMarks {
    /// Trimmed ranges of the array, from start to end. The ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    /// Fully trimmed marks; their sectors are not in `ranges`.
    marks: Bits,
}

impl TrimmedMarks {
    pub(super) fn none_of(marks: &Bits) -> Self {
        let marks = Bits::none(marks.sectors(), marks.sectors_each());
        Self { ranges: BTreeMap::new(), marks }
    }

    pub(super) fn marks(&self) -> &Bits {
        &self.marks
    }

    /// Notes that a client trimmed a range of the array.
    pub(super) fn add(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        while let Some((first, last)) = self.ranges.range(..=end).next_back() {
            let (first, last) = (*first, *last);
            if last < start {
                break;
            }
            self.ranges.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.ranges.insert(start, end);
        if self.ranges.len() > RANGES_MAX {
            self.ranges.clear();
        }
    }

    /// Marks `mark` as trimmed if the trimmed ranges cover all its sectors in the array.
    pub(super) fn look_at(&mut self, mark: u64, sectors: &[Range<u64>]) {
        let has = |range: &Range<u64>| {
            let found = self.ranges.range(..=range.start).next_back();
            found.is_some_and(|(_, end)| *end >= range.end)
        };
        if !sectors.is_empty() && sectors.iter().all(has) {
            self.marks.set(mark);
            sectors.iter().for_each(|range| self.remove(range));
        }
    }

    /// Forgets the trims under a mark. Either a client writes to sectors under the mark again, or
    /// the mark became unwritten.
    pub(super) fn forget(&mut self, mark: u64, sectors: &[Range<u64>]) {
        self.marks.clear(mark);
        sectors.iter().for_each(|range| self.remove(range));
    }

    fn remove(&mut self, range: &Range<u64>) {
        while let Some((start, end)) = self.ranges.range(..range.end).next_back() {
            let (start, end) = (*start, *end);
            if end <= range.start {
                return;
            }
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
            if start < range.start {
                self.ranges.insert(start, range.start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[Range<u64>]) -> TrimmedMarks {
        let mut trimmed_marks = TrimmedMarks::none_of(&Bits::none(64, 8));
        ranges.iter().for_each(|range| trimmed_marks.add(range.clone()));
        trimmed_marks
    }

    fn ranges(trimmed_marks: &TrimmedMarks) -> Vec<(u64, u64)> {
        trimmed_marks.ranges.iter().map(|(start, end)| (*start, *end)).collect()
    }

    #[test]
    fn ranges_join_in_any_order() {
        assert_eq!(ranges(&of(&[8..16, 0..8, 24..32])), [(0, 16), (24, 32)]);
        assert_eq!(ranges(&of(&[0..4, 8..12, 2..20])), [(0, 20)]);
        assert_eq!(ranges(&of(&[0..20, 3..5])), [(0, 20)]);
        let mut all = of(&[0..20, 30..40]);
        all.remove(&(10..35));
        assert_eq!(ranges(&all), [(0, 10), (35, 40)]);
    }

    #[test]
    fn a_mark_is_given_up_when_all_of_it_is() {
        // A mark that stands for sectors of two columns.
        let mark = [0..8, 16..24];
        let mut trimmed_marks = of(std::slice::from_ref(&mark[0]));
        trimmed_marks.look_at(0, &mark);
        assert!(trimmed_marks.marks().is_empty());
        trimmed_marks.add(10..30);
        trimmed_marks.look_at(0, &mark);
        assert!(trimmed_marks.marks().is_set(0));
        assert_eq!(ranges(&trimmed_marks), [(10, 16), (24, 30)]);
        trimmed_marks.forget(0, &mark);
        assert!(trimmed_marks.marks().is_empty());
    }
}
