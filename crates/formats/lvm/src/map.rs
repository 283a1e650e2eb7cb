//! Maps the bytes of a volume: consecutive pieces, each on one part or striped over several; for a
//! thin volume runs of blocks in its pool.
//!
//! ```text
//!   offset ─▶ piece ─▶ linear:  part, offset
//!                   ─▶ striped: (offset / stripe) mod legs ─▶ leg, (offset / stripe) / legs
//!   offset ─▶ run of blocks ─▶ (QNAP: tier, block) ─▶ offset in the pool's data ─▶ piece ─▶ ...
//! ```

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// The place of a byte of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteLocation {
    /// The byte is on a part of the group.
    On {
        /// Index of the part.
        part: usize,
        /// The byte's offset from the start of the part's device.
        offset_bytes: u64,
    },
    /// The byte was never written, so it reads as zero.
    Zero,
    /// The byte is on a missing part, or at an unknown place.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) part: usize,
    pub(crate) offset_bytes: u64,
    pub(crate) is_lost: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Linear(Leg),
    /// The piece is striped over `legs`. It begins `skip_bytes` after the start of a whole row of
    /// stripes.
    Striped {
        stripe_bytes: u64,
        skip_bytes: u64,
        legs: Arc<[Leg]>,
    },
    Zero,
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) rule: Rule,
}

impl Piece {
    fn end_bytes(&self) -> u64 {
        self.start_bytes.saturating_add(self.length_bytes)
    }

    /// The place of the byte `skip` bytes after the piece's start, and the number of consecutive
    /// bytes from that place on.
    fn at(&self, skip: u64) -> (ByteLocation, u64) {
        let left = self.length_bytes.saturating_sub(skip);
        let on = |leg: &Leg, more: u64| match (leg.is_lost, leg.offset_bytes.checked_add(more)) {
            (false, Some(offset_bytes)) => ByteLocation::On { part: leg.part, offset_bytes },
            _ => ByteLocation::Lost,
        };
        match &self.rule {
            Rule::Linear(leg) => (on(leg, skip), left),
            Rule::Striped { stripe_bytes, skip_bytes, legs } => {
                let at = skip.saturating_add(*skip_bytes);
                let (stripe, within) =
                    (at.checked_div(*stripe_bytes), at.checked_rem(*stripe_bytes));
                let count = legs.len() as u64;
                let place = || {
                    let (stripe, within) = (stripe?, within?);
                    let leg = usize::try_from(stripe.checked_rem(count)?).ok()?;
                    let more = stripe
                        .checked_div(count)?
                        .checked_mul(*stripe_bytes)?
                        .checked_add(within)?;
                    Some((on(legs.get(leg)?, more), stripe_bytes.saturating_sub(within).min(left)))
                };
                place().unwrap_or((ByteLocation::Lost, left))
            }
            Rule::Zero => (ByteLocation::Zero, left),
            Rule::Lost => (ByteLocation::Lost, left),
        }
    }

    /// The rule for a part of the piece: `length_bytes` after the first `skip`.
    pub(crate) fn cut(&self, skip: u64, length_bytes: u64) -> Rule {
        debug_assert!(skip.saturating_add(length_bytes) <= self.length_bytes, "it has so many");
        match &self.rule {
            Rule::Linear(leg) => {
                let offset_bytes = leg.offset_bytes.saturating_add(skip);
                Rule::Linear(Leg { offset_bytes, ..*leg })
            }
            Rule::Striped { stripe_bytes, skip_bytes, legs } => Rule::Striped {
                stripe_bytes: *stripe_bytes,
                skip_bytes: skip_bytes.saturating_add(skip),
                legs: Arc::clone(legs),
            },
            Rule::Zero => Rule::Zero,
            Rule::Lost => Rule::Lost,
        }
    }
}

/// A run of blocks that are consecutive both in the volume and in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) block: u64,
    pub(crate) count: u64,
    /// The first block in the pool; `None` if the run is lost.
    pub(crate) to: Option<u64>,
}

