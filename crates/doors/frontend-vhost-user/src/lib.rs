//! The vhost-user door: an array as a disk of a virtual machine, which shares its memory with this
//! process.
//!
//! Where it stands: between a virtual machine's monitor (QEMU's `vhost-user-blk-pci`) and a
//! [`Disk`], which the runtime's volume is. `braid-virtio-proto` decides the meaning of requests.
//! The crate `vhost` reads messages from the socket, `virtio-queue` keeps rings, `vm-memory` maps
//! the guest's memory; this crate joins these three.
//!
//! ```text
//!   door      a socket ──► one client after the other ──► session: its messages
//!                                     (memory, rings, eventfds come with them)
//!   queue     kick ──► turn: all that is in the ring ──► Disk::submit ┄┄► inbox
//!             inbox ──► turn: all that has ended ──► call, once
//! ```
//!
//! A queue's turns run on one of the array's workers, whose ring watches the kick; without workers,
//! each queue has a thread. A payload is copied once, between the guest's memory and the array's.
//!
//! Back-pressure: queues that hold their share of [`limits::DOOR_BYTES_MAX`] leave further requests
//! in the ring.
//!
//! The client owns the memory of a table of requests in flight (`inflight`). When this process
//! dies, the client gives the table to the next server, which submits the same requests again: no
//! request is lost, and none is answered twice. When the client disconnects, the door no longer
//! touches the client's memory. The door admits the next client after the array has ended all
//! operations, so no late write overwrites newer data.
//!
//! A client is trusted like the process itself: only its user can open the socket. If a client
//! truncates the file of its memory, this process ends. A guest is not trusted: it cannot name
//! memory outside its own, or prolong a turn for ever. The door stops serving a ring with
//! impossible content until the client sets the ring up anew.
//!
//! Invariants
//! - Each request in a guest's rings is answered once, and no operation reaches beyond the array
//!   [check: whatever_a_guest_asks_is_answered_once_and_stays_within_the_array].
//! - The next server submits a dead server's requests once
//!   [check: what_a_dead_server_left_is_asked_for_again].
//! - After a client has disconnected, its memory is not written
//!   [check: nothing_is_written_for_a_client_that_has_gone].
//!
//! # Layers
//!
//! ```text
//!   door                     the crate's interface: open, close
//!   session                  a client's messages
//!   queue                    requests of one ring; its turns, on a worker or a thread
//!   ring                     one ring in the guest's memory
//!   ──────────────────────────────────────────────
//!   inflight   memory        mapped files of the client's
//!   bells   limits
//! ```

#![forbid(unsafe_code)]

mod bells;
mod door;
mod inflight;
pub mod limits;
mod memory;
mod queue;
mod ring;
mod session;

pub use braid_runtime::Disk;
pub use door::{CloseResult, Door, OpenError};
