//! Who has a queue's turns: a worker of the array's, or a thread of the queue's own where there are no workers.
//!
//! A worker watches the kick by its ring, one look at a time, and has its turn when all completions of its own turn have been
//! told: what has ended together is answered together, and what was asked together reaches the members together.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::Builder;

use braid_ring::{Completion, Descriptor, Handler, Operation, Wake, Worker, Workers};
use rustix::event::{PollFd, PollFlags, poll};

use super::Queue;
use crate::bells;
use crate::limits::STACK_BYTES;

/// See the module.
pub(super) enum Driver {
    Worker { workers: Arc<Workers>, index: usize },
    Thread { bell: Arc<OwnedFd> },
}

/// What a worker's token tells of.
const TURN: u64 = 0;
const KICK: u64 = 1;

impl Driver {
    pub(super) fn new(number: u16, workers: Option<&Arc<Workers>>) -> io::Result<Self> {
        Ok(match workers {
            Some(workers) => Self::Worker { workers: Arc::clone(workers), index: number.into() },
            None => Self::Thread { bell: Arc::new(bells::bell()?) },
        })
    }
}

impl Queue {
    /// Starts the thread, if it has one.
    pub(super) fn begin(self: &Arc<Self>) -> io::Result<()> {
        let Driver::Thread { bell } = &self.driver else { return Ok(()) };
        let (queue, bell) = (Arc::downgrade(self), Arc::clone(bell));
        let builder = Builder::new().name("braid-vhost".into()).stack_size(STACK_BYTES);
        builder.spawn(move || run(&queue, &bell)).map(drop)
    }

    /// Has a turn soon.
    pub(super) fn wake(self: &Arc<Self>) {
        match &self.driver {
            Driver::Worker { workers, index } => {
                let sleeper: Arc<dyn Wake> = Arc::<Self>::clone(self);
                // Workers that have stopped have ended all that was under way.
                let _ = workers.wake(*index, sleeper, TURN);
            }
            Driver::Thread { bell } => bells::ring(bell),
        }
    }

    /// Has the worker tell of the next kick.
    fn watch(self: &Arc<Self>, worker: &Worker) {
        let mut state = self.lock();
        let kick = state.kick().map(Descriptor::clone);
        match (&state.watched, kick) {
            (None, Some(kick)) => {
                state.watched = Some(Descriptor::clone(&kick));
                drop(state);
                let file = kick;
                worker.submit(Operation::Poll { file }, Arc::<Self>::clone(self), KICK);
            }
            (Some(watched), kick)
                if kick.as_ref().is_none_or(|kick| !Arc::ptr_eq(kick, watched)) =>
            {
                drop(state);
                let handler: Arc<dyn Handler> = Arc::<Self>::clone(self);
                worker.cancel(&handler, KICK);
            }
            _ => {}
        }
    }
}

impl Wake for Queue {
    fn wake(self: Arc<Self>, worker: &Worker, _: u64) {
        let is_more = self.turn();
        self.watch(worker);
        if is_more {
            worker.afterwards(self, TURN);
        }
    }
}

impl Handler for Queue {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        let mut state = self.lock();
        let watched = state.watched.take();
        let watched = watched.expect("one look is out");
        match completion.result {
            Ok(_) => bells::hear(&*watched),
            // The worker is stopping, or it is no file that tells: it is not asked again.
            Err(_) if state.kick().is_some_and(|kick| Arc::ptr_eq(kick, &watched)) => {
                state.lose_kick();
            }
            Err(_) => {}
        }
        drop(state);
        worker.afterwards(self, TURN);
    }
}

/// The thread: until the queue is cut, or forgotten.
fn run(queue: &Weak<Queue>, bell: &OwnedFd) {
    loop {
        let Some(queue) = queue.upgrade() else { return };
        bells::hear(bell);
        let mut kick = queue.lock().kick().map(Descriptor::clone);
        if let Some(kick) = &kick {
            bells::hear(&**kick);
        }
        if queue.turn() {
            continue;
        }
        let state = queue.lock();
        if state.is_cut && state.under_way() == 0 {
            return;
        }
        let now = state.kick().map(Descriptor::clone);
        drop(state);
        // One that has just come was not heard, so it still rings if it does.
        kick = now.or(kick.take());
        drop(queue);
        let mut looks = vec![PollFd::new(bell, PollFlags::IN)];
        looks.extend(kick.iter().map(|kick| PollFd::new(&**kick, PollFlags::IN)));
        // Whatever it says, all are looked at next.
        let _ = poll(&mut looks, None);
    }
}
