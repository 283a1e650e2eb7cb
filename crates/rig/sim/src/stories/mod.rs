//! Stories: scripted worlds for events that random worlds meet too seldom.
//!
//! A story has one array and one chosen failure. A story runs in a world like any other, with the
//! same model and checkers. The story sets which disk fails and when; nothing of that is drawn.

use braid_engine::request::Operation;
use braid_geometry::{Level, default_layout};

use crate::chances::Chances;
use crate::create::{Design, smallest};
use crate::cut::Cut;
use crate::disk::Disk;
use crate::fault::{Fault, Mishap};
use crate::schedule::{FixedOrder, Order};
use crate::trace::Trace;
use crate::world::{Trust, World};

#[cfg(any(test, braid_sim_hooks))]
mod tests;

/// Sectors of a chunk of the smallest array.
const CHUNK: u64 = 8;

/// Chapters: groups of stories, each a name and a function that runs them. The hunt for a planted
/// bug begins with the bug's own chapter, if that is known.
#[cfg(braid_sim_hooks)]
pub const CHAPTERS: &[(&str, fn())] = &[
    ("replays", replays),
    // Random worlds meet these events once in ten thousand worlds.
    ("repair", crate::work_tests::repair::tell),
    ("answered", tests::tell_of_what_was_answered),
    ("flush", || (0..20).for_each(tests::replaced_while_a_flush_waits)),
    // Some of these events need an operator, whom random worlds lack: a check, a repair, a member
    // to fail or replace. The other events are merely rare.
    ("rot", || tests::rotten_chunks_are_mended(0, 4)),
    ("failed", || tests::failed_by_person(0)),
    ("replacements", tests::tell_of_replacements),
    ("recoveries", || (0..80).for_each(tests::says_that_it_holds_all)),
    ("bitmaps", || (0..40).for_each(tests::tell_of_bitmaps)),
    ("lockless", || (0..40).for_each(tests::tell_of_lockless_bitmaps)),
    ("parity-logs", || (0..120).for_each(tests::tell_of_parity_logs)),
    ("log-changes", || (0..120).for_each(tests::tell_of_log_changes)),
    ("journals", || (0..60).for_each(tests::tell_of_journals)),
    ("bitmap-files", || (0..30).chain(360..390).for_each(tests::tell_of_bitmap_files)),
    ("ahead", tests::tell_of_what_is_read),
    ("unmade", tests::tell_of_what_cannot_be_made),
    ("named", tests::tell_of_what_is_named),
    ("losses", losses),
    ("reshape", crate::reshape::tell),
    ("reshape-lost", crate::reshape::tell_of_lost),
    ("reshape-torn", crate::reshape::tell_of_torn_updates),
    ("reshape-rare", crate::reshape::tell_of_rare),
    ("hosts", crate::hosts::tell),
];
/// Chapters: groups of stories, each a name and a function that runs them. A build without hooks
/// has only these; its tests run the others.
#[cfg(not(braid_sim_hooks))]
pub const CHAPTERS: &[(&str, fn())] = &[("replays", replays), ("losses", losses)];

/// Runs the stories of all chapters, each under many schedules.
///
/// # Panics
/// At the first error.
pub fn tell() {
    // A random world may have left rare choices of the engine switched on, which would change the
    // steps of a story.
    braid_sim_hooks::steady();
    CHAPTERS.iter().for_each(|(_, tell)| tell());
}

/// Stories of the replay of logs and journals at a start.
fn replays() {
    crate::replays::tell(0..12);
}

fn losses() {
    // Under these seeds, the write's part in the second row is written after its part in the first
    // row was lost.
    for seed in 150..250 {
        (0..4).for_each(|good| lost_after_its_answer(seed, good, (22, 5)));
    }
    for seed in 0..24 {
        [false, true].into_iter().for_each(|is_logged| two_copies_one_story(seed, is_logged));
        for disk in 0..4 {
            for (spares, is_killed) in [(0, false), (0, true), (1, false)] {
                put_back(seed, disk, (spares, is_killed));
            }
        }
        for good in 0..4 {
            lost_after_its_answer(seed, good, (2, 3));
            lost_after_its_answer(seed, good, (22, 5));
            for dead in 0..4 {
                failed_and_written_again(seed, good, dead);
            }
        }
        for dead in 0..7 {
            for second in (0..7).filter(|second| *second != dead) {
                old_parity_in_a_write(seed, dead, second);
            }
        }
        for dead in 0..4 {
            for failing in (0..4).filter(|failing| *failing != dead) {
                inconsistent_band(seed, dead, failing);
                parity_of_before(seed, dead, failing);
                for chunk in 0..3 {
                    failed_difference(seed, dead, failing, (chunk, (chunk + 1) % 3));
                    failed_difference(seed, dead, failing, (chunk, (chunk + 2) % 3));
                }
            }
        }
    }
}

