//! A batch's new content, by column: parts of clients' payloads; where they overlap, the newest.
//!
//! ```text
//!   queue    older      |---------a---------|
//!                              |--b--|
//!            newer                      |-c-|
//!   content             |--a--||--b--||a|-c-|     one part for each run in one place in memory
//! ```
//!
//! A part is usually *straight*: parity is computed from the payload, and the member is written
//! from the payload, in one request with the adjacent parts. If a column has several parts shorter
//! than a block, these are *gathered*: copied into the column's block and written in one request.
//! Copying less than a block costs less than a request. So writes of whole blocks are never copied,
//! and writes of single sectors do not become a request each.
//!
//! Parts are found when a batch computes, and again for its writes if the memory was reused.
//!
//! - Parts cover the touched sectors once, and each sector is the newest writer's
//!   [check: the_newest_write_counts].
//! - Parity is made in slices in which each column is in one place
//!   [check: a_slice_is_in_one_place_in_every_column].

use braid_sim_hooks::{Mark, reached};

use super::super::band::WriteKind;
use super::stripe::Stripe;
use crate::buffer::Buffer;
use crate::ids::RequestId;
use crate::sectors::{BLOCK_SECTORS, Extent, SectorSet};

/// The place of a part's new bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Payload { request: RequestId, offset_sectors: u32 },
    Zeroes { may_punch: bool },
}

/// A run of a column's new content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) extent: Extent,
    pub(super) source: Source,
    /// The part is copied into the column's block.
    pub(super) is_gathered: bool,
}

impl Part {
    /// The part's place in a payload; `None` for zeroes.
    pub(super) fn payload(&self) -> Option<Buffer> {
        match self.source {
            Source::Payload { request, offset_sectors } => {
                Some(Buffer::Payload { request, offset_sectors })
            }
            Source::Zeroes { .. } => None,
        }
    }

    fn is_small(&self) -> bool {
        self.extent.sectors < BLOCK_SECTORS
    }
}

/// The new content of every data column of a batch. It covers only the columns that the batch
/// touches, since most batches touch one column of many.
#[derive(Debug, Default)]
pub(in super::super) struct Content {
    /// The stripe whose batch the content belongs to, until that batch is written.
    of: Option<u32>,
    /// The first column that the batch touches.
    first: u16,
    data_slots: u16,
    /// The parts of the batch's content, by column from `first` on, then by place.
    parts: Vec<Part>,
    /// For each column from `first` on: the end of its parts in `parts`.
    ends: Vec<usize>,
    /// For each column from `first` on: its gathered sectors, and its straight sectors.
    sets: Vec<(SectorSet, SectorSet)>,
    /// Sectors at which a straight part begins or ends, in any column.
    cuts: SectorSet,
}

impl Content {
    /// Finds the parts of the batch whose computation stripe `number` begins.
    pub(super) fn find_of(&mut self, number: u32, stripe: &Stripe) {
        self.find(stripe);
        self.of = Some(number);
    }

    /// Finds the parts of the batch again, for its writes. Reuses the parts if the memory still has
    /// them.
    pub(super) fn find_again(&mut self, number: u32, stripe: &Stripe) {
        if self.of.take() != Some(number) {
            self.find(stripe);
        }
    }

    /// Finds the parts of the stripe's batch and forgets the previous ones.
    pub(super) fn find(&mut self, stripe: &Stripe) {
        self.parts.clear();
        self.ends.clear();
        self.sets.clear();
        let mut cuts = SectorSet::EMPTY;
        let columns = stripe.touched_columns();
        (self.first, self.data_slots) = (columns.start, stripe.map.data_slots());
        for index in columns {
            let first = self.parts.len();
            if stripe.column(stripe.map.data_slot(index)).touched.is_empty() {
                self.ends.push(first);
                self.sets.push((SectorSet::EMPTY, SectorSet::EMPTY));
                continue;
            }
            self.find_in(stripe, index);
            let parts = &mut self.parts[first..];
            parts.sort_unstable_by_key(|part| part.extent.offset);
            let (mut gathered, mut straight) = (SectorSet::EMPTY, SectorSet::EMPTY);
            let gathers = parts.iter().filter(|part| part.is_small()).count() > 1;
            for part in parts {
                part.is_gathered = gathers && part.is_small();
                let set = if part.is_gathered { &mut gathered } else { &mut straight };
                *set = set.union(part.extent.set());
                if !part.is_gathered {
                    cuts = cuts.union(part.extent.edges());
                }
            }
            if gathers {
                reached(Mark::WritesGathered);
            } else if self.parts.len() > first + 1 {
                reached(Mark::WritesSideBySide);
            }
            self.ends.push(self.parts.len());
            self.sets.push((gathered, straight));
        }
        self.cuts = cuts;
    }

