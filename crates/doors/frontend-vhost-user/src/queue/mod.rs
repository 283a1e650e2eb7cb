//! The requests of one ring: their way from the ring to the array, and that of their results back
//! to the ring.
//!
//! ```text
//!   kick ──► turn ──► take: all ──► room? ──► Disk::submit ┄┄► receive, any thread ──► inbox
//!              ▲                     └── none: kept until another ends          │
//!              └── inbox ◄── rung once for all that came between two turns ─────┘
//!   turn ──► all that has ended: payload, status, used ring ──► one call for all
//! ```
//!
//! A turn takes at most [`TURN_REQUESTS_MAX`] requests: a guest with an endless supply must not
//! block other queues [check: a_guest_that_always_has_more_does_not_keep_a_worker].
//!
//! `driver` runs the turns, on one of the array's workers or on a thread. The client's messages
//! change a queue under its lock, and schedule a turn.
//!
//! Invariants
//! - Each request of a sound ring is answered once, or stays in the table for the next server
//!   [check: whatever_a_guest_asks_is_answered_once_and_stays_within_the_array].
//! - After [`Queue::cut`] no byte of the guest's memory is written
//!   [check: nothing_is_written_for_a_client_that_has_gone].

mod driver;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_ring::{Bell, Completion, Descriptor, Handler, Inbox, Operation, Wake, Worker, Workers};
use braid_runtime::{Outcome, Receiver, Token};
use braid_virtio_proto::Device;

use crate::bells;
use crate::limits::{LOOK, TURN_REQUESTS_MAX};
use crate::memory::Memory;
use crate::ring::Ring;
use driver::{Driver, Turns};
use state::{Asks, FinishedRequest, State};
pub(crate) use state::{Event, ServedDisk};

const TURN: u64 = 0;
const KICK: u64 = 1;

pub(crate) struct Queue {
    served: Arc<ServedDisk>,
    state: Mutex<State>,
    /// Signalled when no operation of the queue is in flight.
    idle: Condvar,
    inbox: Inbox<FinishedRequest>,
    driver: Driver,
}

impl Queue {
    /// Makes a queue without a ring, whose turns run on a worker or on a thread of its own.
    pub(crate) fn new(
        served: &Arc<ServedDisk>,
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
        queue.driver.begin(&queue)?;
        Ok(queue)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_event(self: &Arc<Self>, event: Event, bell: Option<Descriptor>) {
        self.lock().set_event(event, bell);
        self.call_for_turn();
    }

    /// Starts to serve a ring for the negotiated `device`, first the requests that a dead server
    /// left.
    pub(crate) fn start(self: &Arc<Self>, (ring, left): (Ring, Vec<u16>), device: Device) {
        let mut state = self.lock();
        assert!(!state.has_ring(), "a ring is stopped before another is begun with");
        state.start(ring, left, device);
        drop(state);
        self.call_for_turn();
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.lock().has_ring()
    }

    pub(crate) fn enable(self: &Arc<Self>, is_enabled: bool) {
        self.lock().is_enabled = is_enabled;
        self.call_for_turn();
    }

    pub(crate) fn set_memory(self: &Arc<Self>, memory: &Arc<Memory>) {
        self.lock().set_memory(memory);
        self.call_for_turn();
    }

    /// Answers all requests taken from the ring, and releases the ring; returns the index of the
    /// next request. `None` if the queue has no ring, or if [`Self::cut`] is called meanwhile.
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
        self.call_for_turn();
        base
    }

    pub(crate) fn hold(self: &Arc<Self>) {
        self.lock().is_held = true;
        self.call_for_turn();
    }

    /// Waits until all requests taken from the ring are answered, at most until `until`; returns
    /// the number of unanswered requests.
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

    /// Notes that the client has disconnected: the queue no longer touches the client's memory, and
    /// has no more turns.
    pub(crate) fn cut(self: &Arc<Self>) {
        self.lock().cut();
        self.idle.notify_all();
        self.call_for_turn();
    }

    /// Waits at most `limit` for the array to end all operations of the queue; returns whether it
    /// has ended them.
    pub(crate) fn wait_for_array(&self, limit: Duration) -> bool {
        let state = self.lock();
        let waited = self.idle.wait_timeout_while(state, limit, |state| state.under_way() > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.under_way() == 0
    }

    fn call_for_turn(self: &Arc<Self>) {
        self.driver.wake(self, TURN);
    }

    /// Makes the worker poll the queue's current kick.
    fn watch(self: &Arc<Self>, worker: &Worker) {
        let mut state = self.lock();
        let kick = state.kick().map(Descriptor::clone);
        match (&state.watched, kick) {
            (None, Some(kick)) => {
                state.watched = Some(Descriptor::clone(&kick));
                drop(state);
                let look = Operation::Poll { file: kick };
                worker.submit(look, Arc::<Self>::clone(self), KICK);
            }
            (Some(watched), kick)
                if kick.as_ref().is_none_or(|kick| !Arc::ptr_eq(kick, watched)) =>
            {
                drop(state);
                let handler: Arc<dyn Handler> = Arc::<Self>::clone(self);
                worker.cancel(&handler, KICK);
            }
            _ => {}
        }
    }
}

impl Turns for Queue {
    fn turn(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        let mut room = TURN_REQUESTS_MAX;
        let receiver = || -> Arc<dyn Receiver> { Arc::<Self>::clone(self) };
        let asks = Asks { served: &self.served, receiver: &receiver };
        let mut finished = state.take_list();
        let is_more = loop {
            self.inbox.take(&mut finished);
            let has_ended = !finished.is_empty();
            for FinishedRequest { token, outcome } in finished.drain(..) {
                state.finish(token, outcome);
            }
            let has_begun = state.take_in(&asks, &mut room);
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

    fn kick(&self) -> Option<Descriptor> {
        self.lock().kick().map(Descriptor::clone)
    }

    fn is_over(&self) -> bool {
        let state = self.lock();
        state.is_cut && state.under_way() == 0
    }
}

impl Wake for Queue {
    fn wake(self: Arc<Self>, worker: &Worker, _: u64) {
        let is_more = self.turn();
        self.watch(worker);
        if is_more {
            worker.afterwards(self, TURN);
        }
    }
}

impl Handler for Queue {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        let mut state = self.lock();
        let watched = state.watched.take();
        let watched = watched.expect("one look is out");
        match completion.result {
            Ok(_) => bells::hear(&*watched),
            // The worker is stopping, or the file cannot be polled: the file is not polled again.
            Err(_) if state.kick().is_some_and(|kick| Arc::ptr_eq(kick, &watched)) => {
                state.lose_kick();
            }
            Err(_) => {}
        }
        drop(state);
        worker.afterwards(self, TURN);
    }
}

impl Receiver for Queue {
    fn receive(self: Arc<Self>, token: Token, outcome: Outcome) {
        let token = token.request;
        // The inbox is never closed, so it refuses no message.
        if let Ok(Bell::Ring) = self.inbox.push(FinishedRequest { token, outcome }, true) {
            self.call_for_turn();
        }
    }
}
