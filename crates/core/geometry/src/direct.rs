//! linear and raid0: every sector in exactly one place.
//!
//! Both are a list of *zones*. A zone is a run of the array dealt chunk by chunk round some of the
//! slots. A zone begins at the same member sector on each of its slots. This file serves the
//! engine's direct family, which has no redundancy.
//!
//! ```text
//!   linear, members of        raid0, members of 1, 3 and 2 chunks
//!   3, 2 and 2 sectors
//!   one zone per slot,        zone 0: slots 0 1 2   zone 1: slots 1 2   zone 2: slot 1
//!   sectors contiguous        original               alternate
//!
//!   slot   0   1   2          slot   0   1   2       slot   0   1   2
//!          0   3   5          row 0  0   1   2       row 0  0   1   2
//!          1   4   6          row 1      4   3       row 1      3   4
//!          2                  row 2      5           row 2      5
//! ```
//!
//! raid0's two layouts differ in the later zones. *Alternate* starts each zone's deal at its first
//! slot. *Original* deals by the chunk's number in the whole array, so a zone may start in the
//! middle of its list. (md 3.14 changed one into the other by mistake, hence the layout number.)
//! The start is the zone's `phase`.
//!
//! md rounds members down to whole chunks: always for raid0, for linear where a chunk is set. The
//! size that it shows of a raid0 whose chunk is no power of two is smaller still (`seen_sectors`).
//!
//! Invariants: zones tile the array without gap and their widths fall strictly (`tests/direct.rs`);
//! a zone of one slot is contiguous, whatever the chunk.

use alloc::vec::Vec;

use crate::shape::capacity;
use crate::units::narrow;
use crate::words::{RAID0_ALTERNATE, RAID0_ORIGINAL, RAID0_UNSPECIFIED};
use crate::{GeometryError, Level, LogicalSector, MemberSector, Shape, Slot};

/// The place of a logical sector, and its contiguous length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectExtent {
    /// The slot that holds the sector.
    pub slot: Slot,
    /// The sector in the slot's data area.
    pub sector: MemberSector,
    /// Sectors, at least 1, that are contiguous on this slot from this sector.
    pub length_sectors: u64,
}

/// The map of linear and RAID-0 arrays: each sector is on exactly one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectGeometry {
    level: Level,
    layout: u32,
    chunk_sectors: u32,
    /// Zones in the order of the array. Linear has one zone per slot, in slot order.
    zones: Vec<Zone>,
    /// The slot lists of all zones, one after another. Each list is ascending; a zone holds its
    /// range of these entries.
    zone_slots: Vec<Slot>,
    /// Sectors used on each slot, rounded down to chunks where md rounds.
    used: Vec<u64>,
    /// The array's size for clients: all sectors of the layout, or some fewer (see
    /// [`seen_sectors`]).
    capacity_sectors: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zone {
    /// The zone's first sector, counted in the array.
    start: u64,
    /// The first sector after the zone, counted in the array.
    end: u64,
    /// The zone's first sector, counted in each member's data area.
    member_start: u64,
    /// The first sector after the zone, counted in each member's data area.
    member_end: u64,
    /// The zone's slots are `width` entries of `zone_slots`, from this index.
    first: usize,
    width: u16,
    /// The index, in the zone's slot list, of the slot that receives the zone's first chunk.
    phase: u16,
}

impl DirectGeometry {
    pub(crate) fn new(shape: &Shape) -> Result<DirectGeometry, GeometryError> {
        let used = used_sectors(shape)?;
        let laid_out = capacity(used.iter().map(|&sectors| u128::from(sectors)).sum())?;
        let mut geometry = DirectGeometry {
            level: shape.level,
            layout: shape.layout,
            chunk_sectors: shape.chunk_sectors,
            zones: Vec::new(),
            zone_slots: Vec::new(),
            capacity_sectors: match shape.level {
                Level::Linear => laid_out,
                _ => used.iter().map(|&sectors| seen_sectors(sectors, shape.chunk_sectors)).sum(),
            },
            used,
        };
        if shape.level == Level::Linear {
            geometry.lay_in_line();
        } else {
            if shape.layout > RAID0_ALTERNATE {
                let (level, layout) = (shape.level, shape.layout);
                return Err(GeometryError::LayoutUnknown { level, layout });
            }
            geometry.lay_in_zones();
            geometry.check_layout_said()?;
        }
        Ok(geometry)
    }

    fn lay_in_line(&mut self) {
        let mut start = 0;
        for (slot, &sectors) in (0..).map(Slot).zip(&self.used) {
            let end = start + sectors;
            let first = slot.index();
            self.zone_slots.push(slot);
            self.zones.push(Zone {
                start,
                end,
                member_start: 0,
                member_end: sectors,
                first,
                width: 1,
                phase: 0,
            });
            start = end;
        }
    }

