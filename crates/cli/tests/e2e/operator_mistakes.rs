//! Operators' mistakes, typed as they were reported: none of them loses a byte.
//!
//! Each mistake comes from reports about mdadm, md and zpool: an array created over instead of
//! started, the wrong disk pulled, failed, added or forgotten, a stale disk put back, a copy named
//! with the original. At the end braid's own remedy must read back all written data; a refusal must
//! change nothing.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::control::{json, said, status};
use crate::jobs::{done, refused};
use crate::kit::{
    Array, RAID_1, RAID_5, RAID_6, ServerProcess, Shape, assert_same, needs, ok, random_bytes,
    wait_until,
};
use crate::members::{MEMBER_BYTES, assert_whole, blank, filled, text, wait_for_rebuild};

/// An array with content.
fn full(shape: Shape, seed: u64) -> (Array, ServerProcess, Vec<u8>) {
    let array = Array::create(shape);
    let served = array.serve();
    let wanted = filled(&array, &served, seed);
    (array, served, wanted)
}

/// A stopped array with content.
fn stopped(shape: Shape, seed: u64) -> (Array, Vec<u8>) {
    let (array, served, wanted) = full(shape, seed);
    served.stop();
    (array, wanted)
}

/// Serves these members, and compares the array with `wanted`.
fn assert_served(array: &Array, members: &[PathBuf], wanted: &[u8]) {
    let served = array.serve_with(&[], members);
    assert_same(&served.read_all(array), wanted, "after the mistake");
    served.stop();
}

#[test]
fn drill_01_create_instead_of_serve() {
    needs!("nbdcopy");
    let (array, wanted) = stopped(RAID_5, 1);
    for more in [&[][..], &["--assume-clean"], &["--zero"]] {
        let words = [&["create", "tank", "--level", "5", "--chunk", "64K"][..], more].concat();
        let refusal = array.refused(&words, &array.members);
        assert_eq!((refusal.code.as_str(), refusal.exit), ("B012", 12));
    }
    assert_served(&array, &array.members, &wanted);
}

#[test]
fn drill_02_create_again_with_two_members_swapped() {
    needs!("nbdcopy");
    let (array, wanted) = stopped(RAID_5, 2);
    let mut swapped = array.members.clone();
    swapped.swap(0, 1);
    let words = ["create", "tank", "--level", "5", "--chunk", "64K", "--assume-clean"];
    assert_eq!(array.refused(&words, &swapped).code, "B012");
    // The members may be named in any order: each is served in its right slot.
    assert_served(&array, &swapped, &wanted);
}

#[test]
fn drill_03_the_wrong_thing_is_named_to_be_destroyed() {
    needs!("nbdcopy");
    let (array, wanted) = stopped(RAID_5, 3);
    let words = ["create", "new", "--level", "5", "--destroy", "photos"];
    assert_eq!(array.refused(&words, &array.members).code, "B013");
    assert_served(&array, &array.members, &wanted);
}

#[test]
fn drill_04_the_member_of_another_array_is_added() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 4);
    let (other, others) = stopped(RAID_1, 5);
    done(&array, &["fail", "tank", "0"]);
    let command = refused(&array, &["add", "tank", text(&other.members[1])], "B012", 12);
    assert!(command.starts_with("braid examine "), "{command}");
    assert_served(&other, &other.members, &others);
    done(&array, &["add", "tank", text(&array.members[0])]);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_05_a_disk_with_a_file_system_is_added() {
    needs!("mke2fs", "e2fsck", "nbdcopy");
    let (array, served, wanted) = full(RAID_5, 6);
    let disk = blank(&array, "disk", MEMBER_BYTES);
    ok("mke2fs", ["-q", "-L", "photos", text(&disk)]);
    refused(&array, &["add", "tank", text(&disk)], "B012", 12);
    refused(&array, &["spare", "tank", text(&disk)], "B012", 12);
    ok("e2fsck", ["-fn", text(&disk)]);
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_06_a_member_that_is_in_use_is_removed() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 7);
    refused(&array, &["remove", "tank", "2"], "B040", 12);
    assert_eq!(status(&array, "tank")["state"], "ok");
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_07_the_second_member_of_a_raid_5_is_failed() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 8);
    done(&array, &["fail", "tank", "1"]);
    // None of the members that are left may fail.
    for slot in ["0", "2", "3"] {
        refused(&array, &["fail", "tank", slot], "B041", 13);
    }
    assert_same(&served.read_all(&array), &wanted, "degraded");
    done(&array, &["add", "tank", text(&array.members[1])]);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_08_the_wrong_member_is_failed_and_given_back() {
    needs!("nbdcopy");
    let (array, served, _) = full(RAID_5, 9);
    done(&array, &["fail", "tank", "1"]);
    // Clients continue to write meanwhile, and the member misses their writes.
    let wanted = filled(&array, &served, 10);
    done(&array, &["add", "tank", text(&array.members[1])]);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_09_the_wrong_member_is_failed_while_another_one_is_rebuilt() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 11);
    let new = blank(&array, "new", MEMBER_BYTES);
    done(&array, &["fail", "tank", "0"]);
    done(&array, &["remove", "tank", "0"]);
    // Jobs stand still, so that the rebuild is not yet complete.
    done(&array, &["set", "tank", "job-ceiling=0B"]);
    done(&array, &["add", "tank", text(&new)]);
    let is_rebuilding = || status(&array, "tank")["slots"][0]["state"] == "recovering";
    wait_until("a rebuild", std::time::Duration::from_secs(30), is_rebuilding);
    let command = refused(&array, &["fail", "tank", "1"], "B041", 13);
    assert_eq!(command, "braid status tank");
    let words = said(&array, &["fail", "tank", "1"]).stderr;
    assert!(words.contains("slot 0 is still being rebuilt"), "{words}");
    done(&array, &["set", "tank", "job-ceiling=none"]);
    wait_for_rebuild(&array);
    let members = [array.without(&[0]), vec![new]].concat();
    assert_whole(&array, served, &members, &wanted);
}

