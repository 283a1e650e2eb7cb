//! Rescue of NAS disks in their makers' layouts: partitions, metadata 0.90 of either byte order,
//! LVM volumes over one array and several, thin volumes.
//!
//! Each case compares a file system made by `mke2fs` through its own export, with a disk missing
//! and no disk written.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_geometry::Level;
use braid_ondisk::{ArrayFacts, ByteOrder, DeviceFlags, NewV0, Role, Superblock, Timestamp};
use serde_json::Value;

use crate::kit::{Array, RAID_1, RAID_5, ServerProcess, assert_same, needs, ok, random_bytes, run};
use crate::members::text;

/// Physical volumes in LVM's format, written independently of the code that reads them.
#[path = "../../../formats/lvm/tests/kit.rs"]
#[allow(dead_code, unreachable_pub, clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod lvm;

const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;

/// A partition of a disk: its first sector, its length in sectors, and runs of data in it.
struct Slice {
    start: u64,
    sectors: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Slice {
    fn new(start: u64, sectors: u64, pieces: Vec<(u64, Vec<u8>)>) -> Self {
        Self { start, sectors, pieces }
    }
}

/// Makes a sparse disk with an MBR and these partitions.
fn disk(path: &Path, slices: &[Slice]) {
    let file = fs::File::create(path).expect("a disk");
    let end = slices.iter().map(|slice| slice.start + slice.sectors).max().expect("partitions");
    file.set_len((end + 2048) * SECTOR).expect("a sparse file");
    let mut table = [0; 512];
    for (entry, slice) in (446..).step_by(16).zip(slices) {
        let number = |value: u64| u32::try_from(value).expect("small").to_le_bytes();
        table[entry + 4] = 0xfd;
        table[entry + 8..entry + 12].copy_from_slice(&number(slice.start));
        table[entry + 12..entry + 16].copy_from_slice(&number(slice.sectors));
        for (offset, bytes) in &slice.pieces {
            assert!(offset + bytes.len() as u64 <= slice.sectors * SECTOR);
            file.write_all_at(bytes, slice.start * SECTOR + offset).expect("a disk");
        }
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    file.write_all_at(&table, 0).expect("a disk");
}

/// Checksums of the data on the disks.
fn sums(disks: &[PathBuf]) -> Vec<String> {
    let sum = |disk: &PathBuf| {
        // The disks are sparse files of gigabytes: only their data is hashed.
        let file = fs::File::open(disk).expect("a disk");
        let (mut sum, mut at) = (0_u64, 0);
        while let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).expect("an end");
            let mut bytes = vec![0; usize::try_from(end - start).expect("small")];
            file.read_exact_at(&mut bytes, start).expect("a disk");
            let add = |sum: u64, byte: &u8| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte);
            sum = bytes.iter().fold(sum.wrapping_add(start), add);
            at = end;
        }
        format!("{}: {sum:x}", disk.display())
    };
    disks.iter().map(sum).collect()
}

/// A RAID-1 member of a NAS's system with metadata 0.90, on a partition of `sectors`.
fn of_system(slots: u32, slot: u32, sectors: u64, order: ByteOrder) -> (u64, Vec<u8>) {
    let bytes = sectors * SECTOR;
    let superblock = Superblock::new_v0(&NewV0 {
        array: ArrayFacts {
            uuid: [0x5a; 16],
            name: String::new(),
            creation_time: Timestamp { seconds: 1_400_000_000, microseconds: 0 },
            level: Level::Raid1,
            layout: 0,
            chunk_sectors: 0,
            member_size_sectors: (bytes - bytes % (64 << 10) - (64 << 10)) / SECTOR,
            raid_slots: slots,
            preferred_minor: Some(0),
            logical_block_bytes: None,
        },
        device_bytes: bytes,
        device_number: slot,
        device_flags: DeviceFlags::default(),
        roles: (0..slots).map(|slot| Role::Active(u16::try_from(slot).expect("few"))).collect(),
        nodes: (0..slots).map(|slot| (8, 16 * slot + 1)).collect(),
        events: (3 << 32) + 42,
        resync_offset: u64::MAX,
    });
    let mut superblock = superblock.expect("a superblock");
    superblock.byte_order = order;
    (superblock.offset_bytes(), superblock.to_bytes())
}

