//! The server that several arrays share: it starts once each array is ready or has failed, and ends
//! with the last array.
//!
//! An array that ends before other arrays withdraws its export: listings omit it, new clients do
//! not find it, and connected clients get ESHUTDOWN.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_frontend_nbd::{
    BlockSizes, ClientRequest, Completion, Export, Extent, Meter, NbdUri, Outcome, RequestError,
    Server, StopReport, Tuner,
};
use braid_ring::Workers;
use braid_runtime::Volume;

use crate::report::Reporter;
use braid_console::error::CliError;
use braid_console::error::code::Code;

/// Access of clients to an array: a server of its own, or a shared one.
pub(crate) enum Clients {
    Own(Server),
    Shared { shared_server: Arc<SharedServer>, export: Arc<Withdrawable> },
}

impl Clients {
    pub(crate) fn uris(&self, name: &str) -> Vec<String> {
        let words =
            |uris: &mut dyn Iterator<Item = NbdUri>| uris.map(|uri| uri.to_string()).collect();
        match self {
            Self::Own(server) => words(&mut server.uris(name)),
            Self::Shared { shared_server, .. } => {
                shared_server.with(|server| words(&mut server.uris(name)))
            }
        }
    }

    /// A handle that reads the server's counts.
    pub(crate) fn meter(&self) -> Meter {
        match self {
            Self::Own(server) => server.meter(),
            Self::Shared { shared_server, .. } => shared_server.with(Server::meter),
        }
    }

    /// A handle that changes the server's settings.
    pub(crate) fn tuner(&self) -> Tuner {
        match self {
            Self::Own(server) => server.tuner(),
            Self::Shared { shared_server, .. } => shared_server.with(Server::tuner),
        }
    }

    /// Ends the serving of this array. A shared server withdraws the array's export, and stops with
    /// its last export.
    pub(crate) fn stop(self, deadline: Duration) -> StopReport {
        match self {
            Self::Own(server) => server.stop(deadline),
            Self::Shared { shared_server, export } => {
                export.is_withdrawn.store(true, Ordering::Release);
                shared_server.end(deadline)
            }
        }
    }
}

/// An export that can be withdrawn while its server runs.
pub(crate) struct Withdrawable {
    export: Arc<dyn Export>,
    is_withdrawn: AtomicBool,
}

impl Withdrawable {
    pub(crate) fn new(export: Arc<dyn Export>) -> Arc<Self> {
        Arc::new(Self { export, is_withdrawn: AtomicBool::new(false) })
    }
}

impl Export for Withdrawable {
    fn name(&self) -> &str {
        self.export.name()
    }

    fn description(&self) -> String {
        self.export.description()
    }

    fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Acquire)
    }

    fn size_bytes(&self) -> u64 {
        self.export.size_bytes()
    }

    fn read_only(&self) -> bool {
        self.export.read_only()
    }

    fn block_sizes(&self) -> BlockSizes {
        self.export.block_sizes()
    }

    fn stretch_bytes(&self) -> u64 {
        self.export.stretch_bytes()
    }

    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        self.export.zeroes_fast(offset, length)
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        if !self.is_withdrawn() {
            return self.export.submit(request, completion);
        }
        let payload = match request {
            ClientRequest::Read { payload, .. } | ClientRequest::Write { payload, .. } => {
                Some(payload)
            }
            _ => None,
        };
        completion.complete(Outcome { result: Err(RequestError::Stopping), payload });
    }

    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        self.export.block_status(offset, length, extents_max)
    }
}

/// An array's state while the server waits to start for all arrays together.
enum StartState {
    Coming,
    Here(Arc<Withdrawable>, Arc<Volume>, Arc<Reporter>),
    Gone,
}

struct State {
    arrays: Vec<StartState>,
    sockets: Vec<OwnedFd>,
    workers: Option<Option<Arc<Workers>>>,
    server: Option<Server>,
    /// The server could not start; only the first array got the error itself.
    has_failed: bool,
    users: usize,
}

impl State {
    fn is_awaited(&self) -> bool {
        self.arrays.iter().any(|array| matches!(array, StartState::Coming))
    }
}

pub(crate) struct SharedServer {
    state: Mutex<State>,
    changed: Condvar,
}

/// The arrays that the server serves, a reporter, and the arrays' URIs.
pub(super) type ServedArrays = (Vec<Arc<Volume>>, Arc<Reporter>, Vec<String>);

