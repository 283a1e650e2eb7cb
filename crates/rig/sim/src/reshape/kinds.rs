//! The changes of shape that worlds make, and the disks that they begin with.
//!
//! ```text
//!   │ superblock │ free: the gap │ data, in the old shape │        spares: no data
//! ```
//!
//! An array that gets fewer members has the gap behind its data. Its clients use the sectors that
//! the new shape has.
//!
//! Free sectors and spares are full of [`SPARE_BYTE`], so that a sector which the reshape forgets
//! does not read as zeroes.

use std::sync::Arc;

use braid_engine::reshape::{RAID4_OF_RAID0, ReshapePlan, ShapeWish};
use braid_geometry::{Geometry, Level, Shape};
use braid_ondisk::{
    ArrayFacts, DeviceFlags, NewSuperblock, PlacementRequest, Role, Superblock, Timestamp, Version,
    placement,
};

use crate::content::{SECTOR, first_content, image};
use crate::create::{MADE_AT_SECONDS, SPARE_BYTE};
use crate::disk::Disk;
use crate::random::Random;

/// Sectors before the gap: those that md keeps free after a superblock, and the superblock's own
/// place.
const METADATA_SECTORS: u64 = 96;
/// Unused sectors after the data.
const END_SECTORS: u64 = 8;
/// From this device number on, a superblock's table of roles needs a second sector.
const LONG_FROM: u16 = 126;

/// Level, slots and chunk before; slots, chunk and layout after; sectors of a member.
type Row = (Level, (u16, u32), (u16, u32, Option<u32>), u64);

/// The changes of shape.
const CHANGES: &[Row] = &[
    (Level::Raid5, (3, 8), (4, 8, None), 160),
    (Level::Raid5, (4, 8), (6, 8, None), 128),
    (Level::Raid4, (3, 8), (5, 8, None), 128),
    (Level::Raid6, (4, 8), (6, 8, None), 160),
    (Level::Raid5, (4, 8), (4, 16, None), 160),
    (Level::Raid5, (4, 16), (4, 8, None), 160),
    (Level::Raid6, (5, 16), (5, 8, None), 160),
    (Level::Raid5, (4, 8), (4, 8, Some(0)), 128),
    (Level::Raid6, (5, 8), (5, 8, Some(0)), 128),
    (Level::Raid5, (3, 16), (4, 8, None), 176),
    (Level::Raid5, (3, 8), (5, 16, None), 176),
    (Level::Raid6, (4, 8), (5, 16, Some(1)), 128),
    (Level::Raid5, (4, 8), (3, 8, None), 136),
    (Level::Raid5, (6, 8), (4, 8, None), 128),
    (Level::Raid4, (5, 8), (3, 8, None), 136),
    (Level::Raid6, (6, 8), (5, 8, None), 136),
    (Level::Raid6, (6, 8), (4, 16, Some(1)), 144),
    (Level::Raid5, (5, 16), (3, 8, None), 176),
];

/// The changes of a RAID-0. Its members have no room behind their data, so none gets fewer members;
/// a turn does.
const STRIPED: &[Row] = &[
    (Level::Raid0, (3, 8), (4, 8, None), 128),
    (Level::Raid0, (2, 8), (4, 8, None), 136),
    (Level::Raid0, (1, 8), (2, 8, None), 160),
    (Level::Raid0, (3, 8), (3, 16, None), 160),
    (Level::Raid0, (2, 16), (3, 8, None), 176),
];

/// A change of shape on disks of a certain size.
#[derive(Clone, Debug)]
pub(super) struct Change {
    level: Level,
    before: (u16, u32),
    after: (u16, u32, Option<u32>),
    member_sectors: u64,
    version: Version,
    first_number: u16,
    /// Free sectors before the data of each disk, in addition to those of metadata.
    free_sectors: Vec<u64>,
    /// Free sectors behind the data of each disk, in addition to [`END_SECTORS`].
    behind_sectors: Vec<u64>,
}

