//! The errors of this file system, with Linux's numbers, which are equal on all architectures that
//! braid supports.

/// Why a request failed, as seen by the program that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)] // errno(3) says what they mean
pub enum Errno {
    Perm = 1,
    Io = 5,
    Nxio = 6,
    NoMemory = 12,
    Access = 13,
    Invalid = 22,
    FileTooBig = 27,
    NoSpace = 28,
    ReadOnly = 30,
    NotImplemented = 38,
    Protocol = 71,
    NotSupported = 95,
    Stale = 116,
    Shutdown = 108,
}

impl Errno {
    /// The error as the negative number that the kernel expects.
    #[must_use]
    pub const fn to_wire(self) -> i32 {
        (self as i32).wrapping_neg()
    }
}
