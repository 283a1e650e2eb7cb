//! The columns of each row that were logged since members were last flushed.
//!
//! A record's partial parity is computed from the columns that the record does not name, so these
//! columns must be durable. With a flush between two records about the same rows, the newer record
//! is complete. Without a flush the newer one is complete only if both records name the same
//! columns, since the other columns have not changed. Any other record would rely on data that a
//! power cut may still take back.
//!
//! ```text
//!   since the flush   column 0 of rows 0..8      a record of column 0 of rows 4..8: may follow
//!                                                one of column 1 of rows 4..8: after a flush
//! ```
//!
//! # Invariants
//! - Rows are named by one set of columns from one flush to the next
//!   [check: rows_are_logged_anew_with_the_same_columns_or_after_a_flush].

use std::ops::Range;

use braid_geometry::{LogicalSector, SECTOR_BYTES, StripeGeometry};
use braid_ondisk::PplEntry;
use rangemap::RangeMap;

/// A run of columns: its first column, and the number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    first: u16,
    count: u64,
}

/// The logged sectors of members, each with the columns that its records name.
#[derive(Debug, Default)]
pub(super) struct LoggedRows(RangeMap<u64, Columns>);

impl LoggedRows {
    /// Whether an entry can follow the logged entries without a flush.
    pub(super) fn may_follow(&self, geometry: &StripeGeometry, entry: &PplEntry) -> bool {
        let (rows, columns) = rows_of(geometry, entry);
        self.0.overlapping(&rows).all(|(_, named)| *named == columns)
    }

    pub(super) fn add(&mut self, geometry: &StripeGeometry, entry: &PplEntry) {
        let (rows, columns) = rows_of(geometry, entry);
        self.0.insert(rows, columns);
    }

    pub(super) fn are_flushed(&mut self) {
        self.0.clear();
    }
}

/// The rows and columns of an entry that braid made: all its rows have the same columns
/// ([`crate::stripe`]).
fn rows_of(geometry: &StripeGeometry, entry: &PplEntry) -> (Range<u64>, Columns) {
    let sectors = |bytes: u32| u64::from(bytes) / SECTOR_BYTES;
    let (data, partial) = (sectors(entry.data_bytes), sectors(entry.parity_bytes));
    let height = if partial > 0 { partial } else { data / u64::from(geometry.data_slots()) };
    let address = geometry.locate(LogicalSector(entry.data_sector));
    let start = geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
    (start..start + height, Columns { first: address.data_index, count: data / height })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripe::tests::geometry;

    fn entry(data_sector: u64, data: u32, partial: u32) -> PplEntry {
        let (data_bytes, parity_bytes) = (data * 512, partial * 512);
        PplEntry { data_sector, parity_bytes, data_bytes, parity_slot: 0, checksum: 0 }
    }

    #[test]
    fn rows_are_logged_anew_with_the_same_columns_or_after_a_flush() {
        // Chunks of 64 sectors, four chunks of data in a row.
        let geometry = geometry(5, 64, 4);
        let mut rows = LoggedRows::default();
        rows.add(&geometry, &entry(8, 8, 8));
        rows.add(&geometry, &entry(64 + 32, 16, 8));
        let may = |rows: &LoggedRows, entry: PplEntry| rows.may_follow(&geometry, &entry);
        assert!(may(&rows, entry(8, 8, 8)), "the same");
        assert!(may(&rows, entry(12, 4, 4)) && may(&rows, entry(4, 8, 8)), "the same column");
        assert!(may(&rows, entry(16, 8, 8)) && may(&rows, entry(64, 8, 8)), "other rows");
        assert!(may(&rows, entry(256 + 64 + 8, 8, 8)), "another row of chunks");
        assert!(!may(&rows, entry(64 + 8, 8, 8)), "another column");
        assert!(!may(&rows, entry(64 + 15, 1, 1)), "of one row only");
        assert!(!may(&rows, entry(8, 16, 8)) && !may(&rows, entry(8, 32, 0)), "one more, and all");
        assert!(!may(&rows, entry(64 + 32, 8, 8)), "one of two");
        rows.are_flushed();
        assert!(may(&rows, entry(64 + 8, 8, 8)));
    }
}
