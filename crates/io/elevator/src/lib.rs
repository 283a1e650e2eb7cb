//! The order in which one member serves what is asked of it.
//!
//! Where it stands: between the engine, which says what must be read and written, and a member, which does it. It knows
//! sectors and deadlines, and nothing of RAID; it has no clock, no threads and no I/O: the caller says what time it is,
//! asks for the next [`Dispatch`], and says when it is done.
//!
//! ```text
//!   handle_insert ─▶ class ─▶ direction ─▶ { sorted by sector │ by age } ─▶ poll_dispatch ─▶ member
//!                    real-time   read        merged with neighbours           one vector      │
//!                    best effort write                                                       │
//!                    idle                                                    handle_done ◀────┘
//! ```
//!
//! # Which goes next
//!
//! 1. The oldest entry of all classes that has waited longer than [`Settings::aging_ns`]: who has aged goes by age.
//! 2. Else the highest class that has something a free tag allows. Within it:
//!    1. what was inserted at the head, in that order;
//!    2. the next higher sector in the direction of the running batch, up to [`Settings::batch`] of them;
//!    3. a new batch: of reads, unless writes have been passed over [`Settings::writes_starved`] times; from the
//!       oldest entry if it has expired, else from where the direction stopped, else from the lowest sector.
//!
//! One way only: after the highest sector comes the lowest, so that no place is served twice as often as another. The
//! scheme is the classical deadline elevator; where its terms are Linux's (`writes_starved`, at head), they mean the same.
//!
//! Who above holds reads or writes says so when it asks ([`Allowed`]); a kind that has been held for
//! [`Settings::hold_max_ns`] gets one dispatch all the same.
//!
//! # Tags
//!
//! A dispatch holds a tag until it is done. Some tags are kept for reads and some for writes ([`Depth`]), so that neither
//! can fill the member's queue and block the other.
//! Where one of them has had nothing for [`Settings::hold_max_ns`], the other may have as many as [`Settings::depth_alone`] says.
//!
//! # Who is held
//!
//! The caller that asks for the next dispatch says which kinds are [`Allowed`]; a [`Multiplexer`] above holds one of them at times.
//! What is held is passed over as if it were not there, and ages meanwhile: the clock above sees to it that nothing is held
//! for long. [`Elevator::waits`] is its demand.
//!
//! With [`Settings::takes_along`] there is one sweep, that of whose turn it is. While writes are held, one that lies between the
//! last read and the next goes before that read: it costs half of a way there and back. Where reads are given what the writes
//! do not use, they begin where the arm is, behind the last write, and not where reads had stopped: more writes
//! will come, and their sweep goes on from there. Nothing is
//! taken along past an older one of its direction that has expired.
//!
//! # Merging
//!
//! An entry whose first sector is another's end joins it at the back; whose end is another's start, at the front; a group
//! that thereby touches a third joins that as well. A group goes out as one vector, its parts in the order of sectors, and
//! is as old as its oldest part. Zeroing and discarding are not merged.
//!
//! # No order between requests
//!
//! Like every block layer below, the elevator promises no order between entries that are queued at the same time. Who needs
//! one waits for the first to be done, as the engine does.
//!
//! Invariants
//! - Every entry is dispatched exactly once: `every_entry_goes_out_once_whatever_comes`.
//! - No entry waits for ever: `none_is_passed_over_for_ever`.
//! - What is held does not go, and goes when it may: `what_is_held_waits_and_the_other_goes`; but for what lies on the way:
//!   `a_write_that_lies_on_the_way_of_reads_goes_along`, `reads_that_are_given_a_slice_begin_where_the_arm_is`.
//! - Never more out than [`Depth`] allows: `tags_are_never_exceeded`.

#![forbid(unsafe_code)]

mod busy;
mod counters;
mod depth;
mod elevator;
mod entry;
mod multiplexer;
mod nodes;
mod queue;
mod settings;

pub use busy::Busy;
pub use counters::Counters;
pub use depth::Depth;
pub use elevator::Elevator;
pub use entry::{Allowed, Class, Dispatch, Entry, EntryId, Operation, Place, Tag};
pub use multiplexer::{Demand, Multiplexer, MultiplexerSettings, Slice, Turn};
pub use nodes::Parts;
pub use settings::{Policy, Settings};
