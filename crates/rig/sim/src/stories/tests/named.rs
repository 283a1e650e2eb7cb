//! Bad-block logs: the sectors that a log names are rewritten from the other members, and a failed
//! write costs only its sector, not its member. Logs are long here, so that a power cut can tear
//! them.

use std::ops::Range;

use braid_engine::array::{JobEnd, JobKind, JobProgress, JobRequest, MemberId, Notice};
use braid_engine::request::Operation;
use braid_geometry::{Geometry, Level, MemberSector, Slot};
use braid_ondisk::Version;

use super::for_seeds;
use super::scene::{Scene, design};
use super::script::{Script, WRITE};
use crate::create::Design;
use crate::fault::Mishap;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;

/// An array of each redundant level, with so many rows.
fn designs(rows: u64) -> [Design; 5] {
    [
        design(Level::Raid1, 0, 8, 2, rows),
        design(Level::Raid5, 2, 8, 4, rows),
        design(Level::Raid6, 2, 8, 5, rows),
        design(Level::Raid10, 0x102, 8, 4, rows),
        design(Level::Raid10, 0x201, 8, 3, rows),
    ]
}

/// Every other sector of a member from `first` on. Each needs a log record of its own.
pub(super) fn every_other(design: &Design, first: u64) -> Vec<Range<u64>> {
    let used = design.rows * u64::from(design.chunk_sectors);
    (first..used).step_by(2).map(|sector| sector..sector + 1).collect()
}

/// Ranges of a disk's data area that its bad-block log names, as assembly would read it.
fn named(story: &Script, disk: usize) -> Vec<Range<u64>> {
    let all: Vec<usize> = (0..story.world.disks.len()).collect();
    let (_, assembly) = open::assemble_disks(&story.world.disks, &all);
    let array = assembly.array.expect("it can be started");
    let mut occupants = array.slots.iter().flatten();
    let occupant = occupants.find(|one| one.member == disk).expect("it is in");
    occupant.bad_sectors()
}

fn ended(story: &Script, kind: JobKind) -> Option<(JobProgress, JobEnd)> {
    story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, end } if progress.kind == kind => Some((*progress, *end)),
        _ => None,
    })
}

fn asked(seed: u64) -> (JobRequest, JobKind) {
    match seed % 2 {
        0 => (JobRequest::Check, JobKind::Check),
        _ => (JobRequest::Repair, JobKind::Repair),
    }
}

/// Regression: a check left a logged sector unwritten, and the next loss of a member lost the data.
#[test]
fn what_a_log_names_is_made_again_by_a_check() {
    for_seeds(10, made_again);
}

fn made_again(seed: u64) {
    let design = designs(32)[seed as usize % 5];
    let mut scene = Scene::new(design, 7_400_000 + seed);
    let disk = seed as usize % usize::from(design.slots);
    // The records of every other sector fill more than two sectors of the log.
    scene.bad_blocks = vec![(disk, every_other(&design, 0))];
    let mut story = scene.open();
    let (request, kind) = asked(seed);
    story.request(request);
    story.request(JobRequest::Resume);
    (0..4).for_each(|_| story.rest());
    let (progress, end) = ended(&story, kind).expect("it is over");
    assert_eq!((end, progress.named), (JobEnd::Completed, 0), "{design:?}");
    assert_eq!(named(&story, disk), [], "{design:?}");
    story.befall((disk + 1) % usize::from(design.slots), Mishap::Dies);
    story.read_all();
    story.settle();
    assert!(story.stop(), "it stops clean");
}

/// Regression: two members had logged sectors in one row, and a check skipped the whole row.
#[test]
fn two_members_with_bad_blocks_in_one_row_are_made_again() {
    for_seeds(10, in_one_row);
}

fn in_one_row(seed: u64) {
    let designs = [design(Level::Raid5, 2, 8, 4, 16), design(Level::Raid1, 0, 128, 2, 2)];
    let design = designs[seed as usize % 2];
    let mut scene = Scene::new(design, 7_500_000 + seed);
    scene.bad_blocks = vec![(0, every_other(&design, 0)), (1, every_other(&design, 1))];
    let mut story = scene.open();
    let (request, kind) = asked(seed / 2);
    story.request(request);
    story.request(JobRequest::Resume);
    (0..8).for_each(|_| story.rest());
    let (progress, end) = ended(&story, kind).expect("it is over");
    assert_eq!((end, progress.named), (JobEnd::Completed, 0), "{design:?}");
    assert_eq!((named(&story, 0), named(&story, 1)), (vec![], vec![]));
    story.befall(1, Mishap::Dies);
    story.read_all();
}

