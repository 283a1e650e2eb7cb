//! Turns an entry of a log into runs of sectors on every member, with the columns being written.
//!
//! Entries come from a disk: each number is a claim about the array, and is checked here first.
//!
//! ```text
//!   partial parity less than a chunk   as much of each of some neighbouring chunks of a row;
//!                                      none: of all
//!   partial parity of a chunk          the range from the first sector on; sector i of partial
//!                                      parity is about sectors i, i + chunk, ... of the range:
//!                                      it begins where the range does and goes round
//! ```

use std::ops::Range;

use braid_geometry::{ChunkRow, LogicalSector, SECTOR_BYTES, Slot, StripeGeometry};
use braid_ondisk::PplEntry;

/// A data column of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The column's slot.
    pub slot: Slot,
    /// Whether the interrupted write covers the column.
    pub is_written: bool,
}

/// Sectors of rows whose write covers the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The sectors, on every member, from the start of its data.
    pub sectors: Range<u64>,
    /// The slot of the part's parity.
    pub parity: Slot,
    /// Whether the part's parity is Q, not P.
    pub is_q: bool,
    /// All data columns, in the order of the array.
    pub columns: Vec<Column>,
    /// Where the part begins in the partial parity of its entry, in sectors; `None` if the write
    /// covers every column.
    pub partial_sector: Option<u64>,
    /// The place of the part's entry in the header.
    pub entry: u32,
}

impl Part {
    /// The part of `self` that has only `sectors`, which count from the first sector of `self`.
    pub(super) fn some(&self, sectors: Range<u64>) -> Self {
        let Range { start, end } = sectors;
        let sectors = self.sectors.start + start..self.sectors.start + end;
        let partial_sector = self.partial_sector.map(|sector| sector + start);
        Self { sectors, partial_sector, ..self.clone() }
    }
}

/// An error in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The entry's two sizes do not fit each other, or the array's chunks.
    #[error(
        "{data_bytes} bytes of data with {parity_bytes} of partial parity are no part of a row"
    )]
    Sizes {
        /// Bytes of data.
        data_bytes: u32,
        /// Bytes of partial parity.
        parity_bytes: u32,
    },
    /// The entry's range is not in one row of the array.
    #[error("its range from sector {data_sector} on is not in one row of the array")]
    Range {
        /// First sector of the range, in the array.
        data_sector: u64,
    },
    /// The entry's parity slot has no parity of the entry's row, or the log belongs to another
    /// member.
    #[error("it is about parity of slot {claimed}, and its row has it in slot {expected}")]
    ParitySlot {
        /// P's slot by the entry.
        claimed: u32,
        /// P's slot in the array.
        expected: u16,
    },
}

/// The range of an entry: sectors i, i + chunk, ... below `end`, for i below `height`.
struct Shape {
    first: u64,
    chunks: u64,
    height: u64,
    end: u64,
}

impl Shape {
    fn of(geometry: &StripeGeometry, entry: &PplEntry) -> Option<Self> {
        let (chunk, data_slots) = (chunk_sectors(geometry), u64::from(geometry.data_slots()));
        let partial = u64::from(entry.parity_bytes) / SECTOR_BYTES;
        let data = u64::from(entry.data_bytes) / SECTOR_BYTES;
        let first = entry.data_sector;
        if partial >= chunk {
            let is_one = partial == chunk && data > 0 && data <= chunk * data_slots;
            let shape = Self { first, chunks: data_slots, height: chunk, end: first + data };
            return is_one.then_some(shape);
        }
        let chunks = data.checked_div(partial).unwrap_or(data_slots);
        let height = if partial > 0 { partial } else { data / data_slots };
        let is_part = chunks > 0 && chunks <= data_slots && height > 0 && height <= chunk;
        if !is_part || height * chunks != data {
            return None;
        }
        Some(Self { first, chunks, height, end: first + (chunks - 1) * chunk + height })
    }

    /// Sectors into the partial parity at which the columns change, or the range wraps round.
    fn next_border(&self, at: u64, chunk: u64) -> u64 {
        let round = chunk - self.first % chunk;
        let ends = (0..self.chunks).map(|one| self.end.saturating_sub(self.first + one * chunk));
        let borders = ends.chain([round, self.height]);
        borders.filter(|border| *border > at).min().unwrap_or(self.height).min(self.height)
    }
}

