//! A copy of a disk with unreadable ranges: reads of those ranges fail here as well.
//!
//! Copy programs as a rule fill unreadable ranges with zeroes, which an array would take for the
//! disk's content. The layer is read-only.
//!
//! Invariant: no byte of a hole is ever returned as the member's own
//! `[check: what_a_copy_lacks_is_an_error_or_zeroes]`.

use std::ops::Range;

use rustix::io::Errno;

use crate::limits::SECTOR_BYTES;
use crate::{Identity, Member, MemberError, check_bounds};

/// A member with holes.
#[derive(Debug)]
pub struct Holes<M> {
    inner: M,
    size_bytes: u64,
    /// Byte ranges, in order, not adjacent.
    holes: Vec<Range<u64>>,
}

impl<M: Member> Holes<M> {
    /// Wraps a member; reads of the bytes in `holes` are errors.
    pub fn new(inner: M, holes: &[Range<u64>]) -> Self {
        let size_bytes = inner.size_bytes();
        Self::of_longer(inner, size_bytes, holes)
    }

    /// As [`Self::new`], for a copy that is shorter than its disk of `size_bytes`: the bytes after
    /// the copy are a hole.
    pub fn of_longer(inner: M, size_bytes: u64, holes: &[Range<u64>]) -> Self {
        let own_bytes = inner.size_bytes();
        let size_bytes = size_bytes.max(own_bytes);
        let behind = own_bytes..size_bytes;
        let holes = holes.iter().chain(std::iter::once(&behind));
        let mut holes: Vec<_> = holes.filter(|hole| !hole.is_empty()).cloned().collect();
        holes.sort_by_key(|hole| hole.start);
        holes.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            if touches {
                kept.end = kept.end.max(next.end);
            }
            touches
        });
        Self { inner, size_bytes, holes }
    }
}

impl<M: Member> Member for Holes<M> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        check_bounds(offset_bytes, buffer.len() as u64, self.size_bytes())?;
        let end_bytes = offset_bytes + buffer.len() as u64;
        let next = self.holes.get(self.holes.partition_point(|hole| hole.end <= offset_bytes));
        if next.is_some_and(|hole| hole.start < end_bytes) {
            return Err(MemberError::Media { errno: Errno::IO.raw_os_error() });
        }
        self.inner.read_at(buffer, offset_bytes)
    }

    fn write_at(&self, _: &[u8], _: u64, _: bool) -> Result<(), MemberError> {
        Err(MemberError::ReadOnly)
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.inner.flush()
    }

    fn zero(&self, _: u64, _: u64, _: bool) -> Result<(), MemberError> {
        Err(MemberError::ReadOnly)
    }

    fn can_zero_fast(&self) -> bool {
        false
    }

    fn has_vanished(&self) -> bool {
        self.inner.has_vanished()
    }
}

/// A member that reads as zeroes where the member below cannot be read, so that a search for
/// signatures finds none in such ranges.
#[derive(Debug)]
pub struct Lenient<M>(pub M);

impl<M: Member> Member for Lenient<M> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.0.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        match self.0.read_at(buffer, offset_bytes) {
            Err(MemberError::Media { .. }) => {}
            other => return other,
        }
        let mut at = offset_bytes;
        let mut rest = buffer;
        while !rest.is_empty() {
            let left = usize::try_from(SECTOR_BYTES - at % SECTOR_BYTES).expect("small");
            let length = rest.len().min(left);
            let (sector, behind) = rest.split_at_mut(length);
            match self.0.read_at(sector, at) {
                Ok(()) => {}
                Err(MemberError::Media { .. }) => sector.fill(0),
                Err(error) => return Err(error),
            }
            at += length as u64;
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64, _: bool) -> Result<(), MemberError> {
        Err(MemberError::ReadOnly)
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.0.flush()
    }

    fn zero(&self, _: u64, _: u64, _: bool) -> Result<(), MemberError> {
        Err(MemberError::ReadOnly)
    }

    fn can_zero_fast(&self) -> bool {
        false
    }

    fn has_vanished(&self) -> bool {
        self.0.has_vanished()
    }
}
