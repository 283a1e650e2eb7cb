//! A member that counts what was asked of it.
//!
//! Counters only grow and are read without stopping anybody, so a snapshot taken while operations
//! run may hold one counter that is a little newer than another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Identity, Member, MemberError};

/// What one kind of operation has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Operations that ended, well or badly.
    pub operation_count: u64,
    /// Of those, the ones that failed.
    pub error_count: u64,
    /// Bytes of those that ended well.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    operation_count: AtomicU64,
    error_count: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    fn count(&self, result: Result<(), MemberError>, bytes: u64) -> Result<(), MemberError> {
        self.operation_count.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(()) => self.bytes.fetch_add(bytes, Ordering::Relaxed),
            Err(_) => self.error_count.fetch_add(1, Ordering::Relaxed),
        };
        result
    }

    fn snapshot(&self) -> Counts {
        Counts {
            operation_count: self.operation_count.load(Ordering::Relaxed),
            error_count: self.error_count.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Default)]
struct All {
    reads: Counters,
    writes: Counters,
    flushes: Counters,
    zeroes: Counters,
}

/// The handle by which counts are read.
#[derive(Debug, Clone, Default)]
pub struct Stats(Arc<All>);

impl Stats {
    /// Reads.
    pub fn reads(&self) -> Counts {
        self.0.reads.snapshot()
    }

    /// Writes, durable or not.
    pub fn writes(&self) -> Counts {
        self.0.writes.snapshot()
    }

    /// Flushes; they have no bytes.
    pub fn flushes(&self) -> Counts {
        self.0.flushes.snapshot()
    }

    /// Zeroings.
    pub fn zeroes(&self) -> Counts {
        self.0.zeroes.snapshot()
    }
}

/// A member that counts.
#[derive(Debug)]
pub struct StatsMember<M> {
    inner: M,
    stats: Stats,
}

impl<M: Member> StatsMember<M> {
    /// Wraps a member, with every count at 0.
    pub fn new(inner: M) -> Self {
        Self { inner, stats: Stats::default() }
    }

    /// The handle to this member's counts.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }
}

impl<M: Member> Member for StatsMember<M> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        let result = self.inner.read_at(buffer, offset_bytes);
        self.stats.0.reads.count(result, buffer.len() as u64)
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        let result = self.inner.write_at(buffer, offset_bytes, durable);
        self.stats.0.writes.count(result, buffer.len() as u64)
    }

    fn flush(&self) -> Result<(), MemberError> {
        let result = self.inner.flush();
        self.stats.0.flushes.count(result, 0)
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError> {
        let result = self.inner.zero(offset_bytes, length_bytes, may_punch);
        self.stats.0.zeroes.count(result, length_bytes)
    }

    fn can_zero_fast(&self) -> bool {
        self.inner.can_zero_fast()
    }

    fn has_vanished(&self) -> bool {
        self.inner.has_vanished()
    }
}
