//! The sending half of a connection: requests in flight, and the replies that wait for the socket.
//!
//! Where it stands: a request begins in the outbox when there is room for it, and ends with its
//! outcome. The request counts as in flight until its reply has been sent, so the server stops
//! reading from a client that does not read its replies. No I/O: the transport sends replies as a
//! [`Batch`].
//!
//! ```text
//!   begin ──► slot ── finish ──► reply ── batch ──► sent: room for another
//!              └ abandon (its client left in the middle of it)
//!   close: replies are dropped; what is still with the export is counted until it comes back
//! ```
//!
//! The outbox asks the [`Budget`] before it allocates memory. A long WRITE gets little memory at
//! first, and more as its bytes arrive ([`Outbox::grow`]). A client that has sent as long a WRITE
//! before gets all the memory at once.
//!
//! Invariants
//! - Each request is answered once: `finish` asserts that the slot is in use.
//! - No more requests are in flight than the limits allow:
//!   `tests::room_is_by_number_by_bytes_and_by_the_common_budget`.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_nbd_proto::{Command, Echo, ErrorCode, Extent, ReplyCodec, Style, sound_extents};
use braid_ring::client::{Outcome, RequestError};
use braid_ring::{Memory, PAYLOAD_ALIGNMENT_BYTES, Payload, Segment, Segments};

use crate::budget::{Bell, Budget, Grant, Need, Purse, request_bytes_max};
use crate::counters::Counters;
use crate::export::error_code;
use crate::limits::{
    DESCRIPTORS_BYTES, FIRST_GRANT_BYTES, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_REQUESTS_MAX,
    REPLIES_PER_SEND, STRIDE_BYTES,
};

/// Reply headers in buffers of at most this capacity are kept for reuse. The capacity is larger
/// than any header, and smaller than most error texts.
const SPARE_HEAD_BYTES: usize = 64;

