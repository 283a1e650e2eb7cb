//! Bands: the sectors that one stripe covers, and the part of them in a client's request.
//!
//! ```text
//!                data 0      data 1      data 2        a chunk row, here two bands to a chunk
//!   band 0    │ 0 1 2 3 │ 8 9 10 11 │ 16 .. 19 │   ◀── one stripe unit high, over all slots
//!   band 1    │ 4 5 6 7 │ 12 .. 15  │ 20 .. 23 │
//! ```
//!
//! Sectors are counted from the start of the row's data, in the order in which the client sees
//! them. A piece is one run of them. Its part in each column of a band follows by arithmetic
//! ([`Band::segment`]), so nothing is listed or allocated.
//!
//! [check: bands_cover_every_sector_once]

use std::ops::Range;

use braid_geometry::{ChunkRow, LogicalSector, MemberSector, StripeGeometry};

use crate::context::PieceKey;
use crate::ids::{CachedWriteId, RequestId};
use crate::request::Piece;
use crate::sectors::{BLOCK_SECTORS, Extent};

/// The number of a band: its member sector divided by the stripe unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BandKey(pub(super) u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Band {
    pub(super) key: BandKey,
    pub(super) row: ChunkRow,
    pub(super) start: MemberSector,
    chunk_sectors: u32,
    offset_in_chunk: u32,
    unit_sectors: u32,
}

/// A part of a piece, inside one column of one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) offset: u32,
    pub(super) sectors: u32,
    /// Offset in the request's payload, in sectors; meaningless for zeroes.
    pub(super) payload_offset: u32,
}

/// The data that a piece writes to a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Write { durable: bool },
    Zero { may_punch: bool, durable: bool },
}

impl WriteKind {
    pub(super) fn is_durable(self) -> bool {
        matches!(self, Self::Write { durable: true } | Self::Zero { durable: true, .. })
    }
}

/// A run of a chunk row's data sectors, and the offset of its first sector in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    from: u64,
    to: u64,
    payload_offset: u32,
}

impl Run {
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    /// Splits the run after its first block in the band. `None` if the run is a single block.
    pub(super) fn cut(self, band: &Band) -> Option<(Self, Self)> {
        self.cut_at_multiple(band, BLOCK_SECTORS)
    }

    /// Splits the run after its first sector in the band. `None` if the run is a single sector.
    pub(super) fn cut_sector(self, band: &Band) -> Option<(Self, Self)> {
        self.cut_at_multiple(band, 1)
    }

    fn cut_at_multiple(self, band: &Band, of_sectors: u32) -> Option<(Self, Self)> {
        // Sectors of other bands may lie before, between and after this band's columns in the run.
        let chunk = u64::from(band.chunk_sectors);
        let mut columns = (self.from / chunk..).map(|index| band.column(index));
        let column = columns.find(|column| self.from < column.end)?;
        let start = self.from.max(column.start);
        let cut = (start + 1).next_multiple_of(u64::from(of_sectors)).min(column.end);
        if cut >= self.to {
            return None;
        }
        let into = u32::try_from(cut - self.from).expect("at most a piece");
        let payload_offset = self.payload_offset.saturating_add(into);
        let mut columns = (cut / chunk..=self.to / chunk).map(|index| band.column(index));
        let is_more = columns.any(|column| cut < column.end && column.start < self.to);
        is_more
            .then_some((Self { to: cut, ..self }, Self { from: cut, to: self.to, payload_offset }))
    }
}

/// A piece's write to one stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment {
    pub(super) piece: PieceKey,
    pub(super) request: RequestId,
    pub(super) kind: WriteKind,
    pub(super) run: Run,
    pub(super) is_answered: bool,
    /// Whether superblocks do not record yet that the write's region may be written (I3).
    pub(super) lacks_intent: bool,
    /// The epoch of the dirty reference that the write holds ([`super::epochs`]), for its own bytes
    /// or for older bytes that it covers. `None` if the write carries no answered bytes.
    pub(super) dirty_epoch: Option<u64>,
    /// The write's place in the order in which writes joined stripes of this shard
    /// ([`super::cached_writes`]).
    pub(super) order: u64,
    /// The write's copy in the file that outlives the process, if any.
    pub(super) cached: Option<CachedWriteId>,
}

impl Attachment {
    pub(super) fn new((piece, request, kind, run): (PieceKey, RequestId, WriteKind, Run)) -> Self {
        Self {
            piece,
            request,
            kind,
            run,
            is_answered: false,
            lacks_intent: false,
            dirty_epoch: None,
            order: 0,
            cached: None,
        }
    }
}

