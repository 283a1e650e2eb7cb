//! Every limit of the door, each with its reason.

use std::time::Duration;

use braid_ublk_proto::limits::REQUEST_BYTES_MAX;

/// Memory for payloads of a queue's requests in flight: 16 of the longest requests keep a row of
/// disks busy.
pub const QUEUE_BYTES_MAX: usize = 16 << 20;

/// Stack size of a queue's thread, on which the array's machines run.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// Time in which the kernel must release a dead server's device; the kernel looks every five
/// seconds.
pub(crate) const DEATH_DEADLINE: Duration = Duration::from_secs(15);

/// Time in which a new device's file must appear and become usable: udev has to set the file up.
pub(crate) const NODE_DEADLINE: Duration = Duration::from_secs(5);

/// Time to delete a device that could not be opened completely.
pub(crate) const UNDO_DEADLINE: Duration = Duration::from_secs(5);

/// Interval between two looks at the array's size.
pub(crate) const SIZE_LOOK: Duration = Duration::from_millis(500);

/// Pause between two polls of a state for which no descriptor can be polled.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

const _: () = assert!(QUEUE_BYTES_MAX >= 2 * REQUEST_BYTES_MAX as usize);
