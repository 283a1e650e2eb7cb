//! Reads that need no stripe: from the member straight into the client's payload.
//!
//! A straight read is possible if the data column's member can be read, and the cache holds no
//! newer bytes ([`super::read_dirty`]). If the straight read fails or is impossible, the other
//! members serve the range ([`super::reconstruct`]).

use std::ops::Range;

use braid_geometry::{LogicalSector, MemberSector, Slot, StripeAddress, StripeGeometry};
use braid_sim_hooks::{Bug, Mark, Point, reached, sometimes, spoiled};
use smallvec::SmallVec;

use super::band::{Band, BandKey, Bands, Run};
use super::damage::sectors_of;
use super::in_flight::{DirectRead, IoOwner};
use super::machine::Stripes;
use super::reconstruct::{ClientRead, Outcome, Reconstruct, ReconstructContext};
use crate::array::MemberView;
use crate::buffer::{Buffer, PayloadBuffer, SHADOW_BUFFER, payload_buffer_of};
use crate::context::{Common, PieceKey};
use crate::effect::{MemberFault, MemberOperation, Report};
use crate::ids::{IoId, RequestId};
use crate::request::{Fault, Operation, Piece};

impl Stripes {
    pub(super) fn begin_read(&mut self, common: &mut Common, key: PieceKey, piece: &Piece) {
        let chunk_sectors = self.geometry.chunk_sectors();
        let looks = self.epochs.is_any();
        let looks = spoiled(Bug::ReadsPastDirt, looks, false);
        let mut from = 0;
        while from < piece.sectors {
            let start = piece.start.0 + u64::from(from);
            let address = self.geometry.locate(LogicalSector(start));
            let sectors = (chunk_sectors - address.offset_sectors).min(piece.sectors - from);
            let range = (from, from + sectors);
            if looks {
                self.read_over_dirt(common, key, piece, (range, address.data_index));
            } else {
                self.read_in_chunk(common, key, &part_of(piece, range), &address);
            }
            from += sectors;
        }
    }

    /// Reads a range inside one chunk from its member, or from the other members if that member
    /// cannot be read.
    pub(super) fn read_past_stripes(
        &mut self,
        common: &mut Common,
        key: PieceKey,
        piece: &Piece,
        range: (u32, u32),
    ) {
        let piece = part_of(piece, range);
        let address = self.geometry.locate(piece.start);
        self.read_in_chunk(common, key, &piece, &address);
    }

    /// Reads a piece inside one chunk, at `address`.
    fn read_in_chunk(
        &mut self,
        common: &mut Common,
        key: PieceKey,
        piece: &Piece,
        address: &StripeAddress,
    ) {
        let sectors = piece.sectors;
        if self.damage.is_lost([sectors_of(piece)].into_iter()) {
            reached(Mark::LostIsNotRead);
            common.add_part(key);
            return common.part_done(key, Err(Fault::Lost));
        }
        let slot = self.geometry.row_map(address.row).data_slot(address.data_index);
        let start = self.geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
        let start = MemberSector(start);
        let is_readable = common.view.readable(slot, start, u64::from(sectors)).is_some();
        let chunk_sectors = self.geometry.chunk_sectors();
        assert!(address.offset_sectors + sectors <= chunk_sectors, "it lies inside one chunk");
        let lacks_from = |member: &MemberView| member.lacks_from(start, u64::from(sectors));
        if let Some(start) = common.view.member(slot).and_then(lacks_from) {
            common.report(Report::Lacking { start });
        }
        let around = common.clocks.sits_out(slot) && self.may_go_around(common, start, sectors);
        if !is_readable || around || sometimes(Point::ThroughStripe) {
            return self.reconstruct(common, (key, piece), false);
        }
        self.read_direct(common, DirectRead { key, piece: *piece, slot, insists: false }, start);
    }

