//! How fast jobs go: the rebuild governor ([`braid_pace`]) among threads.
//!
//! Where it stands: beside [`crate::turns`]. The thread that owns the array asks it at every turn while a job is there; threads
//! that serve clients leave how long their requests took. It wakes nothing itself: it says when it wants the array's next
//! turn at the latest.
//!
//! ```text
//!   clients' threads ──how long requests took──▶ counts, a copy for every few threads
//!        │                                          │ what is new in them, every 100 ms
//!        │ the first request after a silence        ▼
//!        └──▶ the array's turn: what the job began and ended ──▶ Governor ──▶ the job's allowance
//! ```
//!
//! # What it costs
//! Where no job is there, a request costs one relaxed load. Beside a job it costs two looks at the clock and two additions, to
//! memory that few other threads add to; no lock, no allocation, no call of the operating system. Counts are only ever added
//! to, so that the array's thread, which keeps what it saw last, takes nothing away while others count.
//!
//! Reads and writes are timed. A flush, a trim or zeroes take as long as what lies before them, or as what they cover, and say
//! little of what the job does to clients.

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

use braid_engine::Instant;
use braid_engine::array::{Array, JobAllowance, JobFlow, Passed};
use braid_geometry::SECTOR_BYTES;
use braid_pace::{Class, Governor, GovernorSettings, Latencies, Look, Phase};

use crate::clock::Clock;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// How often the governor hears how long requests took.
const SLICE_NS: u64 = 100_000_000;

/// Copies of the counts: threads that serve clients are few, and rarely more at once.
const COPIES: usize = 8;

/// Nothing is timed: there is no job.
const OFF: u8 = 0;
/// A job is there, and no clients. The first request is told of.
const SILENT: u8 = 1;
/// A job is there, and clients are.
const HEARD: u8 = 2;

/// One copy of the counts, apart from the others in memory.
#[repr(align(128))]
struct Counts([AtomicU32; Latencies::BUCKETS]);

/// The governor of an array's jobs, and what clients feel.
pub(crate) struct Pacing {
    state: AtomicU8,
    counts: Vec<Counts>,
    pacer: Mutex<Pacer>,
}

struct Pacer {
    settings: GovernorSettings,
    /// While a job is there.
    governor: Option<Governor>,
    /// What it was told of the job.
    told: JobFlow,
    /// The counts as they were last.
    seen: Vec<[u32; Latencies::BUCKETS]>,
    next_slice: Instant,
    /// What clients' threads were told last.
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

    /// A request of a client comes: the time, if it is to be known how long it takes.
    pub(crate) fn begins(&self, clock: &Clock) -> Option<Instant> {
        (self.state.load(Ordering::Relaxed) != OFF).then(|| clock.now())
    }

    /// Whether this request, which is timed, ends a silence: then the array's next turn must not wait.
    pub(crate) fn ends_silence(&self) -> bool {
        let is_silent = self.state.load(Ordering::Relaxed) == SILENT;
        let change =
            || self.state.compare_exchange(SILENT, HEARD, Ordering::AcqRel, Ordering::Relaxed);
        is_silent && change().is_ok()
    }

    /// A request that was timed has been answered.
    pub(crate) fn ended(&self, clock: &Clock, began: Instant) {
        let took_ns = clock.now().0.saturating_sub(began.0);
        let Counts(counts) = &self.counts[own_copy()];
        counts[Latencies::bucket_of(took_ns)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn settings(&self) -> GovernorSettings {
        self.pacer.lock().expect("looking does not panic").settings
    }

    /// From the array's next turn on.
    pub(crate) fn set(&self, now: Instant, settings: GovernorSettings) {
        let mut pacer = self.pacer.lock().expect("setting does not panic");
        pacer.settings = settings;
        if let Some(governor) = &mut pacer.governor {
            governor.set(settings, now.0);
        }
    }

    /// What the governor does; none while there is no job.
    pub(crate) fn look(&self) -> Option<Look> {
        self.pacer.lock().expect("looking does not panic").governor.as_ref().map(Governor::look)
    }

    /// A turn of the array, by its owner: tells the governor what the job did, and the job what it may. Gives when it wants the next
    /// turn, if a job is there. `under_way` gives how many requests of clients are.
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
            // What was counted until now was not beside this job.
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

    /// What was counted since the last time.
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
    /// Tells clients' threads what they are to do. One that ended a silence meanwhile is told again that there is one, and the next
    /// says so once more.
    fn say(&mut self, state: u8, heard: &AtomicU8) {
        if std::mem::replace(&mut self.state, state) != state || state == SILENT {
            heard.store(state, Ordering::Release);
        }
    }
}

/// What the job began and ended since the last time.
fn tell(governor: &mut Governor, now: Instant, told: &mut JobFlow, flow: &JobFlow) {
    let JobFlow { idle, owed } = std::mem::replace(told, *flow);
    for (class, before, after) in
        [(Class::Idle, idle, flow.idle), (Class::BestEffort, owed, flow.owed)]
    {
        let Passed { begun_sectors, ended_sectors } = before;
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

/// The copy that this thread counts in: threads take them in turns.
fn own_copy() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let take = |own: &Cell<Option<usize>>| {
        own.get().unwrap_or_else(|| {
            let copy = NEXT.fetch_add(1, Ordering::Relaxed) % COPIES;
            own.set(Some(copy));
            copy
        })
    };
    // A thread that is ending has none of its own any more.
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
        // A count that is full begins anew, and that is no end of requests.
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
