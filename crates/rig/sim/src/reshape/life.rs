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

use braid_assembly::{AssembledArray, Occupant, Refusal};
use braid_engine::array::{
    DataArea, JobEnd, JobKind, JobRequest, MemberId, Notice, ShapeChange, ShapeRefusal,
};
use braid_engine::open::levelling;
use braid_engine::request::Operation;
use braid_engine::reshape::{ShapeLimits, ShapeMember, WishError, propose, superblocks_of_change};
use braid_engine::{CacheConfig, CacheMode, Instant, Tuning};
use braid_geometry::{Geometry, Slot};
use braid_ondisk::{Superblock, Timestamp};

use super::kinds::Change;
use super::plan::{CrashKind, Plan};
use super::requests::{Gate, Purpose};
use super::world::{Event, Running, StepResult, World};
use crate::content::{SECTOR, bytes, image, places};
use crate::create::MADE_AT_SECONDS;
use crate::memory::Payloads;
use crate::model::Model;
use crate::open::{Manner, assemble_disks, opening_of, probe_disk, start_opening, superblocks};
use crate::random::{Random, mix};
use crate::tally::Tally;

/// Steps after which a run that is not over hangs.
const STEPS_MAX: u64 = 2_000_000;
/// Requests of clients in one opening, at most.
const REQUESTS_MAX: u64 = 2_000;

