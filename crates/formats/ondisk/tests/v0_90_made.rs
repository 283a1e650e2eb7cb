//! A 0.90 superblock that we make from md's inputs equals md's in every byte, for every golden
//! array of that version.

use std::path::Path;

use crate::fixture::Fixture;
use braid_geometry::Family;
use braid_ondisk::{NewSuperblockError, NewV0, Role, Superblock, SuperblockUpdate, UnvalidatedV0};

const DESCRIPTORS_AT: usize = 512;
const DESCRIPTOR_BYTES: usize = 128;
const CHECKSUM: usize = 38;
const CHECKPOINT_EVENTS: usize = 41;
const CHECKPOINT: usize = 43;

fn word(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*raw[at..].first_chunk::<4>().unwrap())
}

/// Each device's major and minor number in a superblock.
fn nodes(raw: &[u8]) -> Vec<(u32, u32)> {
    let at = |number: usize| DESCRIPTORS_AT + number * DESCRIPTOR_BYTES;
    (0..27).map(|number| (word(raw, at(number) + 4), word(raw, at(number) + 8))).collect()
}

fn made_like(md: &Superblock, device_bytes: u64) -> Superblock {
    let new = NewV0 {
        array: md.array.clone(),
        device_bytes,
        device_number: md.device.number,
        device_flags: md.device.flags,
        roles: md.state.roles.clone().into(),
        nodes: nodes(&md.to_bytes()).into(),
        events: 0,
        resync_offset: u64::MAX,
    };
    Superblock::new_v0(&new).unwrap()
}

#[test]
fn every_byte_is_as_md_made_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/fixtures");
    let mut members = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".txt").filter(|name| name.contains("-m0.90")) else {
            continue;
        };
        let array = Fixture::load(&folder, name).unwrap();
        for member in 0..array.members.len() {
            let image = array.image(member);
            let device_bytes = image.len() as u64;
            let found = braid_ondisk::Version::V0_90.super_offset_sectors(device_bytes / 512);
            let found_bytes = found.unwrap() * 512;
            let bytes = &image[usize::try_from(found_bytes).unwrap()..][..4096];
            let md = UnvalidatedV0::recognise(bytes).unwrap();
            let md = md.validate(device_bytes, found_bytes).unwrap();
            // New superblocks are in no reshape.
            if md.reshape.is_some() {
                continue;
            }
            let mut ours = made_like(&md, device_bytes);
            ours.apply(&SuperblockUpdate {
                events: md.state.events,
                update_time: md.state.update_time,
                resync_offset: md.state.resync_offset,
                roles: md.state.roles.clone().into(),
                recovery_offset: None,
                is_replacement: false,
                role_of_this: md.state.role,
            });
            let ours_raw = ours.to_bytes();
            let differ: Vec<(usize, u32, u32)> = (0..1024)
                .map(|at| (at, word(bytes, 4 * at), word(&ours_raw, 4 * at)))
                .filter(|(_, md, ours)| md != ours)
                .collect();
            // Arrays of levels without redundancy keep the checkpoint at zero, as mdadm writes it.
            // A clean array's checkpoint is not read.
            let unread = [CHECKSUM, CHECKPOINT_EVENTS, CHECKPOINT];
            let is_direct = md.array.level.family() == Family::Direct;
            let is_unread = |(at, md, _): &(usize, u32, u32)| {
                is_direct && unread.contains(at) && (*at == CHECKSUM || *md == 0)
            };
            let is_same = differ.iter().all(is_unread);
            assert!(is_same, "{name}, member {member}: word, md's, ours: {differ:x?}");
            assert_eq!(ours.array, md.array);
            members += 1;
        }
    }
    assert!(members >= 20, "{members} members of version 0.90");
}

#[test]
fn what_does_not_fit_into_0_90_is_not_made() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/fixtures");
    let array = Fixture::load(&folder, "raid1-2-m0.90").unwrap();
    let image = array.image(0);
    let device_bytes = image.len() as u64;
    let found =
        braid_ondisk::Version::V0_90.super_offset_sectors(device_bytes / 512).unwrap() * 512;
    let bytes = &image[usize::try_from(found).unwrap()..][..4096];
    let md = UnvalidatedV0::recognise(bytes).unwrap().validate(device_bytes, found).unwrap();
    let new = NewV0 {
        array: md.array.clone(),
        device_bytes,
        device_number: 0,
        device_flags: md.device.flags,
        roles: [Role::Active(0), Role::Active(1)].into(),
        nodes: [(8, 0), (8, 16)].into(),
        events: 0,
        resync_offset: u64::MAX,
    };
    assert!(Superblock::new_v0(&new).is_ok());
    let many = NewV0 { roles: [Role::Spare; 28].into(), ..new.clone() };
    assert_eq!(Superblock::new_v0(&many), Err(NewSuperblockError::Devices { count: 28 }));
    let small = NewV0 { device_bytes: 64 << 10, ..new };
    let too_small = NewSuperblockError::TooSmall { device_bytes: 64 << 10 };
    assert_eq!(Superblock::new_v0(&small), Err(too_small));
}
