//! `braid replay`: replays the partial parity log (PPL) of a stopped array onto its members.
//!
//! Use `replay` before md runs the array, because md's own recovery loses records that end with the
//! log's area. Use it also before removing a present member. Superblocks and logs stay as they are.
//! So the replay can be repeated, by md as well, with the same parity.

use std::path::PathBuf;

use braid_assembly::Options;
use braid_member::Access;
use serde_json::json;

use super::Globals;
use braid_console::error::{CliError, Exit};
use braid_console::output::printable::printable;
use braid_discovery::ready::choice;
use braid_discovery::ready::found;
use braid_discovery::replay::ReplayTarget;
use braid_engine::replay::Finish;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Say what would be done, and write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Which array, if the members are of several: its name or UUID.
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// The file that has the array's bitmap, and braid's own log, beside the members.
    #[arg(long, value_name = "FILE")]
    bitmap_file: Option<PathBuf>,
    /// The members, in any order; others are recognised and left alone.
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let (access, target) = match args.dry_run {
        true => (Access::ReadOnly, ReplayTarget::Nowhere),
        false => (Access::ReadWrite, ReplayTarget::Members),
    };
    let choice = choice(args.array.as_deref());
    // Replay writes no data and no superblocks, so reasons against serving do not apply.
    let options = Options { choice, read_only: true, ..Options::default() };
    let mut ready =
        found((&args.members, args.bitmap_file.as_deref()), access, options, &globals.state_dir)?;
    ready.replay(target, Finish::Settled)?;
    let array = &ready.array.newest.array;
    let name = printable(array.name.rsplit(':').next().unwrap_or_default());
    let replayed = ready.replayed.as_ref();
    if globals.json {
        let replayed = replayed.map(braid_discovery::replay::ReplayResult::to_json);
        outjson!(&json!({ "array": name, "dry_run": args.dry_run, "replayed": replayed }));
        return Ok(Exit::Done);
    }
    match replayed {
        None => outln!("{name}: there is nothing to replay"),
        Some(replayed) => {
            replayed.lines().iter().for_each(|line| outln!("{name}: {}", printable(line)));
        }
    }
    Ok(Exit::Done)
}
