//! Reply headers of the transmission phase, as a server sends them.
//!
//! Where it stands: `frontend-nbd` takes a [`ReplyCodec`] when negotiation ends and uses it on any thread, in any
//! order; replies need no session state. The codec writes headers only: the data of a READ goes from the export's own
//! buffer to the socket, right behind its header.
//!
//! Choices: a success without data is a simple reply even when structured replies were negotiated (the specification
//! allows it for everything but READ and BLOCK_STATUS); a READ is one OFFSET_DATA chunk, so "don't fragment" is always
//! honoured; an error is an ERROR chunk with a message whenever the client can read one.

use braid_hooks::{Bug, spoiled};

use crate::error::ErrorCode;
use crate::limits::NAME_BYTES_MAX;
use crate::wire;

/// One extent of `base:allocation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Length, in bytes; never zero.
    pub length_bytes: u32,
    /// [`wire::STATE_HOLE`] and [`wire::STATE_ZERO`].
    pub flags: u32,
}

/// An export's extents, cut to what may be sent: at least one, none empty, none beyond the request.
#[must_use]
pub fn sound_extents(extents: &[Extent], length: u32, extents_max: usize) -> Vec<Extent> {
    let mut sound = Vec::new();
    let mut left = length;
    for extent in extents.iter().take(extents_max) {
        let length_bytes = extent.length_bytes.min(left);
        if length_bytes == 0 {
            break;
        }
        sound.push(Extent { length_bytes, flags: extent.flags });
        left = left.saturating_sub(length_bytes);
    }
    if sound.is_empty() {
        sound.push(Extent { length_bytes: length, flags: 0 });
    }
    sound
}

/// A reply header: at most 28 bytes, without an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    bytes: [u8; 28],
    length: u8,
}

impl AsRef<[u8]> for ReplyHeader {
    fn as_ref(&self) -> &[u8] {
        self.bytes.split_at(usize::from(self.length)).0
    }
}

impl ReplyHeader {
    fn simple(cookie: u64, error: u32) -> Self {
        let cookie = spoiled(Bug::CookieOfBefore, cookie, cookie.wrapping_sub(1));
        let error = spoiled(Bug::ErrorUntold, error, 0);
        let mut header = Self { bytes: [0; 28], length: 0 };
        header.push(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
        header.push(&error.to_be_bytes());
        header.push(&cookie.to_be_bytes());
        header
    }

    fn chunk(flags: u16, kind: u16, cookie: u64, length: u32) -> Self {
        let mut header = Self { bytes: [0; 28], length: 0 };
        header.push(&wire::CHUNK_MAGIC.to_be_bytes());
        header.push(&flags.to_be_bytes());
        header.push(&kind.to_be_bytes());
        header.push(&cookie.to_be_bytes());
        header.push(&length.to_be_bytes());
        header
    }

    fn push(&mut self, field: &[u8]) {
        let end = usize::from(self.length).saturating_add(field.len());
        let place = self.bytes.get_mut(usize::from(self.length)..end);
        place.expect("reply headers have at most 28 bytes").copy_from_slice(field);
        self.length = u8::try_from(end).expect("28 fits u8");
    }
}

/// How replies are written on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyCodec {
    structured: bool,
}

impl ReplyCodec {
    /// A codec for a connection with or without `structured` replies.
    #[must_use]
    pub const fn new(structured: bool) -> Self {
        Self { structured }
    }

    /// Whether structured replies were negotiated.
    #[must_use]
    pub const fn is_structured(self) -> bool {
        self.structured
    }

    /// Success of a request whose reply carries no data.
    #[must_use]
    pub fn success(self, cookie: u64) -> ReplyHeader {
        ReplyHeader::simple(cookie, 0)
    }

    /// Success of a READ; exactly `length` bytes of data must follow it on the socket.
    ///
    /// # Panics
    /// If `length` is zero or above [`crate::limits::REQUEST_BYTES_MAX`]: the session admits no such READ.
    #[must_use]
    pub fn data(self, cookie: u64, offset: u64, length: u32) -> ReplyHeader {
        assert!(length > 0, "a READ of nothing is refused before it gets here");
        if !self.structured {
            return ReplyHeader::simple(cookie, 0);
        }
        let payload = length.checked_add(8).expect("READ is limited to 64 MiB");
        let kind = wire::CHUNK_OFFSET_DATA;
        let mut header = ReplyHeader::chunk(wire::CHUNK_FLAG_DONE, kind, cookie, payload);
        let offset = spoiled(Bug::DataElsewhere, offset, 0);
        header.push(&offset.to_be_bytes());
        header
    }

