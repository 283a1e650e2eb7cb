//! The errors of opening a member and of using one.
//!
//! This module does not say how to react. The engine decides what a media error means for the
//! array, the command line what a refusal means for the operator.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a read, write, flush or zero failed. Small and `Copy`, so that it travels in completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MemberError {
    /// The device or the file system reported an error.
    #[error("the device reported an error: {}", errno_words(*.errno))]
    Media {
        /// The operating system's error number, usually `EIO`.
        errno: i32,
    },
    /// The file system below a sparse file is full (`ENOSPC`, `EDQUOT`).
    #[error("no space is left below this member")]
    OutOfSpace {
        /// The operating system's error number.
        errno: i32,
    },
    /// The member refuses writes (`EROFS`, `EPERM`): a device that became read-only, or a file on a
    /// read-only file system. Its bytes can still be read.
    #[error("the device may not be written: {}", errno_words(*.errno))]
    Protected {
        /// The operating system's error number.
        errno: i32,
    },
    /// The write exceeds the maximum file length (`EFBIG`) of the process or of the file system.
    #[error("the file may not be written that far: a limit on the size of files (ulimit -f)")]
    FileTooLong,
    /// The range does not lie inside the member; the device received no request.
    #[error(
        "{length_bytes} bytes at offset {offset_bytes} lie outside a member of {size_bytes} bytes"
    )]
    OutOfBounds {
        /// First byte of the range.
        offset_bytes: u64,
        /// Length of the range.
        length_bytes: u64,
        /// Size of the member.
        size_bytes: u64,
    },
    /// The device no longer exists (`ENODEV`, `ENXIO`, `ESTALE`).
    #[error("the device is gone")]
    Gone {
        /// The operating system's error number.
        errno: i32,
    },
    /// The file became shorter than when it was opened.
    #[error("the file was cut short while it was in use")]
    Truncated,
    /// The member was opened for reading only.
    #[error("the member was opened for reading only")]
    ReadOnly,
    /// An earlier flush or durable write failed, so a later flush cannot promise anything.
    #[error("an earlier flush failed; writes before it may be lost")]
    FlushFailedBefore {
        /// The first failure's error number, if the operating system gave one.
        errno: Option<i32>,
    },
    /// A fault that a test injected.
    #[error("injected fault")]
    Injected,
}

impl From<Errno> for MemberError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::OutOfSpace { errno: errno.raw_os_error() },
            Errno::FBIG => Self::FileTooLong,
            Errno::ROFS | Errno::PERM => Self::Protected { errno: errno.raw_os_error() },
            Errno::NODEV | Errno::NXIO | Errno::STALE => Self::Gone { errno: errno.raw_os_error() },
            other => Self::Media { errno: other.raw_os_error() },
        }
    }
}

impl From<std::io::Error> for MemberError {
    fn from(error: std::io::Error) -> Self {
        Self::from(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// A kind of directory entry that can never be a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A character device, such as `/dev/null`.
    CharacterDevice,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// Any other kind.
    Other,
}

impl FileKind {
    /// The kind of a file that is neither a regular file nor a block device.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let kind = metadata.file_type();
        if kind.is_dir() {
            Self::Directory
        } else if kind.is_char_device() {
            Self::CharacterDevice
        } else if kind.is_fifo() {
            Self::Fifo
        } else if kind.is_socket() {
            Self::Socket
        } else {
            Self::Other
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Directory => "a directory",
            Self::CharacterDevice => "a character device",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Other => "neither a file nor a block device",
        })
    }
}

/// The process, device or mount that uses a device or file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A block device built on this device, such as `md127` or `dm-3` (sysfs `holders`).
    Device {
        /// The device, or the partition of it, that is held.
        held: String,
        /// The kernel's name of the holder.
        holder: String,
    },
    /// A running or inactive array of the kernel (`/proc/mdstat`).
    KernelArray {
        /// The device, or the partition of it, that is listed.
        held: String,
        /// The kernel's name of the array.
        array: String,
    },
    /// A mounted file system (`/proc/self/mountinfo`).
    Mount {
        /// The device, or the partition of it, that is mounted.
        held: String,
        /// The mount point.
        mounted_at: PathBuf,
    },
    /// Swap space (`/proc/swaps`).
    Swap {
        /// The device, partition or file in use as swap.
        held: String,
    },
    /// A loop device that has this file or device as its backing.
    LoopDevice {
        /// The kernel's name, such as `loop3`.
        name: String,
        /// The user of that loop device, if known.
        user: Option<Box<Holder>>,
    },
    /// A layer below the device is in use, through another path to the same bytes.
    Below {
        /// The step down, such as `loop3 is a loop device over /x/a.img`.
        step: String,
        /// The holder of that layer.
        holder: Box<Holder>,
    },
    /// A process that holds a lock on the file (`/proc/locks`); this may be another braid.
    Lock {
        /// The process, if the kernel names it.
        process_id: Option<u32>,
        /// The process's command line, if readable.
        command: Option<String>,
    },
    /// Another server of this host has opened the export for writing.
    OtherServer,
    /// The kernel or a program opened the device exclusively, and none of the sources above names
    /// it.
    Unknown,
}

