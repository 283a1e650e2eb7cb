//! `braid rescue`: arrays that cannot or should not start are read back; no member is written.
//!
//! Each case breaks an array as a mishap does. The case compares all bytes read with those written,
//! and the members before and after. `no_write_reaches_a_member` traces system calls.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use braid_geometry::Level;
use braid_ondisk::{ArrayFacts, DeviceFlags, NewV0, Role, Superblock, Timestamp};
use serde_json::Value;

use crate::jobs::done;
use crate::kit::{
    Array, Background, Client, RAID_5, RAID_6, SUPERBLOCK_BYTES, ServerProcess, assert_same, needs,
    ok, random_bytes,
};
use crate::members::{filled, text};

const LIMIT: Duration = Duration::from_secs(20);
const SECTOR: usize = 512;
/// Bytes of the system partition of a NAS disk.
const SYSTEM_BYTES: usize = 8 << 20;
/// Offset of the event count in a superblock 1.2.
const EVENTS_AT: usize = 200;
/// Offset of the data offset in a superblock 1.2.
const DATA_OFFSET_AT: u64 = 128;

pub(crate) fn contents(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| fs::read(path).expect("a member")).collect()
}

/// The report of `braid rescue` on the members' only array.
#[track_caller]
pub(crate) fn story(array: &Array, words: &[&str], members: &[PathBuf]) -> Value {
    let said = story_of(array, words, members);
    let arrays = said["arrays"].as_array().expect("arrays");
    assert_eq!(arrays.len(), 1, "{said}");
    arrays[0].clone()
}

#[track_caller]
fn story_of(array: &Array, words: &[&str], members: &[PathBuf]) -> Value {
    let ran = array.braid(&[&["rescue"], words].concat(), members);
    assert!(matches!(ran.status.code(), Some(0 | 3 | 13)), "{ran:?}");
    serde_json::from_str(ran.stdout.trim()).expect("one object")
}

/// The verdicts on the members, by file name.
fn stands(found: &Value) -> Vec<(String, String)> {
    let members = found["members"].as_array().expect("members").iter();
    let word = |value: &Value| value.as_str().expect("text").to_owned();
    let name = |member: &Value| {
        let path = word(&member["member"]);
        path.rsplit('/').next().expect("a name").to_owned()
    };
    members.map(|member| (name(member), word(&member["stand"]))).collect()
}

fn are(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, stand)| ((*name).to_owned(), (*stand).to_owned())).collect()
}

pub(crate) fn accepting(found: &Value) -> String {
    found["stripes_at_risk"].as_u64().expect("a number").to_string()
}

fn read_export(array: &Array, served: &ServerProcess, name: &str) -> Vec<u8> {
    let uri = format!("nbd+unix:///{name}?socket={}", served.socket.display());
    let path = array.path("export.img");
    ok("nbdcopy", [&uri, text(&path)]);
    fs::read(&path).expect("what was copied")
}

/// Reads the array block by block: each block is right, or is at risk and fails. Returns the
/// numbers of right and of failed blocks.
pub(crate) fn right_or_at_risk(
    served: &ServerProcess,
    content: &[u8],
    found: &Value,
) -> (usize, usize) {
    let ranges = found["at_risk"].as_array().expect("ranges");
    let number = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("small");
    let is_at_risk = |at: usize| {
        let start = |range: &Value| number(&range["offset_bytes"]);
        let end = |range: &Value| start(range) + number(&range["length_bytes"]);
        ranges.iter().any(|range| (start(range)..end(range)).contains(&at))
    };
    let (mut right, mut failed) = (0, 0);
    let mut client = Client::connect(&served.socket, LIMIT);
    for (at, piece) in (0..).step_by(16 << 10).zip(content.chunks(16 << 10)) {
        match client.try_read(at as u64, piece.len()) {
            Ok(bytes) => {
                right += 1;
                assert_same(&bytes, piece, "what is given is right");
            }
            Err(_) => {
                failed += 1;
                assert!(is_at_risk(at), "byte {at} is at no risk: {ranges:?}");
            }
        }
    }
    (right, failed)
}

