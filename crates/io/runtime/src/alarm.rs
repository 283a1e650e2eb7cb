//! The machines' alarm clock: when each wants to be woken, and what sleeps until then.
//!
//! Where it stands: it knows moments and places. What is done when one has come is [`crate::timekeeper`]'s, which also gives
//! it the way to start a thread.
//!
//! There is one clock, and two that may sleep for it. Where rings do the work, workers do: each sleeps in its ring until the
//! nearest moment that was given to it. A moment is given to the worker that sets it, which is awake and looks before it
//! sleeps; a thread that is no worker leaves it in a worker's inbox. Elsewhere, and when the workers have been stopped, one
//! thread keeps what is armed, and sleeps until the first of it.
//!
//! ```text
//!   set ──nearer than what is armed──▶ armed with a sleeper ──its moment──▶ rang ─┬─ due: the machine is woken
//!    └───────later: only noted                  ▲                                 ├─ put off meanwhile: armed anew
//!                                               └─────────────────────────────────┤
//!                                                a nearer one has replaced it:    └─ nothing
//! ```
//!
//! So a sleeper wakes once for each moment that was armed, and none is armed that was not the nearest of its machine when it
//! was set. What a nearer one has replaced is still with its sleeper, and known: it is not armed once more when it is the
//! nearest again [check: near_and_far_moments_in_turns_leave_few_armed]. The clock rings once for each moment that was set. A machine may be owned by a thread that the operating
//! system has put aside; ringing on would fill its inbox [check: an_alarm_that_rang_is_silent,
//! a_worker_is_woken_once_for_each_moment].
//!
//! Invariant: a place with a moment is armed for that moment or an earlier one, or a thread is on the way from here to a
//! worker with it (`models::waits`: `a_moment_that_workers_keep_is_neither_lost_nor_told_twice`).
//! Workers that stop say which moments they have forgotten; the thread takes over
//! (`tests/ring.rs`: `a_moment_that_stopped_workers_forgot_comes_all_the_same`).

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

/// How often members are looked at for having vanished.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The longest sleep of the thread: all that it is to do is told to it. Tests and models wait in shorter steps.
const SLEEP_MAX: Duration =
    if cfg!(any(test, loom, shuttle)) { LOOK_INTERVAL } else { Duration::from_secs(3600) };

struct State {
    /// The array's moment, the next look at members, then the shards' moments, then those of members where something is
    /// held, as far as one was ever set.
    due: Vec<Option<Instant>>,
    /// For each of them, the moments that sleepers were given and that have not come yet; each is nearer than the one before.
    armed: Vec<SmallVec<[Instant; 4]>>,
    /// Those with the thread, and their places; none while workers sleep for us.
    with_thread: Option<BinaryHeap<Reverse<(Instant, usize)>>>,
    stopped: bool,
}

/// When to wake the machines.
pub(crate) struct Alarm {
    state: Mutex<State>,
    changed: Condvar,
    /// The shards' moments again, so that a turn that changes nothing takes no lock. Zero is none.
    shards: Vec<AtomicU64>,
    /// Starts the thread.
    start: OnceLock<Start>,
}

/// Starts a thread that sleeps for the alarm, unless what it would wake is gone.
pub(crate) type Start = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A moment to be given to a worker, and the place that it belongs to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    pub(crate) place: usize,
    pub(crate) at: Instant,
}

/// What a sleep of the thread ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// The thread is to end.
    Stopped,
    /// A moment of this place has come.
    Until(usize),
    /// Something was changed.
    Disturbed,
}

/// What is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// This machine's moment has come.
    Due(Machine),
    /// The turn of what is held at this member may have come.
    Held(MemberId),
    /// The members are to be looked at.
    Look,
}

/// What a sleeper finds when a moment that it was given has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rang {
    /// This is to be woken.
    Woken(Woken),
    /// It was put off.
    Later(Arm),
    /// It is none any more.
    Nothing,
}

