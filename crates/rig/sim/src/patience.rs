//! How long requests wait before a disk: the elevator's order, and the multiplexer's holds.
//!
//! A simulated disk takes as long as the seed says, so no fixed limit in nanoseconds makes sense.
//! The checks here add up to a bound instead. An aged request goes before every younger one, so it
//! waits only for earlier ones and for the disk. The multiplexer lets a held request go within
//! [`HELD_PERIODS_MAX`] periods. No dispatcher idles while a request is free to go. The simulator
//! does all of this arithmetic itself, by the rules in the headers of elevator and multiplexer.
//!
//! - No request of any class passes an aged request.
//! - An expired request is passed by fewer than a batch of younger requests of its class and
//!   direction.
//! - A write is passed by at most as many batches of reads of its class as the settings allow.
//! - The multiplexer lets reads or writes (a *side*) go, names its next moment within a period,
//!   gives idle slices away, and holds no side long.
//! - An urgent side gets more than the least share.

use braid_elevator::{
    Class, Demand, Depth, Directions, Elevator, Entry, Multiplexer, MultiplexerSettings, Operation,
    Settings, Turn,
};

/// How many periods a side (reads, or writes) is held at most, without the multiplexer's own delay:
/// one and a half, the time until its next run, and any turn that it owed to the other side.
const HELD_PERIODS_MAX: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) shard: usize,
    pub(crate) member: usize,
    pub(crate) is_durable: bool,
    is_read: bool,
    class: Class,
    came_ns: u64,
    /// The elevator had no policy when the request came, so the checks of order skip the request.
    is_straight: bool,
    /// How many younger requests of its class and direction passed this request since it expired,
    /// or since an older request was dispatched.
    passed: u32,
    /// For a write: how many reads of its class were dispatched before it.
    yielded: u32,
}

impl QueuedRequest {
    pub(crate) fn new(
        (shard, member): (usize, usize),
        entry: &Entry,
        (came_ns, is_straight): (u64, bool),
    ) -> Self {
        Self {
            shard,
            member,
            is_durable: entry.operation == Operation::Write { durable: true },
            is_read: entry.operation == Operation::Read,
            class: entry.class,
            came_ns,
            is_straight,
            passed: 0,
            yielded: 0,
        }
    }

    fn may_go(&self, settings: &Settings, (allowed, out): (Directions, (u32, u32))) -> bool {
        has_tag(settings, out, self.is_read)
            && if self.is_read { allowed.reads } else { allowed.writes }
    }

    fn is_aged(&self, settings: &Settings, now_ns: u64) -> bool {
        self.came_ns.saturating_add(settings.aging_ns) <= now_ns
    }

    fn is_expired(&self, settings: &Settings, now_ns: u64) -> bool {
        let expiry_ns =
            if self.is_read { settings.read_expiry_ns } else { settings.write_expiry_ns };
        self.came_ns.saturating_add(expiry_ns) <= now_ns
    }
}

/// Whether a read (or write) may still be dispatched while so many reads and writes are at the
/// disk.
fn has_tag(settings: &Settings, (reads, writes): (u32, u32), is_read: bool) -> bool {
    let allows = |depth: Depth| {
        let (own, kept) =
            if is_read { (reads, depth.kept_for_writes) } else { (writes, depth.kept_for_reads) };
        let own_max = depth.total.saturating_sub(kept).max(1);
        reads + writes == 0 || reads + writes < depth.total && own < own_max
    };
    // Two depths are possible. Earlier requests decide which one is in force, so both depths must
    // allow the dispatch.
    allows(settings.depth) && allows(settings.depth_alone)
}

/// For one member: the largest batch, how many batches of reads may pass a write, and the longest
/// hold.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    batch: u32,
    starved: u32,
    hold_ns: u64,
}

