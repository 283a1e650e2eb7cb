//! Holds the bytes in flight, on average, at an allowance that need not be whole windows.
//!
//! The governor sets the allowance. Nothing else about the members is measured: the members decide
//! how long a window takes, and hence how many windows go through in a second.
//!
//! ```text
//!   in flight   ▁▁▇▇▇▁▁▁▁▁▁▁▁▁▁▁▁▇▇▇▁▁▁▁▁▁▁▁▁▁▁▁▇▇▇   one window, and rest
//!   allowance   ─────────────────────────────────   a fifth of a window
//!   credit      ╲    the integral of allowance − in flight; paid back: the next window begins
//! ```
//!
//! So one number covers both ways in which a job holds back: fewer windows at a time, and pauses
//! between them. The rule holds for members of any speed: when a window takes longer because
//! members serve clients, the rest after the window is longer.
//!
//! Invariant: over time the mean in flight is the allowance, if the job has work
//! `[check: the_mean_is_the_allowance]`, and unused allowance is not saved up
//! `[check: nothing_is_saved_up]`.

/// The longest rest between windows: after this time the next window may begin, whatever the last
/// window cost.
const REST_MAX_NS: u64 = 2_000_000_000;
/// Unused allowance is kept for this long, to cover the moment between the end of a window and the
/// start of the next.
const SAVED_NS: u64 = 1_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    bytes: u64,
    credit: i128,
    /// Byte-nanoseconds in flight since the last [`Flight::take_used`].
    used: u128,
}

impl Flight {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn advance(&mut self, elapsed_ns: u64, allowance_bytes: u64) {
        self.used += u128::from(self.bytes) * u128::from(elapsed_ns);
        let allowance = i128::from(allowance_bytes);
        let earned = (allowance - i128::from(self.bytes)) * i128::from(elapsed_ns);
        let (least, most) =
            (-allowance * i128::from(REST_MAX_NS), allowance * i128::from(SAVED_NS));
        self.credit = (self.credit + earned).clamp(least, most);
    }

    pub(super) fn begin(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn end(&mut self, bytes: u64) {
        self.bytes = self.bytes.checked_sub(bytes).expect("what is done was begun");
    }

    /// Takes the byte-nanoseconds in flight since the last call, and resets them to zero.
    pub(super) fn take_used(&mut self) -> u128 {
        std::mem::take(&mut self.used)
    }

    /// The bytes that may begin now, in whole pieces.
    pub(super) fn room(&self, allowance_bytes: u64, piece_bytes: u64) -> u64 {
        if self.credit < 0 {
            return 0;
        }
        let most = allowance_bytes.div_ceil(piece_bytes).saturating_mul(piece_bytes);
        let room = most.saturating_sub(self.bytes);
        room - room % piece_bytes
    }

    /// Nanoseconds until the rest between windows is over. `None` without a rest, or if bytes in
    /// flight must end first.
    pub(super) fn wait_ns(&self, allowance_bytes: u64) -> Option<u64> {
        if self.credit >= 0 {
            return None;
        }
        let rate = allowance_bytes.checked_sub(self.bytes).filter(|rate| *rate > 0)?;
        let wait = self.credit.unsigned_abs().div_ceil(u128::from(rate));
        Some(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const WINDOW: u64 = 1 << 20;

    /// Runs windows of `window_ns` each for ten minutes; returns the mean number of bytes in
    /// flight.
    fn mean(allowance: u64, window_ns: u64) -> f64 {
        let mut flight = Flight::default();
        let mut ends = std::collections::VecDeque::new();
        let (mut now, end) = (0, 600_000 * MS);
        while now < end {
            while flight.room(allowance, WINDOW) > 0 {
                flight.begin(WINDOW);
                ends.push_back(now + window_ns);
            }
            let rested = flight.wait_ns(allowance).map(|wait| now + wait);
            let next =
                ends.front().copied().into_iter().chain(rested).min().expect("something comes");
            flight.advance(next - now, allowance);
            now = next;
            if ends.front() == Some(&now) {
                ends.pop_front();
                flight.end(WINDOW);
            }
        }
        flight.take_used() as f64 / now as f64
    }

    #[test]
    fn the_mean_is_the_allowance() {
        for allowance in [WINDOW / 50, WINDOW / 3, WINDOW - 1, WINDOW, 3 * WINDOW / 2, 7 * WINDOW] {
            for window_ns in [MS / 10, 7 * MS, 30 * MS] {
                let mean = mean(allowance, window_ns) / allowance as f64;
                assert!((mean - 1.0).abs() < 0.02, "{mean} of {allowance} with {window_ns}");
            }
        }
    }

    #[test]
    fn nothing_is_saved_up() {
        let mut flight = Flight::default();
        flight.advance(3_600_000 * MS, WINDOW / 2);
        assert_eq!(flight.room(WINDOW / 2, WINDOW), WINDOW);
        flight.begin(WINDOW);
        flight.advance(10 * MS, WINDOW / 2);
        flight.end(WINDOW);
        assert_eq!(flight.room(WINDOW / 2, WINDOW), 0);
        assert_eq!(flight.wait_ns(WINDOW / 2), Some(10 * MS - SAVED_NS));
    }

    #[test]
    fn no_rest_is_for_ever() {
        let mut flight = Flight::default();
        (0..16).for_each(|_| flight.begin(WINDOW));
        flight.advance(60_000 * MS, 64);
        assert_eq!(flight.wait_ns(64), None);
        flight.end(16 * WINDOW);
        assert_eq!(flight.wait_ns(64), Some(REST_MAX_NS));
    }
}
