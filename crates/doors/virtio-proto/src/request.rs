//! Parses a guest's request, which is untrusted, into a value, and gives the request's status for
//! the driver.
//!
//! Each request becomes one operation of the array: read, write, flush, discard, write zeroes, get
//! ID.

use zerocopy::FromBytes;

use crate::chain::Chain;
use crate::limits::{ID_BYTES, REQUEST_BYTES_MAX, STRETCH_BYTES};
use crate::wire::{HEAD_BYTES, Head, RANGE_BYTES, Range, SECTOR_BYTES, UNMAP, kind};

/// The device, with the features that its driver negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's size.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Whether each write must be durable before its answer: the driver did not negotiate FLUSH.
    pub is_written_through: bool,
}

/// A guest's request. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are what the variant's line says
pub enum Request {
    /// Read the payload from `offset`.
    Read { offset: u64, length: u32 },
    /// Write the payload at `offset`; if `durable`, the write is durable before the answer.
    Write { offset: u64, length: u32, durable: bool },
    /// Make all acknowledged writes durable.
    Flush,
    /// Return the device's ID.
    Id,
    /// Discard: the guest no longer needs the range's content.
    Discard { offset: u64, length: u64, durable: bool },
    /// Make a range read as zeroes; with `may_punch` the range need not stay allocated.
    Zero { offset: u64, length: u64, may_punch: bool, durable: bool },
}

/// A request's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The request has succeeded.
    Done = 0,
    /// The request has failed.
    Failed = 1,
    /// The request has an unknown kind or flag.
    Unsupported = 2,
}

/// Why bytes are not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The head is shorter than that of any request.
    #[error("a request has fewer bytes than its head")]
    Short,
    /// The request has an unknown kind.
    #[error("kind {0} of a request is not known")]
    Kind(u32),
    /// The request has an unknown flag.
    #[error("flags {0:#x} of a range are not known")]
    Flags(u32),
    /// The request's range is empty, or outside the device.
    #[error("{sectors} sectors from {first} on do not lie within the device")]
    Range {
        /// The first sector of the range.
        first: u64,
        /// The number of sectors of the range.
        sectors: u64,
    },
    /// The request has a payload of an impossible length.
    #[error("a payload of {0} bytes is none")]
    Payload(u32),
    /// The request has not exactly one range.
    #[error("{0} bytes of ranges are not one")]
    Ranges(u32),
    /// The request would change a read-only device.
    #[error("the device is read-only")]
    ReadOnly,
}

impl ParseError {
    /// The status for the driver that reports this error.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Kind(_) | Self::Flags(_) => Status::Unsupported,
            _ => Status::Failed,
        }
    }
}

impl Request {
    /// Number of bytes of a request's head and first range, from which the request is parsed.
    pub const TELLING_BYTES: usize = (HEAD_BYTES + RANGE_BYTES) as usize;

    /// Parses a request. `told` holds the request's first [`Self::TELLING_BYTES`], or all its bytes
    /// if there are fewer.
    ///
    /// # Errors
    /// The request makes no sense for this device.
    pub fn parse(told: &[u8], chain: &Chain, device: &Device) -> Result<Self, ParseError> {
        let (head, rest) = Head::read_from_prefix(told).map_err(|_| ParseError::Short)?;
        let durable = device.is_written_through;
        let outgoing = chain.readable_bytes().saturating_sub(HEAD_BYTES);
        // The last byte that the device writes is the status, not payload.
        let incoming = chain.writable_bytes().saturating_sub(1);
        let first = head.sector.get();
        let code = head.kind.get();
        let changes = matches!(code, kind::OUT | kind::DISCARD | kind::WRITE_ZEROES);
        if changes && device.is_read_only {
            return Err(ParseError::ReadOnly);
        }
        match code {
            kind::IN => {
                let (offset, length) = payload(first, incoming, device)?;
                Ok(Self::Read { offset, length })
            }
            kind::OUT => {
                let (offset, length) = payload(first, outgoing, device)?;
                Ok(Self::Write { offset, length, durable })
            }
            kind::FLUSH => Ok(Self::Flush),
            kind::GET_ID if incoming as usize >= ID_BYTES => Ok(Self::Id),
            kind::GET_ID => Err(ParseError::Payload(incoming)),
            kind::DISCARD => {
                let (offset, length, flags) = range(rest, outgoing, device)?;
                match flags {
                    0 => Ok(Self::Discard { offset, length, durable }),
                    flags => Err(ParseError::Flags(flags)),
                }
            }
            kind::WRITE_ZEROES => {
                let (offset, length, flags) = range(rest, outgoing, device)?;
                let may_punch = flags == UNMAP;
                match flags {
                    0 | UNMAP => Ok(Self::Zero { offset, length, may_punch, durable }),
                    flags => Err(ParseError::Flags(flags)),
                }
            }
            other => Err(ParseError::Kind(other)),
        }
    }

