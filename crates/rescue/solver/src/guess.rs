//! A guess: the level and layout, the member of each slot, and where its data begin.

use braid_geometry::{Geometry, Level, LogicalSector, Shape, Slot};

use crate::counts::Evidence;
use crate::shapes::Arrangement;

/// The start of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeStart {
    /// Which of the solution's volumes.
    pub volume: usize,
    /// Sectors from the start of the array.
    pub sector: u64,
}

/// One way to put the members together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// The level.
    pub level: Level,
    /// md's layout number.
    pub layout: u32,
    /// Sectors in a chunk; 0 without chunks.
    pub chunk_sectors: u32,
    /// For each slot the index of its member.
    pub slots: Vec<Option<usize>>,
    /// For each slot the data offset of its member.
    pub offsets: Vec<u64>,
    /// For each slot its sectors of data.
    pub data_sectors: Vec<u64>,
    /// The starts of volumes that were found.
    pub starts: Vec<VolumeStart>,
    /// The evidence for it.
    pub evidence: Evidence,
}

impl Guess {
    /// The map of this guess; `None` if md would refuse the shape.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        let shape = Shape {
            level: self.level,
            layout: self.layout,
            chunk_sectors: self.chunk_sectors,
            slots: u16::try_from(self.slots.len()).ok()?,
            member_sectors: self.data_sectors.clone(),
        };
        Geometry::new(&shape).ok()
    }

    /// Whether it is a RAID-0 of unequal members, which its two layouts read differently.
    #[must_use]
    pub fn is_zoned(&self) -> bool {
        self.level == Level::Raid0 && Self { layout: 0, ..self.clone() }.geometry().is_none()
    }

    /// Slots without a member.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_none()).count()
    }

    /// The places of a sector of the array on present members: member and its sector. Empty if it
    /// must be computed from the other members, and beyond the array.
    #[must_use]
    pub fn places(&self, geometry: &Geometry, sector: u64) -> Vec<(usize, u64)> {
        let mut places = Vec::new();
        each_place(geometry, sector, |slot, at| places.extend(self.place(slot, at)));
        places
    }

    /// The place of its parity, which shows the missing data where the rest of the row is zeroes.
    pub(crate) fn parity_place(&self, geometry: &Geometry, sector: u64) -> Option<(usize, u64)> {
        let (slot, at) = parity_of(geometry, sector)?;
        self.place(slot, at)
    }

    fn place(&self, slot: Slot, at: u64) -> Option<(usize, u64)> {
        self.slots[slot.index()].map(|member| (member, self.offsets[slot.index()] + at))
    }

    /// The start of a volume, if it has one.
    #[must_use]
    pub fn start_of(&self, volume: usize) -> Option<u64> {
        self.starts.iter().find(|start| start.volume == volume).map(|start| start.sector)
    }
}

/// The map of a shape whose members are large enough for all addresses.
pub(crate) fn roomy(shape: &Arrangement, data_sectors: u64) -> Option<Geometry> {
    Geometry::new(&Shape::uniform(
        shape.level,
        shape.layout,
        shape.chunk_sectors,
        shape.slots,
        data_sectors,
    ))
    .ok()
}

/// Every place of a sector: slot, and sector of its data. None beyond the array.
pub(crate) fn each_place(geometry: &Geometry, sector: u64, mut place: impl FnMut(Slot, u64)) {
    if sector >= geometry.capacity_sectors() {
        return;
    }
    let sector = LogicalSector(sector);
    match geometry {
        Geometry::Direct(direct) => {
            let extent = direct.locate(sector);
            place(extent.slot, extent.sector.0);
        }
        Geometry::Mirror(mirror) => {
            for copy in 0..mirror.copies() {
                let (slot, at) = mirror.copy(sector, copy);
                place(slot, at.0);
            }
        }
        Geometry::Stripe(stripe) => {
            let at = stripe.locate(sector);
            let slot = stripe.row_map(at.row).data_slot(at.data_index);
            place(slot, stripe.row_start(at.row).0 + u64::from(at.offset_sectors));
        }
    }
}

/// The place of P in a sector's row. `None` without parity, and beyond the array.
pub(crate) fn parity_of(geometry: &Geometry, sector: u64) -> Option<(Slot, u64)> {
    let Geometry::Stripe(stripe) = geometry else { return None };
    (sector < stripe.capacity_sectors()).then_some(())?;
    let at = stripe.locate(LogicalSector(sector));
    let place = stripe.row_start(at.row).0 + u64::from(at.offset_sectors);
    Some((stripe.row_map(at.row).p_slot(), place))
}
