//! The driver of one array that changes its shape: machines, disks, clients, and a schedule that
//! lets one effect happen at a time, in any order.
//!
//! ```text
//!   clients ─▶ gate (the border) ─pieces─▶ shards of both shapes ─requests─▶ disks
//!     ▲          ▲ border, pieces to move     │  ▲
//!     │          │                    reports ▼  │ views, queries (in order)
//!     └── model  └────────────────────────── array ─superblocks, flushes─▶ disks
//! ```
//!
//! The array's effects on the border and its pieces are carried out later and in order, as the
//! runtime does it. [`super::life`] opens and ends the machines, and [`super::clients`] has the
//! clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use braid_engine::Instant;
use braid_engine::array::{
    ArrayEffect, MemberId, MetadataArea, MetadataRecord, Notice, SuperblockState,
    bad_block_log_for, bitmap_for,
};
use braid_engine::cause::{Answer, Cause, RequestKind};
use braid_engine::computation::{self, Computation};
use braid_engine::effect::{FaultKind, MemberFault, MemberIo, MemberIoDone, MemberOperation};
use braid_engine::request::{Fault, Piece, RequestId, ShardIndex};
use braid_geometry::Geometry;
use braid_ondisk::{ReshapePoint, Superblock, Timestamp};

use super::copy_file::CopyFile;
use super::kinds::Change;
use super::plan::{LateEffect, Plan};
use super::requests::{Flight, Gate, Task};
use crate::content::SECTOR;
use crate::disk::Disk;
use crate::memory::{Payloads, ReachableMemory};
use crate::model::Model;
use crate::open::{Machines, Message};
use crate::random::Random;
use crate::tally::Tally;

/// Nanoseconds that pass in a step.
const STEP_NS: u64 = 1000;

/// Percentage of writes that a disk delays, and the steps by which it does.
const DELAYED_PERCENT: u64 = 2;
const DELAY_STEPS: u64 = 4_000;

/// An effect that has begun and waits to happen.
pub(super) enum Event {
    Piece {
        shard: usize,
        piece: Piece,
    },
    Computation {
        shard: usize,
        computation: Computation,
    },
    Io {
        shard: usize,
        io: MemberIo,
    },
    IoDone {
        shard: usize,
        done: MemberIoDone,
    },
    Superblock {
        member: MemberId,
        state: Arc<SuperblockState>,
        time: Timestamp,
    },
    SuperblockDone {
        member: MemberId,
        written: Result<(), MemberFault>,
    },
    /// A write of another area of a member's metadata.
    Area {
        member: MemberId,
        area: MetadataArea,
        start: u64,
        data: Vec<u8>,
    },
    AreaDone {
        member: MemberId,
        area: MetadataArea,
        written: Result<(), MemberFault>,
    },
    Flush {
        member: MemberId,
    },
    FlushDone {
        member: MemberId,
        flushed: Result<(), Cause>,
    },
    BorderPassed,
    /// The next write of a window's copy.
    CopyWrite {
        writes: VecDeque<(u64, Vec<u8>)>,
    },
    Kept {
        result: Result<(), Fault>,
    },
    Moved {
        start: u64,
        result: Result<Vec<Range<u64>>, Fault>,
    },
}

impl Event {
    /// Whether the event makes a disk act: a crash can come right before such an event.
    pub(super) fn is_at_disk(&self) -> bool {
        match self {
            Self::Io { io, .. } => io.operation.is_write(),
            Self::Superblock { .. } | Self::Area { .. } | Self::Flush { .. } => true,
            Self::CopyWrite { .. } => true,
            _ => false,
        }
    }

    fn class(&self) -> usize {
        match self {
            Self::Piece { .. } | Self::Computation { .. } => 0,
            Self::Io { .. } => 1,
            Self::IoDone { .. } => 2,
            _ => 3,
        }
    }
}

/// Classes of events, then messages, reports, tasks, clients and time.
const CHOICES: usize = 9;
const SUPERBLOCK: usize = 3;
const INBOX: usize = 4;
const REPORT: usize = 5;
const TASK: usize = 6;
const ISSUE: usize = 7;
const TICK: usize = 8;

