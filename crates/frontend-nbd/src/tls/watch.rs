//! The threads of clients that use TLS: how many there are, which of them are not in yet, and their end.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

#[derive(Debug)]
struct Client {
    /// To be cut by.
    socket: OwnedFd,
    /// It was let in.
    is_in: bool,
}

#[derive(Debug, Default)]
struct Book {
    clients: BTreeMap<u64, Client>,
    next: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Pumps {
    book: Mutex<Book>,
    changed: Condvar,
}

/// One of them; it is over when this goes.
#[derive(Debug)]
pub(crate) struct Place {
    pumps: Arc<Pumps>,
    number: u64,
}

impl Pumps {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client in that is still to show who it is, if fewer than `waiting_max` are.
    pub(super) fn enter(self: &Arc<Self>, socket: &OwnedFd, waiting_max: usize) -> Option<Place> {
        let socket = socket.as_fd().try_clone_to_owned().ok()?;
        let mut book = self.lock();
        let waiting = book.clients.values().filter(|client| !client.is_in).count();
        if waiting >= waiting_max {
            return None;
        }
        let number = book.next;
        book.next += 1;
        book.clients.insert(number, Client { socket, is_in: false });
        Some(Place { pumps: Arc::clone(self), number })
    }

    /// Ends those that are not in.
    pub(crate) fn cut_waiting(&self) {
        self.cut(|client| !client.is_in);
    }

    /// Waits until all have ended. Those that have not by then are cut: they hold nothing but a socket, and end by themselves.
    pub(crate) fn end(&self, deadline: Duration) {
        if !self.is_empty_within(deadline) {
            self.cut(|_| true);
        }
    }

    fn cut(&self, is_meant: impl Fn(&Client) -> bool) {
        for client in self.lock().clients.values().filter(|client| is_meant(client)) {
            // It may be gone already.
            let _ = shutdown(&client.socket, Shutdown::Both);
        }
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

impl Place {
    /// It was let in.
    pub(super) fn is_in(&self) {
        if let Some(client) = self.pumps.lock().clients.get_mut(&self.number) {
            client.is_in = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pumps.lock().clients.remove(&self.number);
        self.pumps.changed.notify_all();
    }
}
