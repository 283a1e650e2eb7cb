//! The world's elevators: it queues requests in them, passes their dispatches to disks, and checks
//! how long requests wait.

use braid_elevator::{Demand, Directions, Entry, EntryId, Operation, Policy, QueuePosition, Tag};
use braid_engine::array::MemberId;
use braid_engine::buffer::Buffer;
use braid_engine::effect::{MemberIo, MemberOperation};

use super::Vector;
use crate::chances::Purpose;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::patience::QueuedRequest;
use crate::random::Random;
use crate::schedule::Event;
use crate::world::World;

/// Faults of a cycle are numbered. Numbers from here on are changes of the elevators' settings.
const FIRST_ORDINAL: u64 = 3000;

/// Percentage of runs in which elevators and multiplexer get new settings.
const PERCENT: u64 = 40;

/// Neither reads nor writes may go.
const NONE: Directions = Directions { reads: false, writes: false };

impl World {
    /// Adds new settings of the elevators to the plan of a run of about `steps` steps from `now`
    /// on.
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

    /// Draws new settings for elevators and multiplexer. Requests that were held may go now.
    pub(crate) fn set_elevators(&mut self, random: &mut Random) {
        if !self.chances.cut.straight {
            self.engine.elevators.set_any(random);
            self.dispatch();
        }
    }

    pub(crate) fn queue_io(&mut self, shard: usize, io: MemberIo) {
        let elevators = &mut self.engine.elevators;
        let id = EntryId(elevators.next);
        elevators.next += 1;
        let operation = match io.operation {
            // The engine does not say why it reads, but a read into a block mostly serves a write.
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
        let waiting = QueuedRequest::new((shard, member), &entry, (self.clock.now.0, is_straight));
        elevators.waiting.insert(id, (waiting, io));
        elevator.handle_insert(self.clock.now.0, entry, QueuePosition::Sorted);
        self.dispatch();
    }

    /// The demand of reads and of writes. The flusher's backlog is the share of the dirty limit
    /// that is in use. Flushes, durable writes, and dirty sectors beyond the limit make the demand
    /// urgent.
    fn demand(&self) -> Demand {
        let elevators = &self.engine.elevators;
        let reads = elevators.each.iter().any(|elevator| elevator.waits().reads);
        let queued = elevators.each.iter().map(|elevator| {
            let ((reads, writes), out) = (elevator.waiting(), elevator.out());
            (reads as u32 + out.0, writes as u32 + out.1)
        });
        let (reads_queued, writes_queued) =
            queued.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let writes = writes_queued > 0;
        let sides = &self.engine.machines.shards;
        let dirty: u64 = sides.iter().map(|side| side.dirty).sum();
        let limit: u64 =
            sides.iter().map(|side| u64::from(side.cache.tuning.dirty_sectors_max)).sum();
        let is_forced = |(waiting, _): &(QueuedRequest, MemberIo)| waiting.is_durable;
        Demand {
            backlog_permille: (dirty * 1000 / limit.max(1)) as u32,
            is_urgent: dirty > limit
                || !self.engine.clients.flushes.is_empty()
                || writes && elevators.waiting.values().any(is_forced),
            reads,
            writes,
            reads_queued,
            writes_queued,
        }
    }

    /// Passes to the disks all requests that the elevators dispatch and the multiplexer lets go.
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
                while elevator.waits() != NONE {
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
                    let whose: Vec<(QueuedRequest, MemberIo)> = whose.collect();
                    let others = elevators.waiting.values_mut().map(|(waiting, _)| waiting);
                    let others = others.filter(|waiting| waiting.member == member);
                    let gone: Vec<&QueuedRequest> =
                        whose.iter().map(|(waiting, _)| waiting).collect();
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

    /// Dispatches again, if the time that the multiplexer requested has come.
    pub(crate) fn wake_elevators(&mut self) {
        if self.engine.elevators.due().is_some_and(|due| due <= self.clock.now) {
            self.tally.count("dispatcher-woken");
            self.dispatch();
        }
    }

    /// A disk has completed a vector: frees the tag, and dispatches again.
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

    /// A disk executes the parts of a vector, one by one.
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
