//! Insertion lists: many threads push, one drains all lists at once.
//!
//! Each list is a vector under a lock, which is held for a push or a swap. One atomic word holds a
//! mark for each list that may have events. Through it the last look needs no lock, and a pusher
//! learns whether it is the first. One more bit says that an owner is at work and will look again.
//! A pusher that sees this bit does not try to own the machine: the attempt would fail.
//!
//! A drain takes the marks first and the events afterwards, so that a mark set meanwhile stays. A
//! mark without events costs one look; events without a mark would never be found
//! [check: a_drain_that_unmarks_too_late_is_caught]. One list keeps the order of all pushes;
//! several keep that of each thread [check: what_one_thread_pushes_keeps_its_order].

use crate::flaw::{self, Flaw};
use braid_concurrency::atomic::{AtomicU64, AtomicUsize, Ordering};
use braid_concurrency::{Mutex, thread_number};

/// Maximum number of lists: one bit of the word for each list, and one for the owner.
const LISTS_MAX: usize = 63;

const AT_WORK: u64 = 1 << LISTS_MAX;

/// A list on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct List<E>(Mutex<Vec<E>>);

#[derive(Debug)]
pub(crate) struct Inbox<E> {
    lists: Box<[List<E>]>,
    marks: Marks,
}

/// The word of marks, on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Marks(AtomicU64);

/// Whether events wait and no owner is at work.
fn is_alone(marks: u64) -> bool {
    marks != 0 && marks & AT_WORK == 0
}

impl<E> Inbox<E> {
    /// A new inbox. `lists` is clamped to 1 to 63.
    pub(crate) fn new(lists: usize) -> Self {
        let lists = lists.clamp(1, LISTS_MAX);
        let list = |_| List(Mutex::new(Vec::new()));
        Self { lists: (0..lists).map(list).collect(), marks: Marks(AtomicU64::new(0)) }
    }

    /// Pushes an event. Returns true if the inbox was empty and no owner was at work: then the
    /// caller must have it drained.
    pub(crate) fn push(&self, event: E) -> bool {
        self.push_all(std::iter::once(event))
    }

    /// As `push`, for several events in order.
    pub(crate) fn push_all(&self, events: impl IntoIterator<Item = E>) -> bool {
        let index = match self.lists.len() {
            1 => 0,
            lists => thread_number() % lists,
        };
        self.lists[index].0.lock().expect("no holder of a list panics").extend(events);
        let mark = 1 << index;
        // An earlier push set this mark, and a later drain will clear the mark. Had a drain come
        // before our push, the mark would be clear already, and we would see that.
        if self.marks.0.load(Ordering::Acquire) & mark != 0 {
            return false;
        }
        self.marks.0.fetch_or(mark, Ordering::AcqRel) == 0
    }

    /// Whether the inbox is empty and has no owner, now or a moment ago.
    pub(crate) fn is_idle(&self) -> bool {
        self.marks.0.load(Ordering::Acquire) == 0
    }

    /// Whether a thread that owns the machine is at work and will look at the inbox again. The
    /// answer may be out of date when the caller uses it.
    pub(crate) fn is_at_work(&self) -> bool {
        self.marks.0.load(Ordering::Acquire) & AT_WORK != 0
    }

    /// Whether events wait and no owner is at work; a thread always sees its own pushes.
    pub(crate) fn is_left_alone(&self) -> bool {
        is_alone(self.marks.0.load(Ordering::Acquire))
    }

    /// Whether events wait that no owner will see. The check is a read-modify-write that changes no
    /// bit, so it is ordered against every push and against the end of every ownership.
    pub(crate) fn look(&self) -> bool {
        is_alone(self.marks.0.fetch_or(0, Ordering::AcqRel))
    }

    /// Clears the at-work bit and returns whether events wait, in one read-modify-write.
    pub(crate) fn give_up(&self) -> bool {
        if flaw::has(Flaw::LastLookReads) {
            let marks = self.marks.0.load(Ordering::Acquire);
            self.marks.0.fetch_and(!AT_WORK, Ordering::AcqRel);
            return marks & !AT_WORK != 0;
        }
        self.marks.0.fetch_and(!AT_WORK, Ordering::AcqRel) & !AT_WORK != 0
    }

    /// Appends all events to `batch` and sets the at-work bit.
    pub(crate) fn drain(&self, batch: &mut Vec<E>) {
        if flaw::has(Flaw::UnmarkedLate) {
            (0..self.lists.len()).for_each(|index| self.take(index, batch));
            self.marks.0.store(AT_WORK, Ordering::Release);
            return;
        }
        let mut marks = self.marks.0.swap(AT_WORK, Ordering::AcqRel) & !AT_WORK;
        while marks != 0 {
            let index = marks.trailing_zeros() as usize;
            marks &= marks - 1;
            self.take(index, batch);
        }
    }

    fn take(&self, index: usize, batch: &mut Vec<E>) {
        let mut list = self.lists[index].0.lock().expect("no holder of a list panics");
        if batch.is_empty() {
            // The list and the batch keep their capacity, so that no event allocates.
            std::mem::swap(&mut *list, batch);
        } else {
            batch.append(&mut list);
        }
    }
}

/// Number of lists for a machine to which every core pushes.
pub(crate) fn lists_for_all_cores() -> usize {
    static CORES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let known = CORES.load(std::sync::atomic::Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let lists = (2 * cores).clamp(2, LISTS_MAX);
    CORES.store(lists, std::sync::atomic::Ordering::Relaxed);
    lists
}

/// A counter that many threads increment.
#[derive(Debug)]
pub(crate) struct Count(AtomicUsize);

impl Count {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed) as u64
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_pushes_keeps_its_order() {
        const THREADS: usize = 4;
        const EVENTS: usize = 20_000;
        for lists in [1, 3, 8] {
            let inbox = Inbox::new(lists);
            let mut seen = [0; THREADS];
            std::thread::scope(|scope| {
                let push = |thread| {
                    let inbox = &inbox;
                    scope.spawn(move || {
                        for event in 0..EVENTS {
                            let _first = inbox.push((thread, event));
                        }
                    })
                };
                let threads: Vec<_> = (0..THREADS).map(push).collect();
                let mut batch = Vec::new();
                loop {
                    let over = threads.iter().all(std::thread::ScopedJoinHandle::is_finished);
                    inbox.drain(&mut batch);
                    for (thread, event) in batch.drain(..) {
                        assert_eq!(seen[thread], event);
                        seen[thread] += 1;
                    }
                    if over {
                        break;
                    }
                }
            });
            assert_eq!(seen, [EVENTS; THREADS], "nothing is left, with {lists} lists");
            assert!(!inbox.look());
        }
    }

    #[test]
    fn only_the_first_push_asks_for_a_drain() {
        let inbox = Inbox::new(1);
        assert!(inbox.is_idle() && inbox.push(1) && !inbox.push(2) && inbox.look());
        let mut batch = Vec::new();
        inbox.drain(&mut batch);
        assert_eq!(batch, [1, 2]);
        assert!(!inbox.look() && inbox.is_at_work() && !inbox.is_idle());
        assert!(!inbox.push(3), "who is at work will look");
        assert!(inbox.give_up() && !inbox.is_at_work());
        inbox.drain(&mut batch);
        assert!(!inbox.give_up() && inbox.is_idle() && inbox.push(4));
    }
}
