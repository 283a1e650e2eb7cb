//! Jobs: recovery, resync and check while clients read and write.

use braid_engine::array::{JobEnd, JobKind, JobRequest, Notice};
use braid_geometry::{ChunkRow, Geometry, Level, Slot};

use super::for_seeds;
use super::scene::{CHUNKS, Scene, design, redundant_designs};
use super::script::{Mix, Script};
use crate::content::{SECTOR, bytes, image};
use crate::fault::Mishap;
use crate::open;
use crate::random::Random;

/// A scene in which the array starts jobs by itself.
fn busy(design: crate::create::Design, seed: u64) -> Scene {
    let mut scene = Scene::new(design, seed);
    scene.manner.jobs_paused = false;
    scene
}

fn ended(story: &Script, kind: JobKind) -> Option<JobEnd> {
    story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, end } if progress.kind == kind => Some(*end),
        _ => None,
    })
}

fn recovering(design: crate::create::Design, seed: u64) -> (Scene, usize) {
    let mut scene = busy(design, seed);
    let mut random = Random::new(seed);
    let disk = random.below(u64::from(design.slots)) as usize;
    let sectors = design.rows * u64::from(design.chunk_sectors);
    scene.recovering = Some((disk, random.below(sectors)));
    (scene, disk)
}

/// Regression: a member with a recovery offset was never recovered, and the array stayed degraded.
#[test]
fn a_member_that_holds_not_all_comes_to_hold_all() {
    for_seeds(3, |seed| {
        let designs = redundant_designs(CHUNKS[seed as usize % 3]);
        for (index, design) in designs.into_iter().enumerate() {
            let (scene, disk) = recovering(design, 3_100_000 + seed * 100 + index as u64);
            let mut story = scene.open();
            story.run(&Mix::ALL);
            story.rest();
            assert_eq!(ended(&story, JobKind::Recovery), Some(JobEnd::Completed));
            let id = story.member(disk);
            assert!(story.heard(
                |notice| matches!(notice, Notice::Recovered { member, .. } if *member == id)
            ));
            story.ends_well();
        }
    });
}

#[test]
fn a_job_ends_however_little_it_is_allowed() {
    for_seeds(8, |seed| {
        let designs = redundant_designs(CHUNKS[seed as usize % 3]);
        for (index, design) in designs.into_iter().enumerate() {
            let (mut scene, disk) = recovering(design, 3_500_000 + seed * 100 + index as u64);
            scene.recovering = Some((disk, 0));
            let mut story = scene.open();
            // The limit must be set before the job begins. Without the limit, the job would request
            // all of so small an array at once.
            story.world.allow_little(seed);
            story.run(&Mix::ALL);
            story.rest();
            assert_eq!(ended(&story, JobKind::Recovery), Some(JobEnd::Completed));
            assert!(story.world.tally.of("work-allowed") > 0, "the allowance was used");
            story.ends_well();
        }
    });
}

/// Overwrites some parity with garbage, which a crash could have left.
fn scramble_parity(story: &mut Script) {
    let world = &mut story.world;
    let Geometry::Stripe(stripe) = world.geometry.clone() else { return };
    let mut random = Random::new(7);
    for row in (0..stripe.rows()).map(ChunkRow).filter(|_| random.chance(60)) {
        let map = stripe.row_map(row);
        for slot in [Some(map.p_slot()), map.q_slot()].into_iter().flatten() {
            let start = world.taint.data_offset + stripe.row_start(row).0;
            let garbage = vec![0xEE; stripe.chunk_sectors() as usize * SECTOR];
            world.disks[slot.index()].put(start, &garbage, true);
        }
    }
}

/// Regression: no resync ran after a crash, and parity stayed in doubt.
#[test]
fn redundancy_that_was_in_doubt_comes_to_agree() {
    for_seeds(3, |seed| {
        let designs = redundant_designs(CHUNKS[seed as usize % 3]);
        for (index, design) in designs.into_iter().enumerate() {
            let mut scene = busy(design, 3_200_000 + seed * 100 + index as u64);
            scene.resync_offset = 0;
            scene.manner.jobs_paused = true;
            let mut story = scene.open();
            scramble_parity(&mut story);
            story.request(JobRequest::Resume);
            story.run(&Mix::ALL);
            story.rest();
            assert_eq!(ended(&story, JobKind::Resync), Some(JobEnd::Completed));
            story.ends_well();
        }
    });
}

/// Power is cut at any step of a recovery. Everything below the offset in superblocks must be
/// recovered.
#[test]
fn an_offset_is_never_ahead_of_the_disks() {
    for_seeds(4, |seed| {
        let designs = redundant_designs(CHUNKS[seed as usize % 3]);
        for (index, design) in designs.into_iter().enumerate() {
            let seed = 3_300_000 + seed * 100 + index as u64;
            let (scene, _) = recovering(design, seed);
            let mut story = scene.open();
            let mut random = Random::new(seed);
            for _ in 0..random.below(400) {
                story.step(false);
            }
            story.loses_power();
        }
    });
}

