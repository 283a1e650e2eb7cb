//! The alarm clock of the machines: the moment at which to wake each, and its sleeper.
//!
//! Place in the flow: the clock stores moments and places. [`crate::timekeeper`] acts on a moment
//! that has come, and gives the clock the function that starts a thread.
//!
//! Two kinds of sleepers exist. Where rings do the work, each worker sleeps in its ring until its
//! nearest moment. A moment goes to the worker that sets it: that worker is awake, and looks before
//! it sleeps. A thread that is no worker leaves the moment in a worker's inbox. Without workers, or
//! after they stopped, one thread keeps all armed moments and sleeps until the first.
//!
//! ```text
//!   set ──nearer than armed──▶ armed with a sleeper ──its moment──▶ rang ─┬─ due: machine woken
//!    └───────later: only noted          ▲                                 ├─ put off: armed anew
//!                                       └─────────────────────────────────┤
//!                                        a nearer one has replaced it:    └─ nothing
//! ```
//!
//! A sleeper wakes once for each armed moment, and a moment is armed only if it was the nearest of
//! its machine when it was set. A moment that a nearer one replaced stays with its sleeper, and the
//! clock remembers that. Such a moment needs no second arming when it becomes the nearest again
//! [check: near_and_far_moments_in_turns_leave_few_armed]. The clock rings once for each moment
//! that was set. The operating system may suspend the thread that owns a machine; ringing on would
//! fill the inbox of that machine
//! [check: an_alarm_that_rang_is_silent, a_worker_is_woken_once_for_each_moment].
//!
//! Invariant: a place with a moment is armed for that moment or an earlier one, or a thread is
//! carrying the moment to a worker (`models::waits`:
//! `a_moment_that_workers_keep_is_neither_lost_nor_told_twice`). Workers that stop report the
//! moments they dropped; the thread takes over (`tests/ring.rs`:
//! `a_moment_that_stopped_workers_forgot_comes_all_the_same`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use braid_engine::Instant;
use braid_engine::array::MemberId;
use braid_engine::request::ShardIndex;
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::events::Machine;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{self, Condvar, Mutex};

/// Interval between checks for vanished members.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Longest sleep of the alarm's thread, which every change wakes. Tests and models wait in shorter
/// steps.
const SLEEP_MAX: Duration =
    if cfg!(any(test, loom, shuttle)) { LOOK_INTERVAL } else { Duration::from_secs(3600) };

struct State {
    /// The moment to wake each place: the array, the next check of the members, the shards, then
    /// members that hold operations back. The part for members grows when needed, and never
    /// shrinks.
    due: Vec<Option<Instant>>,
    /// For each place, the moments for which sleepers still wait; each moment is nearer than the
    /// one before it.
    armed: Vec<SmallVec<[Instant; 4]>>,
    /// The moments for which the alarm's thread sleeps, with their places; `None` while workers
    /// sleep instead.
    with_thread: Option<BinaryHeap<Reverse<(Instant, usize)>>>,
    stopped: bool,
}

pub(crate) struct Alarm {
    state: Mutex<State>,
    changed: Condvar,
    /// Copies of the shards' alarm moments, 0 for none. The thread that drives a shard compares a
    /// copy first, and takes the lock only to set a first or an earlier moment.
    shards: Vec<AtomicU64>,
    start: OnceLock<Start>,
}

/// Starts the thread that sleeps for the alarm, unless the machines have been dropped.
pub(crate) type Start = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A moment until which a worker must sleep, and the place to wake then.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    pub(crate) place: usize,
    pub(crate) at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepEnd {
    Stopped,
    /// A moment of this place has come.
    Until(usize),
    /// A moment or the alarm's state changed.
    Disturbed,
}

/// The machine or member that a moment wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeTarget {
    Due(Machine),
    /// The time slice of operations held back at this member may have come.
    Held(MemberId),
    /// The members are due for a check.
    Look,
}

/// The next step of a sleeper (a worker or the alarm's thread) after its moment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlarmOutcome {
    Wake(WakeTarget),
    /// Sleep again until this moment, to which the place's moment was put off.
    Later(Arm),
    /// Do nothing: the moment no longer counts.
    Nothing,
}

