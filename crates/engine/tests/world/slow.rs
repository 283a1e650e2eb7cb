//! A member stalls: nobody who reads waits for it, nothing that was forsaken comes back into an answer, and it is read
//! again when it is well.

use braid_engine::array::{MemberId, Notice};
use braid_engine::request::{Operation, RequestId};
use braid_engine::{CacheMode, SitOut};
use braid_geometry::{Geometry, Level, Slot};

use crate::clients::Mix;
use crate::for_seeds;
use crate::healthy::CHUNKS;
use crate::image::{redundant_shapes, shape};
use crate::mishap::Mishap;
use crate::scene::Scene;
use crate::world::{Event, World};

/// The member that stalls.
const SLOW: MemberId = MemberId(1);

const WRITE: Operation = Operation::Write { durable: false };

/// More steps than reads around a member take.
const STEPS_MAX: u32 = 150_000;

fn is_slow(event: &Event) -> bool {
    match event {
        Event::Io { io, .. } => io.member == SLOW,
        Event::Superblock { member, .. } | Event::Flush { member, .. } => *member == SLOW,
        _ => false,
    }
}

fn stall(world: &mut World) {
    world.habits.hold = is_slow;
}

fn wake(world: &mut World) {
    world.habits.hold = |_| false;
}

/// The same scene with an open gate and nothing under way, where members are watched.
fn opened(scene: &Scene) -> World {
    let mut world = scene.open();
    world.issue(Operation::Write { durable: true }, 0, 1);
    world.run_without_time();
    watch(&mut world);
    world
}

fn watch(world: &mut World) {
    watch_with(world, SitOut { min_ms: 150, ..SitOut::default() });
}

fn watch_with(world: &mut World, settings: SitOut) {
    world.array.handle_sit_out(world.clock.now, settings);
    world.drain_array();
    world.run_without_time();
}

fn sits_out(world: &World) -> bool {
    world.array.sitting_out().contains(&SLOW)
}

/// Half a second passes.
fn pass_time(world: &mut World) {
    let end = world.clock.now.plus_milliseconds(500);
    world.run_without_time();
    while world.clock.now < end {
        world.run_without_time();
        if world.due().is_none_or(|due| due > end) {
            world.clock.now = end;
        }
        world.tick();
    }
    world.run_without_time();
}

fn answered(world: &World, ids: &[RequestId]) -> bool {
    ids.iter().all(|id| world.clients.answers.get(id) == Some(&Ok(())))
}

/// Reads every sector of the array, a few at a time.
fn ask_for_all(world: &mut World, step: u64) -> Vec<RequestId> {
    let capacity = world.geometry.capacity_sectors();
    let starts = (0..capacity).step_by(usize::try_from(step).expect("small"));
    let mut ids = Vec::new();
    for start in starts {
        ids.push(world.issue(Operation::Read, start, step.min(capacity - start)));
    }
    ids
}

/// Until it is read again.
fn recover(world: &mut World) {
    wake(world);
    for _ in 0..40 {
        pass_time(world);
        if !sits_out(world) {
            break;
        }
    }
    assert!(!sits_out(world), "seed {}: it is well again", world.scene.seed);
    world.settle();
    world.check_members();
    let reads = world.counters().direct_reads;
    world.read_all();
    assert!(world.counters().direct_reads > reads);
    assert!(world.stop(), "nobody was lost");
    assert!(world.told.out.is_empty());
}

fn small(level: Level, slots: u16, seed: u64) -> Scene {
    let layout = if level == Level::Raid10 { 0x102 } else { 2 };
    let mut scene = Scene::new(shape(level, layout, 8, slots, 6), seed);
    scene.shards = 1 + (seed % 2) as u16;
    scene
}

const LEVELS: [(Level, u16); 6] = [
    (Level::Raid1, 2),
    (Level::Raid1, 3),
    (Level::Raid10, 4),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
];

