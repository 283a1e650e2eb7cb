//! A member on another host, named by an NBD URI.
//!
//! ```text
//!   Member's calls ─▶ RemoteMember ─ pieces ─▶ Link ─ one request on one connection ─▶ server
//!                                               │
//!                     a connection is lost ─────┴─▶ all are cut; one caller connects anew, and
//!                                                   writes again what is not flushed; all callers
//!                                                   send their requests again
//! ```
//!
//! A call waits while the server cannot be reached, as it waits for a disk that hangs. So the array
//! puts the member *away* and recovers it where it missed writes ([`crate::Member`] knows nothing
//! of that). After ten minutes the member is gone for good.
//!
//! A server may lose writes that it answered and did not flush, if it restarts. So the member keeps
//! a copy of each write until a flush, and sends it again on a new connection.
//!
//! The server must not end a request of a lost connection after it took the next connection's.
//! Servers that finish what they have read before they close a connection keep that order, if the
//! connection ends in order. Linux's NBD driver takes the same risk.
//!
//! Two processes of one host never write one URI: the writer holds an abstract Unix socket with a
//! name made of the URI. The socket does not keep other hosts out. An owner by a store
//! ([`Ownership`]) claims the member at its server instead, which keeps all others out.

mod link;
mod ownership;
mod unflushed;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use braid_nbd_client::{ClientError, Connector, ErrorCode, ExportInfo, NbdUri, UriError};
use rustix::io::Errno;

use crate::access::Access;
use crate::error::{Holder, OpenError};
use crate::flushes::Flushes;
use crate::limits::{MEMBER_BYTES_MIN, SECTOR_BYTES, ZERO_BUFFER_BYTES};
use crate::{AnsweredBy, Identity, IdentityKey, Member, MemberError, MemberKind, check_bounds};
use link::{Blocks, Link, RemoteRequest, UNREACHABLE_LIMIT, UNREADABLE_LIMIT, connect_as, reasons};
use ownership::next_session;
pub(crate) use ownership::ownership;

pub use link::LinkLook;
pub use ownership::{Ownership, boot_ns, own_members};

/// Bytes of the longest request, if the server allows that many.
const REQUEST_BYTES_MAX: u64 = 4 << 20;
/// Bytes of the longest request that makes zeroes.
const ZERO_BYTES_MAX: usize = 1 << 30;
/// The largest value that a member may have as its smallest block.
const BLOCK_BYTES_MAX: u32 = 4096;

/// Whether a member's path is an NBD URI.
#[must_use]
pub fn is_uri(path: &Path) -> bool {
    const SCHEMES: [&str; 4] = ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"];
    let bytes = path.as_os_str().as_bytes();
    SCHEMES.iter().any(|scheme| {
        bytes.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
    })
}

/// The path as an absolute one, which means the same in any folder; URIs stay as they are.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    match is_uri(path) {
        true => path.to_path_buf(),
        false => std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
    }
}

/// Whether a member may be at this path, without opening it: a file exists, or a URI has no path.
#[must_use]
pub fn may_be_there(path: &Path) -> bool {
    is_uri(path) || path.exists()
}

/// The identity of the export that a URI names.
pub(crate) fn key_of_uri(path: &Path) -> Option<IdentityKey> {
    parse(path).ok().map(|uri| key_of(&uri))
}

/// Connects to a member's server.
pub(crate) fn open(path: &Path, access: Access) -> Result<Box<dyn Member>, OpenError> {
    let uri = parse(path)
        .map_err(|error| OpenError::Uri { path: path.into(), reason: error.to_string() })?;
    let unreachable =
        |error: &ClientError| OpenError::Unreachable { path: path.into(), reason: reasons(error) };
    // A claim at the server keeps other writers out by itself, on all hosts.
    let (lock, ownership) = match (access, ownership()) {
        (Access::Examine | Access::ReadOnly, _) => (None, None),
        (Access::ReadWrite, None) => (Some(lock_out(path, &uri)?), None),
        (Access::ReadWrite, ownership) => (None, ownership),
    };
    let key = key_of(&uri);
    let connector = Connector::new(uri).map_err(|error| unreachable(&error))?;
    let (session, is_owned) = (next_session(), ownership.is_some());
    let connected = connect_as(&connector, ownership.as_deref(), session);
    let (first, _) = connected.map_err(|error| unreachable(&error))?;
    let info = first.info().clone();
    let features = Features::of(&info);
    if access == Access::ReadWrite && features.is_read_only {
        return Err(OpenError::ReadOnlyMedium { path: path.into() });
    }
    let size_bytes = info.size_bytes - info.size_bytes % SECTOR_BYTES;
    if size_bytes < MEMBER_BYTES_MIN {
        let minimum_bytes = MEMBER_BYTES_MIN;
        return Err(OpenError::TooSmall { path: path.into(), size_bytes, minimum_bytes });
    }
    if features.block_bytes > BLOCK_BYTES_MAX {
        let reason = format!("the server takes blocks of {} bytes only", features.block_bytes);
        return Err(OpenError::Uri { path: path.into(), reason });
    }
    let identity = Identity {
        path: path.into(),
        kind: MemberKind::Remote,
        logical_block_bytes: features.block_bytes.max(512),
        physical_block_bytes: 4096,
        rotational: None,
        queue_requests: None,
        answered_by: AnsweredBy::Outside,
        device: None,
        inode: None,
        key,
    };
    let limit = match access {
        Access::ReadWrite => UNREACHABLE_LIMIT,
        Access::Examine | Access::ReadOnly => UNREADABLE_LIMIT,
    };
    let abilities = (features.has_multi_conn, features.has_flush, u64::from(features.block_bytes));
    let link = Link::new(connector, first, abilities, (limit, ownership, session));
    let link = Arc::new(link.map_err(|error| unreachable(&error))?);
    if is_owned {
        link.keep_asking().map_err(|error| unreachable(&ClientError::Connection(error)))?;
    }
    let flushes = Flushes::new();
    Ok(Box::new(RemoteMember {
        identity,
        size_bytes,
        access,
        features,
        link,
        flushes,
        _lock: lock,
    }))
}

