//! Requests and copies in flight for a shard's stripes and reads, each with its owner.

use braid_geometry::Slot;

use crate::buffer::{PayloadBuffer, payload_buffer_of};
use crate::context::PieceKey;
use crate::request::Piece;
use crate::sectors::Extent;

#[derive(Clone, Copy, Debug)]
pub(super) enum IoOwner {
    Column(ColumnIo),
    Direct(DirectRead),
    Reconstruct(ReadIo),
    Abandoned(Slot),
    Probe(Slot),
}

/// A request of a batch to a column's member.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnIo {
    pub(super) number: u32,
    pub(super) slot: Slot,
    pub(super) extent: Extent,
    /// The request rewrites sectors that could not be read.
    pub(super) is_repair: bool,
    /// The request is a FUA write: no flush of the member follows.
    pub(super) durable: bool,
}

/// A read that bypasses the stripes: part of a piece, inside one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectRead {
    pub(super) key: PieceKey,
    /// The part of the client's piece that this read covers.
    pub(super) piece: Piece,
    pub(super) slot: Slot,
    /// The read must come from this member, even if the member sits out.
    pub(super) insists: bool,
}

impl DirectRead {
    /// Whether other members may serve the read instead. A part of a payload can be read anew only
    /// once, as the payload has one shadow buffer.
    pub(super) fn may_be_abandoned(&self) -> bool {
        !self.insists
            && payload_buffer_of(self.piece.payload_offset_sectors).0 == PayloadBuffer::Client
    }
}

/// A request of a read to a column's member.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadIo {
    pub(super) place: u32,
    pub(super) slot: Slot,
    pub(super) extent: Extent,
    pub(super) kind: ReadIoKind,
}

/// The purpose of a read's member request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadIoKind {
    Read,
    /// The request rewrites sectors that could not be read.
    Repair,
    /// The request writes columns that background work has computed.
    Write,
    /// The request copies the column to the replacement of its member.
    Copy,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CopyOut {
    pub(super) key: PieceKey,
    pub(super) stripe: u32,
}
