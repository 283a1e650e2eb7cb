//! Losses beyond what the level tolerates: errors are allowed, wrong bytes and missing answers are
//! not.

use braid_engine::request::Fault;
use braid_geometry::{ChunkRow, Geometry, Level, LogicalSector, StripeGeometry};

use super::for_seeds;
use super::scene::{CHUNKS, Scene, design, plain_designs, redundant_designs};
use super::script::{Mix, Script, WRITE};
use crate::content::places;
use crate::fault::Mishap;
use braid_engine::request::Operation;

/// Checks that sectors on a working member of the view can be read, whatever else is lost.
/// Exception: a read may fail with `Fault::Lost` if an acknowledged write to the sector was lost,
/// because the member then holds older bytes.
fn intact_data_can_be_read(story: &mut Script) {
    for _ in 0..10 {
        let sector = story.random.below(story.capacity());
        let world = &story.world;
        let intact = places(&world.geometry, sector).into_iter().any(|(slot, place)| {
            let disk = &world.disks[slot.index()];
            let shards = &world.engine.machines.shards;
            let in_view = shards.iter().all(|side| side.view.member(slot).is_some());
            let is_bad = disk.bad.contains(&(world.taint.data_offset + place.0));
            in_view && !disk.ills.gone && !is_bad
        });
        let answer = story.read(sector, 1);
        let is_lost = answer == Err(Fault::Lost);
        assert!(answer.is_ok() || is_lost || !intact, "sector {sector}: {answer:?}");
    }
}

#[test]
fn too_many_mishaps_give_errors_and_nothing_wrong() {
    let mut broken = 0;
    for_seeds(6, |seed| {
        let mut designs = redundant_designs(CHUNKS[seed as usize % 3]);
        designs.extend(plain_designs(8));
        for (index, design) in designs.into_iter().enumerate() {
            let mut scene = Scene::new(design, 2_000_000 + seed * 100 + index as u64);
            scene.errors_allowed = true;
            let mut story = scene.open();
            let disks: Vec<usize> = (0..usize::from(design.slots)).collect();
            let count = 1 + story.random.below(12);
            story.plan_mishaps(&disks, count, 1500);
            story.run(&Mix::ALL);
            story.world.engine.plan.faults.clear();
            intact_data_can_be_read(&mut story);
            if story.is_broken() {
                broken += 1;
                assert_eq!(story.write(0, 1), Err(Fault::Unwritable), "it refuses writes");
                intact_data_can_be_read(&mut story);
                assert!(!story.stop(), "a broken array is not clean");
            } else {
                story.stop();
            }
        }
    });
    assert!(broken > 50, "arrays broke: {broken}");
}

/// The first array sector of the first data chunk in `row`, and that of the second data chunk.
fn two_columns(stripe: &StripeGeometry, row: u64) -> (u64, u64) {
    let row = ChunkRow(row);
    (stripe.logical(row, 0, 0).0, stripe.logical(row, 1, 0).0)
}

/// A write is half done, so parity fits neither old nor new data. The lost member's chunk in the
/// same row must not be computed from that parity.
#[test]
fn inconsistent_band_is_not_reconstructed() {
    for_seeds(10, |seed| {
        let mut scene = Scene::new(design(Level::Raid4, 0, 8, 3, 4), seed).write_through();
        scene.errors_allowed = true;
        scene.missing.push(1);
        let mut story = scene.open();
        let Geometry::Stripe(stripe) = story.world.geometry.clone() else {
            panic!("level 4 has stripes")
        };
        let ((written, neighbour), (_, elsewhere)) =
            (two_columns(&stripe, 0), two_columns(&stripe, 1));
        assert!(story.read(neighbour, 1).is_ok(), "lost, but not inconsistent yet");
        // This write opens the gate. Otherwise the first write that fails would be a superblock.
        assert!(story.try_write(story.capacity() - 1, 1));
        story.befall(0, Mishap::WritesFail);
        assert_eq!(story.write(written + 3, 1), Err(Fault::Unwritable));
        assert!(story.is_broken(), "the failure exceeds the tolerance");
        assert_eq!(story.read(neighbour, 1), Err(Fault::Unreadable), "its parity is inconsistent");
        assert!(story.read(elsewhere, 1).is_ok(), "other bands are as they were");
        assert!(story.read(written, 1).is_ok(), "a direct read works");
        assert_eq!(stripe.locate(LogicalSector(neighbour)).data_index, 1);
    });
}

/// One member is missing, and the last one fails its flush while the array turns clean.
#[test]
fn array_that_breaks_while_it_turns_clean_comes_to_rest() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid5, 2), (Level::Raid10, 0x102)] {
        for_seeds(10, |seed| {
            let mut scene = Scene::new(design(level, layout, 8, 2, 4), seed);
            scene.errors_allowed = true;
            scene.missing.push(1);
            let mut story = scene.open();
            story.issue(WRITE, 0, 1);
            story.run_without_time();
            story.befall(0, Mishap::FlushesFail);
            story.rest();
            assert!(story.is_broken(), "its only member cannot be flushed");
            assert!(!story.stop(), "not clean");
        });
    }
}

/// A read waits to rewrite an unreadable range when the array breaks. The read must release the
/// range, so that other requests continue.
#[test]
fn repair_that_waits_when_the_array_breaks_lets_others_go_on() {
    for_seeds(400, |seed| {
        let mut scene = Scene::new(design(Level::Raid1, 0, 8, 2, 4), seed);
        scene.errors_allowed = true;
        let mut story = scene.open();
        story.issue(WRITE, 0, 1);
        story.run_without_time();
        for disk in [0, 1] {
            story.bad_sector(disk, 2 + disk as u64);
        }
        for _ in 0..3 {
            story.issue(WRITE, 0, 8);
            story.issue(Operation::Read, 1, 6);
        }
        for disk in [0, 1] {
            let steps = story.random.below(100);
            story.plan(steps, disk, Mishap::WritesFail);
        }
        story.settle();
    });
}
