//! Parity logs, md's PPL and our own: no crash loses a kept write, whichever members are missing.

use braid_engine::array::MemberView;
use braid_geometry::Level;

use super::for_seeds;
use super::scene::{Scene, redundant_designs};
use super::script::{Mix, Script, WRITE};
use crate::create::Design;
use crate::disk::DiskFaults;
use crate::fault::Mishap;
use crate::random::Random;

/// Clients whose writes are short and mostly go to few rows.
pub(super) const WRITES: Mix =
    Mix { reads: 5, writes: 80, zeroes: 5, trims: 2, flushes: 8, ..Mix::ALL };

/// Levels with parity in any layout, with our own log of one record or a few. A RAID-5 also comes
/// with md's PPL.
pub(super) fn designs() -> Vec<Design> {
    let has_parity = |design: &Design| {
        matches!(design.level, Level::Raid4 | Level::Raid5 | Level::Raid6) && design.slots > 2
    };
    let plain = redundant_designs(8).into_iter().filter(has_parity);
    let with_log = |design: Design, (more, log_is_ring, log_is_own): (u16, bool, bool)| {
        let log_sectors = 8 + more + design.chunk_sectors.min(128).next_multiple_of(8) as u16;
        Design { log_sectors, log_is_ring, log_is_own, ..design }
    };
    let own = [(8, false, true), (120, false, true)];
    let ppl = [(0, false, false), (24, true, false), (120, true, false)];
    let kinds = |design: Design| {
        let ppl = ppl.into_iter().filter(move |_| design.level == Level::Raid5);
        ppl.chain(own).map(move |kind| with_log(design, kind))
    };
    let has_room = |design: &Design| {
        let superblock = design.superblock(0);
        !design.log_is_own || design.own_log(&superblock).is_some()
    };
    plain.flat_map(kinds).filter(has_room).collect()
}

/// Draws disks to withhold, at most as many as the level tolerates.
pub(super) fn some_disks(design: &Design, random: &mut Random) -> Vec<usize> {
    let most = if design.level == Level::Raid6 { 2 } else { 1 };
    let mut all: Vec<usize> = (0..usize::from(design.slots)).collect();
    random.shuffle(&mut all);
    all.truncate(1 + random.below(most) as usize);
    all
}

pub(super) fn opened(design: Design, seed: u64) -> Script {
    let mut scene = Scene::new(design, seed);
    scene.manner.jobs_paused = false;
    scene.errors_allowed = false;
    scene.open()
}

/// Cuts the array off, starts it without these disks, and reads every readable sector. False if
/// assembly refuses the start, which is legal only with `may_fail` or after a possible loss of a
/// member.
pub(super) fn starts_without(story: &mut Script, withheld: &[usize], may_fail: bool) -> bool {
    let power = story.random.chance(60);
    story.begins_anew();
    story.world.crash(power);
    story.world.disks.iter_mut().for_each(|disk| disk.ills = DiskFaults::default());
    story.world.look_at_bad_logs();
    let disks = 0..story.world.disks.len();
    let presented: Vec<usize> = disks.filter(|disk| !withheld.contains(disk)).collect();
    let may_fail = may_fail || !story.world.out.is_empty() || !story.world.unsure.is_empty();
    match story.world.open(&presented, false) {
        Ok(_) => {
            story.begins_anew();
            story.world.trust();
            story.read_all();
            true
        }
        // A refusal is legal after the possible loss of a member.
        Err(refusal) => {
            assert!(may_fail, "the level tolerates the loss: {refusal:?}");
            false
        }
    }
}

/// Clients write, and a power cut or a kill ends the run in the middle.
fn written_and_cut(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x991);
    let mut story = opened(design, seed);
    for _ in 0..3 {
        let mix = Mix { in_flight_max: *random.pick(&[1, 2, 8]), ..WRITES };
        story.begin_mix(&mix, 20 + random.below(400));
        let withheld =
            if random.chance(80) { some_disks(&design, &mut random) } else { Vec::new() };
        if !starts_without(&mut story, &withheld, false) {
            return;
        }
    }
}

/// A member fails the write of its parity log. The member must be out before the band is written.
fn does_not_take_a_record(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x992);
    let mut story = opened(design, seed);
    story.run(&Mix { requests: 4, ..WRITES });
    let disk = random.below(u64::from(design.slots)) as usize;
    story.befall(disk, Mishap::SuperblocksFail);
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 5 + random.below(60));
    // Superblocks may record the member as out already, or not yet.
    story.world.unsure.insert(disk);
    let other =
        (disk + 1 + random.below(u64::from(design.slots) - 1) as usize) % usize::from(design.slots);
    starts_without(&mut story, &[other], true);
}

