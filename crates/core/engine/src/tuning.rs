//! The engine's settings, with defaults: the stripe cache, and when a slow member sits out.

use braid_geometry::Geometry;

use crate::context::PROBE_SECTORS;

/// The moment at which a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// When every member has the write, as in md.
    WriteThrough,
    /// When the write is in the cache; FLUSH and FUA bring it to stable storage.
    #[default]
    WriteBack,
}

/// Settings of one shard's stripe cache (levels 4, 5, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The most stripes that are being written or whose blocks are cached. At least 1, at most the
    /// number that the shard was made for. Waiting stripes do not count.
    pub stripes: u32,
    /// When writes are acknowledged.
    pub mode: CacheMode,
    /// How often full-width writes may pass a stripe that must read first; 0: always
    /// ([`crate::Bypass`]).
    pub bypass_threshold: u32,
    /// The most sectors of pieces that are acknowledged while a part is not on the members yet. A
    /// write beyond this limit is acknowledged only when the members have it.
    pub dirty_sectors_max: u32,
    /// Milliseconds that a partial stripe waits to fill up (write-back). A stripe lets full-width
    /// writes pass for at most twice that time.
    pub age_max_ms: u64,
    /// Whether a write begins at once if a flush came after every few writes before it. For members
    /// that do not seek: an arm that goes to each write by itself costs more than the flush saves.
    pub expects_flushes: bool,
}

/// Largest stripe unit, in sectors: 64 KiB. A set of its sectors is one 128-bit word.
pub const UNIT_SECTORS_MAX: u32 = 128;

/// The dimensions of one shard's stripe cache, and its first settings (levels 4, 5, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Sectors of a stripe unit, at most: a power of two up to [`UNIT_SECTORS_MAX`], or the smaller
    /// chunk.
    pub unit_sectors_max: u32,
    /// The greatest value that [`Tuning::stripes`] may take; at least one. The driver's arena has
    /// room for so many stripes ([`crate::Shard::arena_blocks`]); the driver need not allocate
    /// unused memory.
    pub stripes_max: u32,
    /// Blocks of 4 KiB in the driver's file for acknowledged writes
    /// ([`crate::effect::CacheRecord`]). `None` if the driver has no such file: acknowledged writes
    /// that the members lack are then lost with the process.
    pub cached_blocks_max: Option<u32>,
    /// The settings to start with.
    pub tuning: Tuning,
}

impl CacheConfig {
    /// A cache that never has more stripes than at first, without a file for acknowledged writes.
    #[must_use]
    pub fn in_memory(unit_sectors_max: u32, tuning: Tuning) -> Self {
        Self { unit_sectors_max, stripes_max: tuning.stripes, cached_blocks_max: None, tuning }
    }

    /// Sectors of a block, and the most sectors of one background work. On levels with parity this
    /// is the stripe unit.
    #[must_use]
    pub fn block_sectors(&self, geometry: &Geometry) -> u32 {
        match geometry {
            Geometry::Stripe(stripe) => {
                let unit_max = self.unit_sectors_max.clamp(1, UNIT_SECTORS_MAX);
                stripe.chunk_sectors().min(unit_max)
            }
            Geometry::Mirror(_) => UNIT_SECTORS_MAX,
            Geometry::Direct(_) => PROBE_SECTORS,
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            stripes: 256,
            mode: CacheMode::default(),
            bypass_threshold: 1,
            dirty_sectors_max: 32 << 10,
            age_max_ms: 500,
            expects_flushes: false,
        }
    }
}

/// The number of corrected read errors that a member may have, and the reaction to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadErrorLimit {
    /// The limit; the count of errors halves for each hour that passes. `None` allows any number.
    pub most: Option<u32>,
    /// The reaction beyond the limit.
    pub then: OnReadErrors,
}

/// The reaction to a member with more read errors than its limit. Each reaction includes the
/// reactions before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReadErrors {
    /// Warn the operator.
    Warn,
    /// If a spare is present, copy the member to the spare while the member serves; then the member
    /// leaves.
    Replace,
    /// If no spare is present and the level tolerates the loss, put the member out at once, as md
    /// does.
    Fail,
}

impl ReadErrorLimit {
    /// A limit that allows any number of read errors.
    pub const OFF: Self = Self { most: None, then: OnReadErrors::Replace };

    /// Whether `errors` exceeds the limit.
    #[must_use]
    pub fn is_exceeded_by(self, errors: u32) -> bool {
        self.most.is_some_and(|most| errors > most)
    }
}

impl Default for ReadErrorLimit {
    /// md's default limit.
    fn default() -> Self {
        Self { most: Some(20), ..Self::OFF }
    }
}

/// When a member is so slow that reads avoid it: it *sits out*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SitOut {
    /// Whether members may sit out.
    pub is_on: bool,
    /// The ratio of a member's latency to its siblings' from which the member sits out; at least 2.
    pub factor: u32,
    /// The least latency in milliseconds at which a member sits out, whatever its siblings'
    /// latency. It exceeds the time for which an elevator or a multiplexer before the members holds
    /// a read back (two periods, 400 ms).
    pub min_ms: u64,
    /// Milliseconds of a write's age that do not count, because elevators before the members let
    /// reads overtake writes. A driver without elevators sets 0.
    pub write_slack_ms: u64,
}

impl SitOut {
    /// No member sits out, and nothing is measured.
    pub const OFF: Self = Self { is_on: false, factor: 8, min_ms: 500, write_slack_ms: 0 };
}

/// How long the array waits for a silent member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Milliseconds of silence after which a member that can return goes away; `None` for ever. The
    /// time exceeds the 7 s for which disks made for RAID try a bad sector.
    pub silence_ms: Option<u64>,
    /// Milliseconds for which the slot of a member that is away waits for that member, before a
    /// spare may take the slot.
    pub spare_after_ms: u64,
}

impl Patience {
    /// The array waits for every member for ever.
    pub const ENDLESS: Self = Self { silence_ms: None, spare_after_ms: 60_000 };
}

impl Default for Patience {
    fn default() -> Self {
        Self { silence_ms: Some(8000), ..Self::ENDLESS }
    }
}

impl Default for SitOut {
    fn default() -> Self {
        Self { is_on: true, ..Self::OFF }
    }
}
