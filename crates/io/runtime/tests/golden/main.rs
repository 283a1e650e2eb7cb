//! Arrays that the real md has written (golden fixtures), run by a [`Volume`] over memory members.
//!
//! Every fixture that assembly accepts is read, with all its members and without any that its level
//! can spare. The bytes read must equal md's. Then the array is written, and read again without
//! each single member: parity and copies must be right.
//!
//! This test does not judge superblocks, layouts and verdicts; the golden test of `braid-assembly`
//! does. The oracle tests whether md agrees with these writes.

#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../../oracle/fixture.rs"]
mod fixture;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../../oracle/look.rs"]
mod look;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../../oracle/pattern.rs"]
mod pattern;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use braid_assembly::{AssembledArray, ProbedMember, assemble};
use braid_geometry::Slot;
use braid_member::{Member, MemoryMember};
use braid_runtime::{Cache, OpenMember, Options, Payload, Volume, RequestError, ClientRequest};
use fixture::{Content, Fixture};

/// The members of a fixture, in memory that outlives the volumes opened on them.
struct Array {
    devices: Vec<Arc<MemoryMember>>,
}

impl Array {
    fn new(fixture: &Fixture) -> Self {
        let device = |index| Arc::new(MemoryMember::from_bytes(&fixture.image(index)));
        Self { devices: (0..fixture.members.len()).map(device).collect() }
    }

    /// Assembles the array of all members but these; `None` if assembly refuses, or if this test
    /// cannot know the array's content.
    fn assemble(
        &self,
        read_only: bool,
        without: &[usize],
    ) -> (Vec<ProbedMember>, Option<AssembledArray>) {
        let probed: Vec<ProbedMember> = self
            .devices
            .iter()
            .enumerate()
            .map(|(index, device)| {
                // A blank device replaces an absent member, so that indices stay.
                let blank = without.contains(&index);
                let read = |offset: u64, length: usize| {
                    let mut bytes = vec![0; length];
                    if !blank {
                        device.read_at(&mut bytes, offset).expect("memory reads");
                    }
                    bytes
                };
                let label = format!("m{index}");
                look::look(&look::Device { label: &label, bytes: device.size_bytes(), read: &read })
            })
            .collect();
        let options = braid_assembly::Options { read_only, ..Default::default() };
        let array = assemble(&probed, &options).array.ok();
        // The content is not known if assembly warns that some reads may be wrong.
        let array = array.filter(|array| array.withheld_risk.is_none());
        // This test replays no log: it leaves out arrays that need a replay, unless all members are
        // present.
        let array = array.filter(|array| array.replay.is_none() || without.is_empty());
        (probed, array)
    }

    fn open(&self, read_only: bool, without: &[usize]) -> Option<Volume> {
        let (probed, array) = self.assemble(read_only, without);
        let members = self.devices.iter().zip(&probed).map(|(device, probed)| {
            let superblock = probed.probe.newest()?.clone();
            Some(OpenMember { device: Box::new(Arc::clone(device)), superblock })
        });
        let options = Options {
            read_only,
            shards: 2,
            // The test opens a thousand volumes, and each clears its memory, so the memory is
            // small.
            cache: Cache { memory_bytes: 2 << 20, ..Cache::default() },
            threads_per_member: 1,
            ..Options::default()
        };
        let volume = Volume::open(&array?, members.collect(), &options, |_| {});
        Some(volume.expect("what assembly gives can be run"))
    }
}

fn fixtures() -> Vec<(String, Fixture)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/fixtures");
    Fixture::all(&folder).expect("the fixtures are committed")
}

/// md's content: for every sector the stamp of the latest generation that a member holds.
fn content(fixture: &Fixture) -> Vec<u8> {
    let mut latest: BTreeMap<u64, u8> = BTreeMap::new();
    for run in fixture.members.iter().flat_map(|member| &member.runs) {
        let Content::Data { logical, generation } = run.content else { continue };
        for sector in logical..logical + run.sectors {
            let held = latest.entry(sector).or_default();
            *held = generation.max(*held);
        }
    }
    let sectors = fixture.number("sectors");
    let mut content = vec![0; usize::try_from(sectors).expect("small") * pattern::SECTOR];
    for (sector, bytes) in (0..sectors).zip(content.chunks_mut(pattern::SECTOR)) {
        // Data that is on no member exists only as parity; see `generations_on_no_member`.
        let generation = latest.get(&sector).copied().unwrap_or(1);
        pattern::repeat(pattern::stamp(generation, sector), bytes);
    }
    content
}

