//! What a server serves: the [`Export`] trait and the values that cross it.
//!
//! Where it stands: the seam between the protocol and everything below. The runtime implements it over an array; this
//! crate calls it. It is asynchronous by callback: `submit` takes a request and returns, `done` brings the outcome from
//! whatever thread finished it.
//!
//! What the server promises: ranges lie within [`Export::size_bytes`], are multiples of the minimum block size, and
//! no READ, WRITE or Cache is longer than the maximum; a read-only export gets no Write, Trim or WriteZeroes.
//!
//! What the export promises: `done` is called once; a payload comes back with the length it went out with, filled if
//! the operation was a Read that succeeded; Flush and `fua` mean what NBD says they mean, over all connections.

use braid_nbd_proto::{BlockSizes, ErrorCode, Extent};

/// Memory for the data of one request.
#[derive(Debug, Default)]
pub struct Payload(Box<[u8]>);

impl Payload {
    /// `length_bytes` of zeroes.
    #[must_use]
    pub fn zeroed(length_bytes: usize) -> Self {
        Self(vec![0; length_bytes].into_boxed_slice())
    }

    /// Length, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into_boxed_slice())
    }
}

impl From<Box<[u8]>> for Payload {
    fn from(bytes: Box<[u8]>) -> Self {
        Self(bytes)
    }
}

impl From<Payload> for Box<[u8]> {
    fn from(payload: Payload) -> Self {
        payload.0
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Payload {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

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
    Trim { offset: u64, length: u32, fua: bool },
    /// Make the range read as zeroes. `may_punch`: it need not stay allocated. `fast`: be faster than writing, or
    /// answer [`IoError::Unsupported`] at once and change nothing.
    WriteZeroes { offset: u64, length: u32, fua: bool, may_punch: bool, fast: bool },
    /// The range will be wanted soon; doing nothing is allowed.
    Cache { offset: u64, length: u32 },
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
    /// The operation's payload, given back; `None` for operations without one.
    pub payload: Option<Payload>,
}

/// Brings an [`Outcome`] back; may be called on any thread, also before `submit` returns.
pub type Completion = Box<dyn FnOnce(Outcome) + Send>;

/// A thing to serve.
pub trait Export: Send + Sync + 'static {
    /// Name, at most 4096 bytes; the array's.
    fn name(&self) -> &str;

    /// Size, in bytes; asked for when a connection begins.
    fn size_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn read_only(&self) -> bool;

    /// Block size constraints; a minimum of 1 means that the export handles unaligned requests.
    fn block_sizes(&self) -> BlockSizes;

    /// Starts an operation; `done` is called exactly once. An export that drops `done` uncalled has answered
    /// [`IoError::Io`].
    fn submit(&self, operation: Operation, done: Completion);

    /// Memory for a request of `length_bytes`, zeroed or otherwise free of anybody's data.
    fn allocate(&self, length_bytes: usize) -> Payload {
        Payload::zeroed(length_bytes)
    }

    /// Extents from `offset` on: at least one, at most `extents_max`, none empty, none starting beyond
    /// `offset + length`, each a multiple of the minimum block size. Everything is allocated data unless an export
    /// knows better.
    fn block_status(&self, offset: u64, length: u32, extents_max: usize) -> Vec<Extent> {
        let _ = (offset, extents_max);
        vec![Extent { length_bytes: length, flags: 0 }]
    }
}
