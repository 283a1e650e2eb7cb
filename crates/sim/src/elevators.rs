//! Elevators between the engine and the disks, and the multiplexer above them.
//!
//! ```text
//!   shard ─MemberIo─▶ elevator of the member ─Vector─▶ pending ─▶ disk, part by part ─IoDone─▶ shard
//!                          ▲           ▲                            │
//!             reads, writes or both    └────── tag is free ─────────┤
//!                     multiplexer ◀───── how long it took ──────────┘
//! ```
//!
//! What waits in an elevator when a run ends was never begun; what is out may be torn. A vector that fails is tried again
//! part by part, as a driver must, so that one bad sector costs only the request that asked for it. Superblocks and flushes
//! go past the elevators: the array has at most one of them under way for a member.
//!
//! One multiplexer stands above all members. It is asked whenever something comes, something is done, it is set anew, and
//! when the moment that it named has come; [`crate::patience`] looks at what it says and at who goes before whom.

use std::collections::BTreeMap;

use braid_elevator::{
    Allowed, Class, Demand, Depth, Elevator, Entry, EntryId, Multiplexer, MultiplexerSettings,
    Operation, Place, Policy, Settings, Tag,
};
use braid_engine::Instant;
use braid_engine::array::MemberId;
use braid_engine::buffer::Buffer;
use braid_engine::effect::{MemberIo, MemberOperation};

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::patience::{Patience, Waiting};
use crate::random::Random;
use crate::schedule::Event;
use crate::world::World;

/// Ordinals of changes among the faults of a cycle: behind those of caches.
const FIRST_ORDINAL: u64 = 3000;
/// Runs, of a hundred, in which elevators and multiplexer are set anew.
const PERCENT: u64 = 40;

/// Nothing waits.
const NOBODY: Allowed = Allowed { reads: false, writes: false };

/// What a disk was given: adjacent requests of one kind.
#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) member: MemberId,
    pub(crate) tag: Tag,
    is_read: bool,
    /// Shard and request.
    pub(crate) parts: Vec<(usize, MemberIo)>,
}

/// One elevator for each member, whose entries are whose, and who may go.
#[derive(Debug)]
pub(crate) struct Elevators {
    each: Vec<Elevator>,
    /// By member: since when it has been busy with what it does now.
    busy_since_ns: Vec<u64>,
    multiplexer: Multiplexer,
    /// When the multiplexer wants to be asked again, if anybody waits.
    wake_ns: Option<u64>,
    waiting: BTreeMap<EntryId, (Waiting, MemberIo)>,
    patience: Patience,
    /// Of which the class of a request is drawn: the engine says nothing of classes, so any of them must do.
    classes: &'static [Class],
    /// Whether what a write must read first goes with the writes.
    names_pre_reads: bool,
    next: u64,
}

const ALIKE: &[Class] = &[Class::BestEffort];
const MIXED: &[Class] = &[Class::BestEffort, Class::BestEffort, Class::Idle, Class::RealTime];

impl Elevators {
    /// Elevators that change nothing.
    pub(crate) fn straight(members: usize, now: Instant) -> Self {
        let each = (0..members).map(|_| Elevator::new(Settings::straight())).collect();
        let off = MultiplexerSettings { is_on: false, ..MultiplexerSettings::default() };
        Self {
            each,
            busy_since_ns: vec![0; members],
            multiplexer: Multiplexer::new(off, now.0),
            wake_ns: None,
            waiting: BTreeMap::new(),
            patience: Patience::new(off, members),
            classes: ALIKE,
            names_pre_reads: true,
            next: 0,
        }
    }

