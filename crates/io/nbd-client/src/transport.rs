//! The byte stream below a session: a Unix socket or TCP, plain or by TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use braid_nbd_proto::Transport;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// An address without an answer for this long has no server.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// After this much silence TCP asks whether the peer's host is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(3);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;
/// A connection ends if the peer's host has not acknowledged bytes for this long.
const UNACKNOWLEDGED_LIMIT_MS: u32 = 9_000;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Connects. A TCP connection whose peer's host is gone ends within seconds, by the kernel.
    pub(crate) fn connect(transport: &Transport) -> io::Result<Self> {
        match transport {
            Transport::Unix { socket } => {
                Ok(Self::Unix(UnixStream::connect(std::ffi::OsStr::from_bytes(socket))?))
            }
            Transport::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
                        Ok(stream) => return Self::tune(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn tune(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_LIMIT_MS)?;
        Ok(Self::Tcp(stream))
    }

    pub(crate) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)
            }
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends a client's connection from another thread: the client's call returns with an error.
#[derive(Debug)]
pub struct Cutter(Socket);

impl Cutter {
    /// Ends the connection in both directions.
    pub fn cut(&self) {
        // The connection may be over already.
        let _ = match &self.0 {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// A session's stream.
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Stream {
    pub(crate) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    pub(crate) fn cutter(&self) -> io::Result<Cutter> {
        self.socket().try_clone().map(Cutter)
    }

    /// Makes the handshake of TLS, and checks the server's certificate against `host`.
    pub(crate) fn into_tls(self, config: &Arc<ClientConfig>, host: &str) -> io::Result<Self> {
        let Self::Plain(mut socket) = self else {
            return Err(io::Error::other("TLS within TLS"));
        };
        let invalid = |error: &dyn std::error::Error| {
            io::Error::new(io::ErrorKind::InvalidData, error.to_string())
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| invalid(&error))?;
        let session = ClientConnection::new(Arc::clone(config), name);
        let mut session = session.map_err(|error| invalid(&error))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(session, socket))))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
