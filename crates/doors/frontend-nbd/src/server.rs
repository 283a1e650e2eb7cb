//! The server: how it starts, and how it stops.
//!
//! Where it stands: the crate's interface. `start` binds every address before it spawns a thread,
//! so an error leaves no thread behind. `stop` ends accepting, lets requests in flight finish, then
//! closes the connections. `stop` returns in bounded time, whatever clients and exports do.
//!
//! Invariants
//! - `stop` returns within its deadline plus [`limits::STOP_GRACE`]. If clients use TLS, `stop` may
//!   take twice that grace: `tests/stop.rs`, `tests/tls.rs`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use braid_nbd_proto::NbdUri;
use braid_nbd_proto::limits::NAME_BYTES_MAX;
use braid_ring::Workers;
use rustix::event::{EventfdFlags, eventfd};

use crate::acceptor::Acceptor;
use crate::counters::Counts;
use crate::dealer::Dealer;
use crate::endpoint::{BindError, Endpoint, Listener};
use crate::export::Export;
use crate::limits;
use crate::notice::Listener as NoticeListener;
use crate::ring::{self, WorkerConnections};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::tls::Tls;
use crate::tuner::{Meter, Tuner};

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The list of exports is empty.
    #[error("there is nothing to serve")]
    NoExports,
    /// The list of endpoints is empty.
    #[error("there is no address to listen on")]
    NoEndpoints,
    /// A name that NBD cannot carry: too long, with a NUL, or empty (except for the first export).
    #[error("the export name {0:?} cannot be used: at most 4096 bytes, no NUL, not empty")]
    Name(String),
    /// Two exports have the same name.
    #[error("two exports are named {0:?}")]
    DuplicateName(String),
    /// The server cannot listen at an address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The operating system could not provide a thread or a descriptor.
    #[error("cannot start the server: {0}")]
    System(#[from] io::Error),
}

/// The result of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopReport {
    /// Number of connections cut at the deadline, or because their clients did not take replies.
    pub cut: usize,
    /// Number of threads that still run, because an export does not answer.
    pub still_running: usize,
}

/// A running server; drop stops the server without waiting for requests in flight.
pub struct Server {
    shared: Arc<Shared>,
    /// The workers' connections; empty if each connection has threads of its own.
    workers: Vec<Arc<WorkerConnections>>,
    endpoints: Vec<Endpoint>,
    /// For each endpoint, whether it uses TLS.
    by_tls: Vec<bool>,
    wake: Arc<OwnedFd>,
    acceptor: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens at every endpoint and serves `exports`; the empty name also means the first export.
    ///
    /// # Errors
    /// There are no exports or endpoints, a name is invalid, or an address fails; no socket is left
    /// behind.
    pub fn start(
        exports: Vec<Arc<dyn Export>>,
        endpoints: &[Endpoint],
        settings: Settings,
    ) -> Result<Self, StartError> {
        Self::start_with(exports, endpoints, settings, (None, None))
    }

    /// Like [`Self::start`], with connections on `workers` instead of threads of their own. The
    /// workers must run as long as the server does.
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

    /// Like [`Self::start_on`], with `workers` optional, and with a listener for notices to the
    /// operator. Any thread of the server calls the listener, and the listener must not wait for
    /// the server.
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

    /// Like [`Self::start_heard`], on sockets that already listen, each with or without TLS.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_listening(
        workers: Option<&Arc<Workers>>,
        exports: Vec<Arc<dyn Export>>,
        listeners: Vec<(Listener, Option<Tls>)>,
        (settings, listener): (Settings, NoticeListener),
    ) -> Result<Self, StartError> {
        check_names(&exports)?;
        Self::start_on_all(exports, listeners, settings, (workers, Some(listener)))
    }

    fn start_with(
        exports: Vec<Arc<dyn Export>>,
        endpoints: &[Endpoint],
        settings: Settings,
        heard: (Option<&Arc<Workers>>, Option<NoticeListener>),
    ) -> Result<Self, StartError> {
        check_names(&exports)?;
        let bind = |endpoint| Ok((Listener::bind(endpoint)?, None));
        let listeners = endpoints.iter().map(bind).collect::<Result<Vec<_>, BindError>>()?;
        Self::start_on_all(exports, listeners, settings, heard)
    }

    fn start_on_all(
        exports: Vec<Arc<dyn Export>>,
        listeners: Vec<(Listener, Option<Tls>)>,
        settings: Settings,
        (workers, listener): (Option<&Arc<Workers>>, Option<NoticeListener>),
    ) -> Result<Self, StartError> {
        if listeners.is_empty() {
            return Err(StartError::NoEndpoints);
        }
        let place = |(listener, tls): &(Listener, Option<Tls>)| {
            (listener.endpoint().clone(), tls.is_some())
        };
        let (endpoints, by_tls) = listeners.iter().map(place).unzip();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(io::Error::from)?);
        braid_ring::set_payload_memory(settings.payload_bytes_max);
        let shared = Arc::new(Shared::new(exports, settings, listener));
        let workers = workers.map_or_else(Vec::new, |workers| ring::deal(&shared, workers));
        let dealer = Dealer { shared: Arc::clone(&shared), workers: workers.clone() };
        let acceptor = Acceptor::new(dealer, listeners, Arc::clone(&wake));
        let builder = std::thread::Builder::new().name("nbd-accept".into());
        let acceptor = Some(builder.spawn(move || acceptor.run())?);
        Ok(Self { shared, workers, endpoints, by_tls, wake, acceptor })
    }

    /// The endpoints in the order of the call, with the ports that the system chose.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The URIs of an export, in the order of the endpoints.
    pub fn uris(&self, export: &str) -> impl Iterator<Item = NbdUri> {
        let places = self.endpoints.iter().zip(&self.by_tls);
        places.map(move |(endpoint, by_tls)| endpoint.uri(export, *by_tls))
    }

    /// The server's counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.meter().counts()
    }

    /// A handle that reads the counters, also after the server has stopped.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::clone(&self.shared))
    }

    /// A handle that changes settings while the server runs.
    #[must_use]
    pub fn tuner(&self) -> Tuner {
        Tuner(Arc::clone(&self.shared))
    }

    /// Stops accepting, lets requests in flight finish for at most `deadline`, then closes all
    /// connections. Takes at most `deadline` plus [`limits::STOP_GRACE`]. A client is cut earlier
    /// if it takes no reply for [`limits::STOP_PROGRESS_DEADLINE`].
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
        // The eventfd refuses this write only if its counter is full; the acceptor is then awake.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        acceptor.join().expect("the accept thread does not panic");
        self.shared.pumps.cut_waiting();
        let registry = &self.shared.registry;
        registry.start_draining();
        // Wakes connections that wait for memory, so that they give up waiting; clients that are
        // sending get less time.
        self.shared.budget.call_all();
        self.shared.budget.ring();
        self.workers.iter().for_each(WorkerConnections::look_all);
        let mut cut = 0;
        let mut still_running = registry.wait_until_empty(deadline);
        if still_running > 0 {
            cut = registry.cut_all();
            self.workers.iter().for_each(WorkerConnections::close_all);
            still_running = registry.wait_until_empty(limits::STOP_GRACE);
        }
        // Gives the TLS threads time to send the connections' last bytes.
        self.shared.pumps.end(limits::STOP_GRACE);
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