/// A RAID-6 of five members: two dropped out one after the other, and a third is lost. Returns the
/// array, its content, and the members left.
fn dropped() -> (Array, Vec<u8>, Vec<PathBuf>) {
    let more = ["--consistency", "bitmap", "--bitmap-chunk", "1M"];
    let array = Array::create_with("tank", RAID_6, "16M", &more);
    let served = array.serve();
    let mut content = filled(&array, &served, 61);
    // Lets the first resync, then a clean stop, clear the bitmap.
    done(&array, &["wait", "tank", "--for", "idle", "--timeout", "60"]);
    served.stop();
    let served = array.serve();
    done(&array, &["fail", "tank", text(&array.members[4])]);
    let mut client = Client::connect(&served.socket, LIMIT);
    let piece = random_bytes(62, 256 << 10);
    client.write(1 << 20, &piece);
    client.flush();
    drop(client);
    content[1 << 20..(1 << 20) + piece.len()].copy_from_slice(&piece);
    done(&array, &["fail", "tank", text(&array.members[3])]);
    served.stop();
    let left = array.without(&[0]);
    (array, content, left)
}

/// All members (S): too few are sound, so dropped members are believed, in their order of dropping.
#[test]
fn members_that_dropped_together_are_read_back_written_over_and_committed() {
    needs!("nbdcopy");
    let (array, mut content, left) = dropped();
    let before = contents(&left);
    array.serve_refused(&[], &left).is("B030", 13);
    let found = story(&array, &[], &left);
    let expected = [("m1", "used"), ("m2", "used"), ("m3", "believed"), ("m4", "left-out")];
    assert_eq!(stands(&found), are(&expected), "{found:#}");
    assert_eq!(found["as_it_stands"], "too-few-members");
    assert_eq!((&found["readable"], &found["degraded_slots"]), (&true.into(), &2.into()));
    let missed = found["members"][2]["missed"].as_array().expect("a bitmap names it");
    let length = |range: &Value| range["length_bytes"].as_u64().expect("a length");
    let missed: u64 = missed.iter().map(length).sum();
    assert!((1..4 << 20).contains(&missed), "{missed} bytes: {found:#}");
    assert_eq!(found["members"][0]["without"]["believed"], 2, "both are needed then");
    let two = story_of(&array, &["--without", text(&left[0])], &left[..3]);
    assert_eq!(two["arrays"][0]["readable"], false, "three are needed: {two:#}");
    // The array is served for writing only if the risk is accepted.
    let refused = array.refused(&["rescue", "--serve"], &left);
    refused.is("B031", 12);
    let ran = array.follow(&refused.json, "Serve it over the overlay; members stay unchanged");
    assert!(ran.stderr.contains("the members are unchanged"), "{ran:?}");
    assert!(contents(&left) == before, "a member was written");
    array.follow_discard(&left);
    // One accepted risk is enough for all refusals, in this run and the next.
    let risk = accepting(&found);
    let served = ServerProcess::rescued(&array, &["--accept-risk", &risk], &left);
    assert_same(&served.read_all(&array), &content, "over the overlay");
    let piece = random_bytes(63, 100 << 10);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(4 << 20, &piece);
    client.flush();
    drop(client);
    content[4 << 20..(4 << 20) + piece.len()].copy_from_slice(&piece);
    served.stop();
    assert!(contents(&left) == before, "a member was written");
    let again = story(&array, &[], &left);
    assert_eq!((&again["as_it_stands"], &again["overlay"]["members"]), (&Value::Null, &3.into()));
    let served = ServerProcess::rescued(&array, &[], &left);
    assert_same(&served.read_all(&array), &content, "after a restart");
    // A concurrent `rescue` is refused, with the process that holds the members.
    let busy = array.refused(&["rescue"], &left);
    busy.is("B102", 11);
    served.stop();
    assert!(contents(&left) == before, "a member was written");
    // The dry run lists each sector, and the commit writes exactly these.
    let dry = array.braid(&["rescue", "--commit", "-n"], &left);
    let dry: Value = serde_json::from_str(dry.stdout.trim()).expect("one object");
    assert!(contents(&left) == before, "a dry run wrote");
    let ran = array.braid(&["rescue", "--commit"], &left);
    assert!(ran.status.success(), "{ran:?}");
    for (member, path) in left.iter().enumerate().map(|(index, path)| (&before[index], path)) {
        let after = fs::read(path).expect("a member");
        let changes = dry["changes"].as_array().expect("changes").iter();
        let mut of_member = changes.filter(|change| change["member"] == text(path));
        let sectors = of_member.next().map(|change| change["sectors"].clone()).unwrap_or_default();
        let is_named = |sector: u64| {
            let ranges = sectors.as_array().into_iter().flatten();
            let number = |value: &Value| value.as_u64().expect("a sector");
            ranges.clone().any(|range| (number(&range[0])..number(&range[1])).contains(&sector))
        };
        for (sector, (old, new)) in member.chunks(SECTOR).zip(after.chunks(SECTOR)).enumerate() {
            assert_eq!(old != new, is_named(sector as u64), "{} sector {sector}", path.display());
        }
    }
    let served = array.serve_with(&["--read-only"], &left[..3]);
    assert_same(&served.read_all(&array), &content, "of the members themselves");
    served.stop();
    array.refused(&["rescue", "--commit"], &left).is("B103", 12);
    done(&array, &["undo"]);
    assert!(contents(&left) == before, "it was not taken back");
}

