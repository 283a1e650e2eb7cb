//! The driver: carries out effects in an order that the seed chooses, so that any order can come.
//!
//! ```text
//!   clients ─pieces─▶ shards ─requests, computations─▶ devices, memory
//!                      │  ▲
//!              reports ▼  │ views, queries (in order)
//!                     array ─superblocks, flushes─▶ devices
//! ```
//!
//! A request to a device is picked twice: once when the device acts, once when the shard hears of
//! it. Everything else happens when it is picked. Virtual time goes on a little with every step and
//! jumps to the array's next timeout when that is picked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use braid_engine::array::{
    Array, ArrayEffect, ArrayView, MemberId, MetadataArea, MetadataRecord, Notice, SuperblockState,
};
use braid_engine::cause::{Answer, Asked, Cause};
use braid_engine::computation::{self, Computation};
use braid_engine::effect::{
    Attention, FaultKind, MemberFault, MemberIo, MemberIoDone, MemberOperation, Report,
};
use braid_engine::request::{Fault, Piece, Progress, Regions, Request, RequestId, ShardIndex};
use braid_engine::{Counters, Instant, Shard, Tuning};
use braid_geometry::Geometry;

use crate::SECTOR;
use crate::device::Device;
use crate::memory::{Payloads, Reach};
use crate::model::{Model, Version};
use crate::random::Random;
use crate::scene::Scene;

/// More steps than any story here takes: beyond, something goes round in circles.
const STEPS_MAX: u64 = 400_000;

/// Something that has begun and will be done.
pub(crate) enum Event {
    Piece { shard: usize, piece: Piece },
    Io { shard: usize, io: MemberIo, result: Option<Result<(), MemberFault>> },
    Computation { shard: usize, computation: Computation },
    Superblock { member: MemberId, state: Arc<SuperblockState>, written: Option<bool> },
    Flush { member: MemberId, flushed: Option<bool> },
}

pub(crate) enum Message {
    View(Arc<ArrayView>),
    Query,
    WriteBack(u64),
    Tuning(Tuning),
    Attention(Arc<Attention>),
}

pub(crate) struct ShardSide {
    pub(crate) shard: Shard,
    pub(crate) view: Arc<ArrayView>,
    pub(crate) arena: Vec<u8>,
    pub(crate) block_bytes: usize,
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) reports: VecDeque<Report>,
}

pub(crate) struct Clock {
    pub(crate) step: u64,
    pub(crate) now: Instant,
}

/// A client's request under way.
pub(crate) struct Flight {
    pub(crate) request: Request,
    pub(crate) progress: Progress,
    pub(crate) began: u64,
    /// For reads: per sector, what it may read as.
    pub(crate) allowed: Vec<Vec<Version>>,
    /// For reads: nothing was written meanwhile.
    pub(crate) alone: bool,
    pub(crate) keep: bool,
    /// A piece of it was answered early.
    pub(crate) is_early: bool,
}

pub(crate) struct Clients {
    pub(crate) next: RequestId,
    pub(crate) flights: BTreeMap<RequestId, Flight>,
    /// Flushes under way and the step at which each was asked for.
    pub(crate) flushes: BTreeMap<RequestId, u64>,
    pub(crate) answers: BTreeMap<RequestId, Result<(), Fault>>,
    /// Payloads of reads that somebody wants to look at.
    pub(crate) kept: BTreeMap<RequestId, Vec<u8>>,
    /// Pieces that were answered early and need their request's payload still.
    pub(crate) holds: BTreeMap<RequestId, u32>,
    /// Ranges that were answered early, at least in part, and are not on the members.
    pub(crate) early: BTreeMap<RequestId, (u64, u64)>,
}

/// What the array has said.
pub(crate) struct Told {
    pub(crate) notices: Vec<Notice>,
    pub(crate) out: BTreeSet<MemberId>,
    /// How often superblocks began to turn clean.
    pub(crate) clean_began: u32,
}

/// What this story likes to do first.
pub(crate) struct Habits {
    weights: [u64; 8],
    /// Events that are not to happen for now.
    pub(crate) hold: fn(&Event) -> bool,
}

impl Habits {
    pub(crate) fn new(random: &mut Random, hold: fn(&Event) -> bool) -> Self {
        let mut weights = [0; 8];
        weights.fill_with(|| *random.pick(&[1, 4, 16, 64]));
        Self { weights, hold }
    }
}

#[derive(Clone, Copy)]
enum Choice {
    Pending(usize),
    Inbox(usize),
    Report(usize),
    Tick,
    Issue,
}

