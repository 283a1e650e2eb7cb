//! A guess: the level and layout, the member of each slot, and where the member's data begins.

use braid_geometry::{Geometry, Level, LogicalSector, Shape, Slot};

use crate::counts::Evidence;
use crate::shapes::Arrangement;

/// The place where a volume starts on the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeStart {
    /// The index of the volume among the solution's volumes.
    pub volume: usize,
    /// The first sector of the volume, from the start of the array.
    pub sector: u64,
}

/// One way to put the members together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// The level.
    pub level: Level,
    /// md's layout number.
    pub layout: u32,
    /// Sectors in a chunk; 0 if the level has no chunks.
    pub chunk_sectors: u32,
    /// The index of the member in each slot.
    pub slots: Vec<Option<usize>>,
    /// The data offset of the member in each slot.
    pub offsets: Vec<u64>,
    /// Sectors of data in each slot.
    pub data_sectors: Vec<u64>,
    /// The starts of volumes that were found.
    pub starts: Vec<VolumeStart>,
    /// The evidence for and against the guess.
    pub evidence: Evidence,
}

impl Guess {
    /// The geometry of this guess; `None` if md would refuse the shape.
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

    /// Whether the guess is a RAID-0 of unequal members, which the two layouts read differently.
    #[must_use]
    pub fn is_zoned(&self) -> bool {
        self.level == Level::Raid0 && Self { layout: 0, ..self.clone() }.geometry().is_none()
    }

    /// The number of slots without a member.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_none()).count()
    }

    /// The places of an array sector on present members: each a member and a sector of it. Empty
    /// beyond the array's end, and if the sector must be computed from other members.
    #[must_use]
    pub fn places(&self, geometry: &Geometry, sector: u64) -> Vec<(usize, u64)> {
        let mut places = Vec::new();
        each_place(geometry, sector, |slot, at| places.extend(self.place(slot, at)));
        places
    }

    /// The place of the parity of an array sector's row. If the row's other data are zeroes, the
    /// parity shows the data of a missing member.
    pub(crate) fn parity_place(&self, geometry: &Geometry, sector: u64) -> Option<(usize, u64)> {
        let (slot, at) = parity_of(geometry, sector)?;
        self.place(slot, at)
    }

    fn place(&self, slot: Slot, at: u64) -> Option<(usize, u64)> {
        self.slots[slot.index()].map(|member| (member, self.offsets[slot.index()] + at))
    }

    /// The array sector at which a volume starts, if the guess has a start for this volume.
    #[must_use]
    pub fn start_of(&self, volume: usize) -> Option<u64> {
        self.starts.iter().find(|start| start.volume == volume).map(|start| start.sector)
    }
}

/// The geometry of an arrangement whose members have `data_sectors` of data each.
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

/// Calls `place` with every place of an array sector: the slot, and the sector of the slot's data.
/// Never calls it beyond the array's end.
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

/// The place of P in the row of an array sector. `None` for levels without parity, and beyond the
/// array's end.
pub(crate) fn parity_of(geometry: &Geometry, sector: u64) -> Option<(Slot, u64)> {
    let Geometry::Stripe(stripe) = geometry else { return None };
    (sector < stripe.capacity_sectors()).then_some(())?;
    let at = stripe.locate(LogicalSector(sector));
    let place = stripe.row_start(at.row).0 + u64::from(at.offset_sectors);
    Some((stripe.row_map(at.row).p_slot(), place))
}
