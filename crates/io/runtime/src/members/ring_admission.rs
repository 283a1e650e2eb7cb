//! Limits the operations of one member on rings, and decides whether rings get any.
//!
//! A ring gives a request to the kernel on the worker's own thread. Mostly the kernel only queues
//! it. But the kernel may block the thread for as long as the member takes: if it has no room for
//! one more request, or if a file system asks another process or machine first. A blocked worker
//! serves no client and no other member, so one hanging member would stop everything. Hence:
//! ```text
//!                 ┌─ suspect ───────────────────────────────────▶ the member's threads
//!   a request ────┼─ the member is memory ──────────────────────▶ the thread that asks, at once
//!                 ├─ rings have `room` of it already ─▶ in line ─┐
//!                 └─ else ──────────────────────────────────────┴▶ a ring
//!   suspect:  OUTSIDE  the file system asks another process or machine, or may: for good
//!             SITS_OUT the array reads around it, while it does; files only
//!             STUCK    no request of it ended between two looks, until well for a while
//! ```
//! FUSE, network and unknown file systems are `OUTSIDE`.
//!
//! Memory (this process's, tmpfs, ramfs, memfd) has no disk that could hang. A ring would give each
//! request on such a file to a kernel thread, which takes longer than the copy. Memory may still be
//! slow: it is short, or swapped pages come from a disk that hangs. So its requests are counted
//! like others, and one that blocks a worker does not block a second.
//!
//! `room` is half of the block layer's room, so that rings never wait there: a request may be
//! split, and superblocks, flushes and other programs need room as well. Further requests would
//! wait in the block layer and block a thread; here they wait without a thread. Superblocks and
//! flushes, of which a member has one each, bypass the line; they still count as in flight.
//!
//! Invariants
//! - A request in line goes on when room appears, on the thread that sees it. A thread that keeps a
//!   request checks for room afterwards, and a thread that leaves checks the line afterwards
//!   (`models::waits`: `what_waits_for_room_gets_it`).
//! - Rings have `room` requests at most [check: no_more_is_out_than_there_is_room_for].

use std::collections::VecDeque;

use braid_member::AnsweredBy;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::flaw::{self, Flaw};

/// Reasons why rings get no operation of a member.
const OUTSIDE: u8 = 1;
const SITS_OUT: u8 = 2;
const STUCK: u8 = 4;

/// Maximum requests on rings if the device does not report how many it has room for.
const ROOM_UNKNOWN: u32 = 128;

/// A stuck member is trusted again after this many looks in a row that found it well.
const CALM_LOOKS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To a ring. The request has a place, which must be returned ([`RingAdmission::leave`],
    /// [`RingAdmission::forgo`]).
    Ring,
    Threads,
    /// Into the line ([`RingAdmission::keep`]).
    Line,
}

/// The numbers that the last look at a member found.
#[derive(Debug, Default)]
struct LastLook {
    was_out: bool,
    ended: u64,
    calm_looks: u32,
    /// Whether an operation other than a flush was in flight.
    was_out_beside_flush: bool,
    /// Consecutive looks that found no ended operation while an operation other than a flush was in
    /// flight.
    silent_looks: u32,
    /// Consecutive looks that found no ended operation while any operation was in flight.
    silent_flush_looks: u32,
}

/// The value that counts one ended request in [`RingAdmission::requests`].
const ENDED: u64 = 1 << 32;

/// The admission of one member's operations to the rings. Every worker writes this structure for
/// each request. So it has cache lines of its own, and the member's other fields stay in the
/// workers' caches.
#[repr(align(128))]
pub(crate) struct RingAdmission<W> {
    room: u32,
    is_memory: bool,
    /// Low half: requests on rings. High half: requests that have ended, on rings or by threads,
    /// modulo 2^32. So one atomic change notes each end.
    requests: AtomicU64,
    /// Requests in flight without a place: requests that the member's threads have begun, and
    /// flushes and superblocks on rings.
    aside: AtomicU32,
    /// The reasons why rings get no operation; zero if they may.
    reasons: AtomicU8,
    /// Number of requests in line, so that no thread takes the lock for an empty line.
    kept: AtomicUsize,
    line: Mutex<VecDeque<W>>,
    last_look: Mutex<LastLook>,
}

impl<W> RingAdmission<W> {
    /// An admission for a device with room for this many requests, if known.
    pub(crate) fn new(device_requests: Option<u32>, answered_by: AnsweredBy) -> Self {
        let room = device_requests.map_or(ROOM_UNKNOWN, |requests| (requests / 2).max(1));
        let is_outside = answered_by == AnsweredBy::Outside;
        Self {
            room,
            is_memory: answered_by == AnsweredBy::Memory,
            requests: AtomicU64::new(0),
            aside: AtomicU32::new(0),
            reasons: AtomicU8::new(if is_outside { OUTSIDE } else { 0 }),
            kept: AtomicUsize::new(0),
            line: Mutex::new(VecDeque::new()),
            last_look: Mutex::default(),
        }
    }

