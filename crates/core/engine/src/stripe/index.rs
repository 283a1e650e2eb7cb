//! The index from bands to stripes: open addressing in fixed memory, a cache line at a time.
//!
//! ```text
//!   band ──multiplied, halves folded──▶ home ──▶ │ a b c · │ d · · · │ e f g h │ i · · · │
//!                                                 a line of 64 bytes; the next while it is full
//! ```
//!
//! A line has four places of 16 bytes: four bands side by side, compared at once without an
//! unpredictable branch, and their stripes. The table has at least two places for every stripe, so
//! it is never more than half full, whatever the size of the cache. Nineteen lookups of twenty look
//! at one line, at a million stripes as at 256. (md long had a fixed number of chained buckets.
//! Chains grow with the cache: 16 K stripes in 512 buckets are 32 to a chain.)
//!
//! A large table does not fit the processor's caches, and a line comes from memory. A driver that
//! knows the next lookups announces them ([`Index::prefetch`]), so that several lines are fetched
//! at the same time. For a small table a prefetch does nothing.
//!
//! *Home* is the 128-bit product of the band and a constant, its halves folded into each other: one
//! multiplication. Bands at any regular distance, the usual case, spread as if by chance. In a line
//! the used places come first. Removal closes the gap with the line's last entry. If the line was
//! full, the first later entry whose home is at or before the gap moves in, and leaves a gap in
//! turn. So the table needs no tombstones, and probes do not grow with age.
//!
//! Invariants
//! - The index returns exactly the inserted bands, until they are removed
//!   [check: index_agrees_with_a_map].
//! - Probes stay short at every size [check: probes_do_not_grow_with_the_cache].

use braid_prefetch::prefetch;

/// Marks a free place. Every member has fewer sectors than this number.
const NO_BAND: u64 = u64::MAX;

const PLACES: usize = 4;

/// A table of at least this many lines (256 KiB) may not fit the processor's caches.
const LARGE_LINES: usize = 4096;

/// The places of one cache line. Used places come first.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    bands: [u64; PLACES],
    stripes: [u32; PLACES],
}

const _: () = assert!(size_of::<Line>() == 64, "16 bytes for each place");

impl Line {
    const EMPTY: Self = Self { bands: [NO_BAND; PLACES], stripes: [0; PLACES] };

    /// The band's place, if it is in this line.
    #[inline]
    fn find(&self, band: u64) -> Option<usize> {
        // At most one place matches, so the sum needs no branch.
        let is = |place: usize| usize::from(self.bands[place] == band);
        let place = is(1) + 2 * is(2) + 3 * is(3);
        (self.bands[place % PLACES] == band).then_some(place % PLACES)
    }

    fn is_full(&self) -> bool {
        self.bands[PLACES - 1] != NO_BAND
    }

    fn used(&self) -> usize {
        self.bands.iter().take_while(|band| **band != NO_BAND).count()
    }

    fn set(&mut self, place: usize, (band, stripe): (u64, u32)) {
        (self.bands[place], self.stripes[place]) = (band, stripe);
    }
}

/// Maps each band with a cached stripe to that stripe's number. A band's number is its first member
/// sector divided by the stripe unit.
#[derive(Debug)]
pub struct Index {
    lines: Box<[Line]>,
    /// Number of low bits of a hash that are dropped.
    shift: u32,
    occupied: usize,
    extra_probes: u64,
}

impl Index {
    /// An index for at most this many stripes.
    #[must_use]
    pub fn new(stripes: usize) -> Self {
        let lines = (2 * stripes).next_power_of_two().div_ceil(PLACES).max(2);
        let shift = 64 - lines.trailing_zeros();
        let lines = vec![Line::EMPTY; lines].into_boxed_slice();
        Self { lines, shift, occupied: 0, extra_probes: 0 }
    }

    /// Makes room for this many stripes. If the table is too small, it is rebuilt, at least twice
    /// as large.
    pub(super) fn grow(&mut self, stripes: usize) {
        if 2 * stripes <= PLACES * self.lines.len() {
            return;
        }
        let larger = Self { extra_probes: self.extra_probes, ..Self::new(stripes) };
        for line in std::mem::replace(self, larger).lines {
            let used = line.used();
            let entries = line.bands.into_iter().zip(line.stripes).take(used);
            entries.for_each(|(band, stripe)| self.insert(band, stripe));
        }
    }

    /// Fetches the band's cache line, because a caller will soon look up the band's stripe.
    #[inline]
    pub fn prefetch(&self, band: u64) {
        if self.is_large() {
            prefetch(&self.lines[self.home(band)]);
        }
    }