/// Place numbers of the array and of the next check of the members; the shards' numbers follow.
const ARRAY: usize = 0;
const LOOK: usize = 1;
const SHARDS: usize = 2;

fn place(machine: Machine) -> usize {
    match machine {
        Machine::Array => ARRAY,
        Machine::Shard(index) => usize::from(index.0) + SHARDS,
    }
}

impl State {
    /// Gives the place's moment to a sleeper, unless a sleeper already has that moment or a nearer
    /// one. The sleeper is the alarm's thread, or a worker, for which the moment is returned.
    fn arm(&mut self, place: usize, changed: &Condvar) -> Option<Arm> {
        let (due, armed) = (self.due[place], &mut self.armed[place]);
        let at = due.filter(|due| armed.last().is_none_or(|nearest| due < nearest))?;
        armed.push(at);
        let Some(with_thread) = &mut self.with_thread else { return Some(Arm { place, at }) };
        with_thread.push(Reverse((at, place)));
        changed.notify_one();
        None
    }
}

impl Alarm {
    /// An alarm for whose moments the workers sleep.
    pub(crate) fn new(shards: u16) -> Self {
        let places = SHARDS + usize::from(shards);
        let (due, armed) = (vec![None; places], vec![SmallVec::new(); places]);
        Self {
            state: Mutex::new(State { due, armed, with_thread: None, stopped: false }),
            changed: Condvar::new(),
            shards: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            start: OnceLock::new(),
        }
    }

    /// Sets the function that starts the alarm's thread.
    pub(crate) fn connect(&self, start: Start) {
        let is_first = self.start.set(start).is_ok();
        assert!(is_first, "the time is kept once");
    }

    /// Sets or clears the moment at which to wake a machine. Returns the moment for which a worker
    /// must sleep, if any.
    #[must_use]
    pub(crate) fn set(&self, machine: Machine, due: Option<Instant>) -> Option<Arm> {
        self.set_place(place(machine), due)
    }

    /// Sets the moment at which to check the operations held back at a member.
    #[must_use]
    pub(crate) fn set_held(&self, member: MemberId, due: Instant) -> Option<Arm> {
        self.set_place(SHARDS + self.shards.len() + usize::from(member.0), Some(due))
    }

    /// Sets the moment of the next check of the members.
    #[must_use]
    pub(crate) fn set_look(&self, due: Instant) -> Option<Arm> {
        self.set_place(LOOK, Some(due))
    }

    #[must_use]
    fn set_place(&self, place: usize, due: Option<Instant>) -> Option<Arm> {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.due.len() <= place {
            state.due.resize(place + 1, None);
            state.armed.resize(place + 1, SmallVec::new());
        }
        state.due[place] = due;
        if flaw::has(Flaw::AlarmSilent) {
            return None;
        }
        state.arm(place, &self.changed)
    }

    /// Sets a shard's moment if the shard has none or a later one. A moment that is too early does
    /// no harm: the shard checks its state, and reports its next moment. Only the shard's owner
    /// calls this.
    #[must_use]
    pub(crate) fn bring_forward(&self, shard: ShardIndex, due: Option<Instant>) -> Option<Arm> {
        let (due, known) = (due?, &self.shards[usize::from(shard.0)]);
        let set = known.load(Ordering::Acquire);
        if set == 0 || due.0 < set {
            known.store(due.0.max(1), Ordering::Release);
            return self.set(Machine::Shard(shard), Some(due));
        }
        None
    }

    /// Ends the alarm's thread, and makes workers ignore moments.
    pub(crate) fn stop(&self) {
        self.state.lock().expect("setting does not panic").stopped = true;
        self.changed.notify_one();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().expect("setting does not panic").stopped
    }

