//! The stripe cache (levels 4, 5, 6): its settings and defaults for the array as a whole.
//!
//! Each of the engine's shards has its own cache; the settings are divided evenly. The defaults of
//! each shard are in `braid_engine`'s `tuning.rs`.

use std::ops::RangeInclusive;

use braid_engine::{CacheConfig, CacheMode, Tuning, UNIT_SECTORS_MAX};
use braid_geometry::{Geometry, SECTOR_BYTES};
use braid_ring::Room;

/// Minimum number of stripes of a shard: with fewer, writers would wait for each other without
/// saving much.
pub(crate) const STRIPES_MIN: u64 = 4;

const STRIPES_MAX: u64 = 64 << 10;

/// Upper limit in bytes for tuning the cache, unless the cache is larger at the start. This much
/// address space is reserved; unused pages take no memory.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// If address space is limited, a cache can be tuned up to this fraction of the free address space:
/// an eighth.
const ADDRESSES_PART: u64 = 8;

/// Maximum bytes to which a cache can be tuned in this process.
pub(crate) fn room_bytes() -> u64 {
    room_of(Room::now().addresses.map(|(left, _)| left))
}

/// As `room_bytes`, for a process with this much address space left; `None` if it has no limit.
fn room_of(addresses: Option<u64>) -> u64 {
    addresses.map_or(MEMORY_BYTES_MAX, |left| (left / ADDRESSES_PART).min(MEMORY_BYTES_MAX))
}

/// Settings of the stripe cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// When a write is acknowledged.
    pub mode: CacheMode,
    /// Bytes of memory for stripes. It bounds the writes in progress, and the remembered data.
    pub memory_bytes: u64,
    /// Bytes of a stripe unit: a power of two from 512 to 65536, at most the chunk size. Fixed at
    /// the start.
    pub unit_bytes: u32,
    /// How often full-width writes may go ahead of a stripe that must read first (md's
    /// `preread_bypass_threshold`); 0: without limit.
    pub bypass_threshold: u32,
    /// Limit of bytes that are acknowledged and not yet on the members. A write beyond the limit is
    /// acknowledged only once it is on the members.
    pub dirty_bytes_max: u64,
    /// Milliseconds that a partial stripe waits to fill up.
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
    /// The configuration of each of `shards` shards, for a cache that can be tuned up to
    /// `room_bytes`.
    pub(crate) fn config(&self, geometry: &Geometry, shards: u16, room_bytes: u64) -> CacheConfig {
        let room = Self { memory_bytes: self.memory_bytes.max(room_bytes), ..*self };
        CacheConfig {
            unit_sectors_max: self.unit_sectors_max(),
            stripes_max: room.stripes(geometry, shards),
            cached_blocks_max: None,
            tuning: self.tuning(geometry, shards),
        }
    }

    pub(crate) fn tuning(&self, geometry: &Geometry, shards: u16) -> Tuning {
        let dirty = self.dirty_bytes_max / SECTOR_BYTES / u64::from(shards);
        Tuning {
            // False until the runtime knows whether members seek ([`crate::elevators`]).
            expects_flushes: false,
            stripes: self.stripes(geometry, shards),
            mode: self.mode,
            bypass_threshold: self.bypass_threshold,
            dirty_sectors_max: u32::try_from(dirty).unwrap_or(u32::MAX),
            age_max_ms: self.age_max_ms,
        }
    }

    /// Whether writes are acknowledged before the members have them.
    pub(crate) fn answers_early(&self, geometry: &Geometry) -> bool {
        matches!(geometry, Geometry::Stripe(_)) && self.mode == CacheMode::WriteBack
    }

    /// Maximum sectors that are acknowledged and not yet on the members.
    pub(crate) fn dirty_sectors_max(&self) -> u64 {
        self.dirty_bytes_max / SECTOR_BYTES
    }

    /// The settings as an array applies them. A unit is at most a chunk, memory is whole stripes,
    /// and the dirty limit is whole sectors, the same in each shard. Levels without a cache ignore
    /// the settings.
    #[must_use]
    pub fn in_force(&self, geometry: &Geometry, shards: u16) -> Self {
        if !matches!(geometry, Geometry::Stripe(_)) {
            return *self;
        }
        let tuning = self.tuning(geometry, shards);
        let dirty_sectors = u64::from(tuning.dirty_sectors_max) * u64::from(shards);
        let unit_sectors = geometry.chunk_sectors().clamp(1, self.unit_sectors_max());
        Self {
            memory_bytes: u64::from(tuning.stripes) * self.stripes_bytes(geometry, shards),
            dirty_bytes_max: dirty_sectors * SECTOR_BYTES,
            unit_bytes: u32::try_from(u64::from(unit_sectors) * SECTOR_BYTES)
                .expect("64 KiB at most"),
            ..*self
        }
    }

    /// Bounds of the cache memory that follow from the bounds of the number of stripes. Without a
    /// cache any amount is allowed.
    #[must_use]
    pub fn memory_range(&self, geometry: &Geometry, shards: u16) -> RangeInclusive<u64> {
        if !matches!(geometry, Geometry::Stripe(_)) {
            return 0..=u64::MAX;
        }
        let bytes = self.stripes_bytes(geometry, shards);
        STRIPES_MIN * bytes..=STRIPES_MAX * bytes
    }

    fn stripes_bytes(&self, geometry: &Geometry, shards: u16) -> u64 {
        let unit_sectors = geometry.chunk_sectors().clamp(1, self.unit_sectors_max());
        let stripe_bytes = u64::from(unit_sectors) * SECTOR_BYTES * u64::from(geometry.slots());
        stripe_bytes * u64::from(shards)
    }

    fn unit_sectors_max(&self) -> u32 {
        let sectors = u64::from(self.unit_bytes) / SECTOR_BYTES;
        let sectors = u32::try_from(sectors).expect("fewer than bytes");
        sectors.clamp(1, UNIT_SECTORS_MAX).next_power_of_two()
    }

    /// Stripes of each shard. A stripe has a block of one unit for each slot.
    fn stripes(&self, geometry: &Geometry, shards: u16) -> u32 {
        let count = self.memory_bytes / self.stripes_bytes(geometry, shards);
        u32::try_from(count.clamp(STRIPES_MIN, STRIPES_MAX)).expect("clamped")
    }
}