pub(crate) struct World {
    pub(crate) scene: Scene,
    pub(crate) geometry: Geometry,
    pub(crate) regions: Regions,
    pub(crate) random: Random,
    pub(crate) clock: Clock,
    pub(crate) array: Array,
    pub(crate) shards: Vec<ShardSide>,
    pub(crate) devices: Vec<Device>,
    pub(crate) pending: Vec<Event>,
    pub(crate) payloads: Payloads,
    pub(crate) clients: Clients,
    pub(crate) model: Model,
    pub(crate) told: Told,
    pub(crate) habits: Habits,
    /// What goes wrong, and when.
    pub(crate) mishaps: Vec<(u64, crate::mishap::Mishap)>,
}

impl World {
    /// Does one thing. False when there is nothing to do but to let time pass.
    pub(crate) fn step(&mut self, may_issue: bool) -> Did {
        self.clock.step += 1;
        self.clock.now = Instant(self.clock.now.0 + 1000);
        assert!(self.clock.step < STEPS_MAX, "seed {}: it goes round", self.scene.seed);
        self.let_mishaps_happen();
        let (choices, weights) = self.choices(may_issue);
        if choices.is_empty() {
            return Did::Nothing;
        }
        match choices[self.random.weighted(&weights)] {
            Choice::Pending(index) => self.pick(index),
            Choice::Inbox(shard) => self.open_letter(shard),
            Choice::Report(shard) => {
                let report = self.shards[shard].reports.pop_front().expect("it was seen");
                self.array.handle_report(self.clock.now, ShardIndex(shard as u16), report);
                self.drain_array();
            }
            Choice::Tick => {
                self.tick();
                return Did::Tick;
            }
            Choice::Issue => return Did::Issue,
        }
        Did::Something
    }

    fn choices(&self, may_issue: bool) -> (Vec<Choice>, Vec<u64>) {
        let weight = &self.habits.weights;
        let mut choices = Vec::new();
        let mut weights = Vec::new();
        let mut offer = |choice, class: usize| {
            choices.push(choice);
            weights.push(weight[class]);
        };
        for (index, event) in self.pending.iter().enumerate() {
            if !(self.habits.hold)(event) {
                let class = match event {
                    Event::Piece { .. } | Event::Computation { .. } => 0,
                    Event::Io { result: None, .. } => 1,
                    Event::Io { result: Some(_), .. } => 2,
                    Event::Superblock { .. } | Event::Flush { .. } => 3,
                };
                offer(Choice::Pending(index), class);
            }
        }
        for (index, side) in self.shards.iter().enumerate() {
            if !side.inbox.is_empty() {
                offer(Choice::Inbox(index), 4);
            }
            if !side.reports.is_empty() {
                offer(Choice::Report(index), 5);
            }
        }
        // Who measures something tells it at every tick: no more than can be heard.
        let reports: usize = self.shards.iter().map(|side| side.reports.len()).sum();
        if self.due().is_some() && reports < 20 {
            offer(Choice::Tick, 6);
        }
        if may_issue {
            offer(Choice::Issue, 7);
        }
        (choices, weights)
    }

    /// The next moment that somebody has asked for.
    pub(crate) fn due(&self) -> Option<Instant> {
        let shards = self.shards.iter().filter_map(|side| side.shard.poll_timeout());
        shards.chain(self.array.poll_timeout()).min()
    }

    /// Time jumps to the next moment that somebody has asked for.
    pub(crate) fn tick(&mut self) {
        let Some(due) = self.due() else { return };
        self.clock.now = self.clock.now.max(due);
        let now = self.clock.now;
        for shard in 0..self.shards.len() {
            let side = &mut self.shards[shard];
            if side.shard.poll_timeout().is_some_and(|due| due <= now) {
                side.shard.handle_timeout(now);
                self.drain_shard(shard);
            }
        }
        if self.array.poll_timeout().is_some_and(|due| due <= now) {
            self.array.handle_timeout(now);
            self.drain_array();
        }
    }

    fn open_letter(&mut self, shard: usize) {
        let now = self.clock.now;
        let side = &mut self.shards[shard];
        match side.inbox.pop_front().expect("it was seen") {
            Message::View(view) => {
                side.view = Arc::clone(&view);
                side.shard.handle_view(now, view);
            }
            Message::Query => side.shard.handle_activity_query(now),
            Message::WriteBack(round) => side.shard.handle_write_back(now, round),
            Message::Tuning(tuning) => side.shard.handle_tuning(now, tuning),
            Message::Attention(attention) => side.shard.handle_attention(now, attention),
        }
        self.drain_shard(shard);
    }

