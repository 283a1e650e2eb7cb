//! A world that a story drives: the story makes events happen, the seed schedules all others.
//!
//! ```text
//!   issue, flush ──▶ world ──▶ answers          befall, plan: mishaps, at once or at some step
//!                     │  ▲
//!              hold ──▼──┘ release              events that do not happen for now are set aside
//! ```
//!
//! Time passes only when a story lets it: [`Script::run_without_time`] runs all events of the
//! current moment, [`Script::tick`] goes to the next timeout, and [`Script::settle`] does both
//! until nothing is left.
//!
//! In addition to every world's checks, each step checks I3 and I5 (docs/write-path.md) literally
//! ([`Script::check_told`]).

use std::collections::BTreeSet;

use braid_engine::array::{JobRequest, MemberId, Notice};
use braid_engine::cause::RequestKind;
use braid_engine::effect::FaultKind;
use braid_engine::request::{Fault as Refused, Operation, RequestId};
use braid_engine::{Counters, SitOut, Tuning};
use braid_geometry::{Family, Geometry, MemberSector, Slot};
use braid_ondisk::{Role, Superblock};

use crate::content::{SECTOR, bytes, image};
use crate::disk::DiskFaults;
use crate::fault::{Fault, Mishap};
use crate::random::Random;
use crate::schedule::Event;
use crate::world::{StepResult, World};

/// A story with more steps than this is taken to loop.
const STEPS_MAX: u64 = 400_000;

/// How many ticks a story waits for a shard that stays busy.
const TICKS_MAX: u32 = 100;

pub(super) const WRITE: Operation = Operation::Write { durable: false };

/// How many client requests of each kind a story issues.
#[derive(Clone, Copy)]
pub(super) struct Mix {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) zeroes: u64,
    pub(super) trims: u64,
    pub(super) flushes: u64,
    pub(super) requests: u32,
    pub(super) in_flight_max: usize,
}

impl Mix {
    pub(super) const ALL: Self = Self {
        reads: 40,
        writes: 50,
        zeroes: 6,
        trims: 4,
        flushes: 4,
        requests: 40,
        in_flight_max: 8,
    };
}

pub(super) struct Script {
    pub(super) world: World,
    /// Draws everything that the story leaves to chance.
    pub(super) random: Random,
    is_held: Box<dyn Fn(&Event) -> bool>,
    set_aside: Vec<Event>,
    /// Whether redundancy agreed when the story began.
    was_clean: bool,
    /// Rotten sectors, by disk. A repair may write them while superblocks say clean.
    rotten: BTreeSet<(usize, u64)>,
}

impl Script {
    pub(super) fn new(world: World, random: Random) -> Self {
        let was_clean = !world.standing().is_dirty;
        let (is_held, set_aside, rotten) =
            (Box::new(|_: &Event| false), Vec::new(), BTreeSet::new());
        Self { world, random, is_held, set_aside, was_clean, rotten }
    }

    /// Holds back all events for which `is_held` is true, until [`Self::release`] or the next
    /// `hold`.
    pub(super) fn hold(&mut self, is_held: impl Fn(&Event) -> bool + 'static) {
        self.release();
        self.is_held = Box::new(is_held);
    }

    /// Holds all member requests back.
    pub(super) fn hold_io(&mut self) {
        self.hold(|event| matches!(event, Event::Io(_)));
    }

    pub(super) fn release(&mut self) {
        self.is_held = Box::new(|_| false);
        for event in std::mem::take(&mut self.set_aside) {
            self.world.engine.pending.push(event);
        }
    }

    /// The events that are held back. These events still count as in flight.
    pub(super) fn held(&self) -> &[Event] {
        &self.set_aside
    }

    pub(super) fn step(&mut self, may_issue: bool) -> StepResult {
        self.set_aside.extend(self.world.engine.pending.set_aside(&*self.is_held));
        assert!(self.world.clock.step < STEPS_MAX, "the story does not come to rest");
        let did = self.world.step(may_issue);
        self.check_told();
        did
    }

