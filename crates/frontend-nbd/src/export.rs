//! What a server serves: the [`Export`] trait and the values that cross it.
//!
//! Where it stands: the seam between the protocol and everything below. The runtime implements it over an array; this
//! crate calls it. It is asynchronous: `submit` takes a request and returns, and the [`Completion`] brings the outcome
//! from whatever thread finished it.
//!
//! What the server promises: ranges lie within [`Export::size_bytes`], are multiples of the minimum block size, and
//! no READ or WRITE is longer than the maximum; a Trim or WriteZeroes is shorter than two times
//! [`Export::stretch_bytes`], and one that a client asked for longer comes in several, each when the one before is over; a
//! read-only export gets no Write, Trim or WriteZeroes.
//!
//! What the export promises: every operation is completed once, whatever thread does it; the payload of a Read comes
//! back with the length it went out with, filled if it succeeded (a Write may keep its own); Flush and `fua` mean what
//! NBD says they mean, over all connections.
//!
//! A completion is two values and a reference count, so that a request costs no memory of its own: whom to tell, and
//! the token of the request there.
//!
//! Invariants
//! - A completion that is dropped answers [`IoError::Io`]:
//!   `tests/server.rs::an_export_that_breaks_its_promises_costs_an_error_not_a_hang`.

use std::sync::Arc;

use braid_nbd_proto::{BlockSizes, ErrorCode, Extent};
use braid_ring::Payload;

use crate::limits::STRETCH_BYTES;
use crate::sync::{self, Flaw};

/// One request. Offsets and lengths are bytes.
#[derive(Debug)]
#[allow(missing_docs)] // the fields are offset, payload or length, and what the variant's line says
pub enum Operation {
    /// Fill the payload from `offset`.
    Read { offset: u64, payload: Payload },
    /// Write the payload at `offset`. `fua`: durable before `done`.
    Write { offset: u64, payload: Payload, fua: bool },
    /// Everything completed so far, on any connection, durable before `done`.
    Flush,
    /// The range is not needed any more; doing nothing is allowed.
    Trim { offset: u64, length: u64, fua: bool },
    /// Make the range read as zeroes. `may_punch`: it need not stay allocated. `fast`: be faster than writing, or
    /// answer [`IoError::Unsupported`] at once and change nothing.
    WriteZeroes { offset: u64, length: u64, fua: bool, may_punch: bool, fast: bool },
    /// The range will be wanted soon; doing nothing is allowed.
    Cache { offset: u64, length: u64 },
}

/// Why an operation failed, in the words NBD has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IoError {
    /// Not allowed (NBD_EPERM).
    #[error("operation not permitted")]
    Permission,
    /// The array could not read or write (NBD_EIO).
    #[error("input/output error")]
    Io,
    /// No memory (NBD_ENOMEM).
    #[error("out of memory")]
    Memory,
    /// The request makes no sense to this export (NBD_EINVAL).
    #[error("invalid request")]
    Invalid,
    /// No space (NBD_ENOSPC).
    #[error("no space left")]
    NoSpace,
    /// Not supported, or not fast (NBD_ENOTSUP).
    #[error("not supported")]
    Unsupported,
    /// The array is going away (NBD_ESHUTDOWN).
    #[error("shutting down")]
    Shutdown,
}

impl From<IoError> for ErrorCode {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Permission => Self::Permission,
            IoError::Io => Self::Io,
            IoError::Memory => Self::Memory,
            IoError::Invalid => Self::Invalid,
            IoError::NoSpace => Self::NoSpace,
            IoError::Unsupported => Self::Unsupported,
            IoError::Shutdown => Self::Shutdown,
        }
    }
}

/// How an operation ended.
#[derive(Debug)]
pub struct Outcome {
    /// Success, or why not.
    pub status: Result<(), IoError>,
    /// The operation's payload, given back. A Read's always; a Write may have kept it, and others have none.
    pub payload: Option<Payload>,
}

/// A request as the one who waits for its end names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    /// Which connection, where one receiver serves many.
    pub(crate) connection: u64,
    /// Which of its requests.
    pub(crate) slot: u32,
}

/// What is told of the ends of operations: the transport of a connection.
pub(crate) trait Receiver: Send + Sync {
    /// The end of one; no outcome if the completion was dropped.
    fn receive(self: Arc<Self>, token: Token, outcome: Option<Outcome>);
}

/// A receiver that is a function, for one operation.
struct Once<F>(std::sync::Mutex<Option<F>>);

impl<F: FnOnce(Outcome) + Send> Receiver for Once<F> {
    fn receive(self: Arc<Self>, _: Token, outcome: Option<Outcome>) {
        let function = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let function = function.expect("an operation ends once");
        function(outcome.unwrap_or(Outcome { status: Err(IoError::Io), payload: None }));
    }
}

/// The right and the duty to end one operation, once, on any thread, also before `submit` returns. Dropping it ends the
/// operation with [`IoError::Io`].
pub struct Completion {
    receiver: Option<Arc<dyn Receiver>>,
    token: Token,
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Completion").field("token", &self.token).finish_non_exhaustive()
    }
}

impl Completion {
    pub(crate) fn new(receiver: Arc<dyn Receiver>, token: Token) -> Self {
        Self { receiver: Some(receiver), token }
    }

    /// One that calls a function, for those who ask an export for something without a server.
    #[must_use]
    pub fn from_fn(function: impl FnOnce(Outcome) + Send + 'static) -> Self {
        let receiver = Once(std::sync::Mutex::new(Some(function)));
        Self::new(Arc::new(receiver), Token { connection: 0, slot: 0 })
    }

    /// Ends the operation.
    pub fn complete(mut self, outcome: Outcome) {
        let receiver = self.receiver.take().expect("taken only here and in drop");
        receiver.receive(self.token, Some(outcome));
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.take().filter(|_| !sync::has(Flaw::DropUnanswered)) {
            receiver.receive(self.token, None);
        }
    }
}

/// A thing to serve.
pub trait Export: Send + Sync + 'static {
    /// Name, at most 4096 bytes; the array's.
    fn name(&self) -> &str;

    /// Whether it has been taken out while its server runs: new clients do not find it, and those that have it are answered by
    /// it as before.
    fn is_withdrawn(&self) -> bool {
        false
    }

    /// What it is and how it is, for people; asked for when a connection begins, empty if there is nothing to say.
    fn description(&self) -> String {
        String::new()
    }

    /// Size, in bytes; asked for when a connection begins.
    fn size_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn read_only(&self) -> bool;

    /// Block size constraints; a minimum of 1 means that the export handles unaligned requests.
    fn block_sizes(&self) -> BlockSizes;

    /// A long Trim or WriteZeroes comes in stretches that end at multiples of this; more than none, and a multiple of the
    /// minimum block size. Between two of them others have their turn, and the request can be given up.
    fn stretch_bytes(&self) -> u64 {
        STRETCH_BYTES
    }

    /// Whether WriteZeroes of all of a range would be faster than writing; asked before the first stretch of one that is to be
    /// `fast`, so that nothing has changed where it is not.
    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        true
    }

    /// Starts an operation, and returns without waiting for others: the thread serves many connections.
    fn submit(&self, operation: Operation, completion: Completion);

    /// Extents from `offset` on: at least one, at most `extents_max`, none empty, none starting beyond
    /// `offset + length`, each a multiple of the minimum block size. Everything is allocated data unless an export
    /// knows better.
    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let _ = (offset, extents_max);
        vec![Extent { length_bytes: length, flags: 0 }]
    }
}
