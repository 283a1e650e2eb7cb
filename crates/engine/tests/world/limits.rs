//! Members, or ranges of them, that are there but not to be believed.

use braid_engine::BadRange;
use braid_engine::array::MemberId;
use braid_engine::request::{Fault, Operation};
use braid_geometry::{Geometry, Level, MemberSector, Slot};

use crate::clients::Mix;
use crate::for_seeds;
use crate::healthy::CHUNKS;
use crate::image::{places, redundant_shapes, shape};
use crate::mishap::Mishap;
use crate::random::Random;
use crate::scene::Scene;

/// A member that is being recovered is read only as far as it is; everything reads right.
#[test]
fn recovering_member_is_read_only_where_it_is_recovered() {
    for_seeds(3, |seed| {
        let shapes = redundant_shapes(CHUNKS[seed as usize % 3]);
        for (index, shape) in shapes.into_iter().enumerate() {
            let mut scene = Scene::new(shape, 3_000_000 + seed * 100 + index as u64);
            let mut random = Random::new(scene.seed);
            let slot = random.below(u64::from(scene.shape.slots)) as u16;
            let sectors = scene.shape.member_sectors[usize::from(slot)];
            scene.recovering = Some((slot, random.below(sectors)));
            let mut world = scene.open();
            world.read_all();
            world.run(&Mix::ALL);
            world.read_all();
            assert!(world.stop(), "clean");
        }
    });
}

/// What the bad-block log lists is never read; a range that lost its member otherwise is no loss.
#[test]
fn bad_blocks_are_never_read() {
    for_seeds(3, |seed| {
        let shapes = redundant_shapes(CHUNKS[seed as usize % 3]);
        for (index, shape) in shapes.into_iter().enumerate() {
            let mut scene = Scene::new(shape, 4_000_000 + seed * 100 + index as u64);
            let mut random = Random::new(scene.seed);
            let slot = random.below(u64::from(scene.shape.slots)) as u16;
            let sectors = scene.shape.member_sectors[usize::from(slot)];
            let mut range = || {
                let start = random.below(sectors);
                let length = 1 + random.below((sectors - start).min(24));
                BadRange { start: MemberSector(start), sectors: length }
            };
            scene.bad_blocks = Some((slot, (0..5).map(|_| range()).collect()));
            let mut world = scene.open();
            world.read_all();
            world.run(&Mix::ALL);
            world.read_all();
            assert!(world.stop(), "clean");
        }
    });
}

/// After a crash, until a resync: parity is neither followed nor believed.
#[test]
fn parity_that_may_be_wrong_is_neither_updated_nor_believed() {
    let mix = Mix { trims: 0, ..Mix::ALL };
    for (level, slots) in [(Level::Raid4, 5), (Level::Raid5, 5), (Level::Raid6, 6)] {
        for_seeds(6, |seed| {
            let mut scene = Scene::new(shape(level, 2, 8, slots, 6), seed);
            scene.resync_offset = 0;
            scene.errors_allowed = true;
            scene.tuning.stripes = 1;
            let mut world = scene.open();
            world.run(&mix);
            // Another band gets the stripe, so that nothing of this one is in the cache.
            let elsewhere = world.geometry.capacity_sectors() - 1;
            assert_eq!(world.write(elsewhere, 1), Ok(()));
            assert_eq!(world.counters().rmw_writes, 0, "{level}: parity is made anew");
            assert!(world.counters().rcw_writes > 0);
            let (slot, place) = places(&world.geometry, 7)[0];
            world.happen(Mishap::BadSector(MemberId(slot.0), place.0));
            assert_eq!(world.read(7, 1), Err(Fault::Unreadable), "{level}: not from parity");
            assert_eq!(world.counters().reconstructions, 0);
        });
    }
}

/// The same array, but half of it is known to agree.
#[test]
fn parity_is_believed_below_the_resync_offset() {
    for_seeds(6, |seed| {
        let mut scene = Scene::new(shape(Level::Raid5, 2, 8, 5, 6), seed);
        scene.resync_offset = 24;
        scene.errors_allowed = true;
        scene.tuning.stripes = 1;
        let mut world = scene.open();
        for sector in (0..world.geometry.capacity_sectors()).step_by(5) {
            let (slot, place) = places(&world.geometry, sector)[0];
            world.happen(Mishap::BadSector(MemberId(slot.0), place.0));
            let expected = if place.0 < 24 { Ok(()) } else { Err(Fault::Unreadable) };
            assert_eq!(world.read(sector, 1).map(drop), expected, "{sector} at {place}");
        }
        let before = world.counters().rmw_writes;
        assert_eq!(world.write(0, 1), Ok(()));
        assert_eq!(world.counters().rmw_writes, before + 1, "one column of four, in sync");
    });
}

