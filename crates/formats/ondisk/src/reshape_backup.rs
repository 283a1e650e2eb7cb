//! mdadm's backup during a reshape whose new shape would overwrite data that the old shape still
//! needs.
//!
//! The backup is in a file (`mdadm --grow --backup-file`), or at the end of a new member. A header
//! of 512 bytes describes the content; the data are sectors of the array, in their order.
//!
//! ```text
//!     0  magic[16]     "md_backup_data-1", or -2 where a second part counts
//!    16  uuid[16]      the array's, as its superblocks store it
//!    32  mtime         seconds
//!    40  devstart      first sector of the first part in the file
//!    48  arraystart    first array sector of the first part
//!    56  length
//!    64  sb_csum       of 64 bytes                              68  zero
//!    72  devstart2     first sector of the second part, after devstart
//!    80  arraystart2
//!    88  length2
//!    96  sb_csum2      of 96 bytes
//! ```
//!
//! Both sums add the first byte alone, once for each byte that they cover. A torn header therefore
//! has the right sum too, and readers must check the ranges.
//!
//! In a file the header is at the file's start; on a member it is 8 sectors before the end of the
//! used part.
//!
//! `braid_assembly::reshape` decides which data is needed. Facts are from mdadm 4.2's files.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::limits::SECTORS_MAX;

/// Bytes of the header of a backup.
pub const RESHAPE_BACKUP_BYTES: usize = 512;
/// Sectors from the header on a member to the end of the part that the array uses.
pub const RESHAPE_BACKUP_BEFORE_END_SECTORS: u64 = 8;

const MAGIC: &[u8; 15] = b"md_backup_data-";
const SUMMED: [usize; 2] = [64, 96];

#[derive(Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 15],
    version: u8,
    uuid: [u8; 16],
    mtime: U64,
    start: U64,
    array_start: U64,
    length: U64,
    checksum: U32,
    padding: U32,
    second_start: U64,
    second_array_start: U64,
    second_length: U64,
    second_checksum: U32,
}

/// Sectors of the array, and their place in the backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupPart {
    /// First sector of the array.
    pub array_start_sectors: u64,
    /// Number of sectors; not zero.
    pub length_sectors: u64,
    /// First sector in the file, or on the member.
    pub at_sectors: u64,
}

/// A validated header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReshapeBackup {
    /// The array's UUID, as its superblocks store it ([`crate::Superblock::uuid_as_stored`]).
    pub uuid: [u8; 16],
    /// Time of writing, in seconds.
    pub seconds: u64,
    /// The first sector of the first part. A copy of the header is 8 sectors before it.
    pub start_sectors: u64,
    /// The parts of the backup: at most two. The list is empty if no data of the backup is needed
    /// any more.
    pub parts: Vec<BackupPart>,
}

/// Why bytes are not a backup header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReshapeBackupError {
    /// Fewer bytes than a header has.
    #[error("it is too short for the head of a backup")]
    CutOff,
    /// The bytes have no magic.
    #[error("it is no backup of a reshape")]
    NotABackup,
    /// The sum does not fit the first byte.
    #[error("its checksum is {stored:#x} and should be {computed:#x}")]
    Checksum {
        /// Stored sum.
        stored: u32,
        /// Computed sum.
        computed: u32,
    },
    /// A part that no array can have.
    #[error("it says that it has {length} sectors from sector {start} on")]
    Range {
        /// First sector of the array.
        start: u64,
        /// Number of sectors.
        length: u64,
    },
}

/// Parses a header at the start of `bytes`.
///
/// # Errors
/// The first fault found.
pub fn reshape_backup(bytes: &[u8]) -> Result<ReshapeBackup, ReshapeBackupError> {
    if bytes.len() < RESHAPE_BACKUP_BYTES {
        return Err(ReshapeBackupError::CutOff);
    }
    let (header, _) = Header::read_from_prefix(bytes).map_err(|_| ReshapeBackupError::CutOff)?;
    let has_second = match (&header.magic == MAGIC, header.version) {
        (true, b'1') => false,
        (true, b'2') => true,
        _ => return Err(ReshapeBackupError::NotABackup),
    };
    let [first, second] = SUMMED;
    check_sum(bytes, first, header.checksum.get())?;
    let mut parts = vec![(header.start.get(), header.array_start.get(), header.length.get())];
    if has_second {
        check_sum(bytes, second, header.second_checksum.get())?;
        let (array_start, length) = (header.second_array_start.get(), header.second_length.get());
        let start = header.start.get().saturating_add(header.second_start.get());
        parts.push((start, array_start, length));
    }
    let parts = parts.into_iter().filter(|(.., length)| *length > 0);
    let part = |(at, start, length): (u64, u64, u64)| {
        let ends = [at, start].map(|first| first.checked_add(length));
        match ends.iter().all(|end| end.is_some_and(|end| end <= SECTORS_MAX)) {
            true => Ok(BackupPart {
                array_start_sectors: start,
                length_sectors: length,
                at_sectors: at,
            }),
            false => Err(ReshapeBackupError::Range { start, length }),
        }
    };
    let parts = parts.map(part).collect::<Result<_, _>>()?;
    let (uuid, seconds, start_sectors) = (header.uuid, header.mtime.get(), header.start.get());
    Ok(ReshapeBackup { uuid, seconds, start_sectors, parts })
}

