//! Free stripes and the writers that wait for a stripe, by each rule of waiting.
//!
//! | Rule | a freed stripe | a writer that is woken |
//! |---|---|---|
//! | wake all | goes to the free list | tries again, against all others |
//! | wake one by hash | goes to the list of its hash value | tries again, against those just come |
//! | hand over | is the first waiter's | has the stripe |
//!
//! With the first two rules, once no stripe was free, all writers wait until less than three
//! quarters are taken, as in md.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::work::STRIPES;

/// Number of hash values, each of which has its own queue.
const HASHES: usize = 8;

/// The rule by which waiting writers are woken when stripes are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// All writers wait in one queue, and all are woken when a batch is freed.
    WakeAll,
    /// For each freed stripe one writer is woken, from the queue of the stripe's hash value.
    WakeOnePerHash,
    /// For each freed stripe the first writer in the queue of the stripe's hash value is woken, and
    /// owns the stripe.
    HandOver,
}

pub(super) struct Stripes {
    rule: Rule,
    pools: Vec<Pool>,
    wake_ups: AtomicU64,
}

/// The stripes of one hash value, or all stripes.
struct Pool {
    free: Mutex<Free>,
    freed: Condvar,
    capacity: usize,
}

struct Free {
    stripes: Vec<usize>,
    /// Whether a writer found no free stripe. If so, no writer takes a stripe until less than three
    /// quarters of the stripes are taken.
    is_blocked: bool,
    /// Writers to which stripes will be handed, in order of arrival.
    waiters: VecDeque<Arc<Waiter>>,
}

#[derive(Default)]
struct Waiter {
    stripe: Mutex<Option<usize>>,
    given: Condvar,
}

impl Stripes {
    pub(super) fn new(rule: Rule) -> Self {
        let pools = if rule == Rule::WakeAll { 1 } else { HASHES };
        let pool = |hash: usize| {
            let stripes: Vec<usize> = (hash..STRIPES).step_by(pools).collect();
            let capacity = stripes.len();
            let free = Free { stripes, is_blocked: false, waiters: VecDeque::new() };
            Pool { free: Mutex::new(free), freed: Condvar::new(), capacity }
        };
        Self { rule, pools: (0..pools).map(pool).collect(), wake_ups: AtomicU64::new(0) }
    }

    /// Number of wake-ups so far of writers that waited for a stripe.
    pub(super) fn wake_ups(&self) -> u64 {
        self.wake_ups.load(Ordering::Relaxed)
    }

    fn pool(&self, stripe_or_row: u64) -> &Pool {
        let pools = self.pools.len() as u64;
        &self.pools[usize::try_from(stripe_or_row % pools).expect("few pools")]
    }

    /// Waits for a free stripe for a row.
    pub(super) fn take(&self, row: u64) -> usize {
        let pool = self.pool(row);
        let mut free = pool.free.lock().expect("no holder panics");
        if self.rule == Rule::HandOver {
            // If a stripe is free, no writer waits.
            if let Some(stripe) = free.stripes.pop() {
                return stripe;
            }
            let waiter = Arc::new(Waiter::default());
            free.waiters.push_back(Arc::clone(&waiter));
            drop(free);
            return waiter.wait(&self.wake_ups);
        }
        let may_take = |free: &Free| {
            let taken = pool.capacity - free.stripes.len();
            !free.stripes.is_empty() && (!free.is_blocked || taken < pool.capacity * 3 / 4)
        };
        while !may_take(&free) {
            free.is_blocked = true;
            free = pool.freed.wait(free).expect("no holder panics");
            self.wake_ups.fetch_add(1, Ordering::Relaxed);
        }
        free.is_blocked = false;
        free.stripes.pop().expect("there is one")
    }

    pub(super) fn free(&self, stripes: impl Iterator<Item = usize>) {
        if self.rule == Rule::WakeAll {
            let pool = &self.pools[0];
            pool.free.lock().expect("no holder panics").stripes.extend(stripes);
            return pool.freed.notify_all();
        }
        for stripe in stripes {
            let pool = self.pool(stripe as u64);
            let mut free = pool.free.lock().expect("no holder panics");
            if let Some(waiter) = free.waiters.pop_front() {
                drop(free);
                waiter.give(stripe);
                continue;
            }
            free.stripes.push(stripe);
            drop(free);
            if self.rule == Rule::WakeOnePerHash {
                pool.freed.notify_one();
            }
        }
    }
}

impl Waiter {
    fn wait(&self, wake_ups: &AtomicU64) -> usize {
        let mut stripe = self.stripe.lock().expect("no holder panics");
        loop {
            if let Some(stripe) = stripe.take() {
                return stripe;
            }
            stripe = self.given.wait(stripe).expect("no holder panics");
            wake_ups.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn give(&self, stripe: usize) {
        *self.stripe.lock().expect("no holder panics") = Some(stripe);
        self.given.notify_one();
    }
}
