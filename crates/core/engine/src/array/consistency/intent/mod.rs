//! Where members may differ, and where that is said durably: md's write-intent bitmap.
//!
//! Each bit stands for a run of sectors (of each member; of the array on level 10). A bit is set on
//! every member before anything is written to its sectors, and cleared long after: only what bits
//! name is resynced after a crash.
//!
//! ```text
//!                 a shard asks            written to every member        shards are told
//!    clear ───────────────────▶ wanted ─────────────────────▶ durable ─────────────────▶ open: writes go on
//!      ▲                                                          ▲                        │ nobody wrote there
//!      │  members flushed; written to every member                └── a shard asks ──┐     ▼ from one sweep to the next
//!      └───────────────────────────────────────────────────────────────────────── closing: shards finish what they began
//! ```
//!
//! Many bits ride on one write: what is asked for while one is under way goes with the next.
//!
//! # The bitmap and superblocks
//! A bitmap counts events as superblocks do. One with fewer than its array has is not believed, by
//! md or by us: whoever wrote since did not keep it. So before superblocks say a new count, the
//! bitmap says it on every member ([`Intent::is_behind`]). One that is not believed is made anew in
//! two writes: all bits under a superblock that says *stale*, and then the superblock alone. A
//! write that is cut short may leave the first sector new and the others old, and what is old there
//! has nothing in doubt [check: a_bitmap_that_is_made_over_a_stale_one_is_not_believed_by_halves].
//! A member that comes gets the whole bitmap before any superblock says that it is in. Until
//! superblocks name a bitmap that was made while the array runs, what it says holds nobody up
//! ([`super::bitmap_change`]).
//!
//! A lockless bitmap has a byte for each bit, which says more: where no client has written, and
//! where redundancy is to be made to agree yet ([`lockless`]). What shards and superblocks wait for
//! is the same.
//!
//! # Invariants
//! - I3: no member is written before its bit is durable on all members of the array, and the loss
//!   of those that did not take it
//!   [check: the_table_is_total, a_bit_is_durable_before_its_sectors_are_written].
//! - I5: a bit is cleared when no write to its sectors is under way, and all members were flushed
//!   since [check: a_bit_is_cleared_when_its_sectors_are_flushed].
//! - While a member is missing, or is being recovered, no bit is cleared: it says what that member
//!   has missed [check: no_bit_is_cleared_while_a_member_is_away].
//! - What was in doubt when the array was opened keeps its bit until it has been resynced
//!   [check: what_is_in_doubt_keeps_its_bit].

mod decide;
mod given_up;
mod lockless;
mod machine;

pub(in crate::array) use decide::Action as IntentAction;
pub(super) use decide::decide as decide_intent;
pub(super) use machine::{Ground as IntentGround, Intent};
