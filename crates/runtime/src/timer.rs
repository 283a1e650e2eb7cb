//! The array's alarm clock: one thread that sleeps until the array wants to be woken.

use std::sync::{Condvar, Mutex, Weak};
use std::time::Duration;

use braid_engine::Instant;

use crate::core::{ArrayEvent, Core, Machine};

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

impl Alarm {
    /// Sets or clears the moment.
    pub(crate) fn set(&self, due: Option<Instant>) {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.due != due {
            state.due = due;
            self.changed.notify_one();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().expect("setting does not panic").stopped = true;
        self.changed.notify_one();
    }
}

/// The thread's body. It holds no lasting share of the core, so that dropping the volume ends it.
pub(crate) fn run(core: &Weak<Core>) {
    let mut last_look = std::time::Instant::now();
    while let Some(core) = core.upgrade() {
        if last_look.elapsed() >= LOOK_INTERVAL {
            last_look = std::time::Instant::now();
            look_for_lost_members(&core);
        }
        let state = core.alarm.state.lock().expect("setting does not panic");
        if state.stopped {
            return;
        }
        let sleep = state.due.map_or(LOOK_INTERVAL, |due| core.clock.until(due).min(LOOK_INTERVAL));
        if state.due.is_none() || !sleep.is_zero() {
            let woken = core.alarm.changed.wait_timeout(state, sleep);
            drop(woken.expect("setting does not panic"));
            continue;
        }
        drop(state);
        core.array.push(ArrayEvent::Timeout);
        core.drive(Machine::Array);
    }
}

/// A file that was deleted still takes writes, but nobody will ever find them again.
fn look_for_lost_members(core: &std::sync::Arc<Core>) {
    for member in &core.members {
        if member.has_vanished() {
            core.array.push(ArrayEvent::MemberLost(member.id()));
            core.drive(Machine::Array);
        }
    }
}