    /// Whether rings get no operation of the member.
    pub(crate) fn is_suspect(&self) -> bool {
        self.reasons.load(Ordering::Acquire) != 0
    }

    /// Whether the calling thread carries out the operation itself ([`Self::begin_here`]).
    pub(crate) fn is_here(&self) -> bool {
        self.is_memory && !self.is_suspect()
    }

    /// Notes that a request begins on the calling thread; [`Self::leave`] ends it.
    pub(crate) fn begin_here(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The route that the next request must take.
    pub(crate) fn route(&self) -> Route {
        if self.is_suspect() {
            Route::Threads
        } else if self.enter() {
            Route::Ring
        } else {
            Route::Line
        }
    }

    /// Takes a place on the rings, if one is free. A thread never takes a place just to see whether
    /// one is free: two such threads would each see the other's place taken, and give up.
    fn enter(&self) -> bool {
        let next =
            |requests: u64| (requests % ENDED < u64::from(self.room)).then_some(requests + 1);
        self.requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// Notes that a request with a place has ended.
    pub(crate) fn leave(&self) {
        // Counts one more ended request and one fewer in flight.
        self.requests.fetch_add(ENDED - 1, Ordering::SeqCst);
    }

    /// Returns the place of a request that no ring takes.
    pub(crate) fn forgo(&self) {
        self.requests.fetch_sub(1, Ordering::SeqCst);
    }

    /// Puts a request in line. The caller then checks whether room has appeared
    /// ([`Self::has_kept`]).
    pub(crate) fn keep(&self, work: W) {
        self.line.lock().expect("queueing does not panic").push_back(work);
        self.kept.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether to call [`Self::next`]. Check this after a request was put in line, and after a
    /// request has left the member.
    pub(crate) fn has_kept(&self) -> bool {
        self.kept.load(Ordering::SeqCst) > 0 && !flaw::has(Flaw::LineForgotten)
    }

    /// Takes the first request in line with its route, if it can go now.
    pub(crate) fn next(&self) -> Option<(W, Route)> {
        while self.has_kept() {
            let route = match self.route() {
                Route::Line => return None,
                route => route,
            };
            if let Some(work) = self.line.lock().expect("queueing does not panic").pop_front() {
                self.kept.fetch_sub(1, Ordering::SeqCst);
                return Some((work, route));
            }
            // Another thread has taken the request from the line. Return the place, and check
            // again: a later request may have found that place taken.
            if route == Route::Ring {
                self.forgo();
            }
        }
        None
    }

    /// Notes that an operation without a place begins: on a thread, or a flush or superblock on a
    /// ring.
    pub(crate) fn begin_aside(&self) {
        self.aside.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an operation without a place has ended.
    pub(crate) fn end_aside(&self) {
        self.aside.fetch_sub(1, Ordering::Relaxed);
        self.requests.fetch_add(ENDED, Ordering::Relaxed);
    }

    /// Notes that an operation without a place did not begin after all.
    pub(crate) fn forgo_aside(&self) {
        self.aside.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of requests that have ended so far, modulo 2^32.
    pub(crate) fn ended(&self) -> u64 {
        self.requests.load(Ordering::Relaxed) / ENDED
    }

    /// Number of requests in flight.
    pub(crate) fn out(&self) -> u64 {
        let requests = self.requests.load(Ordering::Relaxed) % ENDED;
        requests + u64::from(self.aside.load(Ordering::Relaxed))
    }

    /// Whether the member has requests in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.requests.load(Ordering::Relaxed).is_multiple_of(ENDED)
            || self.aside.load(Ordering::Relaxed) > 0
    }

    /// Notes that the array begins or ends to read around the member.
    pub(crate) fn set_sits_out(&self, sits_out: bool) {
        self.set(SITS_OUT, sits_out);
    }

    /// Two counts of consecutive looks, up to the last, that found no ended operation. The first
    /// counts looks while an operation other than a flush was in flight, the second looks while any
    /// operation was.
    pub(crate) fn silent_looks(&self) -> (u32, u32) {
        let last = self.last_look.lock().expect("looking does not panic");
        (last.silent_looks, last.silent_flush_looks)
    }

    fn set(&self, reason: u8, holds: bool) {
        if holds {
            self.reasons.fetch_or(reason, Ordering::AcqRel);
        } else {
            self.reasons.fetch_and(!reason, Ordering::AcqRel);
        }
    }

    /// Checks whether a request has ended since the last look. If none has, every request that was
    /// in flight at the last look has waited since then or longer. `flushes` is the number of
    /// requests in flight that are flushes.
    pub(crate) fn look(&self, flushes: u64) {
        let (is_busy, ended) = (self.is_busy(), self.ended());
        let mut last = self.last_look.lock().expect("looking does not panic");
        let is_stuck = is_busy && last.was_out && ended == last.ended;
        let calm_looks = if is_stuck { 0 } else { last.calm_looks.saturating_add(1) };
        let was_out_beside_flush = self.out() > flushes;
        let silent_looks = if is_stuck && last.was_out_beside_flush && was_out_beside_flush {
            last.silent_looks.saturating_add(1)
        } else {
            0
        };
        let silent_flush_looks =
            if is_stuck { last.silent_flush_looks.saturating_add(1) } else { 0 };
        *last = LastLook {
            was_out: is_busy,
            ended,
            calm_looks,
            was_out_beside_flush,
            silent_looks,
            silent_flush_looks,
        };
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
        let admission: RingAdmission<u32> = RingAdmission::new(Some(5), AnsweredBy::Device);
        assert_eq!(
            [admission.route(), admission.route(), admission.route()],
            [Route::Ring, Route::Ring, Route::Line]
        );
        admission.keep(7);
        admission.keep(8);
        assert_eq!(admission.next(), None);
        admission.leave();
        assert_eq!(admission.next(), Some((7, Route::Ring)));
        assert_eq!(admission.next(), None);
        admission.forgo();
        assert_eq!(admission.next(), Some((8, Route::Ring)));
        assert!(!admission.has_kept());
        let one: RingAdmission<u32> = RingAdmission::new(Some(1), AnsweredBy::Device);
        assert_eq!(
            [one.route(), one.route()],
            [Route::Ring, Route::Line],
            "a device always takes one"
        );
    }

    #[test]
    fn what_is_in_line_for_a_member_that_hangs_goes_to_its_threads() {
        let admission: RingAdmission<u32> = RingAdmission::new(Some(2), AnsweredBy::Device);
        assert_eq!((admission.route(), admission.route()), (Route::Ring, Route::Line));
        admission.keep(7);
        admission.look(0);
        assert_eq!(admission.next(), None);
        admission.look(0);
        assert_eq!(
            (admission.next(), admission.route()),
            (Some((7, Route::Threads)), Route::Threads)
        );
        assert_eq!(admission.silent_looks(), (1, 1));
        // One ended request alone does not make the member trusted again.
        admission.leave();
        (1..CALM_LOOKS).for_each(|_| admission.look(0));
        assert_eq!(admission.route(), Route::Threads);
        admission.look(0);
        assert_eq!((admission.route(), admission.silent_looks()), (Route::Ring, (0, 0)));
    }

    #[test]
    fn a_busy_member_is_not_stuck_and_an_idle_one_is_not_either() {
        let admission: RingAdmission<u32> = RingAdmission::new(None, AnsweredBy::Device);
        (0..9).for_each(|_| admission.look(0));
        assert!(!admission.is_suspect(), "it has nothing to do");
        assert_eq!(admission.route(), Route::Ring);
        for _ in 0..9 {
            assert_eq!(admission.route(), Route::Ring);
            admission.look(0);
            admission.leave();
        }
        assert!(!admission.is_suspect(), "something ends all the time");
        admission.begin_aside();
        admission.look(0);
        admission.look(0);
        assert!(admission.is_suspect(), "its threads are stuck as well");
        admission.leave();
        admission.end_aside();
        admission.begin_aside();
        admission.forgo_aside();
        assert!(!admission.is_busy(), "what never began is not waited for");
    }

    /// Regression: a member's pages were swapped out, to a disk that hangs. Each worker with a
    /// further request would have been blocked like the first.
    #[test]
    fn memory_that_keeps_one_worker_keeps_no_second() {
        let admission: RingAdmission<u32> = RingAdmission::new(None, AnsweredBy::Memory);
        assert!(admission.is_here() && !admission.is_busy());
        admission.begin_here();
        admission.look(0);
        assert!(admission.is_here(), "it may have begun just now");
        admission.look(0);
        assert!(!admission.is_here() && admission.route() == Route::Threads);
        admission.leave();
        assert!(!admission.is_busy());
        (0..CALM_LOOKS).for_each(|_| admission.look(0));
        assert!(admission.is_here(), "it has been well for a while");
    }

    /// Regression: the array put a member out while all disks flushed for nine seconds and a read
    /// came at the end.
    #[test]
    fn a_read_behind_a_long_flush_has_not_waited_for_as_long() {
        let admission: RingAdmission<u32> = RingAdmission::new(None, AnsweredBy::Device);
        admission.begin_aside();
        (0..18).for_each(|_| admission.look(1));
        assert_eq!(admission.silent_looks(), (0, 17));
        assert_eq!(admission.route(), Route::Threads, "its threads have it");
        admission.begin_aside();
        (0..2).for_each(|_| admission.look(1));
        assert_eq!(admission.silent_looks(), (1, 19));
    }

    #[test]
    fn what_is_answered_outside_is_never_for_rings() {
        let admission: RingAdmission<u32> = RingAdmission::new(Some(128), AnsweredBy::Outside);
        (0..9).for_each(|_| admission.look(0));
        assert_eq!(admission.route(), Route::Threads);
        admission.set_sits_out(true);
        admission.set_sits_out(false);
        assert_eq!(admission.route(), Route::Threads);
    }
}