    /// Number of bytes of the request's payload that need memory.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        match self {
            Self::Read { length, .. } | Self::Write { length, .. } => *length,
            _ => 0,
        }
    }
}

/// A payload's offset and length: whole sectors of the device.
fn payload(first: u64, bytes: u32, device: &Device) -> Result<(u64, u32), ParseError> {
    if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) || bytes > REQUEST_BYTES_MAX {
        return Err(ParseError::Payload(bytes));
    }
    let offset = within(first, u64::from(bytes), device)?;
    Ok((offset, bytes))
}

fn range(rest: &[u8], outgoing: u32, device: &Device) -> Result<(u64, u64, u32), ParseError> {
    let Ok((told, _)) = Range::read_from_prefix(rest) else {
        return Err(ParseError::Ranges(outgoing));
    };
    if outgoing != RANGE_BYTES {
        return Err(ParseError::Ranges(outgoing));
    }
    let (first, sectors) = (told.sector.get(), u64::from(told.sectors.get()));
    let length = sectors.saturating_mul(u64::from(SECTOR_BYTES));
    if length == 0 || length > u64::from(STRETCH_BYTES) {
        return Err(ParseError::Range { first, sectors });
    }
    Ok((within(first, length, device)?, length, told.flags.get()))
}

/// The byte offset of a range of sectors; an error if the range does not lie on the device.
fn within(first: u64, length: u64, device: &Device) -> Result<u64, ParseError> {
    let offset = first.checked_mul(u64::from(SECTOR_BYTES));
    let lies_within =
        |offset: &u64| offset.checked_add(length).is_some_and(|end| end <= device.size_bytes);
    let sectors = length.div_euclid(u64::from(SECTOR_BYTES));
    offset.filter(lies_within).ok_or(ParseError::Range { first, sectors })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::chain::Table;
    use crate::wire::{Descriptor, descriptor_flag};

    const DEVICE: Device =
        Device { size_bytes: 1 << 30, is_read_only: false, is_written_through: false };

    fn chain(readable: u32, writable: u32) -> Chain {
        let of = |length: u32, flags: u16, next: u16| Descriptor {
            address: 0x1000.into(),
            length: length.into(),
            flags: flags.into(),
            next: next.into(),
        };
        let table =
            [of(readable, descriptor_flag::NEXT, 1), of(writable, descriptor_flag::WRITE, 0)];
        Chain::walk(Table { address: 0, entries: 2 }, 0, |address| {
            table[usize::try_from(address / 16).expect("small")].as_bytes().try_into().ok()
        })
        .expect("a chain")
    }

    fn told(code: u32, sector: u64, range: Option<(u64, u32, u32)>) -> Vec<u8> {
        let head = Head { kind: code.into(), reserved: 0.into(), sector: sector.into() };
        let mut bytes = head.as_bytes().to_vec();
        if let Some((sector, sectors, flags)) = range {
            let range =
                Range { sector: sector.into(), sectors: sectors.into(), flags: flags.into() };
            bytes.extend(range.as_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8], (readable, writable): (u32, u32)) -> Result<Request, ParseError> {
        Request::parse(bytes, &chain(readable, writable), &DEVICE)
    }

    #[test]
    fn each_kind_is_what_it_says() {
        let (offset, durable) = (4096, false);
        let read = parse(&told(kind::IN, 8, None), (16, 8193));
        assert_eq!(read, Ok(Request::Read { offset, length: 8192 }));
        let write = parse(&told(kind::OUT, 8, None), (16 + 8192, 1));
        assert_eq!(write, Ok(Request::Write { offset, length: 8192, durable }));
        assert_eq!(parse(&told(kind::FLUSH, u64::MAX, None), (16, 1)), Ok(Request::Flush));
        assert_eq!(parse(&told(kind::GET_ID, 0, None), (16, 21)), Ok(Request::Id));
        let range = |code, flags| parse(&told(code, 0, Some((8, 16, flags))), (32, 1));
        let length = 8192;
        assert_eq!(range(kind::DISCARD, 0), Ok(Request::Discard { offset, length, durable }));
        let zero = |may_punch| Ok(Request::Zero { offset, length, may_punch, durable });
        assert_eq!(
            (range(kind::WRITE_ZEROES, 0), range(kind::WRITE_ZEROES, 1)),
            (zero(false), zero(true))
        );
        assert_eq!(range(kind::DISCARD, 1), Err(ParseError::Flags(1)));
        assert_eq!(range(kind::WRITE_ZEROES, 2), Err(ParseError::Flags(2)));
        assert_eq!(parse(&told(99, 0, None), (16, 1)), Err(ParseError::Kind(99)));
        let refused = [ParseError::Kind(1), ParseError::Flags(2), ParseError::Short];
        assert_eq!(refused.map(|one| one.status() as u8), [2, 2, 1]);
    }

    #[test]
    fn what_has_no_sense_is_refused() {
        assert_eq!(parse(&told(kind::IN, 0, None)[..15], (15, 513)), Err(ParseError::Short));
        for length in [0, 1, 511, 513, REQUEST_BYTES_MAX + 512] {
            assert_eq!(
                parse(&told(kind::IN, 0, None), (16, length + 1)),
                Err(ParseError::Payload(length))
            );
            let write = parse(&told(kind::OUT, 0, None), (16 + length, 1));
            assert_eq!(write, Err(ParseError::Payload(length)));
        }
        assert_eq!(parse(&told(kind::GET_ID, 0, None), (16, 20)), Err(ParseError::Payload(19)));
        for bytes in [0, 15, 17, 32] {
            let ranges = parse(&told(kind::DISCARD, 0, Some((0, 1, 0))), (16 + bytes, 1));
            assert_eq!(ranges, Err(ParseError::Ranges(bytes)));
        }
        for (first, sectors) in [(0, 0), (1 << 21, 1), (u64::MAX, 1), (0, u32::MAX)] {
            let range = parse(&told(kind::WRITE_ZEROES, 0, Some((first, sectors, 0))), (32, 1));
            assert_eq!(range, Err(ParseError::Range { first, sectors: sectors.into() }));
        }
        let only_read = Device { is_read_only: true, ..DEVICE };
        for (code, readable) in [(kind::OUT, 528), (kind::DISCARD, 32), (kind::WRITE_ZEROES, 32)] {
            let bytes = told(code, 0, Some((0, 1, 0)));
            let refused = Request::parse(&bytes, &chain(readable, 1), &only_read);
            assert_eq!(refused, Err(ParseError::ReadOnly));
        }
    }

    #[test]
    fn a_driver_that_cannot_flush_has_every_write_durable() {
        let device = Device { is_written_through: true, ..DEVICE };
        let write = Request::parse(&told(kind::OUT, 0, None), &chain(528, 1), &device);
        assert_eq!(write, Ok(Request::Write { offset: 0, length: 512, durable: true }));
        let bytes = told(kind::DISCARD, 0, Some((0, 1, 0)));
        let discard = Request::parse(&bytes, &chain(32, 1), &device);
        assert_eq!(discard, Ok(Request::Discard { offset: 0, length: 512, durable: true }));
    }

    proptest! {
        #[test]
        fn no_request_leaves_the_device(
            code in 0_u32..16, sector in prop_oneof![0..1_u64 << 22, any::<u64>()],
            range: (u64, u32, u32), readable in prop_oneof![Just(32_u32), 0_u32..1 << 20],
            writable in 0_u32..1 << 20,
        ) {
            let bytes = told(code, sector, Some(range));
            let chain = chain(readable, writable);
            let few = bytes.len().min(readable as usize);
            let Ok(request) = Request::parse(&bytes[..few], &chain, &DEVICE) else { return Ok(()) };
            let (offset, length) = match request {
                Request::Read { offset, length } | Request::Write { offset, length, .. } => {
                    prop_assert!(length <= REQUEST_BYTES_MAX);
                    (offset, u64::from(length))
                }
                Request::Flush | Request::Id => return Ok(()),
                Request::Discard { offset, length, .. } | Request::Zero { offset, length, .. } => {
                    prop_assert!(length <= u64::from(STRETCH_BYTES));
                    (offset, length)
                }
            };
            prop_assert!(length > 0 && length.is_multiple_of(512) && offset.is_multiple_of(512));
            prop_assert!(offset.checked_add(length).is_some_and(|end| end <= DEVICE.size_bytes));
        }
    }
}
