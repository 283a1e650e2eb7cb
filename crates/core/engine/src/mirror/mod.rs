//! Levels with copies: 1 and 10. Every sector has a place for each copy.
//!
//! ```text
//! read   ──▶ one copy ──ok──▶ answer
//!               └─failed──▶ lock the range ▶ read the next copy ▶ rewrite the bad ones ▶ answer
//! write  ──▶ lock the range ▶ write every copy ──all well──▶ unlock, answer
//!               └─some failed──▶ report; hold until a view without them arrives ▶ unlock, answer
//! ```
//!
//! A copy whose member sits out is read if no other copy exists. Reads in flight at a member that
//! begins to sit out are abandoned: another copy is read into the payload's shadow buffer
//! ([`crate::buffer`]), once for each read. The abandoned read ends late and changes nothing
//! [check: a_late_read_changes_no_answer].
//!
//! Copies may differ beyond the resync offset of an array that was found dirty, and once writes are
//! refused. Reads return consistent data all the same: each *sector* is read from the first copy
//! that has it, in the order of copies, however large the request. A read is cut where the first
//! copy changes. A read that fails is repeated in halves. So only sectors that are unreadable
//! themselves come from the next copy, and are written back from that copy. Where copies may
//! differ, a read waits for a member that sits out: the other members may hold other data. Data
//! that a client has read changes only if its copy is lost
//! [check: what_was_read_from_a_dirty_mirror_reads_the_same_again]. Sectors that this run has
//! written agree again; the rule makes no exception for them.
//!
//! Four files: [`mod@facts`] folds the work on an extent into a small value, [`mod@decide`] is the
//! pure table. [`act`] changes the state and emits effects; [`machine`] holds the state. [`choice`]
//! chooses the copy to read. [`background`] does the work that no client requested, as a machine of
//! its own; the two machines share the range lock.
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
