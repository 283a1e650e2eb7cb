//! What ends a served array: a signal, or the end of the command that it was served for.
//!
//! The first signal stops the array cleanly; a second one ends the process at once, which the array
//! survives as it survives a crash.

use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::Exit;

/// Why serving ends.
#[derive(Debug)]
pub(crate) enum Ending {
    /// One of SIGTERM, SIGINT, SIGHUP.
    Signal,
    /// The command has ended.
    Command(std::io::Result<ExitStatus>),
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

/// Hears of the first ending, and of later ones.
pub(crate) struct Watch {
    endings: Receiver<Ending>,
    sender: Sender<Ending>,
}

impl Watch {
    /// Takes the signals over. From now on they end nothing by themselves.
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let (sender, endings) = channel();
        let told = sender.clone();
        thread::Builder::new().name("braid-signals".into()).spawn(move || {
            for (count, _) in signals.forever().enumerate() {
                if count > 0 || told.send(Ending::Signal).is_err() {
                    std::process::exit(i32::from(Exit::Interrupted.number()));
                }
            }
        })?;
        Ok(Self { endings, sender })
    }

    /// Runs `command` in a shell with `$uri` set; its end is an ending.
    pub(crate) fn run(&self, command: &str, uri: &str) -> std::io::Result<Running> {
        let mut child: Child =
            Command::new("/bin/sh").args(["-c", command]).env("uri", uri).spawn()?;
        // Before anybody waits for it: a number that was waited for may be another's by then.
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let handle = id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        let told = self.sender.clone();
        thread::Builder::new().name("braid-command".into()).spawn(move || {
            // Nobody listens any more once serving has ended for another reason.
            let _ = told.send(Ending::Command(child.wait()));
        })?;
        Ok(Running(handle))
    }

    /// Waits for the next ending, but not for ever.
    pub(crate) fn wait_for(&self, time: Duration) {
        // Whether it came or time is up makes no difference to what is next.
        let _ = self.endings.recv_timeout(time);
    }

    /// Waits for the next ending.
    pub(crate) fn wait(&self) -> Ending {
        self.endings.recv().expect("we hold a sender ourselves")
    }
}
