//! What a write journal promises: after a crash at any moment, whoever is missing then, nothing is lost that was answered.

use braid_engine::array::{MemberView, Notice};
use braid_geometry::Level;
use braid_ondisk::JournalEnd;

use super::for_seeds;
use super::parity_log::{WRITES, some_disks, starts_without};
use super::scene::{Scene, redundant_designs};
use super::script::{Mix, Script};
use crate::create::Design;
use crate::fault::Mishap;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;

/// Levels with parity, of any layout, with a journal that is soon full; some with chunks of several blocks.
fn designs() -> Vec<Design> {
    let has_parity = |design: &Design| {
        matches!(design.level, Level::Raid4 | Level::Raid5 | Level::Raid6) && design.slots > 2
    };
    let small = redundant_designs(8).into_iter().filter(has_parity);
    let large = redundant_designs(128).into_iter().filter(has_parity).step_by(3);
    let journaled = |design: Design| Design { journal_blocks: design.journal_blocks_min(), ..design };
    small.chain(large).map(journaled).collect()
}

fn opened(design: Design, seed: u64) -> Script {
    let mut scene = Scene::new(design, seed);
    scene.manner.jobs_paused = false;
    scene.errors_allowed = false;
    scene.open()
}

fn journal_disk(design: &Design) -> usize {
    design.journal_disk().expect("it has one")
}

/// Clients write, and in the middle of it all ends; again and again, for the ring to come round.
fn written_and_cut(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa91);
    let mut story = opened(design, seed);
    for _ in 0..3 {
        let mix = Mix { in_flight_max: *random.pick(&[1, 2, 8]), ..WRITES };
        story.begin_mix(&mix, 20 + random.below(600));
        let withheld =
            if random.chance(80) { some_disks(&design, &mut random) } else { Vec::new() };
        if !starts_without(&mut story, &withheld, false) {
            return;
        }
    }
}

/// An array that stops in order leaves an empty journal, and goes on from there.
fn stops_and_goes_on(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa92);
    let mut story = opened(design, seed);
    for _ in 0..2 {
        story.run(&Mix { requests: 10 + random.below(30) as u32, ..WRITES });
        assert!(story.stop(), "nothing befell it");
        let disk = journal_disk(&design);
        let superblock = story.world.superblock_on(disk).expect("the journal");
        let log = open::journal(&story.world.disks[disk], &superblock);
        let log = log.expect("it is one").expect("it can be followed");
        assert_eq!((log.meta_blocks, log.entries.len()), (1, 0), "{log:?}");
        assert_ne!(log.end, JournalEnd::Torn);
        let withheld = some_disks(&design, &mut random);
        if !starts_without(&mut story, &withheld, false) {
            return;
        }
    }
}

/// The journal fails: no write is taken any more, and what was answered is there when it is back.
fn loses_its_journal(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa93);
    let mut story = opened(design, seed);
    story.run(&Mix { requests: 4, ..WRITES });
    let disk = journal_disk(&design);
    story.allow_errors();
    let mishap = *random.pick(&[Mishap::SuperblocksFail, Mishap::WritesFail, Mishap::Dies]);
    story.befall(disk, mishap);
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 200 + random.below(200));
    let is_told = story.heard(|notice| matches!(notice, Notice::JournalLost { .. }));
    if is_told {
        story.settle();
        assert!(story.write(0, 1).is_err(), "nothing would be in the journal");
    }
    let withheld = some_disks(&design, &mut random);
    starts_without(&mut story, &withheld, true);
}

/// A member fails while clients write, and another one is withheld at the next start.
fn loses_a_member(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa94);
    let mut story = opened(design, seed);
    story.run(&Mix { requests: 4, ..WRITES });
    let disk = random.below(u64::from(design.slots)) as usize;
    story.befall(disk, *random.pick(&[Mishap::SuperblocksFail, Mishap::WritesFail, Mishap::Dies]));
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 5 + random.below(200));
    story.world.unsure.insert(disk);
    let other =
        (disk + 1 + random.below(u64::from(design.slots) - 1) as usize) % usize::from(design.slots);
    starts_without(&mut story, &[other], true);
}

