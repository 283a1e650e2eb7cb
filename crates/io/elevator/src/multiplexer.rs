//! Reads against write-back: a fixed period, divided between the two by the flusher's backlog.
//!
//! ```text
//!  │wwwwwwwrrrrrrrrrrrrrrrrrrrr│wwwwwwwwwwwwwwwwwwwwrrrrrrr│   w: the flusher's, r: the readers'
//!   ◀────── one period ───────▶ ◀── flusher far behind ───▶
//! ```
//!
//! Place in the flow: above the elevators of an array's members that seek. All of them follow one
//! clock, so that the members of a stripe turn together. The multiplexer decides which kinds the
//! members may be given now and until when; its callers report the demand and the time served.
//! `MultiplexerSettings` holds the defaults: write-back gets 10 to 70 % of a period of 200 ms.
//!
//! The idea is Dillon's, for the flusher of HAMMER (2011): if reads are held back for a part of a
//! second, the flusher works without a seek after each write. There the gain cost most of the
//! reads, because waiting readers hold locks that the flusher needs; here they hold none.
//!
//! # The rules
//!
//! - The flusher's share of a period grows in a straight line with the backlog, from the least
//!   share to the most. The share is set when a period begins.
//! - Urgent work (a flush, a forced write) counts as a minimum backlog, which is taken from the
//!   readers' own time. The flusher first gets its own part (see below).
//! - In its slice a side is served alone if the other side has something to do, and shares if it
//!   has nothing itself: each member gives an idle slice away at once ([`Turn::allowed_at`]).
//! - A read that a write needs first is the flusher's, not a read ([`crate::Operation::PreRead`]).
//! - An operation in flight when a slice ends is not called back, so a side may take more than its
//!   slice. The difference between its set point and the members' busy time is carried into the
//!   next period. The difference is carried only if both sides wanted more, and leaves each side an
//!   eighth of its part.
//! - A side that has waited for one period and a half without being served goes next, alone. This
//!   happens if one request takes as long as a slice, if slices pass unseen, or if a side has used
//!   up its own time. Such a turn is over if it serves nothing for a period, as with a stalled
//!   member.
//!
//! # What a share is worth
//!
//! Of the arm's time while no side is held, a part *f* is the flusher's own. With the same time for
//! each request, let reads keep a part *k*, and writes grow to *x* times. Reads and writes then
//! take
//!
//! ```text
//!  k (1 - f)  +  x f  ≤  1    so   x ≤ (1 - k (1 - f)) / f     k = 80 %, x = 3 need   f ≤ 1/11
//! ```
//!
//! So a share says nothing by itself. 24 % are more than three times the writes if 400 readers
//! leave the flusher 4 %, and less than its own part if 10 readers leave it 45 %. The flusher's own
//! part can be seen from outside. Requests are served by their place, so a side has the same part
//! of the arm as of the queue. But a flusher's requests come in waves, first all reads, then all
//! writes, so only a third of its longest queue counts ([`WRITES_FOR_ONE`]). The rest is the
//! readers', who lend it a part of that ([`URGENT_PERMILLE`]).
//!
//! Invariants
//! - Urgent work never has less than the flusher's own part, and readers lend a sixth or a fifth
//!   whatever the load is: `what_is_urgent_has_its_own_and_some_of_the_readers`.
//! - The share is held: `the_share_is_within_five_points_of_its_set_point`.
//! - Neither side is held for two periods: `neither_is_held_for_two_periods`.
//! - Nor by a side whose member does not answer: `a_stalled_member_holds_nobody_for_long`.
//! - An idle slice costs neither side anything: `an_idle_slice_is_given_away_at_once`,
//!   `a_member_without_work_of_the_slices_side_is_given_away`.

use std::collections::VecDeque;

use braid_sim_hooks::{Bug, Mark, reached, spoiled};

use crate::entry::Directions;

/// Periods kept for the inspector.
const LOG_MAX: usize = 100;

/// Dispatches that a held side may have in flight at a member while the other side has no work at
/// that member. A few keep the member busy; the other side's next request would wait for more.
const GIVEN_AWAY_MAX: u32 = 4;

