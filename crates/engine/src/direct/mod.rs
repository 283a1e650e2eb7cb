//! Levels without redundancy: linear and 0. Each sector has one place; an error there is final.
//!
//! A piece is cut where the place changes member, and each extent goes straight between the
//! client's payload and the member. Overlapping writes need no order here: one member sees them
//! all, and what a client overlaps in flight may end either way.

use braid_hooks::{Bug, planted};
use std::collections::BTreeMap;

use braid_geometry::{DirectGeometry, LogicalSector};

use crate::buffer::Buffer;
use crate::effect::{IoId, MemberFault, MemberIoDone, MemberOperation};
use crate::request::{Fault, Operation, Piece};
use crate::shard::{Common, PieceKey};

/// The machine of linear and RAID-0.
#[derive(Debug)]
pub(crate) struct Direct {
    geometry: DirectGeometry,
    in_flight: BTreeMap<IoId, (PieceKey, Fault)>,
}

impl Direct {
    pub(crate) fn new(geometry: DirectGeometry) -> Self {
        Self { geometry, in_flight: BTreeMap::new() }
    }

    pub(crate) fn handle_piece(&mut self, common: &mut Common, key: PieceKey, piece: &Piece) {
        if piece.operation == Operation::Trim && !common.view.zero_is_fast {
            return;
        }
        let mut done = 0;
        while done < piece.sectors {
            let extent = self.geometry.locate(LogicalSector(piece.start.0 + u64::from(done)));
            let left = u64::from(piece.sectors - done);
            let sectors = u32::try_from(extent.length_sectors.min(left)).expect("at most a piece");
            let (operation, fault) = operation(piece, done);
            common.add_part(key);
            let is_zero = matches!(operation, MemberOperation::Zero { .. });
            let extra = u32::from(is_zero && planted(Bug::ZeroTooLong));
            let io = common.submit(extent.slot, (extent.sector, sectors + extra), operation);
            common.counters.direct_reads += u64::from(!operation.is_write());
            self.in_flight.insert(io, (key, fault));
            done += sectors;
        }
    }

    pub(crate) fn handle_io(&mut self, common: &mut Common, done: MemberIoDone) {
        let (key, fault) = self.in_flight.remove(&done.id).expect("an answer to our own request");
        let fault = |error| if error == MemberFault::NoSpace { Fault::NoSpace } else { fault };
        let result = if planted(Bug::DirectErrorIgnored) { Ok(()) } else { done.result };
        common.part_done(key, result.map_err(fault));
    }
}

/// What to do on the members for sectors of `piece` from `done` on, and what to say if it fails.
pub(crate) fn operation(piece: &Piece, done: u32) -> (MemberOperation, Fault) {
    let buffer = || Buffer::Payload {
        request: piece.request,
        offset_sectors: piece.payload_offset_sectors
            + if planted(Bug::PayloadRestarts) { 0 } else { done },
    };
    match piece.operation {
        Operation::Read => (MemberOperation::Read { buffer: buffer() }, Fault::Unreadable),
        Operation::Write { durable } => {
            let durable = durable && !planted(Bug::FuaDropped);
            (MemberOperation::Write { buffer: buffer(), durable }, Fault::Unwritable)
        }
        Operation::WriteZeroes { may_punch, durable } => {
            (MemberOperation::Zero { may_punch, durable }, Fault::Unwritable)
        }
        Operation::Trim => {
            (MemberOperation::Zero { may_punch: true, durable: false }, Fault::Unwritable)
        }
    }
}
