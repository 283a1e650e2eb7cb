//! Two small readers of a peer's bytes: one collects a message, the other reads a message's fields.
//!
//! Where they stand: under both sessions; only these readers look at raw input. [`Collector`]
//! gathers exactly the number of bytes asked for, from any number of slices. [`Cursor`] takes
//! fields off the front of a message, and returns `None` at the message's end. The readers decide
//! nothing.
//!
//! Invariants
//! - A collector never holds more than [`COLLECT_BYTES_MAX`]: asserted in [`Collector::expect`],
//!   and `tests/hostile.rs::memory_stays_within_the_option_limit`.

use crate::limits::{CHUNK_BYTES_MAX, OPTION_BYTES_MAX};

/// The largest message that is collected, in bytes.
pub(crate) const COLLECT_BYTES_MAX: usize =
    if OPTION_BYTES_MAX > CHUNK_BYTES_MAX { OPTION_BYTES_MAX } else { CHUNK_BYTES_MAX };

#[derive(Debug, Default)]
pub(crate) struct Collector {
    bytes: Vec<u8>,
    needed_bytes: usize,
}

impl Collector {
    /// Starts to collect a message of `needed_bytes`, a length that the caller has checked.
    pub(crate) fn expect(&mut self, needed_bytes: usize) {
        assert!(needed_bytes <= COLLECT_BYTES_MAX, "a length reached the collector unchecked");
        self.bytes.clear();
        self.bytes.reserve_exact(needed_bytes);
        self.needed_bytes = needed_bytes;
    }

    /// Takes the bytes that the message still lacks from `input`; returns their number.
    pub(crate) fn fill(&mut self, input: &[u8]) -> usize {
        let (taken, _) = input.split_at(self.missing_bytes().min(input.len()));
        self.bytes.extend_from_slice(taken);
        taken.len()
    }

    pub(crate) fn missing_bytes(&self) -> usize {
        self.needed_bytes.saturating_sub(self.bytes.len())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.bytes.len() == self.needed_bytes
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the whole message, and the collector's memory with it.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        assert!(self.is_complete(), "a message was taken before it was whole");
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Takes big-endian fields off the front of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(head)
    }

    /// Takes a string that follows its length, which has 32 bits.
    pub(crate) fn counted_bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.bytes(length)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
