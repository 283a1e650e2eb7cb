//! Stories of disks that lie, one in each test, and tests that the checkers notice each lie.
//!
//! A story uses the same functions as the random worlds: a fault hits a disk, clients write and
//! read, the array is stopped and started.

use std::collections::BTreeSet;

use braid_assembly::Refusal;
use braid_engine::request::Operation;
use braid_geometry::{Level, Slot, default_layout};
use braid_ondisk::Version;

use crate::chances::Chances;
use crate::checker::redundancy::{Areas, agrees};
use crate::content::{SECTOR, bytes};
use crate::create::{Design, designs, smallest};
use crate::cut::Cut;
use crate::fault::{Fault, Mishap};
use crate::lie_overlay::Fate;
use crate::taint::{columns, strip};
use crate::trace::Trace;
use crate::world::World;

/// The sector of a disk where its data area begins, in arrays of version 1.2.
const DATA: u64 = 40;

fn world_of(design: &Design) -> World {
    let cut = Cut { write_through: true, ..Cut::default() };
    let mut world = World::create(design, Chances::new(1, cut), Trace::new(false));
    world.taint.may_lie = true;
    world
}

fn raid5() -> World {
    world_of(&smallest())
}

fn mirror() -> World {
    let level = Level::Raid1;
    world_of(&Design { level, layout: default_layout(level), slots: 2, ..smallest() })
}

fn befall(world: &mut World, disk: usize, mishap: Mishap) {
    world.befall(Fault { step: 0, disk, mishap, ordinal: 0 });
}

fn write(world: &mut World, start: u64, sectors: u64) {
    world.issue(Operation::Write { durable: false }, start, sectors);
    world.settle();
}

/// Stops the array and starts it again with all disks.
fn restart(world: &mut World) {
    world.flush();
    world.settle();
    world.stop();
    world.disks.iter_mut().for_each(|disk| disk.ills = crate::disk::DiskFaults::default());
    open(world);
}

fn open(world: &mut World) {
    let all: Vec<usize> = (0..world.disks.len()).collect();
    assert!(world.open(&all, false).is_ok(), "all disks are there");
}

/// The disk that holds a sector of the array, and the sector of that disk.
fn place(world: &World, logical: u64) -> (usize, u64) {
    let (slot, sector) = crate::content::places(&world.geometry, logical)[0];
    (slot.index(), DATA + sector.0)
}

fn rot(world: &mut World, logical: u64) -> (usize, u64) {
    let (disk, start) = place(world, logical);
    befall(world, disk, Mishap::Rots { start, sectors: 1, seed: 9 });
    assert!(world.disks[disk].lies.is_tainted(start..start + 1));
    (disk, start)
}

/// Changes a byte on a disk without the knowledge of engine and model.
fn spoil(world: &mut World, logical: u64) {
    let (disk, sector) = place(world, logical);
    world.disks[disk].seen[bytes(sector, 1)][100] ^= 1;
}

#[test]
#[should_panic(expected = "reads as nothing that was ever written there")]
fn a_lie_that_nobody_knows_of_is_noticed() {
    let mut world = raid5();
    spoil(&mut world, 5);
    world.read_all();
}

#[test]
#[should_panic(expected = "sector 24 reads as nothing that was ever written there")]
fn a_wrong_sector_of_another_strip_is_noticed() {
    let mut world = raid5();
    rot(&mut world, 5);
    spoil(&mut world, 24);
    world.read_all();
}

/// Sector 0 is tainted. Sector 8 is in the next column, at the same offset, and is wrong without a
/// lie.
#[test]
#[should_panic(expected = "sector 8 reads as nothing that was ever written there")]
fn a_wrong_sector_beside_a_tainted_one_is_noticed_if_it_was_read_and_not_computed() {
    let mut world = raid5();
    rot(&mut world, 0);
    spoil(&mut world, 8);
    world.read_all();
}

#[test]
#[should_panic(expected = "the array is clean and parity of ChunkRow(1)")]
fn parity_that_rots_unknown_beside_a_lie_in_another_row_is_noticed() {
    let mut world = raid5();
    rot(&mut world, 0);
    let geometry = world.geometry.clone();
    let braid_geometry::Geometry::Stripe(stripe) = &geometry else { unreachable!() };
    let p = stripe.row_map(braid_geometry::ChunkRow(1)).p_slot();
    world.disks[p.index()].seen[bytes(DATA + 8, 1)][0] ^= 1;
    open(&mut world);
}

