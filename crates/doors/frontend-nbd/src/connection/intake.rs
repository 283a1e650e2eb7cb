//! The receiving half of a connection: it lends memory to the socket, and turns received bytes into
//! events.
//!
//! Where it stands: between the transport, which fills a [`ReceiveBuffers`], and the session of
//! `braid-nbd-proto`. The intake does no I/O, and has no limit but its own buffer's size.
//!
//! A WRITE's payload is received into its final memory. The difficulty is the stream: a receive for
//! the next header may also bring the payload after the header, which must then be copied. So a
//! receive asks for few bytes beyond a payload, the *window*:
//!
//! ```text
//!   window 1 header ── a full receive, all of the last window were READs ──► 2, 4, .. 128 headers
//!        ▲  └─ after a WRITE: [ rest of its payload │ next header ] in one receive │
//!        └───────────────────────────────── a WRITE ◄─────────────────────────────┘
//! ```
//!
//! The rest of a long payload is received alone, a stride at a time: it arrives in several parts
//! anyway. A payload may have less memory than its length. When that memory is full, the intake
//! receives nothing until the payload has more memory ([`Intake::wants_memory`]). A payload that
//! gets no memory is received and discarded ([`Intake::give_up_memory`]), since the next request
//! follows the payload.
//!
//! READs have no payload, so a reading client's requests are all received at once. For a writing
//! client no byte is copied, with one receive per request, or fewer if its writes are guessed
//! ([`write_guesses`]). When a client changes from reading to writing, less than a window is
//! copied.
//!
//! Invariants
//! - Any split of the stream gives the same requests: `tests::any_split_gives_the_same_requests`.
//! - For a client that only writes, no byte of payload is copied:
//!   `tests::writes_in_a_row_are_not_copied`.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_nbd_proto::{
    Command, Echo, ExportDescription, NegotiationResult, Refusal, Request, ServerEvent,
    ServerSession,
};

use braid_ring::{Memory, NoMemory, Payload, Segment, Segments};

use super::write_guesses::{self, Guess, Piece, WriteGuesses};
use crate::limits::{AHEAD_HEADERS_MAX, INPUT_BYTES, STRIDE_BYTES, WHOLE_BYTES_MIN};

#[derive(Debug)]
pub(super) enum Event {
    /// Send these bytes to the client; negotiation continues or is over.
    Transmit(Vec<u8>),
    /// Negotiation is over.
    Negotiated(NegotiationResult),
    /// A client claims an export; call [`Intake::answer_claim`] before taking the next event.
    Claim { export_index: usize, words: String },
    /// A request; if it is a WRITE, call [`Intake::open`] before taking the next event.
    Request(Request),
    /// A request that the session refuses.
    Refused { echo: Echo, refusal: Refusal },
    /// The payload of the open WRITE has arrived.
    Written(Write),
    /// The open WRITE's payload was discarded, for lack of memory.
    Skipped { slot: u32 },
    /// The server reads nothing more.
    Close,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) slot: u32,
    pub(super) offset: u64,
    pub(super) fua: bool,
    pub(super) payload: Payload,
    length: usize,
    filled_bytes: usize,
    /// Bytes of the payload that passed through the input buffer.
    pub(super) copied_bytes: usize,
    /// The payload has no memory, so its bytes are discarded.
    is_skipped: bool,
}

impl Write {
    fn missing_bytes(&self) -> usize {
        self.length - self.filled_bytes
    }

    /// Payload bytes with memory that have not arrived yet.
    fn open_bytes(&self) -> usize {
        self.payload.len().saturating_sub(self.filled_bytes)
    }

    /// The range of the payload that the next receive fills, if it receives only payload.
    fn stride(&self) -> std::ops::Range<usize> {
        let start = self.filled_bytes.min(self.payload.len());
        start..start + self.open_bytes().min(STRIDE_BYTES)
    }
}

/// Memory to receive into, which the intake lends to the socket.
#[derive(Debug)]
pub(crate) struct ReceiveBuffers {
    write: Option<Write>,
    input: Vec<u8>,
    input_bytes: usize,
    guesses: Vec<Guess>,
}

impl ReceiveBuffers {
    /// Whether only payload is expected, so that an earlier wake-up is pointless.
    pub(crate) fn is_whole(&self) -> bool {
        self.input_bytes == 0
    }

    pub(crate) fn is_in_payload(&self) -> bool {
        self.write.is_some()
    }

