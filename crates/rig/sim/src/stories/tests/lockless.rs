//! The lockless bitmap: which of its states a region's mark has, and when. No byte is lost where
//! parity was never computed, and regions that no client has written are never recovered.

use braid_engine::array::{JobKind, JobRequest, Notice};
use braid_engine::request::Operation;
use braid_geometry::{Level, Slot};
use braid_ondisk::{BitmapSuperblock, MarkState};

use super::for_seeds;
use super::named::every_other;
use super::parity_log::WRITES;
use super::scene::{Scene, redundant_designs};
use super::script::{Mix, Script, WRITE};
use crate::content::SECTOR;
use crate::create::Design;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;

/// Milliseconds in which two sweeps of the bitmap end and the array turns clean.
const LONG_MS: u64 = 20_000;

/// Every level and layout with a lockless bitmap, a mark for every 16 sectors, and all regions
/// unwritten.
fn designs() -> Vec<Design> {
    let designs = redundant_designs(8).into_iter();
    designs.map(|design| Design { bit_sectors: 16, lockless: Some(100), ..design }).collect()
}

fn opened(design: Design, seed: u64, jobs_paused: bool) -> Script {
    let mut scene = Scene::new(design, seed).write_through();
    scene.manner.jobs_paused = jobs_paused;
    scene.open()
}

fn for_designs(count: u64, first: u64, story: impl Fn(Design, u64)) {
    for_seeds(count, |seed| {
        for (index, design) in designs().into_iter().enumerate() {
            story(design, first + seed * 100 + index as u64);
        }
    });
}

/// A write succeeds while no time passes and no other request is in flight.
fn wrote(story: &mut Script, start: u64, sectors: u64) {
    let id = story.issue(WRITE, start, sectors);
    story.run_without_time();
    assert_eq!(story.answer(id), Some(Ok(())));
}

fn marks(story: &Script, disk: usize) -> Vec<MarkState> {
    let superblock = story.world.superblock_on(disk).expect("it is a member");
    let bitmap = open::bitmap(&story.world.disks[disk], &superblock).expect("it has a bitmap");
    let bitmap = bitmap.expect("a sound one");
    let (marks, _) = bitmap.marks.expect("a lockless one");
    (0..bitmap.bits.count()).map(|mark| marks.state(&bitmap.bits, mark)).collect()
}

/// The states of the marks on a disk, without those that say unwritten.
fn written(story: &Script, disk: usize) -> Vec<MarkState> {
    marks(story, disk).into_iter().filter(|mark| !mark.is_unwritten()).collect()
}

/// For each member: runs the story, fails the member, and reads everything back.
fn check_every_loss(design: &Design, seed: u64, prepare: impl Fn(&mut Script)) {
    for disk in 0..usize::from(design.slots) {
        let mut story = opened(*design, seed, true);
        prepare(&mut story);
        story.fails_by_person(disk);
        story.settle();
        story.read_all();
    }
}

#[test]
fn the_first_write_to_a_run_says_need_sync() {
    for_designs(1, 5_100_000, |design, seed| {
        let mut story = opened(design, seed, true);
        assert!(written(&story, 0).is_empty());
        wrote(&mut story, 0, 3);
        for disk in 0..usize::from(design.slots) {
            assert_eq!(written(&story, disk), [MarkState::NeedSync], "{design:?}");
        }
        // The mark stays, however long no client writes to its region.
        story.pass_time(LONG_MS);
        story.rest();
        assert_eq!(written(&story, 0), [MarkState::NeedSync], "{design:?}: no job has synced it");
        assert!(story.stop());
        assert_eq!(written(&story, 0), [MarkState::NeedSync], "{design:?}");
    });
}

#[test]
fn what_was_written_is_synced_after_a_while() {
    for_designs(2, 5_110_000, |design, seed| {
        let mut story = opened(design, seed, false);
        let capacity = story.capacity();
        wrote(&mut story, 0, 3);
        wrote(&mut story, capacity - 2, 2);
        for _ in 0..4 {
            story.pass_time(LONG_MS);
            story.rest();
        }
        for disk in 0..usize::from(design.slots) {
            let written = written(&story, disk);
            assert_eq!(written, [MarkState::Clean; 2], "{design:?}: disk {disk}");
        }
        let is_told = |notice: &Notice| matches!(notice, Notice::JobBegan(_));
        assert!(!story.heard(is_told), "the array reports no lazy resync");
        story.read_all();
        assert!(story.stop());
    });
}

/// Writes several times to one row, so that a wrong rmw would modify parity never computed before.
fn several_writes(story: &mut Script) {
    let capacity = story.capacity();
    for (start, sectors) in [(0, 2), (9, 3), (1, 2), (18, 4), (capacity - 3, 3), (capacity - 9, 2)]
    {
        wrote(story, start % capacity, sectors);
    }
}

