//! The driver: one array with its disks, clients and oracle, under virtual time.
//!
//! ```text
//!   clients ─pieces─▶ shards ─requests, computations─▶ disks, memory
//!                      │  ▲            by way of elevators
//!              reports ▼  │ views, queries (in order)
//!                     array ─superblocks, flushes─▶ disks
//! ```
//!
//! The schedule draws a request to a disk twice: once when the disk acts, once when the engine gets
//! the result. Time advances a little with every step, and jumps to the next timeout when the
//! schedule draws the passing of time. The disks, the model, the step count and the random streams
//! outlive the engine: [`crate::cycle`] ends an engine and starts the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_engine::array::{ArrayEffect, MemberId, MetadataArea, MetadataRecord, Notice};
use braid_engine::buffer::Buffer;
use braid_engine::cause::{Cause, RequestKind};
use braid_engine::effect::{
    FaultKind, MemberFault, MemberIo, MemberIoDone, MemberOperation, Report,
};
use braid_engine::ids::IoId;
use braid_engine::request::{RequestId, ShardIndex};
use braid_engine::{Instant, computation};
use braid_geometry::Geometry;
use braid_ondisk::Timestamp;

use crate::allowances::Allowances;
use crate::background::Background;
use crate::bad_blocks::BadLogs;
use crate::cache_file::CacheFile;
use crate::causes::Failures;
use crate::chances::{Chances, Purpose};
use crate::content::SECTOR;
use crate::coverage::Phase;
use crate::cut::Kind;
use crate::disk::Disk;
use crate::elevators::Elevators;
use crate::fault::{Fault, Mishap, Plan};
use crate::held_writes::HeldWrites;
use crate::lie_overlay::Fate;
use crate::lost_writes::LostSectors;
use crate::memory::{Payloads, ReachableMemory};
use crate::metadata::Metadata;
use crate::model::Model;
use crate::open::{Machines, Message};
use crate::pauses::SlowReports;
use crate::random::Random;
use crate::requests::{Clients, Flight};
use crate::schedule::{Choice, Event, Offer, Order, PendingEvents, choose};
use crate::taint::Taint;
use crate::tally::Tally;
use crate::trace::Trace;

/// More steps than a world ever needs to come to rest. Beyond them, an event repeats forever.
const SETTLE_STEPS_MAX: u64 = 200_000;
/// Time stops while more reports than this wait for the array.
const REPORTS_MAX: usize = 20;
/// Nanoseconds that pass in a step.
const STEP_NS: u64 = 1000;

pub(crate) struct Clock {
    pub(crate) step: u64,
    pub(crate) now: Instant,
}

/// Which rules of the model hold in this run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trust {
    pub(crate) errors_allowed: bool,
    /// A read pins its sectors: later reads return the same version, until a write.
    pub(crate) pins: bool,
    /// Reads that began before this step pin nothing, because the array reads another copy since.
    pub(crate) pins_from: u64,
    /// A pinned version stays even if a member is lost.
    pub(crate) firmly: bool,
    /// A pinned version stays even after a power cut, unless a write came since the last cut.
    pub(crate) lasts: bool,
}

/// The engine of one run, and everything that is in flight.
pub(crate) struct Engine {
    pub(crate) machines: Machines,
    pub(crate) elevators: Elevators,
    pub(crate) pending: PendingEvents,
    pub(crate) payloads: Payloads,
    pub(crate) held: HeldWrites,
    pub(crate) lost: LostSectors,
    pub(crate) background: Background,
    /// The driver that grants jobs allowances; `None` if jobs are unlimited.
    pub(crate) allowances: Option<Allowances>,
    pub(crate) clients: Clients,
    pub(crate) plan: Plan,
    pub(crate) order: Order,
    pub(crate) trust: Trust,
    pub(crate) notices: Vec<Notice>,
    /// A disk has lost unflushed writes, so they can be missing however the run ends.
    pub(crate) has_lost_cache: bool,
    /// The array has acknowledged a write.
    pub(crate) has_written: bool,
    /// Disks that have failed a flush. The array must declare them out before it acknowledges a
    /// flush.
    pub(crate) unflushed: BTreeSet<usize>,
    pub(crate) slow: SlowReports,
    /// Members that have left. The array has failed their requests already, and ignores the results
    /// of these requests.
    pub(crate) left: BTreeSet<MemberId>,
    /// For each write in flight whose data is in a block: the hash of its bytes at submission.
    written_from_blocks: BTreeMap<(usize, IoId, MemberId), u64>,
    pub(crate) failures: Failures,
    /// The array's phase: clean, active, between the two, or broken.
    pub(crate) phase: Phase,
}

