//! Drills: file systems made by their own tools, laid out by the definition of each level, and
//! solved.
#![allow(clippy::cast_possible_truncation, reason = "arrays of drills are small")]

mod drills;
mod memory_array;
mod reshape_progress;
mod volumes;
