//! Every limit of the protocol as it is used here, each with its reason.

use crate::wire::SECTOR_BYTES;

/// Bytes of one run of memory that a driver should not exceed: a page of the largest kind that guests commonly have in one
/// piece.
pub const RUN_BYTES_MAX: u32 = 128 << 10;

/// Runs of memory of one request: with the head and the status they fill a ring of 128, which is what QEMU makes.
pub const RUNS_MAX: u32 = 126;

/// Bytes of the longest read or write: what a driver that obeys both of the above can ask for, rounded up.
pub const REQUEST_BYTES_MAX: u32 = 16 << 20;

/// Descriptors of one chain: twice what a driver may use that obeys [`RUNS_MAX`], as a driver does that knows of it. A guest
/// that has chains followed for nothing has no more of a worker's time for each.
pub const DESCRIPTORS_MAX: u16 = 256;

/// Bytes of the longest discard, and the longest write of zeroes: a second's work of a few disks, since what has to wait for one
/// waits no longer.
pub const STRETCH_BYTES: u32 = 256 << 20;

/// Rings of a device. QEMU wants one for each processor of the guest.
pub const QUEUES_MAX: u16 = 64;

/// Entries of a ring: the most that QEMU makes.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;

/// Bytes of the name by which a device is told apart.
pub const ID_BYTES: usize = 20;

const _: () = assert!(RUN_BYTES_MAX as u64 * RUNS_MAX as u64 <= REQUEST_BYTES_MAX as u64);
const _: () = assert!(2 * (RUNS_MAX + 2) <= DESCRIPTORS_MAX as u32);
const _: () = assert!(REQUEST_BYTES_MAX.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(STRETCH_BYTES.is_multiple_of(SECTOR_BYTES));
