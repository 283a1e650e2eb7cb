//! The sending half of a connection: requests in flight, and the replies that wait for the socket.
//!
//! Where it stands: a request begins here when there is room for it, is ended by its outcome, and counts as in flight
//! until its reply has been sent, so that a client that does not read its replies stops being read from. It does no
//! I/O: replies go out as a [`Batch`] that somebody sends.
//!
//! ```text
//!   begin ──► slot ── finish ──► reply ── batch ──► sent: room for another
//!              └ abandon (its client left in the middle of it)
//!   close: replies are dropped; what is still with the export is counted until it comes back
//! ```
//!
//! Invariants
//! - Each request is answered once: `finish` of a slot that is free is an assertion.
//! - No more is in flight than the limits allow: `tests::room_is_by_number_by_bytes_and_by_the_common_budget`.

use std::collections::VecDeque;

use braid_nbd_proto::{ErrorCode, Extent, ReplyCodec, sound_extents};
use braid_ring::{Memory, Payload, Segment, Segments};

use crate::budget::Budget;
use crate::counters::Counters;
use crate::export::Outcome;
use crate::limits::{IN_FLIGHT_BYTES_MAX, IN_FLIGHT_REQUESTS_MAX, REPLIES_PER_SEND};

/// Memory of a reply's first part that is kept for another: more than any header, less than most error texts.
const SPARE_HEAD_BYTES: usize = 64;

/// What is to be known of a request until it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read { offset: u64, length: u32 },
    Write { length: u32 },
    Other,
}

impl Kind {
    /// Payload bytes the request holds while it is in flight.
    pub(super) const fn cost_bytes(self) -> usize {
        match self {
            Self::Read { length, .. } | Self::Write { length } => length as usize,
            Self::Other => 0,
        }
    }
}

/// One message, ready to send.
#[derive(Debug)]
struct Reply {
    head: Vec<u8>,
    payload: Option<Payload>,
    /// Of the request that this answers; `None` in negotiation.
    cost_bytes: Option<usize>,
}

impl Reply {
    fn parts(&self) -> [&[u8]; 2] {
        [&self.head, self.payload.as_deref().unwrap_or_default()]
    }
}

/// Replies on their way through the socket, and how far they have got.
#[derive(Debug)]
pub(crate) struct Batch {
    replies: Vec<Reply>,
    bytes: usize,
    sent_bytes: usize,
}

