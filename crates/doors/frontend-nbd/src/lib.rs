//! The NBD server: sockets around `braid-nbd-proto`.
//!
//! Where it stands: between clients and an [`Export`], the one thing it knows about what it serves; the runtime's
//! volume is one, [`memory::MemoryExport`] another. What it does not do: any address that is not local, unless
//! clients show certificates there; any RAID.
//!
//! ```text
//!   accept thread ── one per server; polls every listener and a wake-up
//!        │ a socket; with TLS one end of a pair, whose other end is a thread's ([`tls`])
//!        ▼
//!   ring ── a worker's turn, for all connections dealt to it ┐ either carries out
//!   threads ── a reader and a writer for each connection     ┘ what connections ask
//!        │ ▲
//!        ▼ │  bytes in, replies out
//!   connection ── a machine: negotiates, admits, receives payloads where they stay, queues replies
//!        │ ▲
//!        ▼ │  Export::submit ┄┄► Completion::complete(Outcome), on any thread
//!   export
//! ```
//!
//! Back-pressure is not reading: a connection with [`limits::IN_FLIGHT_REQUESTS_MAX`] requests or
//! [`limits::IN_FLIGHT_BYTES_MAX`] bytes on their way leaves the socket alone until replies have gone out, and so does one
//! that waits for memory: all payloads are paid for out of one [`budget`]. What there is no memory for is answered so.
//!
//! Invariants
//! - Each request gets at most one reply, even from an export that forgets or panics: `tests/server.rs`.
//! - A client that stalls, dies or lies costs its own connection and no other: `tests/hostile.rs`.
//! - No number that a client sends is believed before so many bytes have come: `connection`, and `tests/hostile.rs`.
//! - [`Server::stop`] returns within its deadline plus [`limits::STOP_GRACE`], and once more that where clients use TLS:
//!   `tests/stop.rs`, `tests/tls.rs`.

//!
//! # Layers
//!
//! A file imports from the layers below its own (`cargo xtask tidy`: no circles of files).
//!
//! ```text
//!   server                     the crate's face: start, stop
//!   acceptor        tuner      takes clients in; reads and sets while it runs
//!   tls/                       lets in who shows a certificate
//!   dealer                     gives a connection to who carries it
//!   ring   threads             two ways to carry a connection
//!   task                       what a connection asks of its export, carried out
//!   connection/                the machine
//!   shared                     what all threads of a server share
//!   ──────────────────────────────────────────────────────────────────────────────────────────
//!   registry  budget  counters  notice  settings  socket  endpoint  export  memory  limits  sync
//! ```

#![forbid(unsafe_code)]

mod acceptor;
mod budget;
mod connection;
mod counters;
mod dealer;
mod endpoint;
mod export;
pub mod limits;
pub mod memory;
#[cfg(all(test, shuttle))]
mod models;
mod notice;
mod registry;
mod ring;
mod server;
mod settings;
mod shared;
mod socket;
mod sync;
mod task;
mod threads;
pub mod tls;
mod tuner;

pub use braid_nbd_proto::{BlockSizes, ErrorCode, Extent, NbdUri, Transport};
pub use braid_ring::Payload;
pub use braid_ring::client::{ClientRequest, Completion, Outcome, RequestError};
pub use counters::{Counts, Cuts};
pub use endpoint::{BindError, Endpoint, Listener};
pub use export::Export;
pub use notice::{Listener as NoticeListener, Notice};
pub use server::{Server, StartError, StopReport};
pub use settings::Settings;
pub use tuner::{Meter, Tuner};
