//! The kernel's FUSE protocol as values, for a file system that is one file; no descriptors.
//!
//! Where it stands: `frontend-fuse` reads messages from the kernel and writes answers; this crate
//! decides their meaning. The root of the file system is a regular file, without names or lookups.
//!
//! ```text
//!   message ──► Head::parse ──► Request::parse ──► File::decide ──► Step::Answer(Reply)
//!   (untrusted)     (whose)         (values)                   ├──► Step::Read, Write, ..
//!                                                              └──► Step::Silent
//! ```
//!
//! An `Answer` is sent at once. After a `Read`, `Write` or similar step, the reply follows the
//! array's work. FORGET and INTERRUPT are `Silent`.
//!
//! A kernel's message is untrusted input: a wrong length, a range outside the file or an unknown
//! opcode is an error of that request. All numbers have this machine's byte order.
//!
//! Sources: the kernel's `include/uapi/linux/fuse.h` (under the BSD licence for user space) for
//! numbers; `Documentation/filesystems/fuse.rst` and `fuse-io-uring.rst` for the meaning of these
//! numbers.
//!
//! Invariants
//! - No bytes make this crate panic [check: no_message_panics].
//! - Each READ and WRITE lies within the file, and within the agreed length
//!   [check: no_message_leaves_the_file].
//! - An answer contains its own length [check: an_answer_says_its_length].
//!
//! # Layers
//!
//! ```text
//!   file                the meaning of each request for the one file
//!   request   reply     messages into values; values into messages
//!   init                the parameters that kernel and server agree on
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
pub use init::{Kernel, SessionParameters, Wishes};
pub use reply::Reply;
pub use request::{Head, ParseError, Request, SetAttributes, TimeWish, Whence};
