//! Clients that speak the NBD protocol: both shipped sessions, and a wire driven by the seed.
//!
//! Where it stands: a connection replaces a socket, its two ends and the threads around them. The
//! server's part is `frontend-nbd` and the command's `DiskExport`, without their threads. Its
//! session admits requests, [`crate::call`] is the volume, and the session's codec encodes replies.
//! The client's part is `ClientSession`, which notices unexpected or double replies, and missing or
//! double data.
//!
//! ```text
//!   client ── to_server: any fragments ──▶ ServerSession ── request ──▶ call ──▶ the array
//!     ▲                                         │ refused                │ in any order
//!     └──────── to_client: any fragments ◀──────┴──── ReplyCodec ◀───────┘
//! ```
//!
//! The model learns of an answer when the client has it, so it notices a premature acknowledgement.
//! A connection may break anywhere. A request in flight may then have happened or not; a write
//! whose payload was not wholly received has not happened.
//!
//! Not simulated: TLS (there is none), deadlines, limits of requests in flight per connection.
//!
//! # Invariants
//! - Every cookie is answered once [check: every_command_is_answered_over_any_wire].
//! - A client that breaks the protocol costs no other client anything
//!   [check: random_worlds_hold_and_meet_every_kind_of_fault].

mod client;
mod server;
mod world;

use std::collections::{BTreeMap, VecDeque};

use braid_engine::request::RequestId;
use braid_nbd_proto::{
    ClientSession, Command, ErrorCode, NegotiationResult, Request, RequestHeader, ServerSession,
    Style, wire,
};

use crate::call::{Call, CallError};
use crate::random::Random;

/// An action of a client on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAction {
    Ask(Command),
    /// A request that the server must refuse.
    Invalid(InvalidRequest),
    /// Bytes that form no request.
    Garbage,
    /// A write request of which only `sent` bytes are sent before the connection breaks.
    Part {
        offset: u64,
        length: u32,
        sent: usize,
    },
    /// The connection breaks.
    Cut,
    /// The client disconnects in the way that the protocol defines.
    Disconnect,
}

/// Kinds of requests that a server must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidRequest {
    UnknownCommand,
    UnknownFlag,
    EmptyRead,
    LongRead,
    FlushOfRange,
    ReadBeyond,
    TrimBeyond,
    WriteBeyond,
    ZeroesBeyond,
}

impl InvalidRequest {
    pub(crate) const ALL: [Self; 9] = [
        Self::UnknownCommand,
        Self::UnknownFlag,
        Self::EmptyRead,
        Self::LongRead,
        Self::FlushOfRange,
        Self::ReadBeyond,
        Self::TrimBeyond,
        Self::WriteBeyond,
        Self::ZeroesBeyond,
    ];

    /// The request's header for an export of this size, and the error that the server must reply.
    fn header(self, cookie: u64, size_bytes: u64) -> (RequestHeader, ErrorCode) {
        let (kind, flags, offset, length) = match self {
            Self::UnknownCommand => (77, 0, 0, 512),
            Self::UnknownFlag => (wire::CMD_TRIM, 1 << 9, 0, 512),
            Self::EmptyRead => (wire::CMD_READ, 0, 0, 0),
            Self::LongRead => (wire::CMD_READ, 0, 0, (64 << 20) + 1),
            Self::FlushOfRange => (wire::CMD_FLUSH, 0, 512, 512),
            Self::ReadBeyond => (wire::CMD_READ, 0, size_bytes - 511, 512),
            Self::TrimBeyond => (wire::CMD_TRIM, 0, u64::MAX - 100, 512),
            Self::WriteBeyond => (wire::CMD_WRITE, 0, size_bytes - 100, 101),
            Self::ZeroesBeyond => (wire::CMD_WRITE_ZEROES, 0, size_bytes, 1),
        };
        let is_full = matches!(self, Self::WriteBeyond | Self::ZeroesBeyond);
        let error = if is_full { ErrorCode::NoSpace } else { ErrorCode::Invalid };
        (RequestHeader { flags, kind, cookie, offset, length }, error)
    }
}

/// Bytes that one end has sent and the other has not received yet.
#[derive(Debug, Default)]
struct Pipe {
    bytes: Vec<u8>,
    start: usize,
}

