//! A bitmap file, with our own log in it or without. After a crash at any moment no kept write is
//! lost, whichever members are missing, if there is a log. A file that was left behind, lost, or
//! restored from a copy is not believed.

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

/// Every redundant layout with a bitmap file. Some have our own log, which members lack room for.
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

/// Write-through: acknowledged writes are on members, since write-back may never come here.
fn opened_through(design: Design, seed: u64) -> Script {
    scene(design, seed).write_through().open()
}

fn scene(design: Design, seed: u64) -> Scene {
    let mut scene = Scene::new(design, seed);
    // Version 0.90 has at most 27 device numbers, four of them in a sector.
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

/// Disks to withhold: with a log, as many as the level tolerates.
fn withheld(design: &Design, random: &mut Random) -> Vec<usize> {
    if design.log_is_own && random.chance(70) { some_disks(design, random) } else { Vec::new() }
}

/// Clients write, and power or process ends in the middle.
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

/// The file fails its writes while clients go on; it works again at the next start.
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
        // Superblocks that say clean wait for the file, if nothing did before.
        story.rest();
        story.run(&Mix { requests: 3, ..WRITES });
        assert!(story.heard(|notice| matches!(notice, Notice::BitmapFileLost { .. })));
        assert!(!story.is_broken(), "the array goes on without the file");
    }
    // Without the file everything is resynced, so no member may be missing.
    let withheld = withheld(&design, &mut random);
    starts_without(&mut story, &withheld, true);
}

/// An operator removes the bitmap or log in the file, or creates it, while clients write.
fn comes_and_goes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e3);
    let mut story = opened(design, seed);
    let mix = Mix { in_flight_max: 4, ..WRITES };
    for _ in 0..4 {
        story.begin_mix(&mix, 10 + random.below(200));
        let array = &story.world.engine.machines.array;
        // A refused change changes nothing.
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

/// Whether the file's event count exceeds that of all superblocks. Their next update would reach
/// it, and stale bits would be believed. md's format cannot rule that out.
fn is_ahead(story: &Script, design: &Design) -> bool {
    let all: Vec<usize> = (0..story.world.disks.len()).collect();
    let (_, assembly) = open::assemble_disks(&story.world.disks, &all);
    let events = assembly.array.as_ref().map_or(0, |array| array.newest.state.events);
    let superblock = story.world.superblock_on(0).map(|one| one.for_bitmap_file(0));
    let file = superblock.and_then(|one| open::bitmap(&story.world.disks[file_disk(design)], &one));
    file.and_then(Result::ok).is_none_or(|file| file.superblock.events > events)
}

/// The array runs without its file and is cut off; then it starts with the file again.
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

/// An old copy of the file is put back.
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
    // This copy lacks the log records that the newest superblocks count on.
    if !starts_without(&mut story, &withheld, !withheld.is_empty()) {
        starts_without(&mut story, &[], false);
    }
}

/// Superblocks say once that the file is removed, then nothing until power is cut. No bit names the
/// writes of that time.
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

/// The file fails, and power is cut before a superblock says so: bits name all writes.
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

/// The file is removed or fails during a sweep's flush: remembered until its end, not written.
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
    // Writes to it would succeed now.
    story.world.disks[file].ills = DiskFaults::default();
    story.begin_mix(&Mix { in_flight_max: 4, flushes: 0, ..WRITES }, 60);
    story.release();
    story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 20 + random.below(200));
    starts_without(&mut story, &[], false);
}

/// The file fails while a change waits to create a log in it: the change ends all the same.
fn fails_as_its_log_comes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xf11e9);
    let mut story = opened_through(design, seed);
    if !design.log_is_own {
        return;
    }
    story.world.changes_logs(false).expect("nothing is in doubt");
    story.rest();
    // The change waits until these writes are done.
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

/// Half of the members run with the file, twice. Then the file is given with the other half, which
/// would suffice but missed both runs: refused.
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
