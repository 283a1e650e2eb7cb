//! A queue's state between two turns, and the handling of one request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_ring::{Descriptor, Payload};
use braid_runtime::{ClientRequest, Completion, Disk, Outcome, Receiver, RequestError};
use braid_virtio_proto::limits::ID_BYTES;
use braid_virtio_proto::wire::HEAD_BYTES;
use braid_virtio_proto::{Chain, Device, ParseError, Request, Status};
use slab::Slab;

use crate::bells;
use crate::limits::DOOR_BYTES_MAX;
use crate::memory::Memory;
use crate::ring::{Broken, Ring};

pub(crate) struct ServedDisk {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) id: [u8; ID_BYTES],
    /// Number of queues that have a ring; each has an equal share of the memory.
    pub(crate) started: AtomicUsize,
}

pub(super) struct FinishedRequest {
    pub(super) token: u64,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The eventfd by which the client signals requests in the ring.
    Kick,
    /// The eventfd by which the door signals answers in the ring.
    Call,
    /// The eventfd by which the door signals that the ring is broken.
    Error,
}

struct PendingRequest {
    head: u16,
    chain: Chain,
    request: Request,
    held_bytes: usize,
}

pub(super) struct Asks<'a> {
    pub(super) served: &'a ServedDisk,
    pub(super) receiver: &'a dyn Fn() -> Arc<dyn Receiver>,
}

enum Step {
    Submitted,
    Answered,
    /// The request gets no memory until another request ends.
    Waits,
}

#[derive(Default)]
pub(super) struct State {
    ring: Option<Ring>,
    device: Option<Device>,
    pub(super) is_enabled: bool,
    pub(super) is_held: bool,
    pub(super) is_cut: bool,
    is_broken: bool,
    /// Whether the ring has answers that the guest may not have noticed.
    is_to_be_called: bool,
    kick: Option<Descriptor>,
    call: Option<Descriptor>,
    error: Option<Descriptor>,
    /// Requests that were taken and not submitted: left by a dead server, or without memory.
    in_hand: VecDeque<u16>,
    pending: Slab<PendingRequest>,
    held_bytes: usize,
    /// Finished requests that a turn has taken from the inbox. The list is empty between turns, and
    /// kept for its memory.
    finished: Vec<FinishedRequest>,
    pub(super) watched: Option<Descriptor>,
}

impl State {
    pub(super) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    pub(super) fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Whether no request is in flight, and no request in hand can be submitted.
    pub(super) fn is_done(&self) -> bool {
        let goes_on = self.is_enabled && !self.is_broken && self.ring.is_some();
        self.pending.is_empty() && (self.in_hand.is_empty() || !goes_on)
    }

    pub(super) fn set_event(&mut self, event: Event, bell: Option<Descriptor>) {
        match event {
            Event::Kick => self.kick = bell,
            Event::Call => {
                self.call = bell;
                self.call_anyway();
            }
            Event::Error => self.error = bell,
        }
    }

    pub(super) fn kick(&self) -> Option<&Descriptor> {
        let is_looked_at = self.ring.is_some() && !self.is_cut && !self.is_broken;
        self.kick.as_ref().filter(|_| is_looked_at)
    }

    /// Drops a kick eventfd that cannot be polled.
    pub(super) fn lose_kick(&mut self) {
        self.kick = None;
    }

    pub(super) fn start(&mut self, ring: Ring, left: Vec<u16>, device: Device) {
        if self.is_cut {
            return;
        }
        (self.ring, self.device) = (Some(ring), Some(device));
        self.in_hand = left.into();
        self.is_broken = false;
        self.call_anyway();
    }

    /// Calls the guest without checking whether it wants a call: the guest may have missed earlier
    /// answers, also those of a dead server.
    fn call_anyway(&self) {
        if self.ring.is_some() {
            self.call.iter().for_each(bells::ring);
        }
    }

    /// Releases the ring; returns the ring's index of the next request.
    pub(super) fn end(&mut self) -> Option<u16> {
        let unanswered = u16::try_from(self.in_hand.len()).expect("no more than there are entries");
        self.in_hand.clear();
        self.kick = None;
        // Requests in hand count as not taken: ring and table hold them for the next server.
        self.ring.take().map(|ring| ring.base().wrapping_sub(unanswered))
    }