/// The state of a run that the checks of order and holds need.
#[derive(Debug)]
pub(crate) struct Patience {
    settings: MultiplexerSettings,
    /// The longest period that was set in this run, since waiting requests can have begun under it.
    period_max_ns: u64,
    /// By member: the loosest limits so far, since waiting requests can have begun under them.
    limits: Vec<Limits>,
    /// For reads, and for writes: since when they are held, and the multiplexer's total delay then.
    held_since: [Option<(u64, u64)>; 2],
    /// By member: since when its reads, and its writes, are held although a tag is free, and the
    /// multiplexer's total delay then.
    held_at: Vec<[Option<(u64, u64)>; 2]>,
    late_ns: u64,
    until_ns: u64,
    /// Start of the last completed period.
    ended_ns: Option<u64>,
    /// The current period's share must exceed this value. `None` if nothing was urgent when the
    /// period began, or the settings leave no room above the least share.
    share_above: Option<u32>,
}

impl Patience {
    pub(crate) fn new(settings: MultiplexerSettings, members: usize) -> Self {
        Self {
            settings,
            period_max_ns: settings.period_ns,
            limits: vec![Limits::default(); members],
            held_since: [None; 2],
            held_at: vec![[None; 2]; members],
            late_ns: 0,
            until_ns: u64::MAX,
            ended_ns: None,
            share_above: None,
        }
    }

    pub(crate) fn multiplexer_set(&mut self, settings: MultiplexerSettings) {
        self.settings = settings;
        self.period_max_ns = self.period_max_ns.max(settings.period_ns);
    }

    pub(crate) fn elevator_set(&mut self, member: usize, elevator: &Elevator) {
        let Settings { batch, writes_starved, hold_max_ns, .. } = *elevator.settings();
        let before = &mut self.limits[member];
        let before = if elevator.is_empty() { Limits::default() } else { *before };
        self.limits[member] = Limits {
            batch: before.batch.max(batch),
            starved: before.starved.max(writes_starved),
            hold_ns: before.hold_ns.max(hold_max_ns),
        };
    }

    pub(crate) fn served(&mut self, is_read: bool) {
        self.held_since[usize::from(!is_read)] = None;
    }

    /// Checks the multiplexer's decision whether reads, writes or both may go.
    pub(crate) fn check_turn(
        &mut self,
        now_ns: u64,
        demand: Demand,
        turn: Turn,
        multiplexer: &Multiplexer,
    ) {
        let period_ns = self.period_max_ns.max(1);
        let latest_ns = now_ns.saturating_add(period_ns);
        let is_near = turn.until_ns > now_ns && turn.until_ns <= latest_ns;
        assert!(is_near, "{turn:?} at {now_ns}: the dispatcher is not woken in time");
        assert!(turn.reads || turn.writes, "neither side has the turn");
        let is_alone = demand.reads != demand.writes;
        let goes = !is_alone || (turn.reads || !demand.reads) && (turn.writes || !demand.writes);
        assert!(goes, "a side waits during an idle slice: {demand:?} {turn:?}");
        self.late_ns += now_ns.saturating_sub(self.until_ns);
        self.until_ns = turn.until_ns;
        for (side, is_held) in
            [demand.reads && !turn.reads, demand.writes && !turn.writes].into_iter().enumerate()
        {
            let late_ns = self.late_ns;
            let since = &mut self.held_since[side];
            *since = is_held.then(|| since.unwrap_or((now_ns, late_ns)));
            let Some((since_ns, late_before_ns)) = *since else { continue };
            let held_ns = (now_ns - since_ns).saturating_sub(late_ns - late_before_ns);
            assert!(
                held_ns <= HELD_PERIODS_MAX * period_ns,
                "a side is held for {held_ns} ns, a period is {period_ns}: {demand:?} {turn:?}"
            );
        }
        self.check_share(demand, multiplexer);
    }