    pub(super) fn read_direct(
        &mut self,
        common: &mut Common,
        read: DirectRead,
        start: MemberSector,
    ) {
        let DirectRead { key, piece, slot, .. } = read;
        common.add_part(key);
        common.counters.direct_reads += 1;
        let io = IoId(self.in_flight.insert(IoOwner::Direct(read)));
        let offset_sectors = piece.payload_offset_sectors;
        let buffer = Buffer::Payload { request: piece.request, offset_sectors };
        common.submit((io, slot), (start, piece.sectors), MemberOperation::Read { buffer });
    }

    /// Notes that a direct read has filled its part of the payload.
    pub(super) fn direct_done(&self, common: &mut Common, key: PieceKey, sectors: Range<u64>) {
        // A write that this read overtook may have been answered, and then lost.
        let is_lost = self.damage.is_lost([sectors].into_iter());
        common.part_done(key, if is_lost { Err(Fault::Lost) } else { Ok(()) });
    }

    /// Called when a direct read failed: reads the range from the other members.
    pub(super) fn direct_failed(
        &mut self,
        common: &mut Common,
        read: &DirectRead,
        fault: MemberFault,
    ) {
        reached(Mark::DirectReadFails);
        common.note_cause(read.key, Err(fault));
        common.note_read_fault(read.slot, fault);
        self.reconstruct(common, (read.key, &read.piece), read.insists);
        self.direct_done(common, read.key, sectors_of(&read.piece));
    }

    /// Reads a range inside one chunk from the other members.
    fn reconstruct(
        &mut self,
        common: &mut Common,
        (key, piece): (PieceKey, &Piece),
        insists: bool,
    ) {
        let geometry = self.geometry;
        for (band, run) in Bands::new(&geometry, self.unit_sectors, piece, (0, piece.sectors)) {
            common.add_part(key);
            let want = ClientRead { piece: key, request: piece.request, run, insists };
            self.reads.read(common, band, want);
        }
    }

    /// Begins reconstructing reads, and handles the outcomes of finished ones. True if any read
    /// began or was finished.
    #[inline]
    pub(super) fn serve_reads(&mut self, common: &mut Common) -> bool {
        !self.reads.is_quiet() && self.serve_those_that_can(common)
    }

    #[inline(never)]
    fn serve_those_that_can(&mut self, common: &mut Common) -> bool {
        let mut has_gone_on = self.with_reads(common, |reads, context| reads.serve(context));
        while let Some(outcome) = self.reads.poll() {
            has_gone_on = true;
            match outcome {
                Outcome::Anew(band, want) => self.read_anew(common, &band, want),
                Outcome::Insists(band, want) => self.read_insisting(common, &band, want),
                Outcome::Wake(key) => {
                    if let Some(own) = self.pool.peek(key) {
                        self.scheduler.look_at(own);
                    }
                }
            }
        }
        has_gone_on
    }

