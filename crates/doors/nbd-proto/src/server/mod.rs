//! The server's half of a session: it takes bytes and yields events.
//!
//! Where it stands: one per connection, owned by the thread that reads the socket. Replies in the
//! transmission phase do not pass through the session: the thread that finishes a request writes
//! its reply with the [`ReplyCodec`] of [`NegotiationResult`]. The socket's owner does I/O, payload
//! memory and deadlines. For TLS a [`TlsGate`] stands in front of the session.
//!
//! ```text
//!              greeting out
//!                   │
//!             ClientFlags ──────────── unknown flags ───────────────────────────────► Closed
//!                   │                                                                   ▲
//!   ┌────────► OptionHeader ────────── bad magic, 33rd option ──────────────────────────┤
//!   │            │       │                                                              │
//!   │    over the limit  └─► OptionPayload ── ABORT · EXPORT_NAME of an unknown export ─┤
//!   │            ▼                 │  │                                                 │
//!   ├─────── OptionSkip            │  └── GO, EXPORT_NAME ──┤                           │
//!   │     (error reply)            │   (GO may wait: Claim) ▼                           │
//!   └──────────────── (replies) ◄──┘        ┌──────► RequestHeader ── bad magic, DISC, ─┤
//!                                           │          │   │   │   monstrous WRITE       │
//!                                           ├──────────┘   │   └──► Discard ──► refused  │
//!                                           │    request   │          (payload of a      │
//!                                           │              ▼           refused WRITE)    │
//!                                           └────────── Payload   (the caller's bytes)   │
//! ```
//!
//! Each name is the part of the stream that the session expects next (`Phase`). The session
//! discards the bytes of OptionSkip and Discard.
//!
//! How to drive the session: poll events until none is left. Then, if
//! [`ServerSession::payload_pending`] is not zero, move that many bytes from the socket to the
//! WRITE's buffer and report them with [`ServerSession::payload_consumed`]. Else give the received
//! bytes to [`ServerSession::handle_bytes`].
//!
//! Invariants
//! - `handle_bytes` stops after the message that made an event, so it never consumes payload bytes:
//!   `tests/fragmentation.rs`.
//! - A feature never outlives the option that negotiated it:
//!   `tests/negotiation.rs::contexts_belong_to_one_export`.

mod gate;
mod negotiate;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::collect::{Collector, Cursor};
use crate::error::ErrorCode;
use crate::export::ExportDescription;
use crate::limits::{DISCARD_BYTES_MAX, OPTION_BYTES_MAX, OPTIONS_MAX};
use crate::reply::ReplyCodec;
use crate::request::{self, Command, Echo, Refusal, Request, RequestHeader};
use crate::style::Style;
use crate::wire;

pub use gate::{GateEvent, TlsGate};

/// An event of a server session, for its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// Send these bytes to the client; they are whole messages.
    Transmit(Vec<u8>),
    /// Negotiation is over; requests follow.
    Negotiated(NegotiationResult),
    /// A client asks for an export with words after its name. The session takes no bytes until
    /// [`ServerSession::answer_claim`] is called.
    Claim {
        /// Index of the claimed export in the catalog.
        export_index: usize,
        /// The words after the export's name.
        words: String,
    },
    /// Serve this request. If it is a WRITE, the next bytes of the stream are its payload.
    Request(Request),
    /// Answer this request with this error; the request's payload, if any, has been consumed.
    Refused {
        /// The fields of the request that the reply repeats.
        echo: Echo,
        /// The error and its reason.
        refusal: Refusal,
    },
    /// Read no more from the client. After [`CloseReason::Disconnected`], finish the requests in
    /// flight, then close.
    Close(CloseReason),
}

/// The result of a negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiationResult {
    /// Index of the negotiated export in the catalog.
    pub export_index: usize,
    /// The codec that writes replies in the negotiated style.
    pub codec: ReplyCodec,
    /// Whether the client may send BLOCK_STATUS.
    pub allocation_context: bool,
}

