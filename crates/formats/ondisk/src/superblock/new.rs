//! What is asked of a superblock that is made or changed.

use std::sync::Arc;

use thiserror::Error;

use super::error::SuperblockError;
use super::facts::{ArrayFacts, DeviceFlags, Role, Timestamp};
use crate::placement::Placement;

/// Longest name in bytes: the field has 32, the last stays zero.
pub(super) const NAME_BYTES_MAX: usize = 31;

/// Everything a new version 1 superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSuperblock {
    /// What every member of the array says alike. `preferred_minor` is ignored.
    pub array: ArrayFacts,
    /// Where things go on this device; also says the version.
    pub placement: Placement,
    /// The member's permanent number.
    pub device_number: u32,
    /// The member's identity.
    pub device_uuid: [u8; 16],
    /// Flags.
    pub device_flags: DeviceFlags,
    /// Every device's role, by device number; this one's is at `device_number`.
    pub roles: Arc<[Role]>,
    /// mdadm starts at 0; md counts from there when it first writes.
    pub events: u64,
    /// `u64::MAX`: redundancy is right (or there is none); 0: md will resync.
    pub resync_offset: u64,
}

/// Everything that a new version 0.90 superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewV0 {
    /// What every member of the array says alike. There is no name; `preferred_minor` is its place.
    pub array: ArrayFacts,
    /// Size of the device, which says where the superblock is.
    pub device_bytes: u64,
    /// The member's permanent number.
    pub device_number: u32,
    /// Flags.
    pub device_flags: DeviceFlags,
    /// Every device's role, by device number.
    pub roles: Arc<[Role]>,
    /// Every device's major and minor number, by device number; zeroes for numbers without a device.
    pub nodes: Arc<[(u32, u32)]>,
    /// mdadm starts at 0; md counts from there when it first writes.
    pub events: u64,
    /// `u64::MAX`: redundancy is right (or there is none); 0: md will resync.
    pub resync_offset: u64,
}

/// Why a new superblock cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NewSuperblockError {
    /// Another version than the one that is made.
    #[error("this makes superblocks of version 1, not 0.90")]
    Version0,
    /// No place on the device.
    #[error("a device of {device_bytes} bytes is too small for a 0.90 superblock")]
    TooSmall {
        /// Size of the device.
        device_bytes: u64,
    },
    /// The name does not fit, or has a zero byte in it.
    #[error("the name takes {bytes} bytes, at most {NAME_BYTES_MAX} without a zero byte fit")]
    Name {
        /// Bytes of the name.
        bytes: usize,
    },
    /// More devices than a superblock can hold.
    #[error("{count} devices are more than fit")]
    Devices {
        /// Devices asked for.
        count: usize,
    },
    /// What was asked for makes no valid superblock.
    #[error("the superblock would not be valid: {0}")]
    Invalid(#[from] SuperblockError),
}

/// What a running array changes in the superblocks of its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperblockUpdate {
    /// The new event count.
    pub events: u64,
    /// When it is made: the same for all members, and later than the one before; 0.90 keeps the seconds.
    pub update_time: Timestamp,
    /// `u64::MAX`: clean; otherwise redundancy is right before this sector.
    pub resync_offset: u64,
    /// Every device's role, by device number; devices beyond the list are written as spares.
    pub roles: Arc<[Role]>,
    /// `Some`: this member is recovered only up to this sector of its data area. 0.90 cannot say it and writes the
    /// member as a spare instead.
    pub recovery_offset: Option<u64>,
    /// This member is to take the place of another that has the same role (`replacement` in md). 0.90 cannot say it.
    pub is_replacement: bool,
    /// This member's role; wins over its entry in `roles`.
    pub role_of_this: Role,
}