/// Flips a bit of one column in every strip of every array. The check must report every such strip,
/// since parity fits only honest bytes.
#[test]
fn every_single_tainted_column_is_found() {
    let mut found = 0;
    for design in designs(2, 8, Version::V1_2) {
        let mut world = world_of(&design);
        if design.level == Level::Raid0 || design.level == Level::Linear {
            continue;
        }
        for slot in 0..design.slots {
            let sectors = world.geometry.used_sectors(Slot(slot)).min(32);
            for sector in 0..sectors {
                let Some(strip) = strip(&world.geometry, Slot(slot), sector) else { continue };
                world.disks[usize::from(slot)].rot(DATA + sector, sector, true);
                let slots = vec![DATA; usize::from(design.slots)];
                let slots: Vec<_> = slots.into_iter().enumerate().map(Some).collect();
                let areas = |is_honest| Areas {
                    disks: &world.disks,
                    slots: slots.clone(),
                    promised: Vec::new(),
                    logged: Vec::new(),
                    is_honest,
                };
                assert_eq!(
                    agrees(&world.geometry, &areas(false), strip),
                    Some(false),
                    "{design:?}"
                );
                assert_eq!(agrees(&world.geometry, &areas(true), strip), Some(true), "{design:?}");
                world.disks[usize::from(slot)].heal(DATA + sector..DATA + sector + 1);
                assert_eq!(agrees(&world.geometry, &areas_of(&world), strip), Some(true));
                assert!(columns(&world.geometry, strip).len() > 1);
                found += 1;
            }
        }
    }
    assert!(found > 1500, "{found}");
}

fn areas_of(world: &World) -> Areas<'_> {
    let slots = (0..world.disks.len()).map(|disk| Some((disk, DATA))).collect();
    Areas { disks: &world.disks, slots, promised: Vec::new(), logged: Vec::new(), is_honest: false }
}

#[test]
fn rot_is_served_found_offline_and_healed_by_the_next_write() {
    let mut world = raid5();
    rot(&mut world, 5);
    world.read_all();
    assert_eq!(world.tally.of("wrong-sectors-served"), 1);
    open(&mut world);
    assert_eq!((world.tally.of("tainted-alone"), world.tally.of("tainted-found")), (1, 1));
    write(&mut world, 5, 1);
    assert_eq!(world.tally.of("sectors-healed"), 1);
    world.read_all();
    assert_eq!(world.tally.of("wrong-sectors-served"), 1, "it reads well again");
    restart(&mut world);
    open(&mut world);
    assert!(world.taint.is_calm() || world.taint.doubtful.len() == 1, "rmw may keep parity wrong");
}

/// A column rots, and another column of its row is lost. The computed data is wrong in the rotten
/// column's strip and nowhere else.
#[test]
fn what_is_computed_from_a_rotten_column_is_wrong_in_its_strip_only() {
    let mut world = raid5();
    rot(&mut world, 0);
    restart(&mut world);
    let (lost, _) = place(&world, 8);
    let rest: Vec<usize> = (0..4).filter(|disk| *disk != lost).collect();
    assert!(world.open(&rest, false).is_ok());
    world.read_all();
    assert_eq!(world.tally.of("wrong-sectors-served"), 2, "sectors 0 and 8, no other");
}

#[test]
fn a_wrong_sector_that_was_rebuilt_stays_wrong_until_it_is_written() {
    let mut world = raid5();
    rot(&mut world, 0);
    let content = world.read_all().expect("nothing fails");
    world.rebuild(&content);
    assert_eq!(world.taint.polluted, BTreeSet::from([0]));
    assert!(world.taint.doubtful.is_empty(), "parity fits what was read");
    assert_eq!(world.tally.of("sectors-rebuilt-wrong"), 1);
    world.read_all();
    assert_eq!(world.tally.of("wrong-sectors-served"), 2);
    write(&mut world, 0, 1);
    restart(&mut world);
    world.read_all();
    assert_eq!(world.tally.of("wrong-sectors-served"), 2);
    assert!(world.taint.is_calm());
}

#[test]
fn a_lost_write_leaves_the_old_bytes_and_is_found() {
    let mut world = mirror();
    befall(&mut world, 1, Mishap::LosesWrite { about_superblock: false });
    write(&mut world, 3, 2);
    assert_eq!(world.tally.of("write-lost"), 1);
    restart(&mut world);
    assert_eq!((world.tally.of("tainted-alone"), world.tally.of("tainted-found")), (2, 2));
    assert_eq!(world.taint.doubtful, BTreeSet::from([3, 4]));
}

