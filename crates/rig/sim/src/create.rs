//! New arrays: disks with md superblocks as `braid create` or `mdadm --create` writes them.
//!
//! ```text
//! 1.2  │ 8 sectors │ superblock │ log │ data │       1.1  │ superblock │ ... │ log │ data │
//! 1.0  │ data │ ... │ log │ superblock │ ... │
//! ```
//!
//! The data area begins right after the metadata instead of at mdadm's mebibyte, so that a world is
//! small. All other areas are where mdadm puts them.

use std::sync::Arc;

use braid_assembly::resync_sectors;
use braid_engine::array::{ParityLogRecord, parity_log_for};
use braid_geometry::{Geometry, Level, Shape, default_layout};
use braid_ondisk::{
    ArrayFacts, BitmapKind, BitmapSuperblock, Bits, DeviceFlags, JOURNAL_BLOCK_SECTORS,
    LocklessMarks, LogPlace, NewSuperblock, NewV0, OWN_LOG_HEAD_SECTORS, OwnLogPlace,
    PlacementRequest, PplPlace, Role, Superblock, Timestamp, Version, placement,
};

use crate::content::SECTOR;
use crate::disk::Disk;
use crate::random::{Random, mix};

/// Creation time of every array of the simulator.
pub(crate) const MADE_AT_SECONDS: u64 = 1_700_000_000;

/// Sectors before the data area in versions 1.1 and 1.2, and after it in version 1.0.
pub(crate) const METADATA_SECTORS: u64 = 40;

/// Sectors reserved at the end of a device with a 0.90 superblock.
const V0_RESERVED: u64 = 128;

/// Of the arrays that can have a write journal, the percentage that get one.
const JOURNAL_PERCENT: u64 = 30;

/// Content of a spare that was never written.
pub(crate) const SPARE_BYTE: u8 = 0xA5;

/// The properties of a new array: level, layout, sizes, metadata and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Design {
    pub(crate) level: Level,
    pub(crate) layout: u32,
    pub(crate) slots: u16,
    pub(crate) chunk_sectors: u32,
    /// Chunks on each member.
    pub(crate) rows: u64,
    pub(crate) version: Version,
    pub(crate) spares: u16,
    /// The first disk's device number. From 128 on, the superblock's table of roles needs a second
    /// sector.
    pub(crate) first_number: u16,
    /// Some members have a bad-block log that names sectors.
    pub(crate) has_bad_blocks: bool,
    /// Sectors for each bit of the write-intent bitmap; 0 without a bitmap.
    pub(crate) bit_sectors: u32,
    /// The bitmap is lockless, and this percentage of its regions is unwritten by clients.
    pub(crate) lockless: Option<u8>,
    /// Sectors of each member's parity log; 0 without a log.
    pub(crate) log_sectors: u16,
    pub(crate) log_is_ring: bool,
    /// The parity log is braid's own log, not md's PPL.
    pub(crate) log_is_own: bool,
    /// The own log has several records that are valid at the same time.
    pub(crate) log_is_many: bool,
    /// Blocks of the write journal's ring, which is on the last disk; 0 without a journal.
    pub(crate) journal_blocks: u64,
    /// A bitmap file holds the bitmap and any own log. The last disk stands for that file and is no
    /// member.
    pub(crate) bitmap_in_file: bool,
    /// By disk, from the first: how many sectors its data area is longer than the other disks'.
    pub(crate) extra_sectors: [u64; 3],
}

impl Design {
    /// Whether the layout keeps all parity on one fixed slot (RAID-5), or on one or two (RAID-6).
    pub(crate) fn keeps_parity_still(&self) -> bool {
        match self.level {
            Level::Raid5 => matches!(self.layout, 4 | 5),
            Level::Raid6 => matches!(self.layout, 4 | 5 | 20),
            _ => false,
        }
    }

