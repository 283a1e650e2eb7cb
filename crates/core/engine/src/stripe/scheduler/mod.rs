//! Which stripe begins when: those that are ready, that wait to fill up, that let full-width writes
//! pass, and that wait for memory.
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
//! *Delayed* is for writes that were answered: no client waits, so the stripe may fill up. *Held*
//! is for stripes that go on as soon as it costs the members least ([`mod@priority`]). A stripe has
//! *started* once it has begun a batch; *full-width writers* are stripes whose batch writes every
//! data column whole, from the moment it begins until its answer. What is held was urged, and stays
//! so: it goes on as held or not at all, and is not waited for to fill up again.
//!
//! # The line
//!
//! A batch needs memory for its stripe's blocks ([`super::pool`]). Stripes that may begin while
//! there is none stand in one line for each shard, first come, first served, and take work
//! meanwhile. Memory that a batch leaves is *handed* to the head of the line: no other can take it
//! on the way. That is why md's rule, to let waiters in only when a quarter of the stripes are
//! free, is not needed: it keeps a crowd that was woken from thrashing over one free stripe
//! (livelock), and here there is no crowd. What the rule also does, keeping a few streams from
//! occupying all stripes at once, is done by the line itself: a stripe whose batch is over has no
//! memory while others wait for it, so it stands in line again
//! [check: busy_band_does_not_starve_others].
//!
//! # Sent off
//!
//! What is delayed costs no memory but the payloads of its writes. When more of these are dirty
//! than half of what may be, so many stripes are kept on their way as members have use for
//! ([`UNDER_WAY`]), in the order in which they lie: one sweep over all that is delayed after the
//! other. So is what is old. What a flush wants goes in that order too, all at once.
//!
//! This room knows stripes by their number. It does not know what they hold, nor members, nor how a
//! batch is written.
//!
//! # Invariants
//! - A stripe is sent off when it has been delayed for as long as the age limit, and promoted when
//!   it has been held for twice that: [`Scheduler::poll_timeout`] asks for the moment
//!   [check: a_partial_stripe_is_written_when_it_is_old].
//! - What is much keeps members busy: with more dirty than half of what may be, nothing is delayed
//!   while fewer stripes are under way than members have use for
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

/// Stripes of a shard that are kept on their way while much is dirty: about as many requests at
/// each member as disks and solid-state drives serve best, and no more, for a client's read comes
/// behind them.
const UNDER_WAY: u32 = 32;
/// Of these, so many are stripes that were sent off, however many others are under way or wait:
/// answered writes get to the members under any load.
const SENT_OFF: u32 = 8;

/// When a stripe that has work is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Now.
    Now,
    /// When it has filled up, or has been waited for long enough.
    WhenFilled,
    /// When no full-width write is ahead of it any more, or enough have been.
    AfterFullWrites,
}

/// How much of its stripe a batch writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// Every data column whole.
    Full,
    /// A part.
    Part,
}

/// What the scheduler asks about a stripe's queued work. Each is asked only if it matters.
pub(super) trait QueuedWork {
    /// It covers every data column whole.
    fn is_full(&self) -> bool;
    /// A client waits for a part of it.
    fn is_awaited(&self) -> bool;
    /// A flush waits for a part of it.
    fn is_flushed(&self) -> bool;
    /// A flush is likely to wait for a part of it soon.
    fn expects_flush(&self) -> bool;
}

/// The list that a stripe is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// None: it goes on, or waits for an event of its own.
    Free,
    Delayed,
    Held,
    /// The line.
    InLine,
}

/// How one stripe stands.
#[derive(Clone, Copy, Debug)]
struct Standing {
    place: Place,
    /// It is among those that are about to be looked at.
    is_ready: bool,
    /// It is not waited for to fill up any more.
    is_urged: bool,
    /// Nor does it let full-width writes pass.
    is_promoted: bool,
    /// It was sent off, and its batch is not over.
    is_sent_off: bool,
    /// When it was put into its list.
    since: Option<Instant>,
    /// Where it lies.
    band: u64,
    /// Of the batch that it writes.
    width: Option<Width>,
}

impl Standing {
    const NEW: Self = Self {
        place: Place::Free,
        is_ready: false,
        is_urged: false,
        is_promoted: false,
        is_sent_off: false,
        since: None,
        band: 0,
        width: None,
    };
}

/// Stripes that have a batch.
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

