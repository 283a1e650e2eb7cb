//! The combiner: many threads have events for one machine, and none ever waits for it.
//!
//! A thread pushes its event into the inbox, then *tries* to become the owner. The owner takes
//! everything from the inbox in one batch, drives the machine, and gives ownership up before it
//! carries effects out. Who fails to become owner leaves: the present owner will see the event.
//!
//! Why no event is ever forgotten: the owner looks at the inbox once more *after* it has given
//! ownership up. If a push came before that look, the owner sees it and tries again; if it came
//! after, the pusher's own try comes after ownership was given up, and succeeds or finds another
//! owner of whom the same holds. The inbox's lock is held for a push or a swap only.

use std::sync::TryLockError;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Mutex, TryMutex, TryMutexGuard};

/// A machine with an inbox.
#[derive(Debug)]
pub(crate) struct Combiner<M, E> {
    inbox: Mutex<Vec<E>>,
    machine: TryMutex<M>,
    owner_misses: AtomicU64,
}

impl<M, E> Combiner<M, E> {
    pub(crate) fn new(machine: M) -> Self {
        Self {
            inbox: Mutex::new(Vec::new()),
            machine: TryMutex::new(machine),
            owner_misses: AtomicU64::new(0),
        }
    }

    /// Leaves an event. Somebody must call [`Self::combine`] afterwards.
    pub(crate) fn push(&self, event: E) {
        self.inbox.lock().expect("no holder of the inbox panics").push(event);
    }

    /// Becomes owner if nobody is, as often as there are events: `drive` is given the machine and
    /// the events, `after` carries out what came of it, without ownership.
    pub(crate) fn combine<R>(
        &self,
        mut drive: impl FnMut(&mut M, Vec<E>) -> R,
        mut after: impl FnMut(R),
    ) {
        loop {
            let result = {
                let Some(mut machine) = self.try_own() else { return };
                let events =
                    std::mem::take(&mut *self.inbox.lock().expect("no holder of the inbox panics"));
                if events.is_empty() {
                    // Not the last look: a push may have come between the swap and the unlock, and
                    // its pusher may have failed to become owner because of us.
                    None
                } else {
                    Some(drive(&mut machine, events))
                }
            };
            if let Some(result) = result {
                let _owned = flaw::has(Flaw::EffectsOwned).then(|| self.try_own());
                after(result);
            }
            if flaw::has(Flaw::NoLastLook) {
                return;
            }
            if self.inbox.lock().expect("no holder of the inbox panics").is_empty() {
                return;
            }
        }
    }

    /// How often a thread found the machine owned by another and went on.
    pub(crate) fn owner_misses(&self) -> u64 {
        self.owner_misses.load(Ordering::Relaxed)
    }

    /// Looks at the machine, waiting for it; for counters, never on the data path. Whoever looks
    /// is an owner to all others, who leave their events to it: so `combine`, which is to call
    /// [`Self::combine`], comes afterwards.
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(&M) -> R, combine: impl FnOnce()) -> R {
        let seen = look(&self.machine.lock().expect("a machine that panicked stays stopped"));
        if !flaw::has(Flaw::LookLeaves) {
            combine();
        }
        seen
    }

    fn try_own(&self) -> Option<TryMutexGuard<'_, M>> {
        match self.machine.try_lock() {
            Ok(machine) => Some(machine),
            Err(TryLockError::WouldBlock) => {
                self.owner_misses.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(TryLockError::Poisoned(_)) => panic!("a machine that panicked stays stopped"),
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_handled_once_and_effects_run_without_ownership() {
        const THREADS: u64 = 8;
        const EVENTS: u64 = 5_000;
        let combiner = Combiner::new(0_u64);
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (combiner, done) = (&combiner, &done);
                scope.spawn(move || {
                    for event in 0..EVENTS {
                        combiner.push(thread * EVENTS + event + 1);
                        combiner.combine(
                            |sum, events| {
                                *sum += events.iter().sum::<u64>();
                                events.len() as u64
                            },
                            |count| {
                                done.fetch_add(count, Ordering::Relaxed);
                            },
                        );
                    }
                });
            }
        });
        let total = THREADS * EVENTS;
        assert_eq!(done.load(Ordering::Relaxed), total, "nothing is left behind");
        assert_eq!(combiner.inspect(|sum| *sum, || {}), total * (total + 1) / 2);
        assert!(combiner.inbox.lock().expect("unpoisoned").is_empty());
    }
}
