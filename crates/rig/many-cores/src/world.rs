//! The machine: cores, each with one thread and its own time, and the order of accesses.
//! ```text
//!   run ─▶ coroutines ─▶ the least time goes next ─▶ its code, up to the next shared access ─┐
//!               ▲                                                                            │
//!               └──────────────── time + time of the access ◀── lines, locks ◀───────────────┘
//! ```
//! All threads are coroutines of one system thread. One coroutine runs until its next access to
//! shared state; then the thread with the earliest time runs. So accesses happen in order of time,
//! and at equal times in order of threads. Every run is the same
//! [check: the_same_run_twice_is_the_same].

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::costs::{Cost, Costs};
use crate::lines::{Access, Line, Lines};
use crate::queues::Queues;

/// Size of a thread's stack, in words.
const STACK_WORDS: usize = 16 << 10;
/// Difference between the start times of threads, so that they do not run in lockstep.
const STAGGER_PS: u64 = 37_000;

/// The state of the model during a run.
pub(crate) struct World {
    pub(crate) costs: Costs,
    /// The time of each thread, which is also that of its core.
    times_ps: Vec<u64>,
    /// Runnable threads, except the running one.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    current: usize,
    lines: Lines,
    pub(crate) queues: Queues,
    /// For each thread: whether it was unparked before it parked, then whether it is parked.
    pub(crate) parking: Vec<(bool, bool)>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Calls `look` on the world of the running thread; `None` if that thread belongs to no world.
pub(crate) fn with<R>(look: impl FnOnce(&mut World) -> R) -> Option<R> {
    WORLD.with_borrow_mut(|world| world.as_mut().map(look))
}

/// The number of the running thread, if it belongs to a world.
pub(crate) fn current() -> Option<usize> {
    with(|world| world.current)
}

/// The time of the running thread, in picoseconds.
pub(crate) fn now_ps() -> u64 {
    with(|world| world.times_ps[world.current]).unwrap_or(0)
}

/// Adds the time of `cost`, `times` times, to the running thread.
pub(crate) fn spend(cost: Cost, times: u64) {
    with(|world| world.times_ps[world.current] += world.costs.ps(cost) * times);
}

/// Adds picoseconds to the running thread's time.
pub(crate) fn spend_ps(ps: u64) {
    with(|world| world.times_ps[world.current] += ps);
}

/// Runs all threads with an earlier time than this one. This thread's code up to the next call
/// happens at one moment.
pub(crate) fn turn() {
    let is_behind = with(|world| {
        let own = (world.times_ps[world.current], world.current);
        let is_behind = world.ready.peek().is_some_and(|Reverse(first)| *first < own);
        if is_behind {
            world.ready.push(Reverse(own));
        }
        is_behind
    });
    if is_behind == Some(true) {
        sleep();
    }
}

/// Returns when this thread may run: at its time in the order, or after [`World::wake`].
#[allow(
    deprecated,
    reason = "its heir must be handed down to where a thread waits: into the code that is modelled"
)]
pub(crate) fn sleep() {
    generator::yield_with(());
}

/// The running thread accesses a line, in its turn.
pub(crate) fn access(line: Line, access: Access) {
    access_many(line, access, 1);
}

/// The running thread accesses several lines that always move together.
pub(crate) fn access_many(line: Line, access: Access, count: u64) {
    if current().is_none() {
        return;
    }
    turn();
    with(|world| {
        let own = world.current;
        let time_ps = &mut world.times_ps[own];
        *time_ps = world.lines.access(&world.costs, line, access, (own, *time_ps, count));
    });
}

impl World {
    fn new(costs: Costs, threads: usize) -> Self {
        let times_ps: Vec<u64> = (0..threads as u64).map(|thread| thread * STAGGER_PS).collect();
        let ready = times_ps.iter().copied().zip(0..).map(Reverse).collect();
        let (lines, queues) = (Lines::default(), Queues::default());
        let parking = vec![(false, false); threads];
        Self { costs, times_ps, ready, current: 0, lines, queues, parking }
    }

    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// Makes a sleeping thread run `after_ps` from now.
    pub(crate) fn wake(&mut self, thread: usize, after_ps: u64) {
        let time_ps = self.times_ps[thread].max(self.times_ps[self.current] + after_ps);
        self.times_ps[thread] = time_ps;
        self.ready.push(Reverse((time_ps, thread)));
    }
}

/// Runs this many threads, each on its own core.
///
/// # Panics
/// If all threads sleep, or if one of them panics.
pub fn run(costs: Costs, threads: usize, body: impl Fn(usize) + Sync) {
    let body = &body;
    let begun = WORLD.replace(Some(World::new(costs, threads)));
    assert!(begun.is_none(), "a world in a world");
    let mut all: Vec<_> = (0..threads)
        .map(|thread| generator::Gn::<()>::new_opt(STACK_WORDS, move || body(thread)))
        .collect();
    let mut left = threads;
    while left > 0 {
        let next = with(|world| {
            let Reverse((_, thread)) = world.ready.pop().expect("not all threads sleep");
            world.current = thread;
            thread
        });
        let thread = next.expect("there is a world");
        all[thread].resume();
        left -= usize::from(all[thread].is_done());
    }
    drop(all);
    WORLD.take();
}