impl Engine {
    pub(crate) fn new(machines: Machines, order: Order, now: Instant) -> Self {
        // Twice as many elevators as members and two more, for disks that join.
        let elevators = Elevators::straight(2 * machines.members.len() + 2, now);
        let phase = Phase::Clean.after(machines.shards[0].view.gate);
        Self {
            machines,
            elevators,
            pending: PendingEvents::default(),
            payloads: Payloads::new(),
            held: HeldWrites::default(),
            lost: LostSectors::default(),
            background: Background::default(),
            allowances: None,
            clients: Clients::default(),
            plan: Plan::default(),
            order,
            trust: Trust {
                errors_allowed: false,
                pins: true,
                pins_from: 0,
                firmly: true,
                lasts: true,
            },
            notices: Vec::new(),
            has_lost_cache: false,
            has_written: false,
            unflushed: BTreeSet::new(),
            failures: Failures::default(),
            slow: SlowReports::default(),
            left: BTreeSet::new(),
            written_from_blocks: BTreeMap::new(),
            phase,
        }
    }
}

impl Engine {
    /// The next timeout of the array, of a shard, or of a multiplexer that holds requests.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.machines.due().into_iter().chain(self.elevators.due()).min()
    }
}

impl Engine {
    /// Whether time stops. It stops while too many reports wait for the array, since shards report
    /// at every tick. It also stops while only probes of slow members are in flight, since each
    /// tick would send another probe.
    fn stands_still(&self) -> bool {
        let reports: usize = self.machines.shards.iter().map(|side| side.reports.len()).sum();
        reports > REPORTS_MAX || self.slow.time_stands && self.elevators.due().is_none()
    }
}

pub(crate) struct World {
    /// Some sectors that were in flight at the last start may read as anything while their member
    /// is missing.
    pub(crate) is_unsettled: bool,
    /// Parity logs were replayed since a rebuild or resync last made redundancy whole.
    pub(crate) was_replayed: bool,
    /// Member sectors whose writes may have been interrupted since redundancy last agreed.
    pub(crate) half_written: BTreeSet<u64>,
    pub(crate) cache_file: CacheFile,
    /// At the last start the operator accepted that some sectors can read wrong.
    pub(crate) has_accepted: bool,
    pub(crate) geometry: Geometry,
    /// Whether the array is allowed to start jobs by itself.
    pub(crate) may_have_jobs: bool,
    /// Percentage of starts at which the server does not know our own parity logs.
    pub(crate) others_percent: u64,
    pub(crate) disks: Vec<Disk>,
    /// Disks that the array has declared out. Assembly must not believe them until they are
    /// rebuilt.
    pub(crate) out: BTreeSet<usize>,
    /// Disks that failed or were absent while the array had not declared them out: assembly may
    /// choose them or not.
    pub(crate) unsure: BTreeSet<usize>,
    /// Members that joined in this run.
    pub(crate) came: BTreeSet<MemberId>,
    /// Disks that another disk replaced. Replaced disks are no spares, and assembly must not choose
    /// them.
    pub(crate) replaced: BTreeSet<usize>,
    /// Disks that do not take part in this run. They are out as soon as the array acknowledges a
    /// write.
    pub(crate) absent: BTreeSet<usize>,
    pub(crate) model: Model,
    pub(crate) taint: Taint,
    pub(crate) metadata: Metadata,
    pub(crate) bad_logs: BadLogs,
    /// Disks whose bitmap the last server kept up to date.
    pub(crate) keeps_bits: BTreeSet<usize>,
    pub(crate) chances: Chances,
    pub(crate) clock: Clock,
    pub(crate) next_request: RequestId,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) engine: Engine,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    Nothing,
    Tick,
    /// It is a client's turn to submit a request.
    Issue,
    /// The drawn event waits for a disk that stalls.
    Stalled,
    Something,
}