#[test]
fn a_check_is_over_when_logs_say_what_it_did() {
    for_seeds(5, |seed| {
        let design = designs(9)[seed as usize];
        let mut scene = Scene::new(design, 7_600_000 + seed);
        scene.bad_blocks = vec![(0, std::iter::once(3..5).collect())];
        let mut story = scene.open();
        story.hold(|event| matches!(event, Event::BadBlocks { .. }));
        story.request(JobRequest::Check);
        story.request(JobRequest::Resume);
        story.rest();
        assert_eq!(ended(&story, JobKind::Check), None, "it waits");
        story.release();
        story.rest();
        let (progress, end) = ended(&story, JobKind::Check).expect("it is over");
        assert_eq!((end, progress.named), (JobEnd::Completed, 0));
    });
}

/// Regression: a member failed the write of one sector and was put out, with all its good sectors.
#[test]
fn a_sector_that_takes_no_write_costs_itself() {
    for_seeds(20, stuck);
}

fn stuck(seed: u64) {
    let design = designs(9)[seed as usize % 5];
    let mut scene = Scene::new(design, 7_700_000 + seed);
    let is_named = (seed / 5).is_multiple_of(2);
    scene.errors_allowed = true;
    scene.bad_blocks.extend(is_named.then(|| (1, std::iter::once(19..21).collect())));
    let mut story = scene.open();
    story.stuck_sector(1, 20);
    let by_client = seed / 10 % 2 == 1;
    if by_client {
        // If a read fails, the data comes from the other members, and the sector is rewritten.
        // Several reads are in flight at once, so that each copy of a mirror is read.
        for sector in 0..story.capacity() {
            let ids: Vec<_> = (0..6).map(|_| story.issue(Operation::Read, sector, 1)).collect();
            story.settle();
            assert!(story.went_well(&ids));
        }
        story.rest();
        if !is_named && story.counters().read_repairs == 0 {
            return; // The bad sector holds parity, or reads used another copy.
        }
    } else {
        story.request(JobRequest::Check);
        story.request(JobRequest::Resume);
        (0..2).for_each(|_| story.rest());
        let (progress, end) = ended(&story, JobKind::Check).expect("it is over");
        assert_eq!(end, JobEnd::Completed, "{design:?}");
        assert!(progress.named > 0, "{progress:?}");
    }
    assert!(!story.is_any_out(), "{design:?}");
    let named = named(&story, 1);
    assert!(named.iter().any(|range| range.contains(&20)), "{design:?}: {named:?}");
    let sectors: u64 = named.iter().map(|range| range.end - range.start).sum();
    assert!(sectors <= 8, "each bad block costs one block: {named:?}");
    story.read_all();
    assert!(story.stop(), "it stops clean");
}

/// Runs a check, which may retry logged sectors. Returns how many sectors logs still name.
fn left_by(story: &mut Script, request: JobRequest) -> u64 {
    story.request(request);
    story.request(JobRequest::Resume);
    (0..12).for_each(|_| story.rest());
    let ends = story.world.engine.notices.iter().filter(|notice| {
        matches!(notice, Notice::JobEnded { progress, .. } if progress.retries == (request == JobRequest::RetryBad))
    });
    assert_eq!(ends.count(), 1, "it is over, once");
    let (progress, end) = ended(story, JobKind::Check).expect("it is over");
    assert_eq!(end, JobEnd::Completed);
    progress.named
}

/// An array in which the bad-block logs of several disks name the same sectors, more disks than the
/// level can compute. Returns these disks, too.
fn named_alike(seed: u64) -> (Scene, Vec<usize>) {
    let lost = [
        (design(Level::Raid1, 0, 8, 2, 9), 2),
        (design(Level::Raid5, 2, 8, 4, 9), 2),
        (design(Level::Raid6, 2, 8, 5, 9), 3),
        (design(Level::Raid10, 0x102, 8, 4, 9), 2),
    ];
    let (design, disks) = lost[seed as usize % 4];
    let mut scene = Scene::new(design, 8_100_000 + seed);
    scene.errors_allowed = true;
    let disks: Vec<usize> = (0..disks).collect();
    scene.bad_blocks = disks.iter().map(|disk| (*disk, vec![17..20, 40..41])).collect();
    (scene, disks)
}

