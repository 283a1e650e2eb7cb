//! `braid undo`: puts overwritten bytes back while an undo is safe, and otherwise gives the reason.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::control::{said, status};
use crate::jobs::{done, typed};
use crate::kit::{
    Array, Client, Mount, Need, RAID_1, RAID_5, RAID_6, SUPERBLOCK_BYTES, Shape, assert_same,
    needs, skip,
};
use crate::kit::{Fail, FaultFs, FileOp};
use crate::members::{MEMBER_BYTES, blank, filled, text, wait_for_rebuild};
use crate::remedies::{error_of, refusal};

const PATIENCE: Duration = Duration::from_secs(30);
const LOGICAL_BLOCK_AT: usize = 224;

fn contents(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| std::fs::read(path).expect("a member")).collect()
}

#[track_caller]
fn assert_as(members: &[PathBuf], before: &[Vec<u8>]) {
    for (path, before) in members.iter().zip(before) {
        assert_same(&std::fs::read(path).expect("a member"), before, text(path));
    }
}

/// Creates an array over the old one; returns the members' old content.
fn made_over(array: &Array, more: &[&str]) -> Vec<Vec<u8>> {
    let before = contents(&array.members);
    let words = ["create", "new", "--level", "6", "--destroy", "tank"];
    let ran = array.braid(&[&words[..], more].concat(), &array.members);
    assert!(ran.status.success(), "{ran:?}");
    before
}

/// Checks that the command is refused with this code and cause, and changes nothing.
#[track_caller]
fn assert_refused(array: &Array, words: &[&str], code: &str, why: &str) -> Value {
    let members: Vec<PathBuf> = array.present();
    let before = contents(&members);
    let error = refusal(array, words, &[]);
    assert_as(&members, &before);
    assert_eq!(error["code"], code, "{error}");
    assert!(error["cause"].to_string().contains(why), "no \"{why}\": {error}");
    error
}

fn write_some(array: &Array, members: &[PathBuf]) {
    let served = array.serve_with(&[], members);
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &[7; 4096]);
    client.flush();
    drop(client);
    served.stop();
}

fn put(path: &PathBuf, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("a member");
    file.write_all_at(bytes, at).expect("it can be written");
}

/// The operator typed the wrong disks as members of a new array.
#[test]
fn an_array_that_was_made_over_another_is_undone() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let wanted = filled(&array, &served, 5);
    served.stop();
    let before = contents(&array.members);
    // The new array also has an empty device and a new file.
    let other = blank(&array, "other", MEMBER_BYTES);
    let more = ["--level", "6", "--destroy", "tank", "--member-size", "16M"];
    let all = [&array.members[..], &[other.clone(), array.path("file")]].concat();
    let made = array.braid(&[&["create", "new"][..], &more].concat(), &all);
    let made: Value = serde_json::from_str(&made.stdout).expect("JSON");
    assert_eq!(made["undo"], 1, "{made}");
    array.serve_with(&["--read-only"], &all).stop();
    let dry = done(&array, &["undo", "-n"]);
    assert_eq!(
        (&dry["undone"], &dry["dry_run"], &dry["undo"]),
        (&1.into(), &true.into(), &Value::Null)
    );
    let undone = done(&array, &["undo"]);
    assert_eq!((&undone["undone"], &undone["undo"]), (&1.into(), &2.into()), "{undone}");
    let effects = undone["members"].as_array().expect("members");
    assert_eq!((effects.len(), &effects[0]["effect"]), (6, &"put-back".into()));
    assert_as(&array.members, &before);
    assert!(std::fs::read(&other).expect("a file").iter().all(|byte| *byte == 0));
    let served = array.serve();
    assert_same(&served.read_all(&array), &wanted, "the old array");
    served.stop();
}

/// The operator may already have deleted the member files of a mistaken array.
#[test]
fn a_file_that_was_made_and_is_gone_keeps_nothing_from_being_undone() {
    let array = Array::create(RAID_5);
    let before = contents(&array.members);
    let all = [&array.members[..], &[array.path("file")]].concat();
    let words = ["create", "new", "--level", "6", "--destroy", "tank", "--member-size", "16M"];
    assert!(array.braid(&words, &all).status.success());
    std::fs::remove_file(array.path("file")).expect("it was made");
    done(&array, &["undo"]);
    assert_as(&array.members, &before);
}

