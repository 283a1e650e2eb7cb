//! Adapts an array or a device to the NBD server.
//!
//! This module stands between the server's [`Export`] and a [`Disk`]. Requests and completions pass
//! unchanged; the module adds the facts that NBD announces in addition to the size.
//!
//! The smallest block is a byte, unless the array declares another: any byte is writable, by
//! reading the sector around the byte. The preferred block is the largest power of two that divides
//! a row of a parity level, and 4 KiB without parity.
//!
//! Invariant
//! - From the socket to a member's file and back no request allocates: `tests/allocations.rs`.

use std::sync::Arc;

use braid_frontend_nbd::limits::STRETCH_BYTES;
use braid_frontend_nbd::{ClientRequest, Completion, Export};
use braid_nbd_proto::{BlockSizes, Extent, wire};
use braid_runtime::Disk;

const SECTOR_BYTES: u32 = 512;

/// One disk under one name.
pub struct DiskExport {
    name: String,
    disk: Arc<dyn Disk>,
    block_sizes: BlockSizes,
    describe: Box<dyn Fn() -> String + Send + Sync>,
}

impl DiskExport {
    /// `logical_block_bytes` is the smallest block that users of the disk may write, if the disk
    /// declares one. `describe` returns the disk's kind and state for people.
    ///
    /// # Panics
    /// The logical block is no power of two, or larger than a request may be.
    #[must_use]
    pub fn new(
        name: String,
        disk: Arc<dyn Disk>,
        logical_block_bytes: Option<u32>,
        describe: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        let usual = BlockSizes::BYTE_GRANULAR;
        // A declared block of 512 bytes is ignored: the array serves requests for parts of a sector
        // anyway, by reading and writing the sector.
        let larger = logical_block_bytes.filter(|bytes| *bytes > SECTOR_BYTES);
        let minimum = larger.unwrap_or(usual.minimum_bytes());
        let least = usual.preferred_bytes().max(minimum);
        let block_sizes =
            BlockSizes::new(minimum, preferred(disk.unit_bytes(), least), usual.maximum_bytes());
        let block_sizes = block_sizes.expect("powers of two that NBD has a word for");
        Self { name, disk, block_sizes, describe: Box::new(describe) }
    }
}

impl Export for DiskExport {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        (self.describe)()
    }

    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn block_sizes(&self) -> BlockSizes {
        self.block_sizes
    }

    /// A stretch is a whole number of units, so that a request for one whole unit is not cut.
    fn stretch_bytes(&self) -> u64 {
        STRETCH_BYTES.next_multiple_of(self.disk.unit_bytes())
    }

    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        self.disk.zeroes_fast(offset, length)
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        self.disk.submit(request, completion);
    }

    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let extent = |extent: braid_runtime::Extent| Extent {
            length_bytes: extent.length_bytes,
            flags: if extent.is_hole { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 },
        };
        self.disk.extents(offset, length, extents_max).into_iter().map(extent).collect()
    }
}

/// The largest power of two that divides a unit: at least `least`, at most a request's maximum.
fn preferred(unit_bytes: u64, least: u32) -> u32 {
    let most = BlockSizes::BYTE_GRANULAR.maximum_bytes();
    let power = 1_u64 << unit_bytes.trailing_zeros();
    u32::try_from(power).unwrap_or(most).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_preferred_as_far_as_they_are_powers_of_two() {
        let chunk = 512 << 10;
        for (unit, expected) in [
            (512, 4096),
            (4 * chunk, 2 << 20),
            (3 * chunk, 512 << 10),
            (6 * (64 << 10), 128 << 10),
            (1 << 40, 64 << 20),
        ] {
            assert_eq!(preferred(unit, 4096), expected, "{unit}");
        }
        assert_eq!(preferred(512, 8192), 8192, "no less than what may be written");
    }
}