#[test]
fn drill_10_an_old_disk_is_put_back() {
    needs!("nbdcopy");
    let (array, served, _) = full(RAID_5, 12);
    done(&array, &["fail", "tank", "3"]);
    done(&array, &["remove", "tank", "3"]);
    let wanted = filled(&array, &served, 13);
    served.stop();
    // All present members are named, also the stale member, which is not read.
    let served = array.serve();
    assert_eq!(status(&array, "tank")["state"], "degraded");
    assert_same(&served.read_all(&array), &wanted, "without the old one");
    done(&array, &["add", "tank", text(&array.members[3])]);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &array.members, &wanted);
}

/// Writes a MiB at the array's start.
fn write_some(array: &Array, served: &ServerProcess, seed: u64) -> Vec<u8> {
    let (path, bytes) = (array.path("some"), random_bytes(seed, 1 << 20));
    std::fs::write(&path, &bytes).expect("a file");
    let write = format!("write -s {} 0 1M", path.display());
    ok("qemu-io", ["-f", "raw", "-c", &write, "-c", "flush", served.uri.as_str()]);
    bytes
}

#[test]
fn drill_11_both_halves_of_a_mirror_are_used_apart() {
    needs!("qemu-io", "nbdcopy");
    let (array, _) = stopped(RAID_1, 14);
    let halves = [[array.members[0].clone()], [array.members[1].clone()]];
    let mut written = Vec::new();
    for (half, seed) in halves.iter().zip([15, 16]) {
        let served = array.serve_with(&["--accept-older"], half);
        written.push(write_some(&array, &served, seed));
        served.stop();
    }
    // If both halves of the mirror are used together, braid chooses neither, and overwrites
    // neither.
    let before: Vec<Vec<u8>> =
        array.members.iter().map(|path| std::fs::read(path).expect("a member")).collect();
    let served = array.serve_with(&["--accept-older"], &halves[0]);
    refused(&array, &["add", "tank", text(&array.members[1])], "B012", 12);
    served.stop();
    assert!(before[1] == std::fs::read(&array.members[1]).expect("a member"));
    for (half, some) in halves.iter().zip(&written) {
        let served = array.serve_with(&["--accept-older", "--read-only"], half);
        assert_same(&served.read_all(&array)[..some.len()], some, "each has its own");
        served.stop();
    }
}

#[test]
fn drill_12_a_dirty_array_is_started_without_a_member() {
    needs!("qemu-io", "nbdcopy");
    let array = Array::with_bitmap(RAID_5);
    let served = array.serve();
    let mut wanted = filled(&array, &served, 17);
    let some = write_some(&array, &served, 18);
    wanted[..some.len()].copy_from_slice(&some);
    served.kill();
    // The superblocks are made to say active: the array may have been idle long enough to be clean.
    for slot in 0..RAID_5.members {
        array.patch_superblock(slot, 208, &0_u64.to_le_bytes(), true);
    }
    let refusal = array.serve_refused(&[], &array.without(&[2]));
    assert_eq!((refusal.code.as_str(), refusal.exit), ("B031", 12));
    let served = array.serve();
    done(&array, &["wait", "tank", "--for", "idle", "--timeout", "60"]);
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_13_one_array_is_served_twice() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 19);
    let uri = format!("nbd+unix:///?socket={}", text(&array.path("second.sock")));
    let ran = array.braid(&["serve", "--nbd", &uri], &array.members);
    assert_eq!((&json(&ran)["code"], ran.status.code()), (&"B061".into(), Some(11)), "{ran:?}");
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_14_a_member_is_forgotten_at_the_start() {
    needs!("nbdcopy");
    let (array, _) = stopped(RAID_6, 20);
    let served = array.serve_with(&[], &array.without(&[4]));
    let wanted = filled(&array, &served, 21);
    let words = said(&array, &["status", "tank"]).stdout;
    assert!(
        words.contains("slot 4 has had no member") && words.contains("braid add tank"),
        "{words}"
    );
    let added = done(&array, &["add", "tank", text(&array.members[4])]);
    assert_eq!(added["members"][0]["slot"], 4);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_15_everything_is_typed_twice() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 22);
    let new = blank(&array, "new", MEMBER_BYTES);
    let old = text(&array.members[1]);
    done(&array, &["fail", "tank", old]);
    assert_eq!(done(&array, &["fail", "tank", old])["members"][0]["effect"], "nothing");
    done(&array, &["remove", "tank", old]);
    refused(&array, &["remove", "tank", old], "B049", 1);
    done(&array, &["add", "tank", text(&new)]);
    refused(&array, &["add", "tank", text(&new)], "B057", 12);
    wait_for_rebuild(&array);
    let members = [array.without(&[1]), vec![new]].concat();
    assert_whole(&array, served, &members, &wanted);
}

