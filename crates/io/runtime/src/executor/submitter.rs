//! One member, for as long as a thread has to do with it: the one way in to it, and the one way out.
//!
//! Where it stands: between the loop that drives the machines ([`crate::drive`]) and the back ends
//! ([`super::ring`], [`super::threads`]). It drives nothing: the caller is told which machines have heard something
//! ([`Submitter::into_heard`]).
//!
//! ```text
//!   shard ─MemberIo─▶ Scheduler ─┬─ none: as they come, at once ──────────────────┐
//!                        ▲       └─ deadline: a Flight (merged, with a ticket) ───┼──▶ submit ──▶ ring │ threads │ memory
//!   array ─flush, superblock─────┼────────────────────────────────────────────────┘                    │
//!   machines ◀──answers──────────┴── ticket ◀───────────────────────────────────────── complete ◀──────┘
//! ```
//!
//! Under `none` nothing is sorted and nothing waits, but writes that one turn of a shard asks for side by side, such as those
//! of small sequential writes that a stripe has collected, go as one vector all the same ([`crate::drive`]).
//!
//! Superblocks and flushes go past the scheduler and past the line for room ([`crate::members::ring_admission`]). There is
//! at most one of each under way for a member, what asked for them waits, and they must not wait for a slice or a tag: a superblock is what
//! lets an error be answered, and a flush is asked for when what it covers has been answered already, so it has nothing to be
//! ordered behind. Nor is anything else ordered here: what needs one thing before another (parity after data is known, a
//! forced write before its answer) waits for the first to end, as the engine does.
//!
//! Invariants
//! - Every part is answered once, with its own result: a vector that fails is tried again part by part, by the member's
//!   threads, so that a bad sector fails only the request that asked for it
//!   (`tests/scheduling.rs`: `a_bad_sector_in_a_vector_fails_only_its_own_request`). Not so a forced write: a failed
//!   one is a failed flush, and a second try that succeeds would hide that.
//! - A ticket is given back when all parts have been answered, never before: `out` is what the device has.

use std::cell::RefCell;

use braid_dispatch::{
    Class, Device, Operation as Kind, Place, Request, State, Ticket, Turn, Vector,
};
use braid_engine::Instant;
use braid_engine::cause::{Asked, Cause};
use braid_engine::effect::{IoId, MemberFault, MemberIo, MemberIoDone, MemberOperation};
use braid_engine::request::ShardIndex;
use braid_engine::work::{self, Purpose};
use braid_member::MemberError;
use smallvec::SmallVec;

use super::{fault, ring, threads};
use crate::core::{AbortOnPanic, Core};
use crate::events::{ArrayEvent, Machine, ShardEvent};
use crate::members::handle::MemberHandle;
use crate::members::left::AskedForArray;
use crate::members::operation::{Flight, Item, Operation, Parts};
use crate::members::ring_admission::Route;
use crate::workers::Drivers;

/// Machines that have heard something, each once; on the stack where an array has as many shards as are usual.
pub(crate) type Heard = SmallVec<[Machine; 16]>;

/// See the module.
pub(crate) struct Submitter<'a> {
    core: &'a Core,
    member: &'a MemberHandle,
    /// The shard whose effects this thread carries out, and what has ended for it; it is looked at again anyway.
    home: Option<(ShardIndex, &'a RefCell<Vec<ShardEvent>>)>,
    /// Other machines that have an event because of us, and must be driven.
    heard: RefCell<Heard>,
}

impl<'a> Submitter<'a> {
    pub(crate) fn new(core: &'a Core, member: &'a MemberHandle) -> Self {
        Self { core, member, home: None, heard: RefCell::default() }
    }

