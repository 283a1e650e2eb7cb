//! Parity logs that are created and removed while clients write.

use braid_engine::array::LogRefusal;

use super::for_seeds;
use super::named::every_other;
use super::parity_log::{WRITES, designs, opened, some_disks, starts_without};
use super::scene::Scene;
use super::script::{Mix, Script, WRITE};
use crate::create::Design;
use crate::disk::DiskFaults;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;

/// An operator creates parity logs (`makes`), or removes them.
fn changes(story: &mut Script, makes: bool) {
    story.world.changes_logs(makes).expect("they can be changed");
}

fn are_settled(story: &Script) -> bool {
    story.world.engine.machines.array.are_logs_settled()
}

/// By disk: whether it has a parity log, by its superblock or the head of our own log.
fn have_logs(story: &Script) -> Vec<bool> {
    let has_log = |disk: usize| {
        let superblock = story.world.superblock_on(disk).expect("it is a member");
        let own = open::own_log(&story.world.disks[disk], &superblock);
        superblock.intent.ppl.is_some() || own.is_some()
    };
    (0..usize::from(story.world.geometry.slots())).map(has_log).collect()
}

fn comes_and_goes(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    for makes in [false, true, false, true] {
        let steps = story.random.below(80);
        story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, steps);
        changes(&mut story, makes);
        if !are_settled(&story) {
            assert_eq!(story.world.changes_logs(!makes), Err(LogRefusal::Busy), "one at a time");
        }
        story.run(&Mix { in_flight_max: 4, requests: 12, ..WRITES });
        story.rest();
        assert!(are_settled(&story), "{design:?}: {:?}", have_logs(&story));
        let have_logs = have_logs(&story);
        assert!(have_logs.iter().all(|one| *one == makes), "{design:?}: {have_logs:?}");
        assert_eq!(story.world.engine.machines.array.parity_logs().is_some(), makes);
        let wrong = if makes { LogRefusal::HasLogs } else { LogRefusal::HasNone };
        assert_eq!(story.world.changes_logs(makes), Err(wrong));
    }
    story.ends_well();
}

/// Power is cut at any step of a change of logs, and disks are withheld. If the array had a log,
/// flushed writes are readable. After the start the array has a log or none.
fn is_cut_off(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x10c);
    let mut story = opened(design, seed);
    for _ in 0..4 {
        let mix = Mix { in_flight_max: *random.pick(&[1, 4]), ..WRITES };
        story.begin_mix(&mix, random.below(60));
        let makes = story.world.engine.machines.array.parity_logs().is_none();
        if story.world.changes_logs(makes).is_err() {
            return; // The array refuses: a resync runs, or a member is out.
        }
        story.begin_mix(&mix, random.below(120));
        let array = &story.world.engine.machines.array;
        let is_logged = array.are_logs_settled() && array.parity_logs().is_some();
        let is_said_both_ways = !array.are_logs_settled();
        let withheld =
            if random.chance(60) { some_disks(&design, &mut random) } else { Vec::new() };
        let may_fail = !withheld.is_empty() && !is_logged && !is_said_both_ways;
        // A removed log is in use until no write is in flight. A log is created only at such a
        // moment.
        let may_fail = may_fail || is_said_both_ways && makes && !withheld.is_empty();
        if !starts_without(&mut story, &withheld, may_fail) {
            return;
        }
        story.rest();
    }
}

/// A log is created while a write without a log record is in flight. Superblocks name the log only
/// after that write is done.
fn made_while_it_is_written(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    changes(&mut story, false);
    story.rest();
    let disk = seed as usize % usize::from(design.slots);
    let id = story.member(disk);
    story.issue(WRITE, 0, u64::from(design.chunk_sectors) * u64::from(design.slots - 1));
    story.hold(move |event| matches!(event, Event::Io(vector) if vector.member == id));
    story.run_without_time();
    changes(&mut story, true);
    story.run_without_time();
    let is_held = !story.world.engine.clients.is_idle();
    assert!(!(is_held && are_settled(&story)), "{design:?}: older writes are not logged");
    story.release();
    story.run_without_time();
    story.rest();
    assert!(are_settled(&story), "{design:?}");
    story.ends_well();
}

