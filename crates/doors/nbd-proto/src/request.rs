//! Requests of the transmission phase: headers of both lengths, and the checks for a [`Command`].
//!
//! Where it stands: the server session decodes a header and admits the request with this module;
//! the client session encodes with the same type. [`admit`] is a pure function of header, export
//! and negotiated features; it depends on no socket and no order.
//!
//! The checks, in this order (the first that fails gives the error):
//!
//! ```text
//!  command known            EINVAL        length not zero             EINVAL
//!  flags known for it       EINVAL        offset, length aligned      EINVAL
//!  payload where it must be EINVAL        length within the maximum   EINVAL   READ, WRITE
//!  export writable          EPERM         offset + length within      ENOSPC, EINVAL
//!  context negotiated       EINVAL
//! ```
//!
//! A range past the end is ENOSPC for WRITE and WRITE_ZEROES, else EINVAL.
//!
//! Two choices that the specification leaves open. A zero length is EINVAL (the specification calls
//! the result unspecified). TRIM, WRITE_ZEROES, CACHE and BLOCK_STATUS may exceed the maximum block
//! size: these commands carry no payload, and clients such as nbdcopy send them for whole holes or
//! exports.
//!
//! With extended headers, a flag says that the length of a WRITE is the length of its payload. A
//! WRITE without the flag is refused, and no payload follows it. Other commands with the flag are
//! refused as for any unknown flag; the session still skips their payload, since the next request
//! follows the payload. BLOCK_STATUS with a payload, which chooses among contexts, is not offered:
//! the server has one context.
//!
//! Invariants
//! - No request is admitted whose range reaches past the export:
//!   `tests::no_admitted_range_leaves_the_export`.

use braid_sim_hooks::{Bug, spoiled};

use crate::collect::Cursor;
use crate::error::ErrorCode;
use crate::export::ExportDescription;
use crate::style::Style;
use crate::wire;

/// The header of a client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// The request's flags, `CMD_FLAG_*`.
    pub flags: u16,
    /// The request's command, `CMD_*`.
    pub kind: u16,
    /// The client's name for the request, returned in its reply ("handle" in older texts).
    pub cookie: u64,
    /// Offset of the request's first byte.
    pub offset: u64,
    /// The request's length, in bytes.
    pub length: u64,
}

impl RequestHeader {
    /// Parses a request header; `None` if the magic or the number of bytes is not that of `style`.
    #[must_use]
    pub fn decode(bytes: &[u8], style: Style) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let magic =
            if style.is_extended() { wire::EXTENDED_REQUEST_MAGIC } else { wire::REQUEST_MAGIC };
        if cursor.u32()? != magic {
            return None;
        }
        let (flags, kind) = (cursor.u16()?, cursor.u16()?);
        let (cookie, offset) = (cursor.u64()?, cursor.u64()?);
        let length = if style.is_extended() { cursor.u64()? } else { u64::from(cursor.u32()?) };
        cursor.is_empty().then_some(Self { flags, kind, cookie, offset, length })
    }

    /// Encodes the compact request header.
    ///
    /// # Panics
    /// If the length does not fit, since only extended headers have a length of 64 bits.
    #[must_use]
    pub fn encode(&self) -> [u8; wire::REQUEST_BYTES] {
        let length = u32::try_from(self.length).expect("longer ranges need extended headers");
        let mut bytes = Vec::with_capacity(wire::REQUEST_BYTES);
        bytes.extend_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
        self.encode_middle(&mut bytes);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.try_into().expect("six fields are 28 bytes")
    }

    /// Encodes the extended request header. For a command with a payload the caller has set
    /// [`wire::CMD_FLAG_PAYLOAD_LEN`].
    #[must_use]
    pub fn encode_extended(&self) -> [u8; wire::EXTENDED_REQUEST_BYTES] {
        let mut bytes = Vec::with_capacity(wire::EXTENDED_REQUEST_BYTES);
        bytes.extend_from_slice(&wire::EXTENDED_REQUEST_MAGIC.to_be_bytes());
        self.encode_middle(&mut bytes);
        bytes.extend_from_slice(&self.length.to_be_bytes());
        bytes.try_into().expect("six fields are 32 bytes")
    }

    fn encode_middle(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.flags.to_be_bytes());
        bytes.extend_from_slice(&self.kind.to_be_bytes());
        bytes.extend_from_slice(&self.cookie.to_be_bytes());
        bytes.extend_from_slice(&self.offset.to_be_bytes());
    }

    /// Number of payload bytes that follow the header on the wire, for any command.
    #[must_use]
    pub const fn payload_bytes(&self, style: Style) -> u64 {
        let has_payload = if style.is_extended() {
            self.flags & wire::CMD_FLAG_PAYLOAD_LEN != 0
        } else {
            self.kind == wire::CMD_WRITE
        };
        if has_payload { self.length } else { 0 }
    }

    /// The fields of the request that its reply repeats: see [`Echo`].
    #[must_use]
    pub const fn echo(&self) -> Echo {
        Echo { cookie: self.cookie, offset: self.offset }
    }
}

