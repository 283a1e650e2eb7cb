//! The order in which one member serves its requests.
//!
//! Place in the flow: between the engine, which requests reads and writes, and a member, which
//! executes them. The elevator knows sectors and deadlines, and nothing of RAID. It has no clock,
//! no threads and no I/O: the caller passes the time, asks for the next [`Dispatch`], and reports
//! its end.
//!
//! ```text
//!  handle_insert ─▶ class ─▶ direction ─▶ { sorted by sector │ by age } ─▶ poll_dispatch ─▶ member
//!                   real-time   read        merged with neighbours           one vector      │
//!                   best effort write                                                       │
//!                   idle                                                    handle_done ◀────┘
//! ```
//!
//! # Which entry goes next
//!
//! 1. The oldest entry of all classes, if it has waited longer than [`Settings::aging_ns`].
//! 2. Else the highest class with an entry that a free tag allows. Within it:
//!    1. entries inserted at the head, in that order;
//!    2. the next higher sector of the running batch's direction, up to [`Settings::batch`] of
//!       them;
//!    3. a new batch: of reads, unless writes have been passed over [`Settings::writes_starved`]
//!       times; from the oldest entry if it has expired, else from where the direction stopped,
//!       else from the lowest sector.
//!
//! The sweep goes one way only: after the highest sector comes the lowest, so that no place is
//! served twice as often as another. This is the classical deadline elevator; Linux's terms
//! (`writes_starved`, at head) mean the same here.
//!
//! A caller that holds reads or writes passes the kinds that may go ([`Directions`]). A kind held
//! for [`Settings::hold_max_ns`] gets one dispatch all the same.
//!
//! # Tags
//!
//! A dispatch holds a tag until it is done. Some tags are kept for reads and some for writes
//! ([`Depth`]), so that neither can fill the member's queue and block the other. If one direction
//! has had nothing for [`Settings::hold_max_ns`], the other may have as many as
//! [`Settings::depth_alone`].
//!
//! # Held entries
//!
//! The caller passes the [`Directions`] that may go; a [`Multiplexer`] above holds one kind at
//! times. The elevator passes over held entries as if they did not exist, and they age meanwhile;
//! the multiplexer's clock bounds the hold. [`Elevator::waits`] is its demand.
//!
//! With [`Settings::takes_along`] both sides share one sweep, of the side whose turn it is. While
//! writes are held, a write between the last read and the next goes before that read: it costs half
//! of a way there and back. If reads are given time that the writes leave unused, they begin where
//! the arm is, after the last write, and not where reads had stopped. The sweep of later writes
//! goes on from there. No entry is taken along past an older one of its direction that has expired.
//!
//! # Merging
//!
//! An entry whose first sector is another's end joins it at the back. If its end is another's
//! start, it joins at the front. A group that thereby touches a third joins that as well. A group
//! goes out as one vector, its parts in the order of sectors, and is as old as its oldest part.
//! Zeroing and discarding are not merged.
//!
//! # No order between requests
//!
//! Like every block layer below, the elevator promises no order between entries that are queued at
//! the same time. A caller that needs an order waits for the first to be done, as the engine does.
//!
//! Invariants
//! - Every entry is dispatched exactly once: `every_entry_goes_out_once_whatever_comes`.
//! - No entry waits for ever: `none_is_passed_over_for_ever`.
//! - A held entry does not go before its kind is allowed: `what_is_held_waits_and_the_other_goes`.
//!   Exceptions are entries on the arm's way: `a_write_that_lies_on_the_way_of_reads_goes_along`,
//!   `reads_that_are_given_a_slice_begin_where_the_arm_is`.
//! - Never more in flight than [`Depth`] allows: `tags_are_never_exceeded`.

#![forbid(unsafe_code)]

mod busy_time;
mod counters;
mod depth;
mod elevator;
mod entry;
mod multiplexer;
mod nodes;
mod queue;
mod settings;

pub use busy_time::BusyTime;
pub use counters::Counters;
pub use depth::Depth;
pub use elevator::Elevator;
pub use entry::{Class, Directions, Dispatch, Entry, EntryId, Operation, QueuePosition, Tag};
pub use multiplexer::{Demand, Multiplexer, MultiplexerSettings, Slice, Turn};
pub use nodes::Parts;
pub use settings::{Policy, Settings};
