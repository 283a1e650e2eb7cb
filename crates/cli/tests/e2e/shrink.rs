//! Arrays that end earlier for clients, and then get smaller: fewer members, smaller members, over
//! kills, and back again.
//!
//! Each test compares every byte whose write was acknowledged, before and after the next start.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::control::{said, status};
use crate::grow::{
    PATIENCE, SLOW, assert_content, fast, moved, reshape, slots, slow, wait_for_progress,
    wait_for_the_end, write_some,
};
use crate::jobs::{done, refused};
use crate::kit::{
    Array, Client, Mount, Need, RAID_1, RAID_4, RAID_5, RAID_6, RAID_10, Shape, assert_same, needs,
    ok, random_bytes, skip, wait_until,
};
use crate::members::{MEMBER_BYTES, assert_whole, blank, filled, text};
use crate::remedies::refusal;

const EARLIER: &str = "Let it end there for clients first, which can be taken back";
const CUT: &str = "Cut off what lies behind";
const SHRINK: &str = "Let what is on it end earlier first";
/// NBD's error for a read after the array's end, and for a write after its end.
const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;

fn size(array: &Array) -> u64 {
    status(array, "tank")["size_bytes"].as_u64().expect("a size")
}

fn whole_size(array: &Array) -> Option<u64> {
    status(array, "tank")["whole_size_bytes"].as_u64()
}

/// Makes the array end where its wanted shape ends, as the refusal of this shape offers.
pub(crate) fn end_earlier(array: &Array, words: &[&str]) -> usize {
    let before = size(array);
    array.follow(&refusal(array, &[&["grow", "tank"], words].concat(), &[]), EARLIER);
    let after = size(array);
    assert!(after < before, "{after} of {before}");
    usize::try_from(after).expect("small")
}

fn spares(array: &Array) -> usize {
    let one = status(array, "tank");
    let rows = one["slots"].as_array().expect("rows");
    rows.iter().filter(|row| row["state"] == "waiting").count()
}

/// Superblocks and data of all members.
fn members(array: &Array) -> Vec<Vec<u8>> {
    array.members.iter().map(|path| std::fs::read(path).expect("a member")).collect()
}

#[test]
fn an_array_ends_earlier_for_clients_until_that_is_taken_back() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let content = filled(&array, &served, 20);
    // Superblocks are marked clean some time after the last write, or by the stop.
    served.stop();
    let served = array.serve();
    let mut early = Client::connect(&served.socket, PATIENCE);
    let before = members(&array);
    let dry = done(&array, &["grow", "tank", "--array-size", "20M", "-n"]);
    assert_eq!((&dry["kind"], &dry["dry_run"]), (&"array-size".into(), &true.into()), "{dry}");
    assert_eq!((size(&array), whole_size(&array)), (content.len() as u64, None));
    done(&array, &["grow", "tank", "--array-size", "20M"]);
    let end = 20 << 20;
    assert_eq!((size(&array), whole_size(&array)), (end, Some(content.len() as u64)));
    let words = said(&array, &["status", "tank"]).stdout;
    assert!(words.contains("braid grow tank --array-size max"), "{words}");
    // A client from before the change knows the later end, and gets the errors of an end.
    assert_eq!(early.try_read(end, 4096), Err(INVALID));
    assert_eq!(early.try_write(end - 512, &[7; 1024]), NO_SPACE);
    assert_eq!(early.try_read(end - 4096, 4096).expect("before the end").len(), 4096);
    drop(early);
    assert_same(&served.read_all(&array), &content[..20 << 20], "up to the new end");
    assert!(members(&array) == before, "a member was written");
    served.kill();
    let served = array.serve();
    assert_eq!(served.size_bytes, end, "it is kept over a kill");
    refused(&array, &["grow", "tank", "--array-size", "20M"], "B123", 12);
    done(&array, &["grow", "tank", "--array-size", "max"]);
    assert_eq!(whole_size(&array), None);
    assert_same(&served.read_all(&array), &content, "all of it again");
    served.stop();
    let served = array.serve();
    assert_eq!(served.size_bytes, content.len() as u64);
    served.stop();
    // A note in the state folder that is no size is reported by name, and not used.
    let notes = array.path("state").join("reshape");
    let uuid = status_uuid(&array);
    std::fs::write(notes.join(format!("{uuid}.array-size")), "cheese").expect("a note");
    let mut served = array.serve();
    served.wait_for("array-size-unread");
    assert_eq!(served.size_bytes, content.len() as u64);
    served.stop();
}

