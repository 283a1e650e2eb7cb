//! A write-intent bitmap created, dropped and resized while clients write, and refused changes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::control::{check, said, status};
use crate::jobs::{done, refused};
use crate::kit::{
    Array, Client, FaultFs, Hang, Mount, Need, RAID_0, RAID_1, RAID_5, RAID_6, ServerProcess,
    Shape, skip, wait_until,
};
use crate::members::{MEMBER_BYTES, blank, text};
use crate::remedies::refusal;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: usize = 48;

pub(crate) fn without_bitmap(shape: Shape) -> Array {
    Array::create_with("tank", shape, "16M", &["--consistency", "resync"])
}

pub(crate) fn kept(array: &Array) -> (String, Option<u64>) {
    let settings = done(array, &["get", "tank"])["settings"].take();
    let word = settings["consistency"].as_str().expect("a word").to_owned();
    (word, settings["bitmap-chunk"].as_u64())
}

pub(crate) fn set(array: &Array, words: &[&str]) -> Value {
    let answer = done(array, &[&["set", "tank"], words].concat());
    check("SettingsAnswer", &answer);
    answer
}

/// For each block the seeds of the contents it may have: the last flushed content, then each
/// content written since. A kill before the flush leaves any of these contents, and so does the
/// next kill.
pub(crate) type Blocks = Arc<Mutex<Vec<Vec<u8>>>>;

pub(crate) fn zeroed_blocks() -> Blocks {
    Arc::new(Mutex::new(vec![vec![0]; BLOCKS]))
}

pub(crate) fn block(number: u64, seed: u8) -> Vec<u8> {
    crate::kit::random_bytes(number << 8 | u64::from(seed), BLOCK_BYTES)
}

/// A client that writes and flushes block after block, until `is_over` is set or its server ends.
pub(crate) fn writes(
    served: &ServerProcess,
    blocks: &Blocks,
    is_over: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    let mut client = Client::connect(&served.socket, PATIENCE);
    let (blocks, is_over) = (Arc::clone(blocks), Arc::clone(is_over));
    std::thread::spawn(move || {
        let mut random = fastrand::Rng::with_seed(7);
        while !is_over.load(Ordering::Acquire) {
            let (at, seed) = (random.usize(..BLOCKS), random.u8(1..));
            let number = at as u64;
            blocks.lock().expect("no panic under this lock")[at].push(seed);
            client.write(number * BLOCK_BYTES as u64, &block(number, seed));
            client.flush();
            blocks.lock().expect("no panic under this lock")[at] = vec![seed];
        }
    })
}

/// Checks that flushed content can be read; a block in flight may have any later content.
pub(crate) fn assert_there(served: &ServerProcess, blocks: &Blocks) {
    let mut client = Client::connect(&served.socket, PATIENCE);
    for (number, seeds) in (0..).zip(blocks.lock().expect("no panic under this lock").iter()) {
        let found = client.read(number * BLOCK_BYTES as u64, BLOCK_BYTES).expect("an answer");
        let contents: Vec<Vec<u8>> = seeds
            .iter()
            .map(|seed| match seed {
                0 => vec![0; BLOCK_BYTES],
                seed => block(number, *seed),
            })
            .collect();
        // A write cut off in the middle leaves bytes of several contents.
        let is_there = (0..BLOCK_BYTES)
            .all(|byte| contents.iter().any(|content| content[byte] == found[byte]));
        assert!(is_there, "block {number} has none of the contents {seeds:?}");
    }
}

