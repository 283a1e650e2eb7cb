//! Ends of serving: a signal, a request at the control socket, or the end of the command that the
//! array is served for.
//!
//! The first signal to stop stops the array cleanly. A second such signal ends the process at once,
//! which to the array is like a crash. Other signals that usually end a process are reported once
//! each, and have no other effect.

use std::collections::BTreeSet;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::iterator::Signals;

use super::client_addresses::ClientAddresses;
use super::io_flusher::undeclared;
use braid_console::error::Exit;
use braid_console::signals::{ENDING, ignored, is_ending};

#[derive(Debug)]
pub(crate) enum Ending {
    /// A signal or a request to stop.
    Signal,
    Command(std::io::Result<ExitStatus>),
}

enum WatchEvent {
    Ending(Ending),
    /// A signal with this number that does not end serving.
    Ignored(i32),
}

/// A handle of the command of `--run`; `None` if the kernel gives no handle.
pub(crate) struct RunningCommand(Option<OwnedFd>);

impl RunningCommand {
    /// Sends SIGTERM to the command, which may have ended already.
    pub(crate) fn ask_to_end(&self) {
        if let Some(handle) = &self.0 {
            let _ = pidfd_send_signal(handle, Signal::TERM);
        }
    }
}

/// A handle that requests a stop of the server, as a signal does.
#[derive(Clone)]
pub(crate) struct Stopper(Sender<WatchEvent>);

impl Stopper {
    pub(crate) fn stop(&self) {
        // If serving has ended for another reason, no thread receives the request.
        let _ = self.0.send(WatchEvent::Ending(Ending::Signal));
    }
}

/// Receives requests to end the server: the first one and later ones.
pub(crate) struct Watch {
    heard: Receiver<WatchEvent>,
    sender: Sender<WatchEvent>,
}

impl Watch {
    /// Takes the process's signals over: from now on, no signal ends the process by itself.
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut signals = Signals::new(ENDING.iter().map(|s| s.as_raw()).chain(ignored()))?;
        let (sender, heard) = channel();
        let told = sender.clone();
        thread::Builder::new().name("braid-signals".into()).spawn(move || {
            let mut seen = BTreeSet::new();
            let mut asked = false;
            for number in signals.forever() {
                if !is_ending(number) {
                    if seen.insert(number) {
                        // The receiver no longer exists once serving has ended.
                        let _ = told.send(WatchEvent::Ignored(number));
                    }
                    continue;
                }
                let is_second = std::mem::replace(&mut asked, true);
                if is_second || told.send(WatchEvent::Ending(Ending::Signal)).is_err() {
                    errln!("ended at once by a second signal: the array is left as after a crash");
                    std::process::exit(i32::from(Exit::Interrupted.number()));
                }
            }
        })?;
        Ok(Self { heard, sender })
    }

    /// A watch without signals, for an array whose server handles them.
    pub(crate) fn without_signals() -> Self {
        let (sender, heard) = channel();
        Self { heard, sender }
    }

    pub(crate) fn stopper(&self) -> Stopper {
        Stopper(self.sender.clone())
    }

    /// Runs `command` in a shell with `$uri`, `$file`, `$device`, `$vhost_user` and the user's
    /// umask. When the command ends, serving ends.
    pub(crate) fn run(
        &self,
        command: &str,
        addresses: &ClientAddresses,
        umask: Mode,
    ) -> std::io::Result<RunningCommand> {
        let word = |place: Option<&String>| place.map_or("", String::as_str).to_owned();
        let script = format!("umask {:04o}; {command}", umask.bits());
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &script])
            .env("uri", word(addresses.uris.first()))
            .env("file", word(addresses.file.as_ref()))
            .env("device", word(addresses.device.as_ref()))
            .env("vhost_user", word(addresses.vhost_user.as_ref()));
        let mut child: Child = undeclared(|| shell.spawn())?;
        // Takes the handle before the wait: afterwards another process may have the ID.
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let handle = id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        let told = self.sender.clone();
        thread::Builder::new().name("braid-command".into()).spawn(move || {
            // If serving has ended for another reason, no thread receives the command's end.
            let _ = told.send(WatchEvent::Ending(Ending::Command(child.wait())));
        })?;
        Ok(RunningCommand(handle))
    }

    /// Waits at most `time` for the command to end.
    pub(crate) fn wait_for_command(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let left = || deadline.saturating_duration_since(Instant::now());
        // The caller does not care whether the command ended or the time is up.
        while let Ok(WatchEvent::Ignored(_)) = self.heard.recv_timeout(left()) {}
    }

    /// Whether a request to end comes within `time`.
    pub(crate) fn has_ended(&self, time: Duration) -> bool {
        matches!(self.heard.recv_timeout(time), Ok(WatchEvent::Ending(_)))
    }

    /// Waits for the next request to end; calls `ignored` for each signal that requests no end.
    pub(crate) fn wait(&self, mut ignored: impl FnMut(i32)) -> Ending {
        loop {
            match self.heard.recv().expect("we hold a sender ourselves") {
                WatchEvent::Ignored(number) => ignored(number),
                WatchEvent::Ending(ending) => return ending,
            }
        }
    }
}