fn status_uuid(array: &Array) -> String {
    let served = array.serve();
    let uuid = status(array, "tank")["uuid"].as_str().expect("a UUID").to_owned();
    served.stop();
    uuid
}

#[test]
fn ends_that_cannot_be_are_refused_and_change_nothing() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let before = members(&array);
    for words in [
        &["--array-size", "cheese"][..],
        &["--array-size", "0B"],
        &["--array-size", "1000B"],
        &["--array-size", "1T"],
        &["--array-size", "max"],
        &["--array-size", "8M", "--members", "3"],
        &["--members", "1"],
        &["--members", "0"],
        &["--size", "1K"],
        &["--size", "8M", "--members", "3"],
    ] {
        let error = refusal(&array, &[&["grow", "tank"], words].concat(), &[]);
        assert!(error["cause"].is_string() && error["remedies"][0].is_object(), "{error}");
        assert_eq!(whole_size(&array), None, "{words:?}");
    }
    assert!(members(&array) == before, "a refusal wrote to a member");
    served.stop();
}

#[test]
fn an_array_that_loses_members_survives_kills_at_any_point() {
    needs!("nbdcopy");
    for shape in [RAID_4, RAID_5, RAID_6] {
        let array = Array::create(shape);
        let mut random = fastrand::Rng::with_seed(52);
        let mut served = array.serve_with(&SLOW, &array.members);
        let mut content = filled(&array, &served, 21);
        let count = (shape.members - 1).to_string();
        let end = end_earlier(&array, &["--members", &count]);
        content.truncate(end);
        let answer = done(&array, &["grow", "tank", "--members", &count]);
        assert_eq!((&answer["kind"], answer["gap_bytes"].as_u64()), (&"reshape".into(), Some(0)));
        let notes = answer["notes"].to_string();
        for words in [
            "is lost from the beginning",
            "of the way overwrite themselves: each window is copied to ",
            "take over outside that part",
        ] {
            assert!(notes.contains(words), "{notes}");
        }
        for kill in 0..5 {
            std::thread::sleep(Duration::from_millis(random.u64(0..400)));
            write_some(&served, &mut content, &mut random);
            served.kill();
            served = array.serve_with(&SLOW, &array.members);
            assert_eq!(served.size_bytes, end as u64, "after kill {kill}");
            assert_content(&array, &served, &content, &format!("after kill {kill}"));
        }
        assert_eq!(reshape(&array)["backwards"], true, "all kills were on the way");
        fast(&array);
        wait_for_the_end(&array);
        assert_eq!((slots(&array), spares(&array)), (shape.members - 1, 1));
        assert_eq!(whole_size(&array), None, "its own end is where clients' was");
        assert_whole(&array, served, &array.members, &content);
    }
}

/// Whether the state folder has the copy of a window in place.
fn is_copied(array: &Array) -> bool {
    let files = std::fs::read_dir(array.path("state").join("reshape")).expect("a folder");
    let mut files = files.map(|file| file.expect("a file").path());
    let copy = files.find(|path| path.extension().is_some_and(|end| end == "copy"));
    let header = copy.map(|path| std::fs::read(path).expect("a copy")).unwrap_or_default();
    header.get(40..48).is_some_and(|sectors| *sectors != [0; 8])
}