/// Kills a command before its `write`th write to these members; returns whether it came so far.
fn killed_before(array: &Array, words: &[&str], members: &[PathBuf], write: usize) -> bool {
    let mut command = Command::new("strace");
    let kill = format!("inject=pwrite64:signal=KILL:when={write}");
    command.args(["-f", "-qq", "-e", "trace=pwrite64", "-e", &kill, "-o", "/dev/null"]);
    members.iter().for_each(|member| {
        command.args(["-P", text(member)]);
    });
    let named = if words[0] == "undo" { &[][..] } else { members };
    command.arg(env!("CARGO_BIN_EXE_braid")).args(array.command_line(words, named));
    command.env("BRAID_RUNTIME_DIR", array.runtime()).env("LC_ALL", "C");
    !Background::spawn_command(command, "").wait().status.success()
}

/// Regression: a commit killed at any point left members half written. `undo` took the writes for
/// another program's, and the array could not be read any more.
#[test]
fn a_commit_that_is_cut_short_is_taken_back_or_finished() {
    needs!("strace", "nbdcopy");
    let (array, mut content, left) = dropped();
    let before = contents(&left);
    let risk = accepting(&story(&array, &[], &left));
    let piece = random_bytes(64, 200 << 10);
    content[3 << 20..(3 << 20) + piece.len()].copy_from_slice(&piece);
    let served = ServerProcess::rescued(&array, &["--accept-risk", &risk], &left);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(3 << 20, &piece);
    client.flush();
    drop(client);
    served.stop();
    let kept = array.path("state.kept");
    copy_folder(&array.path("state"), &kept);
    let mut partly = 0;
    for write in 1.. {
        assert!(write < 100, "so many writes");
        if !killed_before(&array, &["rescue", "--commit"], &left, write) {
            break;
        }
        if contents(&left) != before {
            partly += 1;
            // Each verb refuses to run while the commit is incomplete.
            for words in [
                &["rescue"][..],
                &["rescue", "--serve", "--run", "true"],
                &["serve", "--run", "true"],
            ] {
                array.refused(words, &left).is("B120", 12);
            }
            let refused = array.refused(&["rescue"], &left);
            if write % 2 == 0 {
                array.follow(&refused.json, "Finish it");
                assert_committed(&array, &content, &left);
                done(&array, &["undo"]);
                // The commit removed the overlay: restore the state folder.
                fs::remove_dir_all(array.path("state")).expect("a folder");
                copy_folder(&kept, &array.path("state"));
            } else {
                // The undo of the commit is killed as well, before its first write and before its
                // second.
                for write in 1..3 {
                    killed_before(&array, &["undo"], &left, write);
                }
                done(&array, &["undo"]);
            }
        }
        assert!(contents(&left) == before, "killed before write {write}, it was not taken back");
    }
    assert!(partly > 4, "{partly} times something had been written");
    assert_committed(&array, &content, &left);
    done(&array, &["undo"]);
    assert!(contents(&left) == before, "it was not taken back");
}

/// A commit over these members is killed after it has written a part of the first member.
fn cut_short() -> Array {
    let array = Array::with_bitmap(RAID_5);
    array.serve().stop();
    let served = ServerProcess::rescued(&array, &[], &array.members);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(0, &random_bytes(73, 1 << 20));
    client.write(4 << 20, &random_bytes(74, 1 << 20));
    client.flush();
    drop(client);
    served.stop();
    assert!(killed_before(&array, &["rescue", "--commit"], &array.members, 2));
    array
}

