//! The speed of jobs: the rebuild governor ([`braid_pace`]), used from many threads.
//!
//! Place in the flow: next to [`crate::turns`]. While a job exists, the thread that owns the array
//! calls this file at every turn. Threads that serve clients count how long their requests took.
//! This file wakes no thread itself: it returns the latest moment for the array's next turn.
//! ```text
//!   clients' threads ──how long requests took──▶ counts, a copy for every few threads
//!        │                                          │ what is new in them, every 100 ms
//!        │ the first request after a silence        ▼
//!        └──▶ the array's turn: what the job began and ended ──▶ Governor ──▶ the job's allowance
//! ```
//!
//! # Cost
//! Without a job, a request costs one relaxed load. While a job runs it costs two reads of the
//! clock and two additions, to memory that few other threads add to. It takes no lock, no
//! allocation, no system call. Counts only grow. The array's thread keeps the counts that it read
//! last, and resets nothing.
//!
//! Reads and writes are timed. A flush takes as long as the writes before it, a trim or zeroes as
//! long as the range. So these say little of the job's effect on clients.

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

use braid_engine::Instant;
use braid_engine::array::{Array, ClassFlow, JobAllowance, JobFlow};
use braid_geometry::SECTOR_BYTES;
use braid_pace::{Class, Governor, GovernorSettings, GovernorState, Latencies, Phase};

use crate::clock::Clock;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Interval in which the governor receives the latencies of requests.
const SLICE_NS: u64 = 100_000_000;

/// Number of copies of the counts. More are not needed: few threads serve clients at once.
const COPIES: usize = 8;

/// No job exists, so nothing is timed.
const OFF: u8 = 0;
/// A job runs and no client sends requests. The first request reports itself.
const SILENT: u8 = 1;
/// A job runs while clients send requests.
const HEARD: u8 = 2;

/// One copy of the counts, on cache lines of its own.
#[repr(align(128))]
struct Counts([AtomicU32; Latencies::BUCKETS]);

/// The governor of an array's jobs, and the latencies that clients see.
pub(crate) struct Pacing {
    state: AtomicU8,
    counts: Vec<Counts>,
    pacer: Mutex<Pacer>,
}

struct Pacer {
    settings: GovernorSettings,
    /// Present while a job runs.
    governor: Option<Governor>,
    /// The job's totals when the governor last received them.
    told: JobFlow,
    /// The counts when they were last read.
    seen: Vec<[u32; Latencies::BUCKETS]>,
    next_slice: Instant,
    /// The pacing state that clients' threads last received: `OFF`, `SILENT` or `HEARD`.
    state: u8,
}

impl Pacing {
    pub(crate) fn new(settings: GovernorSettings) -> Self {
        let counts = (0..COPIES).map(|_| Counts(std::array::from_fn(|_| AtomicU32::new(0))));
        let pacer = Pacer {
            settings,
            governor: None,
            told: JobFlow::default(),
            seen: vec![[0; Latencies::BUCKETS]; COPIES],
            next_slice: Instant::default(),
            state: OFF,
        };
        Self { state: AtomicU8::new(OFF), counts: counts.collect(), pacer: Mutex::new(pacer) }
    }

    /// Begins a client's request. Returns the time if the request is timed.
    pub(crate) fn begins(&self, clock: &Clock) -> Option<Instant> {
        (self.state.load(Ordering::Relaxed) != OFF).then(|| clock.now())
    }

    /// Whether this timed request is the first after a silence. If so, the array's next turn must
    /// not wait.
    pub(crate) fn ends_silence(&self) -> bool {
        let is_silent = self.state.load(Ordering::Relaxed) == SILENT;
        let change =
            || self.state.compare_exchange(SILENT, HEARD, Ordering::AcqRel, Ordering::Relaxed);
        is_silent && change().is_ok()
    }