    /// Sets all of it to anything, as a person may at any time.
    fn set_any(&mut self, random: &mut Random) {
        let settings = MultiplexerSettings {
            is_on: random.chance(70),
            period_ns: *random.pick(&[10_000, 200_000, 5_000_000, 200_000_000]),
            share_min_permille: *random.pick(&[0, 100, 500, 1000]),
            share_max_permille: *random.pick(&[0, 700, 700, 1000]),
        };
        self.classes = *random.pick(&[ALIKE, MIXED]);
        self.names_pre_reads = random.chance(70);
        self.multiplexer.set(settings);
        self.patience.multiplexer_set(settings);
        for (member, elevator) in self.each.iter_mut().enumerate() {
            let policy = *random.pick(&[Policy::Deadline, Policy::Deadline, Policy::None]);
            let depth = Depth {
                total: *random.pick(&[1, 2, 4, 32]),
                kept_for_reads: *random.pick(&[0, 1, 8]),
                kept_for_writes: *random.pick(&[0, 1, 8]),
            };
            elevator.set(Settings {
                policy,
                depth,
                read_expiry_ns: *random.pick(&[5_000, 500_000_000]),
                write_expiry_ns: *random.pick(&[20_000, 5_000_000_000]),
                aging_ns: *random.pick(&[50_000, 10_000_000_000]),
                hold_max_ns: *random.pick(&[100_000, 400_000_000]),
                batch: *random.pick(&[1, 2, 16]),
                writes_starved: *random.pick(&[0, 2]),
                merge_sectors_max: *random.pick(&[0, 16, 2048]),
                merge_parts_max: *random.pick(&[2, 64]),
            });
            self.patience.elevator_set(member, elevator);
        }
    }

    /// Requests that no disk was given yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &MemberIo> {
        self.waiting.values().map(|(_, io)| io)
    }

    /// Whether anything waits or is out.
    pub(crate) fn is_empty(&self) -> bool {
        self.each.iter().all(Elevator::is_empty)
    }

    /// When somebody who is held may be let go.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.wake_ns.map(Instant)
    }
}

impl World {
    /// Adds changes of the elevators to the plan of a run of about `steps` steps from `now` on.
    pub(crate) fn plan_elevators(&mut self, (now, steps): (u64, u64)) {
        let mut random = self.chances.of(Purpose::Elevators, 0);
        if !random.chance(PERCENT) {
            return;
        }
        for ordinal in FIRST_ORDINAL..FIRST_ORDINAL + 1 + random.below(3) {
            let step = now + random.below(steps);
            let mishap = Mishap::SetsElevators { seed: random.next() };
            if !self.chances.leaves_out(Kind::Fault, ordinal) {
                self.engine.plan.faults.push(Fault { step, disk: 0, mishap, ordinal });
            }
        }
    }

    /// Sets elevators and multiplexer to anything; who was held before may go now.
    pub(crate) fn set_elevators(&mut self, random: &mut Random) {
        if !self.chances.cut.straight {
            self.engine.elevators.set_any(random);
            self.dispatch();
        }
    }

    /// A shard wants something of a member.
    pub(crate) fn queue_io(&mut self, shard: usize, io: MemberIo) {
        let elevators = &mut self.engine.elevators;
        let id = EntryId(elevators.next);
        elevators.next += 1;
        let operation = match io.operation {
            // The engine says nothing of who waits for a read; into a block it is as a rule a write.
            MemberOperation::Read { buffer: Buffer::Block { .. } } if elevators.names_pre_reads => {
                Operation::PreRead
            }
            MemberOperation::Read { .. } => Operation::Read,
            MemberOperation::Write { durable, .. } => Operation::Write { durable },
            MemberOperation::Zero { .. } => Operation::Other,
        };
        let (start, sectors) = (io.sector.0, io.sectors);
        let class = *self.chances.schedule.pick(elevators.classes);
        let entry = Entry { id, operation, class, start, sectors };
        let member = usize::from(io.member.0);
        let elevator = &mut elevators.each[member];
        let is_straight = elevator.settings().policy == Policy::None;
        let waiting = Waiting::new((shard, member), &entry, (self.clock.now.0, is_straight));
        elevators.waiting.insert(id, (waiting, io));
        elevator.handle_insert(self.clock.now.0, entry, Place::Sorted);
        self.dispatch();
    }

