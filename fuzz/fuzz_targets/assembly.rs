//! A whole array: several superblocks, each damaged in its own way, probed and assembled.
//!
//! Input: 8 bytes that choose a sound array (level, layout, version, members, spares, chunk), then
//! damages of 5 bytes each: the member, the place in its superblock (two bytes), the kind of
//! damage, and a value. Larger damages copy another member's superblock, remove a member or cut a
//! device. The target then makes checksums valid, as a fuzzer cannot guess them; a flag of the
//! member prevents that.
//!
//! Invariants: no panic; one verdict per member; the order of the members changes nothing. An
//! accepted array lies within its members. No accepted member is more than one event older than the
//! newest, or sits in two slots. The fuzzer itself limits memory (`-malloc_limit_mb`).
#![no_main]

use std::sync::Arc;

use braid_assembly::{Assembly, Choice, RecordedState, Options, ProbedMember, assemble};
use braid_geometry::{Level, Slot};
use braid_ondisk::{
    ArrayFacts, DeviceFlags, NewSuperblock, PlacementRequest, Role, Snippet, Superblock, Timestamp,
    Version, checksum_v1, placement, probe, probe_ranges,
};
use libfuzzer_sys::fuzz_target;

const MEMBERS_MAX: u8 = 8;
const DEVICE_BYTES: u64 = 16 << 20;
const LAYOUTS: [u32; 10] = [0, 1, 2, 3, 5, 10, 16, 19, 0x102, 0x103];

/// A device: its length, and the bytes at its superblock's place.
#[derive(Clone)]
struct Device {
    number: usize,
    bytes: u64,
    offset: u64,
    superblock: Vec<u8>,
    sealed: bool,
}

/// The sound array that the head of the input chooses, if it is a valid choice.
fn sound(head: [u8; 8]) -> Option<Vec<Device>> {
    let level = Level::ALL[usize::from(head[0]) % Level::ALL.len()];
    let version = [Version::V1_0, Version::V1_1, Version::V1_2][usize::from(head[2]) % 3];
    let chunk_sectors = if level == Level::Raid1 { 0 } else { 8 << (head[4] & 7) };
    let request = PlacementRequest {
        version,
        device_bytes: DEVICE_BYTES,
        level,
        chunk_sectors,
        member_size_sectors: None,
        data_offset_sectors: None,
    };
    let placement = placement(&request).ok()?;
    let slots = u16::from(head[3] % (MEMBERS_MAX - 1) + 1);
    let spares = u16::from(head[5] & 1);
    let array = ArrayFacts {
        uuid: [7; 16],
        name: "host:array".to_owned(),
        creation_time: Timestamp { seconds: 1_700_000_000, microseconds: 0 },
        level,
        layout: LAYOUTS[usize::from(head[1]) % LAYOUTS.len()],
        chunk_sectors,
        member_size_sectors: placement.member_size_sectors,
        raid_slots: u32::from(slots),
        preferred_minor: None,
        logical_block_bytes: None,
    };
    let roles: Arc<[Role]> =
        (0..slots).map(Role::Active).chain((0..spares).map(|_| Role::Spare)).collect();
    let make = |number: u16| {
        let superblock = Superblock::new_v1(&NewSuperblock {
            array: array.clone(),
            placement,
            device_number: u32::from(number),
            device_uuid: [number as u8; 16],
            device_flags: DeviceFlags::default(),
            roles: roles.clone(),
            events: 40,
            resync_offset: if head[6] & 1 == 0 { u64::MAX } else { u64::from(head[7]) << 4 },
        });
        let superblock = superblock.ok()?;
        Some(Device {
            number: number.into(),
            bytes: DEVICE_BYTES,
            offset: superblock.offset_bytes(),
            superblock: superblock.to_bytes(),
            sealed: true,
        })
    };
    (0..slots + spares).map(make).collect()
}

