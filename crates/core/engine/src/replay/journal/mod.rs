//! Replay of a write journal: what makes the members of a RAID-4, -5 or -6 hold what its journal
//! says.
//!
//! Where it stands: beside the replay of partial parity logs. `braid_ondisk::JournalLog` has
//! followed the journal, this says what is read, computed and written, and a driver does it
//! ([`run()`] is the one interpreter). No machine of the array is there yet, and no client.
//!
//! What it does not do: find out which journal counts (assembly), or write one while clients write.
//!
//! # Algebra
//!
//! A stripe here is a block of 4 KiB of each member, as md has it. Its entries, in order:
//!
//! ```text
//!   data ... data parity        committed: these blocks are to be on the members, and parity is right with all of them
//!   data ... data               pending: acknowledged in the mode write-back, and nothing of it is on the members
//! ```
//!
//! | What the journal has | What is done |
//! |---|---|
//! | committed | blocks of data and parity are written to whoever is there. Who is not there has its value by parity: what was written the new one, what was kept the old one |
//! | committed, and flushed later | the same. md leaves such stripes out; but they were only written to the members, and may have been in caches that the crash emptied |
//! | committed, then data | the stripe as it was committed is the base of what comes next |
//! | pending | on the base, parity is made of the new data and what is kept; what is kept and missing is first computed from the base |
//! | parity without data | nothing: its data was before the tail, and so it is on the members |
//!
//! A pending stripe's base must not be lost before the stripe is committed: with some of it
//! written, what is missing could not be computed any more. So its new parity goes into the journal
//! first, as md writes it, and then it is a stripe like the others. The new meta blocks become part
//! of the journal at once, by the first of them:
//!
//! ```text
//!   | ... meta 8 | data |  meta 9  | parity | parity |  meta 10 | parity | zeroes |
//!                       ^ end: written last            behind all: so that no old meta block 11 follows
//! ```
//!
//! ```text
//!   for each pending stripe: read the base ─▶ compute what is missing ─▶ take the new data ─▶ make parity ─▶ into the journal, behind its end
//!   seal: meta blocks but the first, flush ─▶ the first, flush
//!   for each stripe: read its blocks from the journal ─▶ write the members
//!   flush the members ─▶ an empty meta block at the end, its sequence moved on ─▶ the tail is there
//! ```
//!
//! The tail moves only if nobody who is missing may come back: a member whose superblock is as new
//! as the others' has missed what is written here, and gets it from the journal when it is replayed
//! again. A pending stripe of which more is missing than the level makes up for stays in the
//! journal, and so does the tail.
//!
//! # Invariants
//! - Every sector has the value that the journal gives it, and those that it does not name have
//!   theirs, whichever members are missing, and wherever the first crash and a second one in mid
//!   replay come [check: a_journal_keeps_every_sector].
//! - Parity is made only of what is there or could be computed [check: parity_is_made_of_all_data].
//! - Members are written when the journal has parity for it, durably; the tail moves after they
//!   were flushed [check: the_order_is_kept].
//! - An entry that the array cannot have is an error, and nothing is written
//!   [check: entries_that_the_array_cannot_have_are_refused].

mod decide;
mod machine;
mod plan;
mod run;

pub use machine::{Effect, Failed, Replay, ReplayError, Report, Setup};
pub use plan::{EntryError, Stripe, stripes};
pub use run::{Devices, run};
