//! The stripes of a shard, which band each has, and which of them are free.
//!
//! ```text
//!             a band takes it                    its work is done
//!   idle ────────────────────────▶ in use ─────────────────────────▶ idle
//!    ▲ │                             │
//!    │ └─── the cache is made smaller, and ───▶ retired (no band) ───┐
//!    │      the stripe is one too many                               │
//!    └──────────────────── the cache is made larger ─────────────────┘
//! ```
//!
//! An idle stripe keeps its band, and with it what it holds of it, until another band takes it. Idle stripes are taken in
//! the order in which they became so, so that what they hold is there for as long as can be; those that hold nothing of
//! use (a whole band was written) go first, and the last one first of all, which is the cheapest for the processor's
//! caches.
//!
//! Invariants
//! - A band has one stripe at most, and the index knows it: [`Index::insert`] and [`Index::remove`] assert it.
//! - A stripe is in the idle list exactly if it is idle [check: stripes_come_and_go].

use braid_geometry::RowMap;
use braid_hooks::{Mark, Point, reached, sometimes};

use super::band::{Band, BandKey};
use super::batch::Stripe;
use super::index::Index;
use super::list::{Links, List};

/// What a stripe is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    /// It has no work.
    Idle,
    /// It has work, or is about to.
    InUse,
    /// The cache has been made smaller.
    Retired,
}

/// The stripes, by number.
#[derive(Debug)]
pub(super) struct Pool {
    stripes: Vec<Stripe>,
    usages: Vec<Usage>,
    index: Index,
    links: Links,
    idle: List,
    /// More than that are never asked for.
    stripes_max: u32,
    /// Stripes from this one on are retired, or will be when they have no work.
    target: u32,
}

impl Pool {
    /// No stripe yet; `stripes_max` at most, ever.
    pub(super) fn new(stripes_max: u32) -> Self {
        assert!(stripes_max > 0, "without a stripe nothing can be written");
        Self {
            stripes: Vec::new(),
            usages: Vec::new(),
            index: Index::new(1),
            links: Links::default(),
            idle: List::EMPTY,
            stripes_max,
            target: 0,
        }
    }

    /// Stripes that there may ever be.
    pub(super) fn stripes_max(&self) -> u32 {
        self.stripes_max
    }

