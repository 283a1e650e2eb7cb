//! Metrics on a port: a server with few routes, on its own thread.
//!
//! Any process of the machine may connect to a loopback port, so the server limits connections, and
//! allows each connection one request and a few seconds. At the limit, a connection without a
//! request is cut off. Without TLS, only loopback and names of this machine are accepted, unless
//! configured otherwise.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use braid_control::{ClientGuard, ClientLimit, Names, guarded};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::routes::routes;
use super::snapshot::Source;

/// Most connections at a time: one or two scrapers, an operator with curl, and some silent clients.
const CONNECTIONS_MAX: usize = 32;

/// Deadline of a connection, from its first byte to its last.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(15);

/// Wait before the next accept after a shortage of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The given text is no address with a port.
    #[error("{0:?} is no address with a port, such as 127.0.0.1:9100")]
    Address(String),
    /// Other machines could connect to the address.
    #[error(
        "{0} is not a loopback address; metrics have no TLS, so other machines could read \
             them"
    )]
    NotLoopback(SocketAddr),
    /// An error of the operating system.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// The address at which the error occurred.
        address: SocketAddr,
        /// The error.
        #[source]
        source: io::Error,
    },
}

/// Parses an address to listen on, such as `127.0.0.1:9100`, `[::1]:9100` or `localhost:9100`. Only
/// loopback addresses are valid, unless `is_public`.
///
/// # Errors
/// The text is no address, or other machines could reach it.
pub fn parse_address(text: &str, is_public: bool) -> Result<SocketAddr, ServerError> {
    let by_name = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let by_name = by_name.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let address = by_name.or_else(|| text.parse().ok());
    let address = address.ok_or_else(|| ServerError::Address(text.to_owned()))?;
    // An IPv4 address mapped to IPv6 counts as IPv4.
    if is_public || address.ip().to_canonical().is_loopback() {
        Ok(address)
    } else {
        Err(ServerError::NotLoopback(address))
    }
}

/// The running metrics server; drop ends it.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves these arrays' metrics at `address`, and also the routes of `beside`. If the port is
    /// 0, the system chooses a free port.
    ///
    /// # Errors
    /// The system refuses the address, or cannot provide a thread or a runtime.
    pub fn start(
        address: SocketAddr,
        sources: Vec<Arc<dyn Source>>,
        with_node_md: bool,
        (beside, names): (Router, Names),
    ) -> Result<Self, ServerError> {
        let system = |source| ServerError::System { address, source };
        let listener = TcpListener::bind(address).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let bound = listener.local_addr().map_err(system)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .map_err(system)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(system)?
        };
        let (stop, stopped) = oneshot::channel();
        let router = guarded(routes(sources, with_node_md).merge(beside), names);
        let body = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, router) => {}
                    _ = stopped => {}
                }
            });
            // Does not wait for a scrape that still waits for an array.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("braid-metrics".into()).spawn(body);
        Ok(Self { address: bound, stop: Some(stop), thread: Some(thread.map_err(system)?) })
    }

    /// The server's address, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("serving metrics does not panic");
        }
    }
}

async fn serve(listener: tokio::net::TcpListener, routes: Router) {
    let mut limit = ClientLimit::new(CONNECTIONS_MAX);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let routes = TowerToHyperService::new(routes.clone());
        let serve = |guard: ClientGuard| {
            let service = service_fn(move |request| {
                guard.note_asked();
                routes.call(request)
            });
            let task = async move {
                let mut http = http1::Builder::new();
                let connection =
                    http.keep_alive(false).serve_connection(TokioIo::new(stream), service);
                // A client that disconnected or took too long is no error of the server.
                let _ = tokio::time::timeout(CONNECTION_PATIENCE, connection).await;
            };
            tokio::spawn(task).abort_handle()
        };
        limit.admit(serve).await;
    }
}
