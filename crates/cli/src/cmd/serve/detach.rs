//! `braid serve --detach`: starts a server in the background, and returns when it serves.
//!
//! ```text
//!   braid serve --detach ... ──starts──▶ braid serve --detached=LOG ...
//!          │ ◀──────── READY=1 ───────────────┘
//!          ├─ ready: prints the output so far, and exits with 0
//!          └─ it has ended: the same, and its own exit status
//! ```
//!
//! The server has a session of its own, and its output goes to LOG. The server reports READY=1 as
//! for systemd (`braid_events::service`).
//!
//! The log is `NAME.log` in the runtime folder (`UUID.log` while another server has that name's
//! log). The server appends to the log and keeps it locked; `braid status` names the log.
//!
//! The command does not watch the server or restart it. A service manager does.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::umask;

use super::Args;
use braid_console::Globals;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit};
use braid_console::output::printable::printable;
use braid_console::own_program::own_program;
use braid_discovery::devices;
use braid_discovery::ready::served_name;
use braid_server::own_folder;

/// Interval of checking whether the server has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Length of the buffer for a message to the service manager: longer than any message.
const WORDS_BYTES_MAX: usize = 4096;

/// Options of `braid serve` about the background.
#[derive(Debug, clap::Args)]
pub(crate) struct DetachArgs {
    /// Serve in the background, and return when clients may connect, or say why they cannot. The
    /// server's output goes to a file, which `braid status` names.
    #[arg(long, conflicts_with = "run")]
    pub(super) detach: bool,
    /// Marks the process as the server, and names its log.
    #[arg(long, hide = true, value_name = "LOG", conflicts_with_all = ["detach", "run"])]
    pub(super) detached: Option<PathBuf>,
}

/// Starts a server in the background, and waits until it serves or has ended.
pub(super) fn start(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let failed =
        |error: std::io::Error| system("no server could be started in the background", &error);
    let (path, mut log) = log(args, &own_folder()?).map_err(failed)?;
    let begin = log.seek(SeekFrom::End(0)).map_err(failed)?;
    let place = tempfile::tempdir().map_err(failed)?;
    let socket = place.path().join("ready");
    let ready = UnixDatagram::bind(&socket).map_err(failed)?;
    ready.set_read_timeout(Some(LOOK)).map_err(failed)?;
    let mut is_before = true;
    let words = std::env::args_os().skip(1).map(|word| {
        // After `--` the word `--detach` would be a member.
        is_before &= word != "--";
        if is_before && word == "--detach" {
            let mut word = OsString::from("--detached=");
            word.push(&path);
            return word;
        }
        word
    });
    let mut command = Command::new(own_program().map_err(failed)?);
    command.args(words).env("NOTIFY_SOCKET", &socket).stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(failed)?).stderr(log.try_clone().map_err(failed)?);
    // The server gets the umask of braid's caller; braid's own umask is stricter.
    let own = umask(globals.umask);
    let child = command.spawn();
    umask(own);
    let ended = wait(&mut child.map_err(failed)?, &ready).map_err(failed)?;
    let mut said = String::new();
    log.seek(SeekFrom::Start(begin)).and_then(|_| log.read_to_string(&mut said)).map_err(failed)?;
    match ended {
        // If the server serves several arrays, some output may arrive only after READY=1.
        StartOutcome::Ready(status) if said.is_empty() && !globals.json => {
            outln!("{}", printable(&status));
            Ok(Exit::Done)
        }
        StartOutcome::Ready(_) => {
            out!("{said}");
            Ok(Exit::Done)
        }
        StartOutcome::With(code) => {
            if begin == 0 {
                // The log's content is printed below, so the file is no longer needed.
                let _ = std::fs::remove_file(&path);
            }
            if globals.json {
                out!("{said}");
            } else {
                err!("{said}");
            }
            // `exit` runs no destructors, so standard output is flushed first.
            braid_console::output::stdout::flush();
            std::process::exit(code)
        }
    }
}

/// The outcome of starting a server.
enum StartOutcome {
    /// The server serves; the text is its status, with its address.
    Ready(String),
    With(i32),
}

/// Waits until the server is ready or has ended; returns its status or its exit code.
fn wait(child: &mut Child, ready: &UnixDatagram) -> std::io::Result<StartOutcome> {
    let mut words = [0; WORDS_BYTES_MAX];
    loop {
        let ended = child.try_wait()?;
        let said = ready.recv(&mut words).map_or(&[][..], |length| &words[..length]);
        let said = String::from_utf8_lossy(said);
        if said.lines().any(|line| line == "READY=1") {
            let status = said.lines().find_map(|line| line.strip_prefix("STATUS="));
            return Ok(StartOutcome::Ready(status.unwrap_or_default().to_owned()));
        }
        if let Some(status) = ended {
            // A killed process has no exit code.
            return Ok(StartOutcome::With(
                status.code().unwrap_or(i32::from(Exit::Failed.number())),
            ));
        }
    }
}

/// Opens and locks the server's log.
fn log(args: &Args, folder: &Path) -> std::io::Result<(PathBuf, File)> {
    let member = args.members.iter().find_map(|path| devices::look_at(path));
    let uuid = member.as_ref().map(devices::MemberDevice::uuid);
    let called = member.zip(uuid.as_ref());
    let called = called.map(|(member, uuid)| served_name(&member.superblock.array.name, uuid));
    let name = args.config_file.name().map(str::to_owned).or(called);
    let other = uuid.map_or_else(|| std::process::id().to_string(), |uuid| uuid.replace(':', ""));
    let open = |stem: &str| {
        let path = folder.join(format!("{stem}.log"));
        let file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok((path, file))
    };
    let first = open(name.as_deref().unwrap_or(&other));
    first.or_else(|_: std::io::Error| open(&other))
}

impl DetachArgs {
    pub(super) fn log(&self) -> Option<String> {
        self.detached.as_ref().map(|path| path.display().to_string())
    }
}

/// Detaches from the terminal, so that its hangup does not end the server.
pub(super) fn leave_terminal(args: &DetachArgs) -> Result<(), CliError> {
    if args.detached.is_none() {
        return Ok(());
    }
    let left = rustix::process::setsid();
    left.map(drop).map_err(|errno| system("the terminal could not be left", &errno.into()))
}