    pub(super) fn cut(&mut self) {
        self.is_cut = true;
        self.end();
        (self.call, self.error) = (None, None);
    }

    pub(super) fn set_memory(&mut self, memory: &Arc<Memory>) {
        let set = self.ring.as_mut().map(|ring| ring.set_memory(Arc::clone(memory)));
        if let Some(Err(why)) = set {
            self.lose_ring(&why);
        }
    }

    fn lose_ring(&mut self, why: &Broken) {
        if !std::mem::replace(&mut self.is_broken, true) {
            say_broken(why);
            self.error.iter().for_each(bells::ring);
        }
    }

    pub(super) fn take_list(&mut self) -> Vec<FinishedRequest> {
        std::mem::take(&mut self.finished)
    }

    pub(super) fn put_list(&mut self, list: Vec<FinishedRequest>) {
        self.finished = list;
    }

    /// Asks the guest to kick for new requests; returns whether new requests have arrived already.
    pub(super) fn listens(&mut self) -> bool {
        if !self.takes() || !self.in_hand.is_empty() {
            return false;
        }
        let Some(ring) = &mut self.ring else { return false };
        match ring.listen() {
            Ok(has_more) => has_more,
            Err(why) => {
                self.lose_ring(&why);
                false
            }
        }
    }

    fn takes(&self) -> bool {
        self.goes_on() && !self.is_held
    }

    fn goes_on(&self) -> bool {
        self.is_enabled && !self.is_broken && !self.is_cut && self.ring.is_some()
    }

    /// Calls the guest if the ring has new answers and the guest wants a call for them.
    pub(super) fn call(&mut self) {
        if !std::mem::replace(&mut self.is_to_be_called, false) {
            return;
        }
        let wants = self.ring.as_mut().is_some_and(Ring::wants_call);
        if wants {
            self.call.iter().for_each(bells::ring);
        }
    }

    /// Begins requests in hand and in the ring, at most `room` of them, as far as memory allows.
    /// Returns whether it began any request.
    pub(super) fn take_in(&mut self, asks: &Asks<'_>, room: &mut usize) -> bool {
        let mut has_begun = false;
        while self.goes_on() && *room > 0 {
            let Some(head) = self.next() else { return has_begun };
            match self.begin(asks, head) {
                Step::Submitted | Step::Answered => {
                    self.in_hand.pop_front();
                    has_begun = true;
                    *room -= 1;
                }
                Step::Waits => return has_begun,
            }
        }
        has_begun
    }

    /// Takes the next request from the ring into `in_hand`, if `in_hand` is empty; returns the
    /// first of `in_hand`.
    fn next(&mut self) -> Option<u16> {
        if self.in_hand.is_empty() && self.takes() {
            match self.ring.as_mut()?.take() {
                Ok(head) => self.in_hand.extend(head),
                Err(why) => self.lose_ring(&why),
            }
        }
        self.in_hand.front().copied()
    }