impl World {
    /// Lets one event happen. `issue`: a client may submit. [`StepResult::Nothing`] if nothing can
    /// happen.
    pub(crate) fn step(&mut self, issue: bool) -> StepResult {
        self.clock.step += 1;
        self.clock.now = Instant(self.clock.now.0 + STEP_NS);
        self.tally.steps += 1;
        if !self.engine.plan.faults.is_empty() {
            self.let_faults_happen();
        }
        self.allow_now_and_then();
        let offer = self.offer(issue);
        let engine = &self.engine;
        let choice = choose(&engine.pending, offer, &engine.order, &mut self.chances.schedule);
        match choice {
            None if self.allow_at_last() => {}
            None => return StepResult::Nothing,
            Some(Choice::Event(class)) => return self.let_event_happen(class),
            Some(Choice::Inbox) => self.open_letter(),
            Some(Choice::Report) => self.pass_report(),
            Some(Choice::Issue) => return StepResult::Issue,
            Some(Choice::Wire) => self.deliver_some(),
            Some(Choice::Tick) => {
                self.tick();
                return StepResult::Tick;
            }
        }
        StepResult::Something
    }

    fn offer(&self, issue: bool) -> Offer {
        let machines = &self.engine.machines;
        Offer {
            inbox: machines.shards.iter().any(|side| !side.inbox.is_empty()),
            report: machines.shards.iter().any(|side| !side.reports.is_empty()),
            issue,
            wire: self.has_bytes_on_wires(),
            tick: self.engine.due().is_some() && !self.engine.stands_still(),
        }
    }

    /// The event of the next step, if the schedule is a fixed one and chooses an event.
    pub(crate) fn next_event(&self) -> Option<&Event> {
        let Order::Fixed(fixed) = &self.engine.order else { return None };
        let choice = fixed.choose(&self.engine.pending, self.offer(false))?;
        let Choice::Event(class) = choice else { return None };
        Some(self.engine.pending.peek(class, fixed))
    }

    fn let_event_happen(&mut self, class: usize) -> StepResult {
        let event = self.engine.pending.take(class, &self.engine.order, &mut self.chances.schedule);
        let disk = event.waits_for().map(|id| self.disk_index(id));
        let waits = disk.is_some_and(|disk| self.disks[disk].ills.stalled || self.is_late(disk));
        if waits {
            self.engine.pending.push(event);
            return StepResult::Stalled;
        }
        self.happen(event);
        StepResult::Something
    }

    pub(crate) fn disk_index(&self, member: MemberId) -> usize {
        self.engine.machines.members[usize::from(member.0)].disk
    }

    pub(crate) fn note(&mut self, word: &'static str, numbers: [u64; 3]) {
        self.trace.note(self.clock.step, word, numbers);
    }

    fn let_faults_happen(&mut self) {
        let step = self.clock.step;
        let faults = std::mem::take(&mut self.engine.plan.faults);
        let (due, later): (Vec<Fault>, _) =
            faults.into_iter().partition(|fault| fault.step <= step);
        self.engine.plan.faults = later;
        due.into_iter().for_each(|fault| self.befall(fault));
    }

