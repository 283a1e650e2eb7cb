//! A bitmap file outside of members, with braid's own log in it for levels with parity: created,
//! served, killed, dropped, lost; and the errors of unsuitable files.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bitmaps::{
    PATIENCE, assert_there, block, kept, set, without_bitmap, writes, zeroed_blocks,
};
use crate::control::status;
use crate::jobs::{done, refused};
use crate::kit::{
    Array, Client, Fail, FaultFs, FileOp, Mount, Need, RAID_0, RAID_1, RAID_5, RAID_6,
    ServerProcess, Shape, skip, wait_until,
};
use crate::members::text;
use crate::remedies::refusal;

const BITMAP: Option<u64> = Some(64 << 20);

/// Settings, and the consistency policy, bytes per bit and bitmap file that result from them.
type Step<'a> = (&'a [&'a str], &'a str, Option<u64>, Option<&'a PathBuf>);

fn serve(array: &Array, file: &Path, members: &[PathBuf]) -> ServerProcess {
    array.serve_with(&["--bitmap-file", text(file)], members)
}

fn file_of(array: &Array) -> Value {
    done(array, &["get", "tank"])["settings"]["bitmap-file"].take()
}

/// Writes, kills the server, and serves again, two times. With a log, the array is served without
/// `withheld` members, as many as the level tolerates.
fn survives_kills(shape: Shape, more: &[&str], (word, withheld): (&str, usize)) {
    let (array, file) = Array::create_with_file(shape, more);
    let found = std::fs::metadata(&file).expect("a file");
    assert!(found.blocks() * 512 >= found.len(), "md takes no file with holes");
    let blocks = zeroed_blocks();
    for round in 0..2 {
        let served = serve(&array, &file, &array.members);
        assert_eq!(
            (kept(&array), file_of(&array)),
            ((word.to_owned(), BITMAP), json!(text(&file)))
        );
        assert_there(&served, &blocks);
        if round > 0 {
            done(&array, &["wait", "tank", "--timeout", "60"]);
            assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = writes(&served, &blocks, &is_over);
        std::thread::sleep(Duration::from_millis(400));
        served.kill();
        is_over.store(true, Ordering::Release);
        let _cut = writer.join();
        // The server is read-only, so that no superblock records the absent members as failed.
        let only = ["--read-only", "--bitmap-file", text(&file)];
        let served = array.serve_with(&only, &array.members[withheld..]);
        assert_there(&served, &blocks);
        served.stop();
    }
}

#[test]
fn a_log_in_a_file_survives_a_kill_without_members() {
    survives_kills(RAID_5, &["--metadata", "1.0"], ("log", 1));
    survives_kills(RAID_6, &[], ("log", 2));
}

#[test]
fn a_bitmap_in_a_file_survives_a_kill() {
    survives_kills(RAID_1, &["--metadata", "1.0"], ("bitmap", 0));
    survives_kills(RAID_5, &["--consistency", "bitmap"], ("bitmap", 0));
}

/// While a client writes, the bitmap moves into a file, to another file, to another size, back to
/// the members, and is then dropped.
#[test]
fn a_bitmap_moves_into_a_file_and_back_under_a_client() {
    let array = without_bitmap(RAID_5);
    let (one, other) = (array.path("one.bitmap"), array.path("other.bitmap"));
    let blocks = zeroed_blocks();
    let served = array.serve();
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = writes(&served, &blocks, &is_over);
    let in_one = format!("bitmap-file={}", text(&one));
    let in_other = format!("bitmap-file={}", text(&other));
    let steps: [Step<'_>; 8] = [
        (&[&in_one], "bitmap", BITMAP, Some(&one)),
        (&["consistency=log"], "log", BITMAP, Some(&one)),
        (&["bitmap-chunk=128K"], "log", Some(128 << 10), Some(&one)),
        (&[&in_other], "log", Some(128 << 10), Some(&other)),
        (&["bitmap-file=none"], "log", BITMAP, None),
        (&["consistency=resync"], "resync", None, None),
        (&["consistency=log", "bitmap-file=third.bitmap"], "log", BITMAP, None),
        (&["consistency=resync"], "resync", None, None),
    ];
    for (words, word, chunk, file) in steps {
        // One of the steps names the bitmap file by a relative name, in the current folder.
        let third = std::path::absolute("third.bitmap").expect("a path");
        let is_third = words.iter().any(|word| word.ends_with("third.bitmap"));
        let would = set(&array, &[&["-n"], words].concat());
        assert!(would["changed"] != json!({}) && !(is_third && third.exists()), "{would}");
        let changed = set(&array, words);
        assert_eq!(would["changed"], changed["changed"]);
        assert_eq!(kept(&array), (word.to_owned(), chunk), "{words:?}");
        let file = if is_third { Some(&third) } else { file };
        assert_eq!(file_of(&array), file.map_or(Value::Null, |file| json!(text(file))));
        assert_eq!(set(&array, words)["changed"], json!({}), "it is so already: {words:?}");
        std::thread::sleep(Duration::from_millis(60));
    }
    // The array no longer uses this bitmap file; before, its loss would have been reported.
    std::fs::remove_file("third.bitmap").expect("it was made there");
    set(&array, &["consistency=log", &format!("bitmap-file={}", array.path("last").display())]);
    served.kill();
    is_over.store(true, Ordering::Release);
    let _cut = writer.join();
    let served = serve(&array, &array.path("last"), &array.members[1..]);
    assert_there(&served, &blocks);
    served.stop();
    // The dropped bitmap file is stale: its event count is behind the members'.
    let looked = array.braid(&["examine"], &[one, array.members[1].clone()]);
    let found: Value = serde_json::from_str(&looked.stdout).expect("an object");
    let events = found["members"][0]["superblocks"][0]["state"]["events"].as_u64();
    assert!(found["bitmap_files"][0]["events"].as_u64() < events, "{found:#}");
}

/// If the bitmap file fails, the array continues; the next start is without the file, and resyncs
/// the regions in flight.
#[test]
fn a_bitmap_file_that_fails_costs_no_client_anything() {
    let (array, file) = Array::create_with_file(RAID_5, &[]);
    let files = Mount::is_possible().then(|| FaultFs::over(std::slice::from_ref(&file))).flatten();
    let Some(files) = files else { return skip(Need::Fuse, "no FUSE can be mounted here") };
    let blocks = zeroed_blocks();
    let served = serve(&array, &files.files()[0], &array.members);
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = writes(&served, &blocks, &is_over);
    std::thread::sleep(Duration::from_millis(200));
    let _let_go = files.let_go_at_end();
    files.fail(0, Fail { file_op: FileOp::Write, bytes: 0..u64::MAX, errno: 5 });
    wait_until("it goes on without", PATIENCE, || kept(&array).0 == "resync");
    assert_eq!(file_of(&array), Value::Null);
    std::thread::sleep(Duration::from_millis(200));
    served.kill();
    is_over.store(true, Ordering::Release);
    let _cut = writer.join();
    let served = array.serve();
    assert_there(&served, &blocks);
    done(&array, &["wait", "tank", "--timeout", "60"]);
    assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0);
    // The array can get a new bitmap file.
    set(&array, &["consistency=log"]);
    assert_eq!(status(&array, "tank")["state"], "ok");
    served.stop();
}

/// The server is killed during writes, then started without the bitmap file, or with an older copy.
#[test]
fn a_bitmap_file_that_is_needed_is_asked_for() {
    let (array, file) = Array::create_with_file(RAID_5, &[]);
    let copy = array.path("copy.bitmap");
    std::fs::copy(&file, &copy).expect("a copy");
    let served = serve(&array, &file, &array.members);
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &block(0, 1));
    client.flush();
    served.kill();
    let error = array.serve_refused(&[], &array.members[1..]);
    error.is("B026", 12);
    let served_so =
        array.follow_with(&error.json, "Best: name its bitmap file, too", &[("FILE", text(&file))]);
    assert!(served_so.stderr.contains("stopped") || served_so.stdout.contains("stopped"));
    // The array continues with the right bitmap file, and stops cleanly.
    let served = serve(&array, &file, &array.members[1..]);
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &block(0, 1));
    served.stop();
    // The older copy of the bitmap file is stale, but after a clean stop it is not needed.
    let served = serve(&array, &copy, &array.members[1..]);
    let mut client = Client::connect(&served.socket, PATIENCE);
    assert_eq!(client.read(0, 64 << 10).expect("an answer"), block(0, 1));
    served.stop();
}

