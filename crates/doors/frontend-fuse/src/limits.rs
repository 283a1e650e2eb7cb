//! Every limit of the door, each with its reason.

use std::time::Duration;

use braid_fuse_proto::limits::REQUEST_BYTES_MAX;

/// Memory for payloads of requests in flight, beside that of other doors: 64 of the longest requests, which is twice
/// what a loop device and a program have out together.
pub const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;

/// Bytes of the longest payload.
pub(crate) const PAYLOAD_BYTES_MAX: usize = REQUEST_BYTES_MAX as usize;

/// The least that a write is expected to be.
pub(crate) const EXPECTED_BYTES_MIN: usize = 4096;

/// Stack of a thread that reads messages: the array's machines run on it.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// Time that fusermount3 has to mount or to unmount: it does not wait for us.
pub(crate) const HELPER_DEADLINE: Duration = Duration::from_secs(10);

/// Between two looks at something that ends by itself.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// Entries of one queue of a ring, each with memory for the longest request: what one processor has out together.
pub(crate) const ENTRIES_MAX: usize = 32;

/// The least: the kernel must have some while others are answered.
pub(crate) const ENTRIES_MIN: usize = 4;

/// Entries of all queues, if that leaves each enough. Memory of one is only taken as far as requests are long.
pub(crate) const ENTRIES_ALTOGETHER: usize = 64;

const _: () = assert!(IN_FLIGHT_BYTES_MAX >= 2 * PAYLOAD_BYTES_MAX);
