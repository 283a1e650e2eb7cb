//! An array in the middle of a reshape as one device: each stretch is read from its own source.
//!
//! ```text
//!   | zeroes | 0 ............ position ....................... size | zeroes |
//!              Volume (after)   backup   nothing   Volume (before)
//! ```
//!
//! Both volumes are arrays of the same members, opened read-only. Sectors without a source are an
//! I/O error.
//!
//! Invariant: the device is only read; a write is refused before any request is made
//! `[check: what_is_joined_is_only_read]`.

pub(super) use braid_geometry::SECTOR_BYTES;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use braid_member::{Identity, Member, MemberError, MemoryMember, check_bounds};
use braid_ondisk::ReshapeSide;
use braid_ring::Payload;
use braid_runtime::{ClientRequest, Volume};
use rustix::io::Errno;

/// Bytes of zeroes before the array, and as many after. Existing overlays include these margins.
pub(super) const MARGIN_BYTES: u64 = 1 << 20;
const PIECE_BYTES: usize = 1 << 20;

#[derive(Clone)]
pub(super) enum BackupPlace {
    File(Arc<File>),
    Member(Arc<dyn Member>),
}

impl BackupPlace {
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), MemberError> {
        match self {
            Self::File(file) => Ok(file.read_exact_at(buffer, offset)?),
            Self::Member(member) => member.read_at(buffer, offset),
        }
    }
}

#[derive(Clone)]
pub(super) enum Source {
    /// The array in the old or the new shape.
    Side(ReshapeSide),
    /// A backup; the stretch begins at this sector of the backup.
    Backup(BackupPlace, u64),
    /// No source: reads are an I/O error.
    Nowhere,
}

#[derive(Clone)]
pub(super) struct Stretch {
    pub(super) sectors: Range<u64>,
    pub(super) source: Source,
}

pub(super) struct ReshapeDevice {
    size_sectors: u64,
    /// The stretches of the array, in order, without gaps.
    stretches: Vec<Stretch>,
    before: Option<Volume>,
    after: Option<Volume>,
    identity: Identity,
}

impl ReshapeDevice {
    /// Joins consecutive stretches into one device; the first stretch begins at sector 0.
    pub(super) fn new(
        stretches: Vec<Stretch>,
        (before, after): (Option<Volume>, Option<Volume>),
    ) -> Self {
        let ends = stretches.windows(2).all(|two| two[0].sectors.end == two[1].sectors.start);
        assert!(ends && stretches.first().is_none_or(|one| one.sectors.start == 0), "no gaps");
        let size_sectors = stretches.last().map_or(0, |one| one.sectors.end);
        let identity = MemoryMember::new(0).identity().clone();
        Self { size_sectors, stretches, before, after, identity }
    }

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
}

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

impl Member for ReshapeDevice {
    fn size_bytes(&self) -> u64 {
        self.size_sectors * SECTOR_BYTES + 2 * MARGIN_BYTES
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        let (length_bytes, size_bytes) = (buffer.len() as u64, self.size_bytes());
        check_bounds(offset_bytes, length_bytes, size_bytes)?;
        buffer.fill(0);
        let end = offset_bytes + length_bytes;
        let array = MARGIN_BYTES..size_bytes - MARGIN_BYTES;
        let (from, to) = (offset_bytes.max(array.start), end.min(array.end));
        if from >= to {
            return Ok(());
        }
        let part = &mut buffer[to_usize(from - offset_bytes)..to_usize(to - offset_bytes)];
        self.read_array(part, from - MARGIN_BYTES)
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
        let joined = ReshapeDevice::new(stretches, (None, None));
        assert_eq!(joined.size_bytes(), (2048 + 2100 + 2048) * 512);
        let mut found = vec![0; 3 * 512];
        joined.read_array(&mut found, 0).expect("it is there");
        assert_eq!(found, bytes[2 * 512..5 * 512]);
        let at = |byte| MARGIN_BYTES + byte;
        joined.read_at(&mut found, at(100)).expect_err("a byte of it is nowhere");
        joined.read_at(&mut found[..1400], at(100)).expect("it is there");
        assert_eq!(found[..1400], bytes[2 * 512 + 100..][..1400]);
        joined.read_at(&mut found, at(5 * 512)).expect("it is there");
        assert_eq!(found, bytes[..3 * 512]);
        joined.read_at(&mut found, at(2100 * 512)).expect("zeroes");
        assert!(found.iter().all(|byte| *byte == 0));
        joined.read_at(&mut found, joined.size_bytes() - 512).expect_err("it is outside");
        assert_eq!(joined.write_at(&found, 0, false), Err(MemberError::ReadOnly));
        assert_eq!(joined.zero(0, 512, true), Err(MemberError::ReadOnly));
    }
}
