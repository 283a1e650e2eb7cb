//! Background work on copies: to compare them, to level them after a crash, to make one that a member lacks.
//!
//! # Theory
//!
//! Work is done run by run. A run is contiguous in every copy and fits a block; while it is worked on, its range is locked,
//! so that clients' writes come before or after:
//!
//! ```text
//!   lock ▶ read ▶ compare ▶ write the copies that differ ▶ unlock ▶ next run
//! ```
//!
//! *Which copy is believed.* A client may have read any sector of copies that differ, and has been told the first copy, in
//! md's order, that has it ([`super::choice`]). So that is what the others are made to say. Where the first copy cannot be
//! read the run is made again in halves, until only the sectors that cannot be read themselves come from the next copy.
//! Where copies agree any will do, and one on a member that sits out is read last.
//!
//! # Invariants
//! - What a client was told of a sector stays so [check: a_mirror_is_levelled_with_what_was_read].
//! - A write that comes meanwhile is in every copy [check: mirrors_are_levelled_under_writes].

mod decide;
mod machine;

pub(super) use machine::{Around, Background};
