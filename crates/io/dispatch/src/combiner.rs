//! The combiner: many threads have events for one machine, and none ever waits for it.
//!
//! A thread that finds no owner becomes the owner and drives the machine with its events, bypassing
//! the inbox. Otherwise the thread leaves its events in the inbox. The owner takes all events from
//! the inbox in one batch, drives the machine, and gives ownership up before it carries effects
//! out. A thread that fails to become owner leaves: the present owner will see the event. Why no
//! event is forgotten: see the crate.

use std::sync::TryLockError;

use crate::flaw::{self, Flaw};
use crate::inbox::{Count, Inbox, lists_for_all_cores};
use braid_concurrency::{TryMutex, TryMutexGuard};

/// A machine with an inbox.
#[derive(Debug)]
pub struct Combiner<M, E> {
    inbox: Inbox<E>,
    machine: TryMutex<OwnedState<M, E>>,
    owner_misses: Count,
}

/// The closures of [`Combiner::combine_carrying`]: one under ownership, one after it, one for
/// effects that did not reach the machine.
#[derive(Clone, Copy, Debug)]
pub struct Carry<D, A, L> {
    /// Gets the machine and the events, and drains them.
    pub drive: D,
    /// Carries out the effects, without ownership. Returns whether the machine must receive the
    /// results of some effects.
    pub after: A,
    /// Pushes results of effects if another thread is owner. Returns the result of the push.
    pub leave: L,
    /// Whether `after` may push to this very machine without calling [`Combiner::combine`]. If so,
    /// the inbox is checked again after `after`.
    pub pushes: bool,
}

#[derive(Debug)]
struct OwnedState<M, E> {
    machine: M,
    /// The drained events; kept between turns to reuse its capacity.
    batch: Vec<E>,
}

impl<M, E> Combiner<M, E> {
    /// A combiner that keeps the order of events across all threads.
    pub fn new(machine: M) -> Self {
        Self::with_lists(machine, 1)
    }

    /// A combiner that keeps the order of events within each thread only, for machines to which
    /// many threads push at once.
    pub fn unordered(machine: M) -> Self {
        Self::with_lists(machine, lists_for_all_cores())
    }

    pub(crate) fn with_lists(machine: M, lists: usize) -> Self {
        Self {
            inbox: Inbox::new(lists),
            machine: TryMutex::new(OwnedState { machine, batch: Vec::new() }),
            owner_misses: Count::new(),
        }
    }

    /// Pushes an event into the inbox. If this returns true, the caller must call [`Self::combine`]
    /// afterwards; if false, another thread has that duty already.
    pub fn push(&self, event: E) -> bool {
        self.inbox.push(event)
    }

    /// As [`Self::push`], for several events, which the inbox keeps together.
    pub fn push_all(&self, events: impl IntoIterator<Item = E>) -> bool {
        self.inbox.push_all(events)
    }

