//! A write-through journal: a band's new data and parity are durable in the journal before any
//! member gets them.
//!
//! A crash in the middle of a write leaves members that do not fit each other; the next start
//! writes the journal's records out whole ([`crate::replay::journal`]). The format is md's
//! (`braid_ondisk::journal_log`, `journal_record`), and so is the mode: a write is acknowledged
//! when members have it.
//!
//! ```text
//!   ring   | free ... | over | over | live | over | live |  head: the next record goes here
//!                     ^ tail, as superblocks say
//!
//!   Rest ──asked for, has room──▶ Writing ──durable──▶ Written ──▶ Rest: shards write their bands
//! ```
//!
//! Shards' requests during the write of one record go together into the next record.
//!
//! A record is *over* when shards have written all of it to the members. Records that are over at
//! the tail free their room in three steps: members are flushed; the next superblocks record the
//! new tail; these superblocks are durable. The steps begin when half of the ring is in use, or a
//! batch waits for room. The tail always is a meta block, as md requires: so the last durable
//! record is never freed.
//!
//! *Beginning anew*: superblocks may be written while no write is in flight and the journal is not
//! empty. Then an empty block is first written after all records, and those superblocks record it
//! as the tail. The journal begins anew as the array turns clean, to leave an empty journal, and as
//! it first turns active. That first time the sequence skips a gap, because blocks that another
//! server left there may be valid. A member that is missing then, without the replayed data, is out
//! by the same superblocks. So the journal's own superblock comes last, when the others are
//! durable.
//!
//! The journal does not hold jobs' writes, nor does md's: jobs never change a block that a record
//! covers to other content than the record's.
//!
//! # Invariants
//! - No band is written before its blocks are durable in the journal, nor once the journal's device
//!   has failed [check: the_table_is_total].
//! - No write covers a record that counts, or that superblocks may still call the tail
//!   [check: no_record_is_written_over].
//! - The tail moves when members have flushed the records before it
//!   [check: room_is_free_when_superblocks_say_so].

mod decide;
mod machine;

pub(super) use decide::decide as decide_journal;
pub(super) use machine::Journal;
pub use machine::JournalLook;
