//! No disk fails: every order of events gives the right bytes, also on the members.

use braid_geometry::Level;

use super::for_seeds;
use super::scene::{CHUNKS, Scene, design, plain_designs, redundant_designs};
use super::script::{Mix, WRITE};
use crate::schedule::Event;

#[test]
fn every_layout_keeps_every_byte_in_any_order() {
    for_seeds(3, |seed| {
        for (index, design) in redundant_designs(CHUNKS[seed as usize % 3]).into_iter().enumerate()
        {
            let mut story = Scene::new(design, seed * 100 + index as u64).open();
            story.run(&Mix::ALL);
            story.ends_well();
        }
    });
}

#[test]
fn levels_without_redundancy_keep_every_byte_in_any_order() {
    for_seeds(4, |seed| {
        for (index, design) in plain_designs(CHUNKS[seed as usize % 3]).into_iter().enumerate() {
            let mut story = Scene::new(design, seed * 100 + index as u64).open();
            story.run(&Mix::ALL);
            story.ends_well();
        }
    });
}

/// A shard has a single stripe, and writes to one band never end. Other bands must get their turn.
#[test]
fn busy_band_does_not_starve_others() {
    for_seeds(4, |seed| {
        let scene = Scene::new(design(Level::Raid5, 2, 8, 4, 4), seed).write_through();
        let mut story = scene.with_stripes(1).with_shards(1).open();
        let is_io = |event: &Event| matches!(event, Event::Io(_) | Event::IoDone { .. });
        story.try_write(0, 1);
        story.hold(is_io);
        let mut busy = story.issue(WRITE, 0, 1);
        story.run_without_time();
        let other_band = story.capacity() - 1;
        assert!(other_band > 24, "in another row");
        let other = story.issue(WRITE, other_band, 1);
        for _ in 0..3 {
            // The next write to the busy band arrives before the previous one is done.
            story.hold(is_io);
            let next = story.issue(WRITE, 0, 1);
            story.run_without_time();
            story.release();
            while story.answer(busy).is_none() {
                story.step(false);
            }
            busy = next;
        }
        assert!(story.answer(other).is_some(), "it had its turn");
        story.settle();
        story.ends_well();
    });
}
