//! raid1 and raid10: every sector in several places, whole.
//!
//! This file serves the engine's mirror family. It does not choose which copy to read, nor which
//! copies are good.
//!
//! raid10 deals chunks round the slots as raid0 does, each chunk `near` times in succession. It
//! repeats the whole deal `far` times, each time moved on by `near` slots. With k slots, chunk c's
//! near copy n is number `i = c * near + n` in the deal; its base is row `i / k`, slot `i % k`. Its
//! far copy f is at
//!
//! ```text
//!   slot  (i % k + f * near) mod k
//!   row   i / k + f * stride         far: after the previous deal; stride = rows of a deal
//!   row   i / k * far + f            offset: in the row below
//!
//!   near=2, 3 slots     far=2, 3 slots, 4 rows     offset=2, 3 slots
//!     0  0  1             0  1  2                     0  1  2
//!     1  2  2             3  4  5                     2  0  1
//!     3  3  4             2  0  1                     3  4  5
//!     4  5  5             5  3  4                     5  3  4
//! ```
//!
//! The stride is on-disk format. md derives it from the chunks in use; since near * far <= slots
//! that is always the member's whole chunks divided by `far`, rounded down, whatever the rest.
//!
//! A copy's number is `n * far + f`, md's own order; copy 0 is the plain place.
//!
//! raid1 is the case of as many copies as slots: all members are identical, and no chunk is needed.
//!
//! Invariants: copies of a sector are on distinct slots; `copy` and `logical` are inverse
//! (`tests/mirror.rs`). Near and offset copies together, on slots that `near` does not divide, are
//! refused. They break the first invariant under md's own arithmetic: a chunk that wraps to the
//! next row lands in a row of offset copies.

use crate::shape::capacity;
use crate::units::narrow;
use crate::words::{RAID10_FAR_SETS, RAID10_OFFSET};
use crate::{GeometryError, Level, LogicalSector, MemberSector, Shape, Slot};
use braid_sim_hooks::{Bug, spoiled};

/// The map of a raid1 or raid10 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorGeometry {
    level: Level,
    layout: u32,
    chunk_sectors: u32,
    slots: u16,
    near: u16,
    far: u16,
    is_offset: bool,
    /// Whether all slots hold the same bytes: raid1, and raid10 with as many near copies as slots.
    is_identical: bool,
    /// Rows of one deal of all chunks. A member has `far` times as many rows.
    deal_rows: u64,
    capacity_sectors: u64,
}

impl MirrorGeometry {
    pub(crate) fn new(shape: &Shape) -> Result<MirrorGeometry, GeometryError> {
        if shape.level == Level::Raid1 { Self::raid1(shape) } else { Self::raid10(shape) }
    }

    fn raid1(shape: &Shape) -> Result<MirrorGeometry, GeometryError> {
        let sectors = shape.member_sectors[0];
        if sectors == 0 {
            return Err(GeometryError::MemberTooSmall { slot: Slot(0), sectors, needed: 1 });
        }
        Ok(MirrorGeometry {
            level: shape.level,
            layout: shape.layout,
            chunk_sectors: shape.chunk_sectors,
            slots: shape.slots,
            near: shape.slots,
            far: 1,
            is_offset: false,
            is_identical: true,
            deal_rows: 0,
            capacity_sectors: sectors,
        })
    }

    fn raid10(shape: &Shape) -> Result<MirrorGeometry, GeometryError> {
        let Shape { level, layout, slots, chunk_sectors, .. } = *shape;
        let (near, far, is_offset) = read_layout(layout)?;
        let copies = u32::from(near) * u32::from(far);
        if copies < 2 || copies > u32::from(slots) {
            return Err(GeometryError::Raid10Copies { near, far, slots });
        }
        if is_offset && far > 1 && !slots.is_multiple_of(near) {
            return Err(GeometryError::Raid10OffsetOverlap { near, slots });
        }
        let (sectors, chunk) = (shape.member_sectors[0], u64::from(chunk_sectors));
        let needed = chunk * u64::from(far);
        let deal_rows = sectors / needed;
        if deal_rows == 0 {
            return Err(GeometryError::MemberTooSmall { slot: Slot(0), sectors, needed });
        }
        let chunks = u128::from(deal_rows) * u128::from(slots) / u128::from(near);
        Ok(MirrorGeometry {
            level,
            layout,
            chunk_sectors,
            slots,
            near,
            far,
            is_offset,
            is_identical: near == slots,
            deal_rows,
            capacity_sectors: capacity(chunks * u128::from(chunk_sectors))?,
        })
    }

    /// raid1 or raid10.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// md's layout number; without meaning for raid1.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// Sectors in a chunk; for raid1 the given number, which has no effect.
    #[must_use]
    pub fn chunk_sectors(&self) -> u32 {
        self.chunk_sectors
    }

    /// Slots of the array.
    #[must_use]
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// Sectors that clients see.
    #[must_use]
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    /// Sectors, from sector 0, that copies occupy on every slot. In the last row some slots may
    /// hold no copy.
    #[must_use]
    pub fn used_sectors(&self) -> u64 {
        match self.level {
            Level::Raid1 => self.capacity_sectors,
            _ => self.deal_rows * u64::from(self.far) * u64::from(self.chunk_sectors),
        }
    }