#[test]
fn an_undo_is_undone_and_again() {
    let array = Array::create(RAID_5);
    let old = made_over(&array, &[]);
    let new = contents(&array.members);
    for (number, wanted) in [(1, &old), (2, &new), (3, &old)] {
        assert_eq!(done(&array, &["undo"])["undone"], number);
        assert_as(&array.members, wanted);
    }
    // Neither the command nor its undo is undone twice.
    let text = said(&array, &["undo", "1"]).stdout;
    assert!(text.starts_with("everything is back already that `braid create new "), "{text}");
    assert_eq!(done(&array, &["undo", "3"])["members"][0]["effect"], "is-back");
    assert_eq!(done(&array, &["undo", "2"])["undo"], 5);
    assert_as(&array.members, &new);
}

#[test]
fn an_array_that_was_written_since_is_not_undone() {
    let array = Array::create(RAID_5);
    made_over(&array, &["--assume-clean"]);
    write_some(&array, &array.members);
    let why = "new (";
    let error = assert_refused(&array, &["undo"], "B016", why);
    for words in ["was started since, and may have been written", "it counted 0 and was of"] {
        assert!(error["cause"].to_string().contains(words), "{error}");
    }
    for member in &array.members {
        assert!(error["cause"].to_string().contains(text(member)), "{error}");
    }
    // A write to the old array, served after the undo, makes a second undo impossible.
    let array = Array::create(RAID_5);
    made_over(&array, &["--assume-clean"]);
    done(&array, &["undo"]);
    write_some(&array, &array.members);
    assert_refused(&array, &["undo"], "B016", "tank (");
}

#[test]
fn whatever_else_has_changed_is_said() {
    let change = |what: &dyn Fn(&Array), why: &str| {
        let array = Array::create(RAID_5);
        made_over(&array, &[]);
        what(&array);
        assert_refused(&array, &["undo"], "B016", why);
    };
    let at = |offset| move |array: &Array| put(&array.members[1], offset, b"x");
    change(&at(100), "m1: bytes beside the superblock have changed");
    change(&at(MEMBER_BYTES - 1), "m1: bytes beside the superblock have changed");
    change(&at(SUPERBLOCK_BYTES), "m1: the superblock that the command left is no longer on it");
    let grows = |array: &Array| {
        let file = OpenOptions::new().write(true).open(&array.members[0]);
        file.and_then(|file| file.set_len(MEMBER_BYTES + 4096)).expect("it grows");
    };
    change(&grows, "m0: it had 16777216 bytes, and has 16781312");
    let again = |array: &Array| {
        let words = ["create", "third", "--level", "1", "--destroy", "new"];
        assert!(array.braid(&words, &array.members[..2]).status.success());
        done(array, &["undo"]);
        assert!(array.braid(&words, &array.members[..2]).status.success());
        std::fs::remove_file(array.path("state/undo/4.undo")).expect("a record");
        std::fs::remove_file(array.path("state/undo/3.undo")).expect("a record");
        std::fs::remove_file(array.path("state/undo/2.undo")).expect("a record");
    };
    change(&again, "m0: it is a member of third (");
}

#[test]
fn zeroes_over_the_data_are_not_undone() {
    let array = Array::create(RAID_5);
    made_over(&array, &["--zero"]);
    assert_refused(&array, &["undo"], "B016", "zeroes were written over the data areas");
}

#[test]
fn a_record_that_is_torn_or_edited_is_not_believed() {
    let array = Array::create(RAID_5);
    made_over(&array, &[]);
    done(&array, &["undo"]);
    let path = array.path("state/undo/2.undo");
    let whole = std::fs::read(&path).expect("a record");
    assert!(whole.starts_with(b"braid-undo 1 crc32c="));
    let mut edited = whole.clone();
    let at = edited.windows(3).position(|bytes| bytes == b"/m0").expect("a path");
    edited[at + 2] = b'9';
    let torn = &whole[..whole.len() - 512];
    let newer = [b"braid-undo 2 ", &whole[13..]].concat();
    for (bytes, why) in [
        (&edited[..], "its bytes fail their checksum"),
        (torn, "it was cut off"),
        (&[], "it does not begin like a record"),
        (&newer, "it is of format 2"),
    ] {
        std::fs::write(&path, bytes).expect("a record");
        let error = assert_refused(&array, &["undo"], "B015", why);
        assert_eq!(error["subject"], text(&path), "{error}");
        let lines = array.braid(&["history", "--saved"], &[]).stdout;
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(lines.lines().last().is_some_and(|line| line.contains("\"damage\"")), "{lines}");
    }
    // The remedy offers to undo the previous record.
    let error = refusal(&array, &["undo"], &[]);
    let ran = array.follow(&error, "Undo an earlier command");
    assert!(ran.stdout.contains("everything is back already"), "{ran:?}");
    // Without an intact record no undo is offered.
    std::fs::write(array.path("state/undo/1.undo"), "").expect("a record");
    let error = refusal(&array, &["undo"], &[]);
    assert_eq!(error["remedies"].as_array().map(Vec::len), Some(1), "{error}");
}

