//! Every limit of the protocol layer, each with its reason.
//!
//! Where it stands: read by both sessions and by `frontend-nbd`. It holds numbers only. A session
//! checks a number from the peer against its limit before any use; `tests/hostile.rs` walks over
//! the boundaries.

/// Longest string the specification allows (export names, meta-context queries, error messages), in
/// bytes.
pub const NAME_BYTES_MAX: usize = 4096;

/// Largest option payload that a session buffers, in bytes; longer ones are consumed unread and
/// answered TOO_BIG. Sixteen times the longest name: room for any sane list of meta-context
/// queries.
pub const OPTION_BYTES_MAX: usize = 64 * 1024;

/// Options that one client may send before it is cut off. The longest honest negotiation known
/// takes 8.
pub const OPTIONS_MAX: u32 = 32;

/// Largest READ or WRITE, in bytes; the largest that common clients send is 32 MiB.
pub const REQUEST_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Largest payload of a refused WRITE that is consumed to keep the connection, in bytes. A peer
/// that sends more is hostile, not confused, and the connection ends.
pub const DISCARD_BYTES_MAX: u32 = 2 * REQUEST_BYTES_MAX;

/// Largest structured reply chunk a client buffers (BLOCK_STATUS descriptors, error text), in
/// bytes.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Replies a client accepts to one option before it calls the server broken (LIST of a big server
/// is the largest).
pub const OPTION_REPLIES_MAX: u32 = 16 * 1024;

const _: () = assert!(NAME_BYTES_MAX * 2 < OPTION_BYTES_MAX);
const _: () = assert!(DISCARD_BYTES_MAX > REQUEST_BYTES_MAX);
