//! `grow` and `revert` while clients write, over kills of the server, and their refusals.
//!
//! Each test compares every byte whose write was acknowledged, before and after the next start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::control::{check, said, status};
use crate::jobs::{done, refused};
use crate::kit::{
    Array, Client, Mount, Need, RAID_1, RAID_5, RAID_6, RAID_10, ServerProcess, Shape, assert_same,
    needs, ok, random_bytes, skip, wait_until,
};
use crate::members::{MEMBER_BYTES, assert_whole, blank, filled, text};
use crate::remedies::refusal;
use crate::reshape::fixture::Fixture;
use crate::reshape::{fixtures, stamped};

/// A client's timeout for one request; a reshape window holds writes back for a moment.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Options that slow jobs from the server's start, so that a test sees the middle of a reshape.
pub(crate) const SLOW: [&str; 2] = ["--job-ceiling", "1M"];
/// Bytes of each write of a client.
const WRITE_BYTES: usize = 24 << 10;

pub(crate) fn reshape(array: &Array) -> Value {
    status(array, "tank")["reshape"].take()
}

pub(crate) fn moved(array: &Array) -> Option<u64> {
    reshape(array)["moved_bytes"].as_u64()
}

/// Waits until the reshape has moved data, and is still under way.
pub(crate) fn wait_for_progress(array: &Array, moved_before: u64) {
    wait_until("the reshape to move", Duration::from_secs(60), || {
        moved(array).is_some_and(|moved| moved > moved_before)
    });
}

pub(crate) fn wait_for_the_end(array: &Array) {
    done(array, &["wait", "tank", "--for", "idle", "--timeout", "120"]);
    assert_eq!(reshape(array), Value::Null, "nothing is under way");
}

/// Makes jobs so slow that a test sees the middle of a reshape.
pub(crate) fn slow(array: &Array) {
    done(array, &["set", "tank", "job-ceiling=2M"]);
}

pub(crate) fn fast(array: &Array) {
    done(array, &["set", "tank", "job-ceiling=none"]);
}

/// Writes at a few places, each write acknowledged and flushed, and records the bytes in `content`.
pub(crate) fn write_some(served: &ServerProcess, content: &mut [u8], random: &mut fastrand::Rng) {
    let mut client = Client::connect(&served.socket, PATIENCE);
    for _ in 0..6 {
        let at = random.usize(0..content.len() - WRITE_BYTES) / 512 * 512;
        let bytes = random_bytes(random.u64(..), WRITE_BYTES);
        client.write(at as u64, &bytes);
        content[at..at + WRITE_BYTES].copy_from_slice(&bytes);
    }
    client.flush();
}

pub(crate) fn assert_content(array: &Array, served: &ServerProcess, wanted: &[u8], when: &str) {
    let found = served.read_all(array);
    assert!(found.len() >= wanted.len(), "{when}: the array shrank");
    assert_same(&found[..wanted.len()], wanted, when);
}

pub(crate) fn slots(array: &Array) -> usize {
    let one = status(array, "tank");
    let rows = one["slots"].as_array().expect("rows");
    rows.iter().filter(|row| row["slot"].is_number()).count()
}