#[test]
fn a_misdirected_write_spoils_two_places_and_no_third() {
    let mut world = raid5();
    let (disk, start) = place(&world, 0);
    let to = DATA + 16;
    befall(&mut world, disk, Mishap::Misdirects { about_superblock: false, to });
    write(&mut world, 0, 1);
    assert_eq!(world.tally.of("write-astray"), 1);
    let tainted: Vec<u64> = world.disks[disk].lies.tainted().collect();
    assert_eq!(tainted, [start, to]);
    restart(&mut world);
    assert_eq!((world.tally.of("tainted-alone"), world.tally.of("tainted-found")), (2, 2));
    world.read_all();
    assert!(world.tally.of("wrong-sectors-served") >= 1);
}

#[test]
fn a_false_flush_loses_what_was_written_since_the_true_one_and_nothing_else() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut world =
            World::create(&smallest(), Chances::new(seed, Cut::default()), Trace::new(false));
        world.taint.may_lie = true;
        write(&mut world, 48, 4);
        world.flush();
        world.settle();
        let (liar, _) = place(&world, 0);
        befall(&mut world, liar, Mishap::FlushesLie);
        write(&mut world, 0, 4);
        restart(&mut world);
        let rows: BTreeSet<u64> = world.taint.doubtful.iter().map(|strip| strip / 8).collect();
        assert!(rows.is_empty() || rows == BTreeSet::from([0]), "{rows:?}");
        lost += world.tally.of("tainted-alone");
        assert_eq!(world.tally.of("tainted-found"), world.tally.of("tainted-alone"));
        world.read_all();
    }
    assert!(lost > 0);
}

#[test]
#[should_panic(expected = "which no client had written")]
fn a_loss_in_a_row_that_nobody_wrote_is_noticed() {
    let mut world = raid5();
    let (liar, start) = place(&world, 0);
    befall(&mut world, liar, Mishap::FlushesLie);
    world.disks[liar].put(start, &[1; SECTOR], true);
    for seed in 0..20 {
        world.disks[liar].clone().lose_power(&mut crate::random::Random::new(seed));
    }
    (0..20).for_each(|seed| {
        world.disks[liar].lose_power(&mut crate::random::Random::new(seed));
        world.check_confined(liar);
        world.disks[liar].put(start, &[seed as u8 + 2; SECTOR], true);
    });
}

/// Seed 2415: a disk loses a write, and later a misplaced write happens to make the sector right. A
/// power cut undoes the misplaced write. That is no new loss in a row without writes, because the
/// sector was lost before.
#[test]
fn a_lie_that_a_power_cut_brings_back_is_no_new_loss() {
    let mut brought_back = 0;
    for seed in 0..20 {
        let mut world = raid5();
        let (liar, start) = place(&world, 0);
        assert!(world.disks[liar].put_falsely(Fate::Lost, (start, &[7; SECTOR]), true));
        world.hear_of_lies(liar);
        let (away, disk) = (start + 16, &mut world.disks[liar]);
        assert!(disk.put_falsely(Fate::Astray(start), (away, &[7; SECTOR]), false));
        assert!(!disk.lies.is_tainted(start..start + 1), "healed by chance");
        world.hear_of_lies(liar);
        world.disks[liar].lose_power(&mut crate::random::Random::new(seed));
        world.check_confined(liar);
        world.hear_of_lies(liar);
        brought_back += world.tally.of("sectors-tainted-by-power-cut");
    }
    assert!(brought_back > 0);
}

/// Seed 7011433: a disk loses a write, and a power cut undoes the write before it. An honest disk
/// could have lost both, so the sector is no longer tainted. A read that began before the cut
/// returned the wrong bytes, and the checker compared them with the honest bytes.
#[test]
fn what_was_read_before_a_power_cut_took_a_lie_back_may_be_wrong() {
    let mut taken_back = 0;
    for seed in 0..20 {
        let design = Design { level: Level::Raid1, layout: 0, slots: 2, ..smallest() };
        let mut world =
            World::create(&design, Chances::new(seed, Cut::default()), Trace::new(false));
        world.taint.may_lie = true;
        write(&mut world, 0, 1);
        befall(&mut world, 1, Mishap::LosesWrite { about_superblock: false });
        write(&mut world, 0, 1);
        let began = world.clock.step;
        assert!(world.may_be_wrong(0, began));
        befall(&mut world, 1, Mishap::PowerCut);
        assert!(world.may_be_wrong(0, began), "seed {seed}");
        taken_back += world.tally.of("sectors-untainted-by-power-cut");
    }
    assert!(taken_back > 0);
}

