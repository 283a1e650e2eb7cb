//! All tests of the server in one program, since each separate program would have to be linked.
//!
//! `over_the_ring` runs most of these tests once more. Tests that count allocations have programs
//! of their own.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure

mod clients;
mod common;
mod endpoint;
mod hostile;
mod server;
mod stop;
mod stretches;
mod tls;