/// Two columns of a row are written when power is cut. The column between them is missing at the
/// next start.
fn columns_apart(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x993);
    let mut story = opened(design, seed);
    let chunk = u64::from(design.chunk_sectors);
    let data_slots = design.slots - if design.level == Level::Raid6 { 2 } else { 1 };
    if data_slots < 3 {
        return;
    }
    story.issue(WRITE, 0, 1 + random.below(chunk.min(8)));
    story.issue(WRITE, 2 * chunk, 1 + random.below(chunk.min(8)));
    story.begin_mix(&Mix { in_flight_max: 0, ..WRITES }, random.below(60));
    let map = match &story.world.geometry {
        braid_geometry::Geometry::Stripe(stripe) => stripe.row_map(braid_geometry::ChunkRow(0)),
        _ => unreachable!("it has parity"),
    };
    starts_without(&mut story, &[map.data_slot(1).index()], false);
}

/// A disk joins, or returns, with an old parity log whose records are wrong by now.
fn comes_and_is_logged(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x994);
    let mut story = opened(design, seed);
    story.run(&Mix { requests: 6, ..WRITES });
    let disk = random.below(u64::from(design.slots)) as usize;
    story.fails_by_person(disk);
    story.rest();
    story.run(&Mix { requests: 6, ..WRITES });
    story.world.joins(disk, random.chance(50));
    story.rest();
    let view = &story.world.engine.machines.shards[0].view;
    assert!(view.slots.iter().all(Option::is_some), "it is whole again");
    story.begin_mix(&Mix { in_flight_max: 2, ..WRITES }, 20 + random.below(200));
    let withheld = some_disks(&design, &mut random);
    starts_without(&mut story, &withheld, false);
}

/// A member is missing, and writes do not log its parity. A new disk is recovered in its slot,
/// whose content may still be in caches when the run is cut off.
fn parity_comes_and_power_goes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x997);
    let mut story = opened(design, seed);
    story.run(&Mix { requests: 6, ..WRITES });
    let disk = random.below(u64::from(design.slots)) as usize;
    story.fails_by_person(disk);
    story.rest();
    story.run(&Mix { requests: 6, flushes: 0, ..WRITES });
    story.world.joins(disk, false);
    for _ in 0..40 {
        story.run_without_time();
        let view = &story.world.engine.machines.shards[0].view;
        let is_whole = |one: &MemberView| one.recovered_sectors == u64::MAX;
        if view.slots.iter().all(|slot| slot.as_ref().is_some_and(is_whole)) {
            break;
        }
        story.tick();
    }
    let other = random.below(u64::from(design.slots)) as usize;
    starts_without(&mut story, &[other], true);
}

/// After a crash a server that does not know our own log, like md, runs the array. The array then
/// stops cleanly or is cut off during a write. The log's records are stale by then.
fn others_write_since(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x996);
    let mut story = opened(design, seed);
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 20 + random.below(200));
    story.world.others_percent = 100;
    if !starts_without(&mut story, &[], false) {
        return;
    }
    let mix = Mix { in_flight_max: *random.pick(&[1, 4]), ..WRITES };
    let ends_in_order = random.chance(50);
    if ends_in_order {
        story.run(&Mix { requests: 30, ..mix });
        assert!(story.stop());
    } else {
        story.begin_mix(&mix, 20 + random.below(300));
    }
    story.world.others_percent = 0;
    let withheld = some_disks(&design, &mut random);
    // A dirty and degraded array needs a valid log to start, and the resync may be unfinished.
    let says_clean = |disk| {
        story.world.superblock_on(disk).is_some_and(|superblock| superblock.state.is_clean())
    };
    let is_clean = (0..story.world.disks.len()).all(says_clean);
    if starts_without(&mut story, &withheld, !is_clean) {
        story.run(&Mix { requests: 10, ..WRITES });
    }
}