/// All members are from a backup, on a host whose braid has no record of later writes.
#[test]
fn members_that_are_older_than_their_bitmap_file_are_refused() {
    let (array, file) = Array::create_with_file(RAID_5, &[]);
    let read = |member: &PathBuf| std::fs::read(member).expect("a member");
    let old: Vec<Vec<u8>> = array.members.iter().map(read).collect();
    for version in 1..3 {
        let served = serve(&array, &file, &array.members);
        Client::connect(&served.socket, PATIENCE).write(0, &block(0, version));
        served.stop();
    }
    for (member, bytes) in array.members.iter().zip(old) {
        std::fs::write(member, bytes).expect("a member");
    }
    std::fs::remove_dir_all(array.path("state")).expect("what braid remembers");
    let error = array.serve_refused(&["--bitmap-file", text(&file)], &array.members);
    error.is("B028", 12);
    assert!(error.json["cause"].to_string().contains("the members here"), "{}", error.json);
    array.follow(&error.json, "See what it is");
    array.follow(&error.json, "Go on from these, without the writes that they missed");
}

#[test]
fn a_file_that_is_none_of_this_arrays_is_refused_with_what_to_do() {
    let (array, file) = Array::create_with_file(RAID_5, &[]);
    let (other, theirs) = Array::create_with_file(RAID_1, &[]);
    let is_refused = |array: &Array, file: &Path| {
        let error = array.serve_refused(&["--bitmap-file", text(file)], &array.members);
        error.is("B028", 12);
        error.json
    };
    is_refused(&array, &theirs);
    let nothing = array.path("nothing");
    std::fs::write(&nothing, vec![0; 1 << 20]).expect("a file");
    let error = is_refused(&array, &nothing);
    array.follow(&error, "If the array has no bitmap file, serve it without one");
    // `serve` refuses a member as bitmap file, and a missing file.
    array.serve_refused(&["--bitmap-file", text(&array.members[0])], &array.members).is("B011", 12);
    let none = array.path("none");
    let missing = ["--bitmap-file", text(&none)];
    assert_eq!(array.serve_refused(&missing, &array.members).code, "B050");
    // `serve` refuses a bitmap file for an array with its bitmap on its members.
    let with = Array::with_bitmap(RAID_5);
    is_refused(&with, &file);
    // `serve` refuses bitmap versions that md keeps in no file, and invalid values.
    for (at, bytes) in [(4, 6_u32), (4, 9), (52, 3)] {
        let copy = array.path("copy.bitmap");
        std::fs::copy(&file, &copy).expect("a copy");
        let patched = std::fs::OpenOptions::new().write(true).open(&copy).expect("a file");
        patched.write_all_at(&bytes.to_le_bytes(), at).expect("a patch");
        is_refused(&array, &copy);
    }
    drop(other);
}

