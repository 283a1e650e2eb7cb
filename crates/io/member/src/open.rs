//! Opens and makes members, so that a member never has two writers.
//!
//! ```text
//!  stat -> right kind? -> held by the kernel? -> open (O_EXCL on a block device for writing)
//!       -> same inode as before? -> lock -> locked by others another way?
//!       -> lock what is below it (`lower_layers`) -> may it be written? -> big enough? -> Member
//! ```
//!
//! The path is examined before it is opened, because the open alone can have effects: a tape
//! rewinds, a pipe blocks. It is examined again afterwards: the file may have been exchanged.
//!
//! An open does not keep out a program that takes no lock and asks for none (`dd`); nothing in user
//! space can do so for a regular file.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::access::Access;
use crate::descriptor::Descriptor;
use crate::direct;
use crate::error::{FileKind, Holder, OpenError, is_shortage};
use crate::kernel::{Kernel, key_of};
use crate::limits::{
    LOCK_RETRY_MS, LOCK_WAIT_DEAD_MS, LOCK_WAIT_MS, MEMBER_BYTES_MIN, SECTOR_BYTES,
};
use crate::lock::{self, Sharing};
use crate::lower_layers;
use crate::opened::OpenedMember;
use crate::remote::{self, ownership};
use crate::reserved;
use crate::{AnsweredBy, DeviceNumber, Identity, IdentityKey, Member, MemberKind};

/// Opens an existing regular file or block device, or an export that an NBD URI names.
///
/// # Errors
/// Every reason why the path must not be used as a member. In all these cases nothing was written.
pub fn open(path: &Path, access: Access) -> Result<Box<dyn Member>, OpenError> {
    if remote::is_uri(path) {
        return remote::open(path, access);
    }
    let kernel = Kernel::running();
    wrap(path, claim(path, access, &kernel)?, (access, None), &kernel)
}

/// Opens a member for another process, which gets the descriptors and passes them to [`adopt`]. The
/// first descriptor is the device. The second is the same device with direct I/O, or the first
/// again if direct I/O is not possible. The locks on the layers below follow. Claims and locks move
/// with the descriptors.
///
/// # Errors
/// As for [`open`].
pub fn open_for_another(path: &Path) -> Result<Vec<OwnedFd>, OpenError> {
    let (file, below) = claim(path, Access::ReadWrite, &Kernel::running())?;
    let again = direct::reopen(&file, true).or_else(|_| file.try_clone());
    let again = again.map_err(|error| path_error(path, "dup", &error))?;
    Ok([file, again].into_iter().chain(below).map(OwnedFd::from).collect())
}

/// Makes a member, for reading and writing, of descriptors from another process, opened with
/// [`open_for_another`]. Checks that the descriptors are open for both, and takes the lock.
///
/// # Errors
/// The first descriptor is no file and no block device, is not open for both, or another process
/// has locked it.
pub fn adopt(path: &Path, descriptors: Vec<OwnedFd>) -> Result<Box<dyn Member>, OpenError> {
    let kernel = Kernel::running();
    let mut files = descriptors.into_iter().map(File::from);
    let (Some(file), Some(again)) = (files.next(), files.next()) else {
        return Err(OpenError::Missing { path: path.into() });
    };
    let metadata = file.metadata().map_err(|error| path_error(path, "fstat", &error))?;
    let key = key_of(&metadata).ok_or_else(|| OpenError::NotAMember {
        path: path.into(),
        kind: FileKind::of(&metadata),
    })?;
    if again.metadata().ok().and_then(|again| key_of(&again)) != Some(key) {
        return Err(OpenError::Replaced { path: path.into() });
    }
    let flags = |file: &File| {
        rustix::fs::fcntl_getfl(file).map_err(|errno| path_error(path, "fcntl", &errno.into()))
    };
    let is_for_both = |flags: OFlags| flags & OFlags::RWMODE == OFlags::RDWR;
    let again_flags = flags(&again)?;
    if !is_for_both(flags(&file)?) || !is_for_both(again_flags) {
        return Err(OpenError::PermissionDenied { path: path.into() });
    }
    // The other process holds this lock through the same open file, and has checked for locks of
    // other kinds.
    take_lock(path, &file, Sharing::Exclusive, &kernel)?;
    let direct = again_flags.contains(OFlags::DIRECT).then_some(again);
    wrap(path, (file, files.collect()), (Access::ReadWrite, direct), &kernel)
}