/// Regression: several logs named the same sectors, which were sound. Reads of them failed, even
/// after a check.
#[test]
fn what_logs_name_in_vain_is_tried_and_named_no_more() {
    for_seeds(12, |seed| {
        let (mut scene, disks) = named_alike(seed);
        scene.named_in_vain.clone_from(&disks);
        let design = scene.design;
        let mut story = scene.open();
        assert_eq!(left_by(&mut story, JobRequest::Check), 4 * disks.len() as u64, "{design:?}");
        assert_eq!(left_by(&mut story, JobRequest::RetryBad), 0, "{design:?}");
        disks.iter().for_each(|disk| assert_eq!(named(&story, *disk), [], "{design:?}"));
        for sector in 0..story.capacity() {
            let id = story.issue(Operation::Read, sector, 1);
            story.settle();
            assert!(story.went_well(&[id]), "{design:?}");
        }
        assert!(story.stop(), "it stops clean");
    });
}

/// A check retries logged sectors. Sectors that are unreadable, or disagree with the other members,
/// stay in the log.
#[test]
fn what_is_tried_in_vain_stays_named() {
    for_seeds(16, |seed| {
        let (mut scene, disks) = named_alike(seed);
        let is_unreadable = (seed / 4).is_multiple_of(2);
        scene.named_in_vain = if is_unreadable { disks.clone() } else { disks[1..].to_vec() };
        let design = scene.design;
        let mut story = scene.open();
        if is_unreadable {
            [17, 18, 19, 40].iter().for_each(|sector| story.stuck_sector(0, *sector));
        }
        let left = left_by(&mut story, JobRequest::RetryBad);
        let mut all: Vec<u64> = disks
            .iter()
            .map(|disk| named(&story, *disk))
            .map(|ranges| ranges.iter().map(|range| range.end - range.start).sum())
            .collect();
        assert_eq!(left, all.iter().sum::<u64>(), "{design:?}");
        assert_eq!(all.remove(0), 4, "{design:?}");
        // On RAID-6 the second parity confirms the sectors of the readable disks.
        let is_spoken = design.level == Level::Raid6 && is_unreadable;
        let expected = if is_spoken { 0 } else { 4 };
        assert!(all.iter().all(|left| *left == expected), "{design:?}: {all:?}");
    });
}

/// A check reads several blocks. Meanwhile a client's read meets a bad sector in these blocks, and
/// the rewrite fails, so that the log names the sector.
fn named_while_it_is_read(seed: u64) {
    let mut scene = Scene::new(design(Level::Raid5, 2, 32, 4, 2), 7_900_000 + seed).write_through();
    scene.errors_allowed = true;
    let mut story = scene.open();
    let disk = seed as usize % 4;
    story.stuck_sector(disk, 20);
    story.hold(move |event| {
        let Event::Io(vector) = event else { return false };
        let is_long = vector.parts.iter().any(|(_, io)| io.sectors > 8);
        vector.member == MemberId(disk as u16) && is_long
    });
    story.request(JobRequest::Check);
    story.request(JobRequest::Resume);
    story.run_without_time();
    assert!(!story.held().is_empty(), "the check reads");
    for sector in 0..story.capacity() {
        story.issue(Operation::Read, sector, 1);
        story.run_without_time();
    }
    story.release();
    (0..2).for_each(|_| story.rest());
    let (_, end) = ended(&story, JobKind::Check).expect("it is over");
    assert_eq!(end, JobEnd::Completed);
    assert!(named(&story, disk).iter().any(|range| range.contains(&20)));
    assert!(!story.is_any_out());
    story.read_all();
}

/// Regression: after a failed rewrite of a bad sector, the check read its blocks one by one, among
/// them the newly logged sector.
#[test]
fn what_is_named_while_a_check_reads_it_is_not_read_again() {
    for_seeds(16, named_while_it_is_read);
}

/// A member without a bad-block log fails the write of a sector. The member must be out, because no
/// log can name the sector.
#[test]
fn without_a_log_what_takes_no_write_puts_its_member_out() {
    for_seeds(4, |seed| {
        let design = Design { version: Version::V0_90, ..design(Level::Raid5, 2, 8, 4, 9) };
        let mut scene = Scene::new(design, 7_800_000 + 4 * seed);
        scene.errors_allowed = true;
        let mut story = scene.open();
        story.stuck_sector(1, 20);
        story.request(JobRequest::Check);
        story.request(JobRequest::Resume);
        (0..2).for_each(|_| story.rest());
        assert!(story.is_out(1));
        story.read_all();
    });
}

/// Regression: a recovered member made the data of a logged sector available again, but the sector
/// stayed in the log.
#[test]
fn what_is_named_is_made_again_when_a_member_is_filled() {
    for_seeds(6, filled);
}