/// The fields of a request that its reply repeats: the cookie, and with extended headers the
/// offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The client's name for the request.
    pub cookie: u64,
    /// Offset of the request's first byte.
    pub offset: u64,
}

/// A request's header on the wire, stored without an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestBytes {
    bytes: [u8; wire::EXTENDED_REQUEST_BYTES],
    length: usize,
}

impl RequestBytes {
    pub(crate) fn new(header: &[u8]) -> Self {
        let mut bytes = [0; wire::EXTENDED_REQUEST_BYTES];
        let place = bytes.get_mut(..header.len());
        place.expect("no header is longer").copy_from_slice(header);
        Self { bytes, length: header.len() }
    }
}

impl std::ops::Deref for RequestBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.split_at(self.length).0
    }
}

/// The command of a client's request, which has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // every variant has the same four fields: offset, length, fua, and what its line says
pub enum Command {
    /// Read `length` bytes. `dont_fragment`: the reply has one content chunk.
    Read { offset: u64, length: u32, dont_fragment: bool },
    /// Write the `length` bytes that follow. `fua`: the write is durable before the reply.
    Write { offset: u64, length: u32, fua: bool },
    /// Make all writes durable whose replies have been sent.
    Flush,
    /// Trim: the client no longer needs the content of the range.
    Trim { offset: u64, length: u64, fua: bool },
    /// Make the range read as zeroes. `may_punch`: the range's storage may be freed. `fast`: fail
    /// rather than be slow.
    WriteZeroes { offset: u64, length: u64, fua: bool, may_punch: bool, fast: bool },
    /// Cache: the client will read the range soon.
    Cache { offset: u64, length: u64 },
    /// Describe the range in the negotiated context. `one`: the reply has one extent.
    BlockStatus { offset: u64, length: u64, one: bool },
}

impl Command {
    /// The compact header. For an extended header, [`Command::bytes`] adds the payload flag.
    #[must_use]
    pub fn header(&self, cookie: u64) -> RequestHeader {
        let bit = |set: bool, flag: u16| if set { flag } else { 0 };
        let (kind, flags, offset, length) = match *self {
            Self::Read { offset, length, dont_fragment } => {
                (wire::CMD_READ, bit(dont_fragment, wire::CMD_FLAG_DF), offset, length.into())
            }
            Self::Write { offset, length, fua } => {
                (wire::CMD_WRITE, bit(fua, wire::CMD_FLAG_FUA), offset, length.into())
            }
            Self::Flush => (wire::CMD_FLUSH, 0, 0, 0),
            Self::Trim { offset, length, fua } => {
                (wire::CMD_TRIM, bit(fua, wire::CMD_FLAG_FUA), offset, length)
            }
            Self::WriteZeroes { offset, length, fua, may_punch, fast } => {
                let flags = bit(fua, wire::CMD_FLAG_FUA)
                    | bit(!may_punch, wire::CMD_FLAG_NO_HOLE)
                    | bit(fast, wire::CMD_FLAG_FAST_ZERO);
                (wire::CMD_WRITE_ZEROES, flags, offset, length)
            }
            Self::Cache { offset, length } => (wire::CMD_CACHE, 0, offset, length),
            Self::BlockStatus { offset, length, one } => {
                (wire::CMD_BLOCK_STATUS, bit(one, wire::CMD_FLAG_REQ_ONE), offset, length)
            }
        };
        RequestHeader { flags, kind, cookie, offset, length }
    }

    /// The header of this command on the wire; a payload follows it.
    ///
    /// # Panics
    /// If the style's header has no room for the command's length.
    #[must_use]
    pub fn bytes(&self, cookie: u64, style: Style) -> RequestBytes {
        let mut header = self.header(cookie);
        if !style.is_extended() {
            return RequestBytes::new(&header.encode());
        }
        if self.payload_bytes() > 0 {
            header.flags |= wire::CMD_FLAG_PAYLOAD_LEN;
        }
        RequestBytes::new(&header.encode_extended())
    }

    /// Offset of the first byte of the command's range; 0 for a command without a range.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        match *self {
            Self::Read { offset, .. }
            | Self::Write { offset, .. }
            | Self::Trim { offset, .. }
            | Self::WriteZeroes { offset, .. }
            | Self::Cache { offset, .. }
            | Self::BlockStatus { offset, .. } => offset,
            Self::Flush => 0,
        }
    }

    /// Number of payload bytes that follow the command's header on the wire.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        match self {
            Self::Write { length, .. } => *length,
            _ => 0,
        }
    }
}

/// A request that was checked and admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The client's name for the request, which the reply repeats.
    pub cookie: u64,
    /// The checked command.
    pub command: Command,
}