    /// Calls `act` with the reconstructing reads, and with the parts of the shard that they use.
    pub(super) fn with_reads<R>(
        &mut self,
        common: &mut Common,
        act: impl FnOnce(&mut Reconstruct, &mut ReconstructContext<'_>) -> R,
    ) -> R {
        let Self { reads, in_flight, pool, damage, entire, .. } = self;
        act(reads, &mut ReconstructContext { common, in_flight, pool, damage, entire })
    }

    /// Begins a part of a read again.
    fn read_anew(&mut self, common: &mut Common, band: &Band, want: ClientRead) {
        for (_, piece) in self.pieces_of(band, want.request, &want.run) {
            self.begin_read(common, want.piece, &piece);
        }
        common.part_done(want.piece, Ok(()));
    }

    /// Reads a part of a client's read from the columns' own members. Sectors that these members
    /// cannot return wait until all other columns can be used.
    fn read_insisting(&mut self, common: &mut Common, band: &Band, want: ClientRead) {
        let ClientRead { piece: key, insists, .. } = want;
        for (slot, piece) in self.pieces_of(band, want.request, &want.run) {
            let start = self.place_of(&piece);
            let sectors = piece.sectors;
            if common.view.readable(slot, start, u64::from(sectors)).is_some() {
                self.read_direct(common, DirectRead { key, piece, slot, insists: true }, start);
            } else {
                self.reconstruct(common, (key, &piece), insists);
            }
        }
        common.part_done(key, Ok(()));
    }

    fn place_of(&self, piece: &Piece) -> MemberSector {
        let address = self.geometry.locate(piece.start);
        let start = self.geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
        MemberSector(start)
    }

    /// The parts of each column in a band that `run` covers, as pieces, with the column's slot.
    fn pieces_of(
        &self,
        band: &Band,
        request: RequestId,
        run: &Run,
    ) -> SmallVec<[(Slot, Piece); 8]> {
        let geometry: &StripeGeometry = &self.geometry;
        let map = geometry.row_map(band.row);
        let piece = |index| {
            let segment = band.segment(run, index)?;
            let offset = band.offset_in_chunk() + segment.offset;
            let start: LogicalSector = geometry.logical(band.row, index, offset);
            let piece = Piece {
                request,
                operation: Operation::Read,
                start,
                sectors: segment.sectors,
                payload_offset_sectors: segment.payload_offset,
            };
            Some((map.data_slot(index), piece))
        };
        (0..geometry.data_slots()).filter_map(piece).collect()
    }

    /// Whether other members could probably serve a column's range without any member that sits
    /// out.
    fn may_go_around(&self, common: &Common, start: MemberSector, sectors: u32) -> bool {
        let unit = u64::from(self.unit_sectors);
        let last = (start.0 + u64::from(sectors) - 1) / unit;
        let agrees = (start.0 / unit..=last)
            .all(|band| !self.damage.is_inconsistent(BandKey(band)))
            && common.view.may_solve(start.0 / unit * unit..(last + 1) * unit);
        let is_away = |slot: &Slot| {
            common.clocks.sits_out(*slot)
                || common.view.readable(*slot, start, u64::from(sectors)).is_none()
        };
        let away = (0..self.geometry.slots()).map(Slot).filter(is_away).count();
        agrees && away <= usize::from(self.geometry.parity_slots())
    }

    /// Called when members begin to sit out, or return: abandons reads in flight at members that
    /// sit out.
    pub(crate) fn handle_slow_members(&mut self, common: &mut Common) {
        if common.clocks.is_any_out() {
            self.abandon_direct(common, |common, slot| common.clocks.sits_out(slot));
            self.with_reads(common, |reads, context| reads.abandon(context));
        }
        self.settle(common);
    }

    /// Abandons direct reads at members that sit out or have left.
    pub(super) fn abandon_direct(
        &mut self,
        common: &mut Common,
        is_out: impl Fn(&Common, Slot) -> bool,
    ) {
        let mut abandoned = Vec::new();
        for (name, owner) in self.in_flight.iter_mut() {
            if let IoOwner::Direct(read) = owner
                && is_out(common, read.slot)
                && read.may_be_abandoned()
            {
                abandoned.push((name, *read));
            }
        }
        for (name, read) in abandoned {
            let DirectRead { key, piece, slot, .. } = read;
            if !self.may_go_around(common, self.place_of(&piece), piece.sectors) {
                continue;
            }
            reached(Mark::DirectReadAbandoned);
            common.abandon(key);
            let owner = self.in_flight.get_mut(name).expect("just seen");
            *owner = IoOwner::Abandoned(slot);
            let (payload_buffer, offset) = payload_buffer_of(piece.payload_offset_sectors);
            assert_eq!(
                payload_buffer,
                PayloadBuffer::Client,
                "what was made instead is not abandoned"
            );
            let payload_offset_sectors = offset + SHADOW_BUFFER;
            let payload_offset_sectors =
                spoiled(Bug::AbandonedSameMemory, payload_offset_sectors, offset);
            let piece = Piece { payload_offset_sectors, ..piece };
            self.reconstruct(common, (key, &piece), false);
            common.part_done(key, Ok(()));
        }
    }
}

fn part_of(piece: &Piece, (from, to): (u32, u32)) -> Piece {
    Piece {
        start: LogicalSector(piece.start.0 + u64::from(from)),
        sectors: to - from,
        payload_offset_sectors: piece.payload_offset_sectors + from,
        ..*piece
    }
}
