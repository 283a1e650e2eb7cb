//! Many threads have something for one machine, and none of them ever waits for it.
//!
//! Where it stands: between those who ask (the runtime, the lab) and what they ask of. It knows threads, and nothing of
//! RAID, devices or files. [`Combiner`] drives any machine; [`Scheduler`] is the combiner around a member's elevator.
//!
//! ```text
//!   thread ─push─▶ insertion lists ─┐
//!   thread ─push─▶ insertion lists ─┤  one drain   ┌──────────────┐  a batch   ┌────────┐
//!   thread ─push─▶ insertion lists ─┴─────────────▶│   machine    │───────────▶│ Device │
//!        └─ tries to become dispatcher             └──────────────┘  (without  └───┬────┘
//!           (try-lock; or goes on)                   owned by one     ownership)   │
//!   completion ─push─▶ the same lists ◀──────────────────────────────────────────── ┘
//! ```
//!
//! # What a late arrival sees
//!
//! A thread that pushes onto an empty list must see to it that the list is drained, by trying to become the owner. One that
//! finds something there before it leaves at once: another has that duty already. One that tries and fails leaves as well:
//! there is an owner. So a late arrival sees a list and, at most, a lock that is taken; it waits for neither the elevator
//! nor the device. The list's own lock is held for a push or a swap of two vectors, and there are several lists, so that
//! threads seldom meet at one.
//!
//! # Why no entry is forgotten
//!
//! The owner gives ownership up and *then* looks at the lists once more. That look and the mark that the first pusher
//! leaves are atomic changes of one word, hence one comes before the other:
//!
//! - the mark before the look: the owner sees it, and tries again;
//! - the look before the mark: ownership was given up before the look, so the pusher's try comes after that; it succeeds,
//!   or fails because of another owner, of whom the same holds.
//!
//! As for a thread that left because a mark was there: the mark's own pusher, or an owner, has the duty until a drain takes the mark
//! away, and a drain takes the marks before the lists' content, never after.
//! [check: an_insertion_is_never_forgotten, a_combiner_without_its_last_look_is_caught,
//! a_last_look_that_only_reads_is_caught, a_drain_that_unmarks_too_late_is_caught]
//!
//! # Policy `none`
//!
//! Nothing is shared: one load of the policy, and the entry is the device's. Switching while entries wait loses none of
//! them: what is in the lists or in the elevator goes out under the policy that it finds there, driven by the thread that left it,
//! by completions and by the switch itself, which is an event in the same lists
//! [check: a_switch_of_policy_loses_nothing].
#![forbid(unsafe_code)]

mod combiner;
mod counters;
#[cfg(not(any(loom, shuttle)))]
#[allow(unreachable_pub, reason = "public where the runtime's models leave lines out as well")]
mod flaw;
#[cfg(any(loom, shuttle))]
pub mod flaw;
mod inbox;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
mod scheduler;

pub use combiner::{Carry, Combiner};
pub use counters::{Counters, DRAINED_SIZES};
pub use scheduler::{Device, Request, Scheduler, State, Ticket, Vector};

pub use braid_elevator::{Allowed, Class, Depth, Operation, Place, Policy, Settings, Turn};
