//! What partial parity logs promise: after a crash at any moment, whoever is missing then, nothing is lost that was kept.

use braid_geometry::Level;

use super::for_seeds;
use super::scene::{Scene, redundant_designs};
use super::script::{Mix, Script, WRITE};
use crate::create::Design;
use crate::disk::Ills;
use crate::fault::Mishap;
use crate::random::Random;

/// Clients that write little, and much of it to few rows.
const WRITES: Mix = Mix { reads: 5, writes: 80, zeroes: 5, trims: 2, flushes: 8, ..Mix::ALL };

/// RAID-5 of any layout, with a log: one record, or a ring with room for a few.
fn designs() -> Vec<Design> {
    let is_raid5 = |design: &Design| design.level == Level::Raid5 && design.slots > 2;
    let plain = redundant_designs(8).into_iter().filter(is_raid5);
    let with_log = |(design, (band, log_is_ring)): (Design, (u16, bool))| {
        let log_sectors = 8 + band + design.chunk_sectors.min(128).next_multiple_of(8) as u16;
        Design { log_sectors, log_is_ring, ..design }
    };
    let kinds = [(0, false), (24, true), (120, true)];
    plain.flat_map(|design| kinds.map(|kind| with_log((design, kind)))).collect()
}

fn opened(design: Design, seed: u64) -> Script {
    let mut scene = Scene::new(design, seed);
    scene.manner.jobs_paused = false;
    scene.errors_allowed = false;
    scene.open()
}

/// The array is cut off, and started again without a disk, or with all; all that can be had of it is read. False if it may not be
/// started so, as somebody was out already, or may be.
fn starts_without(story: &mut Script, withheld: Option<usize>, may_fail: bool) -> bool {
    let power = story.random.chance(60);
    story.begins_anew();
    story.world.crash(power);
    story.world.disks.iter_mut().for_each(|disk| disk.ills = Ills::default());
    let disks = 0..story.world.disks.len();
    let presented: Vec<usize> = disks.filter(|disk| Some(*disk) != withheld).collect();
    let may_fail = may_fail || !story.world.out.is_empty() || !story.world.unsure.is_empty();
    match story.world.open(&presented, false) {
        Ok(_) => {
            story.begins_anew();
            story.world.trust();
            story.read_all();
            true
        }
        // Somebody was out already, or may be.
        Err(refusal) => {
            assert!(may_fail, "the level bears one loss: {refusal:?}");
            false
        }
    }
}

/// Clients write, and in the middle of it all ends.
fn written_and_cut(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x991);
    let mut story = opened(design, seed);
    for _ in 0..3 {
        let mix = Mix { in_flight_max: *random.pick(&[1, 2, 8]), ..WRITES };
        story.begin_mix(&mix, 20 + random.below(400));
        let disk = random.below(u64::from(design.slots)) as usize;
        let withheld = random.chance(80).then_some(disk);
        if !starts_without(&mut story, withheld, false) {
            return;
        }
    }
}

/// The log of one member cannot be written: it is out before the band is written.
fn does_not_take_a_record(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x992);
    let mut story = opened(design, seed);
    story.run(&Mix { requests: 4, ..WRITES });
    let disk = random.below(u64::from(design.slots)) as usize;
    story.befall(disk, Mishap::SuperblocksFail);
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 5 + random.below(60));
    // Superblocks may say that it is out, or not.
    story.world.unsure.insert(disk);
    let other =
        (disk + 1 + random.below(u64::from(design.slots) - 1) as usize) % usize::from(design.slots);
    starts_without(&mut story, Some(other), true);
}

/// Two columns of a row that have another between them are written, and that is missing then.
fn columns_apart(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x993);
    let mut story = opened(design, seed);
    let chunk = u64::from(design.chunk_sectors);
    if design.slots < 4 {
        return;
    }
    story.issue(WRITE, 0, 1 + random.below(chunk.min(8)));
    story.issue(WRITE, 2 * chunk, 1 + random.below(chunk.min(8)));
    story.begin_mix(&Mix { in_flight_max: 0, ..WRITES }, random.below(60));
    let map = match &story.world.geometry {
        braid_geometry::Geometry::Stripe(stripe) => stripe.row_map(braid_geometry::ChunkRow(0)),
        _ => unreachable!("it has parity"),
    };
    starts_without(&mut story, Some(map.data_slot(1).index()), false);
}

/// A disk comes whose log would say what is not so.
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
    let other = random.below(u64::from(design.slots)) as usize;
    starts_without(&mut story, Some(other), false);
}

/// What was being written cannot be read when the array is started, and can be later.
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
    story.world.disks.iter_mut().for_each(|disk| disk.ills = Ills::default());
    story.world.disks[disk].bad.insert(data_offset);
    let all: Vec<usize> = (0..story.world.disks.len()).collect();
    story.world.open(&all, false).expect("all are there");
    story.begins_anew();
    story.allow_errors();
    let capacity = story.capacity();
    _ = story.try_write(capacity - 1, 1);
    story.stop();
    story.world.disks[disk].bad.clear();
    // The checker of clean arrays looks at each of them.
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

/// As long as parity need not fit, logs hold no record, and the array is resynced as if it had none; then they are kept.
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
            assert_eq!(records(&story), 0, "{design:?}: nobody may believe them");
            story.request(braid_engine::array::JobRequest::Resume);
            story.rest();
            story.run(&Mix { requests: 4, ..WRITES });
            assert!(story.stop());
            assert_eq!(records(&story), usize::from(design.slots), "{design:?}");
        }
    });
}

#[cfg(braid_hooks)]
pub(in super::super) fn tell(seed: u64) {
    let all = designs();
    let design = all[seed as usize % all.len()];
    written_and_cut(design, seed);
    columns_apart(design, seed);
    does_not_take_a_record(design, seed);
    comes_and_is_logged(design, seed);
    cannot_be_read_for_now(design, seed);
}