impl Change {
    pub(super) fn any(random: &mut Random) -> Self {
        let row = *random.pick(CHANGES);
        let steps = 1 + random.below(3);
        let version = *random.pick(&[Version::V1_2, Version::V1_2, Version::V1_1]);
        let first_number = *random.pick(&[0, 0, 0, LONG_FROM]);
        Self::of(row, (steps, version, first_number), |_| *random.pick(&[0, 0, 8, 24]))
    }

    /// A change of a RAID-0.
    pub(super) fn any_striped(random: &mut Random) -> Self {
        let row = *random.pick(STRIPED);
        let steps = 1 + random.below(3);
        let version = *random.pick(&[Version::V1_2, Version::V1_1]);
        Self::of(row, (steps, version, 0), |_| *random.pick(&[0, 0, 8, 24]))
    }

    /// Whether the array is a RAID-0, which moves its data as a RAID-4 without parity.
    pub(super) fn is_striped(&self) -> bool {
        self.level == Level::Raid0
    }

    /// The smallest change: RAID-5 from 3 to 4 members.
    pub(super) fn smallest(is_long: bool) -> Self {
        Self::small((Level::Raid5, (3, 8), (4, 8, None), 96), is_long)
    }

    /// The smallest change to fewer members: RAID-5 from 4 to 3. The new shape ends within a row of
    /// the old one.
    pub(super) fn smallest_shrink(is_long: bool) -> Self {
        Self::small((Level::Raid5, (4, 8), (3, 8, None), 80), is_long)
    }

    fn small(row: Row, is_long: bool) -> Self {
        let first_number = if is_long { LONG_FROM } else { 0 };
        Self::of(row, (1, Version::V1_2, first_number), |_| 0)
    }

    fn of(
        (level, before, after, member_sectors): Row,
        (steps, version, first_number): (u64, Version, u16),
        mut more: impl FnMut(u16) -> u64,
    ) -> Self {
        let mut change = Self {
            level,
            before,
            after,
            member_sectors,
            version,
            first_number,
            free_sectors: Vec::new(),
            behind_sectors: Vec::new(),
        };
        let (old, new) = (change.said(change.before), change.said((after.0, after.1)));
        let shrinks = change.shrinks();
        let plan = ReshapePlan::new((&old, &new), 0, shrinks).expect("a direction that md takes");
        let gap = plan.gap_of_unit() * steps;
        let disks = 0..change.disk_count();
        let (before, behind) = if shrinks { (0, gap) } else { (gap, 0) };
        change.free_sectors = disks.clone().map(|disk| before + more(disk)).collect();
        let is_striped = change.is_striped();
        let more_behind = |disk| if is_striped { 0 } else { more(disk) };
        change.behind_sectors = disks.map(more_behind).map(|more| behind + more).collect();
        change
    }

    /// The geometry of a shape as superblocks say it during the reshape.
    fn said(&self, (slots, chunk): (u16, u32)) -> Geometry {
        if !self.is_striped() {
            let layout = self.after.2.filter(|_| (slots, chunk) == (self.after.0, self.after.1));
            return self.geometry((slots, chunk, layout.unwrap_or(self.layout())));
        }
        let sectors = self.member_sectors;
        let shape = Shape::uniform(Level::Raid4, RAID4_OF_RAID0, chunk, slots + 1, sectors);
        Geometry::new(&shape).expect("a RAID-4")
    }

    /// The shape of the array at the end of a reshape that leads to `after`.
    pub(super) fn goal(&self, after: Geometry) -> Geometry {
        match self.is_striped() {
            true => self.geometry((after.slots() - 1, after.chunk_sectors(), 0)),
            false => after,
        }
    }

    /// Whether the new shape holds less.
    pub(super) fn shrinks(&self) -> bool {
        self.geometry_after().capacity_sectors() < self.geometry_before().capacity_sectors()
    }

    /// Sectors that clients use: those that both shapes have.
    pub(super) fn size(&self) -> u64 {
        let (before, after) = (self.geometry_before(), self.geometry_after());
        before.capacity_sectors().min(after.capacity_sectors())
    }

    pub(super) fn wish(&self) -> ShapeWish {
        let (slots, chunk, layout) = self.after;
        ShapeWish {
            layout,
            chunk_sectors: (chunk != self.before.1).then_some(chunk),
            slots: (slots != self.before.0).then_some(slots),
            ..ShapeWish::default()
        }
    }

