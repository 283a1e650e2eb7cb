//! The meta block of md's RAID-4/5/6 write journal (r5l).
//!
//! A meta block is one 4096-byte block on the journal device. It describes the data and parity
//! blocks that follow it. [`journal_log`](crate::journal_log) follows the chain of blocks. This
//! module handles neither the end of the ring nor the array's geometry.
//!
//! The checksum is CRC-32C over the array's UUID and the block with the checksum field zero, not
//! inverted. Blocks of data and parity are summed the same way.
//!
//! # Invariants
//! - A written meta block reads back the same [check: any_meta_block_is_read_as_it_was_written].
//! - A flipped bit is refused [check: every_flipped_bit_is_refused].

use std::mem::{offset_of, size_of};

use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::journal_crc;
use crate::limits::{SECTOR_BYTES, SECTORS_MAX};

/// Bytes of a meta block.
pub const JOURNAL_META_BYTES: usize = 4096;
const JOURNAL_MAGIC: u32 = 0x6433_c509;
const JOURNAL_VERSION: u8 = 1;
/// Sectors of a meta block, and of a block of data or parity; each such block has one checksum.
pub const JOURNAL_BLOCK_SECTORS: u64 = 8;
/// [`JOURNAL_BLOCK_SECTORS`] in 32 bits, like the sizes of payloads.
const BLOCK_SECTORS: u32 = 8;
const _: () = assert!(JOURNAL_BLOCK_SECTORS * SECTOR_BYTES == JOURNAL_META_BYTES as u64);

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

/// The place of the journal, as a superblock records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JournalPlace {
    /// Sectors from the data offset to the oldest meta block; only the journal device records it.
    pub tail_sectors: Option<u64>,
}

/// One payload of a meta block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalPayload {
    /// Blocks of data follow.
    Data {
        /// The first array sector of the data.
        location: u64,
        /// A checksum for each block of eight sectors.
        checksums: Vec<u32>,
    },
    /// Blocks of parity follow: P, and Q of a RAID-6.
    Parity {
        /// First sector of the stripe, from the start of its members' data.
        location: u64,
        /// A checksum for each block of eight sectors.
        checksums: Vec<u32>,
    },
    /// Stripes that were written to the members, but not flushed.
    Flush {
        /// The first sector of each stripe, from the start of its members' data.
        stripes: Vec<u64>,
    },
}

impl JournalPayload {
    /// Bytes of the payload in a meta block.
    #[must_use]
    pub fn meta_bytes(&self) -> usize {
        match self {
            Self::Data { checksums, .. } | Self::Parity { checksums, .. } => {
                size_of::<RawPayload>() + 8 + 4 * checksums.len()
            }
            Self::Flush { stripes } => size_of::<RawPayload>() + 8 * stripes.len(),
        }
    }

    /// Checksums of the data or parity blocks that follow the meta block.
    #[must_use]
    pub fn checksums(&self) -> &[u32] {
        match self {
            Self::Data { checksums, .. } | Self::Parity { checksums, .. } => checksums,
            Self::Flush { .. } => &[],
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let (kind, size, first) = match self {
            Self::Data { location, checksums } => (0, checksums.len() * 8, Some(location)),
            Self::Parity { location, checksums } => (1, checksums.len() * 8, Some(location)),
            Self::Flush { stripes } => (2, stripes.len() * 8, None),
        };
        let size = U32::new(u32::try_from(size).expect("it fits a meta block"));
        let head = RawPayload { kind: U16::new(kind), flags: U16::ZERO, size };
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend(first.into_iter().flat_map(|first| first.to_le_bytes()));
        bytes.extend(self.checksums().iter().flat_map(|checksum| checksum.to_le_bytes()));
        if let Self::Flush { stripes } = self {
            bytes.extend(stripes.iter().flat_map(|stripe| stripe.to_le_bytes()));
        }
    }
}

/// The checksum that a meta block records for a block of data or parity.
#[must_use]
pub fn journal_block_checksum(array_uuid: &[u8; 16], block: &[u8]) -> u32 {
    journal_crc(array_uuid, &[block])
}

/// A validated meta block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalMeta {
    /// Increases by one with each meta block.
    pub sequence: u64,
    /// Sectors from the data offset to this block.
    pub position_sectors: u64,
    /// The payloads, in the order of the blocks that follow.
    pub payloads: Vec<JournalPayload>,
}

