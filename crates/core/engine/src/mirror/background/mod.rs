//! Background work on copies: compares copies, makes them agree after a crash, and fills missing
//! ones.
//!
//! # Theory
//!
//! Work is done run by run. A run is contiguous in every copy and fits a block. Its range is locked
//! during the work, so that clients' writes come before or after:
//!
//! ```text
//!   lock ▶ read ▶ compare ▶ write the copies that differ ▶ unlock ▶ next run
//! ```
//!
//! *Which copy is believed.* Where copies differ, a client may have read the first readable copy,
//! in md's order ([`super::choice`]). So the other copies are made to agree with that copy. If the
//! first copy cannot be read, the run is repeated in halves, until only the sectors that are
//! unreadable themselves come from the next copy. Where copies agree, any copy will do, and a copy
//! on a member that sits out is read last.
//!
//! *Which copy is wrong.* If copies were in agreement and three or more can be read, each sector is
//! voted on ([`crate::rot`]). If the task repairs, outvoted copies are written from a copy of the
//! majority. All copies are read and compared a second time before the range is unlocked. If only
//! two copies can be read and they differ, either may be wrong, and neither is written. A copy that
//! cannot be read is written from the other copies, unless these differ.
//!
//! # Invariants
//! - Sectors without a majority are not written [check: two_copies_are_never_guessed_at].
//! - Data that a client has read from a sector stays in the sector
//!   [check: a_mirror_is_levelled_with_what_was_read].
//! - A client's write during the work is in every copy [check: mirrors_are_levelled_under_writes].

mod decide;
mod machine;

pub(super) use machine::{Background, BackgroundContext};
