//! The machines' alarm clock: one thread that sleeps until the first of them wants to be woken.
//!
//! It rings once for each moment that was set. A machine may be owned by a thread that the operating
//! system has put aside; ringing on would fill its inbox [check: an_alarm_that_rang_is_silent].

use std::time::Duration;

use braid_engine::Instant;
use braid_engine::array::MemberId;
use braid_engine::request::ShardIndex;

use crate::clock::Clock;
use crate::core::{ArrayEvent, Core, Machine, ShardEvent};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{self, Arc, Condvar, Moment, Mutex, Weak};

/// How often members are looked at for having vanished, and the longest sleep.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

struct State {
    /// The array's moment, then the shards', then those of members where something is held.
    due: Vec<Option<Instant>>,
    stopped: bool,
}

/// When to wake the machines.
pub(crate) struct Alarm {
    state: Mutex<State>,
    changed: Condvar,
    /// The shards' moments again, so that a turn that changes nothing takes no lock. Zero is none.
    shards: Vec<AtomicU64>,
}

/// What a sleep ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The thread is to end.
    Stopped,
    /// This machine's moment has come.
    Due(Machine),
    /// The turn of what is held at this member may have come.
    Held(MemberId),
    /// Something was changed, or it is time to look at the members.
    Otherwise,
}

fn place(machine: Machine) -> usize {
    match machine {
        Machine::Array => 0,
        Machine::Shard(index) => usize::from(index.0) + 1,
    }
}

impl Alarm {
    pub(crate) fn new(shards: u16, members: usize) -> Self {
        let due = vec![None; usize::from(shards) + 1 + members];
        Self {
            state: Mutex::new(State { due, stopped: false }),
            changed: Condvar::new(),
            shards: (0..shards).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Sets or clears a machine's moment.
    pub(crate) fn set(&self, machine: Machine, due: Option<Instant>) {
        self.set_place(place(machine), due);
    }

    /// Sets the moment at which what is held at a member is to be looked at.
    pub(crate) fn set_held(&self, member: MemberId, due: Instant) {
        self.set_place(self.shards.len() + 1 + usize::from(member.0), Some(due));
    }

    fn set_place(&self, place: usize, due: Option<Instant>) {
        let mut state = self.state.lock().expect("setting does not panic");
        if state.due[place] != due {
            state.due[place] = due;
            if !flaw::has(Flaw::AlarmSilent) {
                self.changed.notify_one();
            }
        }
    }

    /// Sets a shard's moment if it has none, or a later one. A moment that is too early does no harm:
    /// the shard looks, and says when the next is. Only the shard's owner calls this.
    pub(crate) fn bring_forward(&self, shard: ShardIndex, due: Option<Instant>) {
        let (Some(due), known) = (due, &self.shards[usize::from(shard.0)]) else { return };
        let set = known.load(Ordering::Acquire);
        if set == 0 || due.0 < set {
            known.store(due.0.max(1), Ordering::Release);
            self.set(Machine::Shard(shard), Some(due));
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
        let moments = (0u16..).zip(&state.due).filter_map(|(place, due)| Some(((*due)?, place)));
        let first = moments.min();
        let left = first.map_or(LOOK_INTERVAL, |(due, _)| clock.until(due));
        if let Some((_, place)) = first
            && left.is_zero()
        {
            if !flaw::has(Flaw::AlarmRingsOn) {
                state.due[usize::from(place)] = None;
            }
            let Some(shard) = place.checked_sub(1) else { return Woken::Due(Machine::Array) };
            if let Some(member) = usize::from(shard).checked_sub(self.shards.len()) {
                let member = u16::try_from(member).expect("members have 16-bit names");
                return Woken::Held(MemberId(member));
            }
            // Before the shard looks, so that what it says then is heard.
            self.shards[usize::from(shard)].store(0, Ordering::Release);
            return Woken::Due(Machine::Shard(ShardIndex(shard)));
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
            Woken::Held(member) => core.dispatch_held(member),
            Woken::Due(machine) => {
                match machine {
                    Machine::Array => core.array.push(ArrayEvent::Timeout),
                    Machine::Shard(index) => core.shard(index).combiner.push(ShardEvent::Timeout),
                };
                core.drive(machine);
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
        let (alarm, clock) = (Alarm::new(1, 0), Clock::new());
        alarm.set(Machine::Array, Some(Instant(0)));
        assert_eq!(alarm.sleep(&clock), Woken::Due(Machine::Array));
        assert_eq!(alarm.sleep(&clock), Woken::Otherwise);
        alarm.set(Machine::Array, Some(Instant(0)));
        assert_eq!(alarm.sleep(&clock), Woken::Due(Machine::Array));
    }

    #[test]
    fn a_shard_is_woken_for_each_of_its_moments() {
        let (alarm, clock, shard) = (Alarm::new(2, 3), Clock::new(), ShardIndex(1));
        for _ in 0..2 {
            alarm.bring_forward(shard, Some(Instant(u64::MAX)));
            alarm.bring_forward(shard, Some(Instant(0)));
            alarm.bring_forward(shard, Some(Instant(5)));
            assert_eq!(alarm.sleep(&clock), Woken::Due(Machine::Shard(shard)));
            assert_eq!(alarm.sleep(&clock), Woken::Otherwise, "a later moment was not set");
        }
    }

    #[test]
    fn a_member_with_something_held_is_woken_beside_the_machines() {
        let (alarm, clock, member) = (Alarm::new(2, 3), Clock::new(), MemberId(2));
        alarm.set_held(member, Instant(0));
        alarm.set(Machine::Array, Some(Instant(1)));
        assert_eq!(alarm.sleep(&clock), Woken::Held(member));
        assert_eq!(alarm.sleep(&clock), Woken::Due(Machine::Array));
        assert_eq!(alarm.sleep(&clock), Woken::Otherwise);
    }
}
