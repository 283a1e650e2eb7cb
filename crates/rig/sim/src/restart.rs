//! From presented disks to a running array: assemble, check the decision, flush, level, start.
//!
//! *Levelling* writes the superblocks of members whose superblocks differ from the newest one,
//! before the array starts, so that all members record the same event count.
//!
//! ```text
//!   presented ──assemble──▶ checked ──flush, levelling──▶ start ──▶ join: disks in and out
//!       ▲                                       │
//!       └────── power is cut in the middle ─────┘
//! ```

use std::collections::BTreeSet;

use braid_assembly::{AssembledArray, Assembly, Refusal, Verdict};
use braid_engine::array::MemberId;
use braid_engine::cause::RequestKind;
use braid_engine::effect::FaultKind;
use braid_engine::open::{MemberSuperblock, can_miss, levelling};
use braid_ondisk::Superblock;

use crate::bitmaps;
use crate::chances::Purpose;
use crate::checker::{redundancy, verdicts};
use crate::content::SECTOR;
use crate::cycle::manner;
use crate::fault::Mishap;
use crate::open::{self, Machines, Manner};
use crate::random::Random;
use crate::schedule::Order;
use crate::world::{Engine, World};

/// Assembly's decision about the presented disks.
pub(crate) struct Decision {
    pub(crate) presented: Vec<usize>,
    /// The superblock of each presented disk, if it is sound.
    pub(crate) superblocks: Vec<Option<Superblock>>,
    pub(crate) assembly: Assembly,
}

/// The result of writing one member's superblock before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// The superblock's write failed twice, so the member is lost.
    Failed,
    PowerCut,
}

/// Members that are ready for the start: flushed, and with superblocks of one event count.
struct PreparedMembers {
    /// The superblock of each presented disk.
    superblocks: Vec<Option<Superblock>>,
    /// Disks whose first flush failed.
    harmed: Vec<usize>,
    /// Disks whose superblock could not be written, and which the array can do without.
    untold: Vec<usize>,
}

/// The array does not start: power was cut, or the superblock of a disk that the array needs could
/// not be written.
#[derive(Debug)]
struct StartFailure;

impl World {
    /// Assembles the presented disks, checks the decision, and starts the array unless assembly
    /// refuses it.
    pub(crate) fn open(
        &mut self,
        presented: &[usize],
        must_be_clean: bool,
    ) -> Result<AssembledArray, Refusal> {
        self.open_accepting(presented, must_be_clean, None)
    }

    /// Opens the array as `open` does. With `accept_risk` the operator accepts that so many stripes
    /// can read wrong.
    pub(crate) fn open_accepting(
        &mut self,
        presented: &[usize],
        must_be_clean: bool,
        accept_risk: Option<u64>,
    ) -> Result<AssembledArray, Refusal> {
        let mut presented = presented.to_vec();
        self.is_unsettled = false;
        loop {
            self.find_torn();
            self.follow_replacements(&mut presented);
            let presented = &*presented;
            let decision = self.decide_accepting(presented, accept_risk);
            let mut assembled = decision.assembly.array.clone()?;
            // Turning clean lowers the event count. A disk that lost that update has the higher
            // count, and says dirty.
            let is_clean = !assembled.dirty || !self.who_lies(presented).is_empty();
            assert!(is_clean || !must_be_clean, "the array stopped cleanly, but starts dirty");
            let unreadable = decision.superblocks.iter().filter(|one| one.is_none()).count();
            if unreadable > 0 {
                self.tally.count_many("superblock-unreadable", unreadable as u64);
            }
            let ignores_logs = self.may_ignore_own_logs(&mut assembled);
            let is_replayed = self.replay(&mut assembled, presented)
                && self.replay_journal(&mut assembled, presented);
            if is_replayed {
                self.accept_risk(&assembled);
            }
            if is_replayed
                && self.enter(&decision, &assembled, ignores_logs)
                && self.write_back_found(&assembled)
            {
                return Ok(assembled);
            }
        }
    }