/// Reads that are under way when the member stalls, and reads that come then.
#[test]
fn reads_go_around_a_stalled_member() {
    for (level, slots) in LEVELS {
        for_seeds(4, |seed| {
            let mut world = opened(&small(level, slots, seed));
            let around = world.counters().reads_around;
            stall(&mut world);
            let under_way = ask_for_all(&mut world, 5);
            world.run_without_time();
            assert!(!answered(&world, &under_way), "some wait for it");
            pass_time(&mut world);
            assert!(sits_out(&world), "{level} {seed}");
            assert!(answered(&world, &under_way), "{level} {seed}: they were let go of");
            let counters = world.counters();
            assert!(counters.forsaken_reads > 0, "{level}");
            assert!(counters.reads_around > around);
            // Without any more time.
            let later = ask_for_all(&mut world, 3);
            world.run_without_time();
            assert!(answered(&world, &later), "{level} {seed}");
            recover(&mut world);
        });
    }
}

/// The late read finds other bytes on its member than those that were answered, and a payload that is gone.
#[test]
fn a_late_read_changes_no_answer() {
    for (level, slots) in LEVELS {
        for_seeds(4, |seed| {
            let mut world = opened(&small(level, slots, seed));
            stall(&mut world);
            let ids = ask_for_all(&mut world, 16);
            for id in &ids {
                world.clients.flights.get_mut(id).expect("just issued").keep = true;
            }
            pass_time(&mut world);
            assert!(answered(&world, &ids));
            let kept = world.clients.kept.clone();
            for index in 0..world.devices.len() {
                world.devices[index].seen.iter_mut().for_each(|byte| *byte ^= u8::MAX);
            }
            wake(&mut world);
            world.run_without_time();
            assert_eq!(world.clients.kept, kept);
            for index in 0..world.devices.len() {
                world.devices[index].seen.iter_mut().for_each(|byte| *byte ^= u8::MAX);
            }
            recover(&mut world);
        });
    }
}

/// A write is stuck on the member, in every state of the cache; who reads does not wait for it.
#[test]
fn reads_pass_a_stuck_write() {
    for (level, slots) in LEVELS {
        for mode in [CacheMode::WriteThrough, CacheMode::WriteBack] {
            for (stripes, sectors) in [(1, 1), (2, 8), (8, 3), (40, 24), (40, 500)] {
                for_seeds(1, |seed| {
                    let mut scene = small(level, slots, seed);
                    (scene.tuning.mode, scene.tuning.stripes) = (mode, stripes);
                    let mut world = opened(&scene);
                    stall(&mut world);
                    let capacity = world.geometry.capacity_sectors();
                    for start in (0..capacity).step_by(11) {
                        world.issue(WRITE, start, sectors.min(capacity - start));
                    }
                    pass_time(&mut world);
                    let during = ask_for_all(&mut world, 7);
                    pass_time(&mut world);
                    pass_time(&mut world);
                    let what = format!("{level} {mode:?} {stripes} {sectors} {seed}");
                    assert!(answered(&world, &during), "{what}");
                    let dirty = ask_for_all(&mut world, 4);
                    world.run_without_time();
                    assert!(answered(&world, &dirty), "{what}");
                    recover(&mut world);
                });
            }
        }
    }
}

/// A raid5 that writes through, with one shard, whose member sits out.
fn read_around(seed: u64) -> World {
    let mut scene = small(Level::Raid5, 4, seed).write_through();
    scene.shards = 1;
    let mut world = opened(&scene);
    stall(&mut world);
    ask_for_all(&mut world, 5);
    pass_time(&mut world);
    assert!(sits_out(&world));
    world
}

