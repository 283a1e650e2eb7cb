//! Sectors that no other member can give cost only themselves, and do not end a rebuild. The
//! bad-block log of the recovering member names them until a client writes them.

use std::ops::Range;

use braid_engine::array::{JobEnd, JobKind, JobProgress, JobRequest, Notice};
use braid_engine::request::{Fault as Refused, Operation};
use braid_geometry::{Family, Geometry, Level, MemberSector, Slot};

use super::for_seeds;
use super::scene::{CHUNKS, Scene, design, one_of_each, redundant_designs};
use super::script::{Mix, Script, WRITE};
use crate::create::Design;
use crate::fault::Mishap;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;

/// An array with an empty member on `disk`, and its sectors that no other member can give.
struct Unfilled {
    story: Script,
    disk: usize,
    lost: Vec<u64>,
}

/// Makes a sector of a disk impossible to compute: the same sector of each other disk becomes bad.
fn lose(story: &mut Script, (disk, sector): (usize, u64)) {
    let (geometry, place) = (story.world.geometry.clone(), MemberSector(sector));
    match &geometry {
        Geometry::Mirror(mirror) => {
            let Some((first, _)) = mirror.logical(Slot(disk as u16), place) else { return };
            for (slot, place) in (0..mirror.copies()).map(|copy| mirror.copy(first, copy)) {
                if slot.index() != disk {
                    story.bad_sector(slot.index(), place.0);
                }
            }
        }
        _ => {
            for other in (0..usize::from(geometry.slots())).filter(|other| *other != disk) {
                story.bad_sector(other, sector);
            }
        }
    }
}

fn unfilled(design: Design, seed: u64) -> Unfilled {
    let mut random = Random::new(seed);
    let disk = random.below(u64::from(design.slots)) as usize;
    let mut scene = Scene::new(design, seed);
    (scene.recovering, scene.errors_allowed) = (Some((disk, 0)), true);
    let mut story = scene.open();
    let used = story.world.geometry.used_sectors(Slot(disk as u16));
    let mut lost: Vec<u64> = (0..1 + random.below(3)).map(|_| random.below(used)).collect();
    if let Geometry::Mirror(mirror) = story.world.geometry.clone() {
        let is_used =
            |sector: &u64| mirror.logical(Slot(disk as u16), MemberSector(*sector)).is_some();
        lost.retain(is_used);
    }
    lost.iter().for_each(|sector| lose(&mut story, (disk, *sector)));
    Unfilled { story, disk, lost }
}

fn recovered(story: &Script) -> Option<(JobProgress, JobEnd)> {
    story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, end } if progress.kind == JobKind::Recovery => {
            Some((*progress, *end))
        }
        _ => None,
    })
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

/// Writes the whole array, row by row.
fn write_all(story: &mut Script) {
    let geometry = story.world.geometry.clone();
    let width = match &geometry {
        Geometry::Stripe(stripe) => {
            u64::from(stripe.chunk_sectors()) * u64::from(stripe.data_slots())
        }
        _ => 64,
    };
    let capacity = story.capacity();
    for start in (0..capacity).step_by(width as usize) {
        assert_eq!(story.write(start, width.min(capacity - start)), Ok(()));
    }
    assert_eq!(story.flush_alone(), Ok(()));
}

/// Regression: one unreadable sector ended a rebuild, and the array stayed degraded.
#[test]
fn a_rebuild_goes_on_beyond_what_cannot_be_read() {
    for_seeds(3, beyond);
}