fn chunk_sectors(geometry: &StripeGeometry) -> u64 {
    u64::from(geometry.chunk_sectors())
}

/// The parts of an entry in the log of `log_slot`; `index` is the entry's place in the header.
///
/// # Errors
/// If the array cannot have this entry.
pub fn parts(
    geometry: &StripeGeometry,
    log_slot: Slot,
    (index, entry): (u32, &PplEntry),
) -> Result<Vec<Part>, EntryError> {
    let (data_bytes, parity_bytes) = (entry.data_bytes, entry.parity_bytes);
    let shape = Shape::of(geometry, entry);
    let shape = shape.ok_or(EntryError::Sizes { data_bytes, parity_bytes })?;
    let row = row_of(geometry, &shape);
    let row = row.ok_or(EntryError::Range { data_sector: entry.data_sector })?;
    let map = geometry.row_map(row);
    let parities = [Some(map.p_slot()), map.q_slot()];
    let parity = log_slot;
    if u32::from(parity.0) != entry.parity_slot || !parities.contains(&Some(parity)) {
        let (claimed, expected) = (entry.parity_slot, map.p_slot().0);
        return Err(EntryError::ParitySlot { claimed, expected });
    }
    let is_q = parity != map.p_slot();
    let chunk = chunk_sectors(geometry);
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < shape.height {
        let border = shape.next_border(at, chunk);
        let columns = columns(geometry, row, &shape, at);
        let is_all = columns.iter().all(|column| column.is_written);
        if parity_bytes == 0 && !is_all {
            return Err(EntryError::Sizes { data_bytes, parity_bytes });
        }
        if columns.iter().any(|column| column.is_written) {
            let start = geometry.row_start(row).0 + (shape.first + at) % chunk;
            let sectors = start..start + (border - at);
            let partial_sector = (parity_bytes > 0).then_some(at);
            parts.push(Part { sectors, parity, is_q, columns, partial_sector, entry: index });
        }
        at = border;
    }
    Ok(parts)
}

/// The row of the range; `None` if the range is not in one row.
fn row_of(geometry: &StripeGeometry, shape: &Shape) -> Option<ChunkRow> {
    if shape.end > geometry.capacity_sectors() {
        return None;
    }
    let row = |sector: u64| geometry.locate(LogicalSector(sector)).row;
    (row(shape.first) == row(shape.end - 1)).then(|| row(shape.first))
}

