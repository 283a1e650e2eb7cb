//! Small worlds, exhaustively: every crash point, every subset of what was in flight, every loss.
//!
//! ```text
//!   for each family, two chunk rows;  for each workload of one or two writes;
//!   for each step of the plain schedule, from the first write to "clean" again:
//!      for each subset of {unflushed writes, writes and superblocks under way} that is on disk:
//!         for each set of members that the level can miss at restart:   assemble, check, read all
//! ```
//!
//! A write is there or not as a whole; tearing within one is for the random worlds. Points with more
//! than [`ITEMS_MAX`] writes in doubt are cut down to the subsets that miss or hold at most one of
//! them, and counted.

use std::collections::BTreeSet;

use braid_engine::request::Operation;
use braid_geometry::{Family, Level, Slot, default_layout};
use braid_ondisk::Version;

use crate::chances::Chances;
use crate::content::SECTOR;
use crate::create::Design;
use crate::cut::Cut;
use crate::disk::Disk;
use crate::model::Model;
use crate::schedule::{Event, Order};
use crate::trace::Trace;
use crate::world::{Did, World};

/// Writes in doubt up to which every subset is tried: 256 of them.
const ITEMS_MAX: usize = 8;
/// Sectors of a chunk.
const CHUNK: u64 = 8;

/// What was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Array and workload.
    pub stories: u64,
    /// Steps at which power was cut.
    pub crash_points: u64,
    /// Crash point, subset and loss: each assembled and checked.
    pub states: u64,
    /// States that were rightly refused.
    pub refused: u64,
    /// Crash points whose subsets were cut down.
    pub cut_down: u64,
}

/// A write in doubt: disk, sector, bytes.
struct Item {
    disk: usize,
    start: u64,
    data: Vec<u8>,
}

/// What a power cut may leave.
struct Doubt {
    stable: Vec<Disk>,
    items: Vec<Item>,
    model: Model,
}

fn families() -> Vec<Design> {
    let of = |level, layout, slots| Design {
        level,
        layout,
        slots,
        chunk_sectors: CHUNK as u32,
        rows: 2,
        version: Version::V1_2,
    };
    let plain = |level, slots| of(level, default_layout(level), slots);
    vec![
        plain(Level::Raid1, 2),
        plain(Level::Raid5, 3),
        plain(Level::Raid4, 3),
        plain(Level::Raid6, 4),
        of(Level::Raid10, 2 | 1 << 8, 3),
        of(Level::Raid10, 1 | 2 << 8, 3),
        plain(Level::Raid0, 2),
        plain(Level::Linear, 2),
    ]
}

/// Workloads: one or two writes each, as start and length in sectors.
fn workloads(capacity: u64) -> Vec<Vec<(u64, u64)>> {
    let row = capacity / 2;
    vec![
        vec![(0, 1)],
        vec![(0, CHUNK)],
        vec![(CHUNK - 2, 4)],
        vec![(0, row)],
        vec![(0, 1), (0, 2)],
        vec![(1, 2), (row, 1)],
        vec![(0, 1), (CHUNK, 1)],
    ]
}

/// Explores every story to its end, or, with `states_max`, until the story has that many states.
///
/// # Panics
/// At the first state that is wrong.
#[must_use]
pub fn explore(states_max: u64) -> Explored {
    let mut explored = Explored::default();
    for design in families() {
        let capacity = open(&design).geometry.capacity_sectors();
        for writes in workloads(capacity) {
            explored.stories += 1;
            let mut steps = 0;
            let enough = explored.states.saturating_add(states_max);
            while cut_after(&design, &writes, steps, &mut explored) {
                steps += 1;
                if explored.states >= enough {
                    break;
                }
            }
        }
    }
    explored
}

fn open(design: &Design) -> World {
    let mut world = World::create(design, Chances::new(1, Cut::default()), Trace::new(false));
    world.engine.order = Order::Plain;
    world
}

