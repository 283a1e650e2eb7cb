//! FLUSH, FUA and the rest after them: what is on stable storage when a client is answered.

use braid_engine::array::MemberId;
use braid_engine::request::{Fault, Operation};
use braid_geometry::Level;

use crate::clients::Mix;
use crate::for_seeds;
use crate::healthy::CHUNKS;
use crate::image::{plain_shapes, redundant_shapes, shape};
use crate::mishap::Mishap;
use crate::scene::Scene;

/// The check is in `flush_answered`; this makes many of them, with one member failing on the way.
#[test]
fn flush_covers_every_write_answered_before_it() {
    let mix = Mix { flushes: 60, requests: 60, ..Mix::ALL };
    for_seeds(3, |seed| {
        let chunk_sectors = CHUNKS[seed as usize % 3];
        let redundant = redundant_shapes(chunk_sectors).into_iter().map(|shape| (shape, true));
        let plain = plain_shapes(chunk_sectors).into_iter().map(|shape| (shape, false));
        for (index, (shape, redundant)) in redundant.chain(plain).enumerate() {
            let mut world = Scene::new(shape, 6_000_000 + seed * 100 + index as u64).open();
            if redundant && world.random.chance(50) {
                let step = world.random.below(600);
                world.mishaps.push((step, Mishap::FlushesFail(MemberId(0))));
            }
            world.run(&mix);
            world.check_members();
        }
    });
}

/// No flush at all: what was answered as durable is so.
#[test]
fn durable_write_is_durable_when_answered() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid6, 2), (Level::Raid10, 0x103)] {
        for_seeds(6, |seed| {
            let mut world = Scene::new(shape(level, layout, 8, 4, 4), seed).open();
            for round in 0..20 {
                let capacity = world.geometry.capacity_sectors();
                let start = world.random.below(capacity - 20);
                let operation = match round % 2 {
                    0 => Operation::Write { durable: true },
                    _ => Operation::WriteZeroes { may_punch: false, durable: true },
                };
                world.issue(operation, start, 20);
                world.run_without_time();
                let volatile = |device: &crate::device::Device| !device.unflushed.is_empty();
                assert!(!world.devices.iter().any(volatile), "{level}: nothing is left volatile");
            }
        });
    }
}

/// Without redundancy nobody can take over, so the client is told; and told again at the stop.
#[test]
fn failed_flush_without_redundancy_is_an_error() {
    for_seeds(6, |seed| {
        let mut scene = Scene::new(shape(Level::Raid0, 1, 8, 3, 4), seed);
        scene.errors_allowed = true;
        let mut world = scene.open();
        assert_eq!(world.write(0, 30), Ok(()));
        world.happen(Mishap::FlushesFail(MemberId(2)));
        let flush = world.flush();
        world.settle();
        assert_eq!(world.clients.answers[&flush], Err(Fault::Unwritable));
        assert!(!world.stop(), "what could not be flushed is not clean");
    });
}

/// A member that cannot be flushed is out before the flush is answered.
#[test]
fn failed_flush_costs_the_member_not_the_client() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid5, 2), (Level::Raid10, 0x102)] {
        for_seeds(6, |seed| {
            let mut world = Scene::new(shape(level, layout, 8, 4, 4), seed).open();
            assert_eq!(world.write(0, 30), Ok(()));
            world.happen(Mishap::FlushesFail(MemberId(2)));
            let flush = world.flush();
            world.settle();
            assert_eq!(world.clients.answers[&flush], Ok(()));
            assert!(world.told.out.contains(&MemberId(2)));
            assert!(world.stop(), "the others are clean");
        });
    }
}

/// Writers that never rest: the superblocks never say clean under them (I5 is checked throughout).
#[test]
fn array_under_load_stays_active() {
    let mix = Mix { reads: 10, flushes: 1, requests: 150, in_flight_max: 6, ..Mix::ALL };
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid6, 2), (Level::Raid10, 0x102)] {
        for_seeds(4, |seed| {
            let mut world = Scene::new(shape(level, layout, 8, 4, 4), seed).open();
            world.run(&mix);
            world.check_members();
            world.rest();
            assert!(world.told.clean_began > 0, "{level}: it rests in the end");
        });
    }
}
