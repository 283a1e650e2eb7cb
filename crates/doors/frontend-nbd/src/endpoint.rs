//! The addresses on which a server listens. An address is a Unix socket that no other user may
//! open, or a loopback port. For clients with TLS only, any address is allowed
//! ([`Listener::bind_open`]).
//!
//! Where it stands: used once, when a server starts, and by a program that wants a socket made with
//! the same care. Problems with a path or a port cause a [`BindError`], before a thread exists.
//!
//! A Unix socket, step by step: lock the directory (two servers starting at once take turns). If
//! the path exists, remove it only if it is a socket and refuses a connection, that is, no process
//! listens. Set mode 0600 on the socket *before* `bind`: Linux creates the file with the socket's
//! own mode, so the file never has a wider mode. Bind, listen, check the mode of the file, unlock.
//!
//! Invariants
//! - A socket's mode is never wider than 0600. No live server loses its socket. Only sockets are
//!   removed: `tests/endpoint.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_nbd_proto::{NbdUri, Transport};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen,
    socket_with,
};

use crate::limits::BIND_LOCK_TIMEOUT;

/// Largest number of connections that wait to be accepted. The kernel lowers it to
/// `net.core.somaxconn`, 4096 today.
const BACKLOG: i32 = 4096;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// A loopback address; port 0 picks a free one.
    Tcp(SocketAddr),
}

/// Why a server cannot listen at an address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is not a loopback address, and the endpoint does not demand client certificates.
    #[error(
        "{0} is not a loopback address; serve on 127.0.0.1, ::1 or a Unix socket, or by TLS (nbds)"
    )]
    NotLoopback(String),
    /// A live server listens on this socket.
    #[error("{0} is in use: a server listens there")]
    InUse(PathBuf),
    /// The path names a file that is not a socket.
    #[error("{0} exists and is not a socket")]
    NotASocket(PathBuf),
    /// The path does not fit a socket address (107 bytes).
    #[error("{0} is too long for a Unix socket")]
    PathTooLong(PathBuf),
    /// Another server has been starting in the same directory for too long.
    #[error("the directory of {0} is locked by another server that is starting")]
    Locked(PathBuf),
    /// The new socket file has a mode wider than 0600.
    #[error("{0} was created with mode {1:o}, which others could open")]
    TooOpen(PathBuf, u32),
    /// Another error of the operating system.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// The path or the address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Endpoint {
    /// The endpoint that a URI names, without the export name. With TLS any address is allowed.
    ///
    /// # Errors
    /// The host is neither `localhost` nor a loopback address; with TLS, it is no address at all.
    pub fn from_uri(uri: &NbdUri) -> Result<Self, BindError> {
        match &uri.transport {
            Transport::Unix { socket } => {
                Ok(Self::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(socket))))
            }
            Transport::Tcp { host, port } => {
                let refuse = || BindError::NotLoopback(host.clone());
                let address = if host.eq_ignore_ascii_case("localhost") {
                    IpAddr::V4(Ipv4Addr::LOCALHOST)
                } else {
                    host.parse().map_err(|_| refuse())?
                };
                if !uri.tls {
                    check_loopback(address)?;
                }
                Ok(Self::Tcp(SocketAddr::new(address, *port)))
            }
        }
    }

    /// Whether other machines can reach the endpoint.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Tcp(address) if check_loopback(address.ip()).is_err())
    }

    /// The URI by which clients reach an export at this endpoint, with or without TLS.
    #[must_use]
    pub fn uri(&self, export: &str, tls: bool) -> NbdUri {
        let transport = match self {
            Self::Unix(path) => Transport::Unix { socket: path.as_os_str().as_bytes().to_vec() },
            Self::Tcp(address) => {
                Transport::Tcp { host: address.ip().to_string(), port: address.port() }
            }
        };
        NbdUri { transport, tls, export: export.to_owned(), certificates: None }
    }
}

fn check_loopback(address: IpAddr) -> Result<(), BindError> {
    // An IPv4-mapped IPv6 address counts as the IPv4 address in it.
    if address.to_canonical().is_loopback() {
        Ok(())
    } else {
        Err(BindError::NotLoopback(address.to_string()))
    }
}

