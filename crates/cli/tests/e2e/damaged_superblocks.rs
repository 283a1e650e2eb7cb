//! Nearly sound superblocks: wiped, in partitions whose table is lost, at the old end of a device,
//! with a wrong byte, or with the role of a spare. `rescue` reports them, and believes them on
//! request.
//!
//! The arrays contain random bytes, as if encrypted, so that only superblocks tell their order.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::kit::{
    Array, RAID_0, RAID_1, RAID_5, SUPERBLOCK_BYTES, ServerProcess, assert_same, needs, ok,
    random_bytes,
};
use crate::members::{filled, text};
use crate::rescue::{contents, story};

/// The nearly sound superblocks in the report of `rescue`.
#[track_caller]
fn told(array: &Array, members: &[PathBuf]) -> Vec<Value> {
    let ran = array.braid(&["rescue"], members);
    assert!(matches!(ran.status.code(), Some(3 | 13)), "{ran:?}");
    let said: Value = serde_json::from_str(ran.stdout.trim()).expect("one object");
    said["nearly"].as_array().expect("a list").clone()
}

/// Checks that the array is read with these members believed, and that no member is written.
#[track_caller]
fn assert_read(array: &Array, with: &[PathBuf], members: &[PathBuf], content: &[u8]) {
    let before = contents(members);
    let with: Vec<&str> = with.iter().map(|path| text(path)).collect();
    let words = ["--read-only", "--with", &with.join(",")];
    let served = ServerProcess::rescued(array, &words, members);
    assert_same(&served.read_all(array), content, "the array");
    served.stop();
    assert!(contents(members) == before, "a member was written");
}

fn wipe(path: &PathBuf) {
    let file = fs::File::options().write(true).open(path).expect("a member");
    file.write_all_at(&[0; 4], SUPERBLOCK_BYTES).expect("a magic");
}

#[test]
fn members_that_wipefs_has_been_at_are_read_where_that_is_asked_for() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let content = filled(&array, &served, 91);
    served.stop();
    let before = contents(&array.members);
    array.members.iter().for_each(wipe);
    let found = told(&array, &array.members);
    let slots: Vec<(&Value, &Value)> = found.iter().map(|it| (&it["flaw"], &it["slot"])).collect();
    let expected: Vec<Value> = (0..4).map(Value::from).collect();
    assert_eq!(slots, expected.iter().map(|slot| (&found[0]["flaw"], slot)).collect::<Vec<_>>());
    assert_eq!((&found[0]["flaw"], &found[0]["array"]), (&"magic".into(), &"tank".into()));
    // Nearly sound superblocks are believed only if the operator names their members.
    let refusal = array.refused(&["rescue", "--serve"], &array.members);
    refusal.is("B020", 10);
    array.follow(&refusal.json, "Believe the superblocks that nearly stand, in memory");
    let all: Vec<&str> = array.members.iter().map(|path| text(path)).collect();
    let few = ["rescue", "--with", text(&array.members[0])];
    assert_eq!(array.braid(&few, &array.members).status.code(), Some(13));
    assert_read(&array, &array.members, &array.members, &content);
    assert_read(&array, &array.members[1..], &array.members[1..], &content);
    // The commit writes the superblocks' magic, and can be undone.
    let wiped = contents(&array.members);
    ServerProcess::rescued(&array, &["--with", &all.join(",")], &array.members).stop();
    assert!(contents(&array.members) == wiped, "a member was written");
    let ran = array.braid(&["rescue", "--commit"], &array.members);
    assert!(ran.status.success(), "{ran:?}");
    let served = array.serve_with(&["--read-only"], &array.members);
    assert_same(&served.read_all(&array), &content, "of the members themselves");
    served.stop();
    assert!(array.braid(&["undo"], &[]).status.success());
    assert!(contents(&array.members) == wiped && wiped != before);
}

#[test]
fn superblocks_in_partitions_whose_table_is_lost_are_found() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let content = filled(&array, &served, 92);
    served.stop();
    for path in &array.members {
        let member = fs::read(path).expect("a member");
        let mut disk = vec![0; member.len() + (8 << 20)];
        disk[1 << 20..(1 << 20) + member.len()].copy_from_slice(&member);
        fs::write(path, disk).expect("a disk");
        // A file stands for the kernel's partition node, for the case that the disk has a table.
        fs::write(format!("{}p1", text(path)), member).expect("a partition");
    }
    let found = told(&array, &array.members);
    assert_eq!(found.len(), 4);
    assert_eq!(
        (&found[0]["flaw"], &found[0]["offset_bytes"]),
        (&"place".into(), &(1 << 20).into())
    );
    assert_read(&array, &array.members, &array.members, &content);
    // For disks with a table the report names partitions that may be members.
    for path in &array.members {
        let disk = fs::File::options().write(true).open(path).expect("a disk");
        // The table is an MBR with one partition from sector 2048.
        let mut table = [0; 66];
        table[..16].copy_from_slice(&[0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 8, 0, 0, 0, 0x80, 0, 0]);
        table[64..].copy_from_slice(&[0x55, 0xaa]);
        disk.write_all_at(&table, 446).expect("a table");
    }
    let refusal = array.serve_refused(&[], &array.members);
    refusal.is("B020", 10);
    let said = refusal.json.to_string();
    assert!(said.contains("in the partitions of these disks"), "{said}");
    assert!(said.contains("partition 1 of") && said.contains("is a member of tank"), "{said}");
    assert!(said.contains("braid rescue"), "{said}");
    array.follow(&refusal.json, "Serve the partitions");
}