    /// Superblocks can give a former spare the slot of another disk. In the simulator a slot's disk
    /// has the slot's number, so the two disks exchange their indices. Checks that the new disk may
    /// take the slot: it holds all data, or the old disk may be out, or the old disk is not
    /// presented.
    fn follow_replacements(&mut self, presented: &mut [usize]) {
        let (_, assembly) = open::assemble_disks(&self.disks, presented);
        for (place, verdict) in assembly.verdicts.iter().enumerate() {
            let new = presented[place];
            let Some(old) = verdict.verdict.slot().map(usize::from) else { continue };
            if !self.is_spare(new) {
                continue;
            }
            let may_be_out = self.out.contains(&old) || self.unsure.contains(&old);
            let is_there = presented.contains(&old);
            let holds_all = matches!(verdict.verdict, Verdict::Fresh { .. });
            let is_right = may_be_out || !is_there || holds_all;
            assert!(
                is_right,
                "disk {new} took the slot of disk {old}, which is sound: {:?}",
                assembly.verdicts
            );
            self.tally.count("replaced-at-a-start");
            self.disks.swap(old, new);
            for disk in presented.iter_mut() {
                *disk = match *disk {
                    one if one == old => new,
                    one if one == new => old,
                    one => one,
                };
            }
            self.metadata.exchange(old, new);
            for disks in [&mut self.out, &mut self.unsure, &mut self.absent] {
                let (had_old, had_new) = (disks.remove(&old), disks.remove(&new));
                disks.extend(had_old.then_some(new).into_iter().chain(had_new.then_some(old)));
            }
            self.replaced.remove(&old);
            self.replaced.insert(new);
            // In sectors that were being written, the new disk's copy can differ from the old
            // disk's.
            self.model.unpin();
        }
    }

    /// Starts the array with these settings instead of drawn ones.
    ///
    /// # Panics
    /// If these disks cannot be started.
    #[cfg(any(test, braid_sim_hooks))]
    pub(crate) fn open_as(&mut self, presented: &[usize], manner: Manner) {
        loop {
            self.find_torn();
            let decision = self.decide(presented);
            let assembled = decision.assembly.array.clone().expect("these disks can be started");
            // Retries if power is cut while superblocks are written before the start.
            if let Ok(ready) = self.make_ready(&decision, &assembled) {
                return self.start(ready, &assembled, presented, manner);
            }
        }
    }

    /// Assembles the presented disks by their superblocks, and checks the decision.
    pub(crate) fn decide(&self, presented: &[usize]) -> Decision {
        self.decide_accepting(presented, None)
    }

    fn decide_accepting(&self, presented: &[usize], accept_risk: Option<u64>) -> Decision {
        let (probed, assembly) = open::assemble_as(&self.disks, presented, accept_risk);
        let superblocks = open::superblocks(&probed, assembly.array.as_ref().ok());
        let lying = self.who_lies(presented);
        for (disk, superblock) in presented.iter().zip(&superblocks) {
            // Only a superblock of several sectors can be torn.
            let is_torn = self.metadata.is_torn(*disk);
            let is_explained = superblock.is_some() || lying.contains(disk) || is_torn;
            assert!(is_explained, "the superblock of disk {disk} is gone");
        }
        let knowledge = verdicts::DiskKnowledge {
            geometry: &self.geometry,
            presented,
            out: &self.out,
            unsure: &self.unsure,
            superblocks: &superblocks,
            replaced: &self.replaced,
            lying: &lying,
            metadata: &self.metadata,
        };
        verdicts::check(&assembly, &knowledge);
        if let Ok(array) = &assembly.array {
            let chosen = array.slots.iter().flatten().map(|one| presented[one.member]);
            self.check_damaged_are_out(chosen);
        }
        Decision { presented: presented.to_vec(), superblocks, assembly }
    }

