//! The life of an array that changes its shape, from one opening to the next.
//!
//! ```text
//!   open ─▶ serve ─▶ Begin ─▶ recorded ─▶ stop ─▶ open ─▶ windows ─▶ Finish ─▶ stop ─▶ open ─▶ end
//!     ▲       │                                             │ ▲
//!     └─crash─┘                              turn round ◀───┘ └─ any number of times
//! ```
//!
//! At the end the whole array is read, and the disks' bytes are compared with the content's image:
//! data and parity of every row, and zeroes in the new part.

use std::collections::BTreeSet;
use std::ops::Range;

use braid_assembly::reshape::Reshaping;
use braid_assembly::{AssembledArray, Assembly, Occupant, ProbedMember, Refusal};
use braid_engine::array::{
    DataArea, JobEnd, JobKind, JobRequest, MemberId, Notice, ReshapeSetup, ShapeChange,
    ShapeRefusal,
};
use braid_engine::open::levelling;
use braid_engine::request::Operation;
use braid_engine::reshape::{ShapeLimits, ShapeMember, WishError, propose, superblocks_of_change};
use braid_engine::{CacheConfig, CacheMode, Instant, Tuning};
use braid_geometry::{Geometry, MemberSector, Slot};
use braid_ondisk::{Superblock, Timestamp};

use super::copy_file::{CopyFile, padded};
use super::kinds::{Change, UUID};
use super::plan::{CrashKind, Plan};
use super::requests::{Gate, Purpose};
use super::strip::{Column, Strip, also_lost};
use super::world::{Event, Running, StepResult, World};
use crate::content::{SECTOR, bytes, image, places};
use crate::create::MADE_AT_SECONDS;
use crate::memory::Payloads;
use crate::model::Model;
use crate::open::{
    Manner, assemble_with_copies, opening_of, probe_disk, start_opening, superblocks,
};
use crate::random::{Random, mix};
use crate::tally::Tally;

/// A run that takes more steps than this hangs.
const STEPS_MAX: u64 = 2_000_000;
/// Steps after which an array without clients is at rest.
const SETTLING_STEPS: u64 = 20_000;
/// Requests of clients in one opening, at most.
const REQUESTS_MAX: u64 = 2_000;

/// The driver's stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// A change of shape was requested.
    Asked,
    /// Nothing is left to do but the last read, which begins when no request is in flight.
    Calming,
    /// The last read of the whole array.
    LastRead,
    /// No new requests begin.
    Draining,
    Stopping,
}

/// How the machines end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Crash,
    Reopen,
    Done,
}

/// An assembled array and its machines.
struct Opening {
    assembled: AssembledArray,
    run: Box<Running>,
}

impl World {
    pub(super) fn new(change: Change, plan: Plan, seed: u64) -> Self {
        let mut disks = change.disks();
        let geometry = change.geometry_before();
        // Bad sectors are on one disk only: their redundancy is on the other disks.
        let bad: Vec<_> = plan.unreadable.iter().map(|at| places(&geometry, *at)[0]).collect();
        let of_first = bad.iter().filter(|(slot, _)| *slot == bad[0].0);
        of_first.for_each(|(slot, place)| mark_bad(&mut disks, &change, *slot, place.0));
        let mut unreadable = BTreeSet::new();
        // Whether clients can write all sectors of the strip.
        let is_whole = |sector: &&u64| {
            Strip::of(&geometry, **sector).sectors().all(|other| other < change.size())
        };
        for sector in plan.lost.iter().filter(is_whole) {
            let strip = Strip::of(&geometry, *sector);
            let is_missing = |column: &&Column| plan.missing.contains(&column.slot.index());
            let missing = strip.columns.iter().filter(is_missing).count();
            let count = usize::from(change.tolerated()) + 1 - missing;
            let there = strip.columns.iter().filter(|column| !is_missing(column));
            let bad: Vec<&Column> = there.take(count).collect();
            bad.iter().for_each(|one| mark_bad(&mut disks, &change, one.slot, one.place));
            let lost = strip.columns.iter().filter(|one| bad.contains(one) || is_missing(one));
            unreadable.extend(lost.filter_map(|one| one.sector));
        }
        let shapes = [change.geometry_before(), change.geometry_after()];
        let endangered = also_lost(&shapes, &plan.missing, &unreadable);
        unreadable.retain(|sector| *sector < change.size());
        let doubted = if plan.crashes.is_empty() {
            BTreeSet::new()
        } else {
            plan.unreadable.iter().copied().collect()
        };
        plan.missing.iter().for_each(|disk| disks[*disk].ills.gone = true);
        Self {
            model: Model::new(change.size()),
            change,
            plan,
            disks,
            unreadable,
            endangered,
            copy: CopyFile::default(),
            copy_point: None,
            closed: None,
            doubted,
            step: 1,
            now: Instant(1),
            effects: 0,
            next_request: 1,
            random: Random::new(seed),
            fate: Random::new(mix(seed)),
            tally: Tally { worlds: 1, ..Tally::default() },
            has_asked_to_finish: false,
            asked: None,
            superblock_effects: Vec::new(),
            goal: None,
            direct_change: Vec::new(),
        }
    }

