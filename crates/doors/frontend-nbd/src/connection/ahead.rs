//! Memory for what a client will probably say next: more writes of the length that it has been writing.
//!
//! Where it stands: under the [`intake`](super::intake). A client that writes the same length again and again is taken at
//! its word: one receive then has, behind the next header, memory for its payload, and for the next header, and so on.
//! Many small writes come with one system call and lie where they stay.
//!
//! ```text
//!   [ header ][ payload of L ][ header ][ payload of L ][ header ] ...          a guess
//! ```
//!
//! As many are guessed as came last time and one more, twice as many if all of them were filled. A guess that was wrong costs nothing but copies: what was received is a stream in pieces, whatever it was taken for.

use std::collections::VecDeque;

use braid_ring::Payload;

use crate::limits::{AHEAD_BYTES_MAX, AHEAD_WRITES_MAX, WRITES_ALIKE_MIN};

/// Bytes of the stream, and what is left of them.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) memory: Memory,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Where a piece lies.
#[derive(Debug)]
pub(super) enum Memory {
    /// What was guessed to be a header.
    Header(Vec<u8>),
    /// What was guessed to be a payload.
    Payload(Payload),
}

impl Piece {
    pub(super) fn bytes(&self) -> &[u8] {
        let whole: &[u8] = match &self.memory {
            Memory::Header(bytes) => bytes,
            Memory::Payload(payload) => payload,
        };
        &whole[self.start..self.end]
    }
}

/// A payload, and the header behind it.
#[derive(Debug)]
pub(super) struct Guess {
    pub(super) payload: Payload,
    pub(super) header: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Length of a request's header.
    header_bytes: usize,
    length: usize,
    alike: usize,
    /// Guesses in the next receive, at most.
    count: usize,
    /// Headers' memory, to be used again.
    headers: Vec<Vec<u8>>,
    payloads: Vec<Payload>,
    /// An empty list, to be used again.
    spare: Vec<Guess>,
}

impl Ahead {
    /// For requests whose headers are so long.
    pub(super) fn new(header_bytes: usize) -> Self {
        Self {
            header_bytes,
            length: 0,
            alike: 0,
            count: 0,
            headers: Vec::new(),
            payloads: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Notes a write.
    pub(super) fn note_write(&mut self, length: usize) {
        if length == self.length {
            self.alike += 1;
        } else {
            self.payloads.clear();
            self.length = length;
            self.alike = 1;
            self.count = 1;
        }
    }

    /// Notes any other request.
    pub(super) fn note_other(&mut self) {
        self.alike = 0;
    }

    /// What the next receive has memory for; nothing without a reason.
    pub(super) fn guess(&mut self) -> Vec<Guess> {
        let mut guesses = std::mem::take(&mut self.spare);
        if self.alike < WRITES_ALIKE_MIN || self.length == 0 {
            self.payloads.clear();
            return guesses;
        }
        let most = (AHEAD_BYTES_MAX / self.length).min(AHEAD_WRITES_MAX);
        for _ in 0..self.count.min(most) {
            let kept = self.payloads.pop().map(Ok);
            let payload = kept.unwrap_or_else(|| Payload::try_for_overwriting(self.length));
            // Without memory there is no guessing.
            let Ok(payload) = payload else { break };
            let header = self.headers.pop().unwrap_or_else(|| vec![0; self.header_bytes]);
            guesses.push(Guess { payload, header });
        }
        guesses
    }

    /// Makes pieces of the `bytes` that were received into guesses, and keeps the rest of them.
    pub(super) fn take_in(
        &mut self,
        mut guesses: Vec<Guess>,
        mut bytes: usize,
        pieces: &mut VecDeque<Piece>,
    ) {
        let guessed = guesses.len();
        let mut used = 0;
        for Guess { payload, header } in guesses.drain(..) {
            used += usize::from(bytes > 0);
            for (memory, length) in [
                (Memory::Payload(payload), self.length),
                (Memory::Header(header), self.header_bytes),
            ] {
                let end = bytes.min(length);
                bytes -= end;
                if end > 0 {
                    pieces.push_back(Piece { memory, start: 0, end });
                } else {
                    self.keep(memory);
                }
            }
        }
        assert_eq!(bytes, 0, "no more is received than there was room for");
        // A client that waits for each reply is not to pay for guesses that it never fills.
        self.count = if used == guessed { (guessed * 2).max(1) } else { used + 1 };
        self.spare = guesses;
    }

    /// Keeps memory that is not needed any more.
    pub(super) fn keep(&mut self, memory: Memory) {
        match memory {
            Memory::Header(header) if self.headers.len() <= AHEAD_WRITES_MAX => {
                self.headers.push(header);
            }
            Memory::Payload(payload) if payload.len() == self.length => self.payloads.push(payload),
            Memory::Header(_) | Memory::Payload(_) => {}
        }
        self.payloads.truncate(AHEAD_WRITES_MAX);
    }
}