/// Regression: the other members were served without this member. When the member was added again,
/// its bitmap did not cover the commit's writes to it.
#[test]
fn a_member_that_a_commit_left_half_written_is_not_added_again() {
    needs!("strace");
    let array = cut_short();
    let away = array.path("away");
    fs::rename(&array.members[0], &away).expect("a member");
    let served = array.serve_with(&[], &array.members[1..]);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(8 << 20, &[7; 65536]);
    client.flush();
    drop(client);
    fs::rename(&away, &array.members[0]).expect("a member");
    let refused = |words: &[&str], members: &[PathBuf]| {
        let refused = crate::remedies::refusal(&array, words, members);
        assert_eq!(refused["code"], "B120", "{refused}");
        assert!(refused["cause"].to_string().contains("partly written"), "{refused}");
        refused
    };
    refused(&["add", "tank"], &array.members[..1]);
    served.stop();
    let refused = refused(&["serve", "--run", "true"], &array.members);
    array.follow(&refused, "Discard its data; added again it is rebuilt");
    let served = array.serve_with(&[], &array.members[1..]);
    let added = array.braid(&["add", "tank", "--destroy", "data"], &array.members[..1]);
    assert!(added.status.success(), "{added:?}");
    done(&array, &["wait", "tank", "--for", "rebuild", "--timeout", "30"]);
    served.stop();
}

/// The disk that the commit could not write to may be dead for good.
#[test]
fn a_commit_that_stopped_is_taken_back_without_a_member_that_is_gone() {
    needs!("strace");
    let array = cut_short();
    let first = fs::read(&array.members[0]).expect("a member");
    let away = array.path("away");
    fs::rename(&array.members[1], &away).expect("a member");
    let left = array.without(&[1]);
    let refused = array.refused(&["rescue"], &left);
    refused.is("B120", 12);
    array.follow(&refused.json, "Undo its writes");
    assert!(fs::read(&array.members[0]).expect("a member") != first, "it was put back");
    array.serve_with(&["--read-only"], &left).stop();
}

#[track_caller]
fn assert_committed(array: &Array, content: &[u8], left: &[PathBuf]) {
    let served = array.serve_with(&["--read-only"], &left[..3]);
    assert_same(&served.read_all(array), content, "of the members themselves");
    served.stop();
}

fn copy_folder(from: &Path, to: &Path) {
    let ran = Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
    assert!(ran.success());
}

/// Regression: if one of three overlays was missing, cut or foreign, or had changed, two were used.
#[test]
fn an_overlay_that_was_damaged_is_refused_by_name() {
    needs!("nbdcopy");
    let (array, content, left) = dropped();
    let risk = accepting(&story(&array, &[], &left));
    let before = contents(&left);
    let served = ServerProcess::rescued(&array, &["--accept-risk", &risk], &left);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(0, &content[..1 << 20]);
    client.flush();
    drop(client);
    served.stop();
    let folder = fs::read_dir(array.path("state").join("rescue")).expect("a folder").next();
    let folder = folder.expect("an overlay").expect("readable").path();
    let kept = array.path("kept");
    copy_folder(&folder, &kept);
    let files = |end: &str| -> Vec<PathBuf> {
        let all =
            fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("readable").path());
        let mut all: Vec<PathBuf> =
            all.filter(|path| path.extension().is_some_and(|it| it == end)).collect();
        all.sort();
        all
    };
    let (maps, data, list) = (files("map"), files("data"), folder.join("overlay.list"));
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).expect("a file");
        let last = bytes.len() - 1;
        bytes[last] ^= 4;
        fs::write(path, bytes).expect("a file");
    };
    let cut = |path: &Path| {
        let file = fs::File::options().write(true).open(path).expect("a file");
        file.set_len(file.metadata().expect("a file").len() - 1).expect("it is cut");
    };
    let link = |path: &Path| {
        let other = array.path("elsewhere");
        fs::rename(path, &other).expect("a file");
        std::os::unix::fs::symlink(other, path).expect("a link");
    };
    let gone = |path: &Path| fs::remove_file(path).expect("a file");
    let spoils: [&dyn Fn(&Path); 4] = [&gone, &cut, &flip, &link];
    for path in [&maps[0], &data[1], &list] {
        for (index, spoil) in
            spoils.iter().enumerate().filter(|(index, _)| *path != list || *index < 3)
        {
            spoil(path);
            let refused = array.refused(&["rescue", "--commit"], &left);
            refused.is("B121", 12);
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            assert!(
                refused.json.to_string().contains(name),
                "{index}, {}: {}",
                path.display(),
                refused.json
            );
            assert!(contents(&left) == before, "a member was written");
            fs::remove_dir_all(&folder).expect("a folder");
            copy_folder(&kept, &folder);
        }
    }
    // The remedy for a damaged overlay discards the overlay.
    flip(&data[0]);
    let refused = array.refused(&["rescue"], &left);
    let ran = array.follow(&refused.json, "Throw it away");
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(!folder.exists(), "it was thrown away");
    assert!(contents(&left) == before, "a member was written");
}

