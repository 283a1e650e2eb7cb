//! The parity log that braid keeps of its own, for levels 4, 5 and 6: where it is, and when it counts.
//!
//! md has a log of partial parity for RAID-5 alone ([`crate::ppl`]), and none beside a bitmap. This one is in space that md leaves
//! free, so md takes the array as it would without it. Its records are those of a PPL ([`crate::ppl_log`]), with three
//! differences: on RAID-6 an entry is about P or about Q, by the slot that it names, and partial parity of Q is the sum of what is kept,
//! each multiplied as Q has it; and records are signed with the array's UUID and a word of ours, so that md finds none of its own there.
//! And several of them count: all since members were flushed last ([`crate::ppl_log`]). Heads of format 1 are of logs in which the newest
//! counts alone.
//!
//! ```text
//!   0   superblock, bitmap, bad-block log   ...   | records, a ring               | head |  data
//!                                                 | size_sectors                  | 8    |
//!                                                                                        ^ data_offset
//! ```
//!
//! The head stands still: it says that the array keeps such a log, and how large its ring is. It is written with an empty ring when a
//! member comes, before a superblock says that it is in.
//!
//! # When it counts
//! md knows nothing of the log. If it wrote since, records tell of writes that are long over, and parity made from them would be wrong.
//! So a superblock that braid writes while its log names all that may be in doubt has a *stamp*: the upper four of the 24 bits
//! that 1.x superblocks keep for microseconds of their update time, which md reads over, are 0xB, more than microseconds need (0xC for
//! a log in a bitmap file, [`crate::bitmap_file`]; 0.90 has the letters `brlg` in word 63 for that, which is reserved). md writes
//! zero there with each update, and it writes no data before it has updated superblocks. So the log counts if and only if the newest
//! superblock has the stamp; as it has none when the array is clean, md may be trusted to have found it as it was left.
//!
//! # Invariants
//! - What is written is read, and what md or another array left there is not taken for it
//!   [check: a_head_is_read_and_nothing_else_is].
//! - The place lies in nobody's way [check: the_place_is_free].
//! - Any update by somebody who knows nothing of the log takes the stamp away [check: an_update_takes_the_stamp_away].

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

/// Bytes of a head.
pub const OWN_LOG_HEAD_BYTES: usize = 4096;
/// Sectors of it.
pub const OWN_LOG_HEAD_SECTORS: u64 = OWN_LOG_HEAD_BYTES as u64 / SECTOR_BYTES;
/// Sectors of a ring where there is room for so many: 1 MiB, as of md's logs.
pub(crate) const RING_SECTORS_MAX: u64 = 2048;
/// The layout described here.
const FORMAT: u32 = 2;
/// The one before: of its records the newest counts alone.
const FORMAT_OF_ONE: u32 = 1;
const MAGIC: [u8; 8] = *b"braidlog";
/// What the array's UUID is mixed with.
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
    /// Where on the device the records of a log begin, in bytes. None if that would not be on it.
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

    /// What follows the records of a log and is written with an area that is made anew.
    #[must_use]
    pub fn log_tail(&self, place: LogPlace) -> Vec<u8> {
        match place {
            LogPlace::Ppl(_) => Vec::new(),
            LogPlace::Own(place) => OwnLogHead { place }.to_bytes(&self.uuid_as_stored()),
        }
    }

    /// What the records of a log are signed with.
    #[must_use]
    pub fn log_key(&self, place: LogPlace) -> [u8; 16] {
        match place {
            LogPlace::Ppl(_) => self.uuid_as_stored(),
            LogPlace::Own(_) => key_of(&self.uuid_as_stored()),
        }
    }

    /// Where our own log could be kept, at most; `bitmap_sectors` are those that the array's bitmap takes. None where there is no room,
    /// or no place for the stamp.
    #[must_use]
    pub fn own_log_place(&self, bitmap_sectors: u64) -> Option<OwnLogPlace> {
        if !self.version.is_v1() {
            return None;
        }
        let device = &self.device;
        let own = (device.super_offset_sectors, self.written_bytes() as u64 / SECTOR_BYTES);
        let bad_blocks = device.bad_block_log.zip(self.bad_block_log_offset_bytes());
        let bad_blocks =
            bad_blocks.map(|(log, start)| (start / SECTOR_BYTES, u64::from(log.size_sectors)));
        let bitmap = self.bitmap_offset_bytes().map(|start| (start / SECTOR_BYTES, bitmap_sectors));
        let ppl = self.ppl_area();
        let ppl = ppl.map(|(start, place)| (start / SECTOR_BYTES, place.used_sectors()));
        let others = [Some(own), bad_blocks, bitmap, ppl].into_iter().flatten();
        let before = others.filter(|(start, _)| *start < device.data_offset_sectors);
        let free_from = before.map(|(start, sectors)| start.saturating_add(sectors)).max();
        let free_from = free_from.unwrap_or(0).next_multiple_of(PPL_HEADER_SECTORS);
        let room = device.data_offset_sectors.checked_sub(free_from)?;
        let ring = room.checked_sub(OWN_LOG_HEAD_SECTORS)?.min(RING_SECTORS_MAX);
        let ring = ring - ring % PPL_HEADER_SECTORS;
        let size_sectors = u32::try_from(ring).ok()?;
        (ring > PPL_HEADER_SECTORS).then_some(OwnLogPlace::of(size_sectors))
    }

    /// What is there of our own log; `read` gives so many bytes from one on. None if there is no head of this array.
    ///
    /// # Errors
    /// The driver's own, of the head; records that cannot be read are a log that cannot.
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