impl Holder {
    /// The holder at the lowest layer of the chain.
    #[must_use]
    pub fn innermost(&self) -> &Self {
        match self {
            Self::Below { holder, .. } | Self::LoopDevice { user: Some(holder), .. } => {
                holder.innermost()
            }
            _ => self,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { held, holder } => write!(formatter, "{held} is part of {holder}"),
            Self::KernelArray { held, array } => {
                write!(formatter, "{held} is a member of the kernel's array {array}")
            }
            Self::Mount { held, mounted_at } => {
                write!(formatter, "{held} is mounted at {}", mounted_at.display())
            }
            Self::Swap { held } => write!(formatter, "{held} is in use as swap"),
            Self::LoopDevice { name, user: None } => {
                write!(formatter, "it is the contents of {name}")
            }
            Self::LoopDevice { name, user: Some(user) } => {
                write!(formatter, "it is the contents of {name}: {user}")
            }
            Self::Below { step, holder } => write!(formatter, "{step}: {holder}"),
            Self::Lock { process_id: Some(process_id), command: Some(command) } => {
                write!(formatter, "process {process_id} ({command}) has locked it")
            }
            Self::Lock { process_id: Some(process_id), command: None } => {
                write!(formatter, "process {process_id} has locked it")
            }
            Self::Lock { process_id: None, .. } => {
                formatter.write_str("another process has locked it")
            }
            Self::OtherServer => formatter.write_str("another server of this host writes it"),
            Self::Unknown => formatter.write_str("something has opened it exclusively"),
        }
    }
}

/// Why a path could not be opened or made as a member. In all of these cases nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The path does not exist.
    #[error("{} does not exist", .path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// The path is a symbolic link without a target.
    #[error("{} is a symbolic link to something that does not exist", .path.display())]
    DanglingLink {
        /// The path as given.
        path: PathBuf,
    },
    /// The user has no right to open the path.
    #[error("permission denied for {}", .path.display())]
    PermissionDenied {
        /// The path as given.
        path: PathBuf,
    },
    /// The device or its file system is read-only, and the open was for writing.
    #[error("{} can only be read", .path.display())]
    ReadOnlyMedium {
        /// The path as given.
        path: PathBuf,
    },
    /// A file of this kind cannot be a member.
    #[error("{} is {kind}; a member is a regular file or a block device", .path.display())]
    NotAMember {
        /// The path as given.
        path: PathBuf,
        /// The kind of the file.
        kind: FileKind,
    },
    /// Another process uses the member.
    #[error("{} is busy: {holder}", .path.display())]
    Busy {
        /// The path as given.
        path: PathBuf,
        /// The other user.
        holder: Holder,
    },
    /// The member is too small to hold a superblock.
    #[error("{} has {size_bytes} bytes; a member needs at least {minimum_bytes}", .path.display())]
    TooSmall {
        /// The path as given.
        path: PathBuf,
        /// The size of the member.
        size_bytes: u64,
        /// The size of the smallest member.
        minimum_bytes: u64,
    },
    /// A file to be made exists already.
    #[error("{} exists already", .path.display())]
    AlreadyExists {
        /// The path as given.
        path: PathBuf,
    },
    /// The path leads to another file or device after the open than before it.
    #[error("{} was replaced while it was being opened", .path.display())]
    Replaced {
        /// The path as given.
        path: PathBuf,
    },
    /// The file cannot be locked, although perhaps no other process has the lock. Without a lock
    /// nothing keeps a second writer away.
    #[error("{} cannot be locked: {}", .path.display(), errno_words(*.errno))]
    Unlockable {
        /// The path as given.
        path: PathBuf,
        /// The error number from `flock`.
        errno: i32,
    },
    /// A persistent reservation keeps this process from writing the device.
    #[error("{} is reserved: {reason}", .path.display())]
    Reserved {
        /// The path as given.
        path: PathBuf,
        /// The device's owner, or the reason why the device cannot be claimed.
        reason: String,
    },
    /// The path is a URI that names no member.
    #[error("{} names no member: {reason}", .path.display())]
    Uri {
        /// The URI as given.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The server of a member on another host does not answer, or refuses.
    #[error("{} cannot be reached: {reason}", .path.display())]
    Unreachable {
        /// The URI as given.
        path: PathBuf,
        /// The reason, with its causes.
        reason: String,
    },
    /// Any other error of the operating system.
    #[error("{} failed on {}: {}", .call, .path.display(), errno_words(*.errno))]
    System {
        /// The path as given.
        path: PathBuf,
        /// The call that failed.
        call: &'static str,
        /// The operating system's error number.
        errno: i32,
    },
}

