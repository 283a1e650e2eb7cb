//! A bitmap file: a file outside the members with an array's write-intent bitmap, followed by our
//! own parity log.
//!
//! md's bitmap file (`mdadm --bitmap=FILE`) is the area of a classic bitmap ([`crate::bitmap`]) at
//! the start of a file on another file system. No superblock names it: the operator passes its path
//! on each start. The bitmap's event count shows whether the array was written without the file. md
//! reads only the bitmap, so the space after the bitmap is ours:
//!
//! ```text
//!   0                                       | records, a ring | head: 8 sectors | end of the file
//!   superblock of the bitmap, bits  (free)  | size_sectors    |                 |
//! ```
//!
//! One log serves all members, with the records and the head of [`crate::own_log`]. It needs no
//! room on members, so arrays with metadata 0.90 and 1.0, whose data begins at the first sector,
//! can have the log too.
//!
//! # When it counts
//! The log counts if two things hold. Superblocks have the stamp of a log in a file
//! ([`LogHome::File`](crate::LogHome)). And the event count of the file's bitmap equals the
//! superblocks' count, or is one more: a restored old copy of the file has a lower count.
//!
//! # Invariants
//! - The log does not overlap the bitmap [check: a_log_that_would_lie_in_the_bitmap_is_none].
//! - Written files are read back [check: what_is_made_is_read].

use thiserror::Error;

use crate::bitmap::{AREA_BYTES_MAX, Bitmap, BitmapError, BitmapSuperblock, UnvalidatedBitmap};
use crate::limits::SECTOR_BYTES;
use crate::log_place::{LogPlace, OwnLogPlace};
use crate::own_log::{
    OWN_LOG_HEAD_SECTORS, OwnLog, OwnLogHeadError, RING_SECTORS_MAX, own_log_before,
};
use crate::{BitmapPlace, PPL_HEADER_SECTORS, Superblock};

/// Sectors kept for the bitmap in a new file: 1 MiB.
const BITMAP_SECTORS_MIN: u64 = 2048;
/// Bytes of the shortest file with room for a log.
pub const BITMAP_FILE_BYTES_MIN: u64 =
    (BITMAP_SECTORS_MIN + RING_SECTORS_MAX + OWN_LOG_HEAD_SECTORS) * SECTOR_BYTES;
const BITMAP_HEAD_BYTES: u64 = 256;

/// The content of a bitmap file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmapFile {
    /// The UUID of its array, as the bitmap stores it ([`Superblock::uuid_as_stored`]).
    pub uuid: [u8; 16],
    /// The file's length in bytes.
    pub size_bytes: u64,
    /// The bitmap in the file.
    pub bitmap: Result<Bitmap, BitmapError>,
    /// The parity log after the bitmap; `None` without a log head.
    pub own_log: Option<OwnLog>,
}

/// Why a file is not a bitmap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BitmapFileError {
    /// The file does not begin with a bitmap superblock.
    #[error("it does not begin with a bitmap")]
    NotABitmap,
}

impl BitmapFile {
    /// Reads a file of `size_bytes`. `read` returns bytes of the file, and is never asked for bytes
    /// beyond its end.
    ///
    /// # Errors
    /// Outer: the driver could not read the bitmap. Unreadable log records are reported in the log
    /// instead. Inner: the file is not a bitmap file.
    pub fn read<E>(
        size_bytes: u64,
        mut read: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
    ) -> Result<Result<Self, BitmapFileError>, E> {
        let head = read(0, BITMAP_HEAD_BYTES.min(size_bytes))?;
        let found = UnvalidatedBitmap::recognise(&head);
        let Some((found, uuid)) = found.and_then(|found| Some((found, found.array_uuid()?))) else {
            return Ok(Err(BitmapFileError::NotABitmap));
        };
        let bitmap = match found.validate(&uuid) {
            Err(error) => Err(error),
            // Validation has limited the size: md would hold no larger bitmap in memory.
            Ok(superblock) => {
                let area = read(0, superblock.total_bytes().min(size_bytes))?;
                Bitmap::read(superblock, &area)
            }
        };
        let taken = bitmap.as_ref().map_or(0, |bitmap| bitmap.superblock.area_sectors());
        let mut own_log = own_log_before(size_bytes / SECTOR_BYTES, &uuid, &mut read)?;
        if let Some(log) = &mut own_log
            && let Ok(place) = log.place
            && Self::log_place(size_bytes, taken)
                .is_none_or(|most| most.size_sectors < place.size_sectors)
        {
            let size_sectors = place.size_sectors;
            log.place = Err(OwnLogHeadError::Size { size_sectors });
        }
        Ok(Ok(Self { uuid, size_bytes, bitmap, own_log }))
    }