    fn pick(&mut self, index: usize) {
        let now = self.clock.now;
        match self.pending.swap_remove(index) {
            Event::Piece { shard, piece } => {
                self.shards[shard].shard.handle_piece(now, piece);
                self.drain_shard(shard);
            }
            Event::Io { shard, io, result: None } => {
                let fault = |kind: FaultKind| io.fault(kind, 0, Answer::Os(5));
                let result = Some(self.act(shard, &io).map_err(fault));
                self.pending.push(Event::Io { shard, io, result });
            }
            Event::Io { shard, io, result: Some(result) } => {
                let done = MemberIoDone { id: io.id, result };
                self.shards[shard].shard.handle_member_io(now, done);
                self.drain_shard(shard);
            }
            Event::Computation { shard, mut computation } => {
                let side = &mut self.shards[shard];
                let mut memory = Reach {
                    arena: &mut side.arena,
                    block_bytes: side.block_bytes,
                    payloads: &mut self.payloads,
                };
                computation::run(&mut computation, braid_parity::kernel(), &mut memory);
                side.shard.handle_computation_done(now, computation);
                self.drain_shard(shard);
            }
            Event::Superblock { member, state, written: None } => {
                let written = Some(self.devices[usize::from(member.0)].write_superblock(&state));
                self.pending.push(Event::Superblock { member, state, written });
            }
            Event::Superblock { member, written: Some(written), .. } => {
                let written = outcome(member, Asked::Superblock, written);
                self.array.handle_metadata_written(
                    now,
                    (member, MetadataArea::Superblock),
                    written,
                );
                self.drain_array();
            }
            Event::Flush { member, flushed: None } => {
                let flushed = Some(self.devices[usize::from(member.0)].flush());
                self.pending.push(Event::Flush { member, flushed });
            }
            Event::Flush { member, flushed: Some(flushed) } => {
                let flushed = outcome(member, Asked::Flush, flushed);
                self.array.handle_flushed(now, member, flushed);
                self.drain_array();
            }
        }
    }

    /// The device does what it was asked.
    fn act(&mut self, shard: usize, io: &MemberIo) -> Result<(), FaultKind> {
        let (start, length) = (io.sector.0, io.sectors as usize * SECTOR);
        let side = &mut self.shards[shard];
        let mut memory = Reach {
            arena: &mut side.arena,
            block_bytes: side.block_bytes,
            payloads: &mut self.payloads,
        };
        let (data, durable) = match io.operation {
            MemberOperation::Read { buffer } => {
                let out = memory.bytes(buffer, length, true);
                let device = &self.devices[usize::from(io.member.0)];
                return match device.read(start, u64::from(io.sectors)) {
                    Ok(data) => {
                        out.copy_from_slice(data);
                        Ok(())
                    }
                    Err(fault) => {
                        out.fill(0xDB);
                        Err(fault)
                    }
                };
            }
            MemberOperation::Write { buffer, durable } => {
                (memory.bytes(buffer, length, false).to_vec(), durable)
            }
            MemberOperation::Zero { durable, .. } => (vec![0; length], durable),
        };
        self.check_write_is_announced(io, &data);
        let device = &mut self.devices[usize::from(io.member.0)];
        device.write((start, &data), durable, (self.clock.step, &mut self.random))
    }

    /// The device is stopped while it does what it was asked: any part of it may be done.
    pub(crate) fn tear(&mut self, shard: usize, io: &MemberIo) {
        let result = self.act(shard, io);
        assert!(result.is_err(), "a device without power answers nothing");
    }

    pub(crate) fn drain_shard(&mut self, index: usize) {
        while let Some(computation) = self.shards[index].shard.poll_computation() {
            self.pending.push(Event::Computation { shard: index, computation });
        }
        while let Some(io) = self.shards[index].shard.poll_member_io() {
            self.check_io(index, &io);
            self.pending.push(Event::Io { shard: index, io, result: None });
        }
        while let Some(reply) = self.shards[index].shard.poll_reply() {
            let flight = self.clients.flights.get_mut(&reply.request);
            let flight = flight.expect("only requests under way are answered");
            if reply.leaves_payload {
                self.payloads.leave(reply.request);
            }
            if reply.keeps_payload {
                flight.is_early = true;
                *self.clients.holds.entry(reply.request).or_default() += 1;
                let range = (flight.request.start.0, flight.request.sectors);
                self.clients.early.insert(reply.request, range);
            }
            if let Some(result) = flight.progress.reply(reply.result) {
                self.answered(reply.request, result);
            }
        }
        let mut let_go = Vec::new();
        while let Some(request) = self.shards[index].shard.poll_release() {
            let_go.extend(self.clients.early.get(&request).copied());
            let holds = self.clients.holds.get_mut(&request).expect("only what is held is let go");
            *holds -= 1;
            if *holds == 0 {
                self.clients.holds.remove(&request);
                self.clients.early.remove(&request);
                if !self.clients.flights.contains_key(&request) {
                    self.payloads.remove(&request);
                }
            }
        }
        while let Some(report) = self.shards[index].shard.poll_report() {
            if matches!(report, Report::WriteLost { .. }) {
                assert!(self.scene.errors_allowed, "seed {}: a write was lost", self.scene.seed);
                let_go.iter().for_each(|range| self.model.lose(*range));
            }
            self.shards[index].reports.push_back(report);
        }
    }

