//! Every limit of this use of the protocol, each with its reason.

use crate::wire::SECTOR_BYTES;

/// The most bytes that a driver should put into one run of memory: a large page common in guests.
pub const RUN_BYTES_MAX: u32 = 128 << 10;

/// The most runs of memory in one request: with head and status, they fill QEMU's ring of 128.
pub const RUNS_MAX: u32 = 126;

/// Bytes of the longest read or write: the most that [`RUN_BYTES_MAX`] and [`RUNS_MAX`] allow a
/// driver, rounded up.
pub const REQUEST_BYTES_MAX: u32 = 16 << 20;

/// The most descriptors in one chain: twice as many as a request of [`RUNS_MAX`] runs needs. The
/// limit bounds the time that a worker spends on an endless chain.
pub const DESCRIPTORS_MAX: u16 = 256;

/// Bytes of the longest discard and write of zeroes: a second's work of a few disks. Another
/// request waits at most a second for such a request.
pub const STRETCH_BYTES: u32 = 256 << 20;

/// Most rings of a device. QEMU uses one ring for each processor of the guest.
pub const QUEUES_MAX: u16 = 64;

/// Most entries of a ring, which are the most that QEMU makes.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;

/// Length in bytes of a device's serial number (GET_ID).
pub const ID_BYTES: usize = 20;

const _: () = assert!(RUN_BYTES_MAX as u64 * RUNS_MAX as u64 <= REQUEST_BYTES_MAX as u64);
const _: () = assert!(2 * (RUNS_MAX + 2) <= DESCRIPTORS_MAX as u32);
const _: () = assert!(REQUEST_BYTES_MAX.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(STRETCH_BYTES.is_multiple_of(SECTOR_BYTES));
