//! Replacement of members in service: whatever fails, no byte is lost, and each slot keeps its
//! content.

use braid_engine::array::{JobEnd, JobKind, JobRequest, MemberId, Notice};
use braid_engine::cause::RequestKind;
use braid_engine::request::Operation;
use braid_engine::{OnReadErrors, ReadErrorLimit, SitOut};
use braid_geometry::{Geometry, Level, MemberSector, Slot};

use super::for_seeds;
use super::scene::{CHUNKS, Scene, design, one_of_each, redundant_designs};
use super::script::{Mix, Script, WRITE};
use crate::content::{SECTOR, image};
use crate::create::Design;
use crate::disk::DiskFaults;
use crate::fault::Mishap;
use crate::open;
use crate::random::Random;
use crate::schedule::Event;
use crate::world::StepResult;

/// A scene with a spare, in which the array starts jobs by itself.
fn with_spare(mut design: Design, seed: u64) -> Scene {
    design.spares = 1;
    let mut scene = Scene::new(design, seed);
    scene.manner.jobs_paused = false;
    scene
}

fn replaced(story: &Script) -> bool {
    story.heard(|notice| matches!(notice, Notice::Replaced { .. }))
}

fn ended(story: &Script, kind: JobKind) -> Option<JobEnd> {
    story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, end } if progress.kind == kind => Some(*end),
        _ => None,
    })
}

/// At rest: checks that each member, below its recovery offset, holds the bytes demanded by
/// geometry and the definition of parity.
fn check_seats(story: &mut Script) {
    let content = story.read_all();
    let expected = image(&story.world.geometry, &content);
    for (slot, disk) in story.seats().into_iter().enumerate() {
        let Some(disk) = disk else { continue };
        let used = story.world.geometry.used_sectors(Slot(slot as u16)) as usize * SECTOR;
        let found = &story.data(disk)[..used];
        let sectors = found.chunks_exact(SECTOR).zip(expected[slot].chunks_exact(SECTOR));
        for (sector, (found, expected)) in sectors.enumerate() {
            let holds_some = match &story.world.geometry {
                Geometry::Mirror(mirror) => {
                    let place = (Slot(slot as u16), MemberSector(sector as u64));
                    mirror.logical(place.0, place.1).is_some()
                }
                _ => true,
            };
            let is_right = found == expected || !holds_some;
            assert!(is_right, "sector {sector} of disk {disk} in slot {slot} is wrong");
        }
    }
}

/// On every level and layout, an operator replaces a member while clients write.
#[test]
fn a_member_is_replaced_while_it_serves() {
    for_seeds(3, |seed| {
        let designs = redundant_designs(CHUNKS[seed as usize % 3]);
        for (index, design) in designs.into_iter().enumerate() {
            let seed = 4_100_000 + seed * 100 + index as u64;
            let mut story = with_spare(design, seed).open();
            let (spare, old) =
                (usize::from(design.slots), seed as usize % usize::from(design.slots));
            story.replaces(old, spare);
            story.run(&Mix::ALL);
            story.rest();
            assert!(replaced(&story), "{design:?}");
            assert_eq!(ended(&story, JobKind::Replace), Some(JobEnd::Completed));
            assert_eq!(story.seats()[old], Some(spare));
            assert!(
                story.is_out(old) && !story.heard(|one| matches!(one, Notice::MemberOut { .. }))
            );
            story.run(&Mix::ALL);
            story.rest();
            check_seats(&mut story);
            assert!(story.stop(), "it stops clean");
            let all: Vec<usize> = (0..story.world.disks.len()).collect();
            let (_, assembly) = open::assemble_disks(&story.world.disks, &all);
            let array = assembly.array.expect("it can be started");
            assert_eq!((array.degraded, array.dirty), (0, false), "it is whole");
            let seats = array.slots.iter().map(|one| one.as_ref().map(|one| one.member));
            assert_eq!(seats.collect::<Vec<_>>(), story.seats(), "the old member is out");
        }
    });
}

#[test]
fn bad_sectors_of_a_member_do_not_end_its_replacement() {
    for_seeds(20, |seed| {
        let designs = one_of_each();
        let design = designs[seed as usize % designs.len()];
        let scene = with_spare(design, 4_200_000 + seed);
        let mut story = scene.open();
        let (spare, old) = (usize::from(design.slots), seed as usize % usize::from(design.slots));
        let data_offset = story.world.taint.data_offset;
        for start in [0, 5, 21, 40] {
            let mishap = Mishap::BadSectors { start: data_offset + start, sectors: 2 };
            story.plan(1, old, mishap);
        }
        story.replaces(old, spare);
        story.run(&Mix { writes: 5, zeroes: 0, trims: 0, ..Mix::ALL });
        story.rest();
        assert!(replaced(&story), "{design:?}");
        check_seats(&mut story);
        story.ends_well();
    });
}

