//! A list in which other threads leave items for one taker, and learn whether to wake it.
//!
//! ```text
//!  taker:  take ... take, nothing there ... sleep (says so if still nothing) ... wait for the bell
//!  other:  push; if the taker had said that it sleeps: ring the bell, once
//! ```
//!
//! The taker is a worker, whose bell is an eventfd. Or the taker is code on a worker, such as the
//! connections of a front end, whose bell is [`crate::Workers::wake`].
//!
//! One lock covers both the items and whether the taker sleeps. If a push comes before the taker
//! says that it sleeps, the taker sees the item and stays awake. If the push comes after that, the
//! pusher sees that it must ring. [check: a_worker_is_never_left_asleep]
//!
//! The two other hand-overs of this kind have other takers. Insertion lists (`braid_dispatch`) have
//! none of their own: the pushing thread takes, unless another does, and none sleeps. A member's
//! queue (`braid_runtime`'s `members/threads.rs`) has several, each of which waits for one item.

use braid_concurrency::Mutex;
use braid_concurrency::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
struct State<T> {
    items: Vec<T>,
    /// Closed to all threads but workers.
    is_closed: bool,
}

/// Items for one taker.
#[derive(Debug)]
pub struct Inbox<T> {
    state: Mutex<State<T>>,
    /// Whether items wait, so that a taker can poll without locking out pushers. Set under the
    /// lock; a read without the lock may be outdated.
    has_items: AtomicBool,
    /// Whether the taker sleeps and no thread has rung yet. Set under the lock as well. A thread
    /// that reads this flag without the lock only has optional work, which another thread may do.
    is_asleep: AtomicBool,
}

/// The pusher's duty after a push.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bell {
    /// The taker sleeps: the pusher must wake it.
    Ring,
    /// The taker will check the inbox by itself.
    Leave,
}

impl<T> Inbox<T> {
    /// An empty inbox, with the taker asleep or awake as given.
    pub fn new(is_asleep: bool) -> Self {
        let state = State { items: Vec::new(), is_closed: false };
        let (has_items, is_asleep) = (AtomicBool::new(false), AtomicBool::new(is_asleep));
        Self { state: Mutex::new(state), has_items, is_asleep }
    }

    /// Leaves an item. A closed inbox takes items from workers (`is_inside`) only.
    ///
    /// # Errors
    /// The inbox is closed; the error returns the item.
    pub fn push(&self, item: T, is_inside: bool) -> Result<Bell, T> {
        let mut state = self.state.lock().expect("pushing does not panic");
        if state.is_closed && !is_inside {
            return Err(item);
        }
        state.items.push(item);
        self.has_items.store(true, Ordering::Relaxed);
        Ok(self.bell(&state))
    }

    /// Wakes the taker for work that is not in the inbox.
    pub(crate) fn disturb(&self) -> Bell {
        self.bell(&self.state.lock().expect("pushing does not panic"))
    }

    /// Closes the inbox to all threads but the workers.
    pub fn close(&self) -> Bell {
        let mut state = self.state.lock().expect("pushing does not panic");
        state.is_closed = true;
        self.bell(&state)
    }

    /// The pusher's duty after a push. Called under the lock, as the reference to `State` proves.
    fn bell(&self, _: &State<T>) -> Bell {
        if self.awakes() { Bell::Ring } else { Bell::Leave }
    }

    /// Marks the taker as awake. Returns whether the taker slept.
    fn awakes(&self) -> bool {
        let was_asleep = self.is_asleep.load(Ordering::Relaxed);
        if was_asleep {
            self.is_asleep.store(false, Ordering::Relaxed);
        }
        was_asleep
    }

    /// Marks the taker as awake and moves all items into `items`, which must be empty.
    pub fn take(&self, items: &mut Vec<T>) {
        debug_assert!(items.is_empty());
        let mut state = self.state.lock().expect("pushing does not panic");
        self.awakes();
        std::mem::swap(&mut state.items, items);
        self.has_items.store(false, Ordering::Relaxed);
    }

    /// Whether items wait, now or a moment ago. Before it sleeps the taker calls [`Self::sleep`].
    pub(crate) fn has_items(&self) -> bool {
        self.has_items.load(Ordering::Relaxed)
    }

    /// Whether the taker sleeps, now or a moment ago.
    pub(crate) fn seems_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed)
    }

    /// Marks the taker as asleep, unless items wait. Returns whether it may sleep.
    pub fn sleep(&self) -> bool {
        let state = self.state.lock().expect("pushing does not panic");
        let is_asleep = state.items.is_empty();
        self.is_asleep.store(is_asleep, Ordering::Relaxed);
        is_asleep
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_bell_is_rung_once_for_a_sleeper() {
        let inbox = Inbox::new(false);
        assert_eq!(inbox.push(1, false), Ok(Bell::Leave), "it is awake");
        assert!(!inbox.sleep(), "there is something for it");
        let mut items = Vec::new();
        inbox.take(&mut items);
        assert_eq!(items, [1]);
        assert!(inbox.sleep());
        assert_eq!(inbox.push(2, false), Ok(Bell::Ring));
        assert_eq!(inbox.push(3, false), Ok(Bell::Leave), "it was rung for already");
    }

    #[test]
    fn a_closed_inbox_takes_from_workers_only() {
        let inbox = Inbox::new(false);
        assert_eq!(inbox.close(), Bell::Leave);
        assert_eq!(inbox.push(1, false), Err(1));
        assert_eq!(inbox.push(1, true), Ok(Bell::Leave));
    }
}
