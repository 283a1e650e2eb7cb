//! Which stripe holds a band: open addressing in fixed memory.
//!
//! ```text
//!   band ──multiplied, halves folded──▶ home ──▶ │ · │ · │ a │ b │ c │ · │ · │   16 bytes each
//!                                                 probe to the right until found or empty
//! ```
//!
//! The table has at least two places for every stripe that there is, so it is never more than half full, whatever the
//! size of the cache; that is what keeps a lookup as cheap at a million stripes as at 256. (A fixed number of chained
//! buckets, as md had for long, grows with the cache instead: 16 K stripes in 512 buckets are 32 to a chain.)
//!
//! *Home* is the 128-bit product of the band and a constant, its halves folded into each other: one multiplication, and
//! bands at any regular distance, the usual case, spread as if by chance. Removal closes the gap: every entry behind it that is farther from
//! home than the gap moves into it, so there are no tombstones and probes do not grow with age.
//!
//! Invariants
//! - What was inserted and not removed is found, and nothing else: `index_agrees_with_a_map`.
//! - Probes stay short at every size: `probes_do_not_grow_with_the_cache`.

/// No band has this key: a member has fewer sectors.
const NOBODY: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    band: u64,
    stripe: u32,
}

const _: () = assert!(size_of::<Entry>() == 16, "four entries to a cache line");

const EMPTY: Entry = Entry { band: NOBODY, stripe: 0 };

/// From bands to stripes. Bands are numbered by the member sector they begin at, divided by the
/// stripe unit.
#[derive(Debug)]
pub struct Index {
    entries: Box<[Entry]>,
    /// Bits to drop of a hash.
    shift: u32,
    occupied: usize,
    extra_probes: u64,
}

impl Index {
    /// For so many stripes at most.
    #[must_use]
    pub fn new(stripes: usize) -> Self {
        let places = (2 * stripes).next_power_of_two().max(2);
        let entries = vec![EMPTY; places].into_boxed_slice();
        Self { entries, shift: 64 - places.trailing_zeros(), occupied: 0, extra_probes: 0 }
    }

    /// An empty one for so many stripes, which goes on counting.
    pub(super) fn successor(&self, stripes: usize) -> Self {
        Self { extra_probes: self.extra_probes, ..Self::new(stripes) }
    }

    /// The stripe of a band.
    #[must_use]
    pub fn get(&mut self, band: u64) -> Option<u32> {
        let place = self.find(band);
        let mask = self.entries.len() - 1;
        self.extra_probes += (place.wrapping_sub(self.home(band)) & mask) as u64;
        let found = &self.entries[place];
        (found.band == band).then_some(found.stripe)
    }

    /// The stripe of a band; the look is not counted.
    pub(super) fn look_up(&self, band: u64) -> Option<u32> {
        let found = &self.entries[self.find(band)];
        (found.band == band).then_some(found.stripe)
    }

    /// Places looked at beyond the first one, in all calls of [`Self::get`].
    #[must_use]
    pub fn extra_probes(&self) -> u64 {
        self.extra_probes
    }

    /// Makes `stripe` the stripe of `band`, which has none.
    ///
    /// # Panics
    /// When it has one, or when there are more than the index was made for.
    pub fn insert(&mut self, band: u64, stripe: u32) {
        let place = self.find(band);
        let is_free = self.entries[place].band == NOBODY;
        assert!(is_free && band != NOBODY, "a band has one stripe at most");
        assert!(2 * self.occupied < self.entries.len(), "at most half full");
        self.entries[place] = Entry { band, stripe };
        self.occupied += 1;
    }

    /// The band has no stripe any more; gives the one that it had.
    ///
    /// # Panics
    /// When it had none.
    pub fn remove(&mut self, band: u64) -> u32 {
        let mut gap = self.find(band);
        let stripe = self.get(band).expect("it has one");
        let mask = self.entries.len() - 1;
        let mut place = gap;
        loop {
            place = (place + 1) & mask;
            let entry = self.entries[place];
            if entry.band == NOBODY {
                break;
            }
            let from_home = place.wrapping_sub(self.home(entry.band)) & mask;
            let from_gap = place.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.entries[gap] = entry;
                gap = place;
            }
        }
        self.entries[gap] = EMPTY;
        self.occupied -= 1;
        stripe
    }

    #[allow(clippy::cast_possible_truncation, reason = "each half of the product counts")]
    fn home(&self, band: u64) -> usize {
        let product = u128::from(band ^ 0x9e37_79b9_7f4a_7c15) * 0xbf58_476d_1ce4_e5b9;
        let [low, high] = [product, product >> 64].map(|half| half as u64);
        usize::try_from((low ^ high) >> self.shift).expect("fewer bits than a place has")
    }

    /// Where the band is, or where it would be.
    fn find(&self, band: u64) -> usize {
        let mask = self.entries.len() - 1;
        let mut place = self.home(band);
        loop {
            let entry = &self.entries[place];
            if entry.band == band || entry.band == NOBODY {
                return place;
            }
            place = (place + 1) & mask;
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
        for (seed, spread) in [(1, 8), (2, 40), (3, 1 << 40)] {
            let mut index = Index::new(20);
            let mut map = BTreeMap::new();
            for number in numbers(seed * 1_000_000).take(20_000) {
                let band = number % spread;
                if let Some(stripe) = map.remove(&band) {
                    assert_eq!(index.remove(band), stripe);
                } else if map.len() < 20 {
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
        }
    }

    #[test]
    fn probes_do_not_grow_with_the_cache() {
        for stripes in [256_usize, 16 << 10] {
            for stride in [1, 2, 16, 24, 1000] {
                let mut index = Index::new(stripes);
                (0..stripes as u64).for_each(|n| index.insert(n * stride, 0));
                let mask = index.entries.len() - 1;
                let distance = |n: u64| {
                    let band = n * stride;
                    index.find(band).wrapping_sub(index.home(band)) & mask
                };
                let all: usize = (0..stripes as u64).map(distance).sum();
                assert!(all <= stripes, "{all} steps for {stripes} bands of stride {stride}");
            }
        }
    }
}
