//! The memory of a driver: a shard's blocks and clients' payloads in one run of bytes.

use braid_engine::buffer::Buffer;
use braid_engine::computation::{Memory, Span, Work};
use braid_engine::request::RequestId;
use braid_geometry::SECTOR_BYTES;
use smallvec::SmallVec;

use crate::pages::Pages;

pub(super) const SECTOR: usize = 512;
const _: () = assert!(SECTOR as u64 == SECTOR_BYTES, "the same sector");

/// How many runs are kept on the stack: more than one step of work names on most arrays.
const RUNS: usize = 16;

/// The blocks first, then the payloads, each payload at its request's number.
#[derive(Debug)]
pub(super) struct Bytes {
    memory: Pages,
    block_bytes: usize,
    payloads_start: usize,
    payload_bytes: usize,
}

impl Bytes {
    /// Memory for this many blocks and payloads of these lengths. All of it is written, with bytes
    /// that differ.
    pub(super) fn new(
        (blocks, block_bytes): (usize, usize),
        (payloads, payload_bytes): (usize, usize),
    ) -> Self {
        let payloads_start = blocks * block_bytes;
        let length = payloads_start + payloads * payload_bytes;
        let mut memory = Pages::filled(length, 0);
        let pattern: Vec<u8> = (0..251).cycle().map(|byte| byte ^ 0x5a).take(251 * 16).collect();
        memory.chunks_mut(pattern.len()).for_each(|run| run.copy_from_slice(&pattern[..run.len()]));
        Self { memory, block_bytes, payloads_start, payload_bytes }
    }

    fn place(&self, buffer: Buffer) -> usize {
        let bytes = |sectors: u32| sectors as usize * SECTOR;
        match buffer {
            Buffer::Block { block, offset_sectors } => {
                block.0 as usize * self.block_bytes + bytes(offset_sectors)
            }
            Buffer::Payload { request, offset_sectors } => {
                self.payload_place(request) + bytes(offset_sectors)
            }
        }
    }

    fn payload_place(&self, request: RequestId) -> usize {
        let number = usize::try_from(request.0).expect("payloads are numbered from zero");
        self.payloads_start + number * self.payload_bytes
    }

    pub(super) fn run(&mut self, buffer: Buffer, bytes: usize) -> &mut [u8] {
        let place = self.place(buffer);
        &mut self.memory[place..place + bytes]
    }

    pub(super) fn payload(&mut self, request: RequestId) -> &mut [u8] {
        let place = self.payload_place(request);
        &mut self.memory[place..place + self.payload_bytes]
    }
}

impl Memory for Bytes {
    fn lend(&mut self, targets: &[Span], sources: &[Span], work: Work<'_>) {
        let mut runs: SmallVec<[(usize, usize, usize); RUNS]> = targets
            .iter()
            .chain(sources)
            .enumerate()
            .map(|(index, span)| (self.place(span.buffer), span.length_bytes, index))
            .collect();
        runs.sort_unstable();
        let mut lent: SmallVec<[&mut [u8]; RUNS]> =
            runs.iter().map(|_| Default::default()).collect();
        let (mut rest, mut at) = (&mut self.memory[..], 0);
        for (place, bytes, index) in runs {
            let (_, behind) = rest.split_at_mut(place - at);
            let (run, behind) = behind.split_at_mut(bytes);
            lent[index] = run;
            (rest, at) = (behind, place + bytes);
        }
        let (targets, sources) = lent.split_at_mut(targets.len());
        let sources: SmallVec<[&[u8]; RUNS]> = sources.iter().map(|run| &**run).collect();
        work(targets, &sources);
    }
}

#[cfg(test)]
mod tests {
    use braid_engine::buffer::BlockIndex;

    use super::*;

    #[test]
    fn runs_are_lent_in_the_order_they_were_named() {
        let mut bytes = Bytes::new((4, 1024), (2, 512));
        let block =
            |block, offset_sectors| Buffer::Block { block: BlockIndex(block), offset_sectors };
        let payload = Buffer::Payload { request: RequestId(1), offset_sectors: 0 };
        for (number, buffer) in [(1, block(3, 1)), (2, block(0, 0)), (3, payload), (4, block(3, 0))]
        {
            bytes.run(buffer, 512).fill(number);
        }
        let span = |buffer| Span { buffer, length_bytes: 512 };
        let (targets, sources) = ([block(3, 1)], [payload, block(3, 0), block(0, 0)]);
        bytes.lend(&targets.map(span), &sources.map(span), &mut |targets, sources| {
            assert_eq!(targets[0], [1; 512]);
            assert_eq!(sources, [[3; 512], [4; 512], [2; 512]]);
            targets[0].copy_from_slice(sources[0]);
        });
        assert_eq!(bytes.run(block(3, 1), 512), [3; 512]);
        assert_eq!(bytes.payload(RequestId(1)), [3; 512]);
    }
}
