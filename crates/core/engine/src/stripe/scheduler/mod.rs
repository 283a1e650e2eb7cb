//! Decides when stripes begin: ready stripes, and stripes that wait to fill up, let full-width
//! writes pass, or wait for memory.
//!
//! ```text
//!             full, or a client waits and no full-width write is ahead
//!   work ──▶ ready ─────────────────────────────────────────────────────────────▶ begins
//!              │ ▲ full                                                             ▲
//!     partial  │ │ urged: old, flush, much is dirty, a client waits              │
//!              ▼ │                                                                  │
//!           delayed ─────────────────────────────▶ held ─── no writer ahead, passed ─┘
//!                     full-width writes ahead                often enough, or old
//! ```
//!
//! *Delayed* stripes hold writes that were answered: no client waits, so the stripe may fill up.
//! *Held* stripes begin as soon as that costs the members least ([`mod@priority`]). A stripe has
//! *started* once it has begun a batch. *Full-width writers* are stripes whose batch writes every
//! data column whole, from its beginning until its answer. A held stripe was urged and stays so: it
//! is never delayed again.
//!
//! # The line
//!
//! A batch needs memory for its stripe's blocks ([`super::pool`]). Stripes that could begin but for
//! memory stand in one line for each shard, first come, first served, and accept work meanwhile. A
//! batch that ends *hands* its memory to the head of the line: no other stripe can take the memory
//! before the head gets it.
//!
//! md lets waiters in only when a quarter of the stripes are free. That keeps a crowd that was
//! woken from thrashing over one free stripe (livelock); here no crowd is woken. md's rule also
//! keeps a few streams from occupying all stripes at once. The line has the same effect: a stripe
//! whose batch is over loses its memory while others wait, and stands in line again
//! [check: busy_band_does_not_starve_others].
//!
//! # Sent off
//!
//! A delayed stripe costs no memory but the payloads of its writes. If more sectors are dirty than
//! half the limit, delayed stripes are sent off, as many as keep members busy ([`UNDER_WAY`]). They
//! go in the order of their bands, in sweeps over all delayed stripes. Old stripes are sent off
//! likewise. A flush sends its stripes off in the order of bands too, all at once.
//!
//! This file knows stripes' numbers, not their content, nor members, nor how to write.
//!
//! # Invariants
//! - A stripe is sent off when it has been delayed for the age limit, and promoted when it has been
//!   held for twice the age limit. [`Scheduler::poll_timeout`] returns the next such time
//!   [check: a_partial_stripe_is_written_when_it_is_old].
//! - Many dirty writes keep members busy. With more dirty than half the limit, stripes are sent off
//!   while fewer are under way than members have use for
//!   [check: what_is_short_goes_in_order_and_keeps_members_busy].

mod priority;

pub use priority::Bypass;

use std::cmp::Reverse;
use std::collections::VecDeque;

use braid_sim_hooks::{Bug, Mark, planted, reached};

use super::band::BandKey;
use super::list::{Links, List};
use crate::Instant;
use crate::array::Gate;
use crate::counters::CacheCounters;
use crate::tuning::{CacheMode, Tuning};

/// Stripes of a shard that are kept under way while much is dirty. Each member then has about as
/// many requests as disks and solid-state drives serve best. More would delay clients' reads.
const UNDER_WAY: u32 = 32;
/// The share of [`UNDER_WAY`] for stripes that were sent off, however many other stripes are under
/// way or wait. So answered writes reach the members under any load.
const SENT_OFF: u32 = 8;

/// The condition under which a stripe with work may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    /// When the stripe has filled up, or is old.
    WhenFilled,
    /// When no full-width write is ahead of the stripe any more, or enough have passed it.
    AfterFullWrites,
}

/// How much of its stripe a batch writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Full,
    Part,
}

/// The scheduler's questions about a stripe's queued work. Each is computed only if it matters.
pub(super) trait QueuedWork {
    /// Whether the work covers every data column whole.
    fn is_full(&self) -> bool;
    /// Whether a client waits for a part of the work.
    fn is_awaited(&self) -> bool;
    /// Whether a flush waits for a part of the work.
    fn is_flushed(&self) -> bool;
    /// Whether a flush is likely to wait for a part of the work soon.
    fn expects_flush(&self) -> bool;
}

/// The list that a stripe is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StripeList {
    /// The stripe is in no list: it is active, or waits for an event of its own.
    Free,
    Delayed,
    Held,
    InLine,
}

