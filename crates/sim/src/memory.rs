//! Payloads and arenas: the memory that the engine's buffers name.
//!
//! Safe and plain: sources are copied out before targets are touched. What no step may do is
//! asserted: leave a block, leave a payload, write into the payload of a write.

use std::collections::BTreeMap;

use braid_engine::buffer::Buffer;
use braid_engine::job::{Memory, Span};
use braid_engine::request::RequestId;

use crate::content::SECTOR;

/// A client's memory.
pub(crate) struct Payload {
    pub(crate) data: Vec<u8>,
    pub(crate) may_change: bool,
}

pub(crate) type Payloads = BTreeMap<RequestId, Payload>;

/// What a shard can reach.
pub(crate) struct Reach<'a> {
    pub(crate) arena: &'a mut Vec<u8>,
    pub(crate) block_bytes: usize,
    pub(crate) payloads: &'a mut Payloads,
}

impl Reach<'_> {
    pub(crate) fn bytes(&mut self, buffer: Buffer, length: usize, to_change: bool) -> &mut [u8] {
        match buffer {
            Buffer::Block { block, offset_sectors } => {
                let offset = offset_sectors as usize * SECTOR;
                assert!(
                    offset + length <= self.block_bytes,
                    "{buffer:?}+{length} leaves its block"
                );
                let start = block.0 as usize * self.block_bytes + offset;
                &mut self.arena[start..start + length]
            }
            Buffer::Payload { request, offset_sectors } => {
                let payload = self.payloads.get_mut(&request);
                let payload = payload.expect(
                    "a payload lives until its request is answered and nothing of it is held",
                );
                assert!(payload.may_change || !to_change, "the payload of a write was changed");
                let start = offset_sectors as usize * SECTOR;
                &mut payload.data[start..start + length]
            }
        }
    }
}

impl Memory for Reach<'_> {
    fn lend(
        &mut self,
        targets: &[Span],
        sources: &[Span],
        work: &mut dyn FnMut(&mut [&mut [u8]], &[&[u8]]),
    ) {
        let copy = |memory: &mut Self, spans: &[Span], to_change| -> Vec<Vec<u8>> {
            let copy =
                |span: &Span| memory.bytes(span.buffer, span.length_bytes, to_change).to_vec();
            spans.iter().map(copy).collect()
        };
        let source_bytes = copy(self, sources, false);
        let mut target_bytes = copy(self, targets, true);
        let source_slices: Vec<&[u8]> = source_bytes.iter().map(Vec::as_slice).collect();
        let mut target_slices: Vec<&mut [u8]> =
            target_bytes.iter_mut().map(Vec::as_mut_slice).collect();
        work(&mut target_slices, &source_slices);
        for (span, bytes) in targets.iter().zip(target_bytes) {
            self.bytes(span.buffer, span.length_bytes, true).copy_from_slice(&bytes);
        }
    }
}
