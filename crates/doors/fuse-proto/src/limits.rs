//! Every limit of the protocol, each with its reason.

/// Longest READ or WRITE in bytes: what the kernel sends at most unless an administrator raises its limit of pages, and
/// longer than what makes a whole stripe of common arrays.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Pages of the longest request.
pub const REQUEST_PAGES_MAX: u16 = 256;

/// The smallest page there is: more of them than that do not fit.
pub const PAGE_BYTES: u32 = 4096;

/// Asynchronous requests that the kernel has out at a time. fio and file systems use up to 128.
pub const BACKGROUND_MAX: u16 = 128;

/// From so many on the kernel calls the file busy.
pub const CONGESTED_AT: u16 = 96;

/// Bytes of a message before the payload of a WRITE.
pub const WRITE_HEAD_BYTES: usize = 80;

/// Bytes of the longest message that has no payload, of those that are looked at; of longer ones the rest is not.
pub const MESSAGE_BYTES_MAX: usize = 256;

/// Seconds for which the kernel may keep what it was told of the file. The size never changes, and it asks anew after
/// every write.
pub const ATTRIBUTES_VALID_S: u64 = 1;

/// The oldest protocol that is spoken: 7.31 (Linux 5.4) has all that is needed.
pub const MINOR_MIN: u32 = 31;

const _: () = assert!(REQUEST_PAGES_MAX as u32 * PAGE_BYTES == REQUEST_BYTES_MAX);
const _: () = assert!(CONGESTED_AT < BACKGROUND_MAX);