#[test]
fn nothing_written_is_lost_where_parity_was_never_made_to_fit() {
    for_designs(1, 5_120_000, |design, seed| check_every_loss(&design, seed, several_writes));
}

/// The array stops before any written region was synced, and starts again.
fn goes_on_unsynced(design: Design, seed: u64) {
    check_every_loss(&design, seed, |story| {
        wrote(story, 0, 3);
        story.pass_time(LONG_MS);
        story.rest();
        assert!(story.stop());
        goes_on(story, design, seed);
        several_writes(story);
    });
}

#[test]
fn what_was_not_synced_when_it_was_stopped_is_not_believed_to_be() {
    for_designs(1, 5_130_000, goes_on_unsynced);
}

/// A new member is recovered only where clients have written. Its other sectors keep their bytes.
fn a_new_member_comes(design: Design, seed: u64) {
    let mut story = opened(design, seed, false);
    let disk = seed as usize % usize::from(design.slots);
    wrote(&mut story, 0, 3);
    story.fails_by_person(disk);
    story.rest();
    wrote(&mut story, 1, 3);
    story.settle();
    story.world.joins(disk, false);
    story.rest();
    // No region is synced while a member is missing. All regions are synced now.
    for _ in 0..4 {
        story.pass_time(LONG_MS);
        story.rest();
    }
    let job = story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, .. } if progress.kind == JobKind::Recovery => Some(*progress),
        _ => None,
    });
    // A work item of a recovery covers a band or a mark's region, so some unwritten sectors are
    // written.
    let job = job.expect("it was recovered");
    assert!(job.written <= 32, "{design:?}: the job leaves out unwritten regions: {job:?}");
    for other in (0..usize::from(design.slots)).filter(|other| *other != disk) {
        if story.world.geometry.survives(&|slot: Slot| slot.index() == other) {
            story.fails_by_person(other);
            break;
        }
    }
    story.settle();
    story.read_all();
}

#[test]
fn a_member_that_comes_is_not_made_what_no_client_has_written() {
    for_designs(2, 5_140_000, a_new_member_comes);
}

/// A check reads only regions that clients have written and that were synced since.
fn a_check_finds_nothing(design: Design, seed: u64) {
    let mut story = opened(design, seed, false);
    wrote(&mut story, 0, 3);
    story.request(JobRequest::Check);
    story.rest();
    let is_found = |notice: &Notice| matches!(notice, Notice::Found(_));
    assert!(!story.heard(is_found), "{design:?}: unsynced regions may differ");
    let is_over = |notice: &Notice| matches!(notice, Notice::JobEnded { .. });
    assert!(story.heard(is_over), "{design:?}: it was asked for");
}

#[test]
fn a_check_leaves_out_what_was_never_made_to_agree() {
    for_designs(2, 5_150_000, a_check_finds_nothing);
}

/// Two members have bad blocks at different sectors. Where only one member has a bad block, the
/// other member's bytes must not be computed.
fn two_members_lack_some(design: Design, seed: u64) {
    if design.level != Level::Raid6 {
        return;
    }
    let slots = usize::from(design.slots);
    let (one, other) = (seed as usize % slots, (seed as usize + 1) % slots);
    let mut scene = Scene::new(design, seed).write_through();
    scene.bad_blocks = vec![(one, every_other(&design, 0)), (other, every_other(&design, 1))];
    scene.bad_blocks[1].1.push(0..8);
    let mut story = scene.open();
    several_writes(&mut story);
    let mut random = Random::new(seed ^ 0x1acc);
    for _ in 0..6 {
        let sectors = 1 + random.below(12);
        let start = random.below(story.capacity() - sectors);
        wrote(&mut story, start, sectors);
    }
    story.read_all();
    assert!(story.stop());
    goes_on(&mut story, design, seed);
    story.read_all();
}

/// Regression: a sector that one of two members lacked was computed for both. Parity then fitted
/// the computed bytes, not those that the other member held.
#[test]
fn parity_fits_what_members_hold_between_their_bad_blocks() {
    for_designs(10, 5_195_000, two_members_lack_some);
}

/// Makes the bitmap stale, as if another program had run the array. The bitmap's marks then say
/// that all regions agree, although regions may differ.
fn was_not_kept(story: &mut Script, design: &Design) {
    for disk in 0..usize::from(design.slots) {
        let superblock = story.world.superblock_on(disk).expect("it is a member");
        let (head, bits, marks) = design.bitmap(design.resync_sectors()).expect("it has a bitmap");
        let head = BitmapSuperblock { events: 0, ..head };
        let area = head.area(&superblock.uuid_as_stored(), &bits, marks.as_ref());
        let offset = superblock.bitmap_offset_bytes().expect("it has a bitmap");
        story.world.disks[disk].put(offset / SECTOR as u64, &area, true);
    }
    story.world.keeps_bits.clear();
}

