//! The workers of a volume: the worker that drives a machine, and the worker that sleeps for a
//! moment.
//!
//! A token names a machine to a worker. A worker is woken once for a machine, and not again before
//! it has looked at the machine. Layers above supply the handlers ([`Wake`]) that drive a machine
//! or act on a moment; this file only knows tokens.
//!
//! Invariant: a shard whose inbox was pushed to is driven afterwards. `scheduled` is cleared before
//! the shard is driven. So a push either finds the flag cleared, and schedules the shard, or the
//! drive sees the pushed event (`volume_tests` over both ways).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_engine::request::ShardIndex;
use braid_ring::{RingError, Settings, Wake, Worker, Workers};

use crate::alarm::Arm;
use crate::clock::Clock;
use crate::events::Machine;
use crate::options::{Io, Options};
use crate::sync::Arc;

/// The token of the array. The token of a shard is its index.
const ARRAY: u64 = u64::MAX;

/// The workers of a volume, and the handlers that they call.
pub(crate) struct Drivers {
    pub(crate) workers: Arc<Workers>,
    /// Whether the workers belong to this volume alone.
    is_own: bool,
    /// The handler that acts on moments. Its token is the place in [`crate::alarm`].
    alarm: OnceLock<Arc<dyn Wake>>,
    /// For each shard, then for the array: whether a worker was woken for the machine and has not
    /// looked at it yet.
    scheduled: Vec<AtomicBool>,
}

impl Drivers {
    /// The workers that `options` ask for. `None` if threads do all the work, or no member has a
    /// descriptor. `None` in models too: they run threads of their own, which no kernel knows.
    pub(crate) fn start(
        options: &Options,
        (has_file, shards): (bool, u16),
    ) -> Result<Option<Self>, RingError> {
        if options.io == Io::Threads || !has_file || cfg!(shuttle) {
            return Ok(None);
        }
        if let Some(workers) = &options.workers {
            return Ok(Some(Self::new(Arc::clone(workers), false, shards)));
        }
        match Workers::start(&Settings::default()) {
            Ok(workers) => Ok(Some(Self::new(Arc::new(workers), true, shards))),
            Err(error) if options.io == Io::Auto && error.is_lack() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn new(workers: Arc<Workers>, is_own: bool, shards: u16) -> Self {
        let scheduled = (0..=shards).map(|_| AtomicBool::new(false)).collect();
        Self { workers, is_own, alarm: OnceLock::new(), scheduled }
    }

    pub(crate) fn connect(&self, alarm: Arc<dyn Wake>) {
        let is_first = self.alarm.set(alarm).is_ok();
        assert!(is_first, "workers are connected once");
    }

    /// For a machine: the flag "a worker was woken for it", the index of that worker, and the
    /// machine's token.
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

    /// Whether this thread drives machines itself instead of leaving them to a worker.
    pub(crate) fn is_here(&self) -> bool {
        self.workers.current().is_some()
    }

    /// Makes the machine's worker call `driver`; returns false if the workers have stopped.
    pub(crate) fn schedule<D: Wake + 'static>(&self, driver: &Arc<D>, machine: Machine) -> bool {
        self.schedule_on(self.scheduling(machine).1, driver, machine)
    }

    /// Makes a sleeping worker call `driver` for `machine`. Returns false if no worker sleeps, or
    /// if this thread is no worker: then the machine's own worker must drive it.
    pub(crate) fn hand_over<D: Wake + 'static>(&self, driver: &Arc<D>, machine: Machine) -> bool {
        self.workers.sleeper().is_some_and(|on| self.schedule_on(on, driver, machine))
    }

    fn schedule_on<D: Wake + 'static>(&self, on: usize, driver: &Arc<D>, machine: Machine) -> bool {
        let (slot, _, token) = self.scheduling(machine);
        if slot.swap(true, Ordering::SeqCst) {
            return true;
        }
        let told = self.workers.wake(on, Arc::clone(driver) as Arc<dyn Wake>, token);
        if told.is_err() {
            slot.store(false, Ordering::SeqCst);
        }
        told.is_ok()
    }

    /// As `schedule`, for a worker that has just pushed a completion: `driver` is called after this
    /// turn's other completions.
    pub(crate) fn put_off<D: Wake + 'static>(
        &self,
        worker: &Worker,
        driver: &Arc<D>,
        machine: Machine,
    ) {
        let (slot, _, token) = self.scheduling(machine);
        if !slot.swap(true, Ordering::SeqCst) {
            worker.afterwards(Arc::clone(driver) as Arc<dyn Wake>, token);
        }
    }

    /// The machine that `token` names. Call this just before the machine is driven.
    pub(crate) fn begin(&self, token: u64) -> Machine {
        let machine = match token {
            ARRAY => Machine::Array,
            index => Machine::Shard(ShardIndex(u16::try_from(index).expect("one of our tokens"))),
        };
        // Cleared before the caller takes the machine's events, so that a later push wakes a worker
        // again.
        self.scheduling(machine).0.store(false, Ordering::SeqCst);
        machine
    }

    /// Makes a worker wake the alarm at a moment; returns false if the workers have stopped.
    pub(crate) fn arm(&self, clock: &Clock, arm: Arm) -> bool {
        let alarm = self.alarm.get().expect("a core that is driven is connected");
        // A moment out of the clock's range never comes.
        let Some(at) = clock.at(arm.at) else { return true };
        let (alarm, token) = (Arc::clone(alarm), arm.place as u64);
        self.workers.wake_at(arm.place, at, alarm, token).is_ok()
    }

    /// Ends the workers, if they belong to this volume alone.
    pub(crate) fn stop(&self) {
        if self.is_own {
            self.workers.stop();
        }
    }
}