impl Band {
    /// The band that begins at `start` on every member.
    pub(super) fn at(geometry: &StripeGeometry, unit_sectors: u32, start: MemberSector) -> Self {
        assert!(start.0.is_multiple_of(u64::from(unit_sectors)), "bands begin at whole units");
        let row = geometry.row_of(start);
        let chunk_sectors = geometry.chunk_sectors();
        let offset = start.0 - geometry.row_start(row).0;
        let offset_in_chunk = u32::try_from(offset).expect("inside a chunk");
        assert!(offset_in_chunk < chunk_sectors, "a row is a chunk high");
        let key = BandKey(start.0 / u64::from(unit_sectors));
        Self { key, row, start, chunk_sectors, offset_in_chunk, unit_sectors }
    }

    pub(super) fn offset_in_chunk(&self) -> u32 {
        self.offset_in_chunk
    }

    pub(super) fn end(&self) -> MemberSector {
        MemberSector(self.start.0 + u64::from(self.unit_sectors))
    }

    /// An extent of the band, in member sectors: the first sector, and their number.
    pub(super) fn range(&self, extent: Extent) -> (MemberSector, u32) {
        (MemberSector(self.start.0 + u64::from(extent.offset)), extent.sectors)
    }

    /// The sector of the array at an offset in a data column's stripe unit.
    pub(super) fn logical(
        &self,
        geometry: &StripeGeometry,
        data_index: u16,
        offset: u32,
    ) -> LogicalSector {
        geometry.logical(self.row, data_index, self.offset_in_chunk + offset)
    }

    /// The range of row sectors that a data column of the band covers.
    fn column(&self, data_index: u64) -> Range<u64> {
        let chunk = data_index * u64::from(self.chunk_sectors);
        let start = chunk + u64::from(self.offset_in_chunk);
        start..start + u64::from(self.unit_sectors)
    }

    /// The part of `run` in a data column, if any.
    pub(super) fn segment(&self, run: &Run, data_index: u16) -> Option<Segment> {
        let Range { start, end } = self.column(u64::from(data_index));
        let (from, to) = (run.from.max(start), run.to.min(end));
        let small = |sectors: u64| u32::try_from(sectors).expect("at most a piece");
        (from < to).then(|| Segment {
            offset: small(from - start),
            sectors: small(to - from),
            payload_offset: run.payload_offset.saturating_add(small(from - run.from)),
        })
    }

    /// The range of data columns that `run` touches. The first and the last column may hold no part
    /// of the run.
    pub(super) fn columns(&self, run: &Run) -> Range<u16> {
        let chunk = u64::from(self.chunk_sectors);
        let narrow = |index: u64| u16::try_from(index).expect("a run lies in its row");
        narrow(run.from / chunk)..narrow(run.to.div_ceil(chunk))
    }

    /// The array sectors of `run` in the band, column by column.
    pub(super) fn sectors<'a>(
        &'a self,
        geometry: &'a StripeGeometry,
        run: &'a Run,
    ) -> impl Iterator<Item = Range<u64>> + 'a {
        self.columns(run).filter_map(move |index| {
            let segment = self.segment(run, index)?;
            let offset = self.offset_in_chunk + segment.offset;
            let start = geometry.logical(self.row, index, offset).0;
            Some(start..start + u64::from(segment.sectors))
        })
    }

    pub(super) fn sectors_of(&self, run: &Run, data_slots: u16) -> u32 {
        let segments = (0..data_slots).filter_map(|index| self.segment(run, index));
        segments.map(|segment| segment.sectors).sum()
    }
}

/// An iterator over the bands that a part of a piece touches, each with its run of the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bands<'a> {
    geometry: &'a StripeGeometry,
    unit_sectors: u32,
    row_sectors: u64,
    piece: Piece,
    /// Sectors of the piece that are left, from the current row on.
    from: u32,
    to: u32,
    /// Number of bands of the current row that were returned already.
    given: u64,
}

impl<'a> Bands<'a> {
    pub(super) fn new(
        geometry: &'a StripeGeometry,
        unit_sectors: u32,
        piece: &Piece,
        (from, to): (u32, u32),
    ) -> Self {
        let row_sectors = u64::from(geometry.data_slots()) * u64::from(geometry.chunk_sectors());
        Self { geometry, unit_sectors, row_sectors, piece: *piece, from, to, given: 0 }
    }
}

