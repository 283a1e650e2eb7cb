//! What superblocks say, and when: the invariants I3, I4 and I5 as stories, and the event count.

use braid_engine::array::MemberId;
use braid_engine::request::Operation;
use braid_geometry::Level;

use crate::for_seeds;
use crate::image::shape;
use crate::mishap::Mishap;
use crate::scene::{EVENTS, Scene};
use crate::world::{Event, World};

const WRITE: Operation = Operation::Write { durable: false };

fn levels() -> [(Level, u32); 4] {
    [(Level::Raid1, 0), (Level::Raid5, 2), (Level::Raid6, 2), (Level::Raid10, 0x103)]
}

fn open(level: Level, layout: u32, seed: u64) -> World {
    Scene::new(shape(level, layout, 8, 4, 4), seed).write_through().open()
}

/// What the members' superblocks say, slot by slot: events, and whether clean.
fn superblocks(world: &World) -> Vec<(u64, bool)> {
    let slots = usize::from(world.scene.shape.slots);
    let states = world.devices[..slots].iter().map(|device| &device.superblock);
    states.map(|state| (state.events, state.resync_offset != 0)).collect()
}

#[test]
fn gate_opens_after_superblocks() {
    for (level, layout) in levels() {
        for_seeds(6, |seed| {
            let mut world = open(level, layout, seed);
            let before: Vec<Vec<u8>> = world.devices.iter().map(|d| d.seen.clone()).collect();
            world.habits.hold =
                |event| matches!(event, Event::Superblock { member: MemberId(1), .. });
            let write = world.issue(WRITE, 3, 20);
            world.run_without_time();
            let asked = world.pending.iter().any(|event| matches!(event, Event::Io { .. }));
            assert!(!asked, "{level}: nothing is asked of members before");
            assert!(world.devices.iter().map(|d| &d.seen).eq(&before), "nor written");
            assert!(!world.clients.answers.contains_key(&write), "nor answered");
            world.habits.hold = |_| false;
            world.run_without_time();
            assert_eq!(world.clients.answers[&write], Ok(()));
            assert_eq!(superblocks(&world), [(EVENTS + 2, false); 4], "said twice");
        });
    }
}

#[test]
fn missed_write_waits_for_superblocks() {
    for (level, layout) in levels() {
        for_seeds(6, |seed| {
            let mut world = open(level, layout, seed);
            world.issue(WRITE, 0, 1);
            world.run_without_time();
            world.happen(Mishap::WritesFail(MemberId(0)));
            world.habits.hold =
                |event| matches!(event, Event::Superblock { member: MemberId(2), .. });
            // All of it, so that slot 0 gets its share whatever the layout.
            let capacity = world.geometry.capacity_sectors();
            let write = world.issue(WRITE, 0, capacity);
            world.run_without_time();
            let told = &world.devices[1].superblock;
            assert_eq!(told.events, EVENTS + 3);
            assert!(told.roles.iter().all(|role| role.member != MemberId(0)), "the loss is told");
            assert!(!world.clients.answers.contains_key(&write), "but not by all survivors");
            assert!(world.told.out.is_empty());
            world.habits.hold = |_| false;
            world.run_without_time();
            assert_eq!(world.clients.answers[&write], Ok(()), "{level}");
            assert!(world.told.out.contains(&MemberId(0)));
            assert_eq!(superblocks(&world)[1..], [(EVENTS + 4, false); 3]);
        });
    }
}

#[test]
fn clean_only_after_drain_and_flush() {
    for (level, layout) in levels() {
        for_seeds(6, |seed| {
            let mut world = open(level, layout, seed);
            world.issue(WRITE, 0, 1);
            world.run_without_time();
            world.habits.hold = |event| matches!(event, Event::Io { .. });
            let write = world.issue(WRITE, 3, 20);
            world.rest();
            assert_eq!(world.told.clean_began, 0, "{level}: a write is under way");
            world.habits.hold = |event| matches!(event, Event::Flush { member: MemberId(1), .. });
            world.rest();
            assert_eq!(world.clients.answers[&write], Ok(()));
            assert!(!world.devices[1].unflushed.is_empty(), "{level}: member 1 was written");
            assert_eq!(world.told.clean_began, 0, "{level}: member 1 is not flushed");
            world.habits.hold = |_| false;
            world.rest();
            assert_eq!(superblocks(&world), [(EVENTS + 4, true); 4], "{level}");
            assert!(world.devices.iter().all(|device| device.unflushed.is_empty()));
        });
    }
}

/// The same when it is told to stop: what is under way is finished first.
#[test]
fn stop_waits_for_writes_under_way() {
    for (level, layout) in levels() {
        for_seeds(6, |seed| {
            let mut world = open(level, layout, seed);
            world.issue(WRITE, 0, 1);
            world.run_without_time();
            world.habits.hold = |event| matches!(event, Event::Io { .. });
            world.issue(WRITE, 3, 20);
            world.run_without_time();
            world.array.handle_stop(world.clock.now);
            world.drain_array();
            world.rest();
            assert!(world.told.notices.is_empty(), "{level}: a write is under way");
            world.habits.hold = |_| false;
            assert!(world.stop(), "{level}: clean");
            assert_eq!(superblocks(&world), [(EVENTS + 4, true); 4], "{level}");
        });
    }
}

#[test]
fn clean_and_active_leave_events_where_they_were() {
    for (level, layout) in levels() {
        for_seeds(3, |seed| {
            let mut scene = Scene::new(shape(level, layout, 8, 4, 4), seed);
            scene.spares = 1;
            let mut world = scene.open();
            for start in 0..3 {
                world.issue(WRITE, start, 1);
                world.run_without_time();
                assert_eq!(superblocks(&world), [(EVENTS + 1, false); 4], "{level}");
                world.rest();
                assert_eq!(superblocks(&world), [(EVENTS, true); 4], "{level}");
            }
            assert_eq!(*world.devices[4].superblock, scene.first_superblock(), "a spare sleeps");
            // A loss counts up, and from then on every change does, and wakes the spare.
            world.happen(Mishap::Dies(MemberId(0)));
            let capacity = world.geometry.capacity_sectors();
            world.issue(WRITE, 0, capacity);
            world.run_without_time();
            assert_eq!(superblocks(&world)[1..], [(EVENTS + 3, false); 3], "{level}");
            assert_eq!(world.devices[4].superblock.events, EVENTS + 3);
            for round in 0..3 {
                world.rest();
                assert_eq!(superblocks(&world)[1..], [(EVENTS + 5 + 4 * round, true); 3]);
                world.issue(WRITE, 0, 1);
                world.run_without_time();
                assert_eq!(superblocks(&world)[1..], [(EVENTS + 7 + 4 * round, false); 3]);
                assert_eq!(world.devices[4].superblock.events, EVENTS + 7 + 4 * round);
            }
        });
    }
}

/// A member whose superblock cannot be written is as lost as one that misses a write.
#[test]
fn member_that_cannot_be_told_is_out_before_the_gate_opens() {
    for (level, layout) in levels() {
        for_seeds(6, |seed| {
            let mut world = open(level, layout, seed);
            world.happen(Mishap::SuperblocksFail(MemberId(3)));
            assert_eq!(world.write(0, 1), Ok(()));
            assert!(world.told.out.contains(&MemberId(3)), "{level}");
            assert_eq!(world.devices[3].superblock.events, EVENTS);
            assert!(world.stop());
            world.check_members();
        });
    }
}
