//! The meta block of md's RAID-4/5/6 write journal (r5l).
//!
//! One 4096-byte block on the journal device, describing the data and parity pages that follow it. Recognised and
//! checked here, so that an array with a journal is named and refused rather than guessed at; replay is the
//! engine's.
//!
//! The checksum is CRC-32C over the array's UUID and the block with the checksum field zero, not inverted.

use std::mem::{offset_of, size_of};

use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::journal_crc;
use crate::limits::SECTORS_MAX;

/// Bytes of a meta block.
pub const JOURNAL_META_BYTES: usize = 4096;
const JOURNAL_MAGIC: u32 = 0x6433_c509;
const JOURNAL_VERSION: u8 = 1;
/// Sectors per page: each page of data or parity has one checksum.
const PAGE_SECTORS: u32 = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    checksum: U32,
    version: u8,
    zero1: u8,
    zero2: U16,
    meta_bytes: U32,
    sequence: U64,
    position: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPayload {
    kind: U16,
    flags: U16,
    size: U32,
}

const _: () = assert!(size_of::<Raw>() == 32);
const _: () = assert!(offset_of!(Raw, magic) == 0);
const _: () = assert!(offset_of!(Raw, checksum) == 4);
const _: () = assert!(offset_of!(Raw, version) == 8);
const _: () = assert!(offset_of!(Raw, zero1) == 9);
const _: () = assert!(offset_of!(Raw, zero2) == 10);
const _: () = assert!(offset_of!(Raw, meta_bytes) == 12);
const _: () = assert!(offset_of!(Raw, sequence) == 16);
const _: () = assert!(offset_of!(Raw, position) == 24);
const _: () = assert!(size_of::<RawPayload>() == 8);
const _: () = assert!(offset_of!(RawPayload, kind) == 0);
const _: () = assert!(offset_of!(RawPayload, flags) == 2);
const _: () = assert!(offset_of!(RawPayload, size) == 4);

/// Where the journal stands, as a superblock tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JournalPlace {
    /// Sectors from the data offset to the oldest meta block; known on the journal device only.
    pub tail_sectors: Option<u64>,
}

/// What one payload of a meta block describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalPayload {
    /// Data pages follow.
    Data {
        /// First array sector.
        location: u64,
        /// Sectors.
        size_sectors: u32,
    },
    /// Parity pages follow.
    Parity {
        /// First sector of the stripe on its members.
        location: u64,
        /// Sectors.
        size_sectors: u32,
    },
    /// Stripes that have reached the members.
    Flush {
        /// How many.
        stripes: u32,
    },
}

/// A validated meta block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalMeta {
    /// Grows by one per meta block.
    pub sequence: u64,
    /// Sectors from the data offset to this block.
    pub position_sectors: u64,
    /// What follows.
    pub payloads: Vec<JournalPayload>,
}

/// What can be wrong with a meta block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JournalError {
    /// Fewer bytes than a meta block has.
    #[error("cut off: {present_bytes} bytes are there, 4096 are needed")]
    CutOff {
        /// Bytes at hand.
        present_bytes: u64,
    },
    /// A version that md does not have.
    #[error("journal version {version} is unknown")]
    VersionUnknown {
        /// The version.
        version: u8,
    },
    /// The stored and the computed checksum differ; or it is another array's journal.
    #[error("checksum is {stored:08x}, its bytes and the array give {computed:08x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// A length that a meta block cannot have.
    #[error("a meta block of {bytes} bytes is impossible")]
    Length {
        /// Bytes claimed.
        bytes: u32,
    },
    /// A position beyond any device.
    #[error("position {sectors} is beyond any device")]
    Position {
        /// Sectors.
        sectors: u64,
    },
    /// A payload that does not fit or is of no known kind.
    #[error("the payload at byte {offset} makes no sense")]
    Payload {
        /// Byte offset in the block.
        offset: u64,
    },
}

/// Bytes with the journal's magic; worth nothing until validated.
#[derive(Debug, Clone, Copy)]
pub struct UnvalidatedJournalMeta<'a> {
    bytes: &'a [u8],
}

impl<'a> UnvalidatedJournalMeta<'a> {
    /// Recognises the magic at the start of `bytes`.
    #[must_use]
    pub fn recognise(bytes: &'a [u8]) -> Option<Self> {
        let magic = bytes.first_chunk::<4>()?;
        (u32::from_le_bytes(*magic) == JOURNAL_MAGIC).then_some(Self { bytes })
    }

