//! Decides which members sit out: reads avoid a member much slower than its siblings for a while.
//!
//! # Theory
//!
//! Shards report, a few times a second, how long a member's reads took and how long the oldest one
//! has been in flight ([`Pace`]). A member's *figure* is the larger of the two: the smoothed mean,
//! or the age of the oldest. The rule compares the figure with the median of its siblings' figures:
//!
//! ```text
//!   limit = max(min_ms, factor x median of the others)
//!
//!             oldest >= limit, at once; mean >= limit for half a second
//!   in ──────────────────────────────────────────────────────────────────▶ sits out
//!    ▲                                                                       │
//!    └── below half of the limit for a second, in several reports ◀──────────┘
//! ```
//!
//! Requests in flight count, since a member that stalls completes none. Requests that complete
//! while a member sits out (mostly the shards' probes) show when the member is well again. A member
//! that returns and sits out again soon has to be well for twice as long each time.
//!
//! A member that sits out stays a full member: it is written, and it is read if no other member can
//! serve the read. The array must never depend on such a member alone, hence the bound: members
//! that sit out and missing members together are never more than the level can lose.
//!
//! # Invariants
//! - Never more members sit out than the level can do without
//!   [check: no_more_sit_out_than_the_level_can_lose].
//! - If all members are slow, none counts as slow [check: all_slow_is_none_slow].
//! - A member that sits out and answers again comes back
//!   [check: a_member_that_is_well_again_comes_back].

use std::collections::BTreeMap;

use braid_sim_hooks::{Mark, reached};

use crate::Instant;
use crate::effect::Pace;
use crate::ids::{MemberId, ShardIndex};
use crate::tuning::SitOut;

/// Milliseconds for which a member's mean must exceed the limit before it sits out.
const SLOW_FOR_MS: u64 = 500;

/// Milliseconds for which a member must be well before reads use it again the first time.
const WELL_FOR_MS: u64 = 1000;
/// Number of reports that must show that the member is well.
const WELL_REPORTS: u32 = 5;

/// The most doublings of `WELL_FOR_MS` for a member that returns again and again.
const DOUBLINGS_MAX: u32 = 6;
/// Milliseconds since the last return after which the count of returns begins anew.
const CALM_MS: u64 = 60_000;

/// If no sibling has a figure, the limit is `min_ms` plus this part of `min_ms`: a half.
const LONE_PART: u64 = 2;

const FRESH_MS: u64 = 2000;

pub(super) const MS: u64 = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct MemberPace {
    mean_ns: Option<(u64, Instant)>,
    /// The age of the member's oldest request in flight, as each shard reported it.
    oldest: BTreeMap<ShardIndex, u64>,
    slow_since: Option<Instant>,
    pub(super) out: Option<SitOutState>,
    /// The number of the member's recent returns, and the time of the last one.
    returns: (u32, Option<Instant>),
}

/// The state of a member that sits out.
#[derive(Debug)]
pub(super) struct SitOutState {
    pub(super) since: Instant,
    well_since: Option<Instant>,
    well_reports: u32,
}

impl MemberPace {
    fn age_ns(&self) -> u64 {
        self.oldest.values().copied().max().unwrap_or(0)
    }

    fn mean_ns(&self, now: Instant) -> Option<u64> {
        let fresh = |at: &Instant| now.0.saturating_sub(at.0) <= FRESH_MS * MS;
        self.mean_ns.filter(|(_, at)| fresh(at)).map(|(mean_ns, _)| mean_ns)
    }

    /// The member's latency in nanoseconds: the recent mean, or the age of the oldest request if
    /// that is more; `None` without measurements.
    fn figure_ns(&self, now: Instant) -> Option<u64> {
        let age = self.age_ns();
        match self.mean_ns(now) {
            Some(mean) => Some(mean.max(age)),
            None => (age > 0).then_some(age),
        }
    }

    fn note_pace(&mut self, now: Instant, shard: ShardIndex, pace: Pace) {
        if pace.oldest_ns > 0 {
            self.oldest.insert(shard, pace.oldest_ns);
        } else {
            self.oldest.remove(&shard);
        }
        if pace.completed > 0 {
            let mean = self
                .mean_ns(now)
                .map_or(pace.mean_ns, |before| before - before / 4 + pace.mean_ns / 4);
            self.mean_ns = Some((mean, now));
        }
    }

    fn well_for_ms(&self) -> u64 {
        WELL_FOR_MS << self.returns.0.min(DOUBLINGS_MAX)
    }
}

