//! The back end on io_uring: an operation becomes operations of a worker's own ring, one after the other.
//!
//! What no ring can do it gives back, and the member's threads do it ([`super::threads`]): members without a descriptor,
//! vectors that are tried again part by part, ranges of zeroes that are longer than one operation where the kernel makes
//! none, durable writes where the flag for them is refused, whatever is wrong with a request (they say what), and everything
//! once the workers have been stopped. How much of a member comes here, and whether anything does, is [`super::berth`]'s.
//!
//! ```text
//!   submit ──▶ first ──▶ ring ──▶ completion ──▶ after ─┬─▶ the next one ──▶ ring
//!                                                       ├─▶ an answer ────▶ Lane::complete
//!                                                       └─▶ for threads
//! ```
//!
//! A plain transfer is named by the token of its operation, and nothing is kept of it here; of all else the operation lies
//! in the member's places until it has ended.

use std::io;

use braid_engine::array::MemberId;
use braid_engine::cause::Asked;
use braid_engine::effect::{IoId, MemberIo, MemberOperation};
use braid_engine::request::ShardIndex;
use braid_member::{Deed, MemberError, Raw};
use braid_ring::{
    Completion, Descriptor, Handler, Lease, Memory, Operation as RingOperation, Segment, Segments,
    Worker,
};

use super::lane::Lane;
use super::member::MemberHandle;
use super::operation::{Item, Operation, Parts, deed, span_of};
use super::zeroing;
use crate::core::Core;
use crate::sync::{Arc, Weak};
use crate::workers::Drivers;

/// Where what is asked of one member ends.
pub(super) struct Port {
    core: Weak<Core>,
    member: MemberId,
    /// Whose plain transfers: the token is the [`IoId`]. For the rest it is that of a place.
    shard: Option<ShardIndex>,
}

/// All ports of a member.
pub(crate) struct Ports {
    of_shards: Vec<Arc<Port>>,
    rest: Arc<Port>,
}

impl Ports {
    pub(super) fn new(core: &Arc<Core>, member: MemberId) -> Self {
        let port = |shard| Arc::new(Port { core: Arc::downgrade(core), member, shard });
        let shards = 0..u16::try_from(core.shards.len()).expect("made from a u16");
        let of_shards = shards.map(|shard| port(Some(ShardIndex(shard)))).collect();
        Self { of_shards, rest: port(None) }
    }
}

/// What comes after an operation of the ring.
pub(super) enum Step {
    Answer(Result<(), MemberError>),
    Submit(RingOperation),
    /// It is for the member's threads.
    Leave,
}

/// Gives an operation to a ring; gives back what is for the member's threads.
pub(super) fn submit(
    core: &Core,
    drivers: &Drivers,
    member: &MemberHandle,
    operation: Operation,
) -> Result<(), Operation> {
    let first = member.raw().and_then(|raw| first(core, member, raw, &operation));
    let Some(first) = first else { return Err(operation) };
    let (workers, ports) = (&drivers.workers, member.ports.get().expect("it is registered"));
    if let Some((shard, io)) = plain(&operation) {
        let port = Arc::clone(&ports.of_shards[usize::from(shard.0)]);
        let submitted = workers.submit(usize::from(shard.0), first, port, io.id.0);
        return submitted.map_err(|_| operation);
    }
    let on = match &operation {
        Operation::Io(flight) | Operation::Apart(flight) => usize::from(flight.first().0.0),
        Operation::Flush | Operation::Metadata { .. } | Operation::Look => {
            usize::from(member.id().0)
        }
    };
    let (port, token) = (Arc::clone(&ports.rest), member.note_out(operation));
    let submitted = workers.submit(on, first, port, token);
    submitted.map_err(|_| member.take_back(token))
}

/// A transfer of which nothing has to be known when it has ended but its name.
fn plain(operation: &Operation) -> Option<&Item> {
    let Operation::Io(flight) = operation else { return None };
    match (&flight.ticket, &flight.parts) {
        (None, Parts::One(item)) if !flight.is_forced() && !flight.is_zeroing() => Some(item),
        _ => None,
    }
}

/// What a ring is asked first; none where it is for threads.
fn first(
    core: &Core,
    member: &MemberHandle,
    raw: &Raw,
    operation: &Operation,
) -> Option<RingOperation> {
    // Where durable writes were refused, a write is followed by a flush, and threads do both.
    if operation.deed() == (Deed::Write { durable: true }) && !raw.takes_durable_flag() {
        return None;
    }
    match operation {
        Operation::Io(flight) if flight.is_zeroing() => {
            match zeroing::begin(raw, member, &flight.first().1) {
                Step::Submit(operation) => Some(operation),
                Step::Answer(_) | Step::Leave => None,
            }
        }
        Operation::Io(flight) => transfer(core, member, raw, flight.parts()),
        Operation::Flush if raw.is_writable() => {
            raw.check(Deed::Flush, 0, 0).ok()?;
            Some(RingOperation::Sync { file: raw.file(0, 0, 0).ok()? })
        }
        Operation::Metadata { bytes, offset_bytes: offset, .. } => {
            let (bytes, offset) = (bytes.clone(), *offset);
            let (address, length) = (bytes.as_ptr().addr(), bytes.len());
            raw.check(operation.deed(), offset, length as u64).ok()?;
            let file = raw.file(address, length, offset).ok()?;
            let memory = Segments::from_iter([Segment::whole(Memory::Bytes(bytes))]);
            Some(RingOperation::Write { file, offset, memory, durable: true })
        }
        Operation::Flush | Operation::Apart(_) | Operation::Look => None,
    }
}