/// Backlog of urgent work in thousandths; the flusher's own part is added, up to a maximum. With
/// the default shares readers lend 15 to 19 %. They lose a little more, since a sweep that is
/// broken off for the other side leaves longer ways. The loss is greatest with hundreds of waiting
/// readers, who have nearly all of the arm and short ways. So they keep 80 % of their rate without
/// holding (`braid-lab multiplexer --case sweep`).
const URGENT_PERMILLE: u32 = 90;
const URGENT_MAX_PERMILLE: u32 = 156;

/// This many of the flusher's requests, at its longest queue, count as one queued read: the
/// flusher's waves run empty before the next wave is made. Measured over the field of `braid-lab
/// multiplexer --case sweep`.
const WRITES_FOR_ONE: u64 = 3;

/// The multiplexer's settings, which can change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiplexerSettings {
    /// If off, reads and writes may always be dispatched.
    pub is_on: bool,
    /// A period, in nanoseconds.
    pub period_ns: u64,
    /// The flusher's share of a period without backlog, in thousandths.
    pub share_min_permille: u32,
    /// The flusher's share of a period with a full backlog, in thousandths; less than 1000.
    pub share_max_permille: u32,
}

impl Default for MultiplexerSettings {
    fn default() -> Self {
        Self {
            is_on: true,
            period_ns: 200_000_000,
            share_min_permille: 100,
            share_max_permille: 700,
        }
    }
}

/// Readers' work and the flusher's work for an array's members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The flusher's backlog, in thousandths of its maximum.
    pub backlog_permille: u32,
    /// A client waits for the flusher, because of a flush or a forced write. A full cache is not
    /// urgent: it counts as a whole backlog.
    pub is_urgent: bool,
    /// Reads wait for members.
    pub reads: bool,
    /// Writes wait for members or are in flight. Writes in flight count, so that the slice does not
    /// end between two of them.
    pub writes: bool,
    /// Reads that are not done, waiting or in flight.
    pub reads_queued: u32,
    /// The flusher's requests that are not done, waiting or in flight.
    pub writes_queued: u32,
}

/// Which sides the members may serve now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Reads may go.
    pub reads: bool,
    /// Writes may go.
    pub writes: bool,
    /// When the caller must ask again at the latest.
    pub until_ns: u64,
}

impl Turn {
    /// The allowed kinds, in the form that an elevator takes.
    #[must_use]
    pub const fn allowed(&self) -> Directions {
        Directions { reads: self.reads, writes: self.writes }
    }

    /// The allowed kinds for one member's elevator, given the kinds that wait there and how many
    /// reads and writes are in flight. If the side whose slice it is has nothing there, the other
    /// side gets a few dispatches at a time. The elevator's driver asks before each dispatch.
    #[must_use]
    pub const fn allowed_at(&self, waits: Directions, (reads, writes): (u32, u32)) -> Directions {
        Directions {
            reads: self.reads || (!waits.writes && writes == 0 && reads < GIVEN_AWAY_MAX),
            writes: self.writes || (!waits.reads && reads == 0 && writes < GIVEN_AWAY_MAX),
        }
    }
}

/// One period, for the inspector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// When the period began.
    pub start_ns: u64,
    /// The flusher's set point, in thousandths.
    pub share_permille: u32,
    /// The length of the flusher's slice, including the time carried from the period before.
    pub flusher_ns: u64,
    /// How long members were busy with reads.
    pub busy_reads_ns: u64,
    /// How long members were busy with writes.
    pub busy_writes_ns: u64,
    /// Whether reads were held in the flusher's slice.
    pub held_reads: bool,
    /// Whether writes were held in the readers' slice.
    pub held_writes: bool,
}

