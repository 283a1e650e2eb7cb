//! Begins and ends all operations of a member, for as long as a thread works on that member.
//!
//! Place in the flow: between the loop that drives the machines ([`crate::drive`]) and the back
//! ends ([`super::ring`], [`super::threads`]). The submitter drives nothing: the caller learns
//! which machines have received events ([`Submitter::into_notified`]).
//!
//! ```text
//!   shard ─MemberIo─▶ Scheduler ─┬─ none: as they come, at once ───────────┐
//!                        ▲       └─ deadline: a Flight (merged, ticket) ───┼─▶ submit ──▶ back end
//!   array ─flush, superblock─────┼─────────────────────────────────────────┘                 │
//!   machines ◀──answers──────────┴── ticket ◀────────────────────────────────── complete ◀───┘
//! ```
//!
//! A back end is a ring, threads of the member or memory.
//!
//! Under `none` nothing is sorted and nothing waits. But adjacent writes of one shard turn, such as
//! small sequential writes that a stripe has collected, still go as one vector ([`crate::drive`]).
//!
//! Superblocks and flushes bypass the scheduler and the line for room
//! ([`crate::members::ring_admission`]). A member has at most one of each in flight, and their
//! requesters wait. They must not wait for a slice or a tag. An error is answered only after its
//! superblock. A flush is requested when the writes it covers have been answered, so it need not
//! wait for any write. No other order is kept here: if one operation must precede another (data
//! before parity, a forced write before its answer), the engine waits for the first to end.
//!
//! Invariants
//! - Every part is answered once, with its own result. The member's threads retry a failed vector
//!   part by part, so that a bad sector fails only the request that covers it
//!   (`tests/scheduling.rs`: `a_bad_sector_in_a_vector_fails_only_its_own_request`). A failed
//!   forced write is not retried: it is a failed flush, which a retry would hide.
//! - A ticket is returned when all parts have been answered: `out` counts the dispatches at the
//!   device.

use std::cell::RefCell;

use braid_dispatch::{
    Class, Device, Operation as Kind, QueuePosition, Request, State, Ticket, Turn, Vector,
};
use braid_engine::Instant;
use braid_engine::cause::{Cause, RequestKind};
use braid_engine::effect::{IoId, MemberFault, MemberIo, MemberIoDone, MemberOperation};
use braid_engine::request::ShardIndex;
use braid_engine::work::{self, Purpose};
use braid_member::MemberError;
use smallvec::SmallVec;

use super::{fault, ring, threads};
use crate::core::{AbortOnPanic, Core};
use crate::events::{ArrayEvent, Machine, ShardEvent};
use crate::members::array_operations::ArrayOperation;
use crate::members::handle::MemberHandle;
use crate::members::operation::{Flight, Item, Operation, Parts};
use crate::members::ring_admission::Route;
use crate::workers::Drivers;

/// Machines that received events, each once; on the stack with a usual number of shards.
pub(crate) type NotifiedMachines = SmallVec<[Machine; 16]>;

pub(crate) struct Submitter<'a> {
    core: &'a Core,
    member: &'a MemberHandle,
    /// The shard whose effects this thread carries out, and that shard's operations that ended.
    home: Option<(ShardIndex, &'a RefCell<Vec<ShardEvent>>)>,
    /// Other machines that received an event through this submitter, and must be driven.
    notified: RefCell<NotifiedMachines>,
}

impl<'a> Submitter<'a> {
    pub(crate) fn new(core: &'a Core, member: &'a MemberHandle) -> Self {
        Self { core, member, home: None, notified: RefCell::default() }
    }

