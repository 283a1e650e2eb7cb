//! The bytes of a device that the caller has read, addressed as on the device.

/// Bytes that the caller has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    /// Where on the device.
    pub offset: u64,
    /// The bytes; fewer than asked for if the device ended.
    pub bytes: Vec<u8>,
}

/// The bytes at hand, addressed as on the device.
pub(crate) struct Bytes<'a> {
    pub(crate) device_bytes: u64,
    pub(crate) snippets: &'a [Snippet],
}

impl<'a> Bytes<'a> {
    /// `length` bytes at `offset`, if one snippet has all of them.
    pub(crate) fn get(&self, offset: u64, length: usize) -> Option<&'a [u8]> {
        self.up_to(offset, length).filter(|bytes| bytes.len() == length)
    }

    /// As many of `length` bytes at `offset` as one snippet has, if it has any.
    pub(crate) fn up_to(&self, offset: u64, length: usize) -> Option<&'a [u8]> {
        self.snippets.iter().find_map(|snippet| {
            let skip = usize::try_from(offset.checked_sub(snippet.offset)?).ok()?;
            let from = snippet.bytes.get(skip..).filter(|bytes| !bytes.is_empty())?;
            Some(from.get(..length).unwrap_or(from))
        })
    }
}
