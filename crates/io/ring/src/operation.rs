//! The operations of a ring, and their completions.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::files::Descriptor;
use crate::memory::{Segment, Segments};
use crate::worker::Worker;

/// A way to make zeroes without writing them (fallocate(2)). Neither way changes the file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// Give the space back.
    PunchHole,
    /// Keep the space allocated.
    ZeroRange,
}

/// An operation of the kernel.
#[derive(Debug)]
#[allow(missing_docs)] // each variant's comment describes its fields
pub enum Operation {
    /// Fill all segments from a file, or fail. The end of the file is the error `UnexpectedEof`.
    Read { file: Descriptor, offset: u64, memory: Segments },
    /// Write all segments to a file, or fail. With `durable` the data is on stable storage when the
    /// write completes (`RWF_DSYNC`).
    Write { file: Descriptor, offset: u64, memory: Segments, durable: bool },
    /// Make all earlier writes to the file durable (`fdatasync`).
    Sync { file: Descriptor },
    /// Make a range of a file read as zeroes.
    Zero { file: Descriptor, offset: u64, length: u64, how: Zeroing },
    /// Wait for a client to connect; [`Completion::accepted`] is the client's socket.
    Accept { socket: Descriptor },
    /// Wait until the file is readable, without reading.
    Poll { file: Descriptor },
    /// Receive into the segments. With `whole` the operation completes when all segments are full,
    /// or the peer has closed its end; otherwise with the first bytes. The result is the number of
    /// bytes; 0 means that the peer has closed its end.
    Receive { socket: Descriptor, memory: Segments, whole: bool },
    /// Send all segments, or fail. With `more` the kernel may wait to fill a packet.
    Send { socket: Descriptor, memory: Segments, more: bool },
}

impl Operation {
    /// The segments, if the operation has any.
    pub fn memory(&mut self) -> Option<&mut Segments> {
        match self {
            Self::Read { memory, .. }
            | Self::Write { memory, .. }
            | Self::Receive { memory, .. }
            | Self::Send { memory, .. } => Some(memory),
            Self::Sync { .. } | Self::Zero { .. } | Self::Accept { .. } | Self::Poll { .. } => None,
        }
    }

    pub(crate) fn file(&self) -> &Descriptor {
        match self {
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::Poll { file }
            | Self::Zero { file, .. } => file,
            Self::Accept { socket } | Self::Receive { socket, .. } | Self::Send { socket, .. } => {
                socket
            }
        }
    }

    /// Whether the operation may take for ever, since it waits for a client.
    pub(crate) fn waits_for_a_peer(&self) -> bool {
        matches!(self, Self::Accept { .. } | Self::Poll { .. } | Self::Receive { .. })
    }

    pub(crate) fn fills(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Receive { .. })
    }

    pub(crate) fn length_bytes(&mut self) -> usize {
        self.memory().map_or(0, |memory| memory.iter().map(Segment::length_bytes).sum())
    }
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The token from the submission.
    pub token: u64,
    /// Bytes moved, or the kernel's error.
    pub result: io::Result<usize>,
    /// The socket of a client, after a successful [`Operation::Accept`].
    pub accepted: Option<OwnedFd>,
    /// The operation, which returns its memory.
    pub operation: Operation,
}

/// Receives the completions of operations from a worker. A handler must not wait and must not
/// panic: a panic ends the process, since unwinding would free memory that the kernel may be using.
pub trait Handler: Send + Sync {
    /// An operation has ended.
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion);
}

/// Receives a worker's calls for tasks and timers. The rules of [`Handler`] apply.
pub trait Wake: Send + Sync {
    /// Called after [`crate::Workers::wake`], [`Worker::afterwards`] or [`Worker::wake_at`] asked
    /// for it.
    fn wake(self: Arc<Self>, worker: &Worker, token: u64);

    /// The worker ends, and the timer with `token` will not fire. Workers take no more work.
    fn forgotten(self: Arc<Self>, token: u64) {
        let _ = token;
    }
}