    /// Runs until nothing can happen unless time passes or held events are released.
    pub(super) fn run_without_time(&mut self) {
        self.world.engine.slow.time_stands = true;
        while self.step(false) != StepResult::Nothing {}
        self.world.engine.slow.time_stands = false;
    }

    /// Time jumps to the next timeout.
    pub(super) fn tick(&mut self) {
        self.world.tick();
        self.check_told();
    }

    /// Lets so much time pass that an idle array turns clean.
    pub(super) fn rest(&mut self) {
        for _ in 0..12 {
            self.run_without_time();
            self.tick();
        }
        self.run_without_time();
    }

    /// Lets this much time pass, with all its events.
    pub(super) fn pass_time(&mut self, milliseconds: u64) {
        let end = self.world.clock.now.plus_milliseconds(milliseconds);
        self.run_without_time();
        while self.world.clock.now < end {
            self.run_without_time();
            if self.world.engine.due().is_none_or(|due| due > end) {
                self.world.clock.now = end;
            }
            self.tick();
        }
        self.run_without_time();
    }

    /// Runs until every request is answered and every shard is idle.
    pub(super) fn settle(&mut self) {
        let mut ticks = 0;
        loop {
            let is_answered = self.world.engine.clients.is_idle();
            let is_quiet = self.world.is_quiet() && self.set_aside.is_empty();
            if is_answered && is_quiet && self.is_idle() {
                return;
            }
            // A member that sits out is probed again and again, so its shard never becomes idle.
            if is_answered && ticks > TICKS_MAX && !self.world.engine.slow.sitting_out.is_empty() {
                self.run_without_time();
                break;
            }
            match self.step(false) {
                StepResult::Nothing => {
                    assert!(is_answered, "requests hang");
                    break;
                }
                StepResult::Tick if is_answered => ticks += 1,
                _ => {}
            }
        }
        assert!(self.is_idle(), "a shard has unfinished work");
    }

    fn is_idle(&self) -> bool {
        self.world.engine.machines.shards.iter().all(|side| side.shard.is_idle())
    }

    pub(super) fn tell_to_stop(&mut self) {
        self.world.engine.machines.array.handle_stop(self.world.clock.now);
        self.world.drain_array();
    }

    /// Whether the array is clean, once it has stopped; `None` before.
    pub(super) fn stopped(&self) -> Option<bool> {
        self.world.engine.notices.iter().find_map(|notice| match notice {
            Notice::Stopped { clean } => Some(*clean),
            _ => None,
        })
    }

    /// Stops the array. Returns whether it says that it is clean.
    pub(super) fn stop(&mut self) -> bool {
        self.tell_to_stop();
        self.settle();
        self.world.has_stopped()
    }

    /// Ends a story in which no client noticed a failure. Checks the bytes on the disks, that the
    /// array stops clean, and that everything reads right after a restart.
    pub(super) fn ends_well(mut self) {
        self.check_members();
        assert!(self.stop(), "the surviving members stop clean");
        let world = &mut self.world;
        world.unsure.extend(world.engine.plan.victims.iter().copied());
        world.disks.iter_mut().for_each(|disk| disk.ills = DiskFaults::default());
        let all: Vec<usize> = (0..world.disks.len()).collect();
        let opened = world.open(&all, !world.standing().is_dirty);
        opened.expect("an array that stopped clean starts again");
        assert!(world.read_all().is_some(), "all of it can be read");
    }

    /// Cuts power, starts the array and reads everything; flushed writes must be readable. False if
    /// the array does not start, which is right only if a disk has failed.
    pub(super) fn loses_power(mut self) -> bool {
        let world = &mut self.world;
        world.crash(true);
        let victims = world.engine.plan.victims.clone();
        world.unsure.extend(&victims);
        world.disks.iter_mut().for_each(|disk| disk.ills = DiskFaults::default());
        let all: Vec<usize> = (0..world.disks.len()).collect();
        match world.open(&all, false) {
            Ok(_) => assert!(world.read_all().is_some(), "all of it can be read"),
            Err(refusal) => {
                assert!(!victims.is_empty(), "{refusal}");
                return false;
            }
        }
        true
    }