    /// The number of copies of each sector: for raid1 the number of slots, for raid10 near times
    /// far.
    #[must_use]
    pub fn copies(&self) -> u16 {
        self.near * self.far
    }

    /// The numbers of near and of offset copies, the latter at least 1; `None` for RAID-1 and for
    /// far copies, which are not near their first copy.
    pub(crate) fn near_and_offset_copies(&self) -> Option<(u16, u16)> {
        let is_dealt = self.level == Level::Raid10 && (self.far == 1 || self.is_offset);
        is_dealt.then_some((self.near, self.far))
    }

    /// Sectors, at least 1, that are contiguous from `sector` on in every copy. Panics beyond the
    /// capacity.
    #[must_use]
    pub fn contiguous_sectors(&self, sector: LogicalSector) -> u64 {
        self.assert_inside(sector);
        if self.is_identical {
            return self.capacity_sectors - sector.0;
        }
        let chunk = u64::from(self.chunk_sectors);
        chunk - sector.0 % chunk
    }

    /// The slot and sector of one copy of a sector. Panics if `sector` is beyond the capacity, or
    /// if there is no such copy.
    #[must_use]
    pub fn copy(&self, sector: LogicalSector, copy: u16) -> (Slot, MemberSector) {
        self.assert_inside(sector);
        assert!(copy < self.copies(), "there are {} copies, not {copy} and more", self.copies());
        if self.is_identical {
            return (Slot(copy), MemberSector(sector.0));
        }
        let (chunk, slots) = (u64::from(self.chunk_sectors), u64::from(self.slots));
        let (near, far) = (u64::from(self.near), u64::from(self.far));
        let (near_copy, far_copy) = (u64::from(copy) / far, u64::from(copy) % far);
        let dealt = sector.0 / chunk * near + near_copy;
        let (row, base) = (dealt / slots, dealt % slots);
        let member_row = match self.is_offset {
            true => row * far + far_copy,
            false => row + far_copy * self.deal_rows,
        };
        let shift = near;
        let shift = spoiled(Bug::FarShift, shift, near.wrapping_add(1));
        let slot = Slot(narrow((base + far_copy * shift) % slots));
        (slot, MemberSector(member_row * chunk + sector.0 % chunk))
    }

    /// The array's sector at a sector of a member, and the number of that copy; `None` if the
    /// member sector holds no copy.
    #[must_use]
    pub fn logical(&self, slot: Slot, sector: MemberSector) -> Option<(LogicalSector, u16)> {
        if slot.0 >= self.slots || sector.0 >= self.used_sectors() {
            return None;
        }
        if self.is_identical {
            return Some((LogicalSector(sector.0), slot.0));
        }
        let (chunk, slots) = (u64::from(self.chunk_sectors), u64::from(self.slots));
        let (near, far) = (u64::from(self.near), u64::from(self.far));
        let member_row = sector.0 / chunk;
        let (row, far_copy) = match self.is_offset {
            true => (member_row / far, member_row % far),
            false => (member_row % self.deal_rows, member_row / self.deal_rows),
        };
        let base = (u64::from(slot.0) + slots - far_copy * near) % slots;
        let dealt = row * slots + base;
        let logical = dealt / near * chunk + sector.0 % chunk;
        if logical >= self.capacity_sectors {
            return None;
        }
        Some((LogicalSector(logical), narrow(dealt % near * far + far_copy)))
    }

    /// Whether every chunk keeps a copy. A chunk's copies are on `copies` successive slots, which
    /// can begin at any slot where a chunk of the deal can start.
    pub(crate) fn survives(&self, is_lost: &dyn Fn(Slot) -> bool) -> bool {
        if self.is_identical {
            return (0..self.slots).any(|slot| !is_lost(Slot(slot)));
        }
        let slots = u32::from(self.slots);
        let chunks = self.capacity_sectors / u64::from(self.chunk_sectors);
        // After `slots` chunks the starting slots repeat. An array may have fewer chunks than
        // `slots`.
        (0..slots).take_while(|&chunk| u64::from(chunk) < chunks).all(|chunk| {
            let start = chunk * u32::from(self.near);
            (start..start + u32::from(self.copies()))
                .any(|place| !is_lost(Slot(narrow(u64::from(place % slots)))))
        })
    }

    fn assert_inside(&self, sector: LogicalSector) {
        assert!(sector.0 < self.capacity_sectors, "sector {sector} is beyond the array");
    }
}

/// Reads a layout number: near copies, far copies, and whether far copies are offset copies.
fn read_layout(layout: u32) -> Result<(u16, u16, bool), GeometryError> {
    if layout & RAID10_FAR_SETS != 0 && layout & !(0x1_ffff | RAID10_FAR_SETS) == 0 {
        return Err(GeometryError::Raid10FarSets { layout });
    }
    if layout & !0x1_ffff != 0 {
        return Err(GeometryError::LayoutUnknown { level: Level::Raid10, layout });
    }
    let byte = |shift: u32| narrow(u64::from(layout >> shift & 0xff));
    Ok((byte(0), byte(8), layout & RAID10_OFFSET != 0))
}
