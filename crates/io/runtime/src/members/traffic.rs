//! Traffic counts of one member, for the operator.
//!
//! Place in the flow: in the member's handle; any thread that learns a request's answer counts it.
//! Counts order nothing and decide nothing, so that models leave them out, and a reader may see a
//! count without the last request.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_engine::cause::RequestKind;

#[derive(Debug, Default)]
pub(crate) struct Traffic {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
}

/// Traffic to and from one member since the array was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Bytes read from the member.
    pub read_bytes: u64,
    /// Bytes written to the member, without zeroing and superblocks.
    pub written_bytes: u64,
    /// Reads, writes and zeroings that failed at the member.
    pub errors: u64,
}

impl Traffic {
    /// Counts a request of this many bytes, and whether the request succeeded.
    pub(crate) fn note(&self, asked: RequestKind, bytes: u64, is_well: bool) {
        let (count, more) = match (is_well, asked) {
            (false, _) => (&self.errors, 1),
            (true, RequestKind::Read) => (&self.read_bytes, bytes),
            (true, RequestKind::Write) => (&self.written_bytes, bytes),
            (true, _) => return,
        };
        count.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> TrafficCounts {
        TrafficCounts {
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_written_and_failed_is_counted_each_by_itself() {
        let traffic = Traffic::default();
        traffic.note(RequestKind::Read, 4096, true);
        traffic.note(RequestKind::Write, 512, true);
        traffic.note(RequestKind::Write, 512, true);
        traffic.note(RequestKind::Zero, 1 << 20, true);
        traffic.note(RequestKind::Read, 8192, false);
        traffic.note(RequestKind::Zero, 8192, false);
        let expected = TrafficCounts { read_bytes: 4096, written_bytes: 1024, errors: 2 };
        assert_eq!(traffic.counts(), expected);
    }
}
