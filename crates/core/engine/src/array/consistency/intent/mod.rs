//! md's write-intent bitmap: the durable record of where members may differ.
//!
//! Each bit stands for a run of sectors (of each member; of the array on level 10). A bit is set on
//! every member before any write to its sectors, and cleared long after: only sectors with a set
//! bit are resynced after a crash.
//!
//! ```text
//!            a shard asks           on every member           shards get it
//!    clear ───────────────▶ wanted ─────────────────▶ durable ──────────────▶ open: writes go on
//!      ▲                                                 ▲                      │
//!      │  members flushed; on every member               └── a shard asks ──┐   ▼ (1)
//!      └─────────────────────────────────────────────────────────────────── closing
//! ```
//!
//! (1): no write went to the bit's sectors from one sweep to the next. *On every member*: the bit
//! is written to every member. *Closing*: shards finish the writes that they began.
//!
//! One write sets many bits: requests during a write are part of the next write.
//!
//! # The bitmap and superblocks
//! A bitmap counts events as superblocks do. A bitmap with fewer events than its array is not
//! believed, by md or by us: some server wrote since without keeping the bitmap. So every member's
//! bitmap gets a new count before superblocks do ([`Intent::is_behind`]). A bitmap that is not
//! believed is made anew in two writes: all bits under a superblock that says *stale*, and then the
//! superblock alone. A write that is cut short may leave the first sector new and the others old,
//! and the old sectors show no doubt
//! [check: a_bitmap_that_is_made_over_a_stale_one_is_not_believed_by_halves]. A new member gets the
//! whole bitmap before any superblock says that the member is in. Until superblocks name a bitmap
//! that was made while the array runs, no write waits for that bitmap ([`super::bitmap_change`]).
//!
//! A lockless bitmap has a byte for each bit. The byte also marks sectors that no client has
//! written, and sectors whose redundancy must still be made to agree ([`lockless`]). Shards and
//! superblocks wait for a byte as for a bit.
//!
//! # Invariants
//! - I3: no write to a member begins before its bit is durable on all members of the array. The
//!   loss of members that failed to write the bit is durable, too
//!   [check: the_table_is_total, a_bit_is_durable_before_its_sectors_are_written].
//! - I5: a bit is cleared when no write to its sectors is under way, and all members were flushed
//!   since [check: a_bit_is_cleared_when_its_sectors_are_flushed].
//! - While a member is missing, or is being recovered, no bit is cleared: bits name the writes that
//!   the member missed [check: no_bit_is_cleared_while_a_member_is_away].
//! - Sectors in doubt when the array was opened keep their bit until they have been resynced
//!   [check: what_is_in_doubt_keeps_its_bit].

mod decide;
mod lockless;
mod machine;
mod trimmed_marks;

pub(in crate::array) use decide::Action as IntentAction;
pub(super) use decide::decide as decide_intent;
pub(super) use machine::{Intent, IntentContext};
