//! The order of recovery: ranges that a client reads are recovered before their turn (ahead), and
//! two members are recovered in one pass.

use braid_engine::array::{JobEnd, JobKind, JobRequest, Notice};
use braid_engine::request::Operation;
use braid_geometry::{Level, MemberSector};

use super::for_seeds;
use super::scene::{Scene, design};
use super::script::{Mix, Script};
use crate::content::places;
use crate::create::Design;
use crate::fault::Mishap;
use crate::random::Random;
use crate::schedule::Event;

/// An array with parity. In a mirror, every read takes a single member anyway.
fn any_design(seed: u64) -> Design {
    let designs = [
        design(Level::Raid5, 2, 8, 4, 400),
        design(Level::Raid6, 2, 8, 5, 400),
        design(Level::Raid4, 0, 64, 4, 120),
        design(Level::Raid5, 0, 128, 3, 120),
    ];
    designs[seed as usize % designs.len()]
}

/// An array whose recovery of an empty member has just begun, with small allowances. Returns the
/// disk of that member as well.
fn begun(seed: u64) -> (Script, usize) {
    let design = any_design(seed);
    let disk = (seed / 4) as usize % (usize::from(design.slots) - 1);
    let mut scene = Scene::new(design, 7_400_000 + seed);
    scene.recovering = Some((disk, 0));
    let mut story = scene.open();
    story.world.may_have_jobs = true;
    story.world.allow_little(seed);
    story.request(JobRequest::Resume);
    while story.world.engine.machines.array.job().is_none() {
        story.step(false);
    }
    (story, disk)
}

/// The last array sector whose data is on this disk, and the sector of the member that holds it.
fn last_on(story: &Script, disk: usize) -> (u64, MemberSector) {
    let found = (0..story.capacity()).rev().find_map(|sector| {
        let (slot, place) = places(&story.world.geometry, sector)[0];
        (slot.index() == disk).then_some((sector, place))
    });
    found.expect("it holds data")
}

/// Whether all shards know that a member holds this sector although the job has not reached it.
fn is_held_ahead(story: &Script, disk: usize, place: MemberSector) -> bool {
    let array = &story.world.engine.machines.array;
    let is_behind = array.job().is_some_and(|job| job.done <= place.0);
    let mut shards = story.world.engine.machines.shards.iter();
    is_behind
        && shards
            .all(|side| side.view.slots[disk].as_ref().is_some_and(|member| member.holds(place, 1)))
}

fn read(story: &mut Script, sector: u64) {
    let id = story.issue(Operation::Read, sector, 1);
    while story.answer(id).is_none() {
        story.step(false);
    }
    assert!(story.went_well(&[id]));
}

fn completed(story: &Script) -> bool {
    story.heard(|notice| match notice {
        Notice::JobEnded { progress, end } => {
            progress.kind == JobKind::Recovery && *end == JobEnd::Completed
        }
        _ => false,
    })
}

/// Regression: every read of a range that a recovering member lacked computed that range again,
/// until the job reached it.
#[test]
fn what_is_read_is_recovered_before_its_turn() {
    for_seeds(12, before_its_turn);
}

fn before_its_turn(seed: u64) {
    let (mut story, disk) = begun(seed);
    let (sector, place) = last_on(&story, disk);
    read(&mut story, sector);
    assert!(story.counters().reconstructions > 0, "the other members solve the read");
    while !is_held_ahead(&story, disk, place) {
        assert!(!completed(&story), "the recovery reached the range in its turn");
        story.step(false);
    }
    // The job pauses, because the counter includes its reconstructions.
    story.request(JobRequest::Pause);
    story.run_without_time();
    let before = story.counters().reconstructions;
    read(&mut story, sector);
    assert_eq!(story.counters().reconstructions, before, "the read goes to its member");
    story.request(JobRequest::Resume);
    story.run(&Mix::ALL);
    story.rest();
    assert!(completed(&story));
    story.ends_well();
}

/// Clients read and write ranges of a member in recovery. Then power is cut, the process is killed,
/// or another disk dies.
#[test]
fn whatever_happens_after_ranges_were_recovered_ahead_nothing_is_lost() {
    for_seeds(30, whatever_happens);
}

fn whatever_happens(seed: u64) {
    let (mut story, disk) = begun(seed);
    let mut random = Random::new(seed ^ 0xa4ead);
    let slots = usize::from(any_design(seed).slots);
    let end = random.below(5);
    let mix = match end {
        // Without writes the array stays clean. A dirty, degraded array could not start.
        0 => Mix { reads: 60, writes: 0, zeroes: 0, trims: 0, ..Mix::ALL },
        _ => Mix { reads: 60, trims: 2, ..Mix::ALL },
    };
    story.begin_mix(&mix, 200 + random.below(1500));
    match end {
        0 => assert!(story.loses_power(), "no disk came to harm"),
        1 => {
            story.befall(disk, Mishap::Dies);
            story.run(&mix);
            story.rest();
            story.ends_well();
        }
        2 if any_design(seed).level == Level::Raid6 => {
            story.befall((disk + 1) % slots, Mishap::Dies);
            story.run(&mix);
            story.rest();
            assert!(completed(&story));
            story.ends_well();
        }
        3 => {
            // The resumed job recovers the ranges again that were recovered ahead.
            story.request(JobRequest::Pause);
            story.begin_mix(&mix, random.below(200));
            story.request(JobRequest::Resume);
            story.run(&mix);
            story.rest();
            assert!(completed(&story));
            story.ends_well();
        }
        _ => {
            story.run(&mix);
            story.rest();
            assert!(completed(&story));
            story.ends_well();
        }
    }
}

/// Regression: during the recovery of a RAID-6's first spare, a second spare got its slot and
/// waited until that recovery ended. So the other members were read from end to end twice.
#[test]
fn a_member_that_comes_meanwhile_is_filled_in_the_same_pass() {
    for_seeds(8, in_one_pass);
}

fn in_one_pass(seed: u64) {
    let design = Design { spares: 1, ..design(Level::Raid6, 2, 8, 5, 800) };
    let mut scene = Scene::new(design, 7_500_000 + seed);
    (scene.recovering, scene.missing) = (Some((1, 0)), vec![3]);
    let mut story = scene.open();
    story.world.may_have_jobs = true;
    story.world.allow_little(seed);
    // The spare has no slot until superblocks record its slot.
    story.hold(|event| matches!(event, Event::Superblock { .. }));
    story.request(JobRequest::Resume);
    // The spare must come early: beyond half of its range, the engine lets the job finish first.
    while story.world.engine.machines.array.job().is_none_or(|job| job.done < job.end / 10) {
        story.step(false);
    }
    let job = story.world.engine.machines.array.job().expect("it is under way");
    assert!(job.done < job.end / 3, "the job has a small allowance");
    story.release();
    story.run(&Mix::ALL);
    story.rest();
    let ends = story.world.engine.notices.iter().filter_map(|notice| match notice {
        Notice::JobEnded { progress, end } => Some((progress.kind, *end)),
        _ => None,
    });
    let expected = [JobEnd::Interrupted, JobEnd::Completed].map(|end| (JobKind::Recovery, end));
    assert_eq!(ends.collect::<Vec<_>>(), expected);
    story.ends_well();
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell() {
    (0..8).for_each(before_its_turn);
    (0..30).for_each(whatever_happens);
    (0..4).for_each(in_one_pass);
}
