//! `braid demo`: a RAID-6 of six temporary files, served, written by four clients, and two members
//! lost on the way.
//!
//! The demo runs `braid` as an operator would ([`process`]) and speaks NBD as a client would
//! ([`load`]). Its seven steps are in [`story`], their output in [`report`]. It needs no other
//! program, no root and no kernel module.
//!
//! Invariants (`tests/demo.rs`):
//! - a check that fails is the error B082, and the demo's folder stays for a look;
//! - otherwise the demo leaves no process and, without `--keep`, no file.

mod load;
mod process;
mod report;
mod story;

use std::path::Path;

use tempfile::TempDir;

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::size::{SizeError, format_size, parse_size};
use process::{Interrupt, system};
use report::Report;
use story::Story;

/// Smallest member, in bytes, that holds the image and the regions of the clients.
const MEMBER_BYTES_MIN: u64 = 8 << 20;
/// Steps before the array holds data: create and serve.
const STEPS_BEFORE_DATA: usize = 2;

/// Arguments of `braid demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the folder with the members, to go on with.
    #[arg(long)]
    keep: bool,
    /// Size of each of the six members; they are sparse files.
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    size: String,
}

/// Runs the demo's steps. Keeps the members if a step fails once the array holds data.
pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let member_bytes = member_bytes(&args.size)?;
    let interrupt =
        Interrupt::new().map_err(|error| system("signals cannot be watched", &error))?;
    let folder = tempfile::Builder::new().prefix("braid-demo-").tempdir();
    let folder = folder.map_err(|error| {
        CliError::new(Code::SocketFolder, "no temporary folder can be made").caused_by(&error)
    })?;
    let mut report = Report::new(globals);
    report.introduce(&folder.path().to_string_lossy());
    if let Err(error) = Story::new(folder.path(), &interrupt, &mut report).play(member_bytes) {
        // A signal reaches the children as well, so it explains any failure.
        interrupt.check()?;
        return Err(keep_evidence(error, folder, report.steps_done()));
    }
    report.summary(&next(args.keep.then_some(folder.path())));
    if args.keep {
        let _ = folder.keep();
    }
    Ok(Exit::Done)
}

fn keep_evidence(error: CliError, folder: TempDir, steps_done: usize) -> CliError {
    if steps_done < STEPS_BEFORE_DATA && error.code() != Code::VerifyFailed {
        return error;
    }
    let members = members_of(&folder.keep());
    let error = error.because(format!("the members are kept: {members}"));
    error.remedy(Risk::Look, "Look at them", format!("braid examine {members}"))
}

/// The members in a folder, as a shell takes them.
fn members_of(folder: &Path) -> String {
    format!("{}/disk*", shell_word(&folder.to_string_lossy()))
}

/// Three commands to continue with: for the kept members, or for new members right here.
fn next(kept: Option<&Path>) -> [(&'static str, String); 3] {
    let program = std::env::args_os().next().unwrap_or_else(|| "braid".into());
    let program = shell_word(&program.to_string_lossy()).into_owned();
    if let Some(folder) = kept {
        let members = members_of(folder);
        return [
            ("See what is on them", format!("{program} examine {members}")),
            ("Serve them again", format!("{program} serve {members}")),
            ("Remove them", format!("rm -r {}", shell_word(&folder.to_string_lossy()))),
        ];
    }
    let here = std::env::current_dir().unwrap_or_default();
    let member = |name| shell_word(&here.join(name).to_string_lossy()).into_owned();
    let members = ["a.img", "b.img", "c.img"].map(member).join(" ");
    let create = format!("{program} create tank --level 5 --member-size 1G {members}");
    [
        ("Make an array of files", create),
        ("Serve it over NBD", format!("{program} serve {members}")),
        ("See what is on members", format!("{program} examine {members}")),
    ]
}

fn member_bytes(text: &str) -> Result<u64, CliError> {
    let bytes = parse_size(text).map_err(|error| {
        let code = match error {
            SizeError::NoUnit { .. } => Code::SizeNeedsUnit,
            _ => Code::SizeInvalid,
        };
        CliError::new(code, format!("--size {text} is not a size")).caused_by(&error)
    })?;
    if bytes < MEMBER_BYTES_MIN {
        let what = format!("--size {text} is too small for the demo");
        let why = format!("members of at least {} are needed", format_size(MEMBER_BYTES_MIN));
        let error = CliError::new(Code::SizeInvalid, what).because(why);
        return Err(error.remedy(Risk::Look, "Leave it out", "braid demo"));
    }
    Ok(bytes)
}
