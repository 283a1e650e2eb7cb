//! A small blocking NBD client over a Unix socket.
//!
//! Where it stands: around `braid-nbd-proto`'s client half, which catches a server that sends bytes
//! twice, or claims success with bytes missing. One request at a time. Any answer but success is an
//! error here: a healthy disk would not give it, and the demo promises that no client sees one.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use braid_nbd_proto::{
    ClientClose, ClientEvent, ClientPlan, ClientSession, Command, ErrorCode, Goal, SubmitError,
};
use thiserror::Error;

/// Longest silence of a server, mid-request. Losing a member takes half a second to be noticed; a
/// machine under load is given many times that.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes taken from the socket at a time, headers mostly; payload goes straight to its buffer.
const INPUT_BYTES: usize = 4096;
/// Longest READ or WRITE the demo sends, in bytes.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Why a request did not succeed.
#[derive(Debug, Error)]
pub(super) enum ClientError {
    /// The socket failed, was closed or stayed silent.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// The server answered with an error.
    #[error("the server answered with an error")]
    Refused(#[from] ErrorCode),
    /// The session ended.
    #[error("the session ended")]
    Closed(#[from] ClientClose),
    /// The request does not fit the export.
    #[error("the request cannot be sent")]
    Unsendable(#[from] SubmitError),
    /// An event that no request of ours can cause.
    #[error("the server sent what was not asked for")]
    Unexpected,
}

/// One connection in its transmission phase.
pub(super) struct Client {
    stream: UnixStream,
    session: ClientSession,
    /// Received and not yet consumed.
    input: Vec<u8>,
    /// Of the last request; they are counted from 1.
    cookie: u64,
}

impl Client {
    /// Connects to the default export.
    pub(super) fn connect(socket: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let session = ClientSession::new(ClientPlan {
            export: String::new(),
            goal: Goal::Transmit,
            structured_replies: true,
            extended_headers: true,
            allocation_context: false,
        });
        let mut client = Self { stream, session, input: Vec::new(), cookie: 0 };
        loop {
            match client.next_event()? {
                ClientEvent::Transmit(bytes) => client.stream.write_all(&bytes)?,
                ClientEvent::Ready(_) => return Ok(client),
                ClientEvent::Close(reason) => return Err(reason.into()),
                _ => return Err(ClientError::Unexpected),
            }
        }
    }

    /// Requests sent so far.
    pub(super) const fn requests(&self) -> u64 {
        self.cookie
    }

    /// Fills `buffer` from `offset`.
    pub(super) fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ClientError> {
        for (offset, part) in pieces(offset, buffer.len()) {
            let command = Command::Read { offset, length: length(&part), dont_fragment: false };
            self.call(command, Payload::In(&mut buffer[part]))?;
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`; `durable` before it returns, if asked.
    pub(super) fn write(
        &mut self,
        offset: u64,
        bytes: &[u8],
        durable: bool,
    ) -> Result<(), ClientError> {
        for (offset, part) in pieces(offset, bytes.len()) {
            let command = Command::Write { offset, length: length(&part), fua: durable };
            self.call(command, Payload::Out(&bytes[part]))?;
        }
        Ok(())
    }

    /// Makes `length` bytes from `offset` read as zeroes.
    pub(super) fn write_zeroes(&mut self, offset: u64, length: usize) -> Result<(), ClientError> {
        for (offset, part) in pieces(offset, length) {
            let length = self::length(&part).into();
            let (fua, may_punch, fast) = (false, true, false);
            let command = Command::WriteZeroes { offset, length, fua, may_punch, fast };
            self.call(command, Payload::None)?;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    pub(super) fn flush(&mut self) -> Result<(), ClientError> {
        self.call(Command::Flush, Payload::None)
    }

    /// Says goodbye.
    pub(super) fn disconnect(mut self) -> Result<(), ClientError> {
        Ok(self.stream.write_all(&self.session.disconnect())?)
    }

    fn call(&mut self, command: Command, mut payload: Payload<'_>) -> Result<(), ClientError> {
        self.cookie += 1;
        let header = self.session.submit(self.cookie, command)?;
        self.stream.write_all(&header)?;
        if let Payload::Out(bytes) = payload {
            self.stream.write_all(bytes)?;
        }
        let start = command.header(self.cookie).offset;
        loop {
            match self.next_event()? {
                ClientEvent::Data { offset, length, .. } => {
                    let part = payload.part(offset - start, length)?;
                    self.receive(part)?;
                    self.session.payload_consumed(length);
                }
                ClientEvent::Hole { offset, length, .. } => {
                    payload.part(offset - start, length)?.fill(0);
                }
                ClientEvent::Completed { result, .. } => return Ok(result?),
                ClientEvent::Close(reason) => return Err(reason.into()),
                _ => return Err(ClientError::Unexpected),
            }
        }
    }

    fn next_event(&mut self) -> Result<ClientEvent, ClientError> {
        loop {
            if let Some(event) = self.session.poll_event() {
                return Ok(event);
            }
            if self.input.is_empty() {
                self.input.resize(INPUT_BYTES, 0);
                let received = self.stream.read(&mut self.input);
                self.input.truncate(*received.as_ref().unwrap_or(&0));
                if received? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            let taken = self.session.handle_bytes(&self.input);
            self.input.drain(..taken);
        }
    }

    /// The next bytes of the stream: first what was received already, then from the socket.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let buffered = self.input.len().min(buffer.len());
        let (front, back) = buffer.split_at_mut(buffered);
        front.copy_from_slice(&self.input[..buffered]);
        self.input.drain(..buffered);
        self.stream.read_exact(back)
    }
}

/// What goes with a request.
enum Payload<'a> {
    None,
    Out(&'a [u8]),
    In(&'a mut [u8]),
}

impl Payload<'_> {
    /// Where bytes that were read belong. The session has checked that they were asked for.
    fn part(&mut self, at: u64, length: u32) -> Result<&mut [u8], ClientError> {
        let Payload::In(buffer) = self else { return Err(ClientError::Unexpected) };
        let at = usize::try_from(at).map_err(|_| ClientError::Unexpected)?;
        let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length));
        end.and_then(|end| buffer.get_mut(at..end)).ok_or(ClientError::Unexpected)
    }
}

/// `length` bytes from `offset` in requests: where each begins, and its part of the buffer.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    (0..length)
        .step_by(REQUEST_BYTES_MAX)
        .map(move |start| (offset + start as u64, start..length.min(start + REQUEST_BYTES_MAX)))
}

fn length(part: &std::ops::Range<usize>) -> u32 {
    u32::try_from(part.len()).expect("a piece is at most REQUEST_BYTES_MAX")
}
