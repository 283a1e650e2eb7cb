//! braid's own parity log for levels 4, 5 and 6: its place, and when it counts.
//!
//! md has a log of partial parity for RAID-5 only ([`crate::ppl`]), and not together with a bitmap.
//! braid's own log is in space that md leaves free, so md accepts the array as if it had no log.
//! Its records are those of a PPL ([`crate::ppl_log`]), with three differences:
//! - On RAID-6 an entry is about P or about Q, by the slot that it names. Partial parity of Q is
//!   the sum of the kept data, each column multiplied by its coefficient in Q.
//! - Records are signed with the array's UUID and a word of ours, so that md finds no records of
//!   its own in the log.
//! - Several records count: all since the last flush of the members. In logs with a head of format
//!   1, only the newest counts.
//!
//! ```text
//!   0   superblock, bitmap, bad-block log  ... | records, a ring            | head |  data
//!                                              | size_sectors               | 8    |
//!                                                                                  ^ data_offset
//! ```
//!
//! The head never moves: it says that the array keeps its own log, and gives the size of the log's
//! ring. It is written with an empty ring when a member joins, before a superblock lists the
//! member.
//!
//! # When it counts
//! md ignores the log. After a write by md, records would describe writes that are long complete,
//! and parity made from them would be wrong. So braid *stamps* each superblock that it writes while
//! its log covers all doubtful stripes. 1.x superblocks keep 24 bits for the microseconds of their
//! update time, which md ignores. The stamp is 0xB in the upper four bits, more than microseconds
//! need (0xC for a log in a bitmap file, [`crate::bitmap_file`]). 0.90 has the letters `brlg` in
//! word 63, which is reserved.
//!
//! md writes zero over the stamp with each update, and updates superblocks before it writes data.
//! So the log counts if and only if the newest superblock has the stamp. A clean array has no stamp
//! either, so md can trust its state.
//!
//! # Invariants
//! - A written head is read, and remains of md or of another array are not
//!   [check: a_head_is_read_and_nothing_else_is].
//! - The place overlaps nothing [check: the_place_is_free].
//! - Any update by a driver that does not know the log removes the stamp
//!   [check: an_update_takes_the_stamp_away].

use std::mem::{offset_of, size_of};

use thiserror::Error;
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Superblock;
use crate::checksum::crc_of_parts;
use crate::limits::SECTOR_BYTES;
use crate::log_place::{LogPlace, OwnLogPlace, PPL_HEADER_SECTORS};
use crate::ppl::PPL_HEADER_BYTES;
use crate::ppl_log::{PplLog, PplLogError};

/// Bytes of the log's head.
pub const OWN_LOG_HEAD_BYTES: usize = 4096;
/// Sectors of the log's head.
pub const OWN_LOG_HEAD_SECTORS: u64 = OWN_LOG_HEAD_BYTES as u64 / SECTOR_BYTES;
/// Sectors of a ring if there is enough room: 1 MiB, as for md's logs.
pub(crate) const RING_SECTORS_MAX: u64 = 2048;
const FORMAT: u32 = 2;
/// The previous format of the head: only the newest record counts.
const FORMAT_OF_ONE: u32 = 1;
const MAGIC: [u8; 8] = *b"braidlog";
/// A constant that is mixed with the array's UUID to make the key of records.
const WORD: [u8; 16] = *b"braid parity log";

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    format: U32,
    checksum: U32,
    array_uuid: [u8; 16],
    size_sectors: U32,
    rest: [u8; 4060],
}

const _: () = assert!(size_of::<Raw>() == OWN_LOG_HEAD_BYTES);
const _: () = assert!(OWN_LOG_HEAD_BYTES == PPL_HEADER_BYTES, "rings are counted in both");
const _: () = assert!(offset_of!(Raw, format) == 8);
const _: () = assert!(offset_of!(Raw, checksum) == 12);
const _: () = assert!(offset_of!(Raw, array_uuid) == 16);
const _: () = assert!(offset_of!(Raw, size_sectors) == 32);
const _: () = assert!(offset_of!(Raw, rest) == 36);

impl Superblock {
    /// Byte offset on the device of a log's first record; `None` if the log would be outside the
    /// device.
    #[must_use]
    pub fn log_start_bytes(&self, place: LogPlace) -> Option<u64> {
        match place {
            LogPlace::Ppl(place) => self.ppl_start_bytes(place),
            LogPlace::Own(place) => {
                let sectors = u64::from(place.size_sectors) + OWN_LOG_HEAD_SECTORS;
                self.device.data_offset_sectors.checked_sub(sectors)?.checked_mul(SECTOR_BYTES)
            }
        }
    }

