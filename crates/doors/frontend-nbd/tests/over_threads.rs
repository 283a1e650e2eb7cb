//! The tests of the server, in one program: a program for each file is linked for each file.
//!
//! `over_the_ring` has most of them once more; what counts allocations is alone in its process.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure

mod clients;
mod common;
mod endpoint;
mod hostile;
mod server;
mod stop;
mod stretches;
mod tls;