/// The clock that divides one array's time between reads and write-back.
#[derive(Clone, Debug)]
pub struct Multiplexer {
    settings: MultiplexerSettings,
    slice: Slice,
    /// The time that the flusher lacked in earlier periods; below zero, the time that it had in
    /// excess.
    carried_ns: i64,
    /// Since when each side has waited without being served: reads, then writes.
    waiting_since_ns: [Option<u64>; 2],
    /// The side that is served alone after a long wait (0 reads, 1 writes), and when its turn ends.
    owed: Option<(usize, u64)>,
    /// The longest queues in the period: reads, then the flusher's requests.
    queued_max: [u32; 2],
    log: VecDeque<Slice>,
}

impl Multiplexer {
    /// A multiplexer whose first period begins at `now_ns`.
    #[must_use]
    pub fn new(settings: MultiplexerSettings, now_ns: u64) -> Self {
        let slice = Slice { start_ns: now_ns, ..Slice::default() };
        let mut multiplexer = Self {
            settings,
            slice,
            carried_ns: 0,
            waiting_since_ns: [None; 2],
            owed: None,
            queued_max: [0; 2],
            log: VecDeque::new(),
        };
        multiplexer.begin(now_ns, Demand::default());
        multiplexer
    }

    /// Changes the settings from the next period on; switching off takes effect at once.
    pub fn set(&mut self, settings: MultiplexerSettings) {
        self.settings = settings;
    }

    /// Which sides may be served now.
    pub fn turn(&mut self, now_ns: u64, demand: Demand) -> Turn {
        let period_ns = self.settings.period_ns.max(1);
        if !self.settings.is_on {
            return Turn { reads: true, writes: true, until_ns: now_ns.saturating_add(period_ns) };
        }
        let end_ns = self.slice.start_ns.saturating_add(period_ns);
        // Periods follow each other without a gap as long as a dispatcher asks.
        let is_late = now_ns >= end_ns.saturating_add(period_ns);
        let [reads, writes] = if is_late { [0; 2] } else { self.queued_max };
        self.queued_max = [reads.max(demand.reads_queued), writes.max(demand.writes_queued)];
        if now_ns >= end_ns {
            self.end();
            self.begin(if is_late { now_ns } else { end_ns }, demand);
        }
        if let Some(turn) = self.owed(now_ns, demand) {
            reached(Mark::TurnOwed);
            return turn;
        }
        let turns_ns = self.slice.start_ns.saturating_add(self.slice.flusher_ns);
        if now_ns < turns_ns {
            if demand.reads {
                reached(if demand.writes { Mark::ReadsHeld } else { Mark::SliceGivenAway });
            }
            self.slice.held_reads |= demand.reads && demand.writes;
            let reads = !demand.writes;
            Turn { reads, writes: true, until_ns: turns_ns }
        } else {
            if demand.writes {
                reached(if demand.reads { Mark::WritesHeld } else { Mark::SliceGivenAway });
            }
            self.slice.held_writes |= demand.reads && demand.writes;
            let writes = !demand.reads;
            let until_ns = self.slice.start_ns.saturating_add(period_ns);
            Turn { reads: true, writes, until_ns }
        }
    }

    /// The turn of a side that has waited for a period and a half. Of two such sides the one that
    /// has waited longer goes first. If its turn serves nothing for a period, as when a member
    /// stalls, the other side goes before it.
    fn owed(&mut self, now_ns: u64, demand: Demand) -> Option<Turn> {
        let passed = self.owed.filter(|(_, until_ns)| *until_ns <= now_ns);
        if let Some((side, _)) = passed {
            reached(Mark::OwedTurnPassedOn);
            self.waiting_since_ns[side] = Some(now_ns);
            self.owed = None;
        }
        let [reads, writes] = &mut self.waiting_since_ns;
        for (since, waits) in [(reads, demand.reads), (writes, demand.writes)] {
            *since = waits.then(|| since.unwrap_or(now_ns));
        }
        let patience_ns = self.settings.period_ns.saturating_add(self.settings.period_ns / 2);
        let due =
            |since: &Option<u64>| since.filter(|since| since.saturating_add(patience_ns) <= now_ns);
        let side = match self.waiting_since_ns.each_ref().map(due) {
            [None, None] => None,
            [Some(reads), Some(writes)] => Some(usize::from(writes <= reads)),
            [reads, _] => Some(usize::from(reads.is_none())),
        };
        let side = spoiled(Bug::OwedForgotten, side, None);
        let until_ns = now_ns.saturating_add(self.settings.period_ns.max(1));
        let same = self.owed.filter(|(owed, _)| Some(*owed) == side);
        self.owed = same.or(side.map(|side| (side, until_ns)));
        let (side, until_ns) = self.owed?;
        Some(Turn { reads: side == 0, writes: side == 1, until_ns })
    }

