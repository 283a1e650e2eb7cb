//! Sets of ranges of a member's data area.
//!
//! *Bad blocks* are the ranges that md's bad-block log names. A read that touches a bad block goes
//! to the other members, as if this member were missing there. Writes still go to the member; a
//! written block is good again, and leaves the log ([`crate::array`], `bad_logs`).
//!
//! *Ranges ahead* are ranges of a member in recovery that were recovered before their turn, because
//! a client read them ([`crate::array::MemberView::ahead`]).

use braid_geometry::MemberSector;
use braid_ondisk::bad_blocks::RECORD_SECTORS_MAX;
use braid_sim_hooks::{Bug, planted};

/// One range of a member's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRange {
    /// First sector of the range, counted from the start of the data area.
    pub start: MemberSector,
    /// Number of sectors, at least one.
    pub sectors: u64,
}

/// Ranges of one member, sorted, neither overlapping nor touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRanges {
    ranges: Vec<MemberRange>,
}

/// A range of a member that must not be believed.
pub type BadRange = MemberRange;

/// Ranges of a member that its bad-block log names.
pub type BadBlocks = MemberRanges;

impl MemberRanges {
    /// Builds the set from ranges in any order; empty ranges are dropped, overlapping ones joined.
    #[must_use]
    pub fn new(mut ranges: Vec<MemberRange>) -> Self {
        ranges.retain(|range| range.sectors > 0);
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<MemberRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.start.0.saturating_add(last.sectors) >= range.start.0 => {
                    let end = range.start.0.saturating_add(range.sectors);
                    last.sectors = last.sectors.max(end - last.start.0);
                }
                _ => joined.push(range),
            }
        }
        Self { ranges: joined }
    }

    /// The ranges, in ascending order.
    #[must_use]
    pub fn ranges(&self) -> &[MemberRange] {
        &self.ranges
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of sectors in the ranges.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.ranges.iter().map(|range| range.sectors).sum()
    }

    /// The number of records that the ranges take in md's log: one for each run of 512 sectors at
    /// most.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.ranges.iter().map(|range| range.sectors.div_ceil(RECORD_SECTORS_MAX)).sum()
    }

    /// The ranges cut into runs of 512 sectors at most, one for each record of md's log.
    pub(crate) fn by_record(&self) -> impl DoubleEndedIterator<Item = MemberRange> {
        self.ranges.iter().flat_map(|range| {
            let (start, count) = (range.start.0, range.sectors.div_ceil(RECORD_SECTORS_MAX));
            (0..count).map(move |index| {
                let passed = index * RECORD_SECTORS_MAX;
                let sectors = (range.sectors - passed).min(RECORD_SECTORS_MAX);
                MemberRange { start: MemberSector(start + passed), sectors }
            })
        })
    }

    /// The union.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::new([self.ranges.as_slice(), &other.ranges].concat())
    }

    /// The set without the sectors of `hole`.
    #[must_use]
    pub fn without(&self, hole: MemberRange) -> Self {
        let end_of = |range: &MemberRange| range.start.0.saturating_add(range.sectors);
        let rest = |range: &MemberRange| {
            let (start, end) = (range.start.0, end_of(range));
            let before = (start, end.min(hole.start.0));
            let behind = (start.max(end_of(&hole)), end);
            [before, behind].into_iter().filter(|(start, end)| start < end).collect::<Vec<_>>()
        };
        let left = self.ranges.iter().flat_map(rest);
        let range = |(start, end)| MemberRange { start: MemberSector(start), sectors: end - start };
        Self { ranges: left.map(range).collect() }
    }

    /// The ranges, with sectors counted from `start`; the sectors before `start` are left out.
    #[must_use]
    pub fn from_sector(&self, start: u64) -> Self {
        let moved = |range: &MemberRange| {
            let end = range.start.0.saturating_add(range.sectors).saturating_sub(start);
            let first = range.start.0.saturating_sub(start);
            MemberRange { start: MemberSector(first), sectors: end - first }
        };
        Self::new(self.ranges.iter().map(moved).collect())
    }

    /// The sectors of this set that `other` lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let end_of = |range: &MemberRange| range.start.0.saturating_add(range.sectors);
        let mut ranges = Vec::new();
        let mut holes = other.ranges.iter().peekable();
        for range in &self.ranges {
            let (mut at, end) = (range.start.0, end_of(range));
            let mut push = |from: u64, to: u64| {
                if from < to {
                    ranges.push(MemberRange { start: MemberSector(from), sectors: to - from });
                }
            };
            while let Some(hole) = holes.next_if(|hole| end_of(hole) <= end) {
                push(at, hole.start.0);
                at = at.max(end_of(hole));
            }
            // The last hole may reach into the next range.
            match holes.peek().filter(|hole| hole.start.0 < end) {
                Some(hole) => push(at, hole.start.0),
                None => push(at, end),
            }
        }
        Self { ranges }
    }

    /// The sectors that both sets contain.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    /// Whether the ranges cover all `sectors` sectors from `start` on.
    #[must_use]
    pub fn contains(&self, start: MemberSector, sectors: u64) -> bool {
        self.touches(start, 1) && self.alike(start, sectors) == sectors
    }

    /// Whether the ranges cover any of the `sectors` sectors from `start` on.
    #[must_use]
    pub fn touches(&self, start: MemberSector, sectors: u64) -> bool {
        if planted(Bug::BadBlocksIgnored) {
            return false;
        }
        let after = self.ranges.partition_point(|range| range.start.0 < start.0 + sectors);
        after > 0 && {
            let range = self.ranges[after - 1];
            let end = range.start.0.saturating_add(range.sectors);
            end > start.0
        }
    }

    /// The length of the longest run from `start`, up to `sectors`, that lies wholly inside or
    /// wholly outside the ranges; at least one.
    #[must_use]
    pub fn alike(&self, start: MemberSector, sectors: u64) -> u64 {
        let next = self.ranges.partition_point(|range| range.start.0 <= start.0);
        let end_of = |range: &MemberRange| range.start.0.saturating_add(range.sectors);
        let own = next.checked_sub(1).map(|before| end_of(&self.ranges[before]));
        let inside_until = own.filter(|end| *end > start.0);
        let outside_until = || self.ranges.get(next).map_or(u64::MAX, |range| range.start.0);
        (inside_until.unwrap_or_else(outside_until) - start.0).min(sectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, sectors: u64) -> BadRange {
        BadRange { start: MemberSector(start), sectors }
    }

    #[test]
    fn touching_is_overlap_and_nothing_else() {
        let bad = BadBlocks::new(vec![range(100, 8), range(10, 2), range(104, 20), range(7, 0)]);
        for (start, sectors, expected) in [
            (0, 10, false),
            (0, 11, true),
            (11, 1, true),
            (12, 88, false),
            (12, 89, true),
            (123, 1, true),
            (124, 1000, false),
        ] {
            assert_eq!(bad.touches(MemberSector(start), sectors), expected, "{start}+{sectors}");
        }
        assert!(!BadBlocks::default().touches(MemberSector(0), u64::from(u32::MAX)));
    }

    #[test]
    fn what_was_written_is_taken_out_and_the_rest_stays() {
        let bad = BadBlocks::new(vec![range(10, 10), range(30, 600)]);
        assert_eq!((bad.sectors(), bad.records()), (610, 3));
        let ranges = |bad: &BadBlocks| -> Vec<(u64, u64)> {
            bad.ranges().iter().map(|range| (range.start.0, range.sectors)).collect()
        };
        assert_eq!(ranges(&bad.without(range(12, 3))), [(10, 2), (15, 5), (30, 600)]);
        assert_eq!(ranges(&bad.without(range(0, 35))), [(35, 595)]);
        assert_eq!(ranges(&bad.without(range(20, 10))), [(10, 10), (30, 600)]);
        assert!(bad.without(range(0, 1000)).is_empty());
        let both = bad.without(range(12, 3)).union(&BadBlocks::new(vec![range(11, 4)]));
        assert_eq!(both, bad);
        for (start, sectors, expected) in
            [(10, 10, true), (9, 2, false), (19, 2, false), (40, 1, true)]
        {
            assert_eq!(bad.contains(MemberSector(start), sectors), expected, "{start}+{sectors}");
        }
    }

    #[test]
    fn sets_are_taken_from_each_other() {
        // Tests every pair of sets of eight sectors.
        let set_of = |bits: u64| {
            let sectors = (0..8).filter(|sector| bits >> sector & 1 == 1);
            BadBlocks::new(sectors.map(|sector| range(sector, 1)).collect())
        };
        let sets: Vec<BadBlocks> = (0..256).map(set_of).collect();
        for (one, a) in (0_usize..).zip(&sets) {
            for (other, b) in (0_usize..).zip(&sets) {
                assert_eq!(a.difference(b), sets[one & !other], "{a:?} {b:?}");
                assert_eq!(a.common(b), sets[one & other], "{a:?} {b:?}");
            }
        }
        let long = BadBlocks::new(vec![range(8, 1100), range(2000, 512)]);
        let records: Vec<_> = long.by_record().collect();
        assert_eq!(records, [range(8, 512), range(520, 512), range(1032, 76), range(2000, 512)]);
        assert_eq!(records.len() as u64, long.records());
    }

    #[test]
    fn a_long_range_hides_no_shorter_one_inside_it() {
        let bad = BadBlocks::new(vec![range(0, 100), range(10, 1)]);
        assert!(bad.touches(MemberSector(50), 1));
    }
}
