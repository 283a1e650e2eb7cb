//! One queue of the kernel's: its thread, and how finished operations get to that thread.
//!
//! ```text
//!   request ends in an entry ──► decide ──► Answer ───────────┐
//!      ▲                            └──► submit ┄┄► receive   ├──► into the entry's memory, commit
//!      └─────────── commit-and-fetch ◄──── inbox, bell ───────┘
//! ```
//!
//! `receive` runs on any thread.
//!
//! Payloads are copied between the entry's memory and the array's. An entry's memory belongs to the
//! kernel again once the request is answered. But the array may hold a write's payload longer, and
//! may answer a read from other memory.
//!
//! Only one thread may give commands to a ring. So other threads leave finished operations in the
//! inbox of that thread. They wake the queue's thread once for all operations that finished while
//! it slept.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_fuse_proto::wire::{RingEntry, RingHeader, opcode};
use braid_fuse_proto::{Errno, Head, Reply, Step, Wishes};
use braid_ring::{Bell, Inbox, Payload};
use braid_runtime::{ClientRequest, Completion, Outcome, Receiver, Token};
use zerocopy::{FromBytes, IntoBytes};

use super::commands::{Commands, RingEvent};
use crate::gate::Gate;
use crate::session::{AnswerKind, PendingRequest, Session, add, operation_of};

/// Time in which the kernel must return the entries when it releases the file system.
const LAST_ENTRIES: Duration = Duration::from_millis(200);

pub(super) enum QueueMessage {
    /// The kernel and this process have agreed on rings: register the entries.
    Register,
    /// An operation has ended.
    Finished { token: u64, outcome: Outcome },
    /// The door is being closed.
    End,
}

pub(super) struct Queue {
    pub(super) session: Arc<Session>,
    pub(super) gate: Arc<Gate>,
    pub(super) wishes: Wishes,
    inbox: Inbox<QueueMessage>,
    bell: OwnedFd,
}

impl Queue {
    pub(super) fn new(
        session: &Arc<Session>,
        gate: &Arc<Gate>,
        (wishes, bell): (Wishes, OwnedFd),
    ) -> Self {
        let (session, gate) = (Arc::clone(session), Arc::clone(gate));
        Self { session, gate, wishes, inbox: Inbox::new(false), bell }
    }

