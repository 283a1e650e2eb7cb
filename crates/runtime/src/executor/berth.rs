//! How much of one member rings may have, and whether anything of it is for rings at all.
//!
//! A ring gives a request to the kernel on the worker's own thread. Mostly the kernel only takes it. But it may keep the
//! thread, for as long as the member likes: where it has no room for one more request, and where a file system asks
//! somebody else first. A worker that is kept carries no client and no other member, so one member that hangs would stop
//! everything. Hence:
//!
//! ```text
//!                 ┌─ suspect ───────────────────────────────────▶ the member's threads
//!   a request ────┼─ rings have `room` of it already ─▶ in line ─┐
//!                 └─ else ──────────────────────────────────────┴▶ a ring
//!
//!   suspect:  OUTSIDE  the file system asks somebody else (FUSE, the network), or nobody knows: for good
//!             SITS_OUT the array reads around it, while it does; files only
//!             STUCK    nothing of it has ended from one look to the next, until it has been well for a while
//! ```
//!
//! `room` is half of what the block layer has room for, so that rings never wait there: a request may be split, and
//! superblocks, flushes and other programs want room as well. More would wait there, with a thread of ours; here it waits
//! alone. Superblocks and flushes, of which there is one each, go past the line; that they are out is known all the same.
//!
//! Invariants
//! - What is in line goes on when there is room, whoever sees it: one that keeps a request looks at the room afterwards,
//!   and one that leaves looks at the line afterwards (`models::waits`: `whoever_waits_for_room_gets_it`).
//! - Rings have `room` requests at most [check: no_more_is_out_than_there_is_room_for].

use std::collections::VecDeque;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::flaw::{self, Flaw};

/// Why nothing of a member is for rings.
const OUTSIDE: u8 = 1;
const SITS_OUT: u8 = 2;
const STUCK: u8 = 4;

/// Requests that rings may have where nobody says for how many there is room.
const ROOM_UNKNOWN: u32 = 128;

/// Looks in a row after which a member that was stuck is trusted again.
const CALM_LOOKS: u32 = 4;

/// Where a request is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To a ring, where it has a place now, to be given back ([`Berth::leave`], [`Berth::forgo`]).
    Ring,
    /// To the member's threads.
    Threads,
    /// Into the line ([`Berth::keep`]).
    Line,
}

/// What the last look at a member found.
#[derive(Debug, Default)]
struct Seen {
    was_out: bool,
    ended: u64,
    calm_looks: u32,
}

/// One request that has ended, in [`Berth::requests`].
const ENDED: u64 = 1 << 32;

/// One member's place at the rings. Every worker writes here for each request, and none is to lose by it what else it
/// knows of the member: hence the cache lines of its own.
#[repr(align(128))]
pub(crate) struct Berth<W> {
    room: u32,
    /// Requests that rings have, and above them those that have ended, on rings or by threads, as far as 32 bits go: one
    /// change for each end.
    requests: AtomicU64,
    /// Requests that are out without a place: what the member's threads have begun, and flushes and superblocks on rings.
    aside: AtomicU32,
    /// Why nothing is for rings; none is zero.
    reasons: AtomicU8,
    /// How many are in line, so that nobody takes the lock to find nobody.
    kept: AtomicUsize,
    line: Mutex<VecDeque<W>>,
    seen: Mutex<Seen>,
}

impl<W> Berth<W> {
    /// Of a member whose device has room for so many requests, if that is known.
    pub(crate) fn new(device_requests: Option<u32>, is_outside: bool) -> Self {
        let room = device_requests.map_or(ROOM_UNKNOWN, |requests| (requests / 2).max(1));
        Self {
            room,
            requests: AtomicU64::new(0),
            aside: AtomicU32::new(0),
            reasons: AtomicU8::new(if is_outside { OUTSIDE } else { 0 }),
            kept: AtomicUsize::new(0),
            line: Mutex::new(VecDeque::new()),
            seen: Mutex::default(),
        }
    }

    /// Whether nothing of the member is for rings.
    pub(crate) fn is_suspect(&self) -> bool {
        self.reasons.load(Ordering::Acquire) != 0
    }

    /// Where the next request is to go.
    pub(crate) fn way(&self) -> Way {
        if self.is_suspect() {
            Way::Threads
        } else if self.enter() {
            Way::Ring
        } else {
            Way::Line
        }
    }