    /// The head of a new log, to be written after its records; empty for a PPL.
    #[must_use]
    pub fn log_tail(&self, place: LogPlace) -> Vec<u8> {
        match place {
            LogPlace::Ppl(_) => Vec::new(),
            LogPlace::Own(place) => OwnLogHead { place }.to_bytes(&self.uuid_as_stored()),
        }
    }

    /// The key that signs the records of a log.
    #[must_use]
    pub fn log_key(&self, place: LogPlace) -> [u8; 16] {
        match place {
            LogPlace::Ppl(_) => self.uuid_as_stored(),
            LogPlace::Own(_) => key_of(&self.uuid_as_stored()),
        }
    }

    /// The first sector before the data that no metadata uses, on a member with a bitmap of
    /// `bitmap_sectors`; braid's own log counts as free.
    #[must_use]
    pub fn first_free_sector(&self, bitmap_sectors: u64) -> u64 {
        let data = self.device.data_offset_sectors;
        let before = self.metadata_areas(bitmap_sectors).filter(|(start, _)| *start < data);
        let free_from = before.map(|(start, sectors)| start.saturating_add(sectors)).max();
        free_from.unwrap_or(0)
    }

    /// The first sector of metadata from a sector on; braid's own log does not count as metadata.
    #[must_use]
    pub fn metadata_from(&self, sector: u64) -> Option<u64> {
        let starts = self.metadata_areas(0).map(|(start, _)| start);
        starts.filter(|start| *start >= sector).min()
    }

    /// Start and sectors of the superblock, the bad-block log, a PPL, and a bitmap: at the place
    /// that the superblock names, or that it would name for a bitmap of this many sectors.
    fn metadata_areas(&self, bitmap_sectors: u64) -> impl Iterator<Item = (u64, u64)> {
        let device = &self.device;
        let own = (device.super_offset_sectors, self.written_bytes() as u64 / SECTOR_BYTES);
        let bad_blocks = device.bad_block_log.zip(self.bad_block_log_offset_bytes());
        let bad_blocks =
            bad_blocks.map(|(log, start)| (start / SECTOR_BYTES, u64::from(log.size_sectors)));
        let named = self.intent.bitmap_offset_sectors;
        let bitmap = if bitmap_sectors > 0 { self.bitmap_offset() } else { named };
        let bitmap =
            bitmap.and_then(|from| device.super_offset_sectors.checked_add_signed(from.into()));
        let bitmap = bitmap.map(|start| (start, bitmap_sectors));
        let ppl = self.ppl_area();
        let ppl = ppl.map(|(start, place)| (start / SECTOR_BYTES, place.used_sectors()));
        [Some(own), bad_blocks, bitmap, ppl].into_iter().flatten()
    }

    /// The largest possible place of our own log on a member with a bitmap of `bitmap_sectors`.
    /// `None` without room, or on metadata 0.90, whose stamp names a log in a file only.
    #[must_use]
    pub fn own_log_place(&self, bitmap_sectors: u64) -> Option<OwnLogPlace> {
        if !self.version.is_v1() {
            return None;
        }
        let free_from = self.first_free_sector(bitmap_sectors);
        let free_from = free_from.next_multiple_of(PPL_HEADER_SECTORS);
        let room = self.device.data_offset_sectors.checked_sub(free_from)?;
        let ring = room.checked_sub(OWN_LOG_HEAD_SECTORS)?.min(RING_SECTORS_MAX);
        let ring = ring - ring % PPL_HEADER_SECTORS;
        let size_sectors = u32::try_from(ring).ok()?;
        (ring > PPL_HEADER_SECTORS).then_some(OwnLogPlace::of(size_sectors))
    }

    /// Reads the member's own log; `None` without a head of this array. `read` returns a number of
    /// bytes from an offset.
    ///
    /// # Errors
    /// The driver could not read the head. Unreadable records are reported in the log instead.
    pub fn read_own_log<E>(
        &self,
        mut read: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
    ) -> Result<Option<OwnLog>, E> {
        if !self.version.is_v1() {
            return Ok(None);
        }
        own_log_before(self.device.data_offset_sectors, &self.uuid_as_stored(), &mut read)
    }
}

