//! raid4, raid5 and raid6: chunk rows of data with one or two parities.
//!
//! This file serves the engine's stripe family and all code that walks rows (resync, recovery,
//! check). It finds a sector's row and its place among the row's data; [`RowMap`] gives the slot.
//! It computes no parity.
//!
//! ```text
//!   logical sector s
//!     chunk number  s / chunk            = row * data_slots + data_index
//!     offset        s mod chunk
//!   the row is at member sector row * chunk on every slot
//! ```
//!
//! Invariants: `locate` and `logical` are inverse; rows cover the used part of every slot
//! (`tests/stripe.rs`). md uses whole chunks of a member, and never uses the sectors after the last
//! whole chunk.

use crate::row::Placement;
use crate::shape::capacity;
use crate::units::narrow;
use crate::{ChunkRow, GeometryError, Level, LogicalSector, MemberSector, RowMap, Shape, Slot};

/// The place of a logical sector among the data of a chunk row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripeAddress {
    /// The chunk row that holds the sector.
    pub row: ChunkRow,
    /// The index of the data chunk in its row, below `data_slots`, in the order of the array.
    pub data_index: u16,
    /// Sectors from the chunk's start.
    pub offset_sectors: u32,
}

/// The map of a raid4, raid5 or raid6 array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeGeometry {
    level: Level,
    layout: u32,
    chunk_sectors: u32,
    placement: Placement,
    rows: u64,
    capacity_sectors: u64,
}

impl StripeGeometry {
    pub(crate) fn new(shape: &Shape) -> Result<StripeGeometry, GeometryError> {
        let Shape { level, layout, chunk_sectors, slots, .. } = *shape;
        let placement = Placement::new(level, layout, slots)
            .ok_or(GeometryError::LayoutUnknown { level, layout })?;
        let (sectors, chunk) = (shape.member_sectors[0], u64::from(chunk_sectors));
        let rows = sectors / chunk;
        if rows == 0 {
            return Err(GeometryError::MemberTooSmall { slot: Slot(0), sectors, needed: chunk });
        }
        let data_sectors = u128::from(rows * chunk) * u128::from(placement.data_slots());
        let capacity_sectors = capacity(data_sectors)?;
        Ok(StripeGeometry { level, layout, chunk_sectors, placement, rows, capacity_sectors })
    }

    /// raid4, raid5 or raid6.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// md's layout number; without meaning for raid4.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// Sectors in a chunk: a power of two, at least 8.
    #[must_use]
    pub fn chunk_sectors(&self) -> u32 {
        self.chunk_sectors
    }

    /// Slots of the array.
    #[must_use]
    pub fn slots(&self) -> u16 {
        self.placement.slots()
    }

    /// Data chunks in a row.
    #[must_use]
    pub fn data_slots(&self) -> u16 {
        self.placement.data_slots()
    }

    /// Parity chunks in a row: 1, or 2 for raid6.
    #[must_use]
    pub fn parity_slots(&self) -> u16 {
        self.placement.parity_slots()
    }

    /// Chunk rows of the array.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Sectors that clients see.
    #[must_use]
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    /// Sectors, from sector 0, that rows cover on every slot.
    #[must_use]
    pub fn used_sectors(&self) -> u64 {
        self.rows << self.chunk_shift()
    }

    /// The place of a sector. Panics if the sector is not below the capacity.
    #[must_use]
    pub fn locate(&self, sector: LogicalSector) -> StripeAddress {
        assert!(sector.0 < self.capacity_sectors, "sector {sector} is beyond the array");
        let chunk = sector.0 >> self.chunk_shift();
        let data_slots = u64::from(self.data_slots());
        StripeAddress {
            row: ChunkRow(chunk / data_slots),
            data_index: narrow(chunk % data_slots),
            offset_sectors: self.offset(sector.0),
        }
    }

    /// The sector at this place; the inverse of [`locate`](Self::locate). Panics outside the array.
    #[must_use]
    pub fn logical(&self, row: ChunkRow, data_index: u16, offset_sectors: u32) -> LogicalSector {
        assert!(row.0 < self.rows, "row {row} is beyond the array");
        assert!(data_index < self.data_slots() && offset_sectors < self.chunk_sectors);
        let chunk = row.0 * u64::from(self.data_slots()) + u64::from(data_index);
        LogicalSector((chunk << self.chunk_shift()) + u64::from(offset_sectors))
    }

    /// The roles of the slots in a row. Panics if the row is not below `rows`.
    #[must_use]
    pub fn row_map(&self, row: ChunkRow) -> RowMap {
        assert!(row.0 < self.rows, "row {row} is beyond the array");
        self.placement.row_map(row)
    }

    /// The first member sector of a row, the same on every slot. For row number `rows` the result
    /// is the end of the last row.
    #[must_use]
    pub fn row_start(&self, row: ChunkRow) -> MemberSector {
        assert!(row.0 <= self.rows, "row {row} is beyond the array");
        MemberSector(row.0 << self.chunk_shift())
    }

    /// The row of a member sector. For sectors from `used_sectors` on, the result is `rows` or
    /// more.
    #[must_use]
    pub fn row_of(&self, sector: MemberSector) -> ChunkRow {
        ChunkRow(sector.0 >> self.chunk_shift())
    }

    fn chunk_shift(&self) -> u32 {
        self.chunk_sectors.trailing_zeros()
    }

    #[allow(clippy::cast_possible_truncation, reason = "masked to below the 32-bit chunk")]
    fn offset(&self, sector: u64) -> u32 {
        (sector & u64::from(self.chunk_sectors - 1)) as u32
    }
}
