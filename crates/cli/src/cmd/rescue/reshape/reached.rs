//! How far md got with a reshape in place, by what stands on the array: its position is older than that.

use std::ops::Range;

use braid_ondisk::ReshapeSide;
use braid_runtime::Volume;
use braid_solver::{Boundary, Effort, Platter, boundary};

use super::{Care, Moving, SECTOR_BYTES, joined};
use crate::cmd::Globals;
use crate::cmd::rescue::disks::Disks;

/// Of each shape 32 MiB at two places, 256 windows of 128 KiB, and as many where md may have been.
const EFFORT: Effort = Effort { head_sectors: 32 << 11, windows: 256, window_sectors: 256 };

/// What was found.
pub(super) struct Reached {
    /// Where md recorded that it was.
    pub(super) recorded_sectors: u64,
    /// Between which sectors it was.
    pub(super) between: Range<u64>,
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

impl Moving {
    /// Looks how far md got. Unless the array says it, all that is ahead of the position stays at risk.
    pub(in crate::cmd::rescue) fn find_out(
        &mut self,
        (disks, members): (&Disks, &[usize]),
        globals: &Globals,
    ) {
        let is_readable = self.sides.iter().all(|side| side.plan.array.is_ok());
        if self.at_risk.is_empty() || !self.reshaping.is_in_place() || !is_readable {
            return;
        }
        let reading = |side: ReshapeSide| {
            let side = self.sides.iter().find(|one| one.side == side)?;
            let volume = self.volume(side, (disks, members), Care::Read, globals).ok()?;
            Some(Reading { volume, sectors: self.reshaping.size_sectors })
        };
        let both = (reading(ReshapeSide::Before), reading(ReshapeSide::After));
        let (Some(before), Some(after)) = both else { return };
        let readings: (&dyn Platter, &dyn Platter) = match self.reshaping.backwards {
            false => (&after, &before),
            true => (&before, &after),
        };
        let ahead = self.reshaping.on(ReshapeSide::Before);
        let Some(Boundary { between, places }) = boundary(readings, ahead, &EFFORT) else { return };
        let recorded_sectors = self.reshaping.position_sectors;
        self.reshaping.got_to(&between);
        self.reached = Some(Reached { recorded_sectors, between, places });
        self.settle_risk();
    }
}