    fn find_in(&mut self, stripe: &Stripe, index: u16) {
        let window = stripe.window();
        let mut rest = window;
        for (work, segment) in stripe.segments(index).rev() {
            let own = SectorSet::run(segment.offset, segment.sectors);
            let (all, source) = match work.kind {
                WriteKind::Zero { may_punch, .. } => (own, Source::Zeroes { may_punch }),
                WriteKind::Write { .. } => {
                    let offset_sectors = segment.payload_offset;
                    (own, Source::Payload { request: work.request, offset_sectors })
                }
            };
            for extent in all.common(rest).extents() {
                let source = match source {
                    Source::Payload { request, offset_sectors } => {
                        let into = extent.offset - segment.offset;
                        Source::Payload { request, offset_sectors: offset_sectors + into }
                    }
                    zeroes @ Source::Zeroes { .. } => zeroes,
                };
                self.parts.push(Part { extent, source, is_gathered: false });
            }
            rest = rest.without(all);
        }
    }

    /// The parts of a data column, in order.
    pub(super) fn of(&self, index: u16) -> &[Part] {
        let Some(place) = self.place(index) else { return &[] };
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.parts[start..self.ends[place]]
    }

    /// Gathered and straight sectors of a data column.
    pub(super) fn sets_of(&self, index: u16) -> (SectorSet, SectorSet) {
        self.place(index).map_or_else(Default::default, |place| self.sets[place])
    }

    fn place(&self, index: u16) -> Option<usize> {
        let place = usize::from(index.checked_sub(self.first)?);
        (place < self.ends.len()).then_some(place)
    }

    /// The straight part of a data column at `place`. `None` if the column's block holds the bytes
    /// at `place`.
    pub(super) fn straight_at(&self, index: u16, place: u32) -> Option<&Part> {
        let parts = self.of(index);
        let part = parts.get(parts.partition_point(|part| part.extent.end() <= place))?;
        (part.extent.offset <= place && !part.is_gathered).then_some(part)
    }

    /// Cuts `extent` into runs in which each column's content is in one place in memory.
    pub(super) fn slices(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
        let cuts = self.cuts;
        let (mut from, end) = (extent.offset, extent.end());
        std::iter::from_fn(move || {
            let to = cuts.first_from(from + 1).map_or(end, |cut| cut.min(end));
            let slice = Extent { offset: from, sectors: to - from };
            from = to;
            (slice.sectors > 0).then_some(slice)
        })
    }

    /// `None` unless the batch zeroes the whole window of every data column. Then `Some`: whether
    /// all that space may be deallocated.
    pub(super) fn all_zeroes(&self, window: SectorSet) -> Option<bool> {
        let mut all_punch = true;
        for index in 0..self.data_slots {
            let mut covered = SectorSet::EMPTY;
            for part in self.of(index) {
                let Source::Zeroes { may_punch } = part.source else { return None };
                all_punch &= may_punch;
                covered = covered.union(part.extent.set());
            }
            if !covered.contains(window) {
                return None;
            }
        }
        Some(all_punch)
    }
}

#[cfg(test)]
mod tests {
    use braid_geometry::LogicalSector;

    use super::*;
    use crate::request::{Operation, Piece};
    use crate::stripe::band::{Attachment, Bands};
    use crate::stripe::tests::geometry;

    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    /// A sector's new content: the request and the sector in its payload, or `None` for zeroes.
    type Written = Option<(u64, u32)>;

