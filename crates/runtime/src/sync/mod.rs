//! Locks, threads and time: the operating system's, or those of a model checker.
//!
//! Where it stands: everything in this crate that one thread hands to another goes through the names
//! below. In the product they are the standard library's and nothing else. Under `--cfg loom` and
//! `--cfg shuttle` they are those crates', so that the very code that ships is run under every
//! schedule of a small model, or under many of a large one. What it does not do: decide anything.
//!
//! ```text
//!            product       loom                      shuttle
//!   locks    std           every order of accesses   one order a run, from a seed
//!   time     monotonic     (not modelled)            jumps when somebody sleeps
//!   witness  nothing       happens-before            overlaps
//! ```
//!
//! [`flaw`] leaves single lines out on purpose: the proof that a model would notice.

pub(crate) mod flaw;
pub(crate) mod witness;

#[cfg(not(any(loom, shuttle)))]
mod product {
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic, mpsc};
    pub(crate) use std::thread;
    pub(crate) use std::time::Instant as Moment;

    /// Sleeps on `changed` until it is notified or `longest` has passed.
    pub(crate) fn sleep<T>(
        changed: &Condvar,
        guard: MutexGuard<'_, T>,
        longest: std::time::Duration,
    ) {
        let woken = changed.wait_timeout(guard, longest);
        drop(woken.expect("no holder of what is slept on panics"));
    }
}
#[cfg(not(any(loom, shuttle)))]
pub(crate) use product::*;

#[cfg(shuttle)]
mod with_shuttle {
    use std::cell::Cell;
    use std::time::Duration;

    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic, mpsc};
    pub(crate) use shuttle::thread;

    thread_local! {
        static NOW_NS: Cell<u64> = const { Cell::new(0) };
        static TIME_PASSES: Cell<bool> = const { Cell::new(true) };
    }

    /// Sets the time to zero; with `passes` a sleep ends when its time has come, otherwise only
    /// when it is ended, so that a wake-up that was lost is a deadlock.
    pub(crate) fn begin_time(passes: bool) {
        NOW_NS.set(0);
        TIME_PASSES.set(passes);
    }

    /// A moment of the model's time.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Moment(u64);

    impl Moment {
        /// Each look takes a nanosecond.
        pub(crate) fn now() -> Self {
            NOW_NS.set(NOW_NS.get() + 1);
            Self(NOW_NS.get())
        }

        pub(crate) fn elapsed(&self) -> Duration {
            Duration::from_nanos(Self::now().0 - self.0)
        }

        /// Never for the operating system: a model has no workers to wake.
        pub(crate) fn checked_add(self, _: Duration) -> Option<std::time::Instant> {
            None
        }
    }

    /// See the product's.
    pub(crate) fn sleep<T>(changed: &Condvar, guard: MutexGuard<'_, T>, longest: Duration) {
        if TIME_PASSES.get() {
            drop(guard);
            thread::yield_now();
            let passed = u64::try_from(longest.as_nanos()).expect("a model's sleeps are short");
            NOW_NS.set(NOW_NS.get() + passed);
        } else {
            drop(changed.wait(guard).expect("no holder of what is slept on panics"));
        }
    }
}
#[cfg(shuttle)]
pub(crate) use with_shuttle::*;

#[cfg(loom)]
mod with_loom {
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard, atomic};
    pub(crate) use loom::thread;

    /// Loom's, with the one method of the standard library's that it lacks.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> std::sync::LockResult<MutexGuard<'a, T>> {
            while condition(&mut guard) {
                guard = self.0.wait(guard)?;
            }
            Ok(guard)
        }
    }
}
#[cfg(loom)]
pub(crate) use with_loom::*;
