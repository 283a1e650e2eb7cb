//! Every limit of the protocol layer, each with its reason.
//!
//! Where it stands: both sessions and `frontend-nbd` read the limits. A session checks a number
//! from the peer against its limit before any use; `tests/hostile.rs` tests the values around each
//! limit.

/// Longest string of the specification (export name, context query, error message), in bytes.
pub const NAME_BYTES_MAX: usize = 4096;

/// Largest option payload that is buffered, in bytes; a longer payload is skipped and answered
/// TOO_BIG. The limit is sixteen times the longest name, which is enough for any sane list of
/// meta-context queries.
pub const OPTION_BYTES_MAX: usize = 64 * 1024;

/// Most options that a client may send. The longest honest negotiation known takes 8 options.
pub const OPTIONS_MAX: u32 = 32;

/// Largest READ or WRITE, in bytes; the largest that common clients send is 32 MiB.
pub const REQUEST_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Largest payload of a refused WRITE that is consumed to keep the connection, in bytes. A peer
/// that sends more counts as hostile, and the server ends the connection.
pub const DISCARD_BYTES_MAX: u32 = 2 * REQUEST_BYTES_MAX;

/// Largest reply chunk that a client buffers (BLOCK_STATUS descriptors, error text), in bytes.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Most replies to one option that a client accepts; LIST of a large server has the most.
pub const OPTION_REPLIES_MAX: u32 = 16 * 1024;

const _: () = assert!(NAME_BYTES_MAX * 2 < OPTION_BYTES_MAX);
const _: () = assert!(DISCARD_BYTES_MAX > REQUEST_BYTES_MAX);
