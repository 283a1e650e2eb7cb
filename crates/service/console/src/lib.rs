//! How braid speaks to a person: errors with their codes, causes and remedies, exit statuses,
//! sizes, tables and colour; and the habits that every command and the service share: files that
//! only their owner may read, signals, the umask.
//!
//! What it does not do: decide anything about arrays. Text that comes from a disk or the wire is
//! made safe for terminals here ([`output::printable`]).

#![forbid(unsafe_code)]

#[macro_use]
pub mod output;

pub mod error;
mod globals;
pub mod own_program;
pub mod private;
pub mod regular;
pub mod signals;
pub mod state;

pub use globals::{Globals, state_dir};