/// The facts about a request that its reply needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read { length: u32 },
    Write { length: u32 },
    Describe,
    Other,
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Self::Read { length } | Self::Write { length } => {
                Payload::capacity_for(length as usize)
            }
            Self::Describe => DESCRIPTORS_BYTES,
            Self::Other => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BeginResult {
    /// The request began in this slot, with this much memory in bytes.
    Slot(u32, usize),
    Wait,
    TooLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrowthResult {
    To(usize),
    Wait,
    /// The limit was lowered after the request began; the request will never get enough memory.
    Never,
}

#[derive(Debug)]
struct Reply {
    head: Vec<u8>,
    payload: Option<Payload>,
    /// Bytes of memory of the request that this reply answers; `None` in negotiation.
    cost_bytes: Option<usize>,
}

impl Reply {
    fn parts(&self) -> [&[u8]; 2] {
        [&self.head, self.payload.as_deref().unwrap_or_default()]
    }
}

/// Replies that are being sent, and how many of their bytes have been sent.
#[derive(Debug)]
pub(crate) struct Batch {
    replies: Vec<Reply>,
    bytes: usize,
    sent_bytes: usize,
    /// The index of the first reply whose memory is lent.
    lent_from: usize,
}

impl Batch {
    /// The parts of replies to send next, in order: at most [`STRIDE_BYTES`], no part empty.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (mut skip, mut left) = (self.sent_bytes, STRIDE_BYTES);
        self.replies
            .iter()
            .flat_map(Reply::parts)
            .map_while(move |part| {
                let skipped = skip.min(part.len());
                skip -= skipped;
                let taken = left.min(part.len() - skipped);
                left -= taken;
                (left > 0 || taken > 0).then(|| &part[skipped..skipped + taken])
            })
            .filter(|part| !part.is_empty())
    }

    /// Moves the memory of the parts to send next to an empty list, in sending order.
    pub(crate) fn lend(&mut self, segments: &mut Segments) {
        assert!(segments.is_empty(), "a batch is lent once at a time");
        let (mut skip, mut left) = (self.sent_bytes, STRIDE_BYTES);
        let mut next = |length: usize| {
            let skipped = skip.min(length);
            skip -= skipped;
            let taken = left.min(length - skipped);
            left -= taken;
            (taken > 0).then_some(skipped..skipped + taken)
        };
        for (index, reply) in self.replies.iter_mut().enumerate() {
            let head = next(reply.head.len());
            let payload = next(reply.payload.as_ref().map_or(0, |payload| payload.len()));
            if segments.is_empty() {
                self.lent_from = index;
            }
            if let Some(range) = head {
                let head = Memory::Bytes(std::mem::take(&mut reply.head));
                segments.push(Segment::part(head, range));
            }
            if let Some(range) = payload {
                let payload = reply.payload.take().expect("it has bytes");
                segments.push(Segment::part(Memory::Payload(payload), range));
            }
        }
    }

    pub(crate) fn take_back(&mut self, segments: &mut Segments) {
        let mut at = self.lent_from;
        for (index, segment) in segments.drain(..).enumerate() {
            match segment.into_memory() {
                Memory::Bytes(head) => {
                    // Every reply begins with a header.
                    at += usize::from(index > 0);
                    self.replies[at].head = head;
                }
                Memory::Payload(payload) => self.replies[at].payload = Some(payload),
                other => unreachable!("{other:?} was never lent"),
            }
        }
    }

    /// Notes `bytes` as sent; returns whether the whole batch has been sent.
    pub(crate) fn advance(&mut self, bytes: usize) -> bool {
        self.sent_bytes += bytes;
        assert!(self.sent_bytes <= self.bytes, "no more is sent than there was");
        self.sent_bytes == self.bytes
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    echo: Echo,
    kind: Kind,
    /// The part of a long request that has not been passed to the export yet.
    rest: Option<Command>,
    cost_bytes: usize,
}

pub(super) struct Outbox {
    codec: ReplyCodec,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    replies: VecDeque<Reply>,
    /// The list for the next batch; `None` while a batch has it.
    spare: Option<Vec<Reply>>,
    spare_heads: Vec<Vec<u8>>,
    in_flight: usize,
    purse: Purse,
    bell: Arc<dyn Bell>,
    /// Bytes of memory that the client's longest payload so far had.
    proven_bytes: usize,
    is_growing: bool,
    closed: bool,
}

impl Outbox {
    pub(super) fn new(purse: Purse, bell: Arc<dyn Bell>) -> Self {
        Self {
            codec: ReplyCodec::new(Style::Simple),
            slots: Vec::new(),
            free: Vec::new(),
            replies: VecDeque::new(),
            spare: Some(Vec::new()),
            spare_heads: Vec::new(),
            in_flight: 0,
            purse,
            bell,
            proven_bytes: 0,
            is_growing: false,
            closed: false,
        }
    }

    pub(super) fn set_codec(&mut self, codec: ReplyCodec) {
        self.codec = codec;
    }

    pub(super) fn begin(&mut self, echo: Echo, kind: Kind, budget: &Budget) -> BeginResult {
        let bytes = kind.bytes();
        if bytes > request_bytes_max(budget.limit_bytes()) {
            return BeginResult::TooLarge;
        }
        let held = self.purse.held_bytes();
        let is_full = self.in_flight >= IN_FLIGHT_REQUESTS_MAX
            || (held > 0 && held.saturating_add(bytes) > IN_FLIGHT_BYTES_MAX);
        if is_full {
            return BeginResult::Wait;
        }
        let granted = match kind {
            _ if bytes == 0 => Some(0),
            Kind::Write { .. } => self.begin_write(bytes, budget),
            _ => self.take(bytes, Need::Whole, budget).then_some(bytes),
        };
        let Some(granted) = granted else { return BeginResult::Wait };
        self.in_flight += 1;
        let slot = Some(Slot { echo, kind, rest: None, cost_bytes: granted });
        if let Some(free) = self.free.pop() {
            self.slots[free as usize] = slot;
            return BeginResult::Slot(free, granted);
        }
        self.slots.push(slot);
        let number = u32::try_from(self.slots.len() - 1).expect("requests in flight are few");
        BeginResult::Slot(number, granted)
    }

    fn take(&mut self, bytes: usize, need: Need, budget: &Budget) -> bool {
        budget.take(&mut self.purse, bytes, need, &self.bell) == Grant::Taken
    }

    /// Takes memory for a WRITE before its payload arrives. If the WRITE is short, or its client
    /// has sent as much before, takes all its memory, provided that this is free at once. Else
    /// takes the connection's own share, so that the announcement of a long write alone takes no
    /// common memory.
    fn begin_write(&mut self, bytes: usize, budget: &Budget) -> Option<usize> {
        let is_likely = bytes <= FIRST_GRANT_BYTES.max(self.proven_bytes);
        if !self.purse.is_waiting() && is_likely && self.take(bytes, Need::Now, budget) {
            return Some(bytes);
        }
        let own = budget.own_left(&mut self.purse).min(FIRST_GRANT_BYTES).min(bytes);
        let first = Payload::capacity_before(own);
        if first > 0 {
            return self.take(first, Need::Now, budget).then_some(first);
        }
        // The connection has no own share, or requests that end without more memory hold the share.
        if self.purse.held_bytes() > 0 {
            return None;
        }
        let first = bytes.min(PAYLOAD_ALIGNMENT_BYTES);
        self.is_growing = true;
        self.take(first, Need::Growth, budget).then_some(first)
    }

    pub(super) fn grow(&mut self, number: u32, budget: &Budget) -> GrowthResult {
        let slot = self.slots[number as usize].expect("a request that is under way");
        // The memory limit may have been lowered since the request began.
        if slot.kind.bytes() > request_bytes_max(budget.limit_bytes()) {
            return GrowthResult::Never;
        }
        let bytes = Payload::capacity_for(slot.cost_bytes * 2).min(slot.kind.bytes());
        self.is_growing = true;
        match budget.take(&mut self.purse, bytes - slot.cost_bytes, Need::Growth, &self.bell) {
            Grant::Taken => {}
            Grant::Wait => return GrowthResult::Wait,
            Grant::Never => return GrowthResult::Never,
        }
        self.slots[number as usize] = Some(Slot { cost_bytes: bytes, ..slot });
        GrowthResult::To(bytes)
    }

    /// Notes that the payload of the incoming WRITE has arrived, or will never arrive.
    pub(super) fn has_come(&mut self, number: u32, is_whole: bool, budget: &Budget) {
        let slot = self.slots[number as usize].as_mut().expect("a request that is under way");
        if std::mem::take(&mut self.is_growing) {
            budget.leave(&mut self.purse);
            budget.end_growth(&mut self.purse);
        }
        if is_whole {
            self.proven_bytes = self.proven_bytes.max(slot.cost_bytes);
        } else {
            let bytes = std::mem::take(&mut slot.cost_bytes);
            budget.give(&mut self.purse, bytes);
        }
    }

    pub(super) fn is_in_the_way(&self, budget: &Budget) -> bool {
        let me = usize::from(self.purse.is_waiting());
        self.purse.has_common() && budget.waiting() > me
    }

    pub(super) fn waits_for_memory(&self) -> bool {
        self.purse.is_waiting()
    }

    pub(super) fn stop_waiting(&mut self, budget: &Budget) {
        budget.leave(&mut self.purse);
    }

    /// Stores the rest of a request while the export works on one stretch of the request.
    pub(super) fn set_rest(&mut self, number: u32, rest: Option<Command>) {
        self.slots[number as usize].as_mut().expect("a request that is under way").rest = rest;
    }

    /// Takes the stored rest of a request after the export has finished a stretch.
    pub(super) fn take_rest(&mut self, number: u32) -> Option<Command> {
        self.slots[number as usize].as_mut().expect("a request that is under way").rest.take()
    }

    pub(super) fn finish(&mut self, number: u32, outcome: Outcome, at: &Ledger<'_>) {
        let slot = self.take_slot(number);
        if self.closed {
            return self.end(1, slot.cost_bytes, at.budget);
        }
        let Outcome { result, payload } = outcome;
        match (result, slot.kind) {
            (Err(RequestError::Dropped), _) => self.breach(slot, "the request was dropped", at),
            // The export has become smaller since the client connected.
            (Err(error @ RequestError::OutOfRange), Kind::Write { .. }) => {
                self.fail(slot, ErrorCode::NoSpace, &error.to_string(), at);
            }
            (Err(error), _) => self.fail(slot, error_code(error), &error.to_string(), at),
            (Ok(()), Kind::Read { length }) => match payload {
                Some(payload) if payload.len() == length as usize => {
                    at.counters.bytes_read.add(u64::from(length));
                    let header = self.codec.data(slot.echo, length);
                    self.answer(slot, header.as_ref(), Some(payload));
                }
                _ => self.breach(slot, "the data of a read did not come back", at),
            },
            (Ok(()), _) => self.answer(slot, self.codec.success(slot.echo).as_ref(), None),
        }
    }

    pub(super) fn describe(
        &mut self,
        number: u32,
        extents: &[Extent],
        (length, extents_max): (u64, usize),
        at: &Ledger<'_>,
    ) {
        let slot = self.take_slot(number);
        if self.closed {
            return self.end(1, slot.cost_bytes, at.budget);
        }
        let sound = sound_extents(extents, length, extents_max);
        let bytes = self.codec.block_status(slot.echo, &sound);
        self.answer(slot, &bytes, None);
    }

    pub(super) fn refuse(&mut self, number: u32, error: ErrorCode, reason: &str, at: &Ledger<'_>) {
        let slot = self.take_slot(number);
        self.fail(slot, error, reason, at);
    }

    /// Gives up a request whose client disconnected before the request was complete.
    pub(super) fn abandon(&mut self, number: u32, budget: &Budget) {
        let slot = self.take_slot(number);
        self.end(1, slot.cost_bytes, budget);
    }

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
        let bytes = self.codec.failure(slot.echo, error, reason);
        self.answer(slot, &bytes, None);
    }

    fn answer(&mut self, slot: Slot, message: &[u8], payload: Option<Payload>) {
        let mut head = self.spare_heads.pop().unwrap_or_default();
        head.extend_from_slice(message);
        let cost_bytes = Some(slot.cost_bytes);
        self.replies.push_back(Reply { head, payload, cost_bytes });
    }

    fn end(&mut self, requests: usize, cost_bytes: usize, budget: &Budget) {
        self.in_flight -= requests;
        budget.give(&mut self.purse, cost_bytes);
    }

    pub(super) fn has_batch(&self) -> bool {
        self.spare.is_some() && !self.replies.is_empty()
    }

    /// Lends the waiting replies; `None` if no reply waits, or some are lent already.
    pub(super) fn batch(&mut self) -> Option<Batch> {
        if self.replies.is_empty() {
            return None;
        }
        let mut replies = self.spare.take()?;
        let mut bytes = 0;
        while let Some(next) = self.replies.pop_front() {
            bytes += next.parts().iter().map(|part| part.len()).sum::<usize>();
            replies.push(next);
            if replies.len() == REPLIES_PER_SEND || bytes >= STRIDE_BYTES {
                break;
            }
        }
        Some(Batch { replies, bytes, sent_bytes: 0, lent_from: 0 })
    }

    /// Takes a batch back, sent or not: the requests that it answers are over.
    pub(super) fn sent(&mut self, batch: Batch, is_sent: bool, budget: &Budget) {
        let mut replies = batch.replies;
        let costs = || replies.iter().filter_map(|reply| reply.cost_bytes);
        let (requests, cost_bytes) = (costs().count(), costs().sum());
        if is_sent {
            Budget::note_moved(&mut self.purse, cost_bytes);
        }
        self.end(requests, cost_bytes, budget);
        for mut reply in replies.drain(..).filter(|reply| reply.head.capacity() <= SPARE_HEAD_BYTES)
        {
            reply.head.clear();
            self.spare_heads.push(reply.head);
        }
        self.spare_heads.truncate(IN_FLIGHT_REQUESTS_MAX);
        self.spare = Some(replies);
    }

    pub(super) fn close(&mut self, budget: &Budget) {
        self.closed = true;
        let dropped = std::mem::take(&mut self.replies);
        let costs = || dropped.iter().filter_map(|reply| reply.cost_bytes);
        self.end(costs().count(), costs().sum(), budget);
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.replies.is_empty() && self.spare.is_some()
    }

    /// Requests whose reply has not been sent.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

pub(super) struct Ledger<'a> {
    pub(super) counters: &'a Counters,
    pub(super) budget: &'a Budget,
}

#[cfg(test)]
#[cfg(not(shuttle))]
#[path = "outbox_tests.rs"]
mod tests;
