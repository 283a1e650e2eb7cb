//! Whether what must not be possible is refused: tried by the process itself, at each start.
//!
//! What would do harm if it were possible (running a program, mounting) is not tried here but in `tests/inside.rs`.

use rustix::net::{AddressFamily, SocketType, socket};

use crate::ConfineError;

/// Tries to look at a folder that was not granted.
///
/// # Errors
/// It was possible.
pub fn files_are_closed() -> Result<(), ConfineError> {
    match std::fs::read_dir("/") {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(ConfineError::Loose("looking at all files")),
    }
}

/// Tries to make a socket of the network, and to change a limit.
///
/// # Errors
/// One of them was possible.
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
