//! Runs this program as an operator would: commands that end, and a running `braid serve` whose
//! events the demo reads.
//!
//! A `braid serve` is killed when its owner leaves scope: an error leaves no process behind.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use braid_console::error::CliError;
use braid_console::error::code::Code;
use braid_console::own_program::own_program;
use braid_console::signals::flag_ending;

/// Longest wait for an event of the server; half a second is normal.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(30);
/// Time between two checks for a signal.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Whether a signal asked the demo to end.
#[derive(Clone)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles the ending signals: they set a flag, and no longer end the process by themselves.
    pub(super) fn new() -> std::io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        flag_ending(&flag)?;
        Ok(Self(flag))
    }

    /// Sleeps, and fails as soon as a signal has come.
    pub(super) fn sleep(&self, duration: Duration) -> Result<(), CliError> {
        let start = Instant::now();
        while start.elapsed() < duration {
            self.check()?;
            thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Fails if a signal has come.
    pub(super) fn check(&self) -> Result<(), CliError> {
        if !self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let error = CliError::new(
            Code::Interrupted,
            "interrupted; the temporary folder is \
                                                      removed",
        );
        Err(error.because("every process that was started has been ended"))
    }
}

/// The error for a check of the demo that failed.
pub(super) fn failed(what: impl Into<String>) -> CliError {
    CliError::new(Code::VerifyFailed, what)
}

/// The error for a process that cannot be started, watched or ended.
pub(super) fn system(what: impl Into<String>, error: &std::io::Error) -> CliError {
    CliError::new(Code::CommandFailed, what).caused_by(error)
}

/// The error for a member, or a copy of one, that cannot be read or written.
pub(super) fn member_error(what: impl Into<String>, error: &std::io::Error) -> CliError {
    CliError::new(Code::MemberIo, what).caused_by(error)
}

fn command(arguments: &[String]) -> Result<Command, CliError> {
    let program =
        own_program().map_err(|error| system("the path of this program is unknown", &error))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

/// Runs this program to its end. Returns its exit status and each line of JSON that it printed.
pub(super) fn run_to_end(arguments: &[String]) -> Result<(Option<i32>, Vec<Value>), CliError> {
    let output = command(arguments)?.output();
    let output = output.map_err(|error| system("this program cannot be run again", &error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let values = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    let values = values.map_err(|error| {
        failed("a command did not print JSON")
            .because(error.to_string())
            .because(text)
            .because(String::from_utf8_lossy(&output.stderr))
    })?;
    Ok((output.status.code(), values))
}

/// The error that a command printed, under its own code, or B082 if it printed none.
pub(super) fn passed_on(command: &str, values: &[Value]) -> CliError {
    let told = values.iter().rev().find_map(|value| {
        let code = value["code"].as_str()?.parse().ok()?;
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let error = CliError::new(code, format!("`{command}` failed: {}", text("title")));
        Some(text("cause").lines().fold(error, CliError::because))
    });
    told.unwrap_or_else(|| failed(format!("`{command}` failed and did not say why")))
}

/// A running `braid serve --json`.
pub(super) struct Serve {
    child: Child,
    /// Lines of the server's standard output.
    lines: Receiver<Value>,
    seen: Vec<Value>,
    interrupt: Interrupt,
}

impl Serve {
    pub(super) fn start(arguments: &[String], interrupt: &Interrupt) -> Result<Self, CliError> {
        let child = command(arguments)?.stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| system("`braid serve` did not start", &error))?;
        let output = child.stdout.take().expect("standard output is a pipe");
        let (sender, lines) = channel();
        // The thread ends with the child, since it reads the child's standard output.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines, seen: Vec::new(), interrupt: interrupt.clone() })
    }

    /// Waits for the next event of this name.
    pub(super) fn wait_for(&mut self, event: &str) -> Result<Value, CliError> {
        let start = Instant::now();
        while start.elapsed() < EVENT_WAIT_MAX {
            self.interrupt.check()?;
            match self.lines.recv_timeout(LOOK_INTERVAL) {
                Ok(value) => {
                    self.seen.push(value.clone());
                    if value["event"] == event {
                        return Ok(value);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(passed_on("braid serve", &self.seen)
                        .because(format!("it ended before it said {event}")));
                }
            }
        }
        Err(failed(format!("`braid serve` did not say {event} in {EVENT_WAIT_MAX:?}")))
    }

    /// Asks the server to stop, and returns its last event.
    pub(super) fn stop(mut self) -> Result<Value, CliError> {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let id = id.expect("a child has a process id");
        rustix::process::kill_process(id, rustix::process::Signal::TERM)
            .map_err(|error| system("`braid serve` cannot be stopped", &error.into()))?;
        let stopped = self.wait_for("stopped")?;
        let status = self.child.wait();
        let status = status.map_err(|error| system("`braid serve` cannot be awaited", &error))?;
        if stopped["clean"] != true || !status.success() {
            let error = failed("`braid serve` did not stop cleanly").because(stopped.to_string());
            return Err(error.because(status.to_string()));
        }
        Ok(stopped)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Kill and wait do nothing to a child that has ended and whose status was taken.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
