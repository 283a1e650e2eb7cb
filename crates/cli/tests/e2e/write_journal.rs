//! Write journals: writes in flight when md was cut off, with a member or the journal missing.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use braid_ondisk::{JournalMeta, JournalPayload, journal_block_checksum};
use serde_json::Value;

use crate::control::json;
use crate::jobs::{done, refused};
use crate::kit::{
    Array, Client, RAID_4, RAID_5, RAID_6, ServerProcess, assert_same, needs, note, offered,
    random_bytes, wait_until,
};
use crate::members::{assert_whole, blank, filled, text, wait_for_rebuild};

const SECTOR: usize = 512;
const SUPERBLOCK: usize = 4096;
const BLOCK: usize = 4096;
/// Sectors before the journal's ring on its device, and sectors of the ring.
const JOURNAL: (u64, u64) = (2048, 4096);
/// The journal's number among the devices of the array.
const NUMBER: usize = 4;

/// An array as md leaves it when md is cut off.
struct CutOff {
    array: Array,
    journal: PathBuf,
    uuid: [u8; 16],
    /// The array's old content.
    before: Vec<u8>,
    /// The array's content once the journal is replayed.
    expected: Vec<u8>,
    data_offset: usize,
}

/// The journal's device during its construction.
struct Ring {
    bytes: Vec<u8>,
    uuid: [u8; 16],
    position: u64,
    sequence: u64,
}

impl Ring {
    fn append(&mut self, payloads: Vec<JournalPayload>, blocks: &[Vec<u8>]) {
        let (sequence, position_sectors) = (self.sequence, self.position);
        let meta = JournalMeta { sequence, position_sectors, payloads };
        self.sequence += 1;
        for block in std::iter::once(&meta.to_bytes(&self.uuid)).chain(blocks) {
            let at = usize::try_from(JOURNAL.0 + self.position).expect("small") * SECTOR;
            self.bytes[at..at + BLOCK].copy_from_slice(block);
            self.position += 8;
        }
    }

    fn data(&self, location: u64, block: &[u8]) -> JournalPayload {
        JournalPayload::Data {
            location,
            checksums: vec![journal_block_checksum(&self.uuid, block)],
        }
    }

    fn parity(&self, location: u64, block: &[u8]) -> JournalPayload {
        let checksums = vec![journal_block_checksum(&self.uuid, block)];
        JournalPayload::Parity { location, checksums }
    }
}

fn member(array: &Array, slot: usize) -> Vec<u8> {
    fs::read(&array.members[slot]).expect("a member")
}

fn xor(columns: &[&[u8]]) -> Vec<u8> {
    let mut sum = vec![0; columns[0].len()];
    for column in columns {
        sum.iter_mut().zip(*column).for_each(|(to, from)| *to ^= from);
    }
    sum
}

fn number(superblock: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(superblock[at..at + 8].try_into().expect("eight"))
}

/// Writes the checksum into a version 1 superblock with 128 roles.
fn sealed(mut superblock: Vec<u8>) -> Vec<u8> {
    let sum = braid_ondisk::checksum_v1(&superblock).expect("a superblock");
    superblock[216..220].copy_from_slice(&sum.to_le_bytes());
    superblock
}