    /// Sometimes adds spares, or device numbers so high that superblocks take two sectors.
    pub(crate) fn with_extras(self, random: &mut Random) -> Self {
        let has_redundancy = !matches!(self.level, Level::Raid0 | Level::Linear);
        let spares = *random.pick(&[0, 0, 0, 0, 1, 2]);
        let spares = if has_redundancy { spares } else { 0 };
        let first_number = *random.pick(&[0, 0, 0, 0, 126, 300]);
        if random.chance(15) {
            // A 0.90 superblock has at most 27 devices, four of them in a sector.
            let first_number = if first_number == 0 { 0 } else { 10 };
            return Self { spares, first_number, version: Version::V0_90, ..self };
        }
        Self { spares, first_number, ..self }
    }

    /// Sometimes adds bad-block logs.
    pub(crate) fn with_bad_blocks(self, random: &mut Random) -> Self {
        let has_redundancy = !matches!(self.level, Level::Raid0 | Level::Linear);
        let may_have = has_redundancy && self.version != Version::V0_90;
        let may_have = may_have && self.journal_blocks == 0;
        Self { has_bad_blocks: may_have && random.chance(17), ..self }
    }

    /// Sometimes adds a write-intent bitmap.
    pub(crate) fn with_bitmap(self, random: &mut Random) -> Self {
        let bit_sectors = *random.pick(&[0, 0, 0, 1, 8, 8, 16, 32, 64]);
        if self.log_sectors > 0 && !self.log_is_own || self.journal_blocks > 0 {
            return self;
        }
        let design = Self { bit_sectors, ..self };
        let has_redundancy = !matches!(self.level, Level::Raid0 | Level::Linear);
        let has_room = has_redundancy && self.superblock(0).bitmap_place().is_some();
        if !has_room {
            return self;
        }
        // The bitmap can leave too little room for the own log of the same array.
        let has_both = self.log_sectors == 0 || design.own_log(&design.superblock(0)).is_some();
        if has_both { design } else { self }
    }

    /// Sometimes makes the bitmap lockless.
    pub(crate) fn with_lockless(self, random: &mut Random) -> Self {
        let percent = *random.pick(&[0, 50, 100, 100]);
        if self.bit_sectors == 0 || !random.chance(40) {
            return self;
        }
        let design = Self { lockless: Some(percent), ..self };
        let (head, ..) = design.bitmap(design.resync_sectors()).expect("it has a bitmap");
        let place = self.superblock(0).bitmap_place().expect("it has a bitmap");
        // braid creates no own log together with a lockless bitmap.
        let fits = head.area_sectors() <= place.room_sectors && self.log_sectors == 0;
        if fits { design } else { self }
    }

    /// Sometimes adds a parity log: on level 5 md's PPL or braid's own log, on levels 4 and 6 the
    /// own log.
    pub(crate) fn with_parity_log(self, random: &mut Random) -> Self {
        let has_parity = matches!(self.level, Level::Raid4 | Level::Raid5 | Level::Raid6);
        let is_fit = has_parity && self.version != Version::V0_90 && self.journal_blocks == 0;
        // A dirty array without a log stays dirty for a while, and runs must meet such arrays.
        let percent = if self.level == Level::Raid5 { 45 } else { 30 };
        if !is_fit || !random.chance(percent) {
            return self;
        }
        // The smallest log has room for a header and one band; a ring has room for several records.
        let band = (self.chunk_sectors.min(128) as u16).next_multiple_of(8);
        let more = *random.pick(&[0, 8, 24, 64]);
        let (log_sectors, log_is_ring) = (8 + band + more, random.chance(60));
        if self.level != Level::Raid5 || random.chance(50) {
            // The own log of a roomy ring has several valid records, except for old versions of
            // that log.
            let parities = if self.bitmap_in_file { 2 } else { 1 };
            let roomy = 4 * (8 + parities * band) + more;
            let log_sectors = if band <= 32 && random.chance(65) { roomy } else { log_sectors + 8 };
            let log_is_many = random.chance(85);
            let own = Self { log_sectors, log_is_many, log_is_own: true, ..self };
            let has_room = own.own_log(&own.plain_superblock(0)).is_some();
            return if has_room { own } else { self };
        }
        // The superblock alone says where the log is, so an array with too little room gets no log.
        let roomy = Self { log_sectors, log_is_ring, ..self };
        let has_room = |place: PplPlace| place.size_sectors >= log_sectors;
        if roomy.plain_superblock(0).ppl_place().is_some_and(has_room) { roomy } else { self }
    }