/// The scheduler's state of one stripe.
#[derive(Clone, Copy, Debug)]
struct ScheduleEntry {
    list: StripeList,
    /// The stripe is in the ready queue.
    is_ready: bool,
    /// The stripe does not wait to fill up any more.
    is_urged: bool,
    /// The stripe does not let full-width writes pass any more.
    is_promoted: bool,
    /// The stripe was sent off, and its batch is not over.
    is_sent_off: bool,
    /// When the stripe was put into its list.
    since: Option<Instant>,
    /// The number of the stripe's band, by which sweeps are ordered.
    band: u64,
    /// The width of the batch that the stripe writes.
    width: Option<Width>,
}

impl ScheduleEntry {
    const NEW: Self = Self {
        list: StripeList::Free,
        is_ready: false,
        is_urged: false,
        is_promoted: false,
        is_sent_off: false,
        since: None,
        band: 0,
        width: None,
    };
}

/// Numbers of stripes with a batch, by the batch's width.
#[derive(Debug, Default)]
struct Writers {
    full: u32,
    part: u32,
}

impl Writers {
    fn count_mut(&mut self, width: Width) -> &mut u32 {
        match width {
            Width::Full => &mut self.full,
            Width::Part => &mut self.part,
        }
    }
}

#[derive(Debug)]
pub(super) struct Scheduler {
    tuning: Tuning,
    entries: Vec<ScheduleEntry>,
    links: Links,
    delayed: List,
    held: List,
    /// Stripes that wait only for memory.
    line: List,
    line_length: usize,
    /// The delayed stripes of the current sweep, in the order of their bands; the next one is last.
    /// Some may have left the list meanwhile.
    sweep: Vec<u32>,
    /// The stripe that has been delayed longest is old.
    is_late: bool,
    /// Number of stripes that were sent off and whose batch is not over.
    sent_off: u32,
    /// Stripes whose next action must be decided, first come, first served.
    ready: VecDeque<u32>,
    bypass: Bypass,
    writers: Writers,
}

impl Scheduler {
    pub(super) fn new(tuning: Tuning) -> Self {
        Self {
            tuning,
            entries: Vec::new(),
            links: Links::default(),
            delayed: List::EMPTY,
            held: List::EMPTY,
            line: List::EMPTY,
            line_length: 0,
            sweep: Vec::new(),
            is_late: false,
            sent_off: 0,
            ready: VecDeque::new(),
            bypass: Bypass::new(tuning.bypass_threshold),
            writers: Writers::default(),
        }
    }

    pub(super) fn grow(&mut self, stripes: usize) {
        if self.entries.len() < stripes {
            self.entries.resize(stripes, ScheduleEntry::NEW);
            self.links.grow(stripes);
        }
    }

    pub(super) fn tuning(&self) -> Tuning {
        self.tuning
    }

    pub(super) fn set_tuning(&mut self, tuning: Tuning) {
        self.tuning = tuning;
        self.bypass.set_threshold(tuning.bypass_threshold);
        if tuning.mode == CacheMode::WriteThrough {
            self.urge_all();
        }
    }

    /// Whether the settings allow an early answer of a write; `dirty_sectors` includes that write.
    pub(super) fn answers_early(&self, dirty_sectors: u64) -> bool {
        let is_too_much = dirty_sectors > u64::from(self.tuning.dirty_sectors_max);
        self.tuning.mode == CacheMode::WriteBack && !is_too_much
    }

    /// Lets delayed stripes begin if many sectors are dirty, if the file of answered writes is half
    /// full (`is_short`), or if the stripes are old. True if any may begin.
    #[inline]
    pub(super) fn send_off(&mut self, dirty: (u64, bool), now: Instant) -> bool {
        if self.delayed.first().is_none() && self.sweep.is_empty() {
            self.is_late = false;
            return false;
        }
        self.send_delayed_off(dirty, now)
    }

    fn send_delayed_off(&mut self, (dirty_sectors, is_short): (u64, bool), now: Instant) -> bool {
        let is_much = is_short || dirty_sectors > u64::from(self.tuning.dirty_sectors_max) / 2;
        self.is_late &= self.delayed.first().is_some_and(|number| self.is_older(number, 1, now));
        if !is_much && !self.is_late {
            return false;
        }
        // Stripes that wait in other lists begin first, and leave the sent-off stripes their share.
        let is_full = self.held.first().is_some() || self.line.first().is_some();
        let others = if is_full { UNDER_WAY } else { self.writers.full + self.writers.part };
        let has_room = |scheduler: &Self, sent: u32| {
            others + sent < UNDER_WAY || scheduler.sent_off < SENT_OFF
        };
        let is_due = |scheduler: &Self, number| is_much || scheduler.is_older(number, 1, now);
        let mut sent = 0;
        while has_room(self, sent)
            && let Some(number) = self.next_of_sweep(is_due)
        {
            reached(if is_much { Mark::UrgedByNeed } else { Mark::UrgedByAge });
            self.urge(number);
            self.entry_mut(number).is_sent_off = true;
            self.sent_off += 1;
            sent += 1;
        }
        sent > 0
    }

