//! Every limit of the door, each with its reason.

use std::time::Duration;

use braid_fuse_proto::limits::REQUEST_BYTES_MAX;

/// Memory for payloads of requests in flight, in addition to the memory of other doors: 64 of the
/// longest requests. This is twice as much as a loop device and a program together have in flight.
pub const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;

pub(crate) const PAYLOAD_BYTES_MAX: usize = REQUEST_BYTES_MAX as usize;

pub(crate) const EXPECTED_BYTES_MIN: usize = 4096;

/// Stack size of a thread that reads messages, on which the array's machines run.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// Time for fusermount3 to mount or unmount. Mounting needs no answer of this process.
pub(crate) const HELPER_DEADLINE: Duration = Duration::from_secs(10);

/// Pause between two polls of a state for which no descriptor can be polled.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// The most entries of a ring's queue, which are the most requests of one processor. Each entry has
/// memory for the longest request.
pub(crate) const ENTRIES_MAX: usize = 32;

/// The fewest entries of a ring's queue: the kernel needs free entries while this process answers
/// requests.
pub(crate) const ENTRIES_MIN: usize = 4;

/// Entries of all queues together, unless [`ENTRIES_MIN`] for each queue requires more. Short
/// requests use little of an entry's memory.
pub(crate) const ENTRIES_ALTOGETHER: usize = 64;

const _: () = assert!(IN_FLIGHT_BYTES_MAX >= 2 * PAYLOAD_BYTES_MAX);
