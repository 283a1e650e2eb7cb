//! The registry of TLS clients' threads: their number, their admission, and their end.
//!
//! ```text
//!   enter ─▶ waiting ── it was let in ─▶ in
//!               └─ its place is wanted, and it has had [`WAITING_LEAST`] ─▶ cut
//! ```
//!
//! A client is *waiting* until its handshake is over. A client is *cut* when its socket is shut
//! down and its thread has not ended yet.
//!
//! Invariants
//! - Peers that finish no handshake keep no client out, also if they reconnect
//!   `[check: half_handshakes_keep_no_client_out]`.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use crate::limits::WAITING_LEAST;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The client's handshake is not over.
    Waiting,
    In,
    /// The client's socket is shut down, and its thread has not ended yet.
    Cut,
}

#[derive(Debug)]
struct Client {
    /// A duplicate of the client's socket, with which the server can cut the client.
    socket: OwnedFd,
    state: State,
    came: Instant,
}

impl Client {
    fn cut(&mut self) {
        self.state = State::Cut;
        // This call fails if the peer is gone already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

#[derive(Debug, Default)]
struct Book {
    clients: BTreeMap<u64, Client>,
    next: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Pumps {
    book: Mutex<Book>,
    changed: Condvar,
}

/// A client's entry in the registry; drop removes the entry.
#[derive(Debug)]
pub(crate) struct PumpEntry {
    pumps: Arc<Pumps>,
    number: u64,
}

impl Pumps {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a client before its handshake. If `waiting_max` other clients wait, first waits until
    /// the oldest of these has had [`WAITING_LEAST`], then cuts that client.
    pub(super) fn enter(
        self: &Arc<Self>,
        socket: &OwnedFd,
        waiting_max: usize,
    ) -> Option<PumpEntry> {
        let socket = socket.as_fd().try_clone_to_owned().ok()?;
        let mut book = self.lock();
        loop {
            let mut waiting =
                book.clients.values_mut().filter(|client| client.state == State::Waiting);
            let Some(first) = waiting.next() else { break };
            if 1 + waiting.count() < waiting_max {
                break;
            }
            let left = WAITING_LEAST.saturating_sub(first.came.elapsed());
            if left.is_zero() {
                first.cut();
                break;
            }
            let waited = self.changed.wait_timeout(book, left);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let number = book.next;
        book.next += 1;
        let client = Client { socket, state: State::Waiting, came: Instant::now() };
        book.clients.insert(number, client);
        Some(PumpEntry { pumps: Arc::clone(self), number })
    }

    pub(crate) fn cut_waiting(&self) {
        self.cut(|client| client.state == State::Waiting);
    }

    /// Waits until all threads of TLS clients have ended. At the deadline, cuts the remaining
    /// clients, whose threads then end by themselves.
    pub(crate) fn end(&self, deadline: Duration) {
        if !self.is_empty_within(deadline) {
            self.cut(|_| true);
        }
    }

    fn cut(&self, is_meant: impl Fn(&Client) -> bool) {
        let mut book = self.lock();
        book.clients.values_mut().filter(|client| is_meant(client)).for_each(Client::cut);
    }

    fn is_empty_within(&self, deadline: Duration) -> bool {
        let end = Instant::now() + deadline;
        let mut book = self.lock();
        while !book.clients.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(book, left);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl PumpEntry {
    pub(super) fn is_in(&self) {
        let mut book = self.pumps.lock();
        if let Some(client) = book.clients.get_mut(&self.number)
            && client.state == State::Waiting
        {
            client.state = State::In;
        }
        drop(book);
        self.pumps.changed.notify_all();
    }
}

impl Drop for PumpEntry {
    fn drop(&mut self) {
        self.pumps.lock().clients.remove(&self.number);
        self.pumps.changed.notify_all();
    }
}