/// A disk is copied while the array is stopped. The array is written, then stopped or killed, and
/// the old copy replaces the disk. The array must not read the copy. Without a spare the copy is
/// two events behind; with a spare it has the same event count, but an older time.
fn put_back(seed: u64, disk: usize, (spares, is_killed): (u16, bool)) {
    let design = Design { spares, ..smallest() };
    let mut world = World::create(&design, Chances::new(seed, Cut::default()), Trace::new(false));
    let all: Vec<usize> = (0..world.disks.len()).collect();
    write(&mut world, 0, 24);
    world.stop();
    world.open(&all, true).expect("a whole array starts");
    let copy = world.disks[disk].clone();
    write(&mut world, 0, 48);
    if is_killed {
        world.crash(false);
    } else {
        world.stop();
    }
    world.disks[disk] = copy;
    world.out.insert(disk);
    match world.open(&all, false) {
        Ok(_) => _ = world.read_all(),
        Err(refusal) => assert!(is_killed, "{refusal}"),
    }
}

/// Power is cut while both copies of a mirror are written, which leaves them different. Then some
/// sectors of the first copy become unreadable, or are in its bad-block log. The array must still
/// read all other sectors from the first copy, even in a read that covers the bad ones.
fn two_copies_one_story(seed: u64, is_logged: bool) {
    const BAD: std::ops::Range<u64> = 21..23;
    let design = Design {
        level: Level::Raid1,
        layout: 0,
        slots: 2,
        has_bad_blocks: is_logged,
        ..smallest()
    };
    let mut world = World::create(&design, Chances::new(seed, Cut::default()), Trace::new(false));
    world.engine.order = Order::Fixed(FixedOrder::PLAIN);
    write(&mut world, 0, 128);
    world.issue(Operation::Write { durable: false }, 0, 128);
    while world.disks.iter().all(Disk::is_flushed) {
        world.step(false);
    }
    world.crash(true);
    world.open(&[0, 1], false).expect("a mirror starts with both copies");
    if !is_logged {
        world.befall(Fault {
            step: 0,
            disk: 0,
            mishap: Mishap::BadSectors { start: world.taint.data_offset + BAD.start, sectors: 2 },
            ordinal: 0,
        });
    }
    let good = (0..128).filter(|sector| is_logged || !BAD.contains(sector));
    good.for_each(|sector| read(&mut world, sector, 1));
    for start in 0..120 {
        read(&mut world, start, 8);
    }
    (0..128).for_each(|sector| read(&mut world, sector, 1));
}

/// A world in which these two disks may fail, which is more than the level tolerates.
fn doomed(seed: u64, disks: [usize; 2]) -> World {
    let mut world =
        World::create(&smallest(), Chances::new(seed, Cut::default()), Trace::new(false));
    world.engine.trust =
        Trust { errors_allowed: true, pins: false, pins_from: 0, firmly: false, lasts: false };
    world.engine.plan.errors_allowed = true;
    world.engine.plan.victims.extend(disks);
    world
}

fn write(world: &mut World, start: u64, sectors: u64) {
    world.issue(Operation::Write { durable: false }, start, sectors);
    world.settle();
    world.flush();
    world.settle();
}

fn read(world: &mut World, start: u64, sectors: u64) {
    world.issue(Operation::Read, start, sectors);
    world.settle();
}

/// A full-stripe write makes parity. A disk is lost, and chunks are written; if the lost disk held
/// parity, its parity stays old. Then a second disk is lost. Reads of its data must fail, and never
/// return bytes computed from the old parity.
fn parity_of_before(seed: u64, dead: usize, failing: usize) {
    let mut world = doomed(seed, [dead, failing]);
    write(&mut world, 0, 24);
    world.disks[dead].ills.gone = true;
    write(&mut world, 0, 24);
    (0..3).for_each(|chunk| write(&mut world, chunk * CHUNK, CHUNK));
    world.disks[failing].ills.gone = true;
    read(&mut world, 0, 24);
    world.read_all();
}