impl Pipe {
    fn left(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.left() == 0 {
            self.clear();
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let taken = self.bytes[self.start..self.start + count].to_vec();
        self.start += count;
        taken
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }
}

#[derive(Clone, Copy, Debug)]
enum Fragments {
    Whole,
    Short,
    Any,
}

impl Fragments {
    fn next(self, left: usize, random: &mut Random) -> usize {
        let below = |bound: usize, random: &mut Random| 1 + random.below(bound as u64) as usize;
        match self {
            Self::Whole => left,
            // Long payloads come in long fragments, so that their delivery ends.
            Self::Short if left < 600 => below(left.min(29), random),
            Self::Short | Self::Any => below(left, random),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The server reads no more requests. Pending replies are still sent.
    Leaving,
    Closed,
}

/// A request whose reply a client waits for.
#[derive(Debug)]
struct PendingRequest {
    id: RequestId,
    command: Command,
    /// The step at which the client sent the request.
    at: u64,
    /// The error that the request must get whatever the array does; `None` for valid requests.
    refusal: Option<ErrorCode>,
    data: Vec<u8>,
    has_extents: bool,
    /// The array's answer, once the array has answered.
    outcome: Option<(Call, Result<(), CallError>)>,
}

struct ServerEnd {
    session: ServerSession,
    negotiated: Option<NegotiationResult>,
    /// A write whose payload is arriving, and the bytes received so far.
    receiving: Option<(Request, Vec<u8>)>,
    /// How many requests the server has begun and not answered.
    serving: usize,
}

struct ClientEnd {
    session: ClientSession,
    is_ready: bool,
    /// How the client encodes requests after the negotiation.
    style: Style,
    is_read_only: bool,
    /// Actions that the client takes once the negotiation has ended.
    backlog: VecDeque<ClientAction>,
    pending: BTreeMap<u64, PendingRequest>,
    next_cookie: u64,
    /// The read whose data arrives next: its cookie, and the index in its data.
    filling: Option<(u64, usize)>,
}

/// A connection: both ends, and the wire between them.
pub(crate) struct Connection {
    server: ServerEnd,
    client: ClientEnd,
    to_server: Pipe,
    to_client: Pipe,
    fragments: Fragments,
    state: State,
    ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    Said,
    /// The connection breaks when the server has received all sent bytes.
    Breaks,
}

impl Connection {
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open && self.ending == Ending::No
    }

    /// Closes the connection. Returns the requests whose replies the client still waited for.
    fn close(&mut self) -> Vec<PendingRequest> {
        self.state = State::Closed;
        self.ending = Ending::Said;
        self.to_server.clear();
        self.to_client.clear();
        self.client.backlog.clear();
        std::mem::take(&mut self.client.pending).into_values().collect()
    }

    fn has_bytes(&self) -> (bool, bool) {
        (self.to_server.left() > 0, self.to_client.left() > 0)
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.client.pending.len() + self.client.backlog.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        let is_quiet = self.has_bytes() == (false, false) && self.server.serving == 0;
        self.state == State::Closed || (is_quiet && self.unanswered() == 0)
    }

    /// The step at which the oldest unanswered read was sent.
    pub(crate) fn oldest_read(&self) -> Option<u64> {
        let is_read = |pending: &&PendingRequest| matches!(pending.command, Command::Read { .. });
        self.client.pending.values().filter(is_read).map(|pending| pending.at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chances::Chances;
    use crate::create::smallest;
    use crate::cut::Cut;
    use crate::trace::Trace;
    use crate::world::World;

    fn world(seed: u64) -> World {
        World::create(&smallest(), Chances::new(seed, Cut::default()), Trace::new(false))
    }

    #[test]
    fn every_command_is_answered_over_any_wire() {
        let (mut refused, mut out_of_order) = (0, 0);
        for seed in 0..40 {
            let mut world = world(seed);
            let mut random = Random::new(seed);
            for _ in 0..3 {
                let index = world.connect(&mut random);
                let (offset, length, fua) =
                    (random.below(4000), 1 + random.below(900) as u32, true);
                let (may_punch, fast) = (true, false);
                for command in [
                    Command::Write { offset, length, fua },
                    Command::Read { offset, length, dont_fragment: false },
                    Command::Flush,
                    Command::WriteZeroes { offset, length: length.into(), fua, may_punch, fast },
                    Command::Trim { offset, length: 5000, fua },
                    Command::Cache { offset, length: length.into() },
                    Command::BlockStatus { offset, length: length.into(), one: true },
                    Command::Read { offset: 0, length: 9000, dont_fragment: true },
                ] {
                    world.say(index, ClientAction::Ask(command));
                }
                InvalidRequest::ALL
                    .into_iter()
                    .for_each(|invalid| world.say(index, ClientAction::Invalid(invalid)));
            }
            world.settle();
            assert!(world.engine.clients.is_idle(), "seed {seed}");
            assert_eq!(world.tally.of("nbd-crooked"), 27);
            refused += world.tally.of("nbd-refused");
            out_of_order += world.tally.of("nbd-out-of-order");
        }
        assert!(refused >= 27 * 40 && out_of_order > 0, "{refused} {out_of_order}");
    }

    #[test]
    fn a_write_that_broke_off_is_not_there_and_one_that_was_received_may_be() {
        for seed in 0..20 {
            let mut world = world(seed);
            let mut random = Random::new(seed);
            let (broken, other) = (world.connect(&mut random), world.connect(&mut random));
            let whole = Command::Write { offset: 2048, length: 512, fua: false };
            world.say(broken, ClientAction::Ask(whole));
            world.say(broken, ClientAction::Part { offset: 0, length: 1024, sent: 700 });
            world.say(
                other,
                ClientAction::Ask(Command::Write { offset: 4096, length: 512, fua: false }),
            );
            world.settle();
            assert!(!world.is_open(broken) && world.tally.of("nbd-cut") == 1, "seed {seed}");
            let content = world.read_all().expect("it can be read");
            let first = crate::content::first_content(4);
            assert_eq!(content[..2048], first[..2048], "what was received in part is not written");
        }
    }

    #[test]
    #[should_panic(expected = "the array has not answered")]
    fn an_acknowledgement_that_comes_too_early_is_noticed() {
        let mut world = world(1);
        let mut random = Random::new(1);
        let index = loop {
            let index = world.connect(&mut random);
            world.settle();
            if !world.connection(index).client.is_read_only {
                break index;
            }
        };
        world.say(index, ClientAction::Ask(Command::Write { offset: 0, length: 512, fua: true }));
        let connection = world.connection(index);
        let cookie = *connection.client.pending.keys().next().expect("it was asked");
        let codec = connection.server.negotiated.expect("it has settled").codec;
        connection
            .to_client
            .push(codec.success(braid_nbd_proto::Echo { cookie, offset: 0 }).as_ref());
        while world.connection(index).has_bytes().1 {
            world.deliver((index, false), &mut random);
        }
    }
}