/// An ext4 file system of this size, with one file of these bytes in it.
fn ext4(array: &Array, label: &str, size_bytes: u64, file: &[u8]) -> Vec<u8> {
    let (folder, image) = (array.path("tree"), array.path("ext4.img"));
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("photo"), file).expect("a file");
    fs::File::create(&image).expect("a file").set_len(size_bytes).expect("a file");
    ok("mke2fs", ["-q", "-F", "-t", "ext4", "-L", label, "-d", text(&folder), text(&image)]);
    fs::read(&image).expect("a file system")
}

#[track_caller]
fn story(array: &Array, words: &[&str], disks: &[PathBuf]) -> Value {
    let ran = array.braid(&[&["rescue"], words].concat(), disks);
    assert!(matches!(ran.status.code(), Some(0 | 3 | 13)), "{ran:?}");
    serde_json::from_str(ran.stdout.trim()).expect("one object")
}

fn uri(served: &ServerProcess, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", served.socket.display())
}

/// Copies an export out; returns the export's bytes, and those of the file in it.
fn read_export(array: &Array, served: &ServerProcess, name: &str) -> (Vec<u8>, Vec<u8>) {
    let (path, file) = (array.path("export.img"), array.path("photo"));
    ok("nbdcopy", [&*uri(served, name), text(&path)]);
    let _ = fs::remove_file(&file);
    let command = format!("dump photo {}", text(&file));
    ok("debugfs", ["-R", &command, text(&path)]);
    (fs::read(&path).expect("what was copied"), fs::read(&file).unwrap_or_default())
}

fn extents(range: Range<usize>) -> Range<usize> {
    range.start * lvm::EXTENT..range.end * lvm::EXTENT
}

/// The disks of a Synology NAS with SHR: four disks, two of them larger. All have a system, a swap
/// and a first data array; the larger disks also have a second data array. The volume is on both
/// data arrays.
struct Shr {
    first: Array,
    volume: Vec<u8>,
    photo: Vec<u8>,
    disks: Vec<PathBuf>,
}

/// Extents of the volume on the first data array.
const ON_FIRST: usize = 9;
/// Extents of the volume on the second data array.
const ON_SECOND: usize = 3;

fn shr() -> Shr {
    let (first, second) =
        (Array::create_named("shr-1", RAID_5, "16M"), Array::create_named("shr-2", RAID_1, "16M"));
    let photo = random_bytes(81, 30 << 20);
    let volume = ext4(&first, "1.42.6-5004", ((ON_FIRST + ON_SECOND) * lvm::EXTENT) as u64, &photo);
    let segment =
        |part: &str, extent: usize| format!("stripe_count = 1\nstripes = [\"{part}\", {extent}]");
    // The volume's segments: the end of the first array, then its middle, then the second array.
    let volumes = lvm::volume(
        "lv",
        true,
        &[
            (0, 4, "striped", &segment("pv0", 5)),
            (4, 5, "striped", &segment("pv0", 0)),
            (9, 3, "striped", &segment("pv1", 0)),
        ],
    );
    let metadata = lvm::text(9, &[('a', 9), ('b', 3)], &volumes);
    for (array, letter, pieces) in
        [(&first, 'a', vec![extents(4..9), extents(0..4)]), (&second, 'b', vec![extents(9..12)])]
    {
        let served = array.serve();
        let mut bytes = lvm::head(letter, served.length() as u64, &metadata, 512);
        pieces.into_iter().for_each(|piece| bytes.extend(&volume[piece]));
        assert!(bytes.len() <= served.length(), "{} of {}", bytes.len(), served.length());
        bytes.resize(served.length(), 0);
        served.write_all(array, &bytes);
        served.stop();
    }
    let member =
        |array: &Array, slot: usize| vec![(0, fs::read(&array.members[slot]).expect("a member"))];
    let disks: Vec<PathBuf> = (0..4).map(|slot| first.path(&format!("disk{slot}"))).collect();
    for (slot, path) in disks.iter().enumerate() {
        let system = of_system(4, u32::try_from(slot).expect("few"), 4_980_480, ByteOrder::Little);
        let of_band = member(&first, slot);
        let mut slices = vec![
            Slice::new(256, 4_980_480, vec![(0, random_bytes(82, 1 << 20)), system]),
            Slice::new(4_980_736, 4_194_304, Vec::new()),
            Slice::new(9_453_280, of_band[0].1.len() as u64 / SECTOR, of_band),
        ];
        if slot < 2 {
            let of_band = member(&second, slot);
            let start = slices[2].start + slices[2].sectors + 16;
            slices.push(Slice::new(start, of_band[0].1.len() as u64 / SECTOR, of_band));
        }
        disk(path, &slices);
    }
    Shr { first, volume, photo, disks }
}