/// Copies that a crash may have left different: two reads tell one story.
#[test]
fn copies_that_may_differ_are_read_from_one_member() {
    for_seeds(6, |seed| {
        let mut scene = Scene::new(shape(Level::Raid1, 0, 8, 3, 6), seed);
        scene.resync_offset = 16;
        let mut world = scene.open();
        let (agreed, differs) = (10, 16..world.geometry.capacity_sectors());
        for member in [1, 2] {
            world.devices[member].seen[16 * crate::SECTOR..].fill(0x33);
        }
        for _ in 0..20 {
            let start = differs.start + world.random.below(differs.end - differs.start - 4);
            world.issue(Operation::Read, start, 4);
            world.issue(Operation::Read, agreed, 4);
        }
        world.settle();
    });
}

/// A read that met one unreadable sector, or one bad block, was served whole from the next copy, which a crash had left
/// different, and the first copy was overwritten with it: sectors that had been read before changed.
#[test]
fn what_was_read_from_a_dirty_mirror_reads_the_same_again() {
    const LOST: std::ops::Range<u64> = 37..39;
    for (level, layout, slots) in [(Level::Raid1, 0, 2), (Level::Raid10, 0x102, 4)] {
        for is_logged in [false, true] {
            for_seeds(4, |seed| {
                let mut scene = Scene::new(shape(level, layout, 64, slots, 6), seed);
                scene.resync_offset = 0;
                if is_logged {
                    let start = MemberSector(LOST.start);
                    let range = BadRange { start, sectors: LOST.end - LOST.start };
                    scene.bad_blocks = Some((0, vec![range]));
                }
                let mut world = scene.open();
                // The second copy of the first chunk says something else, but for what the first has lost.
                for sector in (0..64).filter(|sector| !LOST.contains(sector)) {
                    world.devices[1].seen[braid_testbed::content::bytes(sector, 1)].fill(0x33);
                }
                for sector in LOST.filter(|_| !is_logged) {
                    world.happen(Mishap::BadSector(MemberId(0), sector));
                }
                for (start, sectors) in [(30, 1), (20, 30), (0, 64), (30, 1), (36, 2), (20, 30)] {
                    assert!(world.read(start, sectors).is_ok());
                }
                assert_eq!(world.counters().read_repairs, if is_logged { 0 } else { 2 });
            });
        }
    }
}

/// Opened for reading only: whatever fails, nothing is written, and flushes are answered.
#[test]
fn read_only_array_is_never_written() {
    let mix = Mix { reads: 80, writes: 0, zeroes: 0, trims: 0, flushes: 20, ..Mix::ALL };
    for_seeds(3, |seed| {
        let shapes = redundant_shapes(CHUNKS[seed as usize % 3]);
        for (index, shape) in shapes.into_iter().enumerate() {
            let mut scene = Scene::new(shape, 5_000_000 + seed * 100 + index as u64);
            scene.read_only = true;
            let mut world = scene.open();
            let before: Vec<Vec<u8>> = world.devices.iter().map(|d| d.seen.clone()).collect();
            let geometry: &Geometry = &world.geometry;
            assert!(geometry.survives(&|slot| slot == Slot(1)), "one may be lost");
            let step = world.random.below(300);
            world.mishaps.push((step, Mishap::Dies(MemberId(1))));
            for _ in 0..3 {
                let sector = world.random.below(scene.shape.member_sectors[1]);
                world.happen(Mishap::BadSector(MemberId(1), sector));
            }
            world.run(&mix);
            world.read_all();
            world.scene.errors_allowed = true;
            assert_eq!(world.write(0, 1), Err(Fault::ReadOnly));
            world.stop();
            assert!(world.devices.iter().map(|d| &d.seen).eq(&before), "nothing was written");
            let first = scene.first_superblock();
            assert!(world.devices.iter().all(|device| *device.superblock == first));
        }
    });
}
