//! Connections on a Unix socket: which users may connect, how many at a time, and the deadlines.
//!
//! ```text
//!   listener --accept--> trusted peer? --no: gets an error and is closed
//!                          | yes; limit reached? the client that has waited longest is cut off
//!                          v
//!                        a task each --head, in time--> routes --> answer, and the next request
//! ```
//!
//! One thread carries all connections (tokio, one runtime, which no byte of the array passes
//! through). The thread never waits for a client that is silent or does not read. A stop waits only
//! a moment for answers in progress.
//!
//! Invariants
//! - A request's head has one deadline, however many parts it arrives in
//!   `[check: a_byte_now_and_then_is_no_way_to_stay]`.
//! - A stop waits for no client `[check: a_stop_waits_for_no_client]`.
//! - Another user is not answered `[check: another_user_is_not_answered]`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client_limit::{ClientGuard, ClientLimit};
use crate::passed_descriptors::{DescriptorReceiver, PassedDescriptors};
use crate::served_array::{Misuse, PROBLEM_JSON, ServedArray};

/// Wait before the next accept after a shortage of system resources.
const PAUSE: Duration = Duration::from_millis(50);

/// Most threads that call the array at a time. A few suffice, since answers take microseconds.
const ASKING_THREADS_MAX: usize = 4;

/// Most headers of a request: curl sends four, a browser fifteen.
const HEADERS_MAX: usize = 64;

/// Limits for the clients of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at a time: more than operators and their programs use, yet few descriptors.
    pub connections_max: usize,
    /// Deadline for the head of each request.
    pub head_deadline: Duration,
    /// Longest head of a request, in bytes; hyper takes no less than 8 KiB.
    pub head_bytes_max: usize,
    /// How long a stop waits for answers in progress.
    pub stop_patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 32,
            head_deadline: Duration::from_secs(5),
            head_bytes_max: 16 << 10,
            stop_patience: Duration::from_secs(1),
        }
    }
}

/// A server of the API on its own thread; drop ends the server.
#[derive(Debug)]
pub struct Server {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server at a listening, non-blocking socket. The caller removes the socket's file.
    ///
    /// # Errors
    /// The thread or its runtime could not start.
    pub fn start(
        listener: OwnedFd,
        router: Router,
        served: Arc<dyn ServedArray>,
        limits: Limits,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(ASKING_THREADS_MAX)
            .thread_name("braid-asked")
            .build()?;
        let listener = std::os::unix::net::UnixListener::from(listener);
        listener.set_nonblocking(true)?;
        let listener = {
            let _guard = runtime.enter();
            UnixListener::from_std(listener)?
        };
        let (end, ended) = oneshot::channel();
        let connections = Connections { router, served, limits };
        let thread = std::thread::Builder::new()
            .name("braid-control".into())
            .spawn(move || run(runtime, &connections, listener, ended))?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The send fails if the thread has ended already.
        let _ = self.end.take().map(|end| end.send(()));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the control thread does not panic");
        }
    }
}

fn run(
    runtime: Runtime,
    connections: &Connections,
    listener: UnixListener,
    ended: oneshot::Receiver<()>,
) {
    runtime.block_on(connections.serve(listener, ended));
    // Does not wait for a blocked call of the array.
    runtime.shutdown_background();
}

struct Connections {
    router: Router,
    served: Arc<dyn ServedArray>,
    limits: Limits,
}

impl Connections {
    async fn serve(&self, listener: UnixListener, mut ended: oneshot::Receiver<()>) {
        let (ending, ends) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut limit = ClientLimit::new(self.limits.connections_max);
        loop {
            tokio::select! {
                _ = &mut ended => break,
                Some(_) = tasks.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if self.is_let_in(&stream) {
                            let serve =
                                |guard| tasks.spawn(self.connection(guard, stream, ends.clone()));
                            limit.admit(serve).await;
                        }
                    }
                    // The process is out of descriptors or kernel memory, or the client has
                    // disconnected already.
                    Err(_) => sleep(PAUSE).await,
                },
            }
        }
        drop(listener);
        // Does not wait for clients that have sent no request.
        limit.cut_silent();
        ending.send_replace(true);
        let answered = async { while tasks.join_next().await.is_some() {} };
        // Ending the tasks also ends answers that are still unfinished.
        let _ = timeout(self.limits.stop_patience, answered).await;
    }

    /// Whether the peer is the serving user or root. Another user gets an error.
    fn is_let_in(&self, stream: &UnixStream) -> bool {
        let user = stream.peer_cred().map(|peer| peer.uid());
        let own = rustix::process::geteuid().as_raw();
        let stranger = match user {
            Ok(user) if is_allowed(user, own) => return true,
            Ok(user) => user,
            // The peer has disconnected.
            Err(_) => return false,
        };
        let refusal = self.served.misused(&Misuse::Stranger(stranger));
        let body = serde_json::to_string(&refusal.problem).expect("it is made of text");
        let (length, status) = (body.len(), refusal.status);
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {PROBLEM_JSON}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        // The buffer of a new connection has room for the error's text.
        let _ = stream.try_write(text.as_bytes());
        false
    }

    fn connection(
        &self,
        guard: ClientGuard,
        stream: UnixStream,
        mut ends: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let routes = TowerToHyperService::new(self.router.clone());
        let passed = PassedDescriptors::default();
        let coming = passed.clone();
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            // Descriptors received so far belong to this request.
            request.extensions_mut().insert(PassedDescriptors::of(passed.take()));
            guard.note_asked();
            routes.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_deadline)
            .max_buf_size(self.limits.head_bytes_max)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(DescriptorReceiver::new(stream, coming)), service);
        async move {
            let mut connection = std::pin::pin!(connection);
            let ended = ends.wait_for(|ends| *ends);
            let is_over = tokio::select! {
                // A client's protocol error ends only its own connection.
                _ = connection.as_mut() => true,
                _ = ended => false,
            };
            if !is_over {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}

fn is_allowed(user: u32, own: u32) -> bool {
    user == own || user == 0
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn only_the_same_user_and_root_are_allowed() {
        for (user, own, allowed) in
            [(0, 0, true), (1000, 1000, true), (0, 1000, true), (1000, 0, false), (7, 8, false)]
        {
            assert_eq!(is_allowed(user, own), allowed, "{user} {own}");
        }
    }
}
