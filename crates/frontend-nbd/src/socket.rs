//! A connected stream socket, Unix or TCP alike.
//!
//! Where it stands: the only place that sends and receives. Sending never raises SIGPIPE (MSG_NOSIGNAL) and never sends
//! half a message: it goes on until everything is out or the connection is over.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

/// A connected stream socket.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Takes a connected socket; `tcp` switches Nagle's delay off.
    pub(crate) fn new(socket: OwnedFd, tcp: bool) -> io::Result<Self> {
        if tcp {
            set_tcp_nodelay(&socket, true)?;
        }
        Ok(Self(socket))
    }

    /// Some bytes, or 0 at the end of the stream.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(&self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((received, _)) => return Ok(received),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends all of `parts`, in order.
    pub(crate) fn send_all(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut parts, 0); // drops empty parts in front
        while !parts.is_empty() {
            let mut ancillary = SendAncillaryBuffer::default();
            match sendmsg(&self.0, parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => IoSlice::advance_slices(&mut parts, sent),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Limits how long one `receive` or `send` may block; `None` for ever.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Recv, timeout)?;
        set_socket_timeout(&self.0, Timeout::Send, timeout)?;
        Ok(())
    }

    /// Ends both directions: every thread blocked on the socket returns.
    pub(crate) fn cut(&self) {
        // The peer may be gone already; then there is nothing left to end.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Ends the receiving direction: a blocked reader returns, replies still go out.
    pub(crate) fn stop_receiving(&self) {
        let _ = shutdown(&self.0, Shutdown::Read);
    }

    /// Ends the sending direction: the peer sees the end of the stream behind the last reply.
    pub(crate) fn stop_sending(&self) {
        let _ = shutdown(&self.0, Shutdown::Write);
    }
}
