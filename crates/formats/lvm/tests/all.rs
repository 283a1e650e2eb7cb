//! Tests with volumes of LVM's own tools, and with malformed ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod groups;
mod kit;
mod pools;
mod tools;
