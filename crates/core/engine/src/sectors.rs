//! Sets of the sectors of a stripe unit, and the extents that they are made of.
//!
//! A unit has at most 128 sectors, so a set is one number with a bit for each sector. Every
//! question of a batch about its sectors (written, to be read, in memory) is one bit operation.
//!
//! # When a gap is closed
//!
//! One request costs a member, the ring and the engine about as much as moving 4 to 8 KiB. (An NVMe
//! disk with 1 M requests and 7 GB a second: 7 KiB; a SATA disk with 100 K and 550 MB: 5 KiB.) So
//! one request spans two extents if their gap is less than a block. If the gap is a block or more,
//! two requests move less, and cost no more. A gap may hold only sectors that are known to be
//! right: [`SectorSet::joined`] receives them.
//!
//! - A set is the union of its extents, which neither touch nor overlap
//!   [check: extents_are_the_set].
//! - Only small gaps are closed, and only where that is allowed
//!   [check: small_gaps_are_closed_where_they_may_be].
//! - A block is taken whole or not at all [check: blocks_are_whole].

/// Sectors of a block. A gap shorter than a block is closed; a write shorter than a block is
/// gathered.
pub(crate) const BLOCK_SECTORS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u32,
    pub(crate) sectors: u32,
}

impl Extent {
    pub(crate) fn end(self) -> u32 {
        self.offset + self.sectors
    }

    pub(crate) fn set(self) -> SectorSet {
        SectorSet::run(self.offset, self.sectors)
    }

    /// A set of two sectors: the extent's first sector, and the sector after its last, if the
    /// stripe unit has one.
    pub(crate) fn edges(self) -> SectorSet {
        let after = 1_u128.checked_shl(self.end()).unwrap_or(0);
        SectorSet(1 << self.offset | after)
    }
}

/// A set of the sectors of a stripe unit, which has at most 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectorSet(u128);

impl SectorSet {
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn run(offset: u32, sectors: u32) -> Self {
        assert!(sectors <= 128 && offset + sectors <= 128, "a stripe unit has 128 sectors at most");
        // The offset of an empty run may be the end of the unit, where the shift would overflow.
        Self(if sectors == 0 { 0 } else { u128::MAX >> (128 - sectors) << offset })
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of sectors.
    #[must_use]
    pub fn sectors(self) -> u32 {
        self.0.count_ones()
    }

    /// The number of extents.
    pub(crate) fn runs(self) -> u32 {
        match self.is_one() {
            // Counting bits is slow on processors without an instruction for that.
            true => u32::from(!self.is_empty()),
            false => (self.0 & !(self.0 << 1)).count_ones(),
        }
    }

    /// Whether the set has at most one extent: adding its lowest bit carries over the whole extent.
    fn is_one(self) -> bool {
        let lowest = self.0 & self.0.wrapping_neg();
        self.0 & self.0.wrapping_add(lowest) == 0
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The sectors of the set, in order, as offsets from the start of the stripe unit.
    pub fn offsets(self) -> impl Iterator<Item = u32> {
        self.extents().flat_map(|extent| extent.offset..extent.end())
    }

    /// The first sector of the set at or after `from`.
    pub(crate) fn first_from(self, from: u32) -> Option<u32> {
        let rest = self.0.checked_shr(from).filter(|rest| *rest != 0)?;
        Some(from + rest.trailing_zeros())
    }

    pub(crate) fn extents(self) -> impl Iterator<Item = Extent> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let offset = rest.first_from(0)?;
            let extent = Extent { offset, sectors: (rest.0 >> offset).trailing_ones() };
            rest = rest.without(extent.set());
            Some(extent)
        })
    }

    /// All sectors of the blocks that the set touches.
    pub(crate) fn blocks(self) -> Self {
        let blocks = self.extents().map(|extent| {
            let offset = extent.offset / BLOCK_SECTORS * BLOCK_SECTORS;
            let end = extent.end().next_multiple_of(BLOCK_SECTORS);
            Extent { offset, sectors: end - offset }
        });
        blocks.collect()
    }

    /// The set with each small gap closed that lies wholly in `allowed`.
    pub(crate) fn joined(self, allowed: Self) -> Self {
        if self.is_one() {
            return self;
        }
        let mut joined = self;
        let mut last: Option<Extent> = None;
        for extent in self.extents() {
            if let Some(last) = last {
                let gap = Self::run(last.end(), extent.offset - last.end());
                let is_small = gap.sectors() < BLOCK_SECTORS;
                let is_allowed = allowed.contains(gap);
                if is_small && is_allowed {
                    joined = joined.union(gap);
                }
            }
            last = Some(extent);
        }
        joined
    }
}

