//! The header of a partial parity log (PPL), md's write-hole log for RAID-5.
//!
//! A header has 4096 bytes. It is at the place that the superblock names, or, with several headers
//! in the area, at any sector of the area. Entries with partial parity follow.
//! [`ppl_log`](crate::ppl_log) chooses the header that counts; the engine replays the log.
//!
//! The signature is the CRC-32C of the array's UUID, the checksum the CRC-32C of the header with
//! the checksum field zero.

use std::mem::{offset_of, size_of};

use thiserror::Error;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc_of_parts;
use crate::limits::SECTORS_MAX;

/// Bytes of a header.
pub const PPL_HEADER_BYTES: usize = 4096;
/// Most entries of a header.
pub const PPL_ENTRIES_MAX: u32 = 148;
const CHECKSUM_AT: usize = 532;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    data_sector: U64,
    parity_bytes: U32,
    data_bytes: U32,
    parity_slot: U32,
    checksum: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    reserved: [u8; 512],
    signature: U32,
    padding: U32,
    generation: U64,
    entries_count: U32,
    checksum: U32,
    entries: [RawEntry; PPL_ENTRIES_MAX as usize],
    rest: [u8; 8],
}

const _: () = assert!(size_of::<Raw>() == PPL_HEADER_BYTES);
const _: () = assert!(size_of::<RawEntry>() == 24);
const _: () = assert!(offset_of!(Raw, reserved) == 0);
const _: () = assert!(offset_of!(Raw, signature) == 512);
const _: () = assert!(offset_of!(Raw, padding) == 516);
const _: () = assert!(offset_of!(Raw, generation) == 520);
const _: () = assert!(offset_of!(Raw, entries_count) == 528);
const _: () = assert!(offset_of!(Raw, checksum) == CHECKSUM_AT);
const _: () = assert!(offset_of!(Raw, entries) == 536);
const _: () = assert!(offset_of!(Raw, rest) == 4088);
const _: () = assert!(offset_of!(RawEntry, data_sector) == 0);
const _: () = assert!(offset_of!(RawEntry, parity_bytes) == 8);
const _: () = assert!(offset_of!(RawEntry, data_bytes) == 12);
const _: () = assert!(offset_of!(RawEntry, parity_slot) == 16);
const _: () = assert!(offset_of!(RawEntry, checksum) == 20);

/// The place of a member's PPL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PplPlace {
    /// Sectors from the superblock to the log; negative if the log is before it.
    pub offset_sectors: i16,
    /// Sectors of the area.
    pub size_sectors: u16,
    /// Whether the area holds several headers, of which the header with the highest generation
    /// counts.
    pub multiple: bool,
}

/// One entry of a PPL header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PplEntry {
    /// First array sector of the data being written.
    pub data_sector: u64,
    /// Bytes of partial parity that follow the header for this entry.
    pub parity_bytes: u32,
    /// Bytes of data being written.
    pub data_bytes: u32,
    /// The slot that holds the parity.
    pub parity_slot: u32,
    /// CRC-32C of the partial parity.
    pub checksum: u32,
}

/// A validated PPL header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PplHeader {
    /// A number that grows with every header written.
    pub generation: u64,
    /// The number of earlier records that count in addition to this record; zero in md's logs.
    pub before: u32,
    /// The entries, in the order of the header.
    pub entries: Vec<PplEntry>,
}