    pub(super) fn issue(&mut self, operation: Operation, start: u64, sectors: u64) -> RequestId {
        self.world.issue(operation, start, sectors)
    }

    pub(super) fn flush(&mut self) -> RequestId {
        self.world.flush()
    }

    pub(super) fn answer(&self, id: RequestId) -> Option<Result<(), Refused>> {
        self.world.engine.clients.answers.get(&id).copied()
    }

    /// Whether all of these requests succeeded.
    pub(super) fn went_well(&self, ids: &[RequestId]) -> bool {
        ids.iter().all(|id| self.answer(*id) == Some(Ok(())))
    }

    pub(super) fn flush_alone(&mut self) -> Result<(), Refused> {
        let id = self.flush();
        self.settle();
        self.answer(id).expect("it settled")
    }

    pub(super) fn write(&mut self, start: u64, sectors: u64) -> Result<(), Refused> {
        let id = self.issue(WRITE, start, sectors);
        self.settle();
        self.answer(id).expect("it settled")
    }

    /// Reads and waits for the answer. The model checks the bytes read.
    pub(super) fn read(&mut self, start: u64, sectors: u64) -> Result<(), Refused> {
        let id = self.issue(Operation::Read, start, sectors);
        self.settle();
        self.answer(id).expect("it settled")
    }

    /// Issues a write and runs until nothing can happen without time. Returns whether it succeeded.
    pub(super) fn try_write(&mut self, start: u64, sectors: u64) -> bool {
        let id = self.issue(WRITE, start, sectors);
        self.run_without_time();
        self.went_well(&[id])
    }

    /// Issues a read and runs until nothing can happen without time. Returns the read's answer.
    pub(super) fn try_read(&mut self, start: u64, sectors: u64) -> Result<(), Refused> {
        let id = self.issue(Operation::Read, start, sectors);
        self.run_without_time();
        self.answer(id).expect("nothing else is needed for it")
    }

    /// Keeps the bytes that this read returns, for [`Self::take_kept`].
    pub(super) fn keep(&mut self, id: RequestId) {
        self.world.engine.clients.flights.get_mut(&id).expect("just issued").keep = true;
    }

    pub(super) fn kept(&self, id: RequestId) -> Vec<u8> {
        self.world.engine.payloads[&id].data.clone()
    }

    pub(super) fn forget(&mut self, id: RequestId) {
        self.world.engine.payloads.remove(&id);
    }

    /// The content of the whole array, read as a client reads it.
    pub(super) fn read_all(&mut self) -> Vec<u8> {
        const LENGTH: u64 = 1000;
        let capacity = self.capacity();
        let mut content = Vec::new();
        for start in (0..capacity).step_by(LENGTH as usize) {
            let id = self.issue(Operation::Read, start, LENGTH.min(capacity - start));
            self.keep(id);
            self.settle();
            assert!(self.went_well(&[id]), "all can be read");
            content.extend(self.kept(id));
            self.forget(id);
        }
        content
    }

    /// Issues the requests of `mix`, and runs until all are answered.
    pub(super) fn run(&mut self, mix: &Mix) {
        let mut left = mix.requests;
        while left > 0 {
            let may_issue = self.world.engine.clients.in_flight_whole() < mix.in_flight_max;
            match self.step(may_issue) {
                StepResult::Issue => {
                    self.issue_any(mix);
                    left -= 1;
                }
                StepResult::Nothing => panic!("requests hang"),
                StepResult::Tick | StepResult::Stalled | StepResult::Something => {}
            }
        }
        self.settle();
    }

