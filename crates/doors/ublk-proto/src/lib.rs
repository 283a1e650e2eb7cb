//! The kernel's ublk protocol as values: devices, their parameters, and requests; no descriptors.
//!
//! Where it stands: `frontend-ublk` gives commands to the kernel and takes requests from it; what they are is decided here.
//!
//! ```text
//!   Wish ──► device, parameters ──► ADD_DEV, SET_PARAMS, START_DEV          a device of our own
//!   what is there ──► judge ──► recover | delete first | wait | taken       one that somebody has left
//!   description of a request (a claim) ──► Request::parse ──► Request       one of the device's requests
//! ```
//!
//! What the kernel says is a claim like any other: a range outside the device or an unknown word is an error of that request.
//! All numbers are in this machine's order of bytes, since both ends run on it.
//!
//! Sources: the kernel's `include/uapi/linux/ublk_cmd.h` for sizes, offsets and numbers (as it is in Linux 6.12), and
//! `Documentation/block/ublk.rst` for what they mean.
//!
//! Invariants
//! - What is read or written lies within the device, and is no longer than what was agreed on
//!   [check: no_request_leaves_the_device].
//! - A device is only taken over by the array that it was made for [check: only_what_this_array_has_left_is_taken_over].
//!
//! # Layers
//!
//! ```text
//!   device   parameters   request      what is made; what is asked for
//!   ───────────────────────────────
//!   limits   wire
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod device;
pub mod limits;
mod parameters;
mod request;
pub mod wire;

pub use device::{Judgement, device, is_new_enough, judge};
pub use parameters::{Shape, is_same, parameters};
pub use request::{Errno, Malformed, Request, answer, payload_place};
