//! Bytes that begin at a page, as devices' memory and clients' payloads do.
//!
//! Not for tidiness: a copy whose target lies a few bytes further into its page than its source into its own takes up to
//! twice as long on some processors (`rep movsb` of AMD's Zen 3 and 4), and large vectors lie 16 bytes into a page.

use std::ops::{Deref, DerefMut};

const PAGE_BYTES: usize = 4 << 10;

/// A run of bytes, the first at the beginning of a page.
#[derive(Debug)]
pub(crate) struct Pages {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Pages {
    /// So many bytes, taken from `bytes` one after the other. All of them are touched.
    ///
    /// # Panics
    /// When there are not so many.
    pub(crate) fn new(length: usize, bytes: impl Iterator<Item = u8>) -> Self {
        let mut memory: Vec<u8> = Vec::with_capacity(length + PAGE_BYTES);
        let start = memory.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
        memory.resize(start, 0);
        memory.extend(bytes.take(length));
        assert_eq!(memory.len(), start + length, "as many as are asked for");
        Self { memory, start, length }
    }

    /// So many bytes of one value.
    pub(crate) fn filled(length: usize, byte: u8) -> Self {
        Self::new(length, std::iter::repeat(byte))
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_at_a_page() {
        for length in [0, 1, 5000, 1 << 20] {
            let pages = Pages::new(length, (0..=255).cycle());
            assert!(pages.as_ptr().addr().is_multiple_of(PAGE_BYTES));
            assert!(pages.iter().copied().eq((0..=255).cycle().take(length)));
        }
    }
}