impl Iterator for Bands<'_> {
    type Item = (Band, Run);

    fn next(&mut self) -> Option<(Band, Run)> {
        let chunk_sectors = self.geometry.chunk_sectors();
        let (chunk, unit) = (u64::from(chunk_sectors), u64::from(self.unit_sectors));
        if self.from == self.to {
            return None;
        }
        let start = self.piece.start.0 + u64::from(self.from);
        let in_row = start % self.row_sectors;
        let left = u64::from(self.to - self.from);
        let sectors = left.min(self.row_sectors - in_row);
        let (first, last) = (in_row % chunk / unit, (in_row % chunk + sectors - 1) / unit);
        let bands = chunk / unit;
        let offset_in_chunk = (first + self.given) % bands * unit;
        let row = self.geometry.locate(LogicalSector(start)).row;
        let member_sector = self.geometry.row_start(row).0 + offset_in_chunk;
        let run = Run {
            from: in_row,
            to: in_row + sectors,
            payload_offset: self.piece.payload_offset_sectors.saturating_add(self.from),
        };
        let band = Band {
            key: BandKey(member_sector / unit),
            row,
            start: MemberSector(member_sector),
            chunk_sectors,
            offset_in_chunk: u32::try_from(offset_in_chunk).expect("inside a chunk"),
            unit_sectors: self.unit_sectors,
        };
        self.given += 1;
        if self.given == (last - first + 1).min(bands) {
            self.given = 0;
            self.from += u32::try_from(sectors).expect("at most a piece");
        }
        Some((band, run))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::request::Operation;
    use crate::stripe::tests::geometry;

    /// Cutting one block after the other off a run loses no sector, and ends.
    #[test]
    fn a_run_is_cut_into_its_blocks() {
        for (chunk, unit) in [(8, 8), (8, 2), (32, 16), (64, 16)] {
            let geometry = geometry(3, chunk, 4);
            for (start, sectors) in [(0, 1), (3, 30), (5, 2 * chunk - 5), (0, 2 * chunk), (7, 1)] {
                let piece = Piece {
                    request: RequestId(1),
                    operation: Operation::Read,
                    start: LogicalSector(start),
                    sectors: sectors.min(2 * chunk - 8),
                    payload_offset_sectors: 0,
                };
                for (band, run) in Bands::new(&geometry, unit, &piece, (0, piece.sectors)) {
                    let segments = |run: &Run| {
                        let segments = (0..2).filter_map(|index| {
                            band.segment(run, index).map(|segment| (index, segment))
                        });
                        segments.collect::<Vec<_>>()
                    };
                    let mut rest = run;
                    let mut sectors = 0;
                    let whole: u32 = segments(&run).iter().map(|(_, s)| s.sectors).sum();
                    while let Some((first, left)) = rest.cut(&band) {
                        let parts = segments(&first);
                        assert_eq!(parts.len(), 1, "one block of one column");
                        assert!(parts[0].1.sectors <= 8);
                        sectors += parts[0].1.sectors;
                        rest = left;
                    }
                    let last = segments(&rest);
                    assert!(last.len() == 1 && last[0].1.sectors <= 8);
                    assert_eq!(sectors + last[0].1.sectors, whole);
                }
            }
        }
    }

    #[test]
    fn bands_cover_every_sector_once() {
        for (chunk, unit) in [(8, 8), (8, 2), (16, 4)] {
            let geometry = geometry(3, chunk, 4);
            let row = u64::from(chunk) * 2;
            for (start, sectors) in (0..2 * row).flat_map(|s| (1..=2 * row).map(move |n| (s, n))) {
                let piece = Piece {
                    request: RequestId(1),
                    operation: Operation::Read,
                    start: LogicalSector(start),
                    sectors: u32::try_from(sectors).unwrap(),
                    payload_offset_sectors: 100,
                };
                let mut seen = BTreeSet::new();
                let mut keys = BTreeSet::new();
                for (band, run) in Bands::new(&geometry, unit, &piece, (0, piece.sectors)) {
                    assert!(keys.insert(band.key), "a band is given once");
                    assert!(band.sectors_of(&run, 2) > 0, "and only if it is touched");
                    for index in 0..2 {
                        let columns = band.columns(&run);
                        let segment = band.segment(&run, index);
                        assert!(segment.is_none() || columns.contains(&index));
                        let Some(segment) = segment else { continue };
                        let place = geometry.logical(band.row, index, 0).0
                            + u64::from(band.offset_in_chunk + segment.offset);
                        for n in 0..u64::from(segment.sectors) {
                            let payload = u64::from(segment.payload_offset) + n;
                            assert_eq!(place + n - start, payload - 100);
                            assert!(seen.insert(place + n), "a sector is given once");
                        }
                    }
                }
                assert!(seen.into_iter().eq(start..start + sectors));
            }
        }
    }
}
