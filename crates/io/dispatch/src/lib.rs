//! Many threads have events for one machine, and none of them ever waits for it.
//!
//! Place in the flow: between the callers (the runtime, the lab) and the machine. This crate knows
//! threads, and nothing of RAID, devices or files. [`Combiner`] drives any machine; [`Scheduler`]
//! is the combiner around a member's elevator.
//!
//! ```text
//!  thread ─push─▶ insertion lists ─┐
//!  thread ─push─▶ insertion lists ─┤  one drain   ┌──────────────┐  a batch   ┌────────┐
//!  thread ─push─▶ insertion lists ─┴─────────────▶│   machine    │───────────▶│ Device │
//!       └─ or, with no owner at work, owns ──────▶└──────────────┘  (without  └───┬────┘
//!          it and goes past the lists              owned by one     ownership)   │
//!  completion ─ the same way ◀───────────────────────────────────────────────────┘
//! ```
//!
//! # What a late arrival sees
//!
//! One word says which lists may have events (a mark for each) and whether an owner is at work. A
//! thread that finds the word empty tries to become the owner, and hands its events to the machine
//! without touching a list. If the word is not empty, or the attempt fails, the thread pushes onto
//! a list and sets its mark. If the word was empty just before that, the thread must have the list
//! drained, and tries to become the owner. Otherwise it leaves at once: another thread has that
//! duty already. A thread that tries and fails leaves as well: there is an owner. So a late arrival
//! waits for neither the elevator nor the device. The list's own lock is held for a push or a swap
//! of two vectors. There are several lists, so that threads seldom meet at one.
//!
//! # Why no entry is forgotten
//!
//! The owner sets its at-work bit in the same atomic change that takes the marks, when it drains.
//! The owner gives ownership up and *then* clears the bit, in a change that returns the marks: the
//! last look. That look and a pusher's mark change one atomic word, so one comes first:
//!
//! - the mark before the look: the owner sees it, and tries again;
//! - the look before the mark: ownership was given up before the look. The pusher finds no owner at
//!   work and tries after that. It succeeds, or fails because of another owner, for whom the same
//!   holds.
//!
//! A pusher that finds the bit set need not try: the owner that set it has yet to look. (Two owners
//! may have set it, one after the other. The look of the first clears it while the second is at
//! work. Then pushers try in vain, and no entry is forgotten.) Effects push to their own machine
//! after that look. If they do so without draining ([`Carry::pushes`]), the word is read once more
//! after them. One read is enough, since a thread sees its own writes
//! [check: effects_that_are_not_heard_are_caught].
//!
//! A thread also leaves if its mark was set already. Then the mark's own pusher, or an owner, has
//! the duty until a drain takes the mark away. A drain takes the marks before the lists' events,
//! never after. [check: an_insertion_is_never_forgotten]
//! [check: what_is_brought_past_the_lists_is_never_forgotten]
//! [check: a_combiner_without_its_last_look_is_caught]
//! [check: a_last_look_that_only_reads_is_caught] [check: a_drain_that_unmarks_too_late_is_caught]
//! [check: an_owner_that_says_too_early_that_it_is_not_at_work_is_caught]
//!
//! One thread's events keep their order, whichever way they go. They do not go past the lists while
//! the thread's own mark is set, or while the owner that took the mark away is at work
//! [check: what_is_brought_past_the_lists_is_never_forgotten].
//!
//! # Policy `none`
//!
//! Nothing is shared: one load of the policy, and the entry is the device's. Switching while
//! entries wait loses none of them. Entries in the lists or in the elevator go out under the policy
//! in force when they are drained. The thread that left the entries drains them, or a completion
//! does, or the switch itself, which is an event in the same lists
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

pub use braid_elevator::{
    Class, Depth, Directions, Operation, Policy, QueuePosition, Settings, Turn,
};
