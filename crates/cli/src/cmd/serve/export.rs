//! A running array as the NBD server wants it.
//!
//! Where it stands: between the server's [`Export`] and the [`Volume`]. Each of them names a request in its own way; what is
//! under way lies in [`UnderWay`] meanwhile, in places that are used again, so that a request allocates nothing.
//!
//! Invariant
//! - From the socket to a member's file and back nothing is allocated for a request: `tests/allocations.rs`.

use std::sync::{Arc, Mutex, PoisonError};

use braid_frontend_nbd::{Completion, Export, IoError, Operation, Outcome};
use braid_nbd_proto::{BlockSizes, Extent, wire};
use braid_runtime::{Receiver, Volume, VolumeError, VolumeOperation};
use slab::Slab;

/// Bytes in a sector.
const SECTOR_BYTES: u32 = 512;

/// One array under one name.
pub(crate) struct VolumeExport {
    name: String,
    volume: Arc<Volume>,
    block_sizes: BlockSizes,
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
    /// `logical_block_bytes`: the smallest block that users of the array may write, if it says so.
    pub(crate) fn new(name: String, volume: Arc<Volume>, logical_block_bytes: Option<u32>) -> Self {
        let usual = BlockSizes::BYTE_GRANULAR;
        // Of 512 any disk is: what clients ask for in parts is read and written by sectors in any case.
        let larger = logical_block_bytes.filter(|bytes| *bytes > SECTOR_BYTES);
        let block_sizes = larger.map_or(usual, |bytes| {
            let sizes =
                BlockSizes::new(bytes, usual.preferred_bytes().max(bytes), usual.maximum_bytes());
            sizes.expect("a power of two that NBD has a word for")
        });
        Self { name, volume, block_sizes, under_way: Arc::default() }
    }
}

impl Export for VolumeExport {
    fn name(&self) -> &str {
        &self.name
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

    fn submit(&self, operation: Operation, completion: Completion) {
        let operation = match operation {
            Operation::Read { offset, payload } => VolumeOperation::Read { offset, payload },
            Operation::Write { offset, payload, fua } => {
                VolumeOperation::Write { offset, payload, durable: fua }
            }
            Operation::Flush => VolumeOperation::Flush,
            Operation::Trim { offset, length, fua } => {
                VolumeOperation::Trim { offset, length: length.into(), durable: fua }
            }
            Operation::WriteZeroes { offset, length, fua, may_punch, fast } => {
                VolumeOperation::WriteZeroes {
                    offset,
                    length: length.into(),
                    may_punch,
                    fast,
                    durable: fua,
                }
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

    fn block_status(&self, offset: u64, length: u32, extents_max: usize) -> Vec<Extent> {
        let extent = |extent: braid_runtime::Extent| Extent {
            length_bytes: u32::try_from(extent.length_bytes).expect("no longer than asked for"),
            flags: if extent.is_hole { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 },
        };
        self.volume.extents(offset, length.into(), extents_max).into_iter().map(extent).collect()
    }
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
