//! What ends a served array: a signal, a request at its control socket, or the end of the command that it was served for.
//!
//! The first signal that asks for it stops the array cleanly; a second one ends the process at once, which the array
//! survives as it survives a crash. Others that would end a process are told, once each, and change nothing.

use std::collections::BTreeSet;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::iterator::Signals;

use super::reached::Reached;
use braid_console::error::Exit;
use braid_console::signals::{ENDING, ignored, is_ending};

/// Why serving ends.
#[derive(Debug)]
pub(crate) enum Ending {
    /// One of the signals that ask for it, or a request that does.
    Signal,
    /// The command has ended.
    Command(std::io::Result<ExitStatus>),
}

/// What the main thread is told.
enum Heard {
    Ending(Ending),
    /// A signal by this number that is no reason to end.
    Ignored(i32),
}

/// The command behind `--run`; without a handle where the kernel gives none.
pub(crate) struct Running(Option<OwnedFd>);

impl Running {
    /// Sends SIGTERM; whether it is still there to hear it does not matter.
    pub(crate) fn ask_to_end(&self) {
        if let Some(handle) = &self.0 {
            let _ = pidfd_send_signal(handle, Signal::TERM);
        }
    }
}

/// Asks for an end as a signal does.
#[derive(Clone)]
pub(crate) struct Stopper(Sender<Heard>);

impl Stopper {
    /// Asks for it.
    pub(crate) fn stop(&self) {
        // There is no listener any more once serving has ended for another reason.
        let _ = self.0.send(Heard::Ending(Ending::Signal));
    }
}

/// Hears of the first ending, and of later ones.
pub(crate) struct Watch {
    heard: Receiver<Heard>,
    sender: Sender<Heard>,
}

impl Watch {
    /// Takes the signals over. From now on they end nothing by themselves.
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
                        // There is no listener any more once serving has ended.
                        let _ = told.send(Heard::Ignored(number));
                    }
                    continue;
                }
                let is_second = std::mem::replace(&mut asked, true);
                if is_second || told.send(Heard::Ending(Ending::Signal)).is_err() {
                    errln!("ended at once, by a second signal: the array is left as after a crash");
                    std::process::exit(i32::from(Exit::Interrupted.number()));
                }
            }
        })?;
        Ok(Self { heard, sender })
    }

    /// One that hears of no signals: of an array beside others, whose server hears of them.
    pub(crate) fn without_signals() -> Self {
        let (sender, heard) = channel();
        Self { heard, sender }
    }

    /// For those who may have it end.
    pub(crate) fn stopper(&self) -> Stopper {
        Stopper(self.sender.clone())
    }

    /// Runs `command` in a shell with `$uri`, `$file`, `$device` and `$vhost_user` set, and the umask that the user has; its end is an ending.
    pub(crate) fn run(
        &self,
        command: &str,
        reached: &Reached,
        umask: Mode,
    ) -> std::io::Result<Running> {
        let word = |place: Option<&String>| place.map_or("", String::as_str).to_owned();
        let script = format!("umask {:04o}; {command}", umask.bits());
        let mut child: Child = Command::new("/bin/sh")
            .args(["-c", &script])
            .env("uri", word(reached.uris.first()))
            .env("file", word(reached.file.as_ref()))
            .env("device", word(reached.device.as_ref()))
            .env("vhost_user", word(reached.vhost_user.as_ref()))
            .spawn()?;
        // Before it is waited for: a number that was waited for may be another's by then.
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let handle = id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        let told = self.sender.clone();
        thread::Builder::new().name("braid-command".into()).spawn(move || {
            // There is no listener any more once serving has ended for another reason.
            let _ = told.send(Heard::Ending(Ending::Command(child.wait())));
        })?;
        Ok(Running(handle))
    }

    /// Waits for the command to end, but not for ever.
    pub(crate) fn wait_for_command(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let left = || deadline.saturating_duration_since(Instant::now());
        // Whether it came or time is up makes no difference to what is next.
        while let Ok(Heard::Ignored(_)) = self.heard.recv_timeout(left()) {}
    }

    /// Waits for the next ending; `ignored` is told of signals that are none.
    pub(crate) fn wait(&self, mut ignored: impl FnMut(i32)) -> Ending {
        loop {
            match self.heard.recv().expect("we hold a sender ourselves") {
                Heard::Ignored(number) => ignored(number),
                Heard::Ending(ending) => return ending,
            }
        }
    }
}