/// Why a session reads no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The client sent ABORT during negotiation.
    #[error("the client ended the negotiation")]
    Aborted,
    /// The client sent DISC.
    #[error("the client disconnected")]
    Disconnected,
    /// The client set flags that this server did not offer.
    #[error("unknown client flags {0:#x}")]
    UnknownClientFlags(u32),
    /// The client sent EXPORT_NAME before the required TLS; NBD has no error reply for it.
    #[error("EXPORT_NAME without TLS")]
    TlsRequired,
    /// The client sent an option without the option magic.
    #[error("an option did not begin with its magic")]
    BadOptionMagic,
    /// The client sent more options than [`OPTIONS_MAX`].
    #[error("more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// The client sent EXPORT_NAME with an unknown or overlong name; NBD has no error reply for it.
    #[error("EXPORT_NAME of an unknown export")]
    UnknownExport,
    /// The client sent EXPORT_NAME while the server was stopping; NBD has no error reply for it.
    #[error("the server is being shut down")]
    Shutdown,
    /// A client that was turned away sent EXPORT_NAME; the protocol has no error reply for it.
    #[error("the client was turned away")]
    TurnedAway,
    /// The client sent EXPORT_NAME despite extended headers; NBD has no error reply for it.
    #[error("EXPORT_NAME after extended headers")]
    ExportNameExtended,
    /// The client sent a request without the request magic.
    #[error("a request did not begin with its magic")]
    BadRequestMagic,
    /// The client announced a payload longer than [`DISCARD_BYTES_MAX`].
    #[error("a payload of {0} bytes")]
    PayloadTooLarge(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    OptionHeader,
    OptionPayload { option: u32 },
    OptionSkip { option: u32, remaining: u32 },
    Claim,
    RequestHeader,
    Payload { remaining: u32 },
    Discard { remaining: u32, echo: Echo, refusal: Refusal },
    Closed,
}

#[derive(Debug, Default, Clone, Copy)]
struct Features {
    no_zeroes: bool,
    style: Style,
    /// Index of the export for which the client selected `base:allocation`.
    context_export: Option<usize>,
    options_seen: u32,
}

/// The server's half of one connection.
#[derive(Debug)]
pub struct ServerSession {
    catalog: Arc<[ExportDescription]>,
    phase: Phase,
    collector: Collector,
    events: VecDeque<ServerEvent>,
    features: Features,
    negotiated: Option<NegotiationResult>,
    shutting_down: bool,
    /// Why the session refuses every option; `None` if it does not refuse options.
    turned_away: Option<String>,
    takes_claims: bool,
    /// The data of the option with which the client made its claim.
    claim_data: Vec<u8>,
    /// The description of the export that the client has claimed.
    claimed: Option<ExportDescription>,
}

impl ServerSession {
    /// Makes a session for the exports in `catalog`; the greeting is its first event. The empty
    /// export name also reaches the first export that is not withdrawn.
    ///
    /// # Panics
    /// If the catalog is empty: a server without exports does not listen.
    #[must_use]
    pub fn new(catalog: Arc<[ExportDescription]>) -> Self {
        assert!(!catalog.is_empty(), "a server has at least one export");
        let mut session = Self {
            catalog,
            phase: Phase::Closed,
            collector: Collector::default(),
            events: VecDeque::new(),
            features: Features::default(),
            negotiated: None,
            shutting_down: false,
            turned_away: None,
            takes_claims: false,
            claim_data: Vec::new(),
            claimed: None,
        };
        session.events.push_back(ServerEvent::Transmit(wire::encode_greeting()));
        session.enter(Phase::ClientFlags);
        session
    }

    /// Takes bytes of the stream; returns the number consumed. The session consumes less than the
    /// input if an event must be polled first, or if the rest is a WRITE's payload. A closed
    /// session consumes nothing.
    ///
    /// # Panics
    /// If events are waiting to be polled, which is a mistake of the driver, not the peer.
    pub fn handle_bytes(&mut self, input: &[u8]) -> usize {
        assert!(self.events.is_empty(), "poll every event before feeding more bytes");
        let mut rest = input;
        while !rest.is_empty() && self.events.is_empty() {
            let taken = match self.phase {
                Phase::Payload { .. } | Phase::Claim | Phase::Closed => 0,
                Phase::OptionSkip { option, remaining } => self.skip(option, remaining, rest.len()),
                Phase::Discard { remaining, echo, refusal } => {
                    self.discard(remaining, echo, refusal, rest.len())
                }
                Phase::ClientFlags
                | Phase::OptionHeader
                | Phase::OptionPayload { .. }
                | Phase::RequestHeader => self.collect(rest),
            };
            if taken == 0 {
                break;
            }
            rest = rest.split_at(taken).1;
        }
        input.len().saturating_sub(rest.len())
    }

    /// The session's next event, oldest first.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Number of WRITE payload bytes that come next in the stream, which the driver must read.
    #[must_use]
    pub fn payload_pending(&self) -> u32 {
        match self.phase {
            Phase::Payload { remaining } => remaining,
            _ => 0,
        }
    }

