//! The ublk door: an array as a block device of this machine, `/dev/ublkbN`.
//!
//! Where it stands: between the kernel's ublk_drv and a [`Disk`], which the runtime's volume is.
//! `braid-ublk-proto` decides the meaning of commands and requests; this crate has descriptors,
//! rings and threads. The crate supports no devices of users other than root, no zones and no zero
//! copy.
//!
//! ```text
//!   device_claim   is there a driver? whose is the device with that number?
//!   door           ADD_DEV, SET_PARAMS ──► queues fetch ──► START_DEV
//!                  or, if a server of this array has died:
//!                  START_USER_RECOVERY ──► queues fetch ──► END_USER_RECOVERY
//!   queue          fetched ──► pread ──► Disk::submit ┄┄► inbox ──► pwrite ──► commit-and-fetch
//! ```
//!
//! Each queue has a thread.
//!
//! A payload is copied once, between the request's pages and the array's own memory, by pread(2)
//! and pwrite(2) on the device's file. No memory is lent to the kernel beyond a system call.
//!
//! Back-pressure: when a queue's requests hold [`limits::QUEUE_BYTES_MAX`], its next requests wait
//! without memory. The kernel's requests in flight are limited by the queue's entries.
//!
//! When this process dies the kernel keeps the device, and holds programs' requests until the next
//! server of the same array takes the device over. The kernel then repeats all unanswered requests.
//!
//! Invariants
//! - A clean stop deletes the device. A kill leaves it to the next server of the same array, and to
//!   no other: `cargo xtask ublk`.
//! - This process does not touch memory that the kernel may write: asserted in `kernel.rs`.
//!
//! # Layers
//!
//! ```text
//!   door                     the crate's interface: open, close
//!   queue   device_claim     requests of one queue; is the number free?
//!   size                     the device follows the array's size
//!   control                  commands about devices
//!   ──────────────────────────────────────────────
//!   kernel
//!   entries  limits
//! ```

#![deny(unsafe_code)]

mod control;
mod device_claim;
mod door;
mod entries;
mod kernel;
pub mod limits;
mod queue;
mod size;

pub use braid_runtime::Disk;
pub use device_claim::{ClaimError, DeviceClaim};
pub use door::{CloseResult, Door, OpenError};
