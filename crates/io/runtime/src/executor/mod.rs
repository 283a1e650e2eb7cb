//! The one way to a member, and two back ends that carry operations out.
//!
//! Place in the flow: below the machines' loop ([`crate::drive`]) and the ends of operations
//! ([`crate::completions`]); above [`crate::members`], [`braid_member`] and [`braid_ring`]. The
//! executor leaves events for machines, and drives none.
//!
//! ```text
//!   machines ──▶ Submitter::submit ──▶ room? (ring_admission) ──▶ ring     a worker submits it
//!                     ▲                             │  │
//!                     │ kept, in line ──────────────┘  ├───▶ threads  one of the member's waits
//!                     │                                └───▶ memory   at once
//!   machines ◀── Submitter::complete ◀──────────────────────────────┘
//! ```
//!
//! Work that is the same for all back ends stands above them, once:
//! - room on rings, and members suspected of hanging ([`crate::members::ring_admission`]);
//! - elevators, the retry part by part, counting, and the machines to drive ([`submitter`]);
//! - the meaning of an error for the engine ([`fault`]).
//!
//! Below are an operation as a ring does it ([`ring`], [`zeroing`]) and as a thread does it
//! ([`threads`]). A batch is a turn: the operations that a worker's turn submits reach the kernel
//! together, and all completions of a turn are reported before any machine is driven.

pub(crate) mod fault;
pub(crate) mod ring;
pub(crate) mod submitter;
pub(crate) mod threads;
pub(crate) mod zeroing;
