//! Nothing goes wrong: every order of events gives the right bytes, on the members too.

use crate::clients::Mix;
use crate::for_seeds;
use crate::image::{plain_shapes, redundant_shapes};
use crate::scene::Scene;

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