fn beyond(seed: u64) {
    let designs = redundant_designs(CHUNKS[seed as usize % 3]);
    for (index, design) in designs.into_iter().enumerate() {
        let Unfilled { mut story, disk, lost } =
            unfilled(design, 6_100_000 + seed * 100 + index as u64);
        story.request(JobRequest::Resume);
        story.rest();
        let (progress, end) = recovered(&story).expect("it has ended");
        assert_eq!(end, JobEnd::Completed, "{design:?}");
        let named = named(&story, disk);
        for sector in &lost {
            assert!(named.iter().any(|range| range.contains(sector)), "{sector}: {named:?}");
        }
        let sectors: u64 = named.iter().map(|range| range.end - range.start).sum();
        assert_eq!(progress.unmade, sectors, "the job and the log count the same sectors");
        assert!(sectors <= lost.len() as u64, "each bad sector costs one sector: {named:?}");
        // All other sectors are readable; the model checks them.
        let mut unread = 0;
        for sector in 0..story.capacity() {
            match story.read(sector, 1) {
                Ok(()) => {}
                Err(Refused::Unreadable) => unread += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        let slots = u64::from(design.slots);
        assert!(unread <= slots * sectors, "{unread} sectors: {design:?}");
    }
}

/// Regression: a client wrote a bad sector, which stayed in the log. The next loss of a member lost
/// the acknowledged bytes.
#[test]
fn what_is_written_over_a_bad_block_is_good_again() {
    for_seeds(3, written_over);
}

fn written_over(seed: u64) {
    let designs = redundant_designs(CHUNKS[seed as usize % 3]);
    for (index, design) in designs.into_iter().enumerate() {
        let seed = 6_200_000 + seed * 100 + index as u64;
        let Unfilled { mut story, disk, .. } = unfilled(design, seed);
        story.request(JobRequest::Resume);
        story.rest();
        write_all(&mut story);
        story.rest();
        assert_eq!(named(&story, disk), [], "{design:?}");
        story.world.engine.plan.errors_allowed = false;
        let other = (disk + 1) % usize::from(design.slots);
        story.befall(other, Mishap::Dies);
        story.read_all();
        story.settle();
        assert!(story.stop(), "it stops clean");
    }
}

/// Clients write during a rebuild, and power is cut at any step. The log must name at least the
/// sectors that cannot be computed.
#[test]
fn power_is_cut_while_sectors_are_given_up() {
    for_seeds(12, cut_off);
}

fn cut_off(seed: u64) {
    let designs = one_of_each();
    for (index, design) in designs.into_iter().enumerate() {
        let seed = 6_300_000 + seed * 100 + index as u64;
        let Unfilled { mut story, .. } = unfilled(design, seed);
        story.request(JobRequest::Resume);
        let mut random = Random::new(seed ^ 0xcafe);
        let steps = random.below(600);
        story.begin_mix(&Mix { trims: 0, ..Mix::ALL }, steps);
        let world = &mut story.world;
        world.crash(true);
        world.look_at_bad_logs();
        world.disks.iter_mut().for_each(|disk| disk.bad.clear());
        world.model.unpin();
        let victims = world.engine.plan.victims.clone();
        world.unsure.extend(&victims);
        let all: Vec<usize> = (0..world.disks.len()).collect();
        // The unreadable sectors are readable at this start, so all data must be readable.
        let Ok(array) = world.open(&all, false) else { continue };
        // If parity is in doubt, it cannot give the content of a block that a log names.
        let is_named = array.slots.iter().flatten().any(|one| !one.bad_records.is_empty());
        let is_doubtful = array.dirty && world.geometry.level().family() == Family::Stripe;
        if !(is_named && is_doubtful) {
            assert!(world.read_all().is_some(), "all of it can be read");
        }
    }
}

/// The member has no room for a bad-block log. The rebuild ends at the unreadable sector, and
/// reports the cause.
#[test]
fn without_a_log_a_rebuild_ends_at_what_cannot_be_read() {
    for_seeds(4, without_a_log);
}

fn without_a_log(seed: u64) {
    let design =
        Design { version: braid_ondisk::Version::V0_90, ..design(Level::Raid5, 2, 8, 4, 9) };
    // Version 0.90 has no recovery offset, so the recovering disk is a spare.
    let design = Design { spares: 1, ..design };
    let mut scene = Scene::new(design, 6_400_000 + 4 * seed);
    (scene.missing, scene.errors_allowed) = (vec![1], true);
    let mut story = scene.open();
    lose(&mut story, (1, 21));
    story.request(JobRequest::Resume);
    story.rest();
    let (_, end) = recovered(&story).expect("it has ended");
    assert_eq!(end, JobEnd::Unreadable);
}

#[test]
fn a_replacement_lacks_what_nobody_can_give() {
    for_seeds(12, |seed| {
        let designs = one_of_each();
        let mut design = designs[seed as usize % designs.len()];
        design.spares = 1;
        let mut scene = Scene::new(design, 6_500_000 + seed);
        (scene.errors_allowed, scene.manner.jobs_paused) = (true, false);
        let mut story = scene.open();
        let (spare, old) = (usize::from(design.slots), seed as usize % usize::from(design.slots));
        lose(&mut story, (old, 11));
        story.bad_sector(old, 11);
        story.replaces(old, spare);
        story.rest();
        assert_eq!(story.seats()[old], Some(spare), "{design:?}");
        let named = named(&story, spare);
        assert!(named.iter().any(|range| range.contains(&11)), "{named:?}");
        write_all(&mut story);
        story.rest();
        assert!(self::named(&story, spare).is_empty());
        story.world.engine.plan.errors_allowed = false;
        story.read_all();
        assert!(story.stop(), "it stops clean");
    });
}

#[test]
fn a_job_waits_for_the_log_that_names_what_it_gives_up() {
    for_seeds(8, waits_for_its_log);
}

/// The write of the log is held. Until it ends, the log's sectors must not count as recovered.
fn waits_for_its_log(seed: u64) {
    let designs = [design(Level::Raid1, 0, 8, 2, 9), design(Level::Raid5, 2, 8, 4, 9)];
    let design = designs[seed as usize % designs.len()];
    let Unfilled { mut story, .. } = unfilled(design, 6_600_000 + seed);
    story.hold(|event| matches!(event, Event::BadBlocks { .. }));
    story.request(JobRequest::Resume);
    story.rest();
    assert!(recovered(&story).is_none(), "it waits");
    story.release();
    story.rest();
    assert_eq!(recovered(&story).map(|(_, end)| end), Some(JobEnd::Completed));
}

#[test]
fn a_log_that_is_being_written_is_believed_until_it_is() {
    for_seeds(8, being_written);
}

/// Clients have written everything, and the write of the shorter log is held. A power cut may leave
/// a block in the log.
fn being_written(seed: u64) {
    let designs = [design(Level::Raid1, 0, 8, 2, 9), design(Level::Raid5, 2, 8, 4, 9)];
    let design = designs[seed as usize % designs.len()];
    let Unfilled { mut story, disk, .. } = unfilled(design, 6_800_000 + seed);
    story.request(JobRequest::Resume);
    story.rest();
    story.hold(|event| matches!(event, Event::BadBlocks { .. }));
    let capacity = story.capacity();
    for start in (0..capacity).step_by(24) {
        story.issue(WRITE, start, 24.min(capacity - start));
        story.run_without_time();
    }
    story.flush();
    story.rest();
    assert!(!named(&story, disk).is_empty(), "it is being written");
    // The world checks that no read covers a sector in the log.
    for start in 0..capacity {
        story.issue(Operation::Read, start, 1);
    }
    story.rest();
    story.release();
    story.rest();
    assert!(named(&story, disk).is_empty());
    story.read_all();
}

#[test]
fn a_member_that_was_further_keeps_what_it_holds() {
    for_seeds(8, further);
}

/// Two members are recovered at once. The second already holds half of a block that cannot be
/// recovered.
fn further(seed: u64) {
    let mut scene = Scene::new(design(Level::Raid6, 2, 8, 5, 9), 6_700_000 + seed);
    (scene.recovering, scene.recovering_too) = (Some((1, 0)), Some((3, 44)));
    scene.errors_allowed = true;
    let mut story = scene.open();
    // More columns are unreadable. The first member lacks sectors that the second already holds.
    for (disk, sector) in [(0, 45), (0, 40), (2, 40), (0, 41), (2, 41)] {
        story.bad_sector(disk, sector);
    }
    story.request(JobRequest::Resume);
    story.rest();
    assert_eq!(recovered(&story).map(|(_, end)| end), Some(JobEnd::Completed));
    assert_eq!(named(&story, 1), [40..42, 45..46]);
    assert_eq!(named(&story, 3), std::slice::from_ref(&(45..46)));
}

/// Regression: a second spare joined during a rebuild. A sector could not be computed for the
/// second spare either, which ended the rebuild.
#[test]
fn a_second_spare_that_comes_meanwhile_does_not_end_a_rebuild() {
    for_seeds(8, |seed| {
        let design = Design { spares: 2, ..design(Level::Raid6, 2, 8, 5, 30) };
        let mut scene = Scene::new(design, 6_900_000 + seed);
        (scene.missing, scene.errors_allowed) = (vec![1, 3], true);
        let mut story = scene.open();
        story.bad_sector(0, 201);
        story.request(JobRequest::Resume);
        story.rest();
        story.rest();
        let seats = story.seats();
        assert!(seats.iter().all(Option::is_some), "{seats:?}");
        for disk in [seats[1], seats[3]].into_iter().flatten() {
            assert_eq!(named(&story, disk), std::slice::from_ref(&(201..202)));
        }
    });
}

/// Two members are replaced at once, and a sector of one is unreadable. The same sector of the
/// other must still be copied.
#[test]
fn what_can_be_copied_is_not_given_up_with_what_cannot() {
    for_seeds(8, |seed| {
        let design = Design { spares: 2, ..design(Level::Raid5, 2, 8, 4, 9) };
        let mut scene = Scene::new(design, 7_000_000 + seed);
        scene.errors_allowed = true;
        let mut story = scene.open();
        [1, 3].into_iter().for_each(|disk| story.bad_sector(disk, 21));
        story.replaces(1, 4);
        story.replaces(2, 5);
        story.request(JobRequest::Resume);
        story.rest();
        story.rest();
        assert_eq!(story.seats()[1..3], [Some(4), Some(5)]);
        assert_eq!(named(&story, 4), std::slice::from_ref(&(21..22)));
        assert_eq!(named(&story, 5), []);
    });
}

/// The two copies of a block have different bad sectors, so that together they give all its
/// sectors.
#[test]
fn sectors_of_a_block_are_made_from_whoever_holds_them() {
    for_seeds(8, |seed| {
        let design = Design { spares: 1, ..design(Level::Raid1, 0, 8, 2, 9) };
        let mut scene = Scene::new(design, 7_100_000 + seed);
        scene.errors_allowed = true;
        let mut story = scene.open();
        story.bad_sector(0, 18);
        story.bad_sector(1, 21);
        story.replaces(0, 2);
        story.request(JobRequest::Resume);
        story.rest();
        assert_eq!(story.seats()[0], Some(2));
        assert_eq!(named(&story, 2), []);
        story.world.engine.plan.errors_allowed = false;
        story.read_all();
    });
}

/// A client writes a sector while the log write that names the sector is in flight. Later the other
/// member loses the sector again.
#[test]
fn what_is_written_while_it_is_named_is_not_named_again() {
    for_seeds(8, |seed| {
        let design = design(Level::Raid1, 0, 8, 2, 9);
        let mut scene = Scene::new(design, 7_200_000 + seed).write_through();
        (scene.recovering, scene.errors_allowed) = (Some((1, 0)), true);
        let mut story = scene.open();
        story.bad_sector(0, 18);
        story.hold(|event| matches!(event, Event::BadBlocks { .. }));
        story.request(JobRequest::Resume);
        story.rest();
        let id = story.issue(WRITE, 18, 1);
        story.rest();
        assert!(story.went_well(&[id]));
        story.bad_sector(0, 18);
        story.release();
        story.rest();
        assert_eq!(recovered(&story).map(|(_, end)| end), Some(JobEnd::Completed));
        assert_eq!(named(&story, 1), []);
        story.world.engine.plan.errors_allowed = false;
        assert_eq!(story.read(18, 1), Ok(()));
    });
}

/// Regression: in one row a log named a sector, and another sector was unreadable. A resync ended
/// at that row every time, and nothing beyond it became redundant.
#[test]
fn a_resync_goes_on_beyond_what_cannot_be_read() {
    for_seeds(8, resync_goes_on);
}

fn resync_goes_on(seed: u64) {
    let designs = one_of_each();
    let design = designs[seed as usize % designs.len()];
    let mut scene = Scene::new(design, 7_300_000 + seed);
    (scene.resync_offset, scene.errors_allowed) = (0, true);
    let mut story = scene.open();
    // Sector 21 is unreadable on every disk.
    (0..usize::from(design.slots)).for_each(|disk| story.bad_sector(disk, 21));
    story.request(JobRequest::Resume);
    story.rest();
    let end = story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, end } => Some((progress.kind, *end)),
        _ => None,
    });
    assert_eq!(end, Some((JobKind::Resync, JobEnd::Completed)), "{design:?}");
    write_all(&mut story);
    story.rest();
    for disk in 0..usize::from(design.slots) {
        assert_eq!(named(&story, disk), [], "{design:?}: disk {disk}");
    }
    story.world.engine.plan.errors_allowed = false;
    story.befall(seed as usize / 4 % usize::from(design.slots), Mishap::Dies);
    story.read_all();
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell() {
    (0..2).for_each(beyond);
    (0..2).for_each(written_over);
    (0..8).for_each(waits_for_its_log);
    (0..8).for_each(being_written);
    (0..4).for_each(further);
    (0..2).for_each(without_a_log);
    (0..4).for_each(resync_goes_on);
    (0..24).for_each(cut_off);
}
