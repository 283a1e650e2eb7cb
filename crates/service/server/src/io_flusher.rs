//! Declares this process to the kernel as one that writes for others (`PR_SET_IO_FLUSHER` of
//! prctl(2)).
//!
//! ```text
//!   file system ─ loop device, nbd or ublk ─▶ braid's worker ─ needs memory ─▶ the kernel moves or
//!        ▲                                                                    writes back pages
//!        └──────────────── which are locked until braid has answered ────────────────┘
//! ```
//!
//! A kernel on this host may use the array, at any door. Without the flag a worker that allocates
//! may wait for a page whose write-back waits for that worker. With it no allocation waits for I/O.
//! Threads inherit the flag from the thread that starts them.
//!
//! Containers lack CAP_SYS_RESOURCE, and so the flag. There a server with a file (FUSE, perhaps
//! below a loop device) does without huge pages: to make one, the kernel moves other pages first,
//! also those of a file system on the array (seen with Linux 6.18). Small pages are not made so.
//!
//! Invariants
//! - every worker has the flag, or has no huge pages; a command of `--run` does not have the flag
//!   `[check: workers_never_wait_for_pages_of_their_own_clients]`.

use rustix::io::Errno;
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::disable_transparent_huge_pages;

/// Declares this thread, and those it starts from now on. Without the right to that, a process that
/// serves a file gets no huge pages from now on.
pub(crate) fn declare(serves_file: bool) {
    let declared = configure_io_flusher_behavior(true);
    let settled = declared.or_else(|errno: Errno| match serves_file {
        true => disable_transparent_huge_pages(true),
        false => Err(errno),
    });
    if let Err(errno) = settled {
        tracing::debug!(target: "braid_server", %errno, "not known as one that writes for others");
    }
}

/// Calls `start`, which starts a program that does not write for others.
pub(crate) fn undeclared<T>(start: impl FnOnce() -> T) -> T {
    // Without the right to change the flag, this thread never had it.
    let was_cleared = configure_io_flusher_behavior(false).is_ok();
    let started = start();
    if was_cleared {
        // The right is still there.
        let _again = configure_io_flusher_behavior(true);
    }
    started
}
