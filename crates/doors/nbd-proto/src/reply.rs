//! Reply headers of the transmission phase, as a server sends them.
//!
//! Where it stands: `frontend-nbd` takes a [`ReplyCodec`] when negotiation ends, and uses it on any
//! thread, in any order, since replies need no session state. The codec writes headers only: the
//! data of a READ goes from the export's own buffer to the socket, right after its header.
//!
//! Choices:
//! - A success without data is a simple reply even with structured replies. The specification
//!   allows simple replies for all commands but READ and BLOCK_STATUS.
//! - A READ is one OFFSET_DATA chunk, so "don't fragment" is always honoured.
//! - An error is an ERROR chunk with a message, if the client can read one.
//! - With extended headers every reply is a chunk, and all extents have 64 bits.

use braid_sim_hooks::{Bug, spoiled};

use crate::error::ErrorCode;
use crate::limits::NAME_BYTES_MAX;
use crate::request::Echo;
use crate::style::Style;
use crate::wire;

/// One extent of `base:allocation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The extent's length, in bytes; never zero.
    pub length_bytes: u64,
    /// The extent's flags: [`wire::STATE_HOLE`] and [`wire::STATE_ZERO`].
    pub flags: u32,
}

/// An export's extents, cut to a valid reply: at least one, none empty, none beyond the request.
#[must_use]
pub fn sound_extents(extents: &[Extent], length: u64, extents_max: usize) -> Vec<Extent> {
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

/// Length of the longest reply header, in bytes: an extended chunk's header with the offset of its
/// data.
const HEADER_BYTES_MAX: usize = 40;

/// A reply header, stored without an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    length: u8,
}

impl AsRef<[u8]> for ReplyHeader {
    fn as_ref(&self) -> &[u8] {
        self.bytes.split_at(usize::from(self.length)).0
    }
}

impl ReplyHeader {
    fn new() -> Self {
        Self { bytes: [0; HEADER_BYTES_MAX], length: 0 }
    }

    fn simple(cookie: u64, error: u32) -> Self {
        let cookie = spoiled(Bug::CookieOfBefore, cookie, cookie.wrapping_sub(1));
        let error = spoiled(Bug::ErrorUntold, error, 0);
        let mut header = Self::new();
        header.push(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
        header.push(&error.to_be_bytes());
        header.push(&cookie.to_be_bytes());
        header
    }

    fn push(&mut self, field: &[u8]) {
        let end = usize::from(self.length).saturating_add(field.len());
        let place = self.bytes.get_mut(usize::from(self.length)..end);
        place.expect("no reply header is longer").copy_from_slice(field);
        self.length = u8::try_from(end).expect("40 fits u8");
    }
}

/// Writes the replies of one connection, in its negotiated style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyCodec {
    style: Style,
}

impl ReplyCodec {
    /// Makes a codec for the negotiated style.
    #[must_use]
    pub const fn new(style: Style) -> Self {
        Self { style }
    }

    /// The negotiated style of the codec's replies.
    #[must_use]
    pub const fn style(self) -> Style {
        self.style
    }

    fn chunk(self, kind: u16, echo: Echo, length: u32) -> ReplyHeader {
        assert!(self.style.has_chunks(), "chunks are for clients that know them");
        let mut header = ReplyHeader::new();
        let is_extended = self.style.is_extended();
        let magic = if is_extended { wire::EXTENDED_CHUNK_MAGIC } else { wire::CHUNK_MAGIC };
        header.push(&magic.to_be_bytes());
        header.push(&wire::CHUNK_FLAG_DONE.to_be_bytes());
        header.push(&kind.to_be_bytes());
        header.push(&echo.cookie.to_be_bytes());
        if is_extended {
            header.push(&echo.offset.to_be_bytes());
            header.push(&u64::from(length).to_be_bytes());
        } else {
            header.push(&length.to_be_bytes());
        }
        header
    }

    /// Writes the successful reply to a request whose reply has no data.
    #[must_use]
    pub fn success(self, echo: Echo) -> ReplyHeader {
        if self.style.is_extended() {
            let Echo { cookie, offset } = echo;
            let cookie = spoiled(Bug::CookieOfBefore, cookie, cookie.wrapping_sub(1));
            return self.chunk(wire::CHUNK_NONE, Echo { cookie, offset }, 0);
        }
        ReplyHeader::simple(echo.cookie, 0)
    }

    /// Writes the successful reply header of a READ; exactly `length` bytes of data must follow the
    /// header on the socket.
    ///
    /// # Panics
    /// If `length` is zero or above [`crate::limits::REQUEST_BYTES_MAX`], which an admitted READ's
    /// length never is.
    #[must_use]
    pub fn data(self, echo: Echo, length: u32) -> ReplyHeader {
        assert!(length > 0, "a READ of nothing is refused before it gets here");
        if !self.style.has_chunks() {
            return ReplyHeader::simple(echo.cookie, 0);
        }
        let payload = length.checked_add(8).expect("READ is limited to 64 MiB");
        let mut header = self.chunk(wire::CHUNK_OFFSET_DATA, echo, payload);
        header.push(&echo.offset.to_be_bytes());
        header
    }

