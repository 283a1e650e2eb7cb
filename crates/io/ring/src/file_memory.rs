//! A part of a file, mapped as shared memory: stored bytes outlive the process, as long as the file
//! exists.
//!
//! For files in memory (tmpfs) whose space was allocated beforehand: a store to a page without
//! memory ends the process. This process never reads the mapping; a later process reads the file.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Bytes of a file to which this process stores.
#[derive(Debug)]
pub struct FileMemory {
    map: MmapRaw,
}

impl FileMemory {
    /// Maps `length_bytes` of a file from `offset_bytes` on, which must be a multiple of 4096.
    ///
    /// # Errors
    /// Too few addresses are left, or the file cannot be mapped for writing.
    pub fn of(file: &File, offset_bytes: u64, length_bytes: usize) -> io::Result<Self> {
        let map = MmapOptions::new().offset(offset_bytes).len(length_bytes).map_raw(file)?;
        Ok(Self { map })
    }

    /// Stores bytes at `offset`.
    ///
    /// # Panics
    /// If the target range does not lie inside the mapping.
    #[allow(unsafe_code)]
    pub fn store(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.map.len()), "bytes lie inside the memory");
        // SAFETY: the target lies inside the mapping (checked). The mapping is ours to write while
        // `self` is borrowed, and no reference of this process points into it. `bytes` is borrowed
        // from another owner, so it does not overlap.
        unsafe {
            let target = self.map.as_mut_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    /// Stores a number after all earlier stores. A reader that sees the number sees the earlier
    /// stores as well.
    ///
    /// # Panics
    /// If `offset` is no multiple of 8, or the number does not fit into the memory.
    #[allow(unsafe_code)]
    pub fn publish(&mut self, offset: usize, number: u64) {
        let is_inside = offset.checked_add(8).is_some_and(|end| end <= self.map.len());
        assert!(is_inside && offset.is_multiple_of(8), "a number lies inside the memory");
        // SAFETY: inside the mapping (checked) and aligned for 8 bytes: the mapping begins at a
        // page, and the offset is a multiple of 8. This process reaches these 8 bytes only through
        // this atomic.
        let place = unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) };
        place.store(number, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_stored_is_in_the_file() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(3 * 4096).expect("its length");
        let mut memory = FileMemory::of(&file, 4096, 4096).expect("a mapping");
        memory.store(100, b"braid");
        memory.publish(8, 7);
        drop(memory);
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, 4096).expect("the file");
        assert_eq!((&bytes[100..105], &bytes[8..16]), (&b"braid"[..], &7_u64.to_ne_bytes()[..]));
    }

    #[test]
    #[should_panic(expected = "bytes lie inside the memory")]
    fn bytes_beyond_it_are_refused() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("its length");
        FileMemory::of(&file, 0, 4096).expect("a mapping").store(4090, &[0; 7]);
    }
}
