//! The write-intent bitmap: when bits are set, which ranges a resync reads after a crash, and which
//! ranges a returning member gets. The stories run while a bitmap is created or removed, too.

use braid_engine::array::{BitmapRefusal, JobKind, JobProgress, Notice};
use braid_geometry::{Geometry, MemberSector, Slot};

use super::for_seeds;
use super::scene::{Scene, redundant_designs};
use super::script::{Mix, Script, WRITE};
use crate::content::{SECTOR, image};
use crate::create::Design;
use crate::fault::Mishap;
use crate::open;
use crate::schedule::Event;

/// Milliseconds in which two sweeps of the bitmap end and the array turns clean.
const LONG_MS: u64 = 20_000;

/// Every level and layout with a bitmap, with this many sectors for each bit.
fn designs(bit_sectors: u32) -> Vec<Design> {
    let designs = redundant_designs(8).into_iter();
    designs.map(|design| Design { bit_sectors, ..design }).collect()
}

fn opened(design: Design, seed: u64) -> Script {
    let mut scene = Scene::new(design, seed).write_through();
    scene.manner.jobs_paused = false;
    scene.open()
}

/// A write succeeds while no time passes and no other request is in flight.
fn wrote(story: &mut Script, start: u64, sectors: u64) {
    let id = story.issue(WRITE, start, sectors);
    story.run_without_time();
    assert_eq!(story.answer(id), Some(Ok(())));
}

fn bits(story: &Script, disk: usize) -> Vec<u64> {
    let superblock = story.world.superblock_on(disk).expect("it is a member");
    let bitmap = open::bitmap(&story.world.disks[disk], &superblock).expect("it has a bitmap");
    bitmap.expect("a sound one").bits.iter().collect()
}

/// The progress of the last job of this kind when it ended.
fn ended(story: &Script, kind: JobKind) -> Option<JobProgress> {
    story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::JobEnded { progress, .. } if progress.kind == kind => Some(*progress),
        _ => None,
    })
}

/// How many sectors the last returning member did not need recovered.
fn kept_sectors(story: &Script) -> Option<u64> {
    story.world.engine.notices.iter().rev().find_map(|notice| match notice {
        Notice::SpareTaken { kept_sectors, .. } => Some(*kept_sectors),
        _ => None,
    })
}

/// Checks each disk against geometry and the definition of parity.
fn check_disks(story: &mut Script) {
    let content = story.read_all();
    let expected = image(&story.world.geometry, &content);
    for (slot, expected) in expected.iter().enumerate() {
        let used = story.world.geometry.used_sectors(Slot(slot as u16)) as usize * SECTOR;
        let found = &story.data(slot)[..used];
        let sectors = found.chunks_exact(SECTOR).zip(expected.chunks_exact(SECTOR));
        for (sector, (found, expected)) in sectors.enumerate() {
            let holds_some = match &story.world.geometry {
                Geometry::Mirror(mirror) => {
                    mirror.logical(Slot(slot as u16), MemberSector(sector as u64)).is_some()
                }
                _ => true,
            };
            assert!(found == expected || !holds_some, "sector {sector} of disk {slot}");
        }
    }
}

/// An operator fails a member. After `meanwhile`, the old disk (`may_return`) or a new one takes
/// its slot.
fn goes_and_comes(
    story: &mut Script,
    disk: usize,
    may_return: bool,
    meanwhile: impl Fn(&mut Script),
) {
    story.fails_by_person(disk);
    story.rest();
    meanwhile(story);
    story.settle();
    story.world.joins(disk, may_return);
    story.rest();
    story.pass_time(LONG_MS);
    story.rest();
}

#[test]
fn a_bit_is_durable_before_its_sectors_are_written() {
    for_seeds(2, |seed| {
        for (index, design) in designs(16).into_iter().enumerate() {
            let mut story = opened(design, 4_700_000 + seed * 100 + index as u64);
            assert!(bits(&story, 0).is_empty());
            // The checker of open bits runs with every view.
            wrote(&mut story, 0, 3);
            for disk in 0..usize::from(design.slots) {
                assert_eq!(bits(&story, disk), [0], "{design:?}");
            }
            story.run(&Mix::ALL);
            assert!(story.stop());
            assert!(bits(&story, 0).is_empty(), "an orderly stop leaves no bit");
        }
    });
}

