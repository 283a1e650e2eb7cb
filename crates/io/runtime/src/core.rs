//! The part of an array that all its threads share, and its use: look a shard up, arm the alarm.
//!
//! Place in the flow: above the parts that know nothing of each other (machines, memory, members,
//! requests, the alarm). Below all that works with several of them: the executor, the steps of
//! requests, the loop. The core drives nothing itself.

use std::sync::OnceLock;

use braid_dispatch::Combiner;
use braid_engine::Instant;
use braid_engine::array::{Array, ArrayView, Notice};
use braid_engine::request::{Regions, ShardIndex};
use braid_engine::{Patience, Shard, SitOut, Tuning};
use braid_member::Sentinel;
use braid_ondisk::{CopiedWindow, ReshapePoint};
use braid_parity::Kernel;

use crate::alarm::{Alarm, Arm, LOOK_INTERVAL};
use crate::arena::ShardMemory;
use crate::border::BorderGate;
use crate::cache_file::CacheFile;
use crate::clock::Clock;
use crate::events::{ArrayEvent, Machine, ShardEvent};
use crate::hand_over::HandOver;
use crate::log;
use crate::looks::Looks;
use crate::members::Members;
use crate::pacing::Pacing;
use crate::pending_request::PendingRequest;
use crate::requests::Requests;
use crate::scheduling::Scheduling;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Condvar, Mutex, thread};
use crate::turns::Turns;
use crate::updates::Updates;
use crate::waiter::InFlight;
use crate::watch::Watch;
use crate::window_copy::WindowCopy;
use crate::workers::Drivers;
use crate::write_admission::WriteAdmission;

pub(crate) struct ShardCell {
    pub(crate) combiner: Combiner<Shard, ShardEvent>,
    pub(crate) memory: ShardMemory,
    /// Maximum number of computations that run before their results are written; at least one.
    pub(crate) computations_max: usize,
}

/// The requests of clients that have not ended.
pub(crate) struct Clients {
    pub(crate) in_flight: InFlight,
    pub(crate) hand_over: HandOver,
    /// Decides which requests that change the array may begin.
    pub(crate) write_admission: WriteAdmission<PendingRequest>,
    pub(crate) regions: Regions,
    /// The border between the two shapes, if the array was opened during a reshape.
    pub(crate) border: Option<BorderGate>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) failures: log::Failures,
}

impl Clients {
    pub(crate) fn new(regions: Regions, hand_over: HandOver) -> Self {
        let (in_flight, write_admission, requests, failures) = Default::default();
        let border = regions.is_reshaping().then(|| BorderGate::new(regions));
        Self { in_flight, hand_over, write_admission, regions, border, requests, failures }
    }
}

pub(crate) struct Core {
    pub(crate) shards: Vec<ShardCell>,
    pub(crate) array: Combiner<Array, ArrayEvent>,
    pub(crate) members: Members,
    /// The newest view of the array, for code that only reads it.
    pub(crate) view: Mutex<Arc<ArrayView>>,
    pub(crate) clients: Clients,
    pub(crate) kernel: &'static Kernel,
    pub(crate) clock: Clock,
    pub(crate) alarm: Alarm,
    /// Whether members are looked at periodically.
    pub(crate) looks: Looks,
    pub(crate) turns: Turns,
    pub(crate) pacing: Pacing,
    pub(crate) scheduling: Mutex<Scheduling>,
    pub(crate) watch: Watch,
    pub(crate) end: End,
    /// Times of superblock updates, and the last update that all members recorded.
    pub(crate) updates: Updates,
    /// Keeps copies of acknowledged writes beyond the process.
    pub(crate) cache_file: Option<Arc<CacheFile>>,
    /// The file for the copy of the part that a reshape moves next.
    pub(crate) window_copy: Option<Arc<WindowCopy>>,
    pub(crate) copied_window: Mutex<Option<CopiedWindow>>,
    /// The reshape under way, as it was when the array was opened.
    pub(crate) reshape_point: Option<ReshapePoint>,
    /// Held while the operator changes the membership, so that changes happen one at a time.
    pub(crate) membership: Mutex<()>,
    pub(crate) tuning: Mutex<Tuning>,
    /// When a slow member sits out, as the operator has set it.
    pub(crate) sit_out: Mutex<SitOut>,
    /// How long the array waits for members, as the operator has set it.
    pub(crate) patience: Mutex<Patience>,
    /// The workers, if io_uring is used.
    pub(crate) workers: Option<Drivers>,
}