fn damage(devices: &mut [Device], damage: [u8; 5]) {
    let count = devices.len();
    let whom = usize::from(damage[0]) % count;
    let at = usize::from(u16::from_le_bytes([damage[1], damage[2]]));
    let other = devices[usize::from(damage[4]) % count].superblock.clone();
    let device = &mut devices[whom];
    match damage[3] % 8 {
        0 => device.superblock = other,
        1 => device.bytes = u64::from(damage[4]) << 16,
        2 => device.sealed = false,
        // Damages the event count, on which assembly's decision depends most.
        3 if device.superblock.len() > 208 => {
            let near = 38 + u64::from(damage[4] & 7);
            device.superblock[200..208].copy_from_slice(&near.to_le_bytes());
        }
        // Damages the role of another member.
        4 if device.superblock.len() > 256 + 2 * count => {
            let place = 256 + at % count * 2;
            let role = i16::from(damage[4] as i8).to_le_bytes();
            device.superblock[place..place + 2].copy_from_slice(&role);
        }
        _ if device.superblock.is_empty() => {}
        5 => {
            let place = at % device.superblock.len();
            device.superblock[place] ^= damage[4];
        }
        // Damages all members alike, so that assembly trusts the damage more easily.
        6 => devices.iter_mut().filter(|device| !device.superblock.is_empty()).for_each(|device| {
            let place = at % device.superblock.len();
            device.superblock[place] = damage[4];
        }),
        _ => device.superblock.clear(),
    }
}

/// A member as braid's command line would probe the device.
fn look(device: &Device) -> ProbedMember {
    let mut bytes = device.superblock.clone();
    if device.sealed
        && let Some(checksum) = checksum_v1(&bytes)
    {
        bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
    }
    let label = format!("m{}", device.number);
    assert!(probe_ranges(device.bytes).iter().all(|range| range.end <= device.bytes));
    ProbedMember {
        identity: label.clone(),
        label,
        size_bytes: device.bytes,
        probe: probe(device.bytes, &[Snippet { offset: device.offset, bytes }]),
        bad_blocks: Ok(Vec::new()),
        bitmap: None,
        ppl: None,
        own_log: None,
        journal: None,
    }
}

fn assert_sound(members: &[ProbedMember], assembly: &Assembly) {
    assert_eq!(assembly.verdicts.len(), members.len());
    let Ok(array) = &assembly.array else { return };
    assert_eq!(array.slots.len(), usize::from(array.geometry.slots()));
    let mut seated = vec![false; members.len()];
    for (slot, occupant) in array.slots.iter().enumerate() {
        let Some(occupant) = occupant else { continue };
        assert!(!std::mem::replace(&mut seated[occupant.member], true), "in two slots");
        let member = &members[occupant.member];
        let superblock = member.probe.newest().expect("what is in a slot has a superblock");
        assert!(superblock.state.events.saturating_add(1) >= array.newest.state.events, "stale");
        assert_eq!(superblock.array.uuid, array.newest.array.uuid);
        let used = array.geometry.used_sectors(Slot(slot as u16));
        assert!(used <= superblock.device.data_size_sectors, "beyond the data area");
        let end = superblock.device.data_offset_sectors.checked_add(used).expect("no overflow");
        assert!(end.checked_mul(512).expect("no overflow") <= member.size_bytes, "beyond the end");
    }
    let is_lost = |slot: Slot| array.slots[usize::from(slot.0)].is_none();
    assert!(array.geometry.survives(&is_lost), "more is missing than the level bears");
}

/// A recorded state of the array: that of a member's superblock, or an event more or less.
fn known(members: &[ProbedMember], bits: u8) -> Option<RecordedState> {
    let newest = members.iter().find_map(|member| member.probe.newest())?;
    (bits & 16 != 0).then(|| RecordedState {
        uuid: newest.array.uuid,
        creation_time: newest.array.creation_time,
        events: newest.state.events.saturating_add(u64::from(bits >> 6)).saturating_sub(1),
        update_time: newest.state.update_time,
        members: Vec::new(),
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((head, rest)) = input.split_first_chunk::<8>() else { return };
    let Some(mut devices) = sound(*head) else { return };
    for chunk in rest.chunks_exact(5).take(64) {
        damage(&mut devices, chunk.try_into().expect("five bytes"));
    }
    let members: Vec<ProbedMember> = devices.iter().map(look).collect();
    let options = Options {
        choice: Choice::default(),
        read_only: head[6] & 2 != 0,
        accept_risk: (head[6] & 4 != 0).then_some(u64::from(head[7])),
        accept_older: head[6] & 8 != 0,
        without_journal: head[6] & 16 != 0,
        known: known(&members, head[6]).into_iter().collect(),
        ..Options::default()
    };
    let forward = assemble(&members, &options);
    assert_sound(&members, &forward);
    let reversed: Vec<ProbedMember> = members.iter().rev().cloned().collect();
    let backward = assemble(&reversed, &options);
    assert_sound(&reversed, &backward);
    assert!(forward.verdicts.iter().eq(backward.verdicts.iter().rev()), "the order matters");
    assert_eq!(forward.array.is_ok(), backward.array.is_ok(), "the order matters");
});