    /// Number of bytes that complete the current or next message; skipped data counts as one
    /// message. A driver that receives no more than these bytes gets no byte of a later message.
    /// Returns 0 within a payload, and for a closed session.
    #[must_use]
    pub fn message_missing(&self) -> usize {
        match self.phase {
            Phase::Payload { .. } | Phase::Claim | Phase::Closed => 0,
            Phase::OptionSkip { remaining, .. } | Phase::Discard { remaining, .. } => {
                usize::try_from(remaining).unwrap_or(usize::MAX)
            }
            Phase::ClientFlags
            | Phase::OptionHeader
            | Phase::OptionPayload { .. }
            | Phase::RequestHeader => self.collector.missing_bytes(),
        }
    }

    /// Notes that the driver took `bytes` of payload from the stream.
    ///
    /// # Panics
    /// If `bytes` exceeds [`ServerSession::payload_pending`].
    pub fn payload_consumed(&mut self, bytes: u32) {
        let remaining = self.payload_pending().checked_sub(bytes);
        let remaining = remaining.expect("only pending payload can be consumed");
        if remaining > 0 {
            self.phase = Phase::Payload { remaining };
        } else if self.phase == (Phase::Payload { remaining: bytes }) {
            self.enter(Phase::RequestHeader);
        }
    }

    /// Makes the session answer options except ABORT with ERR_SHUTDOWN, requests with ESHUTDOWN.
    pub fn handle_shutdown(&mut self) {
        self.shutting_down = true;
    }

    /// Makes the session answer options other than ABORT with ERR_POLICY and `reason`, so that the
    /// client must leave.
    ///
    /// # Panics
    /// In the transmission phase.
    pub fn turn_away(&mut self, reason: String) {
        assert!(self.negotiated.is_none(), "one that was let in is not turned away");
        self.turned_away = Some(reason);
    }

    /// Makes the session take claims: GO of `EXPORT?WORDS` becomes [`ServerEvent::Claim`].
    pub fn take_claims(&mut self) {
        self.takes_claims = true;
    }

    /// Answers a claim with the export for its owner, or with the reason of a refusal.
    ///
    /// # Panics
    /// If no claim waits.
    pub fn answer_claim(&mut self, answer: Result<ExportDescription, String>) {
        assert_eq!(self.phase, Phase::Claim, "a claim waits for its answer");
        let data = std::mem::take(&mut self.claim_data);
        self.on_claim_answer(&data, answer);
    }

    /// Whether the session has reached the transmission phase.
    #[must_use]
    pub fn is_negotiated(&self) -> bool {
        self.negotiated.is_some()
    }

