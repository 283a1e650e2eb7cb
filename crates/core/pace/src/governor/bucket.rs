//! A token bucket: a number of bytes for each second, and some saved bytes.
//!
//! The governor keeps two buckets: one for the floor, one for the ceiling. Tokens are bytes times
//! 10^9, so that a rate times nanoseconds is exact, and rounding loses nothing however often the
//! governor reads the bucket `[check: the_rate_is_exact_however_often_it_is_asked]`.

const SECOND: i128 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    bytes_per_second: u64,
    depth_bytes: u64,
    tokens: i128,
}

impl Bucket {
    /// An empty bucket that fills up to `depth_bytes`.
    pub(super) fn new(bytes_per_second: u64, depth_bytes: u64) -> Self {
        Self { bytes_per_second, depth_bytes, tokens: 0 }
    }

    /// Changes the rate and the depth, and keeps the tokens.
    pub(super) fn set(&mut self, bytes_per_second: u64, depth_bytes: u64) {
        (self.bytes_per_second, self.depth_bytes) = (bytes_per_second, depth_bytes);
        self.advance(0);
    }

    pub(super) fn advance(&mut self, elapsed_ns: u64) {
        let more = i128::from(self.bytes_per_second) * i128::from(elapsed_ns);
        self.tokens = (self.tokens + more).min(i128::from(self.depth_bytes) * SECOND);
    }

    /// Takes bytes out of the bucket; the bucket may go into debt.
    pub(super) fn take(&mut self, bytes: u64) {
        self.tokens -= i128::from(bytes) * SECOND;
    }

    pub(super) fn forgive(&mut self) {
        self.tokens = self.tokens.max(0);
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.tokens.max(0) / SECOND).unwrap_or(u64::MAX)
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= self.depth_bytes
    }

    /// Nanoseconds until the bucket has `bytes`; `None` if it never will.
    pub(super) fn wait_ns(&self, bytes: u64) -> Option<u64> {
        let lacking = i128::from(bytes) * SECOND - self.tokens;
        if lacking <= 0 {
            return Some(0);
        }
        if bytes > self.depth_bytes || self.bytes_per_second == 0 {
            return None;
        }
        let rate = i128::from(self.bytes_per_second);
        Some(u64::try_from((lacking + rate - 1) / rate).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_exact_however_often_it_is_asked() {
        for step_ns in [1, 7, 999, 1_000_003] {
            let mut bucket = Bucket::new(333, u64::MAX);
            let steps = 2_000_000;
            (0..steps).for_each(|_| bucket.advance(step_ns));
            assert_eq!(bucket.bytes(), 333 * steps * step_ns / 1_000_000_000);
        }
    }

    #[test]
    fn it_waits_as_long_as_it_says() {
        let mut bucket = Bucket::new(1000, 5000);
        assert_eq!((bucket.bytes(), bucket.wait_ns(5000)), (0, Some(5_000_000_000)));
        assert_eq!(bucket.wait_ns(5001), None);
        let wait_ns = bucket.wait_ns(7).unwrap();
        bucket.advance(wait_ns - 1);
        assert!(bucket.bytes() < 7);
        bucket.advance(1);
        assert_eq!((bucket.bytes(), bucket.wait_ns(7), bucket.is_full()), (7, Some(0), false));
        bucket.take(9);
        assert_eq!((bucket.bytes(), bucket.wait_ns(1)), (0, Some(3_000_000)));
        bucket.advance(u64::MAX);
        assert_eq!((bucket.bytes(), bucket.is_full()), (5000, true));
        bucket.set(0, 10);
        assert_eq!((bucket.bytes(), bucket.wait_ns(11)), (10, None));
    }
}
