//! Starts a process for a hook (`braid hook`) before the server closes off programs for itself.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use braid_events::Deliver;
use braid_events::hooks::hook_process::HookProcess;

use braid_console::Globals;
use braid_console::error::CliError;
use braid_console::error::system::system;
use braid_console::own_program::own_program;

/// Starts a hook in its own process, with these options.
pub(super) fn start(
    like: Box<dyn Deliver>,
    options: Vec<OsString>,
    globals: &Globals,
) -> Result<Box<dyn Deliver>, CliError> {
    let failed = |error| system("the process that delivers events could not be started", &error);
    let (here, there) = UnixStream::pair().map_err(failed)?;
    let program = own_program().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("hook").arg("--umask").arg(format!("{:o}", globals.umask.bits())).args(options);
    command.stdin(Stdio::from(OwnedFd::from(there)));
    // Standard output carries the server's data, so the hook writes to standard error. The hook has
    // its own process group, which terminal signals do not reach: it ends with the server, after
    // the last events.
    let errors = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    command.stdout(Stdio::from(errors)).process_group(0);
    // The hook ends with the server, and its exit status is not needed. A thread that waited for
    // the hook would exist before the server gives up access to files.
    drop(command.spawn().map_err(failed)?);
    Ok(Box::new(HookProcess::new(like, here).map_err(failed)?))
}
