//! The state before, and the seed's fix: the shipped elevator under one lock, and under one lock
//! with a separate insertion list and one dispatcher by try-lock. Both choose one request for each
//! ownership of the elevator.
//!
//! Simpler than the originals in their own favour. A request's end takes no ownership of its own,
//! but goes along with the next choice. Neither checks before insertion for a merge.

use super::machine::atomic::{AtomicBool, AtomicU64, Ordering};
use super::machine::elevator::{
    Class, Directions, Elevator, Entry, EntryId, Operation, QueuePosition, Settings, Tag,
};
use super::machine::{Content, Moment, Mutex, MutexGuard, TryLockError};
use super::seats::{Between, Seats};

/// A lock that counts contended attempts, and their waiting time.
struct Counted<T: Content> {
    lock: Mutex<T>,
    contention: Contention,
}

/// Attempts to own, contended ones, and nanoseconds waited.
#[derive(Default)]
pub(super) struct Contention {
    attempts: AtomicU64,
    failed: AtomicU64,
    waited_ns: AtomicU64,
}

impl Contention {
    /// Attempts, failed ones, and nanoseconds waited.
    pub(super) fn counts(&self) -> [u64; 3] {
        [&self.attempts, &self.failed, &self.waited_ns].map(|count| count.load(Ordering::Relaxed))
    }
}

impl<T: Content> Counted<T> {
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

fn entry(seat: u32, place: u64) -> Entry {
    Entry {
        id: EntryId(u64::from(seat)),
        operation: Operation::Read,
        class: Class::BestEffort,
        start: place,
        sectors: 1,
    }
}

/// The next vector's tag; the seats of its parts go to `whose`.
fn choose(elevator: &mut Elevator, ended: Option<Tag>, whose: &mut Vec<u32>) -> Option<Tag> {
    if let Some(tag) = ended {
        elevator.handle_done(tag);
    }
    let dispatch = elevator.poll_dispatch(0, Directions::ALL)?;
    let seat = |entry: &Entry| u32::try_from(entry.id.0).expect("a seat");
    whose.extend(elevator.parts(dispatch.tag).map(seat));
    Some(dispatch.tag)
}

/// One lock around everything.
pub(super) struct Single {
    elevator: Counted<Elevator>,
}

impl Single {
    pub(super) fn new() -> Self {
        Self { elevator: Counted::new(Elevator::new(Settings::default())) }
    }

    pub(super) fn contention(&self) -> [u64; 3] {
        self.elevator.contention.counts()
    }
}

impl Between for Single {
    fn submit(&self, seats: &Seats, seat: u32, places: &[u64]) {
        {
            let mut elevator = self.elevator.lock();
            for place in places {
                elevator.handle_insert(0, entry(seat, *place), QueuePosition::Sorted);
            }
        }
        let (mut ended, mut whose) = (None, Vec::new());
        loop {
            ended = choose(&mut self.elevator.lock(), ended, &mut whose);
            whose.drain(..).for_each(|seat| seats.answer(seat));
            if ended.is_none() {
                return;
            }
        }
    }
}

/// The seed's fix.
pub(super) struct Listed {
    list: Counted<Vec<Entry>>,
    /// Whether a thread dispatches; a thread that finds it set leaves.
    is_dispatching: AtomicBool,
    elevator: Counted<Elevator>,
    attempts: AtomicU64,
    misses: AtomicU64,
}

impl Listed {
    pub(super) fn new() -> Self {
        Self {
            list: Counted::new(Vec::new()),
            is_dispatching: AtomicBool::new(false),
            elevator: Counted::new(Elevator::new(Settings::default())),
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

    /// One choice under the flag and the lock; none if another thread dispatches or none waits.
    fn dispatch(
        &self,
        ended: Option<Tag>,
        whose: &mut Vec<u32>,
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
            choose(&mut elevator, ended, whose)
        };
        self.is_dispatching.store(false, Ordering::SeqCst);
        Ok(chosen)
    }

    fn has_work(&self) -> bool {
        !self.list.lock().is_empty()
    }
}

impl Between for Listed {
    fn submit(&self, seats: &Seats, seat: u32, places: &[u64]) {
        self.list.lock().extend(places.iter().map(|place| entry(seat, *place)));
        let (mut ended, mut whose) = (None, Vec::new());
        loop {
            match self.dispatch(ended, &mut whose) {
                Ok(chosen) => {
                    ended = chosen;
                    whose.drain(..).for_each(|seat| seats.answer(seat));
                    // Another thread may have left an entry and seen this one dispatching.
                    if ended.is_none() && !self.has_work() {
                        return;
                    }
                }
                Err(None) => return,
                Err(Some(tag)) => {
                    // The dispatcher goes on with waiting entries; this only frees the tag.
                    self.elevator.lock().handle_done(tag);
                    return;
                }
            }
        }
    }
}
