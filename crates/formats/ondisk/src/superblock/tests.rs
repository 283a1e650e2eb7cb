//! One test per rule of the two formats; whole-file checks are in `tests/`.

use std::sync::Arc;

use braid_geometry::Level;
use proptest::prelude::*;

use super::*;
use crate::PplPlace;
use crate::checksum::{checksum_v0, checksum_v1};
use crate::probe::{probe, probe_ranges};
use crate::sample;
use crate::snippet::Snippet;

pub(crate) const DEVICE_BYTES: u64 = 64 << 20;

fn new_superblock(version: Version, level: Level) -> NewSuperblock {
    let chunk_sectors = if matches!(level, Level::Raid1 | Level::Linear) { 0 } else { 128 };
    let place = sample::place(version, level, chunk_sectors, DEVICE_BYTES).unwrap();
    let member = sample::member(level, chunk_sectors, 4, place);
    NewSuperblock {
        array: ArrayFacts {
            uuid: *b"\x01\x23\x45\x67\x89\xab\xcd\xef0123ABCD",
            layout: if level == Level::Raid10 { 0x102 } else { 2 },
            ..member.array
        },
        device_number: 2,
        device_uuid: *b"uuid-of-a-member",
        device_flags: DeviceFlags { write_mostly: true, failfast: false },
        roles: [0, 1, 2, 3].map(Role::Active).into_iter().chain([Role::Spare]).collect(),
        events: 17,
        ..member
    }
}

pub(crate) fn made(version: Version) -> Superblock {
    Superblock::new_v1(&new_superblock(version, Level::Raid5)).unwrap()
}

fn probed(
    device_bytes: u64,
    offset: u64,
    bytes: &[u8],
) -> Vec<Result<Superblock, SuperblockError>> {
    let mut device = vec![0; usize::try_from(device_bytes).unwrap()];
    let offset = usize::try_from(offset).unwrap();
    device[offset..offset + bytes.len()].copy_from_slice(bytes);
    let snippets: Vec<_> = probe_ranges(device_bytes)
        .into_iter()
        .map(|range| {
            let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
            Snippet { offset: range.start, bytes: device[start..end].to_vec() }
        })
        .collect();
    let probe = probe(device_bytes, &snippets);
    assert!(probe.foreign.is_empty());
    probe.superblocks
}

/// Changes bytes of a version 1.2 superblock, corrects the checksum, and returns the fault.
fn fault_v1(at: usize, bytes: &[u8]) -> SuperblockFault {
    let superblock = made(Version::V1_2);
    let mut raw = superblock.to_bytes();
    raw[at..at + bytes.len()].copy_from_slice(bytes);
    if let Some(checksum) = checksum_v1(&raw) {
        raw[216..220].copy_from_slice(&checksum.to_le_bytes());
    }
    UnvalidatedV1::recognise(&raw, Version::V1_2)
        .unwrap()
        .validate(DEVICE_BYTES, 4096)
        .unwrap_err()
        .cause
}