/// The identity of the file, block device or export at a path, without opening it; `None` if the
/// path leads to none of these.
#[must_use]
pub fn key_at(path: &Path) -> Option<IdentityKey> {
    if remote::is_uri(path) {
        return remote::key_of_uri(path);
    }
    key_of(&fs::metadata(path).ok()?)
}

/// Opens and locks a member and the layers below it.
fn claim(path: &Path, access: Access, kernel: &Kernel) -> Result<(File, Vec<File>), OpenError> {
    let before = fs::metadata(path).map_err(|error| path_error(path, "stat", &error))?;
    let key = key_of(&before)
        .ok_or_else(|| OpenError::NotAMember { path: path.into(), kind: FileKind::of(&before) })?;
    if access != Access::Examine {
        refuse(path, kernel.holder_of(key))?;
    }
    let claim = if access == Access::ReadWrite { Claim::Alone } else { Claim::None };
    let file = open_file(path, (access, claim), key, kernel)?;
    let after = file.metadata().map_err(|error| path_error(path, "fstat", &error))?;
    if key_of(&after) != Some(key) {
        return Err(OpenError::Replaced { path: path.into() });
    }
    lock_out(path, &file, access, kernel)?;
    let below = match key {
        IdentityKey::BlockDevice { device } if access != Access::Examine => {
            lower_layers::hold(path, device, access, kernel)?
        }
        _ => Vec::new(),
    };
    if access == Access::ReadOnly {
        // A writer of one of the disk's partitions holds no lock that conflicts with a reader's.
        // But the kernel knows that writer, so an exclusive open fails.
        drop(open_file(path, (access, Claim::Alone), key, kernel)?);
    }
    Ok((file, below))
}

/// Makes a new sparse file of `size_bytes` (rounded down to whole sectors) and opens it for reading
/// and writing. The file and its name are on stable storage when this returns. The file's mode is
/// 0600.
///
/// # Errors
/// As for [`open`]; an existing file is refused, and a half-made file is removed again.
pub fn create_file(path: &Path, size_bytes: u64) -> Result<Box<dyn Member>, OpenError> {
    let size_bytes = size_bytes - size_bytes % SECTOR_BYTES;
    check_size(path, size_bytes)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| path_error(path, "open", &error))?;
    let made = fill_new_file(path, &file, size_bytes).and_then(|()| {
        wrap(path, (file, Vec::new()), (Access::ReadWrite, None), &Kernel::running())
    });
    if made.is_err() {
        // The original error matters more than an error of the clean-up.
        let _ = fs::remove_file(path);
    }
    made
}

fn fill_new_file(path: &Path, file: &File, size_bytes: u64) -> Result<(), OpenError> {
    lock_out(path, file, Access::ReadWrite, &Kernel::running())?;
    file.set_len(size_bytes).map_err(|error| path_error(path, "ftruncate", &error))?;
    file.sync_all().map_err(|error| path_error(path, "fsync", &error))?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| path_error(folder, "fsync", &error))
}

/// Whether the kernel gets an exclusive claim when a block device is opened. Regular files have no
/// claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// No claim: others may open the device.
    None,
    /// No other process may claim the device, one of its parts, or its disk (`O_EXCL`).
    Alone,
}

fn open_file(
    path: &Path,
    (access, claim): (Access, Claim),
    key: IdentityKey,
    kernel: &Kernel,
) -> Result<File, OpenError> {
    let is_block = matches!(key, IdentityKey::BlockDevice { .. });
    let is_exclusive = is_block && claim == Claim::Alone;
    // If a pipe was put in place of the file since `stat`, the open must not block. Regular files
    // ignore the flag.
    let mut flags = if is_block { OFlags::empty() } else { OFlags::NONBLOCK };
    flags.set(OFlags::EXCL, is_exclusive);
    // Another host may take the array over. Transfers that bypass the page cache have a descriptor
    // of their own, and other transfers must not wait in this host's memory.
    flags.set(OFlags::DSYNC, is_exclusive && ownership().is_some());
    flags |= OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite);
    options.custom_flags(flags.bits().cast_signed());
    let begun = Instant::now();
    let is_within = |limit_ms| begun.elapsed() < Duration::from_millis(limit_ms);
    loop {
        let error = match options.open(path) {
            Ok(file) => {
                // A ring would take `O_NONBLOCK` as a wish not to wait for a disk either. If the
                // flag cannot be cleared, it stays.
                let _ = rustix::fs::fcntl_setfl(&file, OFlags::empty());
                return Ok(file);
            }
            Err(error) => error,
        };
        return Err(match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => {
                let holder =
                    kernel.holder_of(key).or_else(|| lower_layers::locked_by(path, key, kernel));
                // The last holder may have been killed, with operations still in flight.
                let limit_ms = if holder.is_some() { LOCK_WAIT_MS } else { LOCK_WAIT_DEAD_MS };
                if is_exclusive && is_within(limit_ms) {
                    thread::sleep(Duration::from_millis(LOCK_RETRY_MS));
                    continue;
                }
                OpenError::Busy { path: path.into(), holder: holder.unwrap_or(Holder::Unknown) }
            }
            _ => path_error(path, "open", &error),
        });
    }
}

