//! The stripe cache: what is answered early, what is put off, and what a read sees of it.

use braid_engine::CacheMode;
use braid_engine::array::{MemberId, Notice};
use braid_engine::cause::Cause;
use braid_engine::request::{Fault, Operation};
use braid_geometry::Level;

use crate::clients::Mix;
use crate::for_seeds;
use crate::healthy::CHUNKS;
use crate::image::{redundant_shapes, shape};
use crate::mishap::Mishap;
use crate::scene::{Scene, any_tuning};
use crate::world::{Event, World};

const WRITE: Operation = Operation::Write { durable: false };

/// RAID-5 of four, chunks of 8 sectors: 24 sectors of data to a row.
fn scene(seed: u64) -> Scene {
    let mut scene = Scene::new(shape(Level::Raid5, 2, 8, 4, 40), seed).write_back();
    (scene.shards, scene.unit_sectors_max) = (1, 8);
    scene.tuning.stripes = 8;
    scene.tuning.dirty_sectors_max = 4000;
    scene.tuning.age_max_ms = 50;
    scene
}

/// Nothing reaches a member from here on.
fn hold_members(world: &mut World) {
    world.habits.hold = |event: &Event| matches!(event, Event::Io { .. });
}

/// Issues a write and lets everything happen but time; whether it was answered.
fn try_write(world: &mut World, operation: Operation, start: u64, sectors: u64) -> bool {
    let id = world.issue(operation, start, sectors);
    world.run_without_time();
    world.clients.answers.get(&id) == Some(&Ok(()))
}

/// Issues a read and lets everything happen but time; its answer. The world checks the bytes.
fn try_read(world: &mut World, start: u64, sectors: u64) -> Result<(), Fault> {
    let id = world.issue(Operation::Read, start, sectors);
    world.run_without_time();
    world.clients.answers[&id]
}

/// The gate is open, and nothing is under way.
fn opened(scene: &Scene) -> World {
    let mut world = scene.open();
    world.issue(Operation::Write { durable: true }, 0, 1);
    world.run_without_time();
    world
}

#[test]
fn a_cache_that_is_tuned_under_load_keeps_every_byte() {
    for_seeds(6, |seed| {
        let shapes = redundant_shapes(CHUNKS[seed as usize % 3]);
        for (index, shape) in shapes.into_iter().enumerate() {
            let scene = Scene::new(shape, 9_000_000 + seed * 100 + index as u64).write_back();
            let mut world = scene.open();
            for _ in 0..world.random.below(6) {
                let step = world.random.below(1000);
                let tuning = any_tuning(&mut world.random);
                world.mishaps.push((step, Mishap::Tuned(tuning)));
            }
            world.run(&Mix { requests: 60, ..Mix::ALL });
            world.check_members();
            assert!(world.stop(), "a whole array stops clean");
        }
    });
}

#[test]
fn a_read_sees_what_was_answered() {
    for_seeds(20, |seed| {
        let mut world = opened(&scene(seed));
        hold_members(&mut world);
        // Two writes that overlap, on no member yet; the oracle knows which sector has which.
        assert!(try_write(&mut world, WRITE, 2, 6), "answered though no member has it");
        assert!(try_write(&mut world, WRITE, 4, 1));
        assert!(try_write(
            &mut world,
            Operation::WriteZeroes { may_punch: false, durable: false },
            6,
            1
        ));
        let dirty = world.counters().cache.dirty_reads;
        assert!(try_write(&mut world, Operation::Read, 2, 6), "nobody but the cache is asked");
        assert_eq!(world.counters().cache.dirty_reads, dirty + 1);
        world.habits.hold = |_| false;
        world.read(0, 24).expect("the rest comes from the member");
        world.settle();
        world.check_members();
    });
}

#[test]
fn a_partial_stripe_is_written_when_it_is_old() {
    for_seeds(4, |seed| {
        let mut world = opened(&scene(seed));
        assert!(try_write(&mut world, WRITE, 0, 4));
        let writes = world.counters().member_writes;
        world.run_without_time();
        assert_eq!(world.counters().member_writes, writes, "it may fill up");
        world.tick();
        world.run_without_time();
        assert!(world.counters().member_writes > writes, "it is old");
    });
}

#[test]
fn a_stripe_that_fills_up_reads_nothing() {
    for_seeds(4, |seed| {
        let mut world = opened(&scene(seed));
        world.run_without_time();
        let before = world.counters();
        for start in (24..48).step_by(4) {
            assert!(try_write(&mut world, WRITE, start, 4));
        }
        let after = world.counters();
        assert_eq!(after.pre_reads, before.pre_reads);
        assert_eq!(after.full_stripe_writes, before.full_stripe_writes + 1);
        assert_eq!(after.member_writes, before.member_writes + 4);
        world.settle();
        world.check_members();
    });
}