    /// Sectors that clients use.
    pub(super) fn size(&self) -> u64 {
        self.change.size()
    }

    /// Runs the array's whole life. The run ends early if assembly rightly refuses the array.
    pub(super) fn live(&mut self) {
        loop {
            self.tally.cycles += 1;
            let mut opening = match self.open() {
                Ok(Some(opening)) => opening,
                Ok(None) => {
                    self.crash(None);
                    continue;
                }
                Err(refusal) => {
                    self.check_refusal(&refusal);
                    return;
                }
            };
            match self.serve(&mut opening) {
                Ending::Crash => self.crash(Some(*opening.run)),
                Ending::Reopen => {
                    self.end_writes(&mut opening.run);
                    self.rest();
                    self.write_direct_change();
                }
                Ending::Done => {
                    self.end_writes(&mut opening.run);
                    return self.check_disks();
                }
            }
        }
    }

    /// Writes the superblocks of a RAID-0's change of shape, unless a crash comes meanwhile.
    fn write_direct_change(&mut self) {
        for (disk, superblock) in std::mem::take(&mut self.direct_change) {
            if self.comes_to_disk() {
                self.tally.count("cut-as-it-begins");
                return self.crash(None);
            }
            self.put_superblock(disk, &superblock);
        }
    }

    fn assemble(&self, presented: &[usize]) -> (Vec<ProbedMember>, Assembly) {
        let probed = presented.iter().map(|disk| probe_disk(&self.disks[*disk], *disk));
        let probed: Vec<ProbedMember> = probed.collect();
        let superblocks = probed.iter().filter_map(|one| one.probe.newest());
        let newest = superblocks.max_by_key(|superblock| superblock.state.events);
        let copies = self.copy.knows(newest).then_some(UUID);
        assemble_with_copies(&self.disks, presented, copies.into_iter().collect())
    }

    fn present(&self) -> Vec<usize> {
        (0..self.disks.len()).filter(|disk| !self.disks[*disk].ills.gone).collect()
    }

    /// Checks a refusal: a dirty array that lacks a member may have torn rows.
    fn check_refusal(&mut self, refusal: &Refusal) {
        let is_degraded = self.present().len() < self.disks.len();
        let is_write_hole = matches!(refusal, Refusal::DirtyAndDegraded(_));
        // A RAID-5 that has become a RAID-6 lacks Q at first.
        let is_degraded = is_degraded || self.change.is_at_once();
        let has_crashed = self.has_crashed() || self.change.is_larger();
        let is_degraded = is_degraded || self.is_torn();
        assert!(is_write_hole && is_degraded && has_crashed, "refused: {refusal}");
        self.tally.count("refused-write-hole");
    }

    /// Whether a power cut has torn a superblock of several sectors, which costs its member.
    fn is_torn(&self) -> bool {
        let mut probed = self.present().into_iter().map(|disk| probe_disk(&self.disks[disk], disk));
        probed.any(|disk| disk.probe.newest().is_none())
    }

    fn has_crashed(&self) -> bool {
        self.tally.of("power-cut") + self.tally.of("process-killed") > 0
    }

    /// Assembles and opens the array. `None` if a crash comes meanwhile.
    fn open(&mut self) -> Result<Option<Opening>, Refusal> {
        let presented = self.present();
        let (probed, assembly) = self.assemble(&presented);
        let mut superblocks = superblocks(&probed, assembly.array.as_ref().ok());
        let mut assembled = assembly.array?;
        presented.iter().for_each(|disk| assert!(self.disks[*disk].flush(), "it is there"));
        let waves = levelling(&assembled, |index| superblocks[index].as_ref());
        self.tally.count_many("levelled", u64::from(!waves.is_empty()));
        for wave in waves {
            for (index, superblock) in wave {
                if self.comes_to_disk() {
                    return Ok(None);
                }
                self.put_superblock(presented[index], &superblock);
                superblocks[index] = Some(superblock);
            }
        }
        self.tally.count_many("shapes-levelled", assembled.shapes_to_write.len() as u64);
        assembled.shapes_to_write.clear();
        self.note_opened(&assembled);
        let manner = self.manner();
        let mut opening = opening_of(&assembled, &superblocks, manner);
        let after = opening.setup.reshape.as_ref().map(|reshape| reshape.after.clone());
        let before = opening.setup.reshape.as_ref().map(|reshape| reshape.before.clone());
        let before = before.unwrap_or_else(|| opening.setup.geometry.clone());
        opening.setup.regions = opening.setup.regions.in_regions_of((&before, after.as_ref()), 8);
        let is_in_place = opening.setup.reshape.as_ref().is_some_and(ReshapeSetup::is_in_place);
        let copied = self.open_copy(&assembled.newest, is_in_place);
        copied.iter().for_each(|window| check_at_risk(&probed, window));
        if let Some(reshape) = &mut opening.setup.reshape {
            reshape.window_sectors_max = Some(self.plan.window_sectors);
            reshape.copied = copied;
        }
        let machines = start_opening(opening, &assembled, superblocks, &presented, manner);
        let starts = machines.members.iter().map(|member| {
            let lowest = member.superblock.lowest_data_sector();
            member.superblock.starts_of_data().map(|start| lowest + start)
        });
        let mut run = Box::new(Running {
            starts: starts.collect(),
            gate: Gate::new(machines.regions),
            machines,
            pending: Default::default(),
            delayed: Vec::new(),
            tasks: Default::default(),
            payloads: Payloads::new(),
            flights: Default::default(),
            kept: Default::default(),
            flushes: Default::default(),
            left: BTreeSet::new(),
            notices: Vec::new(),
            weights: Running::weights(&mut self.random, self.plan.late),
            steps: 0,
            issued: 0,
        });
        // A disk that died since it was probed fails its first request; a machine begins by itself.
        run.machines.array.handle_timeout(self.now);
        self.drain_array(&mut run);
        // The border of a window that moves from its copy exists before any client's request.
        while let Some(task) = run.tasks.pop_front() {
            self.carry_out(&mut run, task);
        }
        Ok(Some(Opening { assembled, run }))
    }

