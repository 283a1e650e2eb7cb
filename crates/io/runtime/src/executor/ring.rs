//! The back end on io_uring: an operation becomes successive operations of a worker's own ring.
//!
//! This back end returns operations that no ring can do, and the member's threads do them
//! ([`super::threads`]):
//! - operations of members without a descriptor;
//! - vectors that are retried part by part;
//! - ranges of zeroes longer than one operation, if the kernel cannot zero them;
//! - durable writes, if the kernel refuses the flag for them;
//! - invalid requests, which the threads answer with an error;
//! - everything, once the workers have stopped.
//!
//! [`crate::members::ring_admission`] limits how many of a member's operations come here. The ends
//! of operations go to [`crate::completions`].
//! ```text
//!   submit ──▶ first ──▶ ring ──▶ completion ──▶ after ─┬─▶ the next one ──▶ ring
//!                                                       ├─▶ an answer ────▶ Submitter::complete
//!                                                       └─▶ for threads
//! ```
//! The token of a plain transfer names its operation, and nothing is kept here. Every other
//! operation stays in the member's places until it has ended.

use std::io;

use braid_engine::array::MetadataArea;
use braid_engine::effect::{MemberIo, MemberOperation};
use braid_member::{MemberError, Raw, RawOperation};
use braid_ring::{Descriptor, Lease, Memory, Operation as RingOperation, Segment, Segments};

use super::zeroing::{self, Step};
use crate::core::Core;
use crate::members::handle::MemberHandle;
use crate::members::operation::{Item, Operation, Parts, raw_operation, span_of};
use crate::sync::Arc;
use crate::workers::Drivers;

/// Gives an operation to a ring; returns the operation if the member's threads must do it.
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

/// The item of a plain transfer, which needs no place: at its end its token names it.
fn plain(operation: &Operation) -> Option<&Item> {
    let Operation::Io(flight) = operation else { return None };
    match (&flight.ticket, &flight.parts) {
        (None, Parts::One(item)) if !flight.is_forced() && !flight.is_zeroing() => Some(item),
        _ => None,
    }
}

/// The first ring operation of `operation`; `None` if threads must do it.
fn first(
    core: &Core,
    member: &MemberHandle,
    raw: &Raw,
    operation: &Operation,
) -> Option<RingOperation> {
    // If the device refuses durable writes, threads do the write, and then a flush.
    if operation.raw_operation() == (RawOperation::Write { durable: true })
        && !raw.takes_durable_flag()
    {
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
            raw.check(RawOperation::Flush, 0, 0).ok()?;
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
            raw.check(operation.raw_operation(), offset, length as u64).ok()?;
            let file = raw.file(address, length, offset).ok()?;
            let memory = Segments::from_iter([Segment::whole(Memory::Bytes(bytes))]);
            Some(RingOperation::Write { file, offset, memory, durable: true })
        }
        // A bad-block log needs a flush first: a thread does flush and write; such writes are few.
        Operation::Metadata { area: MetadataArea::BadBlocks, .. } => None,
        Operation::Flush | Operation::Apart(_) | Operation::Look | Operation::Rejoin => None,
    }
}

/// A transfer of adjacent parts, with a segment for each part.
fn transfer(
    core: &Core,
    member: &MemberHandle,
    raw: &Raw,
    parts: &[Item],
) -> Option<RingOperation> {
    let first: &MemberIo = &parts[0].1;
    let (raw_operation, (offset, _)) = (raw_operation(first), member.range(first));
    let mut memory = Segments::new();
    // The bitwise OR of all addresses, and of all lengths: it is aligned if every address or length
    // is.
    let (mut addresses, mut lengths, mut length_bytes) = (0, 0, 0);
    for (shard, io) in parts {
        let span = span_of(io, member.range(io).1);
        // No lease if a read was abandoned and its request has ended: threads end the read.
        let lease: Lease =
            core.shard(*shard).memory.lease(span, raw_operation == RawOperation::Read)?;
        addresses |= lease.address();
        lengths |= span.length_bytes;
        length_bytes += span.length_bytes as u64;
        memory.push(lease.into());
    }
    raw.check(raw_operation, offset, length_bytes).ok()?;
    let file = raw.file(addresses, lengths, offset).ok()?;
    Some(match first.operation {
        MemberOperation::Write { durable, .. } => {
            RingOperation::Write { file, offset, memory, durable }
        }
        _ => RingOperation::Read { file, offset, memory },
    })
}

/// The next step after a ring operation of `operation` has ended.
pub(crate) fn after(
    raw: &Raw,
    member: &MemberHandle,
    operation: &Operation,
    (done, result): (&RingOperation, io::Result<usize>),
    batch: u64,
) -> Step {
    let raw_operation = operation.raw_operation();
    match (operation, &result) {
        (Operation::Io(flight), _) if flight.is_zeroing() => {
            zeroing::after(raw, member, &flight.first().1, (done, result))
        }
        (_, Err(error))
            if raw_operation == (RawOperation::Write { durable: true })
                && raw.is_durable_flag_refused(error) =>
        {
            Step::Leave
        }
        _ => Step::Answer(ended(raw, raw_operation, result, batch)),
    }
}

pub(crate) fn length_of(memory: &Segments) -> u64 {
    memory.iter().map(Segment::length_bytes).sum::<usize>() as u64
}

pub(crate) fn ended(
    raw: &Raw,
    raw_operation: RawOperation,
    result: io::Result<usize>,
    batch: u64,
) -> Result<(), MemberError> {
    result.map_err(|error| raw.fault(raw_operation, error))?;
    raw.confirm(raw_operation, batch)
}

/// A member's open files, to register with the rings. If this fails, the member works with
/// unregistered descriptors.
pub(crate) fn files(member: &MemberHandle) -> Vec<Descriptor> {
    member.raw().and_then(|raw| raw.files().ok()).unwrap_or_default()
}
