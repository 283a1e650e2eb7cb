//! Helpers for the other test files: both sessions on in-memory pipes.
#![allow(dead_code, unreachable_pub, missing_docs)] // each test file uses its own part

use std::sync::Arc;

use braid_nbd_proto::{
    BlockSizes, ClientEvent, ClientPlan, ClientSession, Command, Echo, ExportDescription, Extent,
    Goal, NegotiationResult, ReplyCodec, Request, ServerEvent, ServerSession, Style, wire,
};

/// Size of the writable export, in bytes.
pub const DISK_BYTES: usize = 100_000;

/// Two exports: `array`, writable and the default, and `frozen`, read-only with 512-byte blocks.
pub fn catalog() -> Arc<[ExportDescription]> {
    let array = ExportDescription {
        name: "array".into(),
        is_withdrawn: false,
        description: "RAID-1 of 2 members".into(),
        size_bytes: DISK_BYTES as u64,
        read_only: false,
        multi_conn: true,
        block_sizes: BlockSizes::BYTE_GRANULAR,
    };
    let frozen = ExportDescription {
        name: "frozen".into(),
        description: String::new(),
        read_only: true,
        block_sizes: BlockSizes::new(512, 4096, 1 << 20).unwrap(),
        ..array.clone()
    };
    Arc::new([array, frozen])
}

/// Every style of messages.
pub const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Extended];

pub fn plan(goal: Goal, style: Style) -> ClientPlan {
    ClientPlan {
        export: "array".into(),
        goal,
        start_tls: false,
        structured_replies: style == Style::Structured,
        extended_headers: style.is_extended(),
        allocation_context: style.has_chunks(),
    }
}

/// One step of a driver's log: an event, or payload bytes (adjacent runs joined).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverOutput<E> {
    Event(E),
    Payload(Vec<u8>),
}

fn note_payload<E>(seen: &mut Vec<DriverOutput<E>>, bytes: &[u8]) {
    if let Some(DriverOutput::Payload(last)) = seen.last_mut() {
        last.extend_from_slice(bytes);
    } else {
        seen.push(DriverOutput::Payload(bytes.to_vec()));
    }
}

/// Cuts `stream` into slices of the given lengths, used over and over.
pub fn pieces<'a>(stream: &'a [u8], lengths: &'a [usize]) -> Vec<&'a [u8]> {
    let mut rest = stream;
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*length).clamp(1, rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Feeds `stream` to a server session; returns all events of the session.
pub fn trace_server(
    session: &mut ServerSession,
    pieces: &[&[u8]],
) -> Vec<DriverOutput<ServerEvent>> {
    let mut seen: Vec<_> =
        std::iter::from_fn(|| session.poll_event()).map(DriverOutput::Event).collect();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let pending = session.payload_pending() as usize;
            let taken = if pending > 0 {
                let taken = pending.min(rest.len());
                note_payload(&mut seen, &rest[..taken]);
                session.payload_consumed(taken.try_into().unwrap());
                taken
            } else {
                session.handle_bytes(rest)
            };
            seen.extend(std::iter::from_fn(|| session.poll_event()).map(DriverOutput::Event));
            if taken == 0 {
                return seen; // closed
            }
            rest = &rest[taken..];
        }
    }
    seen
}

/// Feeds a client session, and submits `commands` (cookie = index) when the session is ready.
pub fn trace_client(
    session: &mut ClientSession,
    commands: &[Command],
    pieces: &[&[u8]],
) -> Vec<DriverOutput<ClientEvent>> {
    let mut seen = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let pending = session.payload_pending() as usize;
            let taken = if pending > 0 {
                let taken = pending.min(rest.len());
                note_payload(&mut seen, &rest[..taken]);
                session.payload_consumed(taken.try_into().unwrap());
                taken
            } else {
                session.handle_bytes(rest)
            };
            while let Some(event) = session.poll_event() {
                if matches!(event, ClientEvent::Ready(_)) {
                    for (cookie, command) in commands.iter().enumerate() {
                        session.submit(cookie as u64, *command).unwrap();
                    }
                }
                seen.push(DriverOutput::Event(event));
            }
            if taken == 0 {
                return seen; // closed
            }
            rest = &rest[taken..];
        }
    }
    seen
}

/// The bytes of a whole conversation in both directions, and the client's events.
pub struct Conversation {
    pub to_server: Vec<u8>,
    pub to_client: Vec<u8>,
    pub seen: Vec<DriverOutput<ClientEvent>>,
}

