//! mdadm reads our superblocks the same way: `mdadm --examine` on a plain file, field by field.
//!
//! No other test of this crate needs a program. Without mdadm the test prints a note and passes.
//! Under `cargo xtask test`, which installs mdadm, it fails.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::common::{DEVICE_BYTES, V0_OFFSET_BYTES, spec, superblock_v0_bytes, superblock_v1};
use braid_geometry::Level;
use braid_ondisk::{
    BadBlockLog, BadRange, BitmapFile, BitmapSuperblock, Bits, LogHome, Role, Superblock,
    SuperblockUpdate, Timestamp, Version, format_uuid,
};
use braid_test_needs::{Need, skip};

/// Runs mdadm on a device of zeroes with `parts` on it; `None` if mdadm is not installed.
fn mdadm(option: &str, parts: &[(u64, &[u8])]) -> Option<String> {
    mdadm_with(&[option], parts)
}

fn mdadm_with(options: &[&str], parts: &[(u64, &[u8])]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let device = File::options().write(true).open(file.path()).unwrap();
    device.set_len(DEVICE_BYTES).unwrap();
    for (offset, bytes) in parts {
        device.write_all_at(bytes, *offset).unwrap();
    }
    let mdadm = ["mdadm", "/sbin/mdadm", "/usr/sbin/mdadm"].into_iter().find_map(|program| {
        match Command::new(program)
            .args(options)
            .arg(file.path())
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .output()
        {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            output => Some(output.unwrap()),
        }
    });
    let Some(output) = mdadm else {
        skip(Need::Program, "no mdadm");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8(text).unwrap())
}

fn fields(report: &str) -> HashMap<&str, &str> {
    report
        .lines()
        .filter_map(|line| line.split_once(" : "))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect()
}

fn examine(superblock: &Superblock) -> Option<String> {
    mdadm("--examine", &[(superblock.offset_bytes(), &superblock.to_bytes())])
}

/// Level, layout number, and mdadm's names of both.
const LEVELS: [(Level, u32, &str, Option<&str>); 9] = [
    (Level::Linear, 0, "linear", None),
    (Level::Raid0, 1, "raid0", Some("original")),
    (Level::Raid0, 2, "raid0", Some("alternate")),
    (Level::Raid1, 0, "raid1", None),
    (Level::Raid4, 0, "raid4", None),
    (Level::Raid5, 2, "raid5", Some("left-symmetric")),
    (Level::Raid6, 2, "raid6", Some("left-symmetric")),
    (Level::Raid6, 8, "raid6", Some("ddf-zero-restart")),
    (Level::Raid10, 0x102, "raid10", Some("near=2")),
];

#[test]
fn every_level_and_version_reads_the_same() {
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for (level, layout, level_name, layout_name) in LEVELS {
            let superblock = Superblock::new_v1(&spec(version, level, layout)).unwrap();
            let Some(report) = examine(&superblock) else { return };
            let fields = fields(&report);
            let field = |name: &str| {
                fields.get(name).copied().unwrap_or_else(|| panic!("{name}: {report}"))
            };
            assert_eq!(field("Version"), version.to_string());
            assert_eq!(field("Array UUID"), format_uuid(&superblock.array.uuid));
            assert_eq!(field("Device UUID"), format_uuid(&superblock.device.uuid));
            assert!(field("Name").starts_with("host:tank"), "{report}");
            assert_eq!(field("Creation Time"), "Tue Nov 14 22:13:20 2023");
            assert_eq!(field("Raid Level"), level_name);
            assert_eq!(field("Raid Devices"), "4");
            assert_eq!(field("State"), "clean");
            assert_eq!(field("Events"), "42");
            assert_eq!(field("Device Role"), "Active device 1");
            assert!(field("Array State").starts_with("AAAA "), "{report}");
            assert!(field("Checksum").ends_with(" - correct"), "{report}");
            assert_eq!(fields.get("Layout").copied(), layout_name, "{report}");
            let sectors = |value: u64| format!("{value} sectors");
            assert!(
                field("Avail Dev Size").starts_with(&sectors(superblock.device.data_size_sectors)),
                "{report}"
            );
            assert_eq!(field("Super Offset"), sectors(superblock.device.super_offset_sectors));
            if version != Version::V1_0 {
                assert_eq!(field("Data Offset"), sectors(superblock.device.data_offset_sectors));
            }
            if superblock.array.chunk_sectors != 0 {
                assert_eq!(field("Chunk Size"), "64K");
            }
            let log = superblock.device.bad_block_log.unwrap();
            let log = format!("512 entries available at offset {} sectors", log.offset_sectors);
            assert_eq!(field("Bad Block Log"), log);
        }
    }
}