#[test]
fn a_device_that_is_missing_or_in_use_keeps_all_from_being_undone() {
    let array = Array::create(RAID_5);
    let old = made_over(&array, &[]);
    let away = array.path("away");
    std::fs::rename(&array.members[2], &away).expect("a member");
    assert_refused(&array, &["undo"], "B050", "nothing was changed");
    std::fs::rename(&away, &array.members[2]).expect("a member");
    let served = array.serve_with(&["--read-only"], &array.members);
    assert_refused(&array, &["undo"], "B061", "nothing was changed");
    served.stop();
    done(&array, &["undo"]);
    assert_as(&array.members, &old);
}

#[test]
fn there_is_nothing_to_be_undone_where_nothing_was_overwritten() {
    let array = Array::create(RAID_5);
    assert_refused(&array, &["undo"], "B014", "the undo records are in");
    let old = made_over(&array, &[]);
    let error = assert_refused(&array, &["undo", "7"], "B014", "");
    assert!(error["title"].to_string().contains("no record 7"), "{error}");
    // The record number that exists can be undone.
    done(&array, &["undo", "1"]);
    assert_as(&array.members, &old);
}

/// If the current bytes cannot be saved, the undo overwrites none of them.
#[test]
fn an_undo_that_cannot_be_undone_is_not_done() {
    let array = with_block(RAID_5, 512);
    made_over(&array, &[]);
    std::fs::create_dir(array.path("state/undo/2.new")).expect("a folder where the record goes");
    assert_refused(&array, &["undo"], "B080", "");
    let other = with_block(RAID_5, 512);
    std::fs::create_dir_all(other.path("state/undo/1.new")).expect("a folder");
    let refusal = other.refused(&["set", "tank", "kernel-compat"], &other.members);
    refusal.is("B080", 1);
}

/// The undo was interrupted when some devices had their old bytes: by a kill, or by a failed
/// device.
#[test]
fn an_undo_that_was_interrupted_goes_on() {
    let array = Array::create(RAID_5);
    let Some(files) = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten() else {
        return skip(Need::Fuse, "no FUSE can be mounted here");
    };
    let old = contents(&array.members);
    let words = ["create", "new", "--level", "6", "--destroy", "tank"];
    assert!(array.braid(&words, &files.files()).status.success());
    files.fail(2, Fail { file_op: FileOp::Write, bytes: 0..u64::MAX, errno: 5 });
    let error = refusal(&array, &["undo"], &[]);
    assert_eq!(error["code"], "B055", "{error}");
    for words in ["put back so far: ", "`braid undo 1` goes on where it was"] {
        assert!(error["cause"].to_string().contains(words), "{error}");
    }
    assert_as(&array.members[..2], &old);
    files.let_go();
    let undone = done(&array, &["undo", "1"]);
    let effects = undone["members"].as_array().expect("members").iter();
    let effects: Vec<&str> = effects.filter_map(|one| one["effect"].as_str()).collect();
    assert_eq!(effects, ["is-back", "is-back", "put-back", "put-back"], "{undone}");
    drop(files);
    assert_as(&array.members, &old);
}

/// Regression: superblocks were put back over a client's data, which RAID-0 does not record.
#[test]
fn over_a_raid_0_a_person_says_that_nobody_wrote() {
    let array = Array::create(RAID_5);
    let before = contents(&array.members);
    let words = ["create", "new", "--level", "0", "--destroy", "tank"];
    assert!(array.braid(&words, &array.members).status.success());
    write_some(&array, &array.members);
    let words = ["do not tell whether it was written", "nothing was changed"];
    let error = assert_refused(&array, &["undo"], "B016", words[0]);
    assert!(error["cause"].to_string().contains(words[1]), "{error}");
    done(&array, &["undo", "--nobody-wrote"]);
    let back = contents(&array.members);
    assert!(back.iter().zip(&before).all(|(back, before)| back[4096..8192] == before[4096..8192]));
}