/// Sectors whose generation in md is on no member: they were written while their member was absent.
fn generations_on_no_member(name: &str) -> Vec<(std::ops::Range<u64>, u8)> {
    let written = |ranges: &[(u64, u64, u8)]| {
        ranges.iter().map(|&(first, end, generation)| (first..end, generation)).collect()
    };
    match name {
        "state-raid5-stale"
        | "state-raid5-stale-m0.90"
        | "state-raid5-failed-not-removed"
        | "state-raid5-reassembled-degraded"
        | "state-raid5-bitmap-stale" => written(&[(0, 512, 2)]),
        "state-raid6-stale-twice" => written(&[(0, 256, 2), (256, 768, 3)]),
        _ => Vec::new(),
    }
}

fn expected(name: &str, fixture: &Fixture) -> Vec<u8> {
    let mut content = content(fixture);
    for (sectors, generation) in generations_on_no_member(name) {
        for sector in sectors {
            let start = usize::try_from(sector).expect("small") * pattern::SECTOR;
            let bytes = &mut content[start..start + pattern::SECTOR];
            pattern::repeat(pattern::stamp(generation, sector), bytes);
        }
    }
    content
}

fn read(volume: &Volume, about: &str) -> Vec<u8> {
    let length = usize::try_from(volume.size_bytes()).expect("small");
    let payload = Payload::from(vec![0xdb; length]);
    let outcome = volume.call(ClientRequest::Read { offset: 0, payload });
    outcome.result.unwrap_or_else(|error| panic!("{about}: {error}"));
    outcome.payload.expect("a read gives its payload back").to_vec()
}

/// Reads the volume 4 KiB at a time. Each read gives the right bytes or an error, never other
/// bytes. Returns the number of unreadable bytes.
fn unreadable(volume: &Volume, content: &[u8], about: &str) -> usize {
    const PIECE: usize = 4096;
    let mut missing = 0;
    for (offset, piece) in (0..).step_by(PIECE).zip(content.chunks(PIECE)) {
        let payload = Payload::from(vec![0xdb; piece.len()]);
        let outcome = volume.call(ClientRequest::Read { offset, payload });
        match outcome.result {
            Ok(()) => assert!(outcome.payload.as_deref() == Some(piece), "{about} at {offset}"),
            Err(RequestError::Io(_)) => missing += piece.len(),
            Err(error) => panic!("{about} at {offset}: {error}"),
        }
    }
    missing
}

/// Every set of one or two members that the array can lose, as the geometry says (the oracle tests
/// that).
fn losses(array: &AssembledArray) -> Vec<Vec<usize>> {
    let mut sets = Vec::new();
    let survives = |lost: &[u16]| {
        let gone = |slot: Slot| {
            let occupant = array.slots[slot.index()].as_ref();
            lost.contains(&slot.0) || !occupant.is_some_and(|occupant| occupant.is_in_sync())
        };
        array.geometry.survives(&gone)
    };
    let member = |slot: u16| array.slots[usize::from(slot)].as_ref().map(|there| there.member);
    for first in 0..array.geometry.slots() {
        for second in first..array.geometry.slots() {
            let mut slots = vec![first, second];
            slots.dedup();
            let members: Option<Vec<usize>> = slots.iter().map(|slot| member(*slot)).collect();
            if let Some(members) = members.filter(|_| survives(&slots)) {
                sets.push(members);
            }
        }
    }
    sets
}

/// SHA-256 in hex, by coreutils: no dependency of braid computes it, and only one test needs it.
fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("coreutils are installed");
    child.stdin.take().expect("piped").write_all(bytes).expect("it reads to the end");
    let said = child.wait_with_output().expect("it ends").stdout;
    String::from_utf8_lossy(&said[..64]).into_owned()
}

