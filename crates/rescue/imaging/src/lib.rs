//! Copying a failing disk: which bytes have been read, and which to read next.
//!
//! A pure crate: the caller reads the disk, writes the copy, and keeps the map's text in a file
//! next to the copy.
//!
//! ```text
//!   Map   ?????????????????    the state of each byte of the disk
//!   Plan  next ─▶ ReadRequest  the caller reads its range
//!         answered(read or not)  ─▶ Map
//! ```
//!
//! The map's text is GNU ddrescue's, so each of the two programs can continue the other's copy.
//!
//! The disk may die at any time, so easy reads come first: large reads, leaping ahead after a
//! failure. Then come the edges of failed reads, then the sectors between the edges, then retries
//! of bad sectors.
//!
//! ```text
//!   copy     forwards, leaping further at each failure; backwards, likewise; forwards, no leaps
//!            ++++++++????****????????++++        +++++***++++***+++++++++++
//!   trim     from a failed read's front to its first bad sector, then from its back to its last
//!            +++++*********++++                  +++++++-//////-+++
//!   scrape   sectors between the edges, one by one
//!   retry    bad sectors again, from both ends of the disk in turn
//! ```
//!
//! Each failing read may cost a disk seconds, and some of its life. So no sector is read more often
//! than the steps need: once in a large read, once alone, and once for each retry.
//!
//! Source: the chapters "Algorithm" and "Mapfile structure" of GNU ddrescue's manual, for the
//! states and the text.
//!
//! Invariants
//! - Every readable sector is read, and every other is bad in the end
//!   `[check: whatever_can_be_read_is_read]`.
//! - No sector is requested more than twice, plus once for each retry
//!   `[check: whatever_can_be_read_is_read]`.
//! - A map reads as it was written `[check: a_map_reads_as_it_was_written]`.
#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod map;
mod plan;

pub use map::{BLOCKS_MAX, Map, MapError, State, TEXT_BYTES_MAX};
pub use plan::{PIECE_BYTES, Plan, ReadRequest, Step};
