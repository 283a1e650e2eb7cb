//! The bytes that the engine names: a shard's own blocks, and clients' payloads, lent to several threads at once.
//!
//! Where it stands: above the runs of bytes themselves ([`crate::shared_bytes`]) and the requests that have them
//! ([`crate::requests`]). The engine names bytes; at any moment the effects it has handed out name runs that do not
//! overlap where one of them is written. That is the engine's discipline, kept by its states: a
//! stripe has either member requests or a computation out, never both on one block, and a payload is given
//! back only once every piece has been answered and let go of. The compiler cannot see it, so the access is
//! `unsafe` here and there, behind an interface that takes the engine's own names.
//!
//! A read that was abandoned is the exception that the engine makes room for: its run is its own from then on,
//! whatever is made instead goes to the request's shadow buffer, and the request, with the client's own, lives until the
//! last that may write it has let go. A request that is over is not there any more; a read that finds it so is over
//! itself.
//!
//! What is checked all the same, in release: every run lies inside its memory. In debug builds a
//! computation's targets are also checked against each other and against its sources.

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
use crate::sync::witness::{Seen, Witness};

/// Runs that are lent at once, on the stack: more than a step of work names on most arrays.
type Few<T> = SmallVec<[T; 16]>;

/// The memory that one shard's effects name: its own blocks, and clients' payloads.
#[derive(Clone)]
pub(crate) struct ShardMemory {
    blocks: Arc<SharedBytes>,
    block_bytes: usize,
    requests: Arc<Requests>,
}

/// A place found: which memory, and where in it.
enum Place {
    Block(usize),
    Payload(Arc<Request>, usize),
    Shadow(Arc<Shadow>, usize),
}

fn to_bytes(sectors: u32) -> usize {
    usize::try_from(u64::from(sectors) * SECTOR_BYTES).expect("addresses have 64 bits here")
}

impl ShardMemory {
    /// Memory for `blocks` blocks of `block_sectors` sectors. Pages that are never used cost nothing.
    ///
    /// # Errors
    /// There are not so many addresses.
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

    fn place(&self, buffer: Buffer) -> Place {
        self.find(buffer).expect("a request in flight")
    }

    /// None if the request is over.
    fn find(&self, buffer: Buffer) -> Option<Place> {
        Some(match buffer {
            Buffer::Block { block, offset_sectors } => {
                let index = usize::try_from(block.0).expect("addresses have 64 bits here");
                Place::Block(index * self.block_bytes + to_bytes(offset_sectors))
            }
            Buffer::Payload { request, offset_sectors } => {
                let request = self.requests.find(request)?;
                match payload_buffer_of(offset_sectors) {
                    (PayloadBuffer::Client, sectors) => Place::Payload(request, to_bytes(sectors)),
                    (PayloadBuffer::Shadow, sectors) => {
                        Place::Shadow(request.shadow(), to_bytes(sectors))
                    }
                }
            }
        })
    }

    /// The same for bytes that are about to be written.
    fn find_target(&self, span: Span) -> Option<Place> {
        let place = self.find(span.buffer)?;
        if let Place::Shadow(shadow, offset) = &place {
            shadow.note_made(*offset, span.length_bytes);
        }
        Some(place)
    }

    /// Lends the bytes of a member write to `write`.
    #[allow(unsafe_code)]
    pub(crate) fn read<R>(&self, span: Span, write: impl FnOnce(&[u8]) -> R) -> R {
        let place = self.place(span.buffer);
        let _seen = self.see(&place, span.length_bytes, Witness::read);
        // SAFETY: the engine has handed out an effect that reads this run, so none that writes it
        // is out, and the client has lent its payload until every piece is answered and let go of.
        write(unsafe { self.bytes(&place, span.length_bytes) })
    }

    /// Lends the bytes that a member read fills to `fill`; none if the read was abandoned and its request
    /// is over.
    #[allow(unsafe_code)]
    pub(crate) fn write<R>(&self, span: Span, fill: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let place = self.find_target(span)?;
        let _seen = self.see(&place, span.length_bytes, Witness::write);
        // SAFETY: the engine has handed out an effect that writes this run, so no other that
        // touches it is out. If the read is abandoned meanwhile, none will be: the run is its own until
        // the place is let go of.
        Some(fill(unsafe { self.bytes_mut(&place, span.length_bytes) }))
    }

    /// Leases the bytes of an effect that the engine has handed out, until it has ended; none for a read
    /// that was abandoned and whose request is over.
    #[cfg(not(loom))]
    #[allow(unsafe_code)]
    pub(crate) fn lease(&self, span: Span, fills: bool) -> Option<Lease> {
        let place = if fills { self.find_target(span)? } else { self.place(span.buffer) };
        let (memory, offset) = self.memory_of(&place);
        memory.check(offset, span.length_bytes);
        let length_bytes = span.length_bytes;
        // SAFETY: inside the memory (checked), which the lease keeps, with the request or the shard's blocks, and
        // initialised since it was made. The engine has handed out an effect on this run, so until that has
        // ended none that conflicts with it is out, whether it is abandoned or not; and the thread that ends it drops
        // the lease first.
        unsafe {
            let start = memory.start().add(offset);
            Some(match place {
                Place::Block(_) => {
                    let blocks = Arc::clone(&self.blocks);
                    Lease::new(start, length_bytes, blocks)
                }
                Place::Payload(request, _) => Lease::new(start, length_bytes, request),
                Place::Shadow(shadow, _) => Lease::new(start, length_bytes, shadow),
            })
        }
    }