#[test]
fn an_array_that_grows_survives_kills_at_any_point() {
    needs!("nbdcopy");
    for shape in [RAID_5, RAID_6] {
        let mut array = Array::create(shape);
        let mut random = fastrand::Rng::with_seed(42);
        let mut served = array.serve_with(&SLOW, &array.members);
        let mut content = filled(&array, &served, 7);
        let new = ["n0", "n1"].map(|name| blank(&array, name, MEMBER_BYTES));
        let answer = done(&array, &["grow", "tank", text(&new[0]), text(&new[1])]);
        check("ShapeAnswer", &answer);
        assert_eq!(answer["kind"], "reshape", "{answer}");
        assert_eq!(answer["after"]["members"], shape.members + 2, "{answer}");
        array.members.extend(new);
        for kill in 0..6 {
            std::thread::sleep(Duration::from_millis(random.u64(0..400)));
            write_some(&served, &mut content, &mut random);
            served.kill();
            served = array.serve_with(&SLOW, &array.members);
            assert_content(&array, &served, &content, &format!("after kill {kill}"));
        }
        assert_ne!(reshape(&array), Value::Null, "all kills were on the way");
        fast(&array);
        wait_for_the_end(&array);
        assert_eq!(slots(&array), shape.members + 2);
        served.stop();
        served = array.serve();
        let bytes = content.len() as u64;
        assert!(served.size_bytes > bytes, "{} of {bytes}", served.size_bytes);
        assert_content(&array, &served, &content, "in the new shape");
        let all = served.read_all(&array);
        assert_whole(&array, served, &array.members, &all);
    }
}

#[test]
fn a_reshape_goes_back_from_the_middle_also_after_a_kill() {
    needs!("nbdcopy");
    [RAID_5, RAID_10].into_iter().for_each(goes_back);
}

fn goes_back(shape: Shape) {
    let array = Array::create(shape);
    let mut random = fastrand::Rng::with_seed(43);
    let served = array.serve();
    let mut content = filled(&array, &served, 8);
    let new = blank(&array, "n0", MEMBER_BYTES);
    slow(&array);
    done(&array, &["grow", "tank", text(&new)]);
    wait_for_progress(&array, 0);
    let words = said(&array, &["status", "tank"]).stdout;
    assert!(words.contains("reshape") && words.contains("braid revert tank"), "{words}");
    write_some(&served, &mut content, &mut random);
    served.kill();
    let five = [array.members.as_slice(), std::slice::from_ref(&new)].concat();
    let served = array.serve_with(&SLOW, &five);
    let before = moved(&array).expect("it goes on");
    let dry = done(&array, &["revert", "tank", "-n"]);
    assert_eq!((&dry["kind"], &dry["dry_run"]), (&"revert".into(), &true.into()), "{dry}");
    done(&array, &["revert", "tank"]);
    write_some(&served, &mut content, &mut random);
    wait_until("the way back", Duration::from_secs(60), || {
        moved(&array).is_none_or(|moved| moved < before || reshape(&array)["backwards"] == true)
    });
    fast(&array);
    wait_for_the_end(&array);
    assert_eq!(slots(&array), 4, "the old shape is back");
    assert_content(&array, &served, &content, "in the old shape");
    assert_whole(&array, served, &array.members, &content);
}

#[test]
fn a_member_lost_in_the_middle_of_a_reshape_loses_nothing() {
    needs!("nbdcopy");
    let mut array = Array::create(RAID_6);
    let mut served = array.serve();
    let mut content = filled(&array, &served, 9);
    let new = blank(&array, "n0", MEMBER_BYTES);
    slow(&array);
    done(&array, &["grow", "tank", text(&new)]);
    array.members.push(new);
    wait_for_progress(&array, 0);
    served.lose(&array, 2);
    write_some(&served, &mut content, &mut fastrand::Rng::with_seed(44));
    assert_content(&array, &served, &content, "without a member");
    served.stop();
    let served = array.serve();
    fast(&array);
    wait_for_the_end(&array);
    assert_eq!(slots(&array), 6);
    assert_content(&array, &served, &content, "in the new shape, without a member");
    served.stop();
}

