//! Copies of writes that no flush covers yet, in the order in which they ended.

use std::collections::VecDeque;
use std::sync::Arc;

/// A write that the server answered.
#[derive(Debug)]
pub(super) enum Unflushed {
    Write { offset_bytes: u64, bytes: Vec<u8> },
    Zero { offset_bytes: u64, length_bytes: u64, may_punch: bool },
}

impl Unflushed {
    /// Bytes of memory that the copy takes, at least.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len() + size_of::<Self>(),
            Self::Zero { .. } => size_of::<Self>(),
        }
    }
}

/// The copies, oldest first.
#[derive(Debug, Default)]
pub(super) struct UnflushedWrites {
    writes: VecDeque<Arc<Unflushed>>,
    memory_bytes: usize,
    /// Number of writes forgotten so far: the number of the oldest kept write.
    forgotten: u64,
}

/// The writes that ended before a flush began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlushMark(u64);

impl UnflushedWrites {
    pub(super) fn keep(&mut self, write: Unflushed) {
        self.memory_bytes += write.memory_bytes();
        self.writes.push_back(Arc::new(write));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The writes that a flush covers if it begins now.
    pub(super) fn mark(&self) -> FlushMark {
        FlushMark(self.forgotten + self.writes.len() as u64)
    }

    /// Forgets the writes that a successful flush covers.
    pub(super) fn forget(&mut self, mark: FlushMark) {
        while self.forgotten < mark.0 {
            let Some(oldest) = self.writes.pop_front() else { break };
            self.memory_bytes -= oldest.memory_bytes();
            self.forgotten += 1;
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Unflushed>> {
        self.writes.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(byte: u8) -> Unflushed {
        Unflushed::Write { offset_bytes: byte.into(), bytes: vec![byte; 512] }
    }

    #[test]
    fn a_flush_covers_the_writes_before_it_and_no_later_one() {
        let mut writes = UnflushedWrites::default();
        writes.keep(write(1));
        let mark = writes.mark();
        writes.keep(write(2));
        writes.forget(mark);
        assert_eq!(writes.all().len(), 1);
        assert!(matches!(&*writes.all()[0], Unflushed::Write { offset_bytes: 2, .. }));
        // Two flushes may overlap, and the later one end first.
        let (earlier, later) = (mark, writes.mark());
        writes.forget(later);
        writes.forget(earlier);
        assert_eq!((writes.all().len(), writes.memory_bytes()), (0, 0));
    }
}
