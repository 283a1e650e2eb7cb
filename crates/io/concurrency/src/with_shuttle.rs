//! Shuttle's names, and a time that passes when a thread sleeps.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic, mpsc};
pub use shuttle::sync::{Mutex as TryMutex, MutexGuard as TryMutexGuard};
pub use shuttle::thread;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
    static TIME_PASSES: Cell<bool> = const { Cell::new(true) };
}

/// Sets the time to zero. With `passes` a sleep ends after its duration. Otherwise only a
/// notification ends a sleep, so that a lost notification is a deadlock.
pub(crate) fn begin_time(passes: bool) {
    NOW_NS.set(0);
    TIME_PASSES.set(passes);
}

/// A moment of the model's time.
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl Moment {
    /// Each call advances the model's time by a nanosecond.
    #[must_use]
    pub fn now() -> Self {
        NOW_NS.set(NOW_NS.get() + 1);
        Self(NOW_NS.get())
    }

    /// The time since this moment.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(Self::now().0 - self.0)
    }

    /// Always `None`: the result would be a moment of the operating system, and a model has no
    /// workers to wake at one.
    #[must_use]
    pub fn checked_add(self, _: Duration) -> Option<std::time::Instant> {
        None
    }
}

/// Waits on `changed` until a notification comes or, if time passes, for `longest`.
///
/// # Panics
/// If a holder of the lock has panicked.
pub fn sleep<T>(changed: &Condvar, guard: MutexGuard<'_, T>, longest: Duration) {
    if TIME_PASSES.get() {
        drop(guard);
        thread::yield_now();
        let passed = u64::try_from(longest.as_nanos()).expect("a model's sleeps are short");
        NOW_NS.set(NOW_NS.get() + passed);
    } else {
        drop(changed.wait(guard).expect("no holder of what is slept on panics"));
    }
}

/// This thread's own number.
#[must_use]
pub fn thread_number() -> usize {
    let mut hasher = DefaultHasher::new();
    thread::current().id().hash(&mut hasher);
    usize::try_from(hasher.finish() >> 32).expect("addresses have 64 bits here")
}
