//! The field: loads and arrays around blogbench, and the result of each rule for them.
//!
//! One cell is one load on one array. A cell sets the numbers of readers and of writers, the seek
//! time, the number of members, and whether they have a write cache. The cells are all combinations
//! of these values; blogbench is in the middle.

use braid_elevator::MultiplexerSettings;
use braid_engine::Tuning;
use braid_geometry::{Geometry, Level, Shape as ArrayShape, default_layout};

use super::rule::Rule;
use super::shape::Shape;
use super::world::{Outcome, Plan, World};
use crate::disk::DiskPlan;

const READERS: [usize; 4] = [10, 50, 100, 400];
const WRITERS: [usize; 3] = [1, 9, 20];
const SEEKS_MS: [u64; 3] = [5, 8, 15];
const CACHES: [bool; 2] = [false, true];
const MEMBERS: [u16; 3] = [3, 4, 12];

/// One load on one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) readers: usize,
    /// Number of writers. A third write new files, a ninth rewrite files, the others write blocks,
    /// as blogbench's nine writers do.
    pub(super) writers: usize,
    pub(super) seek_ms: u64,
    pub(super) has_cache: bool,
    pub(super) members: u16,
}

impl Cell {
    /// The whole field, or, for a small run, its corners.
    pub(super) fn all(is_small: bool) -> Vec<Self> {
        let ends = |count: usize| [0, count - 1];
        let mut cells = Vec::new();
        for readers in READERS {
            for writers in WRITERS {
                for seek_ms in SEEKS_MS {
                    for has_cache in CACHES {
                        for members in MEMBERS {
                            cells.push(Self { readers, writers, seek_ms, has_cache, members });
                        }
                    }
                }
            }
        }
        let is_corner = |cell: &Self| {
            ends(READERS.len()).map(|end| READERS[end]).contains(&cell.readers)
                && ends(WRITERS.len()).map(|end| WRITERS[end]).contains(&cell.writers)
                && cell.seek_ms == 8
                && cell.members == 4
        };
        cells.retain(|cell| !is_small || is_corner(cell));
        cells
    }

    pub(super) fn name(&self) -> String {
        let Self { readers, writers, seek_ms, has_cache, members } = *self;
        let cache = if has_cache { "cache" } else { "no cache" };
        format!(
            "{readers:>3} readers, {writers:>2} writers, {seek_ms:>2} ms, {cache:>8}, {members:>2} members"
        )
    }

    fn disk(&self) -> DiskPlan {
        let cache_sectors = if self.has_cache { DiskPlan::SATA_2005.cache_sectors } else { 0 };
        let average_seek_ns = self.seek_ms * 1_000_000;
        DiskPlan { cache_sectors, average_seek_ns, ..DiskPlan::SATA_2005 }
    }

    fn shape(&self) -> Shape {
        let (writers, rewriters) = (self.writers / 3, self.writers / 9);
        let commenters = self.writers - writers - rewriters;
        Shape { readers: self.readers, writers, rewriters, commenters, flooders: 0 }
    }

    fn plan(&self, rule: Rule, is_small: bool) -> Plan {
        let (warm_up_s, time_s) = if is_small { (1, 2) } else { (4, 16) };
        plan(self.shape(), rule, (self.disk(), self.members), (warm_up_s, time_s))
    }

    /// The arms' total time during the counted part of a run.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(super) fn arms_ns(&self, is_small: bool) -> f64 {
        self.plan(Rule::FreeForAll, is_small).time_ns as f64 * f64::from(self.members)
    }

    pub(super) fn period_ns(&self) -> u64 {
        MultiplexerSettings::default().period_ns
    }

    pub(super) fn run(&self, rule: Rule, is_small: bool) -> Outcome {
        World::new(&self.plan(rule, is_small)).run()
    }

    /// Runs the cell with readers only, or writers only, under the rule that holds neither.
    pub(super) fn run_alone(&self, reads: bool, is_small: bool) -> Outcome {
        let plan = self.plan(Rule::FreeForAll, is_small);
        let shape = match reads {
            true => Shape { readers: self.readers, ..Shape::default() },
            false => Shape { readers: 0, ..plan.shape },
        };
        World::new(&Plan { shape, ..plan }).run()
    }
}

/// Plans a RAID-5 of the cell's disks under a rule.
pub(super) fn plan(
    shape: Shape,
    rule: Rule,
    (disk, members): (DiskPlan, u16),
    (warm_up_s, time_s): (u64, u64),
) -> Plan {
    let geometry = Geometry::new(&ArrayShape {
        level: Level::Raid5,
        layout: default_layout(Level::Raid5),
        chunk_sectors: 128,
        slots: members,
        member_sectors: vec![disk.sectors() / 4; usize::from(members)],
    })
    .expect("a RAID-5");
    let elevator = match rule {
        Rule::Braid => braid_elevator::Settings::multiplexed(),
        _ => braid_elevator::Settings::default(),
    };
    Plan {
        geometry,
        tuning: Tuning::default(),
        shape,
        rule,
        multiplexer: MultiplexerSettings::default(),
        elevator,
        disk,
        warm_up_ns: warm_up_s * 1_000_000_000,
        time_ns: time_s * 1_000_000_000,
    }
}