    pub(crate) fn befall(&mut self, fault: Fault) {
        let Fault { disk: index, mishap, ordinal, .. } = fault;
        self.trace.label(self.chances.number(Kind::Fault, ordinal));
        self.note("fault", [index as u64, u64::from(mishap.name().as_bytes()[0]), 0]);
        self.tally.count(mishap.name());
        self.visit_fault(mishap.name());
        self.doubt_copies(mishap);
        let disk = &mut self.disks[index];
        match mishap {
            Mishap::Dies => disk.ills.gone = true,
            Mishap::PowerCut => {
                if !disk.ills.gone {
                    self.tally.sectors_undone += disk.lose_power(&mut self.chances.disks);
                }
                disk.ills.gone = true;
                self.engine.has_lost_cache = true;
                self.check_confined(index);
                self.hear_of_lies(index);
            }
            Mishap::WritesFail => disk.ills.writes_fail = true,
            Mishap::FlushesFail => disk.ills.flushes_fail = true,
            Mishap::SuperblocksFail => disk.ills.superblocks_fail = true,
            Mishap::Stalls => disk.ills.stalled = true,
            Mishap::Wakes => disk.ills.stalled = false,
            Mishap::BadSectors { start, sectors } => disk.bad.extend(start..start + sectors),
            Mishap::Slow { milliseconds } => {
                disk.ills.slow_until_ns = self.clock.now.0 + milliseconds * 1_000_000;
            }
            Mishap::Rots { start, sectors, seed } => self.rot(index, (start, sectors), seed),
            Mishap::LosesWrite { about_superblock } => {
                disk.ills.set_fate(about_superblock, Fate::Lost);
            }
            Mishap::Misdirects { about_superblock, to } => {
                disk.ills.set_fate(about_superblock, Fate::Astray(to));
            }
            Mishap::FlushesLie => disk.ills.flushes_lie = true,
            Mishap::Watches(settings) => {
                self.engine.machines.array.handle_sit_out(self.clock.now, settings);
                self.drain_array();
            }
            Mishap::Pauses => disk.ills.stalled = true,
            Mishap::GoesOn => self.goes_on(index),
            Mishap::IsSilent => self.is_silent(index),
            Mishap::SetsElevators { seed } => self.set_elevators(&mut Random::new(seed)),
            Mishap::Joins => self.a_disk_joins(index),
            Mishap::AllowsLittle { seed } => self.allow_little(seed),
            Mishap::Compares { row, seed } => self.ask_for_comparison(row, seed),
            Mishap::ChangesBitmap(bit_sectors) => _ = self.changes_bitmap(bit_sectors),
            Mishap::ChangesLogs => {
                let makes = self.engine.machines.array.parity_logs().is_none();
                _ = self.changes_logs(makes);
            }
            Mishap::Tunes(tuning) => {
                for side in &mut self.engine.machines.shards {
                    side.inbox.push_back(Message::Tuning(tuning));
                }
            }
        }
    }

    /// Time jumps to the next timeout of the array, a shard or the multiplexer.
    pub(crate) fn tick(&mut self) {
        self.check_due();
        let Some(due) = self.engine.due() else { return };
        let now = self.clock.now.max(due);
        self.clock.now = now;
        self.note("tick", [now.0, 0, 0]);
        self.wake_elevators();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if is_due(self.engine.machines.array.poll_timeout()) {
            self.engine.machines.array.handle_timeout(now);
            self.drain_array();
        }
        for index in 0..self.engine.machines.shards.len() {
            let shard = &mut self.engine.machines.shards[index].shard;
            if is_due(shard.poll_timeout()) {
                shard.handle_timeout(now);
                self.heed(index);
                self.drain_shard(index);
            }
        }
    }

    fn any_shard(&mut self, has: impl Fn(usize, &Self) -> bool) -> usize {
        let open: Vec<usize> =
            (0..self.engine.machines.shards.len()).filter(|index| has(*index, self)).collect();
        if open.len() == 1 { open[0] } else { *self.chances.schedule.pick(&open) }
    }

    fn open_letter(&mut self) {
        let index = self.any_shard(|i, world| !world.engine.machines.shards[i].inbox.is_empty());
        let now = self.clock.now;
        let side = &mut self.engine.machines.shards[index];
        match side.inbox.pop_front().expect("it was seen") {
            Message::View(view) => {
                side.view = Arc::clone(&view);
                side.note_early(&self.geometry, self.clock.step);
                side.shard.handle_view(now, view);
            }
            Message::Query => side.shard.handle_activity_query(now),
            Message::Logged(ticket) => side.shard.handle_logged(now, ticket),
            Message::QueryTouched => side.shard.handle_touched_query(now),
            Message::WriteBack(round) => side.shard.handle_write_back(now, round),
            Message::SlowMembers(slow_members) => side.shard.handle_slow_members(now, slow_members),
            Message::Work(work) => side.shard.handle_work(now, work),
            Message::Tuning(tuning) => {
                side.cache.tuning = tuning;
                side.age_before_ms = side.age_before_ms.max(tuning.age_max_ms);
                side.note_early(&self.geometry, self.clock.step);
                side.shard.handle_tuning(now, tuning);
            }
        }
        self.drain_shard(index);
    }

