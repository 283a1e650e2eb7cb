//! Waiting: a caller waits for the end of its request, and a stop for the last answer.
//!
//! Place in the flow: [`crate::Volume::call`] waits here; the thread that ends the request reports
//! the outcome. Mostly the caller itself ends its request, as it drives the machines: then no
//! thread sleeps and none is woken.
//! ```text
//!   caller: ask ─▶ drive ─▶ wait ─┬─ the outcome is here: it goes on
//!                                 └─ sleeps ◀─ woken by the thread that ended the request
//! ```
//! A wake-up is a system call, so it is left out if the caller does not sleep. The caller sets a
//! flag that it sleeps, under the lock that guards the outcome
//! [check: a_caller_hears_of_the_end, a_caller_that_is_not_woken_is_caught].
//!
//! A thread has one place to wait at, and reuses it.

use std::cell::Cell;

use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Condvar, Mutex};
use braid_ring::client::Outcome;

/// The place at which one caller waits for its outcome.
#[derive(Default)]
pub(crate) struct Waiter {
    state: Mutex<Answer>,
    changed: Condvar,
}

#[derive(Default)]
struct Answer {
    outcome: Option<Outcome>,
    sleeps: bool,
}

thread_local! {
    /// This thread's waiter, while no request uses it.
    static PLACE: Cell<Option<Arc<Waiter>>> = const { Cell::new(None) };
}

impl Waiter {
    pub(crate) fn tell(&self, outcome: Outcome) {
        let mut state = self.state.lock().expect("telling does not panic");
        let before = state.outcome.replace(outcome);
        assert!(before.is_none(), "a request is answered once");
        let sleeps = state.sleeps;
        drop(state);
        if sleeps && !flaw::has(Flaw::CallerSleepsOn) {
            self.changed.notify_one();
        }
    }

    fn wait(&self) -> Outcome {
        let mut state = self.state.lock().expect("telling does not panic");
        state.sleeps = state.outcome.is_none();
        let is_missing = |state: &mut Answer| state.outcome.is_none();
        let mut state = self.changed.wait_while(state, is_missing).expect("telling does not panic");
        state.sleeps = false;
        state.outcome.take().expect("waited for")
    }
}

/// Lets `ask` begin a request, and waits at this thread's waiter for the outcome.
pub(crate) fn wait_for(ask: impl FnOnce(Arc<Waiter>)) -> Outcome {
    // In models a waiter belongs to one schedule, so none is kept. A thread that is ending has lost
    // its own.
    let kept = if cfg!(shuttle) { None } else { PLACE.try_with(Cell::take).ok().flatten() };
    let place = kept.unwrap_or_default();
    ask(Arc::clone(&place));
    let outcome = place.wait();
    if !cfg!(shuttle) {
        let _ending = PLACE.try_with(|kept| kept.set(Some(place)));
    }
    outcome
}

/// Counts unanswered requests, so that a stop can wait for them.
#[derive(Default)]
pub(crate) struct InFlight {
    state: Mutex<Count>,
    changed: Condvar,
}

#[derive(Default)]
struct Count {
    requests: usize,
    /// Whether a stop sleeps until the count is zero.
    is_awaited: bool,
}

impl InFlight {
    /// Counts one more request; returns the count.
    pub(crate) fn enter(&self) -> usize {
        let mut state = self.state.lock().expect("counting does not panic");
        state.requests += 1;
        state.requests
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().expect("counting does not panic").requests
    }

    pub(crate) fn leave(&self) {
        let mut state = self.state.lock().expect("counting does not panic");
        state.requests -= 1;
        if state.requests == 0 && state.is_awaited && !flaw::has(Flaw::LastAnswerSilent) {
            self.changed.notify_all();
        }
    }

    pub(crate) fn wait_for_none(&self) {
        let mut state = self.state.lock().expect("counting does not panic");
        state.is_awaited = true;
        let some = |state: &mut Count| state.requests > 0;
        drop(self.changed.wait_while(state, some).expect("counting does not panic"));
    }
}