#[test]
fn a_rotten_superblock_is_seen_and_its_disk_is_left_out() {
    for seed in 0..200 {
        let mut world = raid5();
        let start = world.taint.superblock.start;
        befall(&mut world, 2, Mishap::Rots { start, sectors: 1, seed });
        let before = world.tally.of("superblock-unreadable");
        open(&mut world);
        let is_in = world.taint.occupants[2].is_some();
        let is_unreadable = world.tally.of("superblock-unreadable") > before;
        // Rot has no effect after the table of roles, or in timestamps, which no checksum covers.
        assert!(is_in != is_unreadable, "seed {seed}");
        world.read_all();
        assert_eq!(world.tally.of("wrong-sectors-served"), 0);
    }
}

/// Disk 1 loses the superblock that says dirty. Its old superblock must not count as newer, and
/// must not let another member in.
#[test]
fn a_lost_superblock_makes_nobody_newer() {
    let mut stale = 0;
    for seed in 0..20 {
        let mut world =
            World::create(&smallest(), Chances::new(seed, Cut::default()), Trace::new(false));
        world.taint.may_lie = true;
        befall(&mut world, 1, Mishap::LosesWrite { about_superblock: true });
        world.issue(Operation::Write { durable: false }, 0, 1);
        while !world.engine.clients.flights.is_empty() {
            world.step(false);
        }
        assert_eq!(world.tally.of("superblock-lost"), 1);
        // If time passed, a later superblock may have reached the disk, which ends the lie.
        let is_stale = world.is_superblock_tainted(1);
        stale += u64::from(is_stale);
        world.crash(false);
        let opened = world.open(&[0, 1, 2, 3], false);
        if is_stale && matches!(opened, Err(Refusal::DirtyAndDegraded(_))) {
            // The other disks have written their superblocks again, so disk 1 is two updates behind
            // and stale.
            continue;
        }
        assert!(opened.is_ok(), "all disks are there");
        // After the start an acknowledged write from the cache file may have been written back, and
        // the array turned clean.
        let is_written = world.tally.of("cached-write-written-back") > 0;
        let is_dirty = world.standing().is_dirty || is_written;
        assert!(!is_stale || is_dirty, "the others know better");
        world.read_all();
        assert_eq!(world.tally.of("wrong-sectors-served"), 0);
    }
    assert!(stale > 0);
}

/// A superblock is misplaced to where version 1.1 has its superblock. Assembly must not believe it,
/// because it names another place as its own.
#[test]
fn a_superblock_that_landed_elsewhere_is_not_believed_there() {
    let mut world = raid5();
    befall(&mut world, 1, Mishap::Misdirects { about_superblock: true, to: 0 });
    write(&mut world, 0, 1);
    assert_eq!(world.tally.of("superblock-astray"), 1);
    assert_eq!(world.disks[1].seen[..4], 0xa92b_4efc_u32.to_le_bytes(), "it is there");
    world.crash(false);
    open(&mut world);
    assert!(world.taint.occupants[1].is_some(), "its own place has the one before");
    world.read_all();
    assert_eq!(world.tally.of("wrong-sectors-served"), 0);
}

#[test]
fn data_that_lands_on_a_superblock_costs_the_member_and_nothing_else() {
    let mut world = raid5();
    let (disk, start) = place(&world, 0);
    let to = world.taint.superblock.start;
    let data = [7; SECTOR];
    assert!(world.disks[disk].put_falsely(Fate::Astray(to), (start, &data), true));
    world.hear_of_lies(disk);
    open(&mut world);
    assert_eq!(world.taint.occupants[disk], None);
    assert_eq!(world.tally.of("superblock-unreadable"), 1);
}

#[test]
fn a_slow_member_stays_and_everything_is_answered() {
    let mut world = mirror();
    befall(&mut world, 1, Mishap::Slow { milliseconds: 400 });
    let before = world.clock.now.0;
    write(&mut world, 0, 8);
    world.flush();
    world.settle();
    assert!(world.clock.now.0 - before >= 400_000_000, "it was slow");
    assert_eq!(world.tally.of("member-out"), 0);
}
