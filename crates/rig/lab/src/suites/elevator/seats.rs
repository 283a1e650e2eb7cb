//! The threads that ask: each has a few requests under way and waits until all of them are answered, by whomever.
//!
//! On threads of the operating system, and on those of the model of many cores: the machine is what the parent says.

use std::sync::OnceLock;

use super::machine::atomic::{AtomicU32, Ordering};
use super::machine::thread::{self, Thread};
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

    /// A thread is here.
    pub(super) fn sit(&self, seat: u32) {
        self.0[seat as usize].thread.get_or_init(thread::current);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Makes [`DEPTH`] random reads and waits for them.
    pub(super) fn round(&self, between: &impl Between, seat: u32, random: &mut Random) {
        let places: [u64; DEPTH as usize] = std::array::from_fn(|_| random.below(SECTORS));
        self.0[seat as usize].left.store(DEPTH, Ordering::Release);
        between.submit(self, seat, &places);
        self.wait(seat);
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
