//! Clients, the shipped engine, a gate (the rule under test), the shipped elevators, and disks, in
//! virtual time.
//! ```text
//!   clients ─▶ (HAMMER's locks) ─▶ engine ─▶ elevators ─▶ disks
//!                                    │  demand   ▲ allowed
//!                                    └──▶ gate ──┘
//! ```

use std::collections::BTreeMap;

use braid_elevator::{Demand, MultiplexerSettings, Operation as MemberOperation, Settings};
use braid_engine::Tuning;
use braid_engine::request::Operation;
use braid_geometry::Geometry;

use super::rule::{Gate, Rule};
use super::shape::{Client, Shape, Wish};
use crate::disk::{Account, ArmPurpose, DiskPlan};
use crate::engine::Engine;
use crate::member::{Member, Waits};

/// Number of leaves in HAMMER's tree that files share.
pub(super) const LEAVES: u64 = 32;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) geometry: Geometry,
    pub(super) tuning: Tuning,
    pub(super) shape: Shape,
    pub(super) rule: Rule,
    pub(super) multiplexer: MultiplexerSettings,
    pub(super) elevator: Settings,
    pub(super) disk: DiskPlan,
    /// The time that is not counted; the counted time follows it.
    pub(super) warm_up_ns: u64,
    pub(super) time_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) files_read: u64,
    /// Number of works made durable: new files, rewritten files and comments.
    pub(super) works_written: u64,
    pub(super) read_ns: Vec<u64>,
    pub(super) fsync_ns: Vec<u64>,
    pub(super) write_sectors: u64,
    /// Files read, and works written, in each second.
    pub(super) by_second: Vec<[u64; 2]>,
    /// The flusher's part of the members' busy time.
    pub(super) share_permille: f64,
    pub(super) set_point_permille: f64,
    pub(super) waits: Waits,
    /// The disks' account of their arms' time since the warm-up.
    pub(super) account: Account,
}

#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    readers: u32,
    is_written: bool,
}

/// A client's request that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    client: usize,
    wish: Wish,
    since: u64,
    leaf: Option<usize>,
}

/// Fsyncs in progress: those of the running round, and those that wait for the next round.
#[derive(Debug, Default)]
struct Fsyncs {
    running: Vec<Pending>,
    waiting: Vec<Pending>,
    /// The engine's running round.
    round: Option<u64>,
    /// Members that have yet to flush for that round.
    flushing: usize,
}

pub(super) struct World {
    plan: Plan,
    engine: Engine,
    gate: Gate,
    members: Vec<Member>,
    clients: Vec<Client>,
    pending: BTreeMap<u64, Pending>,
    fsyncs: Fsyncs,
    leaves: Vec<Leaf>,
    now: u64,
    next_id: u64,
    gate_asks_at: Option<u64>,
    /// Members' busy time since the warm-up: readers, then the flusher.
    busy_ns: [u64; 2],
    /// The disks' account at the end of the warm-up.
    before: Account,
    outcome: Outcome,
}

impl World {
    pub(super) fn new(plan: &Plan) -> Self {
        let slots = usize::from(plan.geometry.slots());
        Self {
            engine: Engine::new(&plan.geometry, 128, plan.tuning),
            gate: Gate::new(plan.rule, plan.multiplexer),
            members: (0..slots).map(|_| Member::new(plan.elevator, plan.disk)).collect(),
            clients: plan.shape.clients(plan.geometry.capacity_sectors()),
            pending: BTreeMap::new(),
            fsyncs: Fsyncs::default(),
            leaves: vec![Leaf::default(); usize::try_from(LEAVES).expect("few")],
            now: 0,
            next_id: 0,
            gate_asks_at: None,
            busy_ns: [0; 2],
            before: Account::default(),
            outcome: Outcome::default(),
            plan: plan.clone(),
        }
    }

