//! Virtio's block device as values: chains, requests, the configuration, and the in-flight table.
//!
//! Where it stands: `frontend-vhost-user` reads a guest's memory; this crate decides the meaning of
//! its bytes. This crate has neither the rings, which the crate `virtio-queue` holds, nor any
//! memory: it gets bytes as slices, or from a closure.
//!
//! ```text
//!   head of a chain ──► Chain::walk ──► runs of guest memory: those it wrote, then those it reads
//!   its first bytes ──► Request::parse ──► Request, or a status
//!   Shape ──► offered, configuration
//!   a table of requests in flight ──► recover ──► requests to submit again, in order
//! ```
//!
//! A guest's bytes are untrusted: a chain that runs in a circle, a range outside the device or an
//! unknown kind is an error of that request. All numbers are little-endian, as in virtio since
//! version 1.
//!
//! Sources: Virtual I/O Device (VIRTIO) Version 1.2, OASIS, sections 2.7 (split virtqueues) and 5.2
//! (block device); the vhost-user protocol's "inflight I/O tracking" for the table.
//!
//! Invariants
//! - Each read and write lies within the device, and within its limits
//!   [check: no_request_leaves_the_device].
//! - A chain takes a bounded number of steps, and at most one pass through a table
//!   [check: a_chain_is_walked_in_bounded_steps].
//! - After a crash at any point each request is answered once
//!   [check: what_is_in_flight_is_asked_for_once_after_a_crash].
//!
//! # Layers
//!
//! ```text
//!   request   config   inflight      a guest's requests; the device's properties; the table
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

pub use chain::{Chain, ChainError, Run, Table};
pub use config::{Shape, configuration, offered};
pub use request::{Device, ParseError, Request, Status};
