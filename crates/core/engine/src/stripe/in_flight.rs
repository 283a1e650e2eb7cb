//! What is under way for a shard's stripes and reads: whose a request to a member, or a copy, is.

use braid_geometry::Slot;

use crate::buffer::{PayloadBuffer, payload_buffer_of};
use crate::context::PieceKey;
use crate::request::Piece;
use crate::sectors::Extent;

/// Whose a member request is.
#[derive(Clone, Copy, Debug)]
pub(super) enum IoOwner {
    Column(ColumnIo),
    Direct(DirectRead),
    Reconstruct(ReadIo),
    /// A read that was abandoned.
    Abandoned(Slot),
    Probe(Slot),
}

/// A request of a batch to a column's member.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnIo {
    /// The stripe's number.
    pub(super) number: u32,
    pub(super) slot: Slot,
    pub(super) extent: Extent,
    /// It writes again what could not be read.
    pub(super) is_repair: bool,
    /// It is a durable write: no flush of the member is to follow.
    pub(super) durable: bool,
}

/// A read past the stripes: part of a piece, inside one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectRead {
    pub(super) key: PieceKey,
    /// That part alone.
    pub(super) piece: Piece,
    pub(super) slot: Slot,
    /// It cannot be made around the member.
    pub(super) insists: bool,
}

impl DirectRead {
    /// Whether it may be made in another way, if there is one. Once only: a payload has one shadow
    /// buffer.
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

/// What a request of a read does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadIoKind {
    /// It reads.
    Read,
    /// It writes again what could not be read.
    Repair,
    /// It writes what background work has made.
    Write,
    /// The same, to the replacement of the column's member.
    Copy,
}

/// A copy that is out.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyOut {
    pub(super) key: PieceKey,
    pub(super) stripe: u32,
}