impl PplHeader {
    /// The 4096 bytes as on disk. `array_uuid` is [`crate::Superblock::uuid_as_stored`].
    ///
    /// # Panics
    /// With more than [`PPL_ENTRIES_MAX`] entries: the caller counts them.
    #[must_use]
    pub fn to_bytes(&self, array_uuid: &[u8; 16]) -> Vec<u8> {
        let mut raw = Raw::new_zeroed();
        raw.reserved = [0xff; 512];
        raw.signature = crc_of_parts(&[array_uuid]).into();
        raw.padding = self.before.into();
        raw.generation = self.generation.into();
        let count = u32::try_from(self.entries.len()).expect("a header has few entries");
        assert!(count <= PPL_ENTRIES_MAX, "{count} entries do not fit a header");
        raw.entries_count = count.into();
        for (place, entry) in raw.entries.iter_mut().zip(&self.entries) {
            place.data_sector = entry.data_sector.into();
            place.parity_bytes = entry.parity_bytes.into();
            place.data_bytes = entry.data_bytes.into();
            place.parity_slot = entry.parity_slot.into();
            place.checksum = entry.checksum.into();
        }
        raw.checksum = crc_of_parts(&[raw.as_bytes()]).into();
        raw.as_bytes().to_vec()
    }
}

/// Why a PPL header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PplError {
    /// Fewer bytes than a header has.
    #[error("cut off: {present_bytes} bytes are there, 4096 are needed")]
    CutOff {
        /// Bytes at hand.
        present_bytes: u64,
    },
    /// The stored and the computed checksum differ.
    #[error("checksum is {stored:08x}, its bytes give {computed:08x}")]
    Checksum {
        /// Stored checksum.
        stored: u32,
        /// Computed checksum.
        computed: u32,
    },
    /// More entries than fit.
    #[error("{count} entries are more than {PPL_ENTRIES_MAX}")]
    EntryCount {
        /// Entries claimed.
        count: u32,
    },
    /// An entry whose fields make no sense.
    #[error("entry {index} is out of range")]
    Entry {
        /// Index of the entry.
        index: u32,
    },
}

/// Bytes with the signature of this array's PPL; worth nothing until validated.
#[derive(Debug, Clone, Copy)]
pub struct UnvalidatedPplHeader<'a> {
    bytes: &'a [u8],
}

impl<'a> UnvalidatedPplHeader<'a> {
    /// Recognises the signature, which is the array's own: PPL has no common magic. `array_uuid` is
    /// [`crate::Superblock::uuid_as_stored`].
    #[must_use]
    pub fn recognise(bytes: &'a [u8], array_uuid: &[u8; 16]) -> Option<Self> {
        let stored = bytes.get(offset_of!(Raw, signature)..)?.first_chunk::<4>()?;
        (u32::from_le_bytes(*stored) == crc_of_parts(&[array_uuid])).then_some(Self { bytes })
    }

    /// Validates the header.
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(self) -> Result<PplHeader, PplError> {
        let cut_off = PplError::CutOff { present_bytes: self.bytes.len() as u64 };
        let (raw, _) = Raw::ref_from_prefix(self.bytes).map_err(|_| cut_off)?;
        let (before, rest) = raw.as_bytes().split_at_checked(CHECKSUM_AT).ok_or(cut_off)?;
        let (_, after) = rest.split_at_checked(4).ok_or(cut_off)?;
        let (stored, computed) = (raw.checksum.get(), crc_of_parts(&[before, &[0; 4], after]));
        if stored != computed {
            return Err(PplError::Checksum { stored, computed });
        }
        let count = raw.entries_count.get();
        let used = usize::try_from(count).ok().and_then(|count| raw.entries.get(..count));
        let used = used.ok_or(PplError::EntryCount { count })?;
        let entries = (0..)
            .zip(used)
            .map(|(index, entry)| entry_of(index, entry))
            .collect::<Result<_, _>>()?;
        let (generation, before) = (raw.generation.get(), raw.padding.get());
        Ok(PplHeader { generation, before, entries })
    }
}

