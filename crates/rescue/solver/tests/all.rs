//! Drills: other tools make file systems, the definition of each level distributes them over
//! members, and the solver solves them.
#![allow(clippy::cast_possible_truncation, reason = "arrays of drills are small")]

mod drills;
mod memory_array;
mod reshape_progress;
mod volumes;
