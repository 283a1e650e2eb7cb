//! The file and the disk, which all requests share, and the steps from a request to its answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use braid_fuse_proto::{Errno, File, Head, ParseError, Reply, Request, Step, Wishes};
use braid_ring::Payload;
use braid_runtime::{ClientRequest, Disk, Outcome, RequestError};

/// Counters for the operator; no decision of the door depends on them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes_copied: AtomicU64,
    pub(crate) errors: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}

pub(crate) struct Session {
    pub(crate) disk: Arc<dyn Disk>,
    file: Mutex<File>,
    pub(crate) counters: Counters,
}

/// The request for which an operation of the array runs, and the kind of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) unique: u64,
    pub(crate) kind: AnswerKind,
    pub(crate) held_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    Read,
    Write { length: u32 },
    Other,
}

impl Session {
    pub(crate) fn new(disk: Arc<dyn Disk>, file: File) -> Self {
        Self { disk, file: Mutex::new(file), counters: Counters::default() }
    }

    /// Decides the next step for a message that has these arguments and a payload of this length.
    pub(crate) fn decide(
        &self,
        head: &Head,
        (arguments, payload_bytes): (&[u8], usize),
        wishes: Wishes,
    ) -> Step {
        add(&self.counters.requests, 1);
        match Request::parse(head, arguments, payload_bytes) {
            Ok(request) => {
                let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
                file.set_size(self.disk.size_bytes());
                file.decide(head, &request, (wishes, SystemTime::now()))
            }
            Err(error) => {
                warn_malformed(head, error);
                Step::Answer(Reply::failed(head.unique, Errno::Invalid))
            }
        }
    }

    /// The answer to a finished operation, and the payload to send with it.
    pub(crate) fn answer(
        &self,
        pending: &PendingRequest,
        outcome: Outcome,
    ) -> (Reply, Option<Payload>) {
        let PendingRequest { unique, kind, .. } = *pending;
        let counters = &self.counters;
        if let Err(error) = outcome.result {
            add(&counters.errors, 1);
            return (Reply::failed(unique, errno(error)), None);
        }
        match (kind, outcome.payload) {
            (AnswerKind::Read, Some(payload)) => {
                add(&counters.bytes_read, payload.len());
                (Reply::read(unique, payload.len()), Some(payload))
            }
            (AnswerKind::Read, None) => (Reply::failed(unique, Errno::Io), None),
            (AnswerKind::Write { length }, _) => {
                add(&counters.bytes_written, length as usize);
                (Reply::written(unique, length), None)
            }
            (AnswerKind::Other, _) => (Reply::done(unique), None),
        }
    }
}

/// The array's operation for a step; allocates a READ's memory. Not for a WRITE, whose payload
/// comes from the kernel.
pub(crate) fn operation_of(step: &Step) -> Option<Result<(ClientRequest, AnswerKind), Errno>> {
    Some(Ok(match *step {
        Step::Read { offset, length } => match Payload::try_for_overwriting(length as usize) {
            Ok(payload) => (ClientRequest::Read { offset, payload }, AnswerKind::Read),
            Err(_) => return Some(Err(Errno::NoMemory)),
        },
        Step::Flush => (ClientRequest::Flush, AnswerKind::Other),
        Step::Zero { offset, length, may_punch } => {
            let (fast, durable) = (false, false);
            let zero = ClientRequest::WriteZeroes { offset, length, may_punch, fast, durable };
            (zero, AnswerKind::Other)
        }
        Step::Write { .. } | Step::Answer(_) | Step::Begin(..) | Step::Silent => return None,
    }))
}

fn warn_malformed(head: &Head, error: ParseError) {
    tracing::warn!(target: "braid_frontend_fuse", opcode = head.opcode, %error, "a message of the kernel's is malformed");
}

pub(crate) fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::ReadOnly => Errno::ReadOnly,
        RequestError::Io(_) | RequestError::Dropped => Errno::Io,
        RequestError::NoSpace => Errno::NoSpace,
        RequestError::NoMemory => Errno::NoMemory,
        RequestError::NotFast => Errno::NotSupported,
        RequestError::OutOfRange => Errno::Invalid,
        RequestError::Stopping => Errno::Shutdown,
    }
}

pub(crate) fn held_by(operation: &ClientRequest) -> usize {
    match operation {
        ClientRequest::Read { payload, .. } | ClientRequest::Write { payload, .. } => {
            Payload::capacity_for(payload.len())
        }
        _ => 0,
    }
}