    /// Failure of any request; `message` (cut at 4096 bytes) reaches clients with structured replies.
    #[must_use]
    pub fn failure(self, cookie: u64, error: ErrorCode, message: &str) -> Vec<u8> {
        if !self.structured {
            return ReplyHeader::simple(cookie, error.to_wire()).as_ref().to_vec();
        }
        let mut cut = message.len().min(NAME_BYTES_MAX);
        while !message.is_char_boundary(cut) {
            cut = cut.saturating_sub(1);
        }
        let text = message.split_at(cut).0;
        let text_bytes = u16::try_from(text.len()).expect("cut at 4096");
        let payload = u32::from(text_bytes).saturating_add(6);
        let header = ReplyHeader::chunk(wire::CHUNK_FLAG_DONE, wire::CHUNK_ERROR, cookie, payload);
        let mut bytes = header.as_ref().to_vec();
        bytes.extend_from_slice(&error.to_wire().to_be_bytes());
        bytes.extend_from_slice(&text_bytes.to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    /// Success of BLOCK_STATUS for `base:allocation`.
    ///
    /// # Panics
    /// If there is no extent, an empty one, or structured replies were not negotiated: our own mistakes.
    #[must_use]
    pub fn block_status(self, cookie: u64, extents: &[Extent]) -> Vec<u8> {
        assert!(self.structured, "BLOCK_STATUS is refused without structured replies");
        assert!(!extents.is_empty(), "BLOCK_STATUS answers with at least one extent");
        assert!(extents.iter().all(|extent| extent.length_bytes > 0), "no extent is empty");
        let payload = extents.len().checked_mul(8).and_then(|bytes| bytes.checked_add(4));
        let payload = payload.and_then(|bytes| u32::try_from(bytes).ok());
        let payload = payload.expect("the list of extents fits a chunk");
        let kind = wire::CHUNK_BLOCK_STATUS;
        let header = ReplyHeader::chunk(wire::CHUNK_FLAG_DONE, kind, cookie, payload);
        let mut bytes = header.as_ref().to_vec();
        bytes.extend_from_slice(&wire::CONTEXT_ALLOCATION_ID.to_be_bytes());
        for extent in extents {
            bytes.extend_from_slice(&extent.length_bytes.to_be_bytes());
            bytes.extend_from_slice(&extent.flags.to_be_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_the_bytes_of_the_specification() {
        let simple = ReplyCodec::new(false);
        let structured = ReplyCodec::new(true);
        let done = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let cookie = 0x0102_0304_0506_0708;
        assert_eq!(simple.success(cookie).as_ref(), done);
        assert_eq!(structured.success(cookie).as_ref(), done);
        assert_eq!(simple.data(cookie, 9, 4).as_ref(), done);
        let chunk = [
            0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 12, 0, 0, 0, 0, 0,
            0, 0, 9,
        ];
        assert_eq!(structured.data(cookie, 9, 4).as_ref(), chunk);
        let failed = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(simple.failure(cookie, ErrorCode::NoSpace, "full"), failed);
        let failed = [
            0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 10, 0, 0, 0,
            28, 0, 4, b'f', b'u', b'l', b'l',
        ];
        assert_eq!(structured.failure(cookie, ErrorCode::NoSpace, "full"), failed);
    }

    #[test]
    fn extents_are_cut_to_the_request() {
        let extent = |length_bytes, flags| Extent { length_bytes, flags };
        let given = [extent(10, 0), extent(20, 3), extent(30, 0)];
        assert_eq!(sound_extents(&given, 25, 9), [extent(10, 0), extent(15, 3)]);
        assert_eq!(sound_extents(&given, 10, 9), [extent(10, 0)]);
        assert_eq!(sound_extents(&given, 100, 1), [extent(10, 0)]);
        assert_eq!(sound_extents(&[], 7, 9), [extent(7, 0)]);
        assert_eq!(sound_extents(&[extent(0, 3)], 7, 9), [extent(7, 0)]);
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let message = "é".repeat(3000);
        let bytes = ReplyCodec::new(true).failure(1, ErrorCode::Io, &message);
        assert_eq!(bytes.len(), 20 + 6 + NAME_BYTES_MAX);
        let odd = format!("a{message}");
        let bytes = ReplyCodec::new(true).failure(1, ErrorCode::Io, &odd);
        assert_eq!(bytes.len(), 20 + 6 + NAME_BYTES_MAX - 1);
    }
}
