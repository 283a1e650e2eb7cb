//! The kernel's requests: parses messages into values.
//!
//! A message is a head, the arguments of its kind, and for WRITE a payload, which this module does
//! not parse.

use std::time::{Duration, SystemTime};

use zerocopy::FromBytes;

use crate::init::Kernel;
use crate::wire::{self, InHeader, falloc, opcode, set};

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The message is shorter than its kind requires.
    #[error("a message of {bytes} bytes is too short")]
    Short {
        /// The message's length in bytes.
        bytes: usize,
    },
    /// The length in the message's head is wrong.
    #[error("a message of {bytes} bytes says that it has {said}")]
    Length {
        /// The length in the message's head.
        said: u32,
        /// The message's actual length in bytes.
        bytes: usize,
    },
}

/// A message's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kernel's ID of the request.
    pub unique: u64,
    /// The request's kind: [`crate::wire::opcode`].
    pub opcode: u32,
    /// The number of the file's node.
    pub node: u64,
}

impl Head {
    /// Parses the head of a message that is `total_bytes` long.
    ///
    /// # Errors
    /// The message is too short, or its head gives another length.
    pub fn parse(bytes: &[u8], total_bytes: usize) -> Result<Self, ParseError> {
        let short = ParseError::Short { bytes: bytes.len().min(total_bytes) };
        let (header, _) = InHeader::read_from_prefix(bytes).map_err(|_| short)?;
        if usize::try_from(header.len) != Ok(total_bytes) {
            return Err(ParseError::Length { said: header.len, bytes: total_bytes });
        }
        Ok(Self::of(&header))
    }

    /// Parses the head of a message from a ring, in which each part has its own length.
    ///
    /// # Errors
    /// The message is too short.
    pub fn parse_ring(bytes: &[u8]) -> Result<Self, ParseError> {
        let short = ParseError::Short { bytes: bytes.len() };
        let (header, _) = InHeader::read_from_prefix(bytes).map_err(|_| short)?;
        Ok(Self::of(&header))
    }

    fn of(header: &InHeader) -> Self {
        Self { unique: header.unique, opcode: header.opcode, node: header.nodeid }
    }
}

/// A time that SETATTR sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWish {
    /// The present time.
    Now,
    /// The given time.
    At(SystemTime),
}

/// The changes of a SETATTR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// The file's new size, if it changes.
    pub size_bytes: Option<u64>,
    /// The new time of the last read, if it changes.
    pub accessed: Option<TimeWish>,
    /// The new time of the last change, if it changes.
    pub modified: Option<TimeWish>,
    /// Whether the request changes permissions or the owner.
    pub changes_access: bool,
}

/// The target of lseek(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The start of the next data.
    Data,
    /// The start of the next hole.
    Hole,
}

/// One request of the kernel. Offsets and lengths are in bytes and untrusted, since they are not
/// yet compared with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are what the variant's line says
pub enum Request {
    /// INIT, the first request of the kernel.
    Init(Kernel),
    /// Asks for the file's attributes that stat(2) shows.
    GetAttributes,
    /// Changes some attributes of the file.
    SetAttributes(SetAttributes),
    /// Opens the file.
    Open,
    /// Closes an open file, whose last descriptor was closed.
    Release,
    /// A program closed one of its descriptors.
    Flush,
    Read {
        offset: u64,
        length: u32,
    },
    /// Writes to the file. `payload_bytes`: bytes that came with the message; `durable`: the data
    /// is durable before the answer.
    Write {
        offset: u64,
        length: u32,
        payload_bytes: usize,
        durable: bool,
    },
    /// Makes all acknowledged writes durable.
    Sync,
    Fallocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: Whence,
    },
    /// Asks for the file system's numbers that statfs(2) shows.
    FileSystem,
    /// Asks whether the calling program has these rights: 2 to write, 1 to execute.
    Access {
        mask: u32,
    },
    /// Cancels another request; this request has no answer.
    Interrupt,
    /// The kernel forgets the file; this request has no answer.
    Forget,
    /// The kernel releases the file system.
    Destroy,
    /// Any other request.
    Other,
}

fn time(is_set: bool, is_now: bool, seconds: u64, nanoseconds: u32) -> Option<TimeWish> {
    if !is_set {
        return None;
    }
    if is_now {
        return Some(TimeWish::Now);
    }
    // A time before 1970 is a negative number in the same field.
    let nanoseconds = Duration::from_nanos(nanoseconds.into());
    let seconds = seconds.cast_signed();
    let away = Duration::from_secs(seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let whole = if seconds < 0 { epoch.checked_sub(away) } else { epoch.checked_add(away) };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).map(TimeWish::At)
}