    /// Checks everything. `array_uuid` is [`crate::Superblock::uuid_as_stored`].
    ///
    /// # Errors
    /// Whatever is wrong first.
    pub fn validate(self, array_uuid: &[u8; 16]) -> Result<JournalMeta, JournalError> {
        let cut_off = JournalError::CutOff { present_bytes: self.bytes.len() as u64 };
        let block = self.bytes.first_chunk::<JOURNAL_META_BYTES>().ok_or(cut_off)?;
        let (raw, payloads) = Raw::ref_from_prefix(block).map_err(|_| cut_off)?;
        if raw.version != JOURNAL_VERSION {
            return Err(JournalError::VersionUnknown { version: raw.version });
        }
        let (magic, rest) = block.split_first_chunk::<4>().ok_or(cut_off)?;
        let (_, after) = rest.split_first_chunk::<4>().ok_or(cut_off)?;
        let (stored, computed) =
            (raw.checksum.get(), journal_crc(array_uuid, &[magic, &[0; 4], after]));
        if stored != computed {
            return Err(JournalError::Checksum { stored, computed });
        }
        let sectors = raw.position.get();
        if sectors > SECTORS_MAX {
            return Err(JournalError::Position { sectors });
        }
        let bytes = raw.meta_bytes.get();
        let used =
            usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_sub(size_of::<Raw>()));
        let used =
            used.and_then(|used| payloads.get(..used)).ok_or(JournalError::Length { bytes })?;
        Ok(JournalMeta {
            sequence: raw.sequence.get(),
            position_sectors: sectors,
            payloads: payloads_of(used)?,
        })
    }
}

fn payloads_of(mut rest: &[u8]) -> Result<Vec<JournalPayload>, JournalError> {
    let whole = rest.len();
    let mut payloads = Vec::new();
    while !rest.is_empty() {
        let offset = (size_of::<Raw>() + whole - rest.len()) as u64;
        let (payload, after) = one_payload(rest).ok_or(JournalError::Payload { offset })?;
        payloads.push(payload);
        rest = after;
    }
    Ok(payloads)
}

/// One payload and the bytes behind it; `None` if it does not fit or is of no known kind.
fn one_payload(bytes: &[u8]) -> Option<(JournalPayload, &[u8])> {
    let (head, rest) = RawPayload::ref_from_prefix(bytes).ok()?;
    let size = head.size.get();
    if head.kind.get() == 2 {
        let rest = rest.get(usize::try_from(size).ok()?..)?;
        let stripes = (size % 8 == 0).then_some(size / 8)?;
        return Some((JournalPayload::Flush { stripes }, rest));
    }
    let (location, rest) = U64::read_from_prefix(rest).ok()?;
    let location = Some(location.get()).filter(|sector| *sector <= SECTORS_MAX)?;
    let checksums_bytes = usize::try_from(size / PAGE_SECTORS).ok()?.checked_mul(4)?;
    let rest = rest.get(checksums_bytes..)?;
    match head.kind.get() {
        0 => Some((JournalPayload::Data { location, size_sectors: size }, rest)),
        1 => Some((JournalPayload::Parity { location, size_sectors: size }, rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = *b"uuid-of-an-array";

    fn sealed(payloads: &[u8], meta_bytes: u32) -> Vec<u8> {
        let mut bytes = vec![0; JOURNAL_META_BYTES];
        bytes[0..4].copy_from_slice(&JOURNAL_MAGIC.to_le_bytes());
        bytes[8] = 1;
        bytes[12..16].copy_from_slice(&meta_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&77_u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&640_u64.to_le_bytes());
        bytes[32..32 + payloads.len()].copy_from_slice(payloads);
        let crc = !crc32c::crc32c(&[&UUID[..], &bytes].concat());
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn validate(bytes: &[u8]) -> Result<JournalMeta, JournalError> {
        UnvalidatedJournalMeta::recognise(bytes).unwrap().validate(&UUID)
    }

    #[test]
    fn payloads_are_read() {
        let mut payloads = Vec::new();
        payloads.extend([0, 0, 0, 0, 8, 0, 0, 0]); // data, 8 sectors
        payloads.extend(4096_u64.to_le_bytes());
        payloads.extend([1, 2, 3, 4]); // its checksum
        payloads.extend([2, 0, 0, 0, 16, 0, 0, 0]); // flush, 16 bytes
        payloads.extend([0; 16]);
        let meta = validate(&sealed(&payloads, 32 + 44)).unwrap();
        assert_eq!((meta.sequence, meta.position_sectors), (77, 640));
        let data = JournalPayload::Data { location: 4096, size_sectors: 8 };
        assert_eq!(meta.payloads, [data, JournalPayload::Flush { stripes: 2 }]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(validate(&sealed(&[], 31)), Err(JournalError::Length { bytes: 31 }));
        assert_eq!(validate(&sealed(&[], 4097)), Err(JournalError::Length { bytes: 4097 }));
        let unknown = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(validate(&sealed(&unknown, 48)), Err(JournalError::Payload { offset: 32 }));
        let too_long = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(validate(&sealed(&too_long, 48)), Err(JournalError::Payload { offset: 32 }));
        let whole = sealed(&[], 32);
        assert_eq!(validate(&whole[..4095]), Err(JournalError::CutOff { present_bytes: 4095 }));
        assert!(matches!(
            UnvalidatedJournalMeta::recognise(&whole).unwrap().validate(&[0; 16]),
            Err(JournalError::Checksum { .. })
        ));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let whole = sealed(&[], 32);
        assert!(validate(&whole).is_ok());
        for bit in 0..JOURNAL_META_BYTES * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let meta = UnvalidatedJournalMeta::recognise(&bytes);
            assert!(meta.is_none_or(|meta| meta.validate(&UUID).is_err()), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_sealed_payloads_are_parsed_or_refused(noise in prop::collection::vec(any::<u8>(), 0..4064), meta_bytes in 0_u32..5000) {
            let _ = validate(&sealed(&noise, meta_bytes));
        }
    }
}
