//! Decides whether a worker does a client's long write itself, or hands the write to a worker that
//! sleeps.
//!
//! A worker that has received a long write can carry it out and receive the next write afterwards.
//! Or it wakes another worker for the write, and receives the next one meanwhile. The second way is
//! faster if a next write comes, and slower if none does: a client with one request at a time also
//! waits for the wake-up. The worker infers which kind of client it has:
//! ```text
//!   a long write comes ── another request under way? ──yes──▶ the client has several: credit full
//!                                     │ no
//!                                     ▼
//!                          some credit? ──yes──▶ one less, and hand it over
//!                                     │ no
//!                                     ▼
//!                          every so many: hand it over, see what comes meanwhile; else do it here
//! ```
//! A worker that does everything itself never sees two requests under way, whatever waits in the
//! client's socket. So it hands a write over now and then, as a trial. Reads are never handed over:
//! the sending thread does most of their work, and the lab found no gain (docs/lab.md).
//!
//! Invariant: a client with one request at a time pays for one wake-up in [`TRY_EVERY`] writes
//! `[check: one_at_a_time_is_seldom_handed_over]`.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Number of lone long writes that are handed over after two requests were under way at once.
const CREDIT: u32 = 32;
/// Without credit, one of this many lone long writes is handed over.
const TRY_EVERY: u32 = 64;

/// The workers' guess whether clients have several requests at once. Threads that count at the same
/// time may lose a count, which costs a wake-up.
#[derive(Debug)]
pub(crate) struct HandOver {
    /// The shortest write in bytes that is worth a wake-up; 0 disables handing over.
    bytes_min: u64,
    credit: AtomicU32,
    /// Long writes since the last hand-over without credit.
    alone: AtomicU32,
}

impl HandOver {
    pub(crate) fn new(bytes_min: u64) -> Self {
        Self { bytes_min, credit: AtomicU32::new(0), alone: AtomicU32::new(0) }
    }

    /// Whether to hand over a write of `bytes`. `under_way` counts the requests under way, this
    /// write included.
    pub(crate) fn is_worth_it(&self, bytes: u64, under_way: usize) -> bool {
        if self.bytes_min == 0 || bytes < self.bytes_min {
            return false;
        }
        if under_way > 1 {
            self.credit.store(CREDIT, Ordering::Relaxed);
            return true;
        }
        let credit = self.credit.load(Ordering::Relaxed);
        if credit > 0 {
            self.credit.store(credit - 1, Ordering::Relaxed);
            return true;
        }
        let alone = self.alone.load(Ordering::Relaxed) + 1;
        self.alone.store(alone % TRY_EVERY, Ordering::Relaxed);
        alone == TRY_EVERY
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    const LONG: u64 = 256 << 10;

    fn handed_over(hand_over: &HandOver, (bytes, under_way): (u64, usize), times: u32) -> usize {
        (0..times).filter(|_| hand_over.is_worth_it(bytes, under_way)).count()
    }

    #[test]
    fn one_at_a_time_is_seldom_handed_over() {
        let hand_over = HandOver::new(64 << 10);
        assert_eq!(handed_over(&hand_over, (LONG, 1), 10 * TRY_EVERY), 10);
        assert!(hand_over.is_worth_it(LONG, 2));
        assert_eq!(handed_over(&hand_over, (LONG, 1), CREDIT), 32, "for a while after two at once");
        assert_eq!(handed_over(&hand_over, (LONG, 1), 10 * TRY_EVERY), 10, "and then as before");
    }

    #[test]
    fn several_at_once_are_handed_over() {
        let hand_over = HandOver::new(64 << 10);
        assert_eq!(handed_over(&hand_over, (LONG, 8), 100), 100);
    }

    #[test]
    fn what_is_short_and_what_was_forbidden_stay() {
        let hand_over = HandOver::new(64 << 10);
        assert_eq!(handed_over(&hand_over, ((64 << 10) - 1, 8), 100), 0);
        assert_eq!(handed_over(&HandOver::new(0), (LONG, 8), 100), 0);
    }
}
