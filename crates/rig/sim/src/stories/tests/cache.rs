//! The stripe cache: writes that are acknowledged early and written later, and reads of them.

use braid_engine::array::Notice;
use braid_engine::request::{Fault, Operation};
use braid_engine::{CacheConfig, CacheMode, Tuning};
use braid_geometry::Level;

use super::for_seeds;
use super::scene::{Scene, design};
use super::script::{Script, WRITE};
use crate::schedule::Event;

/// A RAID-5 of four members with chunks of 8 sectors, so 24 sectors of data in a row.
fn scene(seed: u64) -> Scene {
    let mut scene = Scene::new(design(Level::Raid5, 2, 8, 4, 40), seed).write_back();
    scene.manner.shards = 1;
    scene.manner.cache.unit_sectors_max = 8;
    scene.manner.cache.tuning.dirty_sectors_max = 4000;
    scene.manner.cache.tuning.age_max_ms = 50;
    scene.with_stripes(8)
}

/// Opens a scene, so that the gate is open and nothing is in flight.
fn opened(scene: &Scene) -> Script {
    let mut story = scene.open();
    story.issue(Operation::Write { durable: true }, 0, 1);
    story.run_without_time();
    story
}

#[test]
fn a_read_sees_what_was_answered() {
    for_seeds(20, |seed| {
        let mut story = opened(&scene(seed));
        story.hold_io();
        // Two writes overlap, and no member has them yet. The model knows the last write of each
        // sector.
        assert!(story.try_write(2, 6), "answered though no member has it");
        assert!(story.try_write(4, 1));
        let zeroes = Operation::WriteZeroes { may_punch: false, durable: false };
        let zeroes = story.issue(zeroes, 6, 1);
        story.run_without_time();
        assert!(story.went_well(&[zeroes]));
        let dirty = story.counters().cache.dirty_reads;
        assert_eq!(story.try_read(2, 6), Ok(()), "the cache alone serves the read");
        assert_eq!(story.counters().cache.dirty_reads, dirty + 1);
        story.release();
        story.read(0, 24).expect("the rest comes from the member");
        story.ends_well();
    });
}

#[test]
fn a_partial_stripe_is_written_when_it_is_old() {
    for_seeds(4, |seed| {
        let mut story = opened(&scene(seed));
        assert!(story.try_write(0, 4));
        let writes = story.counters().member_writes;
        story.run_without_time();
        assert_eq!(story.counters().member_writes, writes, "the stripe waits to fill up");
        story.tick();
        story.run_without_time();
        assert!(story.counters().member_writes > writes, "the stripe is old");
    });
}

#[test]
fn a_stripe_that_fills_up_reads_nothing() {
    for_seeds(4, |seed| {
        let mut story = opened(&scene(seed));
        let before = story.counters();
        for start in (24..48).step_by(4) {
            assert!(story.try_write(start, 4));
        }
        let after = story.counters();
        assert_eq!(after.pre_reads, before.pre_reads);
        assert_eq!(after.full_stripe_writes, before.full_stripe_writes + 1);
        assert_eq!(after.member_writes, before.member_writes + 4);
        story.ends_well();
    });
}

/// Regression: the shard had memory for two stripes. Two small writes took all of that memory, and
/// all later writes waited.
#[test]
fn small_writes_far_apart_wait_for_no_memory() {
    for_seeds(4, |seed| {
        let mut story = opened(&scene(seed).with_stripes(2));
        let before = story.counters();
        for row in 1..20 {
            assert!(story.try_write(row * 24, 4), "row {row}");
        }
        let after = story.counters();
        assert_eq!((after.member_writes, after.cache.stripe_waits), (before.member_writes, 0));
        assert_eq!(story.flush_alone(), Ok(()));
        assert!(story.counters().cache.stripe_waits > 0, "two are written at a time");
        story.ends_well();
    });
}

#[test]
fn beyond_the_dirty_limit_writes_are_answered_when_they_are_written() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed);
        // Each stripe counts as at least 4 KiB, so the limit allows two stripes.
        scene.manner.cache.tuning.dirty_sectors_max = 16;
        let mut story = opened(&scene);
        story.hold_io();
        assert!(story.try_write(24, 4));
        assert!(story.try_write(48, 4));
        assert!(!story.try_write(72, 4), "the write exceeds the limit");
        story.release();
        story.settle();
        story.ends_well();
    });
}

/// With a member missing, one more failure would lose a held write. So no write is acknowledged
/// before members have it.
#[test]
fn an_array_that_can_lose_nobody_more_answers_nothing_early() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed);
        scene.missing.push(2);
        let mut story = opened(&scene);
        story.hold_io();
        assert!(!story.try_write(24, 24));
        story.release();
        story.settle();
        assert_eq!(story.counters().cache.early_answers, 0);
    });
}