    fn manner(&mut self) -> Manner {
        let stripes_max = *self.random.pick(&[1, 2, 8]);
        let is_back = self.plan.writes_back;
        let tuning = Tuning {
            stripes: stripes_max,
            mode: if is_back { CacheMode::WriteBack } else { CacheMode::WriteThrough },
            age_max_ms: *self.random.pick(&[0, 20, 500]),
            ..Tuning::default()
        };
        Manner {
            read_only: false,
            shards: 2,
            cache: CacheConfig {
                unit_sectors_max: *self.random.pick(&[4, 8, 128]),
                stripes_max,
                cached_blocks_max: None,
                tuning,
            },
            // A spare would fill the slot of a missing member before the reshape begins.
            jobs_paused: !self.plan.missing.is_empty() && self.goal.is_none(),
            zero_is_fast: self.random.chance(50),
            clean_delay_ms: 1,
        }
    }

    /// Notes the shape that the array's reshape leads to.
    fn note_opened(&mut self, assembled: &AssembledArray) {
        self.asked = assembled.reshape.as_ref().map(|reshape| reshape.backwards);
        let Some(reshape) = &assembled.reshape else { return };
        let after = Geometry::new(&reshape.after).expect("assembly made it");
        let after = self.change.goal(after);
        if self.goal.as_ref().is_some_and(|goal| *goal != after) {
            self.tally.count("turned-round");
        }
        self.goal = Some(after);
    }

    fn put_superblock(&mut self, disk: usize, superblock: &Superblock) {
        let start = superblock.offset_bytes() / SECTOR as u64;
        let written = self.disks[disk].write((start, &superblock.to_bytes()), true, &mut self.fate);
        assert!(written.is_ok() || self.disks[disk].ills.gone, "it takes a superblock");
    }

    /// Runs the machines until they end.
    fn serve(&mut self, opening: &mut Opening) -> Ending {
        let Opening { assembled, run } = opening;
        let mut stage = Stage::Serving;
        let mut is_done = false;
        if self.random.chance(30) {
            self.read_all(run);
        }
        loop {
            let seen = ["window-failed", "turned-round", "asked-to-finish", "cycles"];
            let seen = seen.map(|name| self.tally.of(name));
            assert!(self.step < STEPS_MAX, "the array hangs: {stage:?} {seen:?}");
            stage = match stage {
                Stage::Serving => self.direct(run, assembled),
                Stage::Asked if self.takes(run, is_short) => {
                    self.resume_if_closed(run);
                    self.asked_still(run)
                }
                Stage::Asked if self.takes(run, is_unreadable) => {
                    self.heal_window(run);
                    self.asked_still(run)
                }
                Stage::Asked if self.takes(run, |one| *one == Notice::ShapeRecorded) => {
                    if self.direct_change.is_empty() {
                        self.check_shape_recorded(run);
                    }
                    Stage::Draining
                }
                Stage::Calming if run.is_idle() => {
                    self.doubted.clear();
                    self.read_all(run);
                    self.drain(run);
                    // A reshape that turned round may not have reached all lost sectors.
                    let has_come = self.tally.of("turned-round") == 0 && self.change.has_logs();
                    if self.plan.missing.is_empty() && has_come {
                        self.heal_sectors(run, &assembled.geometry);
                    }
                    self.write_all(run);
                    self.settle(run);
                    // No client writes the new part.
                    self.endangered.retain(|sector| *sector >= self.change.size());
                    assert!(self.unreadable.is_empty(), "all was written");
                    self.read_all(run);
                    Stage::LastRead
                }
                Stage::LastRead if run.is_idle() => {
                    is_done = true;
                    Stage::Draining
                }
                Stage::Draining if run.is_idle() => {
                    run.machines.array.handle_stop(self.now);
                    self.drain_array(run);
                    Stage::Stopping
                }
                Stage::Stopping if self.takes(run, |one| matches!(one, Notice::Stopped { .. })) => {
                    self.model.flushed(self.step, u64::MAX);
                    return if is_done { Ending::Done } else { Ending::Reopen };
                }
                other => other,
            };
            let is_served = matches!(stage, Stage::Serving | Stage::Asked);
            let in_flight = run.flights.len() + run.gate.waiting.len() + run.flushes.len();
            let may_issue = is_served && in_flight < self.plan.clients && run.issued < REQUESTS_MAX;
            match self.step(run, may_issue) {
                StepResult::Something => {}
                StepResult::Issue => self.issue_any(run),
                StepResult::Crash => return Ending::Crash,
                StepResult::Nothing => {
                    let waits = matches!(stage, Stage::Serving) && run.issued >= REQUESTS_MAX;
                    assert!(is_served || run.is_idle(), "requests hang: {stage:?}");
                    let array = &run.machines.array;
                    let (job, may) = (array.job(), array.may_begin_reshape());
                    assert!(!waits, "nothing happens any more: {stage:?} {job:?} {may:?}");
                }
            }
        }
    }

