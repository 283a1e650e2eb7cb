//! Workers: plain threads, each with one io_uring, and the aligned memory that they move.
//!
//! Place in the flow: below all code that talks to devices and sockets. This crate knows files,
//! sockets, buffers and moments; nothing of arrays, members or protocols. A thread gives work to a
//! worker ([`Workers::post`]). Code on a worker gives operations to that worker's own ring
//! ([`Worker::submit`]). The end of an operation arrives on the same worker, at a [`Handler`].
//!
//! ```text
//!  any thread ──post, submit──▶ inbox ──┐ (woken only when asleep)
//!                                       ▼
//!           one turn:  completions → inbox → timers → tasks → one submit, which may sleep
//!                         ▲                                       │
//!                         └────────── the worker's ring ◀─────────┘
//! ```
//!
//! A turn delivers all its completions before it runs any task. So a handler that puts its work off
//! with [`Worker::afterwards`] sees a whole batch.
//!
//! Invariants, and the test that guards each:
//! - Memory in flight belongs to its operation until the kernel is done with it; a worker ends only
//!   when nothing is in flight ([`Payload`], [`Lease`]; `stop_waits_for_what_is_in_flight`).
//! - A file is read and written whole: short transfers are resumed here (`tests/files.rs`).
//! - No item is left in the inbox of a worker that sleeps (`models::inbox`).
//! - A timer fires, or its sleeper learns that it will not
//!   (`moments_come_in_their_order_and_not_early`, `stop_ends_what_waits_for_peers`).
//! - More operations than the ring has room for wait here, in order (`more_than_the_ring_holds`).
//! - No payload shows an earlier one's bytes, unless its taker promised to overwrite them
//!   (`a_zeroed_payload_forgets_the_last_one`).
//! - No two payloads share a byte, and registered memory keeps its address ([`arena`],
//!   [`fixed_buffers`]; `what_is_carved_is_apart_and_within_one_slab`,
//!   `registered_memory_is_read_and_written_by_name`).
//! - A file that a ring knows by number is closed when it is taken out ([`files`];
//!   `a_file_is_let_go_when_it_is_unregistered`).
//!
//! Unsafe code: [`payload`], [`memory`], [`region`], [`file_memory`], [`fixed_buffers`] and
//! [`flight`] only.

mod arena;
pub mod client;
mod counters;
mod error;
#[cfg(not(loom))]
mod file_memory;
mod files;
mod fixed_buffers;
mod flight;
mod inbox;
mod memory;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
mod operation;
mod payload;
mod region;
mod room;
mod setup;
mod timers;
mod worker;
mod workers;

pub use arena::PAYLOAD_MEMORY_BYTES;
pub use counters::Counters;
pub use error::RingError;
#[cfg(not(loom))]
pub use file_memory::FileMemory;
pub use files::Descriptor;
pub use inbox::{Bell, Inbox};
pub use memory::{Keep, Lease, Memory, Segment, Segments};
pub use operation::{Completion, Handler, Operation, Wake, Zeroing};
pub use payload::{NoMemory, PAYLOAD_ALIGNMENT_BYTES, Payload, set_payload_memory};
pub use region::{Region, few_heaps};
pub use room::{Limit, Room};
pub use worker::Worker;
pub use workers::{Call, Settings, Workers, WorkersStopped};