/// Reads bring a chunk of a dead disk into memory, and another chunk of its row is written. Then an
/// rmw of one sector changes the chunk in memory, and its parity write fails. A read must not
/// return that memory. No time passes, so that the array stays active and only data writes fail.
fn failed_difference(seed: u64, dead: usize, failing: usize, (first, second): (u64, u64)) {
    let mut world = doomed(seed, [dead, failing]);
    world.engine.order = Order::Fixed(FixedOrder::PLAIN);
    write(&mut world, 0, 24);
    world.disks[dead].ills.gone = true;
    write(&mut world, 0, 24);
    for (start, sectors) in [(0, 1), (0, 4), (4, 4)] {
        world.issue(Operation::Read, first * CHUNK + start, sectors);
    }
    world.settle();
    write(&mut world, second * CHUNK, CHUNK);
    world.disks[failing].ills.writes_fail = true;
    write(&mut world, first * CHUNK, 1);
    read(&mut world, first * CHUNK, CHUNK);
    world.read_all();
}

/// Every sector that a partial write must read is unreadable for a moment, and the write fails.
/// Then the sectors are readable again, and the same write succeeds. The second write must not use
/// memory that the first write left. If it does, parity is wrong, which the next loss of a disk
/// shows.
fn failed_and_written_again(seed: u64, good: usize, dead: usize) {
    let mut world = doomed(seed, [0, 1]);
    world.engine.plan.victims.extend([2, 3]);
    write(&mut world, 0, 24);
    for member in world.engine.machines.members.iter().filter(|member| member.disk != good) {
        let first = member.data_offset();
        world.disks[member.disk].bad.extend(first..first + CHUNK);
    }
    write(&mut world, 2, 3);
    world.disks.iter_mut().for_each(|disk| disk.bad.clear());
    write(&mut world, 2, 3);
    world.disks[dead].ills.gone = true;
    (0..3).for_each(|chunk| read(&mut world, chunk * CHUNK, CHUNK));
}

/// A partial write of a chunk leaves both parities in memory. The disk of one parity dies, and a
/// write of the whole chunk does not update that parity. Then a second disk dies. Writes across two
/// chunks must compute the start of a chunk on the second disk, and must not use the old parity for
/// it. If they do, the other parity becomes wrong, which the next read shows.
fn old_parity_in_a_write(seed: u64, dead: usize, second: usize) {
    let level = Level::Raid6;
    let design = Design { level, layout: default_layout(level), slots: 7, ..smallest() };
    let mut world = World::create(&design, Chances::new(seed, Cut::default()), Trace::new(false));
    world.engine.plan.victims.extend([dead, second]);
    write(&mut world, 0, CHUNK - 1);
    world.disks[dead].ills.gone = true;
    // A write to another row, so that the array notices the dead disk.
    write(&mut world, 5 * CHUNK, 5 * CHUNK);
    write(&mut world, 0, CHUNK);
    world.disks[second].ills.gone = true;
    (0..4).for_each(|chunk| write(&mut world, chunk * CHUNK + CHUNK - 1, 2));
    (0..5).for_each(|chunk| read(&mut world, chunk * CHUNK, CHUNK));
    world.read_all();
}

/// In write-back mode a partial write of a row is acknowledged early. All sectors that it must read
/// are unreadable, except on disk `good`, so it is lost. Reads of its sectors must not return the
/// old bytes until whole rows are written, which need no reads. Every later flush fails, since the
/// lost write's client is unknown. If a part of the write in the next row is still in flight, that
/// write fails.
fn lost_after_its_answer(seed: u64, good: usize, (start, sectors): (u64, u64)) {
    let mut world = doomed(seed, [0, 1]);
    world.engine.plan.victims.extend([2, 3]);
    write(&mut world, 0, 48);
    for member in world.engine.machines.members.iter().filter(|member| member.disk != good) {
        let first = member.data_offset();
        world.disks[member.disk].bad.extend(first..first + CHUNK);
    }
    write(&mut world, start, sectors);
    world.flush();
    world.settle();
    (0..sectors).for_each(|sector| read(&mut world, start + sector, 1));
    write(&mut world, 0, 48);
    (0..sectors).for_each(|sector| read(&mut world, start + sector, 1));
}

/// A full-stripe write runs while one disk is dead and another fails its writes half way. Parity
/// then fits neither old nor new data. Reads of the dead disk's chunk may fail, but must never
/// return computed bytes.
fn inconsistent_band(seed: u64, dead: usize, failing: usize) {
    let mut world = doomed(seed, [dead, failing]);
    world.issue(Operation::Write { durable: false }, 0, 1);
    world.settle();
    world.disks[failing].ills.writes_fail = true;
    world.disks[dead].ills.gone = true;
    world.issue(Operation::Write { durable: false }, 0, 24);
    world.settle();
    world.read_all();
}
