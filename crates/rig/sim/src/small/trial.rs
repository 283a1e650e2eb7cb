//! Tries one state (what an end can leave on the disks): assembles, starts, reads and checks it.
//!
//! The disks of the trial stay from state to state, and only differing sectors are copied. Assembly
//! decides by the superblocks of the present disks alone. So a checked decision serves every state
//! with the same superblocks. Each state starts the array anew and reads it through the engine.

use std::collections::BTreeMap;
use std::rc::Rc;

use braid_engine::request::RequestId;

use super::doubt::Doubt;
use super::tell::{Stage, new_world};
use crate::chances::Chances;
use crate::content::bytes;
use crate::create::Design;
use crate::cut::Cut;
use crate::disk::Disk;
use crate::random::fold;
use crate::restart::Decision;
use crate::world::World;

const DECISIONS_MAX: usize = 4096;
/// A hash that stands for unknown content, so that the cell is copied.
const UNKNOWN: u64 = u64::MAX;

/// A state: the value of each cell, and the disks that are presented.
pub(super) struct State<'a> {
    pub(super) chosen: &'a [usize],
    pub(super) presented: &'a [usize],
    pub(super) hash: u64,
    /// Only the process ended; disks kept power.
    pub(super) is_kill: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Served,
    Refused,
}

pub(super) struct Trial {
    world: World,
    /// By cell: the hash of its content on the trial's disks.
    held: Vec<u64>,
    decisions: BTreeMap<u64, Rc<Decision>>,
}

impl Trial {
    pub(super) fn new(design: &Design) -> Self {
        let mut world = new_world(design);
        // No job may change the disks between states.
        world.may_have_jobs = false;
        Self { world, held: Vec::new(), decisions: BTreeMap::new() }
    }

    /// Begins another telling (one run of a story): resets the disks.
    pub(super) fn begin(&mut self, stage: &Stage) {
        stage.reset(&mut self.world.disks);
        self.held.clear();
    }

    /// Assembles a state, starts the array, reads it and checks it.
    ///
    /// # Panics
    /// At the first error.
    pub(super) fn check(&mut self, doubt: &Doubt, state: &State<'_>) -> Outcome {
        self.lay_out(doubt, state);
        let world = &mut self.world;
        world.model.clone_from(if state.is_kill { &doubt.killed } else { &doubt.model });
        world.out.clone_from(&doubt.out);
        world.unsure.clone_from(&doubt.unsure);
        world.chances = Chances::new(state.hash, Cut::default());
        world.clock.step = 1;
        world.next_request = RequestId(1);
        let decision = self.decide(doubt, state);
        let Ok(assembled) = &decision.assembly.array else {
            let is_whole = state.presented.len() == self.world.disks.len();
            let is_sound = doubt.out.is_empty() && doubt.unsure.is_empty();
            let verdicts = &decision.assembly.verdicts;
            assert!(!(is_whole && is_sound), "refused although no disk is missing: {verdicts:?}");
            return Outcome::Refused;
        };
        if !self.world.enter(&decision, assembled, false) {
            let again = self.world.open(state.presented, false);
            assert!(again.is_ok(), "a start is refused after a power cut in the last one");
        }
        let content = self.world.read_all();
        assert!(content.is_some(), "a sector is unreadable");
        // The start may have written superblocks, which are the first cells.
        let superblocks = self.world.disks.len();
        self.held[..superblocks].fill(UNKNOWN);
        Outcome::Served
    }

    fn lay_out(&mut self, doubt: &Doubt, state: &State<'_>) {
        self.world.disks.iter_mut().for_each(Disk::settle);
        // A new cell still has its content from before the story, whose hash is zero.
        self.held.resize(doubt.cells.len(), 0);
        for ((cell, held), value) in doubt.cells.iter().zip(&mut self.held).zip(state.chosen) {
            let hash = doubt.values[*value].hash;
            if *held != hash {
                let range = bytes(cell.sector, 1);
                let disk = &mut self.world.disks[cell.disk];
                disk.seen[range].copy_from_slice(doubt.bytes_of(*value));
                *held = hash;
            }
        }
    }

    fn decide(&mut self, doubt: &Doubt, state: &State<'_>) -> Rc<Decision> {
        let add = |hash: u64, disk: &usize| {
            let superblock = doubt.values[state.chosen[*disk]].hash;
            fold(fold(hash, *disk as u64), superblock)
        };
        let key = state.presented.iter().fold(doubt.standing, add);
        if let Some(decision) = self.decisions.get(&key) {
            assert_eq!(decision.presented, state.presented);
            return Rc::clone(decision);
        }
        if self.decisions.len() >= DECISIONS_MAX {
            self.decisions.clear();
        }
        let decision = Rc::new(self.world.decide(state.presented));
        self.decisions.insert(key, Rc::clone(&decision));
        decision
    }
}
