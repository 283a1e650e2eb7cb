//! What is written to members before an array starts, round by round.

use braid_assembly::{AssembledArray, Options, ProbedMember, assemble};
use braid_engine::open::{Manner, levelling, opening};
use braid_geometry::{Level, default_layout};
use braid_ondisk::{
    ArrayFacts, DeviceFlags, NewSuperblock, PlacementRequest, Probe, Role, Superblock, Timestamp,
    Version, placement,
};

const DEVICE_BYTES: u64 = 8 << 20;
const MANNER: Manner =
    Manner { read_only: false, shards: 1, zero_is_fast: false, clean_delay_ms: 200 };

/// Members of a RAID-5 with these events each.
fn superblocks(events: &[u64]) -> Vec<Superblock> {
    let placement = placement(&PlacementRequest {
        version: Version::V1_2,
        device_bytes: DEVICE_BYTES,
        level: Level::Raid5,
        chunk_sectors: 8,
        member_size_sectors: None,
        data_offset_sectors: None,
    });
    let placement = placement.expect("there is room");
    let slots = u16::try_from(events.len()).expect("few");
    let of = |(slot, events): (u16, &u64)| {
        let superblock = Superblock::new_v1(&NewSuperblock {
            array: ArrayFacts {
                uuid: [7; 16],
                name: "levelled".to_owned(),
                creation_time: Timestamp { seconds: 1_700_000_000, microseconds: 0 },
                level: Level::Raid5,
                layout: default_layout(Level::Raid5),
                chunk_sectors: 8,
                member_size_sectors: placement.member_size_sectors,
                raid_slots: u32::from(slots),
                preferred_minor: None,
            },
            placement,
            device_number: u32::from(slot),
            device_uuid: [u8::try_from(slot).expect("few"); 16],
            device_flags: DeviceFlags::default(),
            roles: (0..slots).map(Role::Active).collect::<Vec<_>>().into(),
            events: *events,
            resync_offset: if *events > 40 { 0 } else { u64::MAX },
        });
        superblock.expect("a plain superblock")
    };
    (0..).zip(events).map(of).collect()
}

fn assembled(superblocks: &[Superblock]) -> AssembledArray {
    let member = |(index, superblock): (usize, &Superblock)| ProbedMember {
        label: format!("m{index}"),
        size_bytes: DEVICE_BYTES,
        identity: format!("m{index}"),
        probe: Probe { superblocks: vec![Ok(superblock.clone())], foreign: Vec::new() },
        bad_blocks: Ok(Vec::new()),
        bitmap: None,
    };
    let members: Vec<_> = superblocks.iter().enumerate().map(member).collect();
    assemble(&members, &Options::default()).array.expect("it can be started")
}

/// By round, who is written and to which count.
fn rounds(array: &AssembledArray, superblocks: &[Superblock]) -> Vec<Vec<(usize, u64)>> {
    let rounds = levelling(array, |index| superblocks.get(index), 1_700_000_001);
    let told = |round: Vec<_>| {
        round
            .into_iter()
            .map(|(index, update): braid_engine::open::Levelled| (index, update.events))
    };
    rounds.into_iter().map(|round| told(round).collect()).collect()
}

#[test]
fn a_member_one_behind_is_written_before_the_array_starts() {
    let superblocks = superblocks(&[40, 41, 40]);
    let array = assembled(&superblocks);
    assert_eq!(rounds(&array, &superblocks), [[(0, 41), (2, 41)]]);
    let opening = opening(&array, |index| superblocks.get(index), &MANNER).expect("all are open");
    assert_eq!((opening.setup.events, opening.setup.resync_offset), (41, 0));
    let level = superblocks.iter().map(|one| {
        let mut one = one.clone();
        let all = levelling(&array, |index| superblocks.get(index), 1_700_000_001);
        let number = one.device.number as usize;
        let update = all.into_iter().flatten().find(|(index, _)| *index == number);
        update.into_iter().for_each(|(_, update)| one.apply(&update));
        one
    });
    let level: Vec<_> = level.collect();
    assert!(rounds(&assembled(&level), &level).is_empty(), "once is enough");
    assert!(level.iter().all(|one| one.state.resync_offset == 0), "dirty if any says so");
}

/// A bitmap one event ahead of the members: the first update must be ahead of it, two events above
/// the members. A power cut in the middle of that update left some of them two behind.
#[test]
fn a_bitmap_that_is_ahead_is_passed_one_event_at_a_time() {
    let superblocks = superblocks(&[40, 41, 41]);
    let mut array = assembled(&superblocks);
    array.events_next_min = 43;
    assert_eq!(rounds(&array, &superblocks), [vec![(0, 41)], vec![(0, 42), (1, 42), (2, 42)]],);
    let opening = opening(&array, |index| superblocks.get(index), &MANNER).expect("all are open");
    assert_eq!(opening.setup.events, 42);
}

#[test]
fn a_member_that_is_not_open_is_named() {
    let superblocks = superblocks(&[40, 40, 40]);
    let array = assembled(&superblocks);
    let refused = opening(&array, |index| superblocks.get(index).filter(|_| index != 1), &MANNER);
    assert_eq!(refused.map(|_| ()), Err(braid_engine::open::OpeningError::NotOpen { index: 1 }));
}