    pub(crate) fn drain_array(&mut self) {
        while let Some(effect) = self.array.poll_effect() {
            match effect {
                ArrayEffect::Publish(view) => {
                    for side in &mut self.shards {
                        side.inbox.push_back(Message::View(Arc::clone(&view)));
                    }
                }
                ArrayEffect::WriteMetadata { member, record } => {
                    let MetadataRecord::Superblock(state) = record;
                    self.check_superblock(member, &state);
                    self.pending.push(Event::Superblock { member, state, written: None });
                }
                ArrayEffect::Flush { member } => {
                    assert!(!self.scene.read_only, "a read-only array flushes nothing");
                    assert!(!self.told.out.contains(&member), "a member that is out was flushed");
                    self.pending.push(Event::Flush { member, flushed: None });
                }
                ArrayEffect::Attend(attention) => {
                    for side in &mut self.shards {
                        side.inbox.push_back(Message::Attention(Arc::clone(&attention)));
                    }
                }
                ArrayEffect::QueryActivity => {
                    for side in &mut self.shards {
                        side.inbox.push_back(Message::Query);
                    }
                }
                ArrayEffect::WriteBack { round } => {
                    for side in &mut self.shards {
                        side.inbox.push_back(Message::WriteBack(round));
                    }
                }
                ArrayEffect::Answer { request, result } => self.flush_answered(request, result),
                ArrayEffect::Notice(Notice::Told { .. }) => {}
                ArrayEffect::Notice(notice) => {
                    self.told.notices.push(notice);
                    if let Notice::MemberOut { member, .. } = notice {
                        self.told.out.insert(member);
                        self.check_member_out(member);
                    }
                }
            }
        }
    }

    /// Until everything is answered and only time could bring more.
    pub(crate) fn settle(&mut self) {
        let mut ticks = 0;
        loop {
            let in_flight = self.clients.flights.len() + self.clients.flushes.len();
            match self.step(false) {
                Did::Nothing => {
                    assert_eq!(in_flight, 0, "seed {}: requests hang", self.scene.seed);
                    break;
                }
                Did::Tick if in_flight == 0 => ticks += 1,
                _ => {}
            }
            let nothing_else = self.pending.is_empty()
                && self.shards.iter().all(|side| side.inbox.is_empty() && side.reports.is_empty());
            let idle = self.shards.iter().all(|side| side.shard.is_idle());
            if nothing_else && in_flight == 0 && ticks > 3 && (idle || ticks > 100) {
                break;
            }
            // A member that sits out is probed for as long as it does.
            if in_flight == 0 && ticks > 100 && !self.array.sitting_out().is_empty() {
                self.run_without_time();
                break;
            }
        }
        let idle = self.shards.iter().all(|side| side.shard.is_idle());
        assert!(idle, "seed {}: something is left", self.scene.seed);
    }

    /// Until nothing can happen without time, or without what is held back.
    pub(crate) fn run_without_time(&mut self) {
        loop {
            let (choices, _) = self.choices(false);
            if choices.iter().all(|choice| matches!(choice, Choice::Tick)) {
                return;
            }
            self.step_without_time();
        }
    }

    /// Long enough for an array that is left alone to turn clean.
    pub(crate) fn rest(&mut self) {
        for _ in 0..12 {
            self.run_without_time();
            self.tick();
        }
        self.run_without_time();
    }

    fn step_without_time(&mut self) {
        let tick = std::mem::replace(&mut self.habits.weights[6], 0);
        self.step(false);
        self.habits.weights[6] = tick;
    }

    /// No request will come any more; until the array has stopped. Whether it says it is clean.
    pub(crate) fn stop(&mut self) -> bool {
        self.array.handle_stop(self.clock.now);
        self.drain_array();
        self.settle();
        let stopped = self.told.notices.iter().find_map(|notice| match notice {
            Notice::Stopped { clean } => Some(*clean),
            _ => None,
        });
        stopped.expect("an array stops")
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.shards.iter().for_each(|side| sum.add(side.shard.counters()));
        sum
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.told.notices.iter().any(|notice| matches!(notice, Notice::Broken { .. }))
    }

    /// A name for one more request.
    pub(crate) fn name(&mut self) -> RequestId {
        let name = self.clients.next;
        self.clients.next = RequestId(name.0 + 1);
        name
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Nothing,
    Tick,
    /// It is a client's turn.
    Issue,
    Something,
}

/// How something that a whole member was asked ended.
fn outcome(member: MemberId, asked: Asked, is_done: bool) -> Result<(), Cause> {
    let answer = Answer::Os(5);
    if is_done { Ok(()) } else { Err(Cause { member, asked, sector: 0, sectors: 0, answer }) }
}
