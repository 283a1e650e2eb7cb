//! File descriptors: raises the limit for clients, and reports how many fit.
//!
//! Every client takes one descriptor. The soft limit of the process is often 1024, or set by a
//! service manager. The server raises the soft limit up to the hard limit, which needs no
//! privilege. If descriptors remain for no client, the server refuses to serve.
//!
//! `/proc` lists the open descriptors. In a root without `/proc`, the count is the lowest free
//! descriptor number. The kernel hands out this number first, so only gaps left by closed
//! descriptors make the count too low.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};

/// A folder that lists each open descriptor, and in addition the one that reads the list.
const LIST: &str = "/proc/self/fd";

/// Lower bound of the shell limit that root is advised to set.
const ENOUGH: u64 = 1024;

/// Descriptors other than those of clients: at most 32 clients of the control socket, its runtime,
/// and reads of system state.
const SPARE: u64 = 48;

/// Raises the soft limit to fit `clients` in addition to open and expected descriptors.
pub(super) fn raise(clients: usize) {
    let limit = getrlimit(Resource::Nofile);
    let (Some(soft), Some(open)) = (limit.current, open_by(LIST.as_ref())) else { return };
    let wanted = open + clients as u64 + SPARE;
    if soft < wanted {
        let raised = limit.maximum.map_or(wanted, |hard| hard.min(wanted));
        let limit = Rlimit { current: Some(raised.max(soft)), maximum: limit.maximum };
        // If the limit stays, the caller finds fewer free descriptors.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Number of clients for which descriptors are free, at most `clients`.
pub(super) fn room(clients: usize) -> Result<usize, CliError> {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(clients) };
    let left = limit.saturating_sub(open_by(LIST.as_ref()).unwrap_or(limit));
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    if left == 0 {
        let what = format!("no client could connect: all {limit} file descriptors are in use");
        return Err(none_left(what));
    }
    Ok(left.min(clients))
}

/// Error for a shortage of descriptors. The shell cannot raise its limit beyond this process's
/// limit, but root can.
pub(super) fn none_left(what: String) -> CliError {
    // Advises a limit above the current one, so that the advice helps.
    let more = getrlimit(Resource::Nofile).maximum.map_or(ENOUGH, |hard| ENOUGH.max(2 * hard));
    CliError::new(Code::Shortage, what)
        .because("this process may not raise its limit (ulimit -n) further")
        .remedy(Risk::Look, "See the highest allowed limit", "ulimit -Hn")
        .remedy(
            Risk::Change,
            "Let root raise it for this shell, and serve again",
            format!("sudo prlimit --pid $$ --nofile={more}:{more}"),
        )
}

/// The number of open descriptors, from the folder `list`. `None` if no descriptor is free to open
/// the folder.
fn open_by(list: &Path) -> Option<u64> {
    match std::fs::read_dir(list) {
        // Reading the folder takes one descriptor itself.
        Ok(entries) => Some((entries.count() as u64).saturating_sub(1)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            let lowest = File::open("/").ok()?.as_raw_fd();
            u64::try_from(lowest).ok()
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_counted() {
        let open = || open_by(LIST.as_ref());
        let before = open();
        let file = std::fs::File::open("/dev/null").unwrap();
        // Other tests open and close descriptors at the same time.
        assert!(open() > Some(0) && before > Some(0));
        drop(file);
        raise(1);
        assert_eq!(room(1).unwrap(), 1);
    }

    /// Regression: without `/proc` the server took all descriptors for used, and refused to serve.
    #[test]
    fn a_list_that_is_not_there_says_nothing_of_how_many_are_left() {
        let open = open_by("/nowhere/fd".as_ref()).expect("some are left");
        let limit = getrlimit(Resource::Nofile).current.expect("a limit");
        assert!((3..limit).contains(&open), "{open} of {limit}");
    }
}