/// The run that contains a block, and the block's offset in the run. If no run contains the block,
/// the number of blocks up to the next run.
pub(crate) fn run_at(runs: &[Run], block: u64) -> Result<(Run, u64), u64> {
    let after = runs.partition_point(|run| run.block <= block);
    let before = after.checked_sub(1).and_then(|index| runs.get(index));
    if let Some(run) = before {
        let skip = block.saturating_sub(run.block);
        if skip < run.count {
            return Ok((*run, skip));
        }
    }
    let next = runs.get(after).map_or(u64::MAX, |run| run.block);
    Err(next.saturating_sub(block))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PoolData {
    /// The data is in one volume.
    Plain(Map),
    /// The data is in several volumes, as with QNAP: each block of the pool has a tier and a block
    /// in that tier.
    Tiered { block_bytes: u64, runs: [Vec<Run>; 8], tiers: Vec<Option<Map>> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThinMap {
    pub(crate) block_bytes: u64,
    pub(crate) runs: Vec<Run>,
    /// The blocks that were looked up and that the runs cover.
    pub(crate) known: Range<u64>,
    pub(crate) data: Arc<PoolData>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MapKind {
    Pieces(Vec<Piece>),
    Thin(Box<ThinMap>),
}

/// The map of a volume: the place of each byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    size_bytes: u64,
    kind: MapKind,
}

impl Map {
    /// The map of a volume that consists of consecutive pieces.
    pub(crate) fn of_pieces(pieces: Vec<Piece>) -> Self {
        let size_bytes = pieces.last().map_or(0, Piece::end_bytes);
        Self { size_bytes, kind: MapKind::Pieces(pieces) }
    }

    pub(crate) fn of_thin(size_bytes: u64, thin: ThinMap) -> Self {
        Self { size_bytes, kind: MapKind::Thin(Box::new(thin)) }
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        match &self.kind {
            MapKind::Pieces(pieces) => pieces,
            MapKind::Thin(_) => &[],
        }
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether this is a thin volume, whose bytes have no fixed place until they are written.
    #[must_use]
    pub fn is_thin(&self) -> bool {
        matches!(self.kind, MapKind::Thin(_))
    }

    /// The place of a byte, and the number of consecutive bytes from that place on. `None` beyond
    /// the end.
    #[must_use]
    pub fn at(&self, offset: u64) -> Option<(ByteLocation, u64)> {
        let left = self.size_bytes.checked_sub(offset).filter(|left| *left > 0)?;
        let (location, length) = match &self.kind {
            MapKind::Pieces(pieces) => {
                let index = pieces.partition_point(|piece| piece.end_bytes() <= offset);
                let piece = pieces.get(index)?;
                piece.at(offset.saturating_sub(piece.start_bytes))
            }
            MapKind::Thin(thin) => thin.at(offset)?,
        };
        Some((location, length.clamp(1, left)))
    }

    /// The parts on which the volume (or the pool of a thin volume) is, and the missing parts among
    /// them.
    #[must_use]
    pub fn parts(&self) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let mut found = (BTreeSet::new(), BTreeSet::new());
        self.add_parts(&mut found);
        found
    }

    fn add_parts(&self, found: &mut (BTreeSet<usize>, BTreeSet<usize>)) {
        let mut add = |leg: &Leg| {
            found.0.insert(leg.part);
            if leg.is_lost {
                found.1.insert(leg.part);
            }
        };
        match &self.kind {
            MapKind::Pieces(pieces) => pieces.iter().for_each(|piece| match &piece.rule {
                Rule::Linear(leg) => add(leg),
                Rule::Striped { legs, .. } => legs.iter().for_each(&mut add),
                Rule::Zero | Rule::Lost => {}
            }),
            MapKind::Thin(thin) => match &*thin.data {
                PoolData::Plain(map) => map.add_parts(found),
                PoolData::Tiered { tiers, .. } => {
                    tiers.iter().flatten().for_each(|map| map.add_parts(found));
                }
            },
        }
    }

    /// Reads bytes, one contiguous run after the other; `None` if any byte is lost or cannot be
    /// read.
    pub fn read(
        &self,
        offset: u64,
        length: usize,
        read: &mut dyn FnMut(usize, u64, usize) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let left = length.saturating_sub(bytes.len());
            let (location, run) = self.at(offset.checked_add(bytes.len() as u64)?)?;
            let count = usize::try_from(run).unwrap_or(left).min(left);
            match location {
                ByteLocation::On { part, offset_bytes } => {
                    let piece =
                        read(part, offset_bytes, count).filter(|piece| piece.len() == count);
                    bytes.extend(piece?);
                }
                ByteLocation::Zero => bytes.resize(bytes.len().saturating_add(count), 0),
                ByteLocation::Lost => return None,
            }
        }
        Some(bytes)
    }
}

impl ThinMap {
    fn at(&self, offset: u64) -> Option<(ByteLocation, u64)> {
        let (block, within) =
            (offset.checked_div(self.block_bytes)?, offset.checked_rem(self.block_bytes)?);
        if !self.known.contains(&block) {
            return Some((ByteLocation::Lost, self.block_bytes.saturating_sub(within)));
        }
        let bytes = |blocks: u64| blocks.saturating_mul(self.block_bytes).saturating_sub(within);
        Some(match run_at(&self.runs, block) {
            Err(free) => {
                let free = free.min(self.known.end.saturating_sub(block));
                (ByteLocation::Zero, bytes(free))
            }
            Ok((run, skip)) => {
                let length = bytes(run.count.saturating_sub(skip));
                let to = run.to.and_then(|to| to.checked_add(skip)?.checked_mul(self.block_bytes));
                let place = to.and_then(|to| self.data.at(to.checked_add(within)?));
                place.map_or((ByteLocation::Lost, length), |(location, run)| {
                    (location, run.min(length))
                })
            }
        })
    }
}

impl PoolData {
    fn at(&self, offset: u64) -> Option<(ByteLocation, u64)> {
        match self {
            Self::Plain(map) => map.at(offset),
            Self::Tiered { block_bytes, runs, tiers } => {
                let (block, within) =
                    (offset.checked_div(*block_bytes)?, offset.checked_rem(*block_bytes)?);
                runs.iter().zip(tiers).find_map(|(runs, map)| {
                    let (run, skip) = run_at(runs, block).ok()?;
                    let length = run
                        .count
                        .saturating_sub(skip)
                        .saturating_mul(*block_bytes)
                        .saturating_sub(within);
                    let to = run
                        .to?
                        .checked_add(skip)?
                        .checked_mul(*block_bytes)?
                        .checked_add(within)?;
                    let (location, run) = map.as_ref()?.at(to)?;
                    Some((location, run.min(length)))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(part: usize, offset_bytes: u64) -> Leg {
        Leg { part, offset_bytes, is_lost: false }
    }

    fn on(part: usize, offset_bytes: u64) -> ByteLocation {
        ByteLocation::On { part, offset_bytes }
    }

    fn pieces() -> Map {
        let legs = Arc::from([leg(0, 1000), leg(1, 2000), leg(2, 3000)]);
        let striped = Rule::Striped { stripe_bytes: 10, skip_bytes: 0, legs };
        let piece = |start_bytes, length_bytes, rule| Piece { start_bytes, length_bytes, rule };
        Map::of_pieces(vec![
            piece(0, 60, striped),
            piece(60, 40, Rule::Linear(leg(1, 5000))),
            piece(100, 10, Rule::Lost),
        ])
    }

    #[test]
    fn stripes_go_round_and_pieces_follow_each_other() {
        let map = pieces();
        assert_eq!(map.size_bytes(), 110);
        for (offset, expected) in [
            (0, (on(0, 1000), 10)),
            (13, (on(1, 2003), 7)),
            (29, (on(2, 3009), 1)),
            (30, (on(0, 1010), 10)),
            (59, (on(2, 3019), 1)),
            (60, (on(1, 5000), 40)),
            (99, (on(1, 5039), 1)),
            (100, (ByteLocation::Lost, 10)),
        ] {
            assert_eq!(map.at(offset), Some(expected), "{offset}");
        }
        assert_eq!((map.at(110), map.at(u64::MAX)), (None, None));
        assert_eq!(map.parts().0, BTreeSet::from([0, 1, 2]));
        // A map cut in the middle of a stripe gives the same bytes.
        let cut = Map::of_pieces(vec![Piece {
            start_bytes: 0,
            length_bytes: 40,
            rule: map.pieces()[0].cut(13, 40),
        }]);
        for offset in 0..40 {
            assert_eq!(
                cut.at(offset).map(|it| it.0),
                map.at(offset + 13).map(|it| it.0),
                "{offset}"
            );
        }
    }

    #[test]
    fn thin_blocks_are_where_their_runs_say_or_zero_or_lost() {
        let runs = vec![
            Run { block: 1, count: 2, to: Some(0) },
            Run { block: 5, count: 1, to: None },
            Run { block: 6, count: 1, to: Some(99) },
        ];
        let data = Arc::new(PoolData::Plain(pieces()));
        let thin = ThinMap { block_bytes: 20, runs, known: 0..8, data };
        let map = Map::of_thin(200, thin);
        for (offset, expected) in [
            (0, (ByteLocation::Zero, 20)),
            (25, (on(0, 1005), 5)),
            (45, (on(2, 3005), 5)),
            (59, (on(0, 1019), 1)),
            (60, (ByteLocation::Zero, 40)),
            (100, (ByteLocation::Lost, 20)),
            (120, (ByteLocation::Lost, 20)),
            (140, (ByteLocation::Zero, 20)),
            // These blocks were not looked up.
            (160, (ByteLocation::Lost, 20)),
        ] {
            assert_eq!(map.at(offset), Some(expected), "{offset}");
        }
        assert_eq!(map.at(200), None);
    }

    #[test]
    fn blocks_of_a_tier_are_on_its_volume() {
        let of_tier = |part| {
            Map::of_pieces(vec![Piece {
                start_bytes: 0,
                length_bytes: 400,
                rule: Rule::Linear(leg(part, 0)),
            }])
        };
        let mut runs: [Vec<Run>; 8] = std::array::from_fn(|_| Vec::new());
        runs[0].push(Run { block: 0, count: 1, to: Some(3) });
        runs[2].push(Run { block: 1, count: 1, to: Some(0) });
        let data = PoolData::Tiered {
            block_bytes: 40,
            runs,
            tiers: vec![Some(of_tier(7)), None, Some(of_tier(9))],
        };
        let runs = vec![Run { block: 0, count: 4, to: Some(0) }];
        let thin = ThinMap { block_bytes: 20, runs, known: 0..8, data: Arc::new(data) };
        let map = Map::of_thin(120, thin);
        assert_eq!(map.at(5), Some((on(7, 125), 35)));
        assert_eq!(map.at(40), Some((on(9, 0), 40)));
        assert_eq!(map.at(80), Some((ByteLocation::Zero, 40)));
    }
}
