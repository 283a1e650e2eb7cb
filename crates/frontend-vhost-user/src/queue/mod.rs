//! The requests of one ring: how they come in, how they are asked of the array, how their ends get back.
//!
//! ```text
//!   kick ──► turn ──► take: all there is ──► room? ──► Disk::submit ┄┄► receive, any thread ──► inbox
//!              ▲                              └── none: kept until another ends          │
//!              └── inbox ◄── rung once for all that came while nobody looked ────────────┘
//!   turn ──► all that has ended: payload, status, used ring ──► one call for all
//! ```
//!
//! A turn takes [`TURN_REQUESTS_MAX`] requests at most, so that a guest which always has more does not keep others waiting
//! [check: a_guest_that_always_has_more_does_not_keep_a_worker].
//!
//! Who has the turns is in `driver`: a worker of the array's, or a thread. The client's messages change a queue under its lock, and
//! ask for a turn.
//!
//! Invariants
//! - Whatever is in the ring is answered once, or was taken and is in the table, or stands in a ring that is broken
//!   [check: whatever_a_guest_asks_is_answered_once_and_stays_within_the_array].
//! - After [`Queue::cut`] no byte of the guest's memory is written [check: nothing_is_written_for_a_client_that_has_gone].

mod driver;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_ring::{Bell, Descriptor, Inbox, Workers};
use braid_runtime::{Disk, Outcome, Receiver};
use braid_virtio_proto::Device;
use braid_virtio_proto::limits::ID_BYTES;

use crate::limits::{LOOK, TURN_REQUESTS_MAX};
use crate::memory::Memory;
use crate::ring::{Broken, Ring};
use driver::Driver;
use state::State;

/// What all queues of a session share.
pub(crate) struct Served {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) id: [u8; ID_BYTES],
    /// Queues that have a ring; each has as large a share of the memory.
    pub(crate) started: AtomicUsize,
}

/// The end of an operation, for a queue.
struct Finished {
    token: u64,
    outcome: Outcome,
}

/// See the module.
pub(crate) struct Queue {
    served: Arc<Served>,
    state: Mutex<State>,
    /// Nothing is under way.
    idle: Condvar,
    inbox: Inbox<Finished>,
    driver: Driver,
}

/// An eventfd of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// By which the client says that there is something in the ring.
    Kick,
    /// By which we say that something was answered.
    Call,
    /// By which we say that the ring is broken.
    Error,
}

impl Queue {
    /// A queue without a ring, that has its turns on a worker, or on a thread of its own.
    pub(crate) fn new(
        served: &Arc<Served>,
        number: u16,
        workers: Option<&Arc<Workers>>,
    ) -> io::Result<Arc<Self>> {
        let driver = Driver::new(number, workers)?;
        let queue = Arc::new(Self {
            served: Arc::clone(served),
            state: Mutex::default(),
            idle: Condvar::new(),
            inbox: Inbox::new(true),
            driver,
        });
        queue.begin()?;
        Ok(queue)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's eventfd is this from now on.
    pub(crate) fn set_event(self: &Arc<Self>, event: Event, bell: Option<Descriptor>) {
        self.lock().set_event(event, bell);
        self.wake();
    }

    /// Begins with a ring, of which a dead server has left these; the driver knows the device like this.
    pub(crate) fn start(self: &Arc<Self>, (ring, left): (Ring, Vec<u16>), device: Device) {
        let mut state = self.lock();
        assert!(!state.has_ring(), "a ring is stopped before another is begun with");
        state.start(ring, left, device);
        drop(state);
        self.wake();
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.lock().has_ring()
    }

    /// Whether its ring is to be looked at.
    pub(crate) fn enable(self: &Arc<Self>, is_enabled: bool) {
        self.lock().is_enabled = is_enabled;
        self.wake();
    }

    /// The guest's memory is this from now on.
    pub(crate) fn set_memory(self: &Arc<Self>, memory: &Arc<Memory>) {
        self.lock().set_memory(memory);
        self.wake();
    }

    /// Takes nothing more from the ring, answers what was taken, and lets go of it; the index of the next request. None if there
    /// is no ring, or it is cut meanwhile.
    pub(crate) fn stop(self: &Arc<Self>) -> Option<u16> {
        self.hold();
        let mut state = self.lock();
        while !state.is_done() && !state.is_cut {
            let waited = self.idle.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let base = state.end();
        state.is_held = false;
        drop(state);
        self.wake();
        base
    }

    /// Takes nothing more from the ring.
    pub(crate) fn hold(self: &Arc<Self>) {
        self.lock().is_held = true;
        self.wake();
    }

    /// Waits until all that was taken has been answered, but no longer than so; how much was not.
    pub(crate) fn wait_for_answers(&self, until: Instant) -> usize {
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.is_done() || left.is_zero() {
                return state.under_way();
            }
            let waited = self.idle.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The client has gone: its memory is left alone, and there are no more turns.
    pub(crate) fn cut(self: &Arc<Self>) {
        self.lock().cut();
        self.idle.notify_all();
        self.wake();
    }

    /// Waits a while for the array to have ended what was asked; whether it has.
    pub(crate) fn wait_for_array(&self, limit: Duration) -> bool {
        let state = self.lock();
        let waited = self.idle.wait_timeout_while(state, limit, |state| state.under_way() > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.under_way() == 0
    }

    /// Does all there is to do; whether there is more already.
    fn turn(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        let mut room = TURN_REQUESTS_MAX;
        let mut finished = state.take_list();
        let is_more = loop {
            self.inbox.take(&mut finished);
            let has_ended = !finished.is_empty();
            for Finished { token, outcome } in finished.drain(..) {
                state.finish(token, outcome);
            }
            let has_begun = state.take_in(self, &mut room);
            if room == 0 {
                break true;
            }
            if has_ended || has_begun || state.listens() {
                continue;
            }
            if self.inbox.sleep() {
                break false;
            }
        };
        state.put_list(finished);
        state.call();
        if state.is_done() || state.under_way() == 0 {
            self.idle.notify_all();
        }
        is_more
    }
}

impl Receiver for Queue {
    fn receive(self: Arc<Self>, token: u64, outcome: Outcome) {
        // It is never closed, so that nothing is refused.
        if let Ok(Bell::Ring) = self.inbox.push(Finished { token, outcome }, true) {
            self.wake();
        }
    }
}

/// Says once that a ring is broken.
fn say_broken(why: &Broken) {
    tracing::warn!(target: "braid_frontend_vhost_user", error = %why, "a guest's ring makes no sense, and is not served any more");
}