    /// Sometimes adds a write journal with a small ring. A journal excludes bitmap and parity log.
    pub(crate) fn with_journal(self, random: &mut Random) -> Self {
        let has_parity = matches!(self.level, Level::Raid4 | Level::Raid5 | Level::Raid6);
        // Other members keep an older superblock if a member's superblock is torn. The journal's
        // disk has no such sibling, so its superblock must not tear.
        let is_fit = has_parity && self.slots > 2 && !self.has_long_superblocks();
        let more = *random.pick(&[0, 2, 30]);
        if !is_fit || !random.chance(JOURNAL_PERCENT) {
            return self;
        }
        Self { journal_blocks: self.journal_blocks_min() + more, ..self }
    }

    /// The smallest ring for the journal of this design, in blocks, with a few blocks more.
    pub(crate) fn journal_blocks_min(&self) -> u64 {
        let batch = u64::from(self.chunk_sectors.min(128)) * (u64::from(self.slots) + 1);
        (4 * batch).div_ceil(JOURNAL_BLOCK_SECTORS) + 8 + 3
    }

    /// Place of the own log on a disk with this superblock; `None` if the array has no own log, or
    /// the disk no room for it.
    pub(crate) fn own_log(&self, superblock: &Superblock) -> Option<OwnLogPlace> {
        if self.bitmap_in_file {
            let size_sectors = u32::from(self.log_sectors);
            let is_many = self.log_is_many;
            return self.log_is_own.then_some(OwnLogPlace { size_sectors, is_many });
        }
        let bitmap = self.bitmap(self.resync_sectors());
        let bitmap_sectors = bitmap.map_or(0, |(head, ..)| head.area_sectors());
        let size_sectors = u32::from(self.log_sectors);
        let place = superblock.own_log_place(bitmap_sectors)?;
        let fits = place.size_sectors >= size_sectors;
        let is_many = self.log_is_many;
        (self.log_is_own && fits).then_some(OwnLogPlace { size_sectors, is_many })
    }

    pub(crate) fn log_place(&self, superblock: &Superblock) -> Option<LogPlace> {
        let own = || self.own_log(superblock).map(LogPlace::Own);
        superblock.intent.ppl.map(LogPlace::Ppl).or_else(own)
    }

    /// Writes an empty parity log to a rebuilt member, as md does.
    pub(crate) fn put_empty_log(&self, disk: &mut Disk, superblock: &Superblock) {
        let Some(place) = self.log_place(superblock) else { return };
        let (generation, entries) = (Some(1), Vec::new());
        let record = ParityLogRecord {
            place,
            sector: 0,
            generation,
            before: 0,
            entries,
            is_whole: true,
            is_end: false,
        };
        let (offset_bytes, area) = parity_log_for(superblock, &record);
        disk.put(offset_bytes / SECTOR as u64, &area, true);
    }

    /// Writes the journal's first meta block, as at creation.
    pub(crate) fn put_empty_journal(
        &self,
        disk: &mut Disk,
        superblock: &Superblock,
        sequence: u64,
    ) {
        if let Some((offset_bytes, bytes)) = superblock.first_journal_block(sequence) {
            disk.put(offset_bytes / SECTOR as u64, &bytes, true);
        }
    }