    /// The machine or member to wake for a place. This function clears the copy of a shard's moment
    /// before the shard checks its state, so that a new moment of the shard counts.
    fn wake_up(&self, place: usize) -> WakeTarget {
        let Some(shard) = place.checked_sub(SHARDS) else {
            return if place == LOOK { WakeTarget::Look } else { WakeTarget::Due(Machine::Array) };
        };
        if let Some(known) = self.shards.get(shard) {
            known.store(0, Ordering::Release);
            let index = u16::try_from(shard).expect("made from a u16");
            return WakeTarget::Due(Machine::Shard(ShardIndex(index)));
        }
        let member = u16::try_from(shard - self.shards.len()).expect("members have 16-bit names");
        WakeTarget::Held(MemberId(member))
    }

    /// Lets the alarm's thread sleep until the nearest moment or a change. Returns at once if a
    /// moment is due.
    pub(crate) fn sleep(&self, clock: &Clock) -> SleepEnd {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.stopped {
            return SleepEnd::Stopped;
        }
        let with_thread = state.with_thread.as_mut().expect("there is a thread");
        let first = with_thread.peek().map(|Reverse(first)| *first);
        let left = first.map_or(SLEEP_MAX, |(at, _)| clock.until(at));
        if let Some((_, place)) = first
            && left.is_zero()
        {
            if !flaw::has(Flaw::AlarmRingsOn) {
                with_thread.pop();
            }
            return SleepEnd::Until(place);
        }
        sync::sleep(&self.changed, state, left.min(SLEEP_MAX));
        SleepEnd::Disturbed
    }

    /// Called by a sleeper when a moment of `place` has come. All armed moments up to `now` have
    /// come as well.
    pub(crate) fn rang(&self, place: usize, now: Instant) -> AlarmOutcome {
        let mut state = self.state.lock().expect("setting does not panic");
        // This sleeper was late: another sleeper has already handled its moment.
        if state.stopped || state.armed[place].last().is_none_or(|armed| *armed > now) {
            return AlarmOutcome::Nothing;
        }
        if flaw::has(Flaw::AlarmRingsOn) {
            return AlarmOutcome::Wake(self.wake_up(place));
        }
        if !flaw::has(Flaw::ArmedStays) {
            state.armed[place].retain(|armed| *armed > now);
        }
        match state.due[place] {
            None => AlarmOutcome::Nothing,
            Some(at) if at > now => {
                state.arm(place, &self.changed).map_or(AlarmOutcome::Nothing, AlarmOutcome::Later)
            }
            Some(_) => {
                state.due[place] = None;
                AlarmOutcome::Wake(self.wake_up(place))
            }
        }
    }

    /// Gives all moments to the alarm's thread. Returns false if the thread has them already, or
    /// the alarm has stopped.
    pub(crate) fn hand_over(&self) -> bool {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.stopped || state.with_thread.is_some() {
            return false;
        }
        state.with_thread = Some(BinaryHeap::new());
        // Arm every moment: workers may have dropped the moments they were given.
        for place in 0..state.due.len() {
            state.armed[place].clear();
            let with_thread = state.arm(place, &self.changed);
            assert!(with_thread.is_none(), "the thread has it");
        }
        true
    }

    /// Gives all moments to the alarm's thread, and starts the thread, unless it has the moments
    /// already or the alarm has stopped. If the thread cannot be started, a later call tries again.
    pub(crate) fn keep_by_thread(&self) -> io::Result<()> {
        if !self.hand_over() {
            return Ok(());
        }
        let started = self.start.get().map_or(Ok(()), |start| start());
        started.inspect_err(|_| self.hand_back())
    }

    /// Called when the workers have stopped: the alarm's thread takes their moments.
    pub(crate) fn keep_without_workers(&self) {
        // If the alarm's thread cannot be started, the caller that sets the next moment tries
        // again. That thread then checks the members, too.
        let _next_time = self.keep_by_thread();
    }

