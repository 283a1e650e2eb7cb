//! A member that tells what was asked of it, one [`Record`] per operation.
//!
//! A record is told when the operation has ended, with what it ended as. Its line reads
//! `write 4096+512 durable ok`. Without a listener of your own, [`Trace::in_memory`] keeps the last
//! records; its room is bounded.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Identity, Member, MemberError};

/// What can be asked of a member.
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

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Zero => "zero",
        })
    }
}

/// One operation that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What was asked.
    pub operation: Operation,
    /// Where; 0 for a flush.
    pub offset_bytes: u64,
    /// How much; 0 for a flush.
    pub length_bytes: u64,
    /// Whether a write was to be durable.
    pub durable: bool,
    /// How it ended.
    pub result: Result<(), MemberError>,
}

impl fmt::Display for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.operation)?;
        if self.operation != Operation::Flush {
            write!(formatter, " {}+{}", self.offset_bytes, self.length_bytes)?;
        }
        if self.durable {
            formatter.write_str(" durable")?;
        }
        match self.result {
            Ok(()) => formatter.write_str(" ok"),
            Err(error) => write!(formatter, " failed: {error}"),
        }
    }
}

/// The last records of a member, in order of their ending.
#[derive(Debug, Clone)]
pub struct Trace {
    records: Arc<Mutex<VecDeque<Record>>>,
    records_max: usize,
}

impl Trace {
    /// Keeps at most `records_max` records, the newest.
    pub fn in_memory(records_max: usize) -> Self {
        Self { records: Arc::default(), records_max }
    }

    /// What is kept, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// What is kept, as lines.
    pub fn lines(&self) -> Vec<String> {
        self.records().iter().map(Record::to_string).collect()
    }

    fn push(&self, record: Record) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.push_back(record);
        while records.len() > self.records_max {
            records.pop_front();
        }
    }
}

type Listener = Box<dyn Fn(&Record) + Send + Sync>;

/// A member that tells a listener what was asked of it.
pub struct Traced<M> {
    inner: M,
    listener: Listener,
}

impl<M: Member> Traced<M> {
    /// Wraps a member; the listener is called in the thread of each operation and must be quick.
    pub fn new(inner: M, listener: impl Fn(&Record) + Send + Sync + 'static) -> Self {
        Self { inner, listener: Box::new(listener) }
    }

    /// Wraps a member and keeps its last `records_max` records.
    pub fn in_memory(inner: M, records_max: usize) -> (Self, Trace) {
        let trace = Trace::in_memory(records_max);
        let kept = trace.clone();
        (Self::new(inner, move |record| kept.push(*record)), trace)
    }

    fn tell(
        &self,
        (operation, durable): (Operation, bool),
        (offset_bytes, length_bytes): (u64, u64),
        result: Result<(), MemberError>,
    ) -> Result<(), MemberError> {
        (self.listener)(&Record { operation, offset_bytes, length_bytes, durable, result });
        result
    }
}

impl<M: Member> Member for Traced<M> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        let result = self.inner.read_at(buffer, offset_bytes);
        self.tell((Operation::Read, false), (offset_bytes, buffer.len() as u64), result)
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        let result = self.inner.write_at(buffer, offset_bytes, durable);
        self.tell((Operation::Write, durable), (offset_bytes, buffer.len() as u64), result)
    }

    fn flush(&self) -> Result<(), MemberError> {
        let result = self.inner.flush();
        self.tell((Operation::Flush, false), (0, 0), result)
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError> {
        let result = self.inner.zero(offset_bytes, length_bytes, may_punch);
        self.tell((Operation::Zero, false), (offset_bytes, length_bytes), result)
    }

    fn can_zero_fast(&self) -> bool {
        self.inner.can_zero_fast()
    }

    fn has_vanished(&self) -> bool {
        self.inner.has_vanished()
    }
}