#[test]
fn a_bit_is_cleared_when_its_sectors_are_flushed() {
    for_seeds(2, |seed| {
        for (index, design) in designs(16).into_iter().enumerate() {
            let mut story = opened(design, 4_710_000 + seed * 100 + index as u64);
            wrote(&mut story, 0, 3);
            assert_eq!(bits(&story, 1), [0]);
            story.pass_time(LONG_MS);
            story.rest();
            for disk in 0..usize::from(design.slots) {
                assert!(
                    bits(&story, disk).is_empty(),
                    "{design:?}: no client writes there any more"
                );
                assert!(!story.has_unflushed(disk), "it was flushed first");
            }
            wrote(&mut story, 0, 3);
            assert_eq!(bits(&story, 1), [0], "the next write sets it again");
            story.ends_well();
        }
    });
}

#[test]
fn no_bit_is_cleared_while_a_member_is_away() {
    for_seeds(2, |seed| {
        for (index, design) in designs(16).into_iter().enumerate() {
            came_back(design, 4_720_000 + seed * 100 + index as u64);
        }
    });
}

fn came_back(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    let disk = seed as usize % usize::from(design.slots);
    let capacity = story.capacity();
    goes_and_comes(&mut story, disk, true, |story| {
        wrote(story, 0, 3);
        story.pass_time(LONG_MS);
        story.rest();
        wrote(story, capacity - 2, 2);
        story.pass_time(LONG_MS);
        story.rest();
        let other = (disk + 1) % usize::from(design.slots);
        assert_eq!(bits(story, other).len(), 2, "{design:?}: the bits of the missed writes");
    });
    let used = story.world.geometry.used_sectors(Slot(disk as u16));
    let kept = kept_sectors(&story).expect("it came");
    assert!(kept > 0 && kept < used, "{design:?}: {kept} of {used} kept");
    let job = ended(&story, JobKind::Recovery).expect("what it missed was recovered");
    assert!(job.written <= used - kept, "{design:?}: the job writes only missed data: {job:?}");
    check_disks(&mut story);
    assert!(bits(&story, disk).is_empty(), "the array is whole and idle");
    story.ends_well();
}

#[test]
fn a_member_that_comes_back_is_made_whole_while_clients_write() {
    for_seeds(4, |seed| {
        let all = designs([1, 8, 64][seed as usize % 3]);
        for (index, design) in all.into_iter().enumerate() {
            let seed = 4_730_000 + seed * 100 + index as u64;
            let mut story = opened(design, seed);
            let disk = seed as usize % usize::from(design.slots);
            story.run(&Mix::ALL);
            story.fails_by_person(disk);
            story.run(&Mix::ALL);
            story.rest();
            story.world.joins(disk, true);
            story.run(&Mix::ALL);
            story.rest();
            assert!(kept_sectors(&story).is_some(), "it came");
            check_disks(&mut story);
            story.ends_well();
        }
    });
}

/// While a member is out, a new disk is recovered in its slot, and bits are cleared that the old
/// disk would need. The old disk then returns.
#[test]
fn a_member_that_comes_back_after_bits_were_cleared_keeps_nothing() {
    for_seeds(2, |seed| {
        for (index, design) in designs(16).into_iter().enumerate() {
            let seed = 4_740_000 + seed * 100 + index as u64;
            came_back_late(design, seed);
        }
    });
}

fn came_back_late(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    let disk = seed as usize % usize::from(design.slots);
    wrote(&mut story, 0, 3);
    story.fails_by_person(disk);
    story.rest();
    let old = story.world.disks[disk].clone();
    wrote(&mut story, 0, 3);
    story.settle();
    story.world.joins(disk, false);
    story.rest();
    story.pass_time(LONG_MS);
    story.rest();
    let other = (disk + 1) % usize::from(design.slots);
    assert!(bits(&story, other).is_empty(), "{design:?}: it is whole");
    story.fails_by_person(disk);
    story.rest();
    story.world.disks[disk] = old;
    story.world.joins(disk, true);
    story.rest();
    assert_eq!(kept_sectors(&story), Some(0), "{design:?}");
    check_disks(&mut story);
    story.ends_well();
}

