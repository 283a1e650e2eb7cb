//! Two older designs. The first has the shipped elevator under one lock. The second, the seed's
//! fix, adds a separate insertion list and one dispatcher by try-lock. Both choose one request for
//! each ownership of the elevator.
//!
//! Both are simpler than the originals, which is to their advantage. The end of a request takes no
//! ownership of its own, but is handled with the next choice. Neither design checks for a merge
//! before insertion.

use super::client_threads::{ClientThreads, RequestPath};
use super::machine::atomic::{AtomicBool, AtomicU64, Ordering};
use super::machine::elevator::{
    Class, Directions, Elevator, Entry, EntryId, Operation, QueuePosition, Settings, Tag,
};
use super::machine::{Content, Moment, Mutex, MutexGuard, TryLockError};

/// A lock that counts contended attempts, and their waiting time.
struct CountingLock<T: Content> {
    lock: Mutex<T>,
    contention: Contention,
}

/// Attempts to own the lock, contended ones, and nanoseconds waited.
#[derive(Default)]
pub(super) struct Contention {
    attempts: AtomicU64,
    failed: AtomicU64,
    waited_ns: AtomicU64,
}

impl Contention {
    /// The numbers of attempts and of failed attempts, and the nanoseconds waited.
    pub(super) fn counts(&self) -> [u64; 3] {
        [&self.attempts, &self.failed, &self.waited_ns].map(|count| count.load(Ordering::Relaxed))
    }
}

impl<T: Content> CountingLock<T> {
    fn new(value: T) -> Self {
        Self { lock: Mutex::new(value), contention: Contention::default() }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        match self.lock.try_lock() {
            Ok(guard) => {
                self.contention.attempts.fetch_add(1, Ordering::Relaxed);
                guard
            }
            Err(TryLockError::WouldBlock) => {
                let since = Moment::now();
                let guard = self.lock.lock().expect("no holder panics");
                let waited = u64::try_from(since.elapsed().as_nanos()).expect("not for ages");
                self.contention.attempts.fetch_add(1, Ordering::Relaxed);
                self.contention.failed.fetch_add(1, Ordering::Relaxed);
                self.contention.waited_ns.fetch_add(waited, Ordering::Relaxed);
                guard
            }
            Err(TryLockError::Poisoned(_)) => panic!("no holder panics"),
        }
    }
}

fn entry(client: u32, place: u64) -> Entry {
    Entry {
        id: EntryId(u64::from(client)),
        operation: Operation::Read,
        class: Class::BestEffort,
        start: place,
        sectors: 1,
    }
}

/// The tag of the next vector to dispatch. The clients of its parts are added to `owners`.
fn choose(elevator: &mut Elevator, ended: Option<Tag>, owners: &mut Vec<u32>) -> Option<Tag> {
    if let Some(tag) = ended {
        elevator.handle_done(tag);
    }
    let dispatch = elevator.poll_dispatch(0, Directions::ALL)?;
    let client = |entry: &Entry| u32::try_from(entry.id.0).expect("a client");
    owners.extend(elevator.parts(dispatch.tag).map(client));
    Some(dispatch.tag)
}

/// One lock around the elevator and everything else.
pub(super) struct Single {
    elevator: CountingLock<Elevator>,
}

impl Single {
    pub(super) fn new() -> Self {
        Self { elevator: CountingLock::new(Elevator::new(Settings::default())) }
    }

    pub(super) fn contention(&self) -> [u64; 3] {
        self.elevator.contention.counts()
    }
}

impl RequestPath for Single {
    fn submit(&self, clients: &ClientThreads, client: u32, places: &[u64]) {
        {
            let mut elevator = self.elevator.lock();
            for place in places {
                elevator.handle_insert(0, entry(client, *place), QueuePosition::Sorted);
            }
        }
        let (mut ended, mut owners) = (None, Vec::new());
        loop {
            ended = choose(&mut self.elevator.lock(), ended, &mut owners);
            owners.drain(..).for_each(|client| clients.answer(client));
            if ended.is_none() {
                return;
            }
        }
    }
}

/// The seed's fix: an insertion list, and one dispatcher by try-lock.
pub(super) struct Listed {
    list: CountingLock<Vec<Entry>>,
    /// Whether a thread dispatches; a thread that finds this flag set leaves.
    is_dispatching: AtomicBool,
    elevator: CountingLock<Elevator>,
    attempts: AtomicU64,
    misses: AtomicU64,
}

impl Listed {
    pub(super) fn new() -> Self {
        Self {
            list: CountingLock::new(Vec::new()),
            is_dispatching: AtomicBool::new(false),
            elevator: CountingLock::new(Elevator::new(Settings::default())),
            attempts: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    pub(super) fn contention(&self) -> [u64; 3] {
        let dispatch =
            [self.attempts.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed), 0];
        let all = [self.list.contention.counts(), self.elevator.contention.counts(), dispatch];
        std::array::from_fn(|index| all.iter().map(|counts| counts[index]).sum())
    }

    /// Makes one choice under the flag and the lock. Nothing happens if another thread dispatches
    /// or no entry waits.
    fn dispatch(
        &self,
        ended: Option<Tag>,
        owners: &mut Vec<u32>,
    ) -> Result<Option<Tag>, Option<Tag>> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        if self.is_dispatching.swap(true, Ordering::SeqCst) {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return Err(ended);
        }
        let chosen = {
            let mut elevator = self.elevator.lock();
            let entries = std::mem::take(&mut *self.list.lock());
            for entry in entries {
                elevator.handle_insert(0, entry, QueuePosition::Sorted);
            }
            choose(&mut elevator, ended, owners)
        };
        self.is_dispatching.store(false, Ordering::SeqCst);
        Ok(chosen)
    }

    fn has_work(&self) -> bool {
        !self.list.lock().is_empty()
    }
}

impl RequestPath for Listed {
    fn submit(&self, clients: &ClientThreads, client: u32, places: &[u64]) {
        self.list.lock().extend(places.iter().map(|place| entry(client, *place)));
        let (mut ended, mut owners) = (None, Vec::new());
        loop {
            match self.dispatch(ended, &mut owners) {
                Ok(chosen) => {
                    ended = chosen;
                    owners.drain(..).for_each(|client| clients.answer(client));
                    // Check again: another thread may have left an entry and gone because it saw
                    // this thread dispatching.
                    if ended.is_none() && !self.has_work() {
                        return;
                    }
                }
                Err(None) => return,
                Err(Some(tag)) => {
                    // Only frees the tag. The dispatcher handles waiting entries.
                    self.elevator.lock().handle_done(tag);
                    return;
                }
            }
        }
    }
}
