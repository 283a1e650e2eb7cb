//! Cutting a request into pieces, each inside one region, each region owned by one shard.
//!
//! A region is a run of about a mebibyte of the array: for the stripe family a whole number of
//! chunk rows, so that a stripe never has two owners; for the others a plain run of sectors.

use braid_geometry::{Geometry, LogicalSector};
use braid_sim_hooks::{Bug, Point, sometimes, spoiled};

use super::operation::{Operation, Request};
use crate::ids::{RequestId, ShardIndex};

/// Sectors of a region, about: the next region belongs to the next shard.
const REGION_SECTORS: u64 = 2048;

/// A part of a request, inside one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The request.
    pub request: RequestId,
    /// The operation.
    pub operation: Operation,
    /// First sector.
    pub start: LogicalSector,
    /// Number of sectors, at least one.
    pub sectors: u32,
    /// Offset of this piece in the request's payload.
    pub payload_offset_sectors: u32,
}

/// The distribution of the array's sectors over shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    sectors: u64,
    shards: u16,
}

impl Regions {
    /// The distribution for `geometry` over `shards` shards.
    ///
    /// # Panics
    /// If `shards` is zero.
    #[must_use]
    pub fn new(geometry: &Geometry, shards: u16) -> Self {
        assert!(shards > 0, "an array has at least one shard");
        let least = if sometimes(Point::SmallRegions) { 8 } else { REGION_SECTORS };
        let sectors = match geometry {
            Geometry::Stripe(stripe) => {
                let row = u64::from(stripe.data_slots()) * u64::from(geometry.chunk_sectors());
                row * least.div_ceil(row)
            }
            Geometry::Direct(_) | Geometry::Mirror(_) => least,
        };
        Self { sectors, shards }
    }

    /// The shard that owns a sector.
    #[must_use]
    pub fn shard_of(&self, sector: LogicalSector) -> ShardIndex {
        let index = (sector.0 / self.sectors) % u64::from(self.shards);
        ShardIndex(u16::try_from(index).expect("below the number of shards, which is a u16"))
    }

    /// Number of sectors from `sector` to the end of its region.
    #[must_use]
    pub fn left_in_region(&self, sector: LogicalSector) -> u64 {
        self.sectors - sector.0 % self.sectors
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// The pieces of `request`, in ascending order of sectors.
    #[must_use]
    pub fn split(&self, request: &Request) -> Split {
        Split { regions: *self, request: *request, done_sectors: 0 }
    }
}

/// An iterator over the pieces of a request, each with its shard.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    regions: Regions,
    request: Request,
    done_sectors: u64,
}

impl Split {
    /// The request that is being split.
    #[must_use]
    pub fn request(&self) -> Request {
        self.request
    }
}

impl Iterator for Split {
    type Item = (ShardIndex, Piece);

    fn next(&mut self) -> Option<Self::Item> {
        assert!(self.done_sectors <= self.request.sectors, "pieces lie in their request");
        let left = self.request.sectors - self.done_sectors;
        if left == 0 {
            return None;
        }
        let start = LogicalSector(self.request.start.0 + self.done_sectors);
        let sectors = left.min(self.regions.sectors - start.0 % self.regions.sectors);
        // An operation without a payload may be longer than 2^32 sectors, but never uses the
        // offset.
        let payload_offset_sectors = u32::try_from(self.done_sectors).unwrap_or(u32::MAX);
        let payload_offset_sectors = spoiled(Bug::PieceFromStart, payload_offset_sectors, 0);
        let piece = Piece {
            request: self.request.id,
            operation: self.request.operation,
            start,
            sectors: u32::try_from(sectors).expect("a region is far below 2^32 sectors"),
            payload_offset_sectors,
        };
        self.done_sectors += sectors;
        Some((self.regions.shard_of(start), piece))
    }
}
