//! A client's request and its end: the values that every door passes down and gets back.
//!
//! Place in the flow: below doors and arrays, because both know payloads and neither knows the
//! other. A door makes a [`ClientRequest`] and a [`Completion`]; the server of the request ends the
//! completion, on any thread.
//!
//! A completion is two values and a reference count: the receiver, and the request's token there.
//! So a request costs no memory of its own.
//!
//! Invariant
//! - A completion that is dropped reports [`RequestError::Dropped`]
//!   `[check: a_completion_that_is_dropped_is_told]`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::payload::Payload;

/// A client's request. Offsets and lengths are in bytes and need no alignment.
#[derive(Debug)]
#[allow(missing_docs)] // each variant's comment describes its fields
pub enum ClientRequest {
    /// Fill the payload with the bytes at `offset`.
    Read { offset: u64, payload: Payload },
    /// Write the payload at `offset`. With `durable` the data is on stable storage when the write
    /// is acknowledged.
    Write { offset: u64, payload: Payload, durable: bool },
    /// Make every write acknowledged so far, to any client, durable.
    Flush,
    /// Make a range read as zeroes. With `may_punch` its space may be given back. With `fast` the
    /// request fails ([`RequestError::NotFast`]) if zeroes would have to be written.
    WriteZeroes { offset: u64, length: u64, may_punch: bool, fast: bool, durable: bool },
    /// Discard the content of a range; a server may ignore the request.
    Trim { offset: u64, length: u64, durable: bool },
}

impl ClientRequest {
    /// The same request with its offset increased by `by` bytes.
    #[must_use]
    pub fn moved(self, by: u64) -> Self {
        match self {
            Self::Read { offset, payload } => Self::Read { offset: offset + by, payload },
            Self::Write { offset, payload, durable } => {
                Self::Write { offset: offset + by, payload, durable }
            }
            Self::Flush => Self::Flush,
            Self::WriteZeroes { offset, length, may_punch, fast, durable } => {
                Self::WriteZeroes { offset: offset + by, length, may_punch, fast, durable }
            }
            Self::Trim { offset, length, durable } => {
                Self::Trim { offset: offset + by, length, durable }
            }
        }
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The array, or the mode in which it was opened, does not allow writes.
    #[error("the array is read-only")]
    ReadOnly,
    /// The bytes cannot be read or written; the text says why.
    #[error("input/output error: {0}")]
    Io(&'static str),
    /// The file system below a member is full.
    #[error("no space is left below a member")]
    NoSpace,
    /// Zeroing this range would not be faster than writing zeroes.
    #[error("zeroing is not fast here")]
    NotFast,
    /// There is no memory for the request.
    #[error("there is no memory for the request")]
    NoMemory,
    /// The range does not lie inside the array.
    #[error("the range lies outside the array")]
    OutOfRange,
    /// The array is being stopped.
    #[error("the array is stopping")]
    Stopping,
    /// The completion was dropped without a result: a bug in the code that served the request.
    #[error("the request was dropped")]
    Dropped,
}

/// The end of a request.
#[derive(Debug)]
pub struct Outcome {
    /// Success, or the error of the request.
    pub result: Result<(), RequestError>,
    /// The request's payload. A read always returns it; a write may keep it.
    pub payload: Option<Payload>,
}

/// The name by which a receiver knows a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// The client that sent the request, if the receiver serves many clients.
    pub client: u64,
    /// The request's name among the requests of that client.
    pub request: u64,
}

impl From<u64> for Token {
    fn from(request: u64) -> Self {
        Self { client: 0, request }
    }
}

/// Receives the outcomes of many requests, each with its token, so that no request allocates.
pub trait Receiver: Send + Sync {
    /// Takes the outcome of one request, once, on any thread. The receiver must not wait for the
    /// array.
    fn receive(self: Arc<Self>, token: Token, outcome: Outcome);
}

/// A receiver that is a function, for one request.
struct FunctionReceiver<F>(Mutex<Option<F>>);

impl<F: FnOnce(Outcome) + Send> Receiver for FunctionReceiver<F> {
    fn receive(self: Arc<Self>, _: Token, outcome: Outcome) {
        let function = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        function.expect("a request ends once")(outcome);
    }
}

/// The right and the duty to end one request, once, on any thread. A server may end the request
/// even before the call that passed it has returned.
pub struct Completion {
    receiver: Option<Arc<dyn Receiver>>,
    token: Token,
}

impl Completion {
    /// A completion that reports to this receiver with this token.
    #[must_use]
    pub fn new(receiver: Arc<dyn Receiver>, token: Token) -> Self {
        Self { receiver: Some(receiver), token }
    }

    /// A completion that calls a function; it allocates for each request.
    #[must_use]
    pub fn from_fn(function: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self::new(Arc::new(FunctionReceiver(Mutex::new(Some(function)))), Token::default())
    }

    /// Ends the request with this outcome.
    pub fn complete(mut self, outcome: Outcome) {
        let receiver = self.receiver.take().expect("taken only here and in drop");
        receiver.receive(self.token, outcome);
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Completion").field("token", &self.token).finish_non_exhaustive()
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            let outcome = Outcome { result: Err(RequestError::Dropped), payload: None };
            receiver.receive(self.token, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_completion_that_is_dropped_is_told() {
        let (sender, told) = channel();
        let completion = || {
            let sender = sender.clone();
            Completion::from_fn(move |outcome| sender.send(outcome.result).expect("heard"))
        };
        drop(completion());
        assert_eq!(told.try_recv(), Ok(Err(RequestError::Dropped)));
        completion().complete(Outcome { result: Ok(()), payload: None });
        assert_eq!(told.try_recv(), Ok(Ok(())));
        assert!(told.try_recv().is_err(), "it is told once");
    }
}
