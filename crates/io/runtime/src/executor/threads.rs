//! The back end on plain threads: an operation is one system call, for which the thread waits.
//!
//! Place in the flow: called by a member's own threads ([`crate::completions`]), and by any thread
//! for a member in memory. [`crate::members::threads`] has the queue of those threads, and their
//! number.

use std::io::IoSliceMut;

use braid_engine::array::MetadataArea;
use braid_engine::computation::Span;
use braid_engine::effect::MemberOperation;
use braid_member::MemberError;
use smallvec::SmallVec;

use crate::arena::{self, ShardMemory};
use crate::core::Core;
use crate::members::handle::MemberHandle;
use crate::members::operation::{Flight, Item, Operation, span_of};
use crate::members::rejoining::newest_on;

pub(super) fn perform(
    core: &Core,
    member: &MemberHandle,
    operation: &Operation,
) -> Result<(), MemberError> {
    let device = &member.device;
    match operation {
        Operation::Io(flight) => fly(core, member, flight),
        Operation::Apart(flight) => transfer(core, member, flight.first()),
        Operation::Flush => device.flush(),
        Operation::Metadata { area, bytes, offset_bytes } => {
            // Sectors that leave the bad-block log were rewritten, and must be durable before the
            // log is.
            if *area == MetadataArea::BadBlocks {
                device.flush()?;
            }
            device.write_at(bytes, *offset_bytes, true)
        }
        Operation::Look if device.has_vanished() => Err(MemberError::Truncated),
        Operation::Look => Ok(()),
        Operation::Rejoin => {
            device.flush()?;
            member.rejoining.tells(newest_on(&**device)?);
            Ok(())
        }
    }
}

pub(super) fn fly(core: &Core, member: &MemberHandle, flight: &Flight) -> Result<(), MemberError> {
    match flight.parts() {
        [part] => transfer(core, member, part),
        _ => vector(core, member, flight),
    }
}

fn transfer(core: &Core, member: &MemberHandle, (shard, io): &Item) -> Result<(), MemberError> {
    let (memory, device) = (&core.shard(*shard).memory, &member.device);
    let (offset_bytes, length_bytes) = member.range(io);
    match io.operation {
        MemberOperation::Read { .. } => {
            let read = |bytes: &mut [u8]| device.read_at(bytes, offset_bytes);
            // If the read was abandoned, its request may be over, and the read ends without effect.
            memory.write(span_of(io, length_bytes), read).unwrap_or(Ok(()))
        }
        MemberOperation::Write { durable, .. } => {
            let write = |bytes: &[u8]| device.write_at(bytes, offset_bytes, durable);
            memory.read(span_of(io, length_bytes), write)
        }
        MemberOperation::Zero { may_punch, durable } => {
            device.zero(offset_bytes, length_bytes, may_punch)?;
            if durable { device.flush() } else { Ok(()) }
        }
    }
}

/// Carries out a flight's adjacent parts, which are of one kind, in one call.
fn vector(core: &Core, member: &MemberHandle, flight: &Flight) -> Result<(), MemberError> {
    let (offset_bytes, _) = member.range(&flight.first().1);
    let span = |(shard, io): &Item| (&core.shard(*shard).memory, span_of(io, member.range(io).1));
    let spans: SmallVec<[(&ShardMemory, Span); 16]> = flight.parts().iter().map(span).collect();
    match flight.first().1.operation {
        MemberOperation::Read { .. } => {
            let read = |buffers: &mut [IoSliceMut<'_>]| {
                member.device.read_vectored_at(buffers, offset_bytes)
            };
            // The requests of some abandoned reads may have ended. If so, the flight is retried
            // part by part, which shows each such read.
            arena::write_all(&spans, read).unwrap_or(Err(MemberError::Truncated))
        }
        MemberOperation::Write { durable, .. } => arena::read_all(&spans, |buffers| {
            member.device.write_vectored_at(buffers, offset_bytes, durable)
        }),
        MemberOperation::Zero { .. } => panic!("zeroing is not merged"),
    }
}