/// Nothing is written to a band that is read beside its stripe, or what is solved for would be a mixture.
#[test]
fn a_write_waits_for_reads_beside_it() {
    for_seeds(8, |seed| {
        let mut world = read_around(seed);
        // One of the others holds up a read beside the stripe of the first row.
        world.habits.hold = |event| match event {
            Event::Io { io, .. } => io.member == SLOW || io.member == MemberId(2),
            _ => false,
        };
        let reads = ask_for_all(&mut world, 24);
        world.run_without_time();
        assert!(!answered(&world, &reads));
        for start in 0..24 {
            world.issue(WRITE, start, 1);
        }
        world.run_without_time();
        let writes =
            |event: &&Event| matches!(event, Event::Io { io, .. } if io.operation.is_write());
        assert_eq!(world.pending.iter().filter(writes).count(), 0, "seed {seed}");
        stall(&mut world);
        pass_time(&mut world);
        assert!(answered(&world, &reads));
        assert!(world.pending.iter().filter(writes).count() > 0, "and it goes on");
        recover(&mut world);
    });
}

/// A block that is written again and again: a read of another column of its row, whose member sits out, has its turn.
#[test]
fn a_read_is_let_in_between_two_writes_of_its_band() {
    for_seeds(8, |seed| {
        let mut world = read_around(seed);
        // The first row: sectors 8 to 15 are on the member that stalls, and 0 to 7 are not.
        let mut writes = [0, 1].map(|start| (start, world.issue(WRITE, start, 1)));
        let (read, mut rewritten) = (world.issue(Operation::Read, 8, 4), 0);
        while !answered(&world, &[read]) {
            world.step(false);
            for (start, id) in &mut writes {
                if answered(&world, &[*id]) {
                    *id = world.issue(WRITE, *start, 1);
                    rewritten += 1;
                }
            }
            assert!(rewritten < 40, "seed {seed}: the read waits for ever");
        }
        recover(&mut world);
    });
}

/// One member is missing, another misses writes and is not out yet, since a third holds the batch up.
#[test]
fn reads_go_around_a_stalled_and_a_failing_member() {
    for_seeds(12, |seed| {
        let mut scene = small(Level::Raid6, 6, seed);
        scene.shards = 1;
        if seed % 2 == 0 {
            scene.missing.push(4);
        }
        let mut world = opened(&scene);
        stall(&mut world);
        if seed % 2 == 1 {
            world.mishaps.push((0, Mishap::WritesFail(MemberId(3))));
        }
        let capacity = world.geometry.capacity_sectors();
        for start in (0..capacity).step_by(9) {
            world.issue(WRITE, start, 5.min(capacity - start));
        }
        pass_time(&mut world);
        let reads = ask_for_all(&mut world, 7);
        pass_time(&mut world);
        assert!(sits_out(&world), "seed {seed}");
        assert!(answered(&world, &reads), "seed {seed}");
        wake(&mut world);
        world.settle();
        world.check_members();
        world.read_all();
    });
}

/// A level that can do without nobody more reads the member, however long it takes.
#[test]
fn a_member_that_is_needed_does_not_sit_out() {
    for_seeds(4, |seed| {
        let mut scene = small(Level::Raid5, 4, seed);
        scene.missing.push(3);
        let mut world = opened(&scene);
        stall(&mut world);
        let ids = ask_for_all(&mut world, 5);
        pass_time(&mut world);
        assert!(!sits_out(&world) && !answered(&world, &ids));
        wake(&mut world);
        world.settle();
        assert!(answered(&world, &ids));
    });
}

/// It can be turned off at any time.
#[test]
fn turned_off_nobody_sits_out() {
    for_seeds(4, |seed| {
        let mut world = opened(&small(Level::Raid6, 5, seed));
        stall(&mut world);
        let ids = ask_for_all(&mut world, 5);
        pass_time(&mut world);
        assert!(sits_out(&world) && answered(&world, &ids));
        world.array.handle_sit_out(world.clock.now, SitOut::OFF);
        world.drain_array();
        world.run_without_time();
        let more = ask_for_all(&mut world, 5);
        pass_time(&mut world);
        assert!(!sits_out(&world) && !answered(&world, &more));
        let back = |notice: &Notice| matches!(notice, Notice::Back { member: SLOW, .. });
        assert!(world.told.notices.iter().any(back));
        wake(&mut world);
        world.settle();
        assert!(answered(&world, &more));
    });
}

