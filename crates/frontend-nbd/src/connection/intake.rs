//! The receiving half of a connection: where bytes from the socket go, and what they come to.
//!
//! Where it stands: between whoever receives ([`Receive`] is what they fill) and the session of `braid-nbd-proto`. It
//! does no I/O and knows no limits but its own buffer's.
//!
//! A WRITE's payload is received where it stays. What makes that hard is the stream: a receive that wants the next
//! header may get the payload behind it as well, and that must be copied. So a receive asks for as few bytes beyond a
//! payload as can pay off, the *window*:
//!
//! ```text
//!   window 1 header   ── a full receive, and all of the last window were READs ──► window 2, 4, .. 128 headers
//!        ▲  └─ after a WRITE: [ rest of its payload │ next header ] in one receive         │
//!        └───────────────────────────────── a WRITE ◄─────────────────────────────────────┘
//! ```
//!
//! The rest of a long payload is received by itself, and whole: it comes in several pieces anyway.
//!
//! READs have no payload, so a client that reads has all its requests taken at once. A client that writes has one
//! receive per request and nothing copied; one that turns from reading to writing has less than a window copied.
//!
//! Invariants
//! - Any split of the stream gives the same requests: `tests::any_split_gives_the_same_requests`.
//! - A client that only writes has no byte of payload copied: `tests::writes_in_a_row_are_not_copied`.

use std::sync::Arc;

use braid_nbd_proto::{
    Command, ExportDescription, Negotiated, Refusal, Request, ServerEvent, ServerSession, wire,
};

use braid_ring::{Memory, Payload, Segment, Segments};

use crate::limits::{AHEAD_HEADERS_MAX, INPUT_BYTES, WHOLE_BYTES_MIN};

/// What bytes came to.
#[derive(Debug)]
pub(super) enum Event {
    /// Send this; negotiation goes on or is over.
    Transmit(Vec<u8>),
    /// Negotiation is over.
    Negotiated(Negotiated),
    /// A request; if it is a WRITE, [`Intake::open`] comes before the next event.
    Request(Request),
    /// A request that the session refuses.
    Refused { cookie: u64, refusal: Refusal },
    /// The WRITE that was opened has its payload.
    Written(Write),
    /// Nothing more will be read.
    Close,
}

/// A WRITE whose payload is coming, or has come.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) slot: u32,
    pub(super) offset: u64,
    pub(super) fua: bool,
    pub(super) payload: Payload,
    filled_bytes: usize,
    /// Bytes of the payload that passed through the input buffer.
    pub(super) copied_bytes: usize,
}

impl Write {
    pub(super) fn new(slot: u32, offset: u64, fua: bool, payload: Payload) -> Self {
        Self { slot, offset, fua, payload, filled_bytes: 0, copied_bytes: 0 }
    }

    fn missing_bytes(&self) -> usize {
        self.payload.len() - self.filled_bytes
    }
}

/// Memory to receive into, on its way to the socket and back.
#[derive(Debug)]
pub(crate) struct Receive {
    write: Option<Write>,
    input: Vec<u8>,
    ahead_bytes: usize,
}

impl Receive {
    /// Whether there is no point in looking before all of it has come.
    pub(crate) fn is_whole(&self) -> bool {
        self.ahead_bytes == 0
    }

    /// Gives the memory away, in the order in which it is to be filled.
    pub(crate) fn lend(&mut self) -> Segments {
        let mut segments = Segments::new();
        if let Some(write) = &mut self.write {
            let missing = write.filled_bytes..write.payload.len();
            let payload = Memory::Payload(std::mem::take(&mut write.payload));
            segments.push(Segment::part(payload, missing));
        }
        let input = Memory::Bytes(std::mem::take(&mut self.input));
        segments.push(Segment::part(input, 0..self.ahead_bytes));
        segments
    }

    /// Takes back what was given away.
    pub(crate) fn take_back(&mut self, segments: Segments) {
        for segment in segments {
            match (segment.into_memory(), &mut self.write) {
                (Memory::Payload(payload), Some(write)) => write.payload = payload,
                (Memory::Bytes(input), _) => self.input = input,
                other => unreachable!("{other:?} was never lent"),
            }
        }
    }

    /// Where bytes go, in this order; the first may be empty.
    pub(crate) fn parts(&mut self) -> [&mut [u8]; 2] {
        let rest = match &mut self.write {
            Some(write) => &mut write.payload[write.filled_bytes..],
            None => &mut [],
        };
        [rest, &mut self.input[..self.ahead_bytes]]
    }
}

/// See the module.
pub(super) struct Intake {
    session: ServerSession,
    /// Away while a receive is out.
    input: Option<Vec<u8>>,
    start: usize,
    end: usize,
    window_headers: usize,
    reads_in_a_row: usize,
    /// Away while a receive is out.
    write: Option<Write>,
    /// The last request was a WRITE that has not been opened.
    awaits_open: bool,
}

