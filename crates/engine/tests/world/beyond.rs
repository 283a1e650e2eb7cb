//! More is lost than the level can make up for: errors, but never wrong bytes, and never silence.

use braid_engine::array::MemberId;
use braid_engine::request::{Fault, Operation};
use braid_geometry::{Level, LogicalSector, StripeGeometry};

use crate::clients::Mix;
use crate::for_seeds;
use crate::healthy::CHUNKS;
use crate::image::{places, plain_shapes, redundant_shapes, shape};
use crate::mishap::Mishap;
use crate::scene::Scene;
use crate::world::World;

/// Sectors that a working member of the view holds can be read, whatever else is lost; unless what was written there was
/// answered and lost, so that the member holds something older.
fn intact_data_can_be_read(world: &mut World) {
    for _ in 0..10 {
        let capacity = world.geometry.capacity_sectors();
        let sector = world.random.below(capacity);
        let intact = places(&world.geometry, sector).into_iter().any(|(slot, place)| {
            let device = &world.devices[slot.index()];
            let in_view = world.shards.iter().all(|side| side.view.member(slot).is_some());
            in_view && !device.wrong.dead && !device.bad.contains(&place.0)
        });
        let answer = world.read(sector, 1);
        let is_lost = answer == Err(Fault::Lost);
        assert!(answer.is_ok() || is_lost || !intact, "seed {}: {sector}", world.scene.seed);
    }
}

#[test]
fn too_many_mishaps_give_errors_and_nothing_wrong() {
    let mut broken = 0;
    for_seeds(6, |seed| {
        let mut shapes = redundant_shapes(CHUNKS[seed as usize % 3]);
        shapes.extend(plain_shapes(8));
        for (index, shape) in shapes.into_iter().enumerate() {
            let mut scene = Scene::new(shape, 2_000_000 + seed * 100 + index as u64);
            scene.errors_allowed = true;
            let mut world = scene.open();
            let members: Vec<MemberId> = (0..scene.shape.slots).map(MemberId).collect();
            let count = 1 + world.random.below(12);
            world.plan_mishaps(&members, count, 1500);
            world.run(&Mix::ALL);
            world.mishaps.clear();
            intact_data_can_be_read(&mut world);
            if world.is_broken() {
                broken += 1;
                assert_eq!(world.write(0, 1), Err(Fault::Unwritable), "no writes any more");
                intact_data_can_be_read(&mut world);
                assert!(!world.stop(), "a broken array is not clean");
            } else {
                world.stop();
            }
        }
    });
    assert!(broken > 50, "it did happen: {broken}");
}

/// The first sector of the first data chunk in `row`, and of the second.
fn two_columns(stripe: &StripeGeometry, row: u64) -> (u64, u64) {
    let row = braid_geometry::ChunkRow(row);
    (stripe.logical(row, 0, 0).0, stripe.logical(row, 1, 0).0)
}

/// A write that only some columns got leaves parity that fits neither the old nor the new data: the
/// neighbour that is lost is not computed from it.
#[test]
fn torn_band_is_not_reconstructed() {
    for_seeds(10, |seed| {
        let mut scene = Scene::new(shape(Level::Raid4, 0, 8, 3, 4), seed).write_through();
        scene.errors_allowed = true;
        scene.missing.push(1);
        let mut world = scene.open();
        let braid_geometry::Geometry::Stripe(stripe) = world.geometry.clone() else {
            panic!("level 4 has stripes")
        };
        let ((written, neighbour), (_, elsewhere)) =
            (two_columns(&stripe, 0), two_columns(&stripe, 1));
        assert!(world.read(neighbour, 1).is_ok(), "lost, but not torn yet");
        world.happen(Mishap::WritesFail(MemberId(0)));
        assert_eq!(world.write(written + 3, 1), Err(Fault::Unwritable));
        assert!(world.is_broken(), "it was one too many");
        assert_eq!(world.read(neighbour, 1), Err(Fault::Unreadable), "its parity is torn");
        assert!(world.read(elsewhere, 1).is_ok(), "other bands are as they were");
        assert!(world.read(written, 1).is_ok(), "and so is what can be read straight");
        assert_eq!(stripe.locate(LogicalSector(neighbour)).data_index, 1);
    });
}

/// The last loss comes while the gate is being closed for a rest.
#[test]
fn array_that_breaks_while_it_turns_clean_comes_to_rest() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid5, 2), (Level::Raid10, 0x102)] {
        for_seeds(10, |seed| {
            let mut scene = Scene::new(shape(level, layout, 8, 2, 4), seed);
            scene.errors_allowed = true;
            scene.missing.push(1);
            let mut world = scene.open();
            let operation = Operation::Write { durable: false };
            world.issue(operation, 0, 1);
            world.run_without_time();
            world.happen(Mishap::FlushesFail(MemberId(0)));
            world.rest();
            assert!(world.is_broken(), "its only member cannot be flushed");
            assert!(!world.stop(), "not clean");
        });
    }
}

/// A read that waits to repair its range when the array breaks gives the range back.
#[test]
fn repair_that_waits_when_the_array_breaks_lets_others_go_on() {
    for_seeds(400, |seed| {
        let mut scene = Scene::new(shape(Level::Raid1, 0, 8, 2, 4), seed);
        scene.errors_allowed = true;
        let mut world = scene.open();
        world.issue(Operation::Write { durable: false }, 0, 1);
        world.run_without_time();
        for member in [0, 1] {
            world.happen(Mishap::BadSector(MemberId(member), 2 + u64::from(member)));
        }
        for _ in 0..3 {
            world.issue(Operation::Write { durable: false }, 0, 8);
            world.issue(Operation::Read, 1, 6);
        }
        for member in [0, 1] {
            let step = world.clock.step + world.random.below(100);
            world.mishaps.push((step, Mishap::WritesFail(MemberId(member))));
        }
        world.settle();
    });
}