/// An operator removes the log, but superblocks cannot record the removal yet. All writes must
/// still be logged.
fn given_up_and_cut_off(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x10d);
    let mut story = opened(design, seed);
    let mix = Mix { in_flight_max: 4, ..WRITES };
    story.begin_mix(&mix, 20 + random.below(60));
    let says_clean = |event: &Event| match event {
        Event::Superblock { state, .. } => state.resync_offset == u64::MAX,
        _ => false,
    };
    story.hold(says_clean);
    changes(&mut story, false);
    story.begin_mix(&mix, 20 + random.below(200));
    let withheld = some_disks(&design, &mut random);
    let is_active = !story.world.standing().is_dirty;
    assert!(is_active, "it was in sync");
    starts_without(&mut story, &withheld, false);
}

/// A log that was removed stays removed after a restart, and a log that was created stays.
fn is_so_after_a_restart(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    for makes in [false, true] {
        changes(&mut story, makes);
        story.run(&Mix { requests: 4, ..WRITES });
        story.rest();
        assert!(are_settled(&story));
        story.settle();
        story.begins_anew();
        story.world.crash(true);
        story.world.disks.iter_mut().for_each(|disk| disk.ills = DiskFaults::default());
        let all: Vec<usize> = (0..story.world.disks.len()).collect();
        story.world.others_percent = 0;
        let assembled = story.world.open(&all, false).expect("all are there");
        story.begins_anew();
        assert_eq!(assembled.parity_logs.is_some(), makes, "{design:?}");
        story.rest();
    }
    story.ends_well();
}

/// Power is cut during writes to sectors in a member's bad-block log. Replay skips these sectors,
/// and reads compute them from parity. Reads still do so once parity logs are removed.
fn named_and_given_up(design: Design, seed: u64) {
    let mut scene = Scene::new(design, seed);
    scene.manner.jobs_paused = false;
    let disk = seed as usize % usize::from(design.slots);
    scene.bad_blocks = vec![(disk, every_other(&design, 0))];
    let mut story = scene.open();
    story.begin_mix(&Mix { in_flight_max: 4, ..WRITES }, 20 + seed % 200);
    starts_without(&mut story, &[], false);
    if story.world.changes_logs(false).is_err() {
        return; // The array refuses: a first flush failed, so a member is out.
    }
    story.rest();
    starts_without(&mut story, &[], false);
}

/// Regression: once parity logs were removed, the simulator expected sectors that replay had
/// skipped to agree.
#[test]
fn what_was_not_replayed_is_made_of_parity_after_logs_are_given_up() {
    for_seeds(4, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            named_and_given_up(design, 5_190_000 + seed * 100 + index as u64);
        }
    });
}

/// Operators create the same kind of log that the array had at creation; disks have no room for the
/// other kind.
#[test]
fn a_log_comes_and_goes_while_clients_write() {
    for_seeds(2, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            let seed = 5_170_000 + seed * 100 + index as u64;
            comes_and_goes(design, seed);
            made_while_it_is_written(design, seed);
            is_so_after_a_restart(design, seed);
        }
    });
}

#[test]
fn what_is_cut_off_while_a_log_comes_or_goes_is_found() {
    for_seeds(4, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            let seed = 5_180_000 + seed * 100 + index as u64;
            is_cut_off(design, seed);
            given_up_and_cut_off(design, seed);
        }
    });
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell(seed: u64) {
    let all = designs();
    let design = all[seed as usize % all.len()];
    comes_and_goes(design, seed);
    made_while_it_is_written(design, seed);
    is_so_after_a_restart(design, seed);
    is_cut_off(design, seed);
    given_up_and_cut_off(design, seed);
}
