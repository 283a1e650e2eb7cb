//! Clients' latency without the job: learned while the job is quiet.
//!
//! The governor adds slices of time in which the job was quiet. The slices together are compared
//! with the known baseline, and join it or replace it.
//!
//! The baseline is the last two generations of requests. Slices show another load if their median
//! is more than twice the baseline's, or less than half. Their rate of requests shows another load
//! if it is more than half as high again, or below two thirds. Slices must show another load twice
//! in a row and in the same direction; then the old baseline is forgotten. The median and not p99
//! is compared, because a few requests make it certain. Two showings in a row are needed, because a
//! queue has better and worse moments `[check: another_load_is_noticed]`,
//! `[check: the_same_load_is_not_taken_for_another]`.

use std::cmp::Ordering;

use super::pulse::Pace;
use crate::latencies::Latencies;

/// Gathered slices are compared with the baseline once they have this many requests.
const WEIGHED: u64 = 64;
const GENERATION: u64 = 500;
/// The baseline's p99 is known from this many requests on.
const KNOWN: u64 = 20;
/// From this many requests on, the baseline has no urgent need of more requests.
const WELL_KNOWN: u64 = 200;

/// The result of a comparison with the baseline if the load is the same.
const SAME: (Ordering, Ordering) = (Ordering::Equal, Ordering::Equal);

#[derive(Clone, Debug, Default)]
struct LatencySample {
    latencies: Latencies,
    ns: u64,
}

impl LatencySample {
    fn add(&mut self, latencies: &Latencies, ns: u64) {
        self.latencies.add(latencies);
        self.ns = self.ns.saturating_add(ns);
    }

    fn pace(&self) -> Pace {
        Pace { requests: self.latencies.total(), ns: self.ns }
    }

    fn median_ns(&self) -> u64 {
        self.latencies.quantile_ns(500).unwrap_or(0)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Baseline {
    gathered: LatencySample,
    now: LatencySample,
    before: LatencySample,
    /// Slices that look as if the load has changed; the next slices confirm or deny the change.
    doubted: Option<LatencySample>,
    /// p99 over both generations of requests.
    p99_ns: Option<u64>,
    median_ns: u64,
    known: Pace,
}

impl Baseline {
    /// Nanoseconds that one request in a hundred exceeds; `None` before it is known.
    pub(super) fn p99_ns(&self) -> Option<u64> {
        self.p99_ns
    }

    /// Whether the baseline has enough requests, so that more requests are not urgent.
    pub(super) fn is_well_known(&self) -> bool {
        self.known.requests >= WELL_KNOWN && self.doubted.is_none()
    }

    /// Adds a slice in which the job was quiet. Returns true if the old baseline was forgotten.
    pub(super) fn gather(&mut self, slice: &Latencies, slice_ns: u64) -> bool {
        self.gathered.add(slice, slice_ns);
        let gathered = self.gathered.latencies.total();
        let is_known = self.known.requests >= KNOWN;
        // Until a baseline is known, a few requests suffice.
        if gathered < if is_known { WEIGHED } else { KNOWN } {
            return false;
        }
        let gathered = std::mem::take(&mut self.gathered);
        let differs = if is_known { self.differs(&gathered) } else { SAME };
        let before = self.doubted.take();
        let is_other = differs != SAME
            && before.as_ref().is_some_and(|doubted| self.differs(doubted) == differs);
        if is_other {
            // The doubted slices are dropped: some of their requests may be of the old load.
            (self.now, self.before) = (LatencySample::default(), LatencySample::default());
        } else if let Some(doubted) = before {
            // The load has not changed, so the doubted slices join the baseline.
            self.now.add(&doubted.latencies, doubted.ns);
        }
        if differs != SAME && !is_other {
            self.doubted = Some(gathered);
            return false;
        }
        if self.now.latencies.total() >= GENERATION {
            self.before = std::mem::take(&mut self.now);
        }
        self.now.add(&gathered.latencies, gathered.ns);
        let mut both = self.now.clone();
        both.add(&self.before.latencies, self.before.ns);
        self.known = both.pace();
        self.median_ns = both.median_ns();
        let p99_ns = both.latencies.quantile_ns(990);
        self.p99_ns = p99_ns.filter(|_| self.known.requests >= KNOWN);
        is_other
    }

    /// How the requests of `lot` differ from the baseline: by their median, and by their rate.
    fn differs(&self, lot: &LatencySample) -> (Ordering, Ordering) {
        let (new, known) = (u128::from(lot.median_ns()), u128::from(self.median_ns));
        let by_median = match new.cmp(&known) {
            Ordering::Less if 2 * new < known => Ordering::Less,
            Ordering::Greater if new > 2 * known => Ordering::Greater,
            _ => Ordering::Equal,
        };
        (by_median, lot.pace().compare(self.known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// A slice of latencies between `scale_us` and four times that, in a repeating order. One
    /// request in fifty has the largest latency.
    fn slice(requests: u64, scale_us: u64, turn: u64) -> Latencies {
        let mut latencies = Latencies::default();
        for index in 0..requests {
            let percent = (index + turn) * 37 % 100;
            latencies.record(scale_us * US * (100 + 3 * percent) / 100);
        }
        latencies
    }

    #[test]
    fn the_same_load_is_not_taken_for_another() {
        let mut baseline = Baseline::default();
        for turn in 0..1000 {
            assert!(!baseline.gather(&slice(7, 500, 7 * turn), 7));
        }
        let p99 = baseline.p99_ns().unwrap() as f64 / (500.0 * US as f64 * 3.97);
        assert!((p99 - 1.0).abs() < 0.08 && baseline.is_well_known(), "{p99}");
    }

    #[test]
    fn another_load_is_noticed() {
        for (from_us, to_us) in [(500, 1100), (1100, 500), (100, 50_000), (50_000, 100)] {
            let mut baseline = Baseline::default();
            (0..300).for_each(|turn| assert!(!baseline.gather(&slice(40, from_us, turn), 40)));
            let noticed =
                (0..9).filter(|turn| baseline.gather(&slice(40, to_us, *turn), 40)).count();
            assert_eq!(noticed, 1, "{from_us} to {to_us}");
            let p99_ns = baseline.p99_ns().unwrap();
            assert!(p99_ns > 3 * to_us * US && p99_ns < 5 * to_us * US, "{p99_ns}");
        }
    }

    #[test]
    fn a_few_requests_say_nothing() {
        let mut baseline = Baseline::default();
        (0..19).for_each(|_| assert!(!baseline.gather(&slice(1, 500, 0), 1)));
        assert_eq!((baseline.p99_ns(), baseline.is_well_known()), (None, false));
        baseline.gather(&slice(1, 500, 0), 1);
        assert!(baseline.p99_ns().is_some() && !baseline.is_well_known());
    }
}
