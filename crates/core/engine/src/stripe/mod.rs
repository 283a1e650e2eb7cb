//! Levels with parity: 4, 5 and 6.
//!
//! Reads go straight from the member into the client's payload ([`read`]). Dirty bytes in the cache
//! are laid over the payload ([`read_dirty`]). Sectors that their member cannot return are solved
//! for from the other members ([`mod@reconstruct`]). Writes go through a *stripe*: the band of one
//! stripe unit's height over all slots. A band has at most one stripe, so all changes of its parity
//! happen in one place, one after the other.
//!
//! Each part has its own fields. [`machine`] passes events and results to the parts:
//!
//! ```text
//!                          ┌─ pool        which stripe a band has, which have memory
//!   piece ──▶ attach ──────┼─ epochs      dirty references: answered, not on the members
//!                 │        └─ scheduler   who begins when; the line for those without memory
//!                 ▼             │ next_ready
//!              stripe ◀─ step ──┘         facts ─▶ decide ─▶ act, of one stripe's batch (`batch`)
//!                 │
//!   read ─────────┴─ read_dirty, reconstruct   reads, while stripes write
//!                    damage               inconsistent bands, lost sectors
//! ```
//!
//! [`plan`] is the arithmetic of which sectors to read, [`column_coverage`] its facts, [`solve`]
//! the equations. All three serve writes and reads. The steps of a write are numbered in
//! docs/write-path.md.

mod attach;
mod band;
mod batch;
mod cached_writes;
mod column_coverage;
mod damage;
mod epochs;
mod in_flight;
mod index;
mod list;
mod machine;
mod orphan_frames;
mod orphans;
mod plan;
mod pool;
mod read;
mod read_dirty;
mod reconstruct;
mod scheduler;
mod solve;

pub use index::Index;
pub(crate) use machine::Stripes;
pub use scheduler::Bypass;

#[cfg(test)]
pub(crate) mod tests {
    use braid_geometry::{Geometry, Level, LogicalSector, Shape, StripeGeometry};

    use crate::request::{Operation, Piece, RequestId};

    /// A piece that writes `sectors` sectors from `start` on.
    pub(super) fn write_piece(start: u64, sectors: u32) -> Piece {
        Piece {
            request: RequestId(1),
            operation: Operation::Write { durable: false },
            start: LogicalSector(start),
            sectors,
            payload_offset_sectors: 0,
        }
    }

    /// RAID-5 in md's usual layout.
    pub(crate) fn geometry(slots: u16, chunk_sectors: u32, rows: u64) -> StripeGeometry {
        let shape = Shape::uniform(
            Level::Raid5,
            braid_geometry::default_layout(Level::Raid5),
            chunk_sectors,
            slots,
            rows * u64::from(chunk_sectors),
        );
        match Geometry::new(&shape).expect("a plain shape") {
            Geometry::Stripe(geometry) => geometry,
            other => unreachable!("{other:?}"),
        }
    }
}