impl Request {
    /// The fields that the request's reply repeats.
    #[must_use]
    pub const fn echo(&self) -> Echo {
        Echo { cookie: self.cookie, offset: self.command.offset() }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The error code of the reply to the refused request.
    pub error: ErrorCode,
    /// The text of the message in the reply to the refused request.
    pub reason: &'static str,
}

const fn refuse(error: ErrorCode, reason: &'static str) -> Result<Command, Refusal> {
    Err(Refusal { error, reason })
}

/// Turns a request header into a [`Command`], or refuses the request.
pub(crate) fn admit(
    header: &RequestHeader,
    export: &ExportDescription,
    style: Style,
    context: bool,
) -> Result<Command, Refusal> {
    let RequestHeader { flags, kind, offset, length, .. } = *header;
    let Some(known) = known_flags(kind, style) else {
        return refuse(ErrorCode::Invalid, "unknown command");
    };
    let unknown = flags & !known;
    if unknown != 0 {
        return refuse(ErrorCode::Invalid, "unknown flag for this command");
    }
    let set = |flag: u16| flags & flag != 0;
    if style.is_extended() && kind == wire::CMD_WRITE && !set(wire::CMD_FLAG_PAYLOAD_LEN) {
        return refuse(ErrorCode::Invalid, "a WRITE whose length is not its payload's");
    }
    if kind == wire::CMD_FLUSH {
        if offset == 0 && length == 0 {
            return Ok(Command::Flush);
        }
        return refuse(ErrorCode::Invalid, "FLUSH has neither offset nor length");
    }
    if kind == wire::CMD_BLOCK_STATUS && !context {
        return refuse(ErrorCode::Invalid, "no meta context was negotiated");
    }
    check_range(header, export)?;
    let fua = set(wire::CMD_FLAG_FUA);
    let of_payload = || u32::try_from(length).expect("no longer than the maximum block size");
    Ok(match kind {
        wire::CMD_READ => {
            let dont_fragment = set(wire::CMD_FLAG_DF);
            Command::Read { offset, length: of_payload(), dont_fragment }
        }
        wire::CMD_WRITE => Command::Write { offset, length: of_payload(), fua },
        wire::CMD_TRIM => Command::Trim { offset, length, fua },
        wire::CMD_CACHE => Command::Cache { offset, length },
        wire::CMD_WRITE_ZEROES => Command::WriteZeroes {
            offset,
            length,
            fua,
            may_punch: !set(wire::CMD_FLAG_NO_HOLE),
            fast: set(wire::CMD_FLAG_FAST_ZERO),
        },
        _ => Command::BlockStatus { offset, length, one: set(wire::CMD_FLAG_REQ_ONE) },
    })
}

/// The flags that a command may carry; `None` for an unknown command. FUA is valid on all commands.
fn known_flags(kind: u16, style: Style) -> Option<u16> {
    let own = match kind {
        wire::CMD_READ if style.has_chunks() => wire::CMD_FLAG_DF,
        wire::CMD_WRITE if style.is_extended() => wire::CMD_FLAG_PAYLOAD_LEN,
        wire::CMD_WRITE_ZEROES => wire::CMD_FLAG_NO_HOLE | wire::CMD_FLAG_FAST_ZERO,
        wire::CMD_BLOCK_STATUS => wire::CMD_FLAG_REQ_ONE,
        wire::CMD_READ | wire::CMD_WRITE | wire::CMD_FLUSH | wire::CMD_TRIM | wire::CMD_CACHE => 0,
        _ => return None,
    };
    Some(own | wire::CMD_FLAG_FUA)
}

fn check_range(header: &RequestHeader, export: &ExportDescription) -> Result<(), Refusal> {
    let RequestHeader { kind, offset, length, .. } = *header;
    let fail = |error, reason| Err(Refusal { error, reason });
    let writes = matches!(kind, wire::CMD_WRITE | wire::CMD_TRIM | wire::CMD_WRITE_ZEROES);
    if writes && export.read_only {
        return fail(ErrorCode::Permission, "the export is read-only");
    }
    let is_empty = length == 0;
    if is_empty {
        return fail(ErrorCode::Invalid, "length is zero");
    }
    let minimum = u64::from(export.block_sizes.minimum_bytes());
    if !offset.is_multiple_of(minimum) || !length.is_multiple_of(minimum) {
        return fail(ErrorCode::Invalid, "not aligned to the minimum block size");
    }
    let is_limited = matches!(kind, wire::CMD_READ | wire::CMD_WRITE);
    if is_limited && length > u64::from(export.block_sizes.maximum_bytes()) {
        return fail(ErrorCode::Invalid, "longer than the maximum block size");
    }
    let end = offset.checked_add(length);
    let is_beyond = end.is_none_or(|end| end > export.size_bytes);
    let is_beyond = spoiled(Bug::EndUnchecked, is_beyond, false);
    if is_beyond {
        let grows = matches!(kind, wire::CMD_WRITE | wire::CMD_WRITE_ZEROES);
        let error = if grows { ErrorCode::NoSpace } else { ErrorCode::Invalid };
        return fail(error, "beyond the end of the export");
    }
    Ok(())
}

#[cfg(test)]
#[path = "request_tests.rs"]
#[allow(clippy::arithmetic_side_effects)]
mod tests;
