//! The inputs for making or changing a superblock.

use std::sync::Arc;

use thiserror::Error;

use super::error::SuperblockError;
use super::facts::{ArrayFacts, DeviceFlags, Role, Timestamp};
use crate::placement::Placement;

/// The longest name in bytes: the field has 32 bytes, and the last byte stays zero.
pub(super) const NAME_BYTES_MAX: usize = 31;

/// All facts of a new version 1 superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSuperblock {
    /// Facts about the array, the same for every member. `preferred_minor` is ignored.
    pub array: ArrayFacts,
    /// The layout of this device; also gives the version.
    pub placement: Placement,
    /// The member's permanent number.
    pub device_number: u32,
    /// The member's identity.
    pub device_uuid: [u8; 16],
    /// The member's flags.
    pub device_flags: DeviceFlags,
    /// Every device's role, by device number; the new member's role is at `device_number`.
    pub roles: Arc<[Role]>,
    /// The event count. mdadm starts at 0, and md counts from there on its first write.
    pub events: u64,
    /// `u64::MAX` if redundancy is right (or the level has none); 0 if md shall resync.
    pub resync_offset: u64,
}

/// All facts of a new version 0.90 superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewV0 {
    /// Facts about the array, the same for every member. 0.90 stores `preferred_minor`, no name.
    pub array: ArrayFacts,
    /// Bytes of the device, which determine the superblock's place.
    pub device_bytes: u64,
    /// The member's permanent number.
    pub device_number: u32,
    /// The member's flags.
    pub device_flags: DeviceFlags,
    /// Every device's role, by device number.
    pub roles: Arc<[Role]>,
    /// Every device's major and minor number, by device number; zeroes without a device.
    pub nodes: Arc<[(u32, u32)]>,
    /// The event count. mdadm starts at 0, and md counts from there on its first write.
    pub events: u64,
    /// `u64::MAX` if redundancy is right (or the level has none); 0 if md shall resync.
    pub resync_offset: u64,
}

/// Why a new superblock cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NewSuperblockError {
    /// The called function does not make superblocks of the requested version.
    #[error("this makes superblocks of version 1, not 0.90")]
    Version0,
    /// The device has no place for a superblock.
    #[error("a device of {device_bytes} bytes is too small for a 0.90 superblock")]
    TooSmall {
        /// Bytes of the device.
        device_bytes: u64,
    },
    /// The name is too long, or contains a zero byte.
    #[error("the name takes {bytes} bytes, at most {NAME_BYTES_MAX} without a zero byte fit")]
    Name {
        /// Bytes of the name.
        bytes: usize,
    },
    /// More devices than a superblock can hold.
    #[error("{count} devices are more than fit")]
    Devices {
        /// Devices requested.
        count: usize,
    },
    /// The requested facts do not make a valid superblock.
    #[error("the superblock would not be valid: {0}")]
    Invalid(#[from] SuperblockError),
}

/// The changes of a running array to its members' superblocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperblockUpdate {
    /// The new event count.
    pub events: u64,
    /// The time of the superblocks' update: the same for all members, and always growing; 0.90
    /// keeps seconds.
    pub update_time: Timestamp,
    /// `u64::MAX` if the array is clean; otherwise redundancy is right before this sector.
    pub resync_offset: u64,
    /// Every device's role, by device number; devices beyond the list are written as spares.
    pub roles: Arc<[Role]>,
    /// If set, this member is recovered only up to this sector of its data area. 0.90 cannot
    /// express the offset, and writes the member as a spare.
    pub recovery_offset: Option<u64>,
    /// Whether this member will replace another member with the same role (`replacement` in md).
    /// 0.90 has no replacements.
    pub is_replacement: bool,
    /// This member's role. It takes precedence over the member's entry in `roles`.
    pub role_of_this: Role,
}
