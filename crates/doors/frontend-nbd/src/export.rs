//! What a server serves: the [`Export`] trait.
//!
//! Where it stands: the seam between the protocol and everything below. The service implements it
//! over an array; this crate calls it. It is asynchronous: `submit` takes a request and returns,
//! and the [`Completion`] brings the outcome from whatever thread finished it.
//!
//! What the server promises: ranges lie within [`Export::size_bytes`], are multiples of the minimum
//! block size, and no READ or WRITE is longer than the maximum; a Trim or WriteZeroes is shorter
//! than two times [`Export::stretch_bytes`], and one that a client asked for longer comes in
//! several, each when the one before is over; a read-only export gets no Write, Trim or
//! WriteZeroes. NBD_CMD_CACHE is answered here: the page cache of members knows better.
//!
//! What the export promises: every request is ended once, whatever thread does it; the payload of a
//! Read comes back with the length it went out with, filled if it succeeded (a Write may keep its
//! own); Flush and `durable` mean what NBD says of FLUSH and FUA, over all connections.
//!
//! Invariants
//! - A request whose completion is dropped is answered with NBD_EIO:
//!   `tests/server.rs::an_export_that_breaks_its_promises_costs_an_error_not_a_hang`.

use braid_nbd_proto::{BlockSizes, ErrorCode, Extent};
use braid_ring::client::{ClientRequest, Completion, RequestError};

use crate::limits::STRETCH_BYTES;

/// The word that NBD has for an error.
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

    /// Starts a request, and returns without waiting for others: the thread serves many
    /// connections.
    fn submit(&self, request: ClientRequest, completion: Completion);

    /// Extents from `offset` on: at least one, at most `extents_max`, none empty, none starting beyond
    /// `offset + length`, each a multiple of the minimum block size. Everything is allocated data unless an export
    /// knows better.
    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let _ = (offset, extents_max);
        vec![Extent { length_bytes: length, flags: 0 }]
    }
}
