//! Requirements of a test on the machine, and the consequence if one is missing.
//!
//! Where it stands: under the tests of crates that use devices, processes or the kernel; in no
//! product. A test that cannot run calls [`skip`] (or [`needs!`], for programs), which prints
//! `SKIPPED: why` so that the test harness does not hide it, and returns.
//!
//! A skipped test looks like one that passed. So `cargo xtask test` finds out what the machine has
//! ([`found`]), without the code that the tests use, and passes that list in [`VARIABLE`]. A test
//! that skips because it misses something on the list fails. `cargo xtask test` counts the other
//! skips, and names them in its summary.
//!
//! ```text
//!   xtask: found() ─▶ BRAID_TEST_MUST_RUN=programs,loop-devices,...
//!                  ─▶ test: skip(what, why) ─▶ panic | SKIPPED: why
//! ```
//!
//! Invariants
//! - A present requirement is no reason to skip [check: a_test_that_could_run_is_not_skipped].
#![forbid(unsafe_code)]

use std::fs::{File, read_to_string};
use std::io::Write;
use std::path::Path;

/// The environment variable in which `cargo xtask test` passes what it found on the machine: names
/// of [`Need`]s, separated by commas.
pub const VARIABLE: &str = "BRAID_TEST_MUST_RUN";

/// The prefix of the line that a skipped test prints.
pub const MARK: &str = "SKIPPED: ";

/// Folders of administrators' programs, which a user's PATH may lack.
const MORE_FOLDERS: &str = "/usr/sbin:/sbin";

/// A property of the machine that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Installed programs; `cargo xtask test` installs all that tests need.
    Program,
    /// Loop devices, and mounts of file systems on them.
    LoopDevices,
    /// Mounts of a FUSE file system that the test serves itself.
    Fuse,
    /// io_uring.
    Rings,
    /// A property of the machine that `cargo xtask test` does not look for.
    Other,
}

impl Need {
    /// The need's name in [`VARIABLE`]; `None` if `cargo xtask test` does not look for it.
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Program => Some("programs"),
            Self::LoopDevices => Some("loop-devices"),
            Self::Fuse => Some("fuse"),
            Self::Rings => Some("io_uring"),
            Self::Other => None,
        }
    }
}

/// The value of [`VARIABLE`] for this machine, once all programs are installed.
#[must_use]
pub fn found() -> String {
    let is_root = rustix::process::geteuid().is_root();
    let opens = |path| File::options().read(true).write(true).open(path).is_ok();
    // Checks whether io_uring is permitted. The setting exists since Linux 6.6, and a system call
    // filter may forbid io_uring as well.
    let disabled = read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let is_filtered = !status.lines().any(|line| line == "Seccomp:\t0");
    let found = [
        (Need::Program, true),
        (Need::LoopDevices, is_root && opens("/dev/loop-control")),
        (Need::Fuse, is_root && opens("/dev/fuse")),
        (Need::Rings, matches!(disabled.trim(), "" | "0") && !is_filtered),
    ];
    let names = found.iter().filter(|(_, is_here)| *is_here).filter_map(|(need, _)| need.name());
    names.collect::<Vec<_>>().join(",")
}

/// Whether a test that misses `need` has to fail. `found` is the value of [`VARIABLE`].
fn must_run(found: &str, need: Need) -> bool {
    need.name().is_some_and(|name| found.split(',').any(|one| one == name))
}

/// Prints that this test is skipped, and why.
///
/// # Panics
/// If [`VARIABLE`] says that the machine has what the test misses.
#[track_caller]
pub fn skip(need: Need, why: &str) {
    let found = std::env::var(VARIABLE).unwrap_or_default();
    assert!(!must_run(&found, need), "not to be skipped here ({VARIABLE}={found}): {why}");
    // Not printed by `println!`, whose output the harness hides if the test passes.
    writeln!(std::io::stdout(), "{MARK}{why}").expect("standard output is open");
}

/// Whether a program is in a folder of PATH, or in one of `MORE_FOLDERS`.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut folders = path.split(':').chain(MORE_FOLDERS.split(':'));
    folders.any(|folder| Path::new(folder).join(program).is_file())
}

/// Whether all of these programs are installed. If one is not, the test is [skipped](skip).
#[track_caller]
#[must_use]
pub fn are_installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_installed(program));
    missing.inspect(|program| skip(Need::Program, &format!("no {program}"))).is_none()
}

/// Skips the calling test if a program is missing, and returns from the test.
#[macro_export]
macro_rules! needs {
    ($($program:literal),+) => {
        if !$crate::are_installed(&[$($program),+]) {
            return;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Need; 5] = [Need::Program, Need::LoopDevices, Need::Fuse, Need::Rings, Need::Other];

    #[test]
    fn a_test_that_could_run_is_not_skipped() {
        assert!(
            ALL.into_iter().all(|need| !must_run("", need)),
            "without xtask all may be skipped"
        );
        for need in ALL {
            let all = "programs,loop-devices,fuse,io_uring";
            assert_eq!(must_run(all, need), need != Need::Other, "{need:?}");
            assert_eq!(must_run("programs,fuse", need), matches!(need, Need::Program | Need::Fuse));
        }
        assert!(!must_run("fuses", Need::Fuse));
    }

    #[test]
    fn programs_are_always_expected() {
        assert!(must_run(&found(), Need::Program));
        assert!(!must_run(&found(), Need::Other));
    }

    #[test]
    fn programs_are_looked_for() {
        assert!(is_installed("sh") && !is_installed("no-such-program"));
        assert!(are_installed(&["sh"]));
    }
}
