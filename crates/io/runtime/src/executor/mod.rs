//! The one way to a member, and two back ends that carry it out.
//!
//! Where it stands: below the machines' loop ([`crate::drive`]) and what ends there ([`crate::completions`]); above
//! [`crate::members`], [`braid_member`] and [`braid_ring`]. It leaves events for machines, and drives none.
//!
//! ```text
//!   machines ──▶ Submitter::submit ──▶ room? (ring_admission) ──▶ ring     a worker gives it to the kernel
//!                     ▲                             │  │
//!                     │ kept, in line ──────────────┘  ├───▶ threads  one of the member's own waits for it
//!                     │                                └───▶ memory   at once
//!   machines ◀── Submitter::complete ◀──────────────────────────────┘
//! ```
//!
//! Everything that is the same whichever back end carries it out stands above them, and once: how much may be on rings and
//! which member is suspected of hanging ([`crate::members::ring_admission`]), elevators, trying again part by part, what an
//! error is to the engine ([`fault`]), counting, which machines to drive ([`submitter`]). Below are an operation as a ring does
//! it ([`ring`], [`zeroing`]) and as a thread does it ([`threads`]). A batch is a turn: what a worker's turn submits reaches
//! the kernel together, and what a turn finds ended is told before anything is driven.

pub(crate) mod fault;
pub(crate) mod ring;
pub(crate) mod submitter;
pub(crate) mod threads;
pub(crate) mod zeroing;