#[test]
fn levels_become_others_and_back() {
    needs!("nbdcopy");
    let mut array = Array::create(RAID_1);
    let mut served = array.serve();
    let content = filled(&array, &served, 10);
    let step = |array: &Array, words: &[&str], level: &str| {
        done(array, &[&["grow", "tank"], words].concat());
        wait_for_the_end(array);
        assert_eq!(status(array, "tank")["level"], level, "{words:?}");
    };
    step(&array, &["--level", "5"], "raid5");
    let new = ["n0", "n1"].map(|name| blank(&array, name, MEMBER_BYTES));
    step(&array, &[text(&new[0])], "raid5");
    step(&array, &["--level", "6", text(&new[1])], "raid6");
    array.members.extend(new);
    assert_content(&array, &served, &content, "as RAID-6");
    served.stop();
    served = array.serve();
    step(&array, &["--level", "5"], "raid5");
    assert_content(&array, &served, &content, "as RAID-5 again");
    let three = [0, 1, 2].map(|slot: usize| array.members[slot].clone());
    let all = served.read_all(&array);
    served.stop();
    let served = array.serve_with(&[], &three);
    assert_whole(&array, served, &three, &all);
}

#[test]
fn chunk_and_layout_change_in_place_over_a_kill() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let mut served = array.serve();
    let mut content = filled(&array, &served, 11);
    slow(&array);
    let words = ["grow", "tank", "--chunk", "128K", "--layout", "right-symmetric"];
    done(&array, &words);
    wait_for_progress(&array, 0);
    write_some(&served, &mut content, &mut fastrand::Rng::with_seed(45));
    served.kill();
    served = array.serve();
    fast(&array);
    wait_for_the_end(&array);
    let one = status(&array, "tank");
    assert_eq!(
        (&one["chunk_bytes"], &one["layout"]),
        (&(128 << 10).into(), &"right-symmetric".into()),
        "{one}"
    );
    assert_whole(&array, served, &array.members, &content);
}

#[test]
fn a_file_system_grows_with_its_array() {
    needs!("nbdcopy", "mke2fs", "resize2fs", "e2fsck", "debugfs");
    if !Mount::is_possible() {
        skip(Need::Fuse, "no /dev/fuse for us");
        return;
    }
    let array = Array::create(RAID_5);
    let file = array.path("disk");
    let served = array.serve_with(&["--fuse", text(&file)], &array.members);
    let diary = array.path("diary");
    std::fs::write(&diary, random_bytes(12, 3 << 20)).expect("a file");
    let folder = array.path("tree");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::copy(&diary, folder.join("diary")).expect("a copy");
    ok("mke2fs", ["-q", "-t", "ext4", "-d", text(&folder), text(&file)]);
    let bytes = || std::fs::metadata(&file).expect("the array").len();
    let before = bytes();
    let new = blank(&array, "n0", MEMBER_BYTES);
    done(&array, &["grow", "tank", text(&new)]);
    wait_for_the_end(&array);
    wait_until("the file to grow", Duration::from_secs(10), || bytes() > before);
    ok("e2fsck", ["-f", "-y", text(&file)]);
    ok("resize2fs", [text(&file)]);
    ok("e2fsck", ["-f", "-n", text(&file)]);
    let out = array.path("out");
    let dump = format!("dump /diary {}", out.display());
    ok("debugfs", ["-R", &dump, text(&file)]);
    assert_same(&read(&out), &read(&diary), "a file of the grown file system");
    served.stop();
}

/// Arrays that the kernel's md was reshaping when the power failed: braid continues the reshape.
#[test]
fn a_reshape_that_md_began_ends_here() {
    needs!("nbdcopy");
    let states = [
        ("raid5-reshaping", 6528),
        ("raid5-reshaping-end", 6528),
        ("raid5-reshaping-degraded", 6528),
        ("raid5-reshaping-moved", 6528),
        ("raid6-reshaping-from-raid5", 6528),
        ("raid5-reshaping-shrunk", 6528),
    ];
    for (name, sectors) in states {
        let array = of_md(name);
        let control = array.path("control");
        let options = ["--control", text(&control)];
        let served = array.serve_with(&options, &array.members);
        done(&array, &["wait", text(&control), "--for", "idle", "--timeout", "20"]);
        assert_eq!(status(&array, text(&control))["reshape"], Value::Null, "{name}");
        assert_content(&array, &served, &stamped(sectors), name);
        served.stop();
        let again = array.serve_with(&options, &array.members);
        assert_content(&array, &again, &stamped(sectors), &format!("{name}, after a restart"));
        if !name.ends_with("degraded") {
            let checked = done(&array, &["check", text(&control)]);
            assert_eq!(checked["check"]["differing_sectors"], 0, "{name}");
        }
        again.stop();
    }
}

