//! One validated superblock of any version.
//!
//! The public fields are the facts in one vocabulary. The bytes stay private, so that a write
//! changes only the fields of [`Superblock::apply`] and keeps every unknown byte.
//!
//! A change of a public field does not change the bytes. Only `apply` changes the bytes, and keeps
//! fields and bytes in step: `tests::what_apply_wrote_reads_back_as_the_value_says`.

mod check;
mod error;
mod facts;
mod intent;
mod new;
mod new_member;
mod reshape_sides;
mod shape;
mod v0_90;
mod v1;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use check::has_member_size;
pub use error::{Claim, SuperblockError, SuperblockFault};
pub use facts::{
    ArrayFacts, ByteOrder, DeviceFacts, DeviceFlags, Features, IntentFacts, LogHome, Reshape,
    ReshapeSide, Role, StateFacts, SuperblockShape, Timestamp, UnknownVersion, Version,
    format_uuid,
};
pub use intent::BitmapPlace;
pub use new::{NewSuperblock, NewSuperblockError, NewV0, SuperblockUpdate};
pub use new_member::JoinError;
pub use v0_90::UnvalidatedV0;
pub use v1::UnvalidatedV1;

use crate::limits::SECTOR_BYTES;

/// A superblock that has passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The superblock's version, which determines its place.
    pub version: Version,
    /// The byte order of the superblock's numbers: little endian, except 0.90 of a big-endian
    /// machine.
    pub byte_order: ByteOrder,
    /// Facts that are the same on every member.
    pub array: ArrayFacts,
    /// Facts about this member only.
    pub device: DeviceFacts,
    /// Facts that change while the array runs.
    pub state: StateFacts,
    /// The places of bitmap, PPL and journal.
    pub intent: IntentFacts,
    /// The reshape under way, if any.
    pub reshape: Option<Reshape>,
    /// The superblock's bytes, in little endian, whatever `byte_order` is.
    raw: Raw,
}

/// The bytes of a superblock, which `Debug` only counts.
#[derive(Clone, PartialEq, Eq)]
struct Raw(Vec<u8>);

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Place of the device's UUID in a version 1 superblock.
const DEVICE_UUID_BYTES: std::ops::Range<usize> = 168..184;
/// Place of the first word of the array's UUID in a 0.90 superblock.
const UUID_WORD_BYTES: std::ops::Range<usize> = 20..24;

impl Superblock {
    /// The superblock's bytes, checksum included, to be written at [`Self::offset_bytes`].
    ///
    /// 0.90 has 4096 bytes. Version 1 has `256 + 2 * roles`, rounded up to sectors, as mdadm writes
    /// it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.byte_order {
            ByteOrder::Little => self.raw.0.clone(),
            ByteOrder::Big => v0_90::turned(&self.raw.0),
        }
    }

    /// Byte offset of the superblock on the device.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.device.super_offset_sectors * SECTOR_BYTES
    }

    /// Bytes of the superblock that no update changes, and their offset on the device: version 1's
    /// UUID of the device, or 0.90's first word of the array's UUID.
    #[must_use]
    pub fn lasting_bytes(&self) -> (u64, Vec<u8>) {
        let range = if self.version.is_v1() { DEVICE_UUID_BYTES } else { UUID_WORD_BYTES };
        let start = self.offset_bytes() + range.start as u64;
        let bytes = self.to_bytes();
        (start, bytes.get(range).expect("a superblock is longer").to_vec())
    }

    /// Byte offset of the bad-block log on the device.
    #[must_use]
    pub fn bad_block_log_offset_bytes(&self) -> Option<u64> {
        let from_superblock = i64::from(self.device.bad_block_log?.offset_sectors);
        let sector = self.device.super_offset_sectors.checked_add_signed(from_superblock)?;
        sector.checked_mul(SECTOR_BYTES)
    }

    /// The array's UUID as the bitmap, the PPL and the journal store it, copied from memory. For
    /// version 1 it equals [`ArrayFacts::uuid`]; for 0.90 of a little-endian machine each 32-bit
    /// word is reversed.
    #[must_use]
    pub fn uuid_as_stored(&self) -> [u8; 16] {
        match (self.version.is_v1(), self.byte_order) {
            (true, _) | (false, ByteOrder::Big) => self.array.uuid,
            (false, ByteOrder::Little) => v0_90::swap_words(self.array.uuid),
        }
    }
}
