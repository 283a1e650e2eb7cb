//! Parses a device's request, which is untrusted, into a value, and gives the request's result for
//! the kernel.

use crate::limits::REQUEST_BYTES_MAX;
use crate::wire::{Description, PAYLOADS_AT, QUEUE_BIT, TAG_BIT, flag, operation};

/// A request to a ublk device. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are what the variant's line says
pub enum Request {
    /// Read the payload from `offset`.
    Read { offset: u64, length: u32 },
    /// Write the payload at `offset`; if `durable`, the write is durable before the answer.
    Write { offset: u64, length: u32, durable: bool },
    /// Make all acknowledged writes durable.
    Flush,
    /// Discard: the client no longer needs the range's content.
    Discard { offset: u64, length: u64, durable: bool },
    /// Make a range read as zeroes; with `may_punch` the range need not stay allocated.
    Zero { offset: u64, length: u64, may_punch: bool, durable: bool },
}

/// Why a description is not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The description has an unknown operation.
    #[error("operation {0} is not known")]
    Operation(u32),
    /// The description has a range outside the device.
    #[error("{sectors} sectors from {first} on do not lie within the device")]
    Range {
        /// The first sector of the range.
        first: u64,
        /// The number of sectors of the range.
        sectors: u32,
    },
    /// The description has an empty range.
    #[error("operation {0} is about no sectors")]
    Empty(u32),
    /// The description has a payload longer than the agreed limit.
    #[error("a payload of {0} sectors is too long")]
    TooLong(u32),
}

/// An error, by Linux's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as errno(3) names them
#[repr(i32)]
pub enum Errno {
    Io = 5,
    NoMemory = 12,
    Invalid = 22,
    NoSpace = 28,
    ReadOnly = 30,
    NotSupported = 95,
}

impl Request {
    /// Parses the description of a request to a device of `size_bytes`.
    ///
    /// # Errors
    /// The description is invalid for this device.
    pub fn parse(told: &Description, size_bytes: u64) -> Result<Self, ParseError> {
        let (code, how) = (told.op_flags & 0xff, told.op_flags);
        let (durable, may_punch) = (how & flag::FUA != 0, how & flag::NOUNMAP == 0);
        if code == operation::FLUSH {
            return Ok(Self::Flush);
        }
        let bytes = |sectors: u64| sectors.checked_mul(512);
        let range = bytes(told.start_sector).zip(bytes(u64::from(told.nr_sectors)));
        let lies_within = |&(offset, length): &(u64, u64)| {
            offset.checked_add(length).is_some_and(|end| end <= size_bytes)
        };
        let (first, sectors) = (told.start_sector, told.nr_sectors);
        let range = range.filter(lies_within).ok_or(ParseError::Range { first, sectors });
        let payload = || {
            let (offset, length) = range?;
            let length = u32::try_from(length).ok().filter(|length| *length <= REQUEST_BYTES_MAX);
            length.map(|length| (offset, length)).ok_or(ParseError::TooLong(sectors))
        };
        if matches!(range, Ok((_, 0))) {
            return Err(ParseError::Empty(code));
        }
        match code {
            operation::READ => payload().map(|(offset, length)| Self::Read { offset, length }),
            operation::WRITE => {
                payload().map(|(offset, length)| Self::Write { offset, length, durable })
            }
            operation::DISCARD => {
                range.map(|(offset, length)| Self::Discard { offset, length, durable })
            }
            operation::WRITE_ZEROES => {
                range.map(|(offset, length)| Self::Zero { offset, length, may_punch, durable })
            }
            other => Err(ParseError::Operation(other)),
        }
    }

    /// Number of bytes of the request's payload.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        match self {
            Self::Read { length, .. } | Self::Write { length, .. } => *length,
            _ => 0,
        }
    }
}

/// A request's result as the kernel expects it: the number of payload bytes, or a negative error.
#[must_use]
pub fn answer(result: Result<u32, Errno>) -> i32 {
    match result {
        Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
        Err(errno) => (errno as i32).wrapping_neg(),
    }
}

/// The offset of a request's payload in the device's file.
#[must_use]
pub const fn payload_place(queue: u16, tag: u16) -> u64 {
    // The sum cannot overflow: queue and tag have 28 bits, above the 25 bits of the payload.
    PAYLOADS_AT.wrapping_add((queue as u64) << QUEUE_BIT).wrapping_add((tag as u64) << TAG_BIT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 1 << 30;

    fn told(code: u32, first: u64, sectors: u32) -> Result<Request, ParseError> {
        let told = Description {
            op_flags: code,
            nr_sectors: sectors,
            start_sector: first,
            ..Description::default()
        };
        Request::parse(&told, SIZE)
    }

    #[test]
    fn each_operation_is_what_it_says() {
        use operation::{DISCARD, FLUSH, READ, WRITE, WRITE_ZEROES};
        let (offset, durable) = (4096, false);
        assert_eq!(told(READ, 8, 16), Ok(Request::Read { offset, length: 8192 }));
        assert_eq!(told(WRITE, 8, 16), Ok(Request::Write { offset, length: 8192, durable }));
        let forced = Ok(Request::Write { offset, length: 8192, durable: true });
        assert_eq!(told(WRITE | flag::FUA, 8, 16), forced);
        assert_eq!(told(FLUSH, u64::MAX, 16), Ok(Request::Flush));
        assert_eq!(told(DISCARD, 8, 16), Ok(Request::Discard { offset, length: 8192, durable }));
        let zero = |may_punch, durable| Request::Zero { offset, length: 8192, may_punch, durable };
        assert_eq!(told(WRITE_ZEROES, 8, 16), Ok(zero(true, false)));
        assert_eq!(told(WRITE_ZEROES | flag::NOUNMAP | flag::FUA, 8, 16), Ok(zero(false, true)));
        assert_eq!(told(4, 8, 16), Err(ParseError::Operation(4)));
        for code in [READ, WRITE, DISCARD, WRITE_ZEROES] {
            assert_eq!(told(code, 8, 0), Err(ParseError::Empty(code)));
        }
        assert_eq!(told(READ, 0, 2049), Err(ParseError::TooLong(2049)));
        assert!(told(DISCARD, 0, 1 << 20).is_ok());
    }

    #[test]
    fn an_end_is_bytes_or_an_error_below_zero() {
        assert_eq!((answer(Ok(8192)), answer(Ok(0)), answer(Err(Errno::Io))), (8192, 0, -5));
        assert_eq!(payload_place(0, 0), 0x8000_0000);
        assert_eq!(payload_place(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
    }

    proptest! {
        #[test]
        fn no_request_leaves_the_device(
            op_flags: u32, nr_sectors: u32, start_sector in prop_oneof![0..SIZE / 256, any::<u64>()],
        ) {
            let told = Description { op_flags, nr_sectors, start_sector, addr: 0 };
            let Ok(request) = Request::parse(&told, SIZE) else { return Ok(()) };
            let (offset, length) = match request {
                Request::Read { offset, length } | Request::Write { offset, length, .. } => {
                    prop_assert!(length <= REQUEST_BYTES_MAX);
                    (offset, u64::from(length))
                }
                Request::Flush => (0, 0),
                Request::Discard { offset, length, .. } | Request::Zero { offset, length, .. } => {
                    (offset, length)
                }
            };
            prop_assert!(length > 0 || request == Request::Flush);
            prop_assert!(offset.checked_add(length).is_some_and(|end| end <= SIZE));
        }
    }
}
