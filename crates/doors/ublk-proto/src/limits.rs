//! Every limit of this use of the protocol, each with its reason.

/// Bytes of the longest read or write: a whole stripe of many arrays, and the limit of FUSE too.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Bytes of the longest discard and write of zeroes: a second's work of a few disks. Another
/// request waits at most that long for one. The kernel cuts longer ones.
pub const STRETCH_BYTES: u32 = 256 << 20;

/// Queues of a device, each with a thread: as many as the array's workers by default.
pub const QUEUES_MAX: u16 = 4;

/// Requests in flight per queue.
pub const DEPTH: u16 = 64;

/// Numbers that devices can have: the kernel's minor numbers for them.
pub const IDS: u32 = 1 << 20;