    /// Takes a place, if there is one. Nobody ever holds one only to look: two who did would each see the other's, and go.
    fn enter(&self) -> bool {
        let next =
            |requests: u64| (requests % ENDED < u64::from(self.room)).then_some(requests + 1);
        self.requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// A request that had a place has ended.
    pub(crate) fn leave(&self) {
        // One more above, one less below.
        self.requests.fetch_add(ENDED - 1, Ordering::SeqCst);
    }

    /// A request that had a place is not for a ring after all.
    pub(crate) fn forgo(&self) {
        self.requests.fetch_sub(1, Ordering::SeqCst);
    }

    /// Puts a request in line. Whoever does looks whether there is room meanwhile ([`Self::has_kept`]).
    pub(crate) fn keep(&self, work: W) {
        self.line.lock().expect("queueing does not panic").push_back(work);
        self.kept.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether [`Self::next`] is to be asked: after a request was kept, and after one has left.
    pub(crate) fn has_kept(&self) -> bool {
        self.kept.load(Ordering::SeqCst) > 0 && !flaw::has(Flaw::LineForgotten)
    }

    /// The first in line, if it can go now, and where to.
    pub(crate) fn next(&self) -> Option<(W, Way)> {
        while self.has_kept() {
            let way = match self.way() {
                Way::Line => return None,
                way => way,
            };
            if let Some(work) = self.line.lock().expect("queueing does not panic").pop_front() {
                self.kept.fetch_sub(1, Ordering::SeqCst);
                return Some((work, way));
            }
            // Somebody was quicker; and whoever came meanwhile may have found our place taken.
            if way == Way::Ring {
                self.forgo();
            }
        }
        None
    }

    /// Something begins that needs no place: by a thread of the member, or a flush or a superblock on a ring.
    pub(crate) fn begin_aside(&self) {
        self.aside.fetch_add(1, Ordering::Relaxed);
    }

    /// And ends.
    pub(crate) fn end_aside(&self) {
        self.aside.fetch_sub(1, Ordering::Relaxed);
        self.requests.fetch_add(ENDED, Ordering::Relaxed);
    }

    /// It did not begin after all.
    pub(crate) fn forgo_aside(&self) {
        self.aside.fetch_sub(1, Ordering::Relaxed);
    }

    /// Requests that have ended so far, modulo 2^32: it is another number when something has ended.
    pub(crate) fn ended(&self) -> u64 {
        self.requests.load(Ordering::Relaxed) / ENDED
    }

    /// Whether the member has been asked for something that has not ended.
    pub(crate) fn is_busy(&self) -> bool {
        !self.requests.load(Ordering::Relaxed).is_multiple_of(ENDED)
            || self.aside.load(Ordering::Relaxed) > 0
    }

    /// The array reads around the member from now on, or does not any more.
    pub(crate) fn set_sits_out(&self, sits_out: bool) {
        self.set(SITS_OUT, sits_out);
    }

    fn set(&self, reason: u8, holds: bool) {
        if holds {
            self.reasons.fetch_or(reason, Ordering::AcqRel);
        } else {
            self.reasons.fetch_and(!reason, Ordering::AcqRel);
        }
    }

    /// Looks whether anything has ended since the last look. Something that was out then and nothing that ended since is
    /// older than the time between them.
    pub(crate) fn look(&self) {
        let (is_busy, ended) = (self.is_busy(), self.ended());
        let mut seen = self.seen.lock().expect("looking does not panic");
        let is_stuck = is_busy && seen.was_out && ended == seen.ended;
        let calm_looks = if is_stuck { 0 } else { seen.calm_looks.saturating_add(1) };
        *seen = Seen { was_out: is_busy, ended, calm_looks };
        if is_stuck {
            self.set(STUCK, true);
        } else if calm_looks >= CALM_LOOKS {
            self.set(STUCK, false);
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_out_than_there_is_room_for() {
        let berth: Berth<u32> = Berth::new(Some(5), false);
        assert_eq!([berth.way(), berth.way(), berth.way()], [Way::Ring, Way::Ring, Way::Line]);
        berth.keep(7);
        berth.keep(8);
        assert_eq!(berth.next(), None);
        berth.leave();
        assert_eq!(berth.next(), Some((7, Way::Ring)));
        assert_eq!(berth.next(), None);
        berth.forgo();
        assert_eq!(berth.next(), Some((8, Way::Ring)));
        assert!(!berth.has_kept());
        let one: Berth<u32> = Berth::new(Some(1), false);
        assert_eq!([one.way(), one.way()], [Way::Ring, Way::Line], "a device always takes one");
    }

    #[test]
    fn what_is_in_line_for_a_member_that_hangs_goes_to_its_threads() {
        let berth: Berth<u32> = Berth::new(Some(2), false);
        assert_eq!((berth.way(), berth.way()), (Way::Ring, Way::Line));
        berth.keep(7);
        berth.look();
        assert_eq!(berth.next(), None);
        berth.look();
        assert_eq!((berth.next(), berth.way()), (Some((7, Way::Threads)), Way::Threads));
        // It ends something: not trusted at once.
        berth.leave();
        (1..CALM_LOOKS).for_each(|_| berth.look());
        assert_eq!(berth.way(), Way::Threads);
        berth.look();
        assert_eq!(berth.way(), Way::Ring);
    }

    #[test]
    fn a_busy_member_is_not_stuck_and_an_idle_one_is_not_either() {
        let berth: Berth<u32> = Berth::new(None, false);
        (0..9).for_each(|_| berth.look());
        assert!(!berth.is_suspect(), "it has nothing to do");
        assert_eq!(berth.way(), Way::Ring);
        for _ in 0..9 {
            assert_eq!(berth.way(), Way::Ring);
            berth.look();
            berth.leave();
        }
        assert!(!berth.is_suspect(), "something ends all the time");
        berth.begin_aside();
        berth.look();
        berth.look();
        assert!(berth.is_suspect(), "its threads are stuck as well");
        berth.leave();
        berth.end_aside();
        berth.begin_aside();
        berth.forgo_aside();
        assert!(!berth.is_busy(), "what never began is not waited for");
    }

    #[test]
    fn what_asks_somebody_else_is_never_for_rings() {
        let berth: Berth<u32> = Berth::new(Some(128), true);
        (0..9).for_each(|_| berth.look());
        assert_eq!(berth.way(), Way::Threads);
        berth.set_sits_out(true);
        berth.set_sits_out(false);
        assert_eq!(berth.way(), Way::Threads);
    }
}
