//! The array's alarm clock: one thread that sleeps until the array wants to be woken.
//!
//! It rings once for each moment that was set. The array may be owned by a thread that the operating
//! system has put aside; ringing on would fill its inbox [check: an_alarm_that_rang_is_silent].

use std::time::Duration;

use braid_engine::Instant;

use crate::clock::Clock;
use crate::core::{ArrayEvent, Core, Machine};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{self, Arc, Condvar, Moment, Mutex, Weak};

/// How often members are looked at for having vanished, and the longest sleep.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Default)]
struct State {
    due: Option<Instant>,
    stopped: bool,
}

/// When to wake the array.
#[derive(Default)]
pub(crate) struct Alarm {
    state: Mutex<State>,
    changed: Condvar,
}

/// What a sleep ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The thread is to end.
    Stopped,
    /// The moment has come.
    Due,
    /// Something was changed, or it is time to look at the members.
    Otherwise,
}

impl Alarm {
    /// Sets or clears the moment.
    pub(crate) fn set(&self, due: Option<Instant>) {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.due != due {
            state.due = due;
            if !flaw::has(Flaw::AlarmSilent) {
                self.changed.notify_one();
            }
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().expect("setting does not panic").stopped = true;
        self.changed.notify_one();
    }

    /// Sleeps, once, unless there is no reason to. A moment that has come is over.
    pub(crate) fn sleep(&self, clock: &Clock) -> Woken {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.stopped {
            return Woken::Stopped;
        }
        let left = state.due.map_or(LOOK_INTERVAL, |due| clock.until(due));
        if left.is_zero() {
            if !flaw::has(Flaw::AlarmRingsOn) {
                state.due = None;
            }
            return Woken::Due;
        }
        sync::sleep(&self.changed, state, left.min(LOOK_INTERVAL));
        Woken::Otherwise
    }
}

/// The thread's body. It holds no lasting share of the core, so that dropping the volume ends it.
pub(crate) fn run(core: &Weak<Core>) {
    let mut last_look = Moment::now();
    while let Some(core) = core.upgrade() {
        if last_look.elapsed() >= LOOK_INTERVAL {
            last_look = Moment::now();
            look_for_lost_members(&core);
        }
        match core.alarm.sleep(&core.clock) {
            Woken::Stopped => return,
            Woken::Otherwise => {}
            Woken::Due => {
                core.array.push(ArrayEvent::Timeout);
                core.drive(Machine::Array);
            }
        }
    }
}

/// A file that was deleted still takes writes, but nobody will ever find them again.
fn look_for_lost_members(core: &Arc<Core>) {
    for member in &core.members {
        if member.has_vanished() {
            core.array.push(ArrayEvent::MemberLost(member.id()));
            core.drive(Machine::Array);
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    /// It rang on until the array had heard it, and filled the inbox of an array whose owner was not
    /// running.
    #[test]
    fn an_alarm_that_rang_is_silent() {
        let (alarm, clock) = (Alarm::default(), Clock::new());
        alarm.set(Some(Instant(0)));
        assert_eq!(alarm.sleep(&clock), Woken::Due);
        assert_eq!(alarm.sleep(&clock), Woken::Otherwise);
        alarm.set(Some(Instant(0)));
        assert_eq!(alarm.sleep(&clock), Woken::Due);
    }
}