#[test]
fn a_full_cache_delays_nothing() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed);
        scene.tuning.stripes = 2;
        let mut world = opened(&scene);
        for row in 1..20 {
            assert!(try_write(&mut world, WRITE, row * 24, 4), "row {row}");
        }
        assert!(world.counters().cache.stripe_waits > 0);
        world.settle();
        world.check_members();
    });
}

#[test]
fn beyond_the_dirty_limit_writes_are_answered_when_they_are_written() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed);
        scene.tuning.dirty_sectors_max = 8;
        let mut world = opened(&scene);
        hold_members(&mut world);
        assert!(try_write(&mut world, WRITE, 24, 4));
        assert!(try_write(&mut world, WRITE, 48, 4));
        assert!(!try_write(&mut world, WRITE, 72, 4), "one too many");
        world.habits.hold = |_| false;
        world.settle();
        world.check_members();
    });
}

/// Nobody could make up for a second mishap, so nothing is promised before it is done.
#[test]
fn an_array_that_can_lose_nobody_more_answers_nothing_early() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed);
        scene.missing.push(2);
        let mut world = opened(&scene);
        hold_members(&mut world);
        assert!(!try_write(&mut world, WRITE, 24, 24));
        world.habits.hold = |_| false;
        world.settle();
        assert_eq!(world.counters().cache.early_answers, 0);
    });
}

#[test]
fn a_write_takes_an_older_ones_place_and_its_debt() {
    for_seeds(4, |seed| {
        let mut world = opened(&scene(seed));
        for _ in 0..5 {
            assert!(try_write(&mut world, WRITE, 24, 4));
        }
        assert_eq!(world.counters().cache.superseded_writes, 4);
        let (writes, flush) = (world.counters().member_writes, world.flush());
        world.run_without_time();
        assert_eq!(world.clients.answers[&flush], Ok(()));
        assert_eq!(world.counters().member_writes, writes + 2, "one column and parity");
        world.check_members();
    });
}

/// Parity that a batch has made is not read again by the next one.
#[test]
fn what_is_in_the_cache_is_not_read_again() {
    for_seeds(4, |seed| {
        let mut world = opened(&scene(seed).write_through());
        for start in [24, 32, 40, 24] {
            assert!(try_write(&mut world, WRITE, start, 8));
        }
        let counters = world.counters();
        assert_eq!(counters.rmw_writes + counters.rcw_writes, 5, "one was before");
        assert!(counters.cache.cached_columns >= 3, "{counters:?}");
        assert!(counters.pre_reads < 10, "{counters:?}");
        world.check_members();
    });
}

/// Members that nothing was written to since their last flush are left in peace.
#[test]
fn a_flush_reaches_only_members_that_were_written() {
    for_seeds(4, |seed| {
        let mut world = opened(&scene(seed));
        world.flush();
        world.run_without_time();
        let flushes = |world: &World| world.devices.iter().map(|d| d.flushes).collect::<Vec<_>>();
        let before = flushes(&world);
        assert!(try_write(&mut world, WRITE, 24, 1));
        world.flush();
        world.run_without_time();
        let new: Vec<u64> = flushes(&world).iter().zip(before).map(|(a, b)| a - b).collect();
        assert_eq!(new.iter().sum::<u64>(), 2, "data and parity: {new:?}");
        let before = flushes(&world);
        world.flush();
        world.run_without_time();
        assert_eq!(flushes(&world), before, "nothing was written");
    });
}

/// More fails than the level can make up for, after the answer: flushes say so from then on.
#[test]
fn a_write_that_is_lost_after_its_answer_fails_every_flush() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed);
        scene.errors_allowed = true;
        let mut world = opened(&scene);
        for member in 0..4 {
            for sector in 8..16 {
                world.happen(Mishap::BadSector(MemberId(member), sector));
            }
        }
        assert!(try_write(&mut world, WRITE, 24, 4), "answered: nobody knows yet");
        let flush = world.flush();
        world.settle();
        assert!(world.clients.answers[&flush].is_err());
        let is_told =
            |notice: &Notice| matches!(notice, Notice::WriteLost { start, .. } if start.0 == 24);
        assert!(world.told.notices.iter().any(is_told), "{:?}", world.told.notices);
        let flush = world.flush();
        world.settle();
        assert!(world.clients.answers[&flush].is_err(), "it may be another client");
    });
}