impl SharedServer {
    pub(super) fn new(count: usize, sockets: Vec<OwnedFd>) -> Self {
        let state = State {
            arrays: (0..count).map(|_| StartState::Coming).collect(),
            sockets,
            workers: None,
            server: None,
            has_failed: false,
            users: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, look: impl FnOnce(&Server) -> T) -> T {
        look(self.state().server.as_ref().expect("it runs until its last user has ended"))
    }

    /// Workers for all arrays; the first caller starts them.
    pub(crate) fn workers_or(
        &self,
        start: impl FnOnce() -> Result<Option<Arc<Workers>>, CliError>,
    ) -> Result<Option<Arc<Workers>>, CliError> {
        let mut state = self.state();
        if state.workers.is_none() {
            state.workers = Some(start()?);
        }
        Ok(state.workers.clone().flatten())
    }

    pub(super) fn workers(&self) -> Option<Arc<Workers>> {
        self.state().workers.clone().flatten()
    }

    /// Waits until all arrays are ready or gone, and the server runs. The last array to arrive
    /// starts the server with `start`.
    pub(crate) fn join(
        self: &Arc<Self>,
        index: usize,
        (export, volume, reporter): (Arc<dyn Export>, &Arc<Volume>, &Arc<Reporter>),
        start: impl FnOnce(Vec<Arc<dyn Export>>, Vec<OwnedFd>) -> Result<Server, CliError>,
    ) -> Result<Clients, CliError> {
        let export = Withdrawable::new(export);
        let mut state = self.state();
        let (volume, reporter) = (Arc::clone(volume), Arc::clone(reporter));
        state.arrays[index] = StartState::Here(Arc::clone(&export), volume, reporter);
        self.changed.notify_all();
        while state.is_awaited() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.server.is_none() && !state.has_failed {
            let here = state.arrays.iter().filter_map(|array| match array {
                StartState::Here(export, ..) => Some(Arc::clone(export) as Arc<dyn Export>),
                StartState::Coming | StartState::Gone => None,
            });
            let exports: Vec<_> = here.collect();
            let sockets = std::mem::take(&mut state.sockets);
            let users = exports.len();
            match start(exports, sockets) {
                Ok(server) => (state.server, state.users) = (Some(server), users),
                Err(error) => {
                    state.has_failed = true;
                    self.changed.notify_all();
                    return Err(error);
                }
            }
            self.changed.notify_all();
        }
        if state.has_failed {
            let what = "the shared server could not be started";
            return Err(CliError::new(Code::System, what));
        }
        drop(state);
        Ok(Clients::Shared { shared_server: Arc::clone(self), export })
    }

    /// Notes that the array has ended, or failed to start.
    pub(super) fn leave(&self, index: usize) {
        self.state().arrays[index] = StartState::Gone;
        self.changed.notify_all();
    }

    /// Ends the server's use by one array; the last array stops the server.
    fn end(&self, deadline: Duration) -> StopReport {
        let mut state = self.state();
        state.users -= 1;
        let server = if state.users == 0 { state.server.take() } else { None };
        drop(state);
        server.map_or(StopReport { cut: 0, still_running: 0 }, |server| server.stop(deadline))
    }

    /// Waits until the server runs; `None` if no array is left to serve.
    pub(super) fn wait_until_served(&self) -> Option<ServedArrays> {
        let mut state = self.state();
        loop {
            let all_gone = state.arrays.iter().all(|array| matches!(array, StartState::Gone));
            if all_gone || state.has_failed {
                return None;
            }
            if let Some(server) = &state.server {
                let (mut volumes, mut uris, mut first) = (Vec::new(), Vec::new(), None);
                for array in &state.arrays {
                    let StartState::Here(export, volume, reporter) = array else { continue };
                    volumes.push(Arc::clone(volume));
                    uris.extend(server.uris(export.name()).map(|uri| uri.to_string()));
                    first.get_or_insert_with(|| Arc::clone(reporter));
                }
                return first.map(|reporter| (volumes, reporter, uris));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reports a signal that does not end serving.
    pub(super) fn note_ignored(&self, number: i32) {
        let state = self.state();
        let here = state.arrays.iter().find_map(|array| match array {
            StartState::Here(.., reporter) => Some(Arc::clone(reporter)),
            StartState::Coming | StartState::Gone => None,
        });
        drop(state);
        if let Some(reporter) = here {
            reporter.ignored(number);
        }
    }
}
