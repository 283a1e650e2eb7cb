//! One queue of the kernel's: its thread, and how finished operations get to that thread.
//!
//! ```text
//!   request in an entry ──► parse ──► room? ──► pread ──► submit ┄┄► receive ──► inbox, bell
//!      ▲                       │        └── none: kept in hand until another ends  │
//!      └── commit-and-fetch ◄──┴── malformed                pwrite, commit ◄───────┘
//! ```
//!
//! Only one thread may give commands about a queue. So other threads leave finished operations in
//! the inbox of that thread. They wake the queue's thread once for all operations that finished
//! while it slept.
//!
//! Invariants
//! - Each description of the kernel's is answered once, and no operation reaches beyond the array
//!   `[check: whatever_the_kernel_describes_is_answered_once_and_stays_within_the_array]`.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use braid_ring::{Bell, Inbox, Payload};
use braid_runtime::{ClientRequest, Completion, Disk, Outcome, Receiver, RequestError, Token};
use braid_ublk_proto::{Errno, Request, answer};

use crate::entries::{Entries, RingEvent};
use crate::limits::QUEUE_BYTES_MAX;

enum QueueMessage {
    /// An operation has ended.
    Finished { token: u64, outcome: Outcome },
    /// The thread ends; the device stays as it is.
    End,
}

pub(crate) struct Queue {
    disk: Arc<dyn Disk>,
    inbox: Inbox<QueueMessage>,
    bell: OwnedFd,
}

impl Queue {
    pub(crate) fn new(disk: Arc<dyn Disk>, bell: OwnedFd) -> Self {
        Self { disk, inbox: Inbox::new(false), bell }
    }

    pub(crate) fn end(&self) {
        self.post(QueueMessage::End);
    }

    fn post(&self, message: QueueMessage) {
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

#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    request: Request,
    held_bytes: usize,
}

pub(crate) struct Server<E> {
    queue: Arc<Queue>,
    commands: E,
    pending: Vec<Option<PendingRequest>>,
    /// Number of entries with a fetch that the kernel has not ended.
    live: usize,
    under_way: usize,
    held_bytes: usize,
    in_hand: VecDeque<(u16, Request)>,
    is_told_to_end: bool,
}

impl<E: Entries> Server<E> {
    pub(crate) fn new(queue: Arc<Queue>, commands: E) -> Self {
        let pending = vec![None; usize::from(commands.depth())];
        let (live, under_way, held_bytes) = (0, 0, 0);
        let (in_hand, is_told_to_end) = (VecDeque::new(), false);
        Self { queue, commands, pending, live, under_way, held_bytes, in_hand, is_told_to_end }
    }

    /// Serves requests until the kernel has ended all entries, or the door asks the thread to end.
    pub(crate) fn run(mut self) {
        let (mut ended, mut items) = (Vec::new(), Vec::new());
        self.commands.watch(self.queue.bell.as_fd());
        for tag in 0..self.commands.depth() {
            self.commands.fetch(tag);
            self.live += 1;
        }
        self.commands.enter(false);
        loop {
            self.commands.reap(&mut ended);
            for one in ended.drain(..) {
                match one {
                    RingEvent::Bell { is_heard_again: true } => self.hear(),
                    RingEvent::Bell { is_heard_again: false } => {
                        self.hear();
                        self.commands.watch(self.queue.bell.as_fd());
                    }
                    RingEvent::Entry { tag, result: Ok(()) } => self.handle(tag),
                    RingEvent::Entry { tag, result: Err(error) } => {
                        tracing::debug!(target: "braid_frontend_ublk", tag, %error, "an entry is over");
                        self.live -= 1;
                    }
                }
            }
            self.queue.inbox.take(&mut items);
            items.drain(..).for_each(|message| match message {
                QueueMessage::Finished { token, outcome } => self.finish(token, outcome),
                QueueMessage::End => self.is_told_to_end = true,
            });
            self.take_in();
            if self.is_told_to_end || self.live == 0 {
                return self.commands.enter(false);
            }
            let sleeps = self.queue.inbox.sleep();
            self.commands.enter(sleeps);
        }
    }

    /// Empties the bell, so that it can ring again.
    fn hear(&self) {
        let mut count = [0; 8];
        // The read fails if the bell was emptied after an earlier completion.
        let _ = rustix::io::read(&self.queue.bell, &mut count);
    }

