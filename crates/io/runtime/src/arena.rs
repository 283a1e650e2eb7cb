//! The bytes that the engine names: a shard's blocks, and clients' payloads, lent to many threads.
//!
//! Place in the flow: above the runs of bytes ([`crate::shared_bytes`]) and the requests that own
//! them ([`crate::requests`]). The engine names bytes. The effects that are in flight never name
//! overlapping runs if one of them writes. The engine's states keep that discipline: a stripe has
//! either member requests or a computation in flight, never both on one block. A payload goes back
//! to its client only once every piece of the request is answered and released. The compiler cannot
//! see this, so the access is `unsafe` in a few places, under an interface that takes the engine's
//! own names.
//!
//! An abandoned read is the exception: it may still write its run of the payload. Reconstruction
//! fills the request's shadow buffer instead of that run. The request, with the client's payload,
//! lives until the last read that may write it has released it. A read that finds its request gone
//! ends without effect.
//!
//! Release builds check that every run lies inside its memory. Debug builds also check a
//! computation's targets against each other and against its sources.

use std::io::{IoSlice, IoSliceMut};

use braid_engine::buffer::{Buffer, PayloadBuffer, payload_buffer_of};
use braid_engine::computation::{Memory, Span, Work};
use braid_geometry::SECTOR_BYTES;
#[cfg(not(loom))]
use braid_ring::Lease;
use smallvec::SmallVec;

use crate::requests::{Request, Requests, Shadow};
use crate::shared_bytes::SharedBytes;
use crate::sync::Arc;
use crate::sync::witness::{AccessGuard, Witness};

/// Runs that one step of work borrows at once, kept on the stack: enough for a step on most arrays.
type Few<T> = SmallVec<[T; 16]>;

/// The memory that one shard's effects name: its own blocks, and clients' payloads.
#[derive(Clone)]
pub(crate) struct ShardMemory {
    blocks: Arc<SharedBytes>,
    block_bytes: usize,
    requests: Arc<Requests>,
}

/// A buffer after look-up: the memory that holds it, and its offset there.
enum ResolvedBuffer {
    Block(usize),
    Payload(Arc<Request>, usize),
    Shadow(Arc<Shadow>, usize),
}

fn to_bytes(sectors: u32) -> usize {
    usize::try_from(u64::from(sectors) * SECTOR_BYTES).expect("addresses have 64 bits here")
}

impl ShardMemory {
    /// Memory for `blocks` blocks of `block_sectors` sectors each. Pages that are never used cost
    /// nothing. Fails if the address space has no room for the blocks.
    pub(crate) fn new(
        blocks: u32,
        block_sectors: u32,
        requests: Arc<Requests>,
    ) -> std::io::Result<Self> {
        let block_bytes = to_bytes(block_sectors);
        let blocks = usize::try_from(blocks).expect("addresses have 64 bits here");
        let blocks = SharedBytes::reserve(blocks * block_bytes)?;
        Ok(Self { blocks: Arc::new(blocks), block_bytes, requests })
    }

    fn resolve(&self, buffer: Buffer) -> ResolvedBuffer {
        self.find(buffer).expect("a request in flight")
    }

    /// Finds a buffer's memory; `None` if the buffer's request has ended.
    fn find(&self, buffer: Buffer) -> Option<ResolvedBuffer> {
        Some(match buffer {
            Buffer::Block { block, offset_sectors } => {
                let index = usize::try_from(block.0).expect("addresses have 64 bits here");
                ResolvedBuffer::Block(index * self.block_bytes + to_bytes(offset_sectors))
            }
            Buffer::Payload { request, offset_sectors } => {
                let request = self.requests.find(request)?;
                match payload_buffer_of(offset_sectors) {
                    (PayloadBuffer::Client, sectors) => {
                        ResolvedBuffer::Payload(request, to_bytes(sectors))
                    }
                    (PayloadBuffer::Shadow, sectors) => {
                        ResolvedBuffer::Shadow(request.shadow(), to_bytes(sectors))
                    }
                }
            }
        })
    }

    /// As `find`, for bytes that are about to be written. If they are in a shadow buffer, the
    /// shadow buffer notes their run.
    fn find_target(&self, span: Span) -> Option<ResolvedBuffer> {
        let buffer = self.find(span.buffer)?;
        if let ResolvedBuffer::Shadow(shadow, offset) = &buffer {
            shadow.note_made(*offset, span.length_bytes);
        }
        Some(buffer)
    }

