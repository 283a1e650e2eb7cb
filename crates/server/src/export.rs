//! A running array as the NBD server wants it.
//!
//! Where it stands: between the server's [`Export`] and the [`Volume`]. Each of them names a request in its own way; what is
//! under way lies in [`UnderWay`] meanwhile, in places that are used again, so that a request allocates nothing.
//!
//! What clients are told beside the size: the smallest block is a byte, since any is written (by reading the sector around
//! it) unless the array says otherwise; the preferred one is the largest power of two that rows of a parity level consist
//! of, and 4 KiB where there is no parity.
//!
//! Invariant
//! - From the socket to a member's file and back nothing is allocated for a request: `tests/allocations.rs`.

use std::sync::{Arc, Mutex, PoisonError};

use braid_frontend_nbd::limits::STRETCH_BYTES;
use braid_frontend_nbd::{Completion, Export, IoError, Operation, Outcome};
use braid_nbd_proto::{BlockSizes, Extent, wire};
use braid_runtime::{Receiver, Volume, VolumeError, VolumeOperation};
use slab::Slab;

/// Bytes in a sector.
const SECTOR_BYTES: u32 = 512;

/// One array under one name.
pub struct VolumeExport {
    name: String,
    volume: Arc<Volume>,
    block_sizes: BlockSizes,
    describe: fn(&Volume) -> String,
    under_way: Arc<UnderWay>,
}

/// Whom to tell of what the volume was asked for, by the token that it knows it by.
#[derive(Default)]
struct UnderWay(Mutex<Slab<Completion>>);

impl UnderWay {
    fn places(&self) -> std::sync::MutexGuard<'_, Slab<Completion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Receiver for UnderWay {
    fn receive(self: Arc<Self>, token: u64, outcome: braid_runtime::Outcome) {
        let place = usize::try_from(token).expect("one of our tokens");
        let completion = self.places().remove(place);
        let status = outcome.result.map_err(error);
        completion.complete(Outcome { status, payload: outcome.payload });
    }
}

impl VolumeExport {
    /// `logical_block_bytes`: the smallest block that users of the array may write, if it says so; `describe`: says what it is
    /// and how, for people.
    #[must_use]
    pub fn new(
        name: String,
        volume: Arc<Volume>,
        logical_block_bytes: Option<u32>,
        describe: fn(&Volume) -> String,
    ) -> Self {
        let usual = BlockSizes::BYTE_GRANULAR;
        // Of 512 any disk is: what clients ask for in parts is read and written by sectors in any case.
        let larger = logical_block_bytes.filter(|bytes| *bytes > SECTOR_BYTES);
        let minimum = larger.unwrap_or(usual.minimum_bytes());
        let least = usual.preferred_bytes().max(minimum);
        let block_sizes =
            BlockSizes::new(minimum, preferred(volume.unit_bytes(), least), usual.maximum_bytes());
        let block_sizes = block_sizes.expect("powers of two that NBD has a word for");
        Self { name, volume, block_sizes, describe, under_way: Arc::default() }
    }
}

impl Export for VolumeExport {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        (self.describe)(&self.volume)
    }

    fn size_bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn read_only(&self) -> bool {
        self.volume.is_read_only()
    }

    fn block_sizes(&self) -> BlockSizes {
        self.block_sizes
    }

    /// Whole units, so that none is cut that the client has asked for as a whole.
    fn stretch_bytes(&self) -> u64 {
        STRETCH_BYTES.next_multiple_of(self.volume.unit_bytes())
    }

    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        self.volume.zeroes_fast(offset, length)
    }

    fn submit(&self, operation: Operation, completion: Completion) {
        let operation = match operation {
            Operation::Read { offset, payload } => VolumeOperation::Read { offset, payload },
            Operation::Write { offset, payload, fua } => {
                VolumeOperation::Write { offset, payload, durable: fua }
            }
            Operation::Flush => VolumeOperation::Flush,
            Operation::Trim { offset, length, fua } => {
                VolumeOperation::Trim { offset, length, durable: fua }
            }
            Operation::WriteZeroes { offset, length, fua, may_punch, fast } => {
                VolumeOperation::WriteZeroes { offset, length, may_punch, fast, durable: fua }
            }
            // A hint, and one that the page cache of the members takes better by itself.
            Operation::Cache { .. } => {
                return completion.complete(Outcome { status: Ok(()), payload: None });
            }
        };
        let token = self.under_way.places().insert(completion) as u64;
        let receiver: Arc<dyn Receiver> = Arc::<UnderWay>::clone(&self.under_way);
        self.volume.submit_for(operation, receiver, token);
    }

    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let extent = |extent: braid_runtime::Extent| Extent {
            length_bytes: extent.length_bytes,
            flags: if extent.is_hole { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 },
        };
        self.volume.extents(offset, length, extents_max).into_iter().map(extent).collect()
    }
}

/// The largest power of two that divides a unit, but no less than `least`, and no more than a request may have.
fn preferred(unit_bytes: u64, least: u32) -> u32 {
    let most = BlockSizes::BYTE_GRANULAR.maximum_bytes();
    let power = 1_u64 << unit_bytes.trailing_zeros();
    u32::try_from(power).unwrap_or(most).clamp(least, most)
}

fn error(error: VolumeError) -> IoError {
    match error {
        VolumeError::ReadOnly => IoError::Permission,
        VolumeError::Io(_) => IoError::Io,
        VolumeError::NoSpace => IoError::NoSpace,
        VolumeError::NoMemory => IoError::Memory,
        VolumeError::NotFast => IoError::Unsupported,
        VolumeError::OutOfRange => IoError::Invalid,
        VolumeError::Stopping => IoError::Shutdown,
    }
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