#[test]
fn every_version_and_level_reads_back_as_it_was_made() {
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for level in Level::ALL {
            let new = new_superblock(version, level);
            let made = Superblock::new_v1(&new).unwrap();
            assert_eq!(made.to_bytes().len(), 512);
            assert_eq!(made.array, new.array);
            assert_eq!(made.state.roles[..5], *new.roles);
            assert_eq!(made.state.role, Role::Active(2));
            assert!(made.state.is_clean() && !made.state.reserved_bytes_in_use);
            assert_eq!(made.state.features.contains(Features::RAID0_LAYOUT), level == Level::Raid0);
            let found = probed(DEVICE_BYTES, made.offset_bytes(), &made.to_bytes());
            assert_eq!(found, [Ok(made)]);
        }
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let new = new_superblock(Version::V1_2, Level::Raid5);
    let with = |change: &dyn Fn(&mut NewSuperblock)| {
        let mut new = new.clone();
        change(&mut new);
        Superblock::new_v1(&new).unwrap_err()
    };
    let cause = |error| match error {
        NewSuperblockError::Invalid(error) => error.cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(with(&|new| new.placement.version = Version::V0_90), NewSuperblockError::Version0);
    assert_eq!(
        with(&|new| new.array.name = "x".repeat(32)),
        NewSuperblockError::Name { bytes: 32 }
    );
    assert_eq!(with(&|new| new.array.name = "a\0b".into()), NewSuperblockError::Name { bytes: 3 });
    assert_eq!(
        with(&|new| new.roles = vec![Role::Spare; 1921].into()),
        NewSuperblockError::Devices { count: 1921 }
    );
    assert_eq!(cause(with(&|new| new.array.chunk_sectors = 0)), SuperblockFault::ChunkZero);
    assert_eq!(
        cause(with(&|new| new.array.chunk_sectors = 24)),
        SuperblockFault::Chunk { sectors: 24 }
    );
    let slots = SuperblockFault::Slots { slots: 1, level: 5, min: 2, max: 1920 };
    assert_eq!(cause(with(&|new| new.array.raid_slots = 1)), slots);
}

#[test]
fn each_field_out_of_range_has_its_own_error() {
    use SuperblockFault as F;
    let level = |number: i32| fault_v1(72, &number.to_le_bytes());
    assert_eq!(level(-4), F::Level { number: -4, name: "multipath" });
    assert_eq!(level(-5), F::Level { number: -5, name: "faulty" });
    assert_eq!(level(-10), F::Level { number: -10, name: "container" });
    assert_eq!(level(7), F::Level { number: 7, name: "unknown" });
    assert_eq!(fault_v1(4, &[2]), F::VersionUnknown { major: 2, minor: 0 });
    assert_eq!(fault_v1(88, &[0; 4]), F::ChunkZero);
    assert_eq!(fault_v1(88, &[4, 0, 0, 0]), F::Chunk { sectors: 4 });
    assert_eq!(fault_v1(88, &(1_u32 << 22).to_le_bytes()), F::Chunk { sectors: 1 << 22 });
    let huge = (1_u64 << 60).to_le_bytes();
    assert_eq!(fault_v1(128, &huge), F::SectorCount { field: "data_offset", sectors: 1 << 60 });
    assert_eq!(fault_v1(136, &huge), F::SectorCount { field: "data_size", sectors: 1 << 60 });
    assert_eq!(fault_v1(80, &huge), F::SectorCount { field: "size", sectors: 1 << 60 });
    assert_eq!(fault_v1(144, &[9]), F::WrongPlace { stored: 9, found: 8 });
    assert_eq!(fault_v1(128, &8_u64.to_le_bytes()), F::DataOverlapsSuperblock { data_offset: 8 });
    assert_eq!(fault_v1(136, &9_u64.to_le_bytes()), F::MemberSize { used: 129_024, available: 9 });
    assert!(matches!(fault_v1(80, &0_u64.to_le_bytes()), F::MemberSize { used: 0, .. }));
    assert_eq!(fault_v1(220, &1921_u32.to_le_bytes()), F::RoleCount { count: 1921, max: 1920 });
    assert_eq!(fault_v1(220, &[129]), F::CutOff { present_bytes: 512, needed_bytes: 514 });
    assert_eq!(fault_v1(256, &[4, 0]), F::RoleOutOfRange { device: 0, role: 4, slots: 4 });
    assert_eq!(fault_v1(258, &[0, 0xff]), F::RoleOutOfRange { device: 1, role: 0xff00, slots: 4 });
    assert!(matches!(fault_v1(260, &[0xfd, 0xff]), F::Contradiction(_)));
}

#[test]
fn events_near_the_end_of_their_range_are_refused() {
    for events in [(1 << 63) + 1, u64::MAX] {
        let fault = SuperblockFault::EventCount { events };
        assert_eq!(fault_v1(200, &events.to_le_bytes()), fault);
        let mut bytes = v0_bytes();
        bytes[4 * 39..4 * 41].copy_from_slice(&events.to_le_bytes());
        assert_eq!(read_v0(&sealed_v0(bytes)).unwrap_err().cause, fault);
    }
    let mut bytes = v0_bytes();
    bytes[4 * 39..4 * 41].copy_from_slice(&(1_u64 << 63).to_le_bytes());
    assert_eq!(read_v0(&sealed_v0(bytes)).unwrap().state.events, 1 << 63);
}

#[test]
fn a_device_number_beyond_the_table_is_refused() {
    for number in [1920_u32, u32::MAX] {
        let fault = fault_v1(160, &number.to_le_bytes());
        assert!(matches!(fault, SuperblockFault::Contradiction(_)), "{number}: {fault}");
    }
}

#[test]
fn features_that_exclude_each_other_and_places_off_the_device_are_refused() {
    use SuperblockFault as F;
    for map in [1024 | 1, 1024 | 512, 1024 | 2048, 4096] {
        assert!(matches!(fault_v1(8, &u32::to_le_bytes(map)), F::Contradiction(_)), "{map:#x}");
    }
    assert_eq!(fault_v1(188, &(-9_i32).to_le_bytes()), F::Place("bad-block log"));
    assert_eq!(fault_v1(188, &i32::MAX.to_le_bytes()), F::Place("bad-block log"));
    assert_eq!(fault_v1(8, &1_u32.to_le_bytes()), F::Place("bitmap"));
    assert_eq!(fault_v1(8, &1024_u32.to_le_bytes()), F::Place("PPL"));
}

#[test]
fn a_truncated_member_is_told_how_much_is_missing() {
    let raw = made(Version::V1_2).to_bytes();
    let found = probed(DEVICE_BYTES - 1_000_000, 4096, &raw);
    // The device's size counts in whole sectors: 999 936 bytes and 64 more.
    let cause = SuperblockFault::Truncated { missing_bytes: 1_000_448 };
    assert_eq!(
        found,
        [Err(SuperblockError { version: Version::V1_2, offset_bytes: 4096, cause, claim: None })]
    );
}

#[test]
fn what_a_damaged_superblock_claims_can_be_told() {
    let claim = |raw: &[u8]| {
        let found = UnvalidatedV1::recognise(raw, Version::V1_2).expect("the magic is there");
        found.validate(DEVICE_BYTES, 4096).expect_err("the checksum fails").claim
    };
    let sound = made(Version::V1_2);
    let mut raw = sound.to_bytes();
    raw[250] ^= 1;
    assert_eq!(claim(&raw), None, "one sector was never cut in the middle");
    // 200 roles reach into a second sector.
    raw[220..224].copy_from_slice(&200_u32.to_le_bytes());
    raw.resize(1024, 0xff);
    let expected = Claim { array_uuid: sound.array.uuid, events: sound.state.events, missing: 0 };
    assert_eq!(claim(&raw), Some(expected));
    raw[256..258].copy_from_slice(&0xfffe_u16.to_le_bytes());
    assert_eq!(claim(&raw), Some(Claim { missing: 1, ..expected }), "slot 0 has no device");
    raw[4] = 9;
    assert_eq!(claim(&raw), None, "of another version");
    let sound = read_v0(&v0_bytes()).unwrap();
    let mut raw = v0_bytes();
    raw[4000] ^= 1;
    let found = read_v0(&raw).expect_err("the checksum fails").claim.expect("it is long");
    assert_eq!((found.array_uuid, found.events), (sound.array.uuid, sound.state.events));
}

#[test]
fn a_copy_in_the_wrong_place_is_refused() {
    let raw = made(Version::V1_2).to_bytes();
    let cause = SuperblockFault::WrongPlace { stored: 8, found: 0 };
    let error = SuperblockError { version: Version::V1_1, offset_bytes: 0, cause, claim: None };
    assert_eq!(probed(DEVICE_BYTES, 0, &raw), [Err(error)]);
}

#[test]
fn unknown_features_and_reserved_bytes_are_kept_and_reported() {
    let mut raw = made(Version::V1_2).to_bytes();
    raw[8..12].copy_from_slice(&(1_u32 << 20 | 128).to_le_bytes());
    raw[230] = 7;
    let checksum = checksum_v1(&raw).unwrap();
    raw[216..220].copy_from_slice(&checksum.to_le_bytes());
    let superblock = UnvalidatedV1::recognise(&raw, Version::V1_2)
        .unwrap()
        .validate(DEVICE_BYTES, 4096)
        .unwrap();
    assert_eq!(superblock.state.features.unknown(), 1 << 20);
    assert_eq!(superblock.state.features.names().collect::<Vec<_>>(), ["recovery-bitmap"]);
    assert!(superblock.state.reserved_bytes_in_use);
    assert_eq!(superblock.to_bytes(), raw);
}

/// Linux writes the logical block since 6.19. Older kernels refuse an array that records it, and
/// `braid` once did.
#[test]
fn a_logical_block_is_read_and_kept() {
    let with = |bytes: u32| {
        let mut raw = made(Version::V1_2).to_bytes();
        raw[224..228].copy_from_slice(&bytes.to_le_bytes());
        let checksum = checksum_v1(&raw).unwrap();
        raw[216..220].copy_from_slice(&checksum.to_le_bytes());
        let found = UnvalidatedV1::recognise(&raw, Version::V1_2).unwrap();
        (found.validate(DEVICE_BYTES, 4096), raw)
    };
    for bytes in [512, 4096, 65536] {
        let (found, raw) = with(bytes);
        let mut superblock = found.unwrap();
        assert_eq!(superblock.array.logical_block_bytes, Some(bytes));
        assert!(!superblock.state.reserved_bytes_in_use);
        assert_eq!(superblock.to_bytes(), raw);
        superblock.clear_logical_block();
        assert_eq!(superblock, made(Version::V1_2), "nothing else has changed");
    }
    for bytes in [1, 256, 513, 4095, 1 << 17, u32::MAX] {
        let cause = SuperblockFault::LogicalBlock { bytes };
        assert_eq!(with(bytes).0.map_err(|error| error.cause), Err(cause));
    }
    assert_eq!(made(Version::V1_2).array.logical_block_bytes, None, "a new one says nothing");
}

/// A superblock of an array with `slots` slots in a reshape, in md's bytes.
fn in_a_reshape_of_md(slots: u32) -> Vec<u8> {
    let mut raw = made(Version::V1_2).to_bytes();
    let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    put(8, &(4_u32 | 64).to_le_bytes());
    put(92, &slots.to_le_bytes());
    put(100, &6_i32.to_le_bytes());
    put(104, &3072_u64.to_le_bytes());
    put(112, &1_i32.to_le_bytes());
    put(116, &16_u32.to_le_bytes());
    put(120, &256_u32.to_le_bytes());
    put(124, &(-1024_i32).to_le_bytes());
    let checksum = checksum_v1(&raw).unwrap();
    raw[216..220].copy_from_slice(&checksum.to_le_bytes());
    raw
}

#[test]
fn a_reshape_is_read() {
    let raw = in_a_reshape_of_md(4);
    let superblock = UnvalidatedV1::recognise(&raw, Version::V1_2)
        .unwrap()
        .validate(DEVICE_BYTES, 4096)
        .unwrap();
    let data_offset = superblock.device.data_offset_sectors;
    let expected = Reshape {
        position_sectors: 3072,
        delta_disks: 1,
        new_level: Level::Raid6,
        new_layout: 16,
        new_chunk_sectors: 256,
        new_data_offset_sectors: Some(data_offset - 1024),
        backwards: false,
    };
    assert_eq!(superblock.reshape, Some(expected));
}

/// A superblock in a reshape: level, layout, chunk, slots and data offset change.
fn in_a_reshape(delta: i32, roles: &[u16], role: u16) -> Superblock {
    let mut raw = made(Version::V1_2).to_bytes();
    let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    put(8, &(4_u32 | 2 | 64).to_le_bytes());
    put(100, &6_i32.to_le_bytes());
    put(104, &3072_u64.to_le_bytes());
    put(112, &delta.to_le_bytes());
    put(116, &16_u32.to_le_bytes());
    put(120, &256_u32.to_le_bytes());
    put(124, &(-1024_i32).to_le_bytes());
    put(152, &512_u64.to_le_bytes());
    put(160, &u32::from(role).to_le_bytes());
    for (at, role) in (256..).step_by(2).zip(roles) {
        put(at, &role.to_le_bytes());
    }
    let checksum = checksum_v1(&raw).unwrap();
    raw[216..220].copy_from_slice(&checksum.to_le_bytes());
    let unvalidated = UnvalidatedV1::recognise(&raw, Version::V1_2).unwrap();
    unvalidated.validate(DEVICE_BYTES, 4096).unwrap()
}

#[test]
fn both_sides_of_a_reshape_say_what_they_were_made_of() {
    let slots = made(Version::V1_2).array.raid_slots;
    let plain = made(Version::V1_2);
    assert_eq!(plain.on_side(ReshapeSide::After, (0, DEVICE_BYTES)), Ok(plain.clone()));
    // The array grew to this number of slots, or is shrinking to it with two more roles than slots.
    let all: Vec<u16> = (0..u16::try_from(slots).unwrap() + 2).collect();
    for (delta, roles) in [(1, &all[..slots as usize]), (-2, &all[..])] {
        for &role in roles {
            let superblock = in_a_reshape(delta, roles, role);
            for side in ReshapeSide::ALL {
                let one =
                    superblock.on_side(side, (513, DEVICE_BYTES)).expect("there is such an array");
                let before = side == ReshapeSide::Before;
                let count =
                    if before { i64::from(slots) - i64::from(delta) } else { i64::from(slots) };
                assert_eq!((i64::from(one.array.raid_slots), one.reshape), (count, None));
                let facts = (one.array.level, one.array.layout, one.array.chunk_sectors);
                let own = (plain.array.level, plain.array.layout, plain.array.chunk_sectors);
                assert_eq!(facts, if before { own } else { (Level::Raid6, 16, 256) });
                let (offset, size) =
                    (plain.device.data_offset_sectors, plain.device.data_size_sectors);
                let moved = if before { 0 } else { 1024 };
                let device = (one.device.data_offset_sectors, one.device.data_size_sectors);
                assert_eq!(device, (offset - moved, size + moved));
                let has_slot = i64::from(role) < count;
                let expected = if has_slot { Role::Active(role) } else { Role::Spare };
                assert_eq!(one.state.role, expected, "{delta} {side:?}");
                let filled = if before { 0 } else { 512 };
                assert_eq!(one.device.recovery_offset_sectors, has_slot.then_some(filled));
                let in_range =
                    |role: &Role| !matches!(role, Role::Active(slot) if i64::from(*slot) >= count);
                assert!(one.state.roles.iter().all(in_range));
                assert_eq!(one.state.events, superblock.state.events);
                let whole = superblock.on_side(side, (512, DEVICE_BYTES)).expect("as before");
                assert_eq!(whole.device.recovery_offset_sectors, None, "it has all of this side");
            }
        }
    }
    let none = in_a_reshape(i32::try_from(slots).unwrap(), &all[..2], 0);
    none.on_side(ReshapeSide::Before, (0, DEVICE_BYTES)).expect_err("no array has no members");
}

#[test]
fn both_sides_of_a_reshape_of_0_90_say_what_they_were_made_of() {
    let mut bytes = v0_bytes();
    let mut put = |word: usize, value: u32| {
        bytes[word * 4..word * 4 + 4].copy_from_slice(&value.to_le_bytes());
    };
    put(2, 91);
    put(44, 1024);
    put(45, 0);
    put(46, 5);
    put(47, 1);
    put(48, 1);
    put(49, 128 << 10);
    let superblock = read_v0(&sealed_v0(bytes)).expect("a superblock");
    let slots = superblock.array.raid_slots;
    for side in ReshapeSide::ALL {
        let one = superblock.on_side(side, (513, DEVICE_BYTES)).expect("there is such an array");
        let before = side == ReshapeSide::Before;
        assert_eq!((one.array.raid_slots, one.reshape), (slots - u32::from(before), None));
        let own = (superblock.array.layout, superblock.array.chunk_sectors);
        let expected = if before { own } else { (1, 256) };
        assert_eq!((one.array.layout, one.array.chunk_sectors), expected);
        assert!(
            !one.state.roles.contains(&Role::Active(u16::try_from(slots).unwrap() - 1)) || !before
        );
    }
}

pub(crate) fn update() -> SuperblockUpdate {
    SuperblockUpdate {
        events: 0x1_0000_0018,
        update_time: Timestamp { seconds: 1_800_000_000, microseconds: 0 },
        resync_offset: 0,
        roles: [Role::Active(0), Role::Faulty, Role::Active(2), Role::Active(3), Role::Spare]
            .into(),
        recovery_offset: None,
        is_replacement: false,
        role_of_this: Role::Active(2),
    }
}

#[test]
fn apply_keeps_every_unknown_byte() {
    let mut raw = made(Version::V1_2).to_bytes();
    // The test marks every byte that neither apply nor validation uses.
    let unknown: Vec<usize> = (100..128).chain(164..184).chain(228..256).chain([12, 62]).collect();
    for at in &unknown {
        raw[*at] = 0xa5;
    }
    let checksum = checksum_v1(&raw).unwrap();
    raw[216..220].copy_from_slice(&checksum.to_le_bytes());
    let unvalidated = UnvalidatedV1::recognise(&raw, Version::V1_2).unwrap();
    let mut superblock = unvalidated.validate(DEVICE_BYTES, 4096).unwrap();
    superblock.apply(&update());
    let after = superblock.to_bytes();
    let changed: Vec<usize> = (0..raw.len()).filter(|at| raw[*at] != after[*at]).collect();
    // apply changes utime, events, resync_offset, the checksum and the role of device 1.
    let known = |at: &usize| (192..220).contains(at) || (258..260).contains(at);
    assert!(!changed.is_empty() && changed.iter().all(known), "{changed:?}");
    assert_eq!(after[258..260], [0xfe, 0xff]);
}

#[test]
fn a_recovering_member_says_how_far_it_is_and_forgets_it_when_done() {
    let mut superblock = made(Version::V1_2);
    superblock.apply(&SuperblockUpdate { recovery_offset: Some(4096), ..update() });
    assert!(superblock.state.features.contains(Features::RECOVERY_OFFSET));
    assert_eq!(superblock.device.recovery_offset_sectors, Some(4096));
    superblock.apply(&update());
    assert!(!superblock.state.features.contains(Features::RECOVERY_OFFSET));
    assert_eq!(superblock.to_bytes()[152..160], [0; 8]);
}

#[test]
fn the_list_of_roles_grows_with_the_block() {
    let mut superblock = made(Version::V1_2);
    let roles: Arc<[Role]> =
        (0..4).map(Role::Active).chain(std::iter::repeat_n(Role::Spare, 196)).collect();
    superblock.apply(&SuperblockUpdate { roles, ..update() });
    assert_eq!(superblock.to_bytes().len(), 1024);
    assert_eq!(superblock.state.roles.len(), 200);
    assert_eq!(probed(DEVICE_BYTES, 4096, &superblock.to_bytes()), [Ok(superblock)]);
}

#[test]
#[should_panic(expected = "the longer list of roles has no room")]
fn a_list_of_roles_that_would_run_into_the_log_is_our_own_mistake() {
    let mut raw = made(Version::V1_2).to_bytes();
    raw[188..192].copy_from_slice(&2_i32.to_le_bytes());
    let checksum = checksum_v1(&raw).unwrap();
    raw[216..220].copy_from_slice(&checksum.to_le_bytes());
    let found = UnvalidatedV1::recognise(&raw, Version::V1_2).unwrap();
    let roles = vec![Role::Spare; 600].into();
    found.validate(DEVICE_BYTES, 4096).unwrap().apply(&SuperblockUpdate { roles, ..update() });
}

/// Found by fuzzing: a spare with an unused descriptor took that descriptor's number, 0.
#[test]
fn a_0_90_spare_keeps_its_number() {
    let mut bytes = v0_bytes();
    bytes[992 * 4..992 * 4 + 20].fill(0);
    bytes[992 * 4] = 20;
    let mut superblock = read_v0(&sealed_v0(bytes)).unwrap();
    superblock.apply(&SuperblockUpdate { role_of_this: Role::Spare, ..update() });
    assert_eq!(superblock.device.number, 20);
    assert_eq!(read_v0(&superblock.to_bytes()), Ok(superblock));
}

#[test]
#[should_panic(expected = "a role names a slot that the array has not")]
fn a_slot_beyond_the_array_is_our_own_mistake() {
    made(Version::V1_2).apply(&SuperblockUpdate { role_of_this: Role::Active(4), ..update() });
}

#[test]
fn the_bad_block_mark_is_set_and_cleared() {
    let mut superblock = made(Version::V1_0);
    superblock.set_bad_blocks(true);
    let found = probed(DEVICE_BYTES, superblock.offset_bytes(), &superblock.to_bytes());
    assert!(found[0].as_ref().unwrap().state.features.contains(Features::BAD_BLOCKS));
    superblock.set_bad_blocks(false);
    assert_eq!(superblock, made(Version::V1_0));
}

/// A clean four-member RAID-5 of version 0.90, as md writes it; this is device 1.
pub(super) fn v0_bytes() -> Vec<u8> {
    let mut words = vec![0_u32; 1024];
    let constant = [
        0xa92b_4efc,
        0,
        90,
        3,
        0,
        0x0123_4567,
        1_600_000_000,
        5,
        32_000,
        4,
        4,
        7,
        0,
        0x89ab_cdef,
        3,
        4,
    ];
    words[..16].copy_from_slice(&constant);
    let state = [1_600_000_100, 1, 4, 4, 0, 0, 0, 23, 1, 23, 1, u32::MAX];
    words[32..44].copy_from_slice(&state);
    words[64..66].copy_from_slice(&[2, 65536]);
    for device in 0..4 {
        let at = 128 + 32 * device as usize;
        words[at..at + 5].copy_from_slice(&[device, 8, 16 * device, device, 6]);
    }
    words.copy_within(160..192, 992);
    sealed_v0(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

fn sealed_v0(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = checksum_v0(&bytes).unwrap();
    bytes[152..156].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

const V0_OFFSET: u64 = DEVICE_BYTES - (64 << 10);

fn read_v0(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
    let mut found = probed(DEVICE_BYTES, V0_OFFSET, bytes);
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn fault_v0(word: usize, value: u32) -> SuperblockFault {
    let mut bytes = v0_bytes();
    bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
    read_v0(&sealed_v0(bytes)).unwrap_err().cause
}

#[test]
fn version_0_90_is_read() {
    let superblock = read_v0(&v0_bytes()).unwrap();
    assert_eq!(format_uuid(&superblock.array.uuid), "01234567:89abcdef:00000003:00000004");
    assert_eq!(superblock.uuid_as_stored()[..4], [0x67, 0x45, 0x23, 0x01]);
    assert_eq!(superblock.array.level, Level::Raid5);
    assert_eq!(
        (superblock.array.chunk_sectors, superblock.array.member_size_sectors),
        (128, 64_000)
    );
    assert_eq!(superblock.array.preferred_minor, Some(7));
    assert_eq!(superblock.state.events, (1 << 32) + 23);
    assert!(superblock.state.is_clean());
    assert_eq!(superblock.state.role, Role::Active(1));
    assert_eq!(
        superblock.state.roles[..5],
        [0, 1, 2, 3].map(Role::Active).into_iter().chain([Role::Spare]).collect::<Vec<_>>()
    );
    assert_eq!(superblock.device.data_size_sectors * 512, V0_OFFSET);
    assert_eq!(superblock.to_bytes(), v0_bytes());
}

/// The superblock of [`v0_bytes`] from a big-endian machine: the bytes of each word are reversed,
/// and 64-bit numbers have the high half first.
fn v0_bytes_of_big_endian() -> Vec<u8> {
    let bytes = v0_bytes();
    let (words, _) = bytes.as_chunks::<4>();
    let mut words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    words[39..43].copy_from_slice(&[1, 23, 1, 23]);
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// An old NAS on PowerPC or MIPS has big-endian superblocks. Today's kernels on PCs do not
/// recognise its array.
#[test]
fn a_superblock_of_the_other_byte_order_stays_in_it() {
    let (little, big) =
        (read_v0(&v0_bytes()).unwrap(), read_v0(&v0_bytes_of_big_endian()).unwrap());
    assert_eq!(big.byte_order, ByteOrder::Big);
    assert_eq!(Superblock { byte_order: ByteOrder::Little, ..big.clone() }, little);
    assert_eq!(big.to_bytes(), v0_bytes_of_big_endian());
    // Byte arrays in a big-endian machine's memory keep their order on disk.
    assert_eq!(big.uuid_as_stored()[..4], [0x01, 0x23, 0x45, 0x67]);
    let update = SuperblockUpdate {
        events: (7 << 32) + 9,
        update_time: Timestamp { seconds: 1_700_000_000, microseconds: 0 },
        resync_offset: 4096,
        roles: [Role::Active(0), Role::Active(1), Role::Faulty, Role::Active(3)].into(),
        recovery_offset: None,
        is_replacement: false,
        role_of_this: Role::Active(1),
    };
    let [mut little, mut big] = [little, big];
    little.apply(&update);
    big.apply(&update);
    let word = |number: usize| big.to_bytes()[4 * number..4 * number + 4].to_vec();
    assert_eq!((word(39), word(40)), (vec![0, 0, 0, 7], vec![0, 0, 0, 9]), "events");
    assert_eq!(word(43), [0, 0, 16, 0], "the checkpoint");
    let again = read_v0(&big.to_bytes()).unwrap();
    assert_eq!(again, big);
    assert_eq!(Superblock { byte_order: ByteOrder::Little, ..again }, little);
    // Validation finds the same faults in either byte order.
    let mut cut = v0_bytes_of_big_endian();
    cut[3000] ^= 1;
    let error = read_v0(&cut).unwrap_err();
    assert!(matches!(error.cause, SuperblockFault::Checksum { .. }), "{error}");
    let claim = error.claim.expect("its first sector is as it was");
    assert_eq!(
        (format_uuid(&claim.array_uuid), claim.events),
        (format_uuid(&little.array.uuid), (1 << 32) + 23)
    );
}

#[test]
fn what_is_wrong_with_0_90_has_its_own_error() {
    use SuperblockFault as F;
    assert_eq!(fault_v0(2, 89), F::VersionUnknown { major: 0, minor: 89 });
    assert_eq!(fault_v0(1, 1), F::VersionUnknown { major: 1, minor: 90 });
    assert_eq!(fault_v0(7, 0xffff_fffc), F::Level { number: -4, name: "multipath" });
    assert_eq!(fault_v0(10, 28), F::Slots { slots: 28, level: 5, min: 2, max: 27 });
    assert_eq!(fault_v0(65, 0), F::ChunkZero);
    assert_eq!(fault_v0(65, 1000), F::Chunk { sectors: 1 });
    assert_eq!(
        fault_v0(8, u32::MAX),
        F::MemberSize { used: 2 * u64::from(u32::MAX), available: V0_OFFSET / 512 }
    );
    assert_eq!(fault_v0(131, 9), F::RoleOutOfRange { device: 0, role: 9, slots: 4 });
    assert_eq!(fault_v0(992, 27), F::RoleOutOfRange { device: 27, role: 1, slots: 4 });
}

#[test]
fn a_0_90_array_that_is_not_clean_resumes_at_its_checkpoint_or_from_the_start() {
    let with = |words: &[(usize, u32)]| {
        let mut bytes = v0_bytes();
        for (word, value) in words {
            bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
        }
        read_v0(&sealed_v0(bytes)).unwrap().state.resync_offset
    };
    assert_eq!(with(&[(33, 0), (43, 5000)]), 5000);
    assert_eq!(with(&[(33, 0), (43, 5000), (41, 22)]), 0);
}

#[test]
fn a_0_90_member_that_failed_leaves_its_slot_removed() {
    let mut superblock = read_v0(&v0_bytes()).unwrap();
    let roles = [Role::Active(0), Role::Active(1), Role::Faulty, Role::Active(3)].into();
    superblock.apply(&SuperblockUpdate { roles, role_of_this: Role::Active(1), ..update() });
    let bytes = superblock.to_bytes();
    let word = |at: usize| u32::from_le_bytes(*bytes[4 * at..].first_chunk().unwrap());
    assert_eq!([192, 193, 194, 195, 196].map(word), [2, 0, 0, 2, 9]);
    // The words nr, active, working, failed and spare.
    assert_eq!([9, 34, 35, 36, 37].map(word), [3, 3, 3, 1, 0]);
    assert_eq!([33, 39, 40, 41, 42, 43].map(word), [0, 24, 1, 0, 0, 0]);
    assert_eq!(bytes[512 + 128..512 + 256], bytes[992 * 4..]);
    assert_eq!(read_v0(&bytes), Ok(superblock));
}

fn any_role(slots: u16) -> impl Strategy<Value = Role> {
    prop_oneof![3 => (0..slots).prop_map(Role::Active), 1 => Just(Role::Spare), 1 => Just(Role::Faulty)]
}

proptest! {
    #[test]
    fn what_apply_wrote_reads_back_as_the_value_says(
        which in 0_usize..4, events in 0..=1_u64 << 63, seconds in 0..1_u64 << 40,
        resync_offset in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
        roles in prop::collection::vec(any_role(4), 0..27), role_of_this in any_role(4),
        recovery_offset in prop::option::of(any::<u64>()),
    ) {
        let version = Version::ALL[which];
        let mut superblock =
            if version.is_v1() { made(version) } else { read_v0(&v0_bytes()).unwrap() };
        let update = SuperblockUpdate {
            events, update_time: Timestamp { seconds, microseconds: 7 }, resync_offset, roles: roles.into(), recovery_offset, is_replacement: false, role_of_this,
        };
        superblock.apply(&update);
        prop_assert_eq!(superblock.state.events, events);
        let found = probed(DEVICE_BYTES, superblock.offset_bytes(), &superblock.to_bytes());
        prop_assert_eq!(found, [Ok(superblock)]);
    }

    #[test]
    fn times_keep_forty_bits_of_seconds(seconds in 0..1_u64 << 40, microseconds in 0..1_u32 << 24) {
        let time = Timestamp { seconds, microseconds };
        prop_assert_eq!(Timestamp::from_v1(time.to_v1()), time);
        prop_assert!(time.next() > time);
    }
}

/// Found by fuzzing: on a tiny device 0.90 would be where 1.1 is, and 1.0 where 1.2 is.
#[test]
fn no_two_versions_share_a_place() {
    for sectors in 0..2000 {
        let places = Version::ALL.map(|version| version.super_offset_sectors(sectors));
        let mut places: Vec<_> = places.into_iter().flatten().collect();
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count, "{sectors} sectors");
    }
}

#[test]
fn versions_are_named_as_mdadm_names_them() {
    for version in Version::ALL {
        assert_eq!(version.to_string().parse(), Ok(version));
    }
    assert_eq!("1.3".parse::<Version>(), Err(UnknownVersion));
}

/// A superblock names a log and then no log, in its fields and in its bytes, and no remains are
/// left.
#[test]
fn a_partial_parity_log_is_named_and_not_named() {
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        let mut superblock = made(version);
        superblock.device.data_offset_sectors = superblock.device.data_offset_sectors.max(2048);
        let before = superblock.to_bytes();
        superblock.name_ppl(None);
        assert_eq!(superblock.to_bytes(), before, "it names none");
        let Some(place) = superblock.ppl_place() else { continue };
        assert_eq!(superblock.ppl_place_of(place.size_sectors), Some(place));
        assert_eq!(superblock.ppl_place_of(u16::MAX), None, "there is no room");
        superblock.name_ppl(Some(place));
        assert_eq!(superblock.ppl_place_of(u16::MAX), Some(place), "it is where it is");
        let named = superblock.to_bytes();
        assert_ne!(named, before);
        let other = PplPlace { size_sectors: 8, ..place };
        superblock.name_ppl(Some(other));
        assert_eq!(superblock.to_bytes(), named, "it names one already");
        superblock.name_ppl(None);
        assert_eq!(superblock.to_bytes(), before);
        assert!(!superblock.state.features.contains(Features::PPL));
    }
}

#[test]
fn an_update_takes_the_stamp_of_0_90_away_and_leaves_what_else_is_there() {
    const WORD_63: std::ops::Range<usize> = 63 * 4..64 * 4;
    let mut superblock = read_v0(&v0_bytes()).unwrap();
    superblock.apply(&update());
    let before = superblock.to_bytes();
    let again = |superblock: &Superblock| read_v0(&superblock.to_bytes()).unwrap();
    superblock.set_log_counts(LogHome::File);
    assert_eq!(superblock.to_bytes()[WORD_63], *b"brlg");
    assert_eq!(again(&superblock).state.log_counts, Some(LogHome::File));
    superblock.apply(&update());
    assert_eq!(again(&superblock).state.log_counts, None);
    assert_eq!(superblock.to_bytes(), before);
    let mut other = v0_bytes();
    other[WORD_63].copy_from_slice(b"else");
    let mut superblock = read_v0(&sealed_v0(other)).unwrap();
    assert_eq!(superblock.state.log_counts, None);
    superblock.apply(&update());
    assert_eq!(superblock.to_bytes()[WORD_63], *b"else");
}

#[test]
fn corrected_reads_are_counted_where_md_counts_them() {
    let mut new = made(Version::V1_2);
    let before = new.device.corrected_read_errors;
    new.count_corrected_read();
    new.count_corrected_read();
    let found = probed(DEVICE_BYTES, new.offset_bytes(), &new.to_bytes());
    let found = found[0].as_ref().expect("it is sound");
    assert_eq!((found.device.corrected_read_errors, found), (before + 2, &new));
    let mut old = read_v0(&v0_bytes()).expect("it is sound");
    old.count_corrected_read();
    assert_eq!(old, read_v0(&v0_bytes()).expect("it is sound"), "0.90 has no place for it");
}

/// With metadata 1.x a superblock records only its own device's flag, with 0.90 every device's.
#[test]
fn what_is_write_mostly_is_read_again_as_it_was_set() {
    for is_it in [false, true] {
        let mut new = made(Version::V1_2);
        new.set_write_mostly(new.device.number + 1, !is_it);
        assert!(new.device.flags.write_mostly, "another's is its own affair");
        new.set_write_mostly(new.device.number, is_it);
        let found = probed(DEVICE_BYTES, new.offset_bytes(), &new.to_bytes());
        let found = found[0].as_ref().expect("it is sound");
        assert_eq!(found.device.flags, DeviceFlags { write_mostly: is_it, failfast: false });
    }
    let mut old = read_v0(&v0_bytes()).expect("it is sound");
    old.set_write_mostly(old.device.number, true);
    let found = read_v0(&old.to_bytes()).expect("it is sound");
    assert!(found.device.flags.write_mostly && found == old);
}

/// A RAID-5 of four members that becomes a RAID-6 with `delta_disks` more.
fn reshape(delta_disks: i32, backwards: bool, new_data_offset_sectors: Option<u64>) -> Reshape {
    Reshape {
        position_sectors: 3072,
        delta_disks,
        new_level: Level::Raid6,
        new_layout: 16,
        new_chunk_sectors: 256,
        new_data_offset_sectors,
        backwards,
    }
}

fn one_of_each() -> [Superblock; 4] {
    let of_v1 = new_superblock(Version::V1_0, Level::Raid5);
    let of_v0 = Superblock::new_v0(&NewV0 {
        array: of_v1.array,
        device_bytes: DEVICE_BYTES,
        device_number: 2,
        device_flags: DeviceFlags::default(),
        roles: of_v1.roles,
        nodes: std::sync::Arc::default(),
        events: 17,
        resync_offset: u64::MAX,
    });
    [of_v0.unwrap(), made(Version::V1_0), made(Version::V1_1), made(Version::V1_2)]
}

#[test]
fn a_shape_is_read_back_as_it_was_written() {
    for plain in one_of_each() {
        let shape = plain.shape();
        let same = plain.with_shape(&shape, DEVICE_BYTES).expect("it is its own");
        assert_eq!((same.to_bytes(), &same), (plain.to_bytes(), &plain), "{}", plain.version);
        let offset = shape.data_offset_sectors;
        let (is_v1, is_low) = (plain.version.is_v1(), offset < 1024);
        let moved = (is_v1 && !is_low).then(|| offset - 1024);
        for (delta, backwards) in [(1, false), (0, false), (0, true), (-1, true)] {
            let raid_slots = shape.raid_slots.checked_add_signed(delta).unwrap();
            let reshape = Some(reshape(delta, backwards, moved.filter(|_| !backwards)));
            let wanted = SuperblockShape { raid_slots, reshape, ..shape };
            let written = plain.with_shape(&wanted, DEVICE_BYTES);
            if !is_v1 && backwards && delta == 0 {
                assert!(written.is_err(), "0.90 has no word for it");
                continue;
            }
            let written =
                written.unwrap_or_else(|error| panic!("{} {delta}: {error}", plain.version));
            assert_eq!(written.shape(), wanted);
            assert_eq!(
                (&written.state.roles, written.state.role),
                (&plain.state.roles, plain.state.role)
            );
            let found = probed(DEVICE_BYTES, written.offset_bytes(), &written.to_bytes());
            assert_eq!(found, [Ok(written.clone())]);
            // The reshape continues, and then is reversed.
            let position_sectors = 6144;
            let further = reshape.map(|reshape| Reshape { position_sectors, ..reshape });
            let on = SuperblockShape { reshape: further, ..wanted };
            let on = written.with_shape(&on, DEVICE_BYTES).expect("further on");
            assert_eq!(on.reshape.map(|reshape| reshape.position_sectors), Some(6144));
            let back = on.with_shape(&shape, DEVICE_BYTES).expect("as before");
            assert_eq!(back.shape(), shape);
        }
    }
}

#[test]
fn a_reshape_begins_with_the_bytes_that_md_writes() {
    let raw = in_a_reshape_of_md(5);
    let plain = made(Version::V1_2);
    let reshape = reshape(1, false, Some(plain.device.data_offset_sectors - 1024));
    let shape = SuperblockShape { raid_slots: 5, reshape: Some(reshape), ..plain.shape() };
    assert_eq!(plain.with_shape(&shape, DEVICE_BYTES).unwrap().to_bytes(), raw);
}

#[test]
fn the_end_of_a_reshape_is_the_array_that_it_leads_to() {
    let plain = made(Version::V1_2);
    let old = plain.shape();
    let data_offset_sectors = old.data_offset_sectors - 1024;
    let reshape = reshape(1, false, Some(data_offset_sectors));
    let begun = SuperblockShape { raid_slots: 5, reshape: Some(reshape), ..old };
    let begun = plain.with_shape(&begun, DEVICE_BYTES).unwrap();
    let end = SuperblockShape {
        level: Level::Raid6,
        layout: 16,
        chunk_sectors: 256,
        member_size_sectors: old.member_size_sectors,
        raid_slots: 5,
        data_offset_sectors,
        data_size_sectors: old.data_size_sectors + 1024,
        reshape: None,
    };
    let ended = begun.with_shape(&end, DEVICE_BYTES).unwrap();
    assert_eq!(Ok(ended), begun.on_side(ReshapeSide::After, (0, DEVICE_BYTES)));
    let before = begun.on_side(ReshapeSide::Before, (0, DEVICE_BYTES)).unwrap();
    assert_eq!(before.shape(), old);
    for contradiction in [
        SuperblockShape { data_offset_sectors: 0, ..end },
        SuperblockShape { chunk_sectors: 3, ..end },
        SuperblockShape { raid_slots: 0, ..end },
        SuperblockShape { data_size_sectors: u64::MAX, ..end },
        SuperblockShape { member_size_sectors: DEVICE_BYTES, ..end },
    ] {
        begun.with_shape(&contradiction, DEVICE_BYTES).expect_err("no array has this shape");
    }
}

/// A role table that names the new slot does not fit the shape before. A table with
/// the old slot does not fit the shape after.
#[test]
fn slots_come_before_their_roles_and_go_after_them() {
    let with_roles = |slots: u16| {
        let mut roles: Vec<Role> = (0..slots).map(Role::Active).collect();
        roles.resize(6, Role::Spare);
        SuperblockUpdate { roles: roles.into(), ..update() }
    };
    for plain in one_of_each() {
        let old = plain.shape();
        let grown = Some(Reshape { new_level: Level::Raid5, ..reshape(1, false, None) });
        let grown = SuperblockShape { raid_slots: 5, reshape: grown, ..old };
        let mut superblock = plain.clone();
        superblock.apply_with_shape(&with_roles(5), &grown, DEVICE_BYTES).expect("it grows");
        let mut by_hand = plain.with_shape(&grown, DEVICE_BYTES).expect("five slots");
        by_hand.apply(&with_roles(5));
        assert_eq!((superblock.to_bytes(), &superblock), (by_hand.to_bytes(), &by_hand));
        let found = probed(DEVICE_BYTES, superblock.offset_bytes(), &superblock.to_bytes());
        assert_eq!(found, [Ok(superblock.clone())]);

        let five = SuperblockShape { reshape: None, ..grown };
        superblock.apply_with_shape(&with_roles(5), &five, DEVICE_BYTES).expect("five slots");
        let shrinks = Some(Reshape { new_level: Level::Raid5, ..reshape(-1, true, None) });
        let shrinks = SuperblockShape { reshape: shrinks, ..old };
        superblock.apply_with_shape(&with_roles(5), &shrinks, DEVICE_BYTES).expect("it shrinks");
        let before = superblock.clone();
        let error = superblock.apply_with_shape(&with_roles(5), &old, DEVICE_BYTES);
        let cause = error.expect_err("a role names the slot that goes").cause;
        assert!(matches!(cause, SuperblockFault::RoleOutOfRange { slots: 4, .. }), "{cause}");
        assert_eq!(superblock, before, "nothing has changed");
        superblock.apply_with_shape(&with_roles(4), &old, DEVICE_BYTES).expect("its end");
        let mut by_hand = plain;
        by_hand.apply(&with_roles(4));
        assert_eq!((superblock.shape(), &superblock.state), (old, &by_hand.state));
        let found = probed(DEVICE_BYTES, superblock.offset_bytes(), &superblock.to_bytes());
        assert_eq!(found, [Ok(superblock)]);
    }
}