#[test]
fn a_reshape_that_needs_a_copy_of_mdadm_is_refused() {
    let array = of_md("raid5-reshaping-stuck");
    array.serve_refused(&[], &array.members).is("B024", 12);
}

pub(crate) fn of_md(name: &str) -> Array {
    let fixture = Fixture::load(&fixtures(), &format!("state-{name}")).expect("a fixture");
    let images: Vec<Vec<u8>> =
        (0..fixture.members.len()).map(|member| fixture.image(member)).collect();
    Array::of_images(&images)
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

#[test]
fn shapes_that_cannot_be_are_refused_and_change_nothing() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let members =
        || -> Vec<Vec<u8>> { array.members.iter().map(|path: &PathBuf| read(path)).collect() };
    let before = members();
    let new = blank(&array, "n0", MEMBER_BYTES);
    let small = blank(&array, "small", 1 << 20);
    let cases: [&[&str]; 12] = [
        &["grow", "tank"],
        &["grow", "tank", "--members", "3"],
        &["grow", "tank", "--members", "4"],
        &["grow", "tank", "--members", "5"],
        &["grow", "tank", "--chunk", "3K"],
        &["grow", "tank", "--chunk", "cheese"],
        &["grow", "tank", "--level", "0"],
        &["grow", "tank", "--level", "6"],
        &["grow", "tank", "--layout", "upside-down"],
        &["grow", "tank", "--size", "1M"],
        &["grow", "tank", text(&small)],
        &["revert", "tank"],
    ];
    for words in cases {
        let ran = array.braid(words, &[]);
        let error: Value = serde_json::from_str(ran.stdout.trim()).unwrap_or_default();
        assert!(!ran.status.success(), "{words:?} was not refused: {ran:?}");
        assert!(error["code"].is_string() && error["cause"].is_string(), "{words:?}: {ran:?}");
        assert!(error["remedies"][0].is_object(), "{words:?} has no way out: {error}");
    }
    let dry = done(&array, &["grow", "tank", text(&new), "-n"]);
    assert_eq!(dry["dry_run"], true, "{dry}");
    assert!(members() == before, "a refusal or a dry run wrote to a member");
    assert!(read(&new).iter().all(|byte| *byte == 0), "a dry run wrote to a device");
    slow(&array);
    done(&array, &["grow", "tank", text(&new)]);
    // A second reshape is refused while one is running.
    refused(&array, &["grow", "tank", "--chunk", "128K"], "B123", 12);
    served.stop();
}

#[test]
fn each_way_out_of_a_refused_growth_is_a_way() {
    let array = Array::create(RAID_5);
    let new = ["n0", "n1"].map(|name| blank(&array, name, MEMBER_BYTES));
    let grow = |words: &[&str]| refusal(&array, &[&["grow", "tank", "-n"], words].concat(), &[]);
    let served = array.serve();
    let error = grow(&["--members", "5"]);
    array.follow_with(&error, "Name devices, too", &[("DEVICE", text(&new[0]))]);
    served.stop();

    // A confined server opens no files by itself, but takes a spare whose descriptor it is sent.
    let served = array.serve_with(&["--confine", "full"], &array.members);
    let spares_first = "Add the devices first, then grow with --members";
    for (words, new) in [(&[text(&new[0])][..], &new[0]), (&["--members", "6"], &new[1])] {
        array.follow_with(&grow(words), spares_first, &[("DEVICE", text(new))]);
    }
    let dry = done(&array, &["grow", "tank", "--members", "6", "-n"]);
    assert_eq!(dry["after"]["members"], 6, "{dry}");
    served.stop();
}