#[test]
fn drill_16_the_replacement_is_a_little_too_small() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 23);
    let small = blank(&array, "small", MEMBER_BYTES - (1 << 20));
    done(&array, &["fail", "tank", "1"]);
    done(&array, &["remove", "tank", "1"]);
    refused(&array, &["add", "tank", text(&small)], "B052", 12);
    // The new array leaves no trace on the old member, which returns as good as before.
    done(&array, &["add", "tank", text(&array.members[1])]);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_17_a_disk_is_added_to_the_wrong_array() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 24);
    let disk = blank(&array, "disk", MEMBER_BYTES);
    // The disk waits as a spare, changes nothing, and is removed again: the mistake can be undone.
    done(&array, &["add", "tank", text(&disk)]);
    done(&array, &["remove", "tank", text(&disk)]);
    let other = Array::create(RAID_1);
    let there = other.serve();
    done(&other, &["fail", "tank", "0"]);
    let ran = other.braid(&["add", "tank", text(&disk), "--destroy", "tank"], &[]);
    assert!(ran.status.success(), "it is free: {ran:?}");
    wait_for_rebuild(&other);
    there.stop();
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_18_the_backup_of_a_member_is_used_as_a_disk() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_5, 25);
    let copy = array.path("backup");
    std::fs::copy(&array.members[2], &copy).expect("a copy");
    let before = std::fs::read(&copy).expect("a copy");
    refused(&array, &["add", "tank", text(&copy)], "B012", 12);
    done(&array, &["fail", "tank", "0"]);
    refused(&array, &["add", "tank", text(&copy)], "B012", 12);
    assert!(before == std::fs::read(&copy).expect("a copy"));
    done(&array, &["add", "tank", text(&array.members[0])]);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_19_a_member_is_deleted_and_made_again_under_its_name() {
    needs!("nbdcopy");
    let (array, mut served, wanted) = full(RAID_5, 26);
    served.lose(&array, 2);
    let again = blank(&array, "m2", MEMBER_BYTES);
    assert_eq!(again, array.members[2]);
    done(&array, &["add", "tank", text(&again)]);
    wait_for_rebuild(&array);
    done(&array, &["remove", "tank", "failed"]);
    assert_eq!(status(&array, "tank")["state"], "ok");
    assert_whole(&array, served, &array.members, &wanted);
}

#[test]
fn drill_20_a_server_is_killed_while_it_rebuilds_and_the_new_member_is_forgotten() {
    needs!("nbdcopy");
    let (array, served, wanted) = full(RAID_1, 27);
    let new = blank(&array, "new", MEMBER_BYTES);
    done(&array, &["fail", "tank", "0"]);
    done(&array, &["remove", "tank", "0"]);
    done(&array, &["set", "tank", "job-ceiling=0B"]);
    done(&array, &["add", "tank", text(&new)]);
    let is_rebuilding = || status(&array, "tank")["slots"][0]["state"] == "recovering";
    wait_until("a rebuild", std::time::Duration::from_secs(30), is_rebuilding);
    served.kill();
    // The old member is named again out of habit; the other members' superblocks show that it is
    // stale.
    assert_served(&array, &array.members, &wanted);
    let members = [array.without(&[0]), vec![new.clone()]].concat();
    // The array was used without the new member, which is now stale.
    let served = array.serve_with(&[], &members);
    assert_eq!(status(&array, "tank")["state"], "degraded");
    assert_same(&served.read_all(&array), &wanted, "without both");
    assert_eq!(done(&array, &["add", "tank", text(&new)])["members"][0]["returns"], true);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &members, &wanted);
}

#[test]
fn drill_21_the_start_of_a_member_is_written_over() {
    needs!("nbdcopy");
    let (array, wanted) = stopped(RAID_6, 28);
    let wiped = OpenOptions::new().write(true).open(&array.members[1]);
    wiped.and_then(|file| file.write_all_at(&vec![0; 1 << 20], 0)).expect("a member");
    let served = array.serve();
    assert_same(&served.read_all(&array), &wanted, "from the others");
    let member: &Path = &array.members[1];
    // The zeroes erased the superblock, but not the data.
    let command = refused(&array, &["add", "tank", text(member)], "B012", 12);
    assert!(command.starts_with("braid examine "), "{command}");
    done(&array, &["add", "tank", "--destroy", "data", text(member)]);
    wait_for_rebuild(&array);
    assert_whole(&array, served, &array.members, &wanted);
}
