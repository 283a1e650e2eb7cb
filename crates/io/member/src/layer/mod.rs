//! Members around members: faults, holes, delay, a part of one, and writes that go elsewhere.
//!
//! Each layer is a [`Member`](crate::Member) that owns another member and adds one thing, so layers
//! stack in any order. No layer knows which member it wraps.
//!
//! Invariant: a layer without a setting changes nothing (`tests/layers.rs`).

mod faulty;
mod holes;
pub mod overlay;
mod part;
mod patched;
mod slow;

pub use faulty::{Fault, FaultId, Faults, Faulty, Operation, Persistence};
pub use holes::{Holes, Lenient};
pub use overlay::{Overlay, OverlayError};
pub use part::Part;
pub use patched::{Patched, Sectors};
pub use slow::{Delays, Slow};