    /// The bitmap that every member gets at creation, with no bit set.
    pub(crate) fn bitmap(
        &self,
        sectors: u64,
    ) -> Option<(BitmapSuperblock, Bits, Option<LocklessMarks>)> {
        let each = u64::from(self.bit_sectors);
        if each == 0 {
            return None;
        }
        let head = BitmapSuperblock::new(sectors, self.bit_sectors * SECTOR as u32, 8);
        let head = BitmapSuperblock { events: 1, ..head };
        let marks = self.lockless.map(|percent| {
            let mut marks = LocklessMarks::clean(sectors, each);
            let is_unwritten = |mark: &u64| mix(*mark) % 100 < u64::from(percent);
            let unwritten = (0..marks.unwritten.count()).filter(is_unwritten);
            unwritten.for_each(|mark| marks.unwritten.set(mark));
            marks
        });
        let kind = if marks.is_some() { BitmapKind::Lockless } else { head.kind };
        Some((BitmapSuperblock { kind, ..head }, Bits::none(sectors, each), marks))
    }

    /// Sectors that the bitmap covers.
    pub(crate) fn resync_sectors(&self) -> u64 {
        let (data_sectors, _) = self.sectors(0);
        let member_sectors = vec![data_sectors; usize::from(self.slots)];
        let shape = Shape {
            level: self.level,
            layout: self.layout,
            chunk_sectors: self.chunk_sectors,
            slots: self.slots,
            member_sectors,
        };
        resync_sectors(&Geometry::new(&shape).expect("a design has a geometry"))
    }

    pub(crate) fn has_long_superblocks(&self) -> bool {
        self.version == Version::V0_90 || self.first_number > 0
    }

    /// A disk's device number, its index in the superblocks' table of roles.
    pub(crate) fn number(&self, disk: usize) -> u16 {
        self.first_number + disk as u16
    }

    /// The disk that stands for the bitmap file, if any.
    pub(crate) fn file_disk(&self) -> Option<usize> {
        self.bitmap_in_file.then(|| self.disk_count() - 1)
    }

    /// Sectors of the bitmap file: the bitmap, then the own log with its head.
    fn file_sectors(&self) -> u64 {
        let (head, ..) = self.bitmap(self.resync_sectors()).expect("a file has a bitmap");
        let log =
            if self.log_is_own { u64::from(self.log_sectors) + OWN_LOG_HEAD_SECTORS } else { 0 };
        head.area_sectors().next_multiple_of(8) + log
    }

    pub(crate) fn role(&self, disk: usize) -> Role {
        let slot = disk as u16;
        match () {
            () if slot < self.slots => Role::Active(slot),
            () if Some(disk) == self.journal_disk() => Role::Journal,
            () => Role::Spare,
        }
    }

    pub(crate) fn journal_disk(&self) -> Option<usize> {
        (self.journal_blocks > 0).then(|| usize::from(self.slots + self.spares))
    }

    /// The number of disks: those in slots, then spares, then the journal's disk or the bitmap
    /// file.
    fn disk_count(&self) -> usize {
        let others = usize::from(self.journal_blocks > 0) + usize::from(self.bitmap_in_file);
        usize::from(self.slots + self.spares) + others
    }

    /// Disks with superblocks.
    pub(crate) fn member_count(&self) -> usize {
        self.disk_count() - usize::from(self.bitmap_in_file)
    }

    /// The table of roles that every disk gets at creation.
    pub(crate) fn roles(&self) -> Arc<[Role]> {
        let unused = (0..self.first_number).map(|_| Role::Spare);
        let disks = self.member_count();
        unused.chain((0..disks).map(|disk| self.role(disk))).collect()
    }

    fn metadata_sectors(&self) -> u64 {
        if self.bitmap_in_file {
            return METADATA_SECTORS;
        }
        let head_sectors = if self.log_is_own { OWN_LOG_HEAD_SECTORS } else { 0 };
        METADATA_SECTORS + u64::from(self.log_sectors) + head_sectors
    }