    /// The next delayed stripe of the sweep. If the sweep is over, a new sweep takes the delayed
    /// stripes from the front for which `is_due` holds.
    fn next_of_sweep(&mut self, is_due: impl Fn(&Self, u32) -> bool) -> Option<u32> {
        loop {
            while let Some(number) = self.sweep.pop() {
                if self.entries[number as usize].list == StripeList::Delayed {
                    return Some(number);
                }
            }
            let mut sweep = std::mem::take(&mut self.sweep);
            let delayed = self.delayed.iter(&self.links);
            sweep.extend(delayed.take_while(|number| is_due(self, *number)));
            sweep.sort_unstable_by_key(|number| Reverse(self.entries[*number as usize].band));
            self.sweep = sweep;
            if self.sweep.is_empty() {
                return None;
            }
        }
    }

    /// Puts a stripe into the ready queue.
    pub(super) fn look_at(&mut self, number: u32) {
        let entry = self.entry_mut(number);
        if !std::mem::replace(&mut entry.is_ready, true) {
            self.ready.push_back(number);
        }
    }

    /// Takes the next stripe from the ready queue.
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        let number = self.ready.pop_front()?;
        let was_ready = std::mem::replace(&mut self.entry_mut(number).is_ready, false);
        assert!(was_ready, "a stripe is looked at once for each time that it is to be");
        Some(number)
    }

    /// When a stripe with `work` may begin.
    pub(super) fn admission(&self, number: u32, work: &impl QueuedWork, gate: Gate) -> Admission {
        let entry = &self.entries[number as usize];
        if entry.is_promoted || work.is_full() {
            return Admission::Now;
        }
        let is_urged = entry.is_urged
            || work.is_awaited()
            || self.tuning.mode == CacheMode::WriteThrough
            || gate != Gate::Open
            || work.is_flushed()
            || (self.tuning.expects_flushes && work.expects_flush());
        if !is_urged {
            Admission::WhenFilled
        } else if self.writers.full == 0 && self.held.first().is_none() {
            Admission::Now
        } else {
            Admission::AfterFullWrites
        }
    }

    /// Puts a stripe that may not begin yet into the list for its reason to wait.
    pub(super) fn put_off(
        &mut self,
        (number, admission): (u32, Admission),
        (band, now): (BandKey, Instant),
        counters: &mut CacheCounters,
    ) {
        let list = match admission {
            Admission::Now => unreachable!("it may begin"),
            Admission::WhenFilled => StripeList::Delayed,
            Admission::AfterFullWrites => StripeList::Held,
        };
        if self.entry_mut(number).list == list {
            return;
        }
        self.leave(number);
        let entry = self.entry_mut(number);
        assert!(list == StripeList::Held || !entry.is_urged, "nothing is delayed that was urged");
        assert!(entry.width.is_none(), "a stripe that has begun is not put off");
        (entry.list, entry.since, entry.band) = (list, Some(now), band.0);
        if list == StripeList::Delayed {
            reached(Mark::StripeDelayed);
            counters.delays += 1;
            self.delayed.push_back(&mut self.links, number);
        } else {
            reached(Mark::StripeHeldBack);
            counters.holds += 1;
            entry.is_urged = true;
            self.held.push_back(&mut self.links, number);
        }
    }

    /// Takes a stripe out of its list, if any.
    pub(super) fn leave(&mut self, number: u32) {
        let list = match self.entries[number as usize].list {
            StripeList::Free => return,
            StripeList::Delayed => &mut self.delayed,
            StripeList::Held => &mut self.held,
            StripeList::InLine => {
                self.line_length -= 1;
                &mut self.line
            }
        };
        list.remove(&mut self.links, number);
        self.entry_mut(number).list = StripeList::Free;
    }

    /// Begins a batch of a stripe, and counts if the batch passes held stripes.
    pub(super) fn begin(
        &mut self,
        (number, width): (u32, Width),
        has_started: bool,
        counters: &mut CacheCounters,
    ) {
        let list = self.entries[number as usize].list;
        let was_put_off = matches!(list, StripeList::Delayed | StripeList::Held);
        self.leave(number);
        let entry = self.entry_mut(number);
        assert!(entry.width.is_none(), "one batch at a time");
        let ScheduleEntry { is_ready, is_sent_off, .. } = *entry;
        *entry = ScheduleEntry { is_ready, is_sent_off, ..ScheduleEntry::NEW };
        self.set_width(number, Some(width));
        if width == Width::Full {
            if was_put_off {
                reached(Mark::FilledGoesOn);
                counters.filled_promotions += 1;
            }
            if !has_started && self.bypass.passes(self.held.first()) {
                counters.bypasses += 1;
            }
        }
    }

    /// Sets the width of the stripe's batch; `None` when the batch is over.
    pub(super) fn set_width(&mut self, number: u32, width: Option<Width>) {
        let old = std::mem::replace(&mut self.entry_mut(number).width, width);
        old.into_iter().for_each(|width| *self.writers.count_mut(width) -= 1);
        width.into_iter().for_each(|width| *self.writers.count_mut(width) += 1);
        if width.is_none() {
            self.has_arrived(number);
        }
    }

    pub(super) fn rest(&mut self, number: u32) {
        self.leave(number);
        self.has_arrived(number);
    }

    /// Called when a stripe's writes are on the members: it no longer counts as sent off.
    fn has_arrived(&mut self, number: u32) {
        if std::mem::take(&mut self.entry_mut(number).is_sent_off) {
            self.sent_off -= 1;
        }
    }

    /// Lets the first held stripe begin, if that is allowed. False if no stripe may begin.
    pub(super) fn promote_first(&mut self, counters: &mut CacheCounters) -> bool {
        let Some(head) = self.held.first() else { return false };
        // Among full-width writes, only one stripe that reads first begins at a time.
        let is_alone = self.writers.full == 0 || self.writers.part == 0;
        if !is_alone || !self.bypass.lets_go(self.writers.full) {
            return false;
        }
        reached(Mark::HeldGoesOn);
        self.bypass.took();
        counters.hold_promotions += 1;
        self.promote(head);
        true
    }

    /// Puts a stripe into the line of stripes that may begin as soon as they get memory.
    pub(super) fn stand_in_line(&mut self, number: u32, counters: &mut CacheCounters) {
        if self.entry_mut(number).list == StripeList::InLine {
            return;
        }
        self.leave(number);
        self.entry_mut(number).list = StripeList::InLine;
        counters.stripe_waits += 1;
        self.line.push_back(&mut self.links, number);
        self.line_length += 1;
    }

    pub(super) fn line_length(&self) -> usize {
        self.line_length
    }

    pub(super) fn head_of_line(&self) -> Option<u32> {
        self.line.first()
    }

    /// Takes the head of the line out, because it gets memory.
    pub(super) fn leave_line(&mut self, counters: &mut CacheCounters) {
        let number = self.line.first().expect("a stripe waits for memory");
        reached(Mark::HandsMemoryOver);
        counters.stripe_hand_overs += 1;
        self.leave(number);
        if planted(Bug::QueueLost) {
            return;
        }
        self.look_at(number);
    }

    /// Ends the wait of all delayed stripes: none waits to fill up any more.
    pub(super) fn urge_all(&mut self) {
        while let Some(number) = self.next_of_sweep(|_, _| true) {
            self.urge(number);
        }
    }

    /// Promotes old held stripes. Old delayed stripes are sent off as other stripes end.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.is_late |= self.delayed.first().is_some_and(|number| self.is_older(number, 1, now));
        while let Some(number) = self.held.first()
            && self.is_older(number, 2, now)
        {
            reached(Mark::HeldIsOld);
            self.promote(number);
        }
    }

    /// The time at which the first stripe of a list becomes old.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = |list: &List, ages| {
            let since = self.entries[list.first()? as usize].since?;
            Some(self.old_at(since, ages))
        };
        // Old delayed stripes need no timer: they are sent off when other stripes end.
        let delayed = if self.is_late { None } else { due(&self.delayed, 1) };
        delayed.into_iter().chain(due(&self.held, 2)).min()
    }

    fn entry_mut(&mut self, number: u32) -> &mut ScheduleEntry {
        &mut self.entries[number as usize]
    }

    /// Makes a stripe wait to fill up no longer.
    fn urge(&mut self, number: u32) {
        let entry = self.entry_mut(number);
        assert_eq!(entry.list, StripeList::Delayed, "only what is delayed is urged");
        entry.is_urged = true;
        self.leave(number);
        self.look_at(number);
    }

    /// Makes a stripe let full-width writes pass no longer.
    fn promote(&mut self, number: u32) {
        let entry = self.entry_mut(number);
        assert_eq!(entry.list, StripeList::Held, "only what is held is promoted");
        entry.is_promoted = true;
        self.leave(number);
        self.look_at(number);
    }

    fn old_at(&self, since: Instant, ages: u64) -> Instant {
        since.plus_milliseconds(ages.saturating_mul(self.tuning.age_max_ms))
    }

    fn is_older(&self, number: u32, ages: u64, now: Instant) -> bool {
        let since = self.entries[number as usize].since;
        since.is_some_and(|since| now >= self.old_at(since, ages))
    }
}

#[cfg(test)]
mod tests;