    fn layout(&self) -> u32 {
        if self.is_striped() { 0 } else { braid_geometry::default_layout(self.level) }
    }

    fn geometry(&self, (slots, chunk, layout): (u16, u32, u32)) -> Geometry {
        let shape = Shape::uniform(self.level, layout, chunk, slots, self.member_sectors);
        Geometry::new(&shape).expect("each change is one of valid shapes")
    }

    pub(super) fn geometry_before(&self) -> Geometry {
        let (slots, chunk) = self.before;
        self.geometry((slots, chunk, self.layout()))
    }

    pub(super) fn geometry_after(&self) -> Geometry {
        let (slots, chunk, layout) = self.after;
        self.geometry((slots, chunk, layout.unwrap_or(self.layout())))
    }

    /// Members that the level tolerates to lose.
    pub(super) fn tolerated(&self) -> u16 {
        match self.level {
            Level::Raid0 => 0,
            Level::Raid6 => 2,
            _ => 1,
        }
    }

    pub(super) fn slots_before(&self) -> u16 {
        self.before.0
    }

    /// Disks of the array, spares included.
    pub(super) fn disk_count(&self) -> u16 {
        self.before.0.max(self.after.0)
    }

    /// The disks, with superblocks and the first content.
    pub(super) fn disks(&self) -> Vec<Disk> {
        let geometry = self.geometry_before();
        let content = first_content(geometry.capacity_sectors());
        let image = image(&geometry, &content);
        let disk = |index: u16| {
            let superblock = self.superblock(index);
            let mut disk = Disk::new(self.sectors(index));
            disk.seen.fill(SPARE_BYTE);
            disk.put(superblock.offset_bytes() / SECTOR as u64, &superblock.to_bytes(), true);
            if let Some(data) = image.get(usize::from(index)) {
                disk.put(superblock.device.data_offset_sectors, data, true);
            }
            disk
        };
        (0..self.disk_count()).map(disk).collect()
    }

    /// First sector of a disk's data at the beginning.
    pub(super) fn data_offset(&self, disk: u16) -> u64 {
        METADATA_SECTORS + self.free_sectors[usize::from(disk)]
    }

    fn sectors(&self, disk: u16) -> u64 {
        let behind = END_SECTORS + self.behind_sectors[usize::from(disk)];
        self.data_offset(disk) + self.member_sectors + behind
    }

    fn superblock(&self, disk: u16) -> Superblock {
        let (slots, chunk_sectors) = self.before;
        let request = PlacementRequest {
            version: self.version,
            device_bytes: self.sectors(disk) * SECTOR as u64,
            level: self.level,
            chunk_sectors,
            member_size_sectors: (!self.is_striped()).then_some(self.member_sectors),
            data_offset_sectors: Some(self.data_offset(disk)),
        };
        let mut placement = placement(&request).expect("there is room for data and metadata");
        if self.is_striped() {
            placement.data_size_sectors = self.member_sectors;
        } else {
            placement.member_size_sectors = self.member_sectors;
        }
        let role = |slot: u16| if slot < slots { Role::Active(slot) } else { Role::Spare };
        let unused = (0..self.first_number).map(|_| Role::Spare);
        let roles: Arc<[Role]> = unused.chain((0..self.disk_count()).map(role)).collect();
        let superblock = Superblock::new_v1(&NewSuperblock {
            array: ArrayFacts {
                uuid: [0xB7; 16],
                name: "sim:reshape".to_owned(),
                creation_time: Timestamp { seconds: MADE_AT_SECONDS, microseconds: 0 },
                level: self.level,
                layout: self.layout(),
                chunk_sectors,
                member_size_sectors: placement.member_size_sectors,
                raid_slots: u32::from(slots),
                preferred_minor: Some(0),
                logical_block_bytes: None,
            },
            placement,
            device_number: u32::from(self.first_number + disk),
            device_uuid: [disk as u8; 16],
            device_flags: DeviceFlags::default(),
            roles,
            events: 1,
            resync_offset: u64::MAX,
        });
        superblock.expect("a change begins with a valid superblock")
    }
}