#[test]
fn a_resync_passes_over_what_no_bit_names() {
    for_seeds(3, |seed| {
        for (index, design) in designs(16).into_iter().enumerate() {
            let seed = 4_750_000 + seed * 100 + index as u64;
            let mut story = opened(design, seed);
            wrote(&mut story, 0, 3);
            let id = story.issue(WRITE, 0, 3);
            story.step(false);
            story.world.crash(true);
            story.world.model.unpin();
            let presented: Vec<usize> = (0..usize::from(design.slots)).collect();
            let mut manner = Scene::new(design, seed).manner;
            manner.jobs_paused = false;
            story.forget(id);
            story.world.open_as(&presented, manner);
            story.rest();
            let job = ended(&story, JobKind::Resync).expect("it was not stopped in order");
            assert_eq!(job.done, job.end, "{design:?}");
            let asked = story.world.engine.machines.array.job_flow();
            let asked = asked.idle.begun_sectors + asked.owed.begun_sectors;
            // A work item covers a band, or on some levels as many sectors of the array: one or two
            // bits.
            assert!(asked <= 128, "{design:?}: {asked} sectors were asked for");
            check_disks(&mut story);
            story.ends_well();
        }
    });
}

/// After a crash, while the resync is paused, the bits of regions in doubt stay set.
#[test]
fn what_is_in_doubt_keeps_its_bit() {
    for_seeds(2, |seed| {
        for (index, design) in designs(16).into_iter().enumerate() {
            let seed = 4_770_000 + seed * 100 + index as u64;
            let mut story = opened(design, seed);
            let id = story.issue(WRITE, 0, 3);
            story.run_without_time();
            story.world.crash(true);
            story.world.model.unpin();
            let presented: Vec<usize> = (0..usize::from(design.slots)).collect();
            let mut manner = Scene::new(design, seed).manner;
            manner.jobs_paused = true;
            story.forget(id);
            story.world.open_as(&presented, manner);
            let capacity = story.capacity();
            wrote(&mut story, capacity - 2, 2);
            story.pass_time(LONG_MS);
            story.rest();
            assert_eq!(bits(&story, 0), [0], "{design:?}: no write needs the other bit");
        }
    });
}

/// A member fails its bitmap's write. Writes must wait until superblocks record the member as out.
#[test]
fn a_member_that_does_not_take_a_bit_is_out_first() {
    for_seeds(3, |seed| {
        for (index, design) in designs(8).into_iter().enumerate() {
            let seed = 4_760_000 + seed * 100 + index as u64;
            let mut story = opened(design, seed);
            let disk = seed as usize % usize::from(design.slots);
            wrote(&mut story, 0, 3);
            story.befall(disk, Mishap::SuperblocksFail);
            let capacity = story.capacity();
            wrote(&mut story, capacity - 2, 2);
            assert!(story.is_out(disk));
            story.ends_well();
        }
    });
}

/// An operator creates a bitmap with so many sectors for each bit; `None` removes it.
fn changes(story: &mut Script, bit_sectors: Option<u32>) {
    story.world.changes_bitmap(bit_sectors).expect("it can be changed");
}

/// By disk: the sectors for each bit of the bitmap that its superblock names; `None` without one.
fn named(story: &Script) -> Vec<Option<u64>> {
    let of = |disk: usize| {
        let superblock = story.world.superblock_on(disk).expect("it is a member");
        let bitmap = open::bitmap(&story.world.disks[disk], &superblock)?;
        Some(bitmap.expect("a sound one").bits.sectors_each())
    };
    (0..usize::from(story.world.geometry.slots())).map(of).collect()
}

/// Cuts power, and starts the array with all its disks.
fn starts_again(story: &mut Script, jobs_paused: bool) {
    story.release();
    story.world.crash(true);
    story.world.model.unpin();
    let presented: Vec<usize> = (0..story.world.disks.len()).collect();
    let (design, seed) = (story.world.metadata.design, story.random.below(1 << 32));
    let mut manner = Scene::new(design, seed).manner;
    manner.jobs_paused = jobs_paused;
    story.begins_anew();
    story.world.open_as(&presented, manner);
}

/// Bitmaps are created, resized and removed under load. Superblocks record each change, and no
/// client notices.
#[test]
fn a_bitmap_comes_and_goes_while_clients_write() {
    for_seeds(2, |seed| {
        for (index, design) in designs(16).into_iter().enumerate() {
            let seed = 4_780_000 + seed * 100 + index as u64;
            comes_and_goes(design, seed);
            is_cut_off(design, seed);
            made_while_it_is_written(design, seed);
            made_while_in_doubt(design, seed);
            made_while_a_member_is_away(design, seed);
        }
    });
}

