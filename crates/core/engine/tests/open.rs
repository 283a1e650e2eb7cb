//! The superblock writes that level the members' event counts before an array starts, round by
//! round.

use braid_assembly::{AssembledArray, Options, ProbedMember, assemble};
use braid_engine::open::{OpeningSettings, can_miss, levelling, opening};
use braid_engine::{CacheConfig, Tuning};
use braid_geometry::Level;
use braid_ondisk::{NewSuperblock, Probe, Role, Superblock, Version, sample};

const DEVICE_BYTES: u64 = 8 << 20;

fn settings() -> OpeningSettings {
    OpeningSettings {
        read_only: false,
        shards: 1,
        cache: CacheConfig::in_memory(8, Tuning::default()),
        jobs_paused: true,
        zero_is_fast: false,
        clean_delay_ms: 200,
    }
}

/// The superblocks of a RAID-5's members, each with its event count of `events`.
fn superblocks(events: &[u64]) -> Vec<Superblock> {
    array_of(Level::Raid5, 0, events)
}

/// The superblocks of an array's members, numbered from `first_number` on, each with its event
/// count of `events`.
fn array_of(level: Level, first_number: u16, events: &[u64]) -> Vec<Superblock> {
    let chunk_sectors = if level == Level::Raid1 { 0 } else { 8 };
    let roles: Vec<Role> = (0..first_number).map(|_| Role::Spare).collect();
    let slots = u16::try_from(events.len()).expect("few");
    let place = sample::place(Version::V1_2, level, chunk_sectors, DEVICE_BYTES);
    let member = sample::member(level, chunk_sectors, slots, place.expect("there is room"));
    let of = |(slot, events): (u16, &u64)| {
        let superblock = Superblock::new_v1(&NewSuperblock {
            device_number: u32::from(first_number + slot),
            device_uuid: [u8::try_from(slot).expect("few"); 16],
            roles: roles.iter().copied().chain((0..slots).map(Role::Active)).collect(),
            events: *events,
            resync_offset: if *events > 40 { 0 } else { u64::MAX },
            ..member.clone()
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
        ppl: None,
        own_log: None,
        journal: None,
    };
    let members: Vec<_> = superblocks.iter().enumerate().map(member).collect();
    assemble(&members, &Options::default()).array.expect("it can be started")
}

/// For each wave, the members that are written, and their event counts.
fn waves(array: &AssembledArray, superblocks: &[Superblock]) -> Vec<Vec<(usize, u64)>> {
    let waves = levelling(array, |index| superblocks.get(index)).into_iter();
    let told = |(index, superblock): braid_engine::open::MemberSuperblock| {
        (index, superblock.state.events)
    };
    waves.map(|wave| wave.into_iter().map(told).collect()).collect()
}

#[test]
fn a_member_one_behind_is_written_before_the_array_starts() {
    let superblocks = superblocks(&[40, 41, 40]);
    let array = assembled(&superblocks);
    assert_eq!(waves(&array, &superblocks), [[(0, 41), (2, 41)]]);
    let opening =
        opening(&array, |index| superblocks.get(index), &settings()).expect("all are open");
    assert_eq!((opening.setup.events, opening.setup.resync_offset), (41, 0));
    let level = superblocks.iter().map(|one| {
        let mut one = one.clone();
        let all = levelling(&array, |index| superblocks.get(index));
        let number = one.device.number as usize;
        let update = all.into_iter().flatten().find(|(index, _)| *index == number);
        update.into_iter().for_each(|(_, superblock)| one = superblock);
        one
    });
    let level: Vec<_> = level.collect();
    assert!(waves(&assembled(&level), &level).is_empty(), "once is enough");
    assert!(level.iter().all(|one| one.state.resync_offset == 0), "dirty if any says so");
    let time = superblocks[1].state.update_time;
    assert!(level.iter().all(|one| one.state.update_time == time), "of one update");
}

/// Guards against an old bug: a power cut tore every superblock of a levelling round, and left none
/// to start from.
#[test]
fn long_superblocks_are_levelled_one_half_after_the_other() {
    let of = |first_number| array_of(Level::Raid1, first_number, &[40, 41, 40, 40]);
    let short = of(0);
    assert_eq!(waves(&assembled(&short), &short), [[(0, 41), (2, 41), (3, 41)]]);
    let long = of(126);
    assert_eq!(waves(&assembled(&long), &long), [vec![(0, 41), (2, 41)], vec![(3, 41)]]);
    let opening =
        |all: &[Superblock]| opening(&assembled(all), |index| all.get(index), &settings());
    let tears = |all: &[Superblock]| opening(all).expect("all are open").setup.superblocks_tear;
    assert!(tears(&long) && !tears(&short));
}

/// Guards against an old bug: a member whose levelling write failed was kept, as if the next update
/// would put it out. The next update succeeded on the member. After a power cut in the middle the
/// member was two events behind, and stale.
#[test]
fn a_member_that_cannot_be_told_is_missed_or_needed() {
    let of = |level, events: &[u64]| assembled(&array_of(level, 0, events));
    let clean = of(Level::Raid5, &[40, 40, 39]);
    assert!(can_miss(&clean, &[2]) && !can_miss(&clean, &[1, 2]));
    let dirty = of(Level::Raid5, &[40, 41, 41]);
    assert!(can_miss(&dirty, &[]) && !can_miss(&dirty, &[0]), "parity is in doubt");
    let mirror = of(Level::Raid1, &[40, 41, 40]);
    assert!(can_miss(&mirror, &[0, 2]) && !can_miss(&mirror, &[0, 1, 2]));
}

#[test]
fn a_member_that_is_not_open_is_named() {
    let superblocks = superblocks(&[40, 40, 40]);
    let array = assembled(&superblocks);
    let refused =
        opening(&array, |index| superblocks.get(index).filter(|_| index != 1), &settings());
    assert_eq!(refused.map(|_| ()), Err(braid_engine::open::OpeningError::NotOpen { index: 1 }));
}
