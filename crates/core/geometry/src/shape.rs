//! The numbers that describe an array, not yet validated, and their bounds.

use alloc::vec;
use alloc::vec::Vec;

use crate::{GeometryError, Level};

/// Every member and every array has fewer sectors than this: 2^54, which is 8 EiB.
pub const SECTORS_MAX: u64 = 1 << 54;

/// The most slots a version-1 superblock of 4 KiB can list.
pub const SLOTS_MAX: u16 = 1920;

/// The numbers that describe an array, not yet validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// md's layout number; without meaning for linear, raid1 and raid4.
    pub layout: u32,
    /// Sectors in a chunk. For linear it may be 0 (no rounding); for raid1 it has no effect.
    pub chunk_sectors: u32,
    /// Slots of the array, present or not; md calls it `raid_disks`.
    pub slots: u16,
    /// Sectors of the data area of each slot. For redundant levels the superblock's `size`, the
    /// same for every slot. For linear and raid0 each member's own data size.
    pub member_sectors: Vec<u64>,
}

impl Shape {
    /// A shape whose slots all have data areas of `member_sectors`.
    #[must_use]
    pub fn uniform(
        level: Level,
        layout: u32,
        chunk_sectors: u32,
        slots: u16,
        member_sectors: u64,
    ) -> Self {
        let member_sectors = vec![member_sectors; usize::from(slots)];
        Self { level, layout, chunk_sectors, slots, member_sectors }
    }
}

/// Narrows a capacity that was computed in 128 bits. Fails if the capacity reaches the limit.
pub(crate) fn capacity(sectors: u128) -> Result<u64, GeometryError> {
    match u64::try_from(sectors) {
        Ok(sectors) if sectors < SECTORS_MAX => Ok(sectors),
        _ => Err(GeometryError::CapacityTooLarge),
    }
}
