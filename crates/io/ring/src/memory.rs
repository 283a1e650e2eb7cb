//! Memory that an operation owns or leases while it is in flight.
//!
//! The kernel reads or writes this memory at any time between submission and completion, whatever
//! this process does. So an operation owns its memory, or holds the keeper of a [`Lease`]. The
//! memory comes back with the completion, and not before.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::payload::Payload;

/// An owner that keeps leased memory alive.
pub trait Keep: Send + Sync {}

impl<T: Send + Sync + ?Sized> Keep for T {}

/// A run of another owner's memory, kept alive by an `Arc`.
pub struct Lease {
    start: NonNull<u8>,
    length_bytes: usize,
    _keeper: Arc<dyn Keep>,
}

// SAFETY: only the kernel reaches the leased bytes, through the operation that has the lease. The
// lease's maker promises that no thread accesses these bytes in conflict.
#[allow(unsafe_code)]
unsafe impl Send for Lease {}

// SAFETY: a shared lease has no methods that reach the leased bytes.
#[allow(unsafe_code)]
unsafe impl Sync for Lease {}

impl Lease {
    /// Leases bytes.
    ///
    /// # Safety
    /// The leased bytes are initialised, and keep their address for as long as `keeper` is held.
    /// Until the lease is dropped no other code writes them, nor reads them if the operation fills
    /// them.
    #[allow(unsafe_code)]
    pub unsafe fn new(start: NonNull<u8>, length_bytes: usize, keeper: Arc<dyn Keep>) -> Self {
        Self { start, length_bytes, _keeper: keeper }
    }

    /// The address of the leased memory.
    pub fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Lease({} bytes)", self.length_bytes)
    }
}

/// The memory of a segment.
#[derive(Debug)]
pub enum Memory {
    /// Owned memory at an aligned address.
    Payload(Payload),
    /// Owned memory for small data: a header, a reply.
    Bytes(Vec<u8>),
    /// Another owner's memory.
    Lease(Lease),
    /// Constant memory, for writes only.
    Constant(&'static [u8]),
}

impl Memory {
    /// The length of the memory.
    pub fn length_bytes(&self) -> usize {
        match self {
            Self::Payload(payload) => payload.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Lease(lease) => lease.length_bytes,
            Self::Constant(bytes) => bytes.len(),
        }
    }

    fn start(&mut self) -> *mut u8 {
        match self {
            Self::Payload(payload) => payload.as_non_null().as_ptr(),
            Self::Bytes(bytes) => bytes.as_mut_ptr(),
            Self::Lease(lease) => lease.start.as_ptr(),
            Self::Constant(bytes) => bytes.as_ptr().cast_mut(),
        }
    }
}

/// A run of bytes in one memory.
#[derive(Debug)]
pub struct Segment {
    memory: Memory,
    range: Range<usize>,
}

/// The runs of bytes that one operation moves, in order.
pub type Segments = SmallVec<[Segment; 2]>;

impl Segment {
    /// A segment that covers all of `memory`.
    pub fn whole(memory: Memory) -> Self {
        let range = 0..memory.length_bytes();
        Self { memory, range }
    }

    /// A segment that covers a part of `memory`.
    ///
    /// # Panics
    /// If `range` exceeds `memory`.
    pub fn part(memory: Memory, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= memory.length_bytes(),
            "a segment lies inside its memory"
        );
        Self { memory, range }
    }

    /// The length of the segment.
    pub fn length_bytes(&self) -> usize {
        self.range.len()
    }

    /// Returns the whole memory of the segment.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self.memory, Memory::Constant(_))
    }

    /// The address of the segment's bytes beyond the first `skipped`, and their number.
    pub(crate) fn rest(&mut self, skipped: usize) -> (*mut u8, usize) {
        let from = self.range.start + skipped;
        assert!(from <= self.range.end, "no more is skipped than there is");
        (self.memory.start().wrapping_add(from), self.range.end - from)
    }
}

impl From<Payload> for Segment {
    fn from(payload: Payload) -> Self {
        Self::whole(Memory::Payload(payload))
    }
}

impl From<Vec<u8>> for Segment {
    fn from(bytes: Vec<u8>) -> Self {
        Self::whole(Memory::Bytes(bytes))
    }
}

impl From<Lease> for Segment {
    fn from(lease: Lease) -> Self {
        Self::whole(Memory::Lease(lease))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a segment lies inside its memory")]
    fn a_segment_beyond_its_memory_is_refused() {
        drop(Segment::part(Memory::Bytes(vec![0; 10]), 5..11));
    }

    #[test]
    fn a_segment_tells_what_is_left_of_it() {
        let mut segment = Segment::part(Memory::Bytes(vec![0; 10]), 2..9);
        let (whole, _) = segment.rest(0);
        let (rest, length) = segment.rest(5);
        assert_eq!((rest.addr() - whole.addr(), length), (5, 2));
    }
}
