//! Changes the shape in superblocks that md wrote: every member of every fixture.

use std::path::Path;

use braid_ondisk::{
    Features, Reshape, Snippet, Superblock, SuperblockShape, SuperblockUpdate, probe, probe_ranges,
};

use crate::fixture::{Fixture, Member};

fn superblock_of(member: &Member) -> Option<(Superblock, u64)> {
    let device_bytes = member.device_sectors * 512;
    let mut device = vec![0; usize::try_from(device_bytes).unwrap()];
    for (place, bytes) in &member.raw {
        let place = usize::try_from(*place).unwrap();
        device[place..place + bytes.len()].copy_from_slice(bytes);
    }
    let ranges = probe_ranges(device_bytes).into_iter().map(|range| {
        let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
        Snippet { offset: range.start, bytes: device[start..end].to_vec() }
    });
    let found = probe(device_bytes, &ranges.collect::<Vec<_>>());
    Some((found.newest()?.clone(), device_bytes))
}

/// An update that changes nothing but the event count.
fn update_of(superblock: &Superblock) -> SuperblockUpdate {
    let state = &superblock.state;
    SuperblockUpdate {
        events: state.events + 1,
        update_time: state.update_time.next(),
        resync_offset: state.resync_offset,
        roles: state.roles.as_slice().into(),
        recovery_offset: superblock.device.recovery_offset_sectors,
        is_replacement: state.features.contains(Features::REPLACEMENT),
        role_of_this: state.role,
    }
}

/// The shape a little later. If a reshape is under way, it continues; otherwise a reshape that adds
/// a slot begins.
fn later(shape: &SuperblockShape) -> SuperblockShape {
    let begun = Reshape {
        position_sectors: 0,
        delta_disks: 1,
        new_level: shape.level,
        new_layout: shape.layout,
        new_chunk_sectors: shape.chunk_sectors,
        new_data_offset_sectors: None,
        backwards: false,
    };
    match shape.reshape {
        Some(reshape) => {
            let position_sectors = reshape.position_sectors + 1024;
            SuperblockShape { reshape: Some(Reshape { position_sectors, ..reshape }), ..*shape }
        }
        None => {
            let raid_slots = shape.raid_slots + 1;
            SuperblockShape { raid_slots, reshape: Some(begun), ..*shape }
        }
    }
}

#[test]
fn a_shape_stands_in_the_first_sector_of_what_md_wrote() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/fixtures");
    let mut versions = std::collections::BTreeMap::new();
    for (name, fixture) in Fixture::all(&folder).unwrap() {
        for (found, device_bytes) in fixture.members.iter().filter_map(superblock_of) {
            let update = update_of(&found);
            let mut as_it_was = found.clone();
            as_it_was.apply(&update);
            let same = found.with_shape(&found.shape(), device_bytes).expect("it is its own");
            assert_eq!(same.to_bytes(), found.to_bytes(), "{name}");

            let wanted = later(&found.shape());
            let mut changed = found.clone();
            let done = changed.apply_with_shape(&update, &wanted, device_bytes);
            done.unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut by_hand = found.with_shape(&wanted, device_bytes).expect("as before");
            by_hand.apply(&update);
            assert_eq!(changed.to_bytes(), by_hand.to_bytes(), "{name}");
            assert_eq!(changed.shape(), wanted, "{name}");
            assert_eq!(changed.to_bytes()[512..], as_it_was.to_bytes()[512..], "{name}");
            *versions.entry(found.version.to_string()).or_insert(0) += 1;
        }
    }
    assert_eq!(versions.len(), 4, "members of each version: {versions:?}");
}
