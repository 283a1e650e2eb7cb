//! What LVM's own tools make, and what nobody should.
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod groups;
mod kit;
mod pools;
mod tools;
