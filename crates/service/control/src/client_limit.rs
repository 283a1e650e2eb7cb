//! Limit of clients: how many clients the server accepts, and which client it cuts off to accept
//! another.
//!
//! ```text
//!   accepted ─▶ limit reached? ─no────────────────┬─▶ a task, silent ── first request ─▶ has asked
//!                  └─yes: a client is cut off ────┘
//! ```
//!
//! The server cuts off the client that has been silent longest. If all clients have sent a request,
//! it cuts off the client that came first.
//!
//! The limit is for servers whose clients are tasks of one thread. Each connection holds a
//! [`ClientGuard`].
//!
//! Invariants
//! - Silent clients do not keep other clients out `[check: the_longest_silent_makes_room]`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::{AbortHandle, yield_now};

/// The limit of a server's clients.
#[derive(Debug)]
pub struct ClientLimit {
    clients_max: usize,
    /// The number that the next client gets.
    next: u64,
    book: Book,
}

/// Clients by number, which is also their order of arrival.
type Book = Arc<Mutex<BTreeMap<u64, Client>>>;

#[derive(Debug)]
struct Client {
    task: AbortHandle,
    has_asked: bool,
}

fn lock(book: &Book) -> MutexGuard<'_, BTreeMap<u64, Client>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard that marks a client as served until the guard is dropped.
#[derive(Debug)]
pub struct ClientGuard {
    number: u64,
    book: Book,
}

impl ClientLimit {
    /// Makes a limit of `clients_max` clients.
    #[must_use]
    pub fn new(clients_max: usize) -> Self {
        Self { clients_max, next: 0, book: Book::default() }
    }

    /// Admits a client and runs `serve` for it. At the limit, first cuts another client off.
    pub async fn admit(&mut self, serve: impl FnOnce(ClientGuard) -> AbortHandle) {
        self.make_room();
        let number = self.next;
        self.next += 1;
        let task = serve(ClientGuard { number, book: Arc::clone(&self.book) });
        lock(&self.book).insert(number, Client { task, has_asked: false });
        // Yields, so that the client reads data sent to it before a later client can displace it.
        yield_now().await;
    }

    fn make_room(&self) {
        let mut book = lock(&self.book);
        if book.len() < self.clients_max {
            return;
        }
        let silent = book.iter().find(|(_, client)| !client.has_asked);
        let oldest = silent.or_else(|| book.iter().next()).map(|(number, _)| *number);
        let client = oldest.and_then(|oldest| book.remove(&oldest));
        drop(book);
        if let Some(client) = client {
            client.task.abort();
        }
    }

    /// Cuts off clients that have sent no request yet.
    pub fn cut_silent(&self) {
        for client in lock(&self.book).values().filter(|client| !client.has_asked) {
            client.task.abort();
        }
    }
}

impl ClientGuard {
    /// Notes that the client has sent its first request.
    pub fn note_asked(&self) {
        if let Some(client) = lock(&self.book).get_mut(&self.number) {
            client.has_asked = true;
        }
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        lock(&self.book).remove(&self.number);
    }
}
