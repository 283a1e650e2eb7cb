//! The combiner: many threads have events for one machine, and none ever waits for it.
//!
//! A thread pushes its event into the inbox, then *tries* to become the owner. The owner takes everything from the inbox in
//! one batch, drives the machine, and gives ownership up before it carries effects out. Who fails to become owner leaves:
//! the present owner will see the event. Why none is forgotten stands in the crate's header.

use std::sync::TryLockError;

use crate::flaw::{self, Flaw};
use crate::inbox::{Count, Inbox, lists_for_all_cores};
use braid_sync::{TryMutex, TryMutexGuard};

/// A machine with an inbox.
#[derive(Debug)]
pub struct Combiner<M, E> {
    inbox: Inbox<E>,
    machine: TryMutex<Owned<M, E>>,
    owner_misses: Count,
}

/// What is done in ownership, after it, and with what could not be told to the machine
/// ([`Combiner::combine_carrying`]).
#[derive(Clone, Copy, Debug)]
pub struct Carry<D, A, L> {
    /// Given the machine and the events, which it drains.
    pub drive: D,
    /// Carries out what came of it, without ownership; whether there is something for the machine.
    pub after: A,
    /// Pushes that, when another is owner.
    pub leave: L,
}

/// What the owner has.
#[derive(Debug)]
struct Owned<M, E> {
    machine: M,
    /// Where events are drained to; kept, so that its room is.
    batch: Vec<E>,
}

impl<M, E> Combiner<M, E> {
    /// One that keeps the order of events, whichever threads pushed them.
    pub fn new(machine: M) -> Self {
        Self::with_lists(machine, 1)
    }

    /// One that keeps the order of each thread's events only, for machines that many threads push to at once.
    pub fn unordered(machine: M) -> Self {
        Self::with_lists(machine, lists_for_all_cores())
    }

    pub(crate) fn with_lists(machine: M, lists: usize) -> Self {
        Self {
            inbox: Inbox::new(lists),
            machine: TryMutex::new(Owned { machine, batch: Vec::new() }),
            owner_misses: Count::new(),
        }
    }

    /// Leaves an event. [`Self::combine`] must be called afterwards: by the caller, unless the answer is false;
    /// then another thread has that duty already.
    pub fn push(&self, event: E) -> bool {
        self.inbox.push(event)
    }

    /// Becomes owner if no thread is, as often as there are events: `drive` is given the machine and the events, which it
    /// drains; `after` carries out what came of it, without ownership.
    pub fn combine<R>(
        &self,
        mut drive: impl FnMut(&mut M, &mut Vec<E>) -> R,
        mut after: impl FnMut(R),
    ) {
        let carry = Carry {
            drive: |machine: &mut M, events: &mut Vec<E>, result: &mut Option<R>| {
                *result = Some(drive(machine, events));
            },
            after: |result: &mut Option<R>| {
                result.take().into_iter().for_each(&mut after);
                false
            },
            leave: |_: &mut Option<R>, _: &Self| {},
        };
        self.combine_carrying(false, &mut None, carry);
    }

    /// The same with effects in `carried`, which keeps its room, and for effects that may have ended when `after` returns:
    /// it says whether the machine must hear of what is in `carried`, which `drive` is given at the next turn of this
    /// thread. If another is owner by then, `leave` pushes it.
    /// With `is_due` there is no look first: the caller has just found that it was the first to push.
    pub fn combine_carrying<C, D, A, L>(
        &self,
        is_due: bool,
        carried: &mut C,
        mut carry: Carry<D, A, L>,
    ) where
        D: FnMut(&mut M, &mut Vec<E>, &mut C),
        A: FnMut(&mut C) -> bool,
        L: FnMut(&mut C, &Self),
    {
        let (mut is_due, mut carries) = (is_due, false);
        while is_due || carries || self.inbox.look() {
            let is_driven = {
                let Some(mut owned) = self.try_own() else {
                    if !carries {
                        return;
                    }
                    (carry.leave)(carried, self);
                    (is_due, carries) = (false, false);
                    continue;
                };
                let Owned { machine, batch } = &mut *owned;
                self.inbox.drain(batch);
                // Another owner may have been quicker. Not the last look: a push may come between the
                // drain and the unlock, and its pusher may fail to become owner because of us.
                let is_driven = carries || !batch.is_empty();
                if is_driven {
                    (carry.drive)(machine, batch, carried);
                }
                assert!(batch.is_empty(), "one that drives takes every event");
                is_driven
            };
            (is_due, carries) = (false, false);
            if is_driven {
                let _owned = flaw::has(Flaw::EffectsOwned).then(|| self.try_own());
                carries = (carry.after)(carried);
            }
            if flaw::has(Flaw::NoLastLook) && !carries {
                return;
            }
        }
    }

    /// How often a thread found the machine owned by another and went on.
    pub fn owner_misses(&self) -> u64 {
        self.owner_misses.get()
    }

    /// Looks at the machine, waiting for it; for counters, never on the data path. One that looks is an owner to all
    /// others, who leave their events to it: so `combine`, which is to call [`Self::combine`], comes afterwards.
    pub fn inspect<R>(&self, look: impl FnOnce(&M) -> R, combine: impl FnOnce()) -> R {
        let owned = self.machine.lock().expect("a machine that panicked stays stopped");
        let seen = look(&owned.machine);
        drop(owned);
        if !flaw::has(Flaw::LookLeaves) {
            combine();
        }
        seen
    }

    fn try_own(&self) -> Option<TryMutexGuard<'_, Owned<M, E>>> {
        match self.machine.try_lock() {
            Ok(machine) => Some(machine),
            Err(TryLockError::WouldBlock) => {
                self.owner_misses.add_one();
                None
            }
            Err(TryLockError::Poisoned(_)) => panic!("a machine that panicked stays stopped"),
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_event_is_handled_once_and_effects_run_without_ownership() {
        const THREADS: u64 = 8;
        const EVENTS: u64 = 5_000;
        for combiner in [Combiner::new(0_u64), Combiner::unordered(0)] {
            let done = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (combiner, done) = (&combiner, &done);
                    scope.spawn(move || {
                        for event in 0..EVENTS {
                            let is_first = combiner.push(thread * EVENTS + event + 1);
                            if !is_first {
                                continue;
                            }
                            combiner.combine(
                                |sum, events| {
                                    let count = events.len() as u64;
                                    *sum += events.drain(..).sum::<u64>();
                                    count
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
            assert!(!combiner.inbox.look());
        }
    }
}