impl JournalMeta {
    /// Bytes for payloads in a meta block.
    pub const PAYLOAD_BYTES: usize = JOURNAL_META_BYTES - size_of::<Raw>();

    /// Sectors of the meta block and the blocks that follow it.
    #[must_use]
    pub fn length_sectors(&self) -> u64 {
        let blocks: usize = self.payloads.iter().map(|payload| payload.checksums().len()).sum();
        JOURNAL_BLOCK_SECTORS * (1 + blocks as u64)
    }

    /// The block as on disk.
    ///
    /// # Panics
    /// With more payloads than fit.
    #[must_use]
    pub fn to_bytes(&self, array_uuid: &[u8; 16]) -> Vec<u8> {
        let mut payloads = Vec::new();
        self.payloads.iter().for_each(|payload| payload.write(&mut payloads));
        assert!(payloads.len() <= Self::PAYLOAD_BYTES, "a meta block has payloads that fit");
        let meta_bytes = u32::try_from(size_of::<Raw>() + payloads.len()).expect("it fits");
        let mut raw = Raw {
            magic: U32::new(JOURNAL_MAGIC),
            checksum: U32::ZERO,
            version: JOURNAL_VERSION,
            zero1: 0,
            zero2: U16::ZERO,
            meta_bytes: U32::new(meta_bytes),
            sequence: U64::new(self.sequence),
            position: U64::new(self.position_sectors),
        };
        payloads.resize(Self::PAYLOAD_BYTES, 0);
        raw.checksum.set(journal_crc(array_uuid, &[raw.as_bytes(), &payloads]));
        [raw.as_bytes(), &payloads].concat()
    }
}

