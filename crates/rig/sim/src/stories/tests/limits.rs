//! Members, or ranges of members, that are present but must not be believed.

use braid_engine::request::{Fault, Operation};
use braid_geometry::{Level, Slot};

use super::for_seeds;
use super::scene::{CHUNKS, Scene, design, redundant_designs};
use super::script::Mix;
use crate::content::{SECTOR, bytes, places};
use crate::fault::Mishap;

#[test]
fn recovering_member_is_read_only_where_it_is_recovered() {
    for_seeds(3, |seed| {
        let designs = redundant_designs(CHUNKS[seed as usize % 3]);
        for (index, design) in designs.into_iter().enumerate() {
            let mut scene = Scene::new(design, 3_000_000 + seed * 100 + index as u64);
            let mut random = crate::random::Random::new(scene.seed);
            let disk = random.below(u64::from(design.slots)) as usize;
            let sectors = design.rows * u64::from(design.chunk_sectors);
            scene.recovering = Some((disk, random.below(sectors)));
            let mut story = scene.open();
            story.read_all();
            story.run(&Mix::ALL);
            story.read_all();
            assert!(story.stop(), "clean");
        }
    });
}

/// After a crash and before the resync, parity may be wrong. Writes must not use rmw, and reads
/// must not use parity.
#[test]
fn parity_that_may_be_wrong_is_neither_updated_nor_believed() {
    let mix = Mix { trims: 0, ..Mix::ALL };
    for (level, slots) in [(Level::Raid4, 5), (Level::Raid5, 5), (Level::Raid6, 6)] {
        for_seeds(6, |seed| {
            let mut scene = Scene::new(design(level, 2, 8, slots, 6), seed).with_stripes(1);
            scene.resync_offset = 0;
            scene.errors_allowed = true;
            let mut story = scene.open();
            story.run(&mix);
            // This write takes the only stripe, so that the cache holds nothing of the band tested
            // below.
            assert_eq!(story.write(story.capacity() - 1, 1), Ok(()));
            assert_eq!(story.counters().rmw_writes, 0, "{level}: rcw computes parity");
            assert!(story.counters().rcw_writes > 0);
            let (slot, place) = places(&story.world.geometry, 7)[0];
            story.bad_sector(slot.index(), place.0);
            assert_eq!(story.read(7, 1), Err(Fault::Unreadable), "{level}: unsolvable");
            assert_eq!(story.counters().reconstructions, 0);
        });
    }
}

/// After a crash, parity agrees below the resync offset and may be wrong above. Reads use parity
/// below the offset.
#[test]
fn parity_is_believed_below_the_resync_offset() {
    for_seeds(6, |seed| {
        let mut scene = Scene::new(design(Level::Raid5, 2, 8, 5, 6), seed).with_stripes(1);
        scene.resync_offset = 24;
        scene.errors_allowed = true;
        let mut story = scene.open();
        for sector in (0..story.capacity()).step_by(5) {
            let (slot, place) = places(&story.world.geometry, sector)[0];
            story.bad_sector(slot.index(), place.0);
            let expected = if place.0 < 24 { Ok(()) } else { Err(Fault::Unreadable) };
            assert_eq!(story.read(sector, 1), expected, "{sector} at {place}");
        }
        let before = story.counters().rmw_writes;
        assert_eq!(story.write(0, 1), Ok(()));
        assert_eq!(story.counters().rmw_writes, before + 1, "one column of four, in sync");
    });
}

/// A crash may have left the copies of a mirror different. Two reads must return the same bytes.
#[test]
fn copies_that_may_differ_are_read_from_one_member() {
    for_seeds(6, |seed| {
        let mut scene = Scene::new(design(Level::Raid1, 0, 8, 3, 6), seed);
        scene.resync_offset = 16;
        let mut story = scene.open();
        let (agreed, differs) = (10, 16..story.capacity());
        for disk in [1, 2] {
            let range = story.data_bytes(disk);
            story.world.disks[disk].seen[range.start + 16 * SECTOR..range.end].fill(0x33);
        }
        for _ in 0..20 {
            let start = differs.start + story.random.below(differs.end - differs.start - 4);
            story.issue(Operation::Read, start, 4);
            story.issue(Operation::Read, agreed, 4);
        }
        story.settle();
    });
}

/// Regression: a crash left the copies of a mirror different, and one sector of the first copy was
/// bad or logged. A read with that sector took all of its data from the second copy, and overwrote
/// the first. So sectors that had been read before changed.
#[test]
fn what_was_read_from_a_dirty_mirror_reads_the_same_again() {
    const LOST: std::ops::Range<u64> = 37..39;
    for (level, layout, slots) in [(Level::Raid1, 0, 2), (Level::Raid10, 0x102, 4)] {
        for is_logged in [false, true] {
            for_seeds(4, |seed| {
                let mut scene = Scene::new(design(level, layout, 64, slots, 6), seed);
                scene.resync_offset = 0;
                scene.bad_blocks.extend(is_logged.then(|| (0, vec![LOST])));
                let mut story = scene.open();
                // The second copy has other bytes, except in the sectors that the first copy has
                // lost.
                let start = story.world.taint.data_offset;
                for sector in (0..64).filter(|sector| !LOST.contains(sector)) {
                    story.world.disks[1].seen[bytes(start + sector, 1)].fill(0x33);
                }
                for sector in LOST.filter(|_| !is_logged) {
                    story.bad_sector(0, sector);
                }
                for (start, sectors) in [(30, 1), (20, 30), (0, 64), (30, 1), (36, 2), (20, 30)] {
                    assert!(story.read(start, sectors).is_ok());
                }
                assert_eq!(story.counters().read_repairs, if is_logged { 0 } else { 2 });
            });
        }
    }
}

/// An array that is opened read-only writes nothing, even if requests fail. It acknowledges
/// flushes.
#[test]
fn read_only_array_is_never_written() {
    let mix = Mix { reads: 80, writes: 0, zeroes: 0, trims: 0, flushes: 20, ..Mix::ALL };
    for_seeds(3, |seed| {
        let designs = redundant_designs(CHUNKS[seed as usize % 3]);
        for (index, design) in designs.into_iter().enumerate() {
            let mut scene = Scene::new(design, 5_000_000 + seed * 100 + index as u64);
            scene.manner.read_only = true;
            let mut story = scene.open();
            let before: Vec<Vec<u8>> =
                story.world.disks.iter().map(|disk| disk.seen.clone()).collect();
            assert!(story.world.geometry.survives(&|slot| slot == Slot(1)), "one may be lost");
            let step = story.random.below(300);
            story.plan(step, 1, Mishap::Dies);
            let used = story.world.geometry.used_sectors(Slot(1));
            for _ in 0..3 {
                let sector = story.random.below(used);
                story.bad_sector(1, sector);
            }
            story.run(&mix);
            story.read_all();
            story.allow_errors();
            assert_eq!(story.write(0, 1), Err(Fault::ReadOnly));
            story.stop();
            let after = story.world.disks.iter().map(|disk| &disk.seen);
            assert!(after.eq(&before), "a read-only array writes no member");
        }
    });
}