/// The other tests compare with [`expected`]. md itself compared that content with its own reads.
#[test]
fn what_is_expected_is_what_md_read() {
    let mut hashed = 0;
    for (name, fixture) in fixtures() {
        // Nothing is known about the content of a refused array.
        if Array::new(&fixture).assemble(true, &[]).1.is_none() {
            continue;
        }
        let Some(meant) = fixture.facts.get("content_sha256") else { continue };
        assert_eq!(sha256(&expected(&name, &fixture)), *meant, "{name}");
        hashed += 1;
    }
    assert!(hashed >= 108, "only {hashed}");
}

#[test]
fn every_array_reads_as_md_wrote_it_healthy_and_with_every_loss() {
    let (mut arrays, mut with_losses) = (0, 0);
    for (name, fixture) in fixtures() {
        let array = Array::new(&fixture);
        let (_, Some(assembled)) = array.assemble(true, &[]) else { continue };
        let content = expected(&name, &fixture);
        let volume = array.open(true, &[]).expect("it was assembled");
        assert!(read(&volume, &name) == content, "{name}");
        arrays += 1;
        for lost in losses(&assembled) {
            let about = format!("{name} without {lost:?}");
            let Some(volume) = array.open(true, &lost) else {
                assert!(assembled.dirty, "{about}: refused, and nothing is at risk");
                continue;
            };
            if name.ends_with("bad-blocks") {
                let bad =
                    assembled.slots.iter().flatten().filter(|slot| {
                        !lost.contains(&slot.member) && !slot.bad_records.is_empty()
                    });
                let missing = unreadable(&volume, &content, &about);
                assert_eq!(missing > 0, bad.count() > 0, "{about}");
            } else {
                assert!(read(&volume, &about) == content, "{about}");
            }
            with_losses += 1;
        }
    }
    assert!(arrays >= 110 && with_losses >= 400, "{arrays} arrays, {with_losses} with losses");
}

#[test]
fn nothing_is_written_by_reading() {
    for (name, fixture) in fixtures() {
        let array = Array::new(&fixture);
        let Some(volume) = array.open(true, &[]) else { continue };
        read(&volume, &name);
        volume.stop();
        for (index, device) in array.devices.iter().enumerate() {
            let mut bytes = vec![0; usize::try_from(device.size_bytes()).expect("small")];
            device.read_at(&mut bytes, 0).expect("memory reads");
            assert!(bytes == fixture.image(index), "{name} member {index}");
        }
    }
}

#[test]
fn what_is_written_on_mds_arrays_is_read_again_without_any_member() {
    let mut arrays = 0;
    for (name, fixture) in fixtures().into_iter().filter(|(name, _)| !name.starts_with("state-")) {
        let array = Array::new(&fixture);
        let Some(volume) = array.open(false, &[]) else { continue };
        let mut content = expected(&name, &fixture);
        for (seed, (offset, length)) in
            (1..).zip(pattern::scribbles(arrays + 1, content.len() as u64, 9))
        {
            let start = usize::try_from(offset).expect("small");
            let bytes = &mut content[start..start + usize::try_from(length).expect("small")];
            pattern::stream(seed, offset, bytes);
            let payload = Payload::from(&*bytes);
            let write = ClientRequest::Write { offset, payload, durable: seed % 4 == 0 };
            volume.call(write).result.expect("it writes");
        }
        assert!(read(&volume, &name) == content, "{name} while it runs");
        assert!(volume.stop().clean, "{name}");
        let (_, assembled) = array.assemble(false, &[]);
        let assembled = assembled.expect("it is an array still");
        assert!(!assembled.dirty && assembled.degraded == 0, "{name}");
        for lost in losses(&assembled) {
            let volume = array.open(true, &lost).expect("it survives that");
            assert!(read(&volume, &name) == content, "{name} without {lost:?}");
        }
        arrays += 1;
    }
    assert!(arrays >= 73, "only {arrays} arrays");
}
