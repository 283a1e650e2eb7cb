//! A large range of memory that costs nothing until it is used.
//!
//! A region is reserved once, at its maximum size, and used from its beginning. So its content can
//! grow while other threads use it, and no address ever changes. The kernel is asked for huge
//! pages.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

/// Zeroed memory at a fixed address, a multiple of 4096.
#[derive(Debug)]
pub struct Region {
    map: MmapRaw,
}

impl Region {
    /// Reserves addresses for this many bytes, at least one page. The region takes no memory yet.
    ///
    /// # Errors
    /// The process has too few addresses left (`ENOMEM`, or a limit on them).
    pub fn reserve(length_bytes: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(length_bytes.max(4096)).no_reserve_swap().map_anon()?;
        // A kernel without huge pages refuses this; small pages work as well, only slower.
        let _ = map.advise(Advice::HugePage);
        Ok(Self { map: map.into() })
    }

    /// The region's address; valid until the region is dropped.
    pub fn as_non_null(&self) -> NonNull<u8> {
        NonNull::new(self.map.as_mut_ptr()).expect("a mapping is never at address zero")
    }

    /// Number of bytes reserved.
    pub fn length_bytes(&self) -> usize {
        self.map.len()
    }

    /// Gives the memory of a range of whole pages back to the system. The range then reads as
    /// zeroes, and costs nothing.
    ///
    /// # Safety
    /// No thread reads or writes these bytes meanwhile, and no reference to them is alive.
    ///
    /// # Panics
    /// If the range is not whole pages inside the region.
    #[allow(unsafe_code)]
    pub unsafe fn give_back(&self, range: Range<usize>) {
        assert!(range.start.is_multiple_of(4096) && range.end.is_multiple_of(4096));
        assert!(range.start <= range.end && range.end <= self.map.len());
        // SAFETY: inside the mapping (checked), private, anonymous, unused (the caller's promise).
        let given = unsafe {
            let length = range.end - range.start;
            self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, length)
        };
        given.expect("private memory can always be given back");
    }
}

/// Limits C's allocator, which Rust uses as well, to few heaps, for a process with limited
/// addresses. Each heap reserves 64 MiB; the default is up to eight heaps for each processor.
#[allow(unsafe_code)]
pub fn few_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets a number in the allocator.
    let is_heard = unsafe { libc::mallopt(libc::M_ARENA_MAX, HEAPS) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(is_heard, 1, "the allocator knows how many heaps it may have");
}

/// The number of heaps after [`few_heaps`]: one, and a second for threads that contend for the
/// first.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 2;

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn a_reserved_region_costs_nothing_and_reads_as_zeroes() {
        let region = Region::reserve(1 << 40).expect("a terabyte of addresses");
        assert_eq!(region.length_bytes(), 1 << 40);
        let last = region.as_non_null().as_ptr().wrapping_add((1 << 40) - 4096);
        // SAFETY: the addresses are inside the region, which only this test uses.
        unsafe {
            assert_eq!(last.read(), 0);
            last.write(9);
            assert_eq!(last.read(), 9);
            region.give_back((1 << 40) - 4096..1 << 40);
            assert_eq!(last.read(), 0);
        }
    }
}
