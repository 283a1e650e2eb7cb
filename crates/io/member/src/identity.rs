//! What a member is, and whether two names lead to one device.
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
    /// From the packed number in `struct stat`.
    pub(crate) fn from_packed(packed: u64) -> Self {
        Self { major: rustix::fs::major(packed), minor: rustix::fs::minor(packed) }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

/// What holds the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// This process's memory.
    Memory,
}

/// Who answers what is asked of a member: how long the kernel may keep the thread that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnsweredBy {
    /// Memory: this process's, or files that a file system keeps nowhere else (tmpfs, ramfs; memfd). No disk is waited for.
    Memory,
    /// A block device, below a file system of the kernel's own or by itself.
    Device,
    /// A process or a machine outside the kernel, or that is not known (FUSE, the network): the kernel may keep the
    /// thread until it answers, even one that asked not to be kept.
    Outside,
}

/// Equal exactly when two members are one device.
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
    /// A memory member: numbered as they are made in this process.
    Memory {
        /// Number in order of making.
        number: u64,
    },
}

/// What a member is. Two of them are compared by [`Identity::key`].
#[derive(Debug, Clone)]
pub struct Identity {
    /// The path as it was given, or `memory`.
    pub path: PathBuf,
    /// What holds the bytes.
    pub kind: MemberKind,
    /// Smallest unit the device reads and writes, in bytes; 512 for files and memory.
    pub logical_block_bytes: u32,
    /// Unit it writes without reading first, in bytes; a file system's block for files.
    pub physical_block_bytes: u32,
    /// Whether the device turns. Unknown for memory, where sysfs does not say, and where a
    /// hypervisor's disk says that it does.
    pub rotational: Option<bool>,
    /// Requests that the block layer has room for, of the device or of that below the file's file system; more of them
    /// wait in the kernel, and keep the thread that asks. Unknown for memory and where sysfs does not say.
    pub queue_requests: Option<u32>,
    /// Who answers what is asked of it.
    pub answered_by: AnsweredBy,
    /// The block device, or the device below the file's file system; none for memory.
    pub device: Option<DeviceNumber>,
    /// Inode of the file; none for block devices and memory.
    pub inode: Option<u64>,
    /// Equal exactly when two members are one device.
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

    /// Whether both are one device.
    pub fn is_same_device(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