    /// Whether the payload's memory would still have an unfilled part after `bytes` more.
    pub(crate) fn is_short_of(&self, bytes: usize) -> bool {
        self.write.as_ref().is_some_and(|write| bytes < write.stride().len().max(1))
    }

    /// The memory for the next receive, in filling order; the first part may be empty.
    pub(crate) fn parts(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let rest: &mut [u8] = match &mut self.write {
            Some(write) => {
                let stride = write.stride();
                &mut write.payload[stride]
            }
            None => &mut [],
        };
        let guesses = self.guesses.iter_mut();
        let guesses = guesses.flat_map(|guess| [&mut guess.payload[..], &mut guess.header[..]]);
        [rest, &mut self.input[..self.input_bytes]].into_iter().chain(guesses)
    }

    /// Moves the memory for the next receive to an empty list, in the order in which it is filled.
    pub(crate) fn lend(&mut self, segments: &mut Segments) {
        assert!(segments.is_empty(), "a receive is lent once");
        if let Some(write) = &mut self.write {
            let stride = write.stride();
            let payload = Memory::Payload(std::mem::take(&mut write.payload));
            segments.push(Segment::part(payload, stride));
        }
        let input = Memory::Bytes(std::mem::take(&mut self.input));
        segments.push(Segment::part(input, 0..self.input_bytes));
        for guess in &mut self.guesses {
            segments.push(Segment::from(std::mem::take(&mut guess.payload)));
            segments.push(Segment::from(std::mem::take(&mut guess.header)));
        }
    }

    pub(crate) fn take_back(&mut self, segments: &mut Segments) {
        let write = self.write.iter_mut().map(|write| MemorySlot::Payload(&mut write.payload));
        let input = std::iter::once(MemorySlot::Bytes(&mut self.input));
        let guesses = self.guesses.iter_mut().flat_map(|Guess { payload, header }| {
            [MemorySlot::Payload(payload), MemorySlot::Bytes(header)]
        });
        let slots = write.chain(input).chain(guesses);
        for (segment, slot) in segments.drain(..).zip(slots) {
            match (segment.into_memory(), slot) {
                (Memory::Payload(memory), MemorySlot::Payload(slot)) => *slot = memory,
                (Memory::Bytes(memory), MemorySlot::Bytes(slot)) => *slot = memory,
                other => unreachable!("{other:?} was never lent"),
            }
        }
    }
}

