//! md's bad-block logs: reads avoid the listed sectors, a check rewrites them, and a block whose
//! write fails costs only itself.

use std::os::unix::fs::FileExt;
use std::path::Path;

use braid_ondisk::{BadBlockLog, BadRange, Snippet, Superblock, probe, probe_ranges};
use serde_json::Value;

use crate::kit::{
    Array, Client, Fail, FaultFs, FileOp, Mount, Need, RAID_5, RAID_6, ServerProcess, assert_same,
    needs, random_bytes, skip,
};

/// Number of listed blocks: more than fit into one sector of a bad-block log.
const BLOCKS: u64 = 200;
const BLOCK_SECTORS: u64 = 8;

fn superblock(member: &Path) -> Superblock {
    let file = std::fs::File::open(member).expect("a member");
    let size = file.metadata().expect("a member").len();
    let snippet = |range: std::ops::Range<u64>| {
        let length = usize::try_from(range.end - range.start).expect("short");
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, range.start).expect("it is there");
        Snippet { offset: range.start, bytes }
    };
    let snippets: Vec<Snippet> = probe_ranges(size).into_iter().map(snippet).collect();
    probe(size, &snippets).newest().expect("a superblock").clone()
}

/// Lists `count` blocks of a member's data in its bad-block log, every other block, and spoils the
/// content of the listed blocks.
fn name_blocks(member: &Path, count: u64) -> Vec<BadRange> {
    let ranges = name_in_vain(member, count);
    let file = std::fs::File::options().write(true).open(member).expect("a member");
    for range in &ranges {
        file.write_all_at(&[0xBD; 4096], range.start_sector * 512).expect("it is written");
    }
    ranges
}

/// Lists `count` sound blocks of a member's data in its bad-block log, every other block.
fn name_in_vain(member: &Path, count: u64) -> Vec<BadRange> {
    let mut superblock = superblock(member);
    let data = superblock.device.data_offset_sectors;
    let range = |index: u64| BadRange {
        start_sector: data + 2 * index * BLOCK_SECTORS,
        length_sectors: BLOCK_SECTORS,
    };
    let ranges: Vec<BadRange> = (0..count).map(range).collect();
    let place = superblock.device.bad_block_log.expect("it keeps a log");
    let log = BadBlockLog::to_bytes(&ranges, place).expect("there is room");
    let at = superblock.bad_block_log_offset_bytes().expect("it keeps a log");
    superblock.set_bad_blocks(true);
    let file = std::fs::File::options().write(true).open(member).expect("a member");
    file.write_all_at(&log, at).expect("it is written");
    file.write_all_at(&superblock.to_bytes(), superblock.offset_bytes()).expect("it is written");
    ranges
}

fn bad_sectors(array: &Array, slot: usize) -> u64 {
    let ran = array.braid(&["status", "tank"], &[]);
    let status: Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    let slots = status["slots"].as_array().or_else(|| status["arrays"][0]["slots"].as_array());
    slots.expect("slots")[slot]["bad_sectors"].as_u64().expect("a number")
}

/// Runs a check; returns braid's exit status, and the number of sectors still listed.
fn check(array: &Array, words: &[&str]) -> (Option<i32>, u64) {
    let ran = array.braid(&[&["check", "tank"], words].concat(), &[]);
    let said: Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    let named = said["check"]["named_sectors"].as_u64();
    (ran.status.code(), named.unwrap_or_else(|| panic!("{ran:?}")))
}

fn examined(array: &Array, slot: usize) -> usize {
    let ran = array.braid(&["examine"], &array.members[slot..=slot]);
    let said: Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    said["members"][0]["bad_blocks"].as_array().expect("a list").len()
}

