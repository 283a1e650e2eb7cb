//! Nothing goes wrong: every order of events gives the right bytes, on the members too.

use braid_engine::request::Operation;
use braid_geometry::{Level, LogicalSector};

use crate::clients::Mix;
use crate::for_seeds;
use crate::image::{plain_shapes, redundant_shapes, shape};
use crate::scene::Scene;
use crate::world::Event;

/// 4 KiB, 64 KiB, and 256 KiB where the stripe unit is smaller than the chunk.
pub(crate) const CHUNKS: [u32; 3] = [8, 128, 512];

#[test]
fn every_layout_keeps_every_byte_in_any_order() {
    for_seeds(3, |seed| {
        for (index, shape) in redundant_shapes(CHUNKS[seed as usize % 3]).into_iter().enumerate() {
            let mut world = Scene::new(shape, seed * 100 + index as u64).open();
            world.run(&Mix::ALL);
            world.check_members();
            assert!(world.stop(), "a whole array stops clean");
        }
    });
}

#[test]
fn levels_without_redundancy_keep_every_byte_in_any_order() {
    for_seeds(4, |seed| {
        for (index, shape) in plain_shapes(CHUNKS[seed as usize % 3]).into_iter().enumerate() {
            let mut world = Scene::new(shape, seed * 100 + index as u64).open();
            world.run(&Mix::ALL);
            world.check_members();
            assert!(world.stop(), "it stops clean");
        }
    });
}

/// One stripe for all, and a band that always has more to write: others get their turn.
#[test]
fn busy_band_does_not_starve_others() {
    for_seeds(4, |seed| {
        let mut scene = Scene::new(shape(Level::Raid5, 2, 8, 4, 4), seed).write_through();
        (scene.tuning.stripes, scene.shards) = (1, 1);
        let mut world = scene.open();
        let operation = Operation::Write { durable: false };
        let member_request = |event: &Event| matches!(event, Event::Io { .. });
        world.issue(operation, 0, 1);
        world.run_without_time();
        world.habits.hold = member_request;
        let mut busy = world.issue(operation, 0, 1);
        world.run_without_time();
        let other_band = world.geometry.capacity_sectors() - 1;
        assert!(other_band > LogicalSector(24).0, "in another row");
        let other = world.issue(operation, other_band, 1);
        for _ in 0..3 {
            // The next write to the busy band is there before the one before it is done.
            world.habits.hold = member_request;
            let next = world.issue(operation, 0, 1);
            world.run_without_time();
            world.habits.hold = |_| false;
            while !world.clients.answers.contains_key(&busy) {
                world.step(false);
            }
            busy = next;
        }
        assert!(world.clients.answers.contains_key(&other), "seed {seed}: it had its turn");
        world.settle();
        world.check_members();
    });
}
