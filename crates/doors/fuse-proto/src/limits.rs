//! Every limit of the protocol, each with its reason.

/// Longest READ or WRITE in bytes: the kernel's maximum unless an administrator raises its limit of
/// pages, and longer than a whole stripe of common arrays.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Pages of the longest request.
pub const REQUEST_PAGES_MAX: u16 = 256;

/// The smallest page size; larger pages only mean fewer of them in a request.
pub const PAGE_BYTES: u32 = 4096;

/// Asynchronous requests that the kernel has in flight. fio and file systems use up to 128.
pub const BACKGROUND_MAX: u16 = 128;

/// Requests in flight from which on the kernel calls the file congested.
pub const CONGESTED_AT: u16 = 96;

/// Bytes of a message before the payload of a WRITE.
pub const WRITE_HEAD_BYTES: usize = 80;

/// Parsed bytes of a message without a payload; the rest of a longer one is ignored.
pub const MESSAGE_BYTES_MAX: usize = 256;

/// Seconds for which the kernel may cache attributes. It asks anew after every write.
pub const ATTRIBUTES_VALID_S: u64 = 1;

/// The oldest supported protocol: 7.31 (Linux 5.4) has all that the door needs.
pub const MINOR_MIN: u32 = 31;

const _: () = assert!(REQUEST_PAGES_MAX as u32 * PAGE_BYTES == REQUEST_BYTES_MAX);
const _: () = assert!(CONGESTED_AT < BACKGROUND_MAX);
