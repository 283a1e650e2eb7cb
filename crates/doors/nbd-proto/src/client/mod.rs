//! The client's half of a session: negotiation, requests out, replies in.
//!
//! Where it stands: tests and, later, remote members put a socket around the session. Like the
//! server's half, the session takes bytes and yields events. It never holds the data of a READ, and
//! only reports the data's position in the stream and its offset. The session does not trust the
//! server.
//!
//! ```text
//!   Greeting ─► OptionReply ⟳ STARTTLS? EXTENDED_HEADERS? else STRUCTURED_REPLY?
//!                    │        SET_META_CONTEXT? then GO | INFO | LIST | EXPORT_NAME
//!                    │
//!                    ├── INFO, LIST answered ─► ABORT out ─────────────────► Closed
//!                    ├── refused, broken ─────────────────────────────────► Closed
//!                    └── GO, EXPORT_NAME ─► Magic ◄─────────────┐
//!                                             │ simple, chunk   │
//!                                             ▼                 │
//!                                        ReplyHeader ─► ChunkBody
//!                                             │             │
//!                                             └─► Data ◄────┘  (the caller's bytes)
//! ```
//!
//! Each name is the part of the stream that the session expects next; `Phase` divides some of these
//! parts further.
//!
//! Invariants
//! - A READ succeeds only if each byte arrived exactly once: `coverage::tests`, `tests/client.rs`.
//! - Any bytes give events or a [`ClientClose`], never a panic: fuzz target `nbd_client`.

mod coverage;
mod negotiate;
mod replies;

use std::collections::{BTreeMap, VecDeque};

use crate::collect::Collector;
use crate::error::ErrorCode;
use crate::export::BlockSizes;
use crate::reply::Extent;
use crate::request::{Command, RequestBytes, RequestHeader};
use crate::style::Style;
use crate::wire;
use coverage::Coverage;

/// A client session's goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Enter transmission with GO, or EXPORT_NAME if the server has no GO.
    Transmit,
    /// Enter transmission with EXPORT_NAME at once.
    TransmitByExportName,
    /// Describe the export with INFO, then leave.
    Info,
    /// Name all exports with LIST, then leave.
    List,
}

/// A plan for the negotiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPlan {
    /// Export name; empty for the default export.
    pub export: String,
    /// The session's goal.
    pub goal: Goal,
    /// Begin TLS before all other options; a server that refuses TLS ends the session.
    pub start_tls: bool,
    /// Whether to ask for structured replies.
    pub structured_replies: bool,
    /// Whether to ask for extended headers, and for structured replies only if the server lacks
    /// extended headers. Not with [`Goal::TransmitByExportName`]: they exclude EXPORT_NAME.
    pub extended_headers: bool,
    /// Whether to ask for `base:allocation` (needs structured replies or extended headers).
    pub allocation_context: bool,
}

/// The server's description of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportInfo {
    /// The export's size, in bytes.
    pub size_bytes: u64,
    /// Transmission flags, `TRANSMIT_*`.
    pub transmission_flags: u16,
    /// The export's canonical name, if the server sent one.
    pub name: Option<String>,
    /// The export's description for people, if the server sent one.
    pub description: Option<String>,
    /// The export's block sizes, if the server sent valid ones.
    pub block_sizes: Option<BlockSizes>,
    /// The style of requests and replies.
    pub style: Style,
    /// The server's ID of `base:allocation`, if the client selected it.
    pub context_id: Option<u32>,
}

/// An event of a client session, for its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// Send these bytes to the server.
    Transmit(Vec<u8>),
    /// The stream's next byte belongs to TLS. The driver makes the handshake, then calls
    /// [`ClientSession::tls_is_up`]. A byte that the driver has received already was sent before
    /// TLS, and must end the connection.
    StartTls,
    /// The name of one export in the answer to LIST.
    Listed(String),
    /// The answer to INFO.
    Described(ExportInfo),
    /// The driver can submit requests now.
    Ready(ExportInfo),
    /// The next `length` bytes of the stream are data of a READ, from `offset` of the export.
    Data {
        /// The READ that the data belongs to.
        cookie: u64,
        /// Offset of the data's first byte in the export.
        offset: u64,
        /// Length of the data, in bytes.
        length: u32,
    },
    /// A range of a READ reads as zeroes; no data follows.
    Hole {
        /// The READ that the range belongs to.
        cookie: u64,
        /// Offset of the range's first byte in the export.
        offset: u64,
        /// Length of the range, in bytes.
        length: u32,
    },
    /// Extents of `base:allocation`.
    BlockStatus {
        /// The BLOCK_STATUS that the extents belong to.
        cookie: u64,
        /// Consecutive extents from the request's offset.
        extents: Vec<Extent>,
    },
    /// A request is complete.
    Completed {
        /// The request's cookie.
        cookie: u64,
        /// The request's result.
        result: Result<(), ErrorCode>,
    },
    /// The session is over.
    Close(ClientClose),
}

