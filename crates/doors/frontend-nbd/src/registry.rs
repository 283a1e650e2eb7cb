//! The registry of connections. If there are too many connections, the registry chooses one to
//! close.
//!
//! Where it stands: shared by the accept thread, the connections and `stop`. The registry holds
//! sockets to cut, but no protocol state. A connection stays in the registry until its thread has
//! closed the socket.
//!
//! ```text
//!             ┌─ full, none negotiating, none idle for too long ──► turned away: told why ──► gone
//!   admit ────┤                                                             └─ too many: closed
//!             └─► negotiating ──► transmitting ──► gone
//!                     │                 └─ idle for longer than allowed, its place is wanted ─┐
//!                     └─ evicted: socket cut ──► lingering ──► gone ◄─────────────────────────┘
//! ```
//!
//! The registry counts an evicted connection as *lingering* until its thread has ended.
//!
//! Invariants
//! - The evicted connection is the negotiating one that has been silent longest. With an idle
//!   limit, and if none negotiates, it is the one idle longest beyond the limit:
//!   `tests::the_longest_silent_negotiator_goes`,
//!   `tests::the_longest_idle_goes_when_its_place_is_wanted`.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tracing::debug;

use crate::limits::{LINGERING_MAX, TURNED_AWAY_MAX};
use crate::socket::Socket;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Condvar, Flaw, Mutex, MutexGuard};

/// The log target for clients that connect and disconnect; `docs/operating.md` lists it.
const CLIENT: &str = "braid_frontend_nbd::client";

/// Since when a connection is idle. The connection writes this time at each turn, without a lock.
#[derive(Debug)]
pub(crate) struct Pulse {
    origin: Instant,
    /// Milliseconds since the origin of the time, or a mark for a connection that is at work.
    idle_since_ms: AtomicU64,
}

const AT_WORK: u64 = u64::MAX;

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), idle_since_ms: AtomicU64::new(AT_WORK) }
    }

    /// Notes since when the connection is idle; `None` if it is at work.
    pub(crate) fn beat(&self, idle_since: Option<Instant>) {
        let ms = |since: Instant| {
            u64::try_from(since.saturating_duration_since(self.origin).as_millis())
                .unwrap_or(AT_WORK)
        };
        self.idle_since_ms.store(idle_since.map_or(AT_WORK, ms), Ordering::Relaxed);
    }

    fn idle(&self, now: Instant) -> Option<Duration> {
        let since = self.idle_since_ms.load(Ordering::Relaxed);
        let since = (since != AT_WORK).then(|| self.origin + Duration::from_millis(since))?;
        Some(now.saturating_duration_since(since))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Negotiating,
    Transmitting,
    /// The connection gets an error reply, because the server is full.
    TurnedAway,
}

#[derive(Debug)]
struct Entry {
    socket: Arc<Socket>,
    state: State,
    active_at: Instant,
    pulse: Arc<Pulse>,
}