/// Reads of a disk fail now and then, and each failure is corrected. The array then copies the disk
/// to a spare by itself.
#[test]
fn a_member_that_errs_again_and_again_is_copied_to_a_spare() {
    for_seeds(10, |seed| {
        let designs = one_of_each();
        let design = designs[seed as usize % designs.len()];
        let mut story = with_spare(design, 4_250_000 + seed).open();
        let (spare, old) = (usize::from(design.slots), seed as usize % usize::from(design.slots));
        let limit = ReadErrorLimit { most: Some(3), then: OnReadErrors::Replace };
        let now = story.world.clock.now;
        story.world.engine.machines.array.handle_read_error_limit(now, limit);
        let used = story.world.geometry.used_sectors(Slot(old as u16));
        for turn in 0_u64.. {
            assert!(turn < 200, "{design:?}: it was never replaced");
            if !story.heard(|one| matches!(one, Notice::Errs { .. })) {
                story.bad_sector(old, turn * 7 % used);
            }
            for start in 0..story.capacity() {
                assert!(story.read(start, 1).is_ok(), "the other members solve it");
            }
            story.run(&Mix { requests: 3, trims: 0, zeroes: 0, ..Mix::ALL });
            if replaced(&story) {
                break;
            }
        }
        story.rest();
        assert_eq!(story.seats()[old], Some(spare));
        assert!(!story.heard(|one| matches!(one, Notice::MemberOut { .. })), "no member went out");
        check_seats(&mut story);
        story.ends_well();
    });
}

fn is_read(event: &Event) -> bool {
    match event {
        Event::Io(vector) => vector.parts.iter().any(|(_, io)| !io.operation.is_write()),
        _ => false,
    }
}

/// An operator replaces a member because it is slow. The copy reads the other members instead.
#[test]
fn a_member_that_sits_out_is_replaced_all_the_same() {
    for_seeds(20, |seed| {
        let mut scene = with_spare(design(Level::Raid5, 2, 8, 4, 20), 4_300_000 + seed);
        scene.manner.jobs_paused = true;
        let mut story = scene.open();
        story.issue(Operation::Write { durable: true }, 0, 1);
        story.run_without_time();
        story.watch(SitOut { min_ms: 150, ..SitOut::default() });
        // Only reads of the slow member are held, because superblocks and flushes would wait for
        // it.
        story.hold(|event| event.waits_for() == Some(MemberId(1)) && is_read(event));
        while !story.sits_out(1) {
            story.issue(Operation::Read, 8, 8);
            story.run_without_time();
            story.tick();
        }
        story.replaces(1, 4);
        story.request(JobRequest::Resume);
        for _ in 0..20 {
            story.run_without_time();
            story.tick();
        }
        assert!(replaced(&story), "nothing of it was read");
        story.release();
        story.rest();
        check_seats(&mut story);
    });
}

#[test]
fn whatever_happens_while_a_member_is_replaced_nothing_is_lost() {
    for_seeds(600, replaced_whatever_happens);
}