/// Why a client session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientClose {
    /// INFO or LIST was answered; ABORT is on its way out.
    #[error("done")]
    Finished,
    /// The server does not support fixed newstyle NBD.
    #[error("the peer is not a fixed newstyle NBD server")]
    NotNbd,
    /// The server refused an option.
    #[error("the server refused option {option} with {kind:#x}")]
    Refused {
        /// The refused option.
        option: u32,
        /// The server's reply type, `REP_ERR_*`.
        kind: u32,
    },
    /// The server broke the protocol.
    #[error("the server broke the protocol: {0}")]
    Broken(&'static str),
}

/// Why a request cannot be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The session is not in the transmission phase.
    #[error("the session is not in its transmission phase")]
    NotReady,
    /// The cookie is in flight already.
    #[error("cookie {0} is in flight already")]
    CookieInUse(u64),
    /// The request's range does not lie within the export, or is empty.
    #[error("the range is empty or beyond the end of the export")]
    Range,
    /// The request needs a context, structured replies or longer lengths, which were not
    /// negotiated.
    #[error("the request needs a feature that was not negotiated")]
    NotNegotiated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    OptionReplyHeader,
    OptionReplyData { kind: u32 },
    Handshake,
    ExportNameReply,
    Magic,
    SimpleHeader,
    ChunkHeader,
    ExtendedChunkHeader,
    ChunkBody { kind: u16, cookie: u64, done: bool },
    DataOffset { cookie: u64, length: u32, done: bool },
    Data { cookie: u64, remaining: u32, done: bool },
    Closed,
}

#[derive(Debug, Clone)]
struct InFlight {
    command: Command,
    coverage: Coverage,
    status_seen: bool,
    error: Option<ErrorCode>,
}

/// The client's half of one connection.
#[derive(Debug)]
pub struct ClientSession {
    plan: ClientPlan,
    phase: Phase,
    collector: Collector,
    events: VecDeque<ClientEvent>,
    /// The option in flight, and its replies so far.
    awaited_option: u32,
    option_replies: u32,
    no_zeroes: bool,
    export_told: bool,
    info: ExportInfo,
    /// The server's error text for the option that it refused last.
    refusal_words: String,
    in_flight: BTreeMap<u64, InFlight>,
}

impl ClientSession {
    /// Makes a session that waits for the server's greeting.
    #[must_use]
    pub fn new(plan: ClientPlan) -> Self {
        let mut session = Self {
            plan,
            phase: Phase::Greeting,
            collector: Collector::default(),
            events: VecDeque::new(),
            awaited_option: 0,
            option_replies: 0,
            no_zeroes: false,
            export_told: false,
            info: ExportInfo::default(),
            refusal_words: String::new(),
            in_flight: BTreeMap::new(),
        };
        session.collect_in(Phase::Greeting, wire::GREETING_BYTES);
        session
    }

    /// Takes bytes of the stream; returns the number consumed. The session consumes less than the
    /// input if an event must be polled first, or if the rest is data of a READ. A closed session
    /// consumes nothing.
    ///
    /// # Panics
    /// If events are waiting to be polled.
    pub fn handle_bytes(&mut self, input: &[u8]) -> usize {
        assert!(self.events.is_empty(), "poll every event before feeding more bytes");
        let mut rest = input;
        while !rest.is_empty() && self.events.is_empty() {
            if matches!(self.phase, Phase::Data { .. } | Phase::Handshake | Phase::Closed) {
                break;
            }
            let taken = self.collector.fill(rest);
            rest = rest.split_at(taken).1;
            if self.collector.is_complete() {
                self.on_message();
            }
        }
        input.len().saturating_sub(rest.len())
    }

    /// The session's next event, oldest first.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Number of data bytes that come next in the stream, which the driver must read.
    #[must_use]
    pub fn payload_pending(&self) -> u32 {
        match self.phase {
            Phase::Data { remaining, .. } => remaining,
            _ => 0,
        }
    }

