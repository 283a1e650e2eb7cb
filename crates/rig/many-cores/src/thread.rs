//! Threads and time of the modelled machine.

use std::time::Duration;

use crate::costs::Cost;
use crate::lines::{Access, Line};
use crate::world;

/// A thread's number.
pub type ThreadId = usize;

/// A handle that wakes a thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread(ThreadId);

/// The running thread, or the first thread if none runs.
#[must_use]
pub fn current() -> Thread {
    Thread(world::current().unwrap_or(0))
}

/// The number of the running thread.
#[must_use]
pub fn thread_number() -> usize {
    world::current().unwrap_or(0)
}

/// Lets other threads run first.
pub fn yield_now() {
    world::spend(Cost::Yield, 1);
    world::turn();
}

/// Sleeps until another thread wakes this one. Returns at once if one has done so already.
pub fn park() {
    world::spend(Cost::Locked, 1);
    world::turn();
    let sleeps = world::with(|world| {
        let thread = world.current();
        let (was_unparked, is_parked) = &mut world.parking[thread];
        *is_parked = !std::mem::take(was_unparked);
        *is_parked
    });
    if sleeps == Some(true) {
        world::spend(Cost::Yield, 1);
        world::sleep();
    }
}

impl Thread {
    /// The thread's number.
    #[must_use]
    pub fn id(self) -> ThreadId {
        self.0
    }

    /// Wakes the thread, or makes its next park return at once.
    pub fn unpark(self) {
        let is_parked = |world: &mut world::World| world.parking[self.0].1;
        world::spend(Cost::Locked, 1);
        world::turn();
        if world::with(is_parked) == Some(true) {
            world::spend(Cost::Wake, 1);
            world::turn();
        }
        world::with(|world| {
            let (was_unparked, is_parked) = &mut world.parking[self.0];
            if std::mem::take(is_parked) {
                world.wake(self.0, world.costs.ps(Cost::Asleep));
            } else {
                *was_unparked = true;
            }
        });
    }
}

/// A moment of modelled time.
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl Moment {
    /// The time of the running thread.
    #[must_use]
    pub fn now() -> Self {
        world::spend(Cost::Clock, 1);
        Self(world::now_ps())
    }

    /// The time since this moment.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos((Self::now().0 - self.0) / 1000)
    }
}

/// Picoseconds since the start of the run. The call takes no modelled time.
#[must_use]
pub fn now_ps() -> u64 {
    world::now_ps()
}

/// Nanoseconds since the start of the run. The call takes no modelled time.
#[must_use]
pub fn now_ns() -> u64 {
    now_ps() / 1000
}

/// The running thread works for this time without touching shared state.
pub fn work_ps(ps: u64) {
    world::spend_ps(ps);
}

/// The running thread works for the time of `cost`.
pub fn work(cost: Cost) {
    world::spend(cost, 1);
}

/// Moves the state of `owner` to this core, as many cache lines as `Costs` says.
pub fn own_state<T>(owner: &T) {
    let lines = world::with(|world| world.costs.state_lines);
    world::access_many(Line::held_by(owner, 0), Access::Store, lines.unwrap_or(0));
}

/// Moves one cache line that belongs to `owner` to this core.
pub fn own_line<T>(owner: &T, index: usize) {
    world::access(Line::held_by(owner, 1 + index), Access::Store);
}
