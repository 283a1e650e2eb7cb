//! Acknowledged writes whose copies outlive the process in the cache file: which copies the next
//! server writes, in which order, and when it believes the file.

use braid_engine::request::Operation;
use braid_engine::{CacheMode, Tuning};
use braid_geometry::Level;

use super::for_seeds;
use super::scene::{Scene, design};
use super::script::Script;

/// A RAID-5 of four members with chunks of 8 sectors, so 24 sectors of data in a row. No time
/// passes, so no write reaches the cache's age limit.
fn opened(seed: u64) -> Script {
    let mut scene = Scene::new(design(Level::Raid5, 2, 8, 4, 16), seed).with_stripes(8);
    scene.manner.shards = 1;
    scene.manner.cache.unit_sectors_max = 8;
    scene.manner.cache.cached_blocks_max = Some(64);
    let tuning = scene.manner.cache.tuning;
    let (mode, dirty_sectors_max, age_max_ms) = (CacheMode::WriteBack, 4000, 10_000);
    scene.manner.cache.tuning = Tuning { mode, dirty_sectors_max, age_max_ms, ..tuning };
    let mut story = scene.open();
    story.issue(Operation::Write { durable: true }, 300, 1);
    story.run_without_time();
    story
}

/// Kills the server. The next server writes the copies that it finds, and everything is readable.
fn next(mut story: Script) {
    let world = &mut story.world;
    world.crash(false);
    let all: Vec<usize> = (0..world.disks.len()).collect();
    world.open(&all, false).expect("only the process is gone");
    assert!(world.read_all().is_some(), "all of it can be read");
}

/// A durable write covers an acknowledged one, and has reached no member when the server is killed.
fn covered_by_one_that_waits(seed: u64) {
    let mut story = opened(seed);
    story.hold_io();
    assert!(story.try_write(2, 4), "answered though no member has it");
    let waits = story.issue(Operation::Write { durable: true }, 0, 8);
    story.run_without_time();
    assert_eq!(story.answer(waits), None);
    next(story);
}

/// Two acknowledged writes overlap. The copy of the newer one reuses a freed name, which is smaller
/// than the older copy's name.
fn newer_under_an_older_name(seed: u64) {
    let mut story = opened(seed);
    story.hold_io();
    assert!(story.try_write(96, 2), "it has the first name");
    assert!(story.try_write(0, 6), "the second");
    assert!(story.try_write(96, 2), "it covers the first, whose name becomes free");
    assert!(story.try_write(4, 4), "overlaps the second");
    next(story);
}

/// After a kill, a server without the cache file writes and is killed, twice. The next server finds
/// the file.
fn found_after_others_wrote(seed: u64) {
    let mut story = opened(seed);
    story.hold_io();
    assert!(story.try_write(2, 4), "answered though no member has it");
    let world = &mut story.world;
    world.crash(false);
    world.leave_cache_file_behind();
    let all: Vec<usize> = (0..world.disks.len()).collect();
    for _ in 0..2 {
        world.open(&all, false).expect("only the process is gone");
        world.issue(Operation::Write { durable: true }, 0, 8);
        world.settle();
        world.crash(false);
    }
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell() {
    for seed in 0..12 {
        covered_by_one_that_waits(seed);
        newer_under_an_older_name(seed);
        found_after_others_wrote(seed);
    }
}

/// Regression: an acknowledged write had reached no member. A later durable write over it dropped
/// its copy, although the durable write still waited.
#[test]
fn an_answered_write_that_is_covered_by_one_that_waits_outlives_the_server() {
    for_seeds(12, covered_by_one_that_waits);
}

#[test]
fn the_newer_of_two_answered_writes_is_written_last() {
    for_seeds(12, newer_under_an_older_name);
}

#[test]
fn copies_of_before_others_wrote_are_not_believed() {
    for_seeds(12, found_after_others_wrote);
}
