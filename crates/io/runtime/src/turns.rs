//! One multiplexer for all members of an array, and its input: the demand.
//!
//! Place in the flow: while the multiplexer is on, dispatchers ask it before they choose
//! ([`crate::executor`]). This file keeps the demand: the operations that wait at each member, the
//! flusher's backlog, and whether a client waits for the flusher.
//! ```text
//!   shards ──dirty sectors, stripes without memory────┐
//!   volume ──flushes and forced writes under way──────┤
//!   dispatchers ──what waits, at each member──────────┴─▶ Multiplexer ─▶ Turn, until when
//! ```
//! The array has one clock, so that the members of a stripe turn together. If reads or the flusher
//! do not use their time slice at a member, the other side gets it at once. Reads from the cache
//! never come here.
//!
//! The demand is a hint: a number that is a moment old makes a slice a little longer or shorter. No
//! wake-up depends on it: held operations wake at the end of the slice in any case
//! (`tests/scheduling.rs`: `what_is_held_goes_when_its_slice_comes`).

use braid_dispatch::{State, Turn};
use braid_elevator::{Demand, Multiplexer, MultiplexerSettings, Slice};
use braid_engine::request::ShardIndex;
use braid_geometry::SLOTS_MAX;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The operations at a member as its dispatcher reported last, or the sum over all members. One
/// word holds all three numbers, so that the sum matches the reports.
/// ```text
///   reads wait (one for each member) │ reads that are queued │ flusher's requests that are queued
///   bits 48 to 63                    │ 24 to 47              │ 0 to 23
/// ```
const WAITS: u32 = 48;
const READS: u32 = 24;
const QUEUED_MAX: u32 = (1 << 12) - 1;
const _: () = assert!(SLOTS_MAX as u64 * QUEUED_MAX as u64 <= 0xff_ffff, "sums fit");

/// Saturates each number, so that the sum fits for all members of the largest array.
fn pack(state: State) -> u64 {
    let (reads, writes) = state.queued;
    let queued = |count: u32| u64::from(count.min(QUEUED_MAX));
    u64::from(state.waits.reads) << WAITS | queued(reads) << READS | queued(writes)
}

/// The backlog that a shard reported last.
#[derive(Default)]
struct Backlog {
    dirty_sectors: AtomicU64,
    waiting: AtomicU64,
}

/// The multiplexer of one array, for many threads.
pub(crate) struct Turns {
    is_on: AtomicBool,
    multiplexer: Mutex<Multiplexer>,
    /// The operations at all members: the sum of their dispatchers' last reports.
    at_members: AtomicU64,
    backlogs: Vec<Backlog>,
    dirty_sectors_max: AtomicU64,
    /// Whether writes are acknowledged before the members have them.
    answers_early: AtomicBool,
    urgent: AtomicUsize,
}

impl Turns {
    pub(crate) fn new(settings: MultiplexerSettings, shards: usize) -> Self {
        Self {
            is_on: AtomicBool::new(settings.is_on),
            multiplexer: Mutex::new(Multiplexer::new(settings, 0)),
            at_members: AtomicU64::new(0),
            backlogs: (0..shards).map(|_| Backlog::default()).collect(),
            dirty_sectors_max: AtomicU64::new(0),
            answers_early: AtomicBool::new(false),
            urgent: AtomicUsize::new(0),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, settings: MultiplexerSettings) {
        self.multiplexer.lock().expect("taking turns does not panic").set(settings);
        self.is_on.store(settings.is_on, Ordering::SeqCst);
    }

    pub(crate) fn answers_early(&self) -> bool {
        self.answers_early.load(Ordering::Relaxed)
    }

    /// Sets whether writes are acknowledged early, and the limit of dirty sectors over all shards.
    pub(crate) fn set_cache(&self, answers_early: bool, sectors: u64) {
        self.answers_early.store(answers_early, Ordering::Relaxed);
        self.dirty_sectors_max.store(sectors, Ordering::Relaxed);
    }

    /// Notes a shard's dirty sectors, and its stripes that wait for memory.
    pub(crate) fn note(&self, shard: ShardIndex, dirty_sectors: u64, waiting: usize) {
        let backlog = &self.backlogs[usize::from(shard.0)];
        backlog.dirty_sectors.store(dirty_sectors, Ordering::Relaxed);
        backlog.waiting.store(waiting as u64, Ordering::Relaxed);
    }

    /// Notes that a client waits for the flusher from now on.
    pub(crate) fn urge(&self) {
        self.urgent.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a client no longer waits for the flusher.
    pub(crate) fn appease(&self) {
        self.urgent.fetch_sub(1, Ordering::Relaxed);
    }

    /// Replaces the last report of a member's dispatcher (operations waiting and in flight) by a
    /// new one. `known` holds the previous report.
    pub(crate) fn tell(&self, known: &AtomicU64, state: State) {
        // While the multiplexer is off, no dispatcher asks it, and the demand is zero.
        let now = if self.is_on() { pack(state) } else { 0 };
        let before = known.load(Ordering::Relaxed);
        if before != now {
            known.store(now, Ordering::Relaxed);
            // Each number in the sum stays a sum of reports, since only values that were added are
            // subtracted.
            self.at_members.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    pub(crate) fn turn(&self, now_ns: u64, known: &AtomicU64, state: State) -> Turn {
        if !self.is_on() {
            return Turn { reads: true, writes: true, until_ns: now_ns };
        }
        self.tell(known, state);
        let demand = self.demand();
        let mut multiplexer = self.multiplexer.lock().expect("taking turns does not panic");
        multiplexer.turn(now_ns, demand)
    }

    fn demand(&self) -> Demand {
        // The fullest shard decides: each shard has a share of the limit, and a shard at its share
        // makes its writers wait.
        let dirty = self.backlogs.iter().map(|one| one.dirty_sectors.load(Ordering::Relaxed));
        let dirtiest = dirty.max().unwrap_or(0);
        let each = self.dirty_sectors_max.load(Ordering::Relaxed) / self.backlogs.len() as u64;
        let each = each.max(1);
        // A piece that waits for a stripe waits for the flusher, which must write a stripe to free
        // it.
        let is_full = self.backlogs.iter().any(|one| one.waiting.load(Ordering::Relaxed) > 0);
        let backlog = if is_full { 1000 } else { (dirtiest.saturating_mul(1000) / each).min(1000) };
        let at_members = self.at_members.load(Ordering::Relaxed);
        let part = |from: u32| u32::try_from(at_members >> from & 0xff_ffff).expect("24 bits");
        Demand {
            backlog_permille: u32::try_from(backlog).expect("a thousand at most"),
            is_urgent: self.urgent.load(Ordering::Relaxed) > 0,
            reads: part(WAITS) > 0,
            writes: part(0) > 0,
            reads_queued: part(READS),
            writes_queued: part(0),
        }
    }

    pub(crate) fn served(&self, is_read: bool, busy_ns: u64) {
        if self.is_on() {
            let mut multiplexer = self.multiplexer.lock().expect("taking turns does not panic");
            multiplexer.handle_served(is_read, busy_ns);
        }
    }

    /// The multiplexer's last periods, the oldest first.
    pub(crate) fn slices(&self) -> Vec<Slice> {
        let multiplexer = self.multiplexer.lock().expect("taking turns does not panic");
        multiplexer.slices().copied().collect()
    }
}
