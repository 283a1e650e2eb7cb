//! A write journal that is written through: what a band gets, and its parity, is durable there
//! before any member has it.
//!
//! A crash in the middle of a write leaves members that do not fit each other; what the journal has
//! of it is written out whole at the next start ([`crate::replay::journal`]). The format is md's
//! (`braid_ondisk::journal_log`, `journal_record`), and so is the mode: clients are answered when
//! members have it.
//!
//! ```text
//!   ring   | free ... | over | over | live | over | live |  head: the next record goes here
//!                     ^ tail, as superblocks say          whatever shards ask for meanwhile goes into one record
//!
//!   Rest ──asked for, there is room──▶ Writing ──durable──▶ Written ──▶ Rest       shards write their bands
//! ```
//!
//! A record is *over* when shards have written all of it to the members. The room of those that are
//! over at the tail becomes free in three steps: members are flushed; the next superblocks say the
//! new tail; they are durable. That is begun when half of the ring is in use, or a batch waits for
//! room. At the tail there is always a meta block, as md wants it: so the last record that is
//! durable is never freed.
//!
//! *Beginning anew*: whenever superblocks are written while no write can be under way, and the
//! journal is not empty, an empty block is written behind all else first, and the same superblocks
//! say that it is the tail: as the array turns clean, so that it leaves an empty journal, and as it
//! turns active for the first time. Then the sequence goes on by a gap, for blocks that somebody
//! else left there may be sound. Whoever is missing then, and has not what was replayed, is out by
//! the same superblocks; so the journal's own comes last, when all others are durable.
//!
//! What jobs write is not in it, nor is it in md's: it changes no block that a record names to
//! something else than the record has.
//!
//! # Invariants
//! - No band is written before its blocks are durable, nor once the journal's device has failed
//!   [check: the_table_is_total].
//! - Nothing is written over a record that counts, or that superblocks may still call the tail
//!   [check: no_record_is_written_over].
//! - The tail moves when members have flushed what is before it
//!   [check: room_is_free_when_superblocks_say_so].

mod decide;
mod machine;

pub(super) use decide::decide as decide_journal;
pub(super) use machine::Journal;
pub use machine::JournalLook;
