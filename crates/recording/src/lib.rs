//! Recordings: everything that the machines of a served array were told, in the order in which each
//! machine was told, and a digest of what each then asked for.
//!
//! Where it stands: above the engine, below runtime (which writes recordings) and simulator (which
//! replays them). It has no files, no threads and no clock.
//!
//! ```text
//!   runtime: turn of a machine ─▶ Turn ─▶ one line of text ─▶ file
//!   simulator: file ─▶ Recording ─▶ replay: new machines, same inputs ─▶ same digests?
//! ```
//!
//! One line for each turn: the machine (`a`, or `s` and a shard's number), its sequence number, the
//! time, the inputs, `=`, the number of effects, their digest. Between machines the order of lines
//! means nothing; within one it is the order of its turns. The last line is `end`, or `lost` if the
//! recorder could not keep up; a recording that was cut off has neither.
//!
//! No byte of any payload is in a recording, and no name: only positions, lengths and results.
//!
//! It does not read recordings of other versions of braid: a digest is of how effects are printed.
//!
//! # Invariants
//! - What is printed is read back as it was [check: every_line_is_read_as_it_was_written].
//! - Nothing in a file makes the parser panic, or allocate more than the file is long
//!   [check: nothing_that_is_cut_or_changed_makes_the_parser_panic], nor does the fuzz target `recording` find one.
//! - The same inputs give the same digests; a changed input does not go unnoticed
//!   [check: a_recorded_array_replays_and_a_changed_recording_does_not].
#![forbid(unsafe_code)]

mod digest;
mod header;
mod replay;
mod turn;

pub use digest::Digest;
pub use header::Header;
pub use replay::{Replayed, Trouble, replay};
pub use turn::{Ending, Input, Machine, Recording, Turn};

/// What is wrong with a recording, and in which of its lines (from 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Problem {}