/// Regression: no device could become a member of an array with metadata 1.0 whose data does not
/// begin at the device's start.
#[test]
fn members_join_an_array_whose_data_moved_into_the_room_behind() {
    needs!("nbdcopy");
    let mut array = Array::create_with("tank", RAID_5, "16M", &["--metadata", "1.0"]);
    let served = array.serve();
    let mut content = filled(&array, &served, 29);
    content.truncate(end_earlier(&array, &["--size", "12M"]));
    done(&array, &["grow", "tank", "--size", "12M"]);
    wait_for_the_end(&array);
    let answer = done(&array, &["grow", "tank", "--chunk", "128K"]);
    let notes = answer["notes"].to_string();
    assert!(notes.contains("towards the end of each member: no backup file"), "{notes}");
    wait_for_the_end(&array);
    let new = blank(&array, "n0", MEMBER_BYTES);
    done(&array, &["replace", "tank", "0", "--with", text(&new)]);
    done(&array, &["wait", "tank", "--for", "rebuild", "--timeout", "60"]);
    array.members[0] = new;
    assert_content(&array, &served, &content, "with a new member");
    assert_whole(&array, served, &array.members, &content);
}

/// A change of layout without a change of data offset, since metadata 1.0 has no space before the
/// data: all data moves in place, at a pace of some windows a second.
fn in_place() -> ([&'static str; 2], Array, [&'static str; 4]) {
    let array = Array::create_with("tank", RAID_5, "10M", &["--metadata", "1.0"]);
    (["--job-ceiling", "4M"], array, ["grow", "tank", "--layout", "right-symmetric"])
}

/// Windows in place overwrite the sectors they read, so a copy of each window is in the state
/// folder first.
#[test]
fn kills_in_windows_in_place_lose_nothing() {
    needs!("nbdcopy");
    let (pace, array, change) = in_place();
    let mut random = fastrand::Rng::with_seed(57);
    let mut served = array.serve_with(&pace, &array.members);
    let mut content = filled(&array, &served, 31);
    done(&array, &change);
    let mut in_place = 0;
    for kill in 0..60 {
        write_some(&served, &mut content, &mut random);
        std::thread::sleep(Duration::from_millis(random.u64(0..500)));
        if kill == 0 {
            wait_until("a copy of a window", Duration::from_secs(60), || is_copied(&array));
        }
        served.kill();
        in_place += u32::from(is_copied(&array));
        served = array.serve_with(&pace, &array.members);
        assert_content(&array, &served, &content, &format!("after kill {kill}"));
        if reshape(&array) == Value::Null || in_place > 2 {
            break;
        }
    }
    assert!(in_place > 0, "no window in place was copied");
    fast(&array);
    wait_for_the_end(&array);
    assert_whole(&array, served, &array.members, &content);
}

#[test]
fn a_reshape_turns_round_at_windows_in_place_over_a_kill() {
    needs!("nbdcopy");
    let (pace, array, change) = in_place();
    let served = array.serve_with(&pace, &array.members);
    let content = filled(&array, &served, 32);
    done(&array, &change);
    wait_until("a copy of a window", Duration::from_secs(60), || is_copied(&array));
    done(&array, &["revert", "tank"]);
    served.kill();
    let served = array.serve_with(&pace, &array.members);
    assert_content(&array, &served, &content, "on the way back");
    fast(&array);
    wait_for_the_end(&array);
    assert_eq!(status(&array, "tank")["layout"], "left-symmetric", "the old layout is back");
    assert_whole(&array, served, &array.members, &content);
}

/// Without its copy, a window in place that may be half moved is never read.
#[test]
fn a_killed_reshape_in_place_is_refused_without_its_state_folder() {
    needs!("nbdcopy");
    let (pace, array, change) = in_place();
    let served = array.serve_with(&pace, &array.members);
    let content = filled(&array, &served, 33);
    done(&array, &change);
    wait_until("a copy of a window", Duration::from_secs(60), || is_copied(&array));
    served.kill();
    let (folder, aside) = (array.path("state").join("reshape"), array.path("aside"));
    std::fs::rename(&folder, &aside).expect("a folder");
    array.serve_refused(&[], &array.members).is("B024", 12);
    std::fs::remove_dir_all(&folder).ok();
    std::fs::rename(&aside, &folder).expect("a folder");
    let served = array.serve();
    fast(&array);
    wait_for_the_end(&array);
    assert_whole(&array, served, &array.members, &content);
}