    /// A member was busy for `busy_ns` with reads or with writes.
    pub fn handle_served(&mut self, is_read: bool, busy_ns: u64) {
        let busy = match is_read {
            true => &mut self.slice.busy_reads_ns,
            false => &mut self.slice.busy_writes_ns,
        };
        *busy = busy.saturating_add(busy_ns);
        let side = usize::from(!is_read);
        self.waiting_since_ns[side] = None;
        self.owed = self.owed.filter(|(owed, _)| *owed != side);
    }

    /// The running period.
    #[must_use]
    pub fn slice(&self) -> &Slice {
        &self.slice
    }

    /// The last hundred periods, the oldest first, without the running one.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.log.iter()
    }

    fn begin(&mut self, start_ns: u64, demand: Demand) {
        let MultiplexerSettings { period_ns, share_min_permille, share_max_permille, .. } =
            self.settings;
        let most = share_max_permille.min(999);
        let least = share_min_permille.min(most);
        let is_urgent = demand.is_urgent;
        let is_urgent = spoiled(Bug::UrgentIgnored, is_urgent, false);
        let [reads, writes] = std::mem::take(&mut self.queued_max).map(u64::from);
        let (urgent, own) = match is_urgent {
            true => {
                let own = own_permille(reads, writes);
                ((URGENT_PERMILLE + own).min(URGENT_MAX_PERMILLE), own)
            }
            false => (0, 0),
        };
        let lent = least + (most - least) * demand.backlog_permille.clamp(urgent, 1000) / 1000;
        let share_permille = (own + (1000 - own) * lent / 1000).min(most);
        let set_ns = part(period_ns, share_permille);
        // Limits the carried time so that each side keeps a part, and neither is held for a whole
        // period.
        let (least_ns, most_ns) = (set_ns / 8, period_ns - (period_ns - set_ns) / 8);
        let flusher_ns = set_ns.saturating_add_signed(self.carried_ns).clamp(least_ns, most_ns);
        self.slice = Slice { start_ns, share_permille, flusher_ns, ..Slice::default() };
    }

    /// Ends the period. Time that the flusher lacked is carried into the next period if both sides
    /// wanted more.
    fn end(&mut self) {
        let Slice { share_permille, busy_reads_ns, busy_writes_ns, .. } = self.slice;
        let Slice { held_reads, held_writes, flusher_ns, .. } = self.slice;
        let readers_wanted = held_reads || flusher_ns == 0;
        let flusher_wanted = held_writes || flusher_ns >= self.settings.period_ns;
        if readers_wanted && flusher_wanted {
            let due_ns = part(busy_reads_ns.saturating_add(busy_writes_ns), share_permille);
            let lacked_ns = due_ns.cast_signed().saturating_sub(busy_writes_ns.cast_signed());
            // Carries only half: carrying all of it would make the slices oscillate.
            let most_ns = self.settings.period_ns.cast_signed();
            let carried_ns = self.carried_ns.saturating_add(lacked_ns / 2);
            self.carried_ns = carried_ns.clamp(-most_ns, most_ns);
        } else {
            self.carried_ns = 0;
        }
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(self.slice);
    }
}

/// The flusher's part of the members' time if neither side were held, in thousandths.
fn own_permille(reads: u64, writes: u64) -> u32 {
    let all = (writes + WRITES_FOR_ONE * reads).max(1);
    u32::try_from(writes * 1000 / all).expect("a thousand at most")
}