/// A clean stop saves a job's offset, and the job continues from there after the next start.
#[test]
fn a_job_goes_on_after_a_stop_where_it_was() {
    for_seeds(20, |seed| {
        let (mut scene, disk) = recovering(design(Level::Raid5, 2, 8, 4, 200), seed);
        scene.recovering = Some((disk, 0));
        let mut story = scene.open();
        for _ in 0..2000 {
            story.step(false);
        }
        let job = story.world.engine.machines.array.job();
        let done = job.map_or(u64::MAX, |job| job.done);
        assert!(done > 0, "it has begun");
        assert!(story.stop(), "it stops clean");
        let superblock = story.world.superblock_on(disk).expect("it is there");
        let saved = superblock.device.recovery_offset_sectors;
        assert!(saved.is_none_or(|saved| saved >= done), "{saved:?}, and {done} was done");
    });
}

#[test]
fn a_second_loss_does_not_end_a_recovery() {
    for_seeds(20, |seed| {
        let (mut scene, disk) = recovering(design(Level::Raid6, 2, 8, 5, 60), seed);
        scene.recovering = Some((disk, 0));
        let mut story = scene.open();
        story.plan(30 + seed * 10, (disk + 2) % 5, Mishap::Dies);
        story.run(&Mix::ALL);
        story.rest();
        assert_eq!(ended(&story, JobKind::Recovery), Some(JobEnd::Completed));
        story.ends_well();
    });
}

#[test]
fn a_recovery_whose_target_is_lost_ends() {
    for_seeds(20, |seed| {
        let (mut scene, disk) = recovering(design(Level::Raid5, 2, 8, 4, 60), seed);
        scene.recovering = Some((disk, 0));
        let mut story = scene.open();
        story.plan(5 + seed * 3, disk, Mishap::Dies);
        story.run(&Mix::ALL);
        story.rest();
        assert_eq!(ended(&story, JobKind::Recovery), Some(JobEnd::TargetLost));
        assert!(story.is_out(disk));
        story.ends_well();
    });
}

/// A check of a sound array finds nothing. If a sector is rotten, the check finds that sector.
#[test]
fn a_check_finds_what_differs_and_nothing_else() {
    for_seeds(3, |seed| {
        let designs = redundant_designs(CHUNKS[seed as usize % 3]);
        for (index, design) in designs.into_iter().enumerate() {
            let scene = busy(design, 3_400_000 + seed * 100 + index as u64);
            let mut story = scene.open();
            story.request(JobRequest::Check);
            story.run(&Mix::ALL);
            story.rest();
            assert_eq!(found(&story), Some(0));
            // Clients do not write from here on, so that only the check meets the rotten sector.
            let place = story.world.taint.data_offset;
            let disk = Slot(0).index();
            let mut sector = story.world.disks[disk].seen[bytes(place, 1)].to_vec();
            sector[100] ^= 0x40;
            story.world.disks[disk].put(place, &sector, true);
            story.request(JobRequest::Check);
            story.rest();
            let parities = match design.level {
                Level::Raid6 => 1..=2,
                _ => 1..=u64::from(design.slots),
            };
            let found = found(&story).expect("it is over");
            assert!(parities.contains(&found), "{design:?}: {found}");
        }
    });
}

fn found(story: &Script) -> Option<u64> {
    story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, end: JobEnd::Completed } => Some(progress.differing),
        _ => None,
    })
}

/// Regression: an array lost a member and did not use its spare.
#[test]
fn a_spare_takes_the_place_of_a_member_that_is_lost() {
    for_seeds(4, |seed| {
        takes_over(seed, |story, lost| {
            story.plan(20 + seed, lost, Mishap::Dies);
            story.run(&Mix::ALL);
        });
    });
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_a_person_has_fail() {
    for_seeds(4, failed_by_person);
}

pub(in super::super) fn failed_by_person(seed: u64) {
    takes_over(seed, |story, lost| {
        story.run(&Mix::ALL);
        story.fails_by_person(lost);
        story.run(&Mix::ALL);
    });
}

/// A member is lost (`lose`) while clients write, and the spare is recovered in the member's place.
fn takes_over(seed: u64, lose: impl Fn(&mut Script, usize)) {
    for (level, layout, slots) in [
        (Level::Raid1, 0, 2),
        (Level::Raid5, 2, 4),
        (Level::Raid6, 2, 5),
        (Level::Raid10, 0x102, 4),
    ] {
        let mut array = design(level, layout, 8, slots, 9);
        array.spares = 1;
        let scene = busy(array, seed);
        let (mut story, lost) = (scene.open(), seed as usize % usize::from(slots));
        lose(&mut story, lost);
        story.rest();
        assert!(story.is_out(lost));
        assert_eq!(ended(&story, JobKind::Recovery), Some(JobEnd::Completed), "{level}");
        let content = story.read_all();
        let content = image(&story.world.geometry, &content);
        assert!(story.stop(), "it stops clean");
        let spare = usize::from(slots);
        let found = story.data(spare);
        assert!(found == content[lost], "{level}: the spare holds the lost member's data");
        let all: Vec<usize> = (0..story.world.disks.len()).filter(|disk| *disk != lost).collect();
        let (_, assembly) = open::assemble_disks(&story.world.disks, &all);
        let array = assembly.array.expect("it can be started");
        assert_eq!((array.degraded, array.dirty), (0, false), "{level}: it is whole");
    }
}
