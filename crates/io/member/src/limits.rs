//! Every limit of this crate, with its reason.

/// Smallest member that can be opened or made: a version-1.2 superblock starts at 4 KiB and may be
/// 4 KiB long, so anything smaller cannot be a member of any array.
pub const MEMBER_BYTES_MIN: u64 = 8 * 1024;

/// md counts sectors of 512 bytes. A member's size is rounded down to whole sectors, as the
/// kernel's loop driver does with a backing file.
pub const SECTOR_BYTES: u64 = 512;

/// How long an open waits for the lock. Some locks disappear by themselves within a moment. udev
/// holds a shared lock while it probes a block device that has just changed (systemd's block-device
/// locking). A child between fork and exec still holds its parent's lock.
pub const LOCK_WAIT_MS: u64 = 400;

/// How long an open waits if no process is seen to hold the lock. The holder may be dead while the
/// kernel still ends operations on its rings (some 40 ms). Or the holder is in another PID
/// namespace.
pub const LOCK_WAIT_DEAD_MS: u64 = 3000;

/// Pause between two attempts to take the lock.
pub const LOCK_RETRY_MS: u64 = 10;

/// Maximum number of layers below a device that are followed: more than are ever stacked. The limit
/// also ends a loop in sysfs.
pub(crate) const LAYERS_MAX: usize = 64;

/// Letters of another process's command line that are shown.
pub(crate) const COMMAND_LETTERS_MAX: usize = 60;

/// Zeroes written in one call if the device cannot make zeroes itself.
pub const ZERO_BUFFER_BYTES: usize = 64 * 1024;

/// The unit in which memory members allocate; an unwritten unit takes no memory.
pub const MEMORY_PIECE_BYTES: usize = 64 * 1024;

/// Locks that a memory member's allocation units are spread over.
pub const MEMORY_SHARDS: usize = 16;

const _: () = assert!(MEMBER_BYTES_MIN.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(MEMORY_SHARDS > 0 && MEMORY_PIECE_BYTES.is_multiple_of(512));
