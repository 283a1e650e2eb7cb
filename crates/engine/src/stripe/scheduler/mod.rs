//! Which stripe begins when: those that are ready, that wait to fill up, and that let full-width writes pass; and work that
//! waits for a stripe.
//!
//! ```text
//!             full, or a client waits and no full-width write is ahead
//!   work ──▶ ready ─────────────────────────────────────────────────────────────▶ begins
//!              │ ▲ full                                                             ▲
//!     partial  │ │ urged: old, flush, cache short of stripes or full of dirt,       │
//!              ▼ │        a client waits                                            │
//!           delayed ─────────────────────────────▶ held ─── no writer ahead, passed ─┘
//!                     full-width writes ahead                often enough, or old
//! ```
//!
//! *Delayed* is for writes that were answered: no client waits, so the stripe may fill up. *Held* is for stripes that go
//! on as soon as it costs the members least ([`mod@priority`]). A stripe has *started* once it has begun a batch;
//! *full-width writers* are stripes whose batch writes every data column whole, from the moment it begins until its
//! answer. What is held was urged, and stays so: it goes on as held or not at all, and is not waited for to fill up again.
//!
//! # The line
//!
//! Work whose band has no stripe, while none is idle, stands in one line for each shard, first come, first served. A
//! stripe that becomes idle while work stands there is *handed* to the head of the line: no other work can take it on the
//! way. That is why md's rule, to let waiters in only when a quarter of the stripes are free, is not needed: it keeps a
//! crowd that was woken from thrashing over one free stripe (livelock), and here there is no crowd. What the rule also
//! does, keeping a few streams from occupying all stripes at once, is done by the line itself: while work waits, a stripe
//! that has served a batch takes no more work than it has, so its band stands in line like any other
//! [check: busy_band_does_not_starve_others]. A piece waits at most for those ahead of it, each of which needs one batch
//! of one stripe.
//!
//! This room knows stripes by their number. It does not know what they hold, nor members, nor how a batch is written.
//!
//! # Invariants
//! - A stripe is urged when it has been delayed for as long as the age limit, and promoted when it has been held for twice
//!   that: [`Scheduler::poll_timeout`] asks for the moment [check: a_partial_stripe_is_written_when_it_is_old].
//! - While work waits for a stripe, nothing is delayed [check: a_full_cache_delays_nothing].

mod priority;

pub use priority::Bypass;

use std::collections::VecDeque;

use braid_hooks::{Bug, Mark, planted, reached, spoiled};

use super::band::{Attachment, Band, BandKey};
use super::list::{Links, List};
use crate::Instant;
use crate::array::Gate;
use crate::counters::CacheCounters;
use crate::tuning::{CacheMode, Tuning};

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
}

/// The list that a stripe is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// None: it goes on, or waits for an event of its own.
    Free,
    Delayed,
    Held,
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
    /// When it was put into its list.
    since: Option<Instant>,
    /// Of the batch that it writes.
    width: Option<Width>,
}

impl Standing {
    const NEW: Self = Self {
        place: Place::Free,
        is_ready: false,
        is_urged: false,
        is_promoted: false,
        since: None,
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
    /// Stripes to be looked at, first come, first served.
    ready: VecDeque<u32>,
    bypass: Bypass,
    writers: Writers,
    /// Work that found no stripe, first come, first served.
    line: VecDeque<(Band, Attachment)>,
}

impl Scheduler {
    pub(super) fn new(tuning: Tuning) -> Self {
        Self {
            tuning,
            standings: Vec::new(),
            links: Links::default(),
            delayed: List::EMPTY,
            held: List::EMPTY,
            ready: VecDeque::new(),
            bypass: Bypass::new(tuning.bypass_threshold),
            writers: Writers::default(),
            line: VecDeque::new(),
        }
    }

    /// There are so many stripes at least.
    pub(super) fn grow(&mut self, stripes: usize) {
        if self.standings.len() < stripes {
            self.standings.resize(stripes, Standing::NEW);
            self.links.grow(stripes);
        }
    }

    pub(super) fn set_tuning(&mut self, tuning: Tuning) {
        self.tuning = tuning;
        self.bypass.set_threshold(tuning.bypass_threshold);
        if tuning.mode == CacheMode::WriteThrough {
            self.urge_all();
        }
    }

    /// Whether a write may be answered before the members have it, as far as settings say; `dirty_sectors` with it.
    pub(super) fn answers_early(&self, dirty_sectors: u64) -> bool {
        let is_too_much = dirty_sectors > u64::from(self.tuning.dirty_sectors_max);
        let is_too_much = spoiled(Bug::DirtyUnlimited, is_too_much, false);
        self.tuning.mode == CacheMode::WriteBack && !is_too_much
    }

    /// So much is dirty. Beyond half of what may be, each write that comes sends an older one on its way.
    pub(super) fn note_dirty(&mut self, dirty_sectors: u64) {
        if dirty_sectors > u64::from(self.tuning.dirty_sectors_max) / 2 {
            self.urge_first();
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
            || !self.line.is_empty()
            || self.tuning.mode == CacheMode::WriteThrough
            || gate != Gate::Open
            || work.is_flushed();
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
        now: Instant,
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
        let may_fill_up = self.line.is_empty() && !self.standings[number as usize].is_urged;
        assert!(
            place == Place::Held || may_fill_up,
            "nothing is delayed that was urged, or while work waits for a stripe"
        );
        let standing = self.standing_mut(number);
        assert!(standing.width.is_none(), "a stripe that has begun is not put off");
        (standing.place, standing.since) = (place, Some(now));
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
        let was_put_off = self.standings[number as usize].place != Place::Free;
        self.leave(number);
        let standing = self.standing_mut(number);
        assert!(standing.width.is_none(), "one batch at a time");
        *standing = Standing { is_ready: standing.is_ready, ..Standing::NEW };
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

    /// Work that found no stripe: it stands in line, and an old stripe is sent on its way for it.
    pub(super) fn stand_in_line(&mut self, band: Band, work: Attachment) {
        self.line.push_back((band, work));
        self.urge_first();
    }

    /// Pieces' parts in the line.
    pub(super) fn line_length(&self) -> usize {
        self.line.len()
    }

    /// The band that is next in line.
    pub(super) fn head_of_line(&self) -> Option<BandKey> {
        self.line.front().map(|(band, _)| band.key)
    }

    /// The work that is next in line.
    pub(super) fn leave_line(&mut self) -> Option<(Band, Attachment)> {
        let first = self.line.pop_front();
        if planted(Bug::QueueLost) {
            self.line.pop_back();
        }
        first
    }

    /// A stripe that became idle was retired, and is handed to no work.
    pub(super) fn note_retired(&mut self) {
        if !self.line.is_empty() {
            self.urge_first();
        }
    }

    /// No stripe is waited for to fill up any more.
    pub(super) fn urge_all(&mut self) {
        while let Some(number) = self.delayed.first() {
            self.urge(number);
        }
    }

    /// Those that are old are not waited for any more.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if planted(Bug::AgeIgnored) {
            return;
        }
        while let Some(number) = self.delayed.first()
            && self.is_older(number, 1, now)
        {
            reached(Mark::UrgedByAge);
            self.urge(number);
        }
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
        due(&self.delayed, 1).into_iter().chain(due(&self.held, 2)).min()
    }

    fn standing_mut(&mut self, number: u32) -> &mut Standing {
        &mut self.standings[number as usize]
    }

    /// The stripe that has been waited for the longest is not any more.
    fn urge_first(&mut self) {
        if let Some(number) = self.delayed.first() {
            reached(Mark::UrgedByNeed);
            self.urge(number);
        }
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
