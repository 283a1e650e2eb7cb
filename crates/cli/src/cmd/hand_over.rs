//! `braid hand-over`: stops an array whose owner a store names, so that another host serves it.

use super::{Globals, stop};
use braid_console::error::{CliError, Exit};
use braid_server::has_host_letters;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// The host that takes it over, by its `uname -n`; any that stands by otherwise. If it does not
    /// come within three seconds, any other takes it.
    #[arg(value_name = "HOST", value_parser = host)]
    host: Option<String>,
    /// Say what would be cut off and written back, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let stop =
        stop::Args::hand_over(&args.array, args.host.as_deref().unwrap_or_default(), args.dry_run);
    stop::run(&stop, globals)
}

fn host(text: &str) -> Result<String, String> {
    match !text.is_empty() && has_host_letters(text) {
        true => Ok(text.to_owned()),
        false => Err("it is the name of a host, as `uname -n` prints it".to_owned()),
    }
}