    /// A batch of writes to the first band of three columns, and the new content of the band's
    /// sectors.
    fn batch(random: &mut impl FnMut(u64) -> u64) -> (Stripe, Vec<Vec<Option<Written>>>) {
        const UNIT: u32 = 64;
        let geometry = geometry(4, UNIT, 4);
        let mut stripe = Stripe::new(&geometry);
        let mut wanted = vec![vec![None; UNIT as usize]; 3];
        let blocks = random(2) * 7 + 1;
        for request in 0..=random(8) {
            let row = u64::from(3 * UNIT) / blocks;
            let start = random(row);
            let sectors = (random(row - start) + 1).min(20) * blocks;
            let is_zero = random(4) == 0;
            let piece = Piece {
                request: RequestId(request),
                operation: Operation::Read,
                start: LogicalSector(start * blocks),
                sectors: u32::try_from(sectors).unwrap(),
                payload_offset_sectors: 9,
            };
            let (band, run) =
                Bands::new(&geometry, UNIT, &piece, (0, piece.sectors)).next().unwrap();
            let key = crate::context::Pieces::default().begin(&piece, true);
            let kind = match is_zero {
                true => WriteKind::Zero { may_punch: false, durable: false },
                false => WriteKind::Write { durable: false },
            };
            stripe.band = Some(band);
            stripe.queue.push_back(Attachment::new((key, piece.request, kind, run)));
            for place in 0..sectors {
                let sector = usize::try_from(start * blocks + place).unwrap();
                let from = (request, 9 + u32::try_from(place).unwrap());
                wanted[sector / UNIT as usize][sector % UNIT as usize] =
                    Some((!is_zero).then_some(from));
            }
        }
        stripe.begin_batch(UNIT, usize::MAX, false);
        (stripe, wanted)
    }

    #[test]
    fn the_newest_write_counts() {
        let mut random = numbers(5);
        let mut content = Content::default();
        let (mut gathered, mut side_by_side) = (0, 0);
        for _ in 0..20_000 {
            let (stripe, wanted) = batch(&mut random);
            content.find(&stripe);
            for (index, wanted) in (0..).zip(&wanted) {
                let mut found: Vec<Option<Written>> = vec![None; wanted.len()];
                for part in content.of(index) {
                    for into in 0..part.extent.sectors {
                        let place = &mut found[(part.extent.offset + into) as usize];
                        assert!(place.is_none(), "a sector is in one part");
                        *place = Some(part.payload().map(|from| match from.plus(into) {
                            Buffer::Payload { request, offset_sectors } => {
                                (request.0, offset_sectors)
                            }
                            Buffer::Block { .. } => unreachable!("it is the client's"),
                        }));
                    }
                }
                assert_eq!(&found, wanted);
                let small = content.of(index).iter().filter(|part| part.is_small()).count();
                let parts = content.of(index).iter().filter(|part| part.is_gathered).count();
                assert_eq!(
                    parts,
                    if small > 1 { small } else { 0 },
                    "small ones, if there are several"
                );
                gathered += parts;
                side_by_side += usize::from(parts == 0 && content.of(index).len() > 1);
            }
        }
        assert!(gathered > 1000 && side_by_side > 1000, "{gathered} {side_by_side}");
    }

    #[test]
    fn a_slice_is_in_one_place_in_every_column() {
        let mut random = numbers(6);
        let mut content = Content::default();
        for _ in 0..5_000 {
            let (stripe, _) = batch(&mut random);
            content.find(&stripe);
            for extent in stripe.window().extents() {
                let slices: Vec<Extent> = content.slices(extent).collect();
                assert!(slices.iter().copied().collect::<SectorSet>() == extent.set());
                for (slice, index) in
                    slices.iter().flat_map(|slice| (0..3).map(move |i| (slice, i)))
                {
                    let places = slice.offset..slice.end();
                    let first = content.straight_at(index, slice.offset);
                    assert!(
                        places.into_iter().all(|place| content.straight_at(index, place) == first)
                    );
                }
            }
        }
    }
}
