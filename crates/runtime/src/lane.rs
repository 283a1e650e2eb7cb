//! One member as its scheduler sees it: what is dispatched goes to a ring, to threads, or into memory.
//!
//! Where it stands: between the loop that drives the machines ([`crate::core`]) and those who carry out
//! ([`crate::ring`], [`crate::member_threads`]).
//!
//! ```text
//!   shard ─MemberIo─▶ Scheduler ─┬─ none: as they come, at once ───────────────▶ ring │ threads │ memory
//!                        ▲       └─ deadline: a Flight (merged, with a ticket) ─▶  "        "        "
//!                        └──────────────── ticket ◀───────────────────────────────────┘
//! ```
//!
//! Under `none` nothing is sorted and nothing waits, but writes that one turn of a shard asks for side by side, such as those
//! of small sequential writes that a stripe has collected, go as one vector all the same ([`crate::core`]).
//!
//! Superblocks and flushes do not come here; they go past. There is at most one of each under way for a member, whoever
//! asked for them waits, and they must not wait for a slice or a tag: a superblock is what lets an error be answered, and
//! a flush is asked for when what it covers has been answered already, so it has nothing to be ordered behind. Nor is
//! anything else ordered here: who needs one thing before another (parity after data is known, a forced write before its
//! answer) waits for the first to end, as the engine does.
//!
//! Invariants
//! - Every part is answered once, with its own result: a vector that fails is tried again part by part, by the member's
//!   threads, so that a bad sector fails only the request that asked for it
//!   (`tests/scheduling.rs`: `a_bad_sector_in_a_vector_fails_only_its_own_request`). Not so a forced write: a failed
//!   one is a failed flush, and a second try that succeeds would hide that.
//! - A ticket is given back when all parts have been answered, never before: `out` is what the device has.

use std::cell::RefCell;

use braid_dispatch::{
    Allowed, Class, Device, Operation, Place, Request, State, Ticket, Turn, Vector,
};
use braid_engine::Instant;
use braid_engine::effect::{MemberFault, MemberIo, MemberIoDone, MemberOperation};
use braid_engine::request::ShardIndex;
use smallvec::SmallVec;

use crate::berth::Way;
use crate::core::{Core, ShardEvent};
use crate::member_threads::{self, MemberQueue, Work};
use crate::ring::Ring;
use crate::sync::Mutex;

/// What a shard asked for.
pub(crate) type Item = (ShardIndex, MemberIo);

/// Adjacent parts of one kind, out together.
pub(crate) struct Flight {
    /// None for one that did not wait in an elevator.
    pub(crate) ticket: Option<Ticket>,
    /// In the order of sectors; at least one.
    pub(crate) parts: Vec<Item>,
}

impl Flight {
    /// One part by itself, which did not wait in an elevator.
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(crate) fn alone(member: &MemberQueue, item: Item) -> Self {
        let mut parts = member.part_lists.take();
        parts.push(item);
        Self { ticket: None, parts }
    }
}

/// Lists for flights' parts, kept for later flights.
#[derive(Default)]
pub(crate) struct PartLists(Mutex<Vec<Vec<Item>>>);

/// As many are kept as flights are out at a member at once, mostly.
const PART_LISTS_MAX: usize = 64;

impl PartLists {
    /// An empty one.
    fn take(&self) -> Vec<Item> {
        self.0.lock().expect("keeping does not panic").pop().unwrap_or_default()
    }

    fn keep(&self, mut parts: Vec<Item>) {
        parts.clear();
        let mut lists = self.0.lock().expect("keeping does not panic");
        if lists.len() < PART_LISTS_MAX {
            lists.push(parts);
        }
    }
}

/// Shards, each once; on the stack where an array has as many as are usual.
pub(crate) type Touched = SmallVec<[ShardIndex; 16]>;