    /// Plans a bitmap of `sectors` sectors for a file of a given size, or for a new file. A bit
    /// covers the requested bytes, or mdadm's default. `None` if the file has no room.
    #[must_use]
    pub fn plan(
        sectors: u64,
        size_bytes: Option<u64>,
        asked_bytes: Option<u32>,
    ) -> Option<BitmapSuperblock> {
        let made =
            if asked_bytes.is_some() { AREA_BYTES_MAX / SECTOR_BYTES } else { BITMAP_SECTORS_MIN };
        let log = OwnLogPlace::of(u32::try_from(RING_SECTORS_MAX).ok()?);
        let found = size_bytes.map(|bytes| match bytes < BITMAP_FILE_BYTES_MIN {
            true => Self::room_for_bitmap(bytes, None),
            false => Self::room_for_bitmap(bytes, Some(log)),
        });
        let place = BitmapPlace { offset_sectors: 0, room_sectors: found.unwrap_or(made) };
        let chunk_bytes = place.chunk_bytes(sectors, asked_bytes)?;
        Some(BitmapSuperblock::new(sectors, chunk_bytes, 0))
    }

    /// Bytes of a new file for this bitmap, with room for a log and for a bitmap of 1 MiB.
    #[must_use]
    pub fn bytes_for(bitmap: &BitmapSuperblock) -> u64 {
        let bitmap = bitmap.area_sectors().next_multiple_of(PPL_HEADER_SECTORS);
        let sectors = bitmap.max(BITMAP_SECTORS_MIN) + RING_SECTORS_MAX + OWN_LOG_HEAD_SECTORS;
        sectors * SECTOR_BYTES
    }

    /// The place of a log in a file with a bitmap of `bitmap_sectors`; `None` without room.
    #[must_use]
    pub fn log_place(size_bytes: u64, bitmap_sectors: u64) -> Option<OwnLogPlace> {
        let taken = bitmap_sectors.next_multiple_of(PPL_HEADER_SECTORS) + OWN_LOG_HEAD_SECTORS;
        let ring = (size_bytes / SECTOR_BYTES).checked_sub(taken)?.min(RING_SECTORS_MAX);
        let ring = ring - ring % PPL_HEADER_SECTORS;
        let size_sectors = u32::try_from(ring).ok()?;
        (ring > PPL_HEADER_SECTORS).then_some(OwnLogPlace::of(size_sectors))
    }

    /// Sectors that a bitmap can use in a file of `size_bytes`, with or without a log after it.
    #[must_use]
    pub fn room_for_bitmap(size_bytes: u64, log: Option<OwnLogPlace>) -> u64 {
        let log =
            log.map_or(0, |place| LogPlace::from(place).used_sectors() + OWN_LOG_HEAD_SECTORS);
        (size_bytes / SECTOR_BYTES).saturating_sub(log)
    }
}

impl Superblock {
    /// Whether this superblock stands in for a bitmap file ([`Self::for_bitmap_file`]).
    #[must_use]
    pub fn is_of_bitmap_file(&self) -> bool {
        self.device.super_offset_sectors == 0 && self.intent.bitmap_offset_sectors == Some(0)
    }