/// What is there of our own log that ends with this sector, of the array with this UUID. None if there is no head.
///
/// # Errors
/// The driver's own, of the head.
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

/// What records of our own log are signed with.
fn key_of(array_uuid: &[u8; 16]) -> [u8; 16] {
    let mut key = *array_uuid;
    key.iter_mut().zip(WORD).for_each(|(key, word)| *key ^= word);
    key
}

/// Our own log as it is on a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLog {
    /// Where it is, as its head says.
    pub place: Result<OwnLogPlace, OwnLogHeadError>,
    /// What it says.
    pub log: Result<PplLog, PplLogError>,
}

/// The head of our own log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLogHead {
    /// Where the records are.
    pub place: OwnLogPlace,
}

/// What can be wrong with a head that is this array's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OwnLogHeadError {
    /// The stored and the computed checksum differ.
    #[error("the checksum of its head is {stored:08x}, its bytes give {computed:08x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// Another layout than any known here.
    #[error("its format is {format}, and only {FORMAT_OF_ONE} and {FORMAT} are known")]
    FormatUnknown {
        /// As stored.
        format: u32,
    },
    /// A size that no ring has.
    #[error("a ring of {size_sectors} sectors makes no sense")]
    Size {
        /// As stored.
        size_sectors: u32,
    },
}

impl OwnLogHead {
    /// The 4096 bytes as they are on disk. `array_uuid` is [`Superblock::uuid_as_stored`].
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

    /// What a block says, if it is the head of this array's log.
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
        // Those of which an older version makes something are told apart from those that it refuses.
        let of_one = OwnLogHead { place: OwnLogPlace { size_sectors: 2048, is_many: false } };
        assert_eq!(OwnLogHead::read(&of_one.to_bytes(&UUID), &UUID), Some(Ok(of_one)));
        assert_eq!((bytes[8], of_one.to_bytes(&UUID)[8]), (2, 1), "formats");
        assert_eq!(OwnLogHead::read(&bytes, b"another array...."[..16].try_into().unwrap()), None);
        assert_eq!(OwnLogHead::read(&[0; 4096], &UUID), None);
        assert_eq!(OwnLogHead::read(&bytes[..4000], &UUID), None);
        // Whatever bit is wrong behind the name and the UUID, it is said.
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
        // What is before it may leave less.
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
