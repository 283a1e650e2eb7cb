//! Timers: the moments at which a worker must wake, in a heap. The nearest moment bounds the
//! worker's sleep.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::operation::Wake;

struct Timer {
    at: Instant,
    sleeper: Arc<dyn Wake>,
    token: u64,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    /// The nearest timer compares as the greatest, since a heap yields its greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Timer>,
}

impl Timers {
    pub(crate) fn add(&mut self, at: Instant, sleeper: Arc<dyn Wake>, token: u64) {
        self.heap.push(Timer { at, sleeper, token });
    }

    pub(crate) fn due(&mut self, now: Instant) -> Option<(Arc<dyn Wake>, u64)> {
        if self.heap.peek()?.at > now {
            return None;
        }
        self.heap.pop().map(|timer| (timer.sleeper, timer.token))
    }

    pub(crate) fn until_next(&self, now: Instant) -> Option<Duration> {
        self.heap.peek().map(|timer| timer.at.saturating_duration_since(now))
    }

    /// All remaining timers, in no order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (Arc<dyn Wake>, u64)> + use<> {
        std::mem::take(&mut self.heap).into_iter().map(|timer| (timer.sleeper, timer.token))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