/// The own log of this array that ends before `end_sector`; `None` without a head.
///
/// # Errors
/// The driver could not read the head.
pub(crate) fn own_log_before<E>(
    end_sector: u64,
    array_uuid: &[u8; 16],
    read: &mut impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<Option<OwnLog>, E> {
    let Some(head_sector) = end_sector.checked_sub(OWN_LOG_HEAD_SECTORS) else { return Ok(None) };
    let bytes = read(head_sector * SECTOR_BYTES, OWN_LOG_HEAD_BYTES as u64)?;
    let place = match OwnLogHead::read(&bytes, array_uuid) {
        Some(Ok(head)) => head.place,
        Some(Err(error)) => {
            return Ok(Some(OwnLog { place: Err(error), log: Err(PplLogError::NoHead) }));
        }
        None => return Ok(None),
    };
    let at = LogPlace::Own(place);
    let log = match head_sector.checked_sub(at.used_sectors()) {
        None => Err(PplLogError::CutOff { present_bytes: 0, needed_bytes: at.used_bytes() }),
        Some(start) => match read(start * SECTOR_BYTES, at.used_bytes()) {
            Ok(bytes) => PplLog::read(&bytes, at, &key_of(array_uuid)),
            Err(_) => Err(PplLogError::Unreadable),
        },
    };
    Ok(Some(OwnLog { place: Ok(place), log }))
}

/// The key that signs records of our own log.
fn key_of(array_uuid: &[u8; 16]) -> [u8; 16] {
    let mut key = *array_uuid;
    key.iter_mut().zip(WORD).for_each(|(key, word)| *key ^= word);
    key
}

/// Our own log as read from a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLog {
    /// The log's place, according to its head.
    pub place: Result<OwnLogPlace, OwnLogHeadError>,
    /// The log's records.
    pub log: Result<PplLog, PplLogError>,
}

/// The head of our own log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLogHead {
    /// Where the records are.
    pub place: OwnLogPlace,
}

/// Why a log head of this array is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OwnLogHeadError {
    /// The stored and the computed checksum differ.
    #[error("the checksum of its head is {stored:08x}, its bytes give {computed:08x}")]
    Checksum {
        /// Stored checksum.
        stored: u32,
        /// Computed checksum.
        computed: u32,
    },
    /// An unknown format.
    #[error("its format is {format}, and only {FORMAT_OF_ONE} and {FORMAT} are known")]
    FormatUnknown {
        /// Stored format.
        format: u32,
    },
    /// A size that no ring can have.
    #[error("a ring of {size_sectors} sectors makes no sense")]
    Size {
        /// Stored size.
        size_sectors: u32,
    },
}

impl OwnLogHead {
    /// The 4096 bytes as on disk. `array_uuid` is [`Superblock::uuid_as_stored`].
    #[must_use]
    pub fn to_bytes(self, array_uuid: &[u8; 16]) -> Vec<u8> {
        let mut raw = Raw::new_zeroed();
        raw.magic = MAGIC;
        let format = if self.place.is_many { FORMAT } else { FORMAT_OF_ONE };
        raw.format = format.into();
        raw.array_uuid = *array_uuid;
        raw.size_sectors = self.place.size_sectors.into();
        raw.checksum = crc_of_parts(&[raw.as_bytes()]).into();
        raw.as_bytes().to_vec()
    }

    /// Parses a block; `None` if it is not the head of this array's log.
    #[must_use]
    pub fn read(bytes: &[u8], array_uuid: &[u8; 16]) -> Option<Result<Self, OwnLogHeadError>> {
        let (raw, _) = Raw::ref_from_prefix(bytes).ok()?;
        let is_ours = raw.magic == MAGIC && raw.array_uuid == *array_uuid;
        is_ours.then(|| Self::validated(raw))
    }

