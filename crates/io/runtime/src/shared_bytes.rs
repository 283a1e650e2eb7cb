//! A run of bytes that several threads use at once, each thread its own part.
//!
//! Place in the flow: below the requests, whose payloads are such runs, and the [`crate::arena`],
//! whose blocks are one such run. The engine's names of bytes say which thread has which part, and
//! only the arena turns those names into references.
//!
//! Release builds check that every part lies inside the memory.

use std::ptr::NonNull;

use braid_ring::{Payload, Region};

use crate::sync::witness::Witness;

/// A run of bytes with one owner, lent out in parts to several threads.
pub(crate) struct SharedBytes {
    start: NonNull<u8>,
    length_bytes: usize,
    owner: Owner,
    witness: Witness,
}

/// The memory's only owner.
enum Owner {
    Payload(Payload),
    Region(#[allow(dead_code)] Region),
}

// SAFETY: `owner` owns the memory, and bytes may move between threads.
#[allow(unsafe_code)]
unsafe impl Send for SharedBytes {}

// SAFETY: through a shared reference bytes are reached only by `bytes` and `bytes_mut`, whose
// callers promise that no two accesses overlap where one of them writes.
#[allow(unsafe_code)]
unsafe impl Sync for SharedBytes {}

#[allow(unsafe_code)]
impl SharedBytes {
    pub(crate) fn new(payload: Payload) -> Self {
        let (start, length_bytes) = (payload.as_non_null(), payload.len());
        let witness = Witness::new(length_bytes);
        Self { start, length_bytes, owner: Owner::Payload(payload), witness }
    }

    /// Zeroed bytes; unused pages cost nothing.
    pub(crate) fn reserve(length_bytes: usize) -> std::io::Result<Self> {
        let region = Region::reserve(length_bytes)?;
        let (start, witness) = (region.as_non_null(), Witness::new(length_bytes));
        Ok(Self { start, length_bytes, owner: Owner::Region(region), witness })
    }

    /// Returns the payload, after its last use. Panics if the memory was never a payload.
    pub(crate) fn into_payload(self) -> Payload {
        let _guard = self.witness.write(0, self.length_bytes);
        match self.owner {
            Owner::Payload(payload) => payload,
            Owner::Region(_) => panic!("a shard's blocks are no payload"),
        }
    }

    pub(crate) fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    #[cfg(not(loom))]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Watches accesses in models.
    pub(crate) fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Copies bytes that no effect may write any more.
    pub(crate) fn copy_to(&self, offset: usize, target: &mut [u8]) {
        let _guard = self.witness.read(offset, target.len());
        // SAFETY: the request is answered, and this run was not left to an abandoned read. So the
        // effects that wrote the run have ended.
        target.copy_from_slice(unsafe { self.bytes(offset, target.len()) });
    }

    /// Panics if a run does not lie inside the memory.
    pub(crate) fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length_bytes), "a run lies inside its memory");
    }

    /// A part of this run.
    ///
    /// # Safety
    /// No thread writes any of these bytes while the reference lives.
    pub(crate) unsafe fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        self.check(offset, length);
        // SAFETY: the run is inside the owner's live memory (checked above) and initialised since
        // the memory was made. No thread writes it meanwhile (the caller's promise).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) }
    }

    /// A part of this run, for writing.
    ///
    /// # Safety
    /// No other code reads or writes any of these bytes while the reference lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        self.check(offset, length);
        // SAFETY: the run is inside the owner's live memory (checked above) and initialised since
        // the memory was made. No other code uses it meanwhile (the caller's promise).
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), length) }
    }
}