/// Why a meta block is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
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
        /// The stored version.
        version: u8,
    },
    /// The stored and the computed checksum differ: damage, or another array's journal.
    #[error("checksum is {stored:08x}, its bytes and the array give {computed:08x}")]
    Checksum {
        /// Stored checksum.
        stored: u32,
        /// Computed checksum.
        computed: u32,
    },
    /// A length that a meta block cannot have.
    #[error("a meta block of {bytes} bytes is impossible")]
    Length {
        /// Bytes of the block, as stored.
        bytes: u32,
    },
    /// A position beyond any device.
    #[error("position {sectors} is beyond any device")]
    Position {
        /// Sectors of the position.
        sectors: u64,
    },
    /// A payload that does not fit, or of an unknown kind.
    #[error("the payload at byte {offset} makes no sense")]
    Payload {
        /// Byte offset of the payload in the block.
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

    /// Validates the meta block. `array_uuid` is [`crate::Superblock::uuid_as_stored`].
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(self, array_uuid: &[u8; 16]) -> Result<JournalMeta, JournalError> {
        let cut_off = JournalError::CutOff { present_bytes: self.bytes.len() as u64 };
        let block = self.bytes.first_chunk::<JOURNAL_META_BYTES>().ok_or(cut_off)?;
        let (raw, payloads) = Raw::ref_from_prefix(block).map_err(|_| cut_off)?;
        let (magic, rest) = block.split_first_chunk::<4>().ok_or(cut_off)?;
        let (_, after) = rest.split_first_chunk::<4>().ok_or(cut_off)?;
        let (stored, computed) =
            (raw.checksum.get(), journal_crc(array_uuid, &[magic, &[0; 4], after]));
        if stored != computed {
            return Err(JournalError::Checksum { stored, computed });
        }
        if raw.version != JOURNAL_VERSION {
            return Err(JournalError::VersionUnknown { version: raw.version });
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

/// The first payload in `bytes`, and the bytes after it; `None` if the payload does not fit, or its
/// kind is unknown.
fn one_payload(bytes: &[u8]) -> Option<(JournalPayload, &[u8])> {
    let (head, rest) = RawPayload::ref_from_prefix(bytes).ok()?;
    let size = head.size.get();
    if head.kind.get() == 2 {
        let (stripes, rest) = rest.split_at_checked(usize::try_from(size).ok()?)?;
        let (stripes, left) = stripes.as_chunks::<8>();
        let stripes = stripes.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        return left.is_empty().then_some((JournalPayload::Flush { stripes }, rest));
    }
    let (location, rest) = U64::read_from_prefix(rest).ok()?;
    let location = Some(location.get()).filter(|sector| *sector <= SECTORS_MAX)?;
    let blocks = size / BLOCK_SECTORS;
    let is_whole = blocks > 0 && size % BLOCK_SECTORS == 0;
    let checksums_bytes = usize::try_from(blocks).ok().filter(|_| is_whole)?.checked_mul(4)?;
    let (checksums, rest) = rest.split_at_checked(checksums_bytes)?;
    let (checksums, _) = checksums.as_chunks::<4>();
    let checksums = checksums.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    match head.kind.get() {
        0 => Some((JournalPayload::Data { location, checksums }, rest)),
        1 => Some((JournalPayload::Parity { location, checksums }, rest)),
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
        let data = JournalPayload::Data { location: 4096, checksums: vec![0x0403_0201] };
        assert_eq!(meta.payloads, [data, JournalPayload::Flush { stripes: vec![0, 0] }]);
        assert_eq!(meta.length_sectors(), 16);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(validate(&sealed(&[], 31)), Err(JournalError::Length { bytes: 31 }));
        assert_eq!(validate(&sealed(&[], 4097)), Err(JournalError::Length { bytes: 4097 }));
        let unknown = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(validate(&sealed(&unknown, 48)), Err(JournalError::Payload { offset: 32 }));
        let part = [0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(validate(&sealed(&part, 52)), Err(JournalError::Payload { offset: 32 }));
        let mut newer = sealed(&[], 32);
        newer[8] = 2;
        newer[4..8].fill(0);
        let crc = !crc32c::crc32c(&[&UUID[..], &newer].concat());
        newer[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(validate(&newer), Err(JournalError::VersionUnknown { version: 2 }));
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

    fn payload() -> impl Strategy<Value = JournalPayload> {
        let checksums = || prop::collection::vec(any::<u32>(), 1..4);
        prop_oneof![
            (0..SECTORS_MAX, checksums())
                .prop_map(|(location, checksums)| JournalPayload::Data { location, checksums }),
            (0..SECTORS_MAX, checksums())
                .prop_map(|(location, checksums)| JournalPayload::Parity { location, checksums }),
            prop::collection::vec(any::<u64>(), 0..4)
                .prop_map(|stripes| JournalPayload::Flush { stripes }),
        ]
    }

    proptest! {
        #[test]
        fn any_meta_block_is_read_as_it_was_written(payloads in prop::collection::vec(payload(), 0..99), sequence in any::<u64>()) {
            let meta = JournalMeta { sequence, position_sectors: 640, payloads };
            let bytes = meta.to_bytes(&UUID);
            let used: usize = meta.payloads.iter().map(JournalPayload::meta_bytes).sum();
            let said = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap());
            prop_assert_eq!(usize::try_from(said), Ok(32 + used));
            prop_assert_eq!(validate(&bytes), Ok(meta));
        }

        #[test]
        fn any_sealed_payloads_are_parsed_or_refused(noise in prop::collection::vec(any::<u8>(), 0..4064), meta_bytes in 0_u32..5000) {
            let _ = validate(&sealed(&noise, meta_bytes));
        }
    }
}
