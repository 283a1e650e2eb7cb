//! Requests in whole sectors: handed to the engine in pieces, answered once.
//!
//! Where it stands: below [`crate::call`], whose steps they are. The checkers' own requests
//! (reading everything, the small worlds) come here directly.

mod world;

use std::collections::{BTreeMap, VecDeque};

use braid_engine::request::{Fault, Progress, Request, RequestId, WriteAdmission};

use crate::call::{Call, CallClient};
use crate::wire::Connection;

/// A client's request in flight.
pub(crate) struct Flight {
    pub(crate) request: Request,
    pub(crate) progress: Progress,
    pub(crate) began: u64,
    /// Whether to keep the bytes of a read.
    pub(crate) keep: bool,
    /// The request in bytes that this is a step of.
    pub(crate) call: Option<RequestId>,
    /// It writes a write back that an earlier process had acknowledged; the model knows of it.
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
    /// Flushes in flight, the step at which each was submitted, and by whom.
    pub(crate) flushes: BTreeMap<RequestId, (u64, FlushFor)>,
    /// Requests in bytes that the array has not answered.
    pub(crate) calls: BTreeMap<RequestId, Call>,
    pub(crate) admission: WriteAdmission,
    /// Calls that wait for their turn, in order.
    pub(crate) waiting: VecDeque<RequestId>,
    pub(crate) connections: Vec<Connection>,
    /// Results of requests in whole sectors that belong to no call, and of clients' flushes.
    pub(crate) answers: BTreeMap<RequestId, Result<(), Fault>>,
}

impl Clients {
    pub(crate) fn in_flight(&self) -> usize {
        let wired: usize = self.connections.iter().map(Connection::unanswered).sum();
        let direct = |call: &&Call| call.who == CallClient::Direct;
        wired + self.calls.values().filter(direct).count() + self.flushes.len()
    }

    /// Requests in whole sectors, and flushes.
    #[cfg(any(test, braid_sim_hooks))]
    pub(crate) fn in_flight_whole(&self) -> usize {
        self.flights.len() + self.flushes.len()
    }

    /// Whether no client waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty()
            && self.flushes.is_empty()
            && self.calls.is_empty()
            && self.connections.iter().all(Connection::is_idle)
    }

    /// The step at which the oldest read in flight began; the end of time if there is none.
    pub(crate) fn oldest_read(&self) -> u64 {
        let reads = self.flights.values().filter(|flight| !flight.request.operation.is_write());
        let of_calls = self.calls.values().filter(|call| call.is_read()).map(|call| call.asked);
        let of_wires = self.connections.iter().filter_map(Connection::oldest_read);
        reads.map(|flight| flight.began).chain(of_calls).chain(of_wires).min().unwrap_or(u64::MAX)
    }
}