    /// Notes that the driver took `bytes` of data from the stream.
    ///
    /// # Panics
    /// If `bytes` exceeds [`ClientSession::payload_pending`].
    pub fn payload_consumed(&mut self, bytes: u32) {
        let left = self.payload_pending().checked_sub(bytes);
        let left = left.expect("only pending payload can be consumed");
        if let Phase::Data { cookie, done, .. } = self.phase {
            if left > 0 {
                self.phase = Phase::Data { cookie, remaining: left, done };
            } else {
                self.end_of_chunk(cookie, done);
            }
        }
    }

    /// Adds a request to the table of requests in flight; returns the request's bytes for the
    /// socket. A WRITE's payload follows these bytes.
    ///
    /// # Errors
    /// The request does not fit the negotiated features; the table is unchanged.
    pub fn submit(&mut self, cookie: u64, command: Command) -> Result<RequestBytes, SubmitError> {
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        if self.in_flight.contains_key(&cookie) {
            return Err(SubmitError::CookieInUse(cookie));
        }
        let negotiated = match command {
            Command::BlockStatus { .. } => self.info.context_id.is_some(),
            Command::Read { dont_fragment, .. } => !dont_fragment || self.info.style.has_chunks(),
            _ => true,
        };
        let header = command.header(cookie);
        if !negotiated || header.length > self.info.style.length_max() {
            return Err(SubmitError::NotNegotiated);
        }
        let end = header.offset.checked_add(header.length);
        let inside = header.length > 0 && end.is_some_and(|end| end <= self.info.size_bytes);
        if command != Command::Flush && !inside {
            return Err(SubmitError::Range);
        }
        let coverage = Coverage::default();
        let entry = InFlight { command, coverage, status_seen: false, error: None };
        self.in_flight.insert(cookie, entry);
        Ok(command.bytes(cookie, self.info.style))
    }

    /// The DISC request. The client sends nothing after this request, and gets no reply.
    #[must_use]
    pub fn disconnect(&self) -> RequestBytes {
        let kind = wire::CMD_DISC;
        let header = RequestHeader { flags: 0, kind, cookie: 0, offset: 0, length: 0 };
        if self.info.style.is_extended() {
            RequestBytes::new(&header.encode_extended())
        } else {
            RequestBytes::new(&header.encode())
        }
    }

    /// Number of requests without a complete reply.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    fn is_ready(&self) -> bool {
        matches!(
            self.phase,
            Phase::Magic
                | Phase::SimpleHeader
                | Phase::ChunkHeader
                | Phase::ExtendedChunkHeader
                | Phase::ChunkBody { .. }
                | Phase::DataOffset { .. }
                | Phase::Data { .. }
        )
    }

    fn collect_in(&mut self, phase: Phase, needed_bytes: usize) {
        self.phase = phase;
        self.collector.expect(needed_bytes);
    }

    /// The server's error text for the option that it refused last; empty if the server gave none.
    #[must_use]
    pub fn refusal_words(&self) -> &str {
        &self.refusal_words
    }

    fn close(&mut self, reason: ClientClose) {
        assert_ne!(self.phase, Phase::Closed, "a session closes once");
        self.phase = Phase::Closed;
        self.collector = Collector::default();
        self.events.push_back(ClientEvent::Close(reason));
    }

    fn broken(&mut self, what: &'static str) {
        self.close(ClientClose::Broken(what));
    }

    fn on_message(&mut self) {
        match self.phase {
            Phase::Greeting => self.on_greeting(),
            Phase::OptionReplyHeader => self.on_option_reply_header(),
            Phase::OptionReplyData { kind } => {
                let data = self.collector.take();
                self.on_option_reply(kind, &data);
            }
            Phase::ExportNameReply => self.on_export_name_reply(),
            Phase::Magic => self.on_magic(),
            Phase::SimpleHeader => self.on_simple_header(),
            Phase::ChunkHeader => self.on_chunk_header(),
            Phase::ExtendedChunkHeader => self.on_extended_chunk_header(),
            Phase::ChunkBody { kind, cookie, done } => {
                let body = self.collector.take();
                self.on_chunk_body(kind, cookie, done, &body);
            }
            Phase::DataOffset { cookie, length, done } => self.on_data_offset(cookie, length, done),
            Phase::Data { .. } | Phase::Handshake | Phase::Closed => {
                unreachable!("nothing is collected here")
            }
        }
    }
}
