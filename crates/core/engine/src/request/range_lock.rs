//! Order among overlapping writes: a first-come, first-served lock on ranges of sectors.
//!
//! Two copies of a mirror must not see two overlapping writes in different orders, and a repair
//! must not put old bytes over new ones. So work that changes copies locks its range. Later work
//! that overlaps a locked or an awaited range waits, so that no work starves
//! [check: waiters_are_served_in_order].

use braid_sim_hooks::{Bug, spoiled};
use std::collections::VecDeque;

/// The name of work that holds a range or waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockKey(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: LockKey,
    start: u64,
    end: u64,
}

impl Entry {
    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The locked ranges, and the ranges that work waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeLock {
    locked: Vec<Entry>,
    waiting: VecDeque<Entry>,
}

impl RangeLock {
    /// Locks `sectors` sectors from `start` for `key`, or queues `key`. True if the range is locked
    /// now.
    pub(crate) fn acquire(&mut self, key: LockKey, start: u64, sectors: u64) -> bool {
        assert!(sectors > 0, "a range has sectors");
        let entry = Entry { key, start, end: start + sectors };
        assert!(
            self.waiting.is_empty() || !self.locked.is_empty(),
            "what waits for a range waits for a holder"
        );
        let free = !self.locked.iter().chain(&self.waiting).any(|other| other.overlaps(&entry));
        let free = spoiled(Bug::LockNeverWaits, free, true);
        if free {
            self.locked.push(entry);
        } else {
            self.waiting.push_back(entry);
        }
        free
    }

    /// Releases the range of `key`; returns, in order, the work that holds its range from now on.
    pub(crate) fn release(&mut self, key: LockKey) -> Vec<LockKey> {
        let position = self.locked.iter().position(|entry| entry.key == key);
        self.locked.swap_remove(position.expect("only a holder releases"));
        let mut granted = Vec::new();
        let mut still_waiting: VecDeque<Entry> = VecDeque::new();
        for entry in std::mem::take(&mut self.waiting) {
            let overlaps =
                self.locked.iter().chain(&still_waiting).any(|other| other.overlaps(&entry));
            if overlaps {
                still_waiting.push_back(entry);
            } else {
                granted.push(entry.key);
                self.locked.push(entry);
            }
        }
        self.waiting = still_waiting;
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_served_in_order() {
        let mut lock = RangeLock::default();
        assert!(lock.acquire(LockKey(1), 0, 10));
        assert!(lock.acquire(LockKey(2), 10, 10), "touching ranges do not overlap");
        assert!(!lock.acquire(LockKey(3), 5, 10), "overlaps both holders");
        assert!(!lock.acquire(LockKey(4), 14, 30), "overlaps 2, and 3 which waits");
        assert!(!lock.acquire(LockKey(5), 40, 1), "overlaps only a waiter, and waits behind it");
        assert_eq!(lock.release(LockKey(2)), vec![], "3 still waits for 1, 4 for 3, 5 for 4");
        assert_eq!(lock.release(LockKey(1)), vec![LockKey(3)]);
        assert_eq!(lock.release(LockKey(3)), vec![LockKey(4)]);
        assert_eq!(lock.release(LockKey(4)), vec![LockKey(5)]);
        assert_eq!(lock.release(LockKey(5)), vec![]);
    }
}