/// Whether and how the array has stopped, and the threads that end with it.
#[derive(Default)]
pub(crate) struct End {
    clean: Mutex<Option<bool>>,
    /// Whether a successor takes the array over, so that the stop is not reported.
    has_successor: AtomicBool,
    changed: Condvar,
    /// Watches for members that vanish while the checks of members rest; present once a watch was
    /// requested.
    pub(crate) sentinel: OnceLock<Arc<Sentinel>>,
    /// The alarm's thread, if no worker keeps the time, and the sentinel's thread.
    pub(crate) threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl End {
    pub(crate) fn set(&self, clean: bool) {
        *self.clean.lock().expect("setting does not panic") = Some(clean);
        if flaw::has(Flaw::EndWakesOne) {
            return self.changed.notify_one();
        }
        self.changed.notify_all();
    }

    /// Notes that the array is about to be opened anew: its stop is not reported.
    pub(crate) fn expect_successor(&self) {
        self.has_successor.store(true, Ordering::Release);
    }

    /// Whether the notice is not reported: it announces the stop of an array that is opened anew.
    pub(crate) fn is_no_news(&self, notice: &Notice) -> bool {
        matches!(notice, Notice::Stopped { .. }) && self.has_successor.load(Ordering::Acquire)
    }

    /// Waits for the array to stop; returns whether its superblocks are clean.
    pub(crate) fn wait(&self) -> bool {
        let guard = self.clean.lock().expect("setting does not panic");
        let done = self.changed.wait_while(guard, |clean| clean.is_none());
        done.expect("setting does not panic").unwrap_or(false)
    }

    pub(crate) fn stop_hearing(&self) {
        self.sentinel.get().inspect(|sentinel| sentinel.end());
    }

    pub(crate) fn join(&self) {
        let next = || self.threads.lock().expect("starting does not panic").pop();
        while let Some(thread) = next() {
            thread.join().expect("a thread of an array does not panic");
        }
    }
}

/// Ends the process when a thread panics inside a machine. The machine's effects are lost then, so
/// requests would hang for ever; the on-disk format is made to survive a crash.
///
/// A thread that was panicking before and drops its volume does not count: it stops the array in
/// order.
pub(crate) struct AbortOnPanic {
    was_panicking: bool,
}

impl AbortOnPanic {
    pub(crate) fn new() -> Self {
        Self { was_panicking: std::thread::panicking() }
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        // A model must report a failure, not end the process.
        if std::thread::panicking() && !self.was_panicking && !cfg!(shuttle) {
            std::process::abort();
        }
    }
}

impl Core {
    pub(crate) fn shard(&self, index: ShardIndex) -> &ShardCell {
        &self.shards[usize::from(index.0)]
    }

    /// Changes the tuning of all shards. Returns the shards to drive, which received the tunings in
    /// order.
    pub(crate) fn tune(&self, change: impl FnOnce(&mut Tuning)) -> Vec<Machine> {
        let mut tuning = self.tuning.lock().expect("setting does not panic");
        let before = *tuning;
        change(&mut tuning);
        if *tuning == before {
            return Vec::new();
        }
        let told = (0u16..).map(ShardIndex).zip(&self.shards).map(|(index, cell)| {
            cell.combiner.push(ShardEvent::Tuning(*tuning));
            Machine::Shard(index)
        });
        told.collect()
    }

    /// Notes that an operation was given to a member, and resumes the checks of members if they
    /// rested.
    pub(crate) fn note_asked(&self) {
        if self.looks.note_asked() {
            self.set_next_look();
        }
    }

    pub(crate) fn set_next_look(&self) {
        let interval_ns = u64::try_from(LOOK_INTERVAL.as_nanos()).expect("half a second");
        self.arm(self.alarm.set_look(Instant(self.clock.now().0 + interval_ns)));
    }

    pub(crate) fn arm(&self, arm: Option<Arm>) {
        let Some(arm) = arm else { return };
        let is_kept = self.workers.as_ref().is_some_and(|drivers| drivers.arm(&self.clock, arm));
        if !is_kept {
            self.alarm.keep_without_workers();
        }
    }
}