/// A dropped member lacks later writes; a read-only rescue does not return its old bytes for them.
#[test]
fn what_a_believed_member_may_lack_is_not_given() {
    needs!("nbdcopy");
    let (array, content, left) = dropped();
    let found = story(&array, &[], &left);
    let file =
        fs::File::options().read(true).write(true).open(&array.members[3]).expect("a member");
    let mut offset = [0; 8];
    file.read_exact_at(&mut offset, SUPERBLOCK_BYTES + DATA_OFFSET_AT).expect("a superblock");
    let start = u64::from_le_bytes(offset) * SECTOR as u64;
    for range in found["members"][2]["missed"].as_array().expect("a bitmap names it") {
        let number = |key: &str| range[key].as_u64().expect("a number");
        let old = vec![0x0d; usize::try_from(number("length_bytes")).expect("small")];
        file.write_all_at(&old, start + number("offset_bytes")).expect("a member");
    }
    let before = contents(&left);
    let served = ServerProcess::rescued(&array, &["--read-only"], &left);
    let (right, failed) = right_or_at_risk(&served, &content, &found);
    assert!(right > failed && failed > 0, "{right} right, {failed} failed");
    served.stop();
    assert!(contents(&left) == before, "a member was written");
}

/// Power failed during writes, with a member missing: regions at risk are named, others are read.
#[test]
fn dirty_and_degraded_is_read_where_it_is_right() {
    needs!("nbdcopy");
    let array = Array::with_bitmap(RAID_5);
    let served = array.serve();
    let content = filled(&array, &served, 64);
    served.stop();
    let served = array.serve();
    let mut client = Client::connect(&served.socket, LIMIT);
    // Writes the bytes that the array already has, so that any part of the write is right.
    client.write(2 << 20, &content[2 << 20..(2 << 20) + 4096]);
    drop(client);
    served.kill();
    let left = array.without(&[1]);
    let before = contents(&left);
    array.serve_refused(&[], &left).is("B031", 12);
    let found = story(&array, &[], &left);
    assert!(found["stripes_at_risk"].as_u64().is_some_and(|count| count > 0), "{found:#}");
    let served = ServerProcess::rescued(&array, &["--read-only"], &left);
    let (right, failed) = right_or_at_risk(&served, &content, &found);
    assert!(right > failed && failed > 0, "{right} right, {failed} failed");
    served.stop();
    let risk = accepting(&found);
    let served = ServerProcess::rescued(&array, &["--accept-risk", &risk], &left);
    assert_same(&served.read_all(&array), &content, "the bytes were the same");
    served.stop();
    assert!(contents(&left) == before, "a member was written");
}

/// Regression: a failed disk one event behind was believed, and ruined a RAID-6.
#[test]
fn a_faulty_member_one_event_behind_is_not_read() {
    needs!("nbdcopy");
    let array = Array::with_bitmap(RAID_6);
    let served = array.serve();
    let content = filled(&array, &served, 65);
    done(&array, &["fail", "tank", text(&array.members[4])]);
    served.stop();
    let events = |slot: usize| {
        let mut bytes = [0; 8];
        let file = fs::File::open(&array.members[slot]).expect("a member");
        file.read_exact_at(&mut bytes, SUPERBLOCK_BYTES + EVENTS_AT as u64).expect("a superblock");
        u64::from_le_bytes(bytes)
    };
    array.patch_superblock(4, EVENTS_AT, &(events(0) - 1).to_le_bytes(), true);
    // The failed disk's content is wrong.
    let file = fs::File::options().write(true).open(&array.members[4]).expect("a member");
    file.write_all_at(&vec![0xee; 8 << 20], 4 << 20).expect("a member");
    // Removes braid's record of the array, so that only superblocks show which member failed.
    fs::remove_dir_all(array.path("state/arrays")).expect("a record");
    let before = contents(&array.members);
    let found = story(&array, &[], &array.members);
    assert_eq!(stands(&found)[4], ("m4".to_owned(), "left-out".to_owned()), "{found:#}");
    assert_eq!(found["members"][4]["verdict"], "faulty");
    let served = ServerProcess::rescued(&array, &["--read-only"], &array.members);
    assert_same(&served.read_all(&array), &content, "without the one that failed");
    served.stop();
    // If a second member is missing too, the failed disk is not needed either.
    let left = array.without(&[0]);
    let served = ServerProcess::rescued(&array, &[], &left);
    assert_same(&served.read_all(&array), &content, "with two missing");
    served.stop();
    // The operator may believe the failed disk, and can then see the mistake: nothing was written.
    let overlay = array.path("another");
    let words = ["--overlay", text(&overlay), "--with", text(&array.members[4])];
    let with = story(&array, &words, &array.without(&[0, 1]));
    assert_eq!(stands(&with)[2], ("m4".to_owned(), "believed".to_owned()), "{with:#}");
    assert!(contents(&array.members) == before, "a member was written");
}