#[test]
fn a_write_takes_an_older_ones_place_and_its_debt() {
    for_seeds(4, |seed| {
        let mut story = opened(&scene(seed));
        for _ in 0..5 {
            assert!(story.try_write(24, 4));
        }
        assert_eq!(story.counters().cache.superseded_writes, 4);
        let (writes, flush) = (story.counters().member_writes, story.flush());
        story.run_without_time();
        assert_eq!(story.answer(flush), Some(Ok(())));
        assert_eq!(story.counters().member_writes, writes + 2, "one column and parity");
        story.ends_well();
    });
}

/// A write waits for a full-stripe write of another row, and a flush waits for the held write. A
/// later write replaces the held write, and the flush must wait for the later write instead.
pub(in super::super) fn replaced_while_a_flush_waits(seed: u64) {
    let mut scene = scene(seed);
    scene.manner.cache.tuning.bypass_threshold = 5;
    let mut story = opened(&scene);
    story.hold_io();
    assert!(story.try_write(48, 24));
    assert!(story.try_write(24, 4));
    let flush = story.flush();
    story.run_without_time();
    assert!(story.try_write(24, 4));
    assert_eq!(story.counters().cache.superseded_writes, 1);
    assert_eq!(story.answer(flush), None);
    story.release();
    while story.answer(flush).is_none() {
        story.step(false);
    }
    assert!(story.loses_power());
}

#[test]
fn a_flush_that_waits_for_a_write_waits_for_what_takes_its_place() {
    for_seeds(20, replaced_while_a_flush_waits);
}

#[test]
fn what_is_in_the_cache_is_not_read_again() {
    for_seeds(4, |seed| {
        let mut story = opened(&scene(seed).write_through());
        for start in [24, 32, 40, 24] {
            assert!(story.try_write(start, 8));
        }
        let counters = story.counters();
        assert_eq!(counters.rmw_writes + counters.rcw_writes, 5, "one was before");
        assert!(counters.cache.cached_columns >= 3, "{counters:?}");
        assert!(counters.pre_reads < 10, "{counters:?}");
        story.ends_well();
    });
}

/// Flushes while nothing else is in flight. Returns how many members were flushed.
fn flushed(story: &mut Script) -> usize {
    story.hold(|event| matches!(event, Event::Flush { .. }));
    let flush = story.flush();
    story.run_without_time();
    let members = story.held().len();
    story.release();
    story.run_without_time();
    assert!(story.went_well(&[flush]));
    members
}

#[test]
fn a_flush_reaches_only_members_that_were_written() {
    for_seeds(4, |seed| {
        let mut story = opened(&scene(seed).write_through());
        flushed(&mut story);
        assert!(story.try_write(24, 1));
        assert_eq!(flushed(&mut story), 2, "data and parity");
        assert_eq!(flushed(&mut story), 0, "nothing was written");
    });
}

/// A client flushes after each write. The flush waits for one read and one durable write, nothing
/// else.
#[test]
fn a_flush_after_one_write_flushes_no_member() {
    for_seeds(4, |seed| {
        let mut story = opened(&scene(seed));
        flushed(&mut story);
        assert!(story.try_write(24, 1));
        assert_eq!(flushed(&mut story), 0, "it was written durably");
        assert!([24, 48, 72].into_iter().all(|start| story.try_write(start, 1)));
        assert!(flushed(&mut story) >= 2, "after many writes the members are flushed once");
        assert!(story.try_write(24, 1));
        assert_eq!(flushed(&mut story), 0, "the next one is alone again");
        assert!(story.loses_power(), "and nothing that was flushed is lost");
    });
}

/// After a write was acknowledged early, more members fail than the level tolerates.
#[test]
fn a_write_that_is_lost_after_its_answer_fails_every_flush() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed);
        scene.errors_allowed = true;
        let mut story = opened(&scene);
        for disk in 0..4 {
            (8..16).for_each(|sector| story.bad_sector(disk, sector));
        }
        assert!(story.try_write(24, 4), "acknowledged: no read met the bad sectors yet");
        assert!(story.flush_alone().is_err());
        let is_told =
            |notice: &Notice| matches!(notice, Notice::WriteLost { start, .. } if start.0 == 24);
        assert!(story.heard(is_told));
        assert!(story.flush_alone().is_err(), "it may be another client");
    });
}