/// The driver's stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// A change of shape was asked for.
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
        let mut unreadable = BTreeSet::new();
        // Bad sectors lie on one disk only: its redundancy is on the other disks.
        let bad: Vec<_> = plan.unreadable.iter().map(|at| places(&geometry, *at)[0]).collect();
        let of_first = bad.iter().filter(|(slot, _)| *slot == bad[0].0);
        of_first.for_each(|(slot, place)| mark_bad(&mut disks, &change, *slot, place.0));
        if plan.has_bad_row {
            // Two columns of a row, in the middle of the array.
            let first = geometry.capacity_sectors() / 2;
            let chunk = u64::from(geometry.chunk_sectors());
            for sector in [first, first + chunk] {
                let (slot, place) = places(&geometry, sector)[0];
                mark_bad(&mut disks, &change, slot, place.0);
                unreadable.insert(sector);
            }
        }
        plan.missing.iter().for_each(|disk| disks[*disk].ills.gone = true);
        Self {
            model: Model::new(change.size()),
            change,
            plan,
            disks,
            unreadable,
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

    /// Lives the whole life. The run ends early if assembly rightly refuses the array.
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

    fn present(&self) -> Vec<usize> {
        (0..self.disks.len()).filter(|disk| !self.disks[*disk].ills.gone).collect()
    }

    /// A dirty array that lacks a member may have torn rows.
    fn check_refusal(&mut self, refusal: &Refusal) {
        let is_degraded = self.present().len() < self.disks.len();
        let is_write_hole = matches!(refusal, Refusal::DirtyAndDegraded(_));
        let is_degraded = is_degraded || self.is_torn();
        assert!(is_write_hole && is_degraded && self.has_crashed(), "refused: {refusal}");
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
        let (probed, assembly) = assemble_disks(&self.disks, &presented);
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
        if let Some(reshape) = &mut opening.setup.reshape {
            reshape.window_sectors_max = Some(self.plan.window_sectors);
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
            weights: Running::weights(&mut self.random, self.plan.late_superblocks),
            steps: 0,
            issued: 0,
        });
        // A disk that died since it was probed fails its first request; a machine begins by itself.
        run.machines.array.handle_timeout(self.now);
        self.drain_array(&mut run);
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

    /// Notes the shape that the array is on its way to.
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
            assert!(self.step < STEPS_MAX, "the array hangs: {stage:?}");
            stage = match stage {
                Stage::Serving => self.direct(run, assembled),
                Stage::Asked if self.takes(run, |one| *one == Notice::ShapeRecorded) => {
                    if self.direct_change.is_empty() {
                        self.check_shape_recorded(run);
                    }
                    Stage::Draining
                }
                Stage::Calming if run.is_idle() => {
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
                    assert!(!waits, "nothing happens any more: {stage:?}");
                }
            }
        }
    }

    /// Takes the first notice that fits.
    fn takes(&self, run: &mut Running, fits: impl Fn(&Notice) -> bool) -> bool {
        let found = run.notices.iter().position(fits);
        found.map(|index| run.notices.remove(index)).is_some()
    }

    /// Decides what an operator does next.
    fn direct(&mut self, run: &mut Running, assembled: &AssembledArray) -> Stage {
        if assembled.reshape.is_some() {
            return self.direct_reshape(run);
        }
        let array = &run.machines.array;
        if self.has_asked_to_finish {
            let goal = self.goal.as_ref().expect("a reshape was finished");
            assert_eq!(assembled.geometry, *goal, "the reshape led to another shape");
            let is_whole = array.may_begin_reshape() != Err(ShapeRefusal::Busy(JobKind::Resync))
                && array.may_begin_reshape() != Err(ShapeRefusal::Busy(JobKind::Recovery));
            if is_whole && run.steps > self.plan.steps_before {
                return Stage::Calming;
            }
            return Stage::Serving;
        }
        if run.steps < self.plan.steps_before || array.may_begin_reshape().is_err() {
            return Stage::Serving;
        }
        let change = match self.proposal(run) {
            Ok(change) => change,
            // A spare was needed for a lost member: the array stays as it is.
            Err(WishError::TooFewSpares { .. }) => {
                let is_fewer = self.tally.of("disk-dies") > 0 || self.is_torn();
                assert!(is_fewer, "there are spares");
                self.tally.count("spare-was-needed");
                self.has_asked_to_finish = true;
                self.goal = Some(assembled.geometry.clone());
                return Stage::Serving;
            }
            Err(error) => panic!("no such reshape: {error}"),
        };
        self.tally.count(if self.change.shrinks() { "begun-to-shrink" } else { "begun" });
        if self.change.is_striped() {
            self.direct_change = self.direct_superblocks(run, &change);
        }
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
            Some(end) => {
                assert!(self.plan.has_bad_row, "the reshape ends: {end:?}");
                run.notices.clear();
                self.tally.count("window-failed");
                self.heal_row(run);
                Stage::Serving
            }
        }
    }

    /// A client writes all unreadable sectors, and the operator resumes the reshape.
    fn heal_row(&mut self, run: &mut Running) {
        let geometry = self.change.geometry_before();
        let first = self.unreadable.first().copied().expect("some are");
        let last = self.unreadable.last().copied().expect("some are");
        let Geometry::Stripe(stripe) = &geometry else { unreachable!("it has parity") };
        let row = u64::from(stripe.data_slots()) * u64::from(stripe.chunk_sectors());
        let (start, end) = (first / row * row, (last + 1).next_multiple_of(row));
        let operation = Operation::Write { durable: false };
        self.issue(run, operation, (start, end - start), Purpose::Client);
        while !run.is_idle() {
            let did = self.step(run, false);
            assert_eq!(did, StepResult::Something, "the write hangs");
        }
        run.machines.array.handle_job_request(self.now, JobRequest::Resume);
        self.drain_array(run);
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
    fn proposal(&self, run: &Running) -> Result<ShapeChange, WishError> {
        let members = self.shape_members(run);
        let used_sectors = self.size();
        let limits = ShapeLimits { bitmap_sectors: 0, can_copy: false, used_sectors };
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
            let own = shape.of_member(one.id, one.superblock);
            one.superblock.with_shape(&own, one.device_bytes).expect("a superblock can say it");
        }
        Ok(proposal.change)
    }

    /// Checks that all present members' superblocks have the shape that was asked for, durably.
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
        // Before a reshape to fewer members no client reads what only the old shape has.
        let size = if regions.is_reshaping() || self.goal.is_none() {
            self.size()
        } else {
            let view = &run.machines.shards[0].view;
            view.geometry.capacity_sectors()
        };
        self.issue(run, Operation::Read, (0, size), Purpose::ReadAll);
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
            self.model.lose_power(true);
        } else if self.plan.writes_back {
            self.model.lose_power(false);
        }
        self.plan.asked_turn = None;
    }

    /// A disk writes all or a part of a request in flight.
    fn half_do(&mut self, run: &mut Running, event: &Event, is_cut: bool) {
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
        let (_, assembly) = assemble_disks(&self.disks, &presented);
        let assembled = assembly.array.expect("it stopped");
        assert!(!assembled.dirty, "it stopped clean");
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
        let image = image(geometry, &content);
        let in_sync = |one: &Option<Occupant>| one.clone().filter(Occupant::is_in_sync);
        let occupants = (0..).zip(assembled.slots.iter().map(in_sync));
        for (slot, occupant) in occupants.filter_map(|(slot, one)| Some((slot, one?))) {
            let slot: usize = slot;
            let disk = &self.disks[presented[occupant.member]];
            let found = probe(disk);
            let start = found.device.data_offset_sectors;
            let chunk = u64::from(geometry.chunk_sectors());
            for (row, expected) in image[slot].chunks(chunk as usize * SECTOR).enumerate() {
                let from = start + row as u64 * chunk;
                let sectors = (expected.len() / SECTOR) as u64;
                let is_right = disk.seen[bytes(from, sectors)] == *expected;
                assert!(is_right, "row {row} of slot {slot} has other data or parity");
            }
        }
        self.tally.count("ended-right");
    }
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
