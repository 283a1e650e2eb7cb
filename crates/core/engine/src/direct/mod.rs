//! Levels without redundancy: linear and 0. Each sector is stored once; its error is final.
//!
//! A piece is cut at each change of member. Each extent goes straight between the client's payload
//! and the member. Overlapping writes need no order here: one member receives all of them, and a
//! client's overlapping writes in flight may end in any order.

use braid_sim_hooks::{Bug, spoiled};

use braid_geometry::{DirectGeometry, LogicalSector, Slot};

use crate::context::{Common, PieceKey};
use crate::effect::{FaultKind, MemberFault, MemberIoDone, MemberOperation};
use crate::ids::IoId;
use crate::request::{Fault, Operation, Piece};
use crate::slab::Slab;

#[derive(Clone, Copy, Debug)]
struct InFlight {
    key: PieceKey,
    /// The fault that the client gets if the request fails.
    fault: Fault,
    written: Option<Slot>,
}

#[derive(Debug)]
pub(crate) struct Direct {
    geometry: DirectGeometry,
    in_flight: Slab<InFlight>,
}

impl Direct {
    pub(crate) fn new(geometry: DirectGeometry) -> Self {
        Self { geometry, in_flight: Slab::default() }
    }

    pub(crate) fn handle_view(&mut self, geometry: &DirectGeometry) {
        if self.geometry != *geometry {
            self.geometry = geometry.clone();
        }
    }

    pub(crate) fn handle_piece(&mut self, common: &mut Common, key: PieceKey, piece: &Piece) {
        if piece.operation == Operation::Trim && !common.view.zero_is_fast {
            return;
        }
        let may_begin = !piece.operation.is_write() || common.has_intent(key);
        assert!(may_begin, "the gate of an array that keeps no intent is never closed");
        let mut done = 0;
        while done < piece.sectors {
            let extent = self.geometry.locate(LogicalSector(piece.start.0 + u64::from(done)));
            let left = u64::from(piece.sectors - done);
            let sectors = u32::try_from(extent.length_sectors.min(left)).expect("at most a piece");
            let operation = MemberOperation::of_piece(piece, done);
            let fault = piece.operation.fault();
            common.add_part(key);
            let written = operation.is_write().then_some(extent.slot);
            let io = IoId(self.in_flight.insert(InFlight { key, fault, written }));
            common.submit((io, extent.slot), (extent.sector, sectors), operation);
            common.counters.direct_reads += u64::from(!operation.is_write());
            done += sectors;
        }
    }

    pub(crate) fn handle_io(&mut self, common: &mut Common, done: MemberIoDone) {
        let done_one = self.in_flight.remove(done.id.0).expect("an answer to our own request");
        let InFlight { key, fault, written } = done_one;
        written.into_iter().for_each(|slot| common.note_written(slot));
        let is_full = |error: &MemberFault| error.kind == FaultKind::NoSpace;
        let fault = |error: MemberFault| if is_full(&error) { Fault::NoSpace } else { fault };
        let result = done.result;
        let result = spoiled(Bug::DirectErrorIgnored, result, Ok(()));
        common.note_cause(key, result);
        common.part_done(key, result.map_err(fault));
    }
}