impl OpenError {
    /// Whether the error is the member's own, so that the array may judge the member by it. False
    /// for an error of this process, of its user, or of the path.
    #[must_use]
    pub fn is_of_the_member(&self) -> bool {
        match self {
            Self::TooSmall { .. } => true,
            Self::System { errno, .. } => is_of_a_device(*errno),
            _ => false,
        }
    }
}

impl MemberError {
    /// The operating system's error number, if the error is an operating system's or stems from
    /// one.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Media { errno }
            | Self::OutOfSpace { errno }
            | Self::Protected { errno }
            | Self::Gone { errno } => Some(*errno),
            Self::FileTooLong => Some(Errno::FBIG.raw_os_error()),
            Self::FlushFailedBefore { errno } => *errno,
            Self::OutOfBounds { .. } | Self::Truncated | Self::ReadOnly | Self::Injected => None,
        }
    }

    /// As [`OpenError::is_of_the_member`], for the error of a read from an open member.
    #[must_use]
    pub fn is_of_the_member(&self) -> bool {
        match self {
            Self::Media { errno } => is_of_a_device(*errno),
            Self::Protected { .. } => false,
            _ => true,
        }
    }
}

/// Whether devices and file systems return this error number for faults of their own.
fn is_of_a_device(errno: i32) -> bool {
    // An unlisted error is no evidence: an array must not lose a member for an unrelated error.
    const DEVICE: [Errno; 15] = [
        Errno::IO,
        Errno::NXIO,
        Errno::NODEV,
        Errno::NOMEDIUM,
        Errno::MEDIUMTYPE,
        Errno::REMOTEIO,
        Errno::BADMSG,
        Errno::ILSEQ,
        Errno::UCLEAN,
        Errno::NODATA,
        Errno::TIMEDOUT,
        Errno::STALE,
        Errno::NOTCONN,
        Errno::CONNABORTED,
        Errno::NOLINK,
    ];
    DEVICE.contains(&Errno::from_raw_os_error(errno))
}

/// Whether an error number reports a temporary shortage of this process or of the whole system:
/// memory, descriptors, threads. The request itself did not cause it.
#[must_use]
pub fn is_shortage(errno: i32) -> bool {
    const SHORTAGES: [Errno; 6] =
        [Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::INTR, Errno::NOBUFS];
    SHORTAGES.contains(&Errno::from_raw_os_error(errno))
}

fn errno_words(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_of_the_operating_system_loses_its_number() {
        for errno in 1..134 {
            let error = MemberError::from(Errno::from_raw_os_error(errno));
            assert_eq!(error.os_error(), Some(errno), "{error:?}");
        }
        assert_eq!(MemberError::Truncated.os_error(), None);
    }

    #[test]
    fn running_out_of_something_is_no_fault_of_the_member() {
        for errno in [Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::INTR] {
            let errno = errno.raw_os_error();
            let error = OpenError::System { path: PathBuf::new(), call: "open", errno };
            assert!(is_shortage(errno) && !error.is_of_the_member(), "{error}");
            assert!(!MemberError::Media { errno }.is_of_the_member(), "{error}");
        }
        for errno in [Errno::IO, Errno::NXIO, Errno::NODEV, Errno::BADMSG] {
            let errno = errno.raw_os_error();
            let error = OpenError::System { path: PathBuf::new(), call: "open", errno };
            assert!(!is_shortage(errno) && error.is_of_the_member(), "{error}");
        }
        let path = PathBuf::new();
        for errno in [Errno::NOLCK, Errno::PERM, Errno::ACCESS].map(Errno::raw_os_error) {
            assert!(!OpenError::Unlockable { path: path.clone(), errno }.is_of_the_member());
        }
        assert!(!OpenError::Replaced { path }.is_of_the_member());
    }
}
