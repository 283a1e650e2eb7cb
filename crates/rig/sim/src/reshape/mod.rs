//! Reshape: one array changes its shape while clients read and write it, in virtual time, on disks
//! that crash, tear and die.
//!
//! Where it stands: a small world of its own, with the shipped machines, superblocks and assembly,
//! and the simulator's disks, memory and model. [`explore`] runs a random life, and
//! [`explore_crashes`] repeats one small life with a crash before every effect at a disk.
//!
//! Arrays here have no parity logs.
//!
//! ```text
//!   seed ─▶ kinds, plan ─▶ life ── open, serve, crash ──▶ disks compared with the content's image
//!                            └─▶ world ── machines, one effect at a time
//!                                  └─▶ clients ── border, requests, pieces; model
//! ```
//!
//! # Invariants
//! - Clients read what they wrote, and a flush keeps it, through any life of a reshape
//!   [check: arrays_that_change_their_shape_keep_what_clients_wrote]
//!   [check: a_raid0_that_changes_its_shape_keeps_what_clients_wrote]
//!   [check: a_raid10_that_changes_its_shape_keeps_what_clients_wrote].
//! - Clients read what they wrote after a crash before any effect, too
//!   [check: a_reshape_survives_a_crash_before_any_effect].

mod clients;
mod copy_file;
mod kinds;
mod life;
mod plan;
mod requests;
mod strip;
#[cfg(test)]
mod tests;
mod window_copy;
mod world;

use std::panic::{catch_unwind, resume_unwind};

use crate::random::{Random, mix};
use crate::tally::Tally;
use kinds::Change;
use plan::{CrashKind, LateEffect, Plan};
use world::World;

/// Power cuts before each effect, each with other losses.
const POWER_CUTS: u64 = 3;

/// The family of arrays whose lives are simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeFamily {
    /// Arrays with parity, take-overs included.
    Parity,
    /// RAID-0, which moves its data as a RAID-4 without parity.
    Striped,
    /// RAID-10.
    Copied,
}

/// The change of shape and the plan of a seed.
fn drawn(family: ShapeFamily, seed: u64) -> (Change, Plan) {
    match family {
        ShapeFamily::Parity => {
            let mut random = Random::new(mix(seed ^ 0x7e5a));
            let change = match random.below(10) {
                0 => Change::any_take_over(&mut random),
                1 => Change::any_larger(&mut random),
                _ => Change::any(&mut random),
            };
            let plan = Plan::any(&change, &mut random);
            (change, plan)
        }
        ShapeFamily::Striped => {
            let mut random = Random::new(mix(seed ^ 0x57a1));
            let change = Change::any_striped(&mut random);
            let plan = Plan::any_striped(&change, &mut random);
            (change, plan)
        }
        ShapeFamily::Copied => {
            let mut random = Random::new(mix(seed ^ 0x10c0));
            let change = Change::any_copied(&mut random);
            let plan = Plan::any(&change, &mut random);
            (change, plan)
        }
    }
}

/// The change of shape and the plan of a seed, in words.
#[must_use]
pub fn describe(family: ShapeFamily, seed: u64) -> String {
    let (change, plan) = drawn(family, seed);
    format!("{change:?}\n{plan:?}")
}

/// Runs the life of one array.
///
/// # Panics
/// At the first error, with a description.
#[must_use]
pub fn explore(family: ShapeFamily, seed: u64) -> Tally {
    let (change, plan) = drawn(family, seed);
    let mut world = World::new(change, plan, seed);
    world.live();
    world.tally
}

/// Repeats a life of the smallest array, each time with a crash before another effect at a disk: a
/// kill, and power cuts. Returns the sum of all lives; `(part, parts)` runs one of so many shares.
///
/// # Panics
/// At the first error, with a description.
#[must_use]
pub fn explore_crashes(seed: u64, (part, parts): (u64, u64)) -> Tally {
    let (change, plan) = smallest(seed);
    let mut world = World::new(change, plan, seed);
    world.live();
    let mut total = world.tally;
    let crashes = (1..=world.effects).filter(|at| at % parts == part);
    crashes.for_each(|at| total.add(&crash_before((seed, smallest), at, POWER_CUTS)));
    total
}

/// A change of shape and a plan, from a seed.
type Story = fn(u64) -> (Change, Plan);

/// Repeats lives as [`explore_crashes`] does, with crashes before writes of superblocks only, and
/// fewer power cuts. Repeats the smallest array's life, and a life with lost sectors.
///
/// # Panics
/// At the first error, with a description.
#[must_use]
pub fn explore_torn(seed: u64) -> Tally {
    let mut total = explore_torn_updates(seed, smallest);
    total.add(&explore_torn_updates(seed, with_lost));
    total
}

fn explore_torn_updates(seed: u64, story: Story) -> Tally {
    let (change, plan) = story(seed);
    let mut world = World::new(change, plan, seed);
    world.live();
    let mut total = world.tally;
    world.superblock_effects.iter().for_each(|at| total.add(&crash_before((seed, story), *at, 1)));
    total
}

/// The smallest array, and a life without a crash.
fn smallest(seed: u64) -> (Change, Plan) {
    let turns = if seed % 4 < 2 { Vec::new() } else { vec![72] };
    let (writes_back, late) = (seed % 3 == 2, (seed % 8 >= 4).then_some(LateEffect::Superblock));
    let plan = Plan { turns, writes_back, late, clients: 4, ..Plan::quiet() };
    let is_long = seed % 2 == 1;
    let is_shrink = seed % 16 >= 8;
    let smallest = if is_shrink { Change::smallest_shrink } else { Change::smallest };
    (smallest(is_long), plan)
}