/// The places of the array, and of the next look; the shards' come after them.
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
    /// Notes that the place's moment is given to a sleeper, unless that one or a nearer one was: to the thread, or to the
    /// worker that is to be told.
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
    /// One with workers that sleep for it.
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

    /// Says how its thread is started.
    pub(crate) fn connect(&self, start: Start) {
        let is_first = self.start.set(start).is_ok();
        assert!(is_first, "the time is kept once");
    }

    /// Sets or clears a machine's moment.
    #[must_use]
    pub(crate) fn set(&self, machine: Machine, due: Option<Instant>) -> Option<Arm> {
        self.set_place(place(machine), due)
    }

    /// Sets the moment at which what is held at a member is to be looked at.
    #[must_use]
    pub(crate) fn set_held(&self, member: MemberId, due: Instant) -> Option<Arm> {
        self.set_place(SHARDS + self.shards.len() + usize::from(member.0), Some(due))
    }

    /// Sets the moment of the next look at members.
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

    /// Sets a shard's moment if it has none, or a later one. A moment that is too early does no harm:
    /// the shard looks, and says when the next is. Only the shard's owner calls this.
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

    /// Ends the thread, and has workers that ring heed nothing.
    pub(crate) fn stop(&self) {
        self.state.lock().expect("setting does not panic").stopped = true;
        self.changed.notify_one();
    }

    /// Whether it was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().expect("setting does not panic").stopped
    }

    /// What is woken at a place. Before a shard looks, so that what it says then is heard.
    fn wake_up(&self, place: usize) -> Woken {
        let Some(shard) = place.checked_sub(SHARDS) else {
            return if place == LOOK { Woken::Look } else { Woken::Due(Machine::Array) };
        };
        if let Some(known) = self.shards.get(shard) {
            known.store(0, Ordering::Release);
            let index = u16::try_from(shard).expect("made from a u16");
            return Woken::Due(Machine::Shard(ShardIndex(index)));
        }
        let member = u16::try_from(shard - self.shards.len()).expect("members have 16-bit names");
        Woken::Held(MemberId(member))
    }

    /// The thread's sleep: once, unless there is no reason to.
    pub(crate) fn sleep(&self, clock: &Clock) -> Slept {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.stopped {
            return Slept::Stopped;
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
            return Slept::Until(place);
        }
        sync::sleep(&self.changed, state, left.min(SLEEP_MAX));
        Slept::Disturbed
    }

    /// A moment of `place` that a sleeper was given has come. One that has come is over.
    pub(crate) fn rang(&self, place: usize, now: Instant) -> Rang {
        let mut state = self.state.lock().expect("setting does not panic");
        // Its sleeper was late, and another one has answered for both.
        if state.stopped || state.armed[place].last().is_none_or(|armed| *armed > now) {
            return Rang::Nothing;
        }
        if flaw::has(Flaw::AlarmRingsOn) {
            return Rang::Woken(self.wake_up(place));
        }
        if !flaw::has(Flaw::ArmedStays) {
            state.armed[place].retain(|armed| *armed > now);
        }
        match state.due[place] {
            None => Rang::Nothing,
            Some(at) if at > now => {
                state.arm(place, &self.changed).map_or(Rang::Nothing, Rang::Later)
            }
            Some(_) => {
                state.due[place] = None;
                Rang::Woken(self.wake_up(place))
            }
        }
    }

    /// From now on a thread sleeps for all moments; false if one does already, or none has to.
    pub(crate) fn hand_over(&self) -> bool {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.stopped || state.with_thread.is_some() {
            return false;
        }
        state.with_thread = Some(BinaryHeap::new());
        // What workers were given they may have forgotten.
        for place in 0..state.due.len() {
            state.armed[place].clear();
            let with_thread = state.arm(place, &self.changed);
            assert!(with_thread.is_none(), "the thread has it");
        }
        true
    }

    /// From now on a thread sleeps for all moments, if none does and any has to.
    ///
    /// # Errors
    /// There is no thread to be had. A later call tries again.
    pub(crate) fn keep_by_thread(&self) -> io::Result<()> {
        if !self.hand_over() {
            return Ok(());
        }
        let started = self.start.get().map_or(Ok(()), |start| start());
        started.inspect_err(|_| self.hand_back())
    }

    /// The workers have been stopped: their moments are the thread's.
    pub(crate) fn keep_without_workers(&self) {
        // If it cannot be started, the thread that sets the next moment tries again; it then looks at the members, too.
        let _next_time = self.keep_by_thread();
    }

    /// There was no thread for it; no worker has anything either. All moments stay, and the thread that sets the next one, the same
    /// one once more as well, is given it to arm.
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

    /// One that a thread sleeps for.
    fn with_thread(shards: u16) -> Alarm {
        let alarm = Alarm::new(shards);
        assert!(alarm.hand_over());
        alarm
    }

    /// What is woken next, if anything is due: not if the thread would sleep.
    fn next(alarm: &Alarm, clock: &Clock) -> Option<Woken> {
        loop {
            match alarm.sleep(clock) {
                Slept::Until(place) => {
                    if let Rang::Woken(woken) = alarm.rang(place, clock.now()) {
                        return Some(woken);
                    }
                }
                Slept::Stopped | Slept::Disturbed => return None,
            }
        }
    }

    /// It rang on until the array had heard it, and filled the inbox of an array whose owner was not
    /// running.
    #[test]
    fn an_alarm_that_rang_is_silent() {
        let (alarm, clock) = (with_thread(1), Clock::new());
        assert_eq!(alarm.set(Machine::Array, Some(Instant(0))), None);
        assert_eq!(next(&alarm, &clock), Some(Woken::Due(Machine::Array)));
        assert_eq!(next(&alarm, &clock), None);
        assert_eq!(alarm.set(Machine::Array, Some(Instant(0))), None);
        assert_eq!(next(&alarm, &clock), Some(Woken::Due(Machine::Array)));
    }

    #[test]
    fn a_shard_is_woken_for_each_of_its_moments() {
        let (alarm, clock, shard) = (with_thread(2), Clock::new(), ShardIndex(1));
        for _ in 0..2 {
            assert_eq!(alarm.bring_forward(shard, Some(Instant(u64::MAX))), None);
            assert_eq!(alarm.bring_forward(shard, Some(Instant(0))), None);
            assert_eq!(alarm.bring_forward(shard, Some(Instant(5))), None);
            assert_eq!(next(&alarm, &clock), Some(Woken::Due(Machine::Shard(shard))));
            assert_eq!(next(&alarm, &clock), None, "a later moment was not set");
        }
    }

    #[test]
    fn a_member_with_something_held_is_woken_beside_the_machines() {
        let (alarm, clock, member) = (with_thread(2), Clock::new(), MemberId(2));
        assert_eq!(alarm.set_held(member, Instant(0)), None);
        assert_eq!(alarm.set(Machine::Array, Some(Instant(1))), None);
        assert_eq!(next(&alarm, &clock), Some(Woken::Held(member)));
        assert_eq!(next(&alarm, &clock), Some(Woken::Due(Machine::Array)));
        assert_eq!(next(&alarm, &clock), None);
    }

    /// A worker's moments, and how often it was woken.
    struct Worker<'a> {
        alarm: &'a Alarm,
        armed: Vec<Arm>,
        wakes: usize,
    }

    impl Worker<'_> {
        fn set(&mut self, due: u64) {
            self.armed.extend(self.alarm.set(Machine::Array, Some(Instant(due))));
        }

        /// Every moment up to `now`, each at its time; how often the machine was woken.
        fn pass(&mut self, now: u64) -> usize {
            let mut woken = 0;
            while let Some(next) = (0..self.armed.len()).min_by_key(|at| self.armed[*at].at) {
                if self.armed[next].at.0 > now {
                    break;
                }
                let Arm { place, at } = self.armed.swap_remove(next);
                self.wakes += 1;
                match self.alarm.rang(place, at) {
                    Rang::Nothing => {}
                    Rang::Later(arm) => self.armed.push(arm),
                    Rang::Woken(what) => {
                        assert_eq!(what, Woken::Due(Machine::Array));
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
        // Put off again and again, as by writes: armed once, and once more when that has come.
        (100..200).for_each(|due| worker.set(due));
        assert_eq!((worker.armed.len(), worker.pass(150)), (1, 0));
        assert_eq!((worker.pass(198), worker.pass(199), worker.wakes), (0, 1, 2));
        // Brought forward: what is left of the later one wakes nothing.
        worker.set(300);
        worker.set(250);
        worker.set(310);
        assert_eq!((worker.pass(250), worker.pass(309)), (0, 0));
        assert_eq!((worker.pass(310), worker.pass(u64::MAX), worker.armed.len()), (1, 0, 0));
        // The same moment once more is another one; a moment that was cleared is none.
        worker.set(310);
        assert_eq!(worker.pass(310), 1);
        worker.set(400);
        assert_eq!(alarm.set(Machine::Array, None), None);
        assert_eq!(worker.pass(u64::MAX), 0);
    }

    /// Each of them left the far one behind, and it was armed anew: thousands, with an age of minutes.
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

    /// A shard's own note of its moment kept it from ever coming back.
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
        // The thread that is there now knows all of them.
        assert!(alarm.hand_over());
        let clock = Clock::new();
        assert_eq!(next(&alarm, &clock), Some(Woken::Due(Machine::Shard(shard))));
        assert_eq!(next(&alarm, &clock), Some(Woken::Due(Machine::Array)));
    }

    #[test]
    fn a_thread_answers_for_workers_once_and_none_does_after_the_end() {
        let alarm = Alarm::new(1);
        let arm = alarm.bring_forward(ShardIndex(0), Some(Instant(5))).expect("armed");
        let look = alarm.set_place(LOOK, Some(Instant(7))).expect("armed");
        assert_eq!(alarm.rang(look.place, Instant(7)), Rang::Woken(Woken::Look));
        assert!(alarm.hand_over() && !alarm.hand_over(), "once");
        assert_eq!(next(&alarm, &Clock::new()), Some(Woken::Due(Machine::Shard(ShardIndex(0)))));
        assert_eq!(alarm.rang(arm.place, Instant(5)), Rang::Nothing, "a worker that was late");
        let ended = Alarm::new(1);
        let arm = ended.set_held(MemberId(0), Instant(5)).expect("armed");
        ended.stop();
        assert_eq!(ended.rang(arm.place, Instant(5)), Rang::Nothing);
        assert!(!ended.hand_over(), "no thread has to");
    }
}