    /// Writes an error reply. Clients with chunk replies also get `message`, cut at 4096 bytes.
    #[must_use]
    pub fn failure(self, echo: Echo, error: ErrorCode, message: &str) -> Vec<u8> {
        if !self.style.has_chunks() {
            return ReplyHeader::simple(echo.cookie, error.to_wire()).as_ref().to_vec();
        }
        let mut cut = message.len().min(NAME_BYTES_MAX);
        while !message.is_char_boundary(cut) {
            cut = cut.saturating_sub(1);
        }
        let text = message.split_at(cut).0;
        let text_bytes = u16::try_from(text.len()).expect("cut at 4096");
        let payload = u32::from(text_bytes).saturating_add(6);
        let mut bytes = self.chunk(wire::CHUNK_ERROR, echo, payload).as_ref().to_vec();
        bytes.extend_from_slice(&error.to_wire().to_be_bytes());
        bytes.extend_from_slice(&text_bytes.to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    /// Writes the successful reply to BLOCK_STATUS for `base:allocation`.
    ///
    /// # Panics
    /// If `extents` is empty, an extent is empty or too long, or the style has no chunks.
    #[must_use]
    pub fn block_status(self, echo: Echo, extents: &[Extent]) -> Vec<u8> {
        assert!(!extents.is_empty(), "BLOCK_STATUS answers with at least one extent");
        assert!(extents.iter().all(|extent| extent.length_bytes > 0), "no extent is empty");
        let count = u32::try_from(extents.len()).expect("a list of our own");
        let (kind, of_list, of_extent) = if self.style.is_extended() {
            (wire::CHUNK_BLOCK_STATUS_EXT, 8, 16)
        } else {
            (wire::CHUNK_BLOCK_STATUS, 4, 8)
        };
        let payload = count.checked_mul(of_extent).and_then(|bytes| bytes.checked_add(of_list));
        let payload = payload.expect("the list of extents fits a chunk");
        let mut bytes = self.chunk(kind, echo, payload).as_ref().to_vec();
        bytes.extend_from_slice(&wire::CONTEXT_ALLOCATION_ID.to_be_bytes());
        if self.style.is_extended() {
            bytes.extend_from_slice(&count.to_be_bytes());
        }
        for extent in extents {
            if self.style.is_extended() {
                bytes.extend_from_slice(&extent.length_bytes.to_be_bytes());
                bytes.extend_from_slice(&u64::from(extent.flags).to_be_bytes());
            } else {
                let length = u32::try_from(extent.length_bytes);
                let length = length.expect("no longer than what was asked for");
                bytes.extend_from_slice(&length.to_be_bytes());
                bytes.extend_from_slice(&extent.flags.to_be_bytes());
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    const ECHO: Echo = Echo { cookie: u64::from_be_bytes(COOKIE), offset: 9 };

    #[test]
    fn headers_are_the_bytes_of_the_specification() {
        let simple = ReplyCodec::new(Style::Simple);
        let structured = ReplyCodec::new(Style::Structured);
        let done = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(simple.success(ECHO).as_ref(), done);
        assert_eq!(structured.success(ECHO).as_ref(), done);
        assert_eq!(simple.data(ECHO, 4).as_ref(), done);
        let chunk = [
            0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 12, 0, 0, 0, 0, 0,
            0, 0, 9,
        ];
        assert_eq!(structured.data(ECHO, 4).as_ref(), chunk);
        let failed = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(simple.failure(ECHO, ErrorCode::NoSpace, "full"), failed);
        let failed = [
            0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 10, 0, 0, 0,
            28, 0, 4, b'f', b'u', b'l', b'l',
        ];
        assert_eq!(structured.failure(ECHO, ErrorCode::NoSpace, "full"), failed);
    }

    /// A chunk header: magic, DONE, type, cookie, the request's offset, length, in the
    /// specification's order.
    fn extended(kind: [u8; 2], length: u8) -> Vec<u8> {
        let mut bytes = vec![0x6e, 0x8a, 0x27, 0x8c, 0, 1];
        bytes.extend_from_slice(&kind);
        bytes.extend_from_slice(&COOKIE);
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 9]);
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, length]);
        assert_eq!(bytes.len(), 32);
        bytes
    }

    #[test]
    fn extended_headers_are_the_bytes_of_the_specification() {
        let codec = ReplyCodec::new(Style::Extended);
        assert_eq!(codec.success(ECHO).as_ref(), extended([0, 0], 0));
        let data = [extended([0, 1], 12), vec![0, 0, 0, 0, 0, 0, 0, 9]].concat();
        assert_eq!(codec.data(ECHO, 4).as_ref(), data);
        let failed = [extended([0x80, 1], 10), b"\0\0\0\x1c\0\x04full".to_vec()].concat();
        assert_eq!(codec.failure(ECHO, ErrorCode::NoSpace, "full"), failed);
        let status = [
            extended([0, 6], 40),
            b"\0\0\0\x01\0\0\0\x02".to_vec(),
            b"\0\0\0\x05\0\0\0\x07\0\0\0\0\0\0\0\x03".to_vec(),
            b"\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0".to_vec(),
        ];
        let extents = [
            Extent { length_bytes: (5 << 32) + 7, flags: wire::STATE_HOLE | wire::STATE_ZERO },
            Extent { length_bytes: 4096, flags: 0 },
        ];
        assert_eq!(codec.block_status(ECHO, &extents), status.concat());
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
        let codec = ReplyCodec::new(Style::Structured);
        let message = "é".repeat(3000);
        let bytes = codec.failure(ECHO, ErrorCode::Io, &message);
        assert_eq!(bytes.len(), 20 + 6 + NAME_BYTES_MAX);
        let odd = format!("a{message}");
        let bytes = codec.failure(ECHO, ErrorCode::Io, &odd);
        assert_eq!(bytes.len(), 20 + 6 + NAME_BYTES_MAX - 1);
    }
}
