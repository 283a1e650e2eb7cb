//! Every limit of the protocol layer, each with its reason.
//!
//! Where it stands: read by both sessions and by `frontend-nbd`. A session checks a number from the
//! peer against its limit before any use; `tests/hostile.rs` walks over the boundaries.

/// Longest string of the specification (export name, context query, error message), in bytes.
pub const NAME_BYTES_MAX: usize = 4096;

/// Largest option payload that is buffered, in bytes; a longer payload is skipped and answered
/// TOO_BIG. It is sixteen times the longest name: room for any sane list of meta-context queries.
pub const OPTION_BYTES_MAX: usize = 64 * 1024;

/// Options per client. The longest honest negotiation known takes 8 options.
pub const OPTIONS_MAX: u32 = 32;

/// Largest READ or WRITE, in bytes; the largest that common clients send is 32 MiB.
pub const REQUEST_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Largest payload of a refused WRITE that is consumed to keep the connection, in bytes. The server
/// takes a peer that sends more for hostile and ends the connection.
pub const DISCARD_BYTES_MAX: u32 = 2 * REQUEST_BYTES_MAX;

/// Largest reply chunk that a client buffers (BLOCK_STATUS descriptors, error text), in bytes.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Replies to one option that a client accepts; LIST of a big server brings the most.
pub const OPTION_REPLIES_MAX: u32 = 16 * 1024;

const _: () = assert!(NAME_BYTES_MAX * 2 < OPTION_BYTES_MAX);
const _: () = assert!(DISCARD_BYTES_MAX > REQUEST_BYTES_MAX);