/// During a replacement none, one or two disks fail. Then power is cut, the process is killed, or
/// the run continues. No byte may be lost.
fn replaced_whatever_happens(seed: u64) {
    let mut random = Random::new(seed ^ 0x4e91);
    let designs = redundant_designs(*random.pick(&CHUNKS[..2]));
    let design = *random.pick(&designs);
    let scene = with_spare(design, 4_400_000 + seed);
    let mut story = scene.open();
    story.world.may_have_jobs = true;
    let slots = u64::from(design.slots);
    let (spare, old) = (usize::from(design.slots), random.below(slots) as usize);
    let third = (old + 1 + random.below(slots - 1) as usize) % usize::from(design.slots);
    story.replaces(old, spare);
    if random.chance(70) {
        // With small allowances the copy is still running when disks fail.
        story.world.allow_little(seed);
    }
    let ills = [
        Mishap::Dies,
        Mishap::Dies,
        Mishap::PowerCut,
        Mishap::WritesFail,
        Mishap::FlushesFail,
        Mishap::SuperblocksFail,
    ];
    let mut harmed = Vec::new();
    let step = random.below(400);
    match random.below(8) {
        0 | 1 => {}
        2 | 3 => harmed.push((old, step, *random.pick(&ills))),
        4 => harmed.push((spare, step, *random.pick(&ills))),
        // The spare serves no reads before it takes the slot, so both disks may fail.
        5 => {
            harmed.push((spare, step, *random.pick(&ills)));
            harmed.push((old, step + random.below(200), *random.pick(&ills)));
        }
        6 => harmed.push((third, step, *random.pick(&ills))),
        _ => {
            let start = story.world.taint.data_offset + random.below(40);
            harmed.push((old, 1, Mishap::BadSectors { start, sectors: 2 }));
        }
    }
    let third_is_well = harmed.iter().all(|(disk, ..)| *disk != third);
    for (disk, step, mishap) in harmed {
        story.plan(step, disk, mishap);
    }
    let end = random.below(4);
    if end == 0 {
        story.run(&Mix::ALL);
        story.rest();
        check_seats(&mut story);
        assert!(story.stop(), "it stops clean");
    } else {
        story.begin_mix(&Mix::ALL, random.below(500));
        match end {
            1 => story.world.crash(true),
            2 => story.world.crash(false),
            _ => {
                story.settle();
                _ = story.stop();
            }
        }
    }
    // The old disk may be gone for good at the next start.
    let gone = random.chance(30).then_some(old).filter(|_| third_is_well);
    goes_on(story, spare, gone);
}

/// Starts the array again; all disks except `gone` are sound. The replacement continues, and in the
/// end all members are complete.
fn goes_on(mut story: Script, spare: usize, gone: Option<usize>) {
    let world = &mut story.world;
    let victims = world.engine.plan.victims.clone();
    world.unsure.extend(&victims);
    for disk in &mut world.disks {
        disk.ills = DiskFaults::default();
        // No disk keeps unreadable sectors, because they cannot be computed while parity may not
        // agree.
        disk.bad.clear();
    }
    let all: Vec<usize> = (0..=spare).filter(|disk| Some(*disk) != gone).collect();
    if let Err(refusal) = world.open(&all, false) {
        return assert!(!victims.is_empty() || gone.is_some(), "{refusal}");
    }
    story.begins_anew();
    // Until the resync is done, members may differ from the bytes that clients read.
    story.request(JobRequest::Resume);
    story.rest();
    assert!(story.world.read_all().is_some(), "all of it can be read");
    check_seats(&mut story);
}

/// Runs stories of moments that random worlds meet too seldom.
#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell() {
    (0..60).for_each(replaced_whatever_happens);
    (0..4).for_each(one_write_is_cut_off);
    (0..20).for_each(killed_while_the_place_changes);
    (0..20).for_each(one_write_is_missed);
    (0..20).for_each(it_stands_in_after_a_power_cut);
}

#[test]
fn a_kill_while_the_place_changes_leaves_one_that_holds_all() {
    for_seeds(40, killed_while_the_place_changes);
}

/// The process is killed while superblocks give the slot to the replacement: some already do,
/// others do not.
fn killed_while_the_place_changes(seed: u64) {
    let shapes = [(Level::Raid1, 0, 2), (Level::Raid5, 2, 4), (Level::Raid10, 0x102, 4)];
    let (level, layout, slots) = shapes[seed as usize % shapes.len()];
    let mut story = with_spare(design(level, layout, 8, slots, 4), 4_600_000 + seed).open();
    story.world.may_have_jobs = true;
    let (old, spare) = (seed as usize % usize::from(slots), usize::from(slots));
    story.replaces(old, spare);
    while story.world.engine.machines.array.replacement_of(Slot(old as u16)).is_some() {
        story.step(false);
    }
    story.world.crash(false);
    goes_on(story, spare, None);
}

#[test]
fn a_write_that_a_replacement_has_missed_is_not_answered_before_it_is_out() {
    for_seeds(40, one_write_is_missed);
}

/// A replacement fails one write, and works again afterwards.
fn one_write_is_missed(seed: u64) {
    let shapes = [(Level::Raid1, 0, 2), (Level::Raid5, 2, 4), (Level::Raid10, 0x102, 4)];
    let (level, layout, slots) = shapes[seed as usize % shapes.len()];
    let mut story = with_spare(design(level, layout, 8, slots, 40), 4_700_000 + seed).open();
    let (old, spare) = (seed as usize % usize::from(slots), usize::from(slots));
    story.world.allow_little(seed);
    story.replaces(old, spare);
    while !story.heard(|notice| matches!(notice, Notice::Replacing { .. })) {
        story.step(false);
    }
    story.begin_mix(&Mix { reads: 0, ..Mix::ALL }, 100 + seed);
    story.befall(spare, Mishap::WritesFail);
    let before = story.counters().member_errors;
    for _ in 0..3000 {
        if story.counters().member_errors > before {
            break;
        }
        story.begin_mix(&Mix { reads: 0, ..Mix::ALL }, 1);
    }
    story.world.disks[spare].ills = DiskFaults::default();
    story.settle();
    story.rest();
    check_seats(&mut story);
    story.ends_well();
}

