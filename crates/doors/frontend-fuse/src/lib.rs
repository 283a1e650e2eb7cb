//! The FUSE door: an array as one file, for loop devices and programs that use no block devices.
//!
//! Where it stands: between the kernel's FUSE and a [`Disk`], which the runtime's volume is.
//! `braid-fuse-proto` decides the meaning of requests; this crate has descriptors, mounts and
//! threads. The crate supports no folders, no names, and no other users.
//!
//! ```text
//!   mount_point   is PATH fit to be mounted on? a killed server's stale mount is removed
//!   mount         mount(2) for root, fusermount3 for other users ──► a descriptor of /dev/fuse
//!
//!   device ── a thread: readv(head, payload) ──► decide ──► Disk::submit ┄┄► writev(head, payload)
//!                                                   └──► write, at once
//!   rings ── in place of `device`: io_uring, a queue and a thread for each processor
//! ```
//!
//! `rings` runs where the kernel allows it. The thread that ends a request does the request's
//! writev.
//!
//! No thread waits for the array. A payload is received into its final memory: a message's head
//! goes to one run of memory, the bytes after the head to a second, aligned run. The second run is
//! as long as the previous write; the rest of a longer message goes to a third run.
//!
//! Back-pressure: while requests hold [`limits::IN_FLIGHT_BYTES_MAX`] bytes, the door reads no
//! more. The next requests stay with the kernel, and their programs wait.
//!
//! When this process dies, the kernel closes its descriptor and fails all waiting requests. The
//! mount stays; the next server that wants to mount at that path removes it.
//!
//! Invariants
//! - Each request that has an answer gets one, unless the file system was released
//!   [check: every_request_is_answered].
//! - The door never mounts over a file with data, or over a path in use
//!   [check: a_place_is_fit_or_refused].
//! - [`Door::close`] returns within its deadline, whatever programs do with the file
//!   [check: a_door_closes_over_an_open_file].
//!
//! # Layers
//!
//! ```text
//!   door                     the crate's interface: open, close
//!   device                   messages in, answers out
//!   rings/                   messages in, answers out, by io_uring
//!   session                  shared by all requests: the file, the disk, the waiting requests
//!   mount   mount_point      mounting; is the path fit?
//!   ────────────────────────────────────────────────────────
//!   table   gate   limits
//! ```

#![deny(unsafe_code)]

mod device;
mod door;
mod gate;
pub mod limits;
mod mount;
mod mount_point;
mod rings;
mod session;
mod table;

pub use braid_runtime::Disk;
pub use door::{CloseResult, Counts, Door, Meter, OpenError};
pub use mount::MountError;
pub use mount_point::{MountPoint, MountPointError};
