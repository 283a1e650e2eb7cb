//! Descriptors that a client passes with a request: devices that the client opened for a confined
//! server.
//!
//! ```text
//!   client: first bytes ──sendmsg, SCM_RIGHTS──▶ server: recvmsg ──▶ taken with the request's head
//! ```
//!
//! Descriptors belong to the request with whose first bytes they arrive. The server closes
//! descriptors that no request takes. The peer is the same user or root (the server checks), but
//! the number of waiting descriptors is bounded.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// Most descriptors with one request: devices, and locks on files below them. The kernel's limit is
/// 253.
pub const DESCRIPTORS_MAX: usize = 128;

/// Descriptors that came with a request, in the order of sending. The first caller of `take` owns
/// them.
#[derive(Clone, Debug, Default)]
pub struct PassedDescriptors(Arc<Mutex<Vec<OwnedFd>>>);

impl PassedDescriptors {
    /// Takes all descriptors of the request; a second call gets none.
    #[must_use]
    pub fn take(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a value from `descriptors`, as if they had come with a request.
    #[must_use]
    pub fn of(descriptors: Vec<OwnedFd>) -> Self {
        Self(Arc::new(Mutex::new(descriptors)))
    }

    fn add(&self, descriptor: OwnedFd) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Drop closes surplus descriptors; the request then has fewer than it announces.
        if waiting.len() < DESCRIPTORS_MAX {
            waiting.push(descriptor);
        }
    }
}

/// The server's end of a connection, which receives descriptors as well as bytes.
pub(crate) struct DescriptorReceiver {
    stream: UnixStream,
    passed: PassedDescriptors,
}

impl DescriptorReceiver {
    pub(crate) fn new(stream: UnixStream, passed: PassedDescriptors) -> Self {
        Self { stream, passed }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(self.stream.as_fd(), &mut slices, &mut beside, flags)?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptors.for_each(|descriptor| self.passed.add(descriptor));
            }
        }
        Ok(received.bytes)
    }
}

impl AsyncRead for DescriptorReceiver {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let free = buffer.initialize_unfilled();
            match self.stream.try_io(Interest::READABLE, || self.receive(free)) {
                Ok(length) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                // The readiness was outdated, or another task has read the data: wait again.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for DescriptorReceiver {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Sends `descriptors` together with the first byte of the data that follows.
///
/// # Errors
/// There are too many descriptors, or the peer is gone.
pub(crate) async fn send(
    stream: &UnixStream,
    first: u8,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::other(format!(
            "a request carries at most {DESCRIPTORS_MAX} descriptors"
        )));
    }
    loop {
        stream.writable().await?;
        let sent = stream.try_io(Interest::WRITABLE, || {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let fits = beside.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(fits, "there is room for as many");
            let slices = [IoSlice::new(std::slice::from_ref(&first))];
            Ok(sendmsg(stream.as_fd(), &slices, &mut beside, SendFlags::DONTWAIT)?)
        });
        match sent {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The client's end of a connection whose first byte has been sent: writing skips it.
pub(crate) struct StartedStream {
    stream: UnixStream,
    is_first: bool,
}

impl StartedStream {
    pub(crate) fn new(stream: UnixStream, is_first: bool) -> Self {
        Self { stream, is_first }
    }
}

impl AsyncRead for StartedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for StartedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_first && !bytes.is_empty() {
            this.is_first = false;
            return Poll::Ready(Ok(1));
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
