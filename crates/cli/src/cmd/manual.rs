//! `braid manual`: writes manual pages from the same words as `--help`. For packages.

use std::path::PathBuf;

use clap::CommandFactory;

use super::{Cli, Globals};
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit};
use braid_console::state::make_folders;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder for the pages.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes braid.1, and one page for each verb.
pub(crate) fn run(args: &Args, _: &Globals) -> Result<Exit, CliError> {
    let folder = &args.folder;
    let made = make_folders(folder).map_err(|(_, error)| error);
    let written = made.and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    let what = || format!("manual pages cannot be written into {}", folder.display());
    written.map_err(|error| system(what(), &error))?;
    Ok(Exit::Done)
}
