//! Requests of the transmission phase: the 28-byte header, and the checks that make it a [`Command`].
//!
//! Where it stands: the server session decodes a header and admits it here; the client session encodes with the same
//! type. [`admit`] is a pure function of header, export and negotiated features; it knows no socket and no order.
//!
//! The checks, in this order (the first that fails gives the error):
//!
//! ```text
//!  command known            EINVAL        length not zero             EINVAL
//!  flags known for it       EINVAL        offset, length aligned      EINVAL
//!  export writable          EPERM         length within the maximum   EINVAL   READ, WRITE, CACHE
//!  context negotiated       EINVAL        offset + length within      ENOSPC for WRITE, WRITE_ZEROES; else EINVAL
//! ```
//!
//! Two choices where the specification leaves one. A zero length is EINVAL (it calls the result unspecified). TRIM,
//! WRITE_ZEROES and BLOCK_STATUS may be longer than the maximum block size: they carry no payload, and clients such as
//! nbdcopy send them for whole holes.
//!
//! Invariants
//! - Nothing is admitted that reaches past the export: `tests::no_admitted_range_leaves_the_export`.

use braid_hooks::{Bug, spoiled};

use crate::collect::Cursor;
use crate::error::ErrorCode;
use crate::export::ExportDescription;
use crate::wire;

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// `CMD_FLAG_*` bits.
    pub flags: u16,
    /// `CMD_*`.
    pub kind: u16,
    /// The client's name for the request, returned in its reply ("handle" in older texts).
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length, in bytes.
    pub length: u32,
}

impl RequestHeader {
    /// Reads a header; `None` if it does not begin with the magic or is not 28 bytes long.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u32()? != wire::REQUEST_MAGIC {
            return None;
        }
        let header = Self {
            flags: cursor.u16()?,
            kind: cursor.u16()?,
            cookie: cursor.u64()?,
            offset: cursor.u64()?,
            length: cursor.u32()?,
        };
        cursor.is_empty().then_some(header)
    }

    /// Writes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; wire::REQUEST_BYTES] {
        let mut bytes = Vec::with_capacity(wire::REQUEST_BYTES);
        bytes.extend_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
        bytes.extend_from_slice(&self.flags.to_be_bytes());
        bytes.extend_from_slice(&self.kind.to_be_bytes());
        bytes.extend_from_slice(&self.cookie.to_be_bytes());
        bytes.extend_from_slice(&self.offset.to_be_bytes());
        bytes.extend_from_slice(&self.length.to_be_bytes());
        bytes.try_into().expect("six fields are 28 bytes")
    }
}

/// What a client asks for, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // every variant has the same four fields: offset, length, fua, and what its line says
pub enum Command {
    /// Read `length` bytes. `dont_fragment`: in one content chunk.
    Read { offset: u64, length: u32, dont_fragment: bool },
    /// Write the `length` bytes that follow. `fua`: durable before the reply.
    Write { offset: u64, length: u32, fua: bool },
    /// Make everything replied to so far durable.
    Flush,
    /// The range is not needed any more.
    Trim { offset: u64, length: u32, fua: bool },
    /// Make the range read as zeroes. `may_punch`: it need not stay allocated. `fast`: or fail at once.
    WriteZeroes { offset: u64, length: u32, fua: bool, may_punch: bool, fast: bool },
    /// The range will be wanted soon.
    Cache { offset: u64, length: u32 },
    /// Describe the range in the negotiated context. `one`: by one extent.
    BlockStatus { offset: u64, length: u32, one: bool },
}

impl Command {
    /// The header that asks for this.
    #[must_use]
    pub fn header(&self, cookie: u64) -> RequestHeader {
        let bit = |set: bool, flag: u16| if set { flag } else { 0 };
        let (kind, flags, offset, length) = match *self {
            Self::Read { offset, length, dont_fragment } => {
                (wire::CMD_READ, bit(dont_fragment, wire::CMD_FLAG_DF), offset, length)
            }
            Self::Write { offset, length, fua } => {
                (wire::CMD_WRITE, bit(fua, wire::CMD_FLAG_FUA), offset, length)
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

    /// Bytes of payload that follow the header on the wire.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        match self {
            Self::Write { length, .. } => *length,
            _ => 0,
        }
    }
}

/// An admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Goes back in the reply.
    pub cookie: u64,
    /// What to do.
    pub command: Command,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// For the reply.
    pub error: ErrorCode,
    /// For the reply's message.
    pub reason: &'static str,
}

const fn refuse(error: ErrorCode, reason: &'static str) -> Result<Command, Refusal> {
    Err(Refusal { error, reason })
}

