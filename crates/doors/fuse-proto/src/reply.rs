//! Answers: a head and at most one struct. The bytes of a READ follow the answer, in the caller's
//! memory.

use zerocopy::{Immutable, IntoBytes};

use crate::errno::Errno;
use crate::wire::{AttrOut, OutHeader, WriteOut};

/// Bytes of the longest answer without a READ's payload.
const BYTES_MAX: usize = size_of::<OutHeader>().saturating_add(size_of::<AttrOut>());

/// An answer to a request, stored without an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl Reply {
    /// A successful answer with a struct.
    #[must_use]
    pub fn with<T: IntoBytes + Immutable>(unique: u64, body: &T) -> Self {
        Self::new(unique, 0, body.as_bytes(), 0)
    }

    /// A successful answer without a struct.
    #[must_use]
    pub fn done(unique: u64) -> Self {
        Self::new(unique, 0, &[], 0)
    }

    /// The answer to a failed request.
    #[must_use]
    pub fn failed(unique: u64, errno: Errno) -> Self {
        Self::new(unique, errno.to_wire(), &[], 0)
    }

    /// The answer to a successful READ; `payload_bytes` of payload follow.
    #[must_use]
    pub fn read(unique: u64, payload_bytes: usize) -> Self {
        Self::new(unique, 0, &[], payload_bytes)
    }

    /// The answer to a successful WRITE of `length` bytes.
    #[must_use]
    pub fn written(unique: u64, length: u32) -> Self {
        Self::with(unique, &WriteOut { size: length, padding: 0 })
    }

    fn new(unique: u64, error: i32, body: &[u8], payload_bytes: usize) -> Self {
        let mut bytes = [0; BYTES_MAX];
        let length = size_of::<OutHeader>().saturating_add(body.len());
        let said = u32::try_from(length.saturating_add(payload_bytes)).unwrap_or(u32::MAX);
        let header = OutHeader { len: said, error, unique };
        let (head, rest) = bytes.split_at_mut(size_of::<OutHeader>());
        head.copy_from_slice(header.as_bytes());
        let (place, _) = rest.split_at_mut_checked(body.len()).expect("the longest body fits");
        place.copy_from_slice(body);
        Self { bytes, length }
    }

    /// The bytes of the answer's head and struct.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).expect("as long as it was made")
    }

    /// The bytes of the answer's head alone.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.bytes.get(..size_of::<OutHeader>()).expect("every answer has one")
    }

    /// The bytes of the answer's struct alone.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(size_of::<OutHeader>()..self.length).expect("as long as it was made")
    }
}
