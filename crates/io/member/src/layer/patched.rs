//! A member with some sectors replaced from memory, as a log would replay them, without a write.
//!
//! The layer is read-only: a write to the device would make the sectors in memory stale.

use std::collections::BTreeMap;

use crate::{Identity, Member, MemberError, check_bounds};

const SECTOR: usize = 512;

/// Sectors by their number on the device.
pub type Sectors = BTreeMap<u64, [u8; SECTOR]>;

/// A member that reads as if these sectors had been written.
#[derive(Debug)]
pub struct Patched<M> {
    inner: M,
    sectors: Sectors,
}

impl<M: Member> Patched<M> {
    /// Wraps a member. Sectors beyond its end are never read.
    pub fn new(inner: M, sectors: Sectors) -> Self {
        Self { inner, sectors }
    }

    /// Reads the sectors that are not in memory from the device.
    fn read_around(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        let end_bytes = offset_bytes + buffer.len() as u64;
        let mut at = offset_bytes;
        while at < end_bytes {
            let (number, within) = (at / SECTOR as u64, at % SECTOR as u64);
            let sector = self.sectors.get(&number);
            let next = match sector {
                Some(_) => number + 1,
                None => self.sectors.range(number..).next().map_or(u64::MAX, |(next, _)| *next),
            };
            let until = next.saturating_mul(SECTOR as u64).min(end_bytes);
            let part = &mut buffer[small(at - offset_bytes)..small(until - offset_bytes)];
            match sector {
                Some(sector) => {
                    let start = small(within);
                    part.copy_from_slice(&sector[start..start + part.len()]);
                }
                None => self.inner.read_at(part, at)?,
            }
            at = until;
        }
        Ok(())
    }
}

fn small(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it is in memory")
}

impl<M: Member> Member for Patched<M> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        check_bounds(offset_bytes, buffer.len() as u64, self.size_bytes())?;
        let first = offset_bytes / SECTOR as u64;
        let last = (offset_bytes + buffer.len() as u64).div_ceil(SECTOR as u64);
        if self.sectors.range(first..last.max(first)).next().is_none() {
            return self.inner.read_at(buffer, offset_bytes);
        }
        self.read_around(buffer, offset_bytes)
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