    #[allow(unsafe_code)]
    pub(crate) fn read<R>(&self, span: Span, write: impl FnOnce(&[u8]) -> R) -> R {
        let buffer = self.resolve(span.buffer);
        let _guard = self.see(&buffer, span.length_bytes, Witness::read);
        // SAFETY: the engine has handed out an effect that reads this run, so no effect that writes
        // the run is in flight. The client has lent its payload until every piece of the request is
        // answered and released.
        write(unsafe { self.bytes(&buffer, span.length_bytes) })
    }

    /// Lends a member read's bytes to `fill`; `None` if the read was abandoned and its request has
    /// ended.
    #[allow(unsafe_code)]
    pub(crate) fn write<R>(&self, span: Span, fill: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let buffer = self.find_target(span)?;
        let _guard = self.see(&buffer, span.length_bytes, Witness::write);
        // SAFETY: the engine has handed out an effect that writes this run, so no other effect on
        // the run is in flight. An abandoned read keeps its run until the read releases it.
        Some(fill(unsafe { self.bytes_mut(&buffer, span.length_bytes) }))
    }

    /// Leases the bytes of an effect in flight until the effect has ended; `None` for an abandoned
    /// read whose request is over.
    #[cfg(not(loom))]
    #[allow(unsafe_code)]
    pub(crate) fn lease(&self, span: Span, fills: bool) -> Option<Lease> {
        let buffer = if fills { self.find_target(span)? } else { self.resolve(span.buffer) };
        let (memory, offset) = self.memory_of(&buffer);
        memory.check(offset, span.length_bytes);
        let length_bytes = span.length_bytes;
        // SAFETY: the run is inside the memory (checked) and initialised since the memory was made.
        // The lease keeps the memory, with the request or the shard's blocks. The engine has handed
        // out an effect on this run, so no conflicting effect is in flight until it ends, abandoned
        // or not. The thread that ends the effect drops the lease first.
        unsafe {
            let start = memory.start().add(offset);
            Some(match buffer {
                ResolvedBuffer::Block(_) => {
                    let blocks = Arc::clone(&self.blocks);
                    Lease::new(start, length_bytes, blocks)
                }
                ResolvedBuffer::Payload(request, _) => Lease::new(start, length_bytes, request),
                ResolvedBuffer::Shadow(shadow, _) => Lease::new(start, length_bytes, shadow),
            })
        }
    }

    /// # Safety
    /// The caller keeps the promises of [`SharedBytes::bytes`].
    #[allow(unsafe_code)]
    unsafe fn bytes<'a>(&'a self, buffer: &'a ResolvedBuffer, length: usize) -> &'a [u8] {
        let (memory, offset) = self.memory_of(buffer);
        // SAFETY: the caller promises the same for these bytes as `SharedBytes::bytes` demands.
        unsafe { memory.bytes(offset, length) }
    }

    /// # Safety
    /// The caller keeps the promises of [`SharedBytes::bytes_mut`].
    #[allow(unsafe_code, clippy::mut_from_ref)]
    unsafe fn bytes_mut<'a>(&'a self, buffer: &'a ResolvedBuffer, length: usize) -> &'a mut [u8] {
        let (memory, offset) = self.memory_of(buffer);
        // SAFETY: the caller promises the same for these bytes as `SharedBytes::bytes_mut` demands.
        unsafe { memory.bytes_mut(offset, length) }
    }

    fn see(
        &self,
        buffer: &ResolvedBuffer,
        length: usize,
        how: impl Fn(&Witness, usize, usize) -> AccessGuard,
    ) -> AccessGuard {
        let (memory, offset) = self.memory_of(buffer);
        how(memory.witness(), offset, length)
    }

    fn memory_of<'a>(&'a self, buffer: &'a ResolvedBuffer) -> (&'a SharedBytes, usize) {
        match buffer {
            ResolvedBuffer::Block(offset) => (&self.blocks, *offset),
            ResolvedBuffer::Payload(request, offset) => (request.payload(), *offset),
            ResolvedBuffer::Shadow(shadow, offset) => (shadow.bytes(), *offset),
        }
    }
}