    pub(super) fn post(&self, message: QueueMessage) {
        // The inbox is never closed, so it refuses no message; the thread's end drops its content.
        if let Ok(Bell::Ring) = self.inbox.push(message, true) {
            // The write fails only after 2^64 wakes without a read, and in that case the bell rings
            // already.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Receiver for Queue {
    fn receive(self: Arc<Self>, token: Token, outcome: Outcome) {
        self.post(QueueMessage::Finished { token: token.request, outcome });
    }
}

pub(super) struct Server {
    queue: Arc<Queue>,
    commands: Commands,
    pending: Vec<Option<PendingRequest>>,
    live: usize,
    ending: Option<Instant>,
}

impl Server {
    pub(super) fn new(queue: Arc<Queue>, commands: Commands) -> Self {
        let pending = vec![None; commands.count()];
        Self { queue, commands, pending, live: 0, ending: None }
    }

    /// Serves requests until the door asks the thread to end, and the kernel has returned the
    /// entries or [`LAST_ENTRIES`] has passed.
    pub(super) fn run(mut self) {
        let (mut ended, mut items) = (Vec::new(), Vec::new());
        self.commands.watch(self.queue.bell.as_fd());
        loop {
            self.commands.reap(&mut ended);
            for one in ended.drain(..) {
                match one {
                    RingEvent::Bell { is_heard_again: true } => {}
                    RingEvent::Bell { is_heard_again: false } => {
                        self.commands.watch(self.queue.bell.as_fd());
                    }
                    RingEvent::Entry { index, result: Ok(()) } => self.handle(index),
                    RingEvent::Entry { index, result: Err(error) } => {
                        tracing::debug!(target: "braid_frontend_fuse", index, %error, "an entry is over");
                        self.live -= 1;
                    }
                }
            }
            self.queue.inbox.take(&mut items);
            items.drain(..).for_each(|message| self.take(message));
            if self.is_over() {
                // Sends the answers that are ready.
                return self.commands.enter(false);
            }
            if self.ending.is_some() {
                self.commands.enter(false);
                std::thread::sleep(crate::limits::LOOK);
            } else {
                let sleeps = self.queue.inbox.sleep();
                self.commands.enter(sleeps);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ending.is_some_and(|since| self.live == 0 || since.elapsed() > LAST_ENTRIES)
    }

    fn take(&mut self, message: QueueMessage) {
        match message {
            QueueMessage::Register => {
                for index in 0..self.commands.count() {
                    self.commands.register(index);
                    self.live += 1;
                }
            }
            QueueMessage::Finished { token, outcome } => self.finish(token, outcome),
            QueueMessage::End => self.ending = Some(Instant::now()),
        }
    }

    fn handle(&mut self, index: usize) {
        let queue = Arc::clone(&self.queue);
        let (header, payload) = self.commands.of_idle(index);
        let header = RingHeader::read_from_prefix(header).expect("as long as it is").0;
        let payload_bytes = usize::try_from(header.entry.payload_sz).unwrap_or(usize::MAX);
        let payload_bytes = payload_bytes.min(payload.len());
        let head = Head::parse_ring(header.in_out.as_bytes()).expect("as long as it is");
        // The kernel expects the entry's commit ID with the answer.
        let head = Head { unique: header.entry.commit_id, ..head };
        let arguments = (header.op_in.as_bytes(), payload_bytes);
        let step = queue.session.decide(&head, arguments, queue.wishes);
        let submitted = match step {
            Step::Answer(reply) | Step::Begin(reply, _) => Err(reply),
            Step::Silent => Err(Reply::done(head.unique)),
            Step::Write { offset, length, durable } => {
                debug_assert_eq!(head.opcode, opcode::WRITE);
                let bytes = &payload[..length as usize];
                add(&queue.session.counters.bytes_copied, bytes.len());
                match Payload::try_for_overwriting(bytes.len()) {
                    Ok(mut payload) => {
                        payload.copy_from_slice(bytes);
                        let write = ClientRequest::Write { offset, payload, durable };
                        Ok((write, AnswerKind::Write { length }))
                    }
                    Err(_) => Err(Reply::failed(head.unique, Errno::NoMemory)),
                }
            }
            step => match operation_of(&step) {
                Some(Ok(submitted)) => Ok(submitted),
                Some(Err(errno)) => Err(Reply::failed(head.unique, errno)),
                None => Err(Reply::done(head.unique)),
            },
        };
        match submitted {
            Err(reply) => self.answer(index, (&reply, head.unique), None),
            Ok((operation, kind)) => {
                let held_bytes = crate::session::held_by(&operation);
                self.pending[index] =
                    Some(PendingRequest { unique: head.unique, kind, held_bytes });
                queue.gate.enter(held_bytes);
                let receiver: Arc<dyn Receiver> = Arc::<Queue>::clone(&queue);
                let completion = Completion::new(receiver, (index as u64).into());
                queue.session.disk.submit(operation, completion);
            }
        }
    }

    fn finish(&mut self, token: u64, outcome: Outcome) {
        let index = usize::try_from(token).expect("one of our entries");
        let pending = self.pending[index].take().expect("an entry waits for one thing");
        let session = Arc::clone(&self.queue.session);
        let (reply, payload) = session.answer(&pending, outcome);
        self.answer(index, (&reply, pending.unique), payload.as_deref());
        self.queue.gate.leave(pending.held_bytes);
    }

    fn answer(&mut self, index: usize, (reply, unique): (&Reply, u64), read: Option<&[u8]>) {
        let (header, place) = self.commands.of_idle(index);
        let body = read.unwrap_or(reply.body());
        place[..body.len()].copy_from_slice(body);
        if read.is_some() {
            add(&self.queue.session.counters.bytes_copied, body.len());
        }
        let (wire, _) = RingHeader::mut_from_prefix(header).expect("aligned, and as long as it is");
        let head = reply.head();
        wire.in_out.as_mut_bytes()[..head.len()].copy_from_slice(head);
        let payload_sz = u32::try_from(body.len()).expect("no longer than a request");
        wire.entry = RingEntry { commit_id: unique, payload_sz, ..RingEntry::default() };
        self.commands.commit(index, unique);
    }
}
