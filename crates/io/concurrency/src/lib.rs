//! Locks, threads and time: the operating system's, or those of a model checker.
//!
//! Place in the flow: below every crate with threads. Threads hand data to each other only through
//! the names in this crate. In the product the names are the standard library's. Under `--cfg loom`
//! and `--cfg shuttle` they are those of the two model checkers. So the very code that ships runs
//! under every schedule of a small model, or under many of a large one. This crate decides nothing.
//!
//! ```text
//!           product       loom                      shuttle
//!  locks    std           every order of accesses   one order a run, from a seed
//!  time     monotonic     (not modelled)            jumps when a thread sleeps
//! ```
//!
//! [`flaws!`] leaves out single lines, to prove that a model would notice. `models` runs models.
#![forbid(unsafe_code)]

mod flaws;
#[cfg(any(loom, shuttle))]
pub mod models;

#[cfg(not(any(loom, shuttle)))]
mod product {
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic, mpsc};
    pub use std::sync::{Mutex as TryMutex, MutexGuard as TryMutexGuard};
    pub use std::thread;
    pub use std::time::Instant as Moment;

    use atomic::{AtomicUsize, Ordering};

    /// Waits on `changed` until a notification comes or `longest` has passed.
    ///
    /// # Panics
    /// If a holder of the lock has panicked.
    pub fn sleep<T>(changed: &Condvar, guard: MutexGuard<'_, T>, longest: std::time::Duration) {
        let woken = changed.wait_timeout(guard, longest);
        drop(woken.expect("no holder of what is slept on panics"));
    }

    /// This thread's own number; threads are numbered in the order in which they first ask.
    pub fn thread_number() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        // A thread that is ending has lost its number and gets 0.
        NUMBER.try_with(|number| *number).unwrap_or_default()
    }
}
#[cfg(not(any(loom, shuttle)))]
pub use product::*;

#[cfg(shuttle)]
mod with_shuttle;
#[cfg(shuttle)]
pub use with_shuttle::*;

#[cfg(loom)]
mod with_loom;
#[cfg(loom)]
pub use with_loom::*;
