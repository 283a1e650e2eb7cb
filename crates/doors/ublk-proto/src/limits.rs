//! Every limit of this use of the protocol, each with its reason.

/// Bytes of the longest read or write: a whole stripe of many arrays, and also the limit of FUSE.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Bytes of the longest discard and write of zeroes: a second's work of a few disks. Another
/// request waits at most a second for such a request. The kernel cuts longer requests.
pub const STRETCH_BYTES: u32 = 256 << 20;

/// Most queues of a device, each with a thread: as many as the array's workers by default.
pub const QUEUES_MAX: u16 = 4;

/// Most requests in flight per queue.
pub const DEPTH: u16 = 64;

/// Count of possible device numbers: the kernel's minor numbers for ublk devices.
pub const IDS: u32 = 1 << 20;