fn entry_of(index: u32, raw: &RawEntry) -> Result<PplEntry, PplError> {
    let entry = PplEntry {
        data_sector: raw.data_sector.get(),
        parity_bytes: raw.parity_bytes.get(),
        data_bytes: raw.data_bytes.get(),
        parity_slot: raw.parity_slot.get(),
        checksum: raw.checksum.get(),
    };
    let whole_sectors =
        entry.parity_bytes.is_multiple_of(512) && entry.data_bytes.is_multiple_of(512);
    if !whole_sectors || entry.data_sector > SECTORS_MAX {
        return Err(PplError::Entry { index });
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = *b"uuid-of-an-array";

    fn sealed(change: impl FnOnce(&mut Raw)) -> Vec<u8> {
        let mut bytes = vec![0; PPL_HEADER_BYTES];
        let raw = Raw::mut_from_bytes(&mut bytes).unwrap();
        raw.reserved = [0xff; 512];
        raw.signature = crc_of_parts(&[&UUID]).into();
        raw.generation = 9.into();
        change(raw);
        raw.checksum = 0.into();
        raw.checksum = crc32c::crc32c(raw.as_bytes()).into();
        bytes
    }

    fn validate(bytes: &[u8]) -> Result<PplHeader, PplError> {
        UnvalidatedPplHeader::recognise(bytes, &UUID).unwrap().validate()
    }

    #[test]
    fn entries_are_read() {
        let bytes = sealed(|raw| {
            raw.entries_count = 1.into();
            raw.entries[0].data_sector = 1928.into();
            raw.entries[0].parity_bytes = 4096.into();
            raw.entries[0].data_bytes = 8192.into();
            raw.entries[0].parity_slot = 2.into();
        });
        let entry = PplEntry {
            data_sector: 1928,
            parity_bytes: 4096,
            data_bytes: 8192,
            parity_slot: 2,
            checksum: 0,
        };
        assert_eq!(
            validate(&bytes),
            Ok(PplHeader { generation: 9, before: 0, entries: vec![entry] })
        );
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(
            validate(&sealed(|raw| raw.entries_count = 149.into())),
            Err(PplError::EntryCount { count: 149 })
        );
        let odd = sealed(|raw| {
            raw.entries_count = 2.into();
            raw.entries[1].data_bytes = 100.into();
        });
        assert_eq!(validate(&odd), Err(PplError::Entry { index: 1 }));
        let whole = sealed(|_| {});
        assert_eq!(validate(&whole[..4000]), Err(PplError::CutOff { present_bytes: 4000 }));
        assert!(UnvalidatedPplHeader::recognise(&whole, &[0; 16]).is_none());
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let whole = sealed(|raw| raw.entries_count = 1.into());
        for bit in 0..PPL_HEADER_BYTES * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let header = UnvalidatedPplHeader::recognise(&bytes, &UUID);
            assert!(header.is_none_or(|header| header.validate().is_err()), "bit {bit}");
        }
    }

    fn entries() -> impl Strategy<Value = Vec<PplEntry>> {
        let entry = (0..SECTORS_MAX, 0_u32..1 << 20, 0_u32..1 << 20, any::<u32>(), any::<u32>());
        let entry = entry.prop_map(|(data_sector, parity, data, parity_slot, checksum)| PplEntry {
            data_sector,
            parity_bytes: parity * 512,
            data_bytes: data * 512,
            parity_slot,
            checksum,
        });
        prop::collection::vec(entry, 0..=PPL_ENTRIES_MAX as usize)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(generation in any::<u64>(), before in any::<u32>(), entries in entries()) {
            let header = PplHeader { generation, before, entries };
            let bytes = header.to_bytes(&UUID);
            prop_assert_eq!(&bytes[..512], &[0xff; 512][..]);
            prop_assert_eq!(validate(&bytes), Ok(header));
        }

        #[test]
        fn any_sealed_bytes_are_parsed_or_refused(noise in prop::collection::vec(any::<u8>(), 3560), count in 0_u32..200) {
            let bytes = sealed(|raw| {
                raw.entries_count = count.into();
                raw.entries.as_mut_bytes().copy_from_slice(&noise[..3552]);
            });
            let _ = validate(&bytes);
        }
    }
}
