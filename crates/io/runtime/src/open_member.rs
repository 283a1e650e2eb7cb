//! Input of opening an array, and its errors.

use braid_engine::open::OpeningError;
use braid_member::{DirectError, Member, MemberError};
use braid_ondisk::Superblock;
use braid_ring::RingError;

/// A member as the caller opened it. Its index is the same as in the input of assembly.
pub struct OpenMember {
    /// The device, opened for writing unless the array is read-only.
    pub device: Box<dyn Member>,
    /// The member's validated superblock.
    pub superblock: Superblock,
}

/// Why an array could not be started.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Assembly's choice and the members that the caller opened do not match.
    #[error(transparent)]
    Members(#[from] OpeningError),
    /// A superblock must be updated before the start, and two writes of it failed. The array cannot
    /// run without that member. Trying again later is safe.
    #[error("a superblock could not be written, and the array cannot do without its member")]
    NotRecorded {
        /// The member's index in the input of assembly.
        index: usize,
        /// The error of the second write.
        source: MemberError,
    },
    /// Threads could not be started.
    #[error("no thread could be started")]
    Thread(#[from] std::io::Error),
    /// A window of a reshape was overwritten in part, and its copy cannot be read.
    #[error("the copy of the window that the reshape was moving cannot be used: {}", .path.display())]
    WindowCopy {
        /// The copy's file.
        path: std::path::PathBuf,
        /// The error of the read.
        source: std::io::Error,
    },
    /// The address space has no room for the stripes' memory.
    #[error("no room for the stripes' memory")]
    Memory(#[source] std::io::Error),
    /// The caller asked for io_uring, which is not available.
    #[error("io_uring cannot be used")]
    Ring(#[source] RingError),
    /// The caller asked for direct I/O, and a member does not support it.
    #[error("a member cannot be used past the page cache")]
    Direct {
        /// The member's index in the input of assembly.
        index: usize,
        /// The error of the switch to direct I/O.
        #[source]
        source: DirectError,
    },
    /// Assembly allows reading only.
    #[error("this array may only be read: {reason}")]
    ReadOnly {
        /// Why writes are not allowed.
        reason: String,
    },
}
