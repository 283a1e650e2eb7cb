//! All tests of the protocol in one program, since each separate program would have to be linked.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure

mod client;
mod common;
mod extended;
mod fragmentation;
mod hostile;
mod negotiation;
mod uri;