    /// The stage after a window failed while a turn was requested: the array may have forgotten the
    /// turn, and then the operator requests it again.
    fn asked_still(&mut self, run: &Running) -> Stage {
        if run.machines.array.may_change_shape().is_err() {
            return Stage::Asked;
        }
        self.tally.count("turn-forgotten");
        self.asked = self.asked.map(|backwards| !backwards);
        self.plan.asked_turn = Some(0);
        Stage::Serving
    }

    /// A window in place that failed must move before the reshape turns round.
    fn resume_if_closed(&mut self, run: &mut Running) {
        if self.closed.is_some() {
            self.tally.count("resumed-before-a-turn");
        }
        run.machines.array.handle_job_request(self.now, JobRequest::Resume);
        self.drain_array(run);
    }

    /// Removes the first notice that `fits` accepts; false if there is none.
    fn takes(&self, run: &mut Running, fits: impl Fn(&Notice) -> bool) -> bool {
        let found = run.notices.iter().position(fits);
        found.map(|index| run.notices.remove(index)).is_some()
    }

    /// Decides what an operator does next.
    fn direct(&mut self, run: &mut Running, assembled: &AssembledArray) -> Stage {
        if assembled.reshape.is_some() {
            return self.direct_reshape(run);
        }
        if self.change.is_at_once() && assembled.geometry == self.change.geometry_after() {
            self.has_asked_to_finish = true;
            self.goal = Some(assembled.geometry.clone());
        }
        // Without logs a resync stops at sectors that it cannot make; without a member none runs.
        let is_stuck =
            self.takes(run, |one| matches!(one, Notice::JobEnded { end: JobEnd::Unreadable, .. }));
        if is_stuck {
            self.write_all(run);
            run.machines.array.handle_job_request(self.now, JobRequest::Resume);
            self.drain_array(run);
            return Stage::Serving;
        }
        let array = &run.machines.array;
        if self.has_asked_to_finish {
            let goal = self.goal.as_ref().expect("a reshape was finished");
            assert_eq!(assembled.geometry, *goal, "the reshape led to another shape");
            let is_whole = array.may_begin_reshape() != Err(ShapeRefusal::Busy(JobKind::Resync))
                && array.may_begin_reshape() != Err(ShapeRefusal::Busy(JobKind::Recovery));
            let cannot_be_whole = array.missing_count() > 0 && self.change.is_at_once();
            let is_whole = is_whole || cannot_be_whole && array.spares().is_empty();
            let is_filled = array.missing_count() == 0 || array.spares().is_empty();
            if is_whole && is_filled && run.steps > self.plan.steps_before {
                return Stage::Calming;
            }
            return Stage::Serving;
        }
        if run.steps < self.plan.steps_before || array.may_begin_reshape().is_err() {
            return Stage::Serving;
        }
        let (change, is_in_place) = match self.proposal(run) {
            Ok(proposal) => proposal,
            // A spare was needed for a lost member: the array keeps its shape.
            Err(WishError::TooFewSpares { .. } | WishError::Degraded) => {
                let is_fewer = self.tally.of("disk-dies") > 0 || self.is_torn();
                assert!(is_fewer, "there are spares");
                self.tally.count("spare-was-needed");
                self.has_asked_to_finish = true;
                self.goal = Some(assembled.geometry.clone());
                return Stage::Serving;
            }
            Err(error) => panic!("no such reshape: {error}"),
        };
        let reshape = match &change {
            ShapeChange::Begin { shape, .. } => shape.reshape,
            _ => unreachable!("a proposal begins"),
        };
        self.change.begins_backwards = reshape.map(|reshape| reshape.backwards);
        let is_backwards = self.change.begins_backwards == Some(true);
        self.tally.count(match () {
            () if self.change.is_at_once() => "taken-over",
            () if self.change.shrinks() => "begun-to-shrink",
            () if is_backwards => "begun-into-room-behind",
            () => "begun",
        });
        if self.change.is_striped() {
            self.direct_change = self.direct_superblocks(run, &change);
        }
        self.tally.count_many("begun-with-bitmap", u64::from(self.change.has_bitmap()));
        self.prepare_copy(&change, is_in_place);
        self.change_shape(run, change).expect("it may begin");
        Stage::Asked
    }

