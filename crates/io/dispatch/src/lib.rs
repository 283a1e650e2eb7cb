//! Many threads have something for one machine, and none of them ever waits for it.
//!
//! Where it stands: between those who ask (the runtime, the lab) and what they ask of. It knows threads, and nothing of
//! RAID, devices or files. [`Combiner`] drives any machine; [`Scheduler`] is the combiner around a member's elevator.
//!
//! ```text
//!   thread ─push─▶ insertion lists ─┐
//!   thread ─push─▶ insertion lists ─┤  one drain   ┌──────────────┐  a batch   ┌────────┐
//!   thread ─push─▶ insertion lists ─┴─────────────▶│   machine    │───────────▶│ Device │
//!        └─ or, where nobody is at work, owns ────▶└──────────────┘  (without  └───┬────┘
//!           it and goes past the lists              owned by one     ownership)   │
//!   completion ─ the same way ◀───────────────────────────────────────────────────┘
//! ```
//!
//! # What a late arrival sees
//!
//! One word says which lists may have something (a mark for each) and whether an owner is at work. A thread that finds it
//! empty tries to become the owner, and hands the machine what it brings without touching a list. One that finds something in it, or fails,
//! pushes onto a list and sets its mark. If the word was empty just before, it must see to it that the list is drained, by trying to
//! become the owner. If it was not, it leaves at once: another has that duty already. One that tries and fails leaves as well:
//! there is an owner. So a late arrival waits for neither the elevator
//! nor the device. The list's own lock is held for a push or a swap of two vectors, and there are several lists, so that
//! threads seldom meet at one.
//!
//! # Why no entry is forgotten
//!
//! The owner says that it is at work when it drains, in the change that takes the marks. It gives ownership up and *then*
//! says that it is not at work any more, in a change of the word that shows it the marks: the last look. That look and the mark of a pusher
//! are atomic changes of one word, hence one comes before the other:
//!
//! - the mark before the look: the owner sees it, and tries again;
//! - the look before the mark: ownership was given up before the look, so the pusher, who finds nobody at work, tries
//!   after that; it succeeds, or fails because of another owner, of whom the same holds.
//!
//! A pusher that finds somebody at work need not try: whoever said so has yet to look. (Two may have said so, one after the other, and
//! the look of the first says that nobody is at work while the second is. Then pushers try in vain; none is forgotten.)
//! What effects push to their own machine comes after that look. Where they may do so and leave it at that ([`Carry::pushes`])
//! the word is read once more when they have been carried out. That is enough, since a thread sees what it did itself
//! [check: effects_that_are_not_heard_are_caught].
//!
//! As for a thread that left because a mark was there: the mark's own pusher, or an owner, has the duty until a drain takes the mark
//! away, and a drain takes the marks before the lists' content, never after.
//! [check: an_insertion_is_never_forgotten, what_is_brought_past_the_lists_is_never_forgotten,
//! a_combiner_without_its_last_look_is_caught, a_last_look_that_only_reads_is_caught, a_drain_that_unmarks_too_late_is_caught,
//! an_owner_that_says_too_early_that_it_is_not_at_work_is_caught]
//!
//! What one thread hands over keeps its order, whichever way it goes: it does not go past the lists while its own mark is
//! set, or while the owner that took the mark away is at work [check: what_is_brought_past_the_lists_is_never_forgotten].
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
