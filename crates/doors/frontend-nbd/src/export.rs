//! The [`Export`] trait: the storage that a server serves.
//!
//! Where it stands: the boundary between the protocol and the storage. The service implements the
//! trait over an array; this crate calls it. The trait is asynchronous: `submit` accepts a request
//! and returns, and any thread reports the outcome through the [`Completion`].
//!
//! The server promises:
//! - Ranges lie within [`Export::size_bytes`] and are multiples of the minimum block size.
//! - No READ or WRITE is longer than the maximum. A Trim or WriteZeroes shorter than two times
//!   [`Export::stretch_bytes`] comes whole; a longer request comes in stretches, one after the
//!   other.
//! - A read-only export gets no Write, Trim or WriteZeroes.
//! - The server answers NBD_CMD_CACHE without the export: the page cache of members decides better
//!   which data to keep.
//!
//! The export promises:
//! - The export ends every request once, on any thread.
//! - The export returns the payload of a Read with the same length, filled if the request
//!   succeeded. The export may keep the payload of a Write.
//! - Flush and `durable` mean the same as NBD's FLUSH and FUA, over all connections.
//!
//! Invariants
//! - A request whose completion is dropped is answered with NBD_EIO:
//!   `tests/server.rs::an_export_that_breaks_its_promises_costs_an_error_not_a_hang`.

use std::sync::Arc;

use braid_nbd_proto::{BlockSizes, ErrorCode, Extent};
use braid_ring::client::{ClientRequest, Completion, RequestError};

use crate::limits::STRETCH_BYTES;

pub(crate) fn error_code(error: RequestError) -> ErrorCode {
    match error {
        RequestError::ReadOnly => ErrorCode::Permission,
        RequestError::Io(_) | RequestError::Dropped => ErrorCode::Io,
        RequestError::NoSpace => ErrorCode::NoSpace,
        RequestError::NoMemory => ErrorCode::Memory,
        RequestError::NotFast => ErrorCode::Unsupported,
        RequestError::OutOfRange => ErrorCode::Invalid,
        RequestError::Stopping => ErrorCode::Shutdown,
    }
}

/// Storage that a server serves.
pub trait Export: Send + Sync + 'static {
    /// The array's name, at most 4096 bytes.
    fn name(&self) -> &str;

    /// Whether the export was withdrawn at run time: new clients do not find the export, and
    /// connected clients keep it.
    fn is_withdrawn(&self) -> bool {
        false
    }

    /// A description of the export and its state for people; read when a connection begins.
    fn description(&self) -> String {
        String::new()
    }

    /// Size, in bytes; read when a connection begins.
    fn size_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn read_only(&self) -> bool;

    /// Block size constraints; a minimum of 1 means that the export handles unaligned requests.
    fn block_sizes(&self) -> BlockSizes;

    /// The server cuts a long Trim or WriteZeroes at multiples of this many bytes: more than zero,
    /// and a multiple of the minimum block size. Between two stretches the server serves other
    /// requests, and can give up the long one.
    fn stretch_bytes(&self) -> u64 {
        STRETCH_BYTES
    }

    /// Whether WriteZeroes of the whole range is faster than writing zeroes. The server asks before
    /// the first stretch of a `fast` request, so that a refused request has changed nothing.
    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        true
    }

    /// Whether owners can claim the export. Threads serve such exports, not workers.
    fn takes_claims(&self) -> bool {
        false
    }

    /// The export for a client that claims it with words after the export's name, as in
    /// `EXPORT?WORDS`. This call may block: the client gets no answer before the call returns.
    ///
    /// # Errors
    /// The reason why the client is refused.
    fn claim(&self, words: &str) -> Result<Arc<dyn Export>, String> {
        Err(format!("this export takes no claims: {words}"))
    }

    /// Starts a request without blocking: the calling thread serves many connections.
    fn submit(&self, request: ClientRequest, completion: Completion);

    /// Extents from `offset` on: at least one, at most `extents_max`, none empty, none beyond
    /// `offset + length`, each a multiple of the minimum block size. By default the whole range is
    /// data.
    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let _ = (offset, extents_max);
        vec![Extent { length_bytes: length, flags: 0 }]
    }
}
