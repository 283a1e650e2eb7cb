//! An export in memory, for tests, examples and measurements of the server alone.
//!
//! Where it stands: an [`Export`] like the runtime's, but every request is done before `submit`
//! returns. Blocks of 4096 bytes that hold only zeroes are reported as holes. Nothing is durable.

use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_nbd_proto::{BlockSizes, Extent, wire};

use braid_ring::client::{ClientRequest, Completion, Outcome, RequestError};

use crate::export::Export;

const BLOCK_BYTES: usize = 4096;

/// An export of bytes in memory, under a lock.
#[derive(Debug)]
pub struct MemoryExport {
    name: String,
    read_only: bool,
    block_sizes: BlockSizes,
    bytes: Mutex<Vec<u8>>,
}

impl MemoryExport {
    /// A writable export of zeroes with byte-granular blocks.
    #[must_use]
    pub fn new(name: &str, size_bytes: usize) -> Self {
        Self {
            name: name.to_owned(),
            read_only: false,
            block_sizes: BlockSizes::BYTE_GRANULAR,
            bytes: Mutex::new(vec![0; size_bytes]),
        }
    }

    /// Makes the export refuse writes, or accept them.
    #[must_use]
    pub fn with_read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// Changes the export's block sizes.
    #[must_use]
    pub fn with_block_sizes(self, block_sizes: BlockSizes) -> Self {
        Self { block_sizes, ..self }
    }

    /// The export's bytes, locked.
    pub fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn range(&self, offset: u64, length: usize) -> Result<std::ops::Range<usize>, RequestError> {
        let start = usize::try_from(offset).map_err(|_| RequestError::OutOfRange)?;
        let end = start.checked_add(length).ok_or(RequestError::OutOfRange)?;
        if end > self.bytes().len() { Err(RequestError::OutOfRange) } else { Ok(start..end) }
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), RequestError> {
        let range =
            self.range(offset, usize::try_from(length).map_err(|_| RequestError::OutOfRange)?)?;
        self.bytes()[range].fill(0);
        Ok(())
    }
}

impl Export for MemoryExport {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn block_sizes(&self) -> BlockSizes {
        self.block_sizes
    }

    fn submit(&self, operation: ClientRequest, completion: Completion) {
        let outcome = match operation {
            ClientRequest::Read { offset, mut payload } => {
                let result = self.range(offset, payload.len()).map(|range| {
                    payload.copy_from_slice(&self.bytes()[range]);
                });
                Outcome { result, payload: Some(payload) }
            }
            ClientRequest::Write { offset, payload, .. } => {
                let result = self.range(offset, payload.len()).map(|range| {
                    self.bytes()[range].copy_from_slice(&payload);
                });
                Outcome { result, payload: Some(payload) }
            }
            ClientRequest::Trim { offset, length, .. }
            | ClientRequest::WriteZeroes { offset, length, .. } => {
                Outcome { result: self.zero(offset, length), payload: None }
            }
            ClientRequest::Flush => Outcome { result: Ok(()), payload: None },
        };
        completion.complete(outcome);
    }

    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let length_bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let Ok(range) = self.range(offset, length_bytes) else {
            return vec![Extent { length_bytes: length, flags: 0 }];
        };
        let bytes = self.bytes();
        let mut extents: Vec<Extent> = Vec::new();
        let mut start = range.start;
        while start < range.end {
            let end = ((start / BLOCK_BYTES + 1) * BLOCK_BYTES).min(range.end);
            let zero = bytes[start..end].iter().all(|byte| *byte == 0);
            let flags = if zero { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 };
            let length_bytes = (end - start) as u64;
            let full = extents.len() == extents_max;
            match extents.last_mut() {
                Some(last) if last.flags == flags => last.length_bytes += length_bytes,
                _ if full => break,
                _ => extents.push(Extent { length_bytes, flags }),
            }
            start = end;
        }
        extents
    }
}