impl Intake {
    pub(super) fn new(catalog: Arc<[ExportDescription]>) -> Self {
        Self {
            session: ServerSession::new(catalog),
            input: Some(vec![0; INPUT_BYTES]),
            start: 0,
            end: 0,
            window_headers: 1,
            reads_in_a_row: 0,
            write: None,
            awaits_open: false,
        }
    }

    pub(super) fn is_negotiated(&self) -> bool {
        self.session.is_negotiated()
    }

    /// The next event of the bytes so far; `None` when more are needed.
    pub(super) fn poll(&mut self) -> Option<Event> {
        assert!(!self.awaits_open, "a write is opened before anything else is asked for");
        let input = self.input.as_ref()?;
        loop {
            if let Some(event) = self.session.poll_event() {
                return Some(self.translate(event));
            }
            let filled = &input[self.start..self.end];
            if let Some(write) = &mut self.write {
                let moved = filled.len().min(write.missing_bytes());
                let place = &mut write.payload[write.filled_bytes..][..moved];
                place.copy_from_slice(&filled[..moved]);
                write.filled_bytes += moved;
                write.copied_bytes += moved;
                self.start += moved;
                self.session.payload_consumed(as_u32(moved));
                if write.missing_bytes() > 0 {
                    return None;
                }
                return self.write.take().map(Event::Written);
            }
            if filled.is_empty() {
                return None;
            }
            let taken = self.session.handle_bytes(filled);
            self.start += taken;
            assert!(self.start <= self.end, "only received bytes can be used");
        }
    }

    fn translate(&mut self, event: ServerEvent) -> Event {
        match event {
            ServerEvent::Transmit(bytes) => Event::Transmit(bytes),
            ServerEvent::Negotiated(negotiated) => Event::Negotiated(negotiated),
            ServerEvent::Request(request) => {
                self.look_at(&request);
                Event::Request(request)
            }
            ServerEvent::Refused { cookie, refusal } => {
                self.reads_in_a_row = 0;
                Event::Refused { cookie, refusal }
            }
            ServerEvent::Close(_) => Event::Close,
        }
    }

    fn look_at(&mut self, request: &Request) {
        match request.command {
            Command::Read { .. } => self.reads_in_a_row += 1,
            Command::Write { .. } => {
                self.awaits_open = true;
                self.reads_in_a_row = 0;
                self.window_headers = 1;
            }
            _ => self.reads_in_a_row = 0,
        }
    }

    /// Gives the WRITE of the last event its memory.
    pub(super) fn open(&mut self, write: Write) {
        assert!(self.awaits_open && self.write.is_none(), "one write is received at a time");
        assert_eq!(as_u32(write.payload.len()), self.session.payload_pending(), "its memory fits");
        self.awaits_open = false;
        self.write = Some(write);
    }

    /// Lends out what the next bytes go into; `None` while that is out already.
    pub(super) fn receive(&mut self) -> Option<Receive> {
        let input = self.input.take()?;
        assert_eq!(self.start, self.end, "what was received is used before more comes");
        let write = self.write.as_ref();
        let ahead_bytes = if !self.session.is_negotiated() {
            input.len()
        } else if write.is_some_and(|write| write.missing_bytes() >= WHOLE_BYTES_MIN) {
            0
        } else {
            let first = match write {
                Some(_) => wire::REQUEST_BYTES,
                None => self.session.message_missing(),
            };
            first.saturating_add((self.window_headers - 1) * wire::REQUEST_BYTES).min(input.len())
        };
        Some(Receive { write: self.write.take(), input, ahead_bytes })
    }

    /// Lends out what bytes go into that nobody will look at.
    pub(super) fn receive_waste(&mut self) -> Option<Receive> {
        let input = self.input.take()?;
        let ahead_bytes = input.len();
        Some(Receive { write: None, input, ahead_bytes })
    }

    /// Takes back what was lent; its bytes are nobody's, and so are those before them. The slot of a WRITE that ends here
    /// in the middle of its payload.
    pub(super) fn waste(&mut self, receive: Receive) -> Option<u32> {
        self.input = Some(receive.input);
        self.write = receive.write;
        self.abandon()
    }

    /// Takes back what was lent, with `bytes` received.
    pub(super) fn received(&mut self, receive: Receive, bytes: usize) {
        let Receive { mut write, input, ahead_bytes } = receive;
        let mut ahead = bytes;
        if let Some(write) = &mut write {
            let direct = bytes.min(write.missing_bytes());
            write.filled_bytes += direct;
            self.session.payload_consumed(as_u32(direct));
            ahead -= direct;
        }
        assert!(ahead <= ahead_bytes, "no more is received than there was room for");
        if ahead > 0 && ahead == ahead_bytes && self.reads_in_a_row >= self.window_headers {
            self.window_headers = (self.window_headers * 2).min(AHEAD_HEADERS_MAX);
        }
        self.write = write;
        self.input = Some(input);
        self.start = 0;
        self.end = ahead;
    }

    /// Gives up what was received and not used; the slot of a WRITE in the middle of its payload.
    pub(super) fn abandon(&mut self) -> Option<u32> {
        self.start = 0;
        self.end = 0;
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
