//! The FUSE door: an array as one file, for loop devices and for programs that know nothing of block devices.
//!
//! Where it stands: between the kernel's FUSE and a [`Disk`], which the runtime's volume is. What requests mean is decided
//! by `braid-fuse-proto`; here are descriptors, mounts and threads. What it does not do: folders, names, other users.
//!
//! ```text
//!   place    is PATH fit to be mounted on? what a killed server left there is taken away
//!   mount    mount(2) for root, fusermount3 for everybody else ──► a descriptor of /dev/fuse
//!
//!   device ── a thread: readv(head, payload) ──► decide ──► Disk::submit ┄┄► writev(head, payload), on the thread
//!                                                   └──► write, at once       that ends it
//!   rings ── where the kernel allows it, in place of `device`: a queue and a thread for each processor, io_uring
//! ```
//!
//! No thread waits for the array. A payload is received where it stays: the head of a message goes to one place and what
//! follows to another, which is aligned; that one is as long as the last write was, and what does not fit goes to a third.
//!
//! Back-pressure is not reading: while requests hold [`limits::IN_FLIGHT_BYTES_MAX`] bytes, the next ones stay with the
//! kernel, and so do those of the programs that made them.
//!
//! When this process dies its descriptor is closed, and the kernel answers everything that waits with an error. The mount is
//! left, and is taken away by the next one that wants the place.
//!
//! Invariants
//! - Each request that has an answer gets one, unless the file system has gone [check: every_request_is_answered].
//! - A file that holds something, and a place that is in use, is never covered [check: a_place_is_fit_or_refused].
//! - [`Door::close`] returns within its deadline, whatever programs do with the file [check: a_door_closes_over_an_open_file].
//!
//! # Layers
//!
//! ```text
//!   door                     the crate's face: open, close
//!   device                   messages in, answers out
//!   rings/                   the same by io_uring
//!   session                  what all requests share: the file, the disk, who waits
//!   mount   place            mounting; is the place fit?
//!   ────────────────────────────────────────────────────────
//!   table   gate   limits
//! ```

#![deny(unsafe_code)]

mod device;
mod door;
mod gate;
pub mod limits;
mod mount;
mod place;
mod rings;
mod session;
mod table;

pub use braid_runtime::Disk;
pub use door::{Closed, Counts, Door, Meter, OpenError};
pub use mount::MountError;
pub use place::{Place, PlaceError};
