//! Every field and every feature of md's 1.x superblock, as two tables of `docs/on-disk.md` list
//! them. The tests change each field alone in the superblocks of an array, and the result must be
//! as its row says.
//!
//! A test compares the rows here with those of the page (`the_tables_of_the_page_are_these`). The
//! fields cover the whole fixed part of the superblock (`no_byte_is_left_out`).

use crate::kit::{DEVICE_BYTES, EVENTS, array_with, judge, superblock};
use braid_assembly::{AssembledArray, Assembly, ProbedMember, ReadOnlyReason, Refusal};
use braid_geometry::{Level, Slot};
use braid_ondisk::{
    Bitmap, BitmapKind, BitmapSuperblock, Bits, Features, Role, Superblock, SuperblockFault,
    SuperblockUpdate, Timestamp, UnvalidatedV1, Version, checksum_v1,
};

const PAGE: &str = include_str!("../../../../docs/on-disk.md");
const FIXED_BYTES: usize = 256;
const SUPERBLOCK_AT: u64 = 4096;
const CHECKSUM_AT: usize = 216;
const FEATURES_AT: usize = 8;
/// Fields that a running array updates, in addition to the roles.
const UPDATED: [&str; 8] = [
    "feature_map",
    "recovery_offset",
    "journal_tail",
    "utime",
    "events",
    "resync_offset",
    "sb_csum",
    "max_dev",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handling {
    Understood,
    Kept,
    Refused,
}
use Handling::{Kept, Refused, Understood};

impl Handling {
    fn word(self) -> &'static str {
        match self {
            Understood => "understood",
            Kept => "kept",
            Refused => "refused",
        }
    }
}

enum Effect {
    /// The changed bytes are not recognised as a superblock.
    Nothing,
    /// The changed superblock is invalid.
    Fault(fn(&SuperblockFault) -> bool),
    /// The array is served, and the changed fact is in its superblock.
    Says(fn(&Superblock) -> bool),
    /// The array is served, and shows the changed fact.
    Serves(fn(&AssembledArray) -> bool),
    /// The change has no effect.
    Ignores,
    /// The array is refused.
    Refuses(fn(&Refusal) -> bool),
}
use Effect::{Fault, Ignores, Nothing, Refuses, Says, Serves};

#[derive(Clone, Copy)]
enum Targets {
    All,
    /// The superblock of the member with this number; 4 is a spare.
    One(usize),
}
use Targets::{All, One};

/// Which superblocks to change, the byte offset in each, and the new bytes there.
type Patch = (Targets, usize, Vec<u8>);

/// One change to an array of this level with a spare, and its visible result.
struct Change(Level, Vec<Patch>, Effect);

struct Field {
    at: usize,
    bytes: usize,
    name: &'static str,
    handling: Handling,
    changes: Vec<Change>,
}

struct Feature {
    bit: u32,
    name: &'static str,
    handling: Handling,
    changes: Vec<Change>,
}

fn le(value: u64, bytes: usize) -> Vec<u8> {
    value.to_le_bytes()[..bytes].to_vec()
}

fn features(bits: u32) -> Patch {
    (All, FEATURES_AT, le(bits.into(), 4))
}

/// A change to a RAID-5, with its visible result.
fn on(puts: Vec<Patch>, sees: Effect) -> Change {
    Change(Level::Raid5, puts, sees)
}

