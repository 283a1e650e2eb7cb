//! Members around members: faults, delay, trace and counts.
//!
//! Each layer is a [`Member`](crate::Member) that owns another one and adds one thing, so they stack
//! in any order. None of them knows what it wraps.
//!
//! Invariant: a layer that was asked for nothing changes nothing (`tests/layers.rs`).

mod faulty;
mod slow;
mod stats;
mod trace;

pub use faulty::{Fault, FaultId, Faults, Faulty, Persistence};
pub use slow::{Delays, Slow};
pub use stats::{Counts, Stats, StatsMember};
pub use trace::{Operation, Record, Trace, Traced};
