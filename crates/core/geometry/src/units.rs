//! The units of place: a slot, and three ways to count along an array.
//!
//! Every function of this crate takes and returns these types. So no caller can use a sector of the
//! array as a sector of a member. The types carry no bounds; the geometry checks the bounds.

use core::fmt;

/// Bytes in a sector, everywhere in md and everywhere here.
pub const SECTOR_BYTES: u64 = 512;

/// A position in the array, from 0; md calls it `raid_disk`. A member occupies a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// A 512-byte sector of the array as clients see it, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalSector(pub u64);

/// A 512-byte sector of a member's data area; 0 is the superblock's `data_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberSector(pub u64);

/// One chunk from every slot, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkRow(pub u64);

impl Slot {
    /// The slot as an index into a list that has one entry per slot.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for LogicalSector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for MemberSector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for ChunkRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A remainder modulo a slot count, narrowed to 16 bits: it is below the slot count.
#[allow(clippy::cast_possible_truncation, reason = "asserted")]
pub(crate) const fn narrow(value: u64) -> u16 {
    assert!(value <= u16::MAX as u64);
    value as u16
}
