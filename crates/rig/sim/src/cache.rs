//! The settings of a shard's stripe cache: drawn at every start, and changed while the array runs.

use braid_engine::{CacheConfig, CacheMode, Tuning};
use braid_geometry::Family;

use crate::chances::Purpose;
use crate::cut::{Cut, Kind};
use crate::fault::{Fault, Mishap};
use crate::random::Random;
use crate::world::World;

/// Faults of a cycle are numbered. Numbers from here on are changes of the cache's settings.
const FIRST_ORDINAL: u64 = 2000;
/// Percentage of runs in which the cache's settings change.
const PERCENT: u64 = 35;

/// Draws the settings of a shard's cache.
pub(crate) fn any(random: &mut Random, cut: &Cut) -> CacheConfig {
    let stripes_max = *random.pick(&[1, 2, 8, 16]);
    CacheConfig {
        unit_sectors_max: *random.pick(&[2, 4, 8, 8, 128]),
        stripes_max: if cut.one_stripe { 1 } else { stripes_max },
        cached_blocks_max: None,
        tuning: tuning(stripes_max, random, cut),
    }
}

/// Draws the size of the cache file: how many blocks of acknowledged writes per shard survive the
/// process. `None`: no cache file.
pub(crate) fn file_blocks(random: &mut Random) -> Option<u32> {
    *random.pick(&[None, Some(0), Some(2), Some(16), Some(1 << 16), Some(1 << 16)])
}

fn tuning(stripes_max: u32, random: &mut Random, cut: &Cut) -> Tuning {
    let stripes = 1 + random.below(u64::from(stripes_max)) as u32;
    let is_back = random.chance(65) && !cut.write_through;
    let bypass_threshold = *random.pick(&[0, 1, 1, 2, 5]);
    let dirty_sectors_max = *random.pick(&[0, 8, 24, 64, 32 << 10]);
    let age_max_ms = *random.pick(&[0, 1, 20, 150, 500, 10_000]);
    Tuning {
        stripes: if cut.one_stripe { 1 } else { stripes },
        mode: if is_back { CacheMode::WriteBack } else { CacheMode::WriteThrough },
        bypass_threshold,
        dirty_sectors_max,
        age_max_ms,
        // This flag is not drawn but derived from drawn values, so that old seeds keep their draws.
        // It is false in a third of the cases.
        expects_flushes: !(u64::from(stripes) ^ age_max_ms).is_multiple_of(3),
    }
}

impl World {
    /// Adds changes of the cache's settings to the plan of a run of about `steps` steps from `now`
    /// on.
    pub(crate) fn plan_tuning(&mut self, (now, steps): (u64, u64)) {
        let mut random = self.chances.of(Purpose::Cache, 0);
        if self.geometry.level().family() != Family::Stripe || !random.chance(PERCENT) {
            return;
        }
        let stripes_max = self.engine.machines.shards[0].cache.stripes_max;
        for ordinal in FIRST_ORDINAL..FIRST_ORDINAL + 1 + random.below(4) {
            let tuning = tuning(stripes_max, &mut random, &self.chances.cut);
            let step = now + random.below(steps);
            if !self.chances.leaves_out(Kind::Fault, ordinal) {
                let mishap = Mishap::Tunes(tuning);
                self.engine.plan.faults.push(Fault { step, disk: 0, mishap, ordinal });
            }
        }
    }
}
