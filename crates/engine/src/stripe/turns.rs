//! Whose turn it is: stripes that are ready, that wait to fill up, and that stand back.
//!
//! ```text
//!             full, or a client waits and no full-width write is ahead
//!   work ──▶ ready ─────────────────────────────────────────────────────────────▶ begins
//!              │ ▲ full                                                             ▲
//!      partial │ │ urged: old, flush, cache short of stripes or full of dirt,       │
//!              ▼ │        a client waits                                            │
//!           delayed ─────────────────────────────▶ held ──── nobody ahead, passed ──┘
//!                     full-width writes ahead                often enough, or old
//! ```
//!
//! *Delayed* is for writes that were answered: nobody waits, so the stripe may fill up. *Held* is for
//! stripes that go on as soon as it costs the members least ([`super::priority`]). A stripe has
//! *started* once it has begun a batch; *full-width writers active* are stripes whose batch writes
//! every data column whole, from the moment it begins until its answer.
//!
//! What is held was urged, and stays so: it goes on as held or not at all, and is not waited for to fill up again.
//!
//! Invariants
//! - A stripe is urged when it has been delayed for as long as the age limit, and let go when it has
//!   been held for twice that: `poll_timeout` asks for the moment [check: a_partial_stripe_is_written_when_it_is_old].
//! - While work waits for a stripe, nothing is delayed [check: a_full_cache_delays_nothing].

use braid_hooks::{Bug, Mark, planted, reached};

use super::Stripes;
use super::decide::Turn;
use super::lists::List;
use super::state::{Place, PutOff, Stripe};
use crate::Instant;
use crate::array::Gate;
use crate::shard::Common;
use crate::tuning::CacheMode;

impl Stripes {
    /// Lets every stripe go on that can.
    pub(super) fn settle(&mut self, common: &mut Common) {
        loop {
            while let Some(index) = self.ready.pop_front() {
                self.cache.stripe_mut(index).is_ready = false;
                self.step(common, index);
            }
            common.counters.cache.extra_probes = self.cache.index.extra_probes();
            if self.serve_reads(common) {
                continue;
            }
            let Some(head) = self.cache.held.first() else { return };
            // Among full-width writes one that reads first is enough at a time.
            let is_alone = self.writers.full == 0 || self.writers.part == 0;
            if !(is_alone && self.bypass.lets_go(self.writers.full)) {
                return;
            }
            reached(Mark::HeldGoesOn);
            self.bypass.took();
            common.counters.cache.hold_promotions += 1;
            self.let_go(head);
        }
    }

    /// The stripe is to be looked at soon.
    pub(super) fn look_at(&mut self, index: u32) {
        let stripe = self.cache.stripe_mut(index);
        if !stripe.is_ready {
            stripe.is_ready = true;
            self.ready.push_back(index);
        }
    }

    /// When a stripe with work may begin.
    pub(super) fn turn(&self, common: &Common, stripe: &Stripe) -> Turn {
        if stripe.queue.is_empty() {
            return Turn::Now;
        }
        let is_full = || stripe.is_full(self.unit_sectors);
        if stripe.put_off.is_let_go || is_full() {
            return Turn::Now;
        }
        let debts = || stripe.queue.iter().filter_map(|work| work.owes);
        let is_called_in =
            || self.promises.is_asked() && debts().any(|debt| self.promises.is_called_in(debt));
        let is_urged = stripe.put_off.is_urged
            || stripe.awaited > 0
            || !self.waiting.is_empty()
            || self.tuning.mode == CacheMode::WriteThrough
            || common.view.gate != Gate::Open
            || is_called_in();
        if !is_urged {
            Turn::WhenFilled
        } else if self.writers.full == 0 && self.cache.held.first().is_none() {
            Turn::Now
        } else {
            Turn::AfterFullWrites
        }
    }

    fn old_at(&self, since: Instant, ages: u64) -> Instant {
        since.plus_milliseconds(ages.saturating_mul(self.tuning.age_max_ms))
    }

