//! The server's counters.
//!
//! Where it stands: every thread writes them with relaxed atomics; the program reads them as one
//! [`Counts`]. No decision of the server depends on them.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_nbd_proto::ErrorCode;

use crate::budget::Budget;

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Ordering::Relaxed) + amount
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    pub(crate) evicted: Counter,
    pub(crate) negotiated: Counter,
    pub(crate) negotiations_failed: Counter,
    pub(crate) requests: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) bytes_copied: Counter,
    pub(crate) stalled: Counter,
    pub(crate) idled: Counter,
    pub(crate) panics: Counter,
    pub(crate) contract_breaches: Counter,
    pub(crate) errors: [Counter; ErrorCode::ALL.len()],
}

/// The values of a server's counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections at this moment.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections turned away because the server was full.
    pub refused: u64,
    /// Connections that the server cut, by reason.
    pub cut: Cuts,
    /// Connections that reached the transmission phase.
    pub negotiated: u64,
    /// Connections that ended during negotiation.
    pub negotiations_failed: u64,
    /// Requests received.
    pub requests: u64,
    /// Bytes sent in answer to READ.
    pub bytes_read: u64,
    /// Bytes received for WRITE.
    pub bytes_written: u64,
    /// Payload bytes that were copied. All others moved between the socket and the export's memory
    /// without a copy.
    pub bytes_copied: u64,
    /// Payload bytes in flight at this moment, over all connections.
    pub bytes_in_flight: u64,
    /// Connections that wait for payload memory at this moment.
    pub waiting_for_memory: u64,
    /// Connections that ended by a panic.
    pub panics: u64,
    /// Outcomes with a missing or wrongly sized payload, and dropped completions: export bugs.
    pub contract_breaches: u64,
    /// Error replies, by [`ErrorCode::index`].
    pub errors: [u64; ErrorCode::ALL.len()],
}

/// Connections that the server cut, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Negotiating connections, evicted to make room.
    pub evicted: u64,
    /// Idle connections, cut to make room.
    pub idled: u64,
    /// Connections whose client stopped in the middle of a payload or a reply.
    pub stalled: u64,
}

impl Counts {
    /// Error replies with `code`.
    #[must_use]
    pub fn errors_of(&self, code: ErrorCode) -> u64 {
        self.errors[code.index()]
    }
}

impl Counters {
    pub(crate) fn error(&self, code: ErrorCode) {
        self.errors[code.index()].add(1);
    }

    pub(crate) fn read(&self, connections: usize, budget: &Budget) -> Counts {
        Counts {
            connections: connections as u64,
            accepted: self.accepted.get(),
            refused: self.refused.get(),
            cut: Cuts {
                evicted: self.evicted.get(),
                idled: self.idled.get(),
                stalled: self.stalled.get(),
            },
            negotiated: self.negotiated.get(),
            negotiations_failed: self.negotiations_failed.get(),
            requests: self.requests.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            bytes_copied: self.bytes_copied.get(),
            bytes_in_flight: budget.held_bytes() as u64,
            waiting_for_memory: budget.waiting() as u64,
            panics: self.panics.get(),
            contract_breaches: self.contract_breaches.get(),
            errors: std::array::from_fn(|index| self.errors[index].get()),
        }
    }
}