/// Takes the lock for the access, or returns its holder.
fn lock_out(path: &Path, file: &File, access: Access, kernel: &Kernel) -> Result<(), OpenError> {
    let sharing = match access {
        Access::Examine => return Ok(()),
        Access::ReadOnly => Sharing::Shared,
        Access::ReadWrite => Sharing::Exclusive,
    };
    let metadata = file.metadata().map_err(|error| path_error(path, "fstat", &error))?;
    take_lock(path, file, sharing, kernel)?;
    // QEMU's locks do not conflict with `flock`. Only on a regular file do these locks mean that
    // the contents are in use, and readers may share it.
    let is_alone = access == Access::ReadWrite && metadata.is_file();
    let foreign = || kernel.foreign_lock(DeviceNumber::from_packed(metadata.dev()), metadata.ino());
    refuse(path, is_alone.then(foreign).flatten())
}

fn take_lock(path: &Path, file: &File, sharing: Sharing, kernel: &Kernel) -> Result<(), OpenError> {
    let taken = lock::take_patiently(file, sharing, kernel);
    let taken = taken.map_err(|errno| match errno.raw_os_error() {
        errno if is_shortage(errno) => {
            OpenError::System { path: path.into(), call: "flock", errno }
        }
        errno => OpenError::Unlockable { path: path.into(), errno },
    });
    refuse(path, taken?)
}

/// Makes a member of an open file and the locks on the layers below.
fn wrap(
    path: &Path,
    (file, below): (File, Vec<File>),
    (access, direct): (Access, Option<File>),
    kernel: &Kernel,
) -> Result<Box<dyn Member>, OpenError> {
    let metadata = file.metadata().map_err(|error| path_error(path, "fstat", &error))?;
    if metadata.is_file() {
        return wrap_file(path, file, (access, direct), kernel);
    }
    // The kernel opens a read-only device for writing and then refuses the writes. A loop device
    // does not know whether the disk below is read-only, so each layer is asked.
    let is_read_only = |file: &File| braid_block_ioctl::is_read_only(file) == Ok(true);
    if access == Access::ReadWrite && std::iter::once(&file).chain(&below).any(is_read_only) {
        return Err(OpenError::ReadOnlyMedium { path: path.into() });
    }
    let mut end = &file;
    let size_bytes =
        end.seek(SeekFrom::End(0)).map_err(|error| path_error(path, "lseek", &error))?;
    check_size(path, size_bytes)?;
    let reserved = match (access, ownership()) {
        (Access::ReadWrite, Some(owner)) => Some(reserved::claim(path, &file, &owner)?),
        (Access::ReadWrite, None) => {
            reserved::keep_out(path, &file)?;
            None
        }
        (Access::Examine | Access::ReadOnly, _) => None,
    };
    let device = DeviceNumber::from_packed(metadata.rdev());
    let system = |call| {
        move |errno: Errno| OpenError::System {
            path: path.into(),
            call,
            errno: errno.raw_os_error(),
        }
    };
    let queue = kernel.queue_of(device);
    let identity = Identity {
        path: path.into(),
        kind: MemberKind::BlockDevice,
        logical_block_bytes: rustix::fs::ioctl_blksszget(&file).map_err(system("BLKSSZGET"))?,
        physical_block_bytes: rustix::fs::ioctl_blkpbszget(&file).map_err(system("BLKPBSZGET"))?,
        rotational: queue.rotational,
        queue_requests: queue.requests,
        answered_by: AnsweredBy::Device,
        device: Some(device),
        inode: None,
        key: IdentityKey::BlockDevice { device },
    };
    let descriptor = Descriptor::new(file, identity, size_bytes, access).with_reserved(reserved);
    let descriptor = descriptor.with_locks(below).with_offered(direct);
    Ok(Box::new(OpenedMember::block_device(descriptor, queue.zeroes_fast)))
}