    /// Issues requests of `mix` for so many steps. Requests without an answer then stay in flight.
    pub(super) fn begin_mix(&mut self, mix: &Mix, steps: u64) {
        for _ in 0..steps {
            let may_issue = self.world.engine.clients.in_flight_whole() < mix.in_flight_max;
            if self.step(may_issue) == StepResult::Issue {
                self.issue_any(mix);
            }
        }
    }

    /// The array was restarted. The array's first flush may have failed, which [`Self::check_told`]
    /// cannot see, so its checks begin anew.
    pub(super) fn begins_anew(&mut self) {
        self.set_aside.clear();
        self.was_clean = false;
    }

    pub(super) fn issue_any(&mut self, mix: &Mix) {
        let kinds = [mix.reads, mix.writes, mix.zeroes, mix.trims, mix.flushes];
        let kind = self.random.weighted(&kinds);
        let durable = self.random.chance(25);
        let may_punch = self.random.chance(50);
        let operation = match kind {
            0 => Operation::Read,
            1 => Operation::Write { durable },
            2 => Operation::WriteZeroes { may_punch, durable },
            3 => Operation::Trim,
            _ => {
                self.flush();
                return;
            }
        };
        let capacity = self.capacity();
        let longest = *self.random.pick(&[1, 4, 16, 64, 400]);
        let sectors = (1 + self.random.below(longest)).min(capacity);
        // Half of the requests are near the start of the array, so that they overlap.
        let room = capacity - sectors + 1;
        let room = if self.random.chance(50) { room.min(40) } else { room };
        let start = self.random.below(room);
        self.issue(operation, start, sectors);
    }

    /// Lets a fault hit a disk now.
    pub(super) fn befall(&mut self, disk: usize, mishap: Mishap) {
        self.expect_harm(disk);
        self.world.befall(Fault { step: 0, disk, mishap, ordinal: 0 });
    }

    /// Lets a fault hit a disk so many steps from now.
    pub(super) fn plan(&mut self, steps: u64, disk: usize, mishap: Mishap) {
        self.expect_harm(disk);
        let step = self.world.clock.step + steps;
        self.world.engine.plan.faults.push(Fault { step, disk, mishap, ordinal: 0 });
    }

    fn expect_harm(&mut self, disk: usize) {
        self.world.engine.plan.victims.insert(disk);
        self.world.trust();
    }

    /// Lets a chunk rot. Returns the chunk's content before.
    pub(super) fn rots(
        &mut self,
        disk: usize,
        (sector, sectors): (u64, u64),
        error: impl Fn(&mut Random) -> u8,
    ) -> Vec<u8> {
        let start = self.world.taint.data_offset + sector;
        let held = self.world.disks[disk].seen[bytes(start, sectors)].to_vec();
        let rotten: Vec<u8> = held.iter().map(|byte| byte ^ error(&mut self.random)).collect();
        self.world.disks[disk].put(start, &rotten, true);
        self.rotten.extend((start..start + sectors).map(|sector| (disk, sector)));
        held
    }

    /// Makes a sector of a disk's data area fail reads and writes.
    pub(super) fn stuck_sector(&mut self, disk: usize, sector: u64) {
        self.bad_sector(disk, sector);
        let at = self.world.taint.data_offset + sector;
        self.world.disks[disk].stuck.insert(at);
    }

    /// Makes a sector of a disk's data area fail reads until it is written.
    pub(super) fn bad_sector(&mut self, disk: usize, sector: u64) {
        self.befall(disk, self.bad_at(sector));
    }

    pub(super) fn bad_at(&self, sector: u64) -> Mishap {
        Mishap::BadSectors { start: self.world.taint.data_offset + sector, sectors: 1 }
    }

    /// Plans `count` faults of `disks` within the next `steps` steps.
    pub(super) fn plan_mishaps(&mut self, disks: &[usize], count: u64, steps: u64) {
        for _ in 0..count {
            let disk = *self.random.pick(disks);
            let mishap = match self.random.below(8) {
                0 => Mishap::Dies,
                1 => Mishap::WritesFail,
                2 => Mishap::FlushesFail,
                3 => Mishap::SuperblocksFail,
                _ => {
                    let used = self.world.geometry.used_sectors(Slot(disk as u16));
                    let sector = self.random.below(used);
                    self.bad_at(sector)
                }
            };
            let step = self.random.below(steps);
            self.plan(step, disk, mishap);
        }
    }