impl Batch {
    /// What is still to be sent, in order; none is empty.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.sent_bytes;
        self.replies.iter().flat_map(Reply::parts).filter_map(move |part| {
            let skipped = skip.min(part.len());
            skip -= skipped;
            Some(&part[skipped..]).filter(|rest| !rest.is_empty())
        })
    }

    /// Gives the memory away, to an empty list, in the order in which it is to be sent.
    pub(crate) fn lend(&mut self, segments: &mut Segments) {
        assert!(segments.is_empty() && self.sent_bytes == 0, "a batch is lent once");
        for reply in &mut self.replies {
            segments.push(Segment::from(std::mem::take(&mut reply.head)));
            segments.extend(reply.payload.take().map(Segment::from));
        }
    }

    /// Takes back what was given away, all of it sent or none to be sent any more.
    pub(crate) fn take_back(&mut self, segments: &mut Segments) {
        let mut replies = self.replies.iter_mut();
        for segment in segments.drain(..) {
            // Payloads go where payloads come from; only the first parts are wanted again.
            if let Memory::Bytes(head) = segment.into_memory() {
                replies.next().expect("one first part for each reply").head = head;
            }
        }
    }

    /// Notes what was sent; whether that was all of it.
    pub(crate) fn advance(&mut self, bytes: usize) -> bool {
        self.sent_bytes += bytes;
        assert!(self.sent_bytes <= self.bytes, "no more is sent than there was");
        self.sent_bytes == self.bytes
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    cookie: u64,
    kind: Kind,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Outbox {
    codec: ReplyCodec,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    replies: VecDeque<Reply>,
    /// A batch's memory, while none is out.
    spare: Option<Vec<Reply>>,
    /// Memory for the first parts of replies, for when they come again.
    spare_heads: Vec<Vec<u8>>,
    in_flight: usize,
    in_flight_bytes: usize,
    closed: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            codec: ReplyCodec::new(false),
            slots: Vec::new(),
            free: Vec::new(),
            replies: VecDeque::new(),
            spare: Some(Vec::new()),
            spare_heads: Vec::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            closed: false,
        }
    }

    /// Says how replies are written from now on.
    pub(super) fn set_codec(&mut self, codec: ReplyCodec) {
        self.codec = codec;
    }

    /// Begins a request if there is room: a number for it.
    pub(super) fn begin(&mut self, cookie: u64, kind: Kind, budget: &Budget) -> Option<u32> {
        let cost_bytes = kind.cost_bytes();
        if self.in_flight >= IN_FLIGHT_REQUESTS_MAX {
            return None;
        }
        if self.in_flight_bytes == 0 || cost_bytes == 0 {
            // One at a time goes on whatever others hold: nobody waits for somebody else's client.
            budget.take_anyway(cost_bytes);
        } else if self.in_flight_bytes.saturating_add(cost_bytes) > IN_FLIGHT_BYTES_MAX
            || !budget.take(cost_bytes)
        {
            return None;
        }
        self.in_flight += 1;
        self.in_flight_bytes += cost_bytes;
        let slot = Some(Slot { cookie, kind });
        if let Some(free) = self.free.pop() {
            self.slots[free as usize] = slot;
            return Some(free);
        }
        self.slots.push(slot);
        Some(u32::try_from(self.slots.len() - 1).expect("requests in flight are few"))
    }

    /// Answers a request with what the export said, or with an error if it dropped it.
    pub(super) fn finish(&mut self, number: u32, outcome: Option<Outcome>, at: &Ledger<'_>) {
        let slot = self.take_slot(number);
        if self.closed {
            return self.end(1, slot.kind.cost_bytes(), at.budget);
        }
        let Some(Outcome { status, payload }) = outcome else {
            return self.breach(slot, "the request was dropped", at);
        };
        match (status, slot.kind) {
            (Err(error), _) => self.fail(slot, error.into(), &error.to_string(), at),
            (Ok(()), Kind::Read { offset, length }) => match payload {
                Some(payload) if payload.len() == length as usize => {
                    at.counters.bytes_read.add(u64::from(length));
                    let header = self.codec.data(slot.cookie, offset, length);
                    self.answer(slot, header.as_ref(), Some(payload));
                }
                _ => self.breach(slot, "the data of a read did not come back", at),
            },
            (Ok(()), _) => self.answer(slot, self.codec.success(slot.cookie).as_ref(), None),
        }
    }

    /// Answers BLOCK_STATUS.
    pub(super) fn describe(
        &mut self,
        number: u32,
        extents: &[Extent],
        (length, extents_max): (u32, usize),
        at: &Ledger<'_>,
    ) {
        let slot = self.take_slot(number);
        if self.closed {
            return self.end(1, slot.kind.cost_bytes(), at.budget);
        }
        let sound = sound_extents(extents, length, extents_max);
        let bytes = self.codec.block_status(slot.cookie, &sound);
        self.answer(slot, &bytes, None);
    }

    /// Answers a request that was never started.
    pub(super) fn refuse(&mut self, number: u32, error: ErrorCode, reason: &str, at: &Ledger<'_>) {
        let slot = self.take_slot(number);
        self.fail(slot, error, reason, at);
    }

    /// Gives up a request whose client left in the middle of it.
    pub(super) fn abandon(&mut self, number: u32, budget: &Budget) {
        let slot = self.take_slot(number);
        self.end(1, slot.kind.cost_bytes(), budget);
    }

    /// Queues a message of the negotiation.
    pub(super) fn transmit(&mut self, bytes: Vec<u8>) {
        self.replies.push_back(Reply { head: bytes, payload: None, cost_bytes: None });
    }

    fn take_slot(&mut self, number: u32) -> Slot {
        let slot = self.slots[number as usize].take().expect("a request is answered once");
        self.free.push(number);
        slot
    }

    fn breach(&mut self, slot: Slot, reason: &str, at: &Ledger<'_>) {
        at.counters.contract_breaches.add(1);
        self.fail(slot, ErrorCode::Io, reason, at);
    }

    fn fail(&mut self, slot: Slot, error: ErrorCode, reason: &str, at: &Ledger<'_>) {
        at.counters.error(error);
        let bytes = self.codec.failure(slot.cookie, error, reason);
        self.answer(slot, &bytes, None);
    }

    fn answer(&mut self, slot: Slot, message: &[u8], payload: Option<Payload>) {
        let mut head = self.spare_heads.pop().unwrap_or_default();
        head.extend_from_slice(message);
        let cost_bytes = Some(slot.kind.cost_bytes());
        self.replies.push_back(Reply { head, payload, cost_bytes });
    }

    fn end(&mut self, requests: usize, cost_bytes: usize, budget: &Budget) {
        self.in_flight -= requests;
        self.in_flight_bytes -= cost_bytes;
        budget.give(cost_bytes);
    }

    /// Whether there is something to send and nothing is being sent.
    pub(super) fn has_batch(&self) -> bool {
        self.spare.is_some() && !self.replies.is_empty()
    }

    /// Lends out the replies that wait; `None` if there are none, or some are out already.
    pub(super) fn batch(&mut self) -> Option<Batch> {
        if self.replies.is_empty() {
            return None;
        }
        let mut replies = self.spare.take()?;
        let count = self.replies.len().min(REPLIES_PER_SEND);
        replies.extend(self.replies.drain(..count));
        let bytes = replies.iter().flat_map(Reply::parts).map(<[u8]>::len).sum();
        Some(Batch { replies, bytes, sent_bytes: 0 })
    }

    /// Takes a batch back, sent or not: its requests are over.
    pub(super) fn sent(&mut self, batch: Batch, budget: &Budget) {
        let mut replies = batch.replies;
        let costs = || replies.iter().filter_map(|reply| reply.cost_bytes);
        let (requests, cost_bytes) = (costs().count(), costs().sum());
        self.end(requests, cost_bytes, budget);
        for mut reply in replies.drain(..).filter(|reply| reply.head.capacity() <= SPARE_HEAD_BYTES)
        {
            reply.head.clear();
            self.spare_heads.push(reply.head);
        }
        self.spare_heads.truncate(IN_FLIGHT_REQUESTS_MAX);
        self.spare = Some(replies);
    }

    /// Drops the replies that wait, and those to come.
    pub(super) fn close(&mut self, budget: &Budget) {
        self.closed = true;
        let dropped = std::mem::take(&mut self.replies);
        let costs = || dropped.iter().filter_map(|reply| reply.cost_bytes);
        self.end(costs().count(), costs().sum(), budget);
    }

    /// Whether nothing waits and nothing is being sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.replies.is_empty() && self.spare.is_some()
    }

    /// Requests that have begun and whose replies are not out.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// Where ends of requests are written down.
pub(super) struct Ledger<'a> {
    pub(super) counters: &'a Counters,
    pub(super) budget: &'a Budget,
}

#[cfg(test)]
#[cfg(not(shuttle))]
#[path = "outbox_tests.rs"]
mod tests;