/// The payload of a WRITE at `offset`.
pub fn pattern(offset: u64, length: u32) -> Vec<u8> {
    (0..u64::from(length)).map(|i| ((offset + i) % 251) as u8).collect()
}

/// A server with a disk in memory, which answers every request at once.
pub struct MemoryServer {
    pub session: ServerSession,
    pub disk: Vec<u8>,
    negotiated: Option<NegotiationResult>,
    write: Option<(Echo, Vec<u8>, usize)>,
    pub out: Vec<u8>,
}

impl MemoryServer {
    pub fn new() -> Self {
        let mut server = Self {
            session: ServerSession::new(catalog()),
            disk: vec![0; DISK_BYTES],
            negotiated: None,
            write: None,
            out: Vec::new(),
        };
        server.drain();
        server
    }

    pub fn feed(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let pending = self.session.payload_pending() as usize;
            let taken = if pending > 0 {
                let taken = pending.min(rest.len());
                let (echo, mut payload, length) = self.write.take().unwrap();
                payload.extend_from_slice(&rest[..taken]);
                if payload.len() == length {
                    self.disk[echo.offset as usize..][..length].copy_from_slice(&payload);
                    let codec = self.negotiated.unwrap().codec;
                    self.out.extend_from_slice(codec.success(echo).as_ref());
                } else {
                    self.write = Some((echo, payload, length));
                }
                self.session.payload_consumed(taken.try_into().unwrap());
                taken
            } else {
                self.session.handle_bytes(rest)
            };
            self.drain();
            if taken == 0 {
                return;
            }
            rest = &rest[taken..];
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                ServerEvent::Transmit(bytes) => self.out.extend(bytes),
                ServerEvent::Negotiated(negotiated) => self.negotiated = Some(negotiated),
                ServerEvent::Refused { echo, refusal } => {
                    let codec = self.negotiated.unwrap().codec;
                    self.out.extend(codec.failure(echo, refusal.error, refusal.reason));
                }
                ServerEvent::Request(request) => self.serve(request),
                ServerEvent::Claim { .. } => unreachable!("the exports take no claims"),
                ServerEvent::Close(_) => {}
            }
        }
    }

    fn serve(&mut self, request: Request) {
        let echo = request.echo();
        let codec: ReplyCodec = self.negotiated.unwrap().codec;
        match request.command {
            Command::Read { offset, length, .. } => {
                self.out.extend_from_slice(codec.data(echo, length).as_ref());
                let range = offset as usize..offset as usize + length as usize;
                self.out.extend_from_slice(&self.disk[range]);
            }
            Command::Write { length, .. } => {
                self.write = Some((echo, Vec::new(), length as usize));
            }
            Command::BlockStatus { length, .. } => {
                let extents = [Extent { length_bytes: length, flags: wire::STATE_ZERO }];
                self.out.extend(codec.block_status(echo, &extents));
            }
            Command::WriteZeroes { offset, length, .. } => {
                self.disk[offset as usize..][..length as usize].fill(0);
                self.out.extend_from_slice(codec.success(echo).as_ref());
            }
            _ => self.out.extend_from_slice(codec.success(echo).as_ref()),
        }
    }
}

/// Runs a client against a [`MemoryServer`]. Once ready, the client submits `commands`, then DISC.
pub fn converse(plan: ClientPlan, commands: &[Command]) -> Conversation {
    let mut server = MemoryServer::new();
    let mut client = ClientSession::new(plan);
    let mut talk = Conversation { to_server: Vec::new(), to_client: Vec::new(), seen: Vec::new() };
    while !server.out.is_empty() {
        let bytes = std::mem::take(&mut server.out);
        talk.to_client.extend_from_slice(&bytes);
        let seen = trace_client(&mut client, commands, &[&bytes]);
        let mut answer = Vec::new();
        for event in &seen {
            match event {
                DriverOutput::Event(ClientEvent::Transmit(bytes)) => {
                    answer.extend_from_slice(bytes)
                }
                DriverOutput::Event(ClientEvent::Ready(info)) => {
                    for (cookie, command) in commands.iter().enumerate() {
                        answer.extend_from_slice(&command.bytes(cookie as u64, info.style));
                        if let Command::Write { offset, length, .. } = *command {
                            answer.extend(pattern(offset, length));
                        }
                    }
                    answer.extend_from_slice(&client.disconnect());
                }
                _ => {}
            }
        }
        talk.seen.extend(seen);
        talk.to_server.extend_from_slice(&answer);
        server.feed(&answer);
    }
    talk
}