    fn handle(&mut self, tag: u16) {
        let told = self.commands.description(tag);
        match Request::parse(&told, self.queue.disk.size_bytes()) {
            Ok(request) => self.in_hand.push_back((tag, request)),
            Err(error) => {
                tracing::warn!(target: "braid_frontend_ublk", %error, "a request of the kernel's is malformed");
                self.commands.commit(tag, answer(Err(Errno::Invalid)));
            }
        }
    }

    /// Starts the requests in hand, as far as the queue's memory allows.
    fn take_in(&mut self) {
        while let Some((tag, request)) = self.in_hand.front().copied() {
            let bytes = request.payload_bytes() as usize;
            let held_bytes = if bytes == 0 { 0 } else { Payload::capacity_for(bytes) };
            let is_full = self.held_bytes + held_bytes > QUEUE_BYTES_MAX;
            if is_full && self.held_bytes > 0 {
                return;
            }
            let operation = self.operation(tag, &request);
            let operation = match operation {
                // The request waits, since the next operation that ends gives memory back.
                Err(Errno::NoMemory) if self.under_way > 0 => return,
                operation => operation,
            };
            self.in_hand.pop_front();
            match operation {
                Ok(operation) => {
                    self.pending[usize::from(tag)] = Some(PendingRequest { request, held_bytes });
                    self.held_bytes += held_bytes;
                    self.under_way += 1;
                    let receiver: Arc<dyn Receiver> = Arc::<Queue>::clone(&self.queue);
                    let completion = Completion::new(receiver, u64::from(tag).into());
                    self.queue.disk.submit(operation, completion);
                }
                Err(errno) => self.commands.commit(tag, answer(Err(errno))),
            }
        }
    }

    /// The array's operation for a request; copies a write's payload from the kernel.
    fn operation(&self, tag: u16, request: &Request) -> Result<ClientRequest, Errno> {
        let memory = |length: u32| {
            Payload::try_for_overwriting(length as usize).map_err(|_| Errno::NoMemory)
        };
        Ok(match *request {
            Request::Read { offset, length } => {
                ClientRequest::Read { offset, payload: memory(length)? }
            }
            Request::Write { offset, length, durable } => {
                let mut payload = memory(length)?;
                self.commands.copy_in(tag, &mut payload).map_err(|error| not_copied(&error))?;
                ClientRequest::Write { offset, payload, durable }
            }
            Request::Flush => ClientRequest::Flush,
            Request::Discard { offset, length, durable } => {
                ClientRequest::Trim { offset, length, durable }
            }
            Request::Zero { offset, length, may_punch, durable } => {
                let fast = false;
                ClientRequest::WriteZeroes { offset, length, may_punch, fast, durable }
            }
        })
    }

    fn finish(&mut self, token: u64, outcome: Outcome) {
        let tag = u16::try_from(token).expect("one of our entries");
        let pending = self.pending[usize::from(tag)].take().expect("an entry waits for one thing");
        self.under_way -= 1;
        self.held_bytes -= pending.held_bytes;
        let result = self.end_of(tag, &pending.request, outcome);
        self.commands.commit(tag, answer(result));
    }

    /// The result of a request; copies a read's payload to the kernel.
    fn end_of(&self, tag: u16, request: &Request, outcome: Outcome) -> Result<u32, Errno> {
        outcome.result.map_err(errno)?;
        if let Request::Read { .. } = request {
            let payload = outcome.payload.ok_or(Errno::Io)?;
            self.commands.copy_out(tag, &payload).map_err(|error| not_copied(&error))?;
        }
        Ok(request.payload_bytes())
    }
}

fn not_copied(error: &io::Error) -> Errno {
    tracing::warn!(target: "braid_frontend_ublk", %error, "a payload was not copied");
    Errno::Io
}

fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::ReadOnly => Errno::ReadOnly,
        RequestError::Io(_) | RequestError::Stopping | RequestError::Dropped => Errno::Io,
        RequestError::NoSpace => Errno::NoSpace,
        RequestError::NoMemory => Errno::NoMemory,
        RequestError::NotFast => Errno::NotSupported,
        RequestError::OutOfRange => Errno::Invalid,
    }
}
