//! The tests of the protocol, in one program: separate programs would each be linked.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure

mod client;
mod common;
mod extended;
mod fragmentation;
mod hostile;
mod negotiation;
mod uri;
