//! Turns unverified numbers into a geometry: the only place that judges a shape.
//!
//! `assembly` passes a superblock's numbers, and `create` with an operator's. After the validation,
//! every map of the three families is total over its range and cannot overflow.
//!
//! This file does not judge members against each other beyond their sizes; `assembly` does.
//!
//! Bounds. Sectors stay below 2^54, so that byte offsets fit a signed 64-bit number (`off_t`);
//! slots stay at or below 1920, the entries that fit a 4 KiB version-1 superblock. Products of the
//! two stay below 2^65 and are formed in 128 bits, once, here (`tests/refusals.rs`).

use crate::shape::{SECTORS_MAX, SLOTS_MAX, Shape};
use crate::{DirectGeometry, Family, GeometryError, Level, MirrorGeometry, Slot, StripeGeometry};

/// The most slots of a raid6: the exponents of Q repeat after 255, and md allows no more either.
const RAID6_SLOTS_MAX: u16 = 255;

/// The smallest chunk that md accepts for levels with parity or copies: one 4 KiB page.
const CHUNK_SECTORS_MIN: u32 = 8;

/// The layout of an array's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// linear and raid0.
    Direct(DirectGeometry),
    /// raid1 and raid10.
    Mirror(MirrorGeometry),
    /// raid4, raid5 and raid6.
    Stripe(StripeGeometry),
}

impl Geometry {
    /// Validates a shape and prepares its maps.
    ///
    /// # Errors
    /// The first error found, see [`GeometryError`].
    pub fn new(shape: &Shape) -> Result<Geometry, GeometryError> {
        check_slots(shape)?;
        check_chunk(shape)?;
        check_sizes(shape)?;
        Ok(match shape.level.family() {
            Family::Direct => Geometry::Direct(DirectGeometry::new(shape)?),
            Family::Mirror => Geometry::Mirror(MirrorGeometry::new(shape)?),
            Family::Stripe => Geometry::Stripe(StripeGeometry::new(shape)?),
        })
    }

    /// The level.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Geometry::Direct(direct) => direct.level(),
            Geometry::Mirror(mirror) => mirror.level(),
            Geometry::Stripe(stripe) => stripe.level(),
        }
    }

    /// Slots of the array, present or not.
    #[must_use]
    pub fn slots(&self) -> u16 {
        match self {
            Geometry::Direct(direct) => direct.slots(),
            Geometry::Mirror(mirror) => mirror.slots(),
            Geometry::Stripe(stripe) => stripe.slots(),
        }
    }

    /// Sectors in a chunk, as given in the shape (so possibly 0 for linear and raid1).
    #[must_use]
    pub fn chunk_sectors(&self) -> u32 {
        match self {
            Geometry::Direct(direct) => direct.chunk_sectors(),
            Geometry::Mirror(mirror) => mirror.chunk_sectors(),
            Geometry::Stripe(stripe) => stripe.chunk_sectors(),
        }
    }

    /// md's layout number, as given in the shape.
    #[must_use]
    pub fn layout(&self) -> u32 {
        match self {
            Geometry::Direct(direct) => direct.layout(),
            Geometry::Mirror(mirror) => mirror.layout(),
            Geometry::Stripe(stripe) => stripe.layout(),
        }
    }

    /// Sectors that clients see; md's array size.
    #[must_use]
    pub fn capacity_sectors(&self) -> u64 {
        match self {
            Geometry::Direct(direct) => direct.capacity_sectors(),
            Geometry::Mirror(mirror) => mirror.capacity_sectors(),
            Geometry::Stripe(stripe) => stripe.capacity_sectors(),
        }
    }

    /// Sectors of the slot's data area that the layout may use: whole chunks, except for raid1 and
    /// for linear without rounding. braid never touches the sectors beyond.
    #[must_use]
    pub fn used_sectors(&self, slot: Slot) -> u64 {
        match self {
            Geometry::Direct(direct) => direct.used_sectors(slot),
            Geometry::Mirror(mirror) => mirror.used_sectors(),
            Geometry::Stripe(stripe) => stripe.used_sectors(),
        }
    }

    /// Whether every sector can still be read or computed after the loss of the slots for which
    /// `is_lost` is true.
    pub fn survives(&self, is_lost: &dyn Fn(Slot) -> bool) -> bool {
        match self {
            Geometry::Direct(direct) => lost_count(direct.slots(), is_lost) == 0,
            Geometry::Mirror(mirror) => mirror.survives(is_lost),
            Geometry::Stripe(stripe) => {
                lost_count(stripe.slots(), is_lost) <= stripe.parity_slots()
            }
        }
    }

    /// The number of lost slots that the level always survives. raid10 also survives some larger
    /// losses.
    #[must_use]
    pub fn lost_max(&self) -> u16 {
        match self {
            Geometry::Direct(_) => 0,
            Geometry::Mirror(mirror) => mirror.copies() - 1,
            Geometry::Stripe(stripe) => stripe.parity_slots(),
        }
    }
}

fn lost_count(slots: u16, is_lost: &dyn Fn(Slot) -> bool) -> u16 {
    let mut count = 0;
    for slot in 0..slots {
        count += u16::from(is_lost(Slot(slot)));
    }
    count
}

/// Checks the kernel's minimums. The kernel allows a raid5 of two slots (half of a level change),
/// but no raid6 of three.
fn check_slots(shape: &Shape) -> Result<(), GeometryError> {
    let (min, max) = match shape.level {
        Level::Linear | Level::Raid0 | Level::Raid1 => (1, SLOTS_MAX),
        Level::Raid4 | Level::Raid5 | Level::Raid10 => (2, SLOTS_MAX),
        Level::Raid6 => (4, RAID6_SLOTS_MAX),
    };
    let Shape { level, slots, .. } = *shape;
    if slots < min || slots > max {
        return Err(GeometryError::SlotsOutOfRange { level, slots, min, max });
    }
    if shape.member_sectors.len() != usize::from(slots) {
        return Err(GeometryError::SizesNotPerSlot { slots, sizes: shape.member_sectors.len() });
    }
    Ok(())
}

fn check_chunk(shape: &Shape) -> Result<(), GeometryError> {
    let Shape { level, chunk_sectors, .. } = *shape;
    let fits = match level {
        Level::Linear | Level::Raid1 => true,
        Level::Raid0 => chunk_sectors > 0,
        Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            chunk_sectors >= CHUNK_SECTORS_MIN && chunk_sectors.is_power_of_two()
        }
    };
    if fits { Ok(()) } else { Err(GeometryError::ChunkInvalid { level, chunk_sectors }) }
}

fn check_sizes(shape: &Shape) -> Result<(), GeometryError> {
    let expected = shape.member_sectors[0];
    for (slot, &sectors) in (0..).map(Slot).zip(&shape.member_sectors) {
        if sectors >= SECTORS_MAX {
            return Err(GeometryError::MemberTooLarge { slot, sectors });
        }
        if shape.level.family() != Family::Direct && sectors != expected {
            return Err(GeometryError::SizesUnequal { slot, sectors, expected });
        }
    }
    Ok(())
}
