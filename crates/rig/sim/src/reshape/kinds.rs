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

use braid_assembly::resync_sectors;
use braid_engine::reshape::{RAID4_OF_RAID0, ShapeWish};
use braid_geometry::{Geometry, Level, ReshapeSteps, Shape};
use braid_ondisk::{
    ArrayFacts, BitmapSuperblock, Bits, DeviceFlags, NewSuperblock, NewV0, PlacementRequest, Role,
    Superblock, Timestamp, Version, placement,
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
/// A 0.90 superblock begins at a multiple of so many sectors, at least as far from the disk's end.
const V0_RESERVED_SECTORS: u64 = 128;
/// The array's UUID.
pub(super) const UUID: [u8; 16] = [0xB7; 16];
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

/// The changes of a RAID-0. Its members have no room behind their data, so no change goes to fewer
/// members; only a turn does.
const STRIPED: &[Row] = &[
    (Level::Raid0, (3, 8), (4, 8, None), 128),
    (Level::Raid0, (2, 8), (4, 8, None), 136),
    (Level::Raid0, (1, 8), (2, 8, None), 160),
    (Level::Raid0, (3, 8), (3, 16, None), 160),
    (Level::Raid0, (2, 16), (3, 8, None), 176),
];

/// md's layout number for two copies in neighbouring slots, the second copy in the row below.
const OFFSET_2: u32 = 0x1_0201;

/// The changes of a RAID-10. Copies move only into free space.
const COPIED: &[Row] = &[
    (Level::Raid10, (4, 8), (5, 8, None), 160),
    (Level::Raid10, (4, 8), (6, 8, None), 128),
    (Level::Raid10, (3, 8), (4, 8, None), 160),
    (Level::Raid10, (4, 8), (4, 16, None), 160),
    (Level::Raid10, (4, 16), (4, 8, None), 160),
    (Level::Raid10, (4, 8), (4, 8, Some(OFFSET_2)), 160),
    (Level::Raid10, (4, 8), (6, 16, Some(OFFSET_2)), 192),
    (Level::Raid10, (6, 8), (4, 8, None), 160),
    (Level::Raid10, (5, 8), (4, 8, None), 160),
];

/// Take-overs: level, slots and chunk before, sectors of a member; the new level, and the layout
/// before.
const TAKE_OVERS: &[(Row, Level, Option<u32>)] = &[
    ((Level::Raid5, (3, 8), (4, 8, None), 128), Level::Raid6, None),
    ((Level::Raid4, (3, 8), (4, 8, None), 128), Level::Raid6, None),
    ((Level::Raid6, (5, 8), (4, 8, None), 128), Level::Raid5, Some(18)),
    ((Level::Raid4, (4, 8), (4, 8, None), 128), Level::Raid5, None),
    ((Level::Raid5, (4, 8), (4, 8, None), 128), Level::Raid4, Some(5)),
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
    /// The layout before; `None` for the level's default.
    layout_before: Option<u32>,
    /// Free sectors before the data of each disk, in addition to those of metadata.
    free_sectors: Vec<u64>,
    /// Free sectors behind the data of each disk, in addition to [`END_SECTORS`].
    behind_sectors: Vec<u64>,
    /// Sectors for each bit of the write-intent bitmap; 0 without a bitmap.
    bit_sectors: u32,
    /// Spares that the change does not need.
    extra_spares: u16,
    /// The level to take over; then no data moves.
    level_after: Option<Level>,
    /// Sectors of a member that are used after the change; `None` for as many as before.
    size_after: Option<u64>,
    /// Whether the reshape goes from the array's end to its start, once it has begun. A reshape
    /// that keeps all slots takes the side that has room.
    pub(super) begins_backwards: Option<bool>,
}

impl Change {
    pub(super) fn any(random: &mut Random) -> Self {
        let row = *random.pick(CHANGES);
        let steps = 1 + random.below(3);
        let versions = &[
            Version::V1_2,
            Version::V1_2,
            Version::V1_2,
            Version::V1_1,
            Version::V1_0,
            Version::V0_90,
        ];
        let version = *random.pick(versions);
        let first_number = *random.pick(&[0, 0, 0, LONG_FROM]);
        let first_number = if version == Version::V0_90 { 0 } else { first_number };
        // Metadata 1.0 and 0.90 are at the disk's end: no sector is free before the data.
        let has_room = matches!(version, Version::V1_1 | Version::V1_2) && random.chance(70);
        let steps = if has_room { steps } else { 0 };
        let bit_sectors = *random.pick(&[0, 0, 8, 16, 64]);
        let mut change =
            Self::of(row, (steps, version, first_number), |_| *random.pick(&[0, 0, 8, 24]));
        if random.chance(20) {
            change.extra_spares = 1;
            change.free_sectors.extend_from_within(..1);
            change.behind_sectors.extend_from_within(..1);
        }
        Self { bit_sectors, ..change }
    }

    /// A change that superblocks record at once, while no data moves.
    pub(super) fn any_take_over(random: &mut Random) -> Self {
        let (row, level_after, layout) = *random.pick(TAKE_OVERS);
        let versions =
            &[Version::V1_2, Version::V1_2, Version::V1_1, Version::V1_0, Version::V0_90];
        let version = *random.pick(versions);
        let first_number = *random.pick(&[0, LONG_FROM]);
        let first_number = if version == Version::V0_90 { 0 } else { first_number };
        let mut change = Self::of(row, (0, version, first_number), |_| 0);
        change.bit_sectors = *random.pick(&[0, 0, 16]);
        change.layout_before = layout;
        change.level_after = Some(level_after);
        change
    }

    /// A change to larger members: more of each member is used, and the new part is resynced.
    pub(super) fn any_larger(random: &mut Random) -> Self {
        let row = *random.pick(&[
            (Level::Raid5, (3, 8), (3, 8, None), 128),
            (Level::Raid6, (5, 8), (5, 8, None), 128),
            (Level::Raid4, (4, 16), (4, 16, None), 128),
        ]);
        let first_number = *random.pick(&[0, LONG_FROM]);
        let mut change = Self::of(row, (0, Version::V1_2, first_number), |_| 0);
        change.behind_sectors.fill(256);
        change.size_after = Some(256);
        change
    }

    /// A change of a RAID-10.
    pub(super) fn any_copied(random: &mut Random) -> Self {
        let row = *random.pick(COPIED);
        let steps = 1 + random.below(3);
        let version = *random.pick(&[Version::V1_2, Version::V1_2, Version::V1_1]);
        let first_number = *random.pick(&[0, 0, 0, LONG_FROM]);
        let bit_sectors = *random.pick(&[0, 0, 8, 16, 64]);
        let mut change =
            Self::of(row, (steps, version, first_number), |_| *random.pick(&[0, 0, 8, 24]));
        if change.before.0 == change.after.0 && random.chance(30) {
            // Free sectors are behind the data only.
            change.version = Version::V1_0;
            std::mem::swap(&mut change.free_sectors, &mut change.behind_sectors);
        }
        Self { bit_sectors, ..change }
    }

    /// The smallest change of a RAID-10: from 4 to 5 members.
    pub(super) fn smallest_copied() -> Self {
        Self::small((Level::Raid10, (4, 8), (5, 8, None), 80), false)
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
            bit_sectors: 0,
            extra_spares: 0,
            layout_before: None,
            level_after: None,
            size_after: None,
            begins_backwards: None,
        };
        let (old, new) = (change.said(false), change.said(true));
        let shrinks = change.shrinks();
        let steps_of = ReshapeSteps::new((&old, &new), 0, shrinks);
        let gap = steps_of.map_or(0, |one| one.gap_of_unit() * steps);
        let disks = 0..change.disk_count();
        let (before, behind) = if shrinks { (0, gap) } else { (gap, 0) };
        change.free_sectors = disks.clone().map(|disk| before + more(disk)).collect();
        let is_striped = change.is_striped();
        let more_behind = |disk| if is_striped { 0 } else { more(disk) };
        change.behind_sectors = disks.map(more_behind).map(|more| behind + more).collect();
        change
    }

    /// The geometry of a shape as superblocks say it during the reshape.
    fn said(&self, is_after: bool) -> Geometry {
        let (slots, chunk) = if is_after { (self.after.0, self.after.1) } else { self.before };
        if !self.is_striped() {
            let layout = self.after.2.filter(|_| is_after);
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

    /// Whether a reshape that is under way may record this position. md accepts positions where
    /// rows of the shape ahead begin, with the larger chunk, or behind both shapes' sectors.
    pub(super) fn is_position(&self, position: u64, backwards: bool) -> bool {
        let is_way_back = backwards != self.begins_backwards.unwrap_or(self.shrinks());
        let chunk = u64::from(self.before.1.max(self.after.1));
        let row = match self.said(!is_way_back) {
            Geometry::Stripe(stripe) => u64::from(stripe.data_slots()) * chunk,
            _ => chunk,
        };
        let is_row = position.is_multiple_of(row);
        match position < self.size() {
            true => is_row,
            false if backwards => position == self.size(),
            false => is_row || position == self.largest_shape(),
        }
    }

    /// Whether the new shape has fewer sectors than the old one.
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
        if self.level_after.is_some() || self.size_after.is_some() {
            let (level, member_size_sectors) = (self.level_after, self.size_after);
            return ShapeWish { level, member_size_sectors, ..ShapeWish::default() };
        }
        ShapeWish {
            layout,
            chunk_sectors: (chunk != self.before.1).then_some(chunk),
            slots: (slots != self.before.0).then_some(slots),
            ..ShapeWish::default()
        }
    }

    fn layout(&self) -> u32 {
        match self.is_striped() {
            true => 0,
            false => self.layout_before.unwrap_or(braid_geometry::default_layout(self.level)),
        }
    }

    fn geometry(&self, (slots, chunk, layout): (u16, u32, u32)) -> Geometry {
        self.geometry_of(self.level, (slots, chunk, layout), self.member_sectors)
    }

    fn geometry_of(
        &self,
        level: Level,
        (slots, chunk, layout): (u16, u32, u32),
        member_sectors: u64,
    ) -> Geometry {
        let shape = Shape::uniform(level, layout, chunk, slots, member_sectors);
        Geometry::new(&shape).expect("each change is one of valid shapes")
    }

    /// Whether the change may turn round. Metadata 0.90 says the direction by the number of slots.
    pub(super) fn can_turn(&self) -> bool {
        let says_direction = self.version != Version::V0_90 || self.before.0 != self.after.0;
        !self.is_at_once() && says_direction
    }

    /// Whether the change moves no data.
    pub(super) fn is_at_once(&self) -> bool {
        self.level_after.is_some() || self.size_after.is_some()
    }

    /// Whether more of each member is used afterwards. The new part is in doubt until a resync.
    pub(super) fn is_larger(&self) -> bool {
        self.size_after.is_some()
    }

    /// Whether windows may overwrite the sectors that they read: their copies go to a file.
    pub(super) fn can_copy(&self) -> bool {
        self.free_sectors.iter().chain(&self.behind_sectors).any(|free| *free < 32)
    }

    /// Sectors of the array in its larger shape.
    pub(super) fn largest_shape(&self) -> u64 {
        let (before, after) = (self.geometry_before(), self.geometry_after());
        before.capacity_sectors().max(after.capacity_sectors())
    }

    pub(super) fn geometry_before(&self) -> Geometry {
        let (slots, chunk) = self.before;
        self.geometry((slots, chunk, self.layout()))
    }

    pub(super) fn geometry_after(&self) -> Geometry {
        let (slots, chunk, layout) = self.after;
        let layout = layout.unwrap_or(self.layout());
        let size = self.size_after.unwrap_or(self.member_sectors);
        // md's numbers: 5 is parity at the end of each row, and 16 more puts Q on the last member.
        let (level, layout) = match (self.level, self.level_after) {
            (_, None) => (self.level, layout),
            (Level::Raid5, Some(Level::Raid6)) => (Level::Raid6, layout | 16),
            (Level::Raid4, Some(Level::Raid6)) => (Level::Raid6, 5),
            (Level::Raid6, Some(level)) => (level, layout & !16),
            (Level::Raid4, Some(level)) => (level, 5),
            (_, Some(level)) => (level, 0),
        };
        self.geometry_of(level, (slots, chunk, layout), size)
    }

    /// Whether bad-block logs can name lost sectors; md reads no log of a RAID-0.
    pub(super) fn has_logs(&self) -> bool {
        !self.is_striped() && self.superblock(0).device.bad_block_log.is_some()
    }

    /// How many lost members the level tolerates.
    pub(super) fn tolerated(&self) -> u16 {
        match self.level {
            Level::Raid0 => 0,
            Level::Raid6 if self.level_after.is_none() => 2,
            _ => 1,
        }
    }

    pub(super) fn slots_before(&self) -> u16 {
        self.before.0
    }

    /// Disks of the array, spares included.
    pub(super) fn disk_count(&self) -> u16 {
        self.before.0.max(self.after.0) + self.extra_spares
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
            self.put_bitmap(&mut disk, &superblock);
            if let Some(data) = image.get(usize::from(index)) {
                disk.put(superblock.device.data_offset_sectors, data, true);
            }
            disk
        };
        (0..self.disk_count()).map(disk).collect()
    }

    /// First sector of a disk's data before the change.
    pub(super) fn data_offset(&self, disk: u16) -> u64 {
        match self.version {
            Version::V0_90 | Version::V1_0 => 0,
            _ => METADATA_SECTORS + self.free_sectors[usize::from(disk)],
        }
    }

    fn sectors(&self, disk: u16) -> u64 {
        let behind = END_SECTORS + self.behind_sectors[usize::from(disk)];
        match self.version {
            Version::V0_90 => {
                self.member_sectors.next_multiple_of(V0_RESERVED_SECTORS) + V0_RESERVED_SECTORS
            }
            Version::V1_0 => (self.member_sectors + behind + METADATA_SECTORS).next_multiple_of(8),
            _ => self.data_offset(disk) + self.member_sectors + behind,
        }
    }

    /// Writes a bitmap without set bits, if the array has one.
    fn put_bitmap(&self, disk: &mut Disk, superblock: &Superblock) {
        if self.bit_sectors == 0 {
            return;
        }
        let bit_bytes = self.bit_sectors * SECTOR as u32;
        let sectors = resync_sectors(&self.geometry_before());
        let head = BitmapSuperblock::new(sectors, bit_bytes, 8);
        let head = BitmapSuperblock { events: 1, ..head };
        let bits = Bits::none(sectors, u64::from(self.bit_sectors));
        let data = head.area(&superblock.uuid_as_stored(), &bits, None);
        let offset_bytes = superblock.bitmap_offset_bytes().expect("the superblock names it");
        disk.put(offset_bytes / SECTOR as u64, &data, true);
    }

    /// Whether the array has a bitmap.
    pub(super) fn has_bitmap(&self) -> bool {
        self.bit_sectors > 0
    }

    fn superblock(&self, disk: u16) -> Superblock {
        let mut superblock = self.plain_superblock(disk);
        if self.bit_sectors > 0 {
            let place = superblock.bitmap_place().expect("there is room for a bitmap");
            superblock.set_bitmap(Some(place.offset_sectors));
        }
        superblock
    }

    fn plain_superblock(&self, disk: u16) -> Superblock {
        let (slots, chunk_sectors) = self.before;
        let role = |slot: u16| if slot < slots { Role::Active(slot) } else { Role::Spare };
        let unused = (0..self.first_number).map(|_| Role::Spare);
        let roles: Arc<[Role]> = unused.chain((0..self.disk_count()).map(role)).collect();
        let array = ArrayFacts {
            uuid: UUID,
            name: "sim:reshape".to_owned(),
            creation_time: Timestamp { seconds: MADE_AT_SECONDS, microseconds: 0 },
            level: self.level,
            layout: self.layout(),
            chunk_sectors,
            member_size_sectors: self.member_sectors,
            raid_slots: u32::from(slots),
            preferred_minor: Some(0),
            logical_block_bytes: None,
        };
        let device_bytes = self.sectors(disk) * SECTOR as u64;
        if self.version == Version::V0_90 {
            let nodes = (0..u32::from(self.disk_count())).map(|disk| (8, 16 * disk)).collect();
            let superblock = Superblock::new_v0(&NewV0 {
                array,
                device_bytes,
                device_number: u32::from(disk),
                device_flags: DeviceFlags::default(),
                roles,
                nodes,
                events: 1,
                resync_offset: u64::MAX,
            });
            return superblock.expect("a change begins with a valid superblock");
        }
        let at_start = self.version != Version::V1_0;
        let request = PlacementRequest {
            version: self.version,
            device_bytes,
            level: self.level,
            chunk_sectors,
            member_size_sectors: (!self.is_striped()).then_some(self.member_sectors),
            data_offset_sectors: at_start.then_some(self.data_offset(disk)),
        };
        let mut placement = placement(&request).expect("there is room for data and metadata");
        match self.is_striped() {
            true => placement.data_size_sectors = self.member_sectors,
            false => placement.member_size_sectors = self.member_sectors,
        }
        let array = ArrayFacts { member_size_sectors: placement.member_size_sectors, ..array };
        let superblock = Superblock::new_v1(&NewSuperblock {
            array,
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
