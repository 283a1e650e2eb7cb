//! The NBD protocol as values: wire formats, both ends' session states, URIs; no sockets.
//!
//! Where it stands: `frontend-nbd` puts sockets around [`ServerSession`]; tests, and later remote
//! members, put sockets around [`ClientSession`]. Both sessions are machines that take bytes and
//! yield events; neither reads, writes, waits, spawns or looks at a clock.
//!
//! This crate does not do TLS itself ([`TlsGate`] finds the position in the stream where TLS
//! begins), nor the oldstyle handshake. It never touches the payload of READ and WRITE, which goes
//! between socket and buffer; a session only reports the payload's position in the stream.
//!
//! ```text
//!   bytes in ──► handle_bytes ──► poll_event ──► Transmit(bytes)  to the peer, whole messages
//!                     ▲                     ├──► Negotiated(..)   the export is chosen
//!                     │                     ├──► Request(..)      a WRITE: N payload bytes follow
//!          payload_consumed(n)              └──► Close(reason)    nothing more will be read
//! ```
//!
//! Source: the public specification, `doc/proto.md` and `doc/uri.md` of NetworkBlockDevice/nbd;
//! extended headers as in that project's extension of the same name.
//!
//! Invariants
//! - Any split of the byte stream gives the same events: `tests/fragmentation.rs`.
//! - No number from the peer determines the size of an allocation before the number is checked; a
//!   session buffers at most [`limits::OPTION_BYTES_MAX`]: `tests/hostile.rs`.
//! - No bytes make a session panic: `tests/hostile.rs`; fuzz `nbd_server`, `nbd_client`, `nbd_uri`.

#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod client;
mod collect;
mod error;
mod export;
pub mod limits;
mod option;
mod reply;
mod request;
mod server;
mod style;
mod uri;
pub mod wire;

pub use client::{
    ClientClose, ClientEvent, ClientPlan, ClientSession, ExportInfo, Goal, SubmitError,
};
pub use error::ErrorCode;
pub use export::{BlockSizes, BlockSizesError, ExportDescription};
pub use reply::{Extent, ReplyCodec, ReplyHeader, sound_extents};
pub use request::{Command, Echo, Refusal, Request, RequestBytes, RequestHeader};
pub use server::{CloseReason, GateEvent, NegotiationResult, ServerEvent, ServerSession, TlsGate};
pub use style::Style;
pub use uri::{NbdUri, PORT_DEFAULT, Transport, UriError};
