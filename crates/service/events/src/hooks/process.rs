//! Runs a program with bytes as its input, within a deadline.
//!
//! The program has its own process group, which is killed at the deadline, so that a shell does not
//! leave its children behind. The program's input is a file in memory: a program that does not read
//! its input delays nothing. The program's output goes to braid's standard error, because braid's
//! standard output is for data.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::ending::Ending;
use crate::outlet::DeliveryError;

/// Intervals between checks whether the program has ended: the first interval, and the longest.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Environment variables that only braid may have: with them, the service manager would take the
/// program's messages for braid's.
const NOT_INHERITED: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// Runs the program to its end.
///
/// # Errors
/// The program did not start, or did not end before its deadline.
pub(crate) fn run(
    command: &mut Command,
    input: &[u8],
    patience: Duration,
    ending: &Ending,
) -> Result<ExitStatus, DeliveryError> {
    let mut child = start(command, input).map_err(DeliveryError::Start)?;
    let begun = Instant::now();
    let mut pause = LOOKS.0;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(DeliveryError::Start(error)),
        }
        if begun.elapsed() >= patience {
            kill(&mut child);
            return Err(DeliveryError::TimedOut(patience));
        }
        if ending.allows(pause).is_none() {
            kill(&mut child);
            return Err(DeliveryError::Ended);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOKS.1);
    }
}

fn start(command: &mut Command, input: &[u8]) -> std::io::Result<Child> {
    let mut file = File::from(memfd_create("braid-event", MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    file.rewind()?;
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    let out = std::io::stderr().as_fd().try_clone_to_owned()?;
    command.stdin(Stdio::from(file)).stdout(Stdio::from(out)).process_group(0).spawn()
}

fn kill(child: &mut Child) {
    // The child is not reaped yet, so no other process can have the child's process ID.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The call fails if the process group has just ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_that_is_not_read_holds_nothing_up() {
        let input = vec![b'x'; 4 << 20];
        let (patience, ending) = (Duration::from_secs(60), Ending::default());
        let status = run(&mut shell("exit 7"), &input, patience, &ending).expect("it ends");
        assert_eq!(status.code(), Some(7));
        let counts = "test $(wc -c) = 4194304";
        assert!(run(&mut shell(counts), &input, patience, &ending).expect("it ends").success());
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let pids = folder.path().join("pids");
        let script = format!("sleep 1000 & echo $! > '{}'; wait", pids.display());
        let ending = Ending::default();
        // Ends the wait only once the program has begun, however busy the machine is.
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while std::fs::read_to_string(&pids).map_or(true, |text| !text.ends_with('\n')) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                ending.begin(Instant::now());
            });
            run(&mut shell(&script), b"", Duration::from_secs(60), &ending)
        });
        assert!(matches!(outcome, Err(DeliveryError::Ended)), "{outcome:?}");
        let child = std::fs::read_to_string(&pids).expect("its child").trim().to_owned();
        let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // The program's child may be a zombie until init reaps it.
        let is_over = || state().is_empty() || state().contains(") Z ");
        let until = Instant::now() + Duration::from_secs(30);
        while !is_over() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_over(), "{}", state());
        let patience = Duration::from_millis(20);
        let outcome = run(&mut shell("sleep 1000"), b"", patience, &Ending::default());
        assert!(matches!(outcome, Err(DeliveryError::TimedOut(_))), "{outcome:?}");
        let absent = run(&mut Command::new("/nonexistent"), b"", patience, &Ending::default());
        assert!(matches!(absent, Err(DeliveryError::Start(_))), "{absent:?}");
    }
}
