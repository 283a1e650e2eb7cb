//! Power is cut at any step: what was flushed is there, and clean means clean.

use std::sync::Arc;

use crate::clients::Mix;
use crate::for_seeds;
use crate::healthy::CHUNKS;
use crate::image::redundant_shapes;
use crate::scene::Scene;
use crate::world::{Event, World};

/// Cuts the power. Whether the newest superblock says clean.
fn cut_power(world: &mut World) -> bool {
    for event in std::mem::take(&mut world.pending) {
        if world.random.chance(50) {
            continue;
        }
        match event {
            Event::Io { shard, io, result: None } if io.operation.is_write() => {
                world.devices[usize::from(io.member.0)].wrong.writes_fail = true;
                world.tear(shard, &io);
            }
            Event::Superblock { member, state, written: None } => {
                world.devices[usize::from(member.0)].write_superblock(&state);
            }
            _ => {}
        }
    }
    for device in &mut world.devices {
        device.lose_power(&mut world.random);
    }
    let superblocks = world.devices.iter().map(|device| &device.superblock);
    let newest = superblocks.max_by_key(|state| state.events).expect("there are devices");
    newest.resync_offset != 0
}

#[test]
fn power_cut_leaves_what_was_flushed_and_nothing_strange() {
    let mut clean = 0;
    for_seeds(6, |seed| {
        let shapes = redundant_shapes(CHUNKS[seed as usize % 3]);
        for (index, shape) in shapes.into_iter().enumerate() {
            let mut scene = Scene::new(shape, 7_000_000 + seed * 100 + index as u64);
            let mut world = scene.open();
            let steps = 1 + world.random.below(1200);
            world.run_some(&Mix { requests: 30, ..Mix::ALL }, steps);
            for _ in 0..world.random.below(600) {
                world.step(false);
            }
            let was_clean = cut_power(&mut world);
            clean += u64::from(was_clean);
            world.check_devices_alone(was_clean);

            // And again, as assembly would: redundancy agrees everywhere only if it was clean.
            scene.seed += 50;
            scene.resync_offset = if was_clean { u64::MAX } else { 0 };
            let World { mut devices, mut model, .. } = world;
            for device in &mut devices {
                device.wrong = crate::device::Wrong::default();
                device.superblock = Arc::new(scene.first_superblock());
            }
            if !was_clean {
                model.lose_power();
            }
            let mut world = scene.open_with(devices, model);
            world.read_all();
            world.run(&Mix { trims: 0, ..Mix::ALL });
            if was_clean {
                world.check_members();
            } else {
                world.read_all();
            }
        }
    });
    assert!(clean > 5, "both happen: {clean} were clean");
}