    /// The same while the effects of a shard are carried out.
    pub(crate) fn of_shard(
        core: &'a Core,
        member: &'a MemberHandle,
        home: (ShardIndex, &'a RefCell<Vec<ShardEvent>>),
    ) -> Self {
        Self { home: Some(home), ..Self::new(core, member) }
    }

    /// Machines that must be driven now, each once.
    pub(crate) fn into_heard(self) -> Heard {
        self.heard.into_inner()
    }

    /// Has an operation carried out: at once by this thread, on a ring when there is room on one, or by the member's
    /// threads.
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
            // Not by a worker where the answer may take its time.
            Operation::Look if !admission.is_suspect() => return self.perform(operation),
            Operation::Flush | Operation::Metadata { .. } if !admission.is_suspect() => {
                admission.begin_aside();
                self.submit_to(drivers, operation);
            }
            operation => member.leave_to_threads(operation),
        }
        self.begin_kept();
    }

    /// Begins what has waited for room on rings, as far as there is any.
    pub(crate) fn begin_kept(&self) {
        let Some(drivers) = &self.core.workers else { return };
        while let Some((operation, route)) = self.member.admission.next() {
            match route {
                Route::Ring => self.submit_to(drivers, operation),
                Route::Threads | Route::Line => self.member.leave_to_threads(operation),
            }
        }
    }

    /// Looks after the member, from time to time: work for which no thread could be started, what has waited for room, and,
    /// if it `is_open` to something new, whether the device is still there.
    pub(crate) fn look(&self, is_open: bool) {
        let _guard = AbortOnPanic::new();
        self.member.man_if_needed();
        self.begin_kept();
        if is_open && self.member.crew.begin_look() {
            self.submit(Operation::Look);
        }
    }

    /// Gives to a ring what has a place there. What a ring cannot do is for the member's threads.
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

    /// Carries an operation on memory out on this thread, and ends it.
    fn perform_here(&self, operation: Operation) {
        // A look is no request: that it ends says nothing of those.
        let is_request = !matches!(operation, Operation::Look);
        if is_request {
            self.member.admission.begin_here();
        }
        self.perform(operation);
        if is_request {
            self.member.admission.leave();
        }
    }

    /// Carries an operation out on this thread, and ends it.
    pub(crate) fn perform(&self, operation: Operation) {
        let result = threads::perform(self.core, self.member, &operation);
        self.complete(operation, result);
    }

    /// An operation has ended, whichever back end carried it out.
    pub(crate) fn complete(&self, operation: Operation, result: Result<(), MemberError>) {
        let (id, crew) = (self.member.id(), &self.member.crew);
        match operation {
            Operation::Io(flight) => {
                let ticket = self.land(flight, result);
                self.member.scheduler.done(self, ticket);
            }
            Operation::Apart(flight) => self.land_first(flight, result),
            Operation::Flush => {
                self.member.scheduler.flush_ends(self);
                if !self.member.for_array.end(AskedForArray::Flush) {
                    return;
                }
                let cause = |error| fault::cause(self.member, Asked::Flush, (0, 0), error);
                self.tell_array(ArrayEvent::Flushed(id, result.map_err(cause)));
            }
            Operation::Metadata { area, bytes, offset_bytes } => {
                if !self.member.for_array.end(AskedForArray::Metadata(area)) {
                    return;
                }
                let range = (offset_bytes, bytes.len() as u64);
                let asked = fault::asked_of(area);
                let fault = |error| fault::at(self.member, asked, range, error);
                self.tell_array(ArrayEvent::MetadataWritten(id, area, result.map_err(fault)));
            }
            Operation::Look => {
                crew.end_look();
                if result.is_err() {
                    self.tell_array(ArrayEvent::MemberLost(Cause::vanished(id)));
                }
            }
            Operation::Rejoin => {
                let cause = |error| fault::cause(self.member, Asked::Flush, (0, 0), error);
                self.member.rejoining.ends(result.map_err(cause));
            }
        }
    }

    fn answer_part(&self, (shard, io): &Item, result: Result<(), MemberError>) {
        let (_, bytes) = self.member.range(io);
        self.member.traffic.note(io.operation.asked(), bytes, result.is_ok());
        self.answer(*shard, io.id, result.map_err(|error| fault::of_io(self.member, io, error)));
    }

    /// Tells a shard how its request ended.
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
        let mut heard = self.heard.borrow_mut();
        if !heard.contains(&machine) {
            heard.push(machine);
        }
    }

    /// The whole of a flight has ended, and its ticket is to be given back; or it is tried again, part by part.
    fn land(&self, flight: Flight, result: Result<(), MemberError>) -> Option<Ticket> {
        if result.is_err() && flight.parts().len() > 1 && !flight.is_forced() {
            self.member.leave_to_threads(Operation::Apart(flight));
            return None;
        }
        flight.parts().iter().for_each(|part| self.answer_part(part, result));
        self.ticket_of(flight)
    }

    /// Its first part has. The rest goes behind what waits for the member's threads, since a bad sector takes seconds, and a
    /// superblock must not wait for many of them.
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

    /// What is left of one when all of it has been answered.
    fn ticket_of(&self, flight: Flight) -> Option<Ticket> {
        if let Parts::Many(parts) = flight.parts {
            self.member.part_lists.keep(parts);
        }
        flight.ticket
    }

    /// Several that lie side by side, past the scheduler.
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

/// Whether `next` is written right behind `io`, in the same way, so that they may go as one vector.
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

/// What a member operation is to the elevator. What is read for a write waits with the writes; what is read for a client,
/// around a member that is missing or slow, or to see whether a member is well again, with the reads; and what is read for
/// background work, in its class.
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
    let place = Place::Sorted;
    Request { operation, class, place, start: io.sector.0, sectors: io.sectors }
}