#[test]
fn volumes_of_a_nas_are_read_over_several_arrays() {
    needs!("nbdcopy", "mke2fs", "debugfs");
    let Shr { first, mut volume, photo, disks } = shr();
    let before = sums(&disks);
    let said = story(&first, &[], &disks);
    assert_eq!(
        (&said["nas"], said["arrays"].as_array().map(Vec::len)),
        (&"Synology".into(), Some(3)),
        "{said:#}"
    );
    let found = &said["volumes"][0];
    assert_eq!(
        (&found["export"], &found["not_read"]),
        (&"vg-lv".into(), &Value::Null),
        "{found:#}"
    );
    assert_eq!(found["arrays"].as_array().map(Vec::len), Some(2), "{found:#}");
    let thing = &found["things"][0];
    assert_eq!(
        (&thing["kind"], &thing["label"]),
        (&"ext4".into(), &"1.42.6-5004".into()),
        "{found:#}"
    );
    let mut line = first.command_line(&["rescue"], &disks);
    line.remove(0);
    let told = first.run_braid(line).stdout;
    let expected = "These are disks of a NAS (Synology)";
    assert!(
        told.starts_with(expected)
            && told.contains("several bands (SHR)")
            && told.contains("\nVolumes\n"),
        "{told}"
    );
    // One of the larger disks is missing: both arrays are degraded.
    let left = [&disks[..1], &disks[2..]].concat();
    let mut served = ServerProcess::rescued(&first, &["--read-only"], &left);
    served.wait_for("part");
    let (bytes, file) = read_export(&first, &served, "vg-lv");
    assert_same(&bytes, &volume, "the volume");
    assert_same(&file, &photo, "the file on it");
    let names: Vec<Value> = served.events("part").iter().map(|part| part["name"].clone()).collect();
    assert!(names.contains(&"shr-2".into()), "{names:?}");
    served.stop();
    // With overlays the volume can be written, on both arrays; the next run reads the written data.
    let served = ServerProcess::rescued(&first, &[], &left);
    let new = random_bytes(83, 10 << 20);
    let at = ON_FIRST * lvm::EXTENT - (5 << 20);
    volume[at..at + new.len()].copy_from_slice(&new);
    let path = first.path("new.img");
    fs::write(&path, &volume).expect("a file");
    ok("nbdcopy", ["--flush", text(&path), &uri(&served, "vg-lv")]);
    assert_same(&read_export(&first, &served, "vg-lv").0, &volume, "what was written");
    served.stop();
    let served = ServerProcess::rescued(&first, &["--read-only"], &left);
    assert_same(&read_export(&first, &served, "vg-lv").0, &volume, "after a restart");
    served.stop();
    assert_eq!(sums(&disks), before, "a disk was written");
}

/// Both disks with the second array are missing, or the operator requested only the first array:
/// the part of the volume on the first array is read.
#[test]
fn a_volume_that_lies_on_a_lost_array_is_read_where_it_is_not() {
    needs!("qemu-io", "mke2fs");
    let Shr { first, volume, disks, .. } = shr();
    let said = story(&first, &["--array", "shr-1"], &disks);
    let found = &said["volumes"][0];
    assert_eq!(found["missing_parts"].as_array().map(Vec::len), Some(1), "{found:#}");
    assert_eq!(found["things"][0]["kind"], "ext4", "{found:#}");
    let served = ServerProcess::rescued(&first, &["--array", "shr-1", "--read-only"], &disks);
    let read = |offset: usize, length: usize| {
        let commands = format!("read {offset} {length}");
        run("qemu-io", ["-r", "-f", "raw", "-c", &commands, &uri(&served, "vg-lv")])
    };
    let here = ON_FIRST * lvm::EXTENT;
    assert!(read(0, here).status.success());
    for (offset, length) in [(here, 4096), (here - 4096, 8192)] {
        let ran = read(offset, length);
        assert!(ran.stdout.contains("Input/output error"), "{ran:?}");
    }
    let pattern = format!("read -P {} {} 1", volume[here - 1], here - 1);
    let ran = run("qemu-io", ["-r", "-f", "raw", "-c", &pattern, &uri(&served, "vg-lv")]);
    assert!(ran.status.success() && !ran.stdout.contains("failed"), "{ran:?}");
    served.stop();
}

