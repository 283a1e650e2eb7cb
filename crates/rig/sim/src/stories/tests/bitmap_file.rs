//! What a bitmap file promises, with our own log in it or without: after a crash at any moment nothing that was kept is lost, whoever is
//! missing where there is a log; and a file that was left behind, lost, or put back from a copy is not believed.

use braid_engine::array::Notice;
use braid_geometry::{Level, Slot};
use braid_ondisk::Version;

use super::for_seeds;
use super::parity_log::{WRITES, some_disks, starts_without};
use super::scene::{Scene, redundant_designs};
use super::script::{Mix, Script};
use crate::create::Design;
use crate::disk::Ills;
use crate::fault::Mishap;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;

/// Every layout with redundancy, the bitmap in a file; some with our own log, and with metadata that leave no room for it on members.
fn designs() -> Vec<Design> {
    let plain = redundant_designs(8).into_iter().filter(|design| design.slots > 2);
    let versions = [Version::V1_2, Version::V1_0, Version::V0_90];
    let in_file = |(number, design): (usize, Design)| {
        let version = versions[number % versions.len()];
        let bitmap = Design { bitmap_in_file: true, bit_sectors: 8, version, ..design };
        let band = bitmap.chunk_sectors.min(128).next_multiple_of(8) as u16;
        let log_sectors = if number % 2 == 0 { 40 + band } else { 4 * (8 + 2 * band) };
        let log = Design { log_sectors, log_is_own: true, ..bitmap };
        let has_parity = matches!(design.level, Level::Raid4 | Level::Raid5 | Level::Raid6);
        [Some(bitmap), has_parity.then_some(log)].into_iter().flatten()
    };
    plain.enumerate().flat_map(in_file).collect()
}

fn opened(design: Design, seed: u64) -> Script {
    scene(design, seed).open()
}

/// What is answered is on the members: what these wait for may not come.
fn opened_through(design: Design, seed: u64) -> Script {
    scene(design, seed).write_through().open()
}

fn scene(design: Design, seed: u64) -> Scene {
    let mut scene = Scene::new(design, seed);
    // 27 numbers at most, and four of them in a sector.
    if design.version == Version::V0_90 {
        scene.design.first_number = 0;
    }
    scene.manner.jobs_paused = false;
    scene.errors_allowed = false;
    scene
}

fn file_disk(design: &Design) -> usize {
    design.file_disk().expect("it has one")
}

/// Who may be withheld: where there is a log, as many as the level bears.
fn withheld(design: &Design, random: &mut Random) -> Vec<usize> {
    if design.log_is_own && random.chance(70) { some_disks(design, random) } else { Vec::new() }
}

/// Clients write, and in the middle of it all ends.
fn written_and_cut(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e1);
    let mut story = opened(design, seed);
    for _ in 0..3 {
        let mix = Mix { in_flight_max: *random.pick(&[1, 2, 8]), ..WRITES };
        story.begin_mix(&mix, 20 + random.below(400));
        let withheld = withheld(&design, &mut random);
        if !starts_without(&mut story, &withheld, false) {
            return;
        }
    }
}

/// The file cannot be written any more, and clients go on; it is there again at the next start.
fn is_lost(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e2);
    let mut story = opened(design, seed);
    story.run(&Mix { requests: random.below(8) as u32, ..WRITES });
    let file = file_disk(&design);
    story.befall(file, *random.pick(&[Mishap::SuperblocksFail, Mishap::Dies]));
    if random.chance(50) {
        story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 5 + random.below(400));
    } else {
        story.run(&Mix { requests: 20, ..WRITES });
        // Superblocks that say clean wait for it, if nothing did before.
        story.rest();
        story.run(&Mix { requests: 3, ..WRITES });
        assert!(story.heard(|notice| matches!(notice, Notice::BitmapFileLost { .. })));
        assert!(!story.is_broken(), "it goes on without");
    }
    // Without the file all is resynced, and nobody may be missing.
    let withheld = withheld(&design, &mut random);
    starts_without(&mut story, &withheld, true);
}

/// A person gives up what is in the file, or makes it anew, while clients write.
fn comes_and_goes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e3);
    let mut story = opened(design, seed);
    let mix = Mix { in_flight_max: 4, ..WRITES };
    for _ in 0..4 {
        story.begin_mix(&mix, 10 + random.below(200));
        let array = &story.world.engine.machines.array;
        // What is refused for now changes nothing.
        _ = match (array.bitmap().is_some(), array.has_own_logs()) {
            (_, true) => story.world.changes_logs(false).is_ok(),
            (true, false) if design.log_is_own && random.chance(50) => {
                story.world.changes_logs(true).is_ok()
            }
            (true, false) => {
                let made = random.chance(40).then(|| 8 << random.below(3));
                story.world.changes_bitmap(made).is_ok()
            }
            (false, false) => story.world.changes_bitmap(Some(16)).is_ok(),
        };
    }
    story.begin_mix(&mix, random.below(60));
    // With a log, or without one.
    let withheld = withheld(&design, &mut random);
    if !starts_without(&mut story, &withheld, true) {
        starts_without(&mut story, &[], false);
    }
}

