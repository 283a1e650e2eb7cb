//! Finds arrays: opens and probes devices, assembles members, replays logs after a crash, saves
//! bytes that a command overwrites, and finds served arrays.
//!
//! ```text
//!   paths ─ devices, probe ─▶ probed members ─ ready ─▶ open array ─ replay ─▶ ready to be served
//!                                  └─ newest_state ───────┘    └─ undo
//! ```
//!
//! `newest_state` detects old copies. `undo` saves bytes before a command overwrites them.
//!
//! This crate runs no array and serves no client. [`refusal`] turns refusals into errors with
//! remedies.

#![forbid(unsafe_code)]

pub mod bitmap_file;
pub mod contents;
pub mod devices;
pub mod maps;
pub mod newest_state;
pub mod open_commands;
pub mod policy;
pub mod probe;
pub mod raid0_layout;
pub mod ready;
pub mod refusal;
pub mod replay;
pub mod running;
pub mod status;
pub mod undo;
pub mod window_copies;
