//! Superblocks for the tests of this crate.
#![allow(dead_code, clippy::unwrap_used)] // each test binary uses a part

use braid_geometry::Level;
use braid_ondisk::{ArrayFacts, NewSuperblock, Role, Superblock, Version, checksum_v0, sample};

pub(crate) const DEVICE_BYTES: u64 = 64 << 20;
pub(crate) const V0_OFFSET_BYTES: u64 = DEVICE_BYTES - (64 << 10);

/// Facts for device 1 of a clean array of five devices: four slots and a spare.
pub(crate) fn spec(version: Version, level: Level, layout: u32) -> NewSuperblock {
    let chunk_sectors = if matches!(level, Level::Raid1 | Level::Linear) { 0 } else { 128 };
    let place = sample::place(version, level, chunk_sectors, DEVICE_BYTES).unwrap();
    let member = sample::member(level, chunk_sectors, 4, place);
    NewSuperblock {
        array: ArrayFacts {
            uuid: *b"\x01\x23\x45\x67\x89\xab\xcd\xef\x00\x11\x22\x33\x44\x55\x66\x77",
            layout,
            ..member.array
        },
        device_number: 1,
        device_uuid: *b"\xde\xad\xbe\xef\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b",
        roles: [0, 1, 2, 3].map(Role::Active).into_iter().chain([Role::Spare]).collect(),
        events: 42,
        ..member
    }
}

/// The superblock of [`spec`], RAID-5 left-symmetric.
pub(crate) fn superblock_v1(version: Version) -> Superblock {
    Superblock::new_v1(&spec(version, Level::Raid5, 2)).unwrap()
}

/// A clean RAID-5 of four members in version 0.90; this is device 1.
pub(crate) fn superblock_v0_bytes() -> Vec<u8> {
    let mut words = vec![0_u32; 1024];
    let uuid0 = 0x0123_4567;
    let constant = [0xa92b_4efc, 0, 90, 3, 0, uuid0, 1_600_000_000, 5, 32_000, 4, 4, 7, 0, 2, 3, 4];
    words[..16].copy_from_slice(&constant);
    words[32..44].copy_from_slice(&[1_600_000_100, 1, 4, 4, 0, 0, 0, 23, 0, 23, 0, u32::MAX]);
    words[64..66].copy_from_slice(&[2, 65536]);
    for device in 0..4 {
        let at = 128 + 32 * device as usize;
        words[at..at + 5].copy_from_slice(&[device, 8, 16 * device, device, 6]);
    }
    words.copy_within(160..192, 992);
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    let checksum = checksum_v0(&bytes).unwrap();
    bytes[152..156].copy_from_slice(&checksum.to_le_bytes());
    bytes
}
