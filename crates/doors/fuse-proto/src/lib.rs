//! The kernel's FUSE protocol as values, for a file system that is one file; no descriptors.
//!
//! Where it stands: `frontend-fuse` reads messages from the kernel and writes answers; what they mean is decided here. The
//! root of the file system is a regular file, so there are no names, no folders and nothing to look up.
//!
//! ```text
//!   message ──► Head::parse ──► Request::parse ──► File::decide ──► Step::Answer(Reply)      at once
//!    (claims)      (whose)         (values)                    ├──► Step::Read, Write, ..    when the array has done it
//!                                                              └──► Step::Silent             FORGET, INTERRUPT
//! ```
//!
//! What the kernel says is a claim like any other: a message of the wrong length, a range outside the file or an unknown
//! word is an error for that request. All numbers are in this machine's order of bytes, since both ends run on it.
//!
//! Sources: the kernel's `include/uapi/linux/fuse.h` (which is under the BSD licence for user space) for sizes, offsets and
//! numbers, and `Documentation/filesystems/fuse.rst` and `fuse-io-uring.rst` for what they mean.
//!
//! Invariants
//! - No bytes make it panic [check: no_message_panics].
//! - What is read or written lies within the file, and is no longer than what was agreed on
//!   [check: no_message_leaves_the_file].
//! - An answer says its own length [check: an_answer_says_its_length].
//!
//! # Layers
//!
//! ```text
//!   file                what each request means to the one file
//!   request   reply     claims into values; values into bytes
//!   init                what both ends agree on
//!   ─────────────────────────────────────────────────────────
//!   errno   limits   wire
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod errno;
mod file;
mod init;
pub mod limits;
mod reply;
mod request;
pub mod wire;

pub use errno::Errno;
pub use file::{File, Owner, Step};
pub use init::{Agreed, Kernel, Wishes};
pub use reply::Reply;
pub use request::{Head, Malformed, Request, SetAttributes, TimeWish, Whence};
