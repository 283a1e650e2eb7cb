//! What LVM's own tools make, and what nobody should.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod groups;
mod kit;
mod pools;
mod tools;
