//! Sample members for the tests of this crate and of others: superblocks of a clean array.

use braid_geometry::{Level, default_layout};

use crate::placement::{Placement, PlacementError, PlacementRequest, placement};
use crate::superblock::{ArrayFacts, DeviceFlags, NewSuperblock, Role, Timestamp, Version};

/// The layout of a member that uses all of its device.
///
/// # Errors
/// Those of [`placement`].
pub fn place(
    version: Version,
    level: Level,
    chunk_sectors: u32,
    device_bytes: u64,
) -> Result<Placement, PlacementError> {
    placement(&PlacementRequest {
        version,
        device_bytes,
        level,
        chunk_sectors,
        member_size_sectors: None,
        data_offset_sectors: None,
    })
}

/// The first member of a clean array with as many members as slots. Tests replace some of its
/// facts.
#[must_use]
pub fn member(level: Level, chunk_sectors: u32, slots: u16, placement: Placement) -> NewSuperblock {
    NewSuperblock {
        array: ArrayFacts {
            uuid: [7; 16],
            name: "host:tank".to_owned(),
            creation_time: Timestamp { seconds: 1_700_000_000, microseconds: 0 },
            level,
            layout: default_layout(level),
            chunk_sectors,
            member_size_sectors: placement.member_size_sectors,
            raid_slots: u32::from(slots),
            preferred_minor: None,
            logical_block_bytes: None,
        },
        placement,
        device_number: 0,
        device_uuid: [7; 16],
        device_flags: DeviceFlags::default(),
        roles: (0..slots).map(Role::Active).collect(),
        events: 40,
        resync_offset: u64::MAX,
    }
}
