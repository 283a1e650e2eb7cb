//! Waiting for a turn to change the array.
//!
//! Who may is decided by the engine's [`request::Turnstile`], which knows no threads; this puts a
//! lock and a condition variable around it. An aligned write that finds no other waiting does not
//! wait [check: an_unaligned_write_is_alone].

use braid_engine::request::{self, Way};

use crate::sync::flaw::{self, Flaw};
use crate::sync::{Condvar, Mutex};

/// Many aligned writes, or one that is not.
#[derive(Default)]
pub(crate) struct Turnstile {
    state: Mutex<request::Turnstile>,
    changed: Condvar,
}

impl Turnstile {
    /// Lets a write in; waits for those that came before and cannot be in beside it.
    pub(crate) fn enter(&self, way: Way) {
        let mut state = self.state.lock().expect("counting does not panic");
        let ticket = state.ask(way);
        let state = self
            .changed
            .wait_while(state, |state| !state.is_in(ticket) && !flaw::has(Flaw::EnterAtOnce));
        drop(state.expect("counting does not panic"));
    }

    /// A write has been answered.
    pub(crate) fn leave(&self, way: Way) {
        let lets_in = self.state.lock().expect("counting does not panic").leave(way);
        if lets_in && !flaw::has(Flaw::LeaveSilent) {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn an_unaligned_write_is_alone() {
        let turnstile = Turnstile::default();
        let (aligned, alone) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (turnstile, aligned, alone) = (&turnstile, &aligned, &alone);
                scope.spawn(move || {
                    for round in 0..2_000 {
                        if (thread + round) % 5 == 0 {
                            turnstile.enter(Way::Alone);
                            assert_eq!(alone.fetch_add(1, Ordering::SeqCst), 0);
                            assert_eq!(aligned.load(Ordering::SeqCst), 0);
                            alone.fetch_sub(1, Ordering::SeqCst);
                            turnstile.leave(Way::Alone);
                        } else {
                            turnstile.enter(Way::Beside);
                            aligned.fetch_add(1, Ordering::SeqCst);
                            assert_eq!(alone.load(Ordering::SeqCst), 0);
                            aligned.fetch_sub(1, Ordering::SeqCst);
                            turnstile.leave(Way::Beside);
                        }
                    }
                });
            }
        });
    }
}
