//! File descriptors: as many as clients may need, or a word about how many there are.
//!
//! Every client takes one. The soft limit of the process is often 1024, or what a service manager says; it is raised as
//! far as the hard one allows, which needs no right. Without room for one client there is no point in serving.
//!
//! How many are open is read from `/proc`. In a root without it they are taken to be as many as the lowest free number
//! says: the kernel gives that one first, and only a number that was closed in between makes it too low.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};

/// Has an entry for each that is open, and one for looking.
const LIST: &str = "/proc/self/fd";

/// A shell's limit once root has raised it, at least.
const ENOUGH: u64 = 1024;

/// Descriptors beside clients' that may come to be open: the control socket's clients (32 at most), its runtime, and what looks at the system.
const SPARE: u64 = 48;

/// Raises the limit so that there is room for so many clients beside what is open and may be.
pub(super) fn raise(clients: usize) {
    let limit = getrlimit(Resource::Nofile);
    let (Some(soft), Some(open)) = (limit.current, open_by(LIST.as_ref())) else { return };
    let wanted = open + clients as u64 + SPARE;
    if soft < wanted {
        let raised = limit.maximum.map_or(wanted, |hard| hard.min(wanted));
        let limit = Rlimit { current: Some(raised.max(soft)), maximum: limit.maximum };
        // What is left is looked at afterwards, however this went.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Clients that there is room for; all of them if so many are not too many.
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

/// There are none for what is needed. A shell may raise its limit no further than this process: that is for root.
pub(super) fn none_left(what: String) -> CliError {
    // More than there are: whoever follows the advice has won something.
    let more = getrlimit(Resource::Nofile).maximum.map_or(ENOUGH, |hard| ENOUGH.max(2 * hard));
    CliError::new(Code::Shortage, what)
        .because("the limit of this process (ulimit -n) is as high as it may raise it")
        .remedy(Risk::Look, "See how far it may be raised", "ulimit -Hn")
        .remedy(
            Risk::Change,
            "Have root raise it for this shell, and serve again",
            format!("sudo prlimit --pid $$ --nofile={more}:{more}"),
        )
}

/// How many are open, by the folder that lists them; nothing if there is not even one left to look with.
fn open_by(list: &Path) -> Option<u64> {
    match std::fs::read_dir(list) {
        // Reading the folder takes one itself.
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
        // Other tests open and close things beside this one.
        assert!(open() > Some(0) && before > Some(0));
        drop(file);
        raise(1);
        assert_eq!(room(1).unwrap(), 1);
    }

    /// Without `/proc` nothing was served: all descriptors were said to be in use.
    #[test]
    fn a_list_that_is_not_there_says_nothing_of_how_many_are_left() {
        let open = open_by("/nowhere/fd".as_ref()).expect("some are left");
        let limit = getrlimit(Resource::Nofile).current.expect("a limit");
        assert!((3..limit).contains(&open), "{open} of {limit}");
    }
}
