//! Bit rot: which sectors a check reports, and which a repair changes.

use std::collections::BTreeSet;

use braid_engine::array::{JobEnd, JobKind, JobProgress, JobRequest, Notice};
use braid_engine::work::{Fate, Finding};
use braid_geometry::Level;

use super::for_seeds;
use super::scene::{Scene, design};
use super::script::{Script, WRITE};

const CHUNK: u64 = 8;
const SLOTS: u64 = 6;

/// A RAID-6 at rest, with a few written bytes in every chunk.
fn filled(seed: u64, rows: u64) -> Script {
    let mut scene = Scene::new(design(Level::Raid6, 2, 8, 6, rows), seed).write_through();
    scene.manner.jobs_paused = false;
    let mut story = scene.open();
    let capacity = story.capacity();
    for start in (0..capacity).step_by(64) {
        story.issue(WRITE, start, 64.min(capacity - start));
        story.settle();
    }
    story.rest();
    story
}

fn done(story: &mut Script, request: JobRequest) -> JobProgress {
    story.request(request);
    story.rest();
    let ended = story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, end: JobEnd::Completed } => Some(*progress),
        _ => None,
    });
    let progress = ended.expect("it is over");
    let kind = if request == JobRequest::Repair { JobKind::Repair } else { JobKind::Check };
    assert_eq!(progress.kind, kind);
    progress
}

/// The disk and the row of each rotten chunk that was reported, and whether it was repaired.
fn located(story: &Script) -> BTreeSet<(u16, u64, bool)> {
    let located = story.world.engine.notices.iter().filter_map(|notice| match notice {
        Notice::Found(Finding::Rot { slot, start, fate, .. }) => {
            Some((slot.0, start.0 / CHUNK, *fate == Fate::Repaired))
        }
        _ => None,
    });
    located.collect()
}

/// Each of a hundred stripes has one rotten chunk: data, P or Q.
#[test]
fn a_hundred_rotten_chunks_are_located_and_repaired() {
    for_seeds(3, |seed| rotten_chunks_are_mended(seed, 100));
}

pub(in super::super) fn rotten_chunks_are_mended(seed: u64, rows: u64) {
    let mut story = filled(4_100_000 + seed, rows);
    let sectors = rows * CHUNK;
    let mut rotten = BTreeSet::new();
    for row in 0..rows {
        let slot = story.random.below(SLOTS);
        story.rots(slot as usize, (row * CHUNK, CHUNK), |random| random.next() as u8);
        rotten.insert((slot as u16, row));
    }
    let before: Vec<Vec<u8>> = (0..6).map(|disk| story.data(disk).to_vec()).collect();
    let check = done(&mut story, JobRequest::Check);
    assert_eq!((check.located, check.repaired, check.ambiguous), (sectors, 0, 0));
    assert_eq!(check.written, 0, "a check writes nothing");
    assert!((0..6).all(|disk| story.data(disk) == before[disk]));
    let expected: BTreeSet<_> = rotten.iter().map(|(slot, row)| (*slot, *row, false)).collect();
    assert_eq!(located(&story), expected, "no column is named wrongly");
    let repair = done(&mut story, JobRequest::Repair);
    assert_eq!((repair.located, repair.repaired, repair.ambiguous), (sectors, sectors, 0));
    let repaired: BTreeSet<_> = rotten.iter().map(|(slot, row)| (*slot, *row, true)).collect();
    assert_eq!(located(&story), &expected | &repaired);
    assert_eq!(done(&mut story, JobRequest::Check).differing, 0);
    story.ends_well();
}

/// Each of fifty stripes has two rotten chunks, so no check can tell which ones.
#[test]
fn of_two_rotten_chunks_none_is_guessed() {
    for_seeds(3, |seed| {
        let mut story = filled(4_200_000 + seed, 50);
        let mut held = Vec::new();
        for row in 0..50 {
            let one = story.random.below(SLOTS) as usize;
            let other = (one + 1 + story.random.below(SLOTS - 1) as usize) % SLOTS as usize;
            for disk in [one, other] {
                let error = |random: &mut crate::random::Random| random.next() as u8;
                held.push((disk, row, story.rots(disk, (row * CHUNK, CHUNK), error)));
            }
        }
        let before: Vec<Vec<u8>> = (0..6).map(|disk| story.data(disk).to_vec()).collect();
        let repair = done(&mut story, JobRequest::Repair);
        assert_eq!((repair.located, repair.written, repair.ambiguous), (0, 0, 400));
        assert!(located(&story).is_empty());
        assert!((0..6).all(|disk| story.data(disk) == before[disk]), "nothing is written");
        // Restores the chunks.
        for (disk, row, held) in held {
            let start = story.world.taint.data_offset + row * CHUNK;
            story.world.disks[disk].put(start, &held, true);
        }
        story.ends_well();
    });
}

/// Parity rots, and clients write during the repair. Until a band is repaired, an rmw keeps its
/// rot.
#[test]
fn rotten_parity_is_repaired_while_clients_write() {
    for_seeds(20, |seed| {
        let mut story = filled(4_300_000 + seed, 12);
        let braid_geometry::Geometry::Stripe(stripe) = story.world.geometry.clone() else {
            unreachable!("it has parity")
        };
        for row in 0..12 {
            let map = stripe.row_map(braid_geometry::ChunkRow(row));
            let q = map.q_slot().expect("two parities");
            let slot = if story.random.chance(50) { map.p_slot() } else { q };
            story.rots(slot.index(), (row * CHUNK, CHUNK), |random| random.next() as u8);
        }
        story.request(JobRequest::Repair);
        for number in 0..60 {
            let start = story.random.below(story.capacity() - 2);
            story.issue(WRITE, start, 1 + number % 2);
            for _ in 0..story.random.below(6) {
                story.step(false);
            }
        }
        story.settle();
        story.rest();
        assert_eq!(done(&mut story, JobRequest::Check).differing, 0);
        story.ends_well();
    });
}

/// During a repair the member with the rotten chunks is lost. The repair must end, and the other
/// members give the content.
#[test]
fn a_repair_whose_member_is_lost_ends() {
    for_seeds(20, |seed| {
        let mut story = filled(4_400_000 + seed, 30);
        let lost = seed as usize % 6;
        for row in 0..30 {
            story.rots(lost, (row * CHUNK, CHUNK), |random| random.next() as u8);
        }
        story.request(JobRequest::Repair);
        story.plan(5 + seed * 7, lost, crate::fault::Mishap::Dies);
        for _ in 0..400 {
            story.step(false);
        }
        story.settle();
        story.rest();
        // If the repair completed, it repaired all chunks. Otherwise it met the lost member.
        let is_over = |notice: &Notice| matches!(notice, Notice::JobEnded { progress, .. } if progress.kind == JobKind::Repair);
        assert!(story.heard(is_over));
        story.ends_well();
    });
}
