//! The counters of workers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one worker, or the sum over all workers, since they were started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Turns of the loop.
    pub turns: u64,
    /// Calls of `io_uring_enter`.
    pub enters: u64,
    /// Calls of `io_uring_enter` that submitted operations. The other calls slept or reaped.
    pub submissions: u64,
    /// Submitted operations, resumptions included.
    pub entries: u64,
    /// Completions taken from the kernel.
    pub completions: u64,
    /// Calls of `io_uring_enter` that were allowed to sleep.
    pub sleeps: u64,
    /// Number of times that another thread had to wake the worker.
    pub wakes: u64,
    /// Tasks and operations that came through the inbox.
    pub posted: u64,
    /// Operations that found the ring full and waited.
    pub overflowed: u64,
    /// Short transfers that were resumed.
    pub resumed: u64,
    /// Transfers of files that named registered memory.
    pub registered: u64,
    /// Operations on files and sockets that named a registered number.
    pub numbered: u64,
}

macro_rules! tally {
    ($($name:ident),*) => {
        /// The running counts. One thread counts; any thread may read.
        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Tally {
            pub(crate) fn add_to(&self, sum: &mut Counters) {
                $(sum.$name += self.$name.load(Ordering::Relaxed);)*
            }
        }
    };
}
tally!(
    turns,
    enters,
    submissions,
    entries,
    completions,
    sleeps,
    wakes,
    posted,
    overflowed,
    resumed,
    registered,
    numbered
);

/// Adds to a count that only this thread changes, without a locked instruction.
pub(crate) fn add(count: &AtomicU64, more: usize) {
    count.store(count.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
}
