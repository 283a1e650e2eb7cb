//! The identity of a member: its kind, its names, and whether two names lead to one device.
//!
//! Invariant: two paths to one file (hard link, symbolic link, `./`) and two nodes of one block
//! device have equal [`IdentityKey`]s (`tests/refusals.rs`, `tests/loop_device.rs`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The kernel's number of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device of that driver.
    pub minor: u32,
}

impl DeviceNumber {
    pub(crate) fn from_packed(packed: u64) -> Self {
        Self { major: rustix::fs::major(packed), minor: rustix::fs::minor(packed) }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

/// The medium of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// This process's memory.
    Memory,
    /// An export of an NBD server.
    Remote,
}

/// The party that serves a member's requests, and so how long the kernel may block a submitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnsweredBy {
    /// Memory: this process's, or files that a file system keeps in memory only (tmpfs, ramfs;
    /// memfd). No disk is waited for.
    Memory,
    /// A block device, below a file system of the kernel's own or by itself.
    Device,
    /// A process or machine outside the kernel (FUSE, the network), or an unknown one. The kernel
    /// may block the thread until it answers, even if the thread asked not to be blocked.
    Outside,
}

/// The key of a member's device: equal for two members exactly if they are one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdentityKey {
    /// A regular file: the device of its file system, and its inode there.
    File {
        /// Device of the file system.
        device: DeviceNumber,
        /// Inode number.
        inode: u64,
    },
    /// A block device: its own number, whichever node it was opened by.
    BlockDevice {
        /// Number of the device itself.
        device: DeviceNumber,
    },
    /// A memory member, by its number in this process.
    Memory {
        /// The member's number, in the order in which memory members were made.
        number: u64,
    },
    /// An export of an NBD server, by its URI's number in this process. Two URIs of one export have
    /// two numbers.
    Remote {
        /// The URI's number, in the order in which URIs were first named.
        number: u64,
    },
}

/// Kind, name and numbers of a member. [`Identity::key`] tells whether two members are one device.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The path as it was given, or `memory`.
    pub path: PathBuf,
    /// File, block device, memory or remote.
    pub kind: MemberKind,
    /// Smallest unit the device reads and writes, in bytes; 512 for files and memory.
    pub logical_block_bytes: u32,
    /// Unit that the device writes without reading first, in bytes; a file system's block for
    /// files.
    pub physical_block_bytes: u32,
    /// Whether the device rotates. Unknown for memory, if sysfs does not say, and for a
    /// hypervisor's disk that claims to rotate.
    pub rotational: Option<bool>,
    /// Requests that the block layer's queue has room for, on the device or on the device below the
    /// file's file system. Further requests wait in the kernel and block the thread that submits.
    /// Unknown for memory, or if sysfs does not say.
    pub queue_requests: Option<u32>,
    /// The party that serves the member's requests.
    pub answered_by: AnsweredBy,
    /// The block device, or the device below the file's file system; `None` for memory.
    pub device: Option<DeviceNumber>,
    /// Inode of the file; `None` for block devices and memory.
    pub inode: Option<u64>,
    /// Equal for two members exactly if they are one device.
    pub key: IdentityKey,
}

impl Identity {
    /// A new memory member, different from every other.
    pub(crate) fn memory() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            path: PathBuf::from("memory"),
            kind: MemberKind::Memory,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            rotational: None,
            queue_requests: None,
            answered_by: AnsweredBy::Memory,
            device: None,
            inode: None,
            key: IdentityKey::Memory { number: NEXT.fetch_add(1, Ordering::Relaxed) },
        }
    }

    /// The path as it was given, or `memory`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether both members are one device.
    pub fn is_same_device(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
