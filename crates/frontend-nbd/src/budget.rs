//! The bound on payload memory over all connections of a server.
//!
//! Where it stands: one per server; each connection asks it before a request begins, and gives back when the reply is
//! out. Nobody waits for it: a connection that is refused goes on with one request at a time, and asks again whenever
//! one of its own has ended. So a client that sits on its memory slows others down, and stops nobody; at most
//! one request for each connection is held beyond the bound.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may be held, and are.
#[derive(Debug)]
pub(crate) struct Budget {
    held_bytes: AtomicUsize,
    limit_bytes: usize,
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { held_bytes: AtomicUsize::new(0), limit_bytes }
    }

    /// Takes `bytes` if they are within the bound.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let within = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        self.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Takes `bytes`, if need be beyond the bound.
    pub(crate) fn take_anyway(&self, bytes: usize) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&self, bytes: usize) {
        let before = self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "only what was taken is given back");
    }

    /// Bytes held now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_is_refused_and_counted_if_taken_anyway() {
        let budget = Budget::new(10);
        assert!(budget.take(10) && !budget.take(1) && budget.take(0));
        budget.take_anyway(5);
        assert_eq!(budget.held_bytes(), 15);
        budget.give(6);
        assert!(budget.take(1) && !budget.take(1));
        budget.give(10);
        assert_eq!(budget.held_bytes(), 0);
        assert!(!budget.take(usize::MAX));
    }
}