    fn validated(raw: &Raw) -> Result<Self, OwnLogHeadError> {
        let without = Raw { checksum: U32::new(0), ..*raw };
        let (stored, computed) = (raw.checksum.get(), crc_of_parts(&[without.as_bytes()]));
        if stored != computed {
            return Err(OwnLogHeadError::Checksum { stored, computed });
        }
        let (format, size_sectors) = (raw.format.get(), raw.size_sectors.get());
        let is_many = match format {
            FORMAT => true,
            FORMAT_OF_ONE => false,
            _ => return Err(OwnLogHeadError::FormatUnknown { format }),
        };
        let sectors = u64::from(size_sectors);
        let is_ring = (PPL_HEADER_SECTORS + 1..=RING_SECTORS_MAX).contains(&sectors)
            && sectors.is_multiple_of(PPL_HEADER_SECTORS);
        let place = OwnLogPlace { size_sectors, is_many };
        if is_ring { Ok(Self { place }) } else { Err(OwnLogHeadError::Size { size_sectors }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::{made, update};
    use crate::{LogHome, UnvalidatedV1, Version};

    const UUID: [u8; 16] = *b"uuid-of-an-array";

    #[test]
    fn a_head_is_read_and_nothing_else_is() {
        let head = OwnLogHead { place: OwnLogPlace::of(2048) };
        let bytes = head.to_bytes(&UUID);
        assert_eq!(OwnLogHead::read(&bytes, &UUID), Some(Ok(head)));
        // Older versions accept format 1 and refuse format 2.
        let of_one = OwnLogHead { place: OwnLogPlace { size_sectors: 2048, is_many: false } };
        assert_eq!(OwnLogHead::read(&of_one.to_bytes(&UUID), &UUID), Some(Ok(of_one)));
        assert_eq!((bytes[8], of_one.to_bytes(&UUID)[8]), (2, 1), "formats");
        assert_eq!(OwnLogHead::read(&bytes, b"another array...."[..16].try_into().unwrap()), None);
        assert_eq!(OwnLogHead::read(&[0; 4096], &UUID), None);
        assert_eq!(OwnLogHead::read(&bytes[..4000], &UUID), None);
        // Any wrong bit after the magic and the UUID is reported.
        for bit in (64..128).chain(256..32_768) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = OwnLogHead::read(&bytes, &UUID);
            assert!(matches!(read, Some(Err(OwnLogHeadError::Checksum { .. }))), "bit {bit}");
        }
        for size_sectors in [0, 8, 12, 2056, u32::MAX] {
            let bytes = OwnLogHead { place: OwnLogPlace::of(size_sectors) }.to_bytes(&UUID);
            let read = OwnLogHead::read(&bytes, &UUID);
            assert_eq!(read, Some(Err(OwnLogHeadError::Size { size_sectors })));
        }
    }

    #[test]
    fn the_place_is_free() {
        let mut superblock = made(Version::V1_2);
        superblock.device.data_offset_sectors = 4096;
        let place = superblock.own_log_place(0).expect("there is room");
        assert_eq!(place.size_sectors, 2048, "no more than a log needs");
        let start = superblock.log_start_bytes(place.into()).unwrap();
        assert_eq!(start / 512 + 2048 + 8, 4096, "its head ends where data begins");
        // A bitmap before the data leaves less room for the ring.
        superblock.device.bad_block_log = None;
        superblock.intent.bitmap_offset_sectors = Some(8);
        let bitmap = superblock.bitmap_offset_bytes().unwrap() / 512;
        let free = |bitmap_sectors: u64| {
            let place = superblock.own_log_place(bitmap_sectors)?;
            let start = superblock.log_start_bytes(place.into()).unwrap() / 512;
            assert!(start >= bitmap + bitmap_sectors, "behind the bitmap");
            Some(u64::from(place.size_sectors))
        };
        assert_eq!(free(3000), Some((4096 - bitmap - 3000 - 8) / 8 * 8));
        assert_eq!(free(4096 - bitmap - 16), None, "a header and nothing else");
        for bitmap_sectors in 0..4096 {
            free(bitmap_sectors);
        }
        assert_eq!(made(Version::V1_0).own_log_place(0), None, "data is in front");
    }

    #[test]
    fn an_update_takes_the_stamp_away() {
        let versions = [Version::V1_0, Version::V1_1, Version::V1_2];
        for (version, home) in versions.into_iter().flat_map(|v| LogHome::ALL.map(|home| (v, home)))
        {
            let mut superblock = made(version);
            superblock.apply(&update());
            let before = superblock.to_bytes();
            assert_eq!(superblock.state.log_counts, None);
            superblock.set_log_counts(home);
            let again = |superblock: &Superblock| {
                let bytes = superblock.to_bytes();
                let found = UnvalidatedV1::recognise(&bytes, version).expect("it has its magic");
                found
                    .validate(crate::superblock::tests::DEVICE_BYTES, superblock.offset_bytes())
                    .expect("it is as it was")
            };
            let stamped = again(&superblock);
            assert_eq!(stamped.state.log_counts, Some(home));
            assert_eq!(stamped.state.update_time, update().update_time, "the time is as it was");
            superblock.apply(&update());
            assert_eq!(again(&superblock).state.log_counts, None);
            assert_eq!(superblock.to_bytes(), before);
        }
    }
}