/// Makes a [`Command`] of a header, or says why not.
pub(crate) fn admit(
    header: &RequestHeader,
    export: &ExportDescription,
    structured: bool,
    context: bool,
) -> Result<Command, Refusal> {
    let RequestHeader { flags, kind, offset, length, .. } = *header;
    let Some(known) = known_flags(kind, structured) else {
        return refuse(ErrorCode::Invalid, "unknown command");
    };
    let unknown = flags & !known;
    let unknown = spoiled(Bug::FlagsUnchecked, unknown, 0);
    if unknown != 0 {
        return refuse(ErrorCode::Invalid, "unknown flag for this command");
    }
    let set = |flag: u16| flags & flag != 0;
    let fua = set(wire::CMD_FLAG_FUA);
    let fua = spoiled(Bug::FuaUnread, fua, false);
    let command = match kind {
        wire::CMD_READ => Command::Read { offset, length, dont_fragment: set(wire::CMD_FLAG_DF) },
        wire::CMD_WRITE => Command::Write { offset, length, fua },
        wire::CMD_TRIM => Command::Trim { offset, length, fua },
        wire::CMD_CACHE => Command::Cache { offset, length },
        wire::CMD_WRITE_ZEROES => Command::WriteZeroes {
            offset,
            length,
            fua,
            may_punch: !set(wire::CMD_FLAG_NO_HOLE),
            fast: set(wire::CMD_FLAG_FAST_ZERO),
        },
        wire::CMD_BLOCK_STATUS if !context => {
            return refuse(ErrorCode::Invalid, "no meta context was negotiated");
        }
        wire::CMD_BLOCK_STATUS => {
            Command::BlockStatus { offset, length, one: set(wire::CMD_FLAG_REQ_ONE) }
        }
        wire::CMD_FLUSH if offset == 0 && length == 0 => return Ok(Command::Flush),
        _ => return refuse(ErrorCode::Invalid, "FLUSH has neither offset nor length"),
    };
    check_range(&command, offset, length, export)?;
    Ok(command)
}

/// The flags a command may carry; `None` for an unknown command. FUA is valid on all of them.
fn known_flags(kind: u16, structured: bool) -> Option<u16> {
    let own = match kind {
        wire::CMD_READ if structured => wire::CMD_FLAG_DF,
        wire::CMD_WRITE_ZEROES => wire::CMD_FLAG_NO_HOLE | wire::CMD_FLAG_FAST_ZERO,
        wire::CMD_BLOCK_STATUS => wire::CMD_FLAG_REQ_ONE,
        wire::CMD_READ | wire::CMD_WRITE | wire::CMD_FLUSH | wire::CMD_TRIM | wire::CMD_CACHE => 0,
        _ => return None,
    };
    Some(own | wire::CMD_FLAG_FUA)
}

fn check_range(
    command: &Command,
    offset: u64,
    length: u32,
    export: &ExportDescription,
) -> Result<(), Refusal> {
    let fail = |error, reason| Err(Refusal { error, reason });
    let writes = matches!(
        command,
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
    );
    if writes && export.read_only {
        return fail(ErrorCode::Permission, "the export is read-only");
    }
    let is_empty = length == 0;
    let is_empty = spoiled(Bug::ZeroLengthAdmitted, is_empty, false);
    if is_empty {
        return fail(ErrorCode::Invalid, "length is zero");
    }
    let minimum = export.block_sizes.minimum_bytes();
    if !offset.is_multiple_of(u64::from(minimum)) || !length.is_multiple_of(minimum) {
        return fail(ErrorCode::Invalid, "not aligned to the minimum block size");
    }
    let limited =
        matches!(command, Command::Read { .. } | Command::Write { .. } | Command::Cache { .. });
    if limited && length > export.block_sizes.maximum_bytes() {
        return fail(ErrorCode::Invalid, "longer than the maximum block size");
    }
    let end = offset.checked_add(u64::from(length));
    let is_beyond = end.is_none_or(|end| end > export.size_bytes);
    let is_beyond = spoiled(Bug::EndUnchecked, is_beyond, false);
    if is_beyond {
        let grows = matches!(command, Command::Write { .. } | Command::WriteZeroes { .. });
        let error = if grows { ErrorCode::NoSpace } else { ErrorCode::Invalid };
        return fail(error, "beyond the end of the export");
    }
    Ok(())
}

#[cfg(test)]
#[path = "request_tests.rs"]
#[allow(clippy::arithmetic_side_effects)]
mod tests;