/// An acknowledged write is lost, so the members hold older bytes. No read may return these bytes.
#[test]
fn an_answered_write_that_was_lost_is_not_read_as_the_old_bytes() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed);
        scene.errors_allowed = true;
        let mut story = opened(&scene);
        // The first data column of the second row is on disk 3. Only that disk stays readable.
        for disk in 0..3 {
            (8..16).for_each(|sector| story.bad_sector(disk, sector));
        }
        assert!(story.try_read(24, 4).is_ok(), "the old bytes can be read");
        assert!(story.try_write(24, 4), "acknowledged before parity fails");
        assert!(story.try_read(24, 4).is_ok(), "out of the payload");
        assert!(story.flush_alone().is_err());
        for (start, sectors) in [(24, 4), (27, 1), (20, 5), (26, 4)] {
            assert_eq!(story.try_read(start, sectors), Err(Fault::Lost), "{start}+{sectors}");
        }
        assert!(story.try_read(28, 4).is_ok(), "the rest of the column is as it was");
        // A write of a whole row needs no reads, and makes bad sectors readable.
        assert!(story.try_write(24, 24));
        assert!(story.try_read(24, 24).is_ok(), "out of the payload");
        assert!(story.flush_alone().is_err());
        assert!(story.try_read(24, 24).is_ok(), "it is on the members");
    });
}

#[test]
fn switching_to_write_through_leaves_nothing_behind() {
    for_seeds(4, |seed| {
        let scene = scene(seed);
        let mut story = opened(&scene);
        assert!(story.try_write(24, 4));
        story.tune(Tuning { mode: CacheMode::WriteThrough, ..scene.manner.cache.tuning });
        story.run_without_time();
        assert_eq!(story.dirty_sectors(), 0);
        story.ends_well();
    });
}

#[test]
fn one_bad_sector_loses_no_answered_write_of_a_dirty_array() {
    for_seeds(2, |seed| {
        let mut scene = scene(seed);
        (scene.resync_offset, scene.errors_allowed) = (0, true);
        let mut story = opened(&scene);
        story.bad_sector(0, 9);
        assert!(!story.try_write(24, 4), "one more failure loses it, so it waits for the members");
    });
}

/// A RAID-5 with chunks of 64 KiB. Row 1 has P in slot 2, and data in slots 3, 0 and 1. Two sectors
/// of that row are bad, 40 KiB apart.
fn with_two_bad_sectors(seed: u64, tuning: Tuning) -> Script {
    let mut scene = Scene::new(design(Level::Raid5, 2, 128, 4, 4), seed);
    scene.manner.shards = 1;
    scene.manner.cache = CacheConfig::in_memory(128, tuning);
    let mut story = opened(&scene);
    story.bad_sector(0, 128 + 10);
    story.bad_sector(1, 128 + 100);
    story
}

#[test]
fn two_bad_sectors_far_apart_lose_no_answered_write() {
    for_seeds(2, |seed| {
        let tuning = Tuning { stripes: 8, mode: CacheMode::WriteBack, ..Tuning::default() };
        let mut story = with_two_bad_sectors(seed, tuning);
        assert!(story.try_write(384 + 128, 1));
        assert!(story.try_write(384 + 256 + 127, 1));
        assert_eq!(story.flush_alone(), Ok(()));
    });
}

#[test]
fn two_bad_sectors_far_apart_can_be_read() {
    for_seeds(2, |seed| {
        let tuning = Tuning { stripes: 2, mode: CacheMode::WriteThrough, ..Tuning::default() };
        let mut story = with_two_bad_sectors(seed, tuning);
        assert!(story.read(384 + 128, 128).is_ok());
    });
}

/// All members have bad sectors, but never two at the same 4 KiB offset. Parity makes up for each
/// bad sector, however many of them a request covers, and whatever is written with them.
#[test]
fn bad_sectors_that_never_meet_cost_no_request() {
    const CHUNK: u64 = 128;
    const BLOCK: usize = 8;
    for_seeds(12, |seed| {
        let mut scene = Scene::new(design(Level::Raid5, 2, CHUNK as u32, 4, 2), seed);
        scene.manner.shards = 1;
        let mut story = opened(&scene);
        for block in (0..2 * CHUNK).step_by(BLOCK) {
            let disk = story.random.below(4) as usize;
            let sector = block + story.random.below(BLOCK as u64);
            story.bad_sector(disk, sector);
        }
        for _ in 0..30 {
            let sectors = *story.random.pick(&[1, 2, 9, 40, 200]);
            let start = story.random.below(story.capacity() - sectors);
            let operation = *story.random.pick(&[Operation::Read, WRITE, WRITE]);
            story.issue(operation, start, sectors);
            if story.random.chance(20) {
                assert_eq!(story.flush_alone(), Ok(()));
            }
        }
        story.settle();
        assert!(!story.is_any_out());
        story.ends_well();
    });
}

#[test]
fn a_broken_array_stops_when_its_shards_have_drained() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed);
        scene.errors_allowed = true;
        let mut story = opened(&scene);
        assert!(story.try_write(24, 4));
        story.vanishes(0);
        story.vanishes(1);
        story.tell_to_stop();
        while story.stopped().is_none() {
            story.step(false);
        }
        assert_eq!(story.dirty_sectors(), 0, "the array stopped with dirty sectors");
    });
}
