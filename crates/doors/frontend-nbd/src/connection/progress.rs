//! The stall clock: since when a client has moved no stride of its payload, or of its replies.
//!
//! Where it stands: a part of [`super::Connection`], which reports the time and all receives and
//! sends. The connection decides how long the clock may run, and then cuts the client.
//!
//! A client may send a payload in any number of parts. Not every part restarts the clock; only a
//! whole *stride* does: [`STRIDE_BYTES`], or all the bytes that the receive asked for.

use std::time::{Duration, Instant};

use crate::limits::{CONTENDED_DEADLINE, STRIDE_BYTES};

#[derive(Debug)]
pub(super) struct Progress {
    now: Instant,
    /// The time since when less than a stride of the incoming payload has moved.
    receiving_since: Option<Instant>,
    /// The time since when less than a stride of the outgoing replies has moved.
    sending_since: Option<Instant>,
    asked_at: Instant,
    stride: Stride,
}

/// The bytes of the current stride that earlier receives moved, and the duration of these receives.
#[derive(Debug, Default)]
struct Stride {
    moved_bytes: usize,
    spent: Duration,
    /// When the last receive of the stride began; `None` once its duration is added.
    uncounted_since: Option<Instant>,
}

impl Progress {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            now,
            receiving_since: None,
            sending_since: None,
            asked_at: now,
            stride: Stride::default(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    pub(super) fn receiving_since(&self) -> Option<Instant> {
        self.receiving_since
    }

    pub(super) fn sending_since(&self) -> Option<Instant> {
        self.sending_since
    }

    pub(super) fn stalled_since(&self) -> Option<Instant> {
        self.receiving_since.into_iter().chain(self.sending_since).min()
    }

    pub(super) fn begin_anew(&mut self, now: Instant) {
        self.stride = Stride::default();
        for since in [&mut self.receiving_since, &mut self.sending_since] {
            *since = since.map(|_| now);
        }
    }

    /// Notes that the client has sent a stride, or all the bytes that the receive asked for.
    pub(super) fn stride_is_done(&mut self) {
        self.stride = Stride::default();
    }

    pub(super) fn begin_receive(&mut self, is_in_payload: bool) {
        self.asked_at = self.now;
        let since = self.now.checked_sub(self.stride.spent).unwrap_or(self.now);
        self.receiving_since = is_in_payload.then_some(since);
    }

    pub(super) fn end_receive(&mut self) -> bool {
        self.receiving_since.take().is_some()
    }

    /// Notes that a receive brought `bytes`; `is_short` if it asked for more bytes of a payload.
    pub(super) fn moved(&mut self, bytes: usize, is_short: bool) {
        self.stride.moved_bytes += bytes;
        if is_short && self.stride.moved_bytes < STRIDE_BYTES {
            self.stride.uncounted_since = Some(self.asked_at);
        } else {
            self.stride_is_done();
        }
    }

    /// Adds the duration of a receive that got fewer bytes than it asked for; returns the stride's
    /// duration so far. Time between receives is the server's and does not count. A receive counts
    /// for at most [`CONTENDED_DEADLINE`]: if it took longer, the server was late.
    pub(super) fn count_receive(&mut self) -> Option<Duration> {
        let since = self.stride.uncounted_since.take()?;
        let time = self.now.saturating_duration_since(since);
        self.stride.spent += time.min(CONTENDED_DEADLINE);
        Some(self.stride.spent)
    }

    pub(super) fn begin_send(&mut self) {
        self.sending_since = Some(self.now);
    }

    pub(super) fn end_send(&mut self) {
        self.sending_since = None;
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn many_small_pieces_are_counted_as_one_stride() {
        let began = Instant::now();
        let mut progress = Progress::new(began);
        let piece = CONTENDED_DEADLINE.min(SECOND);
        for count in 1..4 {
            progress.begin_receive(true);
            assert_eq!(progress.stalled_since(), Some(began), "each piece belongs to the first");
            progress.set_now(began + count * piece);
            assert!(progress.end_receive());
            progress.moved(1, true);
            assert_eq!(progress.count_receive(), Some(count * piece));
        }
        progress.begin_receive(true);
        assert!(progress.end_receive());
        progress.moved(STRIDE_BYTES, true);
        assert_eq!(progress.count_receive(), None, "a stride is moved");
        progress.begin_receive(true);
        assert_eq!(progress.receiving_since(), Some(progress.now()), "the next one begins anew");
    }

    #[test]
    fn time_that_the_server_did_not_look_is_not_counted() {
        let began = Instant::now();
        let mut progress = Progress::new(began);
        progress.begin_receive(true);
        progress.begin_send();
        progress.begin_anew(began + SECOND);
        assert_eq!(progress.stalled_since(), Some(began + SECOND));
        assert!(progress.end_receive());
        progress.moved(1, true);
        progress.set_now(began + 100 * CONTENDED_DEADLINE);
        assert_eq!(progress.count_receive(), Some(CONTENDED_DEADLINE));
        progress.end_send();
        assert_eq!(progress.stalled_since(), None);
    }
}
