//! Every limit of the server, each with its reason.
//!
//! Where it stands: read by the rest of the crate; [`crate::Settings`] can lower some.

use std::time::Duration;

/// Connections at a time. A client with many queues (nbdcopy, qemu) opens 4 to 16.
pub const CONNECTIONS_MAX: usize = 64;

/// Connections that have not negotiated yet. Honest ones are in this state for milliseconds; over the limit the one
/// that has been silent longest is evicted.
pub const NEGOTIATING_MAX: usize = 32;

/// Time for the whole negotiation.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Requests in flight per connection. fio and the kernel's client use up to 128. Models reach it with two.
pub const IN_FLIGHT_REQUESTS_MAX: usize = if cfg!(shuttle) { 2 } else { 128 };

/// Payload bytes in flight per connection: two requests of the largest size. Models reach it with two small ones.
pub const IN_FLIGHT_BYTES_MAX: usize = if cfg!(shuttle) { 1024 } else { 128 * 1024 * 1024 };

/// Payload bytes in flight over all connections of a server: what 64 connections with 32 requests of 128 KiB hold.
/// Beyond it a connection has one request at a time.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Request headers that one receive takes at most: those of all requests that may be in flight.
pub const AHEAD_HEADERS_MAX: usize = 128;

/// Input buffer of a connection, in bytes; holds as many headers.
pub const INPUT_BYTES: usize = 4 * 1024;

const _: () = assert!(AHEAD_HEADERS_MAX * braid_nbd_proto::wire::REQUEST_BYTES <= INPUT_BYTES);

/// Writes of one length, with nothing between them, after which more of them are expected.
pub const WRITES_ALIKE_MIN: usize = 4;

/// Payloads that a receive has memory for before their headers are known, and their bytes: little beside what one
/// request may hold, and more than a small write costs in system calls.
pub const AHEAD_WRITES_MAX: usize = 16;
/// See [`AHEAD_WRITES_MAX`].
pub const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// Bytes missing of a payload from which on they are received without the next header, in one go.
pub const WHOLE_BYTES_MIN: usize = 64 * 1024;

/// Reply messages sent by one system call; Linux takes 1024 vectors, a reply is at most two.
pub const REPLIES_PER_SEND: usize = 64;

/// Extents in one BLOCK_STATUS reply.
pub const EXTENTS_MAX: usize = 1024;

/// Threads of evicted connections that may still be unwinding before the server stops accepting for a moment. Models
/// reach it with one.
pub const LINGERING_MAX: usize = if cfg!(shuttle) { 1 } else { 64 };

/// Time that [`crate::Server::stop`] gives cut connections to end, after its deadline.
pub const STOP_GRACE: Duration = Duration::from_secs(1);

/// Time to get the lock of a socket's directory, against another server that is starting there.
pub const BIND_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a client may take to close after its last reply.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Stack of a connection's threads.
pub const STACK_BYTES: usize = 256 * 1024;
