//! Which stripe holds a band: open addressing in fixed memory, a cache line at a time.
//!
//! ```text
//!   band ──multiplied, halves folded──▶ home ──▶ │ a b c · │ d · · · │ e f g h │ i · · · │   a line: 64 bytes
//!                                                 the line, and the next as long as it is full
//! ```
//!
//! A line has four places of 16 bytes each: four bands, side by side so that they are compared at
//! once and without a branch that no processor can foresee, and their stripes. The table has at
//! least two places for every stripe that there is, so it is never more than half full, whatever
//! the size of the cache, and nineteen lookups of twenty look at one line; that is what keeps a
//! lookup as cheap at a million stripes as at 256, as far as the table decides it. (A fixed number
//! of chained buckets, as md had for long, grows with the cache instead: 16 K stripes in 512
//! buckets are 32 to a chain.)
//!
//! The rest is decided by the processor's caches: a large table is not in them, and a line comes
//! from memory. So a driver that knows what will be asked says so in advance ([`Index::prefetch`]),
//! and several lines come at the same time. A small table is in the caches anyhow, and then nothing
//! is done.
//!
//! *Home* is the 128-bit product of the band and a constant, its halves folded into each other: one
//! multiplication, and bands at any regular distance, the usual case, spread as if by chance. In a
//! line the places in use are the first ones. Removal closes the gap with the line's last; where
//! the line was full, the first entry further on that belongs at or before it moves in, and leaves
//! a gap in turn. So there are no tombstones, and probes do not grow with age.
//!
//! Invariants
//! - What was inserted and not removed is found, and nothing else [check: index_agrees_with_a_map].
//! - Probes stay short at every size [check: probes_do_not_grow_with_the_cache].

use braid_prefetch::prefetch;

/// No band has this key: a member has fewer sectors.
const NO_BAND: u64 = u64::MAX;

/// Places in a line.
const PLACES: usize = 4;

/// Lines of a table that is not in the processor's caches for certain: 256 KiB of them.
const LARGE_LINES: usize = 4096;

/// Places that are in the processor's caches together, or not. Those in use come first.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    bands: [u64; PLACES],
    stripes: [u32; PLACES],
}

const _: () = assert!(size_of::<Line>() == 64, "16 bytes for each place");

impl Line {
    const EMPTY: Self = Self { bands: [NO_BAND; PLACES], stripes: [0; PLACES] };

    /// Where the band is, if it is here.
    #[inline]
    fn find(&self, band: u64) -> Option<usize> {
        // At most one of them, so that there is nothing to decide until the end.
        let is = |place: usize| usize::from(self.bands[place] == band);
        let place = is(1) + 2 * is(2) + 3 * is(3);
        (self.bands[place % PLACES] == band).then_some(place % PLACES)
    }

    fn is_full(&self) -> bool {
        self.bands[PLACES - 1] != NO_BAND
    }

    /// Places in use.
    fn used(&self) -> usize {
        self.bands.iter().take_while(|band| **band != NO_BAND).count()
    }

    fn set(&mut self, place: usize, (band, stripe): (u64, u32)) {
        (self.bands[place], self.stripes[place]) = (band, stripe);
    }
}

/// From bands to stripes. Bands are numbered by the member sector they begin at, divided by the
/// stripe unit.
#[derive(Debug)]
pub struct Index {
    lines: Box<[Line]>,
    /// Bits to drop of a hash.
    shift: u32,
    occupied: usize,
    extra_probes: u64,
}

impl Index {
    /// For so many stripes at most.
    #[must_use]
    pub fn new(stripes: usize) -> Self {
        let lines = (2 * stripes).next_power_of_two().div_ceil(PLACES).max(2);
        let shift = 64 - lines.trailing_zeros();
        let lines = vec![Line::EMPTY; lines].into_boxed_slice();
        Self { lines, shift, occupied: 0, extra_probes: 0 }
    }

    /// It is for so many stripes at most from now on. One that is too small is made anew, at least
    /// twice as large.
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

    /// The stripe of this band will be asked for soon, behind other work.
    #[inline]
    pub fn prefetch(&self, band: u64) {
        if self.is_large() {
            prefetch(&self.lines[self.home(band)]);
        }
    }

    /// Whether it is worth saying in advance what will be asked.
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

    /// The stripe of a band; the look is not counted.
    pub(super) fn look_up(&self, band: u64) -> Option<u32> {
        let (line, place) = self.find(band);
        place.map(|place| self.lines[line].stripes[place])
    }

    /// Lines looked at beyond the first one, in all calls of [`Self::get`].
    #[must_use]
    pub fn extra_probes(&self) -> u64 {
        self.extra_probes
    }

    /// Makes `stripe` the stripe of `band`, which has none.
    ///
    /// # Panics
    /// When it has one, or when there are more than the index was made for.
    pub fn insert(&mut self, band: u64, stripe: u32) {
        let (line, place) = self.find(band);
        assert!(place.is_none() && band != NO_BAND, "a band has one stripe at most");
        assert!(2 * self.occupied < PLACES * self.lines.len(), "at most half full");
        let line = &mut self.lines[line];
        line.set(line.used(), (band, stripe));
        self.occupied += 1;
    }

    /// The band has no stripe any more; gives the one that it had.
    ///
    /// # Panics
    /// When it had none.
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
            // Nothing went past a line that had room.
            let Some((from, moved)) = was_full.then(|| self.passed(gap)).flatten() else {
                return stripe;
            };
            let Line { bands, stripes } = self.lines[from];
            self.lines[gap].set(last, (bands[moved], stripes[moved]));
            (gap, place) = (from, moved);
        }
    }

    /// The first entry behind a line that belongs into it or before it.
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

    /// Lines from one to another, to the right.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.lines.len() - 1)
    }

    /// The line that the band is in, and its place; else the line that it would be in.
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

    /// Numbers without a pattern.
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
