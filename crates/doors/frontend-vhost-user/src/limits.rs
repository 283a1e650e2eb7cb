//! Every limit of the door, each with its reason.

use std::time::Duration;

use braid_virtio_proto::limits::REQUEST_BYTES_MAX;

/// Memory for payloads of all queues' requests in flight: four of the longest, which keeps a row of disks busy. Each queue has
/// an equal share, and may have one request more.
pub const DOOR_BYTES_MAX: usize = 64 << 20;

/// Runs of the guest's memory that a client may share: what it has with a hundred modules of memory and some holes.
pub const REGIONS_MAX: usize = 128;

/// Requests that one turn takes, so that a guest which always has more lets others have theirs: a ring of QEMU's.
pub const TURN_REQUESTS_MAX: usize = 128;

/// Stack of a thread that serves: the array's machines run on it.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// Between two looks whether the door is being closed, of who waits for something else.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Time for ending a door that is dropped.
pub(crate) const UNDO_DEADLINE: Duration = Duration::from_secs(5);

const _: () = assert!(DOOR_BYTES_MAX >= 2 * REQUEST_BYTES_MAX as usize);
