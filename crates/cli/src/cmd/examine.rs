//! `braid examine`: prints the metadata of members, and the array that they would make. Never
//! writes.
//!
//! ```text
//!   open (no lock: another program may be using it) -> probe -> facts of each member
//!                                                  \--> assemble -> verdicts, array or refusal
//! ```
//!
//! An unreadable member is reported in its place, and the other members are examined all the same.
//! The command fails with the member's error only if no member could be read.
//!
//! Exit status: 0 an array could be served and is healthy; 3 something needs attention (degraded,
//! stale, damaged, refused, ...); 10 no md superblock on any of them (`tests/examine.rs`).

mod array;
mod facts;
mod report;

use std::path::{Path, PathBuf};

use braid_assembly::{Assembly, GivenBitmapFile, Options, ProbedMember, Verdict, assemble};
use braid_member::{Access, Reach};

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit};
use braid_discovery::bitmap_file;
use braid_discovery::probe::{open_member, probe_member};
use braid_discovery::refusal;
use braid_discovery::{newest_state, window_copies};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Files or block devices, in any order.
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,
}

struct Findings {
    /// Bitmap files among the given paths; they are no members.
    bitmap_files: Vec<GivenBitmapFile>,
    /// The examined members, in the order of the command line.
    examined: Vec<ExaminedMember>,
    /// Assembly of the members that could be read; its verdicts are in the order of these members.
    assembly: Assembly,
    /// The refusal to assemble, if any, as an error with remedies.
    refused: Option<CliError>,
}

struct ExaminedMember {
    label: String,
    /// The data read from the member; `Err` if it could not be opened or read.
    found: Result<ProbedMember, CliError>,
}

pub(crate) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    let findings = look(&args, &globals.state_dir)?;
    if globals.json {
        outjson!(&report::to_json(&findings));
    } else {
        out!("{}", report::to_text(&findings, globals.paint_out));
    }
    Ok(exit(&findings))
}

fn look(args: &Args, state_dir: &Path) -> Result<Findings, CliError> {
    let (mut examined, mut bitmap_files): (Vec<ExaminedMember>, Vec<GivenBitmapFile>) =
        Default::default();
    let mut reached: Vec<(Reach, String)> = Vec::new();
    for path in &args.members {
        let label = path.display().to_string();
        let opened = open_member(path, Access::Examine);
        if let Ok(device) = &opened
            && let Ok(given) = bitmap_file::look(device.as_ref(), &label)
            && given.file.is_ok()
        {
            bitmap_files.push(given);
            continue;
        }
        let mut found = opened.and_then(|device| probe_member(device.as_ref(), &label));
        if let Err(error) = &found
            && error.code() == Code::Shortage
        {
            // A shortage in this process says nothing about the array, so the command fails.
            return Err(error.clone());
        }
        if let Ok(member) = &mut found {
            // A loop device over another member counts as this other member, not as a copy of it.
            let reach = Reach::of(path);
            let first = reached.iter().find(|(other, _)| reach.shared_with(other).is_some());
            first.inspect(|(_, identity)| member.identity.clone_from(identity));
            reached.push((reach, member.identity.clone()));
        }
        examined.push(ExaminedMember { label, found });
    }
    let probed: Vec<ProbedMember> =
        examined.iter().filter_map(|look| look.found.as_ref().ok()).cloned().collect();
    if probed.is_empty() && bitmap_files.is_empty() {
        let first = examined.into_iter().find_map(|look| look.found.err());
        return Err(first.expect("there is at least one member, and none could be read"));
    }
    let bitmap_file = bitmap_files.first().cloned();
    let known = newest_state::of(state_dir, &probed);
    let window_copies = window_copies::of(state_dir, &probed);
    let options = Options { known, bitmap_file, window_copies, ..Options::default() };
    let assembly = assemble(&probed, &options);
    let labels: Vec<String> = probed.into_iter().map(|member| member.label).collect();
    let refused = assembly.array.as_ref().err();
    let refused = refused.map(|refused| refusal::cli_error(refused, &assembly.verdicts, &labels));
    Ok(Findings { bitmap_files, examined, assembly, refused })
}

fn exit(findings: &Findings) -> Exit {
    let found = findings.examined.iter().filter_map(|look| look.found.as_ref().ok());
    if found.clone().all(|member| member.probe.superblocks.is_empty()) {
        return Exit::NoSuchArray;
    }
    let in_place = |verdict| matches!(verdict, Verdict::Fresh { .. } | Verdict::Spare);
    let all_in_place = findings.assembly.verdicts.iter().all(|verdict| in_place(verdict.verdict));
    let all_read = findings.examined.iter().all(|look| look.found.is_ok());
    let has_bad_blocks = found
        .into_iter()
        .any(|member| member.bad_blocks.as_ref().map_or(true, |ranges| !ranges.is_empty()));
    let is_whole = findings
        .assembly
        .array
        .as_ref()
        .is_ok_and(|array| array.degraded == 0 && !array.dirty && array.reshape.is_none());
    if is_whole && all_in_place && all_read && !has_bad_blocks {
        Exit::Done
    } else {
        Exit::Attention
    }
}
