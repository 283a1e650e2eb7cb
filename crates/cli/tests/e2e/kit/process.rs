//! Runs other programs with a deadline, or concurrently with the test.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::remedies::CommandEnv;

/// Deadline of any program that the tests run, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);

/// Folders of administrators' programs, which a user's PATH may lack.
const MORE_FOLDERS: &str = "/usr/sbin:/sbin";

/// Prints a line past the test harness, which would capture it.
pub(crate) fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("standard error is open");
}

fn search_path() -> String {
    format!("{}:{MORE_FOLDERS}", std::env::var("PATH").unwrap_or_default())
}

/// A shell in which `braid` is this build's. The caller sets the folders of the arrays.
pub(crate) fn shell(line: &str) -> Command {
    let braid = Path::new(env!("CARGO_BIN_EXE_braid"));
    let folder = braid.parent().expect("a folder").display();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).stdin(Stdio::null());
    shell.env("PATH", format!("{folder}:{}", search_path())).env("LC_ALL", "C");
    shell
}

/// Whether a server listens on this Unix socket. The socket's file exists a moment before.
pub(crate) fn is_heard(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

/// Waits until `ready` returns true; panics with `what` after `limit`.
pub(crate) fn wait_until(what: &str, limit: Duration, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        sleep(POLL);
    }
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A program that runs concurrently with the test, ended on drop at the latest.
pub(crate) struct Background {
    child: Child,
    words: String,
    stdout: File,
    stderr: File,
    command_env: Option<CommandEnv>,
}

impl Background {
    pub(crate) fn spawn<S: AsRef<OsStr>>(
        program: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", search_path()).env("LC_ALL", "C");
        Self::spawn_command(command, "")
    }

    /// Starts a program with `input` on its standard input.
    pub(crate) fn spawn_command(mut command: Command, input: &str) -> Self {
        let words = format!("{command:?}");
        let command_env = CommandEnv::of(&command);
        let file = || tempfile::tempfile().expect("a temporary file");
        let (stdout, stderr, mut stdin) = (file(), file(), file());
        stdin.write_all(input.as_bytes()).and_then(|()| stdin.rewind()).expect("writing input");
        let clone = |file: &File| Stdio::from(file.try_clone().expect("a descriptor"));
        command.stdin(stdin).stdout(clone(&stdout)).stderr(clone(&stderr));
        let child = command.spawn().unwrap_or_else(|error| panic!("{words}: {error}"));
        Self { child, words, stdout, stderr, command_env }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill_process(Pid::from_raw(id).expect("not zero"), signal).expect("our own child");
    }

    /// Sends SIGTERM to the program, and waits for its end.
    pub(crate) fn terminate(mut self) {
        self.signal(Signal::TERM);
        wait_until("a client to end", DEADLINE, || self.has_ended());
    }

    pub(crate) fn wait(mut self) -> Ran {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                break status;
            }
            assert!(start.elapsed() < DEADLINE, "{} does not end", self.words);
            sleep(POLL);
        };
        let (stdout, stderr) = (text(&mut self.stdout), text(&mut self.stderr));
        if let Some(command_env) = self.command_env.take().filter(|_| !status.success()) {
            command_env.try_each(&stdout);
        }
        Ran { status, stdout, stderr }
    }

    /// Waits for the program's end, which must be a success; returns its output.
    pub(crate) fn wait_ok(self) -> String {
        let words = self.words.clone();
        let ran = self.wait();
        assert!(ran.status.success(), "{words}: {}\n{}\n{}", ran.status, ran.stdout, ran.stderr);
        ran.stdout
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The program has usually ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("reading output");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a program to its end, success or not.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Ran {
    Background::spawn(program, arguments).wait()
}

/// Runs a program that must succeed; returns its output.
pub(crate) fn ok<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> String {
    Background::spawn(program, arguments).wait_ok()
}
