//! Who has a queue's turns: a worker of the array's, or a thread of the queue's own where there are no workers.
//!
//! A worker watches the kick by its ring, one look at a time, and has its turn when all completions of its own turn have been
//! told: what has ended together is answered together, and what was asked together reaches the members together.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::Builder;

use braid_ring::{Descriptor, Wake, Workers};
use rustix::event::{PollFd, PollFlags, poll};

use crate::bells;
use crate::limits::STACK_BYTES;

/// See the module.
pub(super) enum Driver {
    Worker { workers: Arc<Workers>, index: usize },
    Thread { bell: Arc<OwnedFd> },
}

/// Something that has turns.
pub(super) trait Turns: Wake + 'static {
    /// Does all there is to do; whether there is more already.
    fn turn(self: &Arc<Self>) -> bool;

    /// What says that there is something, if it is to be looked at.
    fn kick(&self) -> Option<Descriptor>;

    /// Whether there will be no more turns.
    fn is_over(&self) -> bool;
}

impl Driver {
    pub(super) fn new(number: u16, workers: Option<&Arc<Workers>>) -> io::Result<Self> {
        Ok(match workers {
            Some(workers) => Self::Worker { workers: Arc::clone(workers), index: number.into() },
            None => Self::Thread { bell: Arc::new(bells::bell()?) },
        })
    }

    /// Starts the thread, if there is to be one.
    pub(super) fn begin(&self, queue: &Arc<impl Turns>) -> io::Result<()> {
        let Self::Thread { bell } = self else { return Ok(()) };
        let (queue, bell) = (Arc::downgrade(queue), Arc::clone(bell));
        let builder = Builder::new().name("braid-vhost".into()).stack_size(STACK_BYTES);
        builder.spawn(move || run(&queue, &bell)).map(drop)
    }

    /// Has a turn soon; on a worker it is called with `token`.
    pub(super) fn wake(&self, queue: &Arc<impl Turns>, token: u64) {
        match self {
            Self::Worker { workers, index } => {
                let sleeper: Arc<dyn Wake> = Arc::clone(queue) as _;
                // Workers that have stopped have ended all that was under way.
                let _ = workers.wake(*index, sleeper, token);
            }
            Self::Thread { bell } => bells::ring(bell),
        }
    }
}

/// The thread: until there are no more turns, or the queue is forgotten.
fn run(queue: &Weak<impl Turns>, bell: &OwnedFd) {
    loop {
        let Some(queue) = queue.upgrade() else { return };
        bells::hear(bell);
        if let Some(kick) = queue.kick() {
            bells::hear(&*kick);
        }
        if queue.turn() {
            continue;
        }
        if queue.is_over() {
            return;
        }
        // One that has just come was not heard, so it still rings if it does.
        let kick = queue.kick();
        drop(queue);
        let mut looks = vec![PollFd::new(bell, PollFlags::IN)];
        looks.extend(kick.iter().map(|kick| PollFd::new(&**kick, PollFlags::IN)));
        // Whatever it says, all are looked at next.
        let _ = poll(&mut looks, None);
    }
}