/// The disks of a QNAP: a thin volume in a pool of a kind that other LVMs refuse, on an array with
/// metadata 1.0.
#[test]
fn a_thin_volume_of_a_qnap_is_read() {
    needs!("nbdcopy", "mke2fs", "debugfs", "thin_restore");
    const EXTENTS: usize = 10;
    const BLOCK: usize = 64 << 10;
    let array = Array::create_with("1", RAID_1, "64M", &["--metadata", "1.0"]);
    let photo = random_bytes(84, 9 << 20);
    let volume = ext4(&array, "DataVol1", (EXTENTS * lvm::EXTENT) as u64, &photo);
    // The pool holds written blocks in random order; unwritten blocks are absent.
    let blocks: Vec<usize> = (0..volume.len() / BLOCK)
        .filter(|block| volume[block * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0))
        .collect();
    let place = |index: usize| (index * 37 + 11) % 192;
    assert!(blocks.len() < 185 && blocks.len() > 100, "{} blocks", blocks.len());
    let mut data = vec![0xdb; 12 * lvm::EXTENT];
    let mut mappings = String::new();
    for (index, block) in blocks.iter().enumerate() {
        data[place(index) * BLOCK..][..BLOCK].copy_from_slice(&volume[block * BLOCK..][..BLOCK]);
        mappings += &format!(
            "<single_mapping origin_block=\"{block}\" data_block=\"{}\" time=\"0\"/>",
            place(index)
        );
    }
    let (xml, metadata) = (array.path("xml"), array.path("tmeta"));
    let description = format!(
        "<superblock uuid=\"\" time=\"0\" transaction=\"1\" flags=\"0\" version=\"2\" data_block_size=\"128\" nr_data_blocks=\"192\">\
         <device dev_id=\"1\" mapped_blocks=\"{}\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">{mappings}</device></superblock>",
        blocks.len()
    );
    fs::write(&xml, description).expect("a file");
    fs::File::create(&metadata).expect("a file").set_len(lvm::EXTENT as u64).expect("a file");
    ok("thin_restore", ["-i", text(&xml), "-o", text(&metadata)]);
    let at = |extent: usize| format!("stripe_count = 1\nstripes = [\"pv0\", {extent}]");
    let volumes = [
        lvm::volume(
            "lv1",
            true,
            &[(
                0,
                EXTENTS as u64,
                "thin",
                "thin_pool = \"tp1\"\ntransaction_id = 0\ndevice_id = 1",
            )],
        ),
        lvm::volume(
            "tp1",
            true,
            &[(
                0,
                12,
                "tier-thin-pool",
                "metadata = \"tp1_tmeta\"\npool = \"tp1_tierdata\"\nchunk_size = 128",
            )],
        ),
        lvm::volume("tp1_tmeta", false, &[(0, 1, "striped", &at(0))]),
        lvm::volume("tp1_tierdata", false, &[(0, 12, "striped", &at(1))]),
    ];
    let served = array.serve();
    let mut bytes =
        lvm::head('a', served.length() as u64, &lvm::text(5, &[('a', 13)], &volumes.concat()), 512);
    bytes.extend(fs::read(&metadata).expect("metadata"));
    bytes.extend(&data);
    bytes.resize(served.length(), 0);
    served.write_all(&array, &bytes);
    served.stop();
    let disks: Vec<PathBuf> = (0..2).map(|slot| array.path(&format!("disk{slot}"))).collect();
    for (slot, path) in disks.iter().enumerate() {
        let member = fs::read(&array.members[slot]).expect("a member");
        // On a real QNAP disk the data partition is the largest of four; this disk has no other.
        disk(path, &[Slice::new(2_120_584, member.len() as u64 / SECTOR, vec![(0, member)])]);
    }
    let before = sums(&disks);
    let said = story(&array, &[], &disks[1..]);
    assert_eq!(said["nas"], "QNAP", "{said:#}");
    let found = &said["volumes"][0];
    assert_eq!((&found["thin"], &found["not_read"]), (&true.into(), &Value::Null), "{found:#}");
    assert_eq!(found["things"][0]["label"], "DataVol1", "{found:#}");
    for options in [&["--read-only"][..], &[]] {
        let served = ServerProcess::rescued(&array, options, &disks[1..]);
        let (bytes, file) = read_export(&array, &served, "vg-lv1");
        assert_same(&bytes, &volume, "the volume");
        assert_same(&file, &photo, "the file on it");
        // Unwritten blocks are holes, not data to copy.
        let holes = ok("nbdinfo", ["--map", "--totals", &uri(&served, "vg-lv1")]);
        assert!(holes.contains("hole,zero"), "{holes}");
        let info = ok("nbdinfo", [&uri(&served, "vg-lv1")]);
        assert!(info.contains("is_read_only: true"), "{info}");
        served.stop();
    }
    assert_eq!(sums(&disks), before, "a disk was written");
}

