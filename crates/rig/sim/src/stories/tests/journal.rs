//! The write journal: no crash loses acknowledged writes, whichever members are missing.

use braid_engine::array::{LogRefusal, MemberView, Notice};
use braid_geometry::Level;
use braid_ondisk::{Features, JournalEnd};

use super::for_seeds;
use super::parity_log::{WRITES, some_disks, starts_without};
use super::scene::{Scene, redundant_designs};
use super::script::{Mix, Script};
use crate::create::Design;
use crate::fault::Mishap;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;

/// Levels with parity, in any layout, with a small journal. Some have chunks of several blocks.
fn designs() -> Vec<Design> {
    let has_parity = |design: &Design| {
        matches!(design.level, Level::Raid4 | Level::Raid5 | Level::Raid6) && design.slots > 2
    };
    let small = redundant_designs(8).into_iter().filter(has_parity);
    let large = redundant_designs(128).into_iter().filter(has_parity).step_by(3);
    let journaled =
        |design: Design| Design { journal_blocks: design.journal_blocks_min(), ..design };
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

/// Clients write, and a power cut or a kill ends the run in the middle. This happens three times,
/// so that the journal's ring wraps.
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

/// An array that stops cleanly leaves an empty journal, and continues with it after the next start.
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

/// The journal's disk fails, and the array refuses writes. When the disk is back, acknowledged
/// writes are readable.
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
        assert!(story.write(0, 1).is_err(), "the journal would lack the write");
    }
    let withheld = some_disks(&design, &mut random);
    starts_without(&mut story, &withheld, true);
}

/// A member fails while clients write, and another member is withheld at the next start.
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

/// Parity does not agree, and a resync runs while clients write. Then power is cut.
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

/// A replay runs without one member, which is stale from then on. The first superblocks after the
/// replay must record that member as out.
fn comes_back_with_what_it_missed(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa96);
    let mut story = opened(design, seed);
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 50 + random.below(300));
    let withheld = some_disks(&design, &mut random);
    if !starts_without(&mut story, &withheld, false) {
        return;
    }
    // The cut comes anywhere among the first superblocks and writes of this run.
    story.begin_mix(&Mix { in_flight_max: 1, ..WRITES }, random.below(60));
    let others = some_disks(&design, &mut random);
    if starts_without(&mut story, &others, true) {
        let view = &story.world.engine.machines.shards[0].view;
        let holds_all = |one: &MemberView| one.recovered_sectors == u64::MAX;
        assert!(view.slots.iter().flatten().all(holds_all), "no member is in recovery");
    }
}

/// After a replay without a member, the journal keeps the replayed blocks until all other
/// superblocks record that member as out. Here the first of these superblocks are cut short, and
/// the member returns.
fn comes_back_before_it_is_called_out(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa97);
    let mut story = opened(design, seed);
    story.begin_mix(&Mix { in_flight_max: 8, ..WRITES }, 50 + random.below(300));
    let withheld = random.below(u64::from(design.slots)) as usize;
    if !starts_without(&mut story, &[withheld], false) {
        return;
    }
    let journal = story.member(journal_disk(&design));
    // The journal's own superblock must be written after those of the members.
    story.hold(move |event| match event {
        Event::Superblock { member, .. } => *member != journal,
        _ => false,
    });
    story.begin_mix(&Mix { in_flight_max: 1, ..WRITES }, 20 + random.below(40));
    let other = (withheld + 1 + random.below(u64::from(design.slots) - 1) as usize)
        % usize::from(design.slots);
    starts_without(&mut story, &[other], true);
}

fn is_settled(story: &Script) -> bool {
    story.world.engine.machines.array.are_logs_settled()
}

/// An operator removes the journal and creates it again, while clients write.
fn comes_and_goes(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    for makes in [false, true, false, true] {
        let steps = story.random.below(80);
        story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, steps);
        story.world.changes_journal(makes).expect("it can be changed");
        if !is_settled(&story) {
            let busy = story.world.changes_journal(!makes);
            assert_eq!(busy, Err(LogRefusal::Busy), "one at a time");
        }
        story.run(&Mix { in_flight_max: 4, requests: 12, ..WRITES });
        story.rest();
        assert_eq!(story.world.has_journal(), makes, "{design:?}");
        for disk in 0..usize::from(design.slots) {
            let superblock = story.world.superblock_on(disk).expect("a member");
            let says = superblock.state.features.contains(Features::JOURNAL);
            assert_eq!(says, makes, "{design:?}: disk {disk}");
        }
        let wrong = if makes { LogRefusal::HasLogs } else { LogRefusal::HasNone };
        assert_eq!(story.world.changes_journal(makes), Err(wrong));
    }
    story.ends_well();
}

/// Power is cut at any step of a journal's removal or creation, and disks are withheld.
fn is_cut_off_while_it_changes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa98);
    let mut story = opened(design, seed);
    for _ in 0..4 {
        let mix = Mix { in_flight_max: *random.pick(&[1, 4]), ..WRITES };
        story.begin_mix(&mix, random.below(60));
        let makes = story.world.engine.machines.array.journal().is_none();
        if story.world.changes_journal(makes).is_err() {
            return; // The array refuses: a resync runs, or a member is out.
        }
        story.begin_mix(&mix, random.below(120));
        let is_over = is_settled(&story);
        // A removed journal is in use until no write is in flight; a created one only from that
        // moment on.
        let is_kept = if is_over { story.world.has_journal() } else { !makes };
        let withheld =
            if random.chance(60) { some_disks(&design, &mut random) } else { Vec::new() };
        if !starts_without(&mut story, &withheld, !withheld.is_empty() && !is_kept) {
            return;
        }
        story.rest();
        story.world.has_journal();
    }
}

/// A journal is being created, and its disk fails before any superblock names the journal. The
/// array continues without a journal.
fn its_disk_fails_as_it_comes(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0xa99);
    let mut story = opened(design, seed);
    story.world.changes_journal(false).expect("it can be given up");
    story.rest();
    assert!(!story.world.has_journal(), "it is given up");
    let disk = journal_disk(&design);
    story.befall(disk, *random.pick(&[Mishap::SuperblocksFail, Mishap::WritesFail, Mishap::Dies]));
    story.world.changes_journal(true).expect("no outcome is known");
    story.run(&Mix { in_flight_max: 4, requests: 12, ..WRITES });
    story.rest();
    assert!(!story.world.has_journal(), "{design:?}: its disk has failed");
    assert!(!story.heard(|notice| matches!(notice, Notice::JournalLost { .. })), "{design:?}");
    story.run(&Mix { requests: 4, ..WRITES });
    assert!(story.stop(), "no member needs the journal");
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

#[test]
fn a_journal_comes_and_goes_while_clients_write() {
    told(5_370_000, comes_and_goes);
}

#[test]
fn what_is_cut_off_while_a_journal_comes_or_goes_is_found() {
    told(5_380_000, is_cut_off_while_it_changes);
}

#[test]
fn a_journal_whose_disk_fails_as_it_comes_is_none() {
    told(5_390_000, its_disk_fails_as_it_comes);
}

#[cfg(braid_sim_hooks)]
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
    comes_and_goes(design, seed);
    is_cut_off_while_it_changes(design, seed);
    its_disk_fails_as_it_comes(design, seed);
}