    /// Called if the alarm's thread could not be started and no worker has a moment. All moments
    /// stay set. The next call that sets a moment arms it again, even an unchanged moment.
    fn hand_back(&self) {
        let mut state = self.state.lock().expect("setting does not panic");
        state.with_thread = None;
        state.armed.iter_mut().for_each(SmallVec::clear);
        self.shards.iter().for_each(|known| known.store(0, Ordering::Release));
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn with_thread(shards: u16) -> Alarm {
        let alarm = Alarm::new(shards);
        assert!(alarm.hand_over());
        alarm
    }

    /// The machine or member that is woken next; `None` if the thread would sleep on.
    fn next(alarm: &Alarm, clock: &Clock) -> Option<WakeTarget> {
        loop {
            match alarm.sleep(clock) {
                SleepEnd::Until(place) => {
                    if let AlarmOutcome::Wake(woken) = alarm.rang(place, clock.now()) {
                        return Some(woken);
                    }
                }
                SleepEnd::Stopped | SleepEnd::Disturbed => return None,
            }
        }
    }

    /// Regression: the alarm rang until the machine took the event, and filled the inbox while the
    /// array's owner rested.
    #[test]
    fn an_alarm_that_rang_is_silent() {
        let (alarm, clock) = (with_thread(1), Clock::new());
        assert_eq!(alarm.set(Machine::Array, Some(Instant(0))), None);
        assert_eq!(next(&alarm, &clock), Some(WakeTarget::Due(Machine::Array)));
        assert_eq!(next(&alarm, &clock), None);
        assert_eq!(alarm.set(Machine::Array, Some(Instant(0))), None);
        assert_eq!(next(&alarm, &clock), Some(WakeTarget::Due(Machine::Array)));
    }

    #[test]
    fn a_shard_is_woken_for_each_of_its_moments() {
        let (alarm, clock, shard) = (with_thread(2), Clock::new(), ShardIndex(1));
        for _ in 0..2 {
            assert_eq!(alarm.bring_forward(shard, Some(Instant(u64::MAX))), None);
            assert_eq!(alarm.bring_forward(shard, Some(Instant(0))), None);
            assert_eq!(alarm.bring_forward(shard, Some(Instant(5))), None);
            assert_eq!(next(&alarm, &clock), Some(WakeTarget::Due(Machine::Shard(shard))));
            assert_eq!(next(&alarm, &clock), None, "a later moment was not set");
        }
    }

    #[test]
    fn a_member_with_something_held_is_woken_beside_the_machines() {
        let (alarm, clock, member) = (with_thread(2), Clock::new(), MemberId(2));
        assert_eq!(alarm.set_held(member, Instant(0)), None);
        assert_eq!(alarm.set(Machine::Array, Some(Instant(1))), None);
        assert_eq!(next(&alarm, &clock), Some(WakeTarget::Held(member)));
        assert_eq!(next(&alarm, &clock), Some(WakeTarget::Due(Machine::Array)));
        assert_eq!(next(&alarm, &clock), None);
    }

    /// The moments given to a worker, and how often the worker was woken.
    struct Worker<'a> {
        alarm: &'a Alarm,
        armed: Vec<Arm>,
        wakes: usize,
    }

    impl Worker<'_> {
        fn set(&mut self, due: u64) {
            self.armed.extend(self.alarm.set(Machine::Array, Some(Instant(due))));
        }

