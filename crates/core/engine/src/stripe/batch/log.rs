//! A batch's entries in the logs of its parity members, durable before the batch is written.
//!
//! On RAID-6 each entry exists twice, for P and for Q.
//!
//! An entry names sectors of some columns that are consecutive in the array, and spans as many
//! sectors of their rows. The other columns of those rows are kept, and the sum of the kept columns
//! is the partial parity ([`crate::replay`] has the algebra). So rows are logged in runs in which
//! the same columns are written:
//!
//! ```text
//!   column 0   ....wwww   rows 0..4: column 1         entry 1: column 1, partial parity of 0 and 2
//!   column 1   wwww....   rows 4..8: columns 0 and 2  no entry can name both: not in one batch
//!   column 2   ....wwww
//! ```
//!
//! - Entries can express any single write [check: one_write_is_always_said].
//! - Entries name exactly the written sectors [check: entries_name_what_is_written].

use braid_geometry::{RowMap, SECTOR_BYTES, Slot, StripeGeometry};
use braid_ondisk::PplEntry;

use super::super::band::Band;
use crate::sectors::{Extent, SectorSet};

/// The state of a batch's log entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum LogState {
    /// The batch needs no entries.
    #[default]
    Needless,
    /// The entries are ready to be submitted.
    Due,
    Asked,
    Durable,
}

/// The members that log a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToLog<'a> {
    pub(super) geometry: &'a StripeGeometry,
    /// The member with P logs the batch.
    pub(super) p: bool,
    /// The member with Q, in this slot, logs the batch.
    pub(super) q: Option<Slot>,
}

/// A run of rows of a band in which the same columns are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) extent: Extent,
    first: u16,
    count: u16,
}

impl Rows {
    /// Whether a data column is written in these rows.
    pub(super) fn writes(&self, index: u16) -> bool {
        (self.first..self.first + self.count).contains(&index)
    }

    /// The log entry for these rows and a parity's slot. It has no partial parity if all columns
    /// are written.
    pub(super) fn entry(
        &self,
        (geometry, band, map): (&StripeGeometry, &Band, &RowMap),
        parity_slot: Slot,
    ) -> PplEntry {
        let is_parity = [Some(map.p_slot()), map.q_slot()].contains(&Some(parity_slot));
        assert!(is_parity, "an entry is about parity of its rows");
        let bytes = |sectors: u32| {
            u32::try_from(u64::from(sectors) * SECTOR_BYTES).expect("a stripe unit is small")
        };
        let is_all = self.count == geometry.data_slots();
        let parity = if is_all { 0 } else { self.extent.sectors };
        PplEntry {
            data_sector: band.logical(geometry, self.first, self.extent.offset).0,
            parity_bytes: bytes(parity),
            data_bytes: bytes(self.extent.sectors * u32::from(self.count)),
            parity_slot: u32::from(parity_slot.0),
            checksum: 0,
        }
    }
}

/// Whether in every row the written columns are adjacent, so that entries can name them. `touched`
/// holds the written sectors of each data column.
pub(super) fn can_be_said(touched: impl Iterator<Item = SectorSet>) -> bool {
    let (mut seen, mut ended) = (SectorSet::EMPTY, SectorSet::EMPTY);
    for column in touched {
        ended = ended.union(seen.without(column));
        let has_gap = ended.meets(column);
        if has_gap {
            return false;
        }
        seen = seen.union(column);
    }
    true
}

/// The runs of rows that the log gets entries for.
pub(super) fn rows(touched: &[SectorSet]) -> Vec<Rows> {
    let all = touched.iter().fold(SectorSet::EMPTY, |all, column| all.union(*column));
    let edges = touched.iter().flat_map(|column| column.extents());
    let mut edges: Vec<u32> = edges.flat_map(|extent| [extent.offset, extent.end()]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut rows = Vec::new();
    for pair in edges.windows(2) {
        let extent = Extent { offset: pair[0], sectors: pair[1] - pair[0] };
        if !all.contains(extent.set()) {
            continue;
        }
        let is_written = |column: &SectorSet| column.meets(extent.set());
        let index = |index: usize| u16::try_from(index).expect("slots are numbered by u16");
        let first = touched.iter().position(is_written).expect("some column is");
        let last = touched.iter().rposition(is_written).expect("some column is");
        rows.push(Rows { extent, first: index(first), count: index(last + 1 - first) });
    }
    rows
}

#[cfg(test)]
mod tests {
    use braid_geometry::MemberSector;

    use super::*;
    use crate::replay::parts;
    use crate::stripe::tests::geometry;

    const UNIT: u32 = 16;

    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    /// The sectors of a band that one write touches, by column: the write goes from some chunk to a
    /// later one.
    fn one_write(random: &mut impl FnMut(u64) -> u64, columns: usize) -> Vec<SectorSet> {
        let total = u64::from(UNIT) * columns as u64;
        let start = random(total);
        let end = start + 1 + random(total - start);
        let column = |index: usize| {
            let own = u64::from(UNIT) * index as u64;
            let (from, to) = (start.max(own), end.min(own + u64::from(UNIT)));
            let number = |n: u64| u32::try_from(n).unwrap();
            match from < to {
                true => SectorSet::run(number(from - own), number(to - from)),
                false => SectorSet::EMPTY,
            }
        };
        (0..columns).map(column).collect()
    }

    #[test]
    fn one_write_is_always_said() {
        let mut random = numbers(1);
        for _ in 0..10_000 {
            let touched = one_write(&mut random, 4);
            assert!(can_be_said(touched.iter().copied()), "{touched:?}");
        }
        let (first, last) = (SectorSet::run(0, 4), SectorSet::run(2, 4));
        assert!(!can_be_said([first, SectorSet::EMPTY, last].into_iter()), "rows 2 and 3");
        let last = SectorSet::run(4, 4);
        assert!(can_be_said([first, SectorSet::EMPTY, last].into_iter()), "no row has both");
    }

    /// Entries name exactly the written sectors if the replay reads them.
    #[test]
    fn entries_name_what_is_written() {
        let mut random = numbers(2);
        let geometry = geometry(5, 64, 4);
        let mut said = 0;
        for _ in 0..10_000 {
            let mut touched = one_write(&mut random, 4);
            for _ in 0..random(3) {
                let more = one_write(&mut random, 4);
                touched.iter_mut().zip(more).for_each(|(one, more)| *one = one.union(more));
            }
            if !can_be_said(touched.iter().copied()) {
                continue;
            }
            said += 1;
            let start = random(16) * u64::from(UNIT);
            let band = Band::at(&geometry, UNIT, MemberSector(start));
            let map = geometry.row_map(band.row);
            let mut found = vec![SectorSet::EMPTY; 4];
            for rows in rows(&touched) {
                let entry = rows.entry((&geometry, &band, &map), map.p_slot());
                let slot = Slot(u16::try_from(entry.parity_slot).unwrap());
                for part in parts(&geometry, slot, (0, &entry)).expect("the array can have it") {
                    assert_eq!(part.partial_sector, (entry.parity_bytes > 0).then_some(0));
                    let offset = u32::try_from(part.sectors.start - start).unwrap();
                    let sectors = u32::try_from(part.sectors.end - part.sectors.start).unwrap();
                    let run = SectorSet::run(offset, sectors);
                    for (found, column) in found.iter_mut().zip(&part.columns) {
                        if column.is_written {
                            assert!(!found.meets(run), "once");
                            *found = found.union(run);
                        }
                    }
                }
            }
            assert_eq!(found, touched);
        }
        assert!(said > 5_000, "{said}");
    }
}