/// A small array's life with a crash before an effect: a kill, and some power cuts.
fn crash_before((seed, story): (u64, Story), at: u64, power_cuts: u64) -> Tally {
    let mut total = Tally::default();
    for (kind, times) in [(CrashKind::Kill, 1), (CrashKind::PowerCut, power_cuts)] {
        for time in 0..times {
            let (change, plan) = story(seed);
            let plan = Plan { crashes: vec![(at, kind)], ..plan };
            let life = catch_unwind(|| {
                let mut world = World::new(change, plan, seed);
                world.fate = Random::new(mix(seed ^ at << 8 ^ time << 40));
                world.live();
                world.tally
            });
            total.count("crash-points");
            match life {
                Ok(tally) => total.add(&tally),
                Err(error) => {
                    eprintln!("life {seed}, {kind:?} {time} before effect {at}");
                    resume_unwind(error);
                }
            }
        }
    }
    total
}

/// A life in which a disk cannot read many sectors, and disks delay most writes in the old shape. A
/// late repair in that shape would meet sectors of the new one.
fn explore_unreadable(seed: u64) {
    let size = Change::smallest(false).geometry_before().capacity_sectors();
    let unreadable = (0..size).filter(|at| mix(at ^ seed << 32).is_multiple_of(3)).collect();
    let plan = Plan { unreadable, delayed_percent: 70, clients: 0, ..Plan::quiet() };
    World::new(Change::smallest(false), plan, seed).live();
}

/// A life in which sectors of one disk cannot be read, and a crash leaves all parity in doubt. The
/// crash comes later with every fourth `number`.
fn explore_doubted(number: u64) {
    let (life, crash_at) = (number % 4, 100 + number / 4 * 10);
    let size = Change::smallest(false).geometry_before().capacity_sectors();
    let unreadable = (size / 2..size).filter(|at| mix(at ^ life << 32).is_multiple_of(9)).collect();
    let crashes = vec![(crash_at + life, CrashKind::Kill)];
    let plan = Plan { unreadable, crashes, ..Plan::quiet() };
    World::new(Change::smallest(false), plan, life).live();
}

/// Runs lives that notice most planted bugs of a reshape.
///
/// # Panics
/// At the first error.
pub fn tell() {
    (0..80).for_each(|seed| _ = explore(ShapeFamily::Parity, seed));
}

/// Runs lives that notice the planted bugs which few lives meet.
///
/// # Panics
/// At the first error.
pub fn tell_of_rare() {
    (80..400).for_each(|seed| _ = explore(ShapeFamily::Parity, seed));
}

/// Runs lives in which sectors are on no disk, cannot be read, or are in doubt.
///
/// # Panics
/// At the first error.
pub fn tell_of_lost() {
    (0..12).for_each(|seed| _ = explore_lost(seed));
    (0..40).for_each(|seed| _ = explore_late_names(seed));
    (0..8).for_each(explore_unreadable);
    (0..40).for_each(explore_doubted);
    (0..4).for_each(|seed| _ = explore_lost_copies(seed));
}

/// Runs lives with a crash before each write of a superblock. Each is repeated a hundred times, so
/// only lives that notice a planted bug are here; `braid-sim reshape --torn` runs others.
///
/// # Panics
/// At the first error.
pub fn tell_of_torn_updates() {
    let _ = explore_torn_updates(1, with_lost);
    let _ = explore_torn_updates(2, smallest);
}

/// A life in which sectors of some strips are on no disk.
#[must_use]
pub fn explore_lost(seed: u64) -> Tally {
    let (change, plan) = with_lost(seed);
    let mut world = World::new(change, plan, seed);
    world.live();
    world.tally
}

/// A life of many clients in which many sectors are on no disk, and shards learn late which.
fn explore_late_names(seed: u64) -> Tally {
    let change = Change::smallest(false);
    let lost = (0..change.size()).filter(|at| mix(at ^ seed << 32).is_multiple_of(16)).collect();
    let late = Some(LateEffect::Letter);
    let plan = Plan { lost, clients: 6, late, window_sectors: 48, ..Plan::quiet() };
    let mut world = World::new(change, plan, seed);
    world.live();
    world.tally
}

/// A life of a small RAID-10 in which some sectors have no readable copy.
fn explore_lost_copies(seed: u64) -> Tally {
    let change = Change::smallest_copied();
    let lost = (0..1 + seed % 3).map(|index| mix(seed << 8 ^ index) % change.size()).collect();
    let plan = Plan { lost, clients: 3 * (seed % 2) as usize, window_sectors: 48, ..Plan::quiet() };
    let mut world = World::new(change, plan, seed);
    world.live();
    world.tally
}

/// The smallest array, and a life in which sectors of some strips are on no disk.
fn with_lost(seed: u64) -> (Change, Plan) {
    let size = Change::smallest(false).size();
    let lost = (0..1 + seed % 3).map(|index| mix(seed << 8 ^ index) % size).collect();
    let clients = if seed.is_multiple_of(2) { 0 } else { 3 };
    let turns = if seed % 5 == 4 { vec![72] } else { Vec::new() };
    let late = seed.is_multiple_of(3).then_some(LateEffect::Letter);
    let plan = Plan { lost, clients, turns, late, window_sectors: 48, ..Plan::quiet() };
    (Change::smallest(seed % 4 >= 2), plan)
}