#[test]
fn an_updated_superblock_reads_as_updated() {
    let mut superblock = superblock_v1(Version::V1_2);
    superblock.apply(&SuperblockUpdate {
        events: 99,
        update_time: Timestamp { seconds: 1_700_000_060, microseconds: 0 },
        resync_offset: 0,
        roles: [Role::Active(0), Role::Active(1), Role::Faulty, Role::Active(3)].into(),
        recovery_offset: Some(2048),
        is_replacement: false,
        role_of_this: Role::Active(1),
    });
    let Some(report) = examine(&superblock) else { return };
    let fields = fields(&report);
    assert_eq!(fields["Events"], "99");
    assert_eq!(fields["State"], "active");
    assert_eq!(fields["Feature Map"], "0x2");
    assert_eq!(fields["Recovery Offset"], "2048 sectors");
    assert_eq!(fields["Update Time"], "Tue Nov 14 22:14:20 2023");
    assert!(fields["Array State"].starts_with("AA.A "), "{report}");
    assert!(fields["Checksum"].ends_with(" - correct"), "{report}");
}

#[test]
fn bad_blocks_read_the_same() {
    let mut superblock = superblock_v1(Version::V1_2);
    superblock.set_bad_blocks(true);
    let place = superblock.device.bad_block_log.unwrap();
    let ranges = [
        BadRange { start_sector: 5000, length_sectors: 8 },
        BadRange { start_sector: 70_000, length_sectors: 600 },
    ];
    let log = BadBlockLog::to_bytes(&ranges, place).unwrap();
    let log_offset = superblock
        .offset_bytes()
        .checked_add_signed(i64::from(place.offset_sectors) * 512)
        .unwrap();
    let parts = [(superblock.offset_bytes(), superblock.to_bytes()), (log_offset, log)];
    let parts: Vec<_> = parts.iter().map(|(offset, bytes)| (*offset, bytes.as_slice())).collect();
    let Some(report) = mdadm("--examine-badblocks", &parts) else { return };
    for line in ["5000 for 8 sectors", "70000 for 512 sectors", "70512 for 88 sectors"] {
        assert!(report.lines().any(|found| found.trim() == line), "{line}: {report}");
    }
    // The first of two log sectors is filled up with copies, so mdadm reads on into the second.
    let sectors = [vec![ranges[0]], vec![ranges[1]]];
    let log = BadBlockLog::sectors_to_bytes(&sectors, place).unwrap();
    let parts = [(superblock.offset_bytes(), superblock.to_bytes()), (log_offset, log)];
    let parts: Vec<_> = parts.iter().map(|(offset, bytes)| (*offset, bytes.as_slice())).collect();
    let report = mdadm("--examine-badblocks", &parts).expect("it ran before");
    for line in ["5000 for 8 sectors", "70000 for 512 sectors", "70512 for 88 sectors"] {
        assert!(report.lines().any(|found| found.trim() == line), "{line}: {report}");
    }
}