fn comes_and_goes(design: Design, seed: u64) {
    let mut scene = Scene::new(design, seed);
    scene.manner.jobs_paused = false;
    let mut story = scene.open();
    for bit_sectors in [None, Some(8), Some(32), Some(32), None, Some(16)] {
        let steps = story.random.below(80);
        story.begin_mix(&Mix::ALL, steps);
        changes(&mut story, bit_sectors);
        assert_eq!(story.world.changes_bitmap(None), Err(BitmapRefusal::Busy), "one at a time");
        story.run(&Mix::ALL);
        story.rest();
        let is_settled = story.world.engine.machines.array.is_bitmap_settled();
        assert!(is_settled, "{design:?}: superblocks say {:?}", named(&story));
        let named = named(&story);
        assert!(named.iter().all(|one| *one == bit_sectors.map(u64::from)), "{named:?}");
    }
    story.pass_time(LONG_MS);
    story.rest();
    assert!(bits(&story, 0).is_empty(), "{design:?}: no client writes there any more");
    check_disks(&mut story);
    story.ends_well();
}

/// Power is cut at any step of a change of the bitmap. The resync then reads the regions of the
/// bitmap that superblocks name, or everything.
fn is_cut_off(design: Design, seed: u64) {
    let mut story = Scene::new(design, seed).open();
    for bit_sectors in [None, Some(8), Some(32)] {
        let steps = story.random.below(60);
        story.begin_mix(&Mix::ALL, steps);
        changes(&mut story, bit_sectors);
        let steps = story.random.below(60);
        story.begin_mix(&Mix::ALL, steps);
        starts_again(&mut story, false);
        story.settle();
        story.rest();
        check_disks(&mut story);
        let is_there = story.world.engine.machines.array.bitmap().is_some();
        if is_there != bit_sectors.is_some() {
            changes(&mut story, bit_sectors);
            story.rest();
        }
    }
    story.ends_well();
}

/// A bitmap is created while earlier writes are in flight, and power is cut. The bits of these
/// writes must be set in the new bitmap.
fn made_while_it_is_written(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    changes(&mut story, None);
    story.rest();
    let disk = seed as usize % usize::from(design.slots);
    let id = story.member(disk);
    story.issue(WRITE, 0, 8);
    story.hold(move |event| matches!(event, Event::Io(vector) if vector.member == id));
    story.run_without_time();
    changes(&mut story, Some(16));
    story.run_without_time();
    assert!(story.world.engine.machines.array.is_bitmap_settled(), "no write delays the change");
    starts_again(&mut story, false);
    story.rest();
    check_disks(&mut story);
    story.ends_well();
}

/// An array without a bitmap was not stopped cleanly. All bits of a bitmap created before the
/// array's resync are set, and the bitmap cannot be removed before the resync ends.
fn made_while_in_doubt(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    changes(&mut story, None);
    story.rest();
    story.begin_mix(&Mix::ALL, 60);
    starts_again(&mut story, true);
    let is_dirty = story.world.standing().is_dirty;
    changes(&mut story, Some(16));
    story.rest();
    if is_dirty {
        let refused = [None, Some(8)].map(|wish| story.world.changes_bitmap(wish));
        assert_eq!(refused, [Err(BitmapRefusal::InDoubt); 2], "{design:?}");
    }
    story.pass_time(LONG_MS);
    story.rest();
    starts_again(&mut story, false);
    story.rest();
    check_disks(&mut story);
    story.ends_well();
}

/// A bitmap is created while a member is away. The bitmap saves that member no recovery, and cannot
/// be removed while the member is away.
fn made_while_a_member_is_away(design: Design, seed: u64) {
    let mut story = opened(design, seed);
    changes(&mut story, None);
    story.rest();
    let disk = seed as usize % usize::from(design.slots);
    goes_and_comes(&mut story, disk, true, |story| {
        wrote(story, 0, 8);
        story.rest();
        changes(story, Some(16));
        story.rest();
        assert_eq!(story.world.changes_bitmap(None), Err(BitmapRefusal::Degraded), "{design:?}");
    });
    assert_eq!(kept_sectors(&story), Some(0), "{design:?}");
    check_disks(&mut story);
    story.ends_well();
}

#[cfg(braid_sim_hooks)]
pub(in super::super) fn tell(seed: u64) {
    let all = designs(16);
    let design = all[seed as usize % all.len()];
    came_back(design, seed);
    came_back_late(design, seed);
    comes_and_goes(design, seed);
    made_while_it_is_written(design, seed);
    made_while_in_doubt(design, seed);
    made_while_a_member_is_away(design, seed);
}