#[test]
fn a_bitmap_comes_and_goes_under_a_client_and_what_was_flushed_survives_a_kill() {
    for shape in [RAID_1, RAID_5, RAID_6] {
        let array = without_bitmap(shape);
        let blocks = zeroed_blocks();
        let policies = [
            (&["consistency=bitmap"][..], Some(64 << 20)),
            (&["bitmap-chunk=64K"], Some(64 << 10)),
            (&["consistency=resync"], None),
            (&["consistency=bitmap", "bitmap-chunk=1M"], Some(1 << 20)),
            (&["consistency=none"], None),
            (&["consistency=internal", "bitmap-chunk=128K"], Some(128 << 10)),
        ];
        let mut had = ("resync".to_owned(), None);
        for round in 0..2 {
            let served = array.serve();
            assert_eq!(kept(&array), had, "it is as it was before the restart");
            assert_there(&served, &blocks);
            if round > 0 {
                // The dirty regions are resynced, and then redundancy agrees.
                done(&array, &["wait", "tank", "--timeout", "60"]);
                let found = done(&array, &["check", "tank"]);
                assert_eq!(found["check"]["differing_sectors"], 0, "{found}");
            }
            let is_over = Arc::new(AtomicBool::new(false));
            let writer = writes(&served, &blocks, &is_over);
            for (words, chunk) in &policies[round * 3..][..3] {
                let would = set(&array, &[&["-n"], *words].concat());
                assert_eq!((&would["dry_run"], kept(&array)), (&true.into(), had.clone()));
                let changed = set(&array, words);
                assert_eq!(would["changed"], changed["changed"]);
                assert_ne!(changed["changed"], serde_json::json!({}), "{changed}");
                let word = if chunk.is_some() { "bitmap" } else { "resync" };
                had = (word.to_owned(), *chunk);
                assert_eq!(kept(&array), had);
                let one = status(&array, "tank");
                assert_eq!(one["bitmap"]["bit_bytes"].as_u64(), *chunk, "{one}");
                assert_eq!(
                    set(&array, words)["changed"],
                    serde_json::json!({}),
                    "it is so already"
                );
                std::thread::sleep(Duration::from_millis(100));
            }
            served.kill();
            is_over.store(true, Ordering::Release);
            let _cut = writer.join();
        }
        let served = array.serve();
        assert_eq!(kept(&array), had);
        assert_there(&served, &blocks);
        done(&array, &["wait", "tank", "--timeout", "60"]);
        assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0);
        served.stop();
    }
}

/// A bitmap created on a running array works like one created with the array.
#[test]
fn a_member_that_was_away_catches_up_by_a_bitmap_that_was_made_since() {
    let array = without_bitmap(RAID_5);
    let served = array.serve();
    set(&array, &["consistency=bitmap", "bitmap-chunk=64K"]);
    let mut client = Client::connect(&served.socket, PATIENCE);
    done(&array, &["fail", "tank", "1"]);
    client.write(1 << 20, &block(3, 9));
    client.flush();
    let member = text(&array.members[1]);
    done(&array, &["remove", "tank", member]);
    let added = done(&array, &["add", "tank", member]);
    assert_eq!(added["members"][0]["effect"], "catches-up", "{added}");
    crate::members::wait_for_rebuild(&array);
    assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0);
    drop(client);
    served.stop();
}

#[test]
fn what_an_array_keeps_for_a_crash_is_shown() {
    for (shape, words, word, shown) in [
        (RAID_5, &["--consistency", "resync"][..], "resync", "a crash needs a full resync"),
        (RAID_5, &["--consistency", "ppl"], "ppl", "go to parity logs first"),
        (RAID_6, &["--consistency", "log"], "log", "go to parity logs first"),
        (RAID_5, &["--consistency", "bitmap"], "bitmap", "one for 64M"),
        (RAID_5, &[], "log", "go to parity logs first"),
        (RAID_1, &[], "bitmap", "one for 64M"),
        (RAID_0, &[], "none", "RAID-0"),
    ] {
        let array = Array::create_with("tank", shape, "16M", words);
        let served = array.serve();
        assert_eq!(kept(&array).0, word);
        let ran = said(&array, &["status", "tank"]);
        assert!(ran.stdout.contains(shown), "{ran:?}");
        let ran = said(&array, &["get", "tank", "consistency"]);
        assert_eq!(ran.stdout.trim(), word);
        served.stop();
    }
}

#[test]
fn a_bitmap_is_refused_with_what_to_do_and_nothing_is_changed() {
    // The array's level allows no bitmap.
    let array = Array::create(RAID_0);
    let served = array.serve();
    refused(&array, &["set", "tank", "consistency=bitmap"], "B042", 12);
    served.stop();
    // The array is served read-only.
    let array = without_bitmap(RAID_5);
    let served = array.serve_with(&["--read-only"], &array.members);
    let error = refusal(&array, &["set", "tank", "consistency=bitmap"], &[]);
    assert_eq!(error["code"], "B048", "{error}");
    array.follow(&error, "Stop it, and serve it without --read-only");
    drop(served);
    let served = array.serve();
    // The requested bitmap settings are invalid.
    for words in [
        &["consistency=perhaps"][..],
        &["consistency=bitmap", "bitmap-chunk=3K"],
        &["consistency=bitmap", "dirty-age=100"],
        &["consistency=bitmap", "bitmap-chunk=2K"],
    ] {
        refused(&array, &[&["set", "tank"], words].concat(), "B001", 2);
    }
    assert_eq!(kept(&array), ("resync".to_owned(), None), "nothing was changed");
    // The setting gives the size of a bit, but the array has no bitmap.
    let error = refusal(&array, &["set", "tank", "bitmap-chunk=128K"], &[]);
    assert_eq!(error["code"], "B018", "{error}");
    array.follow(&error, "Make one");
    assert_eq!(kept(&array), ("bitmap".to_owned(), Some(128 << 10)));
    served.stop();
}

