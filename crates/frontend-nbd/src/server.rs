//! The server: listeners, the accept thread, and the way to stop.
//!
//! Where it stands: the crate's face. `start` binds everything before it spawns anything, so an error leaves nothing
//! behind; `stop` ends accepting, lets requests in flight finish, then closes, and returns in bounded time whatever
//! clients and exports do.
//!
//! Invariants
//! - `stop` returns within its deadline plus [`limits::STOP_GRACE`]: `tests/stop.rs`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_nbd_proto::limits::NAME_BYTES_MAX;
use braid_ring::Workers;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::budget::Budget;
use crate::counters::{Counters, Counts};
use crate::endpoint::{BindError, Endpoint, Listener};
use crate::export::Export;
use crate::limits;
use crate::registry::{Admission, Registry};
use crate::ring::{self, Desk};
use crate::socket::Socket;
use crate::threads;

/// What may be tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Connections at a time.
    pub connections_max: usize,
    /// Connections that have not negotiated yet.
    pub negotiating_max: usize,
    /// Time for the whole negotiation.
    pub handshake_deadline: Duration,
    /// Payload bytes in flight over all connections, beyond which each has one request at a time.
    pub payload_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_max: limits::CONNECTIONS_MAX,
            negotiating_max: limits::NEGOTIATING_MAX,
            handshake_deadline: limits::HANDSHAKE_DEADLINE,
            payload_bytes_max: limits::PAYLOAD_BYTES_MAX,
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing to serve.
    #[error("there is nothing to serve")]
    NoExports,
    /// Nowhere to listen.
    #[error("there is no address to listen on")]
    NoEndpoints,
    /// A name that NBD cannot carry: too long, with a NUL, or empty on an export that is not the first.
    #[error("the export name {0:?} cannot be used: at most 4096 bytes, no NUL, not empty")]
    Name(String),
    /// Two exports of one name.
    #[error("two exports are named {0:?}")]
    DuplicateName(String),
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The operating system gave no thread or descriptor.
    #[error("cannot start the server: {0}")]
    System(#[from] io::Error),
}

/// How a stop went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopReport {
    /// Connections that had to be cut at the deadline.
    pub cut: usize,
    /// Threads that did not end even then: an export that does not answer.
    pub still_running: usize,
}

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) exports: Vec<Arc<dyn Export>>,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) budget: Budget,
    pub(crate) registry: Registry,
    pub(crate) stopping: AtomicBool,
}

/// A running server; dropping it stops it without waiting for requests in flight.
pub struct Server {
    shared: Arc<Shared>,
    /// None if each connection has threads of its own.
    desks: Vec<Arc<Desk>>,
    endpoints: Vec<Endpoint>,
    wake: Arc<OwnedFd>,
    acceptor: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// Reads a server's counts.
#[derive(Clone)]
pub struct Meter(Arc<Shared>);

impl std::fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Meter").field(&self.counts()).finish()
    }
}

impl Meter {
    /// What has been counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.read(self.0.registry.count(), self.0.budget.held_bytes())
    }
}

impl Server {
    /// Listens on every endpoint and serves `exports`; the first is also reached by the empty name.
    ///
    /// # Errors
    /// Nothing to serve, names that NBD cannot carry, an address that cannot be listened on; nothing is left behind.
    pub fn start(
        exports: Vec<Arc<dyn Export>>,
        endpoints: &[Endpoint],
        settings: Settings,
    ) -> Result<Self, StartError> {
        Self::start_with(exports, endpoints, settings, None)
    }