/// The measurements of all members, and the members that sit out.
#[derive(Debug)]
pub(super) struct SittingOut {
    pub(super) settings: SitOut,
    pub(super) members: BTreeMap<MemberId, MemberPace>,
    pub(super) number: u64,
    /// Total nanoseconds for which members sat out, without those that sit out now.
    pub(super) past_ns: u64,
    /// The time of the shards' last report.
    pub(super) heard: Instant,
}

/// A member begins to sit out, or reads use it again.
pub(super) enum SitOutChange {
    Out { latency_ns: u64, siblings_ns: u64 },
    Back { after_ns: u64 },
}

impl SittingOut {
    pub(super) fn new() -> Self {
        Self {
            settings: SitOut::OFF,
            members: BTreeMap::new(),
            number: 0,
            past_ns: 0,
            heard: Instant(0),
        }
    }

    pub(super) fn out(&self) -> impl Iterator<Item = MemberId> {
        self.members.iter().filter(|(_, watched)| watched.out.is_some()).map(|(member, _)| *member)
    }

    pub(super) fn is_out(&self, member: MemberId) -> bool {
        self.members.get(&member).is_some_and(|watched| watched.out.is_some())
    }

    /// The median latency of the other members that do not sit out; `None` without measurements.
    fn siblings_ns(&self, now: Instant, member: MemberId) -> Option<u64> {
        let others = self.members.iter().filter(|(other, w)| **other != member && w.out.is_none());
        let mut figures: Vec<u64> = others.filter_map(|(_, w)| w.figure_ns(now)).collect();
        figures.sort_unstable();
        figures.get(figures.len() / 2).copied()
    }

    /// Takes a shard's measurement of `member`.
    pub(super) fn note_pace(
        &mut self,
        now: Instant,
        (shard, member, pace): (ShardIndex, MemberId, Pace),
        may_go: impl Fn(&Self) -> bool,
    ) -> Option<SitOutChange> {
        self.heard = now;
        self.members.entry(member).or_default().note_pace(now, shard, pace);
        let siblings_ns = self.siblings_ns(now, member);
        let factor = u64::from(self.settings.factor.max(2));
        let least_ns = self.settings.min_ms.max(1).saturating_mul(MS);
        let limit_ns = match siblings_ns {
            Some(siblings_ns) => siblings_ns.saturating_mul(factor).max(least_ns),
            None => least_ns.saturating_add(least_ns / LONE_PART),
        };
        let watched = self.members.get_mut(&member).expect("just entered");
        let (age, mean) = (watched.age_ns(), watched.mean_ns(now).unwrap_or(0));
        if watched.out.is_some() {
            return self.look_for_recovery((now, member), pace, limit_ns / 2);
        }
        let slow_since = (mean >= limit_ns).then(|| watched.slow_since.unwrap_or(now));
        watched.slow_since = slow_since;
        let for_long = slow_since.is_some_and(|since| now.0 - since.0 >= SLOW_FOR_MS * MS);
        if !(age >= limit_ns || for_long) {
            return None;
        }
        if !may_go(self) {
            reached(Mark::SlowButNeeded);
            return None;
        }
        let watched = self.members.get_mut(&member).expect("just entered");
        if watched.returns.1.is_some_and(|at| now.0 - at.0 > CALM_MS * MS) {
            watched.returns = (0, None);
        }
        watched.slow_since = None;
        watched.out = Some(SitOutState { since: now, well_since: None, well_reports: 0 });
        let siblings_ns = siblings_ns.unwrap_or(0);
        Some(SitOutChange::Out { latency_ns: age.max(mean), siblings_ns })
    }

    fn look_for_recovery(
        &mut self,
        (now, member): (Instant, MemberId),
        pace: Pace,
        limit_ns: u64,
    ) -> Option<SitOutChange> {
        let watched = self.members.get_mut(&member).expect("it sits out");
        let well_for_ns = watched.well_for_ms() * MS;
        let is_well =
            watched.age_ns() < limit_ns && (pace.completed == 0 || pace.mean_ns < limit_ns);
        let out = watched.out.as_mut().expect("it sits out");
        if !is_well {
            (out.well_since, out.well_reports) = (None, 0);
            return None;
        }
        if pace.completed == 0 {
            return None;
        }
        let since = *out.well_since.get_or_insert(now);
        out.well_reports += 1;
        if now.0 - since.0 < well_for_ns || out.well_reports < WELL_REPORTS {
            return None;
        }
        let after_ns = now.0 - out.since.0;
        watched.out = None;
        // The member's earlier latencies are dropped.
        watched.mean_ns = Some((pace.mean_ns, now));
        watched.returns = (watched.returns.0 + 1, Some(now));
        self.past_ns += after_ns;
        Some(SitOutChange::Back { after_ns })
    }
}
