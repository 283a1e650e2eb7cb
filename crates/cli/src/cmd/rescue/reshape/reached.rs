//! How far md got with a reshape in place, by what stands on the array: the position that it recorded is older than that.

use std::ops::Range;

use braid_assembly::reshape::Reshaping;
use braid_ondisk::ReshapeSide;
use braid_runtime::Volume;
use braid_solver::{Boundary, Effort, Platter, boundary};

use super::joined;

/// Bytes in a sector.
const SECTOR_BYTES: u64 = 512;
/// Of each shape 32 MiB at two places, 256 windows of 128 KiB, and as many where md may have been.
const EFFORT: Effort = Effort { head_sectors: 32 << 11, windows: 256, window_sectors: 256 };

/// What was found.
pub(super) struct Reached {
    /// Where md recorded that it was.
    pub(super) recorded_sectors: u64,
    /// Between which sectors it was.
    pub(super) between: Range<u64>,
    /// Where in them most likely.
    pub(super) likely: u64,
    /// Places that said so.
    pub(super) places: usize,
}

/// All of the array as one of its shapes reads it.
struct Reading {
    volume: Volume,
    sectors: u64,
}

impl Platter for Reading {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        joined::read(&self.volume, bytes, sector * SECTOR_BYTES).is_ok()
    }
}

/// How far md got, if the array says it. Both volumes are all of it.
pub(super) fn reached(reshaping: &Reshaping, before: Volume, after: Volume) -> Option<Reached> {
    let reading = |volume| Reading { volume, sectors: reshaping.size_sectors };
    let (before, after) = (reading(before), reading(after));
    let readings: (&dyn Platter, &dyn Platter) = match reshaping.backwards {
        false => (&after, &before),
        true => (&before, &after),
    };
    let ahead = reshaping.on(ReshapeSide::Before);
    let Boundary { between, likely, places } = boundary(readings, ahead, &EFFORT)?;
    Some(Reached { recorded_sectors: reshaping.position_sectors, between, likely, places })
}
