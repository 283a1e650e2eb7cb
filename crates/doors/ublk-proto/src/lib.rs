//! The kernel's ublk protocol as values: devices, their parameters, and requests; no descriptors.
//!
//! Where it stands: `frontend-ublk` passes commands and requests on; this crate decides their
//! content.
//!
//! ```text
//!   Wish ──► device, parameters ──► ADD_DEV, SET_PARAMS, START_DEV          a device of our own
//!   an existing device ──► judge ──► recover | delete first | wait | taken  one that a server left
//!   description of a request (untrusted) ──► Request::parse ──► Request     one of its requests
//! ```
//!
//! A kernel's description is untrusted input: a range outside the device or an unknown operation is
//! an error of that request. All numbers have this machine's byte order.
//!
//! Sources: the kernel's `include/uapi/linux/ublk_cmd.h` (of Linux 6.12) for sizes, offsets and
//! numbers, and `Documentation/block/ublk.rst` for the meaning of the numbers.
//!
//! Invariants
//! - Each read and write lies within the device, and within the agreed length
//!   [check: no_request_leaves_the_device].
//! - Only the array for which a device was made takes the device over
//!   [check: only_what_this_array_has_left_is_taken_over].
//!
//! # Layers
//!
//! ```text
//!   device   parameters   request      the device to make; its requests
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

pub use device::{Judgement, can_resize, device, is_new_enough, judge};
pub use parameters::{Shape, fits, parameters};
pub use request::{Errno, ParseError, Request, answer, payload_place};