/// Parity does not agree yet, is resynced while clients write, and power is cut.
fn is_resynced_and_cut(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa95);
    let mut scene = Scene::new(design, seed);
    scene.resync_offset = 0;
    scene.manner.jobs_paused = false;
    let mut story = scene.open();
    story.begin_mix(&Mix { in_flight_max: 2, ..WRITES }, 20 + random.below(600));
    if !starts_without(&mut story, &[], false) {
        return;
    }
    story.rest();
    story.begin_mix(&Mix { in_flight_max: 2, ..WRITES }, 20 + random.below(300));
    let view = &story.world.engine.machines.shards[0].view;
    let withheld =
        if view.resync_offset == u64::MAX { some_disks(&design, &mut random) } else { Vec::new() };
    starts_without(&mut story, &withheld, true);
}

/// A member that was withheld holds an old state of what was replayed without it: it is out from the first superblocks on.
fn comes_back_with_what_it_missed(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa96);
    let mut story = opened(design, seed);
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 50 + random.below(300));
    let withheld = some_disks(&design, &mut random);
    if !starts_without(&mut story, &withheld, false) {
        return;
    }
    // Anywhere in what it says and writes first.
    story.begin_mix(&Mix { in_flight_max: 1, ..WRITES }, random.below(60));
    let others = some_disks(&design, &mut random);
    if starts_without(&mut story, &others, true) {
        let view = &story.world.engine.machines.shards[0].view;
        let holds_all = |one: &MemberView| one.recovered_sectors == u64::MAX;
        assert!(view.slots.iter().flatten().all(holds_all), "nobody is recovered here");
    }
}

/// What was replayed without a member is let go when all others' superblocks call it out, and not before: it comes back when the first
/// ones were cut short.
fn comes_back_before_it_is_called_out(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa97);
    let mut story = opened(design, seed);
    story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 50 + random.below(300));
    let withheld = random.below(u64::from(design.slots)) as usize;
    if !starts_without(&mut story, &[withheld], false) {
        return;
    }
    let journal = story.member(journal_disk(&design));
    // Its own comes after them.
    story.hold(move |event| match event {
        Event::Superblock { member, .. } => *member != journal,
        _ => false,
    });
    story.begin_mix(&Mix { in_flight_max: 1, ..WRITES }, 20 + random.below(40));
    let other = (withheld + 1 + random.below(u64::from(design.slots) - 1) as usize)
        % usize::from(design.slots);
    starts_without(&mut story, &[other], true);
}

fn told(seed: u64, tell: impl Fn(Design, u64)) {
    for_seeds(2, |number| {
        for (index, design) in designs().into_iter().enumerate() {
            tell(design, seed + number * 100 + index as u64);
        }
    });
}

#[test]
fn a_journal_loses_nothing_whoever_is_missing() {
    told(5_300_000, written_and_cut);
}

#[test]
fn an_array_that_stops_leaves_an_empty_journal() {
    told(5_310_000, stops_and_goes_on);
}

#[test]
fn an_array_without_its_journal_takes_no_writes() {
    told(5_320_000, loses_its_journal);
}

#[test]
fn a_member_that_is_lost_beside_a_journal_is_made_up_for() {
    told(5_330_000, loses_a_member);
}

#[test]
fn a_resync_beside_a_journal_loses_nothing() {
    told(5_340_000, is_resynced_and_cut);
}

#[test]
fn a_member_that_missed_a_replay_is_not_believed() {
    told(5_350_000, comes_back_with_what_it_missed);
}

#[test]
fn its_superblock_is_written_behind_all_others() {
    told(5_360_000, comes_back_before_it_is_called_out);
}

#[cfg(braid_hooks)]
pub(in super::super) fn tell(seed: u64) {
    let all = designs();
    let design = all[seed as usize % all.len()];
    written_and_cut(design, seed);
    stops_and_goes_on(design, seed);
    loses_its_journal(design, seed);
    loses_a_member(design, seed);
    is_resynced_and_cut(design, seed);
    comes_back_with_what_it_missed(design, seed);
    comes_back_before_it_is_called_out(design, seed);
}