    fn direct_reshape(&mut self, run: &mut Running) -> Stage {
        let progress = run.machines.array.job().expect("a reshape is under way");
        let is_due = |at: &mut u64| progress.done >= *at;
        if let Some(at) = self.plan.turns.pop_if(is_due) {
            self.tally.count("asked-to-turn-round");
            self.plan.asked_turn = Some(at);
            run.machines.array.handle_job_request(self.now, JobRequest::Pause);
            self.drain_array(run);
        }
        if self.plan.asked_turn.is_some() {
            let areas = areas(run, |before, after, end| DataArea {
                offset_sectors: after,
                size_sectors: end - after,
                new_offset_sectors: before,
            });
            return match self.change_shape(run, ShapeChange::TurnRound { areas }) {
                Ok(()) => {
                    self.plan.asked_turn = None;
                    self.resume_if_closed(run);
                    Stage::Asked
                }
                Err(refusal) => unreachable!("a reshape under way turns round: {refusal}"),
            };
        }
        let ended = run.notices.iter().rev().find_map(|notice| match notice {
            Notice::JobEnded { progress, end } if progress.kind == JobKind::Reshape => Some(*end),
            _ => None,
        });
        match ended {
            None => Stage::Serving,
            Some(JobEnd::Completed) => {
                run.notices.clear();
                let areas = areas(run, |_, after, end| DataArea {
                    offset_sectors: after,
                    size_sectors: end - after,
                    new_offset_sectors: None,
                });
                self.tally.count("asked-to-finish");
                self.has_asked_to_finish = true;
                let asked = self.change_shape(run, ShapeChange::Finish { areas });
                asked.expect("a reshape that is over can be finished");
                Stage::Asked
            }
            Some(JobEnd::Unwritten) => {
                run.notices.clear();
                self.tally.count("memory-was-short");
                run.machines.array.handle_job_request(self.now, JobRequest::Resume);
                self.drain_array(run);
                Stage::Serving
            }
            Some(_) => {
                run.notices.clear();
                self.heal_window(run);
                Stage::Serving
            }
        }
    }

    /// A window failed at sectors that no disk gives: clients write them, and the reshape
    /// continues.
    fn heal_window(&mut self, run: &mut Running) {
        let is_in_doubt = self.has_crashed() && !self.doubted.is_empty();
        let is_in_doubt = is_in_doubt || self.has_crashed() && !self.plan.lost.is_empty();
        let is_unnamed = !self.change.has_logs() && !self.plan.lost.is_empty();
        assert!(is_in_doubt || is_unnamed, "the reshape ends");
        self.tally.count("window-failed");
        self.write_all(run);
        run.machines.array.handle_job_request(self.now, JobRequest::Resume);
        self.drain_array(run);
    }

    /// A client writes all of the array: whole rows of each shape.
    fn write_all(&mut self, run: &mut Running) {
        let operation = Operation::Write { durable: true };
        self.issue(run, operation, (0, self.size()), Purpose::Heal);
        self.drain(run);
    }

    /// A client writes the neighbours of lost sectors in their rows, and then the lost sectors,
    /// each alone: one lost sector keeps no other from being written or from healing.
    fn heal_sectors(&mut self, run: &mut Running, geometry: &Geometry) {
        for sector in self.unreadable.clone() {
            let strip = Strip::of(geometry, sector);
            let data: Vec<u64> =
                strip.sectors().filter(|at| *at < self.size() && *at != sector).collect();
            let good = data.into_iter().filter(|at| !self.unreadable.contains(at));
            for one in good.chain([sector]).collect::<Vec<_>>() {
                let operation = Operation::Write { durable: true };
                self.issue(run, operation, (one, 1), Purpose::Heal);
                self.drain(run);
            }
            self.tally.count("lost-sector-healed");
        }
    }

    /// Runs until the array is at rest: logs no longer name the sectors that were written.
    fn settle(&mut self, run: &mut Running) {
        let crashes = std::mem::take(&mut self.plan.crashes);
        for _ in 0..SETTLING_STEPS {
            if self.step(run, false) == StepResult::Nothing {
                break;
            }
        }
        self.plan.crashes = crashes;
    }

    /// Runs until all requests have ended. A crash that is due comes after that.
    fn drain(&mut self, run: &mut Running) {
        let crashes = std::mem::take(&mut self.plan.crashes);
        while !run.is_idle() {
            let did = self.step(run, false);
            assert_eq!(did, StepResult::Something, "the write hangs");
        }
        self.plan.crashes = crashes;
    }

