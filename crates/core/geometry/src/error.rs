//! The errors of shapes and layout words, each with the numbers that are wrong.
//!
//! The errors refuse input (a superblock's, an operator's). A request for a sector beyond a valid
//! geometry is a bug of the caller, and fails an assertion. Each variant is provoked in
//! `tests/refusals.rs` or `tests/words.rs`.

use core::fmt;

use crate::{Level, Slot};

/// The reason why a shape has no geometry, or why a word names no level or layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// The word names no level.
    LevelWordUnknown,
    /// The word names no layout of this level.
    LayoutWordUnknown {
        /// The level whose layout words were searched.
        level: Level,
    },
    /// md has no such layout number for this level.
    LayoutUnknown {
        /// The level whose layout numbers were searched.
        level: Level,
        /// md's layout number.
        layout: u32,
    },
    /// A RAID-0 array has members of unequal size, and its superblock does not name one of the two
    /// layouts.
    Raid0LayoutUnspecified {
        /// The number of zones that these member sizes make.
        zones: u16,
    },
    /// raid10 with far sets (layout bits 17 and 18), which mdadm does not create.
    Raid10FarSets {
        /// md's layout number.
        layout: u32,
    },
    /// raid10 needs at least two copies and at least as many slots as copies.
    Raid10Copies {
        /// Requested near copies.
        near: u16,
        /// Requested far or offset copies.
        far: u16,
        /// Slots of the array.
        slots: u16,
    },
    /// raid10 with near and offset copies at once, on a number of slots that `near` does not
    /// divide. Under md's rule, copies of different chunks then share a sector.
    Raid10OffsetOverlap {
        /// Requested near copies.
        near: u16,
        /// Slots of the array.
        slots: u16,
    },
    /// Too few or too many slots for the level.
    SlotsOutOfRange {
        /// The requested level.
        level: Level,
        /// Requested slots.
        slots: u16,
        /// The fewest slots that md allows.
        min: u16,
        /// The most slots that the level can have.
        max: u16,
    },
    /// The list of member sizes does not have one entry per slot.
    SizesNotPerSlot {
        /// Slots of the array.
        slots: u16,
        /// The number of sizes given.
        sizes: usize,
    },
    /// The chunk is zero, or (raid4, 5, 6, 10) no power of two of at least 4 KiB.
    ChunkInvalid {
        /// The requested level.
        level: Level,
        /// Sectors in a chunk.
        chunk_sectors: u32,
    },
    /// Members of a redundant level must all be given the superblock's one size.
    SizesUnequal {
        /// First slot that differs from slot 0.
        slot: Slot,
        /// Sectors of the member in `slot`.
        sectors: u64,
        /// Sectors of the member in slot 0.
        expected: u64,
    },
    /// The member has no room for even one chunk (raid10: one chunk of every far copy).
    MemberTooSmall {
        /// The member's slot.
        slot: Slot,
        /// Sectors of the member.
        sectors: u64,
        /// The fewest sectors that the member needs.
        needed: u64,
    },
    /// The member's size reaches `SECTORS_MAX`: no such device exists, and byte offsets would
    /// overflow.
    MemberTooLarge {
        /// The member's slot.
        slot: Slot,
        /// Sectors that the member claims.
        sectors: u64,
    },
    /// Each member's size is plausible, but the array would have more than `SECTORS_MAX` sectors.
    CapacityTooLarge,
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LevelWordUnknown => f.write_str("not a level: use linear, 0, 1, 4, 5, 6 or 10"),
            Self::LayoutWordUnknown { level } => write!(f, "not a layout of {level}"),
            Self::LayoutUnknown { level, layout } => {
                write!(f, "{level} has no layout number {layout:#x}")
            }
            Self::Raid0LayoutUnspecified { zones } => write!(
                f,
                "raid0 with members of unequal size ({zones} zones) does not say \
                 whether its layout is original or alternate"
            ),
            Self::Raid10FarSets { layout } => {
                write!(f, "raid10 layout {layout:#x} uses far sets, which are not supported")
            }
            Self::Raid10Copies { near, far, slots } => write!(
                f,
                "raid10 with {near} near and {far} far copies does not fit {slots} slots: \
                 two or more copies, each on its own slot"
            ),
            Self::Raid10OffsetOverlap { near, slots } => write!(
                f,
                "raid10 with offset copies and {near} near copies on {slots} slots would \
                 overlap: near copies must divide the slots"
            ),
            Self::SlotsOutOfRange { level, slots, min, max } => {
                write!(f, "{level} takes {min} to {max} slots, not {slots}")
            }
            Self::SizesNotPerSlot { slots, sizes } => {
                write!(f, "{sizes} member sizes for {slots} slots")
            }
            Self::ChunkInvalid { level, chunk_sectors } => {
                write!(f, "{level} cannot have a chunk of {chunk_sectors} sectors")
            }
            Self::SizesUnequal { slot, sectors, expected } => {
                write!(f, "slot {slot} is given {sectors} sectors where slot 0 has {expected}")
            }
            Self::MemberTooSmall { slot, sectors, needed } => {
                write!(f, "slot {slot} has {sectors} sectors and needs at least {needed}")
            }
            Self::MemberTooLarge { slot, sectors } => {
                write!(f, "slot {slot} claims {sectors} sectors, more than any device has")
            }
            Self::CapacityTooLarge => f.write_str("the array would be larger than 8 EiB"),
        }
    }
}

impl core::error::Error for GeometryError {}