    /// Whether prefetching pays.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.lines.len() >= LARGE_LINES
    }

    /// The stripe of a band.
    #[must_use]
    #[inline]
    pub fn get(&mut self, band: u64) -> Option<u32> {
        let (line, place) = self.find(band);
        let stripe = place.map(|place| self.lines[line].stripes[place]);
        self.extra_probes += self.distance(self.home(band), line) as u64;
        stripe
    }

    /// The stripe of a band. Unlike [`Self::get`], counts no probes.
    pub(super) fn look_up(&self, band: u64) -> Option<u32> {
        let (line, place) = self.find(band);
        place.map(|place| self.lines[line].stripes[place])
    }

    /// Lines read beyond the first one, in all calls of [`Self::get`].
    #[must_use]
    pub fn extra_probes(&self) -> u64 {
        self.extra_probes
    }

    /// Makes `stripe` the stripe of `band`, which has no stripe yet.
    ///
    /// # Panics
    /// If the band has a stripe, or the index is full.
    pub fn insert(&mut self, band: u64, stripe: u32) {
        let (line, place) = self.find(band);
        assert!(place.is_none() && band != NO_BAND, "a band has one stripe at most");
        assert!(2 * self.occupied < PLACES * self.lines.len(), "at most half full");
        let line = &mut self.lines[line];
        line.set(line.used(), (band, stripe));
        self.occupied += 1;
    }

    /// Removes a band from the index, and returns the number of its stripe.
    ///
    /// # Panics
    /// If the index has no stripe for the band.
    pub fn remove(&mut self, band: u64) -> u32 {
        let (mut gap, place) = self.find(band);
        let mut place = place.expect("it has one");
        let stripe = self.lines[gap].stripes[place];
        self.occupied -= 1;
        loop {
            let line = &mut self.lines[gap];
            let (was_full, last) = (line.is_full(), line.used() - 1);
            line.set(place, (line.bands[last], line.stripes[last]));
            line.set(last, (NO_BAND, 0));
            // If the line had room, no entry was pushed past it, and none need move back.
            let Some((from, moved)) = was_full.then(|| self.passed(gap)).flatten() else {
                return stripe;
            };
            let Line { bands, stripes } = self.lines[from];
            self.lines[gap].set(last, (bands[moved], stripes[moved]));
            (gap, place) = (from, moved);
        }
    }

    /// The place of the first entry after `line` that belongs in `line` or before it.
    fn passed(&self, line: usize) -> Option<(usize, usize)> {
        let mut further = line;
        loop {
            further = (further + 1) & (self.lines.len() - 1);
            let Line { bands, .. } = &self.lines[further];
            let went_past = |band: &u64| {
                *band != NO_BAND
                    && self.distance(self.home(*band), further) >= self.distance(line, further)
            };
            if let Some(place) = bands.iter().position(went_past) {
                return Some((further, place));
            }
            if !self.lines[further].is_full() {
                return None;
            }
        }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "each half of the product counts")]
    fn home(&self, band: u64) -> usize {
        let product = u128::from(band ^ 0x9e37_79b9_7f4a_7c15) * 0xbf58_476d_1ce4_e5b9;
        let [low, high] = [product, product >> 64].map(|half| half as u64);
        usize::try_from((low ^ high) >> self.shift).expect("fewer bits than a place has")
    }

    /// Number of lines from `from` to `to`, to the right.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.lines.len() - 1)
    }

    /// The band's line, and the band's place in that line. For an absent band, the line where
    /// `insert` would put it.
    #[inline]
    fn find(&self, band: u64) -> (usize, Option<usize>) {
        let mut at = self.home(band);
        loop {
            let line = &self.lines[at];
            let place = line.find(band);
            if place.is_some() || !line.is_full() {
                return (at, place);
            }
            at = (at + 1) & (self.lines.len() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn numbers(seed: u64) -> impl Iterator<Item = u64> {
        let mix = |n: u64| (n ^ (n >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (seed..).map(move |n| mix(mix(n.wrapping_mul(0x94d0_49bb_1331_11eb)) ^ n) >> 7)
    }

    #[test]
    fn index_agrees_with_a_map() {
        for (seed, spread, stripes) in [(1, 8, 20), (2, 40, 20), (3, 1 << 40, 20), (4, 30, 8)] {
            let mut index = Index::new(stripes);
            let mut map = BTreeMap::new();
            for number in numbers(seed * 1_000_000).take(20_000) {
                let band = number % spread;
                if let Some(stripe) = map.remove(&band) {
                    assert_eq!(index.remove(band), stripe);
                } else if map.len() < stripes {
                    let stripe = u32::try_from(number % 1000).unwrap();
                    map.insert(band, stripe);
                    index.insert(band, stripe);
                } else if let Some((band, stripe)) = map.pop_first() {
                    assert_eq!(index.remove(band), stripe);
                }
                assert_eq!(index.occupied, map.len());
                for probe in map.keys().copied().chain([band, band + 1]) {
                    assert_eq!(index.get(probe), map.get(&probe).copied());
                }
            }
            assert!(stripes > 8 || index.extra_probes() > 0, "some lines were full");
        }
    }

    #[test]
    fn probes_do_not_grow_with_the_cache() {
        for stripes in [256_usize, 16 << 10] {
            for stride in [1, 2, 16, 24, 1000] {
                let mut index = Index::new(stripes);
                (0..stripes as u64).for_each(|n| index.insert(n * stride, 0));
                let distance = |n: u64| {
                    let band = n * stride;
                    index.distance(index.home(band), index.find(band).0)
                };
                let all: usize = (0..stripes as u64).map(distance).sum();
                assert!(10 * all <= stripes, "{all} steps for {stripes} bands of stride {stride}");
            }
        }
    }
}
