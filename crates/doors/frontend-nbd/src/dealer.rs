//! Hands a connection to its transport, if there is room for one more.
//!
//! Where it stands: below the accept thread and the TLS threads; above both transports
//! ([`crate::ring`], [`crate::threads`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::connection::Identity;
use crate::limits;
use crate::notice::Notice;
use crate::registry::{Admission, AdmissionLimits, Evictee};
use crate::ring::WorkerConnections;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::threads;

#[derive(Clone)]
pub(crate) struct Dealer {
    pub(crate) shared: Arc<Shared>,
    /// The workers' connections; empty if each connection has threads of its own.
    pub(crate) workers: Vec<Arc<WorkerConnections>>,
}

impl Dealer {
    pub(crate) fn begin(&self, socket: OwnedFd, tcp: bool) {
        let (bounds, counters) = (&self.shared.bounds, &self.shared.counters);
        let Ok(socket) = Socket::new(socket, tcp).map(Arc::new) else { return };
        let connections_max = bounds.connections_max();
        let limits = AdmissionLimits {
            connections_max,
            negotiating_max: self.shared.settings.negotiating_max,
            idle_limit: bounds.idle_limit(),
        };
        let identity = match self.shared.registry.admit(&socket, &limits) {
            Admission::Admitted { id, pulse, evicted } => {
                self.note_evicted(evicted);
                // Counts the connection as accepted before another thread can see it end.
                counters.accepted.add(1);
                Identity { id, pulse, refusal: None }
            }
            Admission::TurnedAway { id, pulse } => {
                self.note_full(connections_max);
                let refusal = format!(
                    "all {connections_max} connections are in use; the operator can raise them \
                     (connections)"
                );
                Identity { id, pulse, refusal: Some(refusal) }
            }
            Admission::Full => return self.note_full(connections_max),
        };
        let id = identity.id;
        let is_served = match self.workers.len() {
            0 => self.serve_on_threads(identity, socket),
            workers => {
                let turn = id % workers as u64;
                let turn = usize::try_from(turn).expect("fewer than workers");
                self.workers[turn].begin(identity, socket)
            }
        };
        if !is_served {
            counters.refused.add(1);
            self.shared.registry.leave(id);
        }
    }

    fn note_full(&self, connections_max: usize) {
        self.shared.counters.refused.add(1);
        self.shared.notices.tell(Notice::Full { connections_max });
    }

    fn note_evicted(&self, evicted: Option<Evictee>) {
        let counters = &self.shared.counters;
        match evicted {
            Some(Evictee::Negotiator) => drop(counters.evicted.add(1)),
            Some(Evictee::Idler) => {
                let count = counters.idled.add(1);
                self.shared.notices.tell(Notice::Idled { count });
            }
            None => {}
        }
    }

    /// Whether a limited address space has enough addresses left for one more connection's threads.
    fn has_addresses(&self) -> bool {
        let is_limited = |limit| getrlimit(limit).current.is_some();
        if !is_limited(Resource::As) && !is_limited(Resource::Data) {
            return true;
        }
        let budget = &self.shared.budget;
        let unheld = budget.limit_bytes().saturating_sub(budget.held_bytes()) as u64;
        let needed = unheld.saturating_add(limits::ADDRESSES_LEFT_BYTES);
        braid_ring::Room::now().addresses.is_none_or(|(left, _)| left >= needed)
    }

    fn serve_on_threads(&self, identity: Identity, socket: Arc<Socket>) -> bool {
        if !self.has_addresses() {
            return false;
        }
        let (shared, id) = (Arc::clone(&self.shared), identity.id);
        let builder = std::thread::Builder::new();
        let builder = builder.name("nbd-read".into()).stack_size(limits::STACK_BYTES);
        let body = move || {
            threads::serve(&shared, identity, &socket);
            drop(socket);
            shared.registry.leave(id);
        };
        builder.spawn(body).is_ok()
    }
}
