//! The workers of a volume: which one drives a machine, and which sleeps for a moment.
//!
//! A machine is given to a worker by a token, and a worker is told of it once, until it has looked. What drives it then, and
//! what is called when a moment has come, are values that layers above give ([`Wake`]); here only the tokens are known.
//!
//! Invariant: a shard whose inbox was pushed to is driven afterwards. `scheduled` is cleared before it is
//! driven, so a push either finds it cleared, and schedules, or is seen (`volume_tests` over both ways).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_engine::request::ShardIndex;
use braid_ring::{RingError, Settings, Wake, Worker, Workers};

use crate::alarm::Arm;
use crate::clock::Clock;
use crate::events::Machine;
use crate::options::{Io, Options};
use crate::sync::Arc;

/// The token of the array; shards have their index.
const ARRAY: u64 = u64::MAX;

/// The workers of a volume, and what they tell it by.
pub(crate) struct Drivers {
    pub(crate) workers: Arc<Workers>,
    /// Whether they are the volume's alone.
    is_own: bool,
    /// What is told that a moment has come. The token is the place that [`crate::alarm`] knows it by.
    alarm: OnceLock<Arc<dyn Wake>>,
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

    /// Says what is told of moments.
    pub(crate) fn connect(&self, alarm: Arc<dyn Wake>) {
        let is_first = self.alarm.set(alarm).is_ok();
        assert!(is_first, "workers are connected once");
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

    /// Has its worker tell `driver` of `machine`; false when there are none any more.
    pub(crate) fn schedule<D: Wake + 'static>(&self, driver: &Arc<D>, machine: Machine) -> bool {
        self.schedule_on(self.scheduling(machine).1, driver, machine)
    }

    /// Has a worker that sleeps tell `driver` of `machine`; false when none does, or when this thread is no worker, whose
    /// machines are for the worker that each belongs to.
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

    /// The same for a worker that has just pushed a completion: once the others of this turn are told.
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

    /// The machine that a worker is told of by `token`, which is driven from now on.
    pub(crate) fn begin(&self, token: u64) -> Machine {
        let machine = match token {
            ARRAY => Machine::Array,
            index => Machine::Shard(ShardIndex(u16::try_from(index).expect("one of our tokens"))),
        };
        // Before looking, so that a thread that pushes from now on tells a worker again.
        self.scheduling(machine).0.store(false, Ordering::SeqCst);
        machine
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
