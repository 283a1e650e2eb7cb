//! Reads that need no stripe: from the member straight into the client's payload.
//!
//! Possible where the member of the data column can be asked, and the cache has nothing that the
//! member does not have yet ([`super::dirty`]). When such a read fails, or cannot be made, the range
//! goes through stripes and is reconstructed.

use braid_geometry::{LogicalSector, MemberSector, Slot};
use braid_hooks::{Bug, Mark, Point, planted, reached, sometimes};

use super::band::{Attachment, Bands, Want};
use super::lost::part_of;
use super::{IoOwner, Stripes};
use crate::buffer::{Buffer, Side, side_of};
use crate::effect::{IoId, MemberFault, MemberOperation};
use crate::request::{Fault, Piece};
use crate::shard::{Common, PieceKey};

/// A read past the stripes: part of a piece, inside one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectRead {
    key: PieceKey,
    piece: Piece,
    /// Sectors of the piece, from and to.
    range: (u32, u32),
    slot: Slot,
    /// It cannot be made around the member.
    insists: bool,
}

impl DirectRead {
    /// All of `piece`, from a member whatever it takes.
    pub(super) fn insisting(key: PieceKey, piece: Piece, slot: Slot) -> Self {
        Self { key, piece, range: (0, piece.sectors), slot, insists: true }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Whether it may be made in another way, if there is one. Once only: a payload has two sides.
    pub(super) fn may_be_forsaken(&self) -> bool {
        !self.insists && side_of(self.piece.payload_offset_sectors).0 == Side::First
    }

    pub(super) fn parts(&self) -> (PieceKey, Piece, (u32, u32)) {
        (self.key, self.piece, self.range)
    }
}

impl Stripes {
    pub(super) fn begin_read(&mut self, common: &mut Common, key: PieceKey, piece: &Piece) {
        let chunk_sectors = self.geometry.chunk_sectors();
        let looks = self.promises.is_any() && !planted(Bug::ReadsPastDirt);
        let mut from = 0;
        while from < piece.sectors {
            let start = piece.start.0 + u64::from(from);
            let address = self.geometry.locate(LogicalSector(start));
            let sectors = (chunk_sectors - address.offset_sectors).min(piece.sectors - from);
            let range = (from, from + sectors);
            if looks {
                self.read_over_dirt(common, key, piece, (range, address.data_index));
            } else {
                self.read_past_stripes(common, key, piece, range);
            }
            from += sectors;
        }
    }

    /// Reads a range inside one chunk from its member; through stripes if that cannot be asked.
    pub(super) fn read_past_stripes(
        &mut self,
        common: &mut Common,
        key: PieceKey,
        piece: &Piece,
        range: (u32, u32),
    ) {
        if self.lost.meets([part_of(piece.start, range)].into_iter()) {
            reached(Mark::LostIsNotRead);
            common.add_part(key);
            return common.part_done(key, Err(Fault::Lost));
        }
        let (from, to) = range;
        let address = self.geometry.locate(LogicalSector(piece.start.0 + u64::from(from)));
        let slot = self.geometry.row_map(address.row).data_slot(address.data_index);
        let start = self.geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
        let (start, sectors) = (MemberSector(start), to - from);
        let is_readable = common.view.readable(slot, start, u64::from(sectors)).is_some();
        let around = common.clocks.sits_out(slot) && self.may_go_around(common, start, sectors);
        if !is_readable || around || sometimes(Point::ThroughStripe) {
            return self.read_through_stripes(common, key, piece, range);
        }
        let read = DirectRead { key, piece: *piece, range, slot, insists: false };
        self.read_direct(common, key, read, start);
    }

    /// Reads from the member into the payload.
    pub(super) fn read_direct(
        &mut self,
        common: &mut Common,
        key: PieceKey,
        read: DirectRead,
        start: MemberSector,
    ) {
        common.add_part(key);
        common.counters.direct_reads += 1;
        let DirectRead { piece, range: (from, to), slot, .. } = read;
        let offset_sectors = piece.payload_offset_sectors + from;
        let buffer = Buffer::Payload { request: piece.request, offset_sectors };
        let io = IoId(self.in_flight.insert(IoOwner::Direct(read)));
        common.submit((io, slot), (start, to - from), MemberOperation::Read { buffer });
    }

    pub(super) fn direct_done(
        &mut self,
        common: &mut Common,
        read: &DirectRead,
        result: Result<(), MemberFault>,
    ) {
        if let Err(fault) = result
            && !planted(Bug::ReadErrorIgnored)
        {
            reached(Mark::DirectReadFails);
            common.note_read_fault(read.slot, fault);
            if read.insists {
                let geometry = self.geometry;
                let piece = &read.piece;
                for (band, run) in Bands::new(&geometry, self.unit_sectors, piece, read.range) {
                    let work = (read.key, piece.request, Want::Read, run);
                    self.attach_insisting(common, band, work);
                }
            } else {
                self.read_through_stripes(common, read.key, &read.piece, read.range);
            }
        }
        // A write that this read overtook may have been answered and lost meanwhile.
        let is_lost = self.lost.meets([part_of(read.piece.start, read.range)].into_iter());
        common.part_done(read.key, if is_lost { Err(Fault::Lost) } else { Ok(()) });
    }

    /// Reads a range inside one chunk through stripes; beside them while a member sits out.
    pub(super) fn read_through_stripes(
        &mut self,
        common: &mut Common,
        key: PieceKey,
        piece: &Piece,
        range: (u32, u32),
    ) {
        let geometry = self.geometry;
        for (band, run) in Bands::new(&geometry, self.unit_sectors, piece, range) {
            let work = (key, piece.request, Want::Read, run);
            if common.clocks.is_any_out() {
                common.add_part(key);
                self.go_beside(common, band, Attachment::new(work));
            } else {
                self.attach(common, band, work);
            }
        }
    }
}
