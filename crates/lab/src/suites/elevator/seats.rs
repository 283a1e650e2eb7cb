//! The threads that ask: each has a few requests under way and waits until all of them are answered, by whomever.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::frame::Usage;
use crate::random::Random;

/// Requests that a thread makes at once, then waits for.
pub(super) const DEPTH: u32 = 4;
/// How often a thread that waits lets others run before it goes to sleep. To be woken costs many times what a request
/// costs here, in either variant.
const YIELDS: u32 = 20;
/// Sectors of the null member.
const SECTORS: u64 = 1 << 30;

/// Where a thread waits for its answers; on a line of the cache of its own.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    left: AtomicU32,
    thread: OnceLock<Thread>,
}

/// All of them.
pub(super) struct Seats(Vec<Seat>);

impl Seats {
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Seat::default()).collect())
    }

    /// One request of this thread is answered.
    pub(super) fn answer(&self, seat: u32) {
        let seat = &self.0[seat as usize];
        if seat.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let thread = seat.thread.get().expect("it asked");
            // Nothing happens if it is this one, or if it does not wait.
            if thread.id() != thread::current().id() {
                thread.unpark();
            }
        }
    }

    fn wait(&self, seat: u32) {
        let left = &self.0[seat as usize].left;
        for _ in 0..YIELDS {
            if left.load(Ordering::Acquire) == 0 {
                return;
            }
            thread::yield_now();
        }
        while left.load(Ordering::Acquire) != 0 {
            thread::park();
        }
    }
}

/// What is between the threads and the member: takes requests of one sector each, by whose they are and where; every one is
/// answered through [`Seats::answer`], now or later, by any thread.
pub(super) trait Between: Sync {
    fn submit(&self, seats: &Seats, seat: u32, places: &[u64]);
}

/// What it took.
pub(super) struct Took {
    pub(super) seconds: f64,
    pub(super) usage: Usage,
    pub(super) requests: u64,
}

/// Has every thread make so many rounds of [`DEPTH`] random reads.
pub(super) fn run(between: &impl Between, threads: usize, rounds: u64) -> Took {
    run_on(between, &Seats::new(threads), rounds)
}

/// The same on seats that are used once.
pub(super) fn run_on(between: &impl Between, seats: &Seats, rounds: u64) -> Took {
    let threads = seats.0.len();
    let (barrier, ready) = (Barrier::new(threads + 1), AtomicUsize::new(0));
    let mut took = None;
    thread::scope(|scope| {
        let go = |seat: u32| {
            let (barrier, ready) = (&barrier, &ready);
            move || {
                let own = &seats.0[seat as usize];
                own.thread.get_or_init(thread::current);
                let mut random = Random::new(u64::from(seat) + 1);
                ready.fetch_add(1, Ordering::Release);
                barrier.wait();
                for _ in 0..rounds {
                    let places: [u64; DEPTH as usize] =
                        std::array::from_fn(|_| random.below(SECTORS));
                    own.left.store(DEPTH, Ordering::Release);
                    between.submit(seats, seat, &places);
                    seats.wait(seat);
                }
                Instant::now()
            }
        };
        let count = u32::try_from(threads).expect("few");
        let all: Vec<_> = (0..count).map(|seat| scope.spawn(go(seat))).collect();
        while ready.load(Ordering::Acquire) < threads {
            thread::sleep(Duration::from_micros(100));
        }
        // Before the threads are let go: this one may not run again until they are through.
        let (start, before) = (Instant::now(), Usage::now());
        barrier.wait();
        let ends = all.into_iter().map(|one| one.join().expect("no holder panics"));
        let end = ends.max().expect("at least one");
        took = Some((end.duration_since(start).as_secs_f64(), Usage::now() - before));
    });
    let (seconds, usage) = took.expect("it ran");
    Took { seconds, usage, requests: threads as u64 * rounds * u64::from(DEPTH) }
}
