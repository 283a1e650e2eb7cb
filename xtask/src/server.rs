//! `braid serve` as a child process: started, sent messages and killed.
//!
//! The caller chooses members, socket and options. This file does not know the array's content.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Time limit: longer than a start or a stop takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

/// The control socket of the server in this folder.
pub(crate) fn control_of(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

pub(crate) enum StartResult {
    Serving(Server),
    /// The server refused to start, with this error code.
    Refused(String),
}

/// A running server. A drop kills it.
pub(crate) struct Server {
    child: Child,
    events: Receiver<Value>,
    pub(crate) socket: PathBuf,
    /// Whether the event `assembled` reported the array as dirty.
    pub(crate) dirty: bool,
    pub(crate) degraded: u64,
}

impl Server {
    /// Starts the server with more options, without waiting. `folder` is for the server's sockets
    /// and state.
    pub(crate) fn spawn(
        braid: &Path,
        folder: &Path,
        members: &[PathBuf],
        options: &[&str],
    ) -> Result<Self> {
        Self::spawn_with(braid, (folder, None), members, options)
    }

    /// Starts the server with a runtime folder for state that outlives the server.
    pub(crate) fn spawn_with(
        braid: &Path,
        (folder, runtime): (&Path, Option<&Path>),
        members: &[PathBuf],
        options: &[&str],
    ) -> Result<Self> {
        let socket = folder.join("nbd.sock");
        // A killed server leaves its socket behind.
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(braid);
        command.arg("--json").arg("--state-dir").arg(folder.join("state")).arg("serve");
        command.arg("--nbd").arg(format!("nbd+unix:///?socket={}", socket.display()));
        command.args(options);
        command.arg("--control").arg(control_of(folder));
        command.envs(runtime.map(|runtime| ("BRAID_RUNTIME_DIR", runtime)));
        command.args(members).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("braid serve")?;
        let output = child.stdout.take().context("its output")?;
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, events, socket, dirty: false, degraded: 0 })
    }

    pub(crate) fn start(
        braid: &Path,
        folder: &Path,
        members: &[PathBuf],
        options: &[&str],
    ) -> Result<StartResult> {
        Self::spawn(braid, folder, members, options)?.serving()
    }

    pub(crate) fn serving(mut self) -> Result<StartResult> {
        let begun = Instant::now();
        loop {
            match self.events.recv_timeout(LIMIT.saturating_sub(begun.elapsed())) {
                Ok(event) if event["event"] == "assembled" => {
                    self.dirty = event["dirty"] == true;
                    self.degraded = event["degraded_slots"].as_u64().context("degraded_slots")?;
                }
                Ok(event) if event["event"] == "serving" => return Ok(StartResult::Serving(self)),
                Ok(event) => {
                    if let Some(code) = event["code"].as_str() {
                        return Ok(StartResult::Refused(code.to_owned()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("braid serve does not begin to serve"),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.ended()?;
                    let mut words = String::new();
                    let stderr = self.child.stderr.as_mut().context("its errors")?;
                    stderr.read_to_string(&mut words)?;
                    bail!("braid serve ended with {status}: {words}");
                }
            }
        }
    }

    pub(crate) fn hear(&self, event: &str, limit: Duration) -> Result<Value> {
        let begun = Instant::now();
        loop {
            match self.events.recv_timeout(limit.saturating_sub(begun.elapsed())) {
                Ok(said) if said["event"] == event => return Ok(said),
                Ok(_) => {}
                Err(_) => bail!("braid serve says no \"{event}\""),
            }
        }
    }

    pub(crate) fn process(&self) -> Result<Pid> {
        Pid::from_raw(i32::try_from(self.child.id())?).context("a process has a number")
    }

    /// Sends SIGKILL to the server, and waits for its end.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.ended().map(|_| ())
    }

    /// Waits for the server's end after a stop was requested. The server must flush everything,
    /// update superblocks, and exit with 0.
    pub(crate) fn stopped(mut self) -> Result<()> {
        let status = self.ended()?;
        let said: Vec<Value> = self.events.iter().collect();
        let last = said.iter().find(|event| event["event"] == "stopped");
        let last = last.with_context(|| format!("it said no \"stopped\" but {said:?}"))?;
        ensure!(status.success() && last["in_order"] == true, "it ended with {status} and {last}");
        Ok(())
    }

    pub(crate) fn stop(self) -> Result<()> {
        send(self.process()?, Signal::TERM)?;
        self.stopped()
    }

    /// Waits for the server's end; returns the exit status.
    pub(crate) fn ended(&mut self) -> Result<std::process::ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(begun.elapsed() < LIMIT, "braid serve does not end");
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Kill and wait fail if the server has ended, as it usually has.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to our own child, which has not been waited for.
pub(crate) fn send(process: Pid, signal: Signal) -> Result<()> {
    kill_process(process, signal).context("sending a signal")
}