/// The columns of a row, and whether the write covers each at a sector of the partial parity.
fn columns(geometry: &StripeGeometry, row: ChunkRow, shape: &Shape, at: u64) -> Vec<Column> {
    let chunk = chunk_sectors(geometry);
    let sectors = (0..shape.chunks).map(|one| shape.first + at + one * chunk);
    let inside = sectors.filter(|sector| *sector < shape.end);
    let written: Vec<u16> =
        inside.map(|sector| geometry.locate(LogicalSector(sector)).data_index).collect();
    let map = geometry.row_map(row);
    let column =
        |index| Column { slot: map.data_slot(index), is_written: written.contains(&index) };
    (0..geometry.data_slots()).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Geometry, Level, Shape as ArrayShape};

    /// Four slots, chunks of 32 sectors, left-symmetric: row 0 has parity on slot 3.
    fn geometry() -> StripeGeometry {
        let shape = ArrayShape {
            level: Level::Raid5,
            layout: 2,
            chunk_sectors: 32,
            slots: 4,
            member_sectors: vec![320; 4],
        };
        match Geometry::new(&shape) {
            Ok(Geometry::Stripe(stripe)) => stripe,
            other => panic!("{other:?}"),
        }
    }

    fn entry(data_sector: u64, data: u32, partial: u32, parity_slot: u32) -> PplEntry {
        let (data_bytes, parity_bytes) = (data * 512, partial * 512);
        PplEntry { data_sector, parity_bytes, data_bytes, parity_slot, checksum: 0 }
    }

    fn of(entry: &PplEntry) -> Result<Vec<Part>, EntryError> {
        let slot = Slot(u16::try_from(entry.parity_slot).unwrap());
        parts(&geometry(), slot, (0, entry))
    }

    /// For each part of the entry: its sectors, the columns that are written, and the place of
    /// their partial parity.
    fn told(entry: &PplEntry) -> Vec<(Range<u64>, String, Option<u64>)> {
        let word = |column: &Column| if column.is_written { 'w' } else { '-' };
        let one = |part: Part| {
            (part.sectors, part.columns.iter().map(word).collect(), part.partial_sector)
        };
        of(entry).unwrap().into_iter().map(one).collect()
    }

    #[test]
    fn md_writes_three_kinds_of_entries() {
        // Writes of a part of one chunk, of two, of all chunks; of a whole chunk, and of two.
        assert_eq!(told(&entry(40, 8, 8, 3)), [(8..16, "-w-".into(), Some(0))]);
        assert_eq!(told(&entry(8, 48, 24, 3)), [(8..32, "ww-".into(), Some(0))]);
        assert_eq!(told(&entry(8, 72, 0, 3)), [(8..32, "www".into(), None)]);
        assert_eq!(told(&entry(0, 96, 0, 3)), [(0..32, "www".into(), None)]);
        assert_eq!(told(&entry(32, 32, 32, 3)), [(0..32, "-w-".into(), Some(0))]);
        assert_eq!(told(&entry(32, 64, 32, 3)), [(0..32, "-ww".into(), Some(0))]);
        // The second row has parity in slot 2, and data from slot 3 on.
        assert_eq!(told(&entry(96 + 40, 8, 8, 2)), [(40..48, "-w-".into(), Some(0))]);
        let parts = of(&entry(96, 8, 8, 2)).unwrap();
        let slots: Vec<u16> = parts[0].columns.iter().map(|column| column.slot.0).collect();
        assert_eq!((parts[0].parity, slots), (Slot(2), vec![3, 0, 1]));
    }

    #[test]
    fn ranges_that_others_write_go_round() {
        // md's third case: a write from the middle of the first chunk to the middle of the last
        // one.
        let third = [
            (16..24, "www".into(), Some(0)),
            (24..32, "ww-".into(), Some(8)),
            (0..16, "-ww".into(), Some(16)),
        ];
        assert_eq!(told(&entry(16, 72, 32, 3)), third);
        // md's fourth case: a write of the end of one chunk, and the beginning of the next.
        let fourth = [(24..32, "w--".into(), Some(0)), (0..8, "-w-".into(), Some(8))];
        assert_eq!(told(&entry(24, 16, 32, 3)), fourth);
    }

    #[test]
    fn entries_that_the_array_cannot_have_are_refused() {
        let range = |data_sector| Err(EntryError::Range { data_sector });
        let sizes = |data: u32, partial: u32| {
            Err(EntryError::Sizes { data_bytes: data * 512, parity_bytes: partial * 512 })
        };
        // Ranges over two rows, after the array's end, and beyond the range of the numbers.
        assert_eq!(of(&entry(64, 48, 24, 3)), range(64));
        assert_eq!(of(&entry(960, 8, 8, 3)), range(960));
        assert_eq!(of(&entry(956, 8, 8, 1)), range(956));
        assert_eq!(of(&entry(1 << 54, 8, 8, 3)), range(1 << 54));
        // Entries without data, with parity that does not divide the data, with too many chunks,
        // with more parity than a chunk.
        for (data, partial) in
            [(0, 0), (0, 8), (12, 8), (32, 8), (4, 8), (40, 40), (99, 0), (95, 0)]
        {
            assert_eq!(of(&entry(0, data, partial, 3)), sizes(data, partial));
        }
        let other = Err(EntryError::ParitySlot { claimed: 2, expected: 3 });
        assert_eq!(of(&entry(0, 8, 8, 2)), other);
        let strange = parts(&geometry(), Slot(1), (0, &entry(0, 8, 8, 3)));
        assert_eq!(strange, Err(EntryError::ParitySlot { claimed: 3, expected: 3 }));
    }
}