fn filled(seed: u64) {
    let designs = [
        design(Level::Raid6, 2, 8, 5, 9),
        design(Level::Raid1, 0, 8, 3, 9),
        design(Level::Raid10, 0x102, 8, 6, 9),
    ];
    let design = designs[seed as usize % 3];
    let mut scene = Scene::new(design, 7_900_000 + seed);
    scene.recovering = Some((0, 0));
    scene.bad_blocks = vec![(2, vec![20..22, 40..41])];
    let mut story = scene.open();
    story.request(JobRequest::Resume);
    (0..3).for_each(|_| story.rest());
    assert_eq!(ended(&story, JobKind::Recovery).map(|(_, end)| end), Some(JobEnd::Completed));
    assert_eq!(named(&story, 2), [], "{design:?}");
    assert_eq!(ended(&story, JobKind::Check), None, "the array reports no check of its own");
    story.befall(1, Mishap::Dies);
    story.read_all();
}

/// Regression: clients wrote logged blocks, and power was cut while a log of several sectors was
/// written. Assembly believed a block that the log named both before and after that write.
#[test]
fn a_long_log_that_is_torn_names_what_it_did() {
    for_seeds(40, torn);
}

fn torn(seed: u64) {
    let design = designs(40)[seed as usize % 5];
    let mut scene = Scene::new(design, 8_000_000 + seed).write_through();
    let disk = seed as usize / 5 % usize::from(design.slots);
    scene.bad_blocks = vec![(disk, long_log(&design, seed))];
    let mut story = scene.open();
    let world = &mut story.world;
    let data_offset = world.taint.data_offset;
    world.bad_logs.leave_behind((disk, &mut world.disks[disk]), data_offset);
    let mut random = Random::new(seed ^ 0x7ea5);
    let used = story.world.geometry.used_sectors(Slot(disk as u16));
    let rounds = 1 + random.below(6);
    for round in 0..rounds {
        // Writes here and there, so that some records are removed and some split.
        let mut written = 0;
        while written < 24 {
            let at = MemberSector(random.below(used));
            let Some(at) = logical(&story.world.geometry, disk, at) else { continue };
            story.issue(WRITE, at, 1 + random.below(3).min(story.capacity() - at - 1));
            written += 1;
        }
        if round + 1 < rounds {
            story.rest();
        }
    }
    let is_written = |story: &Script| {
        story.world.engine.pending.iter().any(|one| matches!(one, Event::BadBlocks { .. }))
    };
    for _ in 0..4000 {
        if is_written(&story) && random.below(3) == 0 {
            break;
        }
        story.step(false);
    }
    let world = &mut story.world;
    world.crash(true);
    world.look_at_bad_logs();
    let all: Vec<usize> = (0..world.disks.len()).collect();
    let Ok(array) = world.open(&all, false) else { return };
    let is_doubtful = array.dirty && !matches!(world.geometry, Geometry::Mirror(_));
    if !is_doubtful {
        assert!(world.read_all().is_some(), "all of it can be read");
    }
}

/// The ranges of a full, or almost full, log: single sectors and longer ranges, with gaps between.
fn long_log(design: &Design, seed: u64) -> Vec<Range<u64>> {
    let mut random = Random::new(seed ^ 0x10_10);
    let used = design.rows * u64::from(design.chunk_sectors);
    let (mut at, mut ranges) = (0, Vec::new());
    let length_max = *random.pick(&[1, 3, 5]);
    // With some of these counts the records fill whole sectors of the log.
    let count = *random.pick(&[62, 63, 64, 126, 127, 128, 500]);
    while at + length_max < used && ranges.len() < count {
        let length = 1 + random.below(length_max);
        ranges.push(at..at + length);
        at += length + 1 + random.below(2);
    }
    ranges
}

/// The array sector at a member sector of a disk; `None` if the member sector holds no data.
fn logical(geometry: &Geometry, disk: usize, at: MemberSector) -> Option<u64> {
    let slot = Slot(disk as u16);
    match geometry {
        Geometry::Mirror(mirror) => mirror.logical(slot, at).map(|(first, _)| first.0),
        Geometry::Stripe(stripe) => {
            let (row, chunk) = (stripe.row_of(at), u64::from(stripe.chunk_sectors()));
            let map = stripe.row_map(row);
            let index = (0..map.data_slots()).find(|index| map.data_slot(*index) == slot)?;
            Some(stripe.logical(row, index, (at.0 % chunk) as u32).0)
        }
        Geometry::Direct(_) => None,
    }
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell() {
    (0..16).for_each(named_while_it_is_read);
    (0..10).for_each(made_again);
    (0..4).for_each(in_one_row);
    (0..20).for_each(stuck);
    (0..6).for_each(filled);
    (0..80).chain(1340..1348).for_each(torn);
}
