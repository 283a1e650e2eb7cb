//! What the engine's own tests and the simulator share, and no product is built with.
//!
//! - [`random`]: numbers that are the same everywhere.
//! - [`memory`]: payloads and arenas, slow and suspicious: what no step may do is asserted.
//! - [`content`]: what members must hold, from the geometry and the *definition* of parity alone, never with the code that
//!   the engine runs.

#![allow(clippy::cast_possible_truncation, reason = "a small world: all its numbers are small")]

pub mod content;
pub mod memory;
pub mod random;