/// The machines of one opening, and everything that is in flight.
pub(super) struct Running {
    pub(super) machines: Machines,
    /// First sector of each member's data on its disk, in the old and in the new shape.
    pub(super) starts: Vec<[u64; 2]>,
    pub(super) pending: [Vec<Event>; 4],
    /// Writes that a disk delays, each until a step. They happen at the latest when nothing else
    /// can happen.
    pub(super) delayed: Vec<(u64, Event)>,
    pub(super) tasks: VecDeque<Task>,
    pub(super) gate: Gate,
    pub(super) payloads: Payloads,
    pub(super) flights: BTreeMap<RequestId, Flight>,
    /// Payloads that shards keep after the answer: how many releases are awaited.
    pub(super) kept: BTreeMap<RequestId, u32>,
    /// Flushes in flight, and the step at which each was submitted.
    pub(super) flushes: BTreeMap<RequestId, u64>,
    pub(super) left: BTreeSet<MemberId>,
    pub(super) notices: Vec<Notice>,
    /// The weight of each choice.
    pub(super) weights: [u64; CHOICES],
    /// Steps since the opening.
    pub(super) steps: u64,
    /// Requests of clients since the opening.
    pub(super) issued: u64,
}

impl Running {
    /// Draws the weight of each choice, unless an effect is to be late.
    pub(super) fn weights(random: &mut Random, late: Option<LateEffect>) -> [u64; CHOICES] {
        let mut weights = [64, 64, 64, 64, 64, 64, 64, 8, 1];
        match late {
            Some(LateEffect::Superblock) => weights[SUPERBLOCK] = 1,
            Some(LateEffect::Letter) => weights[INBOX] = 1,
            None => {}
        }
        if late.is_some() {
            return weights;
        }
        weights.fill_with(|| *random.pick(&[1, 4, 16, 64]));
        weights[ISSUE] = *random.pick(&[1, 1, 4]);
        weights[TICK] = *random.pick(&[1, 1, 4]);
        weights
    }

    pub(super) fn push(&mut self, event: Event) {
        self.pending[event.class()].push(event);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.flushes.is_empty() && self.gate.waiting.is_empty()
    }

    fn is_open(&self, choice: usize, may_issue: bool) -> bool {
        let shards = &self.machines.shards;
        match choice {
            INBOX => shards.iter().any(|side| !side.inbox.is_empty()),
            REPORT => shards.iter().any(|side| !side.reports.is_empty()),
            TASK => !self.tasks.is_empty(),
            ISSUE => may_issue,
            TICK => self.machines.due().is_some(),
            class => !self.pending[class].is_empty(),
        }
    }

    /// The disk of a request, and the request's first sector on that disk.
    fn place_of(&self, shard: usize, io: &MemberIo) -> (usize, u64) {
        let is_after = self.machines.regions.is_after(ShardIndex(shard as u16));
        let member = usize::from(io.member.0);
        let start = self.starts[member][usize::from(is_after)];
        (self.machines.members[member].disk, start + io.sector.0)
    }

    fn memory(&mut self, shard: usize) -> ReachableMemory<'_> {
        let side = &mut self.machines.shards[shard];
        let block_bytes = side.block_bytes;
        ReachableMemory { arena: &mut side.arena, block_bytes, payloads: &mut self.payloads }
    }

    /// The disk, first sector and bytes of a write that is in flight; `None` for other events.
    pub(super) fn write_of(&mut self, event: &Event) -> Option<(usize, u64, Vec<u8>, bool)> {
        if let Event::Area { member, start, data, .. } = event {
            let disk = self.machines.members[usize::from(member.0)].disk;
            return Some((disk, *start, data.clone(), true));
        }
        let Event::Io { shard, io } = event else { return None };
        let (disk, start) = self.place_of(*shard, io);
        let length = io.sectors as usize * SECTOR;
        let (bytes, durable) = match io.operation {
            MemberOperation::Read { .. } => return None,
            MemberOperation::Write { buffer, durable } => {
                (self.memory(*shard).bytes(buffer, length, false).to_vec(), durable)
            }
            MemberOperation::Zero { durable, .. } => (vec![0; length], durable),
        };
        Some((disk, start, bytes, durable))
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    Nothing,
    Something,
    /// A client may submit a request.
    Issue,
    /// It is time for the planned crash.
    Crash,
}

