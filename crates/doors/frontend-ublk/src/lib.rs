//! The ublk door: an array as a block device of this machine, `/dev/ublkbN`.
//!
//! Where it stands: between the kernel's ublk_drv and a [`Disk`], which the runtime's volume is. What commands and requests mean
//! is decided by `braid-ublk-proto`; here are descriptors, rings and threads. What it does not do: devices of users other than
//! root, zones, payloads that are not copied.
//!
//! ```text
//!   place   is there a driver? whose is the device with that number?
//!   door    ADD_DEV, SET_PARAMS ──► queues fetch ──► START_DEV          or, if a server of this array has died:
//!           START_USER_RECOVERY ──► queues fetch ──► END_USER_RECOVERY
//!   queue   a thread: fetched ──► pread ──► Disk::submit ┄┄► inbox ──► pwrite ──► commit-and-fetch
//! ```
//!
//! A payload is copied once, between the request's pages and the array's own memory, by pread(2) and pwrite(2) on the device's
//! file: no memory is lent to the kernel for longer than a system call.
//!
//! Back-pressure: a queue whose requests hold [`limits::QUEUE_BYTES_MAX`] keeps what comes next in hand, without memory; and the
//! kernel has no more requests under way than a queue has entries.
//!
//! When this process dies the kernel keeps the device, and holds what programs ask for, until the next server of the same array
//! takes it over; what was not answered is asked for again.
//!
//! Invariants
//! - A clean stop deletes the device, a kill leaves it to the next server of the same array, and nobody else gets it: `cargo
//!   xtask ublk`.
//! - Memory that the kernel may write is not reached from here: asserted in `kernel.rs`.
//!
//! # Layers
//!
//! ```text
//!   door                     the crate's face: open, close
//!   queue   place            requests of one queue; is the number free?
//!   control                  commands about devices
//!   ──────────────────────────────────────────────
//!   kernel
//!   entries  limits
//! ```

#![deny(unsafe_code)]

mod control;
mod door;
mod entries;
mod kernel;
pub mod limits;
mod place;
mod queue;

pub use braid_runtime::Disk;
pub use door::{Closed, Door, OpenError};
pub use place::{Place, PlaceError};