/// The write journal's device is missing: the members' content is read.
#[test]
fn without_its_journal_the_members_are_read() {
    needs!("nbdcopy");
    let (array, journal) = Array::create_journaled(RAID_5, "16M");
    let all = [&array.members[..], &[journal]].concat();
    let served = array.serve_with(&[], &all);
    let content = filled(&array, &served, 66);
    served.stop();
    let before = contents(&array.members);
    array.serve_refused(&[], &array.members).is("B025", 12);
    let found = story(&array, &[], &array.members);
    assert_eq!((&found["journal_missing"], &found["readable"]), (&true.into(), &true.into()));
    for options in [&["--read-only"][..], &[]] {
        let served = ServerProcess::rescued(&array, options, &array.members);
        assert_same(&served.read_all(&array), &content, "without its journal");
        served.stop();
    }
    assert!(contents(&array.members) == before, "a member was written");
}

/// A disk with an MBR and these partitions, from sector 256 to the end of the disk.
fn disk(path: &Path, partitions: &[Vec<u8>]) {
    let mut bytes = vec![0; 256 * SECTOR];
    for (index, partition) in partitions.iter().enumerate() {
        let start = u32::try_from(bytes.len() / SECTOR).expect("small");
        let count = u32::try_from(partition.len() / SECTOR).expect("small");
        let entry = 446 + 16 * index;
        bytes[entry + 4] = 0xfd;
        bytes[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        bytes[entry + 12..entry + 16].copy_from_slice(&count.to_le_bytes());
        bytes.extend(partition);
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(path, bytes).expect("a disk");
}

/// A member of a RAID-1 of four: its content, and a 0.90 superblock in the last 64 KiB.
fn of_raid_1(slot: usize, content: &[u8]) -> Vec<u8> {
    let superblock = Superblock::new_v0(&NewV0 {
        array: ArrayFacts {
            uuid: [0x5a; 16],
            name: String::new(),
            creation_time: Timestamp { seconds: 1_400_000_000, microseconds: 0 },
            level: Level::Raid1,
            layout: 0,
            chunk_sectors: 0,
            member_size_sectors: (content.len() / SECTOR) as u64,
            raid_slots: 4,
            preferred_minor: Some(0),
            logical_block_bytes: None,
        },
        device_bytes: SYSTEM_BYTES as u64,
        device_number: u32::try_from(slot).expect("few"),
        device_flags: DeviceFlags::default(),
        roles: (0..4).map(Role::Active).collect(),
        nodes: (0..4).map(|slot| (8, 16 * slot + 1)).collect(),
        events: 42,
        resync_offset: u64::MAX,
    });
    let mut bytes = content.to_vec();
    bytes.extend(superblock.expect("a superblock").to_bytes());
    bytes.resize(SYSTEM_BYTES, 0);
    bytes
}

/// A NAS's disks: system members with metadata 0.90 at their ends, data in partitions with 1.2.
#[test]
fn disks_of_a_nas_end_with_the_list_of_volumes() {
    needs!("nbdcopy", "mke2fs");
    let data = Array::create_named("data", RAID_5, "16M");
    let of_system = random_bytes(67, SYSTEM_BYTES - (64 << 10));
    // Makes a file system in a partition of the data array.
    let served = data.serve();
    let image = data.path("home.img");
    fs::write(&image, vec![0; 32 << 20]).expect("a file");
    ok("mke2fs", ["-q", "-F", "-t", "ext4", "-L", "home", text(&image)]);
    let home = fs::read(&image).expect("a file system");
    disk(&image, std::slice::from_ref(&home));
    let mut content = fs::read(&image).expect("a table and a file system");
    content.resize(served.length(), 0);
    served.write_all(&data, &content);
    served.stop();
    let disks: Vec<PathBuf> = (0..4).map(|slot| data.path(&format!("disk{slot}"))).collect();
    for (slot, path) in disks.iter().enumerate() {
        let part = fs::read(&data.members[slot]).expect("a member");
        disk(path, &[part, of_raid_1(slot, &of_system)]);
    }
    let before = contents(&disks);
    let said = story_of(&data, &[], &disks);
    let find = |level: &str| {
        let mut arrays = said["arrays"].as_array().expect("arrays").iter();
        let is_it = |one: &&Value| one["kind"].as_str().is_some_and(|kind| kind.contains(level));
        arrays.find(is_it).unwrap_or_else(|| panic!("no {level}: {said:#}")).clone()
    };
    let (raid5, raid1) = (find("RAID-5"), find("RAID-1"));
    assert!(raid1["kind"].as_str().is_some_and(|kind| kind.contains("md 0.90")), "{raid1:#}");
    for found in [&raid5, &raid1] {
        assert_eq!((&found["degraded_slots"], &found["dirty"]), (&0.into(), &false.into()));
    }
    let volume = &raid5["contents"][0];
    assert_eq!((&volume["export"], &volume["partition"]), (&"data-p1".into(), &1.into()));
    let thing = &volume["things"][0];
    assert_eq!((&thing["kind"], &thing["label"]), (&"ext4".into(), &"home".into()), "{said:#}");
    assert_eq!(thing["size_bytes"].as_u64(), Some(32 << 20));
    // Each array is served by itself, the data array also with a disk missing.
    data.refused(&["rescue", "--commit"], &disks).is("B033", 12);
    let mut served = ServerProcess::rescued(&data, &["--array", "data"], &disks[1..]);
    let part = served.wait_for("part");
    assert_eq!((&part["name"], &part["size_bytes"]), (&"data-p1".into(), &(32 << 20).into()));
    assert_same(&read_export(&data, &served, "data-p1"), &home, "the file system");
    assert_same(&served.read_all(&data), &content, "all of the data");
    served.stop();
    let name = raid1["uuid"].as_str().expect("a UUID");
    let served = ServerProcess::rescued(&data, &["--array", name, "--read-only"], &disks[..1]);
    assert_same(&served.read_all(&data), &of_system, "the system, from one disk");
    served.stop();
    assert!(contents(&disks) == before, "a disk was written");
}

/// A write to a part's export changes the whole array at the part's place, and nowhere else.
#[test]
fn a_part_is_a_stretch_of_the_whole() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let image = array.path("image");
    let parts = [random_bytes(68, 1 << 20), random_bytes(69, 2 << 20)];
    disk(&image, &parts);
    let served = array.serve();
    let mut content = fs::read(&image).expect("a table");
    content.resize(served.length(), 0);
    served.write_all(&array, &content);
    served.stop();
    let served = ServerProcess::rescued(&array, &[], &array.members);
    assert_same(&read_export(&array, &served, "tank-p2"), &parts[1], "the second");
    let new = random_bytes(70, 2 << 20);
    let path = array.path("new.img");
    fs::write(&path, &new).expect("a file");
    let uri = format!("nbd+unix:///tank-p2?socket={}", served.socket.display());
    ok("nbdcopy", ["--flush", text(&path), &uri]);
    let at = 256 * SECTOR + (1 << 20);
    content[at..at + new.len()].copy_from_slice(&new);
    assert_same(&served.read_all(&array), &content, "the whole");
    assert_same(&read_export(&array, &served, "tank-p1"), &parts[0], "the first");
    served.stop();
}

/// The overlay of a member that was written to later is void, so that old and new are not mixed.
#[test]
fn an_overlay_of_members_that_changed_is_refused() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let content = filled(&array, &served, 71);
    served.stop();
    let served = ServerProcess::rescued(&array, &[], &array.members);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(0, &[7; 4096]);
    drop(client);
    served.stop();
    // Serves the members themselves, without overlays, and writes to them.
    let served = array.serve();
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(8192, &content[8192..12_288]);
    drop(client);
    served.stop();
    let refused = array.refused(&["rescue"], &array.members);
    refused.is("B101", 12);
    array.refused(&["rescue", "--commit"], &array.members).is("B101", 12);
    array.follow(&refused.json, "Throw it away");
    let served = ServerProcess::rescued(&array, &["--read-only"], &array.members);
    assert_same(&served.read_all(&array), &content, "without the overlay");
    served.stop();
}