    /// Length of a request's header in the style negotiated so far, in bytes.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        self.features.style.request_bytes()
    }

    /// Memory that the session holds for unfinished input, in bytes.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.collector.capacity_bytes()
    }

    fn collect(&mut self, rest: &[u8]) -> usize {
        let taken = self.collector.fill(rest);
        if self.collector.is_complete() {
            match self.phase {
                Phase::ClientFlags => self.on_client_flags(),
                Phase::OptionHeader => self.on_option_header(),
                Phase::OptionPayload { option } => {
                    let data = self.collector.take();
                    self.on_option(option, &data);
                }
                Phase::RequestHeader => self.on_request_header(),
                other => unreachable!("{other:?} collects nothing"),
            }
        }
        taken
    }

    fn skip(&mut self, option: u32, remaining: u32, available: usize) -> usize {
        let taken = remaining.min(u32::try_from(available).unwrap_or(u32::MAX));
        match remaining.saturating_sub(taken) {
            0 => {
                self.reply(option, wire::REP_ERR_TOO_BIG, b"the option's data is too long");
                self.enter(Phase::OptionHeader);
            }
            left => self.phase = Phase::OptionSkip { option, remaining: left },
        }
        usize::try_from(taken).expect("taken is at most a usize")
    }

    fn discard(&mut self, remaining: u32, echo: Echo, refusal: Refusal, available: usize) -> usize {
        let taken = remaining.min(u32::try_from(available).unwrap_or(u32::MAX));
        match remaining.saturating_sub(taken) {
            0 => {
                self.events.push_back(ServerEvent::Refused { echo, refusal });
                self.enter(Phase::RequestHeader);
            }
            left => self.phase = Phase::Discard { remaining: left, echo, refusal },
        }
        usize::try_from(taken).expect("taken is at most a usize")
    }

    /// Enters a phase; if the phase collects a message, also sets the message's length.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        match phase {
            Phase::ClientFlags => self.collector.expect(4),
            Phase::OptionHeader => self.collector.expect(wire::OPTION_HEADER_BYTES),
            Phase::RequestHeader => self.collector.expect(self.features.style.request_bytes()),
            Phase::Closed => self.collector = Collector::default(),
            Phase::OptionPayload { .. }
            | Phase::OptionSkip { .. }
            | Phase::Claim
            | Phase::Payload { .. }
            | Phase::Discard { .. } => {}
        }
    }

    fn close(&mut self, reason: CloseReason) {
        assert_ne!(self.phase, Phase::Closed, "a session closes once");
        self.enter(Phase::Closed);
        self.events.push_back(ServerEvent::Close(reason));
    }

    fn on_client_flags(&mut self) {
        let flags = Cursor::new(self.collector.bytes()).u32().expect("four bytes were collected");
        let fixed = u32::from(wire::FLAG_FIXED_NEWSTYLE);
        let no_zeroes = u32::from(wire::FLAG_NO_ZEROES);
        if flags & !(fixed | no_zeroes) != 0 {
            return self.close(CloseReason::UnknownClientFlags(flags));
        }
        // A client that sends options supports fixed newstyle even without the flag: "servers MAY
        // choose to honour fixed newstyle from clients that didn't set this bit". go-nbd sends no
        // flag at all.
        self.features.no_zeroes = flags & no_zeroes != 0;
        self.enter(Phase::OptionHeader);
    }

    fn on_option_header(&mut self) {
        let mut cursor = Cursor::new(self.collector.bytes());
        let header = (cursor.u64(), cursor.u32(), cursor.u32());
        let (Some(magic), Some(option), Some(length)) = header else {
            unreachable!("sixteen bytes were collected");
        };
        if magic != wire::OPTION_MAGIC {
            return self.close(CloseReason::BadOptionMagic);
        }
        if self.features.options_seen == OPTIONS_MAX {
            return self.close(CloseReason::TooManyOptions);
        }
        self.features.options_seen = self.features.options_seen.saturating_add(1);
        let length_bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if length_bytes > self.option_bytes_max(option) {
            return self.on_oversized_option(option, length);
        }
        self.enter(Phase::OptionPayload { option });
        self.collector.expect(length_bytes);
        if length == 0 {
            self.on_option(option, &[]);
        }
    }

    fn option_bytes_max(&self, option: u32) -> usize {
        if option == wire::OPT_EXPORT_NAME {
            crate::limits::NAME_BYTES_MAX
        } else {
            OPTION_BYTES_MAX
        }
    }

    fn on_oversized_option(&mut self, option: u32, length: u32) {
        if option == wire::OPT_EXPORT_NAME {
            return self.close(CloseReason::UnknownExport);
        }
        if option == wire::OPT_SET_META_CONTEXT {
            self.features.context_export = None;
        }
        self.enter(Phase::OptionSkip { option, remaining: length });
    }

    fn on_request_header(&mut self) {
        let negotiated = self.negotiated.expect("requests come after negotiation");
        let style = negotiated.codec.style();
        let Some(header) = RequestHeader::decode(self.collector.bytes(), style) else {
            return self.close(CloseReason::BadRequestMagic);
        };
        if header.kind == wire::CMD_DISC {
            return self.close(CloseReason::Disconnected);
        }
        let export = self.export(negotiated.export_index);
        let verdict = if self.shutting_down {
            Err(Refusal { error: ErrorCode::Shutdown, reason: "the server is being shut down" })
        } else {
            request::admit(&header, export, style, negotiated.allocation_context)
        };
        match verdict {
            Ok(command) => self.on_admitted(Request { cookie: header.cookie, command }),
            Err(refusal) => self.on_refused(&header, style, refusal),
        }
    }

    fn export(&self, index: usize) -> &ExportDescription {
        let of_catalog = || self.catalog.get(index).expect("the index was found here");
        self.claimed.as_ref().unwrap_or_else(of_catalog)
    }

    fn on_admitted(&mut self, request: Request) {
        self.events.push_back(ServerEvent::Request(request));
        if let Command::Write { length, .. } = request.command {
            self.enter(Phase::Payload { remaining: length });
        } else {
            self.enter(Phase::RequestHeader);
        }
    }

    fn on_refused(&mut self, header: &RequestHeader, style: Style, refusal: Refusal) {
        let payload = header.payload_bytes(style);
        let remaining = u32::try_from(payload).unwrap_or(u32::MAX);
        if remaining > DISCARD_BYTES_MAX {
            return self.close(CloseReason::PayloadTooLarge(payload));
        }
        let echo = header.echo();
        if remaining > 0 {
            return self.enter(Phase::Discard { remaining, echo, refusal });
        }
        self.events.push_back(ServerEvent::Refused { echo, refusal });
        self.enter(Phase::RequestHeader);
    }
}