/// Starts the array again with all disks and with paused jobs.
fn goes_on(story: &mut Script, design: Design, seed: u64) {
    let presented: Vec<usize> = (0..usize::from(design.slots)).collect();
    let mut manner = Scene::new(design, seed).manner;
    manner.jobs_paused = true;
    story.world.open_as(&presented, manner);
}

/// If the bitmap is stale, no parity is known to be right, even after a clean stop.
fn nobody_kept_it(design: Design, seed: u64) {
    check_every_loss(&design, seed, |story| {
        assert!(story.stop());
        was_not_kept(story, &design);
        goes_on(story, design, seed);
        several_writes(story);
    });
}

/// After a crash the bitmap is stale. The start makes the bitmap anew, and power is cut meanwhile.
fn is_made_anew_by_halves(design: Design, seed: u64) {
    let design = Design { lockless: Some(0), ..design };
    let mut random = Random::new(seed ^ 0x1ead);
    let mut story = opened(design, seed, true);
    let mix = Mix { in_flight_max: 4, ..WRITES };
    story.begin_mix(&mix, 20 + random.below(60));
    story.begins_anew();
    story.world.crash(true);
    was_not_kept(&mut story, &design);
    goes_on(&mut story, design, seed);
    story.hold(|event| matches!(event, Event::Bitmap { .. }));
    story.issue(WRITE, 0, 1);
    story.run_without_time();
    story.release();
    story.loses_power();
}

#[test]
fn a_bitmap_that_is_made_over_a_stale_one_is_not_believed_by_halves() {
    for_designs(20, 5_170_000, is_made_anew_by_halves);
}

#[test]
fn where_it_was_not_kept_nothing_counts_as_synced() {
    for_designs(1, 5_160_000, nobody_kept_it);
}

/// Clients write, trim, and write again. In the end only regions written again are not unwritten.
fn is_given_up(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x7e1f);
    let mut story = opened(design, seed, random.chance(50));
    let capacity = story.capacity();
    wrote(&mut story, 0, capacity);
    assert!(!marks(&story, 0).contains(&MarkState::Unwritten));
    let mut at = 0;
    while at < capacity {
        let sectors = (1 + random.below(capacity)).min(capacity - at);
        story.issue(Operation::Trim, at, sectors);
        if random.chance(50) {
            story.run_without_time();
        }
        at += sectors;
    }
    story.run_without_time();
    let again = random.below(capacity);
    if random.chance(70) {
        wrote(&mut story, again, 1);
    }
    for _ in 0..random.below(4) {
        story.pass_time(LONG_MS);
        story.rest();
    }
    assert!(story.stop());
    for disk in 0..usize::from(design.slots) {
        let needed = written(&story, disk);
        assert!(needed.len() <= 1, "{design:?}: disk {disk}: {:?}", marks(&story, disk));
    }
    goes_on(&mut story, design, seed);
    several_writes(&mut story);
    let disk = random.below(design.slots.into()) as usize;
    story.fails_by_person(disk);
    story.settle();
    story.read_all();
}

#[test]
fn what_clients_give_up_is_unwritten() {
    for_designs(4, 5_180_000, is_given_up);
}

/// A client writes to a trimmed region before the region's mark says unwritten. Then a member is
/// lost.
fn is_written_after_it_was_given_up(design: Design, seed: u64) {
    let mut random = Random::new(seed ^ 0x7e20);
    let mut story = opened(design, seed, random.chance(50));
    let capacity = story.capacity();
    wrote(&mut story, 0, capacity);
    story.issue(Operation::Trim, 0, capacity);
    match random.below(3) {
        0 => {}
        1 => story.run_without_time(),
        _ => story.pass_time(random.below(LONG_MS)),
    }
    for _ in 0..random.below(30) {
        story.step(false);
    }
    story.issue(WRITE, random.below(capacity), 1);
    story.run_without_time();
    for _ in 0..random.below(3) {
        story.pass_time(LONG_MS);
        story.rest();
    }
    assert!(story.stop());
    goes_on(&mut story, design, seed);
    let disk = random.below(design.slots.into()) as usize;
    story.fails_by_person(disk);
    story.settle();
    story.read_all();
}

#[test]
fn what_is_written_after_it_was_given_up_stays_written() {
    for_designs(8, 5_190_000, is_written_after_it_was_given_up);
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell(seed: u64) {
    let all = designs();
    let design = all[seed as usize % all.len()];
    check_every_loss(&design, seed, several_writes);
    goes_on_unsynced(design, seed);
    a_new_member_comes(design, seed);
    a_check_finds_nothing(design, seed);
    two_members_lack_some(design, seed);
    nobody_kept_it(design, seed);
    is_made_anew_by_halves(design, seed);
    is_given_up(design, seed);
    is_written_after_it_was_given_up(design, seed);
}
