//! The accept thread: takes clients in as far as there is room, and deals their connections out.
//!
//! Where it stands: one for each server, above both ways to carry a connection ([`crate::ring`], [`crate::threads`]). It polls
//! every listener, and an eventfd by which the server wakes it to stop.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, getrlimit};

use crate::connection::Identity;
use crate::endpoint::Listener;
use crate::limits;
use crate::notice::Notice;
use crate::registry::{Admission, Evicted, Room};
use crate::ring::WorkerConnections;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::threads;

/// The accept thread.
pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    workers: Vec<Arc<WorkerConnections>>,
    listeners: Vec<Listener>,
    wake: Arc<OwnedFd>,
    lacks_descriptors: bool,
}

impl Acceptor {
    /// One that deals connections to `workers`, or gives each threads of its own if there are none.
    pub(crate) fn new(
        shared: Arc<Shared>,
        workers: Vec<Arc<WorkerConnections>>,
        listeners: Vec<Listener>,
        wake: Arc<OwnedFd>,
    ) -> Self {
        Self { shared, workers, listeners, wake, lacks_descriptors: false }
    }

    /// The thread's body: until the server stops, and says so by `wake`.
    pub(crate) fn run(mut self) {
        while !self.shared.stopping.load(Ordering::Acquire) {
            let mut polled = vec![PollFd::new(&*self.wake, PollFlags::IN)];
            polled.extend(
                self.listeners
                    .iter()
                    .map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)),
            );
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => pause(), // out of kernel memory: the next round may do better
            }
            let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
            drop(polled);
            for (index, _) in ready[1..].iter().enumerate().filter(|(_, ready)| **ready) {
                self.accept_from(index);
            }
        }
    }

    fn accept_from(&mut self, index: usize) {
        let listener = &self.listeners[index];
        while !self.shared.stopping.load(Ordering::Acquire) {
            self.shared.registry.wait_for_room(limits::STOP_GRACE);
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    if std::mem::take(&mut self.lacks_descriptors) {
                        self.shared.notices.tell(Notice::DescriptorsAgain);
                    }
                    self.begin(socket, listener.is_tcp());
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    // Some connection must end first, or the operator must raise the limit.
                    let lacks = matches!(errno, Errno::MFILE | Errno::NFILE);
                    if lacks && !std::mem::replace(&mut self.lacks_descriptors, true) {
                        self.shared.notices.tell(Notice::NoDescriptors);
                    }
                    return pause();
                }
            }
        }
    }

    fn begin(&self, socket: OwnedFd, tcp: bool) {
        let (bounds, counters) = (&self.shared.bounds, &self.shared.counters);
        let Ok(socket) = Socket::new(socket, tcp).map(Arc::new) else { return };
        let connections_max = bounds.connections_max();
        let room = Room {
            connections_max,
            negotiating_max: self.shared.settings.negotiating_max,
            idle_limit: bounds.idle_limit(),
        };
        let identity = match self.shared.registry.admit(&socket, &room) {
            Admission::Admitted { id, pulse, evicted } => {
                self.note_evicted(evicted);
                // Counted before it can be seen to end.
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

    fn note_evicted(&self, evicted: Option<Evicted>) {
        let counters = &self.shared.counters;
        match evicted {
            Some(Evicted::Negotiator) => drop(counters.evicted.add(1)),
            Some(Evicted::Idler) => {
                let count = counters.idled.add(1);
                self.shared.notices.tell(Notice::Idled { count });
            }
            None => {}
        }
    }

    /// Whether threads of one more leave the addresses that others need; looked at only where there is a limit.
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

/// Lets a shortage pass.
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}
