//! LVM's own volumes, and malformed ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod groups;
mod kit;
mod pools;
mod tools;
