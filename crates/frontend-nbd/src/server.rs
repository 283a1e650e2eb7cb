//! The server: listeners, the accept thread, what may be set while it runs, and the way to stop.
//!
//! Where it stands: the crate's face. `start` binds everything before it spawns anything, so an error leaves nothing
//! behind; `stop` ends accepting, lets requests in flight finish, then closes, and returns in bounded time whatever
//! clients and exports do.
//!
//! Invariants
//! - `stop` returns within its deadline plus [`limits::STOP_GRACE`]: `tests/stop.rs`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use braid_nbd_proto::limits::NAME_BYTES_MAX;
use braid_ring::Workers;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, getrlimit};

use crate::budget::{Budget, request_bytes_max};
use crate::connection::Identity;
use crate::counters::{Counters, Counts};
use crate::endpoint::{BindError, Endpoint, Listener};
use crate::export::Export;
use crate::limits;
use crate::notice::{Listener as NoticeListener, Notice, Notices};
use crate::registry::{Admission, Evicted, Registry, Room};
use crate::ring::{self, Desk};
use crate::socket::Socket;
use crate::threads;

/// How a server is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Connections at a time; may be set while it runs ([`Tuner`]).
    pub connections_max: usize,
    /// Connections that have not negotiated yet.
    pub negotiating_max: usize,
    /// Time for the whole negotiation.
    pub handshake_deadline: Duration,
    /// Memory for payloads, of all connections together; may be set while it runs. It is the process's
    /// ([`braid_ring::set_payload_memory`]): a third of it is memory that is registered with rings, the rest is what
    /// requests are granted, and half of what is granted is the largest request, rounded down to a power of two.
    pub payload_bytes_max: usize,
    /// Connections that have been idle for longer go when all are in use and another client comes; `None`: never. May be
    /// set while it runs.
    pub idle_limit: Option<Duration>,
    /// Time in which a client that sends a payload, or is sent a reply, has to move [`limits::STRIDE_BYTES`], or all of it.
    pub progress_deadline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_max: limits::CONNECTIONS_MAX,
            negotiating_max: limits::NEGOTIATING_MAX,
            handshake_deadline: limits::HANDSHAKE_DEADLINE,
            payload_bytes_max: limits::PAYLOAD_BYTES_MAX,
            idle_limit: None,
            progress_deadline: limits::PROGRESS_DEADLINE,
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
    /// Connections that had to be cut, at the deadline or because their clients took nothing of their replies.
    pub cut: usize,
    /// Threads that did not end even then: an export that does not answer.
    pub still_running: usize,
}

/// What may be set while a server runs.
#[derive(Debug)]
pub(crate) struct Bounds {
    connections_max: AtomicUsize,
    /// Milliseconds; [`NEVER`] for none.
    idle_limit_ms: AtomicU64,
    payload_bytes_max: AtomicUsize,
}

const NEVER: u64 = u64::MAX;

impl Bounds {
    pub(crate) fn new(settings: &Settings) -> Self {
        let bounds = Self {
            connections_max: AtomicUsize::new(settings.connections_max),
            idle_limit_ms: AtomicU64::new(NEVER),
            payload_bytes_max: AtomicUsize::new(settings.payload_bytes_max),
        };
        bounds.set_idle_limit(settings.idle_limit);
        bounds
    }

    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max.load(Ordering::Relaxed)
    }

    fn idle_limit(&self) -> Option<Duration> {
        let ms = self.idle_limit_ms.load(Ordering::Relaxed);
        (ms != NEVER).then(|| Duration::from_millis(ms))
    }

    fn set_idle_limit(&self, limit: Option<Duration>) {
        let ms = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(NEVER);
        self.idle_limit_ms.store(limit.map_or(NEVER, ms), Ordering::Relaxed);
    }
}

/// What requests are granted of so much memory for payloads.
pub(crate) fn granted_of(payload_bytes_max: usize) -> usize {
    payload_bytes_max - payload_bytes_max / 3
}

/// Reads and sets what may be set while a server runs.
#[derive(Clone)]
pub struct Tuner(Arc<Shared>);

impl std::fmt::Debug for Tuner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Tuner").field(&self.0.bounds).finish()
    }
}

impl Tuner {
    #[cfg(test)]
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }

    /// As it is now.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            connections_max: self.0.bounds.connections_max(),
            idle_limit: self.0.bounds.idle_limit(),
            payload_bytes_max: self.0.bounds.payload_bytes_max.load(Ordering::Relaxed),
            ..self.0.settings
        }
    }

    /// Sets how many connections there may be. Those that there are stay.
    pub fn set_connections_max(&self, count: usize) {
        self.0.bounds.connections_max.store(count, Ordering::Relaxed);
        // Those that stay have their parts too: no more is dealt out than there is.
        self.0.budget.set_connections_max(count.max(self.0.registry.count()));
    }

    /// Sets after which time idle connections go when their place is wanted.
    pub fn set_idle_limit(&self, limit: Option<Duration>) {
        self.0.bounds.set_idle_limit(limit);
    }

    /// Sets what payloads may take. What is held beyond it comes back as replies go out; clients that were told of a
    /// larger request get `ENOMEM` for what there is no room for any more.
    pub fn set_payload_bytes_max(&self, bytes: usize) {
        self.0.bounds.payload_bytes_max.store(bytes, Ordering::Relaxed);
        braid_ring::set_payload_memory(bytes);
        self.0.budget.set_limit(granted_of(bytes));
        self.0.budget.ring();
    }

    /// The largest request of clients that come now, in bytes.
    #[must_use]
    pub fn request_bytes_max(&self) -> usize {
        request_bytes_max(self.0.budget.limit_bytes())
    }

    /// What has been counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) exports: Vec<Arc<dyn Export>>,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) budget: Budget,
    pub(crate) bounds: Bounds,
    pub(crate) notices: Notices,
    pub(crate) registry: Registry,
    pub(crate) stopping: AtomicBool,
    pub(crate) stopping_since: OnceLock<Instant>,
}

