//! Refusals of the operating system: shortages, which are temporary, and all other refusals.
//!
//! A shortage says nothing about members. A shortage has its own error code, and a remedy that
//! shows the limit.

use braid_member::is_shortage;
use rustix::io::Errno;

use super::code::Code;
use super::{CliError, Risk};

/// Error for a resource that the operating system refused to this process: a thread, a folder, a
/// signal, memory.
pub fn system(what: impl Into<String>, error: &std::io::Error) -> CliError {
    match error.raw_os_error() {
        Some(errno) if is_shortage(errno) => shortage(what, errno).caused_by(error),
        _ => CliError::new(Code::System, what).caused_by(error),
    }
}

/// Whether the error says that a system resource ran out.
pub fn is_shortage_of(error: &std::io::Error) -> bool {
    error.raw_os_error().is_some_and(is_shortage)
}

/// Error for a system resource that ran out. The caller adds the cause.
pub fn shortage(what: impl Into<String>, errno: i32) -> CliError {
    let error = CliError::new(Code::Shortage, what);
    let look = |label: &str, command: &str| error.clone().remedy(Risk::Look, label, command);
    match Errno::from_raw_os_error(errno) {
        Errno::MFILE => look("See how many files a process may have open", "ulimit -n"),
        Errno::NFILE => look("See how many files are open in all", "cat /proc/sys/fs/file-nr"),
        Errno::AGAIN => look("See how many threads this user may have", "ulimit -u"),
        Errno::NOMEM => look("See what is free", "free -m").remedy(
            Risk::Look,
            "See what a process may have",
            "ulimit -v",
        ),
        _ => look("See the limits", "ulimit -a"),
    }
}