    /// It is not its turn: the stripe goes to the list where it waits.
    pub(super) fn put_off(&mut self, common: &mut Common, index: u32, turn: Turn) {
        let place = if turn == Turn::WhenFilled { Place::Delayed } else { Place::Held };
        if self.cache.stripe(index).place == place {
            return;
        }
        self.leave(index);
        let stripe = self.cache.stripe_mut(index);
        stripe.put_off.since = Some(common.now);
        stripe.place = place;
        let cache = &mut self.cache;
        if place == Place::Delayed {
            reached(Mark::StripeDelayed);
            common.counters.cache.delays += 1;
            cache.delayed.push_back(&mut cache.pool, index);
        } else {
            reached(Mark::StripeHeldBack);
            common.counters.cache.holds += 1;
            cache.pool[index as usize].put_off.is_urged = true;
            cache.held.push_back(&mut cache.pool, index);
        }
    }

    /// Takes a stripe out of whatever list it is in: it is busy.
    pub(super) fn leave(&mut self, index: u32) {
        let cache = &mut self.cache;
        let list = match cache.stripe(index).place {
            Place::Idle => &mut cache.idle,
            Place::Delayed => &mut cache.delayed,
            Place::Held => &mut cache.held,
            Place::Busy | Place::Retired => return,
        };
        list.remove(&mut cache.pool, index);
        cache.pool[index as usize].place = Place::Busy;
    }

    /// A stripe begins a batch: accounts for it among full-width writes and those that they pass.
    pub(super) fn count_beginning(&mut self, common: &mut Common, index: u32) {
        let was_put_off = self.cache.stripe(index).place != Place::Busy;
        let had_started = self.cache.stripe(index).has_served;
        self.leave(index);
        let stripe = self.cache.stripe_mut(index);
        stripe.put_off = PutOff::default();
        stripe.begin_batch(self.unit_sectors, usize::MAX);
        let batch = stripe.batch.as_ref().expect("just begun");
        self.writers.begin(batch);
        if batch.is_full {
            if was_put_off {
                reached(Mark::FilledGoesOn);
                common.counters.cache.filled_promotions += 1;
            }
            if !had_started && self.bypass.passes(self.cache.held.first()) {
                common.counters.cache.bypasses += 1;
            }
        }
    }

    /// A stripe is not waited for to fill up any more.
    fn urge(&mut self, index: u32) {
        self.cache.stripe_mut(index).put_off.is_urged = true;
        self.leave(index);
        self.look_at(index);
    }

    /// A stripe does not stand back any more.
    fn let_go(&mut self, index: u32) {
        self.cache.stripe_mut(index).put_off.is_let_go = true;
        self.leave(index);
        self.look_at(index);
    }

    /// No stripe is waited for to fill up any more.
    pub(super) fn urge_all(&mut self) {
        while let Some(index) = self.cache.delayed.first() {
            self.urge(index);
        }
    }

    /// The stripe that has been waited for the longest is not any more.
    pub(super) fn urge_first(&mut self) {
        if let Some(index) = self.cache.delayed.first() {
            reached(Mark::UrgedByNeed);
            self.urge(index);
        }
    }

    /// Nor those that are old.
    pub(super) fn urge_old(&mut self, now: Instant) {
        if planted(Bug::AgeIgnored) {
            return;
        }
        while let Some(index) = self.cache.delayed.first()
            && self.is_older(index, 1, now)
        {
            reached(Mark::UrgedByAge);
            self.urge(index);
        }
        while let Some(index) = self.cache.held.first()
            && self.is_older(index, 2, now)
        {
            reached(Mark::HeldIsOld);
            self.let_go(index);
        }
    }

    fn is_older(&self, index: u32, ages: u64, now: Instant) -> bool {
        self.cache.stripe(index).put_off.since.is_some_and(|since| now >= self.old_at(since, ages))
    }

    /// When the first in a list, and hence the others, will have been so old.
    pub(super) fn due(&self, list: &List, ages: u64) -> Option<Instant> {
        let since = self.cache.stripe(list.first()?).put_off.since?;
        Some(self.old_at(since, ages))
    }
}
