//! Requests through /dev/fuse: one thread reads messages; the thread that ends a request answers
//! it.
//!
//! The reader receives a message into three runs of memory: one for the head, one as long as the
//! last write, one for the longest write. The payload of a write as long as the previous write
//! fills exactly the second run, aligned, and goes to the array without a copy. Any other write is
//! copied once, and its length is the next expected length.
//!
//! ```text
//!   readv ──► │ head, arguments │ expected │ rest │ ──► decide ──► Answer ─────────────► write
//!                80 bytes         a payload   1 MiB          └──► submit ┄┄► receive ──► writev
//! ```
//!
//! `receive` runs on any thread.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_fuse_proto::limits::{MESSAGE_BYTES_MAX, WRITE_HEAD_BYTES};
use braid_fuse_proto::wire::{InHeader, opcode};
use braid_fuse_proto::{Errno, Head, Reply, SessionParameters, Step, Wishes};
use braid_ring::{NoMemory, Payload};
use braid_runtime::{ClientRequest, Completion, Outcome, Receiver, Token};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as SystemErrno;
use slab::Slab;

use crate::gate::Gate;
use crate::limits::{EXPECTED_BYTES_MIN, PAYLOAD_BYTES_MAX};
use crate::rings::Rings;
use crate::session::{AnswerKind, PendingRequest, Session, add, held_by, operation_of};

const HEADER_BYTES: usize = size_of::<InHeader>();

pub(crate) struct Device {
    pub(crate) session: Arc<Session>,
    descriptor: Arc<OwnedFd>,
    wishes: Wishes,
    waiting: Mutex<Slab<PendingRequest>>,
    pub(crate) gate: Arc<Gate>,
    /// An eventfd that tells the reader to end.
    end: OwnedFd,
    /// The parameters that were agreed in INIT; `None` until INIT is answered.
    begun: Mutex<Option<SessionParameters>>,
    begins: Condvar,
    /// True once the kernel has released the file system.
    gone: AtomicBool,
    /// True once this process is about to unmount the file system.
    ending: AtomicBool,
    /// The rings for requests; `None` until the kernel and this process have agreed on rings.
    rings: Mutex<Option<Rings>>,
}

