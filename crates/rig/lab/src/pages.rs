//! Bytes that begin at a page, as devices' memory and clients' payloads do.
//!
//! The alignment is for speed. A copy whose source and target differ slightly in their place within
//! a page takes up to twice as long (`rep movsb` of AMD's Zen 3 and 4). A `Vec` begins 16 bytes
//! into a page.

use std::ops::{Deref, DerefMut};
use std::sync::Once;

use memmap2::{Advice, MmapMut, MmapOptions};

#[cfg(test)]
const PAGE_BYTES: usize = 4 << 10;
/// Runs of at least this length are in huge pages, if the kernel has any, like the product's blocks
/// and payloads and a peer's memory.
const HUGE_BYTES: usize = 2 << 20;

/// A run of bytes that begins at a page.
#[derive(Debug)]
pub(crate) struct Pages {
    map: MmapMut,
    start: usize,
    length: usize,
}

impl Pages {
    /// `length` bytes of one value, all of them written, so that they take memory. Panics if memory
    /// is short.
    pub(crate) fn filled(length: usize, byte: u8) -> Self {
        let mut pages = Self::zeroes(length);
        pages.fill(byte);
        pages
    }

    /// Zeroed bytes, none of them written yet.
    fn zeroes(length: usize) -> Self {
        let is_long = length >= HUGE_BYTES;
        // Only long runs are aligned to huge pages: short runs at such addresses would share one
        // place in the processor's caches.
        let slack = if is_long { HUGE_BYTES } else { 0 };
        let map = MmapOptions::new().len((length + slack).max(1)).map_anon();
        let map = map.expect("memory for what is measured");
        if is_long && map.advise(Advice::HugePage).is_err() {
            static SAID: Once = Once::new();
            SAID.call_once(|| eprintln!("braid-lab: no huge pages here; copies cost more"));
        }
        let start = if is_long { map.as_ptr().addr().wrapping_neg() % HUGE_BYTES } else { 0 };
        Self { map, start, length }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.length]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_at_a_page() {
        for length in [0, 1, 5000, 1 << 20, 3 << 20] {
            let pages = Pages::filled(length, 7);
            assert!(pages.as_ptr().addr().is_multiple_of(PAGE_BYTES));
            assert!(pages.iter().copied().eq(std::iter::repeat_n(7, length)));
        }
    }
}
