//! A running array as the NBD server wants it.

use std::sync::Arc;

use braid_frontend_nbd::{Completion, Export, IoError, Operation, Outcome};
use braid_nbd_proto::{BlockSizes, Extent, wire};
use braid_runtime::{Volume, VolumeError, VolumeOperation};

/// One array under one name.
pub(crate) struct VolumeExport {
    name: String,
    volume: Arc<Volume>,
}

impl VolumeExport {
    pub(crate) fn new(name: String, volume: Arc<Volume>) -> Self {
        Self { name, volume }
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
        BlockSizes::BYTE_GRANULAR
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
        let done = move |outcome: braid_runtime::Outcome| {
            let status = outcome.result.map_err(error);
            completion.complete(Outcome { status, payload: outcome.payload });
        };
        self.volume.submit(operation, Box::new(done));
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