/// A RAID-1 whose first member has been copied in part to disk 2. The copy is paused.
fn replaced_in_part(base: u64, seed: u64) -> Script {
    let mut scene = with_spare(design(Level::Raid1, 0, 8, 2, 1000), base + seed);
    scene.manner.jobs_paused = true;
    let mut story = scene.open();
    story.world.may_have_jobs = true;
    story.world.allow_little(seed);
    story.request(JobRequest::Resume);
    story.replaces(0, 2);
    while story.world.engine.machines.array.job().is_none_or(|job| job.done < 16) {
        if story.step(false) == StepResult::Nothing {
            story.tick();
        }
    }
    story.request(JobRequest::Pause);
    story.rest();
    story
}

#[test]
fn after_an_interruption_a_replacement_is_filled_from_its_start() {
    for_seeds(20, one_write_is_cut_off);
}

/// A write below the copied offset reaches the member and not its replacement. Then the process is
/// killed.
fn one_write_is_cut_off(seed: u64) {
    let mut story = replaced_in_part(4_900_000, seed);
    let new = story.member(2);
    story.hold(move |event| matches!(event, Event::Io(vector) if vector.member == new));
    story.issue(WRITE, 0, 8);
    story.run_without_time();
    story.release();
    story.world.crash(false);
    goes_on(story, 2, None);
}

#[test]
fn what_was_flushed_is_on_a_replacement_that_stands_in_after_a_power_cut() {
    for_seeds(40, it_stands_in_after_a_power_cut);
}

/// Power is cut during a copy, and the old disk is gone afterwards. The replacement is believed up
/// to its recovery offset, and must have all flushed writes below that offset. In half of the
/// stories the replacement missed a write before.
fn it_stands_in_after_a_power_cut(seed: u64) {
    let mut story = replaced_in_part(4_800_000, seed);
    let superblock = story.world.superblock_on(2).expect("it has one");
    let saved = superblock.device.recovery_offset_sectors.expect("it is not over");
    assert!(saved >= 16, "saved where it was paused: {saved}");
    // The first flush of a run reaches every member.
    story.flush_alone().expect("nothing fails");
    let first = story.issue(WRITE, 0, 8);
    story.run_without_time();
    if seed % 2 == 1 {
        story.befall(2, Mishap::WritesFail);
    }
    let second = story.issue(WRITE, 8, 8);
    story.run_without_time();
    assert!(story.went_well(&[first, second]), "the member has both");
    story.world.disks[2].ills = DiskFaults::default();
    // No time passes here. Otherwise the array would turn clean, and flush every member.
    let flush = story.flush();
    story.run_without_time();
    assert!(story.went_well(&[flush]), "the members in the view have the writes");
    story.world.crash(true);
    goes_on(story, 2, Some(0));
}

/// A replacement fails a write or a flush. The replacement must be out, whatever its superblock
/// says.
#[test]
fn a_replacement_that_fails_is_out_and_the_member_stays() {
    for_seeds(20, |seed| {
        let ills = [RequestKind::Write, RequestKind::Flush];
        let asked = ills[seed as usize % ills.len()];
        let design = design(Level::Raid1, 0, 8, 2, 200);
        let mut story = with_spare(design, 4_500_000 + seed).open();
        story.world.allow_little(seed);
        story.replaces(0, 2);
        let mishap =
            if asked == RequestKind::Write { Mishap::WritesFail } else { Mishap::FlushesFail };
        story.plan(30 + seed % 40, 2, mishap);
        story.run(&Mix::ALL);
        story.rest();
        assert_eq!(story.seats(), [Some(0), Some(1)]);
        assert!(!replaced(&story), "{asked:?}");
        // The disk can fail before superblocks call it a replacement. Then it is not reported as
        // out.
        if story.heard(|one| matches!(one, Notice::Replacing { .. })) {
            assert!(story.is_out(2), "{asked:?}");
            assert_eq!(ended(&story, JobKind::Replace), Some(JobEnd::TargetLost));
        }
        story.ends_well();
    });
}
