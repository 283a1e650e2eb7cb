//! Ranges of a member that md's bad-block log says cannot be trusted.
//!
//! A read that touches one goes to the other members, as if this member were missing there. Writes
//! still go to the member, so that the range holds the right bytes whatever md decides about it
//! later; the log itself is left as md wrote it.

use braid_geometry::MemberSector;
use braid_hooks::{Bug, planted, spoiled};

/// One bad range of a member's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRange {
    /// First bad sector, counted from the start of the data area.
    pub start: MemberSector,
    /// Number of bad sectors, at least one.
    pub sectors: u64,
}

/// The bad ranges of one member, sorted and not overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks {
    ranges: Vec<BadRange>,
}

impl BadBlocks {
    /// Builds the set from ranges in any order; empty ranges are dropped, overlapping ones joined.
    #[must_use]
    pub fn new(mut ranges: Vec<BadRange>) -> Self {
        ranges.retain(|range| range.sectors > 0);
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<BadRange> = Vec::with_capacity(ranges.len());
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
    pub fn ranges(&self) -> &[BadRange] {
        &self.ranges
    }

    /// Whether nothing is bad.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether any of the `sectors` sectors from `start` on is bad.
    #[must_use]
    pub fn touches(&self, start: MemberSector, sectors: u64) -> bool {
        if planted(Bug::BadBlocksIgnored) {
            return false;
        }
        let after = self.ranges.partition_point(|range| range.start.0 < start.0 + sectors);
        after > 0 && {
            let range = self.ranges[after - 1];
            let end = range.start.0.saturating_add(range.sectors);
            let end = spoiled(Bug::BadBlocksShort, end, end.wrapping_sub(1));
            end > start.0
        }
    }

    /// How many of the `sectors` sectors from `start` on are all bad, or all good; at least one.
    #[must_use]
    pub fn alike(&self, start: MemberSector, sectors: u64) -> u64 {
        let next = self.ranges.partition_point(|range| range.start.0 <= start.0);
        let end_of = |range: &BadRange| range.start.0.saturating_add(range.sectors);
        let own = next.checked_sub(1).map(|before| end_of(&self.ranges[before]));
        let bad_until = own.filter(|end| *end > start.0);
        let good_until = || self.ranges.get(next).map_or(u64::MAX, |range| range.start.0);
        (bad_until.unwrap_or_else(good_until) - start.0).min(sectors)
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
    fn a_long_range_hides_no_shorter_one_inside_it() {
        let bad = BadBlocks::new(vec![range(0, 100), range(10, 1)]);
        assert!(bad.touches(MemberSector(50), 1));
    }
}