    /// The driver reports to the array that a member's device has gone.
    pub(super) fn vanishes(&mut self, disk: usize) {
        self.expect_harm(disk);
        let asked = (RequestKind::Superblock, FaultKind::Gone);
        let cause = self.world.failed(self.member(disk), asked, (0, 0));
        self.world.engine.machines.array.handle_member_gone(self.world.clock.now, cause);
        self.world.drain_array();
    }

    pub(super) fn allow_errors(&mut self) {
        self.world.engine.plan.errors_allowed = true;
        self.world.trust();
    }

    pub(super) fn tune(&mut self, tuning: Tuning) {
        self.world.befall(Fault { step: 0, disk: 0, mishap: Mishap::Tunes(tuning), ordinal: 0 });
    }

    pub(super) fn request(&mut self, request: JobRequest) {
        self.world.bad_logs.are_tried |= request == JobRequest::RetryBad;
        self.world.engine.machines.array.handle_job_request(self.world.clock.now, request);
        self.world.drain_array();
    }

    pub(super) fn replaces(&mut self, disk: usize, spare: usize) {
        let (old, new, now) = (self.member(disk), self.member(spare), self.world.clock.now);
        let array = &mut self.world.engine.machines.array;
        array.handle_replace_request(now, old, new).expect("it can be replaced");
        self.world.drain_array();
    }

    /// The disk of the member in each slot, by the shards' view.
    pub(super) fn seats(&self) -> Vec<Option<usize>> {
        let view = &self.world.engine.machines.shards[0].view;
        let disk = |id: MemberId| self.world.disk_index(id);
        view.slots.iter().map(|slot| slot.as_ref().map(|member| disk(member.id))).collect()
    }

    /// An operator sets a member faulty.
    pub(super) fn fails_by_person(&mut self, disk: usize) {
        let (id, now) = (self.member(disk), self.world.clock.now);
        let plan = &mut self.world.engine.plan;
        plan.victims.insert(disk);
        plan.failed_by_person.insert(id);
        let failed = self.world.engine.machines.array.handle_fail_request(now, id);
        failed.expect("the array can do without it");
        self.world.drain_array();
    }

    pub(super) fn watch(&mut self, settings: SitOut) {
        let mishap = Mishap::Watches(settings);
        self.world.befall(Fault { step: 0, disk: 0, mishap, ordinal: 0 });
        self.run_without_time();
    }

    pub(super) fn capacity(&self) -> u64 {
        self.world.geometry.capacity_sectors()
    }

    /// The engine's name of the member on a disk.
    pub(super) fn member(&self, disk: usize) -> MemberId {
        let members = &self.world.engine.machines.members;
        let id = members.iter().rposition(|member| member.disk == disk);
        MemberId(id.expect("it takes part") as u16)
    }

    pub(super) fn sits_out(&self, disk: usize) -> bool {
        self.world.engine.slow.sitting_out.contains(&self.member(disk))
    }

