//! Every limit of the server, each with its reason.
//!
//! Where it stands: the whole crate reads the limits; [`crate::Settings`] can lower some of them.

use std::time::Duration;

/// Most connections at a time, by default. A client with many queues (nbdcopy, qemu) opens 4 to 16.
/// With this many connections, each still has memory of its own for a small request.
pub const CONNECTIONS_MAX: usize = 256;

/// Most connections beyond the limit that may wait for an error reply at a time. The server closes
/// further connections without a reply.
pub const TURNED_AWAY_MAX: usize = 16;

/// Time for the error reply to a connection beyond the limit.
pub const TURNED_AWAY_DEADLINE: Duration = Duration::from_secs(2);

/// Most connections that may be negotiating at a time. Honest clients are in this state for
/// milliseconds. Over the limit the server evicts the connection that has been silent longest.
pub const NEGOTIATING_MAX: usize = 32;

/// A peer has at least this time for its TLS handshake before another may take its place: four
/// round trips of a distant client. So peers that reconnect at once get no more than their turn.
pub const WAITING_LEAST: Duration = Duration::from_millis(500);

/// Time for the whole negotiation.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Requests in flight per connection, at most. fio and Linux's client use up to 128. Shuttle models
/// use two.
pub const IN_FLIGHT_REQUESTS_MAX: usize = if cfg!(shuttle) { 2 } else { 128 };

/// Most payload bytes in flight per connection: two requests of the largest size. Shuttle models
/// reach the limit with one request of two pages and two requests of one page.
pub const IN_FLIGHT_BYTES_MAX: usize = if cfg!(shuttle) { 3 * 4096 } else { 128 * 1024 * 1024 };

/// Memory for payloads by default: see [`crate::Settings::payload_bytes_max`].
pub const PAYLOAD_BYTES_MAX: usize = braid_ring::PAYLOAD_MEMORY_BYTES;

/// The smallest limit for payload memory.
pub const PAYLOAD_BYTES_LEAST: usize = 4 * 1024 * 1024;

pub(crate) const REQUEST_BYTES_LEAST: usize = 64 * 1024;

/// A connection's own share is a multiple of the smallest payload's memory. Shuttle models use
/// single bytes.
pub(crate) const OWN_BYTES_STEP: usize = if cfg!(shuttle) { 1 } else { 4096 };

/// Memory for a WRITE before its payload arrives, in bytes, unless the client has sent as long a
/// WRITE before.
pub const FIRST_GRANT_BYTES: usize = 256 * 1024;

/// The most payload bytes that one receive or send moves. A client makes progress if it moves a
/// stride, which is this many bytes. A stride takes longer than a worker's turn, so that the socket
/// is not idle during a turn.
pub const STRIDE_BYTES: usize = 2 * 1024 * 1024;

/// Memory for the reply to one BLOCK_STATUS, in bytes: the descriptors, and the list of extents.
pub const DESCRIPTORS_BYTES: usize = 2 * 16 * EXTENTS_MAX;

/// Time for a client to move [`STRIDE_BYTES`] of a payload or a reply, or its rest if less is left.
pub const PROGRESS_DEADLINE: Duration = Duration::from_secs(30);

/// Time for a client to move a stride while it holds memory for which other connections wait.
pub const CONTENDED_DEADLINE: Duration = Duration::from_secs(10);

/// A connection takes at most this many times the common memory that it leaves. A lone connection
/// takes two thirds. If 63 connections take as much as they can, they leave one part in 127.
pub(crate) const TAKEN_TO_LEFT: usize = 2;

/// Most requests that may overtake the first request in the queue for memory. The number is high
/// enough that a queue of very long requests delays no other request for long. It is low enough
/// that the first request in the queue is soon served. Shuttle models allow none.
pub(crate) const OVERTAKING_MAX: usize = if cfg!(shuttle) { 0 } else { 4096 };

/// Time for a client to take a stride of replies while the server stops.
pub const STOP_PROGRESS_DEADLINE: Duration = Duration::from_secs(2);

/// Pause between two notices of the same kind.
pub const NOTICE_PAUSE: Duration = Duration::from_secs(60);

/// The most request headers that one receive takes: those of all requests that can be in flight.
pub const AHEAD_HEADERS_MAX: usize = 128;

/// Input buffer of a connection, in bytes; holds [`AHEAD_HEADERS_MAX`] headers, extended or not.
pub const INPUT_BYTES: usize = 4 * 1024;

const _: () =
    assert!(AHEAD_HEADERS_MAX * braid_nbd_proto::wire::EXTENDED_REQUEST_BYTES <= INPUT_BYTES);

/// Consecutive writes of one length after which the server expects more writes of that length.
pub const WRITES_ALIKE_MIN: usize = 4;

/// Most payloads for which a receive has memory before their headers have arrived. This memory is
/// small compared with one request's limit, and saves system calls for small writes.
pub const AHEAD_WRITES_MAX: usize = 16;
/// Most bytes of memory for such payloads together: see [`AHEAD_WRITES_MAX`].
pub const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// A payload that lacks at least this many bytes is received in one go, without the next header.
pub const WHOLE_BYTES_MIN: usize = 64 * 1024;

/// Most replies sent by one system call; Linux accepts 1024 vectors, and a reply needs at most two.
pub const REPLIES_PER_SEND: usize = 64;

/// The longest TRIM or WRITE_ZEROES that an export gets uncut, by default. The length is a second's
/// work of a few disks, so another request waits at most that long.
pub const STRETCH_BYTES: u64 = 256 * 1024 * 1024;

/// Most extents in one BLOCK_STATUS reply.
pub const EXTENTS_MAX: usize = 1024;

/// Number of evicted connections with running threads at which the server stops accepting. Shuttle
/// models use one.
pub const LINGERING_MAX: usize = if cfg!(shuttle) { 1 } else { 64 };

/// Time after its deadline that [`crate::Server::stop`] gives to the connections that it has cut.
pub const STOP_GRACE: Duration = Duration::from_secs(1);

/// Time to get the lock of a socket's directory while another server starts in that directory.
pub const BIND_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a client may take to close its connection after its last reply.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Addresses that payloads must leave free in a limited address space. With fewer free addresses,
/// no connection gets threads: small allocations need the addresses, and must not fail.
pub const ADDRESSES_LEFT_BYTES: u64 = 24 * 1024 * 1024;

/// Stack size of a connection's threads.
pub const STACK_BYTES: usize = 256 * 1024;