#[test]
fn version_0_90_reads_the_same_before_and_after_an_update() {
    let whole = superblock_v0_bytes();
    let found = braid_ondisk::UnvalidatedV0::recognise(&whole).unwrap();
    let mut superblock = found.validate(DEVICE_BYTES, V0_OFFSET_BYTES).unwrap();
    let Some(report) = examine(&superblock) else { return };
    assert_eq!(
        fields(&report)["UUID"].split(' ').next(),
        Some(&*format_uuid(&superblock.array.uuid))
    );
    assert_eq!(fields(&report)["State"], "clean");
    superblock.apply(&SuperblockUpdate {
        events: 24,
        update_time: Timestamp { seconds: 1_700_000_060, microseconds: 0 },
        resync_offset: 0,
        roles: [Role::Active(0), Role::Active(1), Role::Faulty, Role::Active(3)].into(),
        recovery_offset: None,
        is_replacement: false,
        role_of_this: Role::Active(1),
    });
    let report = examine(&superblock).unwrap();
    let fields = fields(&report);
    assert!(fields["Checksum"].ends_with(" - correct"), "{report}");
    assert_eq!((fields["State"], fields["Events"]), ("active", "24"));
    assert_eq!((fields["Active Devices"], fields["Failed Devices"]), ("3", "1"));
    assert!(report.contains("faulty removed"), "{report}");
    drop(fields);
    superblock.set_log_counts(LogHome::File);
    let report = examine(&superblock).unwrap();
    assert!(self::fields(&report)["Checksum"].ends_with(" - correct"), "{report}");
}

/// mdadm can read superblocks of the other byte order, with an option.
#[test]
fn the_other_byte_order_reads_the_same() {
    let whole = superblock_v0_bytes();
    let (words, _) = whole.as_chunks::<4>();
    let mut words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    [39, 41, 44].into_iter().for_each(|at| words.swap(at, at + 1));
    let whole: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    let found = braid_ondisk::UnvalidatedV0::recognise(&whole).unwrap();
    let mut superblock = found.validate(DEVICE_BYTES, V0_OFFSET_BYTES).unwrap();
    let swapped = |superblock: &Superblock| {
        let bytes = superblock.to_bytes();
        mdadm_with(&["--examine", "--metadata=0.swap"], &[(superblock.offset_bytes(), &bytes)])
    };
    let Some(report) = swapped(&superblock) else { return };
    let uuid = fields(&report)["UUID"].split(' ').next();
    assert_eq!(uuid, Some(&*format_uuid(&superblock.array.uuid)), "{report}");
    let events = superblock.state.events.to_string();
    assert_eq!((fields(&report)["State"], fields(&report)["Events"]), ("clean", &*events));
    superblock.apply(&SuperblockUpdate {
        events: 24,
        update_time: Timestamp { seconds: 1_700_000_060, microseconds: 0 },
        resync_offset: 0,
        roles: [Role::Active(0), Role::Active(1), Role::Faulty, Role::Active(3)].into(),
        recovery_offset: None,
        is_replacement: false,
        role_of_this: Role::Active(1),
    });
    let report = swapped(&superblock).unwrap();
    let fields = fields(&report);
    assert!(fields["Checksum"].ends_with(" - correct"), "{report}");
    assert_eq!((fields["State"], fields["Events"]), ("active", "24"));
    assert_eq!((fields["Active Devices"], fields["Failed Devices"]), ("3", "1"));
}

#[test]
fn a_bitmap_file_reads_the_same() {
    let superblock = superblock_v1(Version::V1_2);
    let (sectors, each) = (1 << 21, 1 << 17);
    let mut bits = Bits::none(sectors, each);
    [3, 4, 11].into_iter().for_each(|bit| bits.set(bit));
    let head = BitmapFile::plan(sectors, None, None).unwrap();
    let head = BitmapSuperblock { events: 24, events_cleared: 20, ..head };
    let area = head.area(&superblock.uuid_as_stored(), &bits, None);
    let Some(report) = mdadm("--examine-bitmap", &[(0, &area)]) else { return };
    let fields = fields(&report);
    assert_eq!((fields["Magic"], fields["Version"]), ("6d746962", "4"), "{report}");
    assert_eq!(fields["UUID"], format_uuid(&superblock.array.uuid));
    assert_eq!((fields["Events"], fields["Events Cleared"]), ("24", "20"));
    assert_eq!((fields["State"], fields["Chunksize"]), ("OK", "64 MB"));
    assert!(fields["Bitmap"].starts_with("16 bits (chunks), 3 dirty"), "{report}");
}