/// Regression: braid's advice was to look up the process that uses the devices.
#[test]
fn an_undo_of_what_is_served_is_told_to_stop_it_first() {
    let array = Array::create(RAID_5);
    let before = contents(&array.members);
    made_over(&array, &["--assume-clean"]);
    let mut served = array.serve_with(&["--read-only"], &array.members);
    for words in [&["undo", "-n"][..], &["undo"]] {
        let error = refusal(&array, words, &[]);
        assert_eq!(error["code"], "B061", "{error}");
        assert!(error["remedies"].to_string().contains("braid stop new"), "{error}");
    }
    let error = refusal(&array, &["undo"], &[]);
    array.follow(&error, "Stop the array that is served from it, then undo");
    assert!(served.wait().success());
    done(&array, &["undo"]);
    assert_as(&array.members, &before);
}

/// Half of the devices have their old bytes, as after a kill.
#[test]
fn an_undo_of_which_a_part_was_done_does_the_rest() {
    let array = Array::create(RAID_5);
    let old = made_over(&array, &[]);
    std::fs::write(&array.members[0], &old[0]).expect("a member");
    // One device is half undone: its superblock is back, the sectors after it are not.
    put(&array.members[1], SUPERBLOCK_BYTES, &old[1][4096..4608]);
    let undone = done(&array, &["undo"]);
    let effects = undone["members"].as_array().expect("members").iter();
    let effects: Vec<&str> = effects.filter_map(|one| one["effect"].as_str()).collect();
    assert_eq!(effects[0], "is-back", "{undone}");
    assert_eq!(effects[2..], ["put-back", "put-back"], "{undone}");
    assert_as(&array.members, &old);
}

/// A member of another array was added to a running one.
#[test]
fn a_device_that_was_added_is_saved_and_not_taken_from_its_array() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let other = Array::create_named("other", RAID_1, "16M");
    let served = array.serve();
    let wanted = filled(&array, &served, 1);
    done(&array, &["fail", "tank", "1"]);
    done(&array, &["remove", "tank", "failed"]);
    let before = std::fs::read(&other.members[0]).expect("a member");
    let added = done(&array, &["add", "tank", "--destroy", "other", text(&other.members[0])]);
    let record = array.path("state/undo/1.undo");
    assert_eq!(added["saved_in"], text(&record), "{added}");
    let error = refusal(&array, &["undo"], &[]);
    assert_eq!(error["code"], "B061", "{error}");
    wait_for_rebuild(&array);
    assert_same(&served.read_all(&array), &wanted, "while it is served");
    served.stop();
    let why = "m0: it is a member of tank (";
    assert_refused(&array, &["undo"], "B016", why);
    // The saved bytes can still be extracted, but not over an existing folder.
    let folder = array.path("saved");
    let words = ["undo", "1", "--extract", text(&folder)];
    let files = array.braid(&words, &[]).stdout;
    let first: Value = serde_json::from_str(files.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (&first["member"], &first["offset_bytes"]),
        (&text(&other.members[0]).into(), &0.into())
    );
    let saved = std::fs::read(first["file"].as_str().expect("a path")).expect("a file");
    assert_same(&saved, &before[..saved.len()], "what stood there");
    assert_eq!((files.lines().count(), saved.len()), (2, 260 << 10));
    assert_refused(&array, &words, "B074", "File exists");
    let listed = array.braid(&["history", "tank", "--saved"], &[]).stdout;
    let listed: Value = serde_json::from_str(&listed).expect("one line of JSON");
    assert_eq!(listed["members"][0], text(&other.members[0]));
    assert!(listed["command"].as_str().is_some_and(|line| line.starts_with("braid add tank ")));
}

#[test]
fn the_history_lists_what_can_be_undone() {
    let array = Array::create(RAID_5);
    array.serve().stop();
    made_over(&array, &[]);
    done(&array, &["undo"]);
    array.serve().stop();
    let text = said(&array, &["history"]).stdout;
    let is_saved = |line: &&str| line.contains("  undo ");
    let lines: Vec<&str> = text.lines().filter(is_saved).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("  new  undo 1  braid create new --level 6 --destroy tank"),
        "{text}"
    );
    assert!(lines[1].contains("  new  undo 2  braid undo 1"), "{text}");
    let first = text.lines().next().expect("a line");
    let last = text.lines().last().expect("a line");
    assert!(!is_saved(&first) && !is_saved(&last), "in the order of time: {text}");
    let lines = |words: &[&str]| said(&array, words).stdout.lines().count();
    assert_eq!(lines(&["history", "--saved"]), 2);
    assert_eq!(lines(&["history", "new"]), 2, "it was never served");
    assert_eq!(lines(&["history", "tank", "--saved"]), 0);
    assert_eq!(lines(&["history", "--saved", "--since", "2020-01-01T00:00:00Z"]), 2);
    assert_eq!(lines(&["history", "--saved", "--since", "2100-01-01T00:00:00Z"]), 0);
    let kinds = said(&array, &["history", "--kind", "ArrayStarted"]).stdout;
    assert!(!kinds.contains("undo") && kinds.lines().count() == 2, "{kinds}");
}

