//! `braid hook`: delivers events for a confined server, which may run no program and open no
//! connection. Not for operators.
//!
//! The server starts one `braid hook` for each hook before the server confines itself. It passes
//! the hook as argument, and sends events to the process's standard input, a socket. See
//! `braid_events::hooks::hook_process`.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use braid_events::hooks::hook_process::carry_out;

use super::Globals;
use super::serve::events::EventArgs;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The umask that commands have, in octal digits.
    #[arg(long, value_parser = |text: &str| u32::from_str_radix(text, 8))]
    umask: u32,
    #[command(flatten)]
    events: EventArgs,
}

/// Delivers events until standard input ends.
pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let umask = rustix::fs::Mode::from_bits_truncate(args.umask);
    let globals = Globals { umask, ..globals.clone() };
    let mut hooks = args.events.config().hooks(&globals)?;
    let failed = |error| system("events cannot be delivered", &error);
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    if let Some((hook, _)) = hooks.pop() {
        carry_out(hook, UnixStream::from(input)).map_err(failed)?;
    }
    Ok(Exit::Done)
}
