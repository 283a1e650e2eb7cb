//! The back end on io_uring: an operation becomes operations of a worker's own ring, one after the other.
//!
//! What no ring can do it gives back, and the member's threads do it ([`super::threads`]): members without a descriptor,
//! vectors that are tried again part by part, ranges of zeroes that are longer than one operation where the kernel makes
//! none, durable writes where the flag for them is refused, what is wrong with a request (they say what), and everything
//! once the workers have been stopped. How much of a member comes here, and whether anything does, is said in
//! [`crate::members::ring_admission`]; where its ends come is [`crate::completions`].
//!
//! ```text
//!   submit ──▶ first ──▶ ring ──▶ completion ──▶ after ─┬─▶ the next one ──▶ ring
//!                                                       ├─▶ an answer ────▶ Submitter::complete
//!                                                       └─▶ for threads
//! ```
//!
//! A plain transfer is named by the token of its operation, and nothing is kept of it here; of all else the operation lies
//! in the member's places until it has ended.

use std::io;

use braid_engine::array::MetadataArea;
use braid_engine::effect::{MemberIo, MemberOperation};
use braid_member::{Deed, MemberError, Raw};
use braid_ring::{Descriptor, Lease, Memory, Operation as RingOperation, Segment, Segments};

use super::zeroing::{self, Step};
use crate::core::Core;
use crate::members::handle::MemberHandle;
use crate::members::operation::{Item, Operation, Parts, deed, span_of};
use crate::sync::Arc;
use crate::workers::Drivers;

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
        Operation::Flush | Operation::Metadata { .. } | Operation::Look | Operation::Rejoin => {
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
        Operation::Metadata {
            area:
                MetadataArea::Superblock
                | MetadataArea::Bitmap
                | MetadataArea::ParityLog
                | MetadataArea::Journal,
            bytes,
            offset_bytes: offset,
        } => {
            let (bytes, offset) = (bytes.clone(), *offset);
            let (address, length) = (bytes.as_ptr().addr(), bytes.len());
            raw.check(operation.deed(), offset, length as u64).ok()?;
            let file = raw.file(address, length, offset).ok()?;
            let memory = Segments::from_iter([Segment::whole(Memory::Bytes(bytes))]);
            Some(RingOperation::Write { file, offset, memory, durable: true })
        }
        // A bad-block log is flushed first: that takes a thread, and there are few.
        Operation::Metadata { area: MetadataArea::BadBlocks, .. } => None,
        Operation::Flush | Operation::Apart(_) | Operation::Look | Operation::Rejoin => None,
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
        // None for a read that was abandoned, and is over: threads end it.
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
pub(crate) fn after(
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
pub(crate) fn length_of(memory: &Segments) -> u64 {
    memory.iter().map(Segment::length_bytes).sum::<usize>() as u64
}

/// How something has ended, as the member sees it.
pub(crate) fn ended(
    raw: &Raw,
    deed: Deed,
    result: io::Result<usize>,
    batch: u64,
) -> Result<(), MemberError> {
    result.map_err(|error| raw.fault(deed, error))?;
    raw.confirm(deed, batch)
}

/// The open files of a member. One that has none left to open does without numbers.
pub(crate) fn files(member: &MemberHandle) -> Vec<Descriptor> {
    member.raw().and_then(|raw| raw.files().ok()).unwrap_or_default()
}