fn parse(path: &Path) -> Result<NbdUri, UriError> {
    path.to_str().ok_or_else(|| UriError::Encoding(path.display().to_string()))?.parse()
}

/// The URI in one spelling, without the client's own certificates.
fn canonical(uri: &NbdUri) -> String {
    NbdUri { certificates: None, ..uri.clone() }.to_string()
}

/// The number of a URI in this process. Two spellings of one URI have one number.
fn key_of(uri: &NbdUri) -> IdentityKey {
    static KNOWN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let text = canonical(uri);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let at = known.iter().position(|one| *one == text).unwrap_or_else(|| {
        known.push(text);
        known.len() - 1
    });
    IdentityKey::Remote { number: at as u64 }
}

/// Keeps other writers of this host out, as long as the listener lives. The socket's name has room
/// for the end of a long URI only, and a checksum of the whole URI.
fn lock_out(path: &Path, uri: &NbdUri) -> Result<UnixListener, OpenError> {
    const SHOWN_BYTES_MAX: usize = 80;
    let text = canonical(uri);
    let end = &text.as_bytes()[text.len().saturating_sub(SHOWN_BYTES_MAX)..];
    let sum = crc32c::crc32c(text.as_bytes());
    let name = [format!("braid-member-{sum:08x}-").as_bytes(), end].concat();
    let bound =
        SocketAddr::from_abstract_name(name).and_then(|address| UnixListener::bind_addr(&address));
    bound.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::ADDRINUSE) => {
            OpenError::Busy { path: path.into(), holder: Holder::OtherServer }
        }
        errno => OpenError::System {
            path: path.into(),
            call: "bind",
            errno: errno.unwrap_or(Errno::IO).raw_os_error(),
        },
    })
}

/// The abilities of a server, by its transmission flags and block sizes.
#[derive(Debug, Clone, Copy)]
struct Features {
    is_read_only: bool,
    has_flush: bool,
    has_fua: bool,
    has_zeroes: bool,
    zeroes_fast: bool,
    has_multi_conn: bool,
    block_bytes: u32,
    request_bytes_max: u64,
}

impl Features {
    fn of(info: &ExportInfo) -> Self {
        use braid_nbd_client::wire;
        let has = |flag| info.transmission_flags & flag != 0;
        let largest = info.block_sizes.map_or(u64::MAX, |sizes| sizes.maximum_bytes().into());
        Self {
            is_read_only: has(wire::TRANSMIT_READ_ONLY),
            has_flush: has(wire::TRANSMIT_FLUSH),
            has_fua: has(wire::TRANSMIT_FUA),
            has_zeroes: has(wire::TRANSMIT_WRITE_ZEROES),
            zeroes_fast: has(wire::TRANSMIT_WRITE_ZEROES) && has(wire::TRANSMIT_FAST_ZERO),
            has_multi_conn: has(wire::TRANSMIT_MULTI_CONN),
            block_bytes: info.block_sizes.map_or(1, |sizes| sizes.minimum_bytes()),
            request_bytes_max: REQUEST_BYTES_MAX.min(largest).max(u64::from(BLOCK_BYTES_MAX)),
        }
    }
}

/// A member behind an NBD server.
#[derive(Debug)]
pub(crate) struct RemoteMember {
    identity: Identity,
    size_bytes: u64,
    access: Access,
    features: Features,
    link: Arc<Link>,
    flushes: Flushes,
    _lock: Option<UnixListener>,
}

impl RemoteMember {
    fn check(&self, offset_bytes: u64, length: usize) -> Result<(), MemberError> {
        check_bounds(offset_bytes, length as u64, self.size_bytes)
    }