fn field(
    (at, bytes, name): (usize, usize, &'static str),
    handling: Handling,
    changes: Vec<(u64, Effect)>,
) -> Field {
    let one = |(value, sees)| on(vec![(All, at, le(value, bytes))], sees);
    Field { at, bytes, name, handling, changes: changes.into_iter().map(one).collect() }
}

fn field_of(
    (at, bytes, name): (usize, usize, &'static str),
    handling: Handling,
    changes: Vec<Change>,
) -> Field {
    Field { at, bytes, name, handling, changes }
}

/// A field of a reshape, which counts only during a reshape.
fn of_a_reshape(
    (at, bytes, name): (usize, usize, &'static str),
    value: u64,
    bits: u32,
    sees: fn(&Refusal) -> bool,
) -> Field {
    let put = || (All, at, le(value, bytes));
    let level = (All, 100, le(5, 4));
    let changes = vec![
        on(vec![put()], Ignores),
        // A reshape of a level that has no reshape is refused.
        on(vec![level, put(), features(bits)], Refuses(sees)),
    ];
    field_of((at, bytes, name), Understood, changes)
}

fn is_reshaping(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Reshaping { .. })
}

fn is_newer(refusal: &Refusal) -> bool {
    *refusal == Refusal::NewerFormat
}

fn is_ppl(refusal: &Refusal) -> bool {
    *refusal == Refusal::ReadOnlyOnly(ReadOnlyReason::Ppl)
}

fn of_the_array() -> Vec<Field> {
    let ppl_features = || features(1024);
    vec![
        field((0, 4, "magic"), Understood, vec![(0x1234_5678, Nothing)]),
        field(
            (4, 4, "major_version"),
            Understood,
            vec![(
                2,
                Fault(|fault| matches!(fault, SuperblockFault::VersionUnknown { major: 2, .. })),
            )],
        ),
        field(
            (8, 4, "feature_map"),
            Understood,
            vec![(32, Says(|found| found.state.features == Features::RESHAPE_BACKWARDS))],
        ),
        field((12, 4, "pad0"), Refused, vec![(1, Refuses(is_newer))]),
        field_of(
            (16, 16, "set_uuid"),
            Understood,
            vec![on(vec![(All, 16, vec![0xab; 16])], Says(|found| found.array.uuid == [0xab; 16]))],
        ),
        field_of(
            (32, 32, "set_name"),
            Understood,
            vec![on(vec![(All, 32, b"pool\0".to_vec())], Says(|found| found.array.name == "pool"))],
        ),
        field(
            (64, 8, "ctime"),
            Understood,
            vec![(77, Says(|found| found.array.creation_time.seconds == 77))],
        ),
        field(
            (72, 4, "level"),
            Understood,
            vec![
                (6, Says(|found| found.array.level == Level::Raid6)),
                (
                    u64::from(4_i32.wrapping_neg().cast_unsigned()),
                    Fault(|fault| matches!(fault, SuperblockFault::Level { number: -4, .. })),
                ),
                (3, Fault(|fault| matches!(fault, SuperblockFault::Level { number: 3, .. }))),
            ],
        ),
        field((76, 4, "layout"), Understood, vec![(0, Says(|found| found.array.layout == 0))]),
        field(
            (80, 8, "size"),
            Understood,
            vec![
                (1024, Says(|found| found.array.member_size_sectors == 1024)),
                (0, Fault(|fault| matches!(fault, SuperblockFault::MemberSize { used: 0, .. }))),
            ],
        ),
        field(
            (88, 4, "chunksize"),
            Understood,
            vec![
                (64, Says(|found| found.array.chunk_sectors == 64)),
                (0, Fault(|fault| *fault == SuperblockFault::ChunkZero)),
                (24, Fault(|fault| *fault == SuperblockFault::Chunk { sectors: 24 })),
            ],
        ),
        field(
            (92, 4, "raid_disks"),
            Understood,
            vec![
                (5, Says(|found| found.array.raid_slots == 5)),
                (1921, Fault(|fault| matches!(fault, SuperblockFault::Slots { slots: 1921, .. }))),
            ],
        ),
        field_of(
            (96, 4, "bitmap_offset"),
            Understood,
            vec![
                on(vec![(All, 96, le(8, 4))], Ignores),
                on(
                    vec![(All, 96, le(8, 4)), features(1)],
                    Says(|found| found.intent.bitmap_offset_sectors == Some(8)),
                ),
                on(
                    vec![(All, 96, le(0, 4)), features(1)],
                    Fault(|fault| *fault == SuperblockFault::Place("bitmap")),
                ),
            ],
        ),
        field_of(
            (96, 2, "ppl.offset"),
            Understood,
            vec![
                on(vec![(All, 96, le(0x0010_0010, 4)), ppl_features()], Refuses(is_ppl)),
                on(
                    vec![(All, 96, le(0x0010_0000, 4)), ppl_features()],
                    Fault(|fault| *fault == SuperblockFault::Place("PPL")),
                ),
            ],
        ),
        field_of(
            (98, 2, "ppl.size"),
            Understood,
            vec![on(
                vec![(All, 96, le(0xffff_0010, 4)), ppl_features()],
                Fault(|fault| *fault == SuperblockFault::Place("PPL")),
            )],
        ),
        of_a_reshape((100, 4, "new_level"), 6, 4, is_reshaping),
        of_a_reshape((104, 8, "reshape_position"), 3072, 4, |refusal| {
            matches!(refusal, Refusal::Reshaping { position_sectors: 3072, .. })
        }),
        of_a_reshape((112, 4, "delta_disks"), 1, 4, is_reshaping),
        of_a_reshape((116, 4, "new_layout"), 3, 4, is_reshaping),
        of_a_reshape((120, 4, "new_chunk"), 256, 4, is_reshaping),
        of_a_reshape((124, 4, "new_offset"), 256, 4 | 64, is_reshaping),
    ]
}

fn of_the_device() -> Vec<Field> {
    let is_too_short = |fault: &SuperblockFault| matches!(fault, SuperblockFault::Truncated { .. });
    vec![
        field(
            (128, 8, "data_offset"),
            Understood,
            vec![
                (1536, Says(|found| found.device.data_offset_sectors == 1536)),
                (
                    8,
                    Fault(|fault| {
                        *fault == SuperblockFault::DataOverlapsSuperblock { data_offset: 8 }
                    }),
                ),
            ],
        ),
        field_of(
            (136, 8, "data_size"),
            Understood,
            vec![
                Change(
                    Level::Raid0,
                    vec![(All, 136, le(2048, 8))],
                    Says(|found| found.device.data_size_sectors == 2048),
                ),
                on(vec![(All, 136, le(1 << 20, 8))], Fault(is_too_short)),
            ],
        ),
        field(
            (144, 8, "super_offset"),
            Understood,
            vec![(
                16,
                Fault(|fault| matches!(fault, SuperblockFault::WrongPlace { stored: 16, .. })),
            )],
        ),
        field_of(
            (152, 8, "recovery_offset"),
            Understood,
            vec![
                on(
                    vec![(One(1), 152, le(256, 8))],
                    Serves(|array| array.slots.iter().flatten().all(|one| one.is_in_sync())),
                ),
                on(
                    vec![(One(1), 152, le(256, 8)), (One(1), FEATURES_AT, le(2, 4))],
                    Serves(|array| {
                        array.slots[1].as_ref().is_some_and(|one| one.recovered_until == 256)
                    }),
                ),
            ],
        ),
        field_of(
            (152, 8, "journal_tail"),
            Refused,
            vec![on(
                vec![features(512), (All, 264, le(0xfffd, 2)), (One(4), 152, le(64, 8))],
                Refuses(|refusal| refusal.code() == "journal"),
            )],
        ),
        field_of(
            (160, 4, "dev_number"),
            Understood,
            vec![on(
                vec![(One(4), 160, le(9, 4))],
                Says(|found| [0, 1, 2, 3, 9].contains(&found.device.number)),
            )],
        ),
        field((164, 4, "cnt_corrected_read"), Kept, vec![(9, Ignores)]),
        field_of(
            (168, 16, "device_uuid"),
            Understood,
            vec![on(
                vec![(One(0), 168, vec![0xcd; 16])],
                Says(|found| found.device.number != 0 || found.device.uuid == [0xcd; 16]),
            )],
        ),
        // Bits of undefined flags are kept as well.
        field_of(
            (184, 1, "devflags"),
            Understood,
            vec![on(
                vec![(One(0), 184, vec![0x83])],
                Says(|found| found.device.number != 0 || found.device.flags.write_mostly),
            )],
        ),
        field(
            (185, 1, "bblog_shift"),
            Understood,
            vec![(3, Says(|found| found.device.bad_block_log.is_some_and(|log| log.shift == 3)))],
        ),
        field_of(
            (186, 2, "bblog_size"),
            Understood,
            vec![
                on(
                    vec![(All, 186, le(4, 2))],
                    Says(|found| {
                        found.device.bad_block_log.is_some_and(|log| log.size_sectors == 4)
                    }),
                ),
                on(
                    vec![(All, 186, le(9, 2)), features(8)],
                    Fault(|fault| *fault == SuperblockFault::Place("bad-block log")),
                ),
            ],
        ),
        field_of(
            (188, 4, "bblog_offset"),
            Understood,
            vec![
                on(
                    vec![(All, 188, le(40, 4))],
                    Says(|found| {
                        found.device.bad_block_log.is_some_and(|log| log.offset_sectors == 40)
                    }),
                ),
                on(
                    vec![(All, 188, le(0, 4)), features(8)],
                    Fault(|fault| matches!(fault, SuperblockFault::Contradiction(_))),
                ),
            ],
        ),
    ]
}

fn of_the_state() -> Vec<Field> {
    vec![
        field(
            (192, 8, "utime"),
            Understood,
            vec![(88, Says(|found| found.state.update_time.seconds == 88))],
        ),
        field(
            (200, 8, "events"),
            Understood,
            vec![
                (99, Says(|found| found.state.events == 99)),
                (u64::MAX, Fault(|fault| matches!(fault, SuperblockFault::EventCount { .. }))),
            ],
        ),
        field(
            (208, 8, "resync_offset"),
            Understood,
            vec![(128, Serves(|array| array.resync_offset == 128))],
        ),
        field(
            (216, 4, "sb_csum"),
            Understood,
            vec![(1, Fault(|fault| matches!(fault, SuperblockFault::Checksum { stored: 1, .. })))],
        ),
        field(
            (220, 4, "max_dev"),
            Understood,
            vec![
                (5, Says(|found| found.state.roles.len() == 5)),
                (
                    1921,
                    Fault(|fault| matches!(fault, SuperblockFault::RoleCount { count: 1921, .. })),
                ),
            ],
        ),
        field(
            (224, 4, "logical_block_size"),
            Understood,
            vec![
                (512, Serves(|array| array.newest.array.logical_block_bytes == Some(512))),
                (4096, Serves(|array| array.newest.array.logical_block_bytes == Some(4096))),
                (0, Serves(|array| array.newest.array.logical_block_bytes.is_none())),
                (513, Fault(|fault| *fault == SuperblockFault::LogicalBlock { bytes: 513 })),
            ],
        ),
        field_of(
            (228, 28, "pad3"),
            Refused,
            vec![
                on(vec![(All, 228, vec![1])], Refuses(is_newer)),
                on(vec![(All, 255, vec![1])], Refuses(is_newer)),
            ],
        ),
        field_of(
            (256, 2, "dev_roles"),
            Understood,
            vec![
                on(vec![(All, 262, le(0xfffe, 2))], Serves(|array| array.slots[3].is_none())),
                on(
                    vec![(All, 264, le(4, 2))],
                    Fault(|fault| {
                        matches!(fault, SuperblockFault::RoleOutOfRange { device: 4, .. })
                    }),
                ),
                on(
                    vec![(All, 264, le(0xff00, 2))],
                    Fault(|fault| {
                        matches!(fault, SuperblockFault::RoleOutOfRange { device: 4, .. })
                    }),
                ),
            ],
        ),
    ]
}

fn fields() -> Vec<Field> {
    of_the_array().into_iter().chain(of_the_device()).chain(of_the_state()).collect()
}

fn all_features() -> Vec<Feature> {
    let feature = |bit, name, handling, changes| Feature { bit, name, handling, changes };
    let is_contradiction =
        |fault: &SuperblockFault| matches!(fault, SuperblockFault::Contradiction(_));
    let bitmap = || (All, 96, le(8, 4));
    let ppl = || (All, 96, le(0x0010_0010, 4));
    // A partial parity log of as many sectors as md needs, apart from all other areas.
    let roomy_ppl = || (All, 96, le(264 << 16 | 40, 4));
    let recovering = |bits| vec![(One(1), 152, le(256, 8)), (One(1), FEATURES_AT, le(bits, 4))];
    let recovers: fn(&AssembledArray) -> bool =
        |array| array.slots[1].as_ref().is_some_and(|one| one.recovered_until == 256);
    // The spare gets the role of member 1, as its replacement.
    let replacing = vec![(All, 264, le(1, 2)), (One(4), FEATURES_AT, le(16 | 2, 4))];
    let replaces: fn(&AssembledArray) -> bool =
        |array| array.replacements.iter().map(|(slot, _)| *slot).eq([Slot(1)]);
    vec![
        feature(
            1,
            "bitmap",
            Understood,
            vec![on(
                vec![bitmap(), features(1)],
                Says(|found| found.intent.bitmap_offset_sectors == Some(8)),
            )],
        ),
        feature(2, "recovery-offset", Understood, vec![on(recovering(2), Serves(recovers))]),
        feature(
            4,
            "reshape",
            Understood,
            vec![on(vec![(All, 100, le(5, 4)), features(4)], Refuses(is_reshaping))],
        ),
        feature(
            8,
            "bad-blocks",
            Understood,
            vec![
                on(vec![features(8)], Says(|found| found.state.features == Features::BAD_BLOCKS)),
                on(vec![(All, 186, le(0, 2)), features(8)], Fault(is_contradiction)),
            ],
        ),
        feature(16, "replacement", Understood, vec![on(replacing, Serves(replaces))]),
        feature(
            32,
            "reshape-backwards",
            Understood,
            vec![
                on(vec![features(32)], Ignores),
                on(vec![(All, 100, le(5, 4)), features(4 | 32)], Refuses(is_reshaping)),
            ],
        ),
        feature(
            64,
            "new-offset",
            Understood,
            vec![
                on(vec![features(64)], Ignores),
                on(vec![(All, 100, le(5, 4)), features(4 | 64)], Refuses(is_reshaping)),
            ],
        ),
        feature(128, "recovery-bitmap", Understood, vec![on(recovering(2 | 128), Serves(recovers))]),
        feature(
            256,
            "clustered",
            Refused,
            vec![on(vec![features(256)], Refuses(|refusal| *refusal == Refusal::Clustered))],
        ),
        feature(
            512,
            "journal",
            Refused,
            vec![
                on(vec![features(512)], Refuses(|refusal| refusal.code() == "journal")),
                on(vec![ppl(), features(512 | 1024)], Fault(is_contradiction)),
            ],
        ),
        feature(
            1024,
            "ppl",
            Understood,
            vec![
                on(vec![roomy_ppl(), features(1024)], Says(|found| found.intent.ppl.is_some())),
                on(vec![ppl(), features(1024 | 1)], Fault(is_contradiction)),
            ],
        ),
        feature(
            2048,
            "multiple-ppls",
            Understood,
            vec![
                on(
                    vec![roomy_ppl(), features(2048)],
                    Says(|found| found.intent.ppl.is_some_and(|ppl| ppl.multiple)),
                ),
                on(vec![ppl(), features(2048 | 1024)], Fault(is_contradiction)),
            ],
        ),
        feature(
            4096,
            "raid0-layout",
            Understood,
            vec![
                Change(
                    Level::Raid0,
                    vec![(All, 76, le(2, 4)), features(4096)],
                    Serves(|array| array.shape.layout == 2),
                ),
                on(vec![features(4096)], Fault(is_contradiction)),
            ],
        ),
        feature(
            8192,
            "(and all above)",
            Refused,
            (13..32)
                .map(|shift| {
                    let is_unknown = |refusal: &Refusal| matches!(refusal, Refusal::UnknownFeatures { bits } if *bits >= 8192);
                    on(vec![features(1 << shift)], Refuses(is_unknown))
                })
                .collect(),
        ),
    ]
}

/// The members with these bytes put into their superblocks, or the fault that validation found.
fn changed(
    level: Level,
    puts: &[Patch],
    reseals: bool,
) -> Result<Vec<ProbedMember>, Option<SuperblockFault>> {
    let mut members = array_with(level, 4, 1, 7);
    for (number, member) in members.iter_mut().enumerate() {
        let mut raw = superblock(member).to_bytes();
        for (whose, at, bytes) in puts {
            if matches!(whose, One(one) if *one != number) {
                continue;
            }
            raw[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        if let Some(checksum) = checksum_v1(&raw).filter(|_| reseals) {
            raw[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        }
        let found = UnvalidatedV1::recognise(&raw, Version::V1_2).ok_or(None)?;
        let found =
            found.validate(DEVICE_BYTES, SUPERBLOCK_AT).map_err(|error| Some(error.cause))?;
        assert_eq!(found.to_bytes(), raw, "what is read is what is kept");
        if found.intent.bitmap_offset_sectors.is_some() {
            let bits = Bits::none(BITMAP.sync_size_sectors, BITMAP.sectors_each());
            member.bitmap = Some(Ok(Bitmap { superblock: BITMAP, bits, marks: None }));
        }
        member.probe.superblocks = vec![Ok(found)];
    }
    Ok(members)
}

const BITMAP: BitmapSuperblock = BitmapSuperblock {
    kind: BitmapKind::Classic,
    events: EVENTS,
    events_cleared: EVENTS,
    sync_size_sectors: 1024,
    chunk_bytes: 65_536,
    state: 0,
    daemon_sleep_seconds: 5,
    write_behind: 0,
    sectors_reserved: 0,
};

/// Checks that an update of a running array keeps these bytes.
#[track_caller]
fn assert_kept(members: &[ProbedMember], at: usize, bytes: usize, name: &str) {
    for member in members {
        let mut one = superblock(member).clone();
        let before = one.to_bytes();
        let (role_of_this, roles) = (one.state.role, one.state.roles.clone().into());
        one.apply(&SuperblockUpdate {
            events: one.state.events + 1,
            update_time: Timestamp { seconds: 1_800_000_000, microseconds: 5 },
            resync_offset: 0,
            roles,
            recovery_offset: one
                .device
                .recovery_offset_sectors
                .filter(|_| role_of_this != Role::Journal),
            is_replacement: one.state.features.contains(Features::REPLACEMENT),
            role_of_this,
        });
        let after = one.to_bytes();
        assert_eq!(after[at..at + bytes], before[at..at + bytes], "{name} is kept");
    }
}

/// Applies one change, and compares the result with the expected one.
fn tried(name: &str, Change(level, puts, sees): &Change, kept: Option<(usize, usize)>) {
    let members = changed(*level, puts, name != "sb_csum");
    let members = match (members, sees) {
        (Ok(members), _) => members,
        (Err(None), Nothing) => return,
        (Err(Some(fault)), Fault(is_this)) => {
            return assert!(is_this(&fault), "{name}: {fault}");
        }
        (Err(fault), _) => panic!("{name}: {fault:?}"),
    };
    if let Some((at, bytes)) = kept {
        assert_kept(&members, at, bytes, name);
    }
    let Assembly { array, verdicts, .. } = judge(&members);
    match (array, sees) {
        (Err(refusal), Refuses(is_this)) => assert!(is_this(&refusal), "{name}: {refusal}"),
        (Ok(array), Serves(is_so)) => assert!(is_so(&array), "{name}: {array:?}"),
        (Ok(_), Says(is_so)) => {
            let all = members.iter().map(superblock).all(is_so);
            assert!(all, "{name}: {:?}", superblock(&members[0]));
        }
        (Ok(array), Ignores) => assert!(array.occupants().count() == 4, "{name}: {verdicts:?}"),
        (array, _) => panic!("{name}: {array:?} {verdicts:?}"),
    }
}

/// Checks that the changes of a row show the handling that the row claims.
fn assert_shown(name: &str, handling: Handling, changes: &[Change]) {
    let shows = |Change(_, _, sees): &Change| match handling {
        Understood => !matches!(sees, Ignores),
        Kept => matches!(sees, Ignores),
        Refused => matches!(sees, Refuses(_)),
    };
    assert!(changes.iter().any(shows), "nothing shows that {name} is {}", handling.word());
}

#[test]
fn every_field_is_dealt_with_as_its_row_says() {
    for Field { at, bytes, name, handling, changes } in fields() {
        assert_shown(name, handling, &changes);
        let is_updated = UPDATED.contains(&name) || at >= FIXED_BYTES;
        let kept = (!is_updated).then_some((at, bytes));
        changes.iter().for_each(|one| tried(name, one, kept));
    }
}

#[test]
fn every_feature_is_dealt_with_as_its_row_says() {
    for Feature { name, handling, changes, .. } in all_features() {
        assert_shown(name, handling, &changes);
        changes.iter().for_each(|one| tried(name, one, None));
    }
    let known = |(name, bit): (&'static str, Features)| (bit.0, name);
    let rows = all_features();
    let rows = rows.iter().map(|row| (row.bit, row.name)).filter(|(bit, _)| *bit < 8192);
    assert!(rows.eq(Features::NAMED.map(known)), "features that braid knows by name");
}

#[test]
fn no_byte_is_left_out() {
    let mut end = 0;
    for Field { at, bytes, name, .. } in fields() {
        assert!(at <= end, "nothing says what is between {end} and {name}");
        end = end.max(at + bytes);
    }
    assert_eq!(end, FIXED_BYTES + 2, "the first role is the last");
}

/// The cells of each row of the page's table with this head row.
fn rows(head: &str) -> Vec<Vec<String>> {
    let (_, table) = PAGE.split_once(head).expect("a table with this head");
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    lines.map(cells).collect()
}

#[test]
fn the_tables_of_the_page_are_these() {
    let said = rows("| Offset | Size | Field | Meaning | How | braid |");
    let said: Vec<String> = said
        .iter()
        .map(|row| {
            let bytes = row[1].trim_end_matches(" each");
            format!("{} {bytes} {} {}", row[0], row[2], row[4])
        })
        .collect();
    let here: Vec<String> = fields()
        .iter()
        .map(|row| format!("{} {} {} {}", row.at, row.bytes, row.name, row.handling.word()))
        .collect();
    assert_eq!(said, here);
    let said = rows("| Bit | Feature | Meaning | How | braid |");
    let said: Vec<String> =
        said.iter().map(|row| format!("{} {} {}", row[0], row[1], row[3])).collect();
    let here: Vec<String> = all_features()
        .iter()
        .map(|row| format!("{} {} {}", row.bit, row.name, row.handling.word()))
        .collect();
    assert_eq!(said, here);
}