    fn lay_in_zones(&mut self) {
        let chunk = u64::from(self.chunk_sectors);
        let (mut start, mut member_start) = (0, 0);
        // Each turn takes the smallest remaining member size, so there are at most as many turns as
        // slots.
        while let Some(member_end) =
            self.used.iter().copied().filter(|&sectors| sectors > member_start).min()
        {
            let first = self.zone_slots.len();
            let wide_enough = (0..).map(Slot).zip(&self.used).filter(|slot| *slot.1 > member_start);
            self.zone_slots.extend(wide_enough.map(|slot| slot.0));
            let width = (self.zone_slots.len() - first) as u64;
            let end = start + (member_end - member_start) * width;
            let phase = match self.layout {
                RAID0_ORIGINAL => narrow(start / chunk % width),
                _ => 0,
            };
            let width = narrow(width);
            self.zones.push(Zone { start, end, member_start, member_end, first, width, phase });
            (start, member_start) = (end, member_end);
        }
    }

    /// Both RAID-0 layouts agree if the second zone has at most one slot. Otherwise the superblock
    /// must name one of the two layouts.
    fn check_layout_said(&self) -> Result<(), GeometryError> {
        let ambiguous = self.zones.get(1).is_some_and(|zone| zone.width > 1);
        if ambiguous && self.layout == RAID0_UNSPECIFIED {
            let zones = narrow(self.zones.len() as u64);
            return Err(GeometryError::Raid0LayoutUnspecified { zones });
        }
        Ok(())
    }

    /// linear or raid0.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// md's layout number; without meaning for linear.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// Sectors in a chunk; for linear the unit to which md rounds members, or 0.
    #[must_use]
    pub fn chunk_sectors(&self) -> u32 {
        self.chunk_sectors
    }

    /// Slots of the array.
    #[must_use]
    pub fn slots(&self) -> u16 {
        narrow(self.used.len() as u64)
    }

    /// Sectors that clients see.
    #[must_use]
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    /// Sectors of a slot's member that hold data.
    #[must_use]
    pub fn used_sectors(&self, slot: Slot) -> u64 {
        self.used[slot.index()]
    }

    /// The place of a sector. Panics if the sector is not below the capacity.
    #[must_use]
    pub fn locate(&self, sector: LogicalSector) -> DirectExtent {
        assert!(sector.0 < self.capacity_sectors(), "sector {sector} is beyond the array");
        let number = self.zones.partition_point(|zone| zone.end <= sector.0);
        let zone = &self.zones[number];
        let in_zone = sector.0 - zone.start;
        let left = self.capacity_sectors - sector.0;
        if zone.width == 1 {
            return DirectExtent {
                slot: self.zone_slots[zone.first],
                sector: MemberSector(zone.member_start + in_zone),
                length_sectors: (zone.end - sector.0).min(left),
            };
        }
        let (chunk, width) = (u64::from(self.chunk_sectors), u64::from(zone.width));
        let (number, offset) = (in_zone / chunk, in_zone % chunk);
        let turn = (number + u64::from(zone.phase)) % width;
        DirectExtent {
            slot: self.zone_slots[zone.first + usize::from(narrow(turn))],
            sector: MemberSector(zone.member_start + number / width * chunk + offset),
            length_sectors: (chunk - offset).min(left),
        }
    }

    /// The array's sector at a sector of a member; `None` beyond the layout.
    #[must_use]
    pub fn logical(&self, slot: Slot, sector: MemberSector) -> Option<LogicalSector> {
        if sector.0 >= *self.used.get(slot.index())? {
            return None;
        }
        let index = match self.level {
            Level::Linear => slot.index(),
            _ => self.zones.partition_point(|zone| zone.member_end <= sector.0),
        };
        let zone = &self.zones[index];
        let in_member = sector.0 - zone.member_start;
        let seen =
            |logical: u64| Some(LogicalSector(logical)).filter(|_| logical < self.capacity_sectors);
        if zone.width == 1 {
            return seen(zone.start + in_member);
        }
        let slots = &self.zone_slots[zone.first..zone.first + usize::from(zone.width)];
        // A slot of this zone has a size above `sector`, so its size is at least `member_end`.
        let place = slots.binary_search(&slot).ok()? as u64;
        let (chunk, width) = (u64::from(self.chunk_sectors), u64::from(zone.width));
        let (row, offset) = (in_member / chunk, in_member % chunk);
        let turn = (place + width - u64::from(zone.phase)) % width;
        seen(zone.start + (row * width + turn) * chunk + offset)
    }
}

/// The sectors of a RAID-0 member that md counts for the size of the array. md rounds the member
/// down with a mask that is meant for chunks of a power of two. With another chunk the mask leaves
/// out some sectors of the layout. Found by the oracle (a chunk of 12 KiB), md 6.1.
fn seen_sectors(used: u64, chunk_sectors: u32) -> u64 {
    used & !(u64::from(chunk_sectors) - 1)
}

fn used_sectors(shape: &Shape) -> Result<Vec<u64>, GeometryError> {
    let round = u64::from(shape.chunk_sectors).max(1);
    let mut used = Vec::with_capacity(shape.member_sectors.len());
    for (slot, &sectors) in (0..).map(Slot).zip(&shape.member_sectors) {
        if sectors < round {
            return Err(GeometryError::MemberTooSmall { slot, sectors, needed: round });
        }
        used.push(sectors / round * round);
    }
    Ok(used)
}