    /// Checks that writes get more than the least share, if they were urgent when the period began.
    fn check_share(&mut self, demand: Demand, multiplexer: &Multiplexer) {
        let Some(ended) = multiplexer.slices().last() else { return };
        if self.ended_ns == Some(ended.start_ns) {
            return;
        }
        // A period has ended. The next one begins with the current demand.
        self.ended_ns = Some(ended.start_ns);
        let share = ended.share_permille;
        let is_enough = self.share_above.is_none_or(|least| share > least);
        assert!(is_enough, "a client waits for the flusher, whose share is {share} of 1000");
        let MultiplexerSettings { share_min_permille, share_max_permille, .. } = self.settings;
        let most = share_max_permille.min(999);
        let differs = most > share_min_permille.saturating_add(10);
        self.share_above = (demand.is_urgent && differs).then_some(share_min_permille);
    }

    /// The dispatch to a disk has ended: checks that no waiting request was free to go, and that no
    /// request is held for long.
    pub(crate) fn check_left(
        &mut self,
        now_ns: u64,
        member: usize,
        elevator: &Elevator,
        allowed: Directions,
    ) {
        let waits = elevator.waits();
        let could = |is_read| has_tag(elevator.settings(), elevator.out(), is_read);
        let could = [waits.reads && could(true), waits.writes && could(false)];
        let is_left = could[0] && allowed.reads || could[1] && allowed.writes;
        assert!(!is_left, "a request waits without need: {waits:?} wait, {:?} out", elevator.out());
        // The multiplexer notices an exceeded hold when it runs next, within a period.
        let most_ns = self.limits[member].hold_ns.saturating_add(self.period_max_ns);
        for (since, is_held) in self.held_at[member].iter_mut().zip(could) {
            *since = is_held.then(|| since.unwrap_or((now_ns, self.late_ns)));
            let Some((since_ns, late_before_ns)) = *since else { continue };
            let held_ns = (now_ns - since_ns).saturating_sub(self.late_ns - late_before_ns);
            assert!(
                held_ns <= most_ns,
                "a side is held for {held_ns} ns at one member: {could:?} {allowed:?}, {:?}",
                self.settings
            );
        }
    }

    /// Checks the order when requests `gone` are dispatched to a disk while `others` wait for that
    /// disk.
    pub(crate) fn check_order<'a>(
        &mut self,
        (now_ns, settings): (u64, &Settings),
        free: (Directions, (u32, u32)),
        gone: &[&QueuedRequest],
        others: impl Iterator<Item = &'a mut QueuedRequest>,
    ) {
        if gone.iter().any(|one| one.is_straight) {
            return;
        }
        let oldest = gone.iter().min_by_key(|one| one.came_ns).expect("a vector has parts");
        let is_aged = oldest.is_aged(settings, now_ns);
        self.held_at[oldest.member][usize::from(!oldest.is_read)] = None;
        let limits = self.limits[oldest.member];
        for other in others.filter(|other| !other.is_straight) {
            let is_like = other.class == oldest.class && other.is_read == oldest.is_read;
            if other.class == oldest.class && !oldest.is_read {
                other.yielded = 0;
            }
            let is_passed = other.came_ns < oldest.came_ns;
            // An older request of this kind has gone first, even if no tag was free for `other`: a
            // new batch begins.
            if is_like && !is_passed {
                other.passed = 0;
            }
            if !other.may_go(settings, free) {
                continue;
            }
            if other.is_aged(settings, now_ns) {
                assert!(!is_passed, "an aged request is passed over: {other:?} by {oldest:?}");
            }
            if is_like && is_passed && other.is_expired(settings, now_ns) {
                other.passed += 1;
                assert!(
                    other.passed < limits.batch,
                    "an expired request is passed over: {other:?}"
                );
            }
            if other.class == oldest.class && oldest.is_read && !other.is_read && !is_aged {
                other.yielded += 1;
                let most = (limits.starved + 1) * limits.batch;
                assert!(other.yielded <= most, "a write is starved by reads: {other:?}");
            }
        }
    }
}
