//! A connected stream socket, Unix or TCP alike.
//!
//! Where it stands: the only place with blocking sends and receives; the ring submits its own
//! operations. Sending never raises SIGPIPE (MSG_NOSIGNAL).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use braid_ring::Descriptor;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_keepalive, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recvmsg, sendmsg,
    shutdown,
};

#[derive(Debug)]
pub(crate) struct Socket(Descriptor);

impl Socket {
    /// Wraps a connected socket. `tcp` sets no-delay, and keepalive to notice a dead peer.
    pub(crate) fn new(socket: OwnedFd, tcp: bool) -> io::Result<Self> {
        if tcp {
            set_tcp_nodelay(&socket, true)?;
            set_socket_keepalive(&socket, true)?;
        }
        Ok(Self(Arc::new(socket)))
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        Arc::clone(&self.0)
    }

    /// Receives into `parts` in order, if `whole` until all parts are full; 0 at the end of the
    /// stream.
    pub(crate) fn receive(&self, parts: &mut [IoSliceMut<'_>], whole: bool) -> io::Result<usize> {
        let flags = if whole { RecvFlags::WAITALL } else { RecvFlags::empty() };
        loop {
            let mut ancillary = RecvAncillaryBuffer::default();
            match recvmsg(&self.0, parts, &mut ancillary, flags) {
                Ok(message) => return Ok(message.bytes),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends some of `parts`, in order, and at least one byte.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let mut ancillary = SendAncillaryBuffer::default();
            match sendmsg(&self.0, parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Limits how long one `receive` and one `send` block; `None` means no limit. A call that has
    /// moved no byte when its limit passes fails with [`io::ErrorKind::WouldBlock`].
    pub(crate) fn set_timeouts(
        &self,
        receiving: Option<Duration>,
        sending: Option<Duration>,
    ) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Recv, receiving)?;
        set_socket_timeout(&self.0, Timeout::Send, sending)?;
        Ok(())
    }

    /// Whether the peer has closed or reset the connection; false if the peer has only ended its
    /// sending. A connection that does not receive notices only by this check that its client is
    /// gone.
    pub(crate) fn is_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&*self.0, PollFlags::empty())];
        let now = rustix::event::Timespec::default();
        // Only the returned events matter, not the result of the call.
        let _ = poll(&mut polled, Some(&now));
        polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Ends both directions: threads that block on the socket return.
    pub(crate) fn cut(&self) {
        // This call fails if the peer is gone, and then there is nothing left to end.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Ends the receiving direction: a blocked reader returns, replies are still sent.
    pub(crate) fn stop_receiving(&self) {
        let _ = shutdown(&self.0, Shutdown::Read);
    }

    /// Ends the sending direction: the peer sees the end of the stream after the last reply.
    pub(crate) fn stop_sending(&self) {
        let _ = shutdown(&self.0, Shutdown::Write);
    }
}