fn compat(array: &Array, more: &[&str]) -> Value {
    let ran = array.braid(&[&["set", "tank", "kernel-compat"][..], more].concat(), &array.members);
    assert!(ran.status.success(), "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("JSON")
}

fn with_block(shape: Shape, bytes: u32) -> Array {
    let array = Array::create(shape);
    for slot in 0..shape.members {
        array.patch_superblock(slot, LOGICAL_BLOCK_AT, &bytes.to_le_bytes(), true);
    }
    array
}

/// Kernels before 6.19 refuse the superblocks of newer ones.
#[test]
fn a_logical_block_of_a_sector_is_cleared_for_older_kernels_and_comes_back() {
    let array = with_block(RAID_5, 512);
    let before = contents(&array.members);
    let dry = compat(&array, &["-n"]);
    assert_eq!((&dry["dry_run"], &dry["undo"]), (&true.into(), &Value::Null), "{dry}");
    assert_as(&array.members, &before);
    let cleared = compat(&array, &[]);
    assert_eq!(cleared["members"].as_array().map(Vec::len), Some(4), "{cleared}");
    let after = contents(&array.members);
    for (slot, (before, after)) in before.iter().zip(&after).enumerate() {
        assert!(array.checksum_is_right(slot));
        let differs = |at: &usize| before[*at] != after[*at];
        let bytes: Vec<usize> = (0..before.len()).filter(differs).map(|at| at - 4096).collect();
        let is_it = |at: &usize| (224..228).contains(at) || (216..220).contains(at);
        assert!(bytes.contains(&225) && bytes.iter().all(is_it), "the word and the sum: {bytes:?}");
    }
    let again = compat(&array, &[]);
    assert_eq!((&again["members"], &again["undo"]), (&Value::Array(vec![]), &Value::Null));
    let words = ["set", "tank", "kernel-compat"];
    let members: Vec<&str> = array.members.iter().map(|path| text(path)).collect();
    let text = said(&array, &[&words[..], &members].concat()).stdout;
    assert!(text.starts_with("nothing to clear"), "{text}");
    done(&array, &["undo"]);
    assert_as(&array.members, &before);
    // A missing member is reported, and superblocks of an array that was served since are not
    // restored.
    std::fs::remove_file(&array.members[3]).expect("a member");
    let ran = array.braid(&words, &array.members[..3]);
    let ran: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(ran["missing_slots"], serde_json::json!([3]), "{ran}");
    write_some(&array, &array.members[..3]);
    assert_refused(&array, &["undo"], "B016", "tank (");
}

#[test]
fn a_logical_block_that_matters_stays_and_a_running_array_is_stopped_first() {
    let array = with_block(RAID_6, 4096);
    let words = ["set", "tank", "kernel-compat"];
    let refusal_of = array.refused(&words, &array.members);
    refusal_of.is("B017", 12);
    array.follow(&refusal_of.json, "See what it says");
    // The command names no members, and the array is not served.
    let error = assert_refused(&array, &words, "B001", "not served");
    let array = with_block(RAID_6, 512);
    let line = array.members.iter().map(|path| text(path)).collect::<Vec<_>>().join(" ");
    array.follow_with(&error, "Name them", &[("MEMBER...", &line)]);
    assert_eq!(compat(&array, &[])["members"], Value::Array(vec![]), "it was done");
    let served = array.serve();
    let error = assert_refused(&array, &words, "B061", "after a stop");
    assert_eq!(status(&array, "tank")["state"], "ok");
    array.follow(&error, "Stop it first");
    served.stop();
    array.follow(&error, "Then name its members");
    // The command names a member of another array.
    let other = Array::create_named("other", RAID_1, "16M");
    let members = [&array.members[..], &other.members[..1]].concat();
    let error = error_of(&array.braid(&words, &members));
    assert_eq!(error["code"], "B032", "{error}");
    assert!(typed(&array, "braid history --saved").contains("kernel-compat"));
}
