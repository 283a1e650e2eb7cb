//! The slabs of the payloads' memory that one ring has registered.
//!
//! A slab is registered when an operation of this ring first names it, so unused pages are not
//! pinned. If the kernel refuses (too old, or a limit on pinned memory), operations name addresses.
//!
//! Invariant: registered memory is the arena's, which keeps its address and is never given back. So
//! the kernel's pages and the process's are the same for as long as either lives
//! [check: registered_memory_is_read_and_written_by_name].

use io_uring::IoUring;

use crate::arena::{Arena, NAMED_BYTES_MIN, SLAB_BYTES, SLABS};

/// Whether a slab is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlabState {
    Unseen,
    Registered,
    Refused,
}

#[derive(Debug)]
pub(crate) struct FixedBuffers {
    slabs: [SlabState; SLABS],
}

impl FixedBuffers {
    /// Makes a table for all slabs in the ring, with no slab registered.
    pub(crate) fn new(ring: &IoUring) -> Self {
        let room = u32::try_from(SLABS).expect("few");
        let is_known = ring.submitter().register_buffers_sparse(room).is_ok();
        Self { slabs: [if is_known { SlabState::Unseen } else { SlabState::Refused }; SLABS] }
    }

    /// The registered number of the slab that holds these bytes.
    #[allow(unsafe_code)]
    pub(crate) fn name_of(
        &mut self,
        ring: &IoUring,
        (start, length_bytes): (*const u8, u32),
    ) -> Option<u16> {
        let length_bytes = usize::try_from(length_bytes).ok()?;
        let arena = Arena::of_process().filter(|_| length_bytes >= NAMED_BYTES_MIN)?;
        let index = arena.slab_of(start, length_bytes)?;
        let name = u16::try_from(index).expect("few");
        if self.slabs[index] == SlabState::Unseen {
            let base = arena.slab(index).as_ptr().cast();
            let slab = libc::iovec { iov_base: base, iov_len: SLAB_BYTES };
            // SAFETY: the arena's slabs stay mapped, and are not given back, until the process
            // ends. The operations that name a slab decide how the kernel uses it.
            let updated =
                unsafe { ring.submitter().register_buffers_update(u32::from(name), &[slab], None) };
            self.slabs[index] =
                if updated.is_ok() { SlabState::Registered } else { SlabState::Refused };
        }
        (self.slabs[index] == SlabState::Registered).then_some(name)
    }
}