    fn may_write(&self) -> Result<(), MemberError> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::Examine | Access::ReadOnly => Err(MemberError::ReadOnly),
        }
    }

    fn send(&self, request: RemoteRequest<'_>) -> Result<(), MemberError> {
        self.link.call(request)?.map_err(of_code)
    }

    fn pieces(&self, length: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let step = usize::try_from(self.features.request_bytes_max).unwrap_or(usize::MAX);
        (0..length).step_by(step).map(move |start| start..length.min(start + step))
    }

    /// Writes zeroes for a server that cannot make them itself.
    fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), MemberError> {
        let zeroes = [0; ZERO_BUFFER_BYTES];
        for start in (0..length_bytes).step_by(ZERO_BUFFER_BYTES) {
            let length = (ZERO_BUFFER_BYTES as u64).min(length_bytes - start);
            let length = usize::try_from(length).expect("the buffer's at most");
            self.write_at(&zeroes[..length], offset_bytes + start, false)?;
        }
        Ok(())
    }

    fn flush_once(&self) -> Result<(), MemberError> {
        if !self.features.has_flush {
            return Ok(());
        }
        self.send(RemoteRequest::Flush)
    }

    /// Flushes when so many writes wait for a flush that their copies take much memory.
    fn bound_copies(&self) -> Result<(), MemberError> {
        if self.link.copies_are_many() { self.flush() } else { Ok(()) }
    }
}

/// The error number of an answer.
fn of_code(code: ErrorCode) -> MemberError {
    let errno = match code {
        ErrorCode::Permission => Errno::PERM,
        ErrorCode::Io => Errno::IO,
        ErrorCode::Memory => Errno::NOMEM,
        ErrorCode::Invalid | ErrorCode::Overflow => Errno::INVAL,
        ErrorCode::NoSpace => Errno::NOSPC,
        ErrorCode::Unsupported => Errno::OPNOTSUPP,
        ErrorCode::Shutdown => Errno::SHUTDOWN,
    };
    errno.into()
}

impl Member for RemoteMember {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        self.check(offset_bytes, buffer.len())?;
        let block_bytes = u64::from(self.features.block_bytes);
        let around = Blocks::around(offset_bytes, buffer.len(), block_bytes);
        if around.length > buffer.len() {
            let mut whole = vec![0; around.length];
            self.read_at(&mut whole, around.start_bytes)?;
            buffer.copy_from_slice(&whole[around.skipped..][..buffer.len()]);
            return Ok(());
        }
        for piece in self.pieces(buffer.len()) {
            let offset_bytes = offset_bytes + piece.start as u64;
            let buffer = &mut buffer[piece];
            self.send(RemoteRequest::Read { offset_bytes, buffer })?;
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        self.may_write()?;
        self.check(offset_bytes, buffer.len())?;
        if durable {
            self.flushes.check()?;
        }
        let has_fua = self.features.has_fua;
        let write = |piece: std::ops::Range<usize>| {
            let offset_bytes = offset_bytes + piece.start as u64;
            let bytes = &buffer[piece];
            self.send(RemoteRequest::Write { offset_bytes, bytes, durable: durable && has_fua })
        };
        let written = self.pieces(buffer.len()).try_for_each(write);
        if !durable {
            written?;
            return self.bound_copies();
        }
        let flushed = written.and_then(|()| if has_fua { Ok(()) } else { self.flush_once() });
        flushed.inspect_err(|error| self.flushes.fail(*error))
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.flushes.check()?;
        if self.access != Access::ReadWrite {
            return Ok(());
        }
        self.flush_once().inspect_err(|error| self.flushes.fail(*error))
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError> {
        self.may_write()?;
        check_bounds(offset_bytes, length_bytes, self.size_bytes)?;
        if !self.features.has_zeroes {
            return self.write_zeroes(offset_bytes, length_bytes);
        }
        for start in (0..length_bytes).step_by(ZERO_BYTES_MAX) {
            let offset_bytes = offset_bytes + start;
            let length_bytes = (ZERO_BYTES_MAX as u64).min(length_bytes - start);
            self.send(RemoteRequest::Zero { offset_bytes, length_bytes, may_punch })?;
        }
        self.bound_copies()
    }

    fn can_zero_fast(&self) -> bool {
        self.features.zeroes_fast
    }

    fn requests_at_once(&self) -> Option<usize> {
        Some(self.link.connections_max())
    }

    fn expect_after_loss(&self, offset_bytes: u64, bytes: &[u8]) {
        self.link.expect(offset_bytes, bytes);
    }

    fn link(&self) -> Option<LinkLook> {
        Some(self.link.look())
    }

    fn claim_seen_ns(&self) -> Option<u64> {
        self.link.answered_ns()
    }

    fn give_up(&self) {
        self.link.give_up();
    }
}
