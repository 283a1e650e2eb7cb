//! An array, readers, writers, and a stalling member in virtual time; every run gives the same
//! figures.
//!
//! The world runs both machines of the shipped engine: one shard, and the array machine, which
//! decides which member sits out. Superblocks are written in no time. A stalled member begins
//! nothing and ends nothing until the stall is over; then it continues.

use std::collections::BTreeMap;

use braid_engine::array::{Array, ArrayEffect, ArraySetup, Notice};
use braid_engine::request::{Operation, ShardIndex};
use braid_engine::{Instant, SitOut, Tuning};
use braid_geometry::{Geometry, Level, Shape, default_layout};

use crate::disk::{Disk, DiskPlan, DiskRequest};
use crate::engine::{Engine, MemberRequest};
use crate::random::Random;

#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Times of reads that were in flight during the stall.
    pub(super) read_ns: Vec<u64>,
    pub(super) errors: u64,
    pub(super) noticed_ns: Option<u64>,
    pub(super) back_ns: Option<u64>,
}

pub(super) const SLOTS: u16 = 6;
pub(super) const STALLED: usize = 1;
pub(super) const READERS: usize = 16;
pub(super) const WRITERS: usize = 2;
pub(super) const BLOCK_SECTORS: u64 = 32;
/// A writer's pause between an answer and its next write. The writer's writes are acknowledged
/// early.
pub(super) const THINK_NS: u64 = 50_000_000;
/// The time before the stall.
const BEFORE_NS: u64 = 5_000_000_000;
/// The time after the stall.
const AFTER_NS: u64 = 30_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Pending {
    client: usize,
    since: u64,
}

pub(super) struct World {
    array: Array,
    engine: Engine,
    disks: Vec<Disk>,
    /// Requests that the member has received since it stalled.
    kept: Vec<DiskRequest>,
    stall: (u64, u64),
    random: Vec<Random>,
    /// When each client submits its next request; `None` while the client waits for an answer.
    asks_at: Vec<Option<u64>>,
    capacity: u64,
    pending: BTreeMap<u64, Pending>,
    next_id: u64,
    now: u64,
    outcome: Outcome,
}

impl World {
    pub(super) fn new(sit_out: SitOut, stall_ns: u64) -> Self {
        let geometry = Geometry::new(&Shape::uniform(
            Level::Raid6,
            default_layout(Level::Raid6),
            128,
            SLOTS,
            DiskPlan::SATA_2005.sectors() / 4,
        ))
        .expect("a RAID-6");
        let mut array = Array::new(ArraySetup {
            work_sectors: 128,
            ..ArraySetup::consistent(geometry.clone(), 1)
        });
        let Some(ArrayEffect::Publish(view)) = array.poll_effect() else {
            unreachable!("an array's first effect is its first view")
        };
        array.handle_sit_out(Instant(0), sit_out);
        let clients = READERS + WRITERS;
        let mut world = Self {
            array,
            engine: Engine::with_view(view, 128, Tuning::default()),
            disks: (0..SLOTS).map(|_| Disk::new(DiskPlan::SATA_2005)).collect(),
            kept: Vec::new(),
            stall: (BEFORE_NS, BEFORE_NS + stall_ns),
            random: (1..).map(Random::new).take(clients).collect(),
            asks_at: vec![Some(0); clients],
            capacity: geometry.capacity_sectors(),
            pending: BTreeMap::new(),
            next_id: 0,
            now: 0,
            outcome: Outcome::default(),
        };
        world.poll();
        world
    }

    /// Runs until long after the stall's end.
    pub(super) fn run(mut self) -> Outcome {
        let end = self.stall.1 + AFTER_NS;
        loop {
            self.ask();
            let next = self.next();
            if next > end {
                break;
            }
            self.now = next;
            self.advance();
        }
        let waiting: Vec<Pending> = self.pending.values().copied().collect();
        for pending in waiting {
            self.count(pending, end);
        }
        self.outcome.end_ns = self.stall.1;
        self.outcome.start_ns = self.stall.0;
        self.outcome
    }

    fn is_stalled(&self, slot: usize) -> bool {
        slot == STALLED && (self.stall.0..self.stall.1).contains(&self.now)
    }

    fn ask(&mut self) {
        for client in 0..self.asks_at.len() {
            if self.asks_at[client].is_none_or(|at| at > self.now) {
                continue;
            }
            self.asks_at[client] = None;
            let place = self.random[client].below(self.capacity / BLOCK_SECTORS) * BLOCK_SECTORS;
            let operation = match client < READERS {
                true => Operation::Read,
                false => Operation::Write { durable: false },
            };
            let id = self.next_id;
            self.next_id += 1;
            self.pending.insert(id, Pending { client, since: self.now });
            self.engine.request(self.now, id, operation, (place, BLOCK_SECTORS));
            self.poll();
        }
    }

