//! Advisory locks, by which cooperating programs keep each other off a file.
//!
//! `flock` belongs to the open file, not to the process. A POSIX lock would be dropped by any close
//! of the same file in the process. `flock` also needs no unsafe call. On a block device the same
//! lock keeps udev from probing and auto-assembling it (systemd's block-device locking). QEMU's
//! open-file-description locks do not conflict with `flock`; `/proc/locks` shows them.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::kernel::{Kernel, LockOwner};
use crate::limits::{LOCK_RETRY_MS, LOCK_WAIT_DEAD_MS, LOCK_WAIT_MS};
use crate::{DeviceNumber, Holder};

/// Which other processes may have the file open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Other readers with a shared lock.
    Shared,
    /// No process.
    Exclusive,
}

/// Takes the lock. Waits a while if the holder may be closing the file or dead. Returns the holder
/// if the lock is not free by then.
pub(crate) fn take_patiently(
    file: &File,
    sharing: Sharing,
    kernel: &Kernel,
) -> Result<Option<Holder>, Errno> {
    let metadata = file.metadata().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let device = DeviceNumber::from_packed(metadata.dev());
    let owners = || kernel.locks_on(device, metadata.ino());
    if take(file, sharing, LOCK_WAIT_MS)?
        || (owners().is_empty() && take(file, sharing, LOCK_WAIT_DEAD_MS)?)
    {
        return Ok(None);
    }
    if let Some(foreign) = kernel.foreign_lock(device, metadata.ino()) {
        return Ok(Some(foreign));
    }
    // The lock was refused and no other process is listed: another member of this process holds it.
    let own = owners().contains(&LockOwner::ThisProcess).then(std::process::id);
    Ok(Some(Holder::Lock { process_id: own, command: None }))
}

/// Locks a file exclusively, for as long as it is open. `Ok(false)`: another process has the lock.
///
/// Waits up to [`LOCK_WAIT_MS`]: a child between fork and exec holds its parent's locks.
///
/// # Errors
/// The file system has no locks, or no memory for one.
pub fn lock_exclusively(file: &File) -> Result<bool, Errno> {
    take(file, Sharing::Exclusive, LOCK_WAIT_MS)
}

/// Takes the lock, retrying for `wait_ms`. `Ok(false)`: another process has the lock.
fn take(file: &File, sharing: Sharing, wait_ms: u64) -> Result<bool, Errno> {
    let operation = match sharing {
        Sharing::Shared => FlockOperation::NonBlockingLockShared,
        Sharing::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    let deadline = Instant::now() + Duration::from_millis(wait_ms);
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() >= deadline => return Ok(false),
            Err(Errno::WOULDBLOCK) => {
                thread::sleep(Duration::from_millis(LOCK_RETRY_MS));
            }
            Err(errno) => return Err(errno),
        }
    }
}
