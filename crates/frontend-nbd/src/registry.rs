//! Which connections there are, and who must go when there are too many.
//!
//! Where it stands: shared by the accept thread, the connections and `stop`. It holds sockets to cut, never protocol
//! state. A connection is in it from before its thread starts until after its thread has closed the socket.
//!
//! ```text
//!             ┌─ full, nobody negotiating ──► refused
//!   admit ────┤
//!             └─► negotiating ──► transmitting ──► gone
//!                     └─ evicted: socket cut ──► lingering ──► gone
//! ```
//!
//! Invariants
//! - An evicted connection is always one that has not negotiated, and of those the one silent longest:
//!   `tests::the_longest_silent_negotiator_goes`.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::LINGERING_MAX;
use crate::socket::Socket;
use crate::sync::{self, Condvar, Flaw, Mutex, MutexGuard};

#[derive(Debug)]
struct Entry {
    socket: Arc<Socket>,
    negotiating: bool,
    active_at: Instant,
}

#[derive(Debug, Default)]
struct State {
    connections: BTreeMap<u64, Entry>,
    next_id: u64,
    lingering: usize,
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
}

/// What became of a new connection.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is in, under this id; `evicted` says whether another one had to go.
    Admitted { id: u64, evicted: bool },
    /// There is no room and nobody to evict.
    Full,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, if need be in the place of the negotiator that has been silent longest.
    pub(crate) fn admit(
        &self,
        socket: &Arc<Socket>,
        connections_max: usize,
        negotiating_max: usize,
    ) -> Admission {
        let mut state = self.lock();
        let negotiating = state.connections.values().filter(|entry| entry.negotiating).count();
        let mut evicted = false;
        if state.connections.len() >= connections_max || negotiating >= negotiating_max {
            let silent = state.connections.iter().filter(|(_, entry)| entry.negotiating);
            let silent = silent.min_by_key(|(_, entry)| entry.active_at).map(|(id, _)| *id);
            let Some(entry) = silent.and_then(|id| state.connections.remove(&id)) else {
                return Admission::Full;
            };
            entry.socket.cut();
            state.lingering += 1;
            evicted = true;
        }
        let id = state.next_id;
        state.next_id += 1;
        let socket = Arc::clone(socket);
        state
            .connections
            .insert(id, Entry { socket, negotiating: true, active_at: Instant::now() });
        Admission::Admitted { id, evicted }
    }

    /// Notes that a negotiator said something.
    pub(crate) fn note_active(&self, id: u64) {
        if let Some(entry) = self.lock().connections.get_mut(&id) {
            entry.active_at = Instant::now();
        }
    }

    /// Notes the end of negotiation; false if the connection was evicted meanwhile.
    pub(crate) fn note_negotiated(&self, id: u64) -> bool {
        match self.lock().connections.get_mut(&id) {
            Some(entry) => {
                entry.negotiating = false;
                true
            }
            None => false,
        }
    }

    /// Notes that a connection's thread is done with its socket.
    pub(crate) fn leave(&self, id: u64) {
        let mut state = self.lock();
        if state.connections.remove(&id).is_none() {
            state.lingering -= 1;
        }
        drop(state);
        if !sync::has(Flaw::LeaveSilent) {
            self.changed.notify_all();
        }
    }

    /// Connections now, without those being cut.
    pub(crate) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    /// Waits, at most `timeout`, while too many evicted connections are still unwinding.
    pub(crate) fn wait_for_room(&self, timeout: Duration) {
        let crowded = |state: &mut State| state.lingering >= LINGERING_MAX;
        drop(self.changed.wait_timeout_while(self.lock(), timeout, crowded));
    }

    /// Waits, at most `timeout`, until nobody is left; answers how many are.
    pub(crate) fn wait_until_empty(&self, timeout: Duration) -> usize {
        let occupied = |state: &mut State| !state.connections.is_empty() || state.lingering > 0;
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, occupied);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.connections.len() + state.lingering
    }

    /// Cuts negotiators and stops reading from the rest, whose replies in flight still go out.
    pub(crate) fn start_draining(&self) {
        for entry in self.lock().connections.values() {
            if entry.negotiating {
                entry.socket.cut();
            } else {
                entry.socket.stop_receiving();
            }
        }
    }

    /// Cuts everybody; answers how many there were.
    pub(crate) fn cut_all(&self) -> usize {
        let state = self.lock();
        state.connections.values().for_each(|entry| entry.socket.cut());
        state.connections.len()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn enter(registry: &Registry) -> (Option<u64>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = Arc::new(Socket::new(ours.into(), false).unwrap());
        theirs.set_nonblocking(true).unwrap();
        match registry.admit(&socket, 3, 3) {
            Admission::Admitted { id, .. } => (Some(id), theirs),
            Admission::Full => (None, theirs),
        }
    }

    fn is_cut(mut stream: &UnixStream) -> bool {
        std::io::Read::read(&mut stream, &mut [0]).is_ok_and(|count| count == 0)
    }

    #[test]
    fn the_longest_silent_negotiator_goes() {
        let registry = Registry::default();
        let (first, first_stream) = enter(&registry);
        let (second, second_stream) = enter(&registry);
        let (third, third_stream) = enter(&registry);
        registry.note_active(first.unwrap());
        let (fourth, _fourth_stream) = enter(&registry);
        assert!(is_cut(&second_stream) && !is_cut(&first_stream) && !is_cut(&third_stream));
        assert!(!registry.note_negotiated(second.unwrap()), "the evicted one finds out");
        for id in [first, third, fourth] {
            assert!(registry.note_negotiated(id.unwrap()));
        }
        assert_eq!(enter(&registry).0, None, "nobody who has negotiated is evicted");
        assert_eq!(registry.count(), 3);
        assert_eq!(registry.wait_until_empty(Duration::ZERO), 4, "three, and one that lingers");
        for id in [first, second, third, fourth] {
            registry.leave(id.unwrap());
        }
        assert_eq!(registry.wait_until_empty(Duration::ZERO), 0);
    }
}