fn check_sum(bytes: &[u8], count: usize, stored: u32) -> Result<(), ReshapeBackupError> {
    let first = u32::from(bytes.first().copied().unwrap_or(0));
    let add = |sum: u32, _| (sum << 3).wrapping_add(first);
    let computed = (0..count).fold(0, add);
    if stored == computed { Ok(()) } else { Err(ReshapeBackupError::Checksum { stored, computed }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum for 64 bytes, and for 96: that many times "m", the first byte.
    const SUM: u32 = {
        let (mut sum, mut count) = (0_u32, 0);
        while count < 64 {
            sum = (sum << 3).wrapping_add(b'm' as u32);
            count += 1;
        }
        sum
    };

    fn header(version: u8, parts: [[u64; 3]; 2]) -> Vec<u8> {
        let mut bytes = vec![0; RESHAPE_BACKUP_BYTES];
        bytes[..15].copy_from_slice(MAGIC);
        bytes[15] = version;
        bytes[16..32].copy_from_slice(&[7; 16]);
        let words = [&[1_700_000_000][..], &parts[0]].concat();
        for (at, word) in (32..).step_by(8).zip(words) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (at, word) in (72..).step_by(8).zip(parts[1]) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[64..68].copy_from_slice(&SUM.to_le_bytes());
        bytes[96..100].copy_from_slice(&SUM.to_le_bytes());
        bytes
    }

    #[test]
    fn both_parts_of_a_backup_are_read() {
        let parts = [[8, 6144, 3072], [3072, 9216, 3072]];
        let one = reshape_backup(&header(b'1', parts)).expect("a header");
        let first = BackupPart { array_start_sectors: 6144, length_sectors: 3072, at_sectors: 8 };
        let second =
            BackupPart { array_start_sectors: 9216, length_sectors: 3072, at_sectors: 3080 };
        assert_eq!((one.uuid, one.seconds, one.start_sectors), ([7; 16], 1_700_000_000, 8));
        assert_eq!(one.parts, [first], "the second part counts with -2 only");
        let two = reshape_backup(&header(b'2', parts)).expect("a header");
        assert_eq!(two.parts, [first, second]);
        let left = reshape_backup(&header(b'2', [[8, 0, 0], parts[1]])).expect("a header");
        assert_eq!(left.parts, [second], "one that was given up is empty");
    }

    /// mdadm 4.2 wrote this backup while a RAID-5 with metadata 0.90 changed its chunk from 32 KiB
    /// to 64.
    #[test]
    fn a_backup_of_mdadm_is_read() {
        let words = "6d645f6261636b75705f646174612d320601d47752cfe481431364b6450fc47c\
                     0bb9556900000000080000000000000000000000000000008001000000000000\
                     1549922400000000800100000000000080010000000000008001000000000000\
                     15499224";
        let digits = words.as_bytes().chunks(2);
        let byte = |two: &[u8]| {
            let two = std::str::from_utf8(two).expect("digits");
            u8::from_str_radix(two, 16).expect("a byte")
        };
        let mut bytes: Vec<u8> = digits.map(byte).collect();
        bytes.resize(RESHAPE_BACKUP_BYTES, 0);
        let backup = reshape_backup(&bytes).expect("a header");
        let part = |start, at| BackupPart {
            array_start_sectors: start,
            length_sectors: 384,
            at_sectors: at,
        };
        assert_eq!(backup.parts, [part(0, 8), part(384, 392)]);
        assert_eq!((backup.start_sectors, backup.seconds), (8, 0x6955_b90b));
    }

    #[test]
    fn what_is_no_backup_is_told_apart() {
        let good = header(b'2', [[8, 0, 64], [64, 64, 64]]);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] ^= byte;
            reshape_backup(&bytes).expect_err("it is not right")
        };
        assert_eq!(with(3, 1), ReshapeBackupError::NotABackup);
        assert_eq!(with(15, 1), ReshapeBackupError::NotABackup);
        assert!(matches!(with(64, 1), ReshapeBackupError::Checksum { .. }));
        assert!(matches!(with(97, 1), ReshapeBackupError::Checksum { .. }));
        assert!(matches!(with(63, 0x80), ReshapeBackupError::Range { .. }));
        assert!(matches!(with(87, 0x80), ReshapeBackupError::Range { .. }));
        assert_eq!(reshape_backup(&good[..511]), Err(ReshapeBackupError::CutOff));
    }
}
