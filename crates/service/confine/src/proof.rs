//! Proof of confinement: the process itself tries forbidden operations at each start.
//!
//! Operations that would do harm if they succeeded (running a program, mounting) are tried in
//! `tests/inside.rs` instead.

use rustix::net::{AddressFamily, SocketType, socket};

use crate::ConfineError;

/// Tries to list a folder without a grant.
///
/// # Errors
/// The attempt succeeded.
pub fn files_are_closed() -> Result<(), ConfineError> {
    match std::fs::read_dir("/") {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(ConfineError::Loose("looking at all files")),
    }
}

/// Tries to make a network socket, and to change a limit.
///
/// # Errors
/// One of the attempts succeeded.
pub fn calls_are_closed() -> Result<(), ConfineError> {
    let network = socket(AddressFamily::INET, SocketType::STREAM, None);
    if network.err() != Some(rustix::io::Errno::PERM) {
        return Err(ConfineError::Loose("a socket of the network"));
    }
    let core = rustix::process::getrlimit(rustix::process::Resource::Core);
    if rustix::process::setrlimit(rustix::process::Resource::Core, core).is_ok() {
        return Err(ConfineError::Loose("changing a limit"));
    }
    Ok(())
}
