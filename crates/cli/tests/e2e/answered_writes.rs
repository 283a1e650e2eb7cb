//! Acknowledged writes that members lack after a kill: the next server writes them.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::kit::{Array, Client, RAID_5, RAID_6, ServerProcess, Shape, assert_same, random_bytes};

const MEMORY: &str = "/dev/shm";
/// Options with which no write reaches the members because of its age.
const LAZY: [&str; 4] = ["--cache", "writeback", "--dirty-age", "3600000"];
const BLOCK: usize = 4096;

/// An array whose runtime folder is in memory; `None` without such a file system.
fn array(shape: Shape) -> Option<(Array, TempDir)> {
    if !Path::new(MEMORY).is_dir() {
        braid_test_needs::skip(braid_test_needs::Need::Other, "there is no /dev/shm");
        return None;
    }
    let memory = tempfile::Builder::new().prefix("braid-e2e-").tempdir_in(MEMORY);
    let memory = memory.expect("a folder in memory");
    Some((Array::create(shape).found_in(&memory.path().join("run")), memory))
}

/// Writes blocks far apart, some of them twice; returns the array's content.
fn load(served: &ServerProcess, seed: u64) -> Vec<u8> {
    let mut client = Client::connect(&served.socket, Duration::from_secs(30));
    let mut content = vec![0; served.length()];
    for round in 0..2 {
        for block in (0..60).step_by(1 + round) {
            let offset = block * 5 * BLOCK + 512 * (block % 3);
            let bytes =
                random_bytes(seed + (round * 100 + block) as u64, BLOCK + 512 * (block % 2));
            client.write(offset as u64, &bytes);
            content[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
    }
    content
}

/// Names of the files in the runtime folder that hold acknowledged writes.
fn files(memory: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(memory.path().join("run")).expect("the runtime folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().display().to_string());
    names.filter(|name| name.contains(".answered")).collect()
}

fn outlives(shape: Shape) {
    let Some((array, memory)) = array(shape) else { return };
    let served = array.serve_with(&LAZY, &array.present());
    let content = load(&served, 1);
    served.kill();
    let mut served = array.serve();
    let written = served.wait_for("answered-writes-written");
    assert!(written["bytes"].as_u64().is_some_and(|bytes| bytes >= 60 * BLOCK as u64), "{written}");
    assert_same(&served.read_all(&array), &content, "what was answered");
    served.stop();
    assert_eq!(files(&memory), [""; 0], "nothing is left of a server that stopped");
    let served = array.serve();
    assert!(served.events("answered-writes-written").is_empty());
    assert_same(&served.read_all(&array), &content, "what was answered, after a stop");
    served.stop();
}

/// Regression: after a kill under early acknowledgements the next server read old bytes.
#[test]
fn what_was_answered_outlives_a_killed_server_raid_5() {
    outlives(RAID_5);
}

#[test]
fn what_was_answered_outlives_a_killed_server_raid_6() {
    outlives(RAID_6);
}

/// Early acknowledgement is the default only if acknowledged writes outlive the server.
#[test]
fn writes_are_answered_early_by_default_where_they_outlive_the_server() {
    let Some((array, _memory)) = array(RAID_5) else { return };
    let served = array.serve_with(&["--dirty-age", "3600000"], &array.present());
    let content = load(&served, 3);
    served.kill();
    // A container's memory may end with the server.
    let waits = array.default_cache() == "writethrough";
    let served = array.serve();
    assert_eq!(served.events("answered-writes-written").is_empty(), waits);
    assert_same(&served.read_all(&array), &content, "what was answered");
    served.stop();
    // With the runtime folder on a disk the server acknowledges late, so it prints no warning.
    let elsewhere = array.path("run");
    let array = array.found_in(&elsewhere);
    let served = array.serve();
    assert!(served.events("answered-writes-end").is_empty());
    served.stop();
}

/// A server that did not find the file of acknowledged writes has written to the array since.
#[test]
fn answered_writes_of_before_another_server_wrote_are_lost_by_name() {
    let Some((array, memory)) = array(RAID_5) else { return };
    let served = array.serve_with(&LAZY, &array.present());
    load(&served, 2);
    served.kill();
    let elsewhere = array.path("run");
    let array = array.found_in(&elsewhere);
    let served = array.serve();
    let mut client = Client::connect(&served.socket, Duration::from_secs(30));
    client.write(0, &random_bytes(9, 1 << 20));
    drop(client);
    let content = served.read_all(&array);
    served.stop();
    let array = array.found_in(&memory.path().join("run"));
    let mut served = array.serve();
    let lost = served.wait_for("answered-writes-lost");
    assert!(lost["path"].as_str().is_some_and(|path| path.ends_with(".answered.lost")), "{lost}");
    assert_same(&served.read_all(&array), &content, "as the other server left it");
    served.stop();
}

/// Two successive servers are killed as soon as they serve, with nothing flushed.
#[test]
fn what_was_answered_outlives_one_killed_server_after_the_other() {
    let Some((array, _memory)) = array(RAID_5) else { return };
    let served = array.serve_with(&LAZY, &array.present());
    let content = load(&served, 3);
    served.kill();
    for _ in 0..3 {
        array.serve_with(&LAZY, &array.present()).kill();
    }
    let served = array.serve();
    assert_same(&served.read_all(&array), &content, "what was answered");
    served.stop();
}

/// An invalid file of acknowledged writes is not skipped: clients rely on its writes.
#[test]
fn answered_writes_that_cannot_be_read_keep_the_array_from_being_served() {
    let Some((array, memory)) = array(RAID_5) else { return };
    let served = array.serve_with(&LAZY, &array.present());
    load(&served, 4);
    served.kill();
    let [name] = &files(&memory)[..] else { panic!("{:?}", files(&memory)) };
    let path = memory.path().join("run").join(name);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
    std::os::unix::fs::FileExt::write_all_at(&file, b"garbage!", 0).expect("the file");
    let refusal = array.serve_refused(&[], &array.present());
    refusal.is("B122", 12);
    array.follow(&refusal.json, "Discard the acknowledged writes in this file");
    assert!(!path.exists());
    array.serve().stop();
}
