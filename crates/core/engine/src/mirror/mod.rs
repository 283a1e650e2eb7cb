//! Levels with copies: 1 and 10. Every sector has as many places as there are copies.
//!
//! ```text
//! read   ──▶ one copy ──ok──▶ answer
//!               └─failed──▶ lock the range ▶ read the next copy ▶ rewrite the bad ones ▶ answer
//! write  ──▶ lock the range ▶ write every copy ──all well──▶ unlock, answer
//!               └─some failed──▶ report; hold until a view without them arrives ▶ unlock, answer
//! ```
//!
//! A copy whose member sits out is read if there is no other. Reads that are under way there when
//! it begins to sit out are abandoned: another copy is read into the payload's shadow buffer
//! ([`crate::buffer`]), once for each read; what was abandoned comes back late and changes nothing
//! [check: a_late_read_changes_no_answer].
//!
//! Where copies may differ (beyond the resync offset of an array that was found dirty, or once
//! writes are refused) they tell one story all the same: each *sector* is read from the first copy,
//! in the order of copies, that has it, however it is asked for. A read is cut where that would be
//! another copy; one that fails is made again in halves, so that only sectors that are unreadable
//! themselves come from the next copy, and are written back from there. A member that sits out is
//! waited for there: the others may say something else. What a client has read changes only if the
//! copy that it came from is lost [check: what_was_read_from_a_dirty_mirror_reads_the_same_again].
//! Sectors that this run has written are alike again; they are not told apart from the others.
//!
//! Four rooms: [`mod@facts`] folds the work on an extent into a small value, [`mod@decide`] is the
//! pure table, [`act`] changes the state and emits effects, and [`machine`] says what there is to
//! change. [`choice`] is which copy to read. [`background`] is what no client asked for, a machine
//! of its own; the two meet at the range lock.
//!
//! The range lock gives all copies the same order of overlapping writes, and keeps a repair from
//! putting old bytes over new ones [check: overlapping_writes_reach_copies_in_one_order].

mod act;
mod background;
mod choice;
mod decide;
mod facts;
mod loads;
mod machine;

pub(crate) use machine::Mirror;
