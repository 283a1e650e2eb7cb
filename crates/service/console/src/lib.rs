//! Braid's interface to people: errors with their codes, causes and remedies, exit statuses, sizes,
//! tables and colour. Also private files, signals and the umask.
//!
//! The crate makes text from disks and the network safe for terminals ([`output::printable`]).

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