#[test]
fn a_shrink_goes_back_from_the_middle_also_after_a_kill() {
    needs!("nbdcopy");
    let array = Array::create(RAID_6);
    let mut random = fastrand::Rng::with_seed(53);
    let served = array.serve();
    let whole = filled(&array, &served, 22).len();
    let mut content = vec![0; end_earlier(&array, &["--members", "4"])];
    content.copy_from_slice(&served.read_all(&array));
    slow(&array);
    done(&array, &["grow", "tank", "--members", "4"]);
    wait_for_progress(&array, 0);
    write_some(&served, &mut content, &mut random);
    served.kill();
    let served = array.serve_with(&SLOW, &array.members);
    assert!(moved(&array).is_some(), "it goes on");
    let back = done(&array, &["revert", "tank"]);
    assert!(back["notes"].to_string().contains("becomes zeroes"), "{back}");
    write_some(&served, &mut content, &mut random);
    fast(&array);
    wait_for_the_end(&array);
    assert_eq!((slots(&array), spares(&array)), (5, 0), "the old shape is back");
    assert_eq!(whole_size(&array), Some(whole as u64), "clients' end stays until it is taken back");
    done(&array, &["grow", "tank", "--array-size", "max"]);
    content.resize(whole, 0);
    assert_whole(&array, served, &array.members, &content);
}

#[test]
fn a_member_lost_in_the_middle_of_a_shrink_loses_nothing() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let mut served = array.serve();
    let mut content = filled(&array, &served, 23);
    content.truncate(end_earlier(&array, &["--members", "3"]));
    slow(&array);
    done(&array, &["grow", "tank", "--members", "3"]);
    wait_for_progress(&array, 0);
    served.lose(&array, 1);
    write_some(&served, &mut content, &mut fastrand::Rng::with_seed(54));
    served.stop();
    let served = array.serve();
    assert_content(&array, &served, &content, "without a member");
    fast(&array);
    wait_for_the_end(&array);
    // The member that lost its slot takes the free slot.
    done(&array, &["wait", "tank", "--for", "rebuild", "--timeout", "60"]);
    assert_eq!((slots(&array), spares(&array)), (3, 0));
    let three = array.present();
    assert_whole(&array, served, &three, &content);
}

fn shrinks_by_size(shape: Shape) {
    let array = Array::create(shape);
    let served = array.serve();
    let mut content = filled(&array, &served, 24);
    content.truncate(end_earlier(&array, &["--size", "8M"]));
    let answer = done(&array, &["grow", "tank", "--size", "8M"]);
    assert_eq!((&answer["kind"], &answer["bytes_each"]), (&"size".into(), &0.into()), "{answer}");
    wait_for_the_end(&array);
    wait_until("the end to be its own", Duration::from_secs(10), || whole_size(&array).is_none());
    assert_eq!(size(&array), content.len() as u64, "{answer}");
    write_some(&served, &mut content, &mut fastrand::Rng::with_seed(55));
    assert_whole(&array, served, &array.members, &content);
    let served = array.serve();
    done(&array, &["grow", "tank", "--size", "max"]);
    wait_for_the_end(&array);
    assert!(size(&array) > content.len() as u64, "it is as large as before");
    assert_content(&array, &served, &content, "in the old size again");
    assert_eq!(
        done(&array, &["check", "tank"])["check"]["differing_sectors"],
        0,
        "{}",
        shape.level
    );
    served.stop();
}

#[test]
fn an_array_uses_less_of_its_members() {
    needs!("nbdcopy");
    [RAID_1, RAID_4, RAID_5, RAID_6, RAID_10].into_iter().for_each(shrinks_by_size);
}

#[test]
fn far_copies_stay_at_their_place() {
    let array = Array::create_with("tank", RAID_10, "16M", &["--layout", "f2"]);
    let served = array.serve();
    for size in ["8M", "max"] {
        let error = refusal(&array, &["grow", "tank", "--size", size], &[]);
        assert_eq!(error["code"], "B123", "{error}");
    }
    served.stop();
}