/// Whether the count of the file is beyond that of all superblocks: their first update would reach it, and bits that nobody kept be believed.
/// md's format says no more.
fn is_ahead(story: &Script, design: &Design) -> bool {
    let all: Vec<usize> = (0..story.world.disks.len()).collect();
    let (_, assembly) = open::assemble_disks(&story.world.disks, &all);
    let events = assembly.array.as_ref().map_or(0, |array| array.newest.state.events);
    let superblock = story.world.superblock_on(0).map(|one| one.for_bitmap_file(0));
    let file = superblock.and_then(|one| open::bitmap(&story.world.disks[file_disk(design)], &one));
    file.and_then(Result::ok).is_none_or(|file| file.superblock.events > events)
}

/// Somebody runs the array without its file, and it is cut off; then the file is named again.
fn runs_without(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e4);
    let mut story = opened(design, seed);
    let mix = Mix { in_flight_max: *random.pick(&[1, 4]), ..WRITES };
    if random.chance(50) {
        story.run(&Mix { requests: 12, ..mix });
        assert!(story.stop(), "nothing befell it");
    } else {
        story.begin_mix(&mix, 20 + random.below(200));
    }
    story.world.crash(true);
    if is_ahead(&story, &design) || !starts_without(&mut story, &[file_disk(&design)], false) {
        return;
    }
    story.begin_mix(&mix, random.below(300));
    if random.chance(30) {
        story.settle();
        story.stop();
    }
    if !starts_without(&mut story, &[], false) {
        return;
    }
    story.run(&Mix { requests: 6, ..WRITES });
}

/// A copy of the file is put back.
fn is_put_back(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e5);
    let mut story = opened(design, seed);
    let file = file_disk(&design);
    story.run(&Mix { requests: 5, ..WRITES });
    let copy = story.world.disks[file].seen.clone();
    assert!(story.stop(), "nothing befell it");
    if !starts_without(&mut story, &[], false) {
        return;
    }
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 40 + random.below(300));
    story.world.crash(true);
    story.world.disks[file].put(0, &copy, true);
    story.world.keeps_bits.clear();
    let withheld = withheld(&design, &mut random);
    // What the newest superblocks say that the log has, this one has not.
    if !starts_without(&mut story, &withheld, !withheld.is_empty()) {
        starts_without(&mut story, &[], false);
    }
}

/// Superblocks say that there is none in the file any more, once, and then nothing comes to them until power is cut: what is written meanwhile
/// no bit names.
fn is_given_up_and_cut_off(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e6);
    let mut story = opened_through(Design { log_is_own: false, log_sectors: 0, ..design }, seed);
    story.run(&Mix { requests: 4, ..WRITES });
    let before = story.world.engine.machines.array.events();
    story.hold(move |event| match event {
        Event::Superblock { state, .. } => state.events > before + 1,
        _ => false,
    });
    if story.world.changes_bitmap(None).is_ok() {
        story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 60 + random.below(200));
        story.release();
        starts_without(&mut story, &[], false);
    }
}

/// The file cannot be written any more, and superblocks cannot say so before power is cut: nothing was written that no bit names.
fn fails_and_is_cut_off(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e7);
    let mut story = opened_through(design, seed);
    story.run(&Mix { requests: random.below(3) as u32, ..WRITES });
    story.befall(file_disk(&design), Mishap::SuperblocksFail);
    story.hold(|event| matches!(event, Event::Superblock { .. }));
    story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 60 + random.below(200));
    story.release();
    starts_without(&mut story, &[], false);
}

/// It is given up, or fails, while members are flushed for a sweep: it cannot be forgotten before that ends, and is written no more all the same.
fn goes_in_a_sweep(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e8);
    let mut story = opened_through(Design { log_is_own: false, log_sectors: 0, ..design }, seed);
    story.run(&Mix { requests: 4, ..WRITES });
    story.hold(|event| matches!(event, Event::Flush { .. }));
    story.pass_time(6_000);
    let file = file_disk(&design);
    if random.chance(50) {
        story.befall(file, Mishap::SuperblocksFail);
    } else if story.world.changes_bitmap(None).is_err() {
        return;
    }
    story.begin_mix(&Mix { in_flight_max: 4, flushes: 0, ..WRITES }, 100);
    // It could be written again.
    story.world.disks[file].ills = Ills::default();
    story.begin_mix(&Mix { in_flight_max: 4, flushes: 0, ..WRITES }, 60);
    story.release();
    story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 20 + random.below(200));
    starts_without(&mut story, &[], false);
}