    /// Numbers of the stripes that there are.
    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.stripes.len()).expect("stripes are counted so")
    }

    pub(super) fn stripe(&self, number: u32) -> &Stripe {
        &self.stripes[number as usize]
    }

    pub(super) fn stripe_mut(&mut self, number: u32) -> &mut Stripe {
        &mut self.stripes[number as usize]
    }

    /// Whether the stripe has work, or is about to.
    pub(super) fn is_in_use(&self, number: u32) -> bool {
        self.usages[number as usize] == Usage::InUse
    }

    /// The stripe of a band, in use or idle. Counted ([`Self::extra_probes`]).
    pub(super) fn find(&mut self, band: BandKey) -> Option<u32> {
        self.index.get(band.0)
    }

    /// The same; the look is not counted.
    pub(super) fn peek(&self, band: BandKey) -> Option<u32> {
        self.index.look_up(band.0)
    }

    /// The stripe of a band, if it has one that works on a batch.
    pub(super) fn batch_of(&self, band: BandKey) -> Option<&Stripe> {
        Some(self.stripe(self.peek(band)?)).filter(|stripe| stripe.has_batch())
    }

    /// Lines of the index looked at beyond the first one.
    pub(super) fn extra_probes(&self) -> u64 {
        self.index.extra_probes()
    }

    /// Whether the index is so large that it pays to say in advance what will be looked up.
    pub(super) fn is_worth_prefetching(&self) -> bool {
        self.index.is_large()
    }

    /// The band will be looked up soon.
    pub(super) fn prefetch(&self, band: BandKey) {
        self.index.prefetch(band.0);
    }

    /// The stripe that the next band without one takes.
    pub(super) fn first_idle(&self) -> Option<u32> {
        self.idle.first()
    }

    /// Makes an idle stripe the stripe of `band`. It stays idle until it is used.
    pub(super) fn assign(&mut self, number: u32, band: Band, map: RowMap) {
        assert_eq!(self.usages[number as usize], Usage::Idle, "only an idle stripe is given away");
        assert!(number < self.target, "a stripe that is one too many is retired, not given away");
        if let Some(old) = self.stripes[number as usize].assign(band, map) {
            assert_eq!(self.index.remove(old.0), number, "the index knows every band");
        }
        self.index.insert(band.key.0, number);
    }

    /// The stripe has work from now on.
    pub(super) fn take(&mut self, number: u32) {
        let usage = &mut self.usages[number as usize];
        if *usage == Usage::Idle {
            self.idle.remove(&mut self.links, number);
            *usage = Usage::InUse;
        }
        assert_eq!(*usage, Usage::InUse, "a retired stripe gets no work");
        let has_band = self.stripes[number as usize].band_if_any().is_some();
        assert!(has_band, "a stripe gets the work of its band");
    }

    /// The stripe has no work any more. Whether it can be taken again; else it is retired.
    pub(super) fn put_back(&mut self, number: u32) -> bool {
        let (stripe, usage) =
            (&mut self.stripes[number as usize], &mut self.usages[number as usize]);
        assert_eq!(*usage, Usage::InUse, "it was taken");
        stripe.rest();
        if number >= self.target {
            *usage = Usage::Retired;
            if let Some(old) = stripe.retire() {
                assert_eq!(self.index.remove(old.0), number, "the index knows every band");
            }
            return false;
        }
        *usage = Usage::Idle;
        if stripe.is_worth_keeping() {
            self.idle.push_back(&mut self.links, number);
        } else {
            // Its memory is still in the processor's caches, and that is all it is good for.
            self.idle.push_front(&mut self.links, number);
        }
        true
    }

    /// Makes as many stripes as are asked for, or retires those that are too many: at once if they are idle, else when
    /// they are put back.
    pub(super) fn resize(&mut self, stripes: u32, blank: impl Fn() -> Stripe) {
        let target = stripes.clamp(1, self.stripes_max);
        let target = if sometimes(Point::OneStripe) { 1 } else { target };
        if target == self.target {
            return;
        }
        while self.numbers().end < target {
            self.stripes.push(blank());
            self.usages.push(Usage::Retired);
        }
        self.links.grow(self.stripes.len());
        self.target = target;
        let mut index = self.index.successor(self.stripes.len());
        for number in self.numbers() {
            let usage = &mut self.usages[number as usize];
            if *usage == Usage::Retired && number < target {
                *usage = Usage::Idle;
                self.idle.push_front(&mut self.links, number);
            } else if *usage == Usage::Idle && number >= target {
                reached(Mark::StripeRetired);
                self.idle.remove(&mut self.links, number);
                *usage = Usage::Retired;
                self.stripes[number as usize].retire();
            }
            if let Some(band) = self.stripes[number as usize].band_if_any() {
                index.insert(band.key.0, number);
            }
        }
        self.index = index;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use braid_geometry::ChunkRow;

    use super::super::band::Bands;
    use super::super::tests::{geometry, write_piece};
    use super::*;

    const UNIT: u32 = 8;

    fn pool(stripes: u32) -> Pool {
        let mut pool = Pool::new(8);
        pool.resize(stripes, blank);
        pool
    }

    fn blank() -> Stripe {
        let geometry = geometry(3, UNIT, 64);
        Stripe::new(&geometry, UNIT)
    }

    fn band(row: u64) -> (Band, RowMap) {
        let geometry = geometry(3, UNIT, 64);
        let piece = write_piece(row * 2 * u64::from(UNIT), 1);
        let (band, _) = Bands::new(&geometry, UNIT, &piece, (0, 1)).next().unwrap();
        (band, geometry.row_map(ChunkRow(row)))
    }

    /// A pool against a map from bands to stripes, through growth and shrinking.
    #[test]
    fn stripes_come_and_go() {
        let mut pool = pool(4);
        let mut in_use = BTreeMap::new();
        let mut state = 7_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let row = (state >> 33) % 16;
            match (state >> 50) % 8 {
                0 => {
                    let size = u32::try_from((state >> 40) % 8 + 1).unwrap();
                    pool.resize(size, blank);
                }
                1..4 => {
                    if let Some((row, number)) = in_use.pop_first() {
                        let is_kept = pool.put_back(number);
                        assert_eq!(is_kept, number < pool.target);
                        assert_eq!(
                            pool.peek(BandKey(row)).is_some(),
                            is_kept,
                            "idle bands are known"
                        );
                    }
                }
                _ => {
                    let (band, map) = band(row);
                    let found = pool.find(band.key);
                    let Some(number) = found.or(pool.first_idle()) else { continue };
                    if found.is_none() {
                        pool.assign(number, band, map);
                    }
                    pool.take(number);
                    let before = in_use.insert(row, number);
                    assert!(before.is_none_or(|before| before == number), "one stripe for a band");
                }
            }
            let used = pool.numbers().filter(|number| pool.is_in_use(*number)).count();
            assert_eq!(used, in_use.len());
            assert!(in_use.iter().all(|(row, number)| pool.peek(BandKey(*row)) == Some(*number)));
            let idle = pool.first_idle();
            assert!(idle.is_none_or(|number| number < pool.target && !pool.is_in_use(number)));
        }
    }
}