    /// # Safety
    /// As [`SharedBytes::bytes`].
    #[allow(unsafe_code)]
    unsafe fn bytes<'a>(&'a self, place: &'a Place, length: usize) -> &'a [u8] {
        let (memory, offset) = self.memory_of(place);
        // SAFETY: the caller's promise, passed on.
        unsafe { memory.bytes(offset, length) }
    }

    /// # Safety
    /// As [`SharedBytes::bytes_mut`].
    #[allow(unsafe_code, clippy::mut_from_ref)]
    unsafe fn bytes_mut<'a>(&'a self, place: &'a Place, length: usize) -> &'a mut [u8] {
        let (memory, offset) = self.memory_of(place);
        // SAFETY: the caller's promise, passed on.
        unsafe { memory.bytes_mut(offset, length) }
    }

    fn see(
        &self,
        place: &Place,
        length: usize,
        how: impl Fn(&Witness, usize, usize) -> Seen,
    ) -> Seen {
        let (memory, offset) = self.memory_of(place);
        how(memory.witness(), offset, length)
    }

    fn memory_of<'a>(&'a self, place: &'a Place) -> (&'a SharedBytes, usize) {
        match place {
            Place::Block(offset) => (&self.blocks, *offset),
            Place::Payload(request, offset) => (request.payload(), *offset),
            Place::Shadow(shadow, offset) => (shadow.bytes(), *offset),
        }
    }
}

/// Lends the bytes of several member writes at once, which may be of several shards.
#[allow(unsafe_code)]
pub(crate) fn read_all<R>(
    spans: &[(&ShardMemory, Span)],
    write: impl FnOnce(&mut [IoSlice<'_>]) -> R,
) -> R {
    let places = places(spans);
    let see = |(memory, place, length): &Placed<'_>| memory.see(place, *length, Witness::read);
    let _seen: Few<Seen> = places.iter().map(see).collect();
    let mut buffers: Few<IoSlice<'_>> = places
        .iter()
        // SAFETY: as for `ShardMemory::read`, for each of the effects.
        .map(|(memory, place, length)| IoSlice::new(unsafe { memory.bytes(place, *length) }))
        .collect();
    write(&mut buffers)
}

/// Lends the bytes that several member reads fill at once, which may be of several shards; none if one of
/// them was abandoned and its request is over.
#[allow(unsafe_code)]
pub(crate) fn write_all<'a, R>(
    spans: &[(&'a ShardMemory, Span)],
    fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> R,
) -> Option<R> {
    let place = |(memory, span): &(&'a ShardMemory, Span)| -> Option<Placed<'a>> {
        Some((*memory, memory.find_target(*span)?, span.length_bytes))
    };
    let places = spans.iter().map(place).collect::<Option<Few<Placed<'a>>>>()?;
    let see = |(memory, place, length): &Placed<'_>| memory.see(place, *length, Witness::write);
    let _seen: Few<Seen> = places.iter().map(see).collect();
    let mut buffers: Few<IoSliceMut<'_>> = places
        .iter()
        // SAFETY: as for `ShardMemory::write`, for each of the effects; each has bytes of its own, so no
        // two of these overlap either.
        .map(|(memory, place, length)| IoSliceMut::new(unsafe { memory.bytes_mut(place, *length) }))
        .collect();
    Some(fill(&mut buffers))
}

/// Bytes found: in whose memory, where, and how many.
type Placed<'a> = (&'a ShardMemory, Place, usize);

fn places<'a>(spans: &[(&'a ShardMemory, Span)]) -> Few<Placed<'a>> {
    let place = |(memory, span): &(&'a ShardMemory, Span)| {
        (*memory, memory.place(span.buffer), span.length_bytes)
    };
    spans.iter().map(place).collect()
}

impl Memory for ShardMemory {
    #[allow(unsafe_code)]
    fn lend(&mut self, targets: &[Span], sources: &[Span], work: Work<'_>) {
        debug_assert!(
            targets_are_alone(targets, sources),
            "a computation's targets overlap nothing"
        );
        let place = |span: &Span| (self.place(span.buffer), span.length_bytes);
        let target = |span: &Span| {
            let place = self.find_target(*span).expect("a request in flight");
            (place, span.length_bytes)
        };
        let targets: Few<(Place, usize)> = targets.iter().map(target).collect();
        let sources: Few<(Place, usize)> = sources.iter().map(place).collect();
        let writes = targets.iter().map(|(place, length)| self.see(place, *length, Witness::write));
        let reads = sources.iter().map(|(place, length)| self.see(place, *length, Witness::read));
        let _seen: Few<Seen> = writes.chain(reads).collect();
        let mut targets: Few<&mut [u8]> = targets
            .iter()
            // SAFETY: a computation's targets are its own (no member request on them is out) and overlap
            // neither each other nor its sources.
            .map(|(place, length)| unsafe { self.bytes_mut(place, *length) })
            .collect();
        let sources: Few<&[u8]> = sources
            .iter()
            // SAFETY: nothing that writes a computation's sources is out while it runs.
            .map(|(place, length)| unsafe { self.bytes(place, *length) })
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