/// A transfer of adjacent parts: a segment for each.
fn transfer(
    core: &Core,
    member: &MemberHandle,
    raw: &Raw,
    parts: &[Item],
) -> Option<RingOperation> {
    let first: &MemberIo = &parts[0].1;
    let (deed, (offset, _)) = (deed(first), member.range(first));
    let mut memory = Segments::new();
    // Every bit that is set anywhere: aligned is what all of them are.
    let (mut addresses, mut lengths, mut length_bytes) = (0, 0, 0);
    for (shard, io) in parts {
        let span = span_of(io, member.range(io).1);
        // None for a read that was forsaken, and is over: threads end it.
        let lease: Lease = core.shard(*shard).memory.lease(span, deed == Deed::Read)?;
        addresses |= lease.address();
        lengths |= span.length_bytes;
        length_bytes += span.length_bytes as u64;
        memory.push(lease.into());
    }
    raw.check(deed, offset, length_bytes).ok()?;
    let file = raw.file(addresses, lengths, offset).ok()?;
    Some(match first.operation {
        MemberOperation::Write { durable, .. } => {
            RingOperation::Write { file, offset, memory, durable }
        }
        _ => RingOperation::Read { file, offset, memory },
    })
}

/// What comes after an operation of the ring that `operation` was.
fn after(
    raw: &Raw,
    member: &MemberHandle,
    operation: &Operation,
    (done, result): (&RingOperation, io::Result<usize>),
    batch: u64,
) -> Step {
    let deed = operation.deed();
    match (operation, &result) {
        (Operation::Io(flight), _) if flight.is_zeroing() => {
            zeroing::after(raw, member, &flight.first().1, (done, result))
        }
        (_, Err(error))
            if deed == (Deed::Write { durable: true }) && raw.is_durable_flag_refused(error) =>
        {
            Step::Leave
        }
        _ => Step::Answer(ended(raw, deed, result, batch)),
    }
}

/// How many bytes a transfer moves.
fn length_of(memory: &Segments) -> u64 {
    memory.iter().map(Segment::length_bytes).sum::<usize>() as u64
}

/// How something has ended, as the member sees it.
fn ended(raw: &Raw, deed: Deed, result: io::Result<usize>, batch: u64) -> Result<(), MemberError> {
    result.map_err(|error| raw.fault(deed, error))?;
    raw.confirm(deed, batch)
}

impl Handler for Port {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        let Some(core) = self.core.upgrade() else { return };
        let members = core.members.load();
        let member = members.get(self.member).expect("what is closed has nothing out");
        let raw = member.raw().expect("only members with a descriptor are on rings");
        let lane = Lane::new(&core, member);
        let Completion { token, result, operation: done, .. } = completion;
        if let Some(shard) = self.shard {
            let (deed, asked, range) = match &done {
                RingOperation::Read { offset, memory, .. } => {
                    (Deed::Read, Asked::Read, (*offset, length_of(memory)))
                }
                RingOperation::Write { offset, memory, .. } => {
                    (Deed::Write { durable: false }, Asked::Write, (*offset, length_of(memory)))
                }
                _ => unreachable!("a plain transfer reads or writes"),
            };
            // What it leased is given back before anyone hears of the end.
            drop(done);
            let result = ended(raw, deed, result, worker.batch());
            member.berth.leave();
            let result = result.map_err(|error| member.fault_at(asked, range, error));
            lane.answer(shard, IoId(token), result);
        } else {
            let operation = member.take_back(token);
            let step = after(raw, member, &operation, (&done, result), worker.batch());
            drop(done);
            if let Step::Submit(next) = step {
                return worker.submit(next, self, member.note_out(operation));
            }
            match operation.takes_room() {
                true => member.berth.leave(),
                false => member.berth.end_aside(),
            }
            match step {
                Step::Answer(result) => lane.complete(operation, result),
                _ => member.crew.push(member, operation),
            }
        }
        lane.begin_kept();
        core.drive_heard(lane.into_heard(), Some(worker));
    }
}

/// The open files of a member. One that has none left to open does without numbers.
pub(super) fn files(member: &MemberHandle) -> Vec<Descriptor> {
    member.raw().and_then(|raw| raw.files().ok()).unwrap_or_default()
}
