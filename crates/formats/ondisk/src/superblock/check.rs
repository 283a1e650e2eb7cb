//! The checks for both superblock formats: levels, slots, chunks, counts of sectors.

use braid_geometry::Level;

use super::error::SuperblockFault;
use super::facts::ArrayFacts;
use crate::limits::{
    CHUNK_SECTORS_MAX, CHUNK_SECTORS_MIN_PAGE, EVENTS_MAX, LOGICAL_BLOCK_BYTES_MAX, SECTOR_BYTES,
    SECTORS_MAX,
};

/// md's levels that braid refuses by name.
const REFUSED_LEVELS: [(i32, &str); 3] = [(-4, "multipath"), (-5, "faulty"), (-10, "container")];

pub(super) fn level(number: i32) -> Result<Level, SuperblockFault> {
    Level::from_md(number).ok_or_else(|| {
        let named = REFUSED_LEVELS.iter().find(|(refused, _)| *refused == number);
        SuperblockFault::Level { number, name: named.map_or("unknown", |(_, name)| name) }
    })
}

/// Whether the superblock's `size` counts at this level: linear and raid0 use all of each member.
pub(crate) fn has_member_size(level: Level) -> bool {
    !matches!(level, Level::Linear | Level::Raid0)
}

/// Sectors that the array uses of each member; 0 at levels that do not record the size.
pub(super) fn used_sectors(array: &ArrayFacts) -> u64 {
    if has_member_size(array.level) { array.member_size_sectors } else { 0 }
}

/// The number of slots that a role table can name. During a reshape to fewer members it includes
/// the slots that the reshape will remove.
pub(super) fn slots_named(raid_slots: u32, delta_disks: Option<i32>) -> u32 {
    let given_up = delta_disks.filter(|delta| *delta < 0).map_or(0, i32::unsigned_abs);
    raid_slots.saturating_add(given_up)
}

/// Checks that slots and chunk fit the level. `slots_max` is the most slots that the superblock
/// format has room for.
pub(super) fn shape(array: &ArrayFacts, slots_max: u32) -> Result<(), SuperblockFault> {
    let min = match array.level {
        Level::Linear | Level::Raid0 | Level::Raid1 => 1,
        Level::Raid4 | Level::Raid5 | Level::Raid10 => 2,
        Level::Raid6 => 4,
    };
    let slots = array.raid_slots;
    if !(min..=slots_max).contains(&slots) {
        let level = array.level.md_number();
        return Err(SuperblockFault::Slots { slots, level, min, max: slots_max });
    }
    chunk(array.level, array.chunk_sectors)?;
    match array.logical_block_bytes {
        Some(bytes) => logical_block(bytes),
        None => Ok(()),
    }
}

/// Checks the size of a logical block: a power of two of at least a sector, and at most what NBD
/// can announce.
fn logical_block(bytes: u32) -> Result<(), SuperblockFault> {
    let is_possible = bytes.is_power_of_two() && (512..=LOGICAL_BLOCK_BYTES_MAX).contains(&bytes);
    if is_possible { Ok(()) } else { Err(SuperblockFault::LogicalBlock { bytes }) }
}

/// Checks a chunk. Linear and raid1 need none; raid0 takes any size; other levels take powers of
/// two from one page up.
fn chunk(level: Level, sectors: u32) -> Result<(), SuperblockFault> {
    let (needed, whole_pages) = match level {
        Level::Linear | Level::Raid1 => (false, false),
        Level::Raid0 => (true, false),
        Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => (true, true),
    };
    if needed && sectors == 0 {
        return Err(SuperblockFault::ChunkZero);
    }
    let page_wise = sectors.is_power_of_two() && sectors >= CHUNK_SECTORS_MIN_PAGE;
    if sectors > CHUNK_SECTORS_MAX || (whole_pages && !page_wise) {
        return Err(SuperblockFault::Chunk { sectors });
    }
    Ok(())
}

/// Checks that a device can have this number of sectors.
pub(super) fn sectors(field: &'static str, sectors: u64) -> Result<(), SuperblockFault> {
    if sectors > SECTORS_MAX {
        return Err(SuperblockFault::SectorCount { field, sectors });
    }
    Ok(())
}

/// Checks that an array can have reached this event count.
pub(super) fn events(events: u64) -> Result<(), SuperblockFault> {
    if events > EVENTS_MAX {
        return Err(SuperblockFault::EventCount { events });
    }
    Ok(())
}

/// Checks that an area up to `end_sectors` fits on the device.
pub(super) fn fits(end_sectors: u64, device_sectors: u64) -> Result<(), SuperblockFault> {
    match end_sectors.checked_sub(device_sectors) {
        None | Some(0) => Ok(()),
        Some(missing) => {
            Err(SuperblockFault::Truncated { missing_bytes: missing.saturating_mul(SECTOR_BYTES) })
        }
    }
}