    pub(super) fn run(mut self) -> Outcome {
        let end = self.plan.warm_up_ns + self.plan.time_ns;
        loop {
            self.ask();
            self.dispatch();
            let Some(next) = self.next().filter(|next| *next <= end) else { break };
            if self.now < self.plan.warm_up_ns && next >= self.plan.warm_up_ns {
                for member in &mut self.members {
                    member.waits = Waits::default();
                }
                self.before = self.account();
            }
            self.now = next;
            self.advance();
        }
        let [reads, writes] = self.busy_ns;
        #[allow(clippy::cast_precision_loss, reason = "four figures are shown")]
        let share = 1000.0 * writes as f64 / (reads + writes).max(1) as f64;
        self.outcome.share_permille = share;
        self.outcome.set_point_permille = self.gate.mean_set_point_permille();
        self.outcome.account = self.account().with(&self.before, u64::wrapping_sub);
        // A client that still waits at the end has waited for at least this long.
        for pending in self.fsyncs.running.iter().chain(&self.fsyncs.waiting) {
            self.outcome.fsync_ns.push(end - pending.since.max(self.plan.warm_up_ns));
        }
        self.outcome.fsync_ns.sort_unstable();
        self.outcome.read_ns.sort_unstable();
        for member in &self.members {
            for side in 0..2 {
                let (most, waits) = (&mut self.outcome.waits, member.waits);
                most.longest_ns[side] = most.longest_ns[side].max(waits.longest_ns[side]);
                most.held_ns[side] = most.held_ns[side].max(waits.held_ns[side]);
            }
        }
        self.outcome
    }

    fn account(&self) -> Account {
        let each = self.members.iter().map(Member::account);
        each.fold(Account::default(), |all, one| all.with(&one, u64::wrapping_add))
    }

    /// Lets every client that is able to submit its requests.
    fn ask(&mut self) {
        for index in 0..self.clients.len() {
            while self.clients[index].may_ask() && self.clients[index].ready_at <= self.now {
                if !self.ask_one(index) {
                    break;
                }
            }
        }
    }

