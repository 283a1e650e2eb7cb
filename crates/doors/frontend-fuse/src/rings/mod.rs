//! Requests through io_uring: a queue and a thread for each possible processor.
//!
//! The kernel puts a request into the memory that a command lent to it, and takes the answer from
//! the same memory with the next command. So one system call serves many requests, and no call is
//! needed if answers and requests arrive together. Linux supports this from 6.14 on, if
//! `/sys/module/fuse/parameters/enable_uring` allows it, once every queue has an entry.
//!
//! ```text
//!   Rings::prepare ── threads, rings, memory ──► INIT says so ──► register ──► requests
//!        └── none: INIT does not say so                              └── refused
//! ```
//!
//! After a refusal, the kernel continues through /dev/fuse. FORGET and INTERRUPT always come
//! through /dev/fuse.

mod commands;
mod queue;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use braid_fuse_proto::Wishes;
use rustix::event::{EventfdFlags, eventfd};

use crate::gate::Gate;
use crate::limits::{ENTRIES_ALTOGETHER, ENTRIES_MAX, ENTRIES_MIN, PAYLOAD_BYTES_MAX, STACK_BYTES};
use crate::session::Session;
use commands::Commands;
use queue::{Queue, QueueMessage, Server};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";

pub(crate) struct Rings {
    queues: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) fn are_allowed() -> bool {
    std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y")
}

/// The number of possible processors, from a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let number = |text: &str| text.parse::<usize>().ok();
    let parts = list.trim().split(',').map(|part| match part.split_once('-') {
        Some((first, last)) => number(last)?.checked_sub(number(first)?)?.checked_add(1),
        None => number(part).map(|_| 1),
    });
    parts.sum::<Option<usize>>().filter(|count| *count > 0)
}

fn entries_of(queues: usize) -> usize {
    (ENTRIES_ALTOGETHER / queues).clamp(ENTRIES_MIN, ENTRIES_MAX)
}

impl Rings {
    pub(crate) fn prepare(
        device: &Arc<OwnedFd>,
        (session, gate): (&Arc<Session>, &Arc<Gate>),
        wishes: Wishes,
    ) -> io::Result<Self> {
        let list = std::fs::read_to_string(PROCESSORS)?;
        let queues = count(&list).ok_or_else(|| io::Error::other("no list of processors"))?;
        let entries = entries_of(queues);
        let mut rings = Self { queues: Vec::new(), threads: Vec::new() };
        let (ready, answers) = channel();
        for number in 0..queues {
            let number = u16::try_from(number).map_err(io::Error::other)?;
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let queue = Arc::new(Queue::new(session, gate, (wishes, bell)));
            rings.queues.push(Arc::clone(&queue));
            let (device, ready) = (Arc::clone(device), ready.clone());
            let body = move || serve(&device, (queue, number), (entries, ready));
            let builder = Builder::new().name("braid-fuse-ring".into()).stack_size(STACK_BYTES);
            rings.threads.push(builder.spawn(body)?);
        }
        drop(ready);
        // On an error, dropping `rings` ends the threads that were started.
        answers.iter().find_map(Result::err).map_or(Ok(rings), Err)
    }

    pub(crate) fn register(&self) {
        self.queues.iter().for_each(|queue| queue.post(QueueMessage::Register));
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.post(QueueMessage::End));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(target: "braid_frontend_fuse", "the thread of a queue has panicked");
            }
        }
    }
}

fn serve(
    device: &Arc<OwnedFd>,
    (queue, number): (Arc<Queue>, u16),
    (entries, ready): (usize, Sender<io::Result<()>>),
) {
    let commands = Commands::new(device.as_fd(), number, (entries, PAYLOAD_BYTES_MAX));
    match commands {
        Ok(commands) => {
            // The send cannot fail, since the thread that starts the rings waits for all reports.
            let _ = ready.send(Ok(()));
            drop(ready);
            Server::new(queue, commands).run();
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_as_the_kernel_lists_them() {
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        for bad in ["", "a", "3-1", "-"] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }

    #[test]
    fn entries_fit_into_what_there_is_for_them() {
        assert_eq!((entries_of(1), entries_of(2), entries_of(4)), (32, 32, 16));
        assert_eq!(entries_of(1000), ENTRIES_MIN);
    }
}