#[test]
fn a_growth_is_refused_while_a_member_is_replaced() {
    let array = Array::create(RAID_5);
    let new = blank(&array, "n0", MEMBER_BYTES);
    let served = array.serve_with(&SLOW, &array.members);
    done(&array, &["replace", "tank", "0", "--with", text(&new)]);
    let error = refusal(&array, &["grow", "tank", "--chunk", "128K"], &[]);
    fast(&array);
    array.follow(&error, "Wait for it, and try again");
    done(&array, &["grow", "tank", "--chunk", "128K", "-n"]);
    served.stop();
}

#[test]
fn a_bitmap_file_or_a_journal_goes_before_the_shape_changes() {
    let words = ["grow", "tank", "--chunk", "128K"];
    let array = Array::create(RAID_5);
    let file = array.path("tank.bitmap");
    let served = array.serve();
    done(&array, &["set", "tank", &format!("bitmap-file={}", file.display())]);
    array.follow(&refusal(&array, &words, &[]), "Put the bitmap on the members");
    done(&array, &[&words[..], &["-n"]].concat());
    served.stop();

    let (array, journal) = Array::create_journaled(RAID_5, "16M");
    let served = array.serve_with(&[], &[&array.members[..], &[journal]].concat());
    array.follow(&refusal(&array, &words, &[]), "Keep a bitmap meanwhile");
    done(&array, &[&words[..], &["-n"]].concat());
    served.stop();
}

#[test]
fn logs_and_bitmaps_wait_until_the_shape_is_changed() {
    let array = Array::create(RAID_5);
    let [new, journal] = ["n0", "j0"].map(|name| blank(&array, name, MEMBER_BYTES));
    let served = array.serve_with(&SLOW, &array.members);
    let content = filled(&array, &served, 12);
    done(&array, &["grow", "tank", text(&new)]);
    let mut last = Value::Null;
    for words in [
        &["set", "tank", "consistency=log"][..],
        &["set", "tank", "consistency=ppl"],
        &["set", "tank", "consistency=resync"],
        &["set", "tank", "bitmap-chunk=1M"],
        &["add", "tank", "--write-journal", text(&journal)],
    ] {
        last = refusal(&array, words, &[]);
        assert!(last.to_string().contains("its shape is being changed"), "{words:?}: {last}");
    }
    fast(&array);
    array.follow(&last, "Wait until its shape is changed");
    assert_content(&array, &served, &content, "in the new shape");
    served.stop();
}

/// Regression: the server ended in an assertion, since metadata 0.90 records the direction of a
/// reshape only by the number of members.
#[test]
fn a_layout_that_changes_under_old_metadata_does_not_go_back() {
    let fixture = Fixture::load(&fixtures(), "raid5-left-symmetric-4-m0.90").expect("a fixture");
    let images: Vec<Vec<u8>> =
        (0..fixture.members.len()).map(|member| fixture.image(member)).collect();
    let array = Array::of_images(&images);
    let control = array.path("control");
    let control = text(&control);
    let slow = ["--control", control, "--job-ceiling", "256K"];
    let served = array.serve_with(&slow, &array.members);
    let content = filled(&array, &served, 13);
    let answer = done(&array, &["grow", control, "--layout", "right-symmetric"]);
    assert!(answer["notes"].to_string().contains("does not go back on the way"), "{answer}");
    refused(&array, &["revert", control], "B123", 12);
    done(&array, &["set", control, "job-ceiling=none"]);
    done(&array, &["wait", control, "--for", "idle", "--timeout", "60"]);
    assert_eq!(status(&array, control)["reshape"], Value::Null);
    assert_content(&array, &served, &content, "in the new shape");
    served.stop();
}