pub(super) struct World {
    pub(super) change: Change,
    pub(super) plan: Plan,
    pub(super) disks: Vec<Disk>,
    pub(super) copy: CopyFile,
    /// The reshape as it was when the array was opened.
    pub(super) copy_point: Option<ReshapePoint>,
    pub(super) model: Model,
    pub(super) step: u64,
    pub(super) now: Instant,
    /// The effects at disks so far, over all openings.
    pub(super) effects: u64,
    pub(super) next_request: u64,
    /// Decides the order of effects, and the requests.
    pub(super) random: Random,
    /// Decides which writes survive crashes.
    pub(super) fate: Random,
    pub(super) tally: Tally,
    /// Array sectors that no disk has, until a client writes them: their reads fail.
    pub(super) unreadable: BTreeSet<u64>,
    /// Array sectors whose reads may fail until a client writes them: they may have no place but a
    /// missing disk, next to an unreadable sector.
    pub(super) endangered: BTreeSet<u64>,
    /// Sectors of a window in place that failed midway: requests to these sectors fail.
    pub(super) closed: Option<Range<u64>>,
    /// Array sectors that one disk cannot read. Their reads may fail while parity is in doubt.
    pub(super) doubted: BTreeSet<u64>,
    pub(super) has_asked_to_finish: bool,
    /// The direction of the reshape that superblocks are to say: `None` for no reshape.
    pub(super) asked: Option<bool>,
    /// The numbers of effects that were writes of superblocks.
    pub(super) superblock_effects: Vec<u64>,
    /// The shape that the reshape leads to, once a reshape was opened.
    pub(super) goal: Option<Geometry>,
    /// Superblocks to write while a RAID-0 is stopped, each with its disk.
    pub(super) direct_change: Vec<(usize, Superblock)>,
}

impl World {
    /// Lets one effect happen.
    pub(super) fn step(&mut self, run: &mut Running, may_issue: bool) -> StepResult {
        self.step += 1;
        run.steps += 1;
        self.tally.steps += 1;
        self.now = Instant(self.now.0 + STEP_NS);
        if let Some(index) = run.delayed.iter().position(|(until, _)| *until <= self.step) {
            let (_, event) = run.delayed.swap_remove(index);
            run.push(event);
        }
        let mut open = run.weights;
        for (choice, weight) in open.iter_mut().enumerate() {
            *weight *= u64::from(run.is_open(choice, may_issue));
        }
        if open == [0; CHOICES] && !run.delayed.is_empty() {
            run.delayed.iter_mut().for_each(|(until, _)| *until = 0);
            return StepResult::Something;
        }
        if open == [0; CHOICES] {
            return StepResult::Nothing;
        }
        let choice = self.random.weighted(&open);
        match choice {
            INBOX => self.open_letter(run),
            REPORT => self.pass_report(run),
            TASK => {
                let task = run.tasks.pop_front().expect("it was seen");
                self.carry_out(run, task);
            }
            ISSUE => return StepResult::Issue,
            TICK => self.tick(run),
            class => return self.let_happen(run, class),
        }
        StepResult::Something
    }

    fn let_happen(&mut self, run: &mut Running, class: usize) -> StepResult {
        let events = &mut run.pending[class];
        let index = self.random.below(events.len() as u64) as usize;
        if events[index].is_at_disk() && self.comes_to_disk() {
            return StepResult::Crash;
        }
        let event = run.pending[class].swap_remove(index);
        if matches!(event, Event::Superblock { .. }) {
            self.superblock_effects.push(self.effects);
        }
        self.happen(run, event);
        StepResult::Something
    }

    /// Counts an effect at a disk, and lets planned faults happen. True if a crash comes first.
    pub(super) fn comes_to_disk(&mut self) -> bool {
        self.effects += 1;
        while let Some((_, disk)) = self.plan.losses.pop_if(|(at, _)| *at <= self.effects) {
            self.disks[disk].ills.gone = true;
            self.tally.count("disk-dies");
        }
        self.plan.crashes.last().is_some_and(|(at, _)| *at <= self.effects)
    }

    fn any_shard(&mut self, run: &Running, has: impl Fn(usize, &Running) -> bool) -> usize {
        let open: Vec<usize> =
            (0..run.machines.shards.len()).filter(|index| has(*index, run)).collect();
        *self.random.pick(&open)
    }