    /// Submits a client's request. Returns false if the client must wait.
    fn ask_one(&mut self, index: usize) -> bool {
        let is_reader = self.clients[index].is_reader();
        let demand = self.demand();
        if is_reader && let Some(until) = self.gate.reader_waits_until(self.now, demand) {
            self.clients[index].ready_at = until;
            return false;
        }
        let Some(leaf) = self.lock(index) else { return false };
        let wish = self.clients[index].ask(self.now);
        let pending = Pending { client: index, wish, since: self.now, leaf };
        let (operation, run) = match wish {
            Wish::Fsync => {
                self.fsyncs.waiting.push(pending);
                self.begin_round();
                return true;
            }
            Wish::Read { start, sectors } => (Operation::Read, (start, sectors)),
            Wish::Write { start, sectors } => {
                (Operation::Write { durable: false }, (start, sectors))
            }
        };
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, pending);
        self.engine.request(self.now, id, operation, run);
        self.carry_out();
        true
    }

    /// With HAMMER's locks: locks the leaf that the client needs. `None` if the leaf is not free.
    #[allow(clippy::option_option, reason = "no leaf is needed, or one that is not free")]
    fn lock(&mut self, index: usize) -> Option<Option<usize>> {
        let client = &self.clients[index];
        if !self.plan.rule.locks() {
            return Some(None);
        }
        let number = usize::try_from(client.file() % LEAVES).expect("few");
        let leaf = &mut self.leaves[number];
        if client.is_reader() {
            if leaf.is_written {
                return None;
            }
            leaf.readers += 1;
        } else if client.begins() {
            if leaf.is_written || leaf.readers > 0 {
                return None;
            }
            leaf.is_written = true;
        }
        Some(Some(number))
    }

    fn unlock(&mut self, pending: &Pending) {
        let Some(number) = pending.leaf else { return };
        match pending.wish {
            Wish::Read { .. } => self.leaves[number].readers -= 1,
            Wish::Fsync => self.leaves[number].is_written = false,
            Wish::Write { .. } => {}
        }
    }

    fn demand(&self) -> Demand {
        let queued = self.members.iter().map(Member::queued);
        let (reads_queued, writes_queued) =
            queued.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let limit = u64::from(self.plan.tuning.dirty_sectors_max);
        let backlog = self.engine.dirty_sectors() * 1000 / limit;
        Demand {
            backlog_permille: u32::try_from(backlog.min(1000)).expect("small"),
            is_urgent: self.fsyncs.round.is_some() || self.fsyncs.flushing > 0,
            reads: self.members.iter().any(|member| member.waits_for().reads),
            writes: writes_queued > 0,
            reads_queued,
            writes_queued,
        }
    }

    fn dispatch(&mut self) {
        let demand = self.demand();
        let (allows, asks_at) = self.gate.turn(self.now, demand);
        self.gate_asks_at = asks_at.filter(|_| demand.reads || demand.writes);
        for member in &mut self.members {
            member.dispatch(self.now, |waits, out| allows.at(waits, out));
        }
    }

    fn next(&self) -> Option<u64> {
        let asking = self.clients.iter().filter(|client| client.may_ask());
        let asked = asking.map(|client| client.ready_at).filter(|at| *at > self.now).min();
        let members = self.members.iter().filter_map(Member::next).min();
        let times = [asked, members, self.engine.timeout(), self.gate_asks_at];
        times.into_iter().flatten().min().map(|at| at.max(self.now))
    }

    fn advance(&mut self) {
        for index in 0..self.members.len() {
            let done = self.members[index].advance(self.now);
            for side in (0..2).filter(|side| done.served[*side]) {
                self.gate.served(side, done.busy_ns[side]);
                if self.now >= self.plan.warm_up_ns {
                    self.busy_ns[side] += done.busy_ns[side];
                }
            }
            for id in done.entries {
                self.engine.member_done(self.now, id);
            }
            self.fsyncs.flushing -= done.flushes.len();
            if !done.flushes.is_empty() && self.fsyncs.flushing == 0 {
                for pending in std::mem::take(&mut self.fsyncs.running) {
                    self.answer(&pending);
                }
                self.begin_round();
            }
        }
        if self.engine.timeout().is_some_and(|at| at <= self.now) {
            self.engine.handle_timeout(self.now);
        }
        self.carry_out();
    }

    /// Begins the next round of fsyncs, if none runs and a client waits for one.
    fn begin_round(&mut self) {
        let Fsyncs { running, waiting, round, flushing } = &mut self.fsyncs;
        if round.is_none() && *flushing == 0 && !waiting.is_empty() {
            *running = std::mem::take(waiting);
            self.fsyncs.round = Some(self.engine.write_back(self.now));
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        let effects = self.engine.take();
        for request in effects.member_requests {
            let is_flushers =
                request.purpose == ArmPurpose::PreRead && self.plan.rule == Rule::Braid;
            let operation = match request.disk.is_write {
                true => MemberOperation::Write { durable: false },
                false if is_flushers => MemberOperation::PreRead,
                false => MemberOperation::Read,
            };
            self.members[request.slot].insert(self.now, (request.disk, request.purpose), operation);
        }
        for id in effects.answers {
            let pending = self.pending.remove(&id).expect("it was asked");
            self.answer(&pending);
        }
        for round in effects.written_back {
            assert_eq!(self.fsyncs.round.take(), Some(round), "one round at a time");
            self.fsyncs.flushing = self.members.len();
            for member in &mut self.members {
                member.flush(self.now, round);
            }
        }
    }

    fn answer(&mut self, pending: &Pending) {
        self.unlock(pending);
        let client = &mut self.clients[pending.client];
        let before = client.works;
        client.answered(self.now, pending.wish);
        let works = client.works - before;
        if self.now < self.plan.warm_up_ns {
            return;
        }
        let second = usize::try_from((self.now - self.plan.warm_up_ns) / 1_000_000_000)
            .expect("some seconds");
        if self.outcome.by_second.len() <= second {
            self.outcome.by_second.resize(second + 1, [0; 2]);
        }
        let is_reader = client.is_reader();
        self.outcome.by_second[second][usize::from(!is_reader)] += works;
        let took = self.now - pending.since;
        match pending.wish {
            Wish::Read { .. } => self.outcome.read_ns.push(took),
            Wish::Fsync => self.outcome.fsync_ns.push(took),
            Wish::Write { sectors, .. } => self.outcome.write_sectors += sectors,
        }
        if is_reader {
            self.outcome.files_read += works;
        } else {
            self.outcome.works_written += works;
        }
    }
}

/// The value below which `of_100_000` of 100 000 values lie.
pub(super) fn percentile(sorted: &[u64], of_100_000: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * of_100_000 / 100_000).min(last)).copied().unwrap_or(0)
}
