//! Detects a change of clients' load: by the number of requests for each second.
//!
//! The result is only a hint: the governor probes earlier, and the probe shows whether the load
//! changed. Clients that wait for each other are faster or slower as the job is, so the hint may be
//! wrong.

use std::cmp::Ordering;

/// A sample of the rate ends after this many requests, or after `SPAN_NS`.
const REQUESTS: u64 = 64;
const SPAN_NS: u64 = 5_000_000_000;

/// A number of requests, and the time in which they ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub(super) requests: u64,
    pub(super) ns: u64,
}

impl Pace {
    pub(super) fn add(&mut self, requests: u64, ns: u64) {
        self.requests = self.requests.saturating_add(requests);
        self.ns = self.ns.saturating_add(ns);
    }

    /// Compares the rates: greater or less only if one rate is more than half as high again as the
    /// other. Equal if both samples have only a handful of requests.
    pub(super) fn compare(self, other: Self) -> Ordering {
        let cross = |one: Self, other: Self| u128::from(one.requests) * u128::from(other.ns);
        let (this, that) = (cross(self, other), cross(other, self));
        if self.requests.max(other.requests) < REQUESTS / 2 {
            return Ordering::Equal;
        }
        match this.cmp(&that) {
            Ordering::Greater if this.saturating_mul(2) > that.saturating_mul(3) => {
                Ordering::Greater
            }
            Ordering::Less if that.saturating_mul(2) > this.saturating_mul(3) => Ordering::Less,
            _ => Ordering::Equal,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pulse {
    now: Pace,
    before: Option<Pace>,
}

impl Pulse {
    /// Adds a slice of clients' latencies while the job ran. Returns true if the load has changed.
    pub(super) fn slice(&mut self, requests: u64, ns: u64) -> bool {
        self.now.add(requests, ns);
        if self.now.requests < REQUESTS && self.now.ns < SPAN_NS {
            return false;
        }
        let now = std::mem::take(&mut self.now);
        self.before.replace(now).is_some_and(|before| now.compare(before).is_ne())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_once() {
        let mut pulse = Pulse::default();
        let mut seen =
            |requests, slices| (0..slices).filter(|_| pulse.slice(requests, 100_000_000)).count();
        assert_eq!(seen(1000, 50), 0);
        assert_eq!(seen(1400, 50), 0);
        assert_eq!(seen(2900, 50), 1);
        assert_eq!(seen(10, 50), 1);
        assert_eq!(seen(0, 500), 1);
        assert_eq!((seen(1, 500), seen(1, 500)), (1, 0));
    }
}