    pub(crate) fn ended(&self, clock: &Clock, began: Instant) {
        let took_ns = clock.now().0.saturating_sub(began.0);
        let Counts(counts) = &self.counts[own_copy()];
        counts[Latencies::bucket_of(took_ns)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn settings(&self) -> GovernorSettings {
        self.pacer.lock().expect("looking does not panic").settings
    }

    /// Changes the settings from the array's next turn on.
    pub(crate) fn set(&self, now: Instant, settings: GovernorSettings) {
        let mut pacer = self.pacer.lock().expect("setting does not panic");
        pacer.settings = settings;
        if let Some(governor) = &mut pacer.governor {
            governor.set(settings, now.0);
        }
    }

    /// The governor's state; `None` without a job.
    pub(crate) fn look(&self) -> Option<GovernorState> {
        self.pacer.lock().expect("looking does not panic").governor.as_ref().map(Governor::look)
    }

    /// A turn of the array, by its owner: reports the job's flow to the governor, and the allowance
    /// to the job. Returns the latest moment for the next turn, while a job runs. `under_way`
    /// counts the requests of clients in flight.
    pub(crate) fn turn(
        &self,
        now: Instant,
        array: &mut Array,
        under_way: impl FnOnce() -> usize,
    ) -> Option<Instant> {
        let mut pacer = self.pacer.lock().expect("pacing does not panic");
        let pacer = &mut *pacer;
        if array.job().is_none() {
            if pacer.governor.take().is_some() {
                pacer.say(OFF, &self.state);
            }
            pacer.told = array.job_flow();
            return None;
        }
        if pacer.governor.is_none() {
            pacer.governor = Some(Governor::new(pacer.settings, now.0));
            // Counts up to now belong to the time before this job, so skip them.
            self.gather(&mut pacer.seen);
            pacer.next_slice = Instant(now.0 + SLICE_NS);
            pacer.say(SILENT, &self.state);
        }
        let governor = pacer.governor.as_mut().expect("just seen to");
        tell(governor, now, &mut pacer.told, &array.job_flow());
        if pacer.state == SILENT && self.state.load(Ordering::Acquire) == HEARD {
            governor.handle_client(now.0);
        }
        if pacer.next_slice <= now {
            let latencies = self.gather(&mut pacer.seen);
            governor.handle_slice(now.0, &latencies, under_way() as u64);
            pacer.next_slice = Instant(now.0 + SLICE_NS);
        }
        let allowance = governor.poll(now.0);
        array.handle_job_allowance(
            now,
            JobAllowance {
                idle_sectors: allowance.idle_bytes / SECTOR_BYTES,
                owed_sectors: allowance.owed_bytes / SECTOR_BYTES,
            },
        );
        tell(governor, now, &mut pacer.told, &array.job_flow());
        let state = if governor.look().phase == Phase::Idle { SILENT } else { HEARD };
        pacer.say(state, &self.state);
        Some(Instant(allowance.ask_at_ns).min(pacer.next_slice))
    }

    fn gather(&self, seen: &mut [[u32; Latencies::BUCKETS]]) -> Latencies {
        let mut latencies = Latencies::default();
        for (Counts(counts), seen) in self.counts.iter().zip(seen) {
            for (bucket, (count, seen)) in counts.iter().zip(seen).enumerate() {
                let count = count.load(Ordering::Relaxed);
                let before = std::mem::replace(seen, count);
                if count != before {
                    latencies.record_counted(bucket, count.wrapping_sub(before));
                }
            }
        }
        latencies
    }
}

impl Pacer {
    /// Publishes the pacing state for clients' threads. If a client ended a silence meanwhile,
    /// `SILENT` is set again, so that the next request reports itself once more.
    fn say(&mut self, state: u8, heard: &AtomicU8) {
        if std::mem::replace(&mut self.state, state) != state || state == SILENT {
            heard.store(state, Ordering::Release);
        }
    }
}

/// Reports to the governor the sectors that the job began and ended since the last call.
fn tell(governor: &mut Governor, now: Instant, told: &mut JobFlow, flow: &JobFlow) {
    let JobFlow { idle, owed } = std::mem::replace(told, *flow);
    for (class, before, after) in
        [(Class::Idle, idle, flow.idle), (Class::BestEffort, owed, flow.owed)]
    {
        let ClassFlow { begun_sectors, ended_sectors } = before;
        let begun = (after.begun_sectors - begun_sectors) * SECTOR_BYTES;
        let ended = (after.ended_sectors - ended_sectors) * SECTOR_BYTES;
        if begun > 0 {
            governor.handle_begun(now.0, class, begun);
        }
        if ended > 0 {
            governor.handle_done(now.0, class, ended);
        }
    }
}

thread_local! {
    static OWN_COPY: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of the copy of the counts that this thread uses. New threads get the copies in turn.
fn own_copy() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let take = |own: &Cell<Option<usize>>| {
        own.get().unwrap_or_else(|| {
            let copy = NEXT.fetch_add(1, Ordering::Relaxed) % COPIES;
            own.set(Some(copy));
            copy
        })
    };
    // A thread that is ending has lost its own number, and counts in copy 0.
    OWN_COPY.try_with(take).unwrap_or(0)
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_gathered_once() {
        let (pacing, clock) = (Pacing::new(GovernorSettings::default()), Clock::new());
        let mut seen = vec![[0; Latencies::BUCKETS]; COPIES];
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..50).for_each(|_| pacing.ended(&clock, Instant(0))));
            }
        });
        assert_eq!(pacing.gather(&mut seen).total(), 150);
        assert_eq!(pacing.gather(&mut seen).total(), 0);
        // A count that overflows wraps around, and requests go on.
        let bucket = Latencies::bucket_of(1000);
        pacing.counts[0].0[bucket].store(u32::MAX, Ordering::Relaxed);
        pacing.gather(&mut seen);
        pacing.counts[0].0[bucket].fetch_add(3, Ordering::Relaxed);
        assert_eq!(pacing.gather(&mut seen).total(), 3);
    }

    #[test]
    fn one_request_ends_a_silence() {
        let (pacing, clock) = (Pacing::new(GovernorSettings::default()), Clock::new());
        assert!(pacing.begins(&clock).is_none() && !pacing.ends_silence(), "there is no job");
        pacing.pacer.lock().expect("nothing panics").say(SILENT, &pacing.state);
        assert!(pacing.begins(&clock).is_some());
        assert_eq!([pacing.ends_silence(), pacing.ends_silence()], [true, false]);
    }
}
