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
///
/// During a reshape each shape has its own shards: those of the new shape come after those of the
/// old one. The border says which sectors are in which shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    sectors: u64,
    /// The number of shards of each shape.
    shards: u16,
    after: Option<NewRegions>,
}

/// The new shape's regions, and the border between the shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NewRegions {
    sectors: u64,
    /// The border. Forwards, the sectors below the border are in the new shape; backwards, the
    /// sectors from the border on are.
    position: u64,
    backwards: bool,
}

impl NewRegions {
    /// Whether a sector is in the new shape, and the number of sectors from it to the border.
    fn side_of(&self, sector: u64) -> (bool, u64) {
        let position = self.position;
        let position = spoiled(Bug::BorderWrongSide, position, position.saturating_sub(8));
        let left = if sector < position { position - sector } else { u64::MAX };
        ((sector < position) != self.backwards, left)
    }
}

impl Regions {
    /// The distribution for `geometry` over `shards` shards.
    ///
    /// # Panics
    /// If `shards` is zero.
    #[must_use]
    pub fn new(geometry: &Geometry, shards: u16) -> Self {
        assert!(shards > 0, "an array has at least one shard");
        Self { sectors: Self::region_sectors(geometry), shards, after: None }
    }

    /// The distribution during a reshape to `after`. Each shape has the same number of shards.
    #[must_use]
    pub fn with_reshape(self, after: &Geometry, position: u64, backwards: bool) -> Self {
        let sectors = Self::region_sectors(after);
        Self { after: Some(NewRegions { sectors, position, backwards }), ..self }
    }

    /// The same distribution in regions of at least `least_sectors`, so that a small array has a
    /// region for each shard.
    #[must_use]
    pub fn in_regions_of(self, shapes: (&Geometry, Option<&Geometry>), least_sectors: u64) -> Self {
        let (geometry, after) = shapes;
        let sectors = whole_rows(geometry, least_sectors);
        let of_after = |regions: NewRegions| NewRegions {
            sectors: after.map_or(regions.sectors, |after| whole_rows(after, least_sectors)),
            ..regions
        };
        Self { sectors, after: self.after.map(of_after), ..self }
    }

    /// Whether the array is in a reshape.
    #[must_use]
    pub fn is_reshaping(&self) -> bool {
        self.after.is_some()
    }

    /// The position of the border between the two shapes; `None` if the array is in no reshape.
    #[must_use]
    pub fn border(&self) -> Option<u64> {
        self.after.map(|after| after.position)
    }

    /// The distribution over shards after the border between the two shapes moves to `position`.
    ///
    /// # Panics
    /// If the array is in no reshape.
    #[must_use]
    pub fn with_border(self, position: u64) -> Self {
        let after = self.after.expect("only a reshape has a border");
        Self { after: Some(NewRegions { position, ..after }), ..self }
    }

    /// The distribution for requests that go to one shape, wherever the border stands.
    ///
    /// # Panics
    /// If the array is in no reshape.
    #[must_use]
    pub fn on_side(self, is_after: bool) -> Self {
        let after = self.after.expect("only a reshape has two shapes");
        let all_after = NewRegions { position: 0, backwards: true, ..after };
        Self { after: Some(NewRegions { backwards: is_after, ..all_after }), ..self }
    }

    fn region_sectors(geometry: &Geometry) -> u64 {
        let least = if sometimes(Point::SmallRegions) { 8 } else { REGION_SECTORS };
        whole_rows(geometry, least)
    }

    /// The shard that owns a sector, and the number of sectors from that sector on that the same
    /// shard owns.
    fn owner_of(&self, sector: u64) -> (ShardIndex, u64) {
        let (is_after, in_side) =
            self.after.map_or((false, u64::MAX), |after| after.side_of(sector));
        let (sectors, first) = match self.after {
            Some(after) if is_after => (after.sectors, self.shards),
            _ => (self.sectors, 0),
        };
        let index = (sector / sectors) % u64::from(self.shards);
        let index = u16::try_from(index).expect("below the number of shards, which is a u16");
        (ShardIndex(first + index), in_side.min(sectors - sector % sectors))
    }

    /// The shard that owns a sector.
    #[must_use]
    pub fn shard_of(&self, sector: LogicalSector) -> ShardIndex {
        self.owner_of(sector.0).0
    }

    /// Number of sectors from `sector` to the end of its region.
    #[must_use]
    pub fn left_in_region(&self, sector: LogicalSector) -> u64 {
        self.owner_of(sector.0).1
    }

    /// The number of shards of one shape.
    #[must_use]
    pub fn shards_of_shape(&self) -> u16 {
        self.shards
    }

    /// Whether a shard serves the new shape of a reshape.
    #[must_use]
    pub fn is_after(&self, shard: ShardIndex) -> bool {
        shard.0 >= self.shards
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        if self.after.is_some() { 2 * self.shards } else { self.shards }
    }

    /// The pieces of `request`, in ascending order of sectors.
    #[must_use]
    pub fn split(&self, request: &Request) -> Split {
        Split { regions: *self, request: *request, done_sectors: 0 }
    }
}

/// At least `least_sectors` sectors, in whole rows on levels with parity.
fn whole_rows(geometry: &Geometry, least_sectors: u64) -> u64 {
    match geometry {
        Geometry::Stripe(stripe) => {
            let row = u64::from(stripe.data_slots()) * u64::from(geometry.chunk_sectors());
            row * least_sectors.div_ceil(row)
        }
        Geometry::Direct(_) | Geometry::Mirror(_) => least_sectors,
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
        let (shard, owned) = self.regions.owner_of(start.0);
        let sectors = left.min(owned);
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
        Some((shard, piece))
    }
}
