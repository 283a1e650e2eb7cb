//! The NBD server: sockets around `braid-nbd-proto`.
//!
//! Where it stands: between clients and an [`Export`], the server's only view of the storage. The
//! runtime's volume is one export, [`memory::MemoryExport`] another. At addresses that other
//! machines can reach, the server serves only clients that show certificates. The server does no
//! RAID.
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
//! Back-pressure: a connection with [`limits::IN_FLIGHT_REQUESTS_MAX`] requests or
//! [`limits::IN_FLIGHT_BYTES_MAX`] bytes in flight does not read its socket until replies have been
//! sent. Nor does a connection that waits for memory: one [`budget`] grants the memory for all
//! payloads. A request that can never get memory is answered with an error.
//!
//! Invariants
//! - Each request gets at most one reply, even if an export forgets or panics: `tests/server.rs`.
//! - A client that stalls, dies or lies costs its own connection and no other: `tests/hostile.rs`.
//! - The server allocates no memory for a length that a client sends before its bytes arrive:
//!   `connection`, `tests/hostile.rs`.
//! - [`Server::stop`] returns within its deadline plus [`limits::STOP_GRACE`]. If clients use TLS,
//!   `stop` may take twice that grace: `tests/stop.rs`, `tests/tls.rs`.

//! # Layers
//!
//! A file imports from the layers below its own (`cargo xtask tidy`: no circles of files).
//!
//! ```text
//!   server                     the crate's interface: start, stop
//!   acceptor        tuner      accepts clients; reads and sets while the server runs
//!   tls/                       the handshake: admits clients by certificate
//!   dealer                     hands a connection to its transport
//!   ring   threads             the two transports
//!   task                       carries out a connection's tasks on its export
//!   connection/                the machine
//!   shared                     the state that all threads of a server share
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
