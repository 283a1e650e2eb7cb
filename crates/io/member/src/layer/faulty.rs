//! A member that fails on command.
//!
//! A [`Faults`] handle inserts and removes faults, from any thread, while the member is in use. A
//! write that meets a fault writes nothing; a flush that meets one fails for ever, as
//! [`Member::flush`] promises.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::{Identity, Member, MemberError};

/// The operations that can fail by a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Member::read_at`].
    Read,
    /// [`Member::write_at`].
    Write,
    /// [`Member::flush`].
    Flush,
    /// [`Member::zero`].
    Zero,
}

/// How often a fault makes operations fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// The fault fails this many operations, then no more.
    Times(u32),
    /// For every operation, until the fault is removed.
    Sticky,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The operation that fails. A durable write fails by `Write` faults and by `Flush` faults.
    pub operation: Operation,
    /// The bytes of the fault: any operation that touches one of them fails. A flush touches every
    /// byte.
    pub range_bytes: Range<u64>,
    /// The error that the operation returns.
    pub error: MemberError,
    /// How often the fault makes operations fail.
    pub persistence: Persistence,
}

impl Fault {
    /// A fault that fails every such operation, anywhere, until the fault is removed.
    pub fn everywhere(operation: Operation) -> Self {
        Self {
            operation,
            range_bytes: 0..u64::MAX,
            error: MemberError::Injected,
            persistence: Persistence::Sticky,
        }
    }

    /// A fault that fails every such operation in a range, until the fault is removed.
    pub fn on(operation: Operation, range_bytes: Range<u64>) -> Self {
        Self { range_bytes, ..Self::everywhere(operation) }
    }

    /// Limits the fault to the next `times` operations.
    pub fn times(self, times: u32) -> Self {
        Self { persistence: Persistence::Times(times), ..self }
    }

    /// Sets the error that operations return.
    pub fn error(self, error: MemberError) -> Self {
        Self { error, ..self }
    }
}

/// Names an inserted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

#[derive(Debug, Default)]
struct State {
    faults: Mutex<Vec<(FaultId, Fault)>>,
    next: AtomicU64,
    struck: AtomicU64,
    dead: AtomicBool,
    flush_failed: AtomicBool,
}

/// The handle by which a test makes a member fail.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<State>);

impl Faults {
    /// Inserts a fault. For each operation the faults are tried in the order of insertion, and the
    /// first that fits is used.
    pub fn insert(&self, fault: Fault) -> FaultId {
        let id = FaultId(self.0.next.fetch_add(1, Ordering::Relaxed));
        self.lock().push((id, fault));
        id
    }

    /// Removes a fault; no effect if the fault has failed its number of operations already.
    pub fn remove(&self, id: FaultId) {
        self.lock().retain(|(other, _)| *other != id);
    }

    /// Removes every fault. A dead member stays dead and a failed flush stays failed.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// From now on every operation returns [`MemberError::Gone`].
    pub fn kill(&self) {
        self.0.dead.store(true, Ordering::Release);
    }

    /// Undoes [`Faults::kill`], as when a cable is plugged in again.
    pub fn revive(&self) {
        self.0.dead.store(false, Ordering::Release);
    }

    /// Operations that failed by a fault or because the member was killed.
    pub fn struck_count(&self) -> u64 {
        self.0.struck.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(FaultId, Fault)>> {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if a fault applies to this operation, with that fault's error; uses up one of the
    /// fault's repetitions.
    fn strike(&self, operation: Operation, range_bytes: Range<u64>) -> Result<(), MemberError> {
        if self.0.dead.load(Ordering::Acquire) {
            self.0.struck.fetch_add(1, Ordering::Relaxed);
            return Err(Errno::NODEV.into());
        }
        let mut faults = self.lock();
        let found = faults.iter().position(|(_, fault)| {
            fault.operation == operation && overlaps(&fault.range_bytes, &range_bytes)
        });
        let Some(index) = found else { return Ok(()) };
        let error = faults[index].1.error;
        match &mut faults[index].1.persistence {
            Persistence::Sticky => {}
            Persistence::Times(times) if *times > 1 => *times -= 1,
            Persistence::Times(_) => drop(faults.remove(index)),
        }
        self.0.struck.fetch_add(1, Ordering::Relaxed);
        Err(error)
    }

    /// As [`Faults::strike`] for a flush. After one failed flush every later flush fails.
    fn strike_flush(&self, range_bytes: Range<u64>) -> Result<(), MemberError> {
        if self.0.flush_failed.load(Ordering::Acquire) {
            return Err(MemberError::FlushFailedBefore { errno: None });
        }
        self.strike(Operation::Flush, range_bytes)
            .inspect_err(|_| self.0.flush_failed.store(true, Ordering::Release))
    }
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn range(offset_bytes: u64, length_bytes: u64) -> Range<u64> {
    offset_bytes..offset_bytes.saturating_add(length_bytes)
}

/// A member that fails when its [`Faults`] say so.
#[derive(Debug)]
pub struct Faulty<M> {
    inner: M,
    faults: Faults,
}

impl<M: Member> Faulty<M> {
    /// Wraps a member; it works until a fault is inserted.
    pub fn new(inner: M) -> Self {
        Self { inner, faults: Faults::default() }
    }

    /// The handle to this member's faults.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }
}

impl<M: Member> Member for Faulty<M> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        self.faults.strike(Operation::Read, range(offset_bytes, buffer.len() as u64))?;
        self.inner.read_at(buffer, offset_bytes)
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        let touched = range(offset_bytes, buffer.len() as u64);
        self.faults.strike(Operation::Write, touched.clone())?;
        if durable {
            self.faults.strike_flush(touched)?;
        }
        self.inner.write_at(buffer, offset_bytes, durable)
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.faults.strike_flush(0..u64::MAX)?;
        self.inner.flush()
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError> {
        let touched = range(offset_bytes, length_bytes);
        self.faults.strike(Operation::Write, touched.clone())?;
        self.faults.strike(Operation::Zero, touched)?;
        self.inner.zero(offset_bytes, length_bytes, may_punch)
    }

    fn can_zero_fast(&self) -> bool {
        self.inner.can_zero_fast()
    }

    fn has_vanished(&self) -> bool {
        self.inner.has_vanished()
    }
}
