//! Every limit of the door, each with its reason.

use std::time::Duration;

use braid_virtio_proto::limits::REQUEST_BYTES_MAX;

/// Memory for payloads of all queues' requests in flight: four of the longest requests, which keep
/// a row of disks busy. Each queue has an equal share, and can exceed the share by one request.
pub const DOOR_BYTES_MAX: usize = 64 << 20;

/// Most regions of the guest's memory: enough for a hundred memory modules and some holes.
pub const REGIONS_MAX: usize = 128;

/// The most requests that one turn takes, so that other queues have their turns: the size of QEMU's
/// ring.
pub const TURN_REQUESTS_MAX: usize = 128;

/// Stack size of a thread that serves a queue, on which the array's machines run.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// During any other wait, the pause between two checks whether the door is being closed.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

pub(crate) const UNDO_DEADLINE: Duration = Duration::from_secs(5);

const _: () = assert!(DOOR_BYTES_MAX >= 2 * REQUEST_BYTES_MAX as usize);
