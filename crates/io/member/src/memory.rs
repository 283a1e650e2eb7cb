//! A member in this process's memory: sparse, for tests and experiments.
//!
//! The member allocates units of 64 KiB (`Piece`); an unwritten unit reads as zeroes and takes no
//! memory. Units are spread over a fixed number of locks, so that threads on different units rarely
//! wait for each other. A write that spans units is not atomic as a whole, as on a disk.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use rustix::io::Errno;

use crate::limits::{MEMORY_PIECE_BYTES, MEMORY_SHARDS, SECTOR_BYTES};
use crate::{Identity, Member, MemberError, check_bounds};

type Pieces = HashMap<u64, Piece>;

/// Alignment of an allocation unit in memory: a page, as for the memory of its readers and writers.
/// If source and target differ slightly in their place within a page, a copy takes up to twice as
/// long (`rep movsb` of AMD's Zen 3 and 4). An allocator's memory begins 16 bytes into a page.
const PIECE_ALIGNMENT_BYTES: usize = 4 << 10;

/// The unit of allocation, 64 KiB.
#[derive(Debug)]
struct Piece {
    memory: Box<[u8]>,
    start: usize,
}

impl Piece {
    fn zeroed() -> Self {
        let memory = vec![0; MEMORY_PIECE_BYTES + PIECE_ALIGNMENT_BYTES].into_boxed_slice();
        let start = memory.as_ptr().addr().wrapping_neg() % PIECE_ALIGNMENT_BYTES;
        Self { memory, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + MEMORY_PIECE_BYTES]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + MEMORY_PIECE_BYTES]
    }
}

/// Memory that looks like a device. Every write is as durable as the process.
#[derive(Debug)]
pub struct MemoryMember {
    identity: Identity,
    size_bytes: u64,
    shards: Vec<RwLock<Pieces>>,
}

/// The part of a byte range that falls into one allocation unit.
struct Part {
    piece: u64,
    /// Where the part begins in the unit.
    start: usize,
    /// Where the part begins in the caller's buffer.
    at: usize,
    length: usize,
}

impl MemoryMember {
    /// A member that reads as zeroes. The size is rounded down to whole sectors.
    pub fn new(size_bytes: u64) -> Self {
        Self {
            identity: Identity::memory(),
            size_bytes: size_bytes - size_bytes % SECTOR_BYTES,
            shards: (0..MEMORY_SHARDS).map(|_| RwLock::default()).collect(),
        }
    }

    /// A member with a copy of `bytes`. An incomplete last sector is dropped.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let member = Self::new(bytes.len() as u64);
        for part in parts(0, usize::try_from(member.size_bytes).unwrap_or(bytes.len())) {
            member.write_part(&part, bytes);
        }
        member
    }

    /// Bytes of memory that the content takes, without padding for alignment.
    pub fn allocated_bytes(&self) -> u64 {
        let pieces: usize = self
            .shards
            .iter()
            .map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len())
            .sum();
        pieces as u64 * MEMORY_PIECE_BYTES as u64
    }

    fn shard(&self, piece: u64) -> &RwLock<Pieces> {
        let shard_count = self.shards.len() as u64;
        &self.shards[usize::try_from(piece % shard_count).unwrap_or(0)]
    }

    fn write_part(&self, part: &Part, buffer: &[u8]) {
        let mut pieces = self.shard(part.piece).write().unwrap_or_else(PoisonError::into_inner);
        let piece = pieces.entry(part.piece).or_insert_with(Piece::zeroed);
        piece.bytes_mut()[part.start..part.start + part.length]
            .copy_from_slice(&buffer[part.at..part.at + part.length]);
    }

    fn zero_part(&self, part: &Part) {
        let mut pieces = self.shard(part.piece).write().unwrap_or_else(PoisonError::into_inner);
        if part.length == MEMORY_PIECE_BYTES {
            pieces.remove(&part.piece);
        } else if let Some(piece) = pieces.get_mut(&part.piece) {
            piece.bytes_mut()[part.start..part.start + part.length].fill(0);
        }
    }
}

fn parts(offset_bytes: u64, length: usize) -> impl Iterator<Item = Part> {
    let piece_bytes = MEMORY_PIECE_BYTES as u64;
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == length {
            return None;
        }
        let position_bytes = offset_bytes + at as u64;
        let start = usize::try_from(position_bytes % piece_bytes).unwrap_or(0);
        let part_length = (MEMORY_PIECE_BYTES - start).min(length - at);
        let part = Part { piece: position_bytes / piece_bytes, start, at, length: part_length };
        at += part_length;
        Some(part)
    })
}

impl Member for MemoryMember {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        check_bounds(offset_bytes, buffer.len() as u64, self.size_bytes)?;
        for part in parts(offset_bytes, buffer.len()) {
            let target = &mut buffer[part.at..part.at + part.length];
            let pieces = self.shard(part.piece).read().unwrap_or_else(PoisonError::into_inner);
            match pieces.get(&part.piece) {
                Some(piece) => {
                    target.copy_from_slice(&piece.bytes()[part.start..part.start + part.length]);
                }
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(
        &self,
        buffer: &[u8],
        offset_bytes: u64,
        _durable: bool,
    ) -> Result<(), MemberError> {
        check_bounds(offset_bytes, buffer.len() as u64, self.size_bytes)?;
        for part in parts(offset_bytes, buffer.len()) {
            self.write_part(&part, buffer);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), MemberError> {
        Ok(())
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        _may_punch: bool,
    ) -> Result<(), MemberError> {
        check_bounds(offset_bytes, length_bytes, self.size_bytes)?;
        let length = usize::try_from(length_bytes).map_err(|_| Errno::NOSPC)?;
        for part in parts(offset_bytes, length) {
            self.zero_part(&part);
        }
        Ok(())
    }

    fn can_zero_fast(&self) -> bool {
        true
    }

    fn is_memory(&self) -> bool {
        true
    }
}