#[derive(Debug, Default)]
struct Book {
    connections: BTreeMap<u64, Entry>,
    next_id: u64,
    lingering: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    book: Mutex<Book>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionLimits {
    pub(crate) connections_max: usize,
    pub(crate) negotiating_max: usize,
    /// A connection that is idle for longer than this may be cut for a new client.
    pub(crate) idle_limit: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evictee {
    Negotiator,
    Idler,
}

#[derive(Debug)]
pub(crate) enum Admission {
    /// The connection is accepted with this ID, possibly in place of an evicted connection.
    Admitted { id: u64, pulse: Arc<Pulse>, evicted: Option<Evictee> },
    /// There is no room and no connection to evict, so the new connection gets an error reply.
    TurnedAway { id: u64, pulse: Arc<Pulse> },
    /// There is no room, and too many connections are being turned away: the new one gets no reply.
    Full,
}

impl Book {
    fn count(&self, is_meant: impl Fn(State) -> bool) -> usize {
        self.connections.values().filter(|entry| is_meant(entry.state)).count()
    }

    /// Counts negotiating and transmitting connections.
    fn served(&self) -> usize {
        self.count(|state| state != State::TurnedAway)
    }

    /// The connection that is cut to make room for a new one.
    fn loser(&self, limits: &AdmissionLimits) -> Option<(u64, Evictee)> {
        let silent = self.connections.iter().filter(|(_, entry)| entry.state == State::Negotiating);
        if let Some((id, _)) = silent.min_by_key(|(_, entry)| entry.active_at) {
            return Some((*id, Evictee::Negotiator));
        }
        let (limit, now) = (limits.idle_limit?, Instant::now());
        let idle = self.connections.iter().filter_map(|(id, entry)| {
            let time = entry.pulse.idle(now).filter(|_| entry.state == State::Transmitting)?;
            (time >= limit).then_some((time, *id))
        });
        idle.max().map(|(_, id)| (id, Evictee::Idler))
    }

    fn enter(&mut self, socket: &Arc<Socket>, state: State) -> (u64, Arc<Pulse>) {
        let (id, pulse) = (self.next_id, Arc::new(Pulse::new()));
        self.next_id += 1;
        let (socket, active_at) = (Arc::clone(socket), Instant::now());
        let entry = Entry { socket, state, active_at, pulse: Arc::clone(&pulse) };
        self.connections.insert(id, entry);
        (id, pulse)
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admit(&self, socket: &Arc<Socket>, limits: &AdmissionLimits) -> Admission {
        let mut book = self.lock();
        let negotiating = book.count(|state| state == State::Negotiating);
        let mut evicted = None;
        if book.served() >= limits.connections_max || negotiating >= limits.negotiating_max {
            let Some((loser, why)) = book.loser(limits) else {
                if book.count(|state| state == State::TurnedAway) >= TURNED_AWAY_MAX {
                    return Admission::Full;
                }
                let (id, pulse) = book.enter(socket, State::TurnedAway);
                debug!(target: CLIENT, client = id, "client is turned away: no room");
                return Admission::TurnedAway { id, pulse };
            };
            let entry = book.connections.remove(&loser).expect("it was just found");
            entry.socket.cut();
            debug!(target: CLIENT, client = loser, why = ?why, "client is cut for a new one");
            book.lingering += 1;
            evicted = Some(why);
        }
        let (id, pulse) = book.enter(socket, State::Negotiating);
        debug!(target: CLIENT, client = id, clients = book.served(), "client has connected");
        Admission::Admitted { id, pulse, evicted }
    }

    pub(crate) fn note_active(&self, id: u64) {
        if let Some(entry) = self.lock().connections.get_mut(&id) {
            entry.active_at = Instant::now();
        }
    }

    /// Notes the end of negotiation; false if the connection was evicted meanwhile.
    pub(crate) fn note_negotiated(&self, id: u64) -> bool {
        match self.lock().connections.get_mut(&id) {
            Some(entry) => {
                entry.state = State::Transmitting;
                debug!(target: CLIENT, client = id, "client has negotiated");
                true
            }
            None => false,
        }
    }

    pub(crate) fn leave(&self, id: u64) {
        let mut book = self.lock();
        if book.connections.remove(&id).is_none() {
            book.lingering -= 1;
        }
        debug!(target: CLIENT, client = id, clients = book.served(), "client has left");
        drop(book);
        if !sync::has(Flaw::LeaveSilent) {
            self.changed.notify_all();
        }
    }

    /// Number of connections at this moment, without those that are being cut or turned away.
    pub(crate) fn count(&self) -> usize {
        self.lock().served()
    }

    /// Waits, for at most `timeout`, while the threads of too many evicted connections still run.
    pub(crate) fn wait_for_room(&self, timeout: Duration) {
        let crowded = |book: &mut Book| book.lingering >= LINGERING_MAX;
        drop(self.changed.wait_timeout_while(self.lock(), timeout, crowded));
    }

    /// Waits, at most `timeout`, until no connection is left; returns the number left.
    pub(crate) fn wait_until_empty(&self, timeout: Duration) -> usize {
        let occupied = |book: &mut Book| !book.connections.is_empty() || book.lingering > 0;
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, occupied);
        let (book, _) = waited.unwrap_or_else(PoisonError::into_inner);
        book.connections.len() + book.lingering
    }

    /// Cuts negotiating and turned-away connections. Stops reading from the others, whose replies
    /// in flight are still sent.
    pub(crate) fn start_draining(&self) {
        for entry in self.lock().connections.values() {
            match entry.state {
                State::Transmitting => entry.socket.stop_receiving(),
                State::Negotiating | State::TurnedAway => entry.socket.cut(),
            }
        }
    }

    pub(crate) fn cut_all(&self) -> usize {
        let book = self.lock();
        book.connections.values().for_each(|entry| entry.socket.cut());
        book.connections.len()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const THREE: AdmissionLimits =
        AdmissionLimits { connections_max: 3, negotiating_max: 3, idle_limit: None };

    fn enter(registry: &Registry) -> (Option<u64>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = Arc::new(Socket::new(ours.into(), false).unwrap());
        theirs.set_nonblocking(true).unwrap();
        match registry.admit(&socket, &THREE) {
            Admission::Admitted { id, .. } => (Some(id), theirs),
            Admission::TurnedAway { .. } | Admission::Full => (None, theirs),
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
        assert_eq!(enter(&registry).0, None, "none that has negotiated is evicted");
        assert_eq!(registry.count(), 3);
        let turned_away = registry.lock().next_id - 1;
        assert_eq!(registry.wait_until_empty(Duration::ZERO), 5, "one lingers, one is turned away");
        for id in [first, second, third, fourth, Some(turned_away)] {
            registry.leave(id.unwrap());
        }
        assert_eq!(registry.wait_until_empty(Duration::ZERO), 0);
    }
    #[test]
    fn the_longest_idle_goes_when_its_place_is_wanted() {
        let registry = Registry::default();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let socket = Arc::new(Socket::new(ours.into(), false).unwrap());
        let minute = Duration::from_secs(60);
        let limits = AdmissionLimits { idle_limit: Some(minute), ..THREE };
        let admit = || match registry.admit(&socket, &limits) {
            Admission::Admitted { id, pulse, evicted } => Some((id, pulse, evicted)),
            Admission::TurnedAway { .. } | Admission::Full => None,
        };
        let clients: Vec<_> = (0..3).map(|_| admit().expect("there is room")).collect();
        for (id, _, evicted) in &clients {
            assert!(registry.note_negotiated(*id) && evicted.is_none());
        }
        let now = Instant::now();
        clients[0].1.beat(Some(now));
        clients[1].1.beat(None);
        clients[2].1.beat(Some(now));
        assert!(admit().is_none(), "none has been idle for a minute");
        let limits = AdmissionLimits { idle_limit: Some(Duration::ZERO), ..THREE };
        clients[2].1.beat(Some(now + Duration::from_millis(5)));
        std::thread::sleep(Duration::from_millis(10));
        let Admission::Admitted { evicted, .. } = registry.admit(&socket, &limits) else {
            panic!("one was idle for long enough");
        };
        assert_eq!(evicted, Some(Evictee::Idler));
        let there: Vec<u64> = registry.lock().connections.keys().copied().collect();
        assert!(!there.contains(&clients[0].0) && there.contains(&clients[1].0), "{there:?}");
    }
}
