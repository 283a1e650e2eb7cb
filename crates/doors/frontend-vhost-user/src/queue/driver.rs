//! The driver that runs a queue's turns: one of the array's workers, or the queue's own thread.
//!
//! A worker's ring watches the kick, one poll at a time. The queue's turn runs after all
//! completions of the worker's own turn. So operations that end together are answered together, and
//! requests that arrive together reach the members together.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::Builder;

use braid_ring::{Descriptor, Wake, Workers};
use rustix::event::{PollFd, PollFlags, poll};

use crate::bells;
use crate::limits::STACK_BYTES;

pub(super) enum Driver {
    Worker { workers: Arc<Workers>, index: usize },
    Thread { bell: Arc<OwnedFd> },
}

/// A queue, as its driver sees it.
pub(super) trait Turns: Wake + 'static {
    /// Runs a turn; returns whether more work has arrived already.
    fn turn(self: &Arc<Self>) -> bool;

    /// The eventfd to watch, if the ring is served.
    fn kick(&self) -> Option<Descriptor>;

    fn is_over(&self) -> bool;
}

impl Driver {
    pub(super) fn new(number: u16, workers: Option<&Arc<Workers>>) -> io::Result<Self> {
        Ok(match workers {
            Some(workers) => Self::Worker { workers: Arc::clone(workers), index: number.into() },
            None => Self::Thread { bell: Arc::new(bells::bell()?) },
        })
    }

    /// Starts the queue's thread, unless a worker runs the turns.
    pub(super) fn begin(&self, queue: &Arc<impl Turns>) -> io::Result<()> {
        let Self::Thread { bell } = self else { return Ok(()) };
        let (queue, bell) = (Arc::downgrade(queue), Arc::clone(bell));
        let builder = Builder::new().name("braid-vhost".into()).stack_size(STACK_BYTES);
        builder.spawn(move || run(&queue, &bell)).map(drop)
    }

    /// Schedules a turn of the queue; if a worker runs the turns, the worker gets `token`.
    pub(super) fn wake(&self, queue: &Arc<impl Turns>, token: u64) {
        match self {
            Self::Worker { workers, index } => {
                let sleeper: Arc<dyn Wake> = Arc::clone(queue) as _;
                // Fails only if the workers have stopped, which have then ended all operations.
                let _ = workers.wake(*index, sleeper, token);
            }
            Self::Thread { bell } => bells::ring(bell),
        }
    }
}

/// The body of the queue's thread: runs turns until no more can follow, or the queue is dropped.
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
        // A kick eventfd that was set in the meantime has not been reset, so it still rings.
        let kick = queue.kick();
        drop(queue);
        let mut looks = vec![PollFd::new(bell, PollFlags::IN)];
        looks.extend(kick.iter().map(|kick| PollFd::new(&**kick, PollFlags::IN)));
        // The result is ignored, since the loop checks all descriptors next.
        let _ = poll(&mut looks, None);
    }
}
