//! Every limit of the protocol as it is used here, each with its reason.

/// Bytes of the longest read or write: a row of many arrays, and what FUSE has.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Bytes of the longest discard, and the longest write of zeroes: a second's work of a few disks, since what has to wait for one
/// waits no longer. The kernel cuts longer ones.
pub const STRETCH_BYTES: u32 = 256 << 20;

/// Queues of a device, each with a thread: the array has no more workers by itself.
pub const QUEUES_MAX: u16 = 4;

/// Requests that one queue has under way.
pub const DEPTH: u16 = 64;

/// Numbers that devices may have: what the kernel has of its own numbers for them.
pub const IDS: u32 = 1 << 20;