/// Plays the story for so many steps and tries everything that a power cut may leave. False when
/// the story is over before.
fn cut_after(design: &Design, writes: &[(u64, u64)], steps: u64, explored: &mut Explored) -> bool {
    let mut world = open(design);
    for (start, sectors) in writes {
        world.issue(Operation::Write { durable: false }, *start, *sectors);
    }
    for _ in 0..steps {
        if world.step(false) == Did::Nothing {
            return false;
        }
    }
    explored.crash_points += 1;
    let doubt = doubt(&mut world);
    for subset in subsets(doubt.items.len(), explored) {
        for lost in losses(&world) {
            try_state(&mut world, &doubt, &subset, &lost, explored);
        }
    }
    true
}

fn doubt(world: &mut World) -> Doubt {
    let mut items = Vec::new();
    let mut stable = Vec::new();
    for (index, disk) in world.disks.iter().enumerate() {
        let (bytes, unflushed) = disk.unflushed();
        let mut calm = Disk::new(0);
        calm.seen = bytes;
        stable.push(calm);
        items.extend(unflushed.into_iter().map(|one| Item {
            disk: index,
            start: one.start,
            data: one.data,
        }));
    }
    for event in world.engine.pending.drain() {
        match event {
            Event::Io(vector) => {
                for (shard, io) in vector.parts {
                    if io.operation.is_write() {
                        let (disk, start) = world.place_of(&io);
                        let (data, _) = world.bytes_to_write(shard, &io);
                        items.push(Item { disk, start, data });
                    }
                }
            }
            Event::Superblock { member, state } => {
                let side = &mut world.engine.machines.members[usize::from(member.0)];
                let (start, data) = side.superblock_for(member, &state);
                items.push(Item { disk: side.disk, start, data });
            }
            _ => {}
        }
    }
    let mut model = world.model.clone();
    model.lose_clients(world.clock.step);
    model.lose_power(true);
    Doubt { stable, items, model }
}

/// Which items are on disk: all subsets, or, with too many, those that miss or hold at most one.
fn subsets(items: usize, explored: &mut Explored) -> Vec<Vec<bool>> {
    if items <= ITEMS_MAX {
        let bits = |number: u32| (0..items).map(|item| number >> item & 1 == 1).collect();
        return (0..1 << items).map(bits).collect();
    }
    explored.cut_down += 1;
    let but_one = |all: bool, one: usize| (0..items).map(|item| all != (item == one)).collect();
    (0..=items).flat_map(|one| [but_one(true, one), but_one(false, one)]).collect()
}

/// Every set of disks that the level can miss, none included.
fn losses(world: &World) -> Vec<BTreeSet<usize>> {
    let slots = world.disks.len();
    let set = |bits: u32| (0..slots).filter(|disk| bits >> disk & 1 == 1).collect();
    let sets = (0..1_u32 << slots).map(set);
    sets.filter(|lost: &BTreeSet<usize>| {
        world.geometry.survives(&|slot: Slot| lost.contains(&slot.index()))
    })
    .collect()
}

fn try_state(
    world: &mut World,
    doubt: &Doubt,
    subset: &[bool],
    lost: &BTreeSet<usize>,
    explored: &mut Explored,
) {
    explored.states += 1;
    world.disks.clone_from(&doubt.stable);
    for (item, _) in doubt.items.iter().zip(subset).filter(|(_, is_there)| **is_there) {
        let sectors = (item.data.len() / SECTOR) as u64;
        let range = crate::content::bytes(item.start, sectors);
        world.disks[item.disk].seen[range].copy_from_slice(&item.data);
    }
    world.model.clone_from(&doubt.model);
    world.out.clear();
    world.unsure.clear();
    let presented: Vec<usize> =
        (0..world.disks.len()).filter(|disk| !lost.contains(disk)).collect();
    if world.open(&presented, false).is_err() {
        // The checker of verdicts has seen the reason: a write hole, and nothing else.
        let is_stripe = world.geometry.level().family() == Family::Stripe;
        assert!(is_stripe && !lost.is_empty(), "refused without a loss");
        explored.refused += 1;
        return;
    }
    let content = world.read_all();
    assert!(content.is_some(), "a sector cannot be read");
}
