//! The scene of a story: an array on its disks, and its settings, before the story starts.

use std::ops::Range;

use braid_engine::{CacheConfig, CacheMode, Tuning};
use braid_geometry::{Geometry, Level, Shape, Slot};
use braid_ondisk::{SuperblockUpdate, Timestamp, Version};

use super::script::Script;
use crate::bitmaps;
use crate::chances::Chances;
use crate::content::SECTOR;
use crate::create::{Design, MADE_AT_SECONDS, smallest};
use crate::cut::Cut;
use crate::cycle::CLEAN_DELAY_MS;
use crate::open::Manner;
use crate::random::Random;
use crate::trace::Trace;
use crate::world::World;

/// The event count at the start of every story.
pub(super) const EVENTS: u64 = 40;

/// The most stripes that a scene gives a shard.
const STRIPES_MAX: u32 = 40;

/// Device numbers from here on need superblocks of two sectors.
const LONG_FROM: u16 = 300;

/// Chunk sizes: 4 KiB, 64 KiB, and 256 KiB, with which the stripe unit is smaller than the chunk.
pub(super) const CHUNKS: [u32; 3] = [8, 128, 512];

#[derive(Clone)]
pub(super) struct Scene {
    pub(super) design: Design,
    pub(super) seed: u64,
    pub(super) manner: Manner,
    /// Disks that are absent at the start.
    pub(super) missing: Vec<usize>,
    /// The superblocks' resync offset: redundancy agrees below it.
    pub(super) resync_offset: u64,
    /// A disk in recovery, and its recovery offset.
    pub(super) recovering: Option<(usize, u64)>,
    /// A second disk in recovery, and its recovery offset.
    pub(super) recovering_too: Option<(usize, u64)>,
    /// Disks with a bad-block log, and the sectors of their data areas that the log names.
    pub(super) bad_blocks: Vec<(usize, Vec<Range<u64>>)>,
    /// Disks whose bad-block log names sectors that are sound.
    pub(super) named_in_vain: Vec<usize>,
    /// Whether clients' requests may fail.
    pub(super) errors_allowed: bool,
}

impl Scene {
    pub(super) fn new(design: Design, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let stripes = *random.pick(&[1, 2, 8]);
        let tuning = Tuning { stripes, mode: CacheMode::WriteThrough, ..Tuning::default() };
        // In a quarter of the stories superblocks are so long that they tear, and are written in
        // waves. With a journal superblocks are short: if the journal's only superblock tore, no
        // order of waves would help.
        let is_long = seed % 4 == 3 && design.journal_blocks == 0;
        let first_number = if is_long { LONG_FROM } else { 0 };
        let scene = Self {
            design: Design { first_number, ..design },
            seed,
            manner: Manner {
                read_only: false,
                shards: *random.pick(&[1, 2, 3]),
                cache: CacheConfig {
                    unit_sectors_max: 128,
                    stripes_max: stripes,
                    cached_blocks_max: None,
                    tuning,
                },
                jobs_paused: true,
                zero_is_fast: random.chance(50),
                clean_delay_ms: CLEAN_DELAY_MS,
            },
            missing: Vec::new(),
            resync_offset: u64::MAX,
            recovering: None,
            recovering_too: None,
            bad_blocks: Vec::new(),
            named_in_vain: Vec::new(),
            errors_allowed: false,
        };
        if random.chance(60) { scene.write_back() } else { scene }
    }

    /// Sets write-through, with the longest stripe units that are allowed.
    pub(super) fn write_through(mut self) -> Self {
        self.manner.cache.unit_sectors_max = 128;
        self.manner.cache.tuning.mode = CacheMode::WriteThrough;
        self
    }

    /// Sets write-back, with settings that the seed chooses.
    pub(super) fn write_back(mut self) -> Self {
        let mut random = Random::new(self.seed ^ 0xcac4e);
        let unit_sectors_max = *random.pick(&[2, 8, 128]);
        let stripes = *random.pick(&[1, 2, 8, STRIPES_MAX]);
        let tuning = Tuning {
            stripes,
            mode: CacheMode::WriteBack,
            bypass_threshold: *random.pick(&[0, 1, 3]),
            dirty_sectors_max: *random.pick(&[4, 64, 4000]),
            age_max_ms: *random.pick(&[1, 50, 1000]),
            expects_flushes: !self.seed.is_multiple_of(3),
        };
        self.manner.cache = CacheConfig::in_memory(unit_sectors_max, tuning);
        self
    }

    pub(super) fn with_stripes(mut self, stripes: u32) -> Self {
        self.manner.cache.tuning.stripes = stripes;
        self.manner.cache.stripes_max = stripes;
        self
    }

    pub(super) fn with_shards(mut self, shards: u16) -> Self {
        self.manner.shards = shards;
        self
    }

    /// Starts the scene's array and returns the world.
    pub(super) fn open(&self) -> Script {
        let cut = Cut { straight: true, ..Cut::default() };
        let mut world =
            World::create(&self.design, Chances::new(self.seed, cut), Trace::new(false));
        self.lay_out(&mut world);
        let disks = 0..world.disks.len();
        let presented: Vec<usize> = disks.filter(|disk| !self.missing.contains(disk)).collect();
        world.others_percent = 0;
        world.open_as(&presented, self.manner);
        for side in &mut world.engine.machines.shards {
            // Fills memory with garbage, because a shard must not rely on its initial content.
            side.arena.fill(0x5A);
        }
        world.engine.plan.errors_allowed = self.errors_allowed;
        world.trust();
        Script::new(world, Random::new(self.seed ^ 0x5ce7e))
    }

