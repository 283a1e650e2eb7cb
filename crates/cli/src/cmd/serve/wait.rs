//! What ends a served array: a signal, or the end of the command that it was served for.

use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Why serving ends.
#[derive(Debug)]
pub(crate) enum Ending {
    /// One of SIGTERM, SIGINT, SIGHUP.
    Signal,
    /// The command has ended.
    Command(std::io::Result<ExitStatus>),
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
            for _ in signals.forever() {
                if told.send(Ending::Signal).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { endings, sender })
    }

    /// Runs `command` in a shell with `$uri` set; its end is an ending. The process's id is returned.
    pub(crate) fn run(&self, command: &str, uri: &str) -> std::io::Result<u32> {
        let mut child: Child =
            Command::new("/bin/sh").args(["-c", command]).env("uri", uri).spawn()?;
        let id = child.id();
        let told = self.sender.clone();
        thread::Builder::new().name("braid-command".into()).spawn(move || {
            // Nobody listens any more once serving has ended for another reason.
            let _ = told.send(Ending::Command(child.wait()));
        })?;
        Ok(id)
    }

    /// Waits for the next ending.
    pub(crate) fn wait(&self) -> Ending {
        self.endings.recv().expect("we hold a sender ourselves")
    }
}