#[cfg(test)]
mod tests {
    use braid_geometry::{Level, Shape};

    use super::*;

    #[test]
    fn memory_is_dealt_out_evenly_and_bounded() {
        let geometry = Geometry::new(&Shape::uniform(Level::Raid5, 2, 1024, 4, 1 << 20)).unwrap();
        let cache = Cache::default();
        let config = cache.config(&geometry, 4, room_of(None));
        // A stripe is a unit of 64 KiB for each of four slots: 256 KiB.
        assert_eq!((config.unit_sectors_max, config.tuning.stripes), (128, 64));
        assert_eq!(config.stripes_max, 4096);
        assert_eq!(config.tuning.dirty_sectors_max, 32 << 10);
        let room = room_of(Some(512 << 20));
        assert_eq!(cache.config(&geometry, 4, room).stripes_max, 64, "few addresses");
        let tiny = Cache { memory_bytes: 0, unit_bytes: 4096, ..cache };
        assert_eq!(tiny.tuning(&geometry, 4).stripes, 4);
        let small = Cache { unit_bytes: 4096, ..cache };
        assert_eq!(small.tuning(&geometry, 4).stripes, 1024, "the same memory");
    }

    #[test]
    fn what_is_said_to_be_set_is_what_is_in_force() {
        let geometry = Geometry::new(&Shape::uniform(Level::Raid5, 2, 64, 4, 1 << 20)).unwrap();
        let set = |memory_bytes, dirty_bytes_max| {
            Cache { memory_bytes, dirty_bytes_max, ..Cache::default() }.in_force(&geometry, 4)
        };
        let cache = set(64 << 20, 64 << 20);
        assert_eq!((cache.memory_bytes, cache.dirty_bytes_max), (64 << 20, 64 << 20));
        assert_eq!(cache.unit_bytes, 32 << 10, "the chunk");
        assert_eq!(cache.in_force(&geometry, 4), cache);
        let range = cache.memory_range(&geometry, 4);
        assert_eq!(range, 2 << 20..=32 << 30);
        assert_eq!(set(0, 0).memory_bytes, *range.start());
        assert_eq!(set(u64::MAX, u64::MAX).memory_bytes, *range.end());
        assert_eq!(set(0, 1 << 11).dirty_bytes_max, 1 << 11);
        assert_eq!(set(0, (1 << 11) - 1).dirty_bytes_max, 0);
        for memory_bytes in [2 << 20, 3 << 20, (9 << 20) + 17, 1 << 40] {
            let cache = set(memory_bytes, 1 << 30);
            let stripes = u64::from(cache.tuning(&geometry, 4).stripes);
            assert_eq!(cache.memory_bytes, stripes * (128 << 10) * 4);
        }
    }
}