    /// Becomes owner if no thread is, and takes turns as long as the inbox has events. `drive` gets
    /// the machine and the events, and drains them. `after` carries the result out, without
    /// ownership. The inbox is checked again for events that `after` pushes.
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
            leave: |_: &mut Option<R>, _: &Self| false,
            pushes: true,
        };
        self.combine_carrying(&mut None, carry);
    }

    /// As [`Self::combine`], with effects in `carried`, whose capacity is reused. `after` returns
    /// true if effects have ended already. Then `drive` gets `carried` again at this thread's next
    /// turn. If another thread is owner by then, `leave` pushes these effects.
    pub fn combine_carrying<C, D, A, L>(&self, carried: &mut C, mut carry: Carry<D, A, L>)
    where
        D: FnMut(&mut M, &mut Vec<E>, &mut C),
        A: FnMut(&mut C) -> bool,
        L: FnMut(&mut C, &Self) -> bool,
    {
        if self.inbox.look() {
            self.go_on((true, false), carried, &mut carry);
        }
    }

    /// As [`Self::combine_carrying`], for a caller with new events. If there is no owner and the
    /// inbox is empty, the events go into the machine at once, otherwise into the inbox as with
    /// [`Self::push_all`]. `events` is iterated under ownership or under a list's lock, so it must
    /// not touch this machine.
    pub fn hand_over<C, D, A, L>(
        &self,
        events: impl IntoIterator<Item = E>,
        carried: &mut C,
        mut carry: Carry<D, A, L>,
    ) where
        D: FnMut(&mut M, &mut Vec<E>, &mut C),
        A: FnMut(&mut C) -> bool,
        L: FnMut(&mut C, &Self) -> bool,
    {
        let owned = if self.inbox.is_idle() { self.try_own() } else { None };
        let next = match owned {
            Some(owned) => self.turn(owned, events, false, carried, &mut carry),
            None => (self.inbox.push_all(events), false),
        };
        self.go_on(next, carried, &mut carry);
    }

    /// Takes turns as long as this thread has the duty to drain (`is_due`) or has effects whose
    /// results the machine must receive.
    fn go_on<C, D, A, L>(
        &self,
        (mut is_due, mut carries): (bool, bool),
        carried: &mut C,
        carry: &mut Carry<D, A, L>,
    ) where
        D: FnMut(&mut M, &mut Vec<E>, &mut C),
        A: FnMut(&mut C) -> bool,
        L: FnMut(&mut C, &Self) -> bool,
    {
        while is_due || carries {
            // No other thread waits for these effects, so skip an attempt to own that must fail.
            let owned = if is_due || !self.inbox.is_at_work() { self.try_own() } else { None };
            (is_due, carries) = match owned {
                Some(owned) => self.turn(owned, None, carries, carried, carry),
                // The other owner will see this thread's events.
                None => (carries && (carry.leave)(carried, self), false),
            };
        }
    }

    /// One turn as owner. Returns whether events are left in the inbox, and whether this thread has
    /// results that the machine must receive.
    fn turn<C, D, A, L>(
        &self,
        mut owned: TryMutexGuard<'_, OwnedState<M, E>>,
        events: impl IntoIterator<Item = E>,
        carries: bool,
        carried: &mut C,
        carry: &mut Carry<D, A, L>,
    ) -> (bool, bool)
    where
        D: FnMut(&mut M, &mut Vec<E>, &mut C),
        A: FnMut(&mut C) -> bool,
    {
        let OwnedState { machine, batch } = &mut *owned;
        self.inbox.drain(batch);
        batch.extend(events);
        // Another owner may have drained the inbox first.
        let is_driven = carries || !batch.is_empty();
        if is_driven {
            (carry.drive)(machine, batch, carried);
        }
        assert!(batch.is_empty(), "one that drives takes every event");
        let is_left = if flaw::has(Flaw::GivesUpOwned) {
            let is_left = self.inbox.give_up();
            drop(owned);
            is_left
        } else {
            drop(owned);
            // The last look: events that are pushed from now on find no owner.
            self.inbox.give_up()
        };
        let _owned = flaw::has(Flaw::EffectsOwned).then(|| self.try_own());
        let carries = is_driven && (carry.after)(carried);
        if flaw::has(Flaw::NoLastLook) {
            return (false, carries);
        }
        let is_heard = !flaw::has(Flaw::OwnUnheard) && !flaw::has(Flaw::LastLookReads);
        let has_own = carry.pushes && is_driven && is_heard && self.inbox.is_left_alone();
        (is_left || has_own, carries)
    }

    /// Number of times that a thread found another owner and did not become owner.
    pub fn owner_misses(&self) -> u64 {
        self.owner_misses.get()
    }

    /// Waits for the machine and looks at it; for counters, never on the data path. Other threads
    /// take the looking thread for an owner and leave their events to it. So `combine` runs
    /// afterwards and must call [`Self::combine`].
    pub fn inspect<R>(&self, look: impl FnOnce(&M) -> R, combine: impl FnOnce()) -> R {
        let owned = self.machine.lock().expect("a machine that panicked stays stopped");
        let seen = look(&owned.machine);
        drop(owned);
        if !flaw::has(Flaw::LookLeaves) {
            combine();
        }
        seen
    }

    fn try_own(&self) -> Option<TryMutexGuard<'_, OwnedState<M, E>>> {
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
