//! Faults of operators and disks: each gets a code, a cause and a remedy, and nothing is written.
//!
//! `Array::refused` compares every byte of every member before and after. It runs the refused
//! command twice: with output for a program, and with output for a person.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::kit::{
    Array, RAID_0, RAID_1, RAID_5, RAID_6, SUPERBLOCK_BYTES, assert_same, needs, random_bytes,
};
use crate::remedies::refusal;

/// Offset in a superblock 1.x of the number of sectors that the array uses on a member.
const SIZE_AT: usize = 80;
/// Offset in a superblock 1.x of the chunk size.
const CHUNK_AT: usize = 88;
/// Offset in a superblock 1.x of the number of the member's data sectors.
const DATA_SIZE_AT: usize = 136;

fn truncate(path: &PathBuf, length: u64) {
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(length)).expect("a member");
}

/// The array runs without its faulty first member, which stays unwritten.
fn runs_without_the_first(array: &Array, verdict: &str) {
    let before = std::fs::read(&array.members[0]).expect("a member");
    let mut served = array.serve();
    let assembled = served.wait_for("assembled");
    assert_eq!(assembled["members"][0]["verdict"], verdict, "{assembled}");
    assert_ne!(assembled["members"][0]["reason"], "", "{assembled}");
    assert_eq!(assembled["degraded_slots"], 1, "{assembled}");
    let bytes = random_bytes(30, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(array, &bytes);
    assert_same(&served.read_all(array), &bytes, "without the first member");
    served.stop();
    let after = std::fs::read(&array.members[0]).expect("a member");
    assert!(before == after, "a member that was left out was written");
}

#[test]
fn bad_1_a_truncated_member() {
    needs!("nbdcopy");
    let array = Array::create(RAID_0);
    truncate(&array.members[1], 9 << 20);
    let refusal = array.serve_refused(&[], &array.members);
    refusal.is("B030", 13);
    let array = Array::create(RAID_5);
    truncate(&array.members[0], 9 << 20);
    runs_without_the_first(&array, "truncated");
    // If only the truncated member is named, the error is about its fault.
    array.serve_refused(&[], &array.members[..1]).is("B053", 1);
}

#[test]
fn bad_2_swapped_members_are_no_mistake() {
    needs!("nbdcopy");
    let array = Array::create(RAID_6);
    let served = array.serve();
    let bytes = random_bytes(31, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(&array, &bytes);
    served.stop();
    // Members are named in another order, and two have each other's names.
    std::fs::rename(&array.members[0], array.path("x")).expect("renaming");
    std::fs::rename(&array.members[3], &array.members[0]).expect("renaming");
    std::fs::rename(array.path("x"), &array.members[3]).expect("renaming");
    let mut members = array.members.clone();
    members.reverse();
    let served = array.serve_with(&[], &members);
    assert_same(&served.read_all(&array), &bytes, "in another order");
    served.stop();
}

#[test]
fn bad_3_the_same_member_twice() {
    let array = Array::create(RAID_5);
    let mut members = array.members.clone();
    members.push(array.members[1].clone());
    array.serve_refused(&[], &members).is("B011", 12);
    // A link to a member, a second name for it, is recognised as well.
    let link = array.path("link");
    std::os::unix::fs::symlink(&array.members[1], &link).expect("a link");
    *members.last_mut().expect("one") = link.clone();
    array.serve_refused(&[], &members).is("B011", 12);
    std::fs::remove_file(&link).expect("a link");
    std::fs::hard_link(&array.members[1], &link).expect("a link");
    array.serve_refused(&[], &members).is("B011", 12);
    // `create` refuses the same member twice as well.
    let words = ["create", "other", "--level", "1", "--member-size", "16M"];
    let fresh = array.path("fresh");
    array.refused(&words, &[fresh.clone(), fresh.clone()]).is("B011", 12);
    assert!(!fresh.exists(), "a refusal made a member");
    // A copy of a member is another device that claims the same slot.
    let copy = array.path("copy");
    std::fs::copy(&array.members[1], &copy).expect("a copy");
    *members.last_mut().expect("one") = copy;
    array.serve_refused(&[], &members).is("B034", 12);
}

#[test]
fn bad_4_a_foreign_member() {
    let array = Array::create(RAID_5);
    let other = Array::create_named("other", RAID_5, "16M");
    let mut members = array.without(&[1]);
    members.insert(1, other.members[1].clone());
    array.serve_refused(&[], &members).is("B033", 12);
    // If the command line names the array, the array runs without the foreign member, and the
    // foreign member is not touched.
    let before = std::fs::read(&other.members[1]).expect("a member");
    let mut served = array.serve_with(&["--array", "tank"], &members);
    let assembled = served.wait_for("assembled");
    assert_eq!(assembled["members"][1]["verdict"], "foreign", "{assembled}");
    served.stop();
    assert!(std::fs::read(&other.members[1]).expect("a member") == before);
    // A device that is no member of any array is reported as such.
    let blank = array.path("blank");
    let file = std::fs::File::create(&blank).expect("a file");
    file.set_len(16 << 20).expect("its size");
    array.serve_refused(&[], &[blank]).is("B020", 10);
}

#[test]
fn bad_5_a_checksum_that_is_off_by_one_bit() {
    needs!("nbdcopy");
    for shape in [RAID_0, RAID_5] {
        let array = Array::create(shape);
        let file = OpenOptions::new().read(true).write(true).open(&array.members[0]);
        let file = file.expect("a member");
        let mut byte = [0];
        let at = SUPERBLOCK_BYTES + 216;
        file.read_exact_at(&mut byte, at).expect("reading");
        file.write_all_at(&[byte[0] ^ 0x10], at).expect("writing");
        array.serve_refused(&[], &array.members[..1]).is("B021", 1);
        if shape.lost_max == 0 {
            array.serve_refused(&[], &array.members).is("B030", 13);
        } else {
            runs_without_the_first(&array, "damaged");
        }
    }
}

#[test]
fn bad_6_a_superblock_that_claims_2_to_the_60_sectors() {
    for at in [SIZE_AT, DATA_SIZE_AT] {
        let array = Array::create(RAID_5);
        for slot in 0..array.members.len() {
            array.patch_superblock(slot, at, &(1_u64 << 60).to_le_bytes(), true);
            assert!(array.checksum_is_right(slot));
        }
        let refusal = array.serve_refused(&[], &array.members);
        assert!(matches!(refusal.code.as_str(), "B022" | "B053"), "{refusal:?}");
        refusal.is(&refusal.code, 1);
    }
}

#[test]
fn bad_7_a_chunk_of_zero() {
    let array = Array::create(RAID_5);
    for slot in 0..array.members.len() {
        array.patch_superblock(slot, CHUNK_AT, &[0; 4], true);
        assert!(array.checksum_is_right(slot));
    }
    array.serve_refused(&[], &array.members).is("B022", 1);
}

#[test]
fn bad_8_two_members_lost_from_raid_5() {
    let array = Array::create(RAID_5);
    let refusal = array.serve_refused(&[], &array.without(&[0, 2]));
    refusal.is("B030", 13);
    let words = format!("{} {}", refusal.json["title"], refusal.json["cause"]);
    assert!(words.contains("0, 2"), "which ones is not said: {words}");
    // Accepting a risk cannot replace the bytes of missing members.
    array.serve_refused(&["--accept-risk", "99999"], &array.without(&[0, 2])).is("B030", 13);
    // A RAID-6 runs without two members; without three it does not.
    let array = Array::create(RAID_6);
    array.serve_with(&[], &array.without(&[0, 2])).stop();
    array.serve_refused(&[], &array.without(&[0, 2, 4])).is("B030", 13);
}

// bad_9, a busy socket path: exclusive_access::a_busy_socket_is_refused_and_keeps_working.

#[test]
fn a_folder_for_sockets_that_others_may_enter_is_closed_by_what_is_offered() {
    use std::os::unix::fs::PermissionsExt;
    let array = Array::create(RAID_1);
    let folder = array.path("run");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("ours");
    // Files in the folder that other users may need stay accessible to them.
    std::fs::write(folder.join("photo.jpg"), "").expect("a file");
    let refused = refusal(&array, &["serve"], &array.members);
    assert_eq!(refused["code"], "B071", "{refused}");
    array.follow(&refused, "Put the sockets into a folder of their own");
    std::fs::remove_file(folder.join("photo.jpg")).expect("a file");
    std::fs::remove_dir(folder.join("braid")).expect("a folder");
    let refused = refusal(&array, &["serve"], &array.members);
    array.follow(&refused, "Keep others out");
    array.serve().stop();
}

#[test]
fn bad_10_a_folder_that_cannot_be_written() {
    let array = Array::create(RAID_1);
    // Refuses a missing folder, a file for a folder, and a folder that not even root may write.
    for folder in ["/proc/self/nothing", "/proc/version", "/proc/self"] {
        let uri = format!("nbd+unix:///?socket={folder}/nbd.sock");
        array.refused(&["serve", "--nbd", &uri], &array.members).is("B071", 1);
    }
    let words = ["create", "other", "--level", "1", "--member-size", "16M"];
    let members = [PathBuf::from("/proc/self/m0"), array.path("m1-of-other")];
    let refusal = array.refused(&words, &members);
    assert!(matches!(refusal.exit, 1 | 10), "{refusal:?}");
    assert!(!members[1].exists(), "half an array was made");
    array.serve().stop();
}

#[test]
fn a_member_that_is_not_there() {
    let array = Array::create(RAID_5);
    let mut members = array.members.clone();
    members[2] = array.path("nothing");
    // The error's title says everything about a missing member: the error has no further cause.
    let refusal = array.serve_refused(&[], &members);
    assert_eq!((refusal.code.as_str(), refusal.exit), ("B050", 1), "{refusal:?}");
    members[2] = PathBuf::from("/dev/null");
    let refusal = array.serve_refused(&[], &members);
    assert_eq!((refusal.code.as_str(), refusal.exit), ("B051", 1), "{refusal:?}");
}