    /// Sectors of a disk's data area, and of the whole disk.
    fn sectors(&self, disk: usize) -> (u64, u64) {
        if Some(disk) == self.journal_disk() {
            let data_sectors = self.journal_blocks * JOURNAL_BLOCK_SECTORS;
            return (data_sectors, self.metadata_sectors() + data_sectors);
        }
        let extra_sectors = self.extra_sectors.get(disk).unwrap_or(&0);
        // Level 1 has no chunk; mdadm counts its members in whole 64 KiB, and braid places metadata
        // by that count.
        let unit_sectors = if self.level == Level::Raid1 { 128 } else { 1 };
        let data_sectors = (self.rows * u64::from(self.chunk_sectors) + extra_sectors)
            .next_multiple_of(unit_sectors);
        if self.version == Version::V0_90 {
            return (data_sectors, data_sectors.next_multiple_of(V0_RESERVED) + V0_RESERVED);
        }
        (data_sectors, self.metadata_sectors() + data_sectors)
    }

    pub(crate) fn superblock(&self, disk: usize) -> Superblock {
        if self.version == Version::V0_90 {
            return self.superblock_v0(disk);
        }
        self.with_place(self.plain_superblock(disk))
    }

    /// A superblock of version 1, without a bitmap or a log.
    fn plain_superblock(&self, disk: usize) -> Superblock {
        let (data_sectors, sectors) = self.sectors(disk);
        let chunk_sectors = if self.level == Level::Raid1 { 0 } else { self.chunk_sectors };
        let at_start = self.version != Version::V1_0;
        let is_journal = Some(disk) == self.journal_disk();
        let request = PlacementRequest {
            version: self.version,
            device_bytes: sectors * SECTOR as u64,
            level: self.level,
            chunk_sectors: if is_journal { JOURNAL_BLOCK_SECTORS as u32 } else { chunk_sectors },
            member_size_sectors: Some(data_sectors),
            data_offset_sectors: at_start.then_some(self.metadata_sectors()),
        };
        let mut placement = placement(&request).expect("there is room for data and metadata");
        placement.member_size_sectors = self.sectors(0).0;
        let superblock = Superblock::new_v1(&NewSuperblock {
            array: self.facts(placement.member_size_sectors),
            placement,
            device_number: u32::from(self.number(disk)),
            device_uuid: [disk as u8; 16],
            device_flags: DeviceFlags::default(),
            roles: self.roles(),
            events: 1,
            resync_offset: u64::MAX,
        });
        superblock.expect("a design makes a valid superblock")
    }

    /// Adds the place of the bitmap or the parity log to a superblock, if the design has one.
    fn with_place(&self, mut superblock: Superblock) -> Superblock {
        if self.bit_sectors > 0 && !self.bitmap_in_file {
            let place = superblock.bitmap_place().expect("there is room for a bitmap");
            superblock.set_bitmap(Some(place.offset_sectors));
        }
        if self.log_sectors > 0 && !self.log_is_own {
            let place = superblock.ppl_place().expect("there is room for a log");
            let (size_sectors, multiple) = (self.log_sectors, self.log_is_ring);
            assert!(place.size_sectors >= size_sectors, "there is room for a log");
            superblock.set_ppl(PplPlace { size_sectors, multiple, ..place });
        }
        superblock
    }

    fn superblock_v0(&self, disk: usize) -> Superblock {
        let (data_sectors, sectors) = self.sectors(disk);
        let has_size = !matches!(self.level, Level::Raid0 | Level::Linear);
        let unused = (0..self.first_number).map(|_| (0, 0));
        let disks = u32::from(self.slots + self.spares);
        let superblock = Superblock::new_v0(&NewV0 {
            array: self.facts(if has_size { data_sectors } else { 0 }),
            device_bytes: sectors * SECTOR as u64,
            device_number: u32::from(self.number(disk)),
            device_flags: DeviceFlags::default(),
            roles: self.roles(),
            nodes: unused.chain((0..disks).map(|disk| (8, 16 * disk))).collect(),
            events: 1,
            resync_offset: u64::MAX,
        });
        self.with_place(superblock.expect("a design makes a valid superblock"))
    }

    fn facts(&self, member_size_sectors: u64) -> ArrayFacts {
        ArrayFacts {
            uuid: [0xB7; 16],
            name: "sim:array".to_owned(),
            creation_time: Timestamp { seconds: MADE_AT_SECONDS, microseconds: 0 },
            level: self.level,
            layout: self.layout,
            chunk_sectors: if self.level == Level::Raid1 { 0 } else { self.chunk_sectors },
            member_size_sectors,
            raid_slots: u32::from(self.slots),
            preferred_minor: Some(0),
            logical_block_bytes: None,
        }
    }

