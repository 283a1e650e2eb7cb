//! Runs braid under a refusal of the operating system: a limit, or a failing system call.

use std::path::PathBuf;

use super::array::Array;
use super::process::{Ran, run};
use braid_test_needs::{Need, are_installed, skip};

/// A Python script that makes one system call fail (seccomp), and executes another program.
pub(crate) const FILTER: &str = r#"
import ctypes, os, struct, sys
number, errno = int(sys.argv[1]), int(sys.argv[2])
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50000 | errno), (6, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
given = Program(len(code), ctypes.addressof(program))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(given), 0, 0):
    sys.exit(99)
os.execvp(sys.argv[3], sys.argv[3:])
"#;

/// `io_uring_setup`, by its number on all machines.
pub(crate) const IO_URING_SETUP: u32 = 425;

/// `flock`, by its number on x86-64.
pub(crate) const FLOCK: u32 = 73;
pub(crate) const MOUNT: u32 = 165;
pub(crate) const SECCOMP: u32 = 317;

impl Array {
    /// Runs braid with system call `number` failing with `errno`; `None` if no filter is possible.
    pub(crate) fn braid_denied(&self, (number, errno): (u32, i32), words: &[&str]) -> Option<Ran> {
        if !are_installed(&["python3"]) {
            return None;
        }
        let (number, errno) = (number.to_string(), errno.to_string());
        let mut line: Vec<String> =
            ["-c", FILTER, &number, &errno, env!("CARGO_BIN_EXE_braid")].map(str::to_owned).into();
        line.extend(self.command_line(words, &self.members));
        let ran = run("python3", line);
        if ran.status.code() == Some(99) {
            skip(Need::Other, "no filter for system calls");
            return None;
        }
        Some(ran)
    }

    /// Runs braid after `limits`, a line of shell such as `ulimit -n 8`.
    pub(crate) fn braid_after(&self, limits: &str, words: &[&str], members: &[PathBuf]) -> Ran {
        let script = format!("{limits}; exec \"$@\"");
        let mut line: Vec<String> =
            ["-c", &script, "sh", env!("CARGO_BIN_EXE_braid")].map(str::to_owned).into();
        line.extend(self.command_line(words, members));
        run("sh", line)
    }
}