/// With room after the data, which smaller members have, no window overwrites the sectors that it
/// reads.
#[test]
fn smaller_members_have_room_for_fewer() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let mut content = filled(&array, &served, 25);
    end_earlier(&array, &["--size", "12M"]);
    done(&array, &["grow", "tank", "--size", "12M"]);
    wait_for_the_end(&array);
    content.truncate(end_earlier(&array, &["--members", "3"]));
    slow(&array);
    let answer = done(&array, &["grow", "tank", "--members", "3"]);
    assert!(answer["gap_bytes"].as_u64().is_some_and(|gap| gap > 1 << 20), "{answer}");
    wait_for_progress(&array, 0);
    write_some(&served, &mut content, &mut fastrand::Rng::with_seed(56));
    served.kill();
    // No copy of a window is needed: the state folder may be another one.
    std::fs::remove_dir_all(array.path("state").join("reshape")).expect("a folder");
    let served = array.serve();
    fast(&array);
    wait_for_the_end(&array);
    assert_eq!((slots(&array), spares(&array)), (3, 1));
    assert_whole(&array, served, &array.members, &content);
}

/// The name of the file system's only file.
const DIARY: &str = "diary";

fn with_ext4(array: &Array, file: &Path) -> Vec<u8> {
    let bytes = random_bytes(26, 3 << 20);
    let folder = array.path("tree");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join(DIARY), &bytes).expect("a file");
    ok("mke2fs", ["-q", "-t", "ext4", "-d", text(&folder), text(file)]);
    bytes
}

fn assert_ext4(array: &Array, file: &Path, wanted: &[u8]) {
    ok("e2fsck", ["-f", "-n", text(file)]);
    let out = array.path("out");
    ok("debugfs", ["-R", &format!("dump /{DIARY} {}", out.display()), text(file)]);
    assert_same(&std::fs::read(&out).expect("a file"), wanted, "a file of the file system");
}

#[test]
fn a_file_system_shrinks_before_its_array() {
    needs!("mke2fs", "resize2fs", "e2fsck", "debugfs");
    if !Mount::is_possible() {
        skip(Need::Fuse, "no /dev/fuse for us");
        return;
    }
    let array = Array::create(RAID_5);
    let file = array.path("disk");
    let served = array.serve_with(&["--fuse", text(&file)], &array.members);
    let diary = with_ext4(&array, &file);
    let words = ["grow", "tank", "--members", "3"];
    let error = refusal(&array, &words, &[]);
    assert!(error["cause"].to_string().contains("ext4 ends at"), "{error}");
    ok("e2fsck", ["-f", "-y", text(&file)]);
    array.follow_with(&error, SHRINK, &[("DEVICE", text(&file))]);
    let end = end_earlier(&array, &["--members", "3"]);
    let bytes = || std::fs::metadata(&file).expect("the array").len();
    wait_until("the file to end earlier", Duration::from_secs(10), || bytes() == end as u64);
    assert_ext4(&array, &file, &diary);
    done(&array, &words);
    wait_for_the_end(&array);
    assert_eq!((slots(&array), bytes()), (3, end as u64));
    assert_ext4(&array, &file, &diary);
    served.stop();
}

#[test]
fn a_file_system_is_cut_only_by_its_name() {
    needs!("mke2fs", "e2fsck", "debugfs", "nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let image = array.path("image");
    std::fs::write(&image, vec![0; served.length()]).expect("a file");
    let diary = with_ext4(&array, &image);
    served.write_all(&array, &std::fs::read(&image).expect("a file"));
    for words in [&["--array-size", "20M"][..], &["--members", "3"], &["--size", "12M"]] {
        let error = refusal(&array, &[&["grow", "tank"], words].concat(), &[]);
        assert!(error["cause"].to_string().contains("ext4"), "{error}");
        assert_eq!(whole_size(&array), None, "{error}");
    }
    let error = refusal(&array, &["grow", "tank", "--array-size", "20M"], &[]);
    array.follow(&error, CUT);
    assert_eq!(size(&array), 20 << 20);
    // Clients cannot see the sectors after the new end, and nothing is lost yet.
    refused(&array, &["grow", "tank", "--size", "4M"], "B123", 12);
    done(&array, &["grow", "tank", "--array-size", "max"]);
    std::fs::write(&image, served.read_all(&array)).expect("a file");
    assert_ext4(&array, &image, &diary);
    served.stop();
}
