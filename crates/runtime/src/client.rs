//! What a client asks of an array, and what it is told: the values of [`crate::Volume`]'s face.

use braid_engine::request::Fault;
use braid_ring::Payload;

use crate::sync::Arc;

/// What a client asks. Offsets and lengths are in bytes and need no alignment.
#[derive(Debug)]
#[allow(missing_docs)] // the fields are what the variant's line says
pub enum VolumeOperation {
    /// Fill the payload from `offset`.
    Read { offset: u64, payload: Payload },
    /// Write the payload at `offset`; `durable` before the answer.
    Write { offset: u64, payload: Payload, durable: bool },
    /// Make every write answered so far durable.
    Flush,
    /// Make a range read as zeroes. With `may_punch` space may be given back; with `fast` refuse
    /// ([`VolumeError::NotFast`]) rather than write zeroes out.
    WriteZeroes { offset: u64, length: u64, may_punch: bool, fast: bool, durable: bool },
    /// The content of a range is not needed any more.
    Trim { offset: u64, length: u64, durable: bool },
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// The array or the way it was opened does not allow writes.
    #[error("the array is read-only")]
    ReadOnly,
    /// More members failed than the level can make up for, here or altogether.
    #[error("input/output error: {0}")]
    Io(Fault),
    /// The file system below a member is full.
    #[error("no space is left below a member")]
    NoSpace,
    /// Zeroing this range would not be faster than writing zeroes.
    #[error("zeroing is not fast here")]
    NotFast,
    /// There is no memory for the bytes around those that do not fill sectors.
    #[error("there is no memory for the request")]
    NoMemory,
    /// The range does not lie inside the array.
    #[error("the range lies outside the array")]
    OutOfRange,
    /// The array is being stopped.
    #[error("the array is stopping")]
    Stopping,
}

/// The end of a request.
#[derive(Debug)]
pub struct Outcome {
    /// How it went.
    pub result: Result<(), VolumeError>,
    /// The payload that came with the request.
    pub payload: Option<Payload>,
}

/// Called once, on any thread; it must not wait for the volume.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Who asks for many things and is told of each by the token that it came with: nothing is allocated for it.
pub trait Receiver: Send + Sync {
    /// The end of one request, once, on any thread; it must not wait for the volume.
    fn receive(self: Arc<Self>, token: u64, outcome: Outcome);
}
