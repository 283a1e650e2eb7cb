//! Replay of a partial parity log, md's (PPL) or braid's own: makes parity fit the data after
//! writes that were cut short.
//!
//! It runs before an array is served. Assembly says that the array was being written and which logs
//! count ([`braid_assembly::AssembledArray::replay`]). This machine decides the reads, computations
//! and writes, and a driver does them ([`run()`] is the one interpreter). No machine of the array
//! exists yet, and no client.
//!
//! This machine reads no logs (`braid_ondisk::ppl_log`), and chooses no members (assembly).
//!
//! # Algebra
//!
//! A record names the columns that were being written, and holds the exclusive-or of the other
//! columns of its rows: the *partial parity*. The record was durable before any part of the write.
//! With data D, of which the columns W were being written and the columns K were kept:
//!
//! ```text
//!   partial = sum of K                            as long as the record counts: K is not written
//!   P      := sum of W + partial = sum of all D   whatever of W was written, sectors old or new
//! ```
//!
//! | Present columns | Parity becomes |
//! |---|---|
//! | all data | the sum of all data; partial parity need not be believed |
//! | all of W, not all of K | the sum of W and of partial parity: the missing column is exact |
//! | not all of W | what it is: parity gives the missing column its value (1) |
//! | no parity, as its member is missing | nothing: so is the log. Data is all present |
//!
//! (1) The value is old or new if the write had ended; of a write that was cut short, any value.
//! All of K is present, as RAID-4 and RAID-5 bear one loss.
//!
//! On RAID-6 the log of P is replayed as above. The log of Q is replayed by itself in the same way,
//! with columns multiplied as Q has them. Two members may be missing (and a sector of a third
//! unreadable, for now), and one missing member may be a column m of W. Then P gives m its value,
//! and Q is made to agree with P: otherwise a second missing column would be computed from two sums
//! that do not fit each other:
//!
//! | Missing columns | Q becomes |
//! |---|---|
//! | any of K | the sum of W and of Q's own partial parity |
//! | m | the sum of all data, with m = P + the other columns |
//! | m, and any of K | the sum of W and Q's partial parity; m = P + rest of W + P's partial one |
//! | m, and P; or two of W | what it is |
//!
//! A record that only one of the two logs has was never durable in both, so its write had not
//! begun; or its write has ended.
//!
//! A replay never writes data, and the new parity depends on data and log alone. So a replay may be
//! cut short anywhere and done again, on the same members or without one of them.
//!
//! ```text
//!   begin a step ─▶ read columns ─▶ compute ─▶ write parity ─▶ next step ─▶ ... ─▶ flush
//!        ▲               │ a column cannot be read: sector by sector
//!        └───────────────┘ and what was being written there is named
//!
//!   flush ─▶ superblocks say clean ─▶ logs are void
//! ```
//!
//! Superblocks say clean only if every member is present and no parity was left as it was: a member
//! that comes back later brings its own log, and rows that could not be made fit without it. Logs
//! are void only when all superblocks say clean, as only then no server reads them any more.
//!
//! # Invariants
//! - Data that no client was writing has its exact value after a replay, whichever member is
//!   missing. It does wherever the first crash and a second one in mid replay come
//!   [check: replay_keeps_what_nobody_wrote].
//! - Parity is made only of columns that could be read
//!   [check: nothing_is_made_of_what_is_not_there].
//! - Superblocks say clean after a flush, with every member present, and logs are void after that
//!   [check: clean_comes_after_a_flush_and_with_everybody].
//! - An entry that the array cannot have is an error, and nothing is written
//!   [check: entries_that_the_array_cannot_have_are_refused].

mod decide;
pub mod journal;
mod machine;
mod plan;
mod run;

pub use machine::{
    Effect, Event, Finish, Log, Member, Replay, ReplayError, Report, Setup, SolvedColumn, Weights,
};
pub use plan::{Column, EntryError, Part, parts};
pub use run::{Devices, run};