/// `permille` thousandths of `time_ns`.
fn part(time_ns: u64, permille: u32) -> u64 {
    let part = u128::from(time_ns) * u128::from(permille) / 1000;
    u64::try_from(part).expect("thousandths of a time are less than it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Simulates one member that serves one request after another. Returns the writes' part of the
    /// time, and the longest time for which each side with work was held.
    fn storm(
        settings: MultiplexerSettings,
        backlog_permille: u32,
        (read_ns, write_ns): (u64, u64),
    ) -> (f64, u64) {
        let mut multiplexer = Multiplexer::new(settings, 0);
        let demand = Demand { backlog_permille, reads: true, writes: true, ..Demand::default() };
        let (mut now_ns, mut writes_ns, mut held_ns) = (0, 0, 0);
        let mut last = [0; 2];
        let mut next_is_read = false;
        while now_ns < 20_000 * MS {
            let turn = multiplexer.turn(now_ns, demand);
            assert!(turn.reads || turn.writes, "one side may go");
            assert!(turn.until_ns > now_ns && turn.until_ns <= now_ns + settings.period_ns);
            let is_read = if turn.reads && turn.writes { next_is_read } else { turn.reads };
            next_is_read = !is_read;
            let busy_ns = if is_read { read_ns } else { write_ns };
            held_ns = held_ns.max(now_ns - last[usize::from(is_read)]);
            now_ns += busy_ns;
            last[usize::from(is_read)] = now_ns;
            writes_ns += if is_read { 0 } else { busy_ns };
            multiplexer.handle_served(is_read, busy_ns);
        }
        (writes_ns as f64 / now_ns as f64, held_ns)
    }

    #[test]
    fn the_share_is_within_five_points_of_its_set_point() {
        for services in [(5 * MS, 5 * MS), (8 * MS, MS), (MS, 8 * MS), (30 * MS, 25 * MS)] {
            for backlog_permille in [0, 250, 500, 1000] {
                let settings = MultiplexerSettings::default();
                let (share, _) = storm(settings, backlog_permille, services);
                let set = f64::from(100 + 600 * backlog_permille / 1000) / 1000.0;
                assert!((share - set).abs() < 0.05, "{share} for {set} with {services:?}");
            }
        }
    }

    #[test]
    fn neither_is_held_for_two_periods() {
        let settings = MultiplexerSettings { share_max_permille: 1000, ..Default::default() };
        for services in [(MS, MS), (90 * MS, MS), (MS, 90 * MS), (150 * MS, 190 * MS)] {
            for backlog_permille in [0, 500, 1000] {
                let (_, held_ns) = storm(settings, backlog_permille, services);
                let under_way_ns = services.0.max(services.1);
                assert!(held_ns <= 2 * settings.period_ns + under_way_ns, "{held_ns} {services:?}");
            }
        }
    }

    /// Reads always wait and none is served. Writes are served as soon as they may go.
    #[test]
    fn a_stalled_member_holds_nobody_for_long() {
        let settings = MultiplexerSettings { share_min_permille: 0, ..Default::default() };
        let mut multiplexer = Multiplexer::new(settings, 0);
        let demand = Demand { reads: true, writes: true, ..Demand::default() };
        let (mut served_ns, mut held_ns) = (0, 0);
        for now_ns in (0..10_000).map(|step| step * 7 * MS) {
            held_ns = held_ns.max(now_ns - served_ns);
            if multiplexer.turn(now_ns, demand).writes {
                multiplexer.handle_served(false, 7 * MS);
                served_ns = now_ns;
            }
        }
        assert!(held_ns <= 3 * settings.period_ns, "{held_ns}");
    }

    #[test]
    fn an_idle_slice_is_given_away_at_once() {
        let mut multiplexer = Multiplexer::new(MultiplexerSettings::default(), 0);
        let reads = Demand { reads: true, backlog_permille: 1000, ..Demand::default() };
        let writes = Demand { writes: true, ..Demand::default() };
        for now_ns in (0..140).map(|step| step * 7 * MS) {
            assert!(
                multiplexer.turn(now_ns, reads).reads && multiplexer.turn(now_ns, writes).writes
            );
        }
        assert!(multiplexer.slices().all(|slice| !slice.held_reads && !slice.held_writes));
    }

    #[test]
    fn a_member_without_work_of_the_slices_side_is_given_away() {
        let flushers = Turn { reads: false, writes: true, until_ns: 1 };
        let readers = Turn { reads: true, writes: false, until_ns: 1 };
        let waits = |reads, writes| Directions { reads, writes };
        assert_eq!(flushers.allowed_at(waits(true, false), (0, 0)), Directions::ALL);
        assert_eq!(flushers.allowed_at(waits(true, false), (1, 0)), Directions::ALL);
        assert_eq!(readers.allowed_at(waits(false, true), (0, 1)), Directions::ALL);
        for (turn, waits, out) in [
            (flushers, waits(true, true), (0, 0)),
            (flushers, waits(true, false), (0, 1)),
            (flushers, waits(true, false), (4, 0)),
            (readers, waits(true, true), (0, 0)),
            (readers, waits(false, true), (1, 0)),
            (readers, waits(false, true), (0, 4)),
        ] {
            assert_eq!(turn.allowed_at(waits, out), turn.allowed(), "{turn:?} {waits:?} {out:?}");
        }
    }

    #[test]
    fn the_share_follows_the_backlog_and_urgency_is_some_of_it() {
        let mut multiplexer = Multiplexer::new(MultiplexerSettings::default(), 0);
        let demand = |backlog_permille, is_urgent| Demand {
            backlog_permille,
            is_urgent,
            reads: true,
            writes: true,
            ..Demand::default()
        };
        multiplexer.turn(200 * MS, demand(500, false));
        multiplexer.turn(400 * MS, demand(0, true));
        multiplexer.turn(600 * MS, demand(5000, false));
        multiplexer.turn(800 * MS, demand(0, false));
        let shares: Vec<u32> = multiplexer.slices().map(|slice| slice.share_permille).collect();
        assert_eq!(shares, [100, 400, 154, 700]);
    }

    #[test]
    fn what_is_urgent_has_its_own_and_some_of_the_readers() {
        for (reads, writes, share) in
            [(100, 0, 154), (0, 0, 154), (100, 18, 232), (10, 18, 495), (1, 100, 700)]
        {
            let mut multiplexer = Multiplexer::new(MultiplexerSettings::default(), 0);
            let wave = |writes_queued| Demand {
                is_urgent: true,
                reads: true,
                writes: true,
                reads_queued: reads,
                writes_queued,
                ..Demand::default()
            };
            // The queue's maximum over the period counts, whatever the state of the flusher's wave
            // at its end.
            multiplexer.turn(50 * MS, wave(writes));
            multiplexer.turn(200 * MS, wave(writes / 9));
            assert_eq!(multiplexer.slice().share_permille, share, "{reads} {writes}");
            multiplexer.turn(900 * MS, wave(0));
            assert_eq!(multiplexer.slice().share_permille, 154, "what was long ago is forgotten");
        }
    }

    #[test]
    fn switched_off_it_holds_nobody_and_odd_settings_do_no_harm() {
        let off = MultiplexerSettings { is_on: false, ..Default::default() };
        let all = Demand {
            backlog_permille: 9,
            is_urgent: true,
            reads: true,
            writes: true,
            reads_queued: u32::MAX,
            writes_queued: u32::MAX,
        };
        let turn = Multiplexer::new(off, 0).turn(5, all);
        assert!(turn.reads && turn.writes);
        let odd = MultiplexerSettings {
            is_on: true,
            period_ns: 0,
            share_min_permille: 9000,
            share_max_permille: 0,
        };
        let mut multiplexer = Multiplexer::new(odd, u64::MAX - 5);
        for now_ns in u64::MAX - 5..u64::MAX {
            multiplexer.handle_served(true, u64::MAX);
            multiplexer.handle_served(false, u64::MAX);
            let turn = multiplexer.turn(now_ns, all);
            assert!(turn.reads || turn.writes);
        }
    }
}
