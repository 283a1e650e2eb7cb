//! Replay of a write journal: brings the members of a RAID-4, -5 or -6 to its journal's state.
//!
//! `braid_ondisk::JournalLog` has read the journal. This machine decides the reads, computations
//! and writes, and a driver does them ([`run()`] is the one interpreter). No machine of the array
//! exists yet, and no client.
//!
//! This machine neither chooses the journal (assembly) nor writes one while clients write.
//!
//! # Algebra
//!
//! A stripe here is a block of 4 KiB of each member, as in md. Its entries, in order:
//!
//! ```text
//!   data ... data parity   committed: these blocks are to be on the members; parity fits them all
//!   data ... data          pending: acknowledged in write-back mode, nothing is on the members yet
//! ```
//!
//! | Stripe in the journal | Action |
//! |---|---|
//! | committed | write its blocks of data and parity to all present members (1) |
//! | committed, and flushed later | the same (2) |
//! | committed, then data | the committed stripe is the base of the pending one |
//! | pending | on the base, make parity of the new data and the kept columns (3) |
//! | parity without data | nothing: its data was before the tail, and so it is on the members |
//!
//! - (1) Parity gives missing members their value: new if written, old if kept.
//! - (2) md leaves such stripes out. But they may have been in members' caches, which the crash
//!   emptied.
//! - (3) First, missing kept columns are computed from the base.
//!
//! A pending stripe's base must not be lost before the stripe is committed: if part of the base
//! were overwritten, its missing columns could not be computed any more. So the stripe's new parity
//! goes into the journal first, as md writes it, and the stripe is then a committed one. All new
//! meta blocks become part of the journal at once, when the first of them is written:
//!
//! ```text
//!   | ... meta 8 | data |  meta 9  | parity | parity |  meta 10 | parity | zeroes |
//!                       ^ end: written last     zeroes after all: no old meta block 11 follows
//! ```
//!
//! ```text
//!   for each pending stripe: read the base ─▶ compute what is missing ─▶ take the new data
//!     ─▶ make parity ─▶ into the journal, after its end
//!   seal: meta blocks but the first, flush ─▶ the first, flush
//!   for each stripe: read its blocks from the journal ─▶ write the members
//!   flush members ─▶ an empty meta block at the end, its sequence moved on ─▶ the tail is there
//! ```
//!
//! The tail moves only if no missing member may return. A missing member whose superblock is as new
//! as the others' has missed the replay's writes, and gets them from the journal when the journal
//! is replayed again. A pending stripe that misses more columns than the level makes up for stays
//! in the journal, and the tail stays before it.
//!
//! # Invariants
//! - Every sector that the journal names has the journal's value, and every other sector keeps its
//!   own. That holds whichever members are missing, and wherever the first crash and a second one
//!   in mid replay come [check: a_journal_keeps_every_sector].
//! - Parity is made only of columns that are present or could be computed
//!   [check: parity_is_made_of_all_data].
//! - A stripe is written to members only when its parity is durable in the journal; the tail moves
//!   after the members were flushed [check: the_order_is_kept].
//! - An entry that the array cannot have is an error, and nothing is written
//!   [check: entries_that_the_array_cannot_have_are_refused].

mod decide;
mod machine;
mod plan;
mod run;

pub use machine::{Effect, FailedRequest, Replay, ReplayError, Report, Setup};
pub use plan::{EntryError, Stripe, stripes};
pub use run::{Devices, run};