/// With a member and a copy of it, only the operator knows which is right, and leaves one out.
#[test]
fn a_copy_beside_its_member_is_left_out_by_hand() {
    let array = Array::create(RAID_5);
    let copy = array.path("copy");
    fs::copy(&array.members[0], &copy).expect("a copy");
    let all = [&array.members[..], std::slice::from_ref(&copy)].concat();
    let before = contents(&all);
    let ran = array.braid(&["rescue"], &all);
    assert_eq!(ran.status.code(), Some(12), "{ran:?}");
    let said: Value = serde_json::from_str(ran.stdout.trim()).expect("one object");
    let found = &said["arrays"][0];
    assert_eq!(
        (&found["readable"], &found["as_it_stands"]),
        (&false.into(), &"slot-claimed-twice".into())
    );
    let next = found["next"].as_array().expect("commands").iter();
    let commands: Vec<&str> = next.filter_map(|next| next["command"].as_str()).collect();
    let without: Vec<&&str> = commands.iter().filter(|line| line.contains("--without")).collect();
    assert_eq!(without.len(), 2, "{commands:?}");
    assert!(!commands.iter().any(|line| line.contains("serve")), "{commands:?}");
    for line in without {
        let ran = array.type_line(line);
        assert!(matches!(ran.status.code(), Some(0 | 3)), "{line}: {ran:?}");
        assert!(ran.stdout.contains("the array can be read"), "{line}: {ran:?}");
    }
    assert!(contents(&all) == before, "a member was written");
}