    fn begin(&mut self, asks: &Asks<'_>, head: u16) -> Step {
        let ring = self.ring.as_ref().expect("it goes on");
        let device = self.device.as_ref().expect("it comes with the ring");
        let chain = match ring.chain(head) {
            Ok(chain) => chain,
            Err(error) => {
                tracing::debug!(target: "braid_frontend_vhost_user", %error, "a guest's request cannot be followed");
                self.answer(head, None, Status::Failed);
                return Step::Answered;
            }
        };
        let mut told = [0; Request::TELLING_BYTES];
        let told = &mut told[..Request::TELLING_BYTES.min(chain.readable_bytes() as usize)];
        let parsed = match ring.memory().copy_in(chain.readable(0), told) {
            true => Request::parse(told, &chain, device),
            false => Err(ParseError::Short),
        };
        let request = match parsed {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(target: "braid_frontend_vhost_user", %error, "a guest's request makes no sense");
                self.answer(head, Some(&chain), error.status());
                return Step::Answered;
            }
        };
        let bytes = request.payload_bytes() as usize;
        let held_bytes = Payload::capacity_for(bytes);
        let share = DOOR_BYTES_MAX / asks.served.started.load(Ordering::Relaxed).max(1);
        if self.held_bytes > 0 && self.held_bytes + held_bytes > share {
            return Step::Waits;
        }
        let operation = match self.operation(asks.served, &request, &chain) {
            // The request waits, since the next operation that ends gives memory back.
            Err(RequestError::NoMemory) if !self.pending.is_empty() => return Step::Waits,
            operation => operation,
        };
        match operation {
            Ok(Some(operation)) => {
                self.held_bytes += held_bytes;
                let token =
                    self.pending.insert(PendingRequest { head, chain, request, held_bytes }) as u64;
                let completion = Completion::new((asks.receiver)(), token.into());
                asks.served.disk.submit(operation, completion);
                Step::Submitted
            }
            Ok(None) => {
                self.answer(head, Some(&chain), Status::Done);
                Step::Answered
            }
            Err(_) => {
                self.answer(head, Some(&chain), Status::Failed);
                Step::Answered
            }
        }
    }

    /// The array's operation for a request, with a write's payload from the guest. `None` if the
    /// request has been answered already.
    fn operation(
        &self,
        served: &ServedDisk,
        request: &Request,
        chain: &Chain,
    ) -> Result<Option<ClientRequest>, RequestError> {
        let memory = |length: u32| {
            Payload::try_for_overwriting(length as usize).map_err(|_| RequestError::NoMemory)
        };
        let guest = self.ring.as_ref().expect("it goes on").memory();
        Ok(Some(match *request {
            Request::Read { offset, length } => {
                ClientRequest::Read { offset, payload: memory(length)? }
            }
            Request::Write { offset, length, durable } => {
                let mut payload = memory(length)?;
                if !guest.copy_in(chain.readable(HEAD_BYTES), &mut payload) {
                    return Err(RequestError::OutOfRange);
                }
                ClientRequest::Write { offset, payload, durable }
            }
            Request::Flush => ClientRequest::Flush,
            Request::Id => {
                let is_told = guest.copy_out(chain.writable(), &served.id);
                return if is_told { Ok(None) } else { Err(RequestError::OutOfRange) };
            }
            Request::Discard { offset, length, durable } => {
                ClientRequest::Trim { offset, length, durable }
            }
            Request::Zero { offset, length, may_punch, durable } => {
                let fast = false;
                ClientRequest::WriteZeroes { offset, length, may_punch, fast, durable }
            }
        }))
    }

    pub(super) fn finish(&mut self, token: u64, outcome: Outcome) {
        let token = usize::try_from(token).expect("one of our tokens");
        let PendingRequest { head, chain, request, held_bytes } = self.pending.remove(token);
        self.held_bytes -= held_bytes;
        let Some(ring) = self.ring.as_ref() else { return };
        let status = match outcome.result {
            Ok(()) => Status::Done,
            // The request is not answered, and stays in the table for the next server.
            Err(RequestError::Stopping) => return,
            Err(_) => Status::Failed,
        };
        let is_filled = match (&request, &outcome.payload) {
            (Request::Read { .. }, Some(payload)) if status == Status::Done => {
                ring.memory().copy_out(chain.writable(), payload)
            }
            _ => true,
        };
        let status = if is_filled { status } else { Status::Failed };
        self.answer(head, Some(&chain), status);
    }

    fn answer(&mut self, head: u16, chain: Option<&Chain>, status: Status) {
        let Some(ring) = &mut self.ring else { return };
        let mut written = 0;
        if let Some(chain) = chain
            && let Some(address) = chain.status()
        {
            let run = braid_virtio_proto::Run { address, length: 1 };
            // If the address of the status is not in the guest's memory, the guest gets no status.
            if ring.memory().copy_out(std::iter::once(run), &[status as u8]) {
                written = chain.writable_bytes();
            }
        }
        self.is_to_be_called = true;
        if let Err(why) = ring.answer(head, written) {
            self.lose_ring(&why);
        }
    }
}

fn say_broken(why: &Broken) {
    tracing::warn!(target: "braid_frontend_vhost_user", error = %why, "a guest's ring is invalid, \
                                                                       and is no longer served");
}
