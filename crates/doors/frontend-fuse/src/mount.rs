//! Mounting and unmounting: mount(2) for root, fusermount3 for other users.
//!
//! fusermount3 is a setuid-root program. It opens /dev/fuse, mounts the file system, and sends the
//! descriptor of /dev/fuse through a socket. `_FUSE_COMMFD` gives the socket's descriptor number in
//! fusermount3; in this case the socket is fusermount3's standard input.

use std::ffi::CString;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::process::{getegid, geteuid};

use crate::limits::{HELPER_DEADLINE, LOOK};
use crate::table::KIND;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// The source in the list of mounts.
const SOURCE: &str = "braid";

/// Why a file system cannot be mounted, or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// This machine has no FUSE.
    #[error("there is no {DEVICE}: the kernel has no FUSE, or its module is not loaded")]
    NoDevice,
    /// This user has no permission to use FUSE.
    #[error("{DEVICE} may not be opened by this user")]
    Denied,
    /// Only root may mount without fusermount3, which is not installed.
    #[error("this user may not mount, and {HELPER}, which mounts for users, is not installed")]
    NoHelper,
    /// The program fusermount3 refused to mount.
    #[error("{HELPER} refused: {0}")]
    Helper(String),
    /// The mount point is in use.
    #[error("it is in use")]
    Busy,
    /// A system call failed.
    #[error("{call} failed")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// Why the call failed.
        source: io::Error,
    },
}

impl MountError {
    fn system(call: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { call, source: source.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmountMode {
    /// Unmounts only if no program uses the mount.
    Unused,
    /// Unmounts at once; programs that use the file keep the detached mount.
    Detached,
}

/// Mounts the file system on a file; returns the non-blocking descriptor of /dev/fuse.
pub(crate) fn mount(path: &Path, (mode, read_only): (u32, bool)) -> Result<OwnedFd, MountError> {
    let device = match by_ourselves(path, mode, read_only) {
        Err(MountError::System { source, .. }) if is_denied(&source) => by_helper(path, read_only)?,
        mounted => mounted?,
    };
    rustix::io::ioctl_fionbio(&device, true)
        .map_err(|errno| MountError::system("FIONBIO on /dev/fuse", errno))?;
    Ok(device)
}

fn is_denied(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::PERM.raw_os_error())
}

fn device() -> Result<OwnedFd, MountError> {
    let opened = openat(CWD, DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice,
        Errno::ACCESS | Errno::PERM => MountError::Denied,
        errno => MountError::system("open of /dev/fuse", errno),
    })
}

fn by_ourselves(path: &Path, mode: u32, read_only: bool) -> Result<OwnedFd, MountError> {
    use std::os::fd::AsRawFd;
    let device = device()?;
    let data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw()
    );
    let data = CString::new(data).expect("numbers have no zero byte");
    let plain = MountFlags::NOSUID | MountFlags::NODEV;
    let flags = if read_only { plain | MountFlags::RDONLY } else { plain };
    let mounted = rustix::mount::mount(SOURCE, path, KIND, flags, data.as_c_str());
    mounted.map_err(|errno| MountError::system("mount", errno))?;
    Ok(device)
}

/// Waits within a deadline until the helper has ended; returns its status and its messages.
fn ended(mut child: Child) -> Result<(ExitStatus, String), MountError> {
    let until = Instant::now() + HELPER_DEADLINE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => sleep(LOOK),
            Ok(None) => {
                // Kills the helper after its deadline. The error is ignored, since the caller
                // checks the helper's status.
                let _ = child.kill();
                break child.wait().map_err(|error| MountError::system("wait", error))?;
            }
            Err(error) => return Err(MountError::system("wait", error)),
        }
    };
    let mut words = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // If the helper's message is not text, it is omitted.
        let _ = stderr.read_to_string(&mut words);
    }
    let words = words.trim().trim_start_matches("fusermount3: ").to_owned();
    Ok((status, words))
}

fn helper(arguments: &[&str], path: &Path, socket: Option<OwnedFd>) -> Result<Child, MountError> {
    let mut command = Command::new(HELPER);
    command.args(arguments).arg("--").arg(path).env("LC_ALL", "C").env("_FUSE_COMMFD", "0");
    command.stdin(socket.map_or_else(Stdio::null, Stdio::from));
    let spawned = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    spawned.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => MountError::system("starting fusermount3", error),
    })
}

fn by_helper(path: &Path, read_only: bool) -> Result<OwnedFd, MountError> {
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (ours, its) = pair.map_err(|errno| MountError::system("socketpair", errno))?;
    let access = if read_only { ",ro" } else { "" };
    let options = format!("nosuid,nodev,fsname={SOURCE},subtype=braid,default_permissions{access}");
    let child = helper(&["-o", &options], path, Some(its))?;
    let (status, words) = ended(child)?;
    if !status.success() {
        return Err(MountError::Helper(words));
    }
    received(&ours)?.ok_or_else(|| MountError::Helper("it passed no descriptor".into()))
}

/// The descriptor that the helper sent; the helper has ended, so this call does not wait.
fn received(socket: &OwnedFd) -> Result<Option<OwnedFd>, MountError> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags);
    message.map_err(|errno| MountError::system("recvmsg", errno))?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.last())
}

pub(crate) fn unmount(path: &Path, mode: UnmountMode) -> Result<(), MountError> {
    let lazy =
        if mode == UnmountMode::Detached { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | lazy) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy),
        Err(Errno::PERM) => unmount_by_helper(path, mode),
        Err(errno) => Err(MountError::system("umount", errno)),
    }
}

fn unmount_by_helper(path: &Path, mode: UnmountMode) -> Result<(), MountError> {
    let arguments: &[&str] = if mode == UnmountMode::Detached { &["-u", "-z"] } else { &["-u"] };
    match ended(helper(arguments, path, None)?)? {
        (status, _) if status.success() => Ok(()),
        (_, words) if words.contains("busy") => Err(MountError::Busy),
        (_, words) => Err(MountError::Helper(words)),
    }
}