    fn open_letter(&mut self, run: &mut Running) {
        let index = self.any_shard(run, |i, run| !run.machines.shards[i].inbox.is_empty());
        let now = self.now;
        let side = &mut run.machines.shards[index];
        match side.inbox.pop_front().expect("it was seen") {
            Message::View(view) => {
                side.view = Arc::clone(&view);
                side.shard.handle_view(now, view);
            }
            Message::Query => side.shard.handle_activity_query(now),
            Message::QueryTouched => side.shard.handle_touched_query(now),
            Message::WriteBack(round) => side.shard.handle_write_back(now, round),
            Message::SlowMembers(slow) => side.shard.handle_slow_members(now, slow),
            Message::Work(work) => side.shard.handle_work(now, work),
            Message::Logged(ticket) => side.shard.handle_logged(now, ticket),
            Message::Tuning(tuning) => side.shard.handle_tuning(now, tuning),
        }
        self.drain_shard(run, index);
    }

    fn pass_report(&mut self, run: &mut Running) {
        let index = self.any_shard(run, |i, run| !run.machines.shards[i].reports.is_empty());
        let report = run.machines.shards[index].reports.pop_front().expect("it was seen");
        run.machines.array.handle_report(self.now, ShardIndex(index as u16), report);
        self.drain_array(run);
    }

    fn tick(&mut self, run: &mut Running) {
        let due = run.machines.due().expect("it was seen");
        self.now = self.now.max(due);
        let now = self.now;
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if is_due(run.machines.array.poll_timeout()) {
            run.machines.array.handle_timeout(now);
            self.drain_array(run);
        }
        for index in 0..run.machines.shards.len() {
            let shard = &mut run.machines.shards[index].shard;
            if is_due(shard.poll_timeout()) {
                shard.handle_timeout(now);
                self.drain_shard(run, index);
            }
        }
    }

    fn happen(&mut self, run: &mut Running, event: Event) {
        let now = self.now;
        match event {
            Event::Piece { shard, piece } => {
                run.machines.shards[shard].shard.handle_piece(now, piece);
                self.drain_shard(run, shard);
            }
            Event::Computation { shard, mut computation } => {
                let mut memory = run.memory(shard);
                computation::run(&mut computation, braid_parity::kernel(), &mut memory);
                run.machines.shards[shard].shard.handle_computation_done(now, computation);
                self.drain_shard(run, shard);
            }
            Event::Io { shard, io } => {
                let result = self.act(run, shard, &io).map_err(|kind| {
                    let (_, start) = run.place_of(shard, &io);
                    io.fault(kind, start - io.sector.0, Answer::Injected)
                });
                let done = MemberIoDone { id: io.id, result };
                run.push(Event::IoDone { shard, done });
            }
            Event::IoDone { shard, done } => {
                run.machines.shards[shard].shard.handle_member_io(now, done);
                self.drain_shard(run, shard);
            }
            Event::Superblock { member, state, time } => {
                let written = self.write_superblock(run, member, (&state, time));
                if !run.left.contains(&member) {
                    run.push(Event::SuperblockDone { member, written });
                }
            }
            Event::SuperblockDone { member, written } => {
                let area = MetadataArea::Superblock;
                run.machines.array.handle_metadata_written(now, (member, area), written);
                self.drain_array(run);
            }
            Event::Area { member, area, start, data } => {
                let written = self.write_area(run, (member, area), (start, &data));
                if !run.left.contains(&member) {
                    run.push(Event::AreaDone { member, area, written });
                }
            }
            Event::AreaDone { member, area, written } => {
                run.machines.array.handle_metadata_written(now, (member, area), written);
                self.drain_array(run);
            }
            Event::Flush { member } => {
                let disk = run.machines.members[usize::from(member.0)].disk;
                let is_flushed = self.disks[disk].flush();
                let cause = Cause {
                    member,
                    asked: RequestKind::Flush,
                    sector: 0,
                    sectors: 0,
                    answer: Answer::Injected,
                };
                let flushed = if is_flushed { Ok(()) } else { Err(cause) };
                if !run.left.contains(&member) {
                    run.push(Event::FlushDone { member, flushed });
                }
            }
            Event::FlushDone { member, flushed } => {
                run.machines.array.handle_flushed(now, member, flushed);
                self.drain_array(run);
            }
            Event::CopyWrite { writes } => self.copy_write(run, writes),
            Event::Kept { result } => {
                run.machines.array.handle_kept(now, result);
                self.drain_array(run);
            }
            Event::BorderPassed => {
                run.machines.array.handle_border_passed(now);
                self.drain_array(run);
            }
            Event::Moved { start, result } => {
                run.machines.array.handle_moved(now, start, result);
                self.drain_array(run);
            }
        }
    }

