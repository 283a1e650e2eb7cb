//! Requests in whole sectors: handed to the engine in pieces (the part of one shard), answered
//! once.
//!
//! Where it stands: below [`crate::call`], whose requests in bytes consist of such requests. The
//! checkers' own requests (reading everything, the small worlds) come here directly.

mod world;

use std::collections::{BTreeMap, VecDeque};

use braid_engine::request::{Fault, Progress, Request, RequestId, WriteAdmission};

use crate::call::{Call, CallClient};
use crate::wire::Connection;

/// A request in whole sectors that is in flight.
pub(crate) struct Flight {
    pub(crate) request: Request,
    pub(crate) progress: Progress,
    pub(crate) began: u64,
    /// Whether to keep the bytes that a read returns.
    pub(crate) keep: bool,
    /// The request in bytes of which this request is a step.
    pub(crate) call: Option<RequestId>,
    /// The request repeats a write that an earlier process acknowledged, from the cache file. The
    /// model knows that write already.
    pub(crate) writes_back: bool,
}

/// The request that waits for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushFor {
    Client,
    /// A request in bytes that flushes at its end.
    Call(RequestId),
    Wire {
        connection: usize,
        cookie: u64,
    },
}

/// All requests of clients that are not answered.
#[derive(Default)]
pub(crate) struct Clients {
    pub(crate) flights: BTreeMap<RequestId, Flight>,
    /// Flushes in flight: the step at which each was submitted, and which request waits for it.
    pub(crate) flushes: BTreeMap<RequestId, (u64, FlushFor)>,
    /// Requests in bytes that the array has not answered.
    pub(crate) calls: BTreeMap<RequestId, Call>,
    pub(crate) admission: WriteAdmission,
    /// Requests in bytes that wait for write admission, in order.
    pub(crate) waiting: VecDeque<RequestId>,
    pub(crate) connections: Vec<Connection>,
    /// Results of flushes by clients, and of requests in whole sectors that belong to no request in
    /// bytes.
    pub(crate) answers: BTreeMap<RequestId, Result<(), Fault>>,
}

impl Clients {
    pub(crate) fn in_flight(&self) -> usize {
        let wired: usize = self.connections.iter().map(Connection::unanswered).sum();
        let direct = |call: &&Call| call.who == CallClient::Direct;
        wired + self.calls.values().filter(direct).count() + self.flushes.len()
    }

    /// How many requests in whole sectors and flushes are in flight.
    #[cfg(any(test, braid_sim_hooks))]
    pub(crate) fn in_flight_whole(&self) -> usize {
        self.flights.len() + self.flushes.len()
    }

    /// Whether no client waits for an answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty()
            && self.flushes.is_empty()
            && self.calls.is_empty()
            && self.connections.iter().all(Connection::is_idle)
    }

    /// The step at which the oldest read in flight began; `u64::MAX` if no read is in flight.
    pub(crate) fn oldest_read(&self) -> u64 {
        let reads = self.flights.values().filter(|flight| !flight.request.operation.is_write());
        let of_calls = self.calls.values().filter(|call| call.is_read()).map(|call| call.asked);
        let of_wires = self.connections.iter().filter_map(Connection::oldest_read);
        reads.map(|flight| flight.began).chain(of_calls).chain(of_wires).min().unwrap_or(u64::MAX)
    }
}
