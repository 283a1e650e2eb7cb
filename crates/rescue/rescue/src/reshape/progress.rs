//! Finds in the array's content how far md got with a reshape in place: the position in the
//! superblocks is older.

use std::cell::RefCell;
use std::collections::BTreeSet;

use braid_assembly::reshape::Reshaping;
use braid_ondisk::ReshapeSide;
use braid_runtime::Volume;
use braid_solver::{Boundary, Effort, Platter, boundary};

use super::reshape_device::{SECTOR_BYTES, read};

/// The amount read to find the reshape's progress: 32 MiB of each shape at two places, 256 windows
/// of 128 KiB, and as many windows where md may have been.
const EFFORT: Effort = Effort { head_sectors: 32 << 11, windows: 256, window_sectors: 256 };

/// The array, read in one shape. A failed read is not repeated: disks take seconds to fail.
struct ShapeReading {
    volume: Volume,
    sectors: u64,
    failed: RefCell<BTreeSet<(u64, usize)>>,
}

impl Platter for ShapeReading {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        let asked = (sector, bytes.len());
        if self.failed.borrow().contains(&asked) {
            return false;
        }
        let is_read = read(&self.volume, bytes, sector * SECTOR_BYTES).is_ok();
        if !is_read {
            self.failed.borrow_mut().insert(asked);
        }
        is_read
    }
}

/// How far md got, if the content shows it. Both volumes cover the whole array.
pub(super) fn progress(reshaping: &Reshaping, before: Volume, after: Volume) -> Option<Boundary> {
    let sectors = reshaping.size_sectors;
    let reading = |volume| ShapeReading { volume, sectors, failed: RefCell::default() };
    let (before, after) = (reading(before), reading(after));
    let readings: (&dyn Platter, &dyn Platter) = match reshaping.backwards {
        false => (&after, &before),
        true => (&before, &after),
    };
    let ahead = reshaping.on(ReshapeSide::Before);
    boundary(readings, ahead, &EFFORT)
}