    fn change_shape(&mut self, run: &mut Running, change: ShapeChange) -> Result<(), ShapeRefusal> {
        let is_backwards = self.asked;
        let asked_for = match &change {
            ShapeChange::Begin { shape, .. } => shape.reshape.map(|reshape| reshape.backwards),
            ShapeChange::Finish { .. } => None,
            ShapeChange::TurnRound { .. } => Some(!is_backwards.unwrap_or(false)),
        };
        let asked = run.machines.array.handle_shape_change(self.now, change);
        if asked.is_ok() {
            self.asked = asked_for;
        }
        self.drain_array(run);
        asked
    }

    fn shape_members<'a>(&self, run: &'a Running) -> Vec<ShapeMember<'a>> {
        let is_in = run.machines.array.members();
        let slots = &run.machines.shards[0].view.slots;
        let slot_of = |id: MemberId| {
            let mut found = (0..).map(Slot).zip(slots);
            found
                .find(|(_, one)| one.as_ref().is_some_and(|one| one.id == id))
                .map(|(slot, _)| slot)
        };
        let of = |id: &MemberId| {
            let member = &run.machines.members[usize::from(id.0)];
            ShapeMember {
                id: *id,
                slot: slot_of(*id),
                superblock: &member.superblock,
                device_bytes: self.disks[member.disk].size_bytes(),
            }
        };
        is_in.iter().map(of).collect()
    }

    /// The superblocks of a RAID-0's change of shape, in an order of the driver's choice.
    fn direct_superblocks(
        &mut self,
        run: &Running,
        change: &ShapeChange,
    ) -> Vec<(usize, Superblock)> {
        let members = self.shape_members(run);
        let now = Timestamp { seconds: MADE_AT_SECONDS + 1, microseconds: 0 };
        let changed = superblocks_of_change(&members, change, now);
        let changed = changed.expect("a superblock can say it").into_iter();
        let disk_of = |id: MemberId| run.machines.members[usize::from(id.0)].disk;
        let mut writes: Vec<_> = changed.map(|(id, changed)| (disk_of(id), changed)).collect();
        self.random.shuffle(&mut writes);
        writes
    }

    /// The change that leads to the wanted shape, tried on every superblock.
    fn proposal(&self, run: &Running) -> Result<(ShapeChange, bool), WishError> {
        let members = self.shape_members(run);
        let used_sectors = self.size();
        let bitmap_sectors = run.machines.array.bitmap_sectors();
        let can_copy = self.change.can_copy();
        let limits = ShapeLimits { bitmap_sectors, can_copy, used_sectors };
        if self.change.shrinks() {
            let all = ShapeLimits { used_sectors: u64::MAX, ..limits };
            let refused = propose(&members, all, &self.change.wish()).map(|_| ());
            let is_refused = matches!(refused, Err(WishError::Smaller { .. }));
            assert!(is_refused, "clients would lose sectors that they use: {refused:?}");
        }
        let proposal = propose(&members, limits, &self.change.wish())?;
        let ShapeChange::Begin { shape, .. } = &proposal.change else {
            unreachable!("a reshape begins")
        };
        for one in &members {
            // Fewer slots are no error of their own: the roles change with them.
            if shape.raid_slots < one.superblock.array.raid_slots && shape.reshape.is_none() {
                continue;
            }
            let own = shape.of_member(one.id, one.superblock);
            one.superblock.with_shape(&own, one.device_bytes).expect("a superblock can say it");
        }
        let is_in_place = proposal.is_in_place();
        Ok((proposal.change, is_in_place))
    }

    /// Checks that all present members' superblocks have the requested shape, durably.
    fn check_shape_recorded(&self, run: &Running) {
        for id in run.machines.array.members() {
            let disk = &self.disks[run.machines.members[usize::from(id.0)].disk];
            if !disk.ills.gone && !run.left.contains(&id) {
                let said = probe(disk).reshape.map(|reshape| reshape.backwards);
                assert_eq!(said, self.asked, "a superblock lacks the change of shape");
            }
        }
    }

    pub(super) fn read_all(&mut self, run: &mut Running) {
        let regions = run.gate.regions;
        // Before a reshape to fewer members no client reads sectors that only the old shape has.
        let is_of_model = self.goal.is_none() || self.change.is_at_once();
        let size = if regions.is_reshaping() || is_of_model {
            self.size()
        } else {
            let view = &run.machines.shards[0].view;
            view.geometry.capacity_sectors()
        };
        // A read fails as a whole, so sectors that may fail are read alone.
        let alone: BTreeSet<u64> = self.may_fail().filter(|sector| *sector < size).collect();
        let mut start = 0;
        for end in alone.iter().copied().chain([size]) {
            if start < end {
                self.issue(run, Operation::Read, (start, end - start), Purpose::ReadAll);
            }
            if end < size {
                self.issue(run, Operation::Read, (end, 1), Purpose::ReadAll);
            }
            start = end + 1;
        }
    }

    /// Sectors whose reads fail or may fail.
    pub(super) fn may_fail(&self) -> impl Iterator<Item = u64> {
        self.unreadable.iter().chain(&self.endangered).chain(&self.doubted).copied()
    }

    pub(super) fn heard(&mut self, run: &mut Running, notice: Notice) {
        match notice {
            Notice::Broken { .. } | Notice::WriteLost { .. } => panic!("{notice:?}"),
            Notice::MemberOut { .. } => self.tally.count("member-out"),
            Notice::JobEnded { progress, end: JobEnd::Completed }
                if progress.kind == JobKind::Resync =>
            {
                self.tally.count("resynced");
            }
            _ => {}
        }
        run.notices.push(notice);
    }

    /// The process waits for writes that no client waits for: those of read repair.
    fn end_writes(&mut self, run: &mut Running) {
        let delayed = std::mem::take(&mut run.delayed).into_iter().map(|(_, event)| event);
        let pending = run.pending.iter_mut().flat_map(std::mem::take);
        let left: Vec<Event> = pending.chain(delayed).collect();
        for event in left.iter().filter(|event| matches!(event, Event::Io { .. })) {
            self.half_do(run, event, false);
        }
    }

    /// The array has stopped, and power may be cut before it is opened again.
    fn rest(&mut self) {
        if self.plan.cuts_at_rest {
            self.disks.iter_mut().for_each(|disk| _ = disk.lose_power(&mut self.fate));
            self.model.lose_power(true);
        }
    }

    /// The process ends at any moment; with a power cut disks lose unflushed writes as well.
    fn crash(&mut self, run: Option<Running>) {
        let (_, kind) = self.plan.crashes.pop().expect("a crash is due");
        let is_cut = kind == CrashKind::PowerCut;
        self.tally.count(if is_cut { "power-cut" } else { "process-killed" });
        if let Some(mut run) = run {
            // A write in flight may have healed its sectors.
            let touched: BTreeSet<u64> =
                self.unreadable.iter().copied().filter(|at| run.is_written(*at)).collect();
            self.unreadable.retain(|sector| !touched.contains(sector));
            self.endangered.extend(touched);
            let mut pending: Vec<Event> = run.pending.iter_mut().flat_map(std::mem::take).collect();
            pending.extend(std::mem::take(&mut run.delayed).into_iter().map(|(_, event)| event));
            for event in pending {
                if self.fate.chance(50) {
                    self.half_do(&mut run, &event, is_cut);
                }
            }
        }
        self.model.lose_process(self.step, None);
        if is_cut {
            for disk in &mut self.disks {
                self.tally.sectors_undone += disk.lose_power(&mut self.fate);
            }
            self.copy.lose_power(&mut self.fate);
            self.model.lose_power(true);
        } else if self.plan.writes_back {
            self.model.lose_power(false);
        }
        self.plan.asked_turn = None;
        self.closed = None;
    }

    /// A disk writes all or a part of a request in flight.
    fn half_do(&mut self, run: &mut Running, event: &Event, is_cut: bool) {
        if let Event::CopyWrite { writes } = event {
            let (offset, data) = writes.front().expect("a write is due");
            let (start, data) = (offset / SECTOR as u64, padded(data.clone()));
            match is_cut {
                true => self.copy.disk().tear((start, &data), &mut self.fate),
                false => self.copy.disk().put(start, &data, false),
            }
            return;
        }
        let written = match event {
            Event::Superblock { member, state, time } => {
                let side = &mut run.machines.members[usize::from(member.0)];
                let (start, data) = side.superblock_for(&self.disks, *member, (state, *time));
                Some((side.disk, start, data, true))
            }
            event => run.write_of(event),
        };
        let Some((disk, start, data, durable)) = written else { return };
        let disk = &mut self.disks[disk];
        if disk.ills.gone {
            return;
        }
        self.tally.count("torn-request");
        if is_cut {
            disk.tear((start, &data), &mut self.fate);
        } else {
            disk.put(start, &data, durable);
        }
    }

    /// Compares the disks with the image of the content, which was just read.
    fn check_disks(&mut self) {
        let presented = self.present();
        let (_, assembly) = self.assemble(&presented);
        let assembled = match assembly.array {
            Ok(assembled) => assembled,
            // The new part of larger members is in doubt, and a member is missing.
            Err(refusal) => return self.check_refusal(&refusal),
        };
        let is_doubted = self.change.is_larger();
        assert!(is_doubted || !assembled.dirty, "it stopped clean");
        for disk in presented.iter().map(|disk| &self.disks[*disk]) {
            let found = probe_disk(disk, 0);
            let is_over = found.probe.newest().is_none_or(|said| said.reshape.is_none());
            assert!(is_over, "the reshape is over, and a superblock still says it");
        }
        let geometry = &assembled.geometry;
        let mut content = vec![0; geometry.capacity_sectors() as usize * SECTOR];
        for sector in 0..self.size() {
            let mut versions = self.model.readable(sector, u64::MAX);
            versions.dedup();
            assert_eq!(versions.len(), 1, "sector {sector} was read, and no write is in flight");
            self.model.bytes_of(sector, versions[0], &mut content[bytes(sector, 1)]);
        }
        let in_sync = |one: &Option<Occupant>| one.clone().filter(Occupant::is_in_sync);
        let is_whole = assembled.slots.iter().all(|one| in_sync(one).is_some());
        // Sectors that no client has written keep their bytes, and parity fits them. A missing disk
        // may hold any bytes.
        let is_unwritten = self.change.is_at_once();
        let unwritten = self.size()..geometry.capacity_sectors();
        for sector in unwritten.filter(|_| is_unwritten && is_whole) {
            let (slot, place) = places(geometry, sector)[0];
            let occupant = assembled.slots[slot.index()].as_ref().expect("it is whole");
            let disk = &self.disks[presented[occupant.member]];
            let from = probe(disk).device.data_offset_sectors + place.0;
            content[bytes(sector, 1)].copy_from_slice(&disk.seen[bytes(from, 1)]);
        }
        let image = image(geometry, &content);
        let chunk = u64::from(geometry.chunk_sectors());
        // No client has written the sectors that were lost in the new part.
        let place = |sector: &u64| places(geometry, *sector)[0].1.0 / chunk;
        let ends = geometry.capacity_sectors();
        let lost_rows: BTreeSet<u64> = self.endangered.range(..ends).map(place).collect();
        let row = match geometry {
            Geometry::Stripe(stripe) => u64::from(stripe.data_slots()) * chunk,
            _ => u64::from(geometry.slots()) * chunk,
        };
        let rows = match is_unwritten && !is_whole {
            true => self.size() / row,
            false => geometry.used_sectors(Slot(0)) / chunk,
        };
        let occupants = (0..).zip(assembled.slots.iter().map(in_sync));
        for (slot, occupant) in occupants.filter_map(|(slot, one)| Some((slot, one?))) {
            let slot: usize = slot;
            let disk = &self.disks[presented[occupant.member]];
            let found = probe(disk);
            let start = found.device.data_offset_sectors;
            let chunks = image[slot].chunks(chunk as usize * SECTOR);
            for (row, expected) in chunks.enumerate().take(rows as usize) {
                let is_lost = lost_rows.contains(&(row as u64));
                if is_lost || is_unused(geometry, slot, row as u64 * chunk) {
                    continue;
                }
                let from = start + row as u64 * chunk;
                let sectors = (expected.len() / SECTOR) as u64;
                let is_right = disk.seen[bytes(from, sectors)] == *expected;
                assert!(is_right, "row {row} of slot {slot} has other data or parity");
            }
        }
        self.tally.count("ended-right");
    }
}

