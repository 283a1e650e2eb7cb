//! An array in the middle of a reshape as one device: each stretch of it is read from where it is.
//!
//! ```text
//!   | head | 0 ............ position ....................... size | tail |      head and tail are zeroes, and the superblock of an
//!            Volume (after)   backup   nothing   Volume (before)                array of one member, which is what is served
//! ```
//!
//! Both volumes are arrays of the same members, opened for reading. What no stretch has is an I/O error.
//!
//! Invariant: it is only read; a write is refused before anything is asked `[check: what_is_joined_is_only_read]`.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use braid_member::{Identity, Member, MemberError, MemoryMember};
use braid_ondisk::{
    ArrayFacts, DeviceFlags, NewSuperblock, Placement, ReshapeSide, Role, Superblock, Version,
};
use braid_ring::Payload;
use braid_runtime::{ClientRequest, Volume};
use rustix::io::Errno;

/// Bytes in a sector.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Sectors before the array, and behind it: nothing that looks for superblocks looks further.
const MARGIN_SECTORS: u64 = 2048;
/// The same in bytes.
pub(super) const MARGIN_BYTES: u64 = MARGIN_SECTORS * SECTOR_BYTES;
/// The superblock's sector: that of 1.2.
const SUPERBLOCK_SECTOR: u64 = 8;
/// Bytes of a name that fit a superblock.
const NAME_BYTES_MAX: usize = 31;
/// Bytes that are asked of a volume at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where a backup is.
#[derive(Clone)]
pub(super) enum BackupPlace {
    File(Arc<File>),
    Member(Arc<dyn Member>),
}

impl BackupPlace {
    /// Reads what lies there.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), MemberError> {
        match self {
            Self::File(file) => Ok(file.read_exact_at(buffer, offset)?),
            Self::Member(member) => member.read_at(buffer, offset),
        }
    }
}

/// Where a stretch is read.
#[derive(Clone)]
pub(super) enum Source {
    /// From the array as it is on this side.
    Side(ReshapeSide),
    /// From a backup, which has it from this sector on.
    Backup(BackupPlace, u64),
    /// Nowhere.
    Nowhere,
}

/// A stretch of the array, in sectors.
#[derive(Clone)]
pub(super) struct Stretch {
    pub(super) sectors: Range<u64>,
    pub(super) source: Source,
}

/// All of it.
pub(super) struct Joined {
    /// The head, with the superblock.
    head: Vec<u8>,
    size_sectors: u64,
    /// In order, without gaps.
    stretches: Vec<Stretch>,
    before: Option<Volume>,
    after: Option<Volume>,
    identity: Identity,
}

impl Joined {
    /// Joins stretches that follow each other from the first sector on.
    pub(super) fn new(
        facts: &ArrayFacts,
        stretches: Vec<Stretch>,
        (before, after): (Option<Volume>, Option<Volume>),
    ) -> Self {
        let ends = stretches.windows(2).all(|two| two[0].sectors.end == two[1].sectors.start);
        assert!(ends && stretches.first().is_none_or(|one| one.sectors.start == 0), "no gaps");
        let size_sectors = stretches.last().map_or(0, |one| one.sectors.end);
        let superblock = superblock(facts, size_sectors);
        let mut head = vec![0; to_usize(MARGIN_SECTORS * SECTOR_BYTES)];
        let bytes = superblock.to_bytes();
        let at = to_usize(SUPERBLOCK_SECTOR * SECTOR_BYTES);
        head[at..at + bytes.len()].copy_from_slice(&bytes);
        let identity = MemoryMember::new(0).identity().clone();
        Self { head, size_sectors, stretches, before, after, identity }
    }