    /// A stand-in superblock for writing this array's bitmap file: it supplies the offsets in the
    /// file and the keys of the log. The stand-in is on no device.
    #[must_use]
    pub fn for_bitmap_file(&self, size_bytes: u64) -> Self {
        let mut stand_in = self.clone();
        stand_in.device.super_offset_sectors = 0;
        stand_in.device.data_offset_sectors = size_bytes / SECTOR_BYTES;
        stand_in.device.bad_block_log = None;
        stand_in.intent.bitmap_offset_sectors = Some(0);
        stand_in.intent.ppl = None;
        stand_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::made;
    use crate::{Bits, OwnLogHead, PplLogError, Version};

    fn file(size_bytes: u64, bits: &Bits, ring: Option<u32>) -> Vec<u8> {
        let superblock = made(Version::V1_2);
        let uuid = superblock.uuid_as_stored();
        let bitmap = BitmapSuperblock::new(bits.sectors(), 64 << 20, 0);
        let mut file = vec![0; usize::try_from(size_bytes).unwrap()];
        let area = bitmap.area(&uuid, bits, None);
        file[..area.len()].copy_from_slice(&area);
        if let Some(size_sectors) = ring {
            let head = OwnLogHead { place: OwnLogPlace::of(size_sectors) }.to_bytes(&uuid);
            let at = file.len() - head.len();
            file[at..].copy_from_slice(&head);
        }
        file
    }

    fn read(file: &[u8]) -> Result<BitmapFile, BitmapFileError> {
        let read = |start: u64, length: u64| {
            let start = usize::try_from(start).unwrap();
            Ok::<_, ()>(file[start..start + usize::try_from(length).unwrap()].to_vec())
        };
        BitmapFile::read(file.len() as u64, read).unwrap()
    }

    fn some_bits() -> Bits {
        let mut bits = Bits::none(1 << 21, 1 << 17);
        bits.set(3);
        bits
    }

    #[test]
    fn what_is_made_is_read() {
        let superblock = made(Version::V1_2);
        let made = file(BITMAP_FILE_BYTES_MIN, &some_bits(), Some(2048));
        let found = read(&made).unwrap();
        assert_eq!(found.uuid, superblock.uuid_as_stored());
        assert_eq!(found.bitmap.unwrap().bits, some_bits());
        let log = found.own_log.unwrap();
        assert_eq!(log.place, Ok(OwnLogPlace::of(2048)));
        assert_eq!(log.log, Err(PplLogError::Void));
        // A stand-in superblock, as the driver uses it to write the file.
        let stand_in = superblock.for_bitmap_file(BITMAP_FILE_BYTES_MIN);
        assert_eq!(stand_in.bitmap_offset_bytes(), Some(0));
        assert!(stand_in.is_of_bitmap_file() && !superblock.is_of_bitmap_file());
        let start = stand_in.log_start_bytes(OwnLogPlace::of(2048).into());
        assert_eq!(start, Some(BITMAP_FILE_BYTES_MIN - 4096 - (1 << 20)));
        // A file that mdadm made ends with the bitmap's bits.
        let short = read(&made[..258]).unwrap();
        assert_eq!((short.bitmap.unwrap().bits, short.own_log), (some_bits(), None));
        assert_eq!(read(&made[..200]), Err(BitmapFileError::NotABitmap));
        assert_eq!(read(&[]), Err(BitmapFileError::NotABitmap));
        assert_eq!(read(&[0; 4096]), Err(BitmapFileError::NotABitmap));
    }

    #[test]
    fn a_log_that_would_lie_in_the_bitmap_is_none() {
        let found = read(&file(264 * 512, &some_bits(), Some(248))).unwrap();
        assert_eq!(found.own_log.unwrap().place, Ok(OwnLogPlace::of(248)));
        let found = read(&file(264 * 512, &some_bits(), Some(256))).unwrap();
        let size_sectors = 256;
        assert_eq!(found.own_log.unwrap().place, Err(OwnLogHeadError::Size { size_sectors }));
        assert_eq!(BitmapFile::log_place(264 * 512, 1).map(|place| place.size_sectors), Some(248));
        assert_eq!(BitmapFile::log_place(24 * 512, 1), None);
        let log = BitmapFile::log_place(BITMAP_FILE_BYTES_MIN, 1);
        assert_eq!(BitmapFile::room_for_bitmap(BITMAP_FILE_BYTES_MIN, log), 2048);
    }
}