    /// Checks the promises of a clean array, and starts the array. False if it did not start: power
    /// was cut, or the superblock of a needed disk could not be written.
    pub(crate) fn enter(
        &mut self,
        decision: &Decision,
        assembled: &AssembledArray,
        ignores_logs: bool,
    ) -> bool {
        let Ok(ready) = self.make_ready(decision, assembled) else { return false };
        let mut manner = manner(&mut self.chances.openings, &self.chances.cut);
        // The cache file's size has its own stream, so that runs without early acknowledgement do
        // not change.
        let mut random = self.chances.of(Purpose::Cache, 5);
        manner.cache.cached_blocks_max = crate::cache::file_blocks(&mut random);
        manner.jobs_paused |= !self.may_have_jobs;
        // A disk that joined had no slot yet when power was cut. Only its own slot is right for it,
        // so jobs pause until it has that slot.
        let came = |index: &usize| !self.is_spare(decision.presented[*index]);
        manner.jobs_paused |= assembled.spares.iter().any(came);
        let forgets = self.forgets_bitmap(assembled);
        let mut kept = assembled.clone();
        if forgets {
            kept.bitmap = None;
        }
        if ignores_logs {
            kept.parity_logs = None;
        }
        self.start(ready, &kept, &decision.presented, manner);
        true
    }

    /// Checks the promises of a clean array, flushes its members, and levels their superblocks.
    fn make_ready(
        &mut self,
        decision: &Decision,
        assembled: &AssembledArray,
    ) -> Result<PreparedMembers, StartFailure> {
        let Decision { presented, .. } = decision;
        self.take_stock(assembled, presented);
        self.check_bits_are_current(assembled, presented);
        let in_doubt =
            if assembled.dirty { bitmaps::in_doubt(assembled) } else { Some(BTreeSet::new()) };
        if let Some(mut doubtful) = in_doubt {
            if assembled.dirty {
                self.tally.count("bits-at-a-start");
            }
            doubtful.extend(&self.taint.doubtful);
            doubtful.extend(self.not_promised(assembled));
            let (logs, was_replayed) = (&self.bad_logs, self.was_replayed);
            let exempt = redundancy::CheckExemptions { doubtful: &doubtful, logs, was_replayed };
            let data_offset = self.taint.data_offset;
            redundancy::check_clean(assembled, &self.disks, presented, data_offset, &exempt);
        }
        let harmed = self.make_durable(assembled, presented);
        let mut superblocks = decision.superblocks.clone();
        let untold = self.level(assembled, &mut superblocks, presented)?;
        Ok(PreparedMembers { superblocks, harmed, untold })
    }

    fn start(
        &mut self,
        ready: PreparedMembers,
        assembled: &AssembledArray,
        presented: &[usize],
        manner: Manner,
    ) {
        self.cache_file.begin(assembled);
        let machines = open::start(assembled, ready.superblocks, presented, manner);
        self.join(machines, presented, &ready.untold);
        // Whether these disks are in the array is unsure until the first update reaches them, or
        // records them as out.
        self.unsure.extend(ready.harmed);
    }

    /// The presented disks that lied about their superblock: it is not the superblock last written
    /// to them.
    fn who_lies(&self, presented: &[usize]) -> BTreeSet<usize> {
        presented.iter().copied().filter(|disk| self.is_superblock_tainted(*disk)).collect()
    }

    /// Flushes the members, because the superblocks that assembly just believed can be in a cache
    /// since a process was killed. Returns the disks whose flush failed.
    fn make_durable(&mut self, assembled: &AssembledArray, presented: &[usize]) -> Vec<usize> {
        let mut harmed = Vec::new();
        for slot in assembled.occupants() {
            let disk = presented[slot.member];
            if self.chances.openings.below(200) == 0 {
                self.tally.count("first-flush-fails");
                harmed.push(disk);
            } else {
                self.disks[disk].settle();
                self.taint.forget_asked_of(disk);
            }
        }
        self.unsure.extend(&harmed);
        harmed
    }

    /// Writes members' superblocks before the start, so that all record the same event count.
    /// Returns the disks whose write failed, if the array can do without them.
    fn level(
        &mut self,
        assembled: &AssembledArray,
        superblocks: &mut [Option<Superblock>],
        presented: &[usize],
    ) -> Result<Vec<usize>, StartFailure> {
        let waves = levelling(assembled, |index| superblocks[index].as_ref());
        let slots = (0..).zip(&assembled.slots);
        self.metadata.missing =
            slots.filter(|(_, one)| one.is_none()).map(|(slot, _)| slot).collect();
        let mut untold = Vec::new();
        self.tally.count_many("levelled", u64::from(!waves.is_empty()));
        for mut wave in waves {
            wave.retain(|(index, _)| !untold.contains(index));
            self.level_wave(superblocks, presented, wave, &mut untold)?;
            if !can_miss(assembled, &untold) {
                self.tally.count("levelling-stops-the-start");
                return Err(StartFailure);
            }
        }
        Ok(untold.into_iter().map(|index| presented[index]).collect())
    }

