//! The size of the job's requests (*pieces*) while clients have requests: a window, or less if a
//! window would hold requests up for too long.
//!
//! The governor reports bytes in flight, and how much longer a client's request may take because of
//! the job.
//!
//! A request that comes while the members work on a window waits until the window is done. On a
//! turning disk a window takes one seek and 5 ms. On a small disk that takes a millisecond for each
//! request a window takes 37 ms, where clients' requests take 2. On the small disk no allowance
//! helps: the rest between windows becomes longer, but the windows stay as they are. So the window
//! is divided until one piece takes no longer than a request may be held up.
//!
//! ```text
//!   took longer than that                      divide: half as much at a time
//!   a half took nearly as long as the whole    back: the time does not depend on the size
//!   two and more would still do                double: twice as much takes at most twice as long
//! ```
//!
//! A piece's time is the shortest recent time of a piece that was alone in flight: a piece that
//! waits in an elevator for clients' requests delays no client. Pieces are as large as allowed,
//! since each piece costs a turning disk a seek. With a large allowance several pieces are always
//! in flight, and none is alone. Then pieces grow as long as clients stay within the target.
//!
//! Invariants
//! - A piece takes no longer than a request may be held up, or is the smallest, if smaller pieces
//!   take the members less time `[check: a_piece_fits_or_is_the_smallest]`.
//! - A piece that is slow because it waits for clients, now and then or always, is not divided for
//!   long `[check: a_wait_behind_clients_is_no_reason]`.
//! - A piece grows if several may be in flight `[check: what_is_never_alone_grows]`.

/// The number of pieces to see before the size is halved or doubled.
const SEEN_MIN: u32 = 12;
/// The number of pieces to see before the size is halved, if each piece took `FAR` times its limit.
const SEEN_MIN_FAR: u32 = 3;
/// A piece is far too large if it takes this many times the limit.
const FAR: u64 = 4;
/// The known shortest time rises by this part of itself with each piece that took longer.
const RISE: u64 = 16;
/// Pieces are doubled after this many slices in a row in which four pieces or more may be in
/// flight.
const ROOMY_SLICES: u32 = 50;
const ROOMY_PIECES: u64 = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    halvings: u32,
    /// If one piece is alone in flight, the time at which it began, and its bytes.
    alone: Option<(u64, u64)>,
    /// The shortest recent time of a piece of the present size.
    took_ns: u64,
    /// How many pieces of the present size were seen.
    seen: u32,
    /// The time of a piece of twice the size, if the last change was a halving.
    before_ns: Option<u64>,
    /// If a division was in vain, the number of halvings before the division, and the time of a
    /// piece before it.
    in_vain: Option<(u32, u64)>,
    /// The number of slices in a row in which several pieces could be in flight.
    roomy: u32,
}

impl Piece {
    /// The size of a piece after the halvings: a multiple of `least_bytes`, or the window.
    pub(super) fn bytes(&self, window_bytes: u64, least_bytes: u64) -> u64 {
        if self.halvings == 0 || window_bytes <= least_bytes {
            return window_bytes;
        }
        let part = window_bytes.checked_shr(self.halvings).unwrap_or(0);
        (part - part % least_bytes).max(least_bytes)
    }

    /// Reports that `bytes` bytes began while `in_flight_bytes` were in flight.
    pub(super) fn begin(&mut self, now_ns: u64, bytes: u64, in_flight_bytes: u64) {
        self.alone = (in_flight_bytes == 0).then_some((now_ns, bytes));
    }

    /// Reports that the last bytes in flight have ended; `piece_bytes` is the size of a piece.
    pub(super) fn end(&mut self, now_ns: u64, piece_bytes: u64) {
        let Some((began_ns, bytes)) = self.alone.take() else { return };
        // If the clock stood still, the piece's time is unknown.
        let took_ns = now_ns.saturating_sub(began_ns);
        if bytes != piece_bytes || took_ns == 0 {
            return;
        }
        let risen_ns = self.took_ns.saturating_add(self.took_ns / RISE + 1);
        self.took_ns = if self.seen == 0 { took_ns } else { took_ns.min(risen_ns) };
        self.seen = self.seen.saturating_add(1);
    }

    /// Fits the piece size to `slack_ns`, the time by which a request may be delayed. Returns true
    /// if pieces that were far too large shrink.
    pub(super) fn fit(&mut self, slack_ns: u64, is_smallest: bool) -> bool {
        let is_far = self.took_ns / FAR > slack_ns;
        if self.seen < if is_far { SEEN_MIN_FAR } else { SEEN_MIN } {
            return false;
        }
        let is_known = self.seen >= SEEN_MIN;
        let before_ns = self.before_ns.take().filter(|_| is_known && self.took_ns > slack_ns);
        if let Some(before_ns) = before_ns.filter(|one| is_most_of(self.took_ns, *one)) {
            self.in_vain = Some((self.halvings - 1, before_ns));
            self.resize(self.halvings - 1);
            return false;
        }
        let is_same =
            |(halvings, took_ns)| halvings == self.halvings && is_most_of(self.took_ns, took_ns);
        let may_divide = !self.in_vain.is_some_and(is_same);
        if self.took_ns > slack_ns && !is_smallest && may_divide {
            self.before_ns = Some(self.took_ns);
            self.resize(self.halvings + 1);
            return is_far;
        }
        // Doubles only if a piece takes a little less than half the limit, or the size would swing.
        if self.took_ns <= slack_ns * 3 / 8 && self.halvings > 0 {
            self.resize(self.halvings - 1);
        }
        false
    }