    fn act(&mut self, run: &mut Running, shard: usize, io: &MemberIo) -> Result<(), FaultKind> {
        let (index, start) = run.place_of(shard, io);
        if let MemberOperation::Read { buffer } = io.operation {
            let read = self.disks[index].read(start, u64::from(io.sectors));
            let mut memory = run.memory(shard);
            let out = memory.bytes(buffer, io.sectors as usize * SECTOR, true);
            match read {
                Ok(data) => out.copy_from_slice(data),
                // A failed read leaves arbitrary bytes.
                Err(_) => out.fill(0xDB),
            }
            return read.map(|_| ());
        }
        let event = Event::Io { shard, io: *io };
        let (_, _, bytes, durable) = run.write_of(&event).expect("it is a write");
        self.disks[index].write((start, &bytes), durable, &mut self.fate)
    }

    /// Writes a bad-block log or a bitmap. Earlier writes are durable before a log.
    fn write_area(
        &mut self,
        run: &Running,
        (member, area): (MemberId, MetadataArea),
        (start, data): (u64, &[u8]),
    ) -> Result<(), MemberFault> {
        let disk = &mut self.disks[run.machines.members[usize::from(member.0)].disk];
        let (asked, word) = match area {
            MetadataArea::BadBlocks => (RequestKind::BadBlocks, "bad-block-log-written"),
            _ => (RequestKind::Bitmap, "bitmap-written"),
        };
        let is_flushed = area != MetadataArea::BadBlocks || disk.flush();
        let gone = Err(FaultKind::Gone);
        let written =
            if is_flushed { disk.write((start, data), true, &mut self.fate) } else { gone };
        self.tally.count(word);
        written.map_err(|kind| {
            let sectors = (data.len() / SECTOR) as u32;
            let cause = Cause { member, asked, sector: start, sectors, answer: Answer::Injected };
            MemberFault { kind, cause }
        })
    }

    fn write_superblock(
        &mut self,
        run: &mut Running,
        member: MemberId,
        (state, time): (&SuperblockState, Timestamp),
    ) -> Result<(), MemberFault> {
        if let Some(reshape) = state.shape.as_ref().and_then(|shape| shape.reshape) {
            let (position, backwards) = (reshape.position_sectors, reshape.backwards);
            let is_one = self.change.is_position(position, backwards);
            assert!(is_one, "md takes no reshape at {position}");
        }
        let side = &mut run.machines.members[usize::from(member.0)];
        let disk = side.disk;
        let (start, data) = side.superblock_for(&self.disks, member, (state, time));
        let written = self.disks[disk].write((start, &data), true, &mut self.fate);
        written.map_err(|kind| {
            let sectors = (data.len() / SECTOR) as u32;
            let asked = RequestKind::Superblock;
            let cause = Cause { member, asked, sector: start, sectors, answer: Answer::Injected };
            MemberFault { kind, cause }
        })
    }

    pub(super) fn drain_shard(&mut self, run: &mut Running, index: usize) {
        while let Some(computation) = run.machines.shards[index].shard.poll_computation() {
            run.push(Event::Computation { shard: index, computation });
        }
        while let Some(io) = run.machines.shards[index].shard.poll_member_io() {
            let event = Event::Io { shard: index, io };
            let regions = run.gate.regions;
            let is_old = regions.is_reshaping() && !regions.is_after(ShardIndex(index as u16));
            let percent = if is_old { self.plan.delayed_percent } else { DELAYED_PERCENT };
            if io.operation.is_write() && self.random.chance(percent) {
                run.delayed.push((self.step + DELAY_STEPS, event));
            } else {
                run.push(event);
            }
        }
        while let Some(report) = run.machines.shards[index].shard.poll_report() {
            run.machines.shards[index].reports.push_back(report);
        }
        let record = run.machines.shards[index].shard.poll_cache_record();
        assert_eq!(record, None, "there is no cache file");
        while let Some(reply) = run.machines.shards[index].shard.poll_reply() {
            if reply.keeps_payload {
                *run.kept.entry(reply.request).or_default() += 1;
            }
            if reply.leaves_payload {
                run.payloads.leave(reply.request);
            }
            self.replied(run, &reply);
        }
        while let Some(request) = run.machines.shards[index].shard.poll_release() {
            run.release(request);
        }
    }