#[test]
fn a_member_whose_device_was_enlarged_is_found_at_its_old_end() {
    needs!("nbdcopy");
    let array = Array::create_with("tank", RAID_1, "16M", &["--metadata", "1.0"]);
    let served = array.serve();
    let content = filled(&array, &served, 93);
    served.stop();
    for path in &array.members {
        let file = fs::File::options().write(true).open(path).expect("a member");
        let size = file.metadata().expect("a file").len();
        file.set_len(size + (8 << 20)).expect("a longer one");
    }
    let found = told(&array, &array.members);
    let first = &found[0];
    assert_eq!(
        (found.len(), &first["flaw"], &first["offset_bytes"]),
        (2, &"place".into(), &0.into())
    );
    assert_read(&array, &array.members, &array.members, &content);
}

/// RAID-0 has no other copy of the data.
#[test]
fn a_wrong_byte_in_a_superblock_costs_a_raid_0_nothing() {
    needs!("nbdcopy");
    let array = Array::create(RAID_0);
    let served = array.serve();
    let content = filled(&array, &served, 94);
    served.stop();
    // First two bits of the array's name are wrong, then one bit of the data offset.
    for (at, wrong, flaw) in [(40, vec![0x41], "bytes"), (129, vec![0x18], "bit")] {
        let file = fs::File::options().read(true).write(true).open(&array.members[0]);
        let file = file.expect("a member");
        let mut was = vec![0; wrong.len()];
        file.read_exact_at(&mut was, SUPERBLOCK_BYTES + at).expect("a superblock");
        assert_ne!(was, wrong);
        file.write_all_at(&wrong, SUPERBLOCK_BYTES + at).expect("a superblock");
        let found = told(&array, &array.members);
        assert_eq!((found.len(), &found[0]["flaw"]), (1, &flaw.into()), "{found:?}");
        assert_read(&array, &array.members[..1], &array.members, &content);
        file.write_all_at(&was, SUPERBLOCK_BYTES + at).expect("a superblock");
    }
    array.serve().stop();
}

/// A dropped member was added instead of re-added: its data are whole, but no superblock has its
/// slot.
#[test]
fn a_spare_that_was_a_member_is_tried_in_each_free_slot() {
    needs!("nbdcopy", "mke2fs");
    let array = Array::create(RAID_5);
    let (served, tree) = (array.serve(), array.path("tree"));
    fs::create_dir(&tree).expect("a folder");
    for number in 0..8 {
        let bytes = random_bytes(190 + number, 3 << 20);
        fs::write(tree.join(format!("file-{number}")), bytes).expect("a file");
    }
    let system = array.path("fs.img");
    ok("mke2fs", ["-q", "-t", "ext4", "-d", text(&tree), text(&system), "40M"]);
    let mut content = fs::read(&system).expect("a file system");
    content.resize(usize::try_from(served.size_bytes).expect("small"), 0);
    served.write_all(&array, &content);
    served.stop();
    let role = |number: u64| usize::try_from(256 + 2 * number).expect("small");
    for slot in 1..4 {
        for number in [0, 3] {
            array.patch_superblock(slot, role(number), &0xfffe_u16.to_le_bytes(), true);
        }
        array.patch_superblock(slot, role(4), &0xffff_u16.to_le_bytes(), true);
    }
    array.patch_superblock(3, 160, &4_u32.to_le_bytes(), true);
    let left = array.without(&[0]);
    let spare = text(&left[2]).to_owned();
    array.refused(&["rescue", "--serve"], &left).is("B030", 13);
    let found = story(&array, &["--with", &spare], &left);
    assert_eq!(
        (&found["readable"], &found["members"][2]["slot"]),
        (&true.into(), &3.into()),
        "{found:#}"
    );
    assert_read(&array, &left[2..], &left, &content);
    // The operator may also name the slot, if it is free.
    let asked = story(&array, &["--with", &format!("{spare}=0")], &left);
    assert_eq!(asked["members"][2]["slot"], 0);
    array.refused(&["rescue", "--with", &format!("{spare}=1")], &left).is("B001", 2);
    // `--solve` uses the sound superblocks.
    let ran = array.braid(&["rescue", "--solve"], &left);
    let said: Value = serde_json::from_str(ran.stdout.trim()).expect("one object");
    let first = &said["solved"]["guesses"][0]["slots"];
    let labels: Vec<&str> = left.iter().map(|path| text(path)).collect();
    assert_eq!(first, &serde_json::json!([null, labels[0], labels[1], labels[2]]), "{said:#}");
    // `--solve` also finds the slot of a member without any superblock.
    let file = fs::File::options().write(true).open(&left[2]).expect("a member");
    file.write_all_at(&[0; 4096], SUPERBLOCK_BYTES).expect("a superblock");
    let ran = array.braid(&["rescue", "--solve"], &left);
    let said: Value = serde_json::from_str(ran.stdout.trim()).expect("one object");
    let first = &said["solved"]["guesses"][0];
    assert_eq!(
        first["slots"],
        serde_json::json!([null, labels[0], labels[1], labels[2]]),
        "{said:#}"
    );
    assert_eq!(first["superblocks_say_so"], true);
}
