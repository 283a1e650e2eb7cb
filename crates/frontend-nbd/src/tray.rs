//! Where any thread leaves things for a desk, and how it knows whether to call it.
//!
//! Where it stands: between whoever ends an operation and the worker whose connection it is. A desk looks at its tray
//! several times in a turn; whoever leaves something then need not call. The word that the desk will look is taken back
//! *before* its last look: what is left before that look is seen by it, what is left after it finds the word gone.
//!
//! ```text
//!   desk:   open (will look) ── take, work, take, nothing ── close (will not look; one last look) ── nothing: turn over
//!   other:  leave ── was the desk to look? ── no: call it, once
//! ```
//!
//! Invariants
//! - Nothing is left without a look or a call to follow: `models::nothing_stays_in_the_tray`.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::sync::atomic::AtomicBool;
use crate::sync::{self, Flaw, Mutex, MutexGuard};

/// See the module.
#[derive(Debug)]
pub(crate) struct Tray<T> {
    things: Mutex<Vec<T>>,
    will_look: AtomicBool,
}

impl<T> Tray<T> {
    pub(crate) fn new() -> Self {
        Self { things: Mutex::new(Vec::new()), will_look: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves something; whether the desk has to be called.
    #[must_use]
    pub(crate) fn leave(&self, thing: T) -> bool {
        self.lock().push(thing);
        !self.will_look.swap(true, Ordering::SeqCst)
    }

    /// Throws away what was left, for a desk that will never look again.
    pub(crate) fn discard(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    /// The desk will look: before it takes anything.
    pub(crate) fn open(&self) {
        self.will_look.store(true, Ordering::SeqCst);
    }

    /// Moves everything to an empty list.
    pub(crate) fn take(&self, things: &mut Vec<T>) {
        assert!(things.is_empty(), "what was taken before has been dealt with");
        std::mem::swap(&mut *self.lock(), things);
    }

    /// The desk will not look again unless it is called; false if it must.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        self.will_look.store(false, Ordering::SeqCst);
        self.lock().is_empty() || sync::has(Flaw::NoLastLook)
    }
}