/// Whether a window failed because the process lacked memory, or the state folder was full.
fn is_short(notice: &Notice) -> bool {
    matches!(notice, Notice::JobEnded { end: JobEnd::Unwritten, .. })
}

/// Whether a window failed at sectors that no disk gives.
fn is_unreadable(notice: &Notice) -> bool {
    matches!(notice, Notice::JobEnded { progress, end: JobEnd::Unreadable }
        if progress.kind == JobKind::Reshape)
}

/// Checks that assembly calls a copied window at risk: without its copy the array is refused, and
/// rescue says what may be wrong.
fn check_at_risk(probed: &[ProbedMember], window: &Range<u64>) {
    let reshaping = Reshaping::of(probed).expect("a window has a reshape");
    let at_risk = reshaping.expect("the array was assembled").at_risk;
    let is_covered =
        at_risk.is_some_and(|at_risk| at_risk.start <= window.start && window.end <= at_risk.end);
    assert!(is_covered, "a window in place is not at risk: {window:?}");
}

/// Whether a sector of a member's data area holds no copy: rows of a RAID-10 may be incomplete.
fn is_unused(geometry: &Geometry, slot: usize, sector: u64) -> bool {
    let Geometry::Mirror(mirror) = geometry else { return false };
    let slot = Slot(u16::try_from(slot).expect("a slot"));
    mirror.logical(slot, MemberSector(sector)).is_none()
}

fn probe(disk: &crate::disk::Disk) -> Superblock {
    let probed = probe_disk(disk, 0);
    probed.probe.newest().expect("a member").clone()
}

fn mark_bad(disks: &mut [crate::disk::Disk], change: &Change, slot: Slot, place: u64) {
    let start = change.data_offset(slot.0);
    disks[slot.index()].bad.insert(start + place);
}

/// The members' data areas, made of the start in the old shape if it differs, the start in the new
/// shape, and the end.
fn areas(
    run: &Running,
    of: impl Fn(Option<u64>, u64, u64) -> DataArea,
) -> Vec<(MemberId, DataArea)> {
    let members = run.machines.array.members().into_iter();
    let areas = members.map(|id| {
        let superblock = &run.machines.members[usize::from(id.0)].superblock;
        let device = &superblock.device;
        let old = device.data_offset_sectors;
        let moved = superblock.reshape.and_then(|one| one.new_data_offset_sectors);
        let end = old + device.data_size_sectors;
        (id, of(moved.map(|_| old), moved.unwrap_or(old), end))
    });
    areas.collect()
}