    fn pass_report(&mut self) {
        let index = self.any_shard(|i, world| !world.engine.machines.shards[i].reports.is_empty());
        let side = &mut self.engine.machines.shards[index];
        let report = side.reports.pop_front().expect("it was seen");
        let shard = ShardIndex(index as u16);
        self.engine.machines.array.handle_report(self.clock.now, shard, report);
        self.drain_array();
    }

    fn happen(&mut self, event: Event) {
        let now = self.clock.now;
        match event {
            Event::Piece { shard, piece } => {
                self.note("piece", [piece.request.0, piece.start.0, u64::from(piece.sectors)]);
                self.engine.machines.shards[shard].shard.handle_piece(now, piece);
                self.drain_shard(shard);
            }
            Event::Computation { shard, mut computation } => {
                self.note("compute", [computation.id.0, computation.steps.len() as u64, 0]);
                let side = &mut self.engine.machines.shards[shard];
                let mut memory = ReachableMemory {
                    arena: &mut side.arena,
                    block_bytes: side.block_bytes,
                    payloads: &mut self.engine.payloads,
                };
                computation::run(&mut computation, braid_parity::kernel(), &mut memory);
                side.shard.handle_computation_done(now, computation);
                self.drain_shard(shard);
            }
            Event::Io(vector) => self.do_vector(vector),
            Event::IoDone { shard, done } => {
                self.note("io-done", [shard as u64, done.id.0, u64::from(done.result.is_ok())]);
                self.engine.machines.shards[shard].shard.handle_member_io(now, done);
                self.drain_shard(shard);
            }
            Event::Superblock { member, state, time } => {
                let written = self.write_superblock(member, (&state, time));
                let area = MetadataArea::Superblock;
                self.engine.pending.push(Event::MetadataDone { member, area, written });
            }
            Event::BadBlocks { member, write } => {
                let written = self.write_bad_blocks(member, &write);
                let area = MetadataArea::BadBlocks;
                self.engine.pending.push(Event::MetadataDone { member, area, written });
            }
            Event::Bitmap { member, record } => {
                let written = self.write_bitmap(member, &record);
                let area = MetadataArea::Bitmap;
                self.engine.pending.push(Event::MetadataDone { member, area, written });
            }
            Event::ParityLog { member, record } => {
                let written = self.write_parity_log(member, &record);
                let area = MetadataArea::ParityLog;
                self.engine.pending.push(Event::MetadataDone { member, area, written });
            }
            Event::Journal { member, record, piece } => {
                let written = self.write_journal(member, &record, piece);
                let area = MetadataArea::Journal;
                self.engine.pending.push(Event::MetadataDone { member, area, written });
            }
            Event::MetadataDone { member, .. } | Event::FlushDone { member, .. }
                if self.engine.left.contains(&member) => {}
            Event::MetadataDone { member, area, written } => {
                let name = match area {
                    MetadataArea::Superblock => "super-done",
                    MetadataArea::BadBlocks => "log-done",
                    MetadataArea::Bitmap => "bitmap-done",
                    MetadataArea::ParityLog => "parity-log-done",
                    MetadataArea::Journal => "journal-done",
                };
                self.note(name, [u64::from(member.0), u64::from(written.is_ok()), 0]);
                let fault = |cause| MemberFault { kind: FaultKind::Media, cause };
                let written = ((member, area), written.map_err(fault));
                self.engine.machines.array.handle_metadata_written(now, written.0, written.1);
                self.drain_array();
            }
            Event::Flush { member } => {
                let index = self.disk_index(member);
                let flushed = self.disks[index].flush();
                if flushed && !self.disks[index].ills.flushes_lie && self.taint.may_lie {
                    self.flushed_in_truth(index);
                }
                if !flushed {
                    self.engine.unflushed.insert(index);
                }
                self.note("flush", [index as u64, u64::from(flushed), 0]);
                let gone = self.disks[index].ills.gone;
                let kind = if gone { FaultKind::Gone } else { FaultKind::Media };
                let cause =
                    |world: &mut Self| world.failed(member, (RequestKind::Flush, kind), (0, 0));
                let flushed = if flushed { Ok(()) } else { Err(cause(self)) };
                self.engine.pending.push(Event::FlushDone { member, flushed });
            }
            Event::FlushDone { member, flushed } => {
                self.note("flush-done", [u64::from(member.0), u64::from(flushed.is_ok()), 0]);
                self.engine.machines.array.handle_flushed(now, member, flushed);
                self.drain_array();
            }
        }
    }

