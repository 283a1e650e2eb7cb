//! The deadline of the end of telling, once the end has begun.
//!
//! Hooks may take long, and the server does not wait long for hooks at its end. So all waits of
//! hooks pass through here: they last for a given time, or until the deadline.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shared by all threads of one [`crate::Teller`].
#[derive(Debug, Default)]
pub struct Ending {
    deadline: Mutex<Option<Instant>>,
    begun: Condvar,
}

impl Ending {
    /// Begins the end; the earliest deadline counts.
    pub fn begin(&self, deadline: Instant) {
        let mut told = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(told.map_or(deadline, |earlier| earlier.min(deadline)));
        self.begun.notify_all();
    }

    /// `wanted`, or the time until the deadline if that is shorter; `None` once the deadline has
    /// passed.
    #[must_use]
    pub fn allows(&self, wanted: Duration) -> Option<Duration> {
        let told = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        let left = told.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let allowed = left.map_or(wanted, |left| left.min(wanted));
        Some(allowed).filter(|_| left.is_none_or(|left| !left.is_zero()))
    }

    /// Waits for `wanted`, or until the deadline; returns whether it waited in full.
    #[must_use]
    pub fn sleep(&self, wanted: Duration) -> bool {
        let until = Instant::now() + wanted;
        let mut told = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            if now >= until {
                return true;
            }
            if told.is_some_and(|deadline| deadline < until) {
                return false;
            }
            let waited = self.begun.wait_timeout(told, until - now);
            told = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_beyond_the_end() {
        let ending = Ending::default();
        let long = Duration::from_secs(1000);
        assert_eq!(ending.allows(long), Some(long));
        assert!(ending.sleep(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let asleep = scope.spawn(|| ending.sleep(long));
            ending.begin(Instant::now() + Duration::from_secs(60));
            assert!(!asleep.join().expect("it wakes"), "there is no time for so much");
        });
        assert!(ending.allows(long).is_some_and(|left| left <= Duration::from_secs(60)));
        ending.begin(Instant::now());
        ending.begin(Instant::now() + long);
        assert_eq!(ending.allows(Duration::ZERO), None, "the first end counts");
    }
}