#[test]
fn a_file_that_cannot_be_had_is_refused_and_nothing_is_changed() {
    let (array, file) = Array::create_with_file(RAID_5, &[]);
    // `create` refuses a file that exists already.
    let line = |level: &str, more: &[&str]| {
        let new: Vec<PathBuf> = (0..3).map(|number| array.path(&format!("n{number}"))).collect();
        let words = [&["create", "new", "--level", level, "--member-size", "16M"], more].concat();
        refusal(&array, &words, &new)
    };
    let error = line("5", &["--bitmap-file", text(&file)]);
    assert_eq!(error["code"], "B012", "{error}");
    // `create` refuses a bitmap file for a level or policy without a bitmap.
    let fresh = array.path("fresh.bitmap");
    for (level, more) in
        [("0", &[][..]), ("5", &["--consistency", "ppl"]), ("1", &["--consistency", "log"])]
    {
        let words = [&["--bitmap-file", text(&fresh)], more].concat();
        let error = line(level, &words);
        if level != "1" {
            assert_eq!(error["code"], "B001", "{error}");
        }
        assert!(!fresh.exists() && !array.path("n0").exists());
    }
    let error = line("0", &["--bitmap-file", text(&fresh)]);
    let made = array.follow(&error, "Without the file");
    assert!(made.stdout.contains("new"), "{made:?}");
    // `set` on a running array refuses an existing file and an unfit policy.
    let served = serve(&array, &file, &array.members);
    let at = |path: &Path| format!("bitmap-file={}", text(path));
    let there = array.path("there");
    std::fs::write(&there, "somebody's").expect("a file");
    let error = refusal(&array, &["set", "tank", &at(&there)], &[]);
    assert_eq!(error["code"], "B012", "{error}");
    let error = refusal(&array, &["set", "tank", "consistency=ppl", &at(&fresh)], &[]);
    assert_eq!(error["code"], "B018", "{error}");
    assert_eq!(kept(&array), ("log".to_owned(), BITMAP), "nothing was changed");
    array.follow(&error, "Put a bitmap into it");
    assert_eq!((kept(&array).0, file_of(&array)), ("bitmap".to_owned(), json!(text(&fresh))));
    // The bitmap file is no member: requests about members do not affect it.
    assert_eq!(done(&array, &["remove", "tank", "failed"])["members"], json!([]));
    refused(&array, &["remove", "tank", text(&fresh)], "B049", 1);
    assert_eq!(file_of(&array), json!(text(&fresh)));
    served.stop();
    let none = Array::create(RAID_0);
    let served = none.serve();
    let error = refusal(&none, &["set", "tank", &at(&array.path("never"))], &[]);
    assert_eq!(error["code"], "B042", "{error}");
    assert!(!array.path("never").exists());
    served.stop();
}
