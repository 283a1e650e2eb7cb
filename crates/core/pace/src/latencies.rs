//! Latencies of requests: a histogram whose buckets are wider for longer latencies.
//!
//! The runtime fills a histogram for each slice of time, and the governor reads it. Recording is an
//! index and an addition, without allocation. Histograms of several threads are added up. A caller
//! that counts in memory shared by threads asks for the bucket and adds its counts later.
//!
//! Sixteen buckets for each doubling, from 64 ns to two minutes: a latency is known to one part in
//! sixteen `[check: a_value_is_known_to_a_sixteenth]`, which is finer than any target for latency.

/// The width of each of the first buckets, in nanoseconds, as a power of two.
const UNIT_BITS: u32 = 6;
/// The number of buckets for each doubling, as a power of two.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// A latency of 2^31 units or more (137 s) is counted in the last bucket.
const TOP_BIT: u32 = 30;
const BUCKETS: usize = ((TOP_BIT - SUB_BITS + 1) as usize + 1) * SUB;

/// The number of requests in each bucket of latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    counts: [u32; BUCKETS],
    total: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

impl Latencies {
    /// The number of buckets.
    pub const BUCKETS: usize = BUCKETS;

    /// The bucket of a latency, below [`Self::BUCKETS`].
    #[must_use]
    pub fn bucket_of(latency_ns: u64) -> usize {
        bucket(latency_ns)
    }

    /// Adds `requests` requests to one bucket.
    ///
    /// # Panics
    /// If the bucket does not exist.
    pub fn record_counted(&mut self, bucket: usize, requests: u32) {
        let before = self.counts[bucket];
        self.counts[bucket] = before.saturating_add(requests);
        self.total += u64::from(self.counts[bucket] - before);
    }

    /// Adds one request of this latency.
    pub fn record(&mut self, latency_ns: u64) {
        let count = &mut self.counts[bucket(latency_ns)];
        // A bucket whose counter is full stays as it is: it has enough weight.
        if let Some(more) = count.checked_add(1) {
            *count = more;
            self.total += 1;
        }
    }

    /// Adds all counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.total = self.counts.iter().map(|count| u64::from(*count)).sum();
    }

    /// Sets all counts to zero.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The number of requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The latency that `permille` thousandths of the requests did not exceed; `None` if there are
    /// no requests. Assumes that the requests of a bucket are spread evenly in it.
    #[must_use]
    pub fn quantile_ns(&self, permille: u32) -> Option<u64> {
        let rank = (u128::from(self.total) * u128::from(permille.min(1000))).div_ceil(1000).max(1);
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let count = u128::from(*count);
            if below + count >= rank {
                let (start, end) = (start_ns(bucket), start_ns(bucket + 1));
                let into = u128::from(end - start) * (rank - below) / count;
                return Some(start + u64::try_from(into).expect("inside a bucket"));
            }
            below += count;
        }
        None
    }

    /// The number of requests that took longer than `limit_ns`. Includes all requests in the bucket
    /// of `limit_ns`, which may have taken less.
    #[must_use]
    pub fn beyond(&self, limit_ns: u64) -> u64 {
        self.counts[bucket(limit_ns)..].iter().map(|count| u64::from(*count)).sum()
    }
}

fn bucket(latency_ns: u64) -> usize {
    let units = latency_ns >> UNIT_BITS;
    let top = units.checked_ilog2().unwrap_or(0);
    if top < SUB_BITS {
        return usize::try_from(units).expect("a few units");
    }
    if top > TOP_BIT {
        return BUCKETS - 1;
    }
    let within = usize::try_from(units >> (top - SUB_BITS)).expect("five bits") - SUB;
    (top - SUB_BITS + 1) as usize * SUB + within
}

/// The lowest latency of a bucket, which is also the end of the bucket before.
fn start_ns(bucket: usize) -> u64 {
    let (doubling, within) = (bucket / SUB, bucket % SUB);
    let units = match doubling.checked_sub(1) {
        None => within as u64,
        Some(shift) => ((SUB + within) as u64) << shift,
    };
    units << UNIT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_to_a_sixteenth() {
        let mut ns = 64;
        while ns < 100_000_000_000 {
            let bucket = bucket(ns);
            assert!(start_ns(bucket) <= ns && ns < start_ns(bucket + 1), "{ns}");
            assert!(start_ns(bucket + 1) - start_ns(bucket) <= (ns / 16).max(64), "{ns}");
            let mut latencies = Latencies::default();
            latencies.record(ns);
            assert_eq!(latencies.quantile_ns(990), Some(start_ns(bucket + 1)));
            assert_eq!((latencies.beyond(ns + ns / 8 + 64), latencies.beyond(ns)), (0, 1));
            ns += ns / 7 + 1;
        }
        assert_eq!(
            (0..BUCKETS).map(start_ns).map(bucket).collect::<Vec<_>>(),
            Vec::from_iter(0..BUCKETS)
        );
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_ns(500), None);
        (1..=1000).for_each(|us| latencies.record(us * 1000));
        for (permille, us) in [(0, 1_u64), (500, 500), (990, 990), (1000, 1000), (9999, 1000)] {
            let found = latencies.quantile_ns(permille).unwrap();
            // The test's latencies are not spread quite evenly, so the quantile is off by a little.
            assert!(
                found >= (us - 1) * 1000 && found <= us * 1000 * 17 / 16 + 64,
                "{permille}: {found}"
            );
        }
        let above = latencies.beyond(900_000);
        assert!((100..=160).contains(&above), "{above}");
        assert_eq!(latencies.beyond(u64::MAX), 0);
    }

    #[test]
    fn slices_add_up() {
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        (0..100).for_each(|_| one.record(5_000));
        (0..51).for_each(|_| other.record(900_000));
        one.add(&other);
        assert_eq!((one.total(), one.beyond(10_000)), (151, 51));
        one.record_counted(Latencies::bucket_of(900_000), 4);
        assert_eq!((one.total(), one.beyond(10_000)), (155, 55));
        one.clear();
        assert_eq!(one, Latencies::default());
    }
}
