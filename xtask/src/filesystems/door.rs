//! Doors that make an array a file: braid's own FUSE, or nbdfuse over NBD.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::programs::run;

/// Longer than a door's file takes to appear or vanish.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Door {
    /// `serve --fuse`
    Fuse,
    /// nbdfuse of libnbd, over a Unix socket
    Nbdfuse,
}

impl Door {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fuse => "fuse",
            Self::Nbdfuse => "nbdfuse",
        }
    }
}

/// The array as a file, until the value is dropped.
pub(super) struct ArrayFile {
    pub(super) file: PathBuf,
    /// The program that provides the file; `None` if the server provides it.
    daemon: Option<Child>,
}

impl ArrayFile {
    /// Waits until a running server's array appears as `file`, which the FUSE door or nbdfuse
    /// makes.
    pub(super) fn new(door: Door, file: &Path, socket: &Path) -> Result<Self> {
        let mut opened = Self { file: file.to_owned(), daemon: None };
        if door == Door::Nbdfuse {
            std::fs::write(file, b"")?;
            let mut command = Command::new("nbdfuse");
            command.arg(file).arg(format!("nbd+unix:///?socket={}", socket.display()));
            // nbdfuse's messages about requests that a killed server did not answer go to a file.
            let words = std::fs::File::create(file.with_extension("nbdfuse"))?;
            command.stdin(Stdio::null()).stderr(words);
            opened.daemon = Some(command.spawn().context("nbdfuse")?);
        }
        opened.wait("appear", |bytes| bytes > 0)?;
        Ok(opened)
    }

    fn wait(&self, what: &str, is_so: impl Fn(u64) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !std::fs::metadata(&self.file).is_ok_and(|metadata| is_so(metadata.len())) {
            ensure!(begun.elapsed() < LIMIT, "{} does not {what}", self.file.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends the door. braid's own door ends with its server; after a kill of the server, the next
    /// server removes the mount.
    pub(super) fn end(mut self, was_killed: bool) -> Result<()> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        run(Command::new("fusermount3").arg("-u").arg(&self.file))?;
        let status = daemon.wait()?;
        ensure!(was_killed || status.success(), "nbdfuse ended with {status}");
        self.wait("go", |bytes| bytes == 0)
    }
}

impl Drop for ArrayFile {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            // nbdfuse still runs only after a failure. `mount` lists file systems still mounted.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
