//! The deadline by which event delivery must end, once its end has begun.
//!
//! Hooks may take long, and the server does not wait long for hooks at its end. So all waits of
//! hooks use this module: a wait lasts for a given time, or until the deadline.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The deadline that all threads of one [`crate::Teller`] share.
#[derive(Debug, Default)]
pub struct Ending {
    deadline: Mutex<Option<Instant>>,
    begun: Condvar,
}

impl Ending {
    /// Begins the end of event delivery; the earliest of several deadlines counts.
    pub fn begin(&self, deadline: Instant) {
        let mut told = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(told.map_or(deadline, |earlier| earlier.min(deadline)));
        self.begun.notify_all();
    }

    /// Returns `wanted`, or the time until the deadline if that is shorter; `None` once the
    /// deadline has passed.
    #[must_use]
    pub fn allows(&self, wanted: Duration) -> Option<Duration> {
        let told = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        let left = told.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let allowed = left.map_or(wanted, |left| left.min(wanted));
        Some(allowed).filter(|_| left.is_none_or(|left| !left.is_zero()))
    }

    /// Waits for `wanted`, or until the deadline; returns whether the wait lasted in full.
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
