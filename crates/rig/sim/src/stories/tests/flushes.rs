//! FLUSH, FUA, and turning clean after them: which writes are on stable storage when a client gets
//! its answer.

use braid_engine::request::{Fault, Operation};
use braid_geometry::Level;

use super::for_seeds;
use super::scene::{CHUNKS, Scene, design, plain_designs, redundant_designs};
use super::script::Mix;
use crate::fault::Mishap;

/// Clients submit many flushes, and a member fails one of them. Then power is cut.
#[test]
fn flush_covers_every_write_answered_before_it() {
    let mix = Mix { flushes: 60, requests: 60, ..Mix::ALL };
    let (mut told, mut read) = (0, 0);
    for_seeds(3, |seed| {
        let chunk_sectors = CHUNKS[seed as usize % 3];
        let redundant = redundant_designs(chunk_sectors).into_iter().map(|design| (design, true));
        let plain = plain_designs(chunk_sectors).into_iter().map(|design| (design, false));
        for (index, (design, is_redundant)) in redundant.chain(plain).enumerate() {
            let mut story = Scene::new(design, 6_000_000 + seed * 100 + index as u64).open();
            if is_redundant && story.random.chance(50) {
                let step = story.random.below(600);
                story.plan(step, 0, Mishap::FlushesFail);
            }
            story.run(&mix);
            story.check_members();
            told += 1;
            read += u32::from(story.loses_power());
        }
    });
    assert!(read * 2 > told, "most are read after the cut: {read} of {told}");
}

#[test]
fn durable_write_is_durable_when_answered() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid6, 2), (Level::Raid10, 0x103)] {
        for_seeds(6, |seed| {
            let mut story = Scene::new(design(level, layout, 8, 4, 4), seed).open();
            for round in 0..20 {
                let start = story.random.below(story.capacity() - 20);
                let operation = match round % 2 {
                    0 => Operation::Write { durable: true },
                    _ => Operation::WriteZeroes { may_punch: false, durable: true },
                };
                let id = story.issue(operation, start, 20);
                story.run_without_time();
                assert!(story.went_well(&[id]));
                let volatile = (0..4).find(|disk| story.has_unflushed(*disk));
                assert_eq!(volatile, None, "{level}: a sector is still volatile");
            }
            assert!(story.loses_power(), "{level}: no disk had a fault");
        });
    }
}

/// On a level without redundancy the client's flush fails, and so does the stop.
#[test]
fn failed_flush_without_redundancy_is_an_error() {
    for_seeds(6, |seed| {
        let mut scene = Scene::new(design(Level::Raid0, 1, 8, 3, 4), seed);
        scene.errors_allowed = true;
        let mut story = scene.open();
        assert_eq!(story.write(0, 30), Ok(()));
        story.befall(2, Mishap::FlushesFail);
        assert_eq!(story.flush_alone(), Err(Fault::Unwritable));
        assert!(!story.stop(), "an array with a failed flush does not stop clean");
    });
}

#[test]
fn failed_flush_costs_the_member_not_the_client() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid5, 2), (Level::Raid10, 0x102)] {
        for_seeds(6, |seed| {
            let mut story = Scene::new(design(level, layout, 8, 4, 4), seed).open();
            assert_eq!(story.write(0, 30), Ok(()));
            story.befall(2, Mishap::FlushesFail);
            assert_eq!(story.flush_alone(), Ok(()));
            assert!(story.is_out(2));
            story.ends_well();
        });
    }
}

/// Clients never stop writing, so superblocks must never say clean. Each step checks that.
#[test]
fn array_under_load_stays_active() {
    let mix = Mix { reads: 10, flushes: 1, requests: 150, in_flight_max: 6, ..Mix::ALL };
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid6, 2), (Level::Raid10, 0x102)] {
        for_seeds(4, |seed| {
            let mut story = Scene::new(design(level, layout, 8, 4, 4), seed).open();
            story.run(&mix);
            story.check_members();
            story.rest();
            assert!(story.says_clean(), "{level}: the array turns clean in the end");
        });
    }
}