    /// The time of the next event.
    fn next(&self) -> u64 {
        let disk = |(slot, disk): (usize, &Disk)| {
            let next = disk.next();
            if self.is_stalled(slot) { next.map(|_| self.stall.1) } else { next }
        };
        let disks = self.disks.iter().enumerate().filter_map(disk).min();
        let shard = self.engine.timeout();
        let array = self.array.poll_timeout().map(|at| at.0);
        let stall = [self.stall.0, self.stall.1].into_iter().find(|at| *at > self.now);
        let client = self.asks_at.iter().flatten().copied().min();
        let times = [disks, shard, array, stall, client];
        times.into_iter().flatten().min().unwrap_or(u64::MAX).max(self.now)
    }

    fn advance(&mut self) {
        if self.now >= self.stall.1 {
            for request in std::mem::take(&mut self.kept) {
                self.disks[STALLED].push(self.now, request);
            }
        }
        let mut done = Vec::new();
        for slot in 0..self.disks.len() {
            if self.is_stalled(slot) {
                continue;
            }
            while self.disks[slot].next().is_some_and(|at| at <= self.now) {
                self.disks[slot].advance(self.now, |id| done.push(id));
            }
        }
        let now = Instant(self.now);
        for id in done {
            self.engine.member_done(self.now, id);
            self.poll();
        }
        if self.engine.timeout().is_some_and(|at| at <= self.now) {
            self.engine.handle_timeout(self.now);
        }
        if self.array.poll_timeout().is_some_and(|at| at <= now) {
            self.array.handle_timeout(now);
        }
        self.poll();
    }

    /// Carries out the effects of both machines until neither has any.
    fn poll(&mut self) {
        let now = Instant(self.now);
        loop {
            let effects = self.engine.take();
            for MemberRequest { slot, disk, .. } in effects.member_requests {
                match self.is_stalled(slot) {
                    true => self.kept.push(disk),
                    false => self.disks[slot].push(self.now, disk),
                }
            }
            for id in effects.answers {
                let pending = self.pending.remove(&id).expect("it was asked");
                let think_ns = if pending.client < READERS { 0 } else { THINK_NS };
                self.asks_at[pending.client] = Some(self.now + think_ns);
                self.count(pending, self.now);
            }
            for report in effects.reports {
                self.array.handle_report(now, ShardIndex(0), report);
            }
            let mut is_quiet = true;
            while let Some(effect) = self.array.poll_effect() {
                is_quiet = false;
                self.carry_out(effect);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn carry_out(&mut self, effect: ArrayEffect) {
        let now = Instant(self.now);
        match effect {
            ArrayEffect::Publish(view) => {
                self.engine.handle(self.now, |shard| shard.handle_view(now, view));
            }
            ArrayEffect::WriteMetadata { member, record } => {
                self.array.handle_metadata_written(now, (member, record.area()), Ok(()));
            }
            ArrayEffect::Flush { member } => self.array.handle_flushed(now, member, Ok(())),
            ArrayEffect::SlowMembers(slow_members) => {
                self.engine.handle(self.now, |shard| shard.handle_slow_members(now, slow_members));
            }
            ArrayEffect::QueryActivity => {
                self.engine.handle(self.now, |shard| shard.handle_activity_query(now));
            }
            ArrayEffect::QueryTouched => {
                self.engine.handle(self.now, |shard| shard.handle_touched_query(now));
            }
            ArrayEffect::WriteBack { round } => {
                self.engine.handle(self.now, |shard| shard.handle_write_back(now, round));
            }
            ArrayEffect::Notice(Notice::SitsOut { .. }) => {
                self.outcome.noticed_ns.get_or_insert(self.now);
            }
            ArrayEffect::Notice(Notice::Back { .. }) => self.outcome.back_ns = Some(self.now),
            ArrayEffect::Border(_) | ArrayEffect::Keep { .. } | ArrayEffect::Move(_) => {
                unreachable!("no reshape is under way")
            }
            ArrayEffect::Notice(Notice::Recorded { .. }) => {}
            ArrayEffect::Notice(notice) => panic!("nothing else happens here: {notice:?}"),
            ArrayEffect::Answer { .. } => {}
            ArrayEffect::AskConsent { state } => panic!("no consent is given: {}", state.events),
            ArrayEffect::KeepRecord { events } => panic!("no record is kept: {events}"),
            ArrayEffect::Logged { ticket, .. } => panic!("nothing is logged: {ticket:?}"),
            ArrayEffect::Leave { member } => panic!("no member leaves: {member:?}"),
            ArrayEffect::Work { work, .. } => panic!("nothing is amiss: {work:?}"),
        }
    }

    /// Counts a read that was in flight while the member stalled.
    fn count(&mut self, pending: Pending, ended: u64) {
        if pending.client < READERS && ended >= self.stall.0 && pending.since < self.stall.1 {
            self.outcome.read_ns.push(ended - pending.since);
        }
    }
}