    /// A submitter for the time while the effects of a shard are carried out.
    pub(crate) fn of_shard(
        core: &'a Core,
        member: &'a MemberHandle,
        home: (ShardIndex, &'a RefCell<Vec<ShardEvent>>),
    ) -> Self {
        Self { home: Some(home), ..Self::new(core, member) }
    }

    /// Machines that must be driven now, each once.
    pub(crate) fn into_notified(self) -> NotifiedMachines {
        self.notified.into_inner()
    }

    /// Carries out an operation: here at once, on a ring with room, or by the member's threads.
    pub(crate) fn submit(&self, operation: Operation) {
        if matches!(operation, Operation::Flush) {
            self.member.scheduler.flush_begins(self);
        }
        let (member, admission) = (self.member, &self.member.admission);
        if !matches!(operation, Operation::Look) {
            self.core.note_asked();
        }
        if admission.is_here() {
            return self.perform_here(operation);
        }
        let Some(drivers) = &self.core.workers else { return member.leave_to_threads(operation) };
        match operation {
            Operation::Io(_) => match admission.route() {
                Route::Ring => self.submit_to(drivers, operation),
                Route::Threads => member.leave_to_threads(operation),
                Route::Line => admission.keep(operation),
            },
            // A suspected member may be slow to answer, and a worker must not wait for that.
            Operation::Look if !admission.is_suspect() => return self.perform(operation),
            Operation::Flush | Operation::Metadata { .. } if !admission.is_suspect() => {
                admission.begin_aside();
                self.submit_to(drivers, operation);
            }
            operation => member.leave_to_threads(operation),
        }
        self.begin_kept();
    }

    /// Begins operations that waited for room on rings, as far as there is room.
    pub(crate) fn begin_kept(&self) {
        let Some(drivers) = &self.core.workers else { return };
        while let Some((operation, route)) = self.member.admission.next() {
            match route {
                Route::Ring => self.submit_to(drivers, operation),
                Route::Threads | Route::Line => self.member.leave_to_threads(operation),
            }
        }
    }

    /// Periodic care: starts threads for waiting work, begins operations that waited for room, and,
    /// if the member `is_open` to new operations, checks whether its device still exists.
    pub(crate) fn look(&self, is_open: bool) {
        let _guard = AbortOnPanic::new();
        self.member.man_if_needed();
        self.begin_kept();
        if is_open && self.member.threads.begin_look() {
            self.submit(Operation::Look);
        }
    }

    /// Gives an operation that has a place on rings to a ring, or, if no ring can do it, to the
    /// member's threads.
    fn submit_to(&self, drivers: &Drivers, operation: Operation) {
        if let Err(operation) = ring::submit(self.core, drivers, self.member, operation) {
            if operation.takes_room() {
                self.member.admission.forgo();
            } else {
                self.member.admission.forgo_aside();
            }
            self.member.leave_to_threads(operation);
        }
    }

    /// Carries out an operation on memory on this thread, and ends it.
    fn perform_here(&self, operation: Operation) {
        // `Look` is no client's request: its end says nothing about the member's other operations.
        let is_request = !matches!(operation, Operation::Look);
        if is_request {
            self.member.admission.begin_here();
        }
        self.perform(operation);
        if is_request {
            self.member.admission.leave();
        }
    }

    /// Carries out an operation on this thread, and ends it.
    pub(crate) fn perform(&self, operation: Operation) {
        let result = threads::perform(self.core, self.member, &operation);
        self.complete(operation, result);
    }

    pub(crate) fn complete(&self, operation: Operation, result: Result<(), MemberError>) {
        let (id, own_threads) = (self.member.id(), &self.member.threads);
        match operation {
            Operation::Io(flight) => {
                let ticket = self.land(flight, result);
                self.member.scheduler.done(self, ticket);
            }
            Operation::Apart(flight) => self.land_first(flight, result),
            Operation::Flush => {
                self.member.scheduler.flush_ends(self);
                if !self.member.array_operations.end(ArrayOperation::Flush) {
                    return;
                }
                let cause = |error| fault::cause(self.member, RequestKind::Flush, (0, 0), error);
                self.tell_array(ArrayEvent::Flushed(id, result.map_err(cause)));
            }
            Operation::Metadata { area, bytes, offset_bytes } => {
                if !self.member.array_operations.end(ArrayOperation::Metadata(area)) {
                    return;
                }
                let range = (offset_bytes, bytes.len() as u64);
                let asked = fault::asked_of(area);
                let fault = |error| fault::at(self.member, asked, range, error);
                self.tell_array(ArrayEvent::MetadataWritten(id, area, result.map_err(fault)));
            }
            Operation::Look => {
                own_threads.end_look();
                if result.is_err() {
                    self.tell_array(ArrayEvent::MemberLost(Cause::vanished(id)));
                }
            }
            Operation::Rejoin => {
                let cause = |error| fault::cause(self.member, RequestKind::Flush, (0, 0), error);
                self.member.rejoining.ends(result.map_err(cause));
            }
        }
    }

    fn answer_part(&self, (shard, io): &Item, result: Result<(), MemberError>) {
        let (_, bytes) = self.member.range(io);
        self.member.traffic.note(io.operation.asked(), bytes, result.is_ok());
        self.answer(*shard, io.id, result.map_err(|error| fault::of_io(self.member, io, error)));
    }

    pub(crate) fn answer(&self, shard: ShardIndex, id: IoId, result: Result<(), MemberFault>) {
        let done = ShardEvent::MemberIo(MemberIoDone { id, result });
        if let Some((_, ended)) = self.home.filter(|(home, _)| *home == shard) {
            return ended.borrow_mut().push(done);
        }
        self.core.shard(shard).combiner.push(done);
        self.note(Machine::Shard(shard));
    }

    fn tell_array(&self, event: ArrayEvent) {
        self.core.array.push(event);
        self.note(Machine::Array);
    }

    fn note(&self, machine: Machine) {
        let mut notified = self.notified.borrow_mut();
        if !notified.contains(&machine) {
            notified.push(machine);
        }
    }

    /// Ends a flight as a whole: returns the flight's ticket, or begins to retry the flight part by
    /// part.
    fn land(&self, flight: Flight, result: Result<(), MemberError>) -> Option<Ticket> {
        if result.is_err() && flight.parts().len() > 1 && !flight.is_forced() {
            self.member.leave_to_threads(Operation::Apart(flight));
            return None;
        }
        flight.parts().iter().for_each(|part| self.answer_part(part, result));
        self.ticket_of(flight)
    }

    /// The first part of a retried flight has ended. The remaining parts queue after other work of
    /// the member's threads: a bad sector takes seconds, and superblocks must not wait.
    fn land_first(&self, mut flight: Flight, result: Result<(), MemberError>) {
        let Parts::Many(parts) = &mut flight.parts else { panic!("one part does not fail apart") };
        let first = parts.remove(0);
        let is_last = parts.is_empty();
        self.answer_part(&first, result);
        if is_last {
            let ticket = self.ticket_of(flight);
            return self.member.scheduler.done(self, ticket);
        }
        self.member.leave_to_threads(Operation::Apart(flight));
    }

    /// The ticket of a flight whose parts have all been answered.
    fn ticket_of(&self, flight: Flight) -> Option<Ticket> {
        if let Parts::Many(parts) = flight.parts {
            self.member.part_lists.keep(parts);
        }
        flight.ticket
    }

    /// Begins adjacent operations as one vector, bypassing the scheduler.
    pub(crate) fn begin_together(&self, items: impl Iterator<Item = Item>) {
        let ended = self.begin_flight(None, items);
        debug_assert!(ended.is_none(), "there was no ticket to give back");
    }

    fn begin_flight(
        &self,
        ticket: Option<Ticket>,
        items: impl Iterator<Item = Item>,
    ) -> Option<Ticket> {
        let flight = Flight::new(ticket, items, &self.member.part_lists);
        let admission = &self.member.admission;
        if !admission.is_here() {
            self.submit(Operation::Io(flight));
            return None;
        }
        self.core.note_asked();
        admission.begin_here();
        let result = threads::fly(self.core, self.member, &flight);
        admission.leave();
        self.land(flight, result)
    }
}

impl Device<Item> for Submitter<'_> {
    fn now_ns(&self) -> u64 {
        self.core.clock.now().0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = Item>) -> Option<Ticket> {
        self.begin_flight(vector.ticket, parts)
    }