    /// New disks with superblocks and without data. Data areas of spares are full of
    /// [`SPARE_BYTE`].
    pub(crate) fn disks(&self) -> Vec<Disk> {
        let disk = |index: usize| {
            if Some(index) == self.file_disk() {
                let mut disk = Disk::new(self.file_sectors());
                let stand_in = self.superblock(0).for_bitmap_file(disk.size_bytes());
                self.put_intent(&mut disk, &stand_in);
                return disk;
            }
            let superblock = self.superblock(index);
            let mut disk = Disk::new(self.sectors(index).1);
            if self.role(index) == Role::Spare {
                disk.seen.fill(SPARE_BYTE);
            }
            self.put_empty_journal(&mut disk, &superblock, 7);
            disk.put(superblock.offset_bytes() / SECTOR as u64, &superblock.to_bytes(), true);
            if !self.bitmap_in_file {
                self.put_intent(&mut disk, &superblock);
            }
            disk
        };
        (0..self.disk_count()).map(disk).collect()
    }

    /// Writes the empty bitmap and parity log of a new array to a disk.
    fn put_intent(&self, disk: &mut Disk, superblock: &Superblock) {
        if let Some(offset_bytes) = superblock.bitmap_offset_bytes() {
            let (head, bits, marks) = self.bitmap(self.resync_sectors()).expect("it has a bitmap");
            let area = head.area(&superblock.uuid_as_stored(), &bits, marks.as_ref());
            disk.put(offset_bytes / SECTOR as u64, &area, true);
        }
        self.put_empty_log(disk, superblock);
    }
}

const LAYOUTS_RAID6: [u32; 9] = [0, 1, 2, 3, 8, 9, 10, 16, 20];

/// Every kind of array that the simulator makes, with few rows.
pub(crate) fn designs(rows: u64, chunk_sectors: u32, version: Version) -> Vec<Design> {
    let of = |level, layout, slots| Design {
        level,
        layout,
        slots,
        chunk_sectors,
        rows,
        version,
        ..smallest()
    };
    let plain = |level, slots| of(level, default_layout(level), slots);
    let mut designs = vec![plain(Level::Raid1, 2), plain(Level::Raid1, 3), plain(Level::Raid4, 4)];
    designs.extend((0..6).map(|layout| of(Level::Raid5, layout, 4)));
    designs.extend([
        plain(Level::Raid5, 2),
        plain(Level::Raid5, 3),
        plain(Level::Raid5, 6),
        plain(Level::Raid6, 4),
        plain(Level::Raid6, 7),
    ]);
    designs.extend(LAYOUTS_RAID6.map(|layout| of(Level::Raid6, layout, 5)));
    for (near, far, offset, slots) in
        [(2, 1, 0, 4), (2, 1, 0, 5), (3, 1, 0, 5), (1, 2, 0, 3), (1, 2, 0, 4), (1, 2, 1, 3)]
    {
        designs.push(of(Level::Raid10, near | far << 8 | offset << 16, slots));
    }
    designs.extend([plain(Level::Raid0, 3), plain(Level::Linear, 3)]);
    designs
}

/// The smallest world, on which speed is measured: 4 members of 64 KiB in chunks of 4 KiB.
pub(crate) fn smallest() -> Design {
    Design {
        level: Level::Raid5,
        layout: default_layout(Level::Raid5),
        slots: 4,
        chunk_sectors: 8,
        rows: 16,
        version: Version::V1_2,
        spares: 0,
        first_number: 0,
        has_bad_blocks: false,
        bit_sectors: 0,
        lockless: None,
        log_sectors: 0,
        log_is_ring: false,
        log_is_own: false,
        log_is_many: true,
        journal_blocks: 0,
        bitmap_in_file: false,
        extra_sectors: [0; 3],
    }
}
