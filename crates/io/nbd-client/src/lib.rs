//! A blocking client of NBD over a Unix socket or TCP, plain or by TLS: one request at a time
//! ([`Client::read`] and its like), or many in flight ([`Client::send`], [`Client::hear`]).
//!
//! Where it stands: around `braid-nbd-proto`'s client half, which validates requests and catches
//! false answers: bytes sent twice, or success with bytes missing. This crate has the socket, its
//! timeout, TLS, and the buffers for data. A [`Connector`] makes connections to one URI.
//!
//! ```text
//!   send ─ session: header ─▶ socket
//!   socket ─▶ session ─ event ─▶ hear: data, hole, extents, answer
//! ```
//!
//! A client does not reconnect. After a failure its owner knows which requests have no answer.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use braid_nbd_proto::{
    ClientClose, ClientPlan, Command, ErrorCode, ExportInfo, Extent, Goal, NbdUri, SubmitError,
    Transport, UriError, wire,
};
use braid_nbd_proto::{ClientEvent, ClientSession};
use rustls::ClientConfig;

mod certificates;
mod transport;

pub use braid_certificates::CertificateError;
pub use transport::Cutter;
use transport::{Socket, Stream};

/// Bytes that a read of the socket takes when the next message is unknown.
const INPUT_BYTES: usize = 64 << 10;
/// The longest READ or WRITE that [`Client::read`] and [`Client::write`] send, in bytes.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// A payload up to this many bytes is sent together with its header.
const TOGETHER_BYTES_MAX: usize = 64 << 10;
/// Longest silence of a server during the negotiation; after it the server counts as absent.
const NEGOTIATION_LIMIT: Duration = Duration::from_secs(5);

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket failed, or stayed silent longer than the client's patience.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// The server closed the connection without a message.
    #[error("the server hung up")]
    HungUp,
    /// The server answered with an error.
    #[error("the server answered with an error")]
    Refused(#[from] ErrorCode),
    /// The server refuses this client, for this reason.
    #[error("the server does not serve this client: {0}")]
    Declined(String),
    /// The session ended, for this reason.
    #[error("the session ended")]
    Closed(#[from] ClientClose),
    /// The request does not fit the export, or was not negotiated.
    #[error("the request cannot be sent")]
    Unsendable(#[from] SubmitError),
    /// A URI with TLS names no certificates.
    #[error("the URI names no certificates (tls-certificates=FOLDER)")]
    NoCertificates,
    /// The client's certificates cannot be used.
    #[error("the certificates cannot be used")]
    Certificates(#[from] CertificateError),
    /// An event that no request of this client can cause.
    #[error("the server sent what was not asked for")]
    Unexpected,
}

/// A server's message about a request in flight.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerMessage {
    /// Bytes of a READ, which begin at this offset of the export.
    Data {
        /// The request.
        cookie: u64,
        /// The offset of the bytes in the export.
        offset: u64,
        /// The bytes of the READ.
        bytes: Vec<u8>,
    },
    /// Bytes of a READ that are zeroes and did not cross the wire.
    Hole {
        /// The request.
        cookie: u64,
        /// The offset of the zeroes in the export.
        offset: u64,
        /// The number of zeroes.
        length_bytes: u32,
    },
    /// Extents of a BLOCK_STATUS.
    Extents {
        /// The request.
        cookie: u64,
        /// The extents in order, from the request's offset on.
        extents: Vec<Extent>,
    },
    /// The end of a request.
    Answer {
        /// The request.
        cookie: u64,
        /// The request's result.
        result: Result<(), ErrorCode>,
    },
}

/// A plan for an export: structured replies and extended headers, if the server supports them.
#[must_use]
pub fn plan_for(export: &str) -> ClientPlan {
    ClientPlan {
        export: export.to_owned(),
        goal: Goal::Transmit,
        start_tls: false,
        structured_replies: true,
        extended_headers: true,
        allocation_context: false,
    }
}

/// Makes any number of connections to one export.
#[derive(Debug)]
pub struct Connector {
    uri: NbdUri,
    tls: Option<Arc<ClientConfig>>,
}

impl Connector {
    /// Reads the certificates that the URI names. Connects to nothing.
    ///
    /// # Errors
    /// The URI asks for TLS and names no certificates, or the certificates cannot be used.
    pub fn new(uri: NbdUri) -> Result<Self, ClientError> {
        let tls = match &uri.certificates {
            Some(folder) => {
                Some(certificates::load(Path::new(std::ffi::OsStr::from_bytes(folder)))?)
            }
            None if uri.tls => return Err(ClientError::NoCertificates),
            None => None,
        };
        Ok(Self { uri, tls })
    }

    /// The URI.
    #[must_use]
    pub const fn uri(&self) -> &NbdUri {
        &self.uri
    }

    /// Connects, and negotiates. A later request waits for its answer as long as the connection
    /// lasts.
    ///
    /// # Errors
    /// No server answers at the URI, or the negotiation fails.
    pub fn connect(&self) -> Result<Client, ClientError> {
        self.connect_to(&self.uri.export)
    }

    /// Connects as [`Self::connect`] does, with words behind the export's name: a claim.
    ///
    /// # Errors
    /// As for [`Self::connect`]; [`ClientError::Declined`] if the server refuses the claim.
    pub fn connect_with(&self, words: &str) -> Result<Client, ClientError> {
        self.connect_to(&format!("{}?{words}", self.uri.export))
    }

    fn connect_to(&self, export: &str) -> Result<Client, ClientError> {
        let socket = Socket::connect(&self.uri.transport)?;
        let plan = ClientPlan { start_tls: self.tls.is_some(), ..plan_for(export) };
        let host = match &self.uri.transport {
            Transport::Tcp { host, .. } => host,
            Transport::Unix { .. } => "localhost",
        };
        let tls = self.tls.as_ref().map(|config| (config, host));
        let client = Client::negotiate(socket, plan, NEGOTIATION_LIMIT, tls)?;
        client.stream.socket().set_patience(None)?;
        Ok(client)
    }
}

/// One connection in its transmission phase.
pub struct Client {
    stream: Stream,
    session: ClientSession,
    /// Received bytes that the session has not taken yet.
    input: VecDeque<u8>,
    /// The last request's cookie; cookies count from 1.
    cookie: u64,
    /// The last request's offset.
    last_offset: u64,
    info: ExportInfo,
}

impl Client {
    /// Connects to a Unix socket, and negotiates as planned; the server may be silent for at most
    /// `patience` at a time.
    ///
    /// # Errors
    /// No server listens, or the negotiation fails.
    pub fn connect(
        socket: &Path,
        plan: ClientPlan,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let socket = socket.as_os_str().as_bytes().to_vec();
        Self::negotiate(Socket::connect(&Transport::Unix { socket })?, plan, patience, None)
    }

    fn negotiate(
        socket: Socket,
        plan: ClientPlan,
        patience: Duration,
        tls: Option<(&Arc<ClientConfig>, &str)>,
    ) -> Result<Self, ClientError> {
        socket.set_patience(Some(patience))?;
        let (session, input) = (ClientSession::new(plan), VecDeque::new());
        let (stream, info) = (Stream::Plain(socket), ExportInfo::default());
        let mut client = Self { stream, session, input, cookie: 0, last_offset: 0, info };
        loop {
            match client.next_event()? {
                ClientEvent::Transmit(bytes) => client.stream.write_all(&bytes)?,
                ClientEvent::StartTls => {
                    let (Some((config, host)), true) = (tls, client.input.is_empty()) else {
                        return Err(ClientError::Unexpected);
                    };
                    client.stream = client.stream.into_tls(config, host)?;
                    client.session.tls_is_up();
                }
                ClientEvent::Ready(info) => {
                    client.info = info;
                    return Ok(client);
                }
                ClientEvent::Close(ClientClose::Refused { kind: wire::REP_ERR_POLICY, .. }) => {
                    return Err(ClientError::Declined(client.session.refusal_words().to_owned()));
                }
                ClientEvent::Close(reason) => return Err(reason.into()),
                _ => return Err(ClientError::Unexpected),
            }
        }
    }

    /// A handle that ends this connection from another thread.
    ///
    /// # Errors
    /// The process is short of descriptors.
    pub fn cutter(&self) -> Result<Cutter, ClientError> {
        Ok(self.stream.cutter()?)
    }

    /// The server's description of its export.
    #[must_use]
    pub const fn info(&self) -> &ExportInfo {
        &self.info
    }

    /// Requests sent so far.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.cookie
    }

    /// Requests without an answer.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.session.in_flight_count()
    }

    /// Sends a request, with the payload of a WRITE, without waiting; returns its cookie.
    ///
    /// # Errors
    /// The client cannot send the request.
    pub fn send(&mut self, command: Command, payload: &[u8]) -> Result<u64, ClientError> {
        let header = self.session.submit(self.cookie + 1, command)?;
        self.cookie += 1;
        self.last_offset = command.header(self.cookie).offset;
        if payload.len() <= TOGETHER_BYTES_MAX {
            self.stream.write_all(&[&header, payload].concat())?;
        } else {
            self.stream.write_all(&header)?;
            self.stream.write_all(payload)?;
        }
        Ok(self.cookie)
    }

    /// Waits for the server's next message.
    ///
    /// # Errors
    /// The connection is over.
    pub fn hear(&mut self) -> Result<ServerMessage, ClientError> {
        match self.next_event()? {
            ClientEvent::Data { cookie, offset, length } => {
                let mut bytes = vec![0; to_usize(length)];
                self.receive(&mut bytes)?;
                self.session.payload_consumed(length);
                Ok(ServerMessage::Data { cookie, offset, bytes })
            }
            ClientEvent::Hole { cookie, offset, length } => {
                Ok(ServerMessage::Hole { cookie, offset, length_bytes: length })
            }
            ClientEvent::BlockStatus { cookie, extents, .. } => {
                Ok(ServerMessage::Extents { cookie, extents })
            }
            ClientEvent::Completed { cookie, result } => {
                Ok(ServerMessage::Answer { cookie, result })
            }
            ClientEvent::Close(reason) => Err(reason.into()),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Sends a request and waits for its end. The bytes of a READ go to `read`, which begins at the
    /// READ's offset.
    ///
    /// # Errors
    /// The server answers with an error, or the connection is over.
    pub fn call(
        &mut self,
        command: Command,
        payload: &[u8],
        read: &mut [u8],
    ) -> Result<Vec<Extent>, ClientError> {
        self.send(command, payload)?;
        self.end(read)
    }

    /// Waits for the end of the only request in flight; bytes of a READ go to `read`.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn end(&mut self, read: &mut [u8]) -> Result<Vec<Extent>, ClientError> {
        let (start, mut found) = (self.last_offset, Vec::new());
        loop {
            match self.next_event()? {
                ClientEvent::Data { offset, length, .. } => {
                    let part = part(read, offset - start, length)?;
                    self.receive(part)?;
                    self.session.payload_consumed(length);
                }
                ClientEvent::Hole { offset, length, .. } => {
                    part(read, offset - start, length)?.fill(0);
                }
                ClientEvent::BlockStatus { extents, .. } => found = extents,
                ClientEvent::Completed { result, .. } => return Ok(result.map(|()| found)?),
                ClientEvent::Close(reason) => return Err(reason.into()),
                _ => return Err(ClientError::Unexpected),
            }
        }
    }

    /// Reads from `offset` on until `buffer` is full.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ClientError> {
        for (offset, part) in pieces(offset, buffer.len()) {
            let command = Command::Read { offset, length: length(&part), dont_fragment: false };
            self.call(command, &[], &mut buffer[part])?;
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`; with `durable` they are durable when the call returns.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn write(&mut self, offset: u64, bytes: &[u8], durable: bool) -> Result<(), ClientError> {
        for (offset, part) in pieces(offset, bytes.len()) {
            let command = Command::Write { offset, length: length(&part), fua: durable };
            self.call(command, &bytes[part], &mut [])?;
        }
        Ok(())
    }

    /// Makes `length` bytes from `offset` read as zeroes; the server may free the range.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn write_zeroes(&mut self, offset: u64, length: usize) -> Result<(), ClientError> {
        for (offset, part) in pieces(offset, length) {
            let length = self::length(&part).into();
            let (fua, may_punch, fast) = (false, true, false);
            self.call(Command::WriteZeroes { offset, length, fua, may_punch, fast }, &[], &mut [])?;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.call(Command::Flush, &[], &mut []).map(drop)
    }

    /// Sends DISC, and closes the connection.
    ///
    /// # Errors
    /// The connection was over already.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        Ok(self.stream.write_all(&self.session.disconnect())?)
    }

    fn next_event(&mut self) -> Result<ClientEvent, ClientError> {
        loop {
            if let Some(event) = self.session.poll_event() {
                return Ok(event);
            }
            if self.input.is_empty() {
                self.fill_input()?;
            }
            let taken = self.session.handle_bytes(self.input.make_contiguous());
            self.input.drain(..taken);
        }
    }

    fn fill_input(&mut self) -> Result<(), ClientError> {
        let mut bytes = [0; INPUT_BYTES];
        let count = loop {
            match self.stream.read(&mut bytes) {
                // After a suspend of the machine, calls with a timeout return early.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(ClientError::HungUp);
                }
                received => break received?,
            }
        };
        if count == 0 {
            return Err(ClientError::HungUp);
        }
        self.input.extend(&bytes[..count]);
        Ok(())
    }

    /// Fills `buffer` with the next bytes of the stream: first bytes received already, then bytes
    /// from the socket.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), ClientError> {
        let buffered = self.input.len().min(buffer.len());
        let (front, back) = buffer.split_at_mut(buffered);
        for (to, from) in front.iter_mut().zip(self.input.drain(..buffered)) {
            *to = from;
        }
        self.stream.read_exact(back).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => ClientError::HungUp,
            _ => error.into(),
        })
    }
}

/// The part of the READ's buffer for `length` bytes at `at`. The session has checked the range.
fn part(buffer: &mut [u8], at: u64, length: u32) -> Result<&mut [u8], ClientError> {
    let at = usize::try_from(at).map_err(|_| ClientError::Unexpected)?;
    let end = at.checked_add(to_usize(length));
    end.and_then(|end| buffer.get_mut(at..end)).ok_or(ClientError::Unexpected)
}

/// The requests for `length` bytes from `offset`: each one's offset, and its part of the buffer.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    (0..length)
        .step_by(REQUEST_BYTES_MAX)
        .map(move |start| (offset + start as u64, start..length.min(start + REQUEST_BYTES_MAX)))
}

fn length(part: &Range<usize>) -> u32 {
    u32::try_from(part.len()).expect("a piece is at most REQUEST_BYTES_MAX")
}

fn to_usize(length: u32) -> usize {
    usize::try_from(length).expect("addresses have 32 bits at least")
}
