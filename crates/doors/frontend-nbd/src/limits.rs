//! Every limit of the server, each with its reason.
//!
//! Where it stands: read by the rest of the crate; [`crate::Settings`] can lower some.

use std::time::Duration;

/// Connections at a time, unless the settings say otherwise. A client with many queues (nbdcopy, qemu) opens 4 to 16, and
/// so many leave each of them room for a small request whatever the others do.
pub const CONNECTIONS_MAX: usize = 256;

/// Connections beyond the limit that are told so at a time; more are closed without a word.
pub const TURNED_AWAY_MAX: usize = 16;

/// Time to tell them.
pub const TURNED_AWAY_DEADLINE: Duration = Duration::from_secs(2);

/// Connections that have not negotiated yet. Honest ones are in this state for milliseconds; over the limit the one
/// that has been silent longest is evicted.
pub const NEGOTIATING_MAX: usize = 32;

/// What a peer has at least to show its certificate, before its place is given to the next: four turns of a client far away.
/// So peers that come again as soon as they are cut get no more than their turn.
pub const WAITING_LEAST: Duration = Duration::from_millis(500);

/// Time for the whole negotiation.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Requests in flight per connection. fio and the kernel's client use up to 128. Models reach it with two.
pub const IN_FLIGHT_REQUESTS_MAX: usize = if cfg!(shuttle) { 2 } else { 128 };

/// Payload bytes in flight per connection: two requests of the largest size. Models reach it with one of two pages and
/// two of one.
pub const IN_FLIGHT_BYTES_MAX: usize = if cfg!(shuttle) { 3 * 4096 } else { 128 * 1024 * 1024 };

/// What payloads may take, unless the settings say otherwise: see [`crate::Settings::payload_bytes_max`].
pub const PAYLOAD_BYTES_MAX: usize = braid_ring::PAYLOAD_MEMORY_BYTES;

/// The least that payloads can do with.
pub const PAYLOAD_BYTES_LEAST: usize = 4 * 1024 * 1024;

/// The largest request is never smaller than this.
pub(crate) const REQUEST_BYTES_LEAST: usize = 64 * 1024;

/// What a connection has for itself is a multiple of this: the smallest payload's memory. Models have less.
pub(crate) const OWN_BYTES_STEP: usize = if cfg!(shuttle) { 1 } else { 4096 };

/// A payload of a write has so much memory before its bytes have come, unless its connection has sent one as long.
pub const FIRST_GRANT_BYTES: usize = 256 * 1024;

/// Payload bytes that one receive or send moves, at most: that is what has to move for a client to be making progress. A
/// stride takes longer than a worker's turn, so that the socket is not idle meanwhile.
pub const STRIDE_BYTES: usize = 2 * 1024 * 1024;

/// Memory that the answer to one BLOCK_STATUS takes: descriptors, and the list that they are made of.
pub const DESCRIPTORS_BYTES: usize = 2 * 16 * EXTENTS_MAX;

/// Time in which a client that sends a payload, or is sent a reply, has to move [`STRIDE_BYTES`], or all of it.
pub const PROGRESS_DEADLINE: Duration = Duration::from_secs(30);

/// The same for a client that has memory which others wait for.
pub const CONTENDED_DEADLINE: Duration = Duration::from_secs(10);

/// A connection takes no more of the common memory than so many times what it leaves: alone it has two thirds, and 63 that
/// take what they can leave a part in 127.
pub(crate) const TAKEN_TO_LEFT: usize = 2;

/// Requests that may overtake the first that waits for memory, if they leave more than they take: enough that a line of
/// very long requests holds up no other for long, and few enough that its first is soon served. Models have none.
pub(crate) const OVERTAKING_MAX: usize = if cfg!(shuttle) { 0 } else { 4096 };

/// The same for replies while the server stops.
pub const STOP_PROGRESS_DEADLINE: Duration = Duration::from_secs(2);

/// Between two notices of the same kind.
pub const NOTICE_PAUSE: Duration = Duration::from_secs(60);

/// Request headers that one receive takes at most: those of all requests that may be in flight.
pub const AHEAD_HEADERS_MAX: usize = 128;

/// Input buffer of a connection, in bytes; holds as many headers, extended or not.
pub const INPUT_BYTES: usize = 4 * 1024;

const _: () =
    assert!(AHEAD_HEADERS_MAX * braid_nbd_proto::wire::EXTENDED_REQUEST_BYTES <= INPUT_BYTES);

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

/// The longest TRIM or WRITE_ZEROES that an export gets in one piece, unless it says otherwise: a second's work of a few
/// disks, since what has to wait for one waits no longer.
pub const STRETCH_BYTES: u64 = 256 * 1024 * 1024;

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

/// Addresses that are left beside payloads' where they are limited, or no more connections get threads: stacks would take
/// what small allocations need, which cannot be refused.
pub const ADDRESSES_LEFT_BYTES: u64 = 24 * 1024 * 1024;

/// Stack of a connection's threads.
pub const STACK_BYTES: usize = 256 * 1024;