    /// The same, with connections dealt to `workers` instead of threads of their own. They have to be running for as long
    /// as the server is.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_on(
        workers: &Arc<Workers>,
        exports: Vec<Arc<dyn Export>>,
        endpoints: &[Endpoint],
        settings: Settings,
    ) -> Result<Self, StartError> {
        Self::start_with(exports, endpoints, settings, Some(workers))
    }

    fn start_with(
        exports: Vec<Arc<dyn Export>>,
        endpoints: &[Endpoint],
        settings: Settings,
        workers: Option<&Arc<Workers>>,
    ) -> Result<Self, StartError> {
        check_names(&exports)?;
        if endpoints.is_empty() {
            return Err(StartError::NoEndpoints);
        }
        let listeners = endpoints.iter().map(Listener::bind).collect::<Result<Vec<_>, _>>()?;
        let endpoints = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(io::Error::from)?);
        let shared = Arc::new(Shared {
            exports,
            settings,
            counters: Counters::default(),
            budget: Budget::new(settings.payload_bytes_max),
            registry: Registry::default(),
            stopping: AtomicBool::new(false),
        });
        let desks = workers.map_or_else(Vec::new, |workers| ring::desks(&shared, workers));
        let acceptor = Acceptor {
            shared: Arc::clone(&shared),
            desks: desks.clone(),
            listeners,
            wake: Arc::clone(&wake),
        };
        let builder = std::thread::Builder::new().name("nbd-accept".into());
        let acceptor = Some(builder.spawn(move || acceptor.run())?);
        Ok(Self { shared, desks, endpoints, wake, acceptor })
    }

    /// Where it listens, in the order asked for, with the ports that were picked.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// What it has counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.meter().counts()
    }

    /// Something to read the counts from, also when the server has been stopped.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::clone(&self.shared))
    }

    /// Stops accepting, lets requests in flight finish until `deadline` from now, then closes. Takes at most `deadline`
    /// plus [`limits::STOP_GRACE`].
    #[must_use]
    pub fn stop(mut self, deadline: Duration) -> StopReport {
        self.stop_within(deadline)
    }

    fn stop_within(&mut self, deadline: Duration) -> StopReport {
        let Some(acceptor) = self.acceptor.take() else {
            return StopReport { cut: 0, still_running: 0 };
        };
        self.shared.stopping.store(true, Ordering::Release);
        // Only a full counter could refuse this, and then the acceptor is awake anyway.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        acceptor.join().expect("the accept thread does not panic");
        let registry = &self.shared.registry;
        registry.start_draining();
        let mut cut = 0;
        let mut still_running = registry.wait_until_empty(deadline);
        if still_running > 0 {
            cut = registry.cut_all();
            self.desks.iter().for_each(Desk::close_all);
            still_running = registry.wait_until_empty(limits::STOP_GRACE);
        }
        StopReport { cut, still_running }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop_within(Duration::ZERO);
    }
}

fn check_names(exports: &[Arc<dyn Export>]) -> Result<(), StartError> {
    if exports.is_empty() {
        return Err(StartError::NoExports);
    }
    for (index, export) in exports.iter().enumerate() {
        let name = export.name();
        if name.len() > NAME_BYTES_MAX || name.contains('\0') || (name.is_empty() && index > 0) {
            return Err(StartError::Name(name.to_owned()));
        }
        if exports[..index].iter().any(|earlier| earlier.name() == name) {
            return Err(StartError::DuplicateName(name.to_owned()));
        }
    }
    Ok(())
}

/// The accept thread.
struct Acceptor {
    shared: Arc<Shared>,
    desks: Vec<Arc<Desk>>,
    listeners: Vec<Listener>,
    wake: Arc<OwnedFd>,
}

impl Acceptor {
    fn run(self) {
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
            for (listener, _) in self.listeners.iter().zip(&ready[1..]).filter(|(_, ready)| **ready)
            {
                self.accept_from(listener);
            }
        }
    }

    fn accept_from(&self, listener: &Listener) {
        while !self.shared.stopping.load(Ordering::Acquire) {
            self.shared.registry.wait_for_room(limits::STOP_GRACE);
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.begin(socket, listener.is_tcp()),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return pause(), // out of descriptors: some connection must end first
            }
        }
    }

    fn begin(&self, socket: OwnedFd, tcp: bool) {
        let Settings { connections_max, negotiating_max, .. } = self.shared.settings;
        let counters = &self.shared.counters;
        let Ok(socket) = Socket::new(socket, tcp).map(Arc::new) else { return };
        let id = match self.shared.registry.admit(&socket, connections_max, negotiating_max) {
            Admission::Admitted { id, evicted } => {
                counters.evicted.add(u64::from(evicted));
                id
            }
            Admission::Full => return counters.refused.add(1),
        };
        // Counted before it can be seen to end.
        counters.accepted.add(1);
        let is_served = match self.desks.len() {
            0 => self.serve_on_threads(id, socket),
            desks => {
                let turn = id % desks as u64;
                self.desks[usize::try_from(turn).expect("fewer than desks")].begin(id, socket)
            }
        };
        if !is_served {
            counters.refused.add(1);
            self.shared.registry.leave(id);
        }
    }

    fn serve_on_threads(&self, id: u64, socket: Arc<Socket>) -> bool {
        let shared = Arc::clone(&self.shared);
        let builder = std::thread::Builder::new();
        let builder = builder.name("nbd-read".into()).stack_size(limits::STACK_BYTES);
        let body = move || {
            threads::serve(&shared, id, &socket);
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
