//! Background work on copies: to compare them, to level them after a crash, to make one that a
//! member lacks.
//!
//! # Theory
//!
//! Work is done run by run. A run is contiguous in every copy and fits a block; while it is worked
//! on, its range is locked, so that clients' writes come before or after:
//!
//! ```text
//!   lock ▶ read ▶ compare ▶ write the copies that differ ▶ unlock ▶ next run
//! ```
//!
//! *Which copy is believed.* A client may have read any sector of copies that differ, and has been
//! told the first copy, in md's order, that has it ([`super::choice`]). So that is what the others
//! are made to say. Where the first copy cannot be read the run is made again in halves, until only
//! the sectors that cannot be read themselves come from the next copy. Where copies agree any will
//! do, and one on a member that sits out is read last.
//!
//! *Which copy is wrong.* Where copies were in agreement and three or more can be read, each sector
//! is voted on ([`crate::rot`]); those that are outvoted are written from one of the majority, if
//! that was asked for, and all are read and compared a second time before the range is given back.
//! Two copies that differ say nothing about which is wrong, and are left. A copy that cannot be
//! read is written from the others, unless these differ.
//!
//! # Invariants
//! - What has no majority is not written [check: two_copies_are_never_guessed_at].
//! - What a client was told of a sector stays so [check: a_mirror_is_levelled_with_what_was_read].
//! - A write that comes meanwhile is in every copy [check: mirrors_are_levelled_under_writes].

mod decide;
mod machine;

pub(super) use machine::{Around, Background};
