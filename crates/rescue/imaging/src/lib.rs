//! Copying a disk that fails: what of it has been read, and what to read next.
//!
//! Where it stands: a pure crate. The caller reads the disk, writes the copy, and keeps the map's text beside it.
//!
//! ```text
//!   Map   ?????????????????      what of the disk has which state; its text is GNU ddrescue's, so that either goes on from the other
//!   Plan  next ─▶ Ask: a range   the caller reads it
//!         answered(read or not)  ─▶ Map
//! ```
//!
//! The order is that of whoever does not know how long a disk will live: first what comes easily, in large pieces, leaping over where it
//! fails; then the edges of what failed; then what is between them; then what failed, again.
//!
//! ```text
//!   copy     forwards, leaping further each time a piece fails; backwards, likewise; forwards, leaping over nothing
//!            ++++++++????****????????++++        +++++***++++***+++++++++++
//!   trim     from the front of a piece that failed to its first bad sector, then from its back to its last
//!            +++++*********++++                  +++++++-//////-+++
//!   scrape   what is between them, sector by sector
//!   retry    what is bad, once more, by turns from both ends of the disk
//! ```
//!
//! Each failing read may cost a disk seconds, and some of its life. So no sector is asked for more often than the steps need: once in a
//! piece, once alone, and once for each retry.
//!
//! Source: the chapters "Algorithm" and "Mapfile structure" of GNU ddrescue's manual, for the states and the text.
//!
//! Invariants
//! - What can be read is read, and what cannot is bad in the end `[check: whatever_can_be_read_is_read]`.
//! - No sector is asked for more than twice, and once for each retry `[check: whatever_can_be_read_is_read]`.
//! - A map reads as it was written `[check: a_map_reads_as_it_was_written]`.
#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod map;
mod plan;

pub use map::{BLOCKS_MAX, Map, MapError, State, TEXT_BYTES_MAX};
pub use plan::{Ask, PIECE_BYTES, Plan, Step};