    fn write_superblock(
        &mut self,
        member: MemberId,
        (state, time): (&braid_engine::array::SuperblockState, Timestamp),
    ) -> Result<(), Cause> {
        self.check_log_is_there(member, state);
        self.bits_may_be_left_behind();
        let side = &mut self.engine.machines.members[usize::from(member.0)];
        let index = side.disk;
        let (start, data) = side.superblock_for(&self.disks, member, (state, time));
        let ills = self.disks[index].ills;
        let written = if ills.superblocks_fail && !ills.gone {
            // A write that failed may still have reached the disk.
            let superblock = side.superblock.clone();
            self.tear_superblock(index, &superblock, Purpose::Disks);
            false
        } else {
            let written = self.write_to(index, (start, &data), true).is_ok();
            let superblock = &self.engine.machines.members[usize::from(member.0)].superblock;
            self.metadata.told(index, superblock, written);
            if written && self.is_keeping_bits() {
                self.keeps_bits.insert(index);
            }
            written
        };
        let clean = u64::from(state.resync_offset != 0);
        self.note(
            if written { "super" } else { "super-fails" },
            [index as u64, state.events, clean],
        );
        if written {
            return Ok(());
        }
        let kind = if ills.gone { FaultKind::Gone } else { FaultKind::Media };
        let place = (start, (data.len() / SECTOR) as u64);
        Err(self.failed(member, (RequestKind::Superblock, kind), place))
    }

    /// The bytes that a write stores, and whether they must be durable.
    pub(crate) fn bytes_to_write(&mut self, shard: usize, io: &MemberIo) -> (Vec<u8>, bool) {
        let length = io.sectors as usize * SECTOR;
        let side = &mut self.engine.machines.shards[shard];
        let mut memory = ReachableMemory {
            arena: &mut side.arena,
            block_bytes: side.block_bytes,
            payloads: &mut self.engine.payloads,
        };
        match io.operation {
            MemberOperation::Write { buffer, durable } => {
                (memory.bytes(buffer, length, false).to_vec(), durable)
            }
            MemberOperation::Zero { durable, .. } => (vec![0; length], durable),
            MemberOperation::Read { .. } => unreachable!("a read writes nothing"),
        }
    }

    fn note_blocks(&mut self, shard: usize, io: &MemberIo) {
        if let MemberOperation::Write { buffer: Buffer::Block { .. }, .. } = io.operation {
            let number = number_of(&self.bytes_to_write(shard, io).0);
            let key = (shard, io.id, io.member);
            self.engine.written_from_blocks.insert(key, number);
        }
    }

    /// Checks that a block did not change since its write was submitted, even if the member has
    /// left.
    fn check_blocks(&mut self, (shard, io): (usize, &MemberIo), data: &[u8]) {
        let key = (shard, io.id, io.member);
        let asked = self.engine.written_from_blocks.remove(&key);
        let is_same = asked.is_none_or(|asked| asked == number_of(data));
        assert!(is_same, "the block of {io:?} changed after its submission");
    }

    /// The disk of a member request, and the request's first sector on that disk.
    pub(crate) fn place_of(&self, io: &MemberIo) -> (usize, u64) {
        let member = &self.engine.machines.members[usize::from(io.member.0)];
        (member.disk, member.data_offset() + io.sector.0)
    }

