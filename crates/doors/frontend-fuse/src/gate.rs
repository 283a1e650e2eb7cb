//! Counts the memory of requests in flight. A thread waits at the gate before it receives more
//! messages.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct GateState {
    bytes: usize,
    requests: usize,
    is_closed: bool,
}

#[derive(Debug)]
pub(crate) struct Gate {
    bytes_max: usize,
    state: Mutex<GateState>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the limit has room for `bytes` more; false if the gate is closed.
    pub(crate) fn wait_for(&self, bytes: usize) -> bool {
        let is_full =
            |state: &mut GateState| !state.is_closed && state.bytes + bytes > self.bytes_max;
        let state = self.changed.wait_while(self.lock(), is_full);
        !state.unwrap_or_else(PoisonError::into_inner).is_closed
    }

    pub(crate) fn enter(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes += bytes;
        state.requests += 1;
    }

    pub(crate) fn leave(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes -= bytes;
        state.requests -= 1;
        drop(state);
        // Wakes all threads: one waits for bytes, another for the end of the last request.
        self.changed.notify_all();
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until no request is in flight, for at most `limit`; returns the number in flight.
    pub(crate) fn wait_for_none(&self, limit: Duration) -> usize {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        while state.requests > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_fit_waits_for_one_that_leaves() {
        let gate = Gate::new(100);
        gate.enter(80);
        assert!(gate.wait_for(20));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait_for(21));
            gate.leave(80);
            assert!(waiting.join().expect("no panic"));
        });
        assert_eq!(gate.wait_for_none(Duration::ZERO), 0);
    }

    #[test]
    fn a_closed_gate_holds_nobody() {
        let gate = Gate::new(100);
        gate.enter(100);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait_for(1));
            gate.close();
            assert!(!waiting.join().expect("no panic"));
        });
        assert_eq!(gate.wait_for_none(Duration::from_millis(1)), 1);
    }
}