    fn turn(&self, now_ns: u64, state: State) -> Turn {
        self.core.turns.turn(now_ns, &self.member.queued, state)
    }

    fn leave(&self, state: State, until_ns: Option<u64>) {
        self.core.turns.tell(&self.member.queued, state);
        if let Some(until_ns) = until_ns {
            self.core.arm(self.core.alarm.set_held(self.member.id(), Instant(until_ns)));
        }
    }

    fn served(&self, is_read: bool, busy_ns: u64) {
        self.core.turns.served(is_read, busy_ns);
    }
}

/// Whether `next` writes to the sectors right after `io`, equally durably, so that both form one
/// vector.
pub(crate) fn follows(io: &MemberIo, next: &MemberIo) -> bool {
    let as_write = |io: &MemberIo| match io.operation {
        MemberOperation::Write { durable, .. } => Some(durable),
        MemberOperation::Read { .. } | MemberOperation::Zero { .. } => None,
    };
    io.member == next.member
        && next.sector.0 == io.sector.0 + u64::from(io.sectors)
        && as_write(io).is_some()
        && as_write(io) == as_write(next)
}

/// The elevator's class of a member operation. Reads for a write wait with the writes. Reads for a
/// client, for reconstruction around a missing or slow member, and probes of a member wait with the
/// reads. Reads for background work have their own class.
pub(crate) fn request(io: &MemberIo, purpose: Purpose) -> Request {
    let operation = match io.operation {
        MemberOperation::Read { .. } if purpose == Purpose::Write => Kind::PreRead,
        MemberOperation::Read { .. } => Kind::Read,
        MemberOperation::Write { durable, .. } => Kind::Write { durable },
        MemberOperation::Zero { .. } => Kind::Other,
    };
    let class = match purpose {
        Purpose::Background(work::Class::Idle) => Class::Idle,
        Purpose::Background(work::Class::BestEffort) | Purpose::Client | Purpose::Write => {
            Class::BestEffort
        }
    };
    let position = QueuePosition::Sorted;
    Request { operation, class, position, start: io.sector.0, sectors: io.sectors }
}