    /// What waits, and how much it matters: what is dirty of what may be is the flusher's backlog, and urgent is what
    /// somebody waits for.
    fn demand(&self) -> Demand {
        let elevators = &self.engine.elevators;
        let waits = elevators.each.iter().map(Elevator::waits);
        let (reads, writes) =
            waits.fold((false, false), |(r, w), waits| (r | waits.reads, w | waits.writes));
        let sides = &self.engine.machines.shards;
        let dirty: u64 = sides.iter().map(|side| side.dirty).sum();
        let limit: u64 =
            sides.iter().map(|side| u64::from(side.cache.tuning.dirty_sectors_max)).sum();
        let is_forced = |(waiting, _): &(Waiting, MemberIo)| waiting.is_durable;
        Demand {
            backlog_permille: (dirty * 1000 / limit.max(1)) as u32,
            is_urgent: dirty > limit
                || !self.engine.clients.flushes.is_empty()
                || writes && elevators.waiting.values().any(is_forced),
            reads,
            writes,
        }
    }

    /// Gives the disks what their elevators let out, as long as the multiplexer lets anybody go.
    fn dispatch(&mut self) {
        loop {
            let demand = self.demand();
            let now_ns = self.clock.now.0;
            let elevators = &mut self.engine.elevators;
            let turn = elevators.multiplexer.turn(now_ns, demand);
            elevators.patience.check_turn(now_ns, demand, turn, &elevators.multiplexer);
            let mut sent = 0;
            for member in 0..elevators.each.len() {
                let elevator = &mut elevators.each[member];
                while elevator.waits() != NOBODY {
                    let out = elevator.out();
                    let allowed = turn.allowed_at(elevator.waits(), out);
                    let Some(dispatch) = elevator.poll_dispatch(now_ns, allowed) else {
                        elevators.patience.check_left(now_ns, member, elevator, allowed);
                        break;
                    };
                    if out == (0, 0) {
                        elevators.busy_since_ns[member] = now_ns;
                    }
                    let whose = elevator.parts(dispatch.tag).map(|entry| {
                        elevators.waiting.remove(&entry.id).expect("an entry goes out once")
                    });
                    let whose: Vec<(Waiting, MemberIo)> = whose.collect();
                    let others = elevators.waiting.values_mut().map(|(waiting, _)| waiting);
                    let others = others.filter(|waiting| waiting.member == member);
                    let gone: Vec<&Waiting> = whose.iter().map(|(waiting, _)| waiting).collect();
                    elevators.patience.check_order(
                        (now_ns, elevator.settings()),
                        (allowed, out),
                        &gone,
                        others,
                    );
                    sent += 1;
                    if whose.len() > 1 {
                        self.tally.count("merged-vector");
                    }
                    let is_read = dispatch.operation == Operation::Read;
                    let parts = whose.into_iter().map(|(waiting, io)| (waiting.shard, io));
                    let (member, tag) = (MemberId(member as u16), dispatch.tag);
                    let vector = Vector { member, tag, is_read, parts: parts.collect() };
                    self.engine.pending.push(Event::Io(vector));
                }
            }
            if sent == 0 {
                let is_held = demand.reads && !turn.reads || demand.writes && !turn.writes;
                elevators.wake_ns = is_held.then_some(turn.until_ns);
                return;
            }
        }
    }

    /// The moment that the multiplexer named has come.
    pub(crate) fn wake_elevators(&mut self) {
        if self.engine.elevators.due().is_some_and(|due| due <= self.clock.now) {
            self.tally.count("dispatcher-woken");
            self.dispatch();
        }
    }

    /// The disk has done a vector.
    pub(crate) fn vector_done(&mut self, member: MemberId, tag: Tag, is_read: bool) {
        let elevators = &mut self.engine.elevators;
        let index = usize::from(member.0);
        elevators.each[index].handle_done(tag);
        let now_ns = self.clock.now.0;
        let since_ns = std::mem::replace(&mut elevators.busy_since_ns[index], now_ns);
        elevators.multiplexer.handle_served(is_read, now_ns - since_ns);
        elevators.patience.served(is_read);
        self.dispatch();
    }

    /// A disk does a vector, part by part.
    pub(crate) fn do_vector(&mut self, vector: Vector) {
        let Vector { member, tag, is_read, parts } = vector;
        let (count, mut failed) = (parts.len(), 0);
        for (shard, io) in parts {
            let done = self.do_part(shard, &io);
            failed += usize::from(!done);
        }
        if count > 1 && failed > 0 {
            self.tally.count("vector-split");
        }
        self.vector_done(member, tag, is_read);
    }
}