/// A sector of a write in flight is unreadable at the next start, and readable at the second start.
fn cannot_be_read_for_now(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x995);
    let mut story = opened(design, seed);
    story.issue(WRITE, 0, u64::from(design.chunk_sectors));
    story.begin_mix(&Mix { in_flight_max: 0, ..WRITES }, 5 + random.below(40));
    let data_offset = story.world.taint.data_offset;
    let first = match &story.world.geometry {
        braid_geometry::Geometry::Stripe(stripe) => stripe.row_map(braid_geometry::ChunkRow(0)),
        _ => unreachable!("it has parity"),
    };
    let disk = first.data_slot(0).index();
    story.begins_anew();
    story.world.crash(true);
    story.world.disks.iter_mut().for_each(|disk| disk.ills = DiskFaults::default());
    story.world.disks[disk].bad.insert(data_offset);
    let all: Vec<usize> = (0..story.world.disks.len()).collect();
    story.world.open(&all, false).expect("all are there");
    story.begins_anew();
    story.allow_errors();
    let capacity = story.capacity();
    _ = story.try_write(capacity - 1, 1);
    story.stop();
    story.world.disks[disk].bad.clear();
    // The checker of clean arrays checks every sector at this start.
    _ = story.world.open(&all, false);
}

#[test]
fn parity_that_could_not_be_made_is_made_later() {
    for_seeds(3, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            cannot_be_read_for_now(design, 5_140_000 + seed * 100 + index as u64);
        }
    });
}

#[test]
fn a_member_that_is_withheld_loses_nothing_that_was_kept() {
    for_seeds(3, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            let seed = 5_100_000 + seed * 100 + index as u64;
            written_and_cut(design, seed);
            columns_apart(design, seed);
        }
    });
}

#[test]
fn a_log_that_others_wrote_past_is_not_believed() {
    for_seeds(3, |seed| {
        for (index, design) in designs().into_iter().filter(|one| one.log_is_own).enumerate() {
            others_write_since(design, 5_150_000 + seed * 100 + index as u64);
        }
    });
}

#[test]
fn parity_that_was_recovered_does_not_outlive_the_data_that_it_was_made_of() {
    for_seeds(4, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            parity_comes_and_power_goes(design, 5_160_000 + seed * 100 + index as u64);
        }
    });
}

#[test]
fn a_member_that_does_not_take_a_record_is_out_first() {
    for_seeds(3, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            does_not_take_a_record(design, 5_110_000 + seed * 100 + index as u64);
        }
    });
}

#[test]
fn a_member_that_comes_has_an_empty_log() {
    for_seeds(2, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            comes_and_is_logged(design, 5_120_000 + seed * 100 + index as u64);
        }
    });
}

/// While parity may not agree, logs hold no record, and a start resyncs. Later, writes are logged.
#[test]
fn logs_are_kept_from_when_all_agrees() {
    for_seeds(2, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            let mut scene = Scene::new(design, 5_130_000 + seed * 100 + index as u64);
            scene.resync_offset = 0;
            scene.manner.jobs_paused = true;
            let mut story = scene.open();
            story.run(&Mix { requests: 4, ..WRITES });
            let records = |story: &Script| {
                let all: Vec<usize> = (0..usize::from(design.slots)).collect();
                let decision = story.world.decide(&all);
                let logs = decision.assembly.array.ok().and_then(|array| array.parity_logs);
                logs.map_or(0, |logs| logs.values().filter(|log| log.newest.is_some()).count())
            };
            assert_eq!(records(&story), 0, "{design:?}: no record is valid");
            story.request(braid_engine::array::JobRequest::Resume);
            story.rest();
            story.run(&Mix { requests: 4, ..WRITES });
            let counts = |story: &Script| {
                story
                    .world
                    .superblock_on(0)
                    .is_some_and(|superblock| superblock.state.log_counts.is_some())
            };
            // Superblocks call our own log valid from the first write until the stop.
            if design.log_is_own && counts(&story) {
                assert_eq!(records(&story), usize::from(design.slots), "{design:?}");
            }
            assert!(story.stop());
            assert!(!counts(&story), "a clean array has no valid log");
            let kept = if design.log_is_own { 0 } else { usize::from(design.slots) };
            assert_eq!(records(&story), kept, "{design:?}");
        }
    });
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell(seed: u64) {
    let all = designs();
    let design = all[seed as usize % all.len()];
    written_and_cut(design, seed);
    columns_apart(design, seed);
    does_not_take_a_record(design, seed);
    comes_and_is_logged(design, seed);
    cannot_be_read_for_now(design, seed);
    parity_comes_and_power_goes(design, seed);
    if design.log_is_own {
        others_write_since(design, seed);
    }
}