fn made_again(words: &[&str]) {
    let array = Array::create(RAID_6);
    let served = array.serve();
    let bytes = random_bytes(11, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(&array, &bytes);
    served.stop();
    name_blocks(&array.members[1], BLOCKS);
    assert_eq!(examined(&array, 1), 200);
    let served = array.serve();
    assert_same(&served.read_all(&array), &bytes, "around what a log names");
    assert_eq!(bad_sectors(&array, 1), BLOCKS * BLOCK_SECTORS);
    assert_eq!(check(&array, words), (Some(0), 0));
    assert_eq!(bad_sectors(&array, 1), 0);
    served.stop();
    assert_eq!(examined(&array, 1), 0);
    // With all tolerated losses, rewritten blocks are read from their own member.
    let served = array.serve_with(&[], &array.without(&[0, 3]));
    assert_same(&served.read_all(&array), &bytes, "with two members missing");
    served.stop();
}

#[test]
fn a_check_makes_again_what_a_long_log_names() {
    needs!("nbdcopy");
    made_again(&[]);
}

#[test]
fn a_repair_makes_again_what_a_long_log_names() {
    needs!("nbdcopy");
    made_again(&["--repair"]);
}

/// Clients overwrite some listed blocks: the log of several sectors is updated, also over a kill.
#[test]
fn a_long_log_is_kept_while_clients_write() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let bytes = random_bytes(12, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(&array, &bytes);
    served.stop();
    name_blocks(&array.members[1], 500);
    let served = array.serve();
    // Clients overwrite the blocks in the first sixteenth of the array.
    let half = bytes.len() / 16;
    let mut client = Client::connect(&served.socket, std::time::Duration::from_secs(30));
    for at in (0..half).step_by(1 << 16) {
        client.write(at as u64, &bytes[at..at + (1 << 16)]);
    }
    client.flush();
    drop(client);
    let left = bad_sectors(&array, 1);
    assert!(left < 500 * BLOCK_SECTORS, "{left}");
    served.kill();
    assert!(examined(&array, 1) > 64, "what was not written is named still");
    let served = array.serve();
    assert_same(&served.read_all(&array), &bytes, "after a kill");
    assert_eq!(check(&array, &[]), (Some(0), 0));
    served.stop();
}

/// Regression: a block whose write failed made its whole member fail.
#[test]
fn a_block_that_takes_no_write_costs_itself() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let bytes = random_bytes(13, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(&array, &bytes);
    served.stop();
    let named = name_blocks(&array.members[1], 3);
    let Some(hanging) = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten()
    else {
        return skip(Need::Fuse, "no FUSE can be mounted here");
    };
    let _let_go = hanging.let_go_at_end();
    let start = named[1].start_sector * 512;
    let bytes_of = start..start + BLOCK_SECTORS * 512;
    hanging.fail(1, Fail { file_op: FileOp::Write, bytes: bytes_of, errno: 5 });
    let served = array.serve_with(&[], &hanging.files());
    assert_eq!(check(&array, &["--repair"]), (Some(3), BLOCK_SECTORS), "one block is left");
    assert_eq!(bad_sectors(&array, 1), BLOCK_SECTORS);
    assert_eq!(served.events("Fail"), Vec::<Value>::new());
    assert_same(&served.read_all(&array), &bytes, "around what is left");
    hanging.let_go();
    assert_eq!(check(&array, &["--repair"]), (Some(0), 0), "the disk found another place for it");
    served.stop();
}

/// Regression: md had copied a bad-block log from one member to another, so both members listed the
/// same sound sectors. Reads of these sectors failed for ever; `status` and `check` recommended
/// each other.
#[test]
fn logs_of_two_members_that_are_wrong_are_tried_and_struck_out() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let bytes = random_bytes(14, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(&array, &bytes);
    served.stop();
    for member in &array.members[..2] {
        name_in_vain(member, 1);
    }
    let served = array.serve();
    let mut client = Client::connect(&served.socket, std::time::Duration::from_secs(30));
    assert_eq!(client.try_read(0, 4096), Err(5), "nobody gives it");
    assert_eq!(check(&array, &[]), (Some(3), 2 * BLOCK_SECTORS));
    let told = array.run_braid(vec!["status".into(), "tank".into()]).stdout;
    assert!(told.contains("braid check tank --retry-bad"), "{told}");
    assert_eq!(check(&array, &["--retry-bad"]), (Some(0), 0));
    assert_eq!((bad_sectors(&array, 0), bad_sectors(&array, 1)), (0, 0));
    drop(client);
    assert_same(&served.read_all(&array), &bytes, "after the logs were tried");
    served.stop();
    assert_eq!((examined(&array, 0), examined(&array, 1)), (0, 0));
}

/// With a member missing, nothing can be compared: the operator may read in spite of the logs.
#[test]
fn an_array_is_rescued_in_spite_of_logs_that_are_wrong() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let bytes = random_bytes(15, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(&array, &bytes);
    served.stop();
    for member in &array.members[..2] {
        name_in_vain(member, 1);
    }
    let left = array.without(&[3]);
    let contents = || -> Vec<Vec<u8>> {
        left.iter().map(|path| std::fs::read(path).expect("a member")).collect()
    };
    let before = contents();
    let served = ServerProcess::rescued(&array, &["--read-only"], &left);
    let mut client = Client::connect(&served.socket, std::time::Duration::from_secs(30));
    assert_eq!(client.try_read(0, 4096), Err(5), "nobody gives it");
    drop(client);
    served.stop();
    let told = array.run_braid([&["rescue".to_owned()][..], &words(&left)].concat());
    assert!(told.stdout.contains("braid rescue --ignore-bad-blocks"), "{told:?}");
    let served = ServerProcess::rescued(&array, &["--read-only", "--ignore-bad-blocks"], &left);
    assert_same(&served.read_all(&array), &bytes, "in spite of the logs");
    served.stop();
    let served = ServerProcess::rescued(&array, &["--ignore-bad-blocks"], &left);
    assert_same(&served.read_all(&array), &bytes, "over the overlay");
    served.stop();
    assert!(contents() == before, "a member was written");
    let ran = array.braid(&["rescue", "--commit"], &left);
    assert!(ran.status.success(), "{ran:?}");
    let served = array.serve_with(&["--read-only"], &left);
    assert_same(&served.read_all(&array), &bytes, "of the members themselves");
    served.stop();
    assert_eq!((examined(&array, 0), examined(&array, 1)), (0, 0));
    let ran = array.braid(&["undo"], &[]);
    assert!(ran.status.success(), "{ran:?}");
    assert!(contents() == before, "it was not taken back");
}

fn words(paths: &[std::path::PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}
