//! `braid rescue`: an array that does not start, or that nobody dares to start, read back without writing to it.
//!
//! ```text
//!   open (read-only, locked) ─▶ partitions of disks ─▶ arrays ─▶ plan (assembly::rescue) ─▶ what stands on it ─▶ the story
//!                                                      ▲
//!                       overlay: what was written since │ --serve: NBD, writes go there · --commit: from there to the members
//! ```
//!
//! Nothing is ever written to a member but by `--commit`, which shows every sector first and saves what it overwrites (`braid undo`).
//! Members are opened for reading only, so that this is the kernel's word and not ours.
//!
//! Invariants:
//! - no member is opened for writing, or written, unless it is committed `[check: no_write_reaches_a_member]`;
//! - what is committed is what the overlay showed, and can be taken back
//!   `[check: members_that_dropped_together_are_read_back_written_over_and_committed]`.

mod commit;
mod disks;
mod look;
mod overlay;
mod serving;
mod words;

use std::path::PathBuf;

use super::Globals;
use crate::error::code::Code;
use crate::error::{CliError, Exit, Risk};
use crate::refusal;
use disks::Disks;
use look::Found;

/// Arguments of `braid rescue`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which array, if the members are of several: its name or UUID.
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// Believe these members although they are older, or the array gave them up: as braid names them, with commas between.
    #[arg(long, value_name = "MEMBER,...", value_delimiter = ',')]
    with: Vec<String>,
    /// Go on as if these members were not there: what would the others make without them?
    #[arg(long, value_name = "MEMBER,...", value_delimiter = ',')]
    without: Vec<String>,
    /// The folder of overlays: what is written while an array is served, and nothing of it on members. Without it in the state folder.
    #[arg(long, value_name = "FOLDER")]
    overlay: Option<PathBuf>,
    /// Serve the array over NBD, and each partition on it as an export of its own. What is written goes into the overlay.
    #[arg(long)]
    serve: bool,
    /// Serve it for reading only: no overlay is made, and what may be wrong is an I/O error.
    #[arg(long, requires = "serve")]
    read_only: bool,
    /// Serve it for writing although so many stripes of it, or fewer, may read wrong.
    #[arg(long, value_name = "COUNT", requires = "serve", conflicts_with = "read_only")]
    accept_risk: Option<u64>,
    /// Where to serve, as an NBD URI; may be given more than once.
    #[arg(long = "nbd", value_name = "URI", requires = "serve")]
    uris: Vec<String>,
    /// The array as a file as well, through FUSE.
    #[arg(long, value_name = "PATH", requires = "serve")]
    fuse: Option<PathBuf>,
    /// Run a shell command with $uri set, and $file with --fuse, and stop when it ends.
    #[arg(long, value_name = "CMD", requires = "serve")]
    run: Option<String>,
    /// Write what the overlay holds to the members, and throw the overlay away; what is overwritten is saved first (`braid undo`).
    #[arg(long, conflicts_with_all = ["serve", "with", "without"])]
    commit: bool,
    /// With --commit: say which sectors of which member would be written, and write nothing.
    #[arg(short = 'n', long, requires = "commit")]
    dry_run: bool,
    /// Throw the overlay away: members are as they were.
    #[arg(long, conflicts_with_all = ["serve", "commit", "with", "without"])]
    discard: bool,
    /// Members, or whole disks that have them in partitions, in any order.
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let disks = Disks::open(&args.members)?;
    if args.commit || args.discard {
        let group = one_of(look::groups(&disks, args)?, args)?;
        return match args.commit {
            true => commit::commit(args, disks, &group, globals),
            false => overlay::discard(args, &group, globals),
        };
    }
    let found = look::look(&disks, args, globals)?;
    let story = words::Story { args, disks: &disks, found: &found, globals };
    if globals.json {
        outjson!(&story.to_json());
    } else {
        out!("{}", story.to_text());
    }
    if !args.serve {
        return Ok(exit(&found));
    }
    serving::serve(args, disks, one_of(found, args)?, globals)
}

/// 0: an array can be read as it stands, and nothing is wrong with it; 3: it can be read; else what stands in the way.
fn exit(found: &[Found]) -> Exit {
    let of_one = |one: &Found| match &one.plan.array {
        Ok(array) if array.degraded == 0 && !array.dirty && one.plan.refusal.is_none() => {
            Exit::Done
        }
        Ok(_) => Exit::Attention,
        Err(refused) => refusal::cli_error(refused, &one.plan.verdicts, &one.labels).exit(),
    };
    let exits = || found.iter().map(of_one);
    match exits().find(|exit| !matches!(exit, Exit::Done | Exit::Attention)) {
        _ if found.is_empty() => Exit::NoSuchArray,
        Some(exit) => exit,
        None if exits().any(|exit| exit == Exit::Attention) => Exit::Attention,
        None => Exit::Done,
    }
}

/// What can be asked which array it is.
trait Named {
    fn name(&self) -> &str;
}

/// The only one.
fn one_of<T: Named>(mut found: Vec<T>, args: &Args) -> Result<T, CliError> {
    if found.len() > 1 {
        let names: Vec<&str> = found.iter().map(Named::name).collect();
        let what = format!("these members belong to {} arrays", names.len());
        let error = CliError::new(Code::SeveralArrays, what).because(names.join(", "));
        let look = words::command(args, &format!("--array {}", names[0]));
        return Err(error.remedy(Risk::Look, "Look at one of them", look));
    }
    found.pop().ok_or_else(|| {
        let examine = format!("braid examine {}", words::members(args));
        CliError::new(Code::NoSuperblock, "no member of an array was found")
            .because("none of them has a superblock of md's that is sound")
            .remedy(Risk::Look, "See what is on them", examine)
    })
}