/// It cannot be written any more while a person waits for a log to be made in it: that ends all the same.
fn fails_as_its_log_comes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e9);
    let mut story = opened_through(design, seed);
    if !design.log_is_own {
        return;
    }
    story.world.changes_logs(false).expect("nothing is in doubt");
    story.rest();
    // Clients write, so that it waits until they are done.
    story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 5 + random.below(60));
    let is_first = random.chance(50);
    let harm = *random.pick(&[Mishap::SuperblocksFail, Mishap::Dies]);
    if is_first {
        story.befall(file_disk(&design), harm);
    }
    story.world.changes_logs(true).expect("nobody knows");
    if !is_first {
        story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, random.below(40));
        story.befall(file_disk(&design), harm);
    }
    story.run(&Mix { in_flight_max: 4, requests: 12, ..WRITES });
    story.rest();
    let array = &story.world.engine.machines.array;
    assert!(array.are_logs_settled() && array.is_bitmap_settled(), "{design:?}");
    assert!(!array.has_own_logs() && array.bitmap_file().is_none(), "{design:?}");
    starts_without(&mut story, &[], false);
}

/// Some run the array with the file, twice; then only those are given along with it who missed that, and who would do.
fn others_went_on(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11ea);
    let mut story = opened(design, seed);
    let away_in = |mask: usize| -> Vec<usize> {
        (0..usize::from(design.slots)).filter(|disk| mask >> disk & 1 == 1).collect()
    };
    let all = 1 << design.slots;
    let geometry = story.world.geometry.clone();
    let does_without =
        |mask: &usize| geometry.survives(&|slot: Slot| mask >> slot.index() & 1 == 1);
    let do_both = |mask: &usize| does_without(mask) && does_without(&(all - 1 - mask));
    let halves: Vec<usize> = (1..all - 1).filter(do_both).collect();
    if halves.is_empty() {
        return;
    }
    let mask = *random.pick(&halves);
    story.run(&Mix { requests: 4, ..WRITES });
    assert!(story.stop(), "nothing befell it");
    for _ in 0..2 {
        assert!(starts_without(&mut story, &away_in(mask), false), "{design:?}");
        story.run(&Mix { requests: 6, ..WRITES });
        assert!(story.stop(), "nothing befell it");
    }
    assert!(!starts_without(&mut story, &away_in(all - 1 - mask), false), "{design:?}");
}

fn told(seed: u64, tell: impl Fn(Design, u64)) {
    for_seeds(2, |number| {
        for (index, design) in designs().into_iter().enumerate() {
            tell(design, seed + number * 200 + index as u64);
        }
    });
}

#[test]
fn a_bitmap_file_loses_nothing_that_was_kept() {
    told(5_300_000, written_and_cut);
}

#[test]
fn a_bitmap_file_that_fails_is_left_behind() {
    told(5_310_000, is_lost);
    told(5_350_000, fails_and_is_cut_off);
    told(5_360_000, is_given_up_and_cut_off);
    told(5_370_000, goes_in_a_sweep);
    told(5_380_000, fails_as_its_log_comes);
}

#[test]
fn a_bitmap_file_comes_and_goes_while_clients_write() {
    told(5_320_000, comes_and_goes);
}

#[test]
fn a_bitmap_file_that_was_left_out_is_not_believed() {
    told(5_330_000, runs_without);
}

#[test]
fn an_older_copy_of_a_bitmap_file_is_not_believed() {
    told(5_340_000, is_put_back);
}

#[test]
fn members_that_missed_what_is_in_the_bitmap_file_are_not_believed() {
    told(5_390_000, others_went_on);
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell(seed: u64) {
    let all = designs();
    let design = all[seed as usize % all.len()];
    written_and_cut(design, seed);
    is_lost(design, seed);
    fails_and_is_cut_off(design, seed);
    is_given_up_and_cut_off(design, seed);
    goes_in_a_sweep(design, seed);
    fails_as_its_log_comes(design, 5_380_000 + seed);
    comes_and_goes(design, seed);
    runs_without(design, seed);
    is_put_back(design, seed);
    others_went_on(design, seed);
}