#[test]
fn a_bitmap_without_room_is_made_by_the_command_that_is_offered() {
    let words = ["--consistency", "resync"];
    let array = Array::create_with("tank", RAID_1, "256M", &words);
    let served = array.serve();
    let words = ["set", "tank", "consistency=bitmap", "bitmap-chunk=4K"];
    let error = refusal(&array, &words, &[]);
    assert_eq!(error["code"], "B005", "{error}");
    assert_eq!(kept(&array), ("resync".to_owned(), None), "nothing was changed");
    array.follow(&error, "Use fewer bits, which fit");
    assert_eq!(kept(&array).0, "bitmap");
    served.stop();
}

/// An array needs its bitmap for an absent member that may return, and for regions to be resynced.
#[test]
fn a_bitmap_that_is_needed_is_given_up_after_the_command_that_is_offered() {
    let array = Array::with_bitmap(RAID_5);
    let served = array.serve();
    let words = ["set", "tank", "consistency=resync"];
    let resize = ["set", "tank", "bitmap-chunk=64K"];
    let new = waits_for_a_rebuild(&array, &words, &resize);
    done(&array, &resize);
    // The server is killed after a write.
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &block(1, 1));
    client.flush();
    served.kill();
    let members = [&array.members[..1], &array.members[2..], &[new]].concat();
    let served = array.serve_with(&["--jobs", "paused"], &members);
    let error = refusal(&array, &words, &[]);
    assert_eq!(error["code"], "B018", "{error}");
    done(&array, &["resume", "tank"]);
    array.follow(&error, "Wait until it is resynced");
    assert_eq!(set(&array, &["consistency=resync"])["settings"]["consistency"], "resync");
    served.stop();
}

/// A silent member delays a change of policy, but no client; `status` then has this key.
pub(crate) fn waits_for_a_member(policy: &str, key: &str) {
    let mut array = without_bitmap(RAID_5);
    let files = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten();
    let Some(files) = files else { return skip(Need::Fuse, "no FUSE can be mounted here") };
    array.members = files.files();
    let served = array.serve_with(&["--io", "threads"], &array.members);
    let let_go = files.let_go_at_end();
    files.hang(1, Hang::Both);
    let error = refusal(&array, &["set", "tank", &format!("consistency={policy}")], &[]);
    assert_eq!(error["code"], "B019", "{error}");
    drop(let_go);
    wait_until("the change", PATIENCE, || !status(&array, "tank")[key].is_null());
    let looked = array.follow(&error, "See its present state");
    assert_eq!(looked.stdout.trim(), policy);
    served.stop();
}

#[test]
fn a_bitmap_waits_for_a_member_that_does_not_answer() {
    waits_for_a_member("bitmap", "bitmap");
}

/// Checks that a policy change is refused while a member is out or recovers, and then succeeds.
pub(crate) fn waits_for_a_rebuild(array: &Array, first: &[&str], then: &[&str]) -> PathBuf {
    done(array, &["fail", "tank", "1"]);
    let error = refusal(array, first, &[]);
    assert_eq!(error["code"], "B018", "{error}");
    let new = blank(array, "new", MEMBER_BYTES);
    done(array, &["set", "tank", "job-ceiling=0B"]);
    array.follow_with(&error, "Put a device in its place", &[("DEVICE", text(&new))]);
    wait_until("a rebuild", PATIENCE, || {
        status(array, "tank")["slots"][1]["state"] == "recovering"
    });
    let error = refusal(array, then, &[]);
    done(array, &["set", "tank", "job-ceiling=none"]);
    array.follow(&error, "Wait until it is rebuilt");
    new
}