/// A member, for as long as a thread has to do with it.
pub(crate) struct Lane<'a> {
    core: &'a Core,
    member: &'a MemberQueue,
    /// The shard whose effects this thread carries out, and what has ended for it; it is looked at again anyway.
    home: Option<(ShardIndex, &'a RefCell<Vec<ShardEvent>>)>,
    /// Other shards that have an event because of us, and must be driven.
    touched: RefCell<Touched>,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(core: &'a Core, member: &'a MemberQueue) -> Self {
        Self { core, member, home: None, touched: RefCell::default() }
    }

    /// The same while the effects of a shard are carried out.
    pub(crate) fn of_shard(
        core: &'a Core,
        member: &'a MemberQueue,
        home: (ShardIndex, &'a RefCell<Vec<ShardEvent>>),
    ) -> Self {
        Self { home: Some(home), ..Self::new(core, member) }
    }

    /// Shards that must be driven now, each once.
    pub(crate) fn into_touched(self) -> Touched {
        self.touched.into_inner()
    }

    /// Tells a part's shard how it ended.
    pub(crate) fn answer(&self, (shard, io): Item, result: Result<(), MemberFault>) {
        let done = ShardEvent::MemberIo(MemberIoDone { id: io.id, result });
        if let Some((_, ended)) = self.home.filter(|(home, _)| *home == shard) {
            return ended.borrow_mut().push(done);
        }
        self.core.shard(shard).combiner.push(done);
        let mut touched = self.touched.borrow_mut();
        if !touched.contains(&shard) {
            touched.push(shard);
        }
    }

    /// The whole of a flight has ended.
    pub(crate) fn land(&self, flight: Flight, result: Result<(), MemberFault>) {
        let Flight { ticket, mut parts } = flight;
        parts.drain(..).for_each(|part| self.answer(part, result));
        self.member.part_lists.keep(parts);
        self.member.scheduler.done(self, ticket);
    }

    /// Carries a flight out on this thread, and ends it unless it must be tried again part by part.
    pub(crate) fn perform(&self, flight: Flight) {
        if flight.parts.len() == 1 {
            return self.perform_apart(flight);
        }
        let whole = self.member.perform_vector(self.core, &flight.parts);
        if whole.is_ok() || is_forced(&flight.parts[0].1) {
            return self.land(flight, whole.map_err(member_threads::fault));
        }
        self.perform_apart(flight);
    }

    /// Carries one part of a flight out by itself; the rest goes behind what waits for the member's threads, since a
    /// bad sector takes seconds, and a superblock must not wait for many of them.
    pub(crate) fn perform_apart(&self, flight: Flight) {
        let Flight { ticket, mut parts } = flight;
        self.perform_alone(parts.remove(0));
        if !parts.is_empty() {
            return self.member.push(Work::Apart(Flight { ticket, parts }));
        }
        self.member.part_lists.keep(parts);
        self.member.scheduler.done(self, ticket);
    }

    fn perform_alone(&self, (shard, io): Item) {
        let result = self.member.perform(self.core, shard, &io);
        self.answer((shard, io), result.map_err(member_threads::fault));
    }

    /// One that is nobody's flight: on a ring, at once in memory, or by the member's threads.
    fn begin_straight(&self, (shard, io): Item) {
        if self.member.is_memory() {
            return self.perform_alone((shard, io));
        }
        self.begin_work(Work::Io(shard, io));
    }

    /// Has it carried out: on a ring, when there is room on one, or by the member's threads.
    fn begin_work(&self, work: Work) {
        let Some(ring) = &self.core.ring else { return self.member.push(work) };
        let berth = &self.member.berth;
        match berth.way() {
            Way::Ring => self.begin_on(ring, work),
            Way::Threads => self.member.push(work),
            Way::Line => berth.keep(work),
        }
        self.begin_kept();
    }

    /// Begins what has waited for room on rings, as far as there is any.
    pub(crate) fn begin_kept(&self) {
        let Some(ring) = &self.core.ring else { return };
        while let Some((work, way)) = self.member.berth.next() {
            match way {
                Way::Ring => self.begin_on(ring, work),
                Way::Threads | Way::Line => self.member.push(work),
            }
        }
    }

    /// Gives to a ring what has a place there. What a ring cannot do is for the member's threads.
    fn begin_on(&self, ring: &Ring, work: Work) {
        let (core, member) = (self.core, self.member);
        let left = match work {
            Work::Io(shard, io) => match ring.submit(core, member, (shard, io)) {
                Ok(left) => left.map(|io| Work::Io(shard, io)),
                Err(error) => {
                    member.berth.forgo();
                    return self.answer((shard, io), Err(member_threads::fault(error)));
                }
            },
            Work::Flight(flight) => {
                ring.submit_flight(core, member, flight).err().map(Work::Flight)
            }
            other => Some(other),
        };
        if let Some(work) = left {
            member.berth.forgo();
            member.push(work);
        }
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
        if self.member.is_memory() {
            items.for_each(|part| self.perform_alone(part));
            return ticket;
        }
        let mut parts = self.member.part_lists.take();
        parts.extend(items);
        let flight = Flight { ticket, parts };
        self.begin_work(Work::Flight(flight));
        None
    }
}

impl Device<Item> for Lane<'_> {
    fn now_ns(&self) -> u64 {
        self.core.clock.now().0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = Item>) -> Option<Ticket> {
        match vector.ticket {
            Some(ticket) => self.begin_flight(Some(ticket), parts),
            None => {
                parts.for_each(|part| self.begin_straight(part));
                None
            }
        }
    }

    fn turn(&self, now_ns: u64, state: State) -> Turn {
        self.core.turns.turn(now_ns, self.member.id(), state)
    }

    fn leave(&self, waits: Allowed, until_ns: Option<u64>) {
        self.core.turns.tell(self.member.id(), waits);
        if let Some(until_ns) = until_ns {
            self.core.arm(self.core.alarm.set_held(self.member.id(), Instant(until_ns)));
        }
    }

    fn served(&self, is_read: bool, busy_ns: u64) {
        self.core.turns.served(is_read, busy_ns);
    }
}

/// Whether it is to be durable when it ends.
pub(crate) fn is_forced(io: &MemberIo) -> bool {
    matches!(
        io.operation,
        MemberOperation::Write { durable: true, .. } | MemberOperation::Zero { durable: true, .. }
    )
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
/// around a member that is missing or slow, or to see whether a member is well again, with the reads.
pub(crate) fn request(io: &MemberIo, is_for_write: bool) -> Request {
    let operation = match io.operation {
        MemberOperation::Read { .. } if is_for_write => Operation::PreRead,
        MemberOperation::Read { .. } => Operation::Read,
        MemberOperation::Write { durable, .. } => Operation::Write { durable },
        MemberOperation::Zero { .. } => Operation::Other,
    };
    let (class, place) = (Class::BestEffort, Place::Sorted);
    Request { operation, class, place, start: io.sector.0, sectors: io.sectors }
}