/// Any clients, any shape, any order: members stall and wake, and time passes as it likes.
#[test]
fn a_stalled_member_is_nobodys_business() {
    for_seeds(4, |seed| {
        let shapes = redundant_shapes(CHUNKS[seed as usize % 3]);
        for (index, shape) in shapes.into_iter().enumerate() {
            let mut scene = Scene::new(shape, 11_000_000 + seed * 100 + index as u64);
            let geometry = Geometry::new(&scene.shape).expect("a scene's shape is valid");
            let away = scene.shape.slots - 1;
            let may_miss = geometry.survives(&|slot: Slot| slot.0 == away || slot.0 == SLOW.0);
            if may_miss && seed % 2 == 1 {
                scene.missing.push(away);
            }
            let mut world = scene.open();
            // Time jumps here, so that anybody may seem slow for a while; this one is.
            watch_with(&mut world, SitOut { min_ms: 5000, ..SitOut::default() });
            world.run(&Mix { requests: 30, ..Mix::ALL });
            stall(&mut world);
            for _ in 0..20 {
                world.issue_any(&Mix::ALL);
            }
            serve_reads(&mut world);
            wake(&mut world);
            world.run(&Mix { requests: 30, ..Mix::ALL });
            world.check_members();
            assert!(world.stop(), "a whole array stops clean");
        }
    });
}

/// Lets things happen until every read is answered, whatever else waits. A read that another member's sitting out
/// has moved to this one before waits for it.
fn serve_reads(world: &mut World) {
    let seed = world.scene.seed;
    for _ in 0..STEPS_MAX {
        let reads = |flight: &crate::world::Flight| flight.request.operation == Operation::Read;
        if !world.clients.flights.values().any(reads) {
            return;
        }
        world.step(false);
    }
    let other =
        |notice: &Notice| matches!(notice, Notice::SitsOut { member, .. } if *member != SLOW);
    if world.told.notices.iter().any(other) {
        return;
    }
    let left: Vec<_> = world.clients.flights.values().map(|flight| flight.request).collect();
    let out = world.array.sitting_out();
    panic!("seed {seed}: {out:?} sit out, and reads wait for a stalled member: {left:?}");
}

/// A bad sector is read, solved for and written again, and that write hangs, as a disk does that looks for a new place for it. A
/// write of another column of the row waits for it; who reads must not.
#[test]
fn reads_pass_a_stuck_repair() {
    for_seeds(4, |seed| {
        let mut scene = small(Level::Raid5, 4, seed).write_through();
        scene.shards = 1;
        let mut world = opened(&scene);
        world.devices[1].bad.insert(2);
        world.habits.hold = |event| match event {
            Event::Io { io, .. } => io.member == SLOW && io.operation.is_write(),
            _ => false,
        };
        // The first row: sectors 8 to 15 are on the member.
        let first = world.issue(Operation::Read, 8, 4);
        world.run_without_time();
        assert!(answered(&world, &[first]));
        let writes =
            |event: &&Event| matches!(event, Event::Io { io, .. } if io.operation.is_write());
        assert_eq!(world.pending.iter().filter(writes).count(), 1, "it is being repaired");
        let write = world.issue(WRITE, 0, 1);
        world.run_without_time();
        assert!(!answered(&world, &[write]), "it waits for the repair");
        stall(&mut world);
        pass_time(&mut world);
        assert!(sits_out(&world), "seed {seed}");
        let reads = ask_for_all(&mut world, 4);
        pass_time(&mut world);
        assert!(answered(&world, &reads), "seed {seed}: reads wait for a stuck repair");
        recover(&mut world);
    });
}
