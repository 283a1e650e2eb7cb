//! The path of this program, with which it can start itself again: from the kernel, or else from
//! the command line.
//!
//! The kernel's path is a link in `/proc`, which a chroot may lack.

use std::path::PathBuf;

/// The program's path, or a name to look up in `$PATH`.
///
/// # Errors
/// Neither the kernel nor the command line has the path.
pub fn own_program() -> std::io::Result<PathBuf> {
    let named = || std::env::args_os().next().filter(|word| !word.is_empty()).map(PathBuf::from);
    std::env::current_exe().or_else(|error| named().ok_or(error))
}