fn wrap_file(
    path: &Path,
    file: File,
    (access, direct): (Access, Option<File>),
    kernel: &Kernel,
) -> Result<Box<dyn Member>, OpenError> {
    let metadata = file.metadata().map_err(|error| path_error(path, "fstat", &error))?;
    let size_bytes = metadata.len() - metadata.len() % SECTOR_BYTES;
    check_size(path, size_bytes)?;
    let device = DeviceNumber::from_packed(metadata.dev());
    let queue = kernel.queue_of(device);
    let system = rustix::fs::fstatfs(&file).ok().map(|system| system.f_type.cast_unsigned());
    let is_one_of = |list: &[u64]| system.is_some_and(|system| list.contains(&system));
    let identity = Identity {
        path: path.into(),
        kind: MemberKind::File,
        logical_block_bytes: 512,
        physical_block_bytes: u32::try_from(metadata.blksize()).unwrap_or(4096).max(512),
        rotational: queue.rotational,
        queue_requests: queue.requests,
        answered_by: match () {
            () if is_one_of(&FILE_SYSTEMS_IN_MEMORY) => AnsweredBy::Memory,
            () if is_one_of(&LOCAL_FILE_SYSTEMS) => AnsweredBy::Device,
            () => AnsweredBy::Outside,
        },
        device: Some(device),
        inode: Some(metadata.ino()),
        key: IdentityKey::File { device, inode: metadata.ino() },
    };
    let descriptor = Descriptor::new(file, identity, size_bytes, access).with_offered(direct);
    Ok(Box::new(OpenedMember::file(descriptor, is_one_of(&PUNCHING_FILE_SYSTEMS))))
}

/// Magic numbers, from statfs(2), of file systems that can punch holes: ext4, XFS, btrfs, tmpfs,
/// f2fs, bcachefs, ZFS. On any other, zeroes are allocated or written, which is only slower.
const PUNCHING_FILE_SYSTEMS: [u64; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0xca45_1a4e, 0x2fc1_2fc1];

/// Magic numbers of local file systems: ext4, XFS, btrfs, f2fs, bcachefs, overlayfs (which asks the
/// layer below in the same way). They honour a request not to block, or have their requests done by
/// a kernel thread at once. Not ZFS, which io_uring took for a local one up to Linux 6.2.
const LOCAL_FILE_SYSTEMS: [u64; 6] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, 0x794c_7630];

/// Magic numbers of file systems without a disk: tmpfs (also memfd) and ramfs.
const FILE_SYSTEMS_IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

fn check_size(path: &Path, size_bytes: u64) -> Result<(), OpenError> {
    if size_bytes >= MEMBER_BYTES_MIN {
        return Ok(());
    }
    Err(OpenError::TooSmall { path: path.into(), size_bytes, minimum_bytes: MEMBER_BYTES_MIN })
}

fn refuse(path: &Path, holder: Option<Holder>) -> Result<(), OpenError> {
    match holder {
        Some(holder) => Err(OpenError::Busy { path: path.into(), holder }),
        None => Ok(()),
    }
}

fn path_error(path: &Path, call: &'static str, error: &std::io::Error) -> OpenError {
    let path: PathBuf = path.into();
    // The standard library refuses a path with a NUL before the system sees it.
    if error.kind() == std::io::ErrorKind::InvalidInput && error.raw_os_error().is_none() {
        return OpenError::Missing { path };
    }
    match Errno::from_io_error(error).unwrap_or(Errno::IO) {
        Errno::NOENT if fs::symlink_metadata(&path).is_ok() => OpenError::DanglingLink { path },
        Errno::NOENT | Errno::NOTDIR => OpenError::Missing { path },
        Errno::NAMETOOLONG if call == "stat" => OpenError::Missing { path },
        Errno::ACCESS | Errno::PERM => OpenError::PermissionDenied { path },
        Errno::ROFS => OpenError::ReadOnlyMedium { path },
        Errno::EXIST => OpenError::AlreadyExists { path },
        errno => OpenError::System { path, call, errno: errno.raw_os_error() },
    }
}