impl Request {
    /// Parses the arguments of a request, which `payload_bytes` of payload follow.
    ///
    /// # Errors
    /// The arguments are too short for the request's kind.
    pub fn parse(head: &Head, arguments: &[u8], payload_bytes: usize) -> Result<Self, ParseError> {
        Ok(match head.opcode {
            opcode::INIT => Self::Init(init(arguments)?),
            opcode::GETATTR => Self::GetAttributes,
            opcode::SETATTR => Self::SetAttributes(set_attributes(&read(arguments)?)),
            opcode::OPEN => Self::Open,
            opcode::RELEASE => Self::Release,
            opcode::FLUSH => Self::Flush,
            opcode::READ => {
                let wire::ReadIn { offset, size, .. } = read(arguments)?;
                Self::Read { offset, length: size }
            }
            opcode::WRITE => {
                let wire::WriteIn { offset, size, flags, .. } = read(arguments)?;
                let durable = flags & (wire::O_DSYNC | wire::O_SYNC_ONLY) != 0;
                Self::Write { offset, length: size, payload_bytes, durable }
            }
            opcode::FSYNC => Self::Sync,
            opcode::FALLOCATE => {
                let wire::FallocateIn { offset, length, mode, .. } = read(arguments)?;
                Self::Fallocate { offset, length, mode }
            }
            opcode::LSEEK => {
                let wire::LseekIn { offset, whence, .. } = read(arguments)?;
                match whence {
                    wire::SEEK_DATA => Self::Seek { offset, whence: Whence::Data },
                    wire::SEEK_HOLE => Self::Seek { offset, whence: Whence::Hole },
                    _ => Self::Other,
                }
            }
            opcode::STATFS => Self::FileSystem,
            opcode::ACCESS => Self::Access { mask: read::<wire::AccessIn>(arguments)?.mask },
            opcode::INTERRUPT => Self::Interrupt,
            opcode::FORGET | opcode::BATCH_FORGET => Self::Forget,
            opcode::DESTROY => Self::Destroy,
            _ => Self::Other,
        })
    }
}

fn read<T: FromBytes>(bytes: &[u8]) -> Result<T, ParseError> {
    let short = ParseError::Short { bytes: bytes.len() };
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| short)
}

/// Parses INIT. The upper half of the flags is newer than the lower half, and a flag in the lower
/// half announces the upper half.
fn init(arguments: &[u8]) -> Result<Kernel, ParseError> {
    let wire::InitIn { major, minor, max_readahead, flags } = read(arguments)?;
    let high = match arguments.get(size_of::<wire::InitIn>()..) {
        Some(rest) if u64::from(flags) & wire::init::INIT_EXT != 0 => read::<u32>(rest)?,
        _ => 0,
    };
    let flags = u64::from(flags) | (u64::from(high) << 32);
    Ok(Kernel { major, minor, readahead_bytes: max_readahead, flags })
}

fn set_attributes(wire: &wire::SetattrIn) -> SetAttributes {
    let has = |bit| wire.valid & bit != 0;
    SetAttributes {
        size_bytes: has(set::SIZE).then_some(wire.size),
        accessed: time(has(set::ATIME), has(set::ATIME_NOW), wire.atime, wire.atimensec),
        modified: time(has(set::MTIME), has(set::MTIME_NOW), wire.mtime, wire.mtimensec),
        changes_access: wire.valid & (set::MODE | set::UID | set::GID) != 0,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// Allocate the range, which needs no work, since the whole file is allocated.
    Keep { keeps_size: bool },
    /// Make the range read as zeroes; the range need not stay allocated.
    Punch,
    /// Make the range read as zeroes and stay allocated.
    Zero { keeps_size: bool },
}

impl Allocation {
    /// The kind of a fallocate request, from its `mode`. The kernel passes no other combinations of
    /// the known bits.
    pub(crate) fn of(mode: u32) -> Option<Self> {
        const PUNCH: u32 = falloc::PUNCH_HOLE | falloc::KEEP_SIZE;
        const ZERO_KEEP: u32 = falloc::ZERO_RANGE | falloc::KEEP_SIZE;
        match mode {
            0 => Some(Self::Keep { keeps_size: false }),
            falloc::KEEP_SIZE => Some(Self::Keep { keeps_size: true }),
            PUNCH => Some(Self::Punch),
            falloc::ZERO_RANGE => Some(Self::Zero { keeps_size: false }),
            ZERO_KEEP => Some(Self::Zero { keeps_size: true }),
            _ => None,
        }
    }
}