/// The members hold what was there before the client was answered. To read that is to lie.
#[test]
fn an_answered_write_that_was_lost_is_not_read_as_the_old_bytes() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed);
        scene.errors_allowed = true;
        let mut world = opened(&scene);
        // In the second row the first data column is on member 3: only that can be read.
        for member in 0..3 {
            for sector in 8..16 {
                world.happen(Mishap::BadSector(MemberId(member), sector));
            }
        }
        assert!(try_read(&mut world, 24, 4).is_ok(), "the old bytes can be read");
        assert!(try_write(&mut world, WRITE, 24, 4), "answered: parity cannot be made");
        assert!(try_read(&mut world, 24, 4).is_ok(), "out of the payload");
        world.flush();
        world.settle();
        for (start, sectors) in [(24, 4), (27, 1), (20, 5), (26, 4)] {
            assert_eq!(try_read(&mut world, start, sectors), Err(Fault::Lost), "{start}+{sectors}");
        }
        assert!(try_read(&mut world, 28, 4).is_ok(), "the rest of the column is as it was");
        // A whole row needs no reads, and gives the bad sectors a new place.
        assert!(try_write(&mut world, WRITE, 24, 24));
        assert!(try_read(&mut world, 24, 24).is_ok(), "out of the payload");
        world.flush();
        world.settle();
        assert!(try_read(&mut world, 24, 24).is_ok(), "it is on the members");
    });
}

#[test]
fn switching_to_write_through_leaves_nothing_behind() {
    for_seeds(4, |seed| {
        let scene = scene(seed);
        let mut world = opened(&scene);
        assert!(try_write(&mut world, WRITE, 24, 4));
        let tuning = braid_engine::Tuning { mode: CacheMode::WriteThrough, ..scene.tuning };
        world.happen(Mishap::Tuned(tuning));
        world.run_without_time();
        assert!(world.shards.iter().all(|side| side.shard.dirty_sectors() == 0));
        world.check_members();
    });
}

#[test]
fn one_bad_sector_loses_no_answered_write_of_a_dirty_array() {
    for_seeds(2, |seed| {
        let mut scene = scene(seed);
        (scene.resync_offset, scene.errors_allowed) = (0, true);
        let mut world = opened(&scene);
        world.happen(Mishap::BadSector(MemberId(0), 9));
        assert!(!try_write(&mut world, WRITE, 24, 4), "one mishap loses it, so it is not promised");
    });
}

#[test]
fn two_bad_sectors_far_apart_lose_no_answered_write() {
    for_seeds(2, |seed| {
        let mut scene = Scene::new(shape(Level::Raid5, 2, 128, 4, 4), seed).write_back();
        (scene.shards, scene.unit_sectors_max) = (1, 128);
        scene.tuning = braid_engine::Tuning {
            stripes: 8,
            mode: CacheMode::WriteBack,
            ..braid_engine::Tuning::default()
        };
        let mut world = opened(&scene);
        // Row 1: P in slot 2, data in 3, 0, 1. One bad sector in each of two columns, 40 KiB apart.
        world.happen(Mishap::BadSector(MemberId(0), 128 + 10));
        world.happen(Mishap::BadSector(MemberId(1), 128 + 100));
        assert!(try_write(&mut world, WRITE, 384 + 128, 1));
        assert!(try_write(&mut world, WRITE, 384 + 256 + 127, 1));
        let flush = world.flush();
        world.settle();
        assert_eq!(world.clients.answers[&flush], Ok(()));
    });
}

#[test]
fn two_bad_sectors_far_apart_can_be_read() {
    for_seeds(2, |seed| {
        let mut scene = Scene::new(shape(Level::Raid5, 2, 128, 4, 4), seed).write_through();
        (scene.shards, scene.unit_sectors_max) = (1, 128);
        let mut world = opened(&scene);
        world.happen(Mishap::BadSector(MemberId(0), 128 + 10));
        world.happen(Mishap::BadSector(MemberId(1), 128 + 100));
        assert!(world.read(384 + 128, 128).is_ok());
    });
}

#[test]
fn a_broken_array_stops_when_its_shards_have_drained() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed);
        scene.errors_allowed = true;
        let mut world = opened(&scene);
        assert!(try_write(&mut world, WRITE, 24, 4));
        world.array.handle_member_gone(world.clock.now, Cause::vanished(MemberId(0)));
        world.drain_array();
        world.array.handle_member_gone(world.clock.now, Cause::vanished(MemberId(1)));
        world.drain_array();
        world.array.handle_stop(world.clock.now);
        world.drain_array();
        while !world.told.notices.iter().any(|n| matches!(n, Notice::Stopped { .. })) {
            world.step(false);
        }
        let dirty: u64 = world.shards.iter().map(|s| s.shard.dirty_sectors()).sum();
        assert_eq!(dirty, 0, "stopped while answered writes are only in memory");
    });
}