    /// Executes one request of a vector and queues its completion. Returns whether the request
    /// succeeded.
    pub(crate) fn do_part(&mut self, shard: usize, io: &MemberIo) -> bool {
        let result = self.act(shard, io).map_err(|kind| {
            let (_, start) = self.place_of(io);
            let place = (start, u64::from(io.sectors));
            let cause = self.failed(io.member, (io.operation.asked(), kind), place);
            MemberFault { kind, cause }
        });
        let done = MemberIoDone { id: io.id, result };
        self.engine.pending.push(Event::IoDone { shard, done });
        result.is_ok()
    }

    /// The member's disk executes a request.
    fn act(&mut self, shard: usize, io: &MemberIo) -> Result<(), FaultKind> {
        let (index, start) = self.place_of(io);
        let (sectors, is_write) = (u64::from(io.sectors), io.operation.is_write());
        self.note(if is_write { "write" } else { "read" }, [index as u64, start, sectors]);
        if let MemberOperation::Read { buffer } = io.operation {
            let side = &mut self.engine.machines.shards[shard];
            let mut memory = ReachableMemory {
                arena: &mut side.arena,
                block_bytes: side.block_bytes,
                payloads: &mut self.engine.payloads,
            };
            let out = memory.bytes(buffer, io.sectors as usize * SECTOR, true);
            let read = self.disks[index].read(start, sectors);
            match read {
                Ok(data) => out.copy_from_slice(data),
                // A failed read leaves arbitrary bytes.
                Err(_) => out.fill(0xDB),
            }
            return read.map(|_| ());
        }
        let (data, durable) = self.bytes_to_write(shard, io);
        self.check_blocks((shard, io), &data);
        self.write_to(index, (start, &data), durable)
    }

    pub(crate) fn drain_shard(&mut self, index: usize) {
        while let Some(computation) = self.engine.machines.shards[index].shard.poll_computation() {
            self.engine.pending.push(Event::Computation { shard: index, computation });
        }
        while let Some(io) = self.engine.machines.shards[index].shard.poll_member_io() {
            self.check_io(index, &io);
            self.check_logged(&io);
            self.note_blocks(index, &io);
            self.queue_io(index, io);
        }
        let shard = &mut self.engine.machines.shards[index].shard;
        let mut reports: Vec<Report> = std::iter::from_fn(|| shard.poll_report()).collect();
        let lost = |report: &Report| match report {
            Report::WriteLost { start, sectors, .. } => Some((start.0, *sectors)),
            _ => None,
        };
        self.engine.lost.reported_now = reports.iter().filter_map(lost).collect();
        self.take_cache_records(index);
        while let Some(reply) = self.engine.machines.shards[index].shard.poll_reply() {
            let flight = self.engine.clients.flights.get_mut(&reply.request);
            let flight: &mut Flight = flight.expect("only requests under way are answered");
            let answer = flight.progress.reply(reply.result);
            if reply.result.is_err() {
                self.check_error_cause(reply.cause.as_ref());
            }
            if reply.leaves_payload {
                self.engine.payloads.leave(reply.request);
            }
            if reply.keeps_payload {
                self.keep(index, &reply);
            }
            if let Some(result) = answer {
                self.answered(reply.request, result);
            }
        }
        let shard = &mut self.engine.machines.shards[index].shard;
        let released: Vec<RequestId> = std::iter::from_fn(|| shard.poll_release()).collect();
        let lost = std::mem::take(&mut self.engine.lost.reported_now);
        if !lost.is_empty() {
            self.lose_answered();
        }
        let over = self.no_longer_kept(index);
        over.iter().for_each(|request| self.reaches_members(index, *request));
        released.iter().for_each(|request| self.release(*request));
        lost.into_iter().for_each(|range| self.lose_sectors(range, &over));
        reports.retain(|report| !self.take_result(index, report));
        self.engine.machines.shards[index].reports.extend(reports);
        self.check_held(index);
    }