    fn level_wave(
        &mut self,
        superblocks: &mut [Option<Superblock>],
        presented: &[usize],
        mut wave: Vec<MemberSuperblock>,
        untold: &mut Vec<usize>,
    ) -> Result<(), StartFailure> {
        self.chances.openings.shuffle(&mut wave);
        let mut wave = wave.into_iter();
        while let Some((index, superblock)) = wave.next() {
            let disk = presented[index];
            match self.level_one(disk, &superblock) {
                Outcome::Done => superblocks[index] = Some(superblock),
                Outcome::Failed => untold.push(index),
                Outcome::PowerCut => {
                    self.tear_rest(presented, wave.as_slice());
                    return Err(StartFailure);
                }
            }
        }
        Ok(())
    }

    /// Power is cut while a wave of superblocks is written: the other superblocks of the wave can
    /// be torn, too.
    fn tear_rest(&mut self, presented: &[usize], wave: &[MemberSuperblock]) {
        for (index, superblock) in wave {
            // A superblock of one sector cannot tear.
            let is_long = superblock.to_bytes().len() > SECTOR;
            if is_long && self.chances.openings.chance(50) {
                self.tear_level(presented[*index], superblock);
            }
        }
        self.lose_power();
    }

    fn level_one(&mut self, disk: usize, superblock: &Superblock) -> Outcome {
        match self.chances.openings.below(100) {
            0..10 => {
                self.tally.count("power-cut-in-levelling");
                self.note("level-cut", [disk as u64, superblock.state.events, 0]);
                self.tear_level(disk, superblock);
                Outcome::PowerCut
            }
            10..13 => {
                self.tally.count("levelling-fails");
                self.note("level-fails", [disk as u64, superblock.state.events, 0]);
                self.tear_level(disk, superblock);
                self.metadata.tore_by_error(disk);
                self.unsure.insert(disk);
                if self.chances.openings.chance(50) {
                    return Outcome::Failed;
                }
                self.put_level(disk, superblock);
                Outcome::Done
            }
            _ => {
                self.put_level(disk, superblock);
                Outcome::Done
            }
        }
    }

    fn put_level(&mut self, disk: usize, superblock: &Superblock) {
        self.note("level", [disk as u64, superblock.state.events, 0]);
        let start = superblock.offset_bytes() / SECTOR as u64;
        self.disks[disk].put(start, &superblock.to_bytes(), true);
        self.levels_past_bits(disk);
        self.metadata.told(disk, superblock, true);
    }

    /// Writes any sectors of a superblock before the start: none, some or all.
    fn tear_level(&mut self, disk: usize, superblock: &Superblock) {
        self.tear_superblock(disk, superblock, Purpose::Openings);
        let has_come = |found: &Superblock| found.state.events == superblock.state.events;
        if self.superblock_on(disk).is_some_and(|found| has_come(&found)) {
            self.levels_past_bits(disk);
        }
    }

    /// A superblock written before the start is ahead of its disk's bitmap until the first update.
    /// If the array then starts from that disk alone, it does not believe the bitmap and resyncs
    /// everything.
    fn levels_past_bits(&mut self, disk: usize) {
        self.keeps_bits.remove(&disk);
    }

