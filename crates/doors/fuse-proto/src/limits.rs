//! Every limit of the protocol, each with its reason.

/// Longest READ or WRITE in bytes. This length is the kernel's maximum unless an administrator
/// raises the kernel's limit of pages. It is longer than a whole stripe of common arrays.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Number of pages of the longest request.
pub const REQUEST_PAGES_MAX: u16 = 256;

/// The smallest page size in bytes; with larger pages, a request has fewer pages.
pub const PAGE_BYTES: u32 = 4096;

/// Most asynchronous requests that the kernel has in flight. fio and file systems use up to 128.
pub const BACKGROUND_MAX: u16 = 128;

/// The kernel calls the file congested at this many requests in flight.
pub const CONGESTED_AT: u16 = 96;

/// Bytes of a WRITE message before its payload.
pub const WRITE_HEAD_BYTES: usize = 80;

/// Bytes that are parsed of a message without a payload; the rest of a longer message is ignored.
pub const MESSAGE_BYTES_MAX: usize = 256;

/// Seconds for which the kernel may cache the file's attributes. The kernel asks for them anew
/// after every write.
pub const ATTRIBUTES_VALID_S: u64 = 1;

/// The oldest supported protocol: 7.31 (Linux 5.4) has all features that the door needs.
pub const MINOR_MIN: u32 = 31;

const _: () = assert!(REQUEST_PAGES_MAX as u32 * PAGE_BYTES == REQUEST_BYTES_MAX);
const _: () = assert!(CONGESTED_AT < BACKGROUND_MAX);