/// Every open of a member is read-only, and no call that writes names a member.
#[test]
fn no_write_reaches_a_member() {
    needs!("strace", "nbdcopy");
    let (array, _, left) = dropped();
    let risk = accepting(&story(&array, &[], &left));
    let before = contents(&left);
    let image = array.path("in.img");
    fs::write(&image, random_bytes(72, 8 << 20)).expect("a file");
    let copy = format!("nbdcopy --flush {} \"$uri\"", text(&image));
    let serve = ["--serve", "--accept-risk", &risk, "--run", &copy];
    let runs: [&[&str]; 4] =
        [&[], &serve, &["--serve", "--read-only", "--run", "true"], &["--commit", "-n"]];
    for words in runs {
        let log = array.path("strace");
        let mut command = Command::new("strace");
        let calls = "trace=open,openat,openat2,creat,truncate,ftruncate,fallocate,write,writev,pwrite64,pwritev,pwritev2,\
                     sendfile,copy_file_range,splice,ioctl,rename,renameat,renameat2,unlink,unlinkat,chmod,fchmod,utimensat";
        command.args(["-f", "-qq", "-y", "-s", "0", "-e", calls, "-o", text(&log)]);
        // strace prints paths whole, whatever its option -s says of other strings.
        command.arg(env!("CARGO_BIN_EXE_braid"));
        command.args(array.command_line(&[&["rescue"], words].concat(), &left));
        command.env("BRAID_RUNTIME_DIR", array.runtime()).env("LC_ALL", "C");
        let ran = Background::spawn_command(command, "").wait();
        assert!(matches!(ran.status.code(), Some(0 | 3)), "{words:?}: {ran:?}");
        let calls = fs::read_to_string(&log).expect("a log");
        let mut opened = 0;
        for member in &left {
            let (descriptor, path) =
                (format!("<{}>", text(member)), format!("\"{}\"", text(member)));
            for line in
                calls.lines().filter(|line| line.contains(&descriptor) || line.contains(&path))
            {
                let is_open = line.contains("open");
                let is_for_reading = line.contains("O_RDONLY") && !line.contains("O_TRUNC");
                assert!(is_open && is_for_reading, "{words:?}: {line}");
                opened += 1;
            }
        }
        assert!(opened >= left.len(), "{words:?}: {opened} opened");
        assert!(contents(&left) == before, "{words:?}: a member was written");
    }
}

impl Array {
    /// Discards the overlay, which must exist.
    fn follow_discard(&self, members: &[PathBuf]) {
        let ran = self.braid(&["rescue", "--discard"], members);
        assert!(ran.status.success(), "{ran:?}");
    }
}