        /// Lets every moment up to `now` come, each at its time. Returns the number of wake-ups.
        fn pass(&mut self, now: u64) -> usize {
            let mut woken = 0;
            while let Some(next) = (0..self.armed.len()).min_by_key(|at| self.armed[*at].at) {
                if self.armed[next].at.0 > now {
                    break;
                }
                let Arm { place, at } = self.armed.swap_remove(next);
                self.wakes += 1;
                match self.alarm.rang(place, at) {
                    AlarmOutcome::Nothing => {}
                    AlarmOutcome::Later(arm) => self.armed.push(arm),
                    AlarmOutcome::Wake(what) => {
                        assert_eq!(what, WakeTarget::Due(Machine::Array));
                        woken += 1;
                    }
                }
            }
            woken
        }
    }

    #[test]
    fn a_worker_is_woken_once_for_each_moment() {
        let alarm = Alarm::new(1);
        let mut worker = Worker { alarm: &alarm, armed: Vec::new(), wakes: 0 };
        // Each write puts the due time off. Only the first due time is armed; when that time comes,
        // the newest one is armed.
        (100..200).for_each(|due| worker.set(due));
        assert_eq!((worker.armed.len(), worker.pass(150)), (1, 0));
        assert_eq!((worker.pass(198), worker.pass(199), worker.wakes), (0, 1, 2));
        // A moment is brought forward: when the armed later moment comes, it wakes nothing.
        worker.set(300);
        worker.set(250);
        worker.set(310);
        assert_eq!((worker.pass(250), worker.pass(309)), (0, 0));
        assert_eq!((worker.pass(310), worker.pass(u64::MAX), worker.armed.len()), (1, 0, 0));
        // The same moment set again wakes again; a cleared moment wakes nothing.
        worker.set(310);
        assert_eq!(worker.pass(310), 1);
        worker.set(400);
        assert_eq!(alarm.set(Machine::Array, None), None);
        assert_eq!(worker.pass(u64::MAX), 0);
    }

    /// Regression: each near moment made the far one be armed anew, thousands of times.
    #[test]
    fn near_and_far_moments_in_turns_leave_few_armed() {
        let alarm = Alarm::new(1);
        let mut worker = Worker { alarm: &alarm, armed: Vec::new(), wakes: 0 };
        for near in (10..).step_by(10).take(1000) {
            worker.set(50_000);
            worker.set(near + 5);
            worker.set(near);
            assert_eq!(worker.pass(near), 1);
            worker.set(50_000);
            assert!(worker.armed.len() <= 2, "{} are armed", worker.armed.len());
        }
        assert_eq!((worker.pass(49_999), worker.pass(50_000), worker.armed.len()), (0, 1, 0));
        assert!(worker.wakes <= 2001, "it was woken {} times", worker.wakes);
    }

    /// Regression: after the alarm's thread failed to start, the copy of a shard's moment kept the
    /// shard from setting the moment again.
    #[test]
    fn moments_for_which_there_was_no_thread_are_set_again() {
        let (alarm, shard) = (Alarm::new(1), ShardIndex(0));
        assert!(alarm.bring_forward(shard, Some(Instant(5))).is_some());
        assert!(alarm.set(Machine::Array, Some(Instant(7))).is_some());
        assert_eq!(alarm.bring_forward(shard, Some(Instant(5))), None, "armed already");
        assert!(alarm.hand_over());
        alarm.hand_back();
        let later = alarm.bring_forward(shard, Some(Instant(6))).expect("armed anew");
        assert_eq!(later.at, Instant(6));
        let same = alarm.set(Machine::Array, Some(Instant(7))).expect("armed anew");
        assert_eq!(same.at, Instant(7));
        // A thread that starts now gets all moments.
        assert!(alarm.hand_over());
        let clock = Clock::new();
        assert_eq!(next(&alarm, &clock), Some(WakeTarget::Due(Machine::Shard(shard))));
        assert_eq!(next(&alarm, &clock), Some(WakeTarget::Due(Machine::Array)));
    }

    #[test]
    fn a_thread_answers_for_workers_once_and_none_does_after_the_end() {
        let alarm = Alarm::new(1);
        let arm = alarm.bring_forward(ShardIndex(0), Some(Instant(5))).expect("armed");
        let look = alarm.set_place(LOOK, Some(Instant(7))).expect("armed");
        assert_eq!(alarm.rang(look.place, Instant(7)), AlarmOutcome::Wake(WakeTarget::Look));
        assert!(alarm.hand_over() && !alarm.hand_over(), "once");
        assert_eq!(
            next(&alarm, &Clock::new()),
            Some(WakeTarget::Due(Machine::Shard(ShardIndex(0))))
        );
        assert_eq!(
            alarm.rang(arm.place, Instant(5)),
            AlarmOutcome::Nothing,
            "a worker that was late"
        );
        let ended = Alarm::new(1);
        let arm = ended.set_held(MemberId(0), Instant(5)).expect("armed");
        ended.stop();
        assert_eq!(ended.rang(arm.place, Instant(5)), AlarmOutcome::Nothing);
        assert!(!ended.hand_over(), "no thread has to");
    }
}
