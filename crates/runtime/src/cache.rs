//! How the stripe cache of an array works (levels 4, 5, 6), for the array as a whole.
//!
//! The engine's shards each have a cache of their own; what is set here is dealt out evenly.

use braid_engine::{CacheConfig, CacheMode, ShardConfig, Tuning, UNIT_SECTORS_MAX};
use braid_geometry::{Geometry, SECTOR_BYTES};

/// Stripes of a shard, at least: fewer would make writers wait for each other without saving much.
const STRIPES_MIN: u64 = 4;

/// Stripes of a shard, at most.
const STRIPES_MAX: u64 = 64 << 10;

/// Bytes that a cache can be tuned to, at most, unless it is larger at the start. This much of
/// addresses is set aside; what is not used takes no memory.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Settings of the stripe cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// When a write is answered.
    pub mode: CacheMode,
    /// Bytes of memory for stripes: what bounds how many are in work, and how much is remembered.
    pub memory_bytes: u64,
    /// Bytes of a stripe unit, a power of two from 512 to 65536; the chunk, if that is smaller. Only
    /// heard at the start.
    pub unit_bytes: u32,
    /// How often full-width writes may go ahead of a stripe that must read first (md's
    /// `preread_bypass_threshold`); 0: always.
    pub bypass_threshold: u32,
    /// Bytes that may be answered and not on the members. A write beyond that is answered when it
    /// is written.
    pub dirty_bytes_max: u64,
    /// Milliseconds that a partial stripe is waited for to fill up.
    pub age_max_ms: u64,
}

impl Default for Cache {
    fn default() -> Self {
        let Tuning { mode, bypass_threshold, age_max_ms, .. } = Tuning::default();
        Self {
            mode,
            memory_bytes: 64 << 20,
            unit_bytes: 64 << 10,
            bypass_threshold,
            dirty_bytes_max: 64 << 20,
            age_max_ms,
        }
    }
}

impl Cache {
    /// What each of `shards` shards is made for.
    pub(crate) fn shard_config(&self, geometry: &Geometry, shards: u16) -> ShardConfig {
        let room = Self { memory_bytes: self.memory_bytes.max(MEMORY_BYTES_MAX), ..*self };
        ShardConfig {
            geometry: geometry.clone(),
            cache: CacheConfig {
                unit_sectors_max: self.unit_sectors_max(),
                stripes_max: room.stripes(geometry, shards),
                tuning: self.tuning(geometry, shards),
            },
        }
    }

    /// How each of `shards` shards is to work.
    pub(crate) fn tuning(&self, geometry: &Geometry, shards: u16) -> Tuning {
        let dirty = self.dirty_bytes_max / SECTOR_BYTES / u64::from(shards);
        Tuning {
            stripes: self.stripes(geometry, shards),
            mode: self.mode,
            bypass_threshold: self.bypass_threshold,
            dirty_sectors_max: u32::try_from(dirty).unwrap_or(u32::MAX),
            age_max_ms: self.age_max_ms,
        }
    }

    fn unit_sectors_max(&self) -> u32 {
        let sectors = u64::from(self.unit_bytes) / SECTOR_BYTES;
        let sectors = u32::try_from(sectors).expect("fewer than bytes");
        sectors.clamp(1, UNIT_SECTORS_MAX).next_power_of_two()
    }

    /// Stripes of each shard: a block of a unit for each slot.
    fn stripes(&self, geometry: &Geometry, shards: u16) -> u32 {
        let unit_sectors = geometry.chunk_sectors().clamp(1, self.unit_sectors_max());
        let stripe_bytes = u64::from(unit_sectors) * SECTOR_BYTES * u64::from(geometry.slots());
        let count = self.memory_bytes / u64::from(shards) / stripe_bytes;
        u32::try_from(count.clamp(STRIPES_MIN, STRIPES_MAX)).expect("clamped")
    }
}

#[cfg(test)]
mod tests {
    use braid_geometry::{Level, Shape};

    use super::*;

    #[test]
    fn memory_is_dealt_out_evenly_and_bounded() {
        let geometry = Geometry::new(&Shape {
            level: Level::Raid5,
            layout: 2,
            chunk_sectors: 1024,
            slots: 4,
            member_sectors: vec![1 << 20; 4],
        })
        .unwrap();
        let cache = Cache::default();
        let config = cache.shard_config(&geometry, 4).cache;
        // A unit of 64 KiB for each of four slots: 256 KiB.
        assert_eq!((config.unit_sectors_max, config.tuning.stripes), (128, 64));
        assert_eq!(config.stripes_max, 4096);
        assert_eq!(config.tuning.dirty_sectors_max, 32 << 10);
        let tiny = Cache { memory_bytes: 0, unit_bytes: 4096, ..cache };
        assert_eq!(tiny.tuning(&geometry, 4).stripes, 4);
        let small = Cache { unit_bytes: 4096, ..cache };
        assert_eq!(small.tuning(&geometry, 4).stripes, 1024, "the same memory");
    }
}
