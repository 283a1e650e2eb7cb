//! Payloads and arenas: the memory that the engine's buffers name.
//!
//! A computation step copies its sources before it touches its targets, without unsafe code.
//! Assertions catch every step that goes beyond its block or payload, or changes a write's payload.

use std::collections::BTreeMap;

use braid_engine::buffer::{Buffer, PayloadBuffer, payload_buffer_of};
use braid_engine::computation::{Memory, Span};
use braid_engine::request::RequestId;

use crate::members::SECTOR;

/// A client's memory.
pub(crate) struct Payload {
    /// Whole sectors.
    pub(crate) data: Vec<u8>,
    /// Whether a step may change the payload, because it belongs to a read.
    pub(crate) may_change: bool,
    /// The shadow buffer after an abandoned read, and which of its sectors were filled.
    shadow: Option<(Vec<u8>, Vec<bool>)>,
    is_left: bool,
}

impl Payload {
    /// A client's memory. If `may_change`, it belongs to a read; else to a write, and no step
    /// changes it.
    pub(crate) fn new(data: Vec<u8>, may_change: bool) -> Self {
        Self { data, may_change, shadow: None, is_left: false }
    }

    fn shadow(&mut self, start: usize, length: usize, to_change: bool) -> &mut [u8] {
        let (bytes, sectors) = (self.data.len(), self.data.len() / SECTOR);
        let (data, made) =
            self.shadow.get_or_insert_with(|| (vec![0x22; bytes], vec![false; sectors]));
        let run = start / SECTOR..(start + length) / SECTOR;
        assert!(self.may_change, "only a read has a shadow buffer");
        assert!(to_change || made[run.clone()].iter().all(|made| *made), "no data was put there");
        made[run].fill(true);
        &mut data[start..start + length]
    }
}

/// Clients' memory by request, and buffers left to abandoned reads. Late reads may still change
/// such a buffer, and no client reads it.
#[derive(Default)]
pub(crate) struct Payloads {
    live: BTreeMap<RequestId, Payload>,
    left: BTreeMap<RequestId, Vec<u8>>,
}

impl Payloads {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Abandons a read of this request: the late read keeps the client's buffer, and the request
    /// goes on in a shadow buffer.
    ///
    /// # Panics
    /// If the request has no payload.
    pub(crate) fn leave(&mut self, request: RequestId) {
        self.live.get_mut(&request).expect("the payload of a read").is_left = true;
    }

    /// The request is answered: the bytes of its shadow buffer are the client's data.
    ///
    /// # Panics
    /// If a shadow buffer exists although no read was abandoned.
    pub(crate) fn join(&mut self, request: RequestId) {
        let Some(payload) = self.live.get_mut(&request) else { return };
        if !payload.is_left {
            return assert!(payload.shadow.is_none(), "a shadow buffer has no abandoned read");
        }
        let length = payload.data.len();
        let nothing = || (vec![0x33; length], vec![true; length / SECTOR]);
        let (shadow, made) = payload.shadow.take().unwrap_or_else(nothing);
        let first = std::mem::replace(&mut payload.data, shadow);
        let sectors = payload.data.chunks_exact_mut(SECTOR).zip(first.chunks_exact(SECTOR));
        for ((data, first), _) in sectors.zip(made).filter(|(_, made)| !made) {
            data.copy_from_slice(first);
        }
        self.left.insert(request, first);
    }
}

impl std::ops::Deref for Payloads {
    type Target = BTreeMap<RequestId, Payload>;

    fn deref(&self) -> &Self::Target {
        &self.live
    }
}

impl std::ops::DerefMut for Payloads {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.live
    }
}

/// The memory that a shard may read and write.
pub(crate) struct ReachableMemory<'a> {
    /// The shard's blocks, one after the other.
    pub(crate) arena: &'a mut Vec<u8>,
    pub(crate) block_bytes: usize,
    pub(crate) payloads: &'a mut Payloads,
}

impl ReachableMemory<'_> {
    /// The first `length` bytes of the memory that a buffer names.
    ///
    /// # Panics
    /// If the bytes reach beyond the buffer's block or payload, if the payload was returned to its
    /// client, or if a write's payload would change.
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
                let (payload_buffer, offset_sectors) = payload_buffer_of(offset_sectors);
                let start = offset_sectors as usize * SECTOR;
                let Payloads { live, left } = &mut *self.payloads;
                if let (PayloadBuffer::Client, Some(left)) =
                    (payload_buffer, left.get_mut(&request))
                {
                    assert!(to_change, "no step reads an abandoned buffer");
                    return &mut left[start..start + length];
                }
                let payload = live.get_mut(&request);
                let payload = payload
                    .expect("a payload lives until its request is answered and no shard holds it");
                assert!(payload.may_change || !to_change, "the payload of a write was changed");
                match payload_buffer {
                    PayloadBuffer::Client => &mut payload.data[start..start + length],
                    PayloadBuffer::Shadow => payload.shadow(start, length, to_change),
                }
            }
        }
    }
}

impl Memory for ReachableMemory<'_> {
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