    pub(crate) fn drain_array(&mut self) {
        while let Some(effect) = self.engine.machines.array.poll_effect() {
            match effect {
                ArrayEffect::Publish(view) => {
                    self.engine.phase = self.engine.phase.after(view.gate);
                    self.check_open_bits(&view);
                    for side in &mut self.engine.machines.shards {
                        side.inbox.push_back(Message::View(Arc::clone(&view)));
                    }
                }
                ArrayEffect::WriteMetadata { member, record } => {
                    self.check_is_in(member);
                    self.engine.pending.push(match record {
                        MetadataRecord::Superblock(state) => {
                            let time = self.engine.machines.time_of(&state);
                            self.cache_file.note_update(state.events, time);
                            Event::Superblock { member, state, time }
                        }
                        MetadataRecord::BadBlocks(write) => Event::BadBlocks { member, write },
                        MetadataRecord::Bitmap(record) => Event::Bitmap { member, record },
                        MetadataRecord::ParityLog(record) => Event::ParityLog { member, record },
                        MetadataRecord::Journal(record, piece) => {
                            Event::Journal { member, record, piece }
                        }
                    });
                }
                ArrayEffect::Flush { member } => {
                    self.check_is_in(member);
                    self.engine.pending.push(Event::Flush { member });
                }
                ArrayEffect::Leave { member } => self.member_leaves(member),
                ArrayEffect::SlowMembers(slow_members) => {
                    for side in &mut self.engine.machines.shards {
                        side.inbox.push_back(Message::SlowMembers(Arc::clone(&slow_members)));
                    }
                }
                ArrayEffect::QueryActivity => {
                    for side in &mut self.engine.machines.shards {
                        side.inbox.push_back(Message::Query);
                    }
                }
                ArrayEffect::QueryTouched => {
                    for side in &mut self.engine.machines.shards {
                        side.inbox.push_back(Message::QueryTouched);
                    }
                }
                ArrayEffect::WriteBack { round } => {
                    for side in &mut self.engine.machines.shards {
                        side.inbox.push_back(Message::WriteBack(round));
                    }
                }
                ArrayEffect::AskConsent { state } => {
                    unreachable!("no consent is given: {}", state.events)
                }
                ArrayEffect::KeepRecord { events } => {
                    unreachable!("no record is kept: {events}")
                }
                ArrayEffect::Logged { shard, ticket } => {
                    let side = &mut self.engine.machines.shards[usize::from(shard.0)];
                    side.inbox.push_back(Message::Logged(ticket));
                }
                ArrayEffect::Work { shard, work } => {
                    self.check_allowed(&work);
                    let side = &mut self.engine.machines.shards[usize::from(shard.0)];
                    side.inbox.push_back(Message::Work(work));
                }
                ArrayEffect::Border(_) | ArrayEffect::Keep { .. } | ArrayEffect::Move(_) => {
                    unreachable!("no reshape is under way")
                }
                ArrayEffect::Answer { request, result } => self.flush_answered(request, result),
                ArrayEffect::Notice(notice) => self.heard(notice),
            }
        }
    }

    /// Ends all stalls and runs until every request is answered, and nothing happens unless time
    /// passes.
    pub(crate) fn settle(&mut self) {
        self.engine.plan.faults.clear();
        self.disks.iter_mut().for_each(|disk| disk.ills.stalled = false);
        let end = self.clock.step + SETTLE_STEPS_MAX;
        loop {
            assert!(self.clock.step < end, "the world does not come to rest");
            let is_answered = self.engine.clients.is_idle();
            if is_answered && self.is_quiet() {
                break;
            }
            self.engine.slow.time_stands = is_answered && !self.engine.slow.sitting_out.is_empty();
            let did = self.step(false);
            assert!(did != StepResult::Nothing || is_answered, "requests hang");
            if did == StepResult::Nothing && self.engine.slow.time_stands {
                break;
            }
        }
        self.engine.slow.time_stands = false;
        assert!(self.engine.background.is_over(), "background work hangs");
    }

    /// Whether nothing is in flight, apart from timeouts.
    pub(crate) fn is_quiet(&self) -> bool {
        let sides = &self.engine.machines.shards;
        self.engine.pending.is_empty()
            && self.engine.elevators.is_empty()
            && sides.iter().all(|side| side.inbox.is_empty() && side.reports.is_empty())
    }
}

/// A hash of bytes: different bytes nearly always have different hashes.
fn number_of(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight of them"));
    let words = bytes.chunks_exact(8).map(word);
    words.fold(0, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}
