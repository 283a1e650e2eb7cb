//! Members fail within what the level tolerates, and no client notices.

use braid_geometry::{Family, Level, Slot};

use super::for_seeds;
use super::scene::{Scene, design};
use super::script::{Mix, WRITE};
use crate::fault::Mishap;

#[test]
fn unreadable_sectors_are_read_elsewhere_and_rewritten() {
    for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let layout = if level == Level::Raid10 { 0x102 } else { 2 };
        for_seeds(4, |seed| {
            let mut story = Scene::new(design(level, layout, 8, 4, 4), seed).open();
            for disk in 0..4_usize {
                let used = story.world.geometry.used_sectors(Slot(disk as u16));
                for sector in (disk as u64..used).step_by(4) {
                    story.bad_sector(disk, sector);
                }
            }
            let capacity = story.capacity();
            for sector in 0..capacity {
                assert!(story.read(sector, 1).is_ok(), "the other members solve it");
            }
            let repairs = story.counters().read_repairs;
            assert!(repairs > 0, "{level}: a repair rewrites unreadable sectors");
            story.check_members();
            let again = story.counters().read_repairs > repairs;
            assert!(!again || level.family() == Family::Mirror, "{level}: repaired for good");
            assert!(!story.is_any_out(), "a bad sector is no reason to lose a member");
        });
    }
}

#[test]
fn missing_member_is_never_touched() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid6, 2), (Level::Raid10, 0x103)] {
        for_seeds(4, |seed| {
            let mut scene = Scene::new(design(level, layout, 8, 4, 4), seed);
            scene.missing.push(1);
            let mut story = scene.open();
            story.run(&Mix::ALL);
            story.befall(2, Mishap::WritesFail);
            while !story.is_any_out() {
                let start = story.random.below(story.capacity());
                story.write(start, 1).expect("one more may be lost");
            }
            let before: Vec<(usize, Vec<u8>)> =
                [1, 2].map(|disk| (disk, story.world.disks[disk].seen.clone())).into();
            story.run(&Mix::ALL);
            story.tell_to_stop();
            story.settle();
            for (disk, seen) in before {
                assert!(story.world.disks[disk].seen == seen, "disk {disk} was written");
            }
            assert!(story.world.has_stopped(), "the rest stops clean");
        });
    }
}

#[test]
fn overlapping_writes_reach_copies_in_one_order() {
    let mix = Mix { reads: 5, flushes: 0, trims: 5, requests: 60, ..Mix::ALL };
    for (level, layout, slots) in [(Level::Raid1, 0, 3), (Level::Raid10, 0x102, 5)] {
        for_seeds(8, |seed| {
            let mut scene = Scene::new(design(level, layout, 8, slots, 4), seed);
            let mut story = scene.open();
            story.run(&mix);
            story.ends_well();
            scene.seed += 1;
            let mut story = scene.open();
            for start in 0..12 {
                story.issue(WRITE, start, 12);
            }
            story.settle();
            story.ends_well();
        });
    }
}
