//! The vhost-user door: an array as a disk of a virtual machine, whose memory is shared with this process.
//!
//! Where it stands: between a virtual machine's monitor (QEMU's `vhost-user-blk-pci`) and a [`Disk`], which the runtime's volume
//! is. What requests mean is decided by `braid-virtio-proto`; messages on the socket are read by the crate `vhost`, rings kept by
//! `virtio-queue`, the guest's memory mapped by `vm-memory`; here is what ties them together.
//!
//! ```text
//!   door      a socket ──► one client after the other ──► session: its messages; memory, rings, eventfds come with them
//!   queue     kick ──► turn: all that is in the ring ──► Disk::submit ┄┄► inbox ──► turn: all that has ended ──► call, once
//! ```
//!
//! A turn is had on a worker of the array's, to whose ring the kick belongs; without workers each queue has a thread.
//! A payload is copied once, between the guest's memory and the array's own.
//!
//! Back-pressure: queues whose requests hold their share of [`limits::DOOR_BYTES_MAX`] leave what comes next in the ring.
//!
//! What is in flight is written down in memory that the client keeps (`inflight`). When this process dies the client gives it
//! to the next server, which asks for the same again: nothing is lost, and nothing answered twice. When the client goes, its
//! memory is not touched any more, and the next one is let in when the array has ended what this one asked for: a write that
//! is late must not come behind one that is newer.
//!
//! Who may connect is trusted as the process itself is: the socket is its user's alone. A client that truncates the file
//! behind its memory ends this process. A guest is not trusted: it cannot name memory that is not its own, or have a turn go on
//! for ever; a ring that makes no sense is left alone until it is set up anew.
//!
//! Invariants
//! - Whatever a guest writes into its rings is answered once, and the array is asked for nothing outside of it
//!   [check: whatever_a_guest_asks_is_answered_once_and_stays_within_the_array].
//! - What a dead server had taken is asked for once by the next [check: what_a_dead_server_left_is_asked_for_again].
//! - A client that is gone has its memory left alone [check: nothing_is_written_for_a_client_that_has_gone].
//!
//! # Layers
//!
//! ```text
//!   door                     the crate's face: open, close
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
pub use door::{Closed, Door, OpenError};