fn cut_off() -> CutOff {
    let array = Array::create_with("tank", RAID_5, "16M", &["--consistency", "resync"]);
    let served = array.serve();
    let length = usize::try_from(served.size_bytes).expect("small");
    let before = random_bytes(7, length);
    served.write_all(&array, &before);
    served.stop();
    let mut superblock = member(&array, 0)[SUPERBLOCK..SUPERBLOCK + 4096].to_vec();
    let data_offset = usize::try_from(number(&superblock, 128)).expect("small") * SECTOR;
    let chunk = number(&superblock, 88) & u64::from(u32::MAX);
    let uuid: [u8; 16] = superblock[16..32].try_into().expect("a UUID");
    let features = number(&superblock, 8) & u64::from(u32::MAX) | 512;
    let features = &features.to_le_bytes()[..4];
    for slot in 0..4 {
        array.patch_superblock(slot, 8, features, false);
        array.patch_superblock(slot, 256 + 2 * NUMBER, &0xfffd_u16.to_le_bytes(), true);
    }
    // The journal's superblock: a copy of slot 0's superblock, with the fields of a journal.
    superblock[8..12].copy_from_slice(features);
    superblock[256 + 2 * NUMBER..][..2].copy_from_slice(&0xfffd_u16.to_le_bytes());
    for (at, value) in [(128, JOURNAL.0), (136, JOURNAL.1), (152, 0)] {
        superblock[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    superblock[160..164].copy_from_slice(&4_u32.to_le_bytes());
    superblock[168..184].fill(77);
    let device = usize::try_from(JOURNAL.0 + JOURNAL.1).expect("small") * SECTOR;
    let mut ring = Ring { bytes: vec![0; device], uuid, position: 0, sequence: 10 };
    ring.bytes[SUPERBLOCK..SUPERBLOCK + 4096].copy_from_slice(&sealed(superblock));

    // The data of row 0 are in slots 0 to 2; blocks 0, 1 and 2 of the row are written.
    let block = |slot: usize, index: usize| {
        let at = data_offset + index * BLOCK;
        member(&array, slot)[at..at + BLOCK].to_vec()
    };
    let mut expected = before.clone();
    let mut location = |slot: u64, index: u64, bytes: &[u8]| {
        let sector = slot * chunk + index * 8;
        let at = usize::try_from(sector).expect("small") * SECTOR;
        expected[at..at + BLOCK].copy_from_slice(bytes);
        sector
    };
    ring.append(Vec::new(), &[]);
    // Block 0 is journaled with parity; members have none of its bytes.
    let new = random_bytes(10, BLOCK);
    let parity = xor(&[&new, &block(1, 0), &block(2, 0)]);
    let payloads = vec![ring.data(location(0, 0, &new), &new), ring.parity(0, &parity)];
    ring.append(payloads, &[new, parity]);
    // Block 1 is journaled with parity; its member already has the data.
    let new = random_bytes(11, BLOCK);
    let parity = xor(&[&block(0, 1), &new, &block(2, 1)]);
    let payloads = vec![ring.data(location(1, 1, &new), &new), ring.parity(8, &parity)];
    ring.append(payloads, &[new.clone(), parity]);
    let mut bytes = member(&array, 1);
    bytes[data_offset + BLOCK..data_offset + 2 * BLOCK].copy_from_slice(&new);
    fs::write(&array.members[1], bytes).expect("a member");
    // Block 2 is acknowledged in write-back mode: journaled without parity.
    let new = random_bytes(12, BLOCK);
    let payloads = vec![ring.data(location(2, 2, &new), &new)];
    ring.append(payloads, &[new]);
    // Block 3 is torn: its meta block is whole, its data is not.
    let new = random_bytes(13, BLOCK);
    let payloads = vec![ring.data(3 * 8, &new)];
    ring.append(payloads, &[random_bytes(14, BLOCK)]);

    let journal = array.path("journal.img");
    fs::write(&journal, ring.bytes).expect("the journal");
    CutOff { array, journal, uuid, before, expected, data_offset }
}

fn examined(array: &Array, journal: &PathBuf) -> Value {
    let ran = array.braid(&["examine"], std::slice::from_ref(journal));
    let said: Value = serde_json::from_str(&ran.stdout).expect("an object");
    said["members"][0]["journal"].clone()
}

impl CutOff {
    /// Members except those in `without`, and the journal.
    fn with_journal(&self, without: &[usize]) -> Vec<PathBuf> {
        let mut members = self.array.without(without);
        members.push(self.journal.clone());
        members
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        let all = self.with_journal(&[]);
        all.iter().map(|path| fs::read(path).expect("a device")).collect()
    }

    fn replayed(&self, words: &[&str], members: &[PathBuf]) -> Value {
        let words: Vec<&str> = std::iter::once("replay").chain(words.iter().copied()).collect();
        let ran = self.array.braid(&words, members);
        assert!(ran.status.success(), "{ran:?}");
        let said: Value =
            serde_json::from_str(ran.stdout.lines().last().unwrap_or_default()).expect("an object");
        said["replayed"].clone()
    }

    fn examined(&self) -> Value {
        examined(&self.array, &self.journal)
    }

    fn reads(&self, members: &[PathBuf]) -> Vec<u8> {
        let served = self.array.serve_with(&["--read-only"], members);
        let read = served.read_all(&self.array);
        served.stop();
        read
    }
}

#[test]
fn what_a_journal_has_is_read_without_a_member_and_nothing_is_written() {
    needs!("nbdcopy");
    let cut = cut_off();
    let before = cut.bytes();
    for lost in [None, Some(0), Some(1), Some(2), Some(3)] {
        let members = cut.with_journal(lost.as_slice());
        let mut served = cut.array.serve_with(&["--read-only"], &members);
        let event = served.wait_for("replayed");
        let counts = (&event["journal_stripes"], &event["pending_stripes"], &event["where"]);
        assert_eq!(counts, (&3.into(), &1.into(), &"memory".into()), "{event}");
        assert!(served.read_all(&cut.array) == cut.expected, "without slot {lost:?}");
        served.stop();
        assert!(before == cut.bytes(), "it is only read");
    }
}

/// The journal that md left is replayed, and the array continues with it, with any member missing.
#[test]
fn an_array_that_md_left_goes_on_with_its_journal() {
    needs!("nbdcopy");
    for lost in [None, Some(1)] {
        let cut = cut_off();
        let members = cut.with_journal(lost.as_slice());
        let mut served = cut.array.serve_with(&[], &members);
        let event = served.wait_for("replayed");
        let counts = (&event["journal_stripes"], &event["pending_stripes"], &event["where"]);
        assert_eq!(counts, (&3.into(), &1.into(), &"members".into()), "{event}");
        assert!(served.read_all(&cut.array) == cut.expected, "without slot {lost:?}");
        let new = random_bytes(21, cut.expected.len());
        served.write_all(&cut.array, &new);
        served.kill();
        let served = cut.array.serve_with(&[], &members);
        assert!(served.read_all(&cut.array) == new, "killed, without slot {lost:?}");
        served.stop();
        let said = cut.examined();
        assert_eq!((&said["used_sectors"], &said["data_blocks"]), (&8.into(), &0.into()), "{said}");
        if let Some(slot) = lost {
            // The lost member has missed all replayed and later writes, and is now stale.
            let mut served = cut.array.serve_with(&["--read-only"], &cut.with_journal(&[]));
            let event = served.wait_for("assembled");
            assert_eq!(event["degraded_slots"], 1, "{event}");
            assert!(served.read_all(&cut.array) == new, "slot {slot} is stale");
            served.stop();
        }
    }
}

fn copies(devices: &[PathBuf]) -> Vec<Vec<u8>> {
    devices.iter().map(|path| fs::read(path).expect("a device")).collect()
}

#[test]
fn what_goes_through_a_journal_is_whole_after_a_kill_whoever_is_missing() {
    needs!("nbdcopy");
    for shape in [RAID_4, RAID_5, RAID_6] {
        let (array, journal) = Array::create_journaled(shape, "8M");
        let devices: Vec<PathBuf> = array.members.iter().chain([&journal]).cloned().collect();
        let served = array.serve_with(&["--cache", "writethrough"], &devices);
        let length = usize::try_from(served.size_bytes).expect("small");
        let mut expected = random_bytes(3, length);
        served.write_all(&array, &expected);
        let mut client = Client::connect(&served.socket, Duration::from_secs(20));
        // The writes have all sizes, also within sectors, and in total more bytes than the journal
        // holds.
        let mut numbers = random_bytes(4, 8 * 400).into_iter();
        for _ in 0..400 {
            let mut number = |below: usize| {
                let bytes: Vec<u8> = numbers.by_ref().take(4).collect();
                let number = u32::from_le_bytes(bytes.try_into().expect("four"));
                usize::try_from(number).expect("small") % below
            };
            let (at, most) = (number(length - 1), 1 + number(70_000));
            let end = (at + most).min(length);
            let bytes = random_bytes(at as u64, end - at);
            client.write(at as u64, &bytes);
            expected[at..end].copy_from_slice(&bytes);
        }
        drop(client);
        served.kill();
        let left = copies(&devices);
        let log = examined(&array, &journal);
        assert!(log["data_blocks"].as_u64().is_some_and(|blocks| blocks > 0), "{log}");
        assert_eq!(log["mode"], Value::Null, "nothing that only write-back leaves: {log}");
        let withheld: Vec<Vec<usize>> = match shape.level {
            "6" => vec![vec![], vec![0, 1], vec![2, 4]],
            _ => vec![vec![], vec![0], vec![shape.members - 1]],
        };
        for without in withheld {
            let state = array.path("state");
            fs::remove_dir_all(&state).expect("what is known of it");
            devices
                .iter()
                .zip(&left)
                .for_each(|(path, bytes)| fs::write(path, bytes).expect("put back"));
            let mut here = array.without(&without);
            here.push(journal.clone());
            let served = array.serve_with(&[], &here);
            assert!(
                served.read_all(&array) == expected,
                "RAID-{} without {without:?}",
                shape.level
            );
            let new = random_bytes(9, length);
            served.write_all(&array, &new);
            served.stop();
            let log = examined(&array, &journal);
            assert_eq!(
                (&log["used_sectors"], &log["data_blocks"]),
                (&8.into(), &0.into()),
                "{log}"
            );
            let served = array.serve_with(&[], &here);
            assert!(served.read_all(&array) == new, "RAID-{} goes on", shape.level);
            served.stop();
        }
    }
}

/// md also refuses writes to an array whose journal has failed.
#[test]
fn an_array_whose_journal_fails_takes_no_writes_and_loses_nothing() {
    needs!("nbdcopy");
    let (array, journal) = Array::create_journaled(RAID_5, "8M");
    let devices: Vec<PathBuf> = array.members.iter().chain([&journal]).cloned().collect();
    let mut served = array.serve_with(&[], &devices);
    let length = usize::try_from(served.size_bytes).expect("small");
    let bytes = random_bytes(3, length);
    served.write_all(&array, &bytes);
    // Waits until the array is idle and its superblocks say clean.
    wait_until("the journal to be empty", Duration::from_secs(20), || {
        examined(&array, &journal)["used_sectors"] == 8
    });
    std::thread::sleep(Duration::from_secs(1));
    let left = fs::read(&journal).expect("the journal");
    fs::remove_file(&journal).expect("it goes away");
    let lost = served.wait_for("Broken");
    assert!(
        lost["subject"]["member"].as_str().is_some_and(|name| name.ends_with("journal.img")),
        "{lost}"
    );
    let mut client = Client::connect(&served.socket, Duration::from_secs(20));
    assert_eq!(client.try_write(4096, &[1; 4096]), 5, "an I/O error");
    assert!(served.read_all(&array) == bytes, "it is read as ever");
    served.signal(rustix::process::Signal::TERM);
    served.wait();
    fs::write(&journal, left).expect("it is back");
    let served = array.serve_with(&[], &devices);
    assert!(served.read_all(&array) == bytes);
    served.write_all(&array, &random_bytes(4, length));
    served.stop();
}

#[test]
fn a_journal_is_made_with_the_array_and_nothing_odd_is() {
    let (array, journal) = Array::create_journaled(RAID_5, "8M");
    let log = examined(&array, &journal);
    assert_eq!((&log["used_sectors"], &log["data_blocks"]), (&8.into(), &0.into()), "{log}");
    let new = |words: &[&str], name: &str| {
        let journal = array.path(name).display().to_string();
        let words =
            words.iter().map(|word| if *word == "JOURNAL" { journal.as_str() } else { word });
        let words: Vec<&str> =
            ["create", "new", "--member-size", "8M"].into_iter().chain(words).collect();
        let members: Vec<PathBuf> = (0..3).map(|slot| array.path(&format!("n{slot}"))).collect();
        array.refused(&words, &members)
    };
    new(&["--level", "5", "--consistency", "journal"], "j").is("B001", 2);
    new(&["--level", "5", "--consistency", "ppl", "--write-journal", "JOURNAL"], "j").is("B001", 2);
    assert_eq!(new(&["--level", "1", "--write-journal", "JOURNAL"], "j").code, "B042");
    assert_eq!(new(&["--level", "0", "--write-journal", "JOURNAL"], "j").code, "B042");
    new(&["--level", "5", "--write-journal", "JOURNAL"], "n1").is("B011", 12);
    let served = array.serve_with(&[], &[&array.members[..], &[journal]].concat());
    let ran = array.braid(&["get", "tank", "consistency"], &[]);
    assert!(ran.stdout.contains("journal"), "{ran:?}");
    let ran = array.braid(&["status", "tank"], &[]);
    let said: Value = serde_json::from_str(&ran.stdout).expect("an object");
    let said = &said["arrays"][0]["journal"];
    assert_eq!(
        (&said["used_bytes"], &said["size_bytes"]),
        (&4096.into(), &(7 << 20).into()),
        "{said}"
    );
    served.stop();
}

#[test]
fn a_journal_is_replayed_onto_members_and_emptied_when_all_are_there() {
    needs!("nbdcopy");
    let cut = cut_off();
    let said = cut.examined();
    assert_eq!((&said["tail_sectors"], &said["used_sectors"]), (&0.into(), &72.into()), "{said}");
    assert_eq!((&said["mode"], &said["end"]), (&"write-back".into(), &"torn".into()), "{said}");
    let before = cut.bytes();
    let said = cut.replayed(&["-n"], &cut.with_journal(&[]));
    assert_eq!((&said["where"], &said["journal_stripes"]), (&"nowhere".into(), &3.into()));
    assert!(before == cut.bytes(), "nothing was written");
    // A member that may return has missed the journal's writes, so the journal is not emptied.
    let said = cut.replayed(&[], &cut.with_journal(&[1]));
    assert_eq!((&said["journal_emptied"], &said["undo"]), (&false.into(), &Value::Null), "{said}");
    assert!(cut.reads(&cut.with_journal(&[1])) == cut.expected);
    assert!(cut.reads(&cut.with_journal(&[2])) == cut.expected, "with the other one missing");
    let said = cut.replayed(&[], &cut.with_journal(&[]));
    assert_eq!((&said["journal_emptied"], &said["pending_stripes"]), (&true.into(), &0.into()));
    let undo = said["undo"].as_u64().expect("a number").to_string();
    let page = |slot: usize, index: usize| {
        let at = cut.data_offset + index * BLOCK;
        member(&cut.array, slot)[at..at + BLOCK].to_vec()
    };
    for index in 0..3 {
        assert!(page(3, index) == xor(&[&page(0, index), &page(1, index), &page(2, index)]));
    }
    let said = cut.examined();
    assert_eq!((&said["used_sectors"], &said["data_blocks"]), (&8.into(), &0.into()), "{said}");
    assert_eq!(cut.replayed(&[], &cut.with_journal(&[])), Value::Null, "there is nothing more");
    for lost in [None, Some(0), Some(2)] {
        assert!(cut.reads(&cut.with_journal(lost.as_slice())) == cut.expected, "{lost:?}");
    }
    // The undo restores the journal's superblock, and a second replay does no harm.
    let ran = cut.array.braid(&["undo", &undo], &[]);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(cut.examined()["data_blocks"], 3);
    assert!(cut.reads(&cut.with_journal(&[1])) == cut.expected);
}

#[test]
fn without_its_journal_an_array_is_read_with_a_warning() {
    needs!("nbdcopy");
    let cut = cut_off();
    let refusal = cut.array.serve_refused(&[], &cut.array.members);
    refusal.is("B025", 12);
    assert!(refusal.json.to_string().contains("number 4"), "{}", refusal.json);
    cut.array.refused(&["replay"], &cut.array.members).is("B025", 12);
    let mut served = cut.array.serve_with(&["--read-only"], &cut.array.members);
    let event = served.wait_for("assembled");
    assert!(
        event["journal_fault"].as_str().is_some_and(|text| text.contains("number 4")),
        "{event}"
    );
    let read = served.read_all(&cut.array);
    let changed = read.iter().zip(&cut.before).filter(|(one, other)| one != other).count();
    assert!(read != cut.expected && changed <= BLOCK, "what members have, and no more");
    served.stop();
    let mut served = cut.array.serve_with(&["--read-only"], &cut.array.without(&[1]));
    let event = served.wait_for("assembled");
    assert!(event["withheld"].as_str().is_some_and(|text| text.contains("slot 1")), "{event}");
    served.stop();
}

#[test]
fn a_journal_that_makes_no_sense_is_refused() {
    needs!("nbdcopy");
    let cut = cut_off();
    let sound = fs::read(&cut.journal).expect("the journal");
    let at = usize::try_from(JOURNAL.0).expect("small") * SECTOR;
    // The journal has a block beyond the end of the array.
    let mut ring = Ring { bytes: sound.clone(), uuid: cut.uuid, position: 8, sequence: 11 };
    let block = random_bytes(3, BLOCK);
    let payload = ring.data(1 << 40, &block);
    ring.append(vec![payload], &[block]);
    fs::write(&cut.journal, &ring.bytes).expect("the journal");
    let members = cut.with_journal(&[]);
    cut.array.serve_refused(&["--read-only"], &members).is("B025", 12);
    cut.array.refused(&["replay"], &members).is("B025", 12);
    // The journal has no valid start.
    let mut blank = sound;
    blank[at..at + BLOCK].fill(0);
    fs::write(&cut.journal, &blank).expect("the journal");
    let refusal = cut.array.serve_refused(&[], &members);
    refusal.is("B025", 12);
    assert!(refusal.json.to_string().contains("at its tail"), "{}", refusal.json);
    assert!(cut.examined()["error"].as_str().is_some(), "{}", cut.examined());
}

/// Writes block after block, then kills the server. Returns the numbers of acknowledged and of
/// submitted bytes.
fn writes_until_it_is_killed(served: ServerProcess, at: usize, bytes: &[u8]) -> (usize, usize) {
    const EACH: usize = 20_000;
    let mut client = Client::connect(&served.socket, Duration::from_secs(20));
    let (mut asked, mut answered) = (0, 0);
    for (number, piece) in (0..).zip(bytes.chunks(EACH)) {
        client.ask_write(number, (at + asked) as u64, piece);
        asked += piece.len();
        // Waits for answers from the fourth request on, so that some requests stay in flight.
        if number >= 3 {
            assert!(client.hear().is_some(), "an answer in time");
            answered = (usize::try_from(number).expect("small") - 2) * EACH;
        }
        if number == 40 {
            break;
        }
    }
    served.kill();
    (answered, asked)
}

#[test]
fn a_device_that_comes_beside_a_journal_is_rebuilt_and_takes_its_place() {
    needs!("nbdcopy");
    for shape in [RAID_5, RAID_6] {
        let (array, journal) = Array::create_journaled(shape, "16M");
        let journaled = |members: &[PathBuf]| [members, std::slice::from_ref(&journal)].concat();
        let served = array.serve_with(&[], &journaled(&array.members));
        let length = usize::try_from(served.size_bytes).expect("small");
        let mut expected = random_bytes(3, length);
        served.write_all(&array, &expected);
        // The journal's device is no spare, and stays in the array.
        for verb in ["fail", "remove"] {
            refused(&array, &[verb, "tank", text(&journal)], "B040", 12);
        }
        done(&array, &["fail", "tank", "1"]);
        done(&array, &["remove", "tank", "1"]);
        let (new, other) = (blank(&array, "new", 16 << 20), blank(&array, "other", 16 << 20));
        let added = done(&array, &["add", "tank", text(&new)]);
        assert_eq!(added["members"][0]["effect"], "rebuilds", "{added}");
        wait_for_rebuild(&array);
        assert_same(&served.read_all(&array), &expected, "it is rebuilt");
        // The server is killed in the middle of a replacement of another member.
        done(&array, &["replace", "tank", "2", "--with", text(&other)]);
        let at = 3 * 4096 + 100;
        let bytes = random_bytes(5, 41 * 20_000);
        let (answered, asked) = writes_until_it_is_killed(served, at, &bytes);
        let members = [array.without(&[1]), vec![new.clone(), other.clone()]].concat();
        let served = array.serve_with(&[], &journaled(&members));
        let read = served.read_all(&array);
        expected[at..at + answered].copy_from_slice(&bytes[..answered]);
        let is_old_or_new =
            |index: usize| read[index] == expected[index] || read[index] == bytes[index - at];
        assert!(
            (at + answered..at + asked).all(is_old_or_new),
            "of sectors that were being written"
        );
        expected[at + answered..at + asked].copy_from_slice(&read[at + answered..at + asked]);
        assert_same(&read, &expected, "after a kill");
        wait_for_rebuild(&array);
        served.kill();
        // Serves the array with other members missing.
        let is_there = |path: &&PathBuf| **path != array.members[0] && **path != array.members[2];
        let rest: Vec<PathBuf> = members.iter().filter(is_there).cloned().collect();
        let served = array.serve_with(&[], &journaled(&rest));
        assert_same(&served.read_all(&array), &expected, "of the new members");
        served.stop();
        let said = array.braid(&["examine"], std::slice::from_ref(&new)).stdout;
        assert!(said.contains("\"journal\""), "its superblock names the journal: {said}");
    }
}

#[test]
fn a_spare_of_an_array_with_a_journal_waits_and_takes_over() {
    needs!("nbdcopy");
    let (array, journal) = Array::create_journaled(RAID_5, "16M");
    let devices = [&array.members[..], std::slice::from_ref(&journal)].concat();
    let mut served = array.serve_with(&[], &devices);
    let expected = filled(&array, &served, 4);
    let spare = blank(&array, "spare", 16 << 20);
    let added = done(&array, &["spare", "tank", text(&spare)]);
    assert_eq!(added["members"][0]["effect"], "waits", "{added}");
    assert_eq!((&added["free_slots"], &added["spares"]), (&0.into(), &1.into()), "{added}");
    served.lose(&array, 3);
    served.wait_for("SpareActive");
    assert_same(&served.read_all(&array), &expected, "it took over by itself");
    served.stop();
    let devices = [array.without(&[3]), vec![spare, journal]].concat();
    assert_whole(&array, array.serve_with(&[], &devices), &devices, &expected);
}

fn keeps(array: &Array, policy: &str) {
    let ran = array.braid(&["get", "tank", "consistency"], &[]);
    assert!(ran.stdout.contains(&format!("\"{policy}\"")), "{policy}: {ran:?}");
}

#[test]
fn a_journal_comes_and_goes_while_the_array_is_served() {
    needs!("nbdcopy");
    let array = Array::create_with("tank", RAID_5, "16M", &["--consistency", "log"]);
    let (journal, small) = (blank(&array, "journal", 16 << 20), blank(&array, "small", 2 << 20));
    let served = array.serve();
    let mut expected = filled(&array, &served, 5);
    let add = ["add", "tank", "--write-journal"];
    let added = |more: &[&str]| array.braid(&[&add[..], more].concat(), &[]);
    // The array can have a bitmap or a journal, not both.
    let error = json(&added(&[text(&journal)]));
    assert_eq!(error["code"], "B018", "{error}");
    array.follow(&error, "Drop its bitmap or log");
    keeps(&array, "resync");
    assert_eq!(json(&added(&[text(&small)]))["code"], "B052");
    let error = json(&array.braid(&["set", "tank", "consistency=journal"], &[]));
    assert_eq!(error["code"], "B018", "{error}");
    assert_eq!(done(&array, &[&add[..], &["-n", text(&journal)]].concat())["dry_run"], true);
    array.follow_with(&error, "Name the device", &[("DEVICE", text(&journal))]);
    keeps(&array, "journal");
    assert_eq!(json(&added(&[text(&small)]))["code"], "B018", "it has one");
    let at = 5 * 4096;
    let bytes = random_bytes(6, 41 * 20_000);
    let (answered, asked) = writes_until_it_is_killed(served, at, &bytes);
    assert!(examined(&array, &journal)["data_blocks"].as_u64().is_some_and(|blocks| blocks > 0));
    let with_journal = |members: Vec<PathBuf>| [members, vec![journal.clone()]].concat();
    let served = array.serve_with(&[], &with_journal(array.without(&[2])));
    let read = served.read_all(&array);
    expected[at..at + answered].copy_from_slice(&bytes[..answered]);
    expected[at + answered..at + asked].copy_from_slice(&read[at + answered..at + asked]);
    assert_same(&read, &expected, "killed, and a member is missing");
    // The journal cannot be removed while nothing else closes the write hole.
    let error = json(&array.braid(&["set", "tank", "consistency=log"], &[]));
    assert_eq!(error["code"], "B018", "{error}");
    array.follow_with(&error, "Put a device in its place", &[("DEVICE", text(&array.members[2]))]);
    wait_for_rebuild(&array);
    let error = json(&array.braid(&["remove", "tank", text(&journal)], &[]));
    assert_eq!(error["code"], "B040", "{error}");
    array.follow(&error, "Keep braid's own log instead");
    keeps(&array, "log");
    assert_same(&served.read_all(&array), &expected, "without it");
    let new = random_bytes(8, expected.len());
    served.write_all(&array, &new);
    // The journal's device is free: it can become a spare of an array without a journal.
    done(&array, &["spare", "tank", text(&journal)]);
    done(&array, &["remove", "tank", text(&journal)]);
    served.stop();
    let mut served = array.serve_with(&[], &array.members);
    assert_same(&served.read_all(&array), &new, "after a restart");
    served.signal(rustix::process::Signal::TERM);
    served.wait();
}

/// A dropped journal is not replayed if it is named again.
#[test]
fn a_journal_that_was_given_up_is_left_out() {
    needs!("nbdcopy");
    let (array, journal) = Array::create_journaled(RAID_4, "8M");
    let devices = [&array.members[..], std::slice::from_ref(&journal)].concat();
    let served = array.serve_with(&[], &devices);
    filled(&array, &served, 1);
    done(&array, &["set", "tank", "consistency=bitmap"]);
    let expected = filled(&array, &served, 2);
    served.kill();
    let mut served = array.serve_with(&[], &devices);
    let event = served.wait_for("assembled");
    let verdict = &event["members"][array.members.len()];
    assert!(["stale", "faulty"].map(Value::from).contains(&verdict["verdict"]), "{event}");
    assert_same(&served.read_all(&array), &expected, "what was written since");
    served.stop();
}

#[test]
fn an_array_whose_journal_is_gone_for_good_gets_another_one() {
    needs!("nbdcopy");
    let (array, journal) = Array::create_journaled(RAID_5, "8M");
    let devices = [&array.members[..], std::slice::from_ref(&journal)].concat();
    let mut served = array.serve_with(&[], &devices);
    let expected = filled(&array, &served, 3);
    std::fs::remove_file(&journal).expect("it goes away");
    served.wait_for("Broken");
    let another = blank(&array, "another", 8 << 20);
    // The failed array takes no changes while it runs.
    let add = ["add", "tank", "--write-journal", text(&another)];
    let error = json(&array.braid(&add, &[]));
    assert_eq!(error["code"], "B081", "{error}");
    assert!(error.to_string().contains("--without-journal"), "{error}");
    let error = json(&array.braid(&["set", "tank", "consistency=log"], &[]));
    assert!(error.to_string().contains("--without-journal"), "{error}");
    // The array stops, and reports that its superblocks are not clean.
    let ran = array.type_line(&offered(&error, "Stop it"));
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    note("Stop it");
    served.wait();
    let refusal = array.serve_refused(&[], &array.members);
    refusal.is("B025", 12);
    // If a member is missing as well as the journal, the member's content is unknown.
    let without = array.without(&[1]);
    let words = ["--without-journal"];
    assert_eq!(array.serve_refused(&words, &without).code, "B031");
    array.follow(&refusal.json, "If it is lost for good, go on without it");
    // The first superblock update drops the journal; nothing is lost, and the whole array is
    // resynced.
    let served = array.serve_with(&words, &array.members);
    assert_same(&served.read_all(&array), &expected, "what was answered");
    done(&array, &["wait", "tank", "--for", "idle", "--timeout", "60"]);
    keeps(&array, "resync");
    done(&array, &add);
    keeps(&array, "journal");
    assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0);
    let new = filled(&array, &served, 4);
    served.kill();
    array.serve_refused(&[], &array.members).is("B025", 12);
    let devices = [array.without(&[0]), vec![another]].concat();
    let served = array.serve_with(&[], &devices);
    assert_same(&served.read_all(&array), &new, "through the new one");
    served.stop();
}

/// Members from a backup lack blocks that the journal has since freed.
#[test]
fn a_journal_that_is_ahead_of_all_members_is_not_replayed_onto_them() {
    needs!("nbdcopy");
    let (array, journal) = Array::create_journaled(RAID_6, "8M");
    let devices = [&array.members[..], std::slice::from_ref(&journal)].concat();
    let served = array.serve_with(&[], &devices);
    filled(&array, &served, 1);
    served.stop();
    let old = copies(&array.members);
    let served = array.serve_with(&[], &devices);
    let expected = filled(&array, &served, 2);
    served.stop();
    let new = copies(&array.members);
    let put = |bytes: &[Vec<u8>]| {
        let files = array.members.iter().zip(bytes);
        files.for_each(|(path, bytes)| fs::write(path, bytes).expect("put back"));
        fs::remove_dir_all(array.path("state")).expect("what is known of it");
    };
    put(&old);
    for words in [&[][..], &["--without-journal"]] {
        let refusal = array.serve_refused(words, &devices);
        refusal.is("B025", 12);
        assert!(refusal.json.to_string().contains("lack its writes"), "{}", refusal.json);
        array.follow(&refusal.json, "See what each member is");
    }
    let mut served = array.serve_with(&["--read-only"], &devices);
    let event = served.wait_for("assembled");
    assert!(event["journal_fault"].as_str().is_some_and(|text| text.contains("events")), "{event}");
    served.stop();
    put(&new);
    let served = array.serve_with(&[], &devices);
    assert_same(&served.read_all(&array), &expected, "with the members that go with it");
    served.stop();
}