/// Lends the bytes of several member writes at once, also writes of several shards.
#[allow(unsafe_code)]
pub(crate) fn read_all<R>(
    spans: &[(&ShardMemory, Span)],
    write: impl FnOnce(&mut [IoSlice<'_>]) -> R,
) -> R {
    let resolved = resolve_all(spans);
    let see =
        |(memory, buffer, length): &ResolvedSpan<'_>| memory.see(buffer, *length, Witness::read);
    let _guard: Few<AccessGuard> = resolved.iter().map(see).collect();
    let mut buffers: Few<IoSlice<'_>> = resolved
        .iter()
        // SAFETY: as for `ShardMemory::read`, for each of the effects.
        .map(|(memory, run, length)| IoSlice::new(unsafe { memory.bytes(run, *length) }))
        .collect();
    write(&mut buffers)
}

/// Lends a run of bytes that several member reads fill at once, also reads of several shards.
/// `None` if a read was abandoned and its request has ended.
#[allow(unsafe_code)]
pub(crate) fn write_all<'a, R>(
    spans: &[(&'a ShardMemory, Span)],
    fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> R,
) -> Option<R> {
    let resolve = |(memory, span): &(&'a ShardMemory, Span)| -> Option<ResolvedSpan<'a>> {
        Some((*memory, memory.find_target(*span)?, span.length_bytes))
    };
    let resolved = spans.iter().map(resolve).collect::<Option<Few<ResolvedSpan<'a>>>>()?;
    let see =
        |(memory, buffer, length): &ResolvedSpan<'_>| memory.see(buffer, *length, Witness::write);
    let _guard: Few<AccessGuard> = resolved.iter().map(see).collect();
    let mut buffers: Few<IoSliceMut<'_>> = resolved
        .iter()
        // SAFETY: as for `ShardMemory::write`, for each of the effects. No two effects fill the
        // same bytes, so no two of these slices overlap either.
        .map(|(memory, run, length)| IoSliceMut::new(unsafe { memory.bytes_mut(run, *length) }))
        .collect();
    Some(fill(&mut buffers))
}

/// A span after its buffer is looked up: the shard's memory, the buffer, and the length in bytes.
type ResolvedSpan<'a> = (&'a ShardMemory, ResolvedBuffer, usize);

fn resolve_all<'a>(spans: &[(&'a ShardMemory, Span)]) -> Few<ResolvedSpan<'a>> {
    let resolve = |(memory, span): &(&'a ShardMemory, Span)| {
        (*memory, memory.resolve(span.buffer), span.length_bytes)
    };
    spans.iter().map(resolve).collect()
}

impl Memory for ShardMemory {
    #[allow(unsafe_code)]
    fn lend(&mut self, targets: &[Span], sources: &[Span], work: Work<'_>) {
        debug_assert!(
            targets_are_alone(targets, sources),
            "a computation's targets overlap nothing"
        );
        let source = |span: &Span| (self.resolve(span.buffer), span.length_bytes);
        let target = |span: &Span| {
            let buffer = self.find_target(*span).expect("a request in flight");
            (buffer, span.length_bytes)
        };
        let targets: Few<(ResolvedBuffer, usize)> = targets.iter().map(target).collect();
        let sources: Few<(ResolvedBuffer, usize)> = sources.iter().map(source).collect();
        let writes =
            targets.iter().map(|(buffer, length)| self.see(buffer, *length, Witness::write));
        let reads = sources.iter().map(|(buffer, length)| self.see(buffer, *length, Witness::read));
        let _guard: Few<AccessGuard> = writes.chain(reads).collect();
        let mut targets: Few<&mut [u8]> = targets
            .iter()
            // SAFETY: no member request is in flight on a computation's targets, and the targets
            // overlap neither each other nor a source.
            .map(|(buffer, length)| unsafe { self.bytes_mut(buffer, *length) })
            .collect();
        let sources: Few<&[u8]> = sources
            .iter()
            // SAFETY: no effect that writes a computation's sources is in flight while it runs.
            .map(|(buffer, length)| unsafe { self.bytes(buffer, *length) })
            .collect();
        work(&mut targets, &sources);
    }
}

/// Whether no target overlaps another target or a source.
fn targets_are_alone(targets: &[Span], sources: &[Span]) -> bool {
    let key = |span: &Span| match span.buffer {
        Buffer::Block { block, offset_sectors } => ((0, u64::from(block.0)), offset_sectors),
        Buffer::Payload { request, offset_sectors } => ((1, request.0), offset_sectors),
    };
    let overlap = |a: &Span, b: &Span| {
        let ((memory_a, start_a), (memory_b, start_b)) = (key(a), key(b));
        let (start_a, start_b) = (to_bytes(start_a), to_bytes(start_b));
        memory_a == memory_b
            && start_a < start_b + b.length_bytes
            && start_b < start_a + a.length_bytes
    };
    targets.iter().enumerate().all(|(index, target)| {
        let others = targets[..index].iter().chain(sources);
        others.into_iter().all(|other| !overlap(target, other))
    })
}
