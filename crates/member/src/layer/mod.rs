//! Members around members: faults and delay.
//!
//! Each layer is a [`Member`](crate::Member) that owns another one and adds one thing, so they stack
//! in any order. None of them knows what it wraps.
//!
//! Invariant: a layer that was asked for nothing changes nothing (`tests/layers.rs`).

mod faulty;
mod patched;
mod slow;

pub use faulty::{Fault, FaultId, Faults, Faulty, Operation, Persistence};
pub use patched::{Patched, Sectors};
pub use slow::{Delays, Slow};
