//! The errors of shapes and words, each with the numbers that make it wrong.
//!
//! They refuse input (a superblock's, an operator's). A request to a valid geometry for a sector
//! beyond it is a bug of the caller, and an assertion. Each variant is provoked in
//! `tests/refusals.rs` or `tests/words.rs`.

use core::fmt;

use crate::{Level, Slot};

/// The reason why a shape is no geometry, or a word is no level or layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// The word names no level.
    LevelWordUnknown,
    /// The word names no layout of this level.
    LayoutWordUnknown {
        /// The level it was read for.
        level: Level,
    },
    /// md has no such layout number for this level.
    LayoutUnknown {
        /// The level the number was given for.
        level: Level,
        /// md's layout number.
        layout: u32,
    },
    /// raid0 with members of unequal size, and no statement which of the two layouts wrote it.
    Raid0LayoutUnspecified {
        /// Zones that these member sizes make.
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
    /// raid10 with near and offset copies at once where near does not divide the slots: under md's
    /// own rule copies of different chunks then fall on the same sector.
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
        /// Fewest md allows.
        min: u16,
        /// The most that are possible.
        max: u16,
    },
    /// The list of member sizes is not one per slot.
    SizesNotPerSlot {
        /// Slots of the array.
        slots: u16,
        /// Given sizes.
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
        /// Its size.
        sectors: u64,
        /// The size of slot 0.
        expected: u64,
    },
    /// The member has no room for even one chunk (raid10: one chunk of every far copy).
    MemberTooSmall {
        /// The slot.
        slot: Slot,
        /// Its size.
        sectors: u64,
        /// The least it needs.
        needed: u64,
    },
    /// The size reaches `SECTORS_MAX`: no such device exists, and byte offsets would overflow.
    MemberTooLarge {
        /// The slot.
        slot: Slot,
        /// The size it claims.
        sectors: u64,
    },
    /// The members are plausible but the array would be over `SECTORS_MAX`.
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
