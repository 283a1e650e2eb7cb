//! Every limit of this use of the protocol, each with its reason.

use crate::wire::SECTOR_BYTES;

/// The most bytes that a driver should put into one run of memory: a large page common in guests.
pub const RUN_BYTES_MAX: u32 = 128 << 10;

/// The most runs of memory in one request: with head and status they fill QEMU's ring of 128.
pub const RUNS_MAX: u32 = 126;

/// Bytes of the longest read or write: the most that [`RUN_BYTES_MAX`] and [`RUNS_MAX`] allow a
/// driver, rounded up.
pub const REQUEST_BYTES_MAX: u32 = 16 << 20;

/// The most descriptors in one chain: twice as many as a request of [`RUNS_MAX`] runs needs. The
/// limit bounds a worker's time for an endless chain.
pub const DESCRIPTORS_MAX: u16 = 256;

/// Bytes of the longest discard and write of zeroes: a second's work of a few disks. Another
/// request waits at most that long for one.
pub const STRETCH_BYTES: u32 = 256 << 20;

/// Rings of a device. QEMU uses one for each processor of the guest.
pub const QUEUES_MAX: u16 = 64;

/// Entries of a ring: the most that QEMU makes.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;

/// Bytes of a device's serial (GET_ID).
pub const ID_BYTES: usize = 20;

const _: () = assert!(RUN_BYTES_MAX as u64 * RUNS_MAX as u64 <= REQUEST_BYTES_MAX as u64);
const _: () = assert!(2 * (RUNS_MAX + 2) <= DESCRIPTORS_MAX as u32);
const _: () = assert!(REQUEST_BYTES_MAX.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(STRETCH_BYTES.is_multiple_of(SECTOR_BYTES));
