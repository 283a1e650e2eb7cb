//! A bitmap file, with our own parity log in it or without. With a log, a crash at any moment loses
//! no kept write, whichever members are missing. Assembly must not believe a file that was left
//! behind, lost, or restored from a copy.

use braid_engine::array::Notice;
use braid_geometry::{Level, Slot};
use braid_ondisk::Version;

use super::for_seeds;
use super::parity_log::{WRITES, some_disks, starts_without};
use super::scene::{Scene, redundant_designs};
use super::script::{Mix, Script};
use crate::create::Design;
use crate::disk::DiskFaults;
use crate::fault::Mishap;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;

/// Every redundant layout with a bitmap file. Some have our own log in the file, because their
/// members have no room for one.
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

/// Opens in write-through mode. In write-back mode the story's writes might not reach members in
/// time.
fn opened_through(design: Design, seed: u64) -> Script {
    scene(design, seed).write_through().open()
}

fn scene(design: Design, seed: u64) -> Scene {
    let mut scene = Scene::new(design, seed);
    // A 0.90 superblock has at most 27 device numbers, four of them in a sector.
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

/// Draws the disks to withhold: at most as many as the level tolerates, and none without a log.
fn withheld(design: &Design, random: &mut Random) -> Vec<usize> {
    if design.log_is_own && random.chance(70) { some_disks(design, random) } else { Vec::new() }
}

/// Clients write, and a power cut or a kill ends the run in the middle.
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

/// The bitmap file fails its writes while clients write. The file works again at the next start.
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
        // Turning clean writes the file, so the array notices the failure then at the latest.
        story.rest();
        story.run(&Mix { requests: 3, ..WRITES });
        assert!(story.heard(|notice| matches!(notice, Notice::BitmapFileLost { .. })));
        assert!(!story.is_broken(), "the array goes on without the file");
    }
    // If the array lost its file, everything is resynced, and the start needs every member.
    let withheld = withheld(&design, &mut random);
    starts_without(&mut story, &withheld, true);
}

/// While clients write, an operator removes the bitmap or the log in the file, or creates one.
fn comes_and_goes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e3);
    let mut story = opened(design, seed);
    let mix = Mix { in_flight_max: 4, ..WRITES };
    for _ in 0..4 {
        story.begin_mix(&mix, 10 + random.below(200));
        let array = &story.world.engine.machines.array;
        // The array may refuse the change.
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
    let withheld = withheld(&design, &mut random);
    if !starts_without(&mut story, &withheld, true) {
        starts_without(&mut story, &[], false);
    }
}

/// Whether the file's event count exceeds that of all superblocks. If so, the superblocks' next
/// update could reach the same count, and the next start would believe stale bits. md's format
/// cannot rule that out.
fn is_ahead(story: &Script, design: &Design) -> bool {
    let all: Vec<usize> = (0..story.world.disks.len()).collect();
    let (_, assembly) = open::assemble_disks(&story.world.disks, &all);
    let events = assembly.array.as_ref().map_or(0, |array| array.newest.state.events);
    let superblock = story.world.superblock_on(0).map(|one| one.for_bitmap_file(0));
    let file = superblock.and_then(|one| open::bitmap(&story.world.disks[file_disk(design)], &one));
    file.and_then(Result::ok).is_none_or(|file| file.superblock.events > events)
}

/// The array runs without its bitmap file and is cut off. Then it starts with the file again.
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

/// While the array is stopped, an old copy replaces the bitmap file.
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
    // The copy lacks log records that the start without these members needs.
    if !starts_without(&mut story, &withheld, !withheld.is_empty()) {
        starts_without(&mut story, &[], false);
    }
}

/// An operator removes the bitmap file. Superblocks record the removal once, and no later update
/// reaches them until power is cut. The file's bits do not cover the writes since.
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

/// The bitmap file fails, and power is cut before a superblock records the failure. The file's bits
/// must cover all writes.
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

/// The bitmap file is removed, or fails, while a sweep (which clears bits) waits for a flush. When
/// that flush ends, the sweep must not write the file.
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
    // From now on the file would accept writes.
    story.world.disks[file].ills = DiskFaults::default();
    story.begin_mix(&Mix { in_flight_max: 4, flushes: 0, ..WRITES }, 60);
    story.release();
    story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 20 + random.below(200));
    starts_without(&mut story, &[], false);
}

/// A change waits to create a log in the bitmap file, and the file fails. The change must end all
/// the same.
fn fails_as_its_log_comes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e9);
    let mut story = opened_through(design, seed);
    if !design.log_is_own {
        return;
    }
    story.world.changes_logs(false).expect("nothing is in doubt");
    story.rest();
    // The change waits until the writes that are in flight now are done.
    story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 5 + random.below(60));
    let is_first = random.chance(50);
    let harm = *random.pick(&[Mishap::SuperblocksFail, Mishap::Dies]);
    if is_first {
        story.befall(file_disk(&design), harm);
    }
    story.world.changes_logs(true).expect("no outcome is known");
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

/// Half of the members run with the bitmap file, twice. Then the file is presented with the other
/// half. That half has enough members, but missed both runs, so the start must be refused.
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
