//! Memory for a client's probable next requests: more writes of the length of its recent ones.
//!
//! Where it stands: under the [`intake`](super::intake). A client often writes the same length
//! again and again. For such a client, one receive has memory for the next header, the payload
//! after the header, the next header, and so on. So one system call brings many small writes, and
//! their payloads need no copy.
//!
//! ```text
//!   [ header ][ payload of L ][ header ][ payload of L ][ header ] ...          a guess
//! ```
//!
//! A receive guesses one payload more than the last receive filled. If the last receive filled all
//! its guesses, the next one guesses twice as many. A wrong guess costs only copies: the received
//! bytes are a stream in any case.

use std::collections::VecDeque;

use braid_ring::Payload;

use crate::limits::{AHEAD_BYTES_MAX, AHEAD_WRITES_MAX, WRITES_ALIKE_MIN};

/// Memory with a part of the received stream, and the range that the intake has not used yet.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) memory: Memory,
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) enum Memory {
    /// Memory in which a header is expected.
    Header(Vec<u8>),
    /// Memory in which a payload is expected.
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

#[derive(Debug)]
pub(super) struct Guess {
    pub(super) payload: Payload,
    pub(super) header: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct WriteGuesses {
    header_bytes: usize,
    length: usize,
    alike: usize,
    /// The largest number of payloads to guess in the next receive.
    count: usize,
    headers: Vec<Vec<u8>>,
    payloads: Vec<Payload>,
    spare: Vec<Guess>,
}

impl WriteGuesses {
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

    pub(super) fn note_other(&mut self) {
        self.alike = 0;
    }

    /// The guesses for the next receive; none if the client's recent writes differ in length.
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
            // If memory is short, the receive makes no more guesses.
            let Ok(payload) = payload else { break };
            let header = self.headers.pop().unwrap_or_else(|| vec![0; self.header_bytes]);
            guesses.push(Guess { payload, header });
        }
        guesses
    }

    /// Appends memory that received `bytes` have filled to `pieces`, and keeps the memory of unused
    /// guesses.
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
        // Makes fewer guesses: a client that waits for each reply must not pay for unused ones.
        self.count = if used == guessed { (guessed * 2).max(1) } else { used + 1 };
        self.spare = guesses;
    }

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