    pub(super) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        let shards = self.world.engine.machines.shards.iter();
        shards.for_each(|side| sum.add(side.shard.counters()));
        sum
    }

    pub(super) fn dirty_sectors(&self) -> u64 {
        let shards = self.world.engine.machines.shards.iter();
        shards.map(|side| side.shard.dirty_sectors()).sum()
    }

    pub(super) fn heard(&self, is_it: impl Fn(&Notice) -> bool) -> bool {
        self.world.engine.notices.iter().any(is_it)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.heard(|notice| matches!(notice, Notice::Broken { .. }))
    }

    /// Whether the array has reported this disk as out.
    pub(super) fn is_out(&self, disk: usize) -> bool {
        let id = self.member(disk);
        self.heard(|notice| match notice {
            Notice::MemberOut { member, .. } => *member == id,
            Notice::Replaced { old, .. } => *old == id,
            _ => false,
        })
    }

    pub(super) fn is_any_out(&self) -> bool {
        self.heard(|notice| matches!(notice, Notice::MemberOut { .. }))
    }

    /// The superblock on each slot's disk: its event count, and whether it says clean.
    pub(super) fn superblocks(&self) -> Vec<(u64, bool)> {
        (0..usize::from(self.world.geometry.slots())).map(|disk| self.superblock(disk)).collect()
    }

    pub(super) fn superblock(&self, disk: usize) -> (u64, bool) {
        let superblock = self.world.superblock_on(disk).expect("a disk has its superblock");
        (superblock.state.events, superblock.state.is_clean())
    }

    /// The bytes of a disk that the array uses.
    pub(super) fn data(&self, disk: usize) -> &[u8] {
        &self.world.disks[disk].seen[self.data_bytes(disk)]
    }

    pub(super) fn data_bytes(&self, disk: usize) -> std::ops::Range<usize> {
        let used = self.world.geometry.used_sectors(Slot(disk as u16));
        bytes(self.world.taint.data_offset, used)
    }

    pub(super) fn has_unflushed(&self, disk: usize) -> bool {
        self.world.disks[disk].has_unflushed()
    }

    /// At rest: checks that every member in service holds the bytes demanded by geometry and the
    /// definition of parity.
    pub(super) fn check_members(&mut self) {
        let content = self.read_all();
        let expected = image(&self.world.geometry, &content);
        for disk in self.disks_in_slots() {
            let found = self.data(disk).chunks_exact(SECTOR);
            for (sector, (found, expected)) in
                found.zip(expected[disk].chunks_exact(SECTOR)).enumerate()
            {
                let holds_some = match &self.world.geometry {
                    Geometry::Mirror(mirror) => {
                        let (slot, sector) = (Slot(disk as u16), MemberSector(sector as u64));
                        mirror.logical(slot, sector).is_some()
                    }
                    _ => true,
                };
                let is_right = found == expected || !holds_some;
                assert!(is_right, "sector {sector} of disk {disk} is wrong");
            }
        }
    }

    /// Disks of the members in slots, without those that the array has reported as out.
    fn disks_in_slots(&self) -> Vec<usize> {
        let members = self.world.engine.machines.members.iter().map(|member| member.disk);
        let is_in = |disk: &usize| !self.world.is_spare(*disk) && !self.is_out(*disk);
        members.filter(is_in).collect()
    }

    /// Whether a superblock says clean, or its write in flight does. A superblock that cannot be
    /// written does not count.
    pub(super) fn says_clean(&self) -> bool {
        let engine = &self.world.engine;
        let is_told = engine.machines.members.iter().enumerate().any(|(id, member)| {
            let ills = &self.world.disks[member.disk].ills;
            // A returned disk is two members, and only the later member is in use.
            let is_over = self.member(member.disk) != MemberId(id as u16);
            let is_member = !self.world.is_spare(member.disk) && !self.is_out(member.disk);
            let promises = !is_over && member.superblock.state.role != Role::Spare;
            let can_be_told = !ills.gone && !ills.superblocks_fail;
            member.superblock.state.is_clean() && is_member && promises && can_be_told
        });
        let is_turning = |event: &Event| match event {
            Event::Superblock { state, .. } => state.resync_offset == u64::MAX,
            _ => false,
        };
        is_told || engine.pending.iter().chain(&self.set_aside).any(is_turning)
    }

    /// The sector of a disk up to which it is recovered, by its superblock.
    fn recovered_end(&self, disk: usize) -> u64 {
        // A returned disk is two members, and only the later member is in use.
        let mut members = self.world.engine.machines.members.iter();
        let member = members.rfind(|member| member.disk == disk).expect("it is in");
        let Superblock { state, device, .. } = &member.superblock;
        if state.role == Role::Spare {
            return 0; // In version 0.90 a recovering member is a spare.
        }
        let recovered = device.recovery_offset_sectors;
        recovered.map_or(u64::MAX, |sectors| member.data_offset() + sectors)
    }

    /// Whether a lockless bitmap says that redundancy need not agree at a sector of a disk.
    fn is_unsynced(&self, disk: usize, sector: u64) -> bool {
        let Some(slot) = self.seats().iter().position(|seat| *seat == Some(disk)) else {
            return false;
        };
        let at = MemberSector(sector.saturating_sub(self.world.taint.data_offset));
        let strip = match &self.world.geometry {
            Geometry::Mirror(mirror) => mirror.logical(Slot(slot as u16), at).map(|(at, _)| at.0),
            _ => Some(at.0),
        };
        let mut views = self.world.engine.machines.shards.iter().map(|side| &side.view);
        strip.is_some_and(|strip| views.any(|view| !view.is_synced(&(strip..strip + 1))))
    }

    /// Whether a bad-block log names a sector of a disk.
    fn is_named(&self, disk: usize, sector: u64) -> bool {
        let at = sector.saturating_sub(self.world.taint.data_offset);
        self.world.bad_logs.names(disk, &(at..at + 1))
    }

    /// While any superblock says clean or is about to: checks that no write to a member is in
    /// flight, and that no written sector is volatile (I3 and I5 in docs/write-path.md). Three
    /// kinds of writes are exempt:
    /// - a repair's, because they change only bytes that are not believed;
    /// - writes beyond a member's recovery offset;
    /// - a resync's, in regions that a lockless bitmap calls unsynced, because they leave client
    ///   data unchanged.
    fn check_told(&mut self) {
        let has_intent = self.world.geometry.level().family() != Family::Direct;
        // Superblocks of an array with a journal say clean even while members are written.
        let is_told = self.world.metadata.design.journal_blocks == 0;
        if !has_intent || !is_told || !self.was_clean || !self.says_clean() {
            return;
        }
        let all = self.world.engine.pending.iter().chain(&self.set_aside);
        let vectors = all.filter_map(|event| match event {
            Event::Io(vector) => Some(&vector.parts),
            _ => None,
        });
        let writes = vectors.flatten().filter(|(_, io)| io.operation.is_write()).copied();
        for (shard, io) in writes.collect::<Vec<_>>() {
            let (disk, start) = self.world.place_of(&io);
            // A write to a member that has left is never believed, however late it ends.
            let has_left = self.world.engine.left.contains(&io.member);
            if has_left || self.is_unsynced(disk, start) {
                continue;
            }
            let (data, _) = self.world.bytes_to_write(shard, &io);
            let promised =
                self.recovered_end(disk).saturating_sub(start).min(u64::from(io.sectors));
            let seen = self.world.disks[disk].seen[bytes(start, promised)].chunks_exact(SECTOR);
            let is_same = |(sector, (held, new)): (u64, (&[u8], &[u8]))| {
                held == new || self.rotten.contains(&(disk, sector)) || self.is_named(disk, sector)
            };
            assert!(
                (start..).zip(seen.zip(data.chunks_exact(SECTOR))).all(is_same),
                "{io:?} is under way and a superblock says clean"
            );
        }
        for number in self.disks_in_slots() {
            let recovered_end = self.recovered_end(number);
            let disk = &self.world.disks[number];
            let ills = &disk.ills;
            if ills.gone || ills.flushes_fail || ills.writes_fail || ills.superblocks_fail {
                continue;
            }
            for (sector, _, before) in disk.logged() {
                let is_new = disk.seen[bytes(sector, 1)] != *before && sector < recovered_end;
                let is_new = is_new && !self.is_unsynced(number, sector);
                let is_new = is_new && !self.is_named(number, sector);
                assert!(!is_new, "sector {sector} is volatile and a superblock says clean");
            }
        }
    }
}
