//! Room for clients: how many are served at a time, and who goes for one more.
//!
//! ```text
//!   accepted ─▶ as many as may be? ─no───────────────▶ a task, silent ── its first request ─▶ a task that has asked
//!                       └─yes: the one silent longest is cut off, else the one that came first ─┘
//! ```
//!
//! It is for servers whose clients are tasks of one thread. The connection of a client holds its [`Place`], which ends with it.
//!
//! Invariants
//! - Silent clients keep no other one out `[check: the_longest_silent_makes_room]`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::{AbortHandle, yield_now};

/// Clients of a server.
#[derive(Debug)]
pub struct Room {
    clients_max: usize,
    /// The number of the next client.
    next: u64,
    book: Book,
}

/// Clients by the order in which they came.
type Book = Arc<Mutex<BTreeMap<u64, Client>>>;

#[derive(Debug)]
struct Client {
    task: AbortHandle,
    has_asked: bool,
}

fn lock(book: &Book) -> MutexGuard<'_, BTreeMap<u64, Client>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a client has for as long as it is served.
#[derive(Debug)]
pub struct Place {
    number: u64,
    book: Book,
}

impl Room {
    /// Room for so many.
    #[must_use]
    pub fn new(clients_max: usize) -> Self {
        Self { clients_max, next: 0, book: Book::default() }
    }

    /// Has one more served by the task that `serve` begins, if need be in the place of another.
    pub async fn admit(&mut self, serve: impl FnOnce(Place) -> AbortHandle) {
        self.make_room();
        let number = self.next;
        self.next += 1;
        let task = serve(Place { number, book: Arc::clone(&self.book) });
        lock(&self.book).insert(number, Client { task, has_asked: false });
        // It hears what it was sent already before it can have to go for the next ones.
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

    /// Cuts off those that have asked nothing.
    pub fn cut_silent(&self) {
        for client in lock(&self.book).values().filter(|client| !client.has_asked) {
            client.task.abort();
        }
    }
}

impl Place {
    /// Notes that the client has asked something.
    pub fn note_asked(&self) {
        if let Some(client) = lock(&self.book).get_mut(&self.number) {
            client.has_asked = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.book).remove(&self.number);
    }
}
