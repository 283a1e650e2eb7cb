//! The crate's interface: it serves an array at a socket, to one client at a time.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use braid_ring::Workers;
use braid_runtime::Disk;
use braid_virtio_proto::Shape;
use braid_virtio_proto::limits::ID_BYTES;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SocketFlags, accept_with};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::bells;
use crate::limits::{LOOK, STACK_BYTES, UNDO_DEADLINE};
use crate::queue::ServedDisk;
use crate::session::{Queues, Session};

/// Why a door cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{call} failed")]
pub struct OpenError {
    /// The system call that failed.
    pub call: &'static str,
    /// Why the call failed.
    pub source: io::Error,
}

/// The result of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseResult {
    /// Whether a client was connected.
    pub was_in_use: bool,
    /// Number of requests that were taken from rings and not answered before the deadline.
    pub unanswered: usize,
}

struct Client {
    socket: UnixStream,
    queues: Arc<Queues>,
}

struct Life {
    is_ending: AtomicBool,
    end: OwnedFd,
    client: Mutex<Option<Client>>,
}

impl Life {
    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }
}

/// An array served to virtual machines. Drop closes the door.
pub struct Door {
    life: Arc<Life>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Door").finish_non_exhaustive()
    }
}

impl Door {
    /// Serves `disk`, with these logical blocks and this name, at a listening, non-blocking Unix
    /// socket. `workers` run the turns of queues, or each queue has a thread.
    ///
    /// # Errors
    /// The system gives no eventfd or no thread.
    pub fn open(
        socket: OwnedFd,
        (disk, logical_block_bytes, id): (Arc<dyn Disk>, u32, [u8; ID_BYTES]),
        workers: Option<Arc<Workers>>,
    ) -> Result<Self, OpenError> {
        let failed = |call| move |source| OpenError { call, source };
        let shape = Shape {
            size_bytes: disk.size_bytes(),
            is_read_only: disk.is_read_only(),
            logical_block_bytes,
            unit_bytes: disk.unit_bytes(),
        };
        let served = Arc::new(ServedDisk { disk, id, started: AtomicUsize::new(0) });
        let end = bells::bell().map_err(failed("making an eventfd"))?;
        let life =
            Arc::new(Life { is_ending: AtomicBool::new(false), end, client: Mutex::default() });
        let listener = Listener { socket, served, shape, workers, life: Arc::clone(&life) };
        let builder = Builder::new().name("braid-vhost".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || listener.run()).map_err(failed("starting a thread"))?;
        Ok(Self { life, thread: Some(thread) })
    }

    /// Answers requests that end before the deadline, then disconnects the client, which may
    /// connect to the next server.
    #[must_use]
    pub fn close(mut self, deadline: Duration) -> CloseResult {
        self.end(deadline)
    }

    fn end(&mut self, deadline: Duration) -> CloseResult {
        let Some(thread) = self.thread.take() else {
            return CloseResult { was_in_use: false, unanswered: 0 };
        };
        let until = Instant::now() + deadline;
        self.life.is_ending.store(true, Ordering::SeqCst);
        bells::ring(&self.life.end);
        let client = self.life.client();
        let was_in_use = client.is_some();
        let mut unanswered = 0;
        if let Some(client) = &*client {
            let queues = client.queues.all();
            queues.iter().for_each(|queue| queue.hold());
            unanswered = queues.iter().map(|queue| queue.wait_for_answers(until)).sum();
            queues.iter().for_each(|queue| queue.cut());
            // The call fails if the client has disconnected by itself.
            let _ = client.socket.shutdown(std::net::Shutdown::Both);
        }
        drop(client);
        if thread.join().is_err() {
            tracing::error!(target: "braid_frontend_vhost_user", "the thread of the door has panicked");
        }
        CloseResult { was_in_use, unanswered }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.end(UNDO_DEADLINE);
    }
}

struct Listener {
    socket: OwnedFd,
    served: Arc<ServedDisk>,
    shape: Shape,
    workers: Option<Arc<Workers>>,
    life: Arc<Life>,
}

impl Listener {
    fn run(self) {
        while !self.life.is_ending() {
            let mut looks = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&self.life.end, PollFlags::IN),
            ];
            // The result is ignored, since the loop checks both descriptors next.
            let _ = poll(&mut looks, None);
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => self.serve(UnixStream::from(socket)),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    tracing::warn!(target: "braid_frontend_vhost_user", error = %errno, "a client could not be let in");
                    std::thread::sleep(LOOK);
                }
            }
        }
    }

    /// Serves a client until it disconnects, or the door is closed.
    fn serve(&self, socket: UnixStream) {
        let queues = Arc::new(Queues::default());
        let Ok(copy) = socket.try_clone() else { return };
        {
            let mut client = self.life.client();
            if self.life.is_ending() {
                return;
            }
            *client = Some(Client { socket: copy, queues: Arc::clone(&queues) });
        }
        tracing::info!(target: "braid_frontend_vhost_user", "a client has connected");
        // Takes the array's size anew, as its shape may have changed since the last client.
        let shape = Shape { size_bytes: self.served.disk.size_bytes(), ..self.shape };
        let session = Session::new((&self.served, shape), self.workers.as_ref(), &queues);
        let mut messages = BackendReqHandler::from_stream(socket, Arc::new(Mutex::new(session)));
        let served = catch_unwind(AssertUnwindSafe(|| {
            loop {
                match messages.handle_request() {
                    Ok(()) | Err(Error::SocketRetry(_)) => {}
                    Err(error) => return error,
                }
            }
        }));
        match served {
            Ok(Error::Disconnected | Error::SocketBroken(_)) => {
                tracing::info!(target: "braid_frontend_vhost_user", "a client has gone");
            }
            Ok(_) if self.life.is_ending() => {}
            Ok(error) => {
                tracing::warn!(target: "braid_frontend_vhost_user", %error, "a client is let go");
            }
            Err(_) => {
                tracing::error!(target: "braid_frontend_vhost_user", "serving a client has panicked");
            }
        }
        let all = queues.all();
        all.iter().for_each(|queue| queue.cut());
        self.served.started.store(0, Ordering::Relaxed);
        // Waits for the client's operations, which must end before another client can submit the
        // same requests again.
        for queue in &all {
            while !self.life.is_ending() && !queue.wait_for_array(LOOK) {}
        }
        *self.life.client() = None;
    }
}