/// The order of a shard's stripes.
#[derive(Debug)]
pub(super) struct Scheduler {
    tuning: Tuning,
    /// By stripe.
    standings: Vec<Standing>,
    links: Links,
    delayed: List,
    held: List,
    /// Stripes that may begin when there is memory.
    line: List,
    line_length: usize,
    /// Delayed stripes in the order in which they lie, the next one last; some may have gone
    /// meanwhile.
    sweep: Vec<u32>,
    /// The first that is delayed is old.
    is_late: bool,
    /// Stripes that were sent off and whose batch is not over.
    sent_off: u32,
    /// Stripes to be looked at, first come, first served.
    ready: VecDeque<u32>,
    bypass: Bypass,
    writers: Writers,
}

impl Scheduler {
    pub(super) fn new(tuning: Tuning) -> Self {
        Self {
            tuning,
            standings: Vec::new(),
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

    /// There are so many stripes at least.
    pub(super) fn grow(&mut self, stripes: usize) {
        if self.standings.len() < stripes {
            self.standings.resize(stripes, Standing::NEW);
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

    /// Whether a write may be answered before the members have it, as far as settings say;
    /// `dirty_sectors` with it.
    pub(super) fn answers_early(&self, dirty_sectors: u64) -> bool {
        let is_too_much = dirty_sectors > u64::from(self.tuning.dirty_sectors_max);
        self.tuning.mode == CacheMode::WriteBack && !is_too_much
    }

    /// Sends delayed stripes on their way; true if any was. They go if much is dirty, if the file
    /// of answered writes is half full (`is_short`), or if they are old.
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
        // Those that wait anyway begin first, and leave them their share.
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
            self.standing_mut(number).is_sent_off = true;
            self.sent_off += 1;
            sent += 1;
        }
        sent > 0
    }

    /// The delayed stripe that lies next. The first of those that are delayed, for which `is_due`
    /// holds, make the next sweep.
    fn next_of_sweep(&mut self, is_due: impl Fn(&Self, u32) -> bool) -> Option<u32> {
        loop {
            while let Some(number) = self.sweep.pop() {
                if self.standings[number as usize].place == Place::Delayed {
                    return Some(number);
                }
            }
            let mut sweep = std::mem::take(&mut self.sweep);
            let delayed = self.delayed.iter(&self.links);
            sweep.extend(delayed.take_while(|number| is_due(self, *number)));
            sweep.sort_unstable_by_key(|number| Reverse(self.standings[*number as usize].band));
            self.sweep = sweep;
            if self.sweep.is_empty() {
                return None;
            }
        }
    }

    /// The stripe is to be looked at soon.
    pub(super) fn look_at(&mut self, number: u32) {
        let standing = self.standing_mut(number);
        if !std::mem::replace(&mut standing.is_ready, true) {
            self.ready.push_back(number);
        }
    }

    /// The next stripe to be looked at.
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        let number = self.ready.pop_front()?;
        let was_ready = std::mem::replace(&mut self.standing_mut(number).is_ready, false);
        assert!(was_ready, "a stripe is looked at once for each time that it is to be");
        Some(number)
    }

    /// When a stripe with `work` may begin.
    pub(super) fn admission(&self, number: u32, work: &impl QueuedWork, gate: Gate) -> Admission {
        let standing = &self.standings[number as usize];
        if standing.is_promoted || work.is_full() {
            return Admission::Now;
        }
        let is_urged = standing.is_urged
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

    /// The stripe may not begin yet: it goes to the list where it waits.
    pub(super) fn put_off(
        &mut self,
        (number, admission): (u32, Admission),
        (band, now): (BandKey, Instant),
        counters: &mut CacheCounters,
    ) {
        let place = match admission {
            Admission::Now => unreachable!("it may begin"),
            Admission::WhenFilled => Place::Delayed,
            Admission::AfterFullWrites => Place::Held,
        };
        if self.standing_mut(number).place == place {
            return;
        }
        self.leave(number);
        let standing = self.standing_mut(number);
        assert!(place == Place::Held || !standing.is_urged, "nothing is delayed that was urged");
        assert!(standing.width.is_none(), "a stripe that has begun is not put off");
        (standing.place, standing.since, standing.band) = (place, Some(now), band.0);
        if place == Place::Delayed {
            reached(Mark::StripeDelayed);
            counters.delays += 1;
            self.delayed.push_back(&mut self.links, number);
        } else {
            reached(Mark::StripeHeldBack);
            counters.holds += 1;
            standing.is_urged = true;
            self.held.push_back(&mut self.links, number);
        }
    }

    /// Takes a stripe out of the list that it is in, if it is in one.
    pub(super) fn leave(&mut self, number: u32) {
        let list = match self.standings[number as usize].place {
            Place::Free => return,
            Place::Delayed => &mut self.delayed,
            Place::Held => &mut self.held,
            Place::InLine => {
                self.line_length -= 1;
                &mut self.line
            }
        };
        list.remove(&mut self.links, number);
        self.standing_mut(number).place = Place::Free;
    }

    /// A stripe begins a batch. Counts it among those that pass held ones, if it does.
    pub(super) fn begin(
        &mut self,
        (number, width): (u32, Width),
        has_started: bool,
        counters: &mut CacheCounters,
    ) {
        let place = self.standings[number as usize].place;
        let was_put_off = matches!(place, Place::Delayed | Place::Held);
        self.leave(number);
        let standing = self.standing_mut(number);
        assert!(standing.width.is_none(), "one batch at a time");
        let Standing { is_ready, is_sent_off, .. } = *standing;
        *standing = Standing { is_ready, is_sent_off, ..Standing::NEW };
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

    /// The stripe's batch has this width from now on; none when it is over.
    pub(super) fn set_width(&mut self, number: u32, width: Option<Width>) {
        let old = std::mem::replace(&mut self.standing_mut(number).width, width);
        old.into_iter().for_each(|width| *self.writers.count_mut(width) -= 1);
        width.into_iter().for_each(|width| *self.writers.count_mut(width) += 1);
        if width.is_none() {
            self.has_arrived(number);
        }
    }

    /// The stripe has no work any more.
    pub(super) fn rest(&mut self, number: u32) {
        self.leave(number);
        self.has_arrived(number);
    }

    /// If the stripe was sent off, its writes are on the members.
    fn has_arrived(&mut self, number: u32) {
        if std::mem::take(&mut self.standing_mut(number).is_sent_off) {
            self.sent_off -= 1;
        }
    }

    /// Lets the first held stripe go on, if it may. False if none does.
    pub(super) fn promote_first(&mut self, counters: &mut CacheCounters) -> bool {
        let Some(head) = self.held.first() else { return false };
        // Among full-width writes one that reads first is enough at a time.
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

    /// The stripe may begin as soon as there is memory for it.
    pub(super) fn stand_in_line(&mut self, number: u32, counters: &mut CacheCounters) {
        if self.standing_mut(number).place == Place::InLine {
            return;
        }
        self.leave(number);
        self.standing_mut(number).place = Place::InLine;
        counters.stripe_waits += 1;
        self.line.push_back(&mut self.links, number);
        self.line_length += 1;
    }

    /// Stripes in the line.
    pub(super) fn line_length(&self) -> usize {
        self.line_length
    }

    /// The stripe that is next in line.
    pub(super) fn head_of_line(&self) -> Option<u32> {
        self.line.first()
    }

    /// There is memory for the head of the line.
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

    /// No stripe is waited for to fill up any more.
    pub(super) fn urge_all(&mut self) {
        while let Some(number) = self.next_of_sweep(|_, _| true) {
            self.urge(number);
        }
    }

    /// Those that are old are not waited for any more: what is delayed is sent off as others end.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.is_late |= self.delayed.first().is_some_and(|number| self.is_older(number, 1, now));
        while let Some(number) = self.held.first()
            && self.is_older(number, 2, now)
        {
            reached(Mark::HeldIsOld);
            self.promote(number);
        }
    }

    /// When the first of a list will be old.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = |list: &List, ages| {
            let since = self.standings[list.first()? as usize].since?;
            Some(self.old_at(since, ages))
        };
        // What is late needs no other moment: it goes when others end.
        let delayed = if self.is_late { None } else { due(&self.delayed, 1) };
        delayed.into_iter().chain(due(&self.held, 2)).min()
    }

    fn standing_mut(&mut self, number: u32) -> &mut Standing {
        &mut self.standings[number as usize]
    }

    /// A stripe is not waited for to fill up any more.
    fn urge(&mut self, number: u32) {
        let standing = self.standing_mut(number);
        assert_eq!(standing.place, Place::Delayed, "only what is delayed is urged");
        standing.is_urged = true;
        self.leave(number);
        self.look_at(number);
    }

    /// A stripe does not let full-width writes pass any more.
    fn promote(&mut self, number: u32) {
        let standing = self.standing_mut(number);
        assert_eq!(standing.place, Place::Held, "only what is held is promoted");
        standing.is_promoted = true;
        self.leave(number);
        self.look_at(number);
    }

    fn old_at(&self, since: Instant, ages: u64) -> Instant {
        since.plus_milliseconds(ages.saturating_mul(self.tuning.age_max_ms))
    }

    fn is_older(&self, number: u32, ages: u64, now: Instant) -> bool {
        let since = self.standings[number as usize].since;
        since.is_some_and(|since| now >= self.old_at(since, ages))
    }
}

#[cfg(test)]
mod tests;
