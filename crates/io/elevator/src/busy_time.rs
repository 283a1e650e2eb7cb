//! Divides a member's busy time among its operations, from when they were sent and done.
//!
//! Place in the flow: in the scheduler that drives a member's elevator. Its results go to
//! [`crate::Multiplexer::handle_served`].
//!
//! ```text
//!  sent  r────────────┐            f───────────────────────┐
//!  sent     w─┐       │              r─────────────────────┼────┐
//!  done       w       r                                    f    r
//!  charged ┃rr┃w┃rrrrr┃            ┃ffffffffffffffffffffffff┃rrrr┃
//! ```
//!
//! A member does one thing after the other. So an operation is charged with the time since the
//! previous completion, but no longer than since it was sent. A write that a cache takes while the
//! arm is on its way elsewhere is charged with a moment. The rest is left for the operations still
//! in flight. A flush is charged like everything else, from its beginning to its end: the writes in
//! the cache cost their time then. Otherwise the next read would be charged with the flush, and the
//! flusher would be given the readers' time as compensation.
//!
//! One case cannot be seen from outside: a cache that is emptied while only reads are in flight.
//! Reads are charged with that time, until the cache is full and writes wait for room.
//!
//! Invariants
//! - Every moment with an operation in flight is charged once: `all_time_is_charged_once`.

/// How much of a member's time has been charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyTime {
    /// Operations in flight.
    out: u32,
    /// All time before this moment is charged. An operation sent while none is in flight sets this
    /// field to its start.
    charged_ns: u64,
}

impl BusyTime {
    /// Counts an operation as sent.
    pub fn handle_sent(&mut self, now_ns: u64) {
        if self.out == 0 {
            self.charged_ns = now_ns;
        }
        self.out += 1;
    }

    /// The operation sent at `sent_ns` is done. Returns how long the member was busy with it.
    ///
    /// # Panics
    /// If nothing is in flight.
    pub fn handle_done(&mut self, now_ns: u64, sent_ns: u64) -> u64 {
        self.out = self.out.checked_sub(1).expect("what is done was sent");
        let left_ns = now_ns.saturating_sub(self.charged_ns);
        let took_ns = match self.out {
            // The last operation in flight takes all the remaining time.
            0 => left_ns,
            _ => left_ns.min(now_ns.saturating_sub(sent_ns)),
        };
        self.charged_ns += took_ns;
        took_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_a_cache_takes_costs_a_moment_and_its_flush_the_time_that_it_takes() {
        let mut busy = BusyTime::default();
        busy.handle_sent(100);
        busy.handle_sent(130);
        assert_eq!(busy.handle_done(131, 130), 1);
        assert_eq!(busy.handle_done(160, 100), 59, "all of its own time");
        busy.handle_sent(200);
        busy.handle_sent(210);
        assert_eq!(busy.handle_done(290, 200), 90, "the flush");
        assert_eq!(busy.handle_done(297, 210), 7, "the read that it held up");
    }

    #[test]
    fn all_time_is_charged_once() {
        // Sends and ends operations in random order, in steps of one nanosecond.
        for seed in 0..2000_u64 {
            let (mut busy, mut sent, mut charged, mut was_busy) =
                (BusyTime::default(), vec![], 0, 0);
            let mut state = seed;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            for now_ns in 1..60 {
                was_busy += u64::from(!sent.is_empty());
                if draw(3) == 0 && !sent.is_empty() {
                    let which = usize::try_from(draw(sent.len() as u64)).expect("few");
                    charged += busy.handle_done(now_ns, sent.swap_remove(which));
                }
                if draw(3) == 0 {
                    busy.handle_sent(now_ns);
                    sent.push(now_ns);
                }
            }
            while let Some(one) = sent.pop() {
                charged += busy.handle_done(59, one);
            }
            assert_eq!(charged, was_busy, "{seed}");
        }
    }
}