    /// Writes the scene's content and metadata to the disks.
    fn lay_out(&self, world: &mut World) {
        let data_offset = world.taint.data_offset;
        for (disk, ranges) in &self.bad_blocks {
            let superblock = world.superblock_on(*disk).expect("it is new");
            world.bad_logs.add((*disk, &superblock), ranges.clone(), &world.geometry);
        }
        world.bad_logs.write(&mut world.disks, &self.named_in_vain);
        if let Some(file) = self.design.file_disk() {
            let mut newest = world.superblock_on(0).expect("it is new");
            newest.state.events = EVENTS;
            let file = &mut world.disks[file];
            let stand_in = newest.for_bitmap_file(file.size_bytes());
            bitmaps::renew(file, &stand_in, (&self.design, false), &world.geometry);
        }
        for disk in 0..self.design.member_count() {
            let mut superblock = world.superblock_on(disk).expect("it is new");
            let mut recovering = self.recovering.into_iter().chain(self.recovering_too);
            let recovering = recovering.find(|(recovering, _)| *recovering == disk);
            superblock.apply(&SuperblockUpdate {
                events: EVENTS,
                update_time: Timestamp { seconds: MADE_AT_SECONDS, microseconds: 0 },
                resync_offset: self.resync_offset,
                roles: self.design.roles(),
                recovery_offset: recovering.map(|(_, sectors)| sectors),
                is_replacement: false,
                role_of_this: self.design.role(disk),
            });
            let start = superblock.offset_bytes() / SECTOR as u64;
            world.disks[disk].put(start, &superblock.to_bytes(), true);
            world.metadata.told(disk, &superblock, true);
            let design = (&self.design, false);
            bitmaps::renew(&mut world.disks[disk], &superblock, design, &world.geometry);
            if !self.design.bitmap_in_file {
                self.design.put_empty_log(&mut world.disks[disk], &superblock);
            }
            if let Some((_, sectors)) = recovering {
                let used = world.geometry.used_sectors(Slot(disk as u16));
                let sectors = sectors.min(used);
                let rest = vec![0xAB; (used - sectors) as usize * SECTOR];
                world.disks[disk].put(data_offset + sectors, &rest, true);
            }
        }
    }
}

/// An array of `slots` members with `rows` chunks each.
pub(super) fn design(
    level: Level,
    layout: u32,
    chunk_sectors: u32,
    slots: u16,
    rows: u64,
) -> Design {
    Design { level, layout, slots, chunk_sectors, rows, version: Version::V1_2, ..smallest() }
}

/// Every level and layout with redundancy, with chunks of this size.
pub(super) fn redundant_designs(chunk_sectors: u32) -> Vec<Design> {
    let rows = (128 / u64::from(chunk_sectors)).clamp(2, 9);
    let of = |level, layout, slots| design(level, layout, chunk_sectors, slots, rows);
    let mut all = vec![of(Level::Raid1, 0, 2), of(Level::Raid1, 0, 3), of(Level::Raid4, 0, 4)];
    all.extend((0..6).map(|layout| of(Level::Raid5, layout, 4)));
    all.extend([of(Level::Raid5, 2, 2), of(Level::Raid5, 2, 3), of(Level::Raid6, 2, 4)]);
    all.extend(
        (0..=20).filter(|layout| is_raid6(*layout)).map(|layout| of(Level::Raid6, layout, 5)),
    );
    for (near, far, offset, slots) in
        [(2, 1, 0, 4), (2, 1, 0, 5), (3, 1, 0, 5), (1, 2, 0, 3), (1, 2, 0, 4), (1, 2, 1, 3)]
    {
        all.push(of(Level::Raid10, near | far << 8 | offset << 16, slots));
    }
    all
}

/// One small design for each kind of redundancy.
pub(super) fn one_of_each() -> [Design; 4] {
    [
        design(Level::Raid1, 0, 8, 2, 9),
        design(Level::Raid5, 2, 128, 4, 4),
        design(Level::Raid6, 2, 8, 5, 9),
        design(Level::Raid10, 0x102, 8, 4, 9),
    ]
}

fn is_raid6(layout: u32) -> bool {
    let (level, chunk_sectors, slots) = (Level::Raid6, 8, 5);
    Geometry::new(&Shape::uniform(level, layout, chunk_sectors, slots, 64)).is_ok()
}

/// Levels without redundancy, some with members of unequal size.
pub(super) fn plain_designs(chunk_sectors: u32) -> Vec<Design> {
    let chunk = u64::from(chunk_sectors);
    let of = |level, layout, slots, rows| design(level, layout, chunk_sectors, slots, rows);
    let unequal = |level, layout| Design {
        extra_sectors: [3, 3 * chunk, chunk + 1],
        ..of(level, layout, 3, 2)
    };
    vec![
        unequal(Level::Raid0, 1),
        unequal(Level::Raid0, 2),
        of(Level::Raid0, 1, 2, 4),
        unequal(Level::Linear, 0),
    ]
}