/// A listening socket; drop removes the socket's file.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    endpoint: Endpoint,
    /// Device and inode of the socket's file, so that the drop removes no other file.
    file: Option<(u64, u64)>,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Endpoint::Unix(path), Some(file)) = (&self.endpoint, self.file)
            && identity(path).is_ok_and(|now| now == file)
        {
            // If the removal fails, the next server finds the file stale.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Listener {
    /// Listens at an endpoint.
    ///
    /// # Errors
    /// Every [`BindError`]; no socket or file is left behind.
    pub fn bind(endpoint: &Endpoint) -> Result<Self, BindError> {
        match endpoint {
            Endpoint::Unix(path) => Self::bind_unix(path),
            Endpoint::Tcp(address) => {
                check_loopback(address.ip())?;
                Self::bind_tcp(*address)
            }
        }
    }

    /// Listens at an endpoint that other machines may reach, for servers that demand a client
    /// certificate.
    ///
    /// # Errors
    /// As [`Self::bind`], except that any address is allowed.
    pub fn bind_open(endpoint: &Endpoint) -> Result<Self, BindError> {
        match endpoint {
            Endpoint::Unix(path) => Self::bind_unix(path),
            Endpoint::Tcp(address) => Self::bind_tcp(*address),
        }
    }

    /// Takes over a listening socket of a service manager; a TCP socket must be on loopback. The
    /// socket's access rights stay as they are, and dropping the listener keeps its file.
    ///
    /// # Errors
    /// The address is not loopback, or no URI can name it, or a system call fails.
    pub fn adopt(socket: OwnedFd) -> Result<Self, BindError> {
        let system = |address: &str, source: io::Error| {
            let address = address.to_owned();
            BindError::System { address, source }
        };
        let unknown = |source| system("a socket that was passed on", source);
        let address = getsockname(&socket).map_err(|errno| unknown(errno.into()))?;
        let endpoint = match SocketAddrUnix::try_from(address.clone()) {
            Ok(unix) => {
                let path = unix.path_bytes().ok_or_else(|| unknown(Errno::ADDRNOTAVAIL.into()))?;
                Endpoint::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
            }
            Err(_) => {
                let address =
                    SocketAddr::try_from(address).map_err(|errno| unknown(errno.into()))?;
                check_loopback(address.ip())?;
                Endpoint::Tcp(address)
            }
        };
        rustix::io::ioctl_fionbio(&socket, true).map_err(|errno| unknown(errno.into()))?;
        Ok(Self { socket, endpoint, file: None })
    }

    /// The listener's address, with the port that the system chose.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.endpoint, Endpoint::Tcp(_))
    }

    fn bind_tcp(address: SocketAddr) -> Result<Self, BindError> {
        let system = |source| BindError::System { address: address.to_string(), source };
        let listener = TcpListener::bind(address).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let endpoint = Endpoint::Tcp(listener.local_addr().map_err(system)?);
        Ok(Self { socket: listener.into(), endpoint, file: None })
    }

    /// Listens at a Unix socket in non-blocking mode.
    ///
    /// # Errors
    /// Every [`BindError`] that concerns a path; no socket or file is left behind.
    pub fn bind_unix(path: &Path) -> Result<Self, BindError> {
        let system = |source: io::Error| {
            let address = path.display().to_string();
            BindError::System { address, source }
        };
        let address =
            SocketAddrUnix::new(path).map_err(|_| BindError::PathTooLong(path.to_owned()))?;
        let directory = lock_directory(path)?;
        remove_stale(path, &address)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)
            .map_err(|errno| system(errno.into()))?;
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|e| system(e.into()))?;
        bind(&socket, &address).map_err(|errno| system(errno.into()))?;
        let file = Some(identity(path).map_err(system)?);
        let endpoint = Endpoint::Unix(path.to_owned());
        let listener = Self { socket, endpoint, file };
        let mode = rustix::fs::stat(path).map_err(|errno| system(errno.into()))?.st_mode & 0o777;
        if mode & 0o177 != 0 {
            return Err(BindError::TooOpen(path.to_owned(), mode));
        }
        listen(&listener.socket, BACKLOG).map_err(|errno| system(errno.into()))?;
        drop(directory);
        Ok(listener)
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let status = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((status.st_dev, status.st_ino))
}

/// Locks the directory of `path`; closing the descriptor unlocks it.
fn lock_directory(path: &Path) -> Result<OwnedFd, BindError> {
    let system = |errno: Errno| BindError::System {
        address: path.display().to_string(),
        source: errno.into(),
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty()).map_err(system)?;
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::AGAIN | Errno::INTR) if start.elapsed() < BIND_LOCK_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::AGAIN | Errno::INTR) => return Err(BindError::Locked(path.to_owned())),
            Err(errno) => return Err(system(errno)),
        }
    }
}

/// Removes the file of a socket on which no process listens; fails for any other file.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let system = |errno: Errno| BindError::System {
        address: path.display().to_string(),
        source: errno.into(),
    };
    let status = match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(system(errno)),
        Ok(status) => status,
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    let probe =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None).map_err(system)?;
    match connect(&probe, address) {
        // A refused connection proves that no process listens, so the file is stale.
        Err(Errno::CONNREFUSED) => rustix::fs::unlink(path).map_err(system),
        // A socket whose backlog is full also belongs to a live server.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Err(BindError::InUse(path.to_owned())),
        Err(errno) => Err(system(errno)),
    }
}
