//! The NBD server: sockets and threads around `braid-nbd-proto`.
//!
//! Where it stands: between clients and an [`Export`], the one thing it knows about what it serves; the runtime's
//! volume is one, [`memory::MemoryExport`] another. What it does not do: TLS, any address that is not local, any RAID.
//!
//! ```text
//!   accept thread ── one per server; polls every listener and a wake-up
//!        │ spawns
//!        ▼
//!   reader ── one per connection: negotiates, admits, receives payloads straight into Payload, submits
//!        │                                                        │
//!        │ spawns when negotiated                                 ▼  Export::submit
//!        ▼                                                        ┆  (any thread)
//!   writer ◄──────────────── replies, in completion order ────────┘  done(Outcome)
//! ```
//!
//! Back-pressure is not reading: a connection with [`limits::IN_FLIGHT_REQUESTS_MAX`] requests or
//! [`limits::IN_FLIGHT_BYTES_MAX`] bytes on their way leaves the socket alone until replies have gone out.
//!
//! Invariants
//! - Each request gets at most one reply, even from an export that forgets or panics: `tests/server.rs`.
//! - A client that stalls, dies or lies costs its own connection and nobody else's: `tests/hostile.rs`.
//! - [`Server::stop`] returns within its deadline plus [`limits::STOP_GRACE`]: `tests/stop.rs`.

#![forbid(unsafe_code)]

mod connection;
mod counters;
mod endpoint;
mod export;
pub mod limits;
pub mod memory;
#[cfg(all(test, shuttle))]
mod models;
mod registry;
mod server;
mod socket;
mod sync;

pub use braid_nbd_proto::{BlockSizes, ErrorCode, Extent, NbdUri, Transport};
pub use counters::Counts;
pub use endpoint::{BindError, Endpoint};
pub use export::{Completion, Export, IoError, Operation, Outcome, Payload};
pub use server::{Server, Settings, StartError, StopReport};