    /// Takes a slice: the allowance in flight, and whether clients' latency was within the target.
    pub(super) fn slice(&mut self, allowance_bytes: u64, piece_bytes: u64, is_within: bool) {
        let is_roomy = is_within && allowance_bytes >= piece_bytes.saturating_mul(ROOMY_PIECES);
        self.roomy = if is_roomy { self.roomy + 1 } else { 0 };
        if self.roomy == ROOMY_SLICES && self.halvings > 0 {
            self.before_ns = None;
            self.resize(self.halvings - 1);
        }
        self.roomy %= ROOMY_SLICES;
    }

    fn resize(&mut self, halvings: u32) {
        self.halvings = halvings;
        (self.alone, self.seen, self.roomy) = (None, 0, 0);
    }
}

fn is_most_of(time_ns: u64, other_ns: u64) -> bool {
    time_ns > other_ns - other_ns / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 1 << 20;
    const LEAST: u64 = 64 << 10;
    const MS: u64 = 1_000_000;

    /// Runs pieces one after another; `takes_ns` gives a piece's time for its bytes. Returns the
    /// size at the end.
    fn run(piece: &mut Piece, slack_ns: u64, takes_ns: impl Fn(u64, u64) -> u64) -> u64 {
        let mut now_ns = 0;
        for number in 0..1000 {
            let bytes = piece.bytes(WINDOW, LEAST);
            piece.begin(now_ns, bytes, 0);
            now_ns += takes_ns(number, bytes);
            piece.end(now_ns, bytes);
            piece.fit(slack_ns, bytes == LEAST);
        }
        piece.bytes(WINDOW, LEAST)
    }

    #[test]
    fn a_piece_fits_or_is_the_smallest() {
        for seek_ns in [0, MS / 10, 4 * MS] {
            let takes = |_, bytes: u64| seek_ns + bytes * 20;
            let mut piece = Piece::default();
            // The size settles again after each change of the limit.
            for slack_ms in [100, 1, 9, 3, 40, 15, 2, 6] {
                let slack_ns = slack_ms * MS;
                let bytes = run(&mut piece, slack_ns, takes);
                let in_vain = 8 * takes(0, bytes / 2) > 7 * takes(0, bytes);
                let fits = takes(0, bytes) <= slack_ns || bytes == LEAST || in_vain;
                assert!(fits, "{bytes} in {slack_ms} ms, {seek_ns} each");
                let is_large = bytes == WINDOW || 6 * takes(0, bytes) > slack_ns;
                assert!(is_large, "{bytes} though {slack_ms} ms are allowed, {seek_ns} each");
            }
        }
    }

    #[test]
    fn a_wait_behind_clients_is_no_reason() {
        let takes = |number: u64, bytes: u64| 4 * MS + bytes * 5 + number % 4 * 30 * MS;
        assert_eq!(run(&mut Piece::default(), 20 * MS, takes), WINDOW);
        // Each piece waits for clients' requests, whatever its size.
        let takes = |_, bytes: u64| 60 * MS + bytes * 5;
        assert_eq!(run(&mut Piece::default(), 20 * MS, takes), WINDOW);
    }

    #[test]
    fn what_is_never_alone_grows() {
        let mut piece = Piece::default();
        assert_eq!(run(&mut piece, MS, |_, bytes| bytes * 20), LEAST);
        (0..1000).for_each(|_| piece.slice(16 * WINDOW, piece.bytes(WINDOW, LEAST), false));
        assert_eq!(piece.bytes(WINDOW, LEAST), LEAST, "clients are not within the target");
        (0..1000).for_each(|_| piece.slice(2 * WINDOW, piece.bytes(WINDOW, LEAST), true));
        assert_eq!(piece.bytes(WINDOW, LEAST), WINDOW);
    }

    #[test]
    fn a_clock_that_stands_still_says_nothing() {
        let mut piece = Piece::default();
        for _ in 0..100 {
            piece.begin(5, WINDOW, 0);
            piece.end(5, WINDOW);
        }
        assert!(run(&mut piece, MS, |_, bytes| bytes * 20) == LEAST);
    }

    #[test]
    fn what_is_not_alone_or_not_whole_tells_nothing() {
        let mut piece = Piece::default();
        for _ in 0..100 {
            piece.begin(0, WINDOW, 0);
            piece.begin(0, WINDOW, WINDOW);
            piece.end(900 * MS, WINDOW);
            piece.begin(0, WINDOW / 2, 0);
            piece.end(900 * MS, WINDOW);
            piece.fit(MS, false);
        }
        assert_eq!(piece.bytes(WINDOW, LEAST), WINDOW);
        assert_eq!(piece.bytes(1000, LEAST), 1000, "a window may be smaller than the least");
    }
}
