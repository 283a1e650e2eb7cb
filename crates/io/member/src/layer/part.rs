//! A range of a member as a member of its own: a partition for which the kernel has made no device.
//!
//! Offsets are shifted, and no access leaves the range
//! `[check: a_part_shows_its_stretch_and_nothing_else]`.

use crate::{Identity, Member, MemberError, check_bounds};

/// A range of a member.
#[derive(Debug)]
pub struct Part<M> {
    inner: M,
    start_bytes: u64,
    size_bytes: u64,
}

impl<M: Member> Part<M> {
    /// The part of `size_bytes` bytes at `start_bytes`.
    ///
    /// # Errors
    /// The part does not lie in the member.
    pub fn new(inner: M, start_bytes: u64, size_bytes: u64) -> Result<Self, MemberError> {
        check_bounds(start_bytes, size_bytes, inner.size_bytes())?;
        Ok(Self { inner, start_bytes, size_bytes })
    }

    fn within(&self, offset_bytes: u64, length_bytes: u64) -> Result<u64, MemberError> {
        check_bounds(offset_bytes, length_bytes, self.size_bytes)?;
        Ok(self.start_bytes + offset_bytes)
    }
}

impl<M: Member> Member for Part<M> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        let at = self.within(offset_bytes, buffer.len() as u64)?;
        self.inner.read_at(buffer, at)
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        let at = self.within(offset_bytes, buffer.len() as u64)?;
        self.inner.write_at(buffer, at, durable)
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.inner.flush()
    }

    fn zero(&self, offset_bytes: u64, length_bytes: u64, punch: bool) -> Result<(), MemberError> {
        let at = self.within(offset_bytes, length_bytes)?;
        self.inner.zero(at, length_bytes, punch)
    }

    fn can_zero_fast(&self) -> bool {
        self.inner.can_zero_fast()
    }

    fn has_vanished(&self) -> bool {
        self.inner.has_vanished()
    }
}