    pub(super) fn drain_array(&mut self, run: &mut Running) {
        while let Some(effect) = run.machines.array.poll_effect() {
            let shards = &mut run.machines.shards;
            match effect {
                ArrayEffect::Publish(view) => {
                    let after = view.after.as_ref().unwrap_or(&view);
                    for (index, side) in (0..).map(ShardIndex).zip(shards) {
                        let is_after = run.machines.regions.is_after(index);
                        let own = if is_after { after } else { &view };
                        side.inbox.push_back(Message::View(Arc::clone(own)));
                    }
                }
                ArrayEffect::WriteMetadata { member, record } => match record {
                    MetadataRecord::Superblock(state) => {
                        let time = run.machines.time_of(&state);
                        run.push(Event::Superblock { member, state, time });
                    }
                    MetadataRecord::Bitmap(record) => {
                        let superblock = &run.machines.members[usize::from(member.0)].superblock;
                        let (at, data) = bitmap_for(superblock, &record);
                        let (area, start) = (MetadataArea::Bitmap, at / SECTOR as u64);
                        run.push(Event::Area { member, area, start, data });
                    }
                    MetadataRecord::BadBlocks(write) => {
                        let superblock = &run.machines.members[usize::from(member.0)].superblock;
                        let [before, after] = run.starts[usize::from(member.0)];
                        let (at, data) = bad_block_log_for(superblock, before.min(after), &write);
                        let (area, start) = (MetadataArea::BadBlocks, at / SECTOR as u64);
                        run.push(Event::Area { member, area, start, data });
                    }
                    other => unreachable!("no such record is kept: {other:?}"),
                },
                ArrayEffect::Flush { member } => run.push(Event::Flush { member }),
                ArrayEffect::Leave { member } => member_leaves(run, member),
                ArrayEffect::SlowMembers(slow) => {
                    for side in shards {
                        side.inbox.push_back(Message::SlowMembers(Arc::clone(&slow)));
                    }
                }
                ArrayEffect::QueryActivity => {
                    shards.iter_mut().for_each(|side| side.inbox.push_back(Message::Query));
                }
                ArrayEffect::QueryTouched => {
                    shards.iter_mut().for_each(|side| side.inbox.push_back(Message::QueryTouched));
                }
                ArrayEffect::WriteBack { round } => {
                    for side in shards {
                        side.inbox.push_back(Message::WriteBack(round));
                    }
                }
                ArrayEffect::Work { shard, work } => {
                    shards[usize::from(shard.0)].inbox.push_back(Message::Work(work));
                }
                ArrayEffect::Border(change) => run.tasks.push_back(Task::Border(change)),
                ArrayEffect::Move(piece) => run.tasks.push_back(Task::Move(piece)),
                ArrayEffect::Keep { start, sectors } => {
                    run.tasks.push_back(Task::Keep(start, sectors));
                }
                ArrayEffect::Answer { request, result } => self.flushed(run, request, result),
                ArrayEffect::Notice(notice) => self.heard(run, notice),
                ArrayEffect::AskConsent { .. }
                | ArrayEffect::KeepRecord { .. }
                | ArrayEffect::Logged { .. } => unreachable!("not asked for: {effect:?}"),
            }
        }
    }
}

/// The member has left: its operations for the array fail now.
fn member_leaves(run: &mut Running, member: MemberId) {
    run.left.insert(member);
    let is_its = |event: &Event| match event {
        Event::Superblock { member: of, .. }
        | Event::SuperblockDone { member: of, .. }
        | Event::Area { member: of, .. }
        | Event::AreaDone { member: of, .. }
        | Event::Flush { member: of }
        | Event::FlushDone { member: of, .. } => *of == member,
        _ => false,
    };
    let its: Vec<Event> = run
        .pending
        .iter_mut()
        .flat_map(|events| events.extract_if(.., |one| is_its(one)))
        .collect();
    let cause = |asked| Cause { member, asked, sector: 0, sectors: 0, answer: Answer::Injected };
    for event in its {
        run.push(match event {
            Event::Flush { .. } | Event::FlushDone { .. } => {
                let flushed = Err(cause(RequestKind::Flush));
                Event::FlushDone { member, flushed }
            }
            Event::Area { area, .. } | Event::AreaDone { area, .. } => {
                let cause = cause(RequestKind::BadBlocks);
                let written = Err(MemberFault { kind: FaultKind::Gone, cause });
                Event::AreaDone { member, area, written }
            }
            _ => {
                let fault =
                    MemberFault { kind: FaultKind::Gone, cause: cause(RequestKind::Superblock) };
                Event::SuperblockDone { member, written: Err(fault) }
            }
        });
    }
}
