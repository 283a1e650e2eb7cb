//! Parity logs, md's (PPL, of a RAID-5) or our own (levels 4, 5, 6): durable records before writes.
//!
//! A crash in the middle of a write can leave parity that does not fit its data. A missing member
//! cannot be computed from such parity: the write hole. So before a band is written, the member
//! with the band's parity gets a record. It has the new data's place, and the partial parity, the
//! sum of the other columns; [`crate::replay`] has the algebra. On RAID-6 the members with P and Q
//! get one record each. Both logs use md's format (`braid_ondisk::ppl_log`,
//! `braid_ondisk::own_log`).
//!
//! In braid's own log, all records since members were last flushed count, so one flush serves many
//! records. A flush is due when a log has no room for one more record, which is after half a ring.
//! It is also due when rows are logged again with other columns ([`rows`]). In md's log, and in
//! braid's own log with a small ring, only the newest record of each member counts. So a second
//! record waits for a flush. Batches of all shards that arrive while records are written go
//! together:
//!
//! ```text
//!          asked for           durable on every member        all of it over        flushed
//!   Rest ────────────▶ Writing ────────────────────────▶ Live ───────────────▶ Over ────────▶ Rest
//!                         ▲     shards write their bands   │                     │
//!                         └──── asked for, has room ───────┴─────────────────────┘
//! ```
//!
//! At Over, members are flushed when a waiting batch has no room. While no batch waits, the log
//! stays at Over and costs no flush.
//!
//! An old record does no harm: a later write to its rows first needs a newer record.
//!
//! # When logs hold records
//! At the next start, an array with readable logs is believed to agree except in the rows that the
//! logs name. So while any part of the array needs a resync, logs hold no record at all, and shards
//! log nothing. Logs are made when the array turns active or clean and agrees everywhere: then no
//! unlogged write is in flight. From then on, until they say clean, superblocks stamp our own log
//! as valid (`ParityLogs::will_count` decides that). If a replay could not read all that it needed,
//! superblocks take the stamp back before a log is emptied.
//!
//! # Invariants
//! - I3: no band is written before its entries are durable, and the loss of a member that failed to
//!   write them [check: the_table_is_total, a_member_that_is_withheld_loses_nothing_that_was_kept].
//! - No record overwrites a record that counts, and no record stops counting before its bands are
//!   flushed [check: members_are_flushed_once_a_lap_of_the_log],
//!   [check: a_log_of_one_record_is_written_over_after_a_flush].
//! - No record is written while superblocks lack the loss of a member that failed the flush
//!   [check: the_table_is_total].
//! - The data that partial parity stands for is flushed
//!   [check: rows_are_logged_with_other_columns_after_a_flush].
//! - A new member has an empty log before any superblock says that the member is in, unless that
//!   superblock says that no log counts [check: a_member_that_comes_has_an_empty_log].
//! - A log is emptied only when no superblock marks it as valid
//!   [check: a_log_that_counts_is_not_emptied].

mod decide;
mod machine;
mod rows;

pub(in crate::array) use decide::Action as LogAction;
pub(super) use decide::decide as decide_log;
pub(in crate::array) use machine::News;
pub(super) use machine::ParityLogs;