impl Shared {
    pub(crate) fn new(
        exports: Vec<Arc<dyn Export>>,
        settings: Settings,
        listener: Option<NoticeListener>,
    ) -> Self {
        Self {
            exports,
            settings,
            counters: Counters::default(),
            budget: Budget::new(granted_of(settings.payload_bytes_max), settings.connections_max),
            bounds: Bounds::new(&settings),
            notices: Notices::new(listener),
            registry: Registry::default(),
            stopping: AtomicBool::new(false),
            stopping_since: OnceLock::new(),
        }
    }

    /// Since when the server stops, if it does.
    pub(crate) fn stopping_since(&self) -> Option<Instant> {
        self.stopping_since.get().copied()
    }

    fn counts(&self) -> Counts {
        self.counters.read(self.registry.count(), &self.budget)
    }
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
        self.0.counts()
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
        Self::start_with(exports, endpoints, settings, (None, None))
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
        Self::start_with(exports, endpoints, settings, (Some(workers), None))
    }

    /// The same, on workers or without, with somebody who is told what an operator has to know. It is called on any thread
    /// of the server, and must not wait for it.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_heard(
        workers: Option<&Arc<Workers>>,
        exports: Vec<Arc<dyn Export>>,
        endpoints: &[Endpoint],
        (settings, listener): (Settings, NoticeListener),
    ) -> Result<Self, StartError> {
        Self::start_with(exports, endpoints, settings, (workers, Some(listener)))
    }

    fn start_with(
        exports: Vec<Arc<dyn Export>>,
        endpoints: &[Endpoint],
        settings: Settings,
        (workers, listener): (Option<&Arc<Workers>>, Option<NoticeListener>),
    ) -> Result<Self, StartError> {
        check_names(&exports)?;
        if endpoints.is_empty() {
            return Err(StartError::NoEndpoints);
        }
        let listeners = endpoints.iter().map(Listener::bind).collect::<Result<Vec<_>, _>>()?;
        let endpoints = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(io::Error::from)?);
        braid_ring::set_payload_memory(settings.payload_bytes_max);
        let shared = Arc::new(Shared::new(exports, settings, listener));
        let desks = workers.map_or_else(Vec::new, |workers| ring::desks(&shared, workers));
        let acceptor = Acceptor {
            shared: Arc::clone(&shared),
            desks: desks.clone(),
            listeners,
            wake: Arc::clone(&wake),
            lacks_descriptors: false,
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

    /// Something to set what may be set while it runs.
    #[must_use]
    pub fn tuner(&self) -> Tuner {
        Tuner(Arc::clone(&self.shared))
    }

    /// Stops accepting, lets requests in flight finish until `deadline` from now, then closes. Takes at most `deadline`
    /// plus [`limits::STOP_GRACE`]. A client that takes nothing of its replies for
    /// [`limits::STOP_PROGRESS_DEADLINE`] is cut before that.
    #[must_use]
    pub fn stop(mut self, deadline: Duration) -> StopReport {
        self.stop_within(deadline)
    }

    fn stop_within(&mut self, deadline: Duration) -> StopReport {
        let Some(acceptor) = self.acceptor.take() else {
            return StopReport { cut: 0, still_running: 0 };
        };
        let stalled_before = self.shared.counters.stalled.get();
        self.shared.stopping_since.get_or_init(Instant::now);
        self.shared.stopping.store(true, Ordering::Release);
        // Only a full counter could refuse this, and then the acceptor is awake anyway.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        acceptor.join().expect("the accept thread does not panic");
        let registry = &self.shared.registry;
        registry.start_draining();
        // Those that wait for memory wait no longer, and those that send have less time.
        self.shared.budget.call_all();
        self.shared.budget.ring();
        self.desks.iter().for_each(Desk::look_all);
        let mut cut = 0;
        let mut still_running = registry.wait_until_empty(deadline);
        if still_running > 0 {
            cut = registry.cut_all();
            self.desks.iter().for_each(Desk::close_all);
            still_running = registry.wait_until_empty(limits::STOP_GRACE);
        }
        let stalled = self.shared.counters.stalled.get() - stalled_before;
        cut += usize::try_from(stalled).unwrap_or(usize::MAX);
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
    lacks_descriptors: bool,
}

impl Acceptor {
    fn run(mut self) {
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
                    // Some connection must end first, or somebody must do something.
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
        let is_served = match self.desks.len() {
            0 => self.serve_on_threads(identity, socket),
            desks => {
                let turn = id % desks as u64;
                self.desks[usize::try_from(turn).expect("fewer than desks")].begin(identity, socket)
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
