//! Virtio's block device as values: chains of descriptors, requests, the configuration, and what is in flight.
//!
//! Where it stands: `frontend-vhost-user` reads a guest's memory; what the bytes mean is decided here. What it does not do: the
//! rings themselves, which the crate `virtio-queue` has, and any memory: bytes are given as slices, or asked for by a closure.
//!
//! ```text
//!   head of a chain ──► Chain::walk ──► runs of the guest's memory, first those it wrote, then those it reads
//!   its first bytes ──► Request::parse ──► Request, or a status          Shape ──► offered, configuration
//!   a table of what is in flight ──► recover ──► what is asked for again, in its order
//! ```
//!
//! What a guest says is a claim: a chain that runs in a circle, a range outside the device or an unknown word is an error of
//! that request. All numbers are little-endian, as a virtio device since version 1 has them.
//!
//! Sources: Virtual I/O Device (VIRTIO) Version 1.2, OASIS, sections 2.7 (split virtqueues) and 5.2 (block device); the
//! vhost-user protocol's "inflight I/O tracking" for the table.
//!
//! Invariants
//! - What is read or written lies within the device, and is no longer than what was told [check: no_request_leaves_the_device].
//! - No chain takes more than so many steps, or makes more than one pass through a table
//!   [check: a_chain_is_walked_in_bounded_steps].
//! - After a crash at any point each request is answered once [check: what_is_in_flight_is_asked_for_once_after_a_crash].
//!
//! # Layers
//!
//! ```text
//!   request   config   inflight      what is asked for; what is told; what was left
//!   chain
//!   ──────────────────────────
//!   limits   wire
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod chain;
mod config;
pub mod inflight;
pub mod limits;
mod request;
pub mod wire;

pub use chain::{Chain, Run, Table, Unwalkable};
pub use config::{Shape, configuration, offered};
pub use request::{Device, Refused, Request, Status};
