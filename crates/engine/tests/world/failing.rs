//! Members fail, within what the level can make up for: no client ever notices.

use braid_engine::array::MemberId;
use braid_engine::request::Operation;
use braid_geometry::{Family, Geometry, Level, Shape, Slot};

use crate::clients::Mix;
use crate::for_seeds;
use crate::healthy::CHUNKS;
use crate::image::{redundant_shapes, shape};
use crate::mishap::Mishap;
use crate::random::Random;
use crate::scene::Scene;

/// Members all of which may be lost.
fn tolerable(shape: &Shape, random: &mut Random) -> Vec<MemberId> {
    let geometry = Geometry::new(shape).expect("a scene's shape is valid");
    let mut lost: Vec<Slot> = Vec::new();
    for _ in 0..4 {
        let slot = Slot(random.below(u64::from(shape.slots)) as u16);
        let is_lost = |other: Slot| other == slot || lost.contains(&other);
        if !lost.contains(&slot) && geometry.survives(&is_lost) {
            lost.push(slot);
        }
    }
    lost.into_iter().map(|slot| MemberId(slot.0)).collect()
}

#[test]
fn tolerated_mishaps_are_nobodys_business() {
    for_seeds(6, |seed| {
        let shapes = redundant_shapes(CHUNKS[seed as usize % 3]);
        for (index, shape) in shapes.into_iter().enumerate() {
            let mut scene = Scene::new(shape, 1_000_000 + seed * 100 + index as u64);
            let mut random = Random::new(scene.seed);
            let mut weak = tolerable(&scene.shape, &mut random);
            if random.chance(30) && weak.len() > 1 {
                scene.missing.extend(weak.pop().map(|member| member.0));
            }
            scene.spares = random.below(2) as u16;
            let mut world = scene.open();
            let count = random.below(7);
            world.plan_mishaps(&weak, count, 1500);
            world.run(&Mix::ALL);
            world.check_members();
            assert!(world.stop(), "what is left stops clean");
        }
    });
}

/// One unreadable sector: the client gets its bytes, and the sector is written again.
#[test]
fn unreadable_sectors_are_read_elsewhere_and_rewritten() {
    for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let layout = if level == Level::Raid10 { 0x102 } else { 2 };
        for_seeds(4, |seed| {
            let mut world = Scene::new(shape(level, layout, 8, 4, 4), seed).open();
            for member in 0..4 {
                let used = world.geometry.used_sectors(Slot(member));
                for sector in (u64::from(member)..used).step_by(4) {
                    world.happen(Mishap::BadSector(MemberId(member), sector));
                }
            }
            let capacity = world.geometry.capacity_sectors();
            for sector in 0..capacity {
                assert!(world.read(sector, 1).is_ok(), "the others have it");
            }
            let repairs = world.counters().read_repairs;
            assert!(repairs > 0, "{level}: what was unreadable was put back");
            world.check_members();
            let again = world.counters().read_repairs > repairs;
            assert!(!again || level.family() == Family::Mirror, "{level}: repaired for good");
            assert!(world.told.out.is_empty(), "a bad sector is no reason to lose a member");
        });
    }
}

#[test]
fn missing_member_is_never_touched() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid6, 2), (Level::Raid10, 0x103)] {
        for_seeds(4, |seed| {
            let mut scene = Scene::new(shape(level, layout, 8, 4, 4), seed);
            scene.missing.push(1);
            let mut world = scene.open();
            world.run(&Mix::ALL);
            world.happen(Mishap::WritesFail(MemberId(2)));
            while world.told.out.is_empty() {
                let capacity = world.geometry.capacity_sectors();
                let start = world.random.below(capacity);
                world.write(start, 1).expect("one more may be lost");
            }
            let before: Vec<_> = [1, 2]
                .map(|member: usize| {
                    let device = &world.devices[member];
                    (member, device.seen.clone(), device.superblock.clone())
                })
                .into();
            world.run(&Mix::ALL);
            assert!(world.stop(), "the rest stops clean");
            for (member, seen, superblock) in before {
                assert!(world.devices[member].seen == seen, "member {member} was written");
                assert_eq!(world.devices[member].superblock, superblock);
            }
        });
    }
}

#[test]
fn overlapping_writes_reach_copies_in_one_order() {
    let mix = Mix { reads: 5, flushes: 0, trims: 5, requests: 60, ..Mix::ALL };
    for (level, layout, slots) in [(Level::Raid1, 0, 3), (Level::Raid10, 0x102, 5)] {
        for_seeds(8, |seed| {
            let mut scene = Scene::new(shape(level, layout, 8, slots, 4), seed);
            let mut world = scene.clone().open();
            world.run(&mix);
            world.check_members();
            scene.seed += 1;
            let mut world = scene.open();
            let operation = Operation::Write { durable: false };
            for start in 0..12 {
                world.issue(operation, start, 12);
            }
            world.settle();
            world.check_members();
        });
    }
}