#[derive(Debug)]
enum MemorySlot<'a> {
    Payload(&'a mut Payload),
    Bytes(&'a mut Vec<u8>),
}

pub(super) struct Intake {
    session: ServerSession,
    /// The input buffer; `None` while a receive has it.
    input: Option<Vec<u8>>,
    start: usize,
    end: usize,
    pieces: VecDeque<Piece>,
    guesses: WriteGuesses,
    window_headers: usize,
    reads_in_a_row: usize,
    /// The WRITE whose payload is arriving; `None` while a receive has it.
    write: Option<Write>,
    /// The last request was a WRITE, and [`Intake::open`] has not been called yet.
    awaits_open: bool,
}

impl Intake {
    /// Makes an intake. With a `refusal`, the session answers every option with that text.
    pub(super) fn new(
        catalog: Arc<[ExportDescription]>,
        refusal: Option<String>,
        takes_claims: bool,
    ) -> Self {
        let mut session = ServerSession::new(catalog);
        if takes_claims {
            session.take_claims();
        }
        if let Some(reason) = refusal {
            session.turn_away(reason);
        }
        let guesses = WriteGuesses::new(session.request_bytes());
        Self {
            session,
            input: Some(vec![0; INPUT_BYTES]),
            start: 0,
            end: 0,
            pieces: VecDeque::new(),
            guesses,
            window_headers: 1,
            reads_in_a_row: 0,
            write: None,
            awaits_open: false,
        }
    }

    pub(super) fn answer_claim(&mut self, answer: Result<ExportDescription, String>) {
        self.session.answer_claim(answer);
    }

    pub(super) fn is_negotiated(&self) -> bool {
        self.session.is_negotiated()
    }

    /// The first contiguous run of received bytes that are not used yet.
    fn filled(&self) -> &[u8] {
        match (&self.input, self.pieces.front()) {
            (Some(input), _) if self.start < self.end => &input[self.start..self.end],
            (_, Some(piece)) => piece.bytes(),
            _ => &[],
        }
    }

    /// Drops `bytes` from the front of the received bytes.
    fn consume(&mut self, bytes: usize) {
        if self.start < self.end {
            self.start += bytes;
            assert!(self.start <= self.end, "only received bytes can be used");
        } else if let Some(piece) = self.pieces.front_mut() {
            piece.start += bytes;
            assert!(piece.start <= piece.end, "only received bytes can be used");
            if piece.start == piece.end {
                let memory = self.pieces.pop_front().expect("it was looked at").memory;
                self.guesses.keep(memory);
            }
        }
    }

    pub(super) fn poll(&mut self) -> Option<Event> {
        assert!(!self.awaits_open, "a write is opened before anything else is asked for");
        self.input.as_ref()?;
        loop {
            if let Some(event) = self.session.poll_event() {
                return Some(self.translate(event));
            }
            if self.write.is_some() {
                return self.fill();
            }
            let filled = match &self.input {
                Some(input) if self.start < self.end => &input[self.start..self.end],
                _ => self.pieces.front().map_or(&[][..], Piece::bytes),
            };
            if filled.is_empty() {
                return None;
            }
            let taken = self.session.handle_bytes(filled);
            if taken == 0 {
                return None; // a claim waits for its answer
            }
            self.consume(taken);
        }
    }

    /// Moves received bytes to the WRITE's payload; returns the event when the payload is complete.
    fn fill(&mut self) -> Option<Event> {
        let mut write = self.write.take()?;
        while write.missing_bytes() > 0 {
            let filled = self.filled();
            let room = if write.is_skipped { write.missing_bytes() } else { write.open_bytes() };
            let moved = filled.len().min(room);
            if moved == 0 {
                self.write = Some(write);
                return None;
            }
            if !write.is_skipped {
                let place = &mut write.payload[write.filled_bytes..][..moved];
                place.copy_from_slice(&filled[..moved]);
                write.copied_bytes += moved;
            }
            write.filled_bytes += moved;
            self.consume(moved);
            self.session.payload_consumed(as_u32(moved));
        }
        if write.is_skipped {
            return Some(Event::Skipped { slot: write.slot });
        }
        Some(Event::Written(write))
    }

    /// The slot of the WRITE whose payload has filled its memory and needs more.
    pub(super) fn wants_memory(&self) -> Option<u32> {
        let write = self.write.as_ref()?;
        let is_full = write.missing_bytes() > 0 && write.open_bytes() == 0 && !write.is_skipped;
        is_full.then_some(write.slot)
    }

    /// Extends the payload's memory to `capacity_bytes`.
    pub(super) fn grow(&mut self, capacity_bytes: usize) -> Result<(), NoMemory> {
        let write = self.write.as_mut().expect("one that wants memory");
        write.payload.try_grow(capacity_bytes.min(write.length), write.filled_bytes)
    }

    /// The payload gets no more memory, so the rest of it is discarded.
    pub(super) fn give_up_memory(&mut self) {
        let write = self.write.as_mut().expect("one that wants memory");
        write.payload = Payload::default();
        write.is_skipped = true;
    }

    fn translate(&mut self, event: ServerEvent) -> Event {
        match event {
            ServerEvent::Transmit(bytes) => Event::Transmit(bytes),
            ServerEvent::Negotiated(negotiated) => {
                self.guesses = WriteGuesses::new(self.session.request_bytes());
                Event::Negotiated(negotiated)
            }
            ServerEvent::Claim { export_index, words } => Event::Claim { export_index, words },
            ServerEvent::Request(request) => {
                self.look_at(&request);
                Event::Request(request)
            }
            ServerEvent::Refused { echo, refusal } => {
                self.reads_in_a_row = 0;
                self.guesses.note_other();
                Event::Refused { echo, refusal }
            }
            ServerEvent::Close(_) => Event::Close,
        }
    }

    fn look_at(&mut self, request: &Request) {
        if let Command::Write { length, .. } = request.command {
            self.awaits_open = true;
            self.reads_in_a_row = 0;
            self.window_headers = 1;
            return self.guesses.note_write(length as usize);
        }
        self.guesses.note_other();
        match request.command {
            Command::Read { .. } => self.reads_in_a_row += 1,
            _ => self.reads_in_a_row = 0,
        }
    }

    /// Starts to receive the payload of the WRITE of the last event, which is request `slot`, with
    /// `capacity_bytes` of memory at first. Without memory, the payload is discarded.
    pub(super) fn open(&mut self, slot: u32, command: Command, capacity_bytes: usize) {
        let Command::Write { offset, length, fua } = command else {
            unreachable!("only a write is opened: {command:?}");
        };
        assert!(self.awaits_open && self.write.is_none(), "one write is received at a time");
        assert_eq!(length, self.session.payload_pending(), "it is the one that was announced");
        self.awaits_open = false;
        let length = length as usize;
        let (payload, filled_bytes) = self.memory(length, capacity_bytes);
        self.session.payload_consumed(as_u32(filled_bytes));
        let is_skipped = payload.is_empty();
        let copied_bytes = 0;
        let write =
            Write { slot, offset, fua, payload, length, filled_bytes, copied_bytes, is_skipped };
        self.write = Some(write);
    }

    /// Allocates memory for the next payload; returns it with the number of payload bytes that have
    /// already arrived in guessed memory.
    fn memory(&mut self, length: usize, capacity_bytes: usize) -> (Payload, usize) {
        if capacity_bytes == 0 {
            return (Payload::default(), 0);
        }
        if self.start == self.end
            && let Some(Piece { memory: write_guesses::Memory::Payload(payload), start: 0, end }) =
                self.pieces.front_mut()
            && payload.len() == length
        {
            let guessed = (std::mem::take(payload), *end);
            self.pieces.pop_front();
            return guessed;
        }
        // Without memory the payload is skipped and its request fails.
        let payload = Payload::try_for_overwriting(length.min(capacity_bytes));
        (payload.unwrap_or_default(), 0)
    }

    /// Lends memory for the next receive; `None` while memory is lent already.
    pub(super) fn receive(&mut self) -> Option<ReceiveBuffers> {
        let input = self.input.take()?;
        assert!(
            self.start == self.end && self.pieces.is_empty(),
            "what was received is used first"
        );
        assert!(self.wants_memory().is_none(), "a payload that is received has memory");
        let write = self.write.take();
        let is_long = |write: &Write| {
            !write.is_skipped
                && (write.missing_bytes() >= WHOLE_BYTES_MIN
                    || write.missing_bytes() > write.open_bytes())
        };
        let (input_bytes, guesses) = if !self.session.is_negotiated() {
            (input.len(), Vec::new())
        } else if write.as_ref().is_some_and(is_long) {
            (0, Vec::new())
        } else {
            let first = match &write {
                Some(write) if write.is_skipped => write.missing_bytes(),
                Some(_) => self.session.request_bytes(),
                None => self.session.message_missing(),
            };
            let more = (self.window_headers - 1) * self.session.request_bytes();
            let is_skipped = write.as_ref().is_some_and(|write| write.is_skipped);
            let guesses = if is_skipped { Vec::new() } else { self.guesses.guess() };
            (first.saturating_add(more).min(input.len()), guesses)
        };
        Some(ReceiveBuffers { write, input, input_bytes, guesses })
    }

    pub(super) fn receive_waste(&mut self) -> Option<ReceiveBuffers> {
        let input = self.input.take()?;
        let input_bytes = input.len();
        Some(ReceiveBuffers { write: None, input, input_bytes, guesses: Vec::new() })
    }

    /// Takes back lent memory, drops its bytes; returns the slot of an unfinished WRITE.
    pub(super) fn waste(&mut self, receive: ReceiveBuffers) -> Option<u32> {
        self.input = Some(receive.input);
        self.write = receive.write;
        self.abandon()
    }

    pub(super) fn received(&mut self, receive: ReceiveBuffers, bytes: usize) {
        let ReceiveBuffers { mut write, input, input_bytes, guesses } = receive;
        let mut left = bytes;
        if let Some(write) = &mut write {
            let direct = left.min(write.open_bytes());
            write.filled_bytes += direct;
            self.session.payload_consumed(as_u32(direct));
            left -= direct;
        }
        self.write = write;
        self.input = Some(input);
        self.start = 0;
        self.end = left.min(input_bytes);
        let is_full = self.end > 0 && self.end == input_bytes;
        self.guesses.take_in(guesses, left - self.end, &mut self.pieces);
        if is_full && self.reads_in_a_row >= self.window_headers {
            self.window_headers = (self.window_headers * 2).min(AHEAD_HEADERS_MAX);
        }
    }

    /// Drops received bytes that are not used yet; returns the slot of an incomplete WRITE.
    pub(super) fn abandon(&mut self) -> Option<u32> {
        self.start = 0;
        self.end = 0;
        self.pieces.clear();
        self.write.take().map(|write| write.slot)
    }
}

fn as_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a payload is at most 64 MiB")
}

#[cfg(test)]
#[cfg(not(shuttle))]
#[path = "intake_tests.rs"]
mod tests;
