//! Workers as those who drive the machines and keep their moments.
//!
//! ```text
//!   other threads: event into the shard's inbox ──▶ a worker is told once, until it has looked
//!   worker, a turn: completions → events (all of them) → shards driven → operations → one submit
//! ```
//!
//! A thread that is no worker never drives a machine while there are workers: it would have to hand
//! each operation over, and this way it hands over one event. When the workers have been stopped it
//! does drive, and threads carry out what comes of it ([`crate::executor`]).
//!
//! Invariant: a shard whose inbox was pushed to is driven afterwards. `scheduled` is cleared before it is
//! driven, so a push either finds it cleared, and schedules, or is seen (`volume_tests` over both ways).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_engine::request::ShardIndex;
use braid_ring::{RingError, Settings, Wake, Worker, Workers};

use crate::clock::Clock;
use crate::core::{Core, Machine};
use crate::options::{Io, Options};
use crate::slate::Slate;
use crate::sync::{Arc, Weak};
use crate::timer::Arm;

/// The token of the array; shards have their index.
const ARRAY: u64 = u64::MAX;

/// Moments. The token is the place that [`crate::timer`] knows them by. It keeps no array: a moment may be far away.
struct AlarmPort(Weak<Core>);

/// The workers of a volume, and what they tell it by.
pub(crate) struct Drivers {
    pub(crate) workers: Arc<Workers>,
    /// Whether they are the volume's alone.
    is_own: bool,
    alarm: OnceLock<Arc<AlarmPort>>,
    /// Machines that a worker has been told to look at and has not looked at yet: shards, the array.
    scheduled: Vec<AtomicBool>,
}

impl Drivers {
    /// The workers that `options` ask for; none where threads are to do it all, or nothing has a descriptor. Nor in models:
    /// those run threads of their own, which no kernel knows.
    pub(crate) fn start(options: &Options, has_file: bool) -> Result<Option<Self>, RingError> {
        if options.io == Io::Threads || !has_file || cfg!(shuttle) {
            return Ok(None);
        }
        if let Some(workers) = &options.workers {
            return Ok(Some(Self::new(Arc::clone(workers), false, options.shards)));
        }
        match Workers::start(&Settings::default()) {
            Ok(workers) => Ok(Some(Self::new(Arc::new(workers), true, options.shards))),
            Err(error) if options.io == Io::Auto && error.is_lack() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn new(workers: Arc<Workers>, is_own: bool, shards: u16) -> Self {
        let scheduled = (0..=shards).map(|_| AtomicBool::new(false)).collect();
        Self { workers, is_own, alarm: OnceLock::new(), scheduled }
    }

    /// Says whom they serve, now that the core has its place.
    pub(crate) fn connect(&self, core: &Arc<Core>) {
        let is_first = self.alarm.set(Arc::new(AlarmPort(Arc::downgrade(core)))).is_ok();
        assert!(is_first, "a core is connected once");
    }

    /// Whether a worker has been told of a machine, which worker that is, and by which token.
    fn scheduling(&self, machine: Machine) -> (&AtomicBool, usize, u64) {
        match machine {
            Machine::Shard(ShardIndex(index)) => {
                let on = usize::from(index);
                (&self.scheduled[on], on, u64::from(index))
            }
            Machine::Array => {
                (self.scheduled.last().expect("the array has the last one"), 0, ARRAY)
            }
        }
    }

    /// Whether this thread is to drive machines itself.
    pub(crate) fn is_here(&self) -> bool {
        self.workers.current().is_some()
    }

    /// Has a worker drive `machine`; false when there are none any more.
    pub(crate) fn schedule(&self, core: &Arc<Core>, machine: Machine) -> bool {
        let (slot, on, token) = self.scheduling(machine);
        if slot.swap(true, Ordering::SeqCst) {
            return true;
        }
        let told = self.workers.wake(on, Arc::clone(core) as Arc<dyn Wake>, token);
        if told.is_err() {
            slot.store(false, Ordering::SeqCst);
        }
        told.is_ok()
    }

    /// The same for a worker that has just pushed a completion: once the others of this turn are told.
    pub(crate) fn put_off(&self, worker: &Worker, core: Arc<Core>, machine: Machine) {
        let (slot, _, token) = self.scheduling(machine);
        if !slot.swap(true, Ordering::SeqCst) {
            worker.afterwards(core, token);
        }
    }

    /// Has a worker wake the alarm at a moment; false when there are none any more.
    pub(crate) fn arm(&self, clock: &Clock, arm: Arm) -> bool {
        let alarm = self.alarm.get().expect("a core that is driven is connected");
        // A moment that cannot be counted up to does not come.
        let Some(at) = clock.at(arm.at) else { return true };
        let (alarm, token) = (Arc::clone(alarm), arm.place as u64);
        self.workers.wake_at(arm.place, at, alarm, token).is_ok()
    }

    /// Ends the workers, if they are the volume's alone.
    pub(crate) fn stop(&self) {
        if self.is_own {
            self.workers.stop();
        }
    }
}

impl Wake for Core {
    fn wake(self: Arc<Self>, _: &Worker, token: u64) {
        let machine = match token {
            ARRAY => Machine::Array,
            index => Machine::Shard(ShardIndex(u16::try_from(index).expect("one of our tokens"))),
        };
        let drivers = self.workers.as_ref().expect("only workers tell a core anything");
        // Before looking, so that whoever pushes from now on tells a worker again.
        drivers.scheduling(machine).0.store(false, Ordering::SeqCst);
        let mut slate = Slate::take();
        slate.machines.push_back(machine);
        self.drive_here(slate);
    }
}

impl Wake for AlarmPort {
    fn wake(self: Arc<Self>, _: &Worker, token: u64) {
        let Some(core) = self.0.upgrade() else { return };
        core.rang(usize::try_from(token).expect("one of our tokens"));
    }

    fn forgotten(self: Arc<Self>, _: u64) {
        let Some(core) = self.0.upgrade() else { return };
        core.keep_time_without_workers();
    }
}