    /// Reads bytes of the array.
    pub(super) fn read_array(&self, buffer: &mut [u8], offset: u64) -> Result<(), MemberError> {
        let end = offset + buffer.len() as u64;
        for stretch in &self.stretches {
            let bytes = stretch.sectors.start * SECTOR_BYTES..stretch.sectors.end * SECTOR_BYTES;
            let (from, to) = (bytes.start.max(offset), bytes.end.min(end));
            if from >= to {
                continue;
            }
            let part = &mut buffer[to_usize(from - offset)..to_usize(to - offset)];
            match &stretch.source {
                Source::Nowhere => return Err(MemberError::from(Errno::IO)),
                Source::Backup(place, sector) => {
                    place.read_at(part, sector * SECTOR_BYTES + (from - bytes.start))?;
                }
                Source::Side(ReshapeSide::Before) => {
                    read(self.before.as_ref().ok_or(Errno::IO)?, part, from)?;
                }
                Source::Side(ReshapeSide::After) => {
                    read(self.after.as_ref().ok_or(Errno::IO)?, part, from)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of the array.
    pub(super) fn array_bytes(&self) -> u64 {
        self.size_sectors * SECTOR_BYTES
    }
}

/// Reads bytes of an array.
pub(super) fn read(volume: &Volume, buffer: &mut [u8], offset: u64) -> Result<(), MemberError> {
    let error = MemberError::from(Errno::IO);
    for (at, piece) in (offset..).step_by(PIECE_BYTES).zip(buffer.chunks_mut(PIECE_BYTES)) {
        let payload = Payload::zeroed(piece.len());
        let outcome = volume.call(ClientRequest::Read { offset: at, payload });
        outcome.result.map_err(|_| error)?;
        piece.copy_from_slice(&outcome.payload.ok_or(error)?);
    }
    Ok(())
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it is in memory")
}

/// A name that fits a superblock of ours: cut, as one that does not fit is nobody's any more.
fn short_name(name: &str) -> String {
    let name: String = name.chars().filter(|letter| *letter != '\0').collect();
    let mut length = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    name[..length].to_owned()
}

/// The superblock of what is served: one member that holds all, under the array's own name and UUID.
fn superblock(facts: &ArrayFacts, size_sectors: u64) -> Superblock {
    let device_sectors = MARGIN_SECTORS + size_sectors + MARGIN_SECTORS;
    let new = NewSuperblock {
        array: ArrayFacts {
            level: braid_geometry::Level::Linear,
            layout: 0,
            chunk_sectors: 0,
            member_size_sectors: 0,
            raid_slots: 1,
            name: short_name(&facts.name),
            logical_block_bytes: facts.logical_block_bytes,
            ..facts.clone()
        },
        placement: Placement {
            version: Version::V1_2,
            device_bytes: device_sectors * SECTOR_BYTES,
            super_offset_sectors: SUPERBLOCK_SECTOR,
            data_offset_sectors: MARGIN_SECTORS,
            data_size_sectors: size_sectors,
            usable_sectors: size_sectors,
            member_size_sectors: 0,
            bad_block_log: None,
        },
        device_number: 0,
        device_uuid: facts.uuid,
        device_flags: DeviceFlags::default(),
        roles: [Role::Active(0)].into(),
        events: 1,
        resync_offset: u64::MAX,
    };
    Superblock::new_v1(&new).expect("one member of a size that an array has")
}

impl Member for Joined {
    fn size_bytes(&self) -> u64 {
        self.array_bytes() + 2 * MARGIN_SECTORS * SECTOR_BYTES
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        let (length_bytes, size_bytes) = (buffer.len() as u64, self.size_bytes());
        let end = offset_bytes.checked_add(length_bytes).filter(|end| *end <= size_bytes);
        let outside = MemberError::OutOfBounds { offset_bytes, length_bytes, size_bytes };
        let end = end.ok_or(outside)?;
        buffer.fill(0);
        let head = self.head.len() as u64;
        if offset_bytes < head {
            let from = to_usize(offset_bytes);
            let count = (self.head.len() - from).min(buffer.len());
            buffer[..count].copy_from_slice(&self.head[from..from + count]);
        }
        let (from, to) = (offset_bytes.max(head), end.min(head + self.array_bytes()));
        if from < to {
            let part = &mut buffer[to_usize(from - offset_bytes)..to_usize(to - offset_bytes)];
            self.read_array(part, from - head)?;
        }
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64, _: bool) -> Result<(), MemberError> {
        Err(MemberError::ReadOnly)
    }

    fn flush(&self) -> Result<(), MemberError> {
        Ok(())
    }

    fn zero(&self, _: u64, _: u64, _: bool) -> Result<(), MemberError> {
        Err(MemberError::ReadOnly)
    }

    fn can_zero_fast(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn facts() -> ArrayFacts {
        ArrayFacts {
            uuid: [3; 16],
            name: "host:tank".to_owned(),
            creation_time: braid_ondisk::Timestamp { seconds: 1, microseconds: 0 },
            level: braid_geometry::Level::Raid5,
            layout: 2,
            chunk_sectors: 128,
            member_size_sectors: 1 << 12,
            raid_slots: 4,
            preferred_minor: None,
            logical_block_bytes: None,
        }
    }

    fn backup(bytes: &[u8]) -> BackupPlace {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("a file");
        BackupPlace::File(Arc::new(file))
    }

    #[test]
    fn what_is_joined_is_only_read() {
        let bytes: Vec<u8> = (0..8 * 512_u32).map(|at| (at / 7 % 251) as u8).collect();
        let place = backup(&bytes);
        let stretch = |sectors, source| Stretch { sectors, source };
        let stretches = vec![
            stretch(0..3, Source::Backup(place.clone(), 2)),
            stretch(3..5, Source::Nowhere),
            stretch(5..2100, Source::Backup(place, 0)),
        ];
        let joined = Joined::new(&facts(), stretches, (None, None));
        assert_eq!(joined.size_bytes(), (2048 + 2100 + 2048) * 512);
        let mut found = vec![0; 3 * 512];
        joined.read_array(&mut found, 0).expect("it is there");
        assert_eq!(found, bytes[2 * 512..5 * 512]);
        joined.read_at(&mut found, 2048 * 512 + 100).expect_err("a byte of it is nowhere");
        joined.read_at(&mut found[..1400], 2048 * 512 + 100).expect("it is there");
        assert_eq!(found[..1400], bytes[2 * 512 + 100..][..1400]);
        joined.read_at(&mut found, (2048 + 5) * 512).expect("it is there");
        assert_eq!(found, bytes[..3 * 512]);
        joined.read_at(&mut found, (2048 + 2100) * 512).expect("zeroes");
        assert!(found.iter().all(|byte| *byte == 0));
        let size = joined.size_bytes();
        joined.read_at(&mut found, size - 512).expect_err("it is outside");
        assert_eq!(joined.write_at(&found, 0, false), Err(MemberError::ReadOnly));
        assert_eq!(joined.zero(0, 512, true), Err(MemberError::ReadOnly));
        let probed = braid_discovery::probe::probe_member(&joined, "joined").expect("a member");
        let superblock = probed.probe.newest().expect("a superblock");
        assert_eq!((&*superblock.array.name, superblock.array.raid_slots), ("host:tank", 1));
    }
}
