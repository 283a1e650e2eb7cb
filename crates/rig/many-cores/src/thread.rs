//! Threads and time of the modelled machine.

use std::time::Duration;

use crate::costs::Cost;
use crate::lines::{Access, Line};
use crate::world;

/// Which thread it is.
pub type ThreadId = usize;

/// A thread that others may wake.
#[derive(Clone, Copy, Debug)]
pub struct Thread(ThreadId);

/// The one that runs; the first where none does.
#[must_use]
pub fn current() -> Thread {
    Thread(world::current().unwrap_or(0))
}

/// A number of this thread's, dealt out one after the other.
#[must_use]
pub fn thread_number() -> usize {
    world::current().unwrap_or(0)
}

/// Lets others run.
pub fn yield_now() {
    world::spend(Cost::Yield, 1);
    world::turn();
}

/// Sleeps until it is woken, unless it was already.
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
    /// Its name.
    #[must_use]
    pub fn id(self) -> ThreadId {
        self.0
    }

    /// Wakes it, or has its next attempt to sleep end at once.
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

/// A moment of the modelled time.
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl Moment {
    /// By the clock of the thread that runs.
    #[must_use]
    pub fn now() -> Self {
        world::spend(Cost::Clock, 1);
        Self(world::now_ps())
    }

    /// The time since then.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos((Self::now().0 - self.0) / 1000)
    }
}

/// Picoseconds since the start, at no cost.
#[must_use]
pub fn now_ps() -> u64 {
    world::now_ps()
}

/// The same in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    now_ps() / 1000
}

/// The thread works for so long, on nothing that is shared.
pub fn work_ps(ps: u64) {
    world::spend_ps(ps);
}

/// The same, as long as one thing takes.
pub fn work(cost: Cost) {
    world::spend(cost, 1);
}

/// What a struct is and points to comes to this core, as many lines as the machine says.
pub fn own_state<T>(owner: &T) {
    let lines = world::with(|world| world.costs.state_lines);
    world::access_many(Line::held_by(owner, 0), Access::Store, lines.unwrap_or(0));
}

/// One line that belongs to it comes to this core.
pub fn own_line<T>(owner: &T, index: usize) {
    world::access(Line::held_by(owner, 1 + index), Access::Store);
}
