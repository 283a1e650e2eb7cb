//! The faults of a superblock that has md's magic.

use thiserror::Error;

use super::facts::Version;
use crate::limits::LOGICAL_BLOCK_BYTES_MAX;

/// A superblock with md's magic at the place of `version` that failed validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("superblock {version} at byte {offset_bytes}: {cause}")]
pub struct SuperblockError {
    /// The version whose place holds the superblock.
    pub version: Version,
    /// Byte offset of the superblock on the device.
    pub offset_bytes: u64,
    /// The fault.
    #[source]
    pub cause: SuperblockFault,
    /// The claim of a superblock that may be torn: it is longer than a sector, and only its
    /// checksum is wrong.
    pub claim: Option<Claim>,
}

/// Facts from a superblock with a wrong checksum: a reason to refuse, never a reason to believe.
/// All facts are in the first sector, which does not tear. So in a torn superblock the facts are
/// wholly from before or wholly from after the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// UUID of the array, in mdadm's order.
    pub array_uuid: [u8; 16],
    /// The claimed event count.
    pub events: u64,
    /// The number of slots without an active member. The number is too high if devices in 1.x have
    /// numbers of 128 and above.
    pub missing: u32,
}

/// The fault of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SuperblockFault {
    /// The bytes at hand end before the superblock does.
    #[error("cut off: {present_bytes} bytes are there, {needed_bytes} are needed")]
    CutOff {
        /// Bytes at hand.
        present_bytes: u64,
        /// Bytes needed.
        needed_bytes: u64,
    },
    /// A version number that does not belong at this place.
    #[error("version {major}.{minor} is not a version md uses here")]
    VersionUnknown {
        /// `major_version`.
        major: u32,
        /// `minor_version` of 0.90; 0 in 1.x, which does not store it.
        minor: u32,
    },
    /// The stored and the computed checksum differ.
    #[error("checksum is {stored:08x}, its bytes sum to {computed:08x}")]
    Checksum {
        /// Stored checksum.
        stored: u32,
        /// Computed checksum.
        computed: u32,
    },
    /// The superblock names another place than its own: it is a copy, or the device changed its
    /// size.
    #[error("says it belongs at sector {stored}, found at sector {found}")]
    WrongPlace {
        /// The field `super_offset`; for 0.90, which does not store the field, the place where md
        /// looks.
        stored: u64,
        /// The sector where the superblock was found.
        found: u64,
    },
    /// More roles than a superblock can hold.
    #[error("{count} roles are more than the {max} that fit")]
    RoleCount {
        /// The superblock's `max_dev`.
        count: u32,
        /// The most roles that a superblock can hold.
        max: u32,
    },
    /// A level of md that braid refuses by name, or an unknown number.
    #[error("level {number} ({name}) is not served")]
    Level {
        /// md's number of the level.
        number: i32,
        /// md's name: `multipath`, `faulty`, `container` or `unknown`.
        name: &'static str,
    },
    /// A number of slots that the level cannot have.
    #[error("{slots} slots: level {level} takes {min} to {max}")]
    Slots {
        /// The superblock's `raid_disks`.
        slots: u32,
        /// md's number of the level.
        level: i32,
        /// The fewest slots for the level.
        min: u32,
        /// The most slots for the level.
        max: u32,
    },
    /// A chunk of zero where the level needs one.
    #[error("the chunk size is zero")]
    ChunkZero,
    /// A chunk that md would refuse.
    #[error("a chunk of {sectors} sectors is not one md takes for this level")]
    Chunk {
        /// Sectors per chunk.
        sectors: u32,
    },
    /// A count of sectors that no device can have.
    #[error("{field} claims {sectors} sectors, more than any device has")]
    SectorCount {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        sectors: u64,
    },
    /// An event count that no array can have reached.
    #[error("it counts {events} events, more than any array can have had")]
    EventCount {
        /// The stored event count.
        events: u64,
    },
    /// The device is smaller than its superblock says: it was truncated.
    #[error("the device is {missing_bytes} bytes too short for the data it says it holds")]
    Truncated {
        /// Bytes missing at the end.
        missing_bytes: u64,
    },
    /// The data area overlaps the superblock.
    #[error("the data area (sector {data_offset}) overlaps the superblock")]
    DataOverlapsSuperblock {
        /// First sector of the data area.
        data_offset: u64,
    },
    /// The array uses more of the member than its data area holds, or none of it.
    #[error("the array uses {used} sectors of a data area of {available}")]
    MemberSize {
        /// The superblock's `size`.
        used: u64,
        /// The superblock's `data_size`.
        available: u64,
    },
    /// A role that names a slot the array does not have, or a reserved value.
    #[error("device {device} has role {role}, the array has {slots} slots")]
    RoleOutOfRange {
        /// Device number.
        device: u32,
        /// The stored role.
        role: u32,
        /// The superblock's `raid_disks`.
        slots: u32,
    },
    /// A logical block size that no device could have.
    #[error(
        "a logical block of {bytes} bytes is no power of two from 512 to {LOGICAL_BLOCK_BYTES_MAX}"
    )]
    LogicalBlock {
        /// Stored size.
        bytes: u32,
    },
    /// Features that exclude each other, or a feature without another that it needs.
    #[error("contradiction: {0}")]
    Contradiction(&'static str),
    /// A log or bitmap outside the device or larger than md allows.
    #[error("the place of the {0} is impossible")]
    Place(&'static str),
}