impl FromIterator<Extent> for SectorSet {
    fn from_iter<T: IntoIterator<Item = Extent>>(extents: T) -> Self {
        extents.into_iter().map(Extent::set).fold(Self::EMPTY, Self::union)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random sets, and the sets at the edges of a stripe unit.
    fn sets() -> impl Iterator<Item = SectorSet> {
        let mix = |n: u64| (n ^ (n >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = move |n: u64| u128::from(mix(mix(n.wrapping_mul(0x94d0_49bb_1331_11eb)) ^ n));
        let some = (1..2000).map(move |n| {
            let (a, b) = (word(3 * n) << 64 | word(3 * n + 1), word(3 * n + 2));
            // Dense sets, thin sets, and sets with long extents.
            SectorSet(match n % 3 {
                0 => a,
                1 => a & (b << 64 | b),
                _ => a | a << 1 | a << 2 | a << 3,
            })
        });
        let edges = [0, 1, u128::MAX, 1 << 127, u128::MAX >> 1, u128::MAX << 1];
        some.chain(edges.map(SectorSet))
    }

    fn has(set: SectorSet, sector: u32) -> bool {
        set.0 >> sector & 1 == 1
    }

    #[test]
    fn extents_are_the_set() {
        for set in sets() {
            let extents: Vec<Extent> = set.extents().collect();
            assert!(extents.windows(2).all(|pair| pair[0].end() < pair[1].offset), "{extents:?}");
            assert!(extents.iter().all(|extent| extent.sectors > 0 && extent.end() <= 128));
            assert_eq!(extents.iter().copied().collect::<SectorSet>(), set);
            assert_eq!(extents.iter().map(|extent| extent.sectors).sum::<u32>(), set.sectors());
            assert_eq!(set.runs() as usize, extents.len());
            for from in 0..=128 {
                let first = (from..128).find(|sector| has(set, *sector));
                assert_eq!(set.first_from(from), first, "{set:?} from {from}");
            }
        }
    }

    #[test]
    fn blocks_are_whole() {
        for set in sets() {
            for first in (0..128).step_by(8) {
                let block = SectorSet::run(first, BLOCK_SECTORS);
                let has = set.blocks().common(block);
                assert_eq!(has, if set.meets(block) { block } else { SectorSet::EMPTY });
            }
        }
    }

    #[test]
    fn small_gaps_are_closed_where_they_may_be() {
        let pairs = sets().zip(sets().skip(7));
        for (set, allowed) in pairs.chain(sets().map(|set| (set, SectorSet(u128::MAX)))) {
            let joined = set.joined(allowed);
            assert!(joined.contains(set) && allowed.contains(joined.without(set)));
            let bounds = set.first_from(0).zip((0..128).rfind(|sector| has(set, *sector)));
            // For each sector: whether it lies in a gap, and that gap's length.
            for sector in (0..128).filter(|sector| !has(set, *sector)) {
                let inside = bounds.is_some_and(|(a, b)| a < sector && sector < b);
                let from = (0..sector).rfind(|place| has(set, *place)).map_or(0, |place| place + 1);
                let to = set.first_from(sector).unwrap_or(128);
                let may = (from..to).all(|place| has(allowed, place));
                let closed = inside && to - from < BLOCK_SECTORS && may;
                assert_eq!(has(joined, sector), closed, "{set:?} {sector}");
            }
        }
    }
}