/// The disks of an old NAS with a PowerPC: today's kernels on PCs do not recognise its arrays.
#[test]
fn an_array_of_the_other_byte_order_is_read_written_and_stays_in_it() {
    needs!("nbdcopy", "mke2fs", "debugfs");
    let array = Array::create(RAID_1);
    let photo = random_bytes(85, 3 << 20);
    let sectors = 32 * MIB / SECTOR;
    let mut volume = ext4(&array, "share", 32 * MIB - (64 << 10), &photo);
    let members: Vec<PathBuf> = (0..2).map(|slot| array.path(&format!("old{slot}"))).collect();
    for (slot, path) in (0..).zip(&members) {
        let (offset, superblock) = of_system(2, slot, sectors, ByteOrder::Big);
        let mut bytes = volume.clone();
        bytes.resize(usize::try_from(offset).expect("small"), 0);
        bytes.extend(superblock);
        bytes.resize(usize::try_from(32 * MIB).expect("small"), 0);
        fs::write(path, bytes).expect("a member");
    }
    let before = sums(&members);
    let mut line = array.command_line(&["examine"], &members);
    line.remove(0);
    let told = array.run_braid(line).stdout;
    assert!(told.contains("md 0.90, big-endian (an old NAS on PowerPC or MIPS)"), "{told}");
    let said = story(&array, &[], &members[..1]);
    let found = &said["arrays"][0];
    assert_eq!(
        (&found["readable"], &found["degraded_slots"]),
        (&true.into(), &1.into()),
        "{found:#}"
    );
    assert!(found["kind"].as_str().is_some_and(|kind| kind.contains("big-endian")), "{found:#}");
    let name = found["name"].as_str().expect("a name").to_owned();
    let served = ServerProcess::rescued(&array, &["--read-only"], &members[..1]);
    let (bytes, file) = read_export(&array, &served, &name);
    assert_same(&bytes[..volume.len()], &volume, "the volume");
    assert_same(&file, &photo, "the file on it");
    served.stop();
    // The array is written over an overlay and committed: the superblock keeps the old machine's
    // byte order.
    let served = ServerProcess::rescued(&array, &[], &members);
    let new = random_bytes(86, 1 << 20);
    volume[8 << 20..(8 << 20) + new.len()].copy_from_slice(&new);
    let path = array.path("new.img");
    let mut whole = volume.clone();
    whole.resize(served.length(), 0);
    fs::write(&path, &whole).expect("a file");
    ok("nbdcopy", ["--flush", text(&path), &uri(&served, &name)]);
    served.stop();
    assert_eq!(sums(&members), before, "a member was written");
    let ran = array.braid(&["rescue", "--commit"], &members);
    assert!(ran.status.success(), "{ran:?}");
    for member in &members {
        let bytes = fs::read(member).expect("a member");
        let superblock = &bytes[bytes.len() - (64 << 10)..];
        assert_eq!(superblock[..4], 0xa92b_4efc_u32.to_be_bytes(), "its byte order changed");
        assert_same(&bytes[..volume.len()], &volume, "what was committed");
        if crate::kit::is_installed("mdadm") {
            let mut command = Command::new("mdadm");
            command.args(["--examine", "--metadata=0.swap"]).arg(member);
            let report = command.output().expect("mdadm");
            let report = String::from_utf8_lossy(&report.stdout).into_owned();
            assert!(report.contains(" - correct") && report.contains("State : clean"), "{report}");
        }
    }
    // `serve` accepts the committed array as well.
    let served = array.serve_with(&["--read-only"], &members);
    assert_same(&served.read_all(&array)[..volume.len()], &volume, "served");
    served.stop();
}
