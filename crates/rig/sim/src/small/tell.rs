//! Tells a story: runs it from a new array until the array is clean again, and stops at every step.

use std::collections::BTreeSet;

use braid_assembly::{AssembledArray, ProbedMember};
use braid_engine::Instant;
use braid_engine::request::RequestId;
use braid_geometry::{Family, Slot};

use super::story::{Act, StoryStep, Telling};
use crate::chances::Chances;
use crate::content::SECTOR;
use crate::create::Design;
use crate::cut::Cut;
use crate::cycle::manner;
use crate::disk::{Disk, DiskFaults};
use crate::fault::{Fault, Plan};
use crate::model::Model;
use crate::open;
use crate::schedule::{Event, Order};
use crate::trace::Trace;
use crate::world::{Engine, StepResult, World};

/// More steps than any story takes.
const STEPS_MAX: u64 = 5000;

/// An array as it is before each of its stories.
pub(super) struct Stage {
    pub(super) disks: Vec<Disk>,
    pub(super) losses: Vec<BTreeSet<usize>>,
    /// The places of the superblocks: disk and sector.
    pub(super) superblocks: Vec<(usize, u64)>,
    /// Whether a member may fail while no client sees an error.
    pub(super) tolerates: bool,
    probed: Vec<ProbedMember>,
    assembled: AssembledArray,
}

impl Stage {
    pub(super) fn new(design: &Design) -> Self {
        let world = new_world(design);
        let all: Vec<usize> = (0..world.disks.len()).collect();
        let (probed, assembly) = open::assemble_disks(&world.disks, &all);
        let place = |(disk, member): (usize, &ProbedMember)| {
            let superblock = member.probe.newest().expect("it has one");
            (disk, superblock.offset_bytes() / SECTOR as u64)
        };
        Self {
            superblocks: probed.iter().enumerate().map(place).collect(),
            losses: losses(&world),
            tolerates: design.level.family() != Family::Direct,
            disks: world.disks,
            probed,
            assembled: assembly.array.expect("a new array can be started"),
        }
    }

    pub(super) fn reset(&self, disks: &mut [Disk]) {
        for (disk, first) in disks.iter_mut().zip(&self.disks) {
            disk.settle();
            disk.seen.copy_from_slice(&first.seen);
            disk.bad.clear();
            disk.ills = DiskFaults::default();
        }
    }

    /// Resets a world to the start of a story. `chance` is the seed from which the array's settings
    /// are drawn.
    fn begin(&self, world: &mut World, telling: &Telling, chance: u64) {
        self.reset(&mut world.disks);
        world.out.clear();
        world.unsure.clear();
        world.absent.clear();
        world.chances = Chances::new(chance, Cut::default());
        world.clock.step = 1;
        world.clock.now = Instant(1_000_000_000);
        world.next_request = RequestId(1);
        world.model = Model::new(world.geometry.capacity_sectors());
        let all: Vec<usize> = (0..self.disks.len()).collect();
        let mut manner = manner(&mut world.chances.openings, &world.chances.cut);
        manner.cache.tuning.mode = telling.cache;
        manner.jobs_paused = true;
        let superblocks = open::superblocks(&self.probed, Some(&self.assembled));
        let machines = open::start(&self.assembled, superblocks, &all, manner);
        let order = telling.order(world.geometry.slots());
        world.engine = Engine::new(machines, Order::Fixed(order), world.clock.now);
    }
}

pub(super) fn new_world(design: &Design) -> World {
    World::create(design, Chances::new(1, Cut::default()), Trace::new(false))
}

/// Every set of disks that the level can miss, among them the empty set.
fn losses(world: &World) -> Vec<BTreeSet<usize>> {
    let slots = world.disks.len();
    let set = |bits: u32| (0..slots).filter(|disk| bits >> disk & 1 == 1).collect();
    let sets = (0..1_u32 << slots).map(set);
    sets.filter(|lost: &BTreeSet<usize>| {
        world.geometry.survives(&|slot: Slot| lost.contains(&slot.index()))
    })
    .collect()
}

/// Runs a story. Before each step it calls `show` with the world, and with whether the planned
/// failure is still to come. Returns the acts of the disks.
pub(super) fn tell(
    (stage, world): (&Stage, &mut World),
    (word, chance): (&[StoryStep], u64),
    telling: &Telling,
    show: &mut dyn FnMut(&mut World, bool),
) -> Vec<Act> {
    stage.begin(world, telling, chance);
    let mut acts = Vec::new();
    let mut deeds = word.iter();
    let mut failure = telling.failure;
    for _ in 0..STEPS_MAX {
        while !(telling.is_in_turn && world.engine.clients.in_flight() > 0) {
            let Some(step) = deeds.next() else { break };
            perform(world, *step);
        }
        if let Some((disk, act)) = next_act(world) {
            if let Some(due) = failure.take_if(|due| due.acts == acts.len()) {
                world.engine.plan = Plan { victims: BTreeSet::from([disk]), ..Plan::default() };
                world.befall(Fault { step: 0, ordinal: 1, disk, mishap: due.mishap });
            }
            acts.push(act);
        }
        show(world, failure.is_some());
        if world.step(false) == StepResult::Nothing {
            assert!(world.engine.clients.in_flight() == 0 && deeds.next().is_none(), "a hang");
            assert!(failure.is_none(), "the planned failure did not happen");
            return acts;
        }
    }
    panic!("the story does not end");
}

fn perform(world: &mut World, step: StoryStep) {
    match step {
        StoryStep::Flush => {
            world.flush();
        }
        StoryStep::Ask(operation, shape) => {
            let (start, sectors) = shape.range(world.geometry.capacity_sectors());
            world.issue(operation, start, sectors);
        }
    }
}

fn next_act(world: &World) -> Option<(usize, Act)> {
    let event = world.next_event()?;
    let disk = world.disk_index(event.waits_for()?);
    let act = match event {
        Event::Io(vector) if vector.parts.iter().any(|(_, io)| io.operation.is_write()) => {
            Act::Write
        }
        Event::Superblock { .. } => Act::Superblock,
        Event::Flush { .. } => Act::Flush,
        _ => Act::Read,
    };
    Some((disk, act))
}
