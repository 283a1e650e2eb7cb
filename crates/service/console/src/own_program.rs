//! Where this program lies, for those that start it again: the kernel's word, or else the command line's.
//!
//! The kernel's is a link in `/proc`, which a root without it does not have.

use std::path::PathBuf;

/// Its path, or a name that a command is found by.
///
/// # Errors
/// Neither says it.
pub fn own_program() -> std::io::Result<PathBuf> {
    let named = || std::env::args_os().next().filter(|word| !word.is_empty()).map(PathBuf::from);
    std::env::current_exe().or_else(|error| named().ok_or(error))
}