    /// The new machines replace those of the last run. Disks that are not members are out once a
    /// write is acknowledged. The array reports the `untold` disks, whose superblock could not be
    /// written, as gone.
    fn join(&mut self, machines: Machines, presented: &[usize], untold: &[usize]) {
        let chosen: BTreeSet<usize> = disks_of(&machines).into_iter().collect();
        if presented.len() == self.disks.len() {
            // All disks are presented, so no other disk can have a newer superblock.
            self.unsure.retain(|disk| !chosen.contains(disk));
        }
        let before: BTreeSet<usize> = disks_of(&self.engine.machines).into_iter().collect();
        if before.symmetric_difference(&chosen).any(|disk| !self.is_spare(*disk)) {
            self.model.unpin();
        }
        let all = 0..self.disks.len();
        self.absent = all.filter(|disk| !chosen.contains(disk)).collect();
        self.unsure.extend(self.absent.iter().filter(|disk| !self.out.contains(disk)));
        // A disk that joined, and had no slot when power was cut, holds nothing of the array.
        let waiting = machines.array.spares().into_iter();
        let waiting = waiting.map(|id| machines.members[usize::from(id.0)].disk);
        self.out.extend(waiting.filter(|disk| *disk < usize::from(self.geometry.slots())));
        let order = Order::seeded(&mut self.chances.openings);
        let order = self.chances.order(order);
        self.engine = Engine::new(machines, order, self.clock.now);
        self.came.clear();
        let mut random = Random::new(self.chances.openings.next());
        self.set_elevators(&mut random);
        let events = self.engine.machines.array.events();
        self.note("started", [chosen.len() as u64, events, 0]);
        // These disks got no superblock before the start. An interrupted first update leaves them
        // two events behind, and stale.
        let members = self.engine.machines.members.iter();
        let behind = members.filter(|member| member.superblock.state.events < events);
        self.unsure.extend(behind.map(|member| member.disk));
        // No new fault hits a disk while the array is read after a start, but bad sectors of
        // earlier faults remain.
        let scarred = chosen.into_iter().filter(|disk| !self.disks[*disk].bad.is_empty());
        let harmed: BTreeSet<usize> = scarred.chain(untold.iter().copied()).collect();
        self.engine.plan.errors_allowed = !self.standing().tolerates(&harmed);
        self.engine.plan.victims = harmed;
        self.trust();
        if !untold.is_empty() {
            // The array reads an untold disk until the disk's loss is recorded, and another copy
            // from then on.
            self.doubt_copies(Mishap::Dies);
        }
        for (id, disk) in (0..).map(MemberId).zip(disks_of(&self.engine.machines)) {
            if untold.contains(&disk) {
                self.tally.count("untold-is-out");
                let superblock = &self.engine.machines.members[usize::from(id.0)].superblock;
                let start = superblock.offset_bytes() / SECTOR as u64;
                let place = (start, (superblock.to_bytes().len() / SECTOR) as u64);
                let cause = self.failed(id, (RequestKind::Superblock, FaultKind::Media), place);
                self.engine.machines.array.handle_member_gone(self.clock.now, cause);
                self.drain_array();
            }
        }
    }
}

/// The disk of each member, by [`MemberId`].
fn disks_of(machines: &Machines) -> Vec<usize> {
    machines.members.iter().map(|member| member.disk).collect()
}

#[cfg(test)]
mod tests {
    use braid_ondisk::{SuperblockUpdate, Timestamp};

    use super::*;
    use crate::chances::Chances;
    use crate::create::smallest;
    use crate::cut::Cut;
    use crate::trace::Trace;

    /// Regression, seed 3025555 with the engine's rare choices: power was cut while a superblock
    /// was written before a start, and the whole superblock had arrived. The simulator then
    /// expected the next start, from that member alone, to believe the member's bitmap.
    #[test]
    fn a_levelling_write_that_is_cut_short_leaves_bits_behind_if_it_has_come() {
        let mut times = [0; 2];
        for drawn in 0..16 {
            let chances = Chances::new(1, Cut::default());
            let mut world = World::create(&smallest(), chances, Trace::new(false));
            (0..drawn).for_each(|_| _ = world.chances.openings.below(100));
            let mut superblock = world.superblock_on(1).unwrap();
            superblock.apply(&SuperblockUpdate {
                events: superblock.state.events + 1,
                update_time: Timestamp { seconds: 1, microseconds: 0 },
                resync_offset: u64::MAX,
                roles: smallest().roles(),
                recovery_offset: None,
                is_replacement: false,
                role_of_this: smallest().role(1),
            });
            world.tear_level(1, &superblock);
            let found = world.superblock_on(1).map(|found| found.state.events);
            let has_come = found == Some(superblock.state.events);
            assert_eq!(world.keeps_bits.contains(&1), !has_come);
            times[usize::from(has_come)] += 1;
        }
        assert!(times.iter().all(|times| *times > 0), "{times:?}");
    }
}
