//! Partial parity logs: writes in flight when md was cut off, with a member missing.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use braid_ondisk::{LoggedEntry, PplEntry, PplRecord};
use serde_json::Value;

use crate::jobs::done;
use crate::kit::{Array, Client, RAID_5, RAID_6, Shape, needs, random_bytes};
use crate::members::{MEMBER_BYTES, blank, text, wait_for_rebuild};

const SECTOR: usize = 512;
const SUPERBLOCK: usize = 4096;
/// Sectors from the superblock to the partial parity log, and sectors of this log.
const LOG: (u16, u16) = (56, 264);
/// Bytes of the write in flight: the first bytes of the array, in slot 0, with their parity in slot
/// 3.
const PAGE: usize = 4096;

/// An array as md leaves it when cut off between data and parity.
struct CutOff {
    array: Array,
    /// The array's whole content, with the new bytes.
    expected: Vec<u8>,
    data_offset: usize,
}

fn member(array: &Array, slot: usize) -> Vec<u8> {
    fs::read(&array.members[slot]).expect("a member")
}

fn change(array: &Array, slot: usize, at: usize, bytes: &[u8]) {
    let mut all = member(array, slot);
    all[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(&array.members[slot], all).expect("a member");
}

fn xor(columns: &[&[u8]]) -> Vec<u8> {
    let mut sum = vec![0; columns[0].len()];
    for column in columns {
        sum.iter_mut().zip(*column).for_each(|(to, from)| *to ^= from);
    }
    sum
}

/// Makes an array cut off between data and parity; `spoil` may change the log's entry first.
fn cut_off(spoil: impl Fn(&mut PplEntry)) -> CutOff {
    let array = Array::create_with("tank", RAID_5, "16M", &["--consistency", "resync"]);
    let served = array.serve();
    let length = usize::try_from(served.size_bytes).expect("small");
    let mut expected = random_bytes(7, length);
    served.write_all(&array, &expected);
    served.stop();
    let superblock = &member(&array, 0)[SUPERBLOCK..SUPERBLOCK + 256];
    let number = |at: usize| u64::from_le_bytes(superblock[at..at + 8].try_into().expect("eight"));
    let data_offset = usize::try_from(number(128)).expect("small") * SECTOR;
    assert!(
        data_offset >= (8 + usize::from(LOG.0) + usize::from(LOG.1)) * SECTOR,
        "room for a log"
    );
    let uuid: [u8; 16] = superblock[16..32].try_into().expect("a UUID");
    let features = u32::from_le_bytes(superblock[8..12].try_into().expect("four"));
    let log_at = (8 + usize::from(LOG.0)) * SECTOR;
    let page = |slot: usize| member(&array, slot)[data_offset..data_offset + PAGE].to_vec();
    let partial = xor(&[&page(1), &page(2)]);
    let empty = PplRecord::bytes_of(0, &[], &uuid);
    (0..4).for_each(|slot| change(&array, slot, log_at, &empty));
    let mut entry = PplEntry {
        data_sector: 0,
        parity_bytes: 4096,
        data_bytes: 4096,
        parity_slot: 3,
        checksum: 0,
    };
    spoil(&mut entry);
    let record = PplRecord::bytes_of(1, &[LoggedEntry { entry, partial }], &uuid);
    change(&array, 3, log_at, &record);
    let written = random_bytes(8, PAGE);
    change(&array, 0, data_offset, &written);
    expected[..PAGE].copy_from_slice(&written);
    for slot in 0..4 {
        array.patch_superblock(slot, 8, &(features & !1 | 1024).to_le_bytes(), false);
        array.patch_superblock(slot, 96, &LOG.0.to_le_bytes(), false);
        array.patch_superblock(slot, 98, &LOG.1.to_le_bytes(), false);
        array.patch_superblock(slot, 208, &0_u64.to_le_bytes(), true);
    }
    CutOff { array, expected, data_offset }
}

fn replayed(array: &Array, words: &[&str], members: &[PathBuf]) -> Value {
    let words: Vec<&str> = std::iter::once("replay").chain(words.iter().copied()).collect();
    let ran = array.braid(&words, members);
    assert!(ran.status.success(), "{ran:?}");
    serde_json::from_str(ran.stdout.lines().last().unwrap_or_default()).expect("an object")
}

/// No client writes between the first start and the second.
#[test]
fn what_was_replayed_is_not_replayed_at_the_next_start() {
    needs!("nbdcopy");
    let CutOff { array, .. } = cut_off(|_| {});
    let says_clean = || member(&array, 0)[SUPERBLOCK + 208..SUPERBLOCK + 216] == [0xff; 8];
    assert!(!says_clean());
    let mut served = array.serve();
    assert_eq!(served.wait_for("replayed")["where"], "members");
    served.stop();
    assert!(says_clean(), "it was stopped in order");
    let ran = array.braid(&["replay"], &array.members);
    assert!(ran.stdout.contains("\"replayed\":null"), "{ran:?}");
}

#[test]
fn what_a_log_protects_is_read_without_a_member_and_nothing_is_written() {
    needs!("nbdcopy");
    let CutOff { array, expected, .. } = cut_off(|_| {});
    for lost in [None, Some(1), Some(2), Some(3)] {
        let members = array.without(lost.as_slice());
        let before: Vec<Vec<u8>> = (0..4).map(|slot| member(&array, slot)).collect();
        let mut served = array.serve_with(&["--read-only"], &members);
        let event = served.wait_for("replayed");
        assert_eq!(event["entries"], u64::from(lost != Some(3)), "{event}");
        assert_eq!(
            (&event["where"], &event["unsettled"]),
            (&"memory".into(), &Value::from([0; 0]))
        );
        assert!(served.read_all(&array) == expected, "without slot {lost:?}");
        served.stop();
        let after: Vec<Vec<u8>> = (0..4).map(|slot| member(&array, slot)).collect();
        assert!(before == after, "it is only read");
    }
}

#[test]
fn what_was_being_written_on_a_missing_member_is_named() {
    needs!("nbdcopy");
    let CutOff { array, expected, .. } = cut_off(|_| {});
    let mut served = array.serve_with(&["--read-only"], &array.without(&[0]));
    let event = served.wait_for("replayed");
    assert_eq!(event["unsettled"][0]["offset_bytes"], 0, "{event}");
    assert_eq!(event["unsettled"][0]["length_bytes"], PAGE, "{event}");
    assert!(served.read_all(&array)[PAGE..] == expected[PAGE..], "the rest is as it was");
    served.stop();
}

#[test]
fn a_replay_makes_parity_on_the_members_fit_and_may_be_done_again() {
    needs!("nbdcopy");
    let CutOff { array, data_offset, .. } = cut_off(|_| {});
    let page = |slot: usize| member(&array, slot)[data_offset..data_offset + PAGE].to_vec();
    let fits = || page(3) == xor(&[&page(0), &page(1), &page(2)]);
    assert!(!fits(), "it was cut off");
    let said = replayed(&array, &["-n"], &array.members);
    assert_eq!(said["replayed"]["parity_bytes"], PAGE, "{said}");
    assert!(!fits(), "nothing was written");
    let members = array.without(&[1]);
    let others: Vec<Vec<u8>> = (0..3).map(|slot| member(&array, slot)).collect();
    for _ in 0..2 {
        let said = replayed(&array, &[], &members);
        assert_eq!(said["replayed"]["where"], "members", "{said}");
        assert!(fits());
    }
    assert!(others == (0..3).map(|slot| member(&array, slot)).collect::<Vec<_>>(), "parity alone");
    let examined = array.braid(&["examine"], &array.members[3..]);
    let examined: Value = serde_json::from_str(&examined.stdout).expect("an object");
    let log = &examined["members"][0]["ppl"];
    assert_eq!((&log["generation"], &log["entries"]), (&1.into(), &1.into()), "{log}");
    // A start for writing replays the log first, and keeps a log while it serves.
    let mut served = array.serve_with(&[], &array.members);
    let event = served.wait_for("replayed");
    assert_eq!(event["where"], "members", "{event}");
    served.stop();
    assert!(fits());
}

/// Size of the test's blocks; every second block is written.
const BLOCK: usize = 4096;

/// Checks that blocks in flight are old or new, and all other blocks unchanged.
#[track_caller]
fn assert_nothing_lost(found: &[u8], (before, after): (&[u8], &[u8]), may_be_torn: bool) {
    let blocks = found.chunks(BLOCK).zip(before.chunks(BLOCK)).zip(after.chunks(BLOCK));
    for (index, ((found, before), after)) in blocks.enumerate() {
        let is_known = found == before || found == after;
        assert!(is_known || may_be_torn && index % 2 == 0, "block {index}");
    }
}

/// Kills the server under clients' writes, then removes members: idle blocks keep their content,
/// and the array is served for writing.
fn killed_while_writing((shape, slots, lost_max): (Shape, usize, usize), policy: &str, seed: u64) {
    let array = Array::create_with("tank", shape, "16M", &["--consistency", policy]);
    let served = array.serve();
    let length = usize::try_from(served.size_bytes).expect("small");
    let before = random_bytes(100 + seed, length);
    served.write_all(&array, &before);
    let mut after = before.clone();
    let new = random_bytes(200 + seed, length);
    let mut client = Client::connect(&served.socket, Duration::from_secs(20));
    // Blocks are scattered and adjacent, so that rows have several writes in flight.
    let places = (0..600_usize).map(|n| n * 37 % 300 * 2 * BLOCK);
    for (cookie, at) in (0..).zip(places) {
        after[at..at + BLOCK].copy_from_slice(&new[at..at + BLOCK]);
        client.ask_write(cookie, at as u64, &new[at..at + BLOCK]);
        if cookie > 60 && cookie < 400 {
            client.hear().expect("an answer in time");
        }
    }
    served.kill();
    let all = || -> Vec<Vec<u8>> { (0..slots).map(|slot| member(&array, slot)).collect() };
    for slot in 0..slots {
        let missing: Vec<usize> = (0..lost_max).map(|more| (slot + more) % slots).collect();
        let kept = all();
        let served = array.serve_with(&["--read-only"], &array.without(&missing));
        assert_nothing_lost(&served.read_all(&array), (&before, &after), true);
        served.stop();
        assert!(kept == all(), "it is only read");
    }
    let lost = usize::try_from(seed).expect("small");
    let served = array.serve_with(&[], &array.without(&[lost]));
    let found = served.read_all(&array);
    assert_nothing_lost(&found, (&before, &after), true);
    // A new member gets a log, and later writes are recorded in it.
    let new = blank(&array, "new", MEMBER_BYTES);
    done(&array, &["add", "tank", text(&new)]);
    wait_for_rebuild(&array);
    let mut client = Client::connect(&served.socket, Duration::from_secs(20));
    client.write(0, &after[..BLOCK]);
    client.flush();
    served.kill();
    let missing: Vec<usize> = (0..=lost_max).map(|more| (lost + more) % slots).collect();
    let mut members = array.without(&missing);
    members.push(new);
    let served = array.serve_with(&[], &members);
    let mut expected = found;
    expected[..BLOCK].copy_from_slice(&after[..BLOCK]);
    assert!(served.read_all(&array) == expected, "without others");
    served.stop();
}

#[test]
fn killed_while_writing_nothing_is_lost_with_a_member_missing() {
    needs!("nbdcopy");
    (0..3).for_each(|seed| killed_while_writing((RAID_5, 4, 1), "ppl", seed));
}

/// With braid's own log, on RAID-6 with two members missing.
#[test]
fn with_our_own_log_nothing_is_lost_with_as_many_missing_as_the_level_bears() {
    needs!("nbdcopy");
    killed_while_writing((RAID_5, 4, 1), "log", 1);
    (0..2).for_each(|seed| killed_while_writing((RAID_6, 5, 2), "log", seed));
}

#[test]
fn a_log_that_makes_no_sense_is_refused() {
    needs!("nbdcopy");
    let CutOff { array, .. } = cut_off(|entry| entry.parity_slot = 2);
    array.serve_refused(&["--read-only"], &array.without(&[1])).is("B026", 12);
    array.refused(&["replay"], &array.members).is("B026", 12);
    // The array's resync is incomplete, and a member is missing.
    let CutOff { array, .. } = cut_off(|_| {});
    for slot in 0..4 {
        array.patch_superblock(slot, 208, &1024_u64.to_le_bytes(), true);
    }
    let refusal = array.serve_refused(&["--read-only"], &array.without(&[1]));
    refusal.is("B026", 12);
    assert!(refusal.json.to_string().contains("a resync was not finished"), "{}", refusal.json);
}