impl Device {
    pub(crate) fn new(
        session: Arc<Session>,
        (descriptor, end): (Arc<OwnedFd>, OwnedFd),
        (wishes, gate, rings): (Wishes, Arc<Gate>, Option<Rings>),
    ) -> Self {
        Self {
            session,
            descriptor,
            wishes,
            waiting: Mutex::default(),
            gate,
            end,
            begun: Mutex::new(None),
            begins: Condvar::new(),
            gone: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            rings: Mutex::new(rings),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Slab<PendingRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    pub(crate) fn note_ending(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    /// Waits until INIT is answered; returns the agreed parameters, or `None` after `limit`.
    pub(crate) fn wait_for_begin(&self, limit: Duration) -> Option<SessionParameters> {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.begins.wait_timeout_while(begun, limit, |begun| begun.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn end(&self) {
        self.gate.close();
        // The write cannot fail, since only this code writes to the eventfd.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }

    pub(crate) fn end_rings(&self) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(rings);
    }

    /// Writes an answer to the kernel. It is no error if the kernel no longer wants the answer.
    fn send(&self, reply: &Reply, payload: Option<&Payload>) {
        let result = match payload {
            Some(payload) => {
                let parts = [IoSlice::new(reply.bytes()), IoSlice::new(payload)];
                rustix::io::writev(&*self.descriptor, &parts)
            }
            None => rustix::io::write(&*self.descriptor, reply.bytes()),
        };
        match result {
            Ok(_) | Err(SystemErrno::NOENT | SystemErrno::NODEV | SystemErrno::NOTCONN) => {}
            Err(errno) => {
                tracing::warn!(target: "braid_frontend_fuse", %errno, "the kernel refused an answer");
            }
        }
    }

    fn submit(self: &Arc<Self>, pending: PendingRequest, operation: ClientRequest) {
        self.gate.enter(pending.held_bytes);
        let token = self.waiting().insert(pending) as u64;
        let receiver: Arc<dyn Receiver> = Arc::<Self>::clone(self);
        self.session.disk.submit(operation, Completion::new(receiver, token.into()));
    }
}

impl Receiver for Device {
    fn receive(self: Arc<Self>, token: Token, outcome: Outcome) {
        let place = usize::try_from(token.request).expect("one of our tokens");
        let pending = self.waiting().remove(place);
        let (reply, payload) = self.session.answer(&pending, outcome);
        self.send(&reply, payload.as_ref());
        drop(payload);
        self.gate.leave(pending.held_bytes);
    }
}

pub(crate) struct Reader {
    device: Arc<Device>,
    head: [u8; MESSAGE_BYTES_MAX],
    expected: Payload,
    rest: Payload,
}

enum ReadResult {
    Message(usize),
    Nothing,
    Gone,
}

impl Reader {
    pub(crate) fn new(device: Arc<Device>) -> Result<Self, NoMemory> {
        let expected = Payload::try_for_overwriting(EXPECTED_BYTES_MIN)?;
        let rest = Payload::try_for_overwriting(PAYLOAD_BYTES_MAX)?;
        Ok(Self { device, head: [0; MESSAGE_BYTES_MAX], expected, rest })
    }

    /// Reads messages until the door is closed, or the kernel releases the file system.
    pub(crate) fn run(mut self) {
        while self.device.gate.wait_for(PAYLOAD_BYTES_MAX) {
            match self.receive() {
                ReadResult::Message(bytes) => self.handle(bytes),
                ReadResult::Nothing => self.wait(),
                ReadResult::Gone => {
                    self.device.gone.store(true, Ordering::SeqCst);
                    return;
                }
            }
        }
    }

    fn wait(&self) {
        let Device { descriptor, end, .. } = &*self.device;
        let mut descriptors =
            [PollFd::new(&**descriptor, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        // The result is ignored, since the caller checks both descriptors next.
        let _ = poll(&mut descriptors, None);
    }

    fn receive(&mut self) -> ReadResult {
        let mut parts = [
            IoSliceMut::new(&mut self.head[..WRITE_HEAD_BYTES]),
            IoSliceMut::new(&mut self.expected),
            IoSliceMut::new(&mut self.rest),
        ];
        match rustix::io::readv(&*self.device.descriptor, &mut parts) {
            Ok(0) => ReadResult::Gone,
            Ok(bytes) => ReadResult::Message(bytes),
            // ENOENT: the kernel took the message back while this process was reading it.
            Err(SystemErrno::AGAIN | SystemErrno::INTR | SystemErrno::NOENT) => ReadResult::Nothing,
            Err(errno) => {
                tracing::debug!(target: "braid_frontend_fuse", %errno, "no more messages");
                ReadResult::Gone
            }
        }
    }

    fn handle(&mut self, bytes: usize) {
        let in_head = bytes.min(WRITE_HEAD_BYTES);
        let head = match Head::parse(&self.head[..in_head], bytes) {
            Ok(head) => head,
            Err(error) => {
                tracing::error!(target: "braid_frontend_fuse", %error, "not a message");
                return;
            }
        };
        let behind = bytes - in_head;
        let is_write = head.opcode == opcode::WRITE;
        let arguments = if is_write { HEADER_BYTES..in_head } else { self.join(in_head, behind) };
        let payload_bytes = if is_write { behind } else { 0 };
        let device = Arc::clone(&self.device);
        let arguments = (&self.head[arguments], payload_bytes);
        let step = device.session.decide(&head, arguments, device.wishes);
        if let Step::Write { offset, length, durable } = step {
            return self.write(head.unique, (offset, length, durable));
        }
        match step {
            Step::Answer(reply) => device.send(&reply, None),
            Step::Begin(reply, agreed) => self.begin(&reply, agreed),
            step => match operation_of(&step) {
                Some(Ok((operation, kind))) => {
                    let held_bytes = held_by(&operation);
                    let pending = PendingRequest { unique: head.unique, kind, held_bytes };
                    device.submit(pending, operation);
                }
                Some(Err(errno)) => device.send(&Reply::failed(head.unique, errno), None),
                None => {}
            },
        }
    }

    /// Joins the two parts of a message's arguments, which are longer than those of a write;
    /// returns their range in `head`.
    fn join(&mut self, in_head: usize, behind: usize) -> std::ops::Range<usize> {
        let more = behind.min(MESSAGE_BYTES_MAX - in_head).min(self.expected.len());
        self.head[in_head..in_head + more].copy_from_slice(&self.expected[..more]);
        HEADER_BYTES.min(in_head)..in_head + more
    }

    fn begin(&self, reply: &Reply, agreed: SessionParameters) {
        self.device.send(reply, None);
        let rings = self.device.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rings) = rings.as_ref().filter(|_| agreed.over_rings) {
            rings.register();
        }
        drop(rings);
        *self.device.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(agreed);
        self.device.begins.notify_all();
    }

    fn write(&mut self, unique: u64, (offset, length, durable): (u64, u32, bool)) {
        match self.take(length as usize) {
            Ok(payload) => {
                let operation = ClientRequest::Write { offset, payload, durable };
                let held_bytes = held_by(&operation);
                let pending =
                    PendingRequest { unique, kind: AnswerKind::Write { length }, held_bytes };
                self.device.submit(pending, operation);
            }
            Err(NoMemory { .. }) => {
                self.device.send(&Reply::failed(unique, Errno::NoMemory), None);
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Result<Payload, NoMemory> {
        let is_as_expected = bytes <= self.expected.len()
            && Payload::capacity_for(bytes) == Payload::capacity_for(self.expected.len());
        if is_as_expected {
            let next = Payload::try_for_overwriting(self.expected.len())?;
            let mut payload = std::mem::replace(&mut self.expected, next);
            payload.truncate(bytes);
            return Ok(payload);
        }
        let mut payload = Payload::try_for_overwriting(bytes)?;
        let (first, second) = payload.split_at_mut(bytes.min(self.expected.len()));
        first.copy_from_slice(&self.expected[..first.len()]);
        second.copy_from_slice(&self.rest[..second.len()]);
        add(&self.device.session.counters.bytes_copied, bytes);
        let expected = bytes.max(EXPECTED_BYTES_MIN);
        // If memory is short, `expected` keeps its length, and the next write is copied as well.
        if let Ok(next) = Payload::try_for_overwriting(expected) {
            self.expected = next;
        }
        Ok(payload)
    }
}
