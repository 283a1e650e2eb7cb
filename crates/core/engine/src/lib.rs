//! The RAID machine: events in, effects out; no clock, no I/O, no threads, no unsafe.
//!
//! # Theory
//!
//! An array is one [`array::Array`] (the control side: members, superblocks, whether writes may
//! start) and several [`Shard`]s (the data side: each owns the regions of the array that hash to
//! it). Both are machines in the same shape:
//!
//! ```text
//!            handle_*(now, event)                poll_*() -> effect
//!   driver ───────────────────────▶  machine  ───────────────────────▶  driver
//! ```
//!
//! A driver (the runtime, a simulator, a benchmark, a unit test) feeds events in and polls effects
//! until none is left. It carries them out, and reports their results as further events. The
//! machine never touches a byte of payload: buffers are names ([`buffer::Buffer`]), and parity and
//! copies are effects ([`computation::Computation`]). [`computation::run`] executes them over the
//! driver's memory.
//!
//! The array and its shards communicate by epoch: the array publishes an immutable
//! [`array::ArrayView`]; a shard that has received a view acts on no older view. They share no
//! state.
//!
//! Three families serve all levels: `direct` (linear, 0), `mirror` (1, 10), `stripe` (4, 5, 6).
//!
//! # Invariants
//!
//! The names are those of docs/write-path.md.
//! - I3, intent before data: no member write leaves a shard before the view's gate is open. The
//!   gate opens only after every superblock says "active" [check: gate_opens_after_superblocks].
//! - I4, failure before acknowledgement: a shard acknowledges a write that a member missed only
//!   under a view without that member. The array publishes such a view only after the survivors'
//!   superblocks are durable [check: missed_write_waits_for_superblocks].
//! - I5, clean last: superblocks turn clean only after every shard has drained and every member has
//!   been flushed [check: clean_only_after_drain_and_flush].
//! - I6, shards never read a member that is not in the view
//!   [check: missing_member_is_never_touched].
#![forbid(unsafe_code)]

pub mod array;
mod bad_log;
pub mod buffer;
mod cache_stamp;
pub mod cause;
pub mod computation;
mod context;
mod counters;
mod direct;
pub mod effect;
pub mod ids;
mod lost_content;
mod mirror;
pub mod open;
mod ranges;
pub mod replay;
pub mod request;
pub mod reshape;
pub mod rot;
mod sectors;
mod shard;
mod slab;
mod stripe;
mod time;
mod tuning;
pub mod work;

pub use bad_log::{BadLog, BadLogWrite};
pub use cache_stamp::CacheStamp;
pub use counters::{CacheCounters, Counters};
pub use ranges::{BadBlocks, BadRange, MemberRange, MemberRanges};
pub use shard::{PREFETCH_PIECES, Shard};
pub use stripe::{Bypass, Index};
pub use time::Instant;
pub use tuning::{
    CacheConfig, CacheMode, OnReadErrors, Patience, ReadErrorLimit, SitOut, Tuning,
    UNIT_SECTORS_MAX,
};
