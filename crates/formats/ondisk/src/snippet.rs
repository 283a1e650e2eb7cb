//! Bytes that the caller has read, addressed by their offset on the device.

/// Bytes that the caller has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    /// Byte offset on the device.
    pub offset: u64,
    /// The bytes from that offset on; fewer than requested if the device ended.
    pub bytes: Vec<u8>,
}

pub(crate) struct Bytes<'a> {
    pub(crate) device_bytes: u64,
    pub(crate) snippets: &'a [Snippet],
}

impl<'a> Bytes<'a> {
    /// `length` bytes at `offset`, if a single snippet holds all of them.
    pub(crate) fn get(&self, offset: u64, length: usize) -> Option<&'a [u8]> {
        self.up_to(offset, length).filter(|bytes| bytes.len() == length)
    }

    /// Up to `length` bytes at `offset`, as many as one snippet holds.
    pub(crate) fn up_to(&self, offset: u64, length: usize) -> Option<&'a [u8]> {
        self.snippets.iter().find_map(|snippet| {
            let skip = usize::try_from(offset.checked_sub(snippet.offset)?).ok()?;
            let from = snippet.bytes.get(skip..).filter(|bytes| !bytes.is_empty())?;
            Some(from.get(..length).unwrap_or(from))
        })
    }
}
