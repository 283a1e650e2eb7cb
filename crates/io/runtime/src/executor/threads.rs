//! The back end that needs nothing but threads: an operation in one call to the operating system, which the thread waits for.
//!
//! Where it stands: called by a member's own threads ([`crate::completions`]), and by any thread for a member that is memory.
//! What waits for those threads, and how many there are, is [`crate::members::crew`]'s.

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

/// Carries an operation out, on the thread that calls.
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
            // What the log does not name any more was written, and is to stay so.
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

/// All of a flight.
pub(super) fn fly(core: &Core, member: &MemberHandle, flight: &Flight) -> Result<(), MemberError> {
    match flight.parts() {
        [part] => transfer(core, member, part),
        _ => vector(core, member, flight),
    }
}

/// One part by itself.
fn transfer(core: &Core, member: &MemberHandle, (shard, io): &Item) -> Result<(), MemberError> {
    let (memory, device) = (&core.shard(*shard).memory, &member.device);
    let (offset_bytes, length_bytes) = member.range(io);
    match io.operation {
        MemberOperation::Read { .. } => {
            let read = |bytes: &mut [u8]| device.read_at(bytes, offset_bytes);
            // A read that was abandoned has no request to read for.
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

/// Adjacent parts of one kind in one call.
fn vector(core: &Core, member: &MemberHandle, flight: &Flight) -> Result<(), MemberError> {
    let (offset_bytes, _) = member.range(&flight.first().1);
    let span = |(shard, io): &Item| (&core.shard(*shard).memory, span_of(io, member.range(io).1));
    let spans: SmallVec<[(&ShardMemory, Span); 16]> = flight.parts().iter().map(span).collect();
    match flight.first().1.operation {
        MemberOperation::Read { .. } => {
            let read = |buffers: &mut [IoSliceMut<'_>]| {
                member.device.read_vectored_at(buffers, offset_bytes)
            };
            // Some of them may have no request to read for any more; each by itself, it shows.
            arena::write_all(&spans, read).unwrap_or(Err(MemberError::Truncated))
        }
        MemberOperation::Write { durable, .. } => arena::read_all(&spans, |buffers| {
            member.device.write_vectored_at(buffers, offset_bytes, durable)
        }),
        MemberOperation::Zero { .. } => panic!("zeroing is not merged"),
    }
}
