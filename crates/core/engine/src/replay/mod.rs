//! Replay of a partial parity log, md's (PPL) or our own: what makes parity fit again where writes
//! were cut short.
//!
//! Where it stands: before an array is served. Assembly says that the array was being written and
//! whose logs count ([`braid_assembly::AssembledArray::replay`]), this says what is read, computed
//! and written, and a driver does it ([`run()`] is the one interpreter). No machine of the array is
//! there yet, and no client.
//!
//! What it does not do: read the logs (`braid_ondisk::ppl_log`), or choose which members count
//! (assembly).
//!
//! # Algebra
//!
//! A record names what was being written, and has the exclusive-or of the rest of its rows: the
//! *partial parity*. It was durable before any of it was written. With data D, of which those in W
//! were being written and those in K were kept:
//!
//! ```text
//!   partial = sum of K                                     as long as the record counts, since K is not written
//!   P      := sum of W + partial   =   sum of all D        whatever was written of W, each sector old or new
//! ```
//!
//! | What is there | Parity becomes |
//! |---|---|
//! | all data | the sum of all data; partial parity need not be believed |
//! | all that was being written, not all that was kept | the sum of that and of partial parity: what is not there has its exact value by it |
//! | not all that was being written | what it is: what is not there has the value that parity gives it, old or new if the write had ended; of a write that was cut short, any. What was kept is all there, as RAID-4 and RAID-5 bear one loss |
//! | no parity, as its member is missing | nothing: so is the log. Data is all there |
//!
//! On RAID-6 the log of P is replayed as above, and that of Q by itself in the same way, with
//! columns multiplied as Q has them. Two members may be missing (and a sector of a third
//! unreadable, for now), and one of them may be a column m that was being written: then P gives its
//! value, and Q is made to agree, or what is missing beside it would be computed from two sums that
//! do not fit each other:
//!
//! | What is not there | Q becomes |
//! |---|---|
//! | any that were kept | the sum of what was being written and of its own partial parity |
//! | m | the sum of all data, with m = P + the other columns |
//! | m, and any that were kept | the sum of what was being written and of its partial parity, with m = P + what else was being written + partial parity of P |
//! | m, and P; or two that were being written | what it is |
//!
//! A record for Q without one for P, or the other way round, was never durable on both, so nothing
//! was written yet; or it is over.
//!
//! Data is never written, and what parity becomes depends on data and log alone. So a replay may be
//! cut short anywhere and done again, on the same members or without one of them.
//!
//! ```text
//!   begin a step ─▶ read columns ─▶ compute ─▶ write parity ─▶ next step ─▶ ... ─▶ flush ─▶ superblocks say clean ─▶ logs are void
//!        ▲               │ a column cannot be read: sector by sector
//!        └───────────────┘ and what was being written there is named
//! ```
//!
//! Superblocks say clean only if every member is there and nothing was left as it was: a member
//! that comes back later brings its own log, and rows that could not be made fit without it. Logs
//! are void only when all superblocks say clean, as only then nobody looks at them any more.
//!
//! # Invariants
//! - What nobody was writing has its exact value after a replay, whichever member is missing, and
//!   wherever the first crash and a second one in mid replay come
//!   [check: replay_keeps_what_nobody_wrote].
//! - Parity is made only of what could be read [check: nothing_is_made_of_what_is_not_there].
//! - Superblocks say clean after a flush, with every member there, and logs are void after that
//!   [check: clean_comes_after_a_flush_and_with_everybody].
//! - An entry that the array cannot have is an error, and nothing is written
//!   [check: entries_that_the_array_cannot_have_are_refused].

mod decide;
pub mod journal;
mod machine;
mod plan;
mod run;

pub use machine::{
    Effect, Event, Finish, Log, Member, Replay, ReplayError, Report, Setup, Solved, Weights,
};
pub use plan::{Column, EntryError, Part, parts};
pub use run::{Devices, run};
