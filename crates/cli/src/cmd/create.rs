//! `braid create`: make an array out of files or block devices.
//!
//! ```text
//!   words -> plan (opens, measures, recognises; writes nothing) -> print it, if -n
//!         -> apply: make files, save overwritten bytes, wipe, zero, superblocks -> look again
//! ```
//!
//! `create` does not resync. Like mdadm, it marks members that existed before and were not zeroed
//! in their superblocks, and tells the operator.
//!
//! Invariants:
//! - with `-n`, or if refused, not one byte changes (`tests/create_refusals.rs`);
//! - a recognisable signature is overwritten only if the operator named it, and it is saved first
//!   (`tests/create_destroy.rs`);
//! - the new array is read back and must assemble (`tests/create.rs`).

mod apply;
mod candidates;
mod destroy;
mod plan;
mod report;
#[cfg(test)]
mod tests;
mod words;

use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::shell::{option_words, shell_word};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the new array.
    name: String,
    /// Name of the new array; all other words are members. Needed if a file here has that name.
    #[arg(long = "name", value_name = "NAME")]
    called: Option<String>,
    /// RAID level: linear, 0, 1, 4, 5, 6 or 10.
    #[arg(long, short = 'l')]
    level: String,
    /// Bytes in a row on one member, with a unit [default: 512K].
    #[arg(long, short = 'c', value_name = "SIZE")]
    chunk: Option<String>,
    /// How data and parity rotate: left-symmetric, n2, f2, ...
    #[arg(long, value_name = "WORD")]
    layout: Option<String>,
    /// Where superblocks go: 1.0 (end), 1.1 (start) or 1.2 (4 KiB from the start).
    #[arg(long, value_name = "VERSION", default_value = "1.2")]
    metadata: String,
    /// How redundancy survives a crash: journal (all writes go to a journal first, on a device of
    /// its own; raid4, raid5, raid6), log (stripes in flight are made right, also with members
    /// missing; raid4, raid5, raid6), ppl (the same as md does it; raid5), bitmap (only regions in
    /// flight are brought in sync again), llbitmap (as bitmap, and regions never written are left
    /// alone; for Linux 6.18 and later) or resync (the whole array is) [default: the safest, log
    /// with parity and bitmap with copies].
    #[arg(long, value_name = "POLICY", visible_aliases = ["consistency-policy", "bitmap"])]
    consistency: Option<String>,
    /// The device of a write journal, as md has it: a file or block device that is no member
    /// (raid4, raid5, raid6; it means --consistency journal).
    #[arg(long, value_name = "DEVICE")]
    write_journal: Option<PathBuf>,
    /// Bytes that one bit of the bitmap covers, with a unit [default: 64M, or more where the bitmap
    /// would not fit].
    #[arg(long, value_name = "SIZE")]
    bitmap_chunk: Option<String>,
    /// Keep the bitmap, and braid's own log with parity, in this new file beside the members; not
    /// on the array itself. Name the file whenever the array is served, as with mdadm.
    #[arg(long, value_name = "FILE")]
    bitmap_file: Option<PathBuf>,
    /// A write-mostly member, as with mdadm: reads use it only if no other copy is available. For a
    /// slow or distant member; once for each (raid1, raid10).
    #[arg(long, value_name = "MEMBER")]
    write_mostly: Vec<PathBuf>,
    /// The last N members wait as spares.
    #[arg(long, value_name = "N", default_value_t = 0)]
    spare: usize,
    /// Make members that do not exist as sparse files of this size.
    #[arg(long, value_name = "SIZE")]
    member_size: Option<String>,
    /// Trust that redundancy is right already (members all zero, or contents kept).
    #[arg(long, conflicts_with = "zero")]
    assume_clean: bool,
    /// Write zeroes over the data areas, so that redundancy is right.
    #[arg(long)]
    zero: bool,
    /// Name of a thing on the members that may be destroyed; once for each.
    #[arg(long, value_name = "NAME")]
    destroy: Vec<String>,
    /// Print the plan and write nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Files or block devices, in the order of their slots; `missing` leaves a slot empty.
    #[arg(required_unless_present = "called", value_name = "MEMBER")]
    members: Vec<PathBuf>,
    /// Global options of the command line that change the result, as words.
    #[arg(skip)]
    global_words: Vec<String>,
}

impl Args {
    /// The command line of this `create`, for the operator to copy; never with `-n`.
    fn command_line(&self) -> String {
        let name = match &self.called {
            Some(name) => option_words("--name", name),
            None => shell_word(&self.name).into_owned(),
        };
        let mut words = vec!["braid create".to_string(), name];
        let mut option = |name: &str, value: &str| words.push(option_words(name, value));
        option("--level", &self.level);
        let optional = [
            ("--chunk", &self.chunk),
            ("--layout", &self.layout),
            ("--consistency", &self.consistency),
            ("--bitmap-chunk", &self.bitmap_chunk),
            ("--member-size", &self.member_size),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                option(name, value);
            }
        }
        if let Some(path) = &self.write_journal {
            option("--write-journal", &path.display().to_string());
        }
        if let Some(path) = &self.bitmap_file {
            option("--bitmap-file", &path.display().to_string());
        }
        if self.metadata != "1.2" {
            option("--metadata", &self.metadata);
        }
        if self.spare > 0 {
            option("--spare", &self.spare.to_string());
        }
        for path in &self.write_mostly {
            option("--write-mostly", &path.display().to_string());
        }
        for name in &self.destroy {
            option("--destroy", name);
        }
        words.extend(self.assume_clean.then(|| "--assume-clean".to_string()));
        words.extend(self.zero.then(|| "--zero".to_string()));
        words.extend(self.global_words.iter().cloned());
        let labels = self.members.iter().map(|path| path.display().to_string());
        words.extend(labels.map(|label| shell_word(&label).into_owned()));
        words.join(" ")
    }
}

impl Args {
    /// Separates name and members. A file as the first word was meant as a member.
    fn named(&mut self) -> Result<(), CliError> {
        if let Some(name) = self.called.clone() {
            let first = std::mem::replace(&mut self.name, name);
            self.members.insert(0, first.into());
            return Ok(());
        }
        let Ok(metadata) = std::fs::metadata(&self.name) else { return Ok(()) };
        let what = match metadata.file_type() {
            kind if kind.is_file() => "a file",
            kind if kind.is_block_device() => "a block device",
            _ => return Ok(()),
        };
        let name = self.name.clone();
        let as_member = Self {
            name: "NAME".into(),
            members: [vec![name.clone().into()], self.members.clone()].concat(),
            ..self.clone()
        };
        let as_name = Self { called: Some(name.clone()), ..self.clone() };
        let error = format!("'{name}' is {what}, but the first word must be the array's name");
        let error = CliError::new(Code::ArrayNameInvalid, error).about(&name);
        let error = error.because("the first word names the new array, and all others are members");
        let member = "If it is a member, name the array before it";
        let called = "If this is the array's name";
        let error = error.remedy(Risk::Change, member, as_member.command_line());
        Err(match name.contains('/') {
            true => error,
            false => error.remedy(Risk::Change, called, as_name.command_line()),
        })
    }
}

fn global_words(globals: &Globals) -> Vec<String> {
    let mut words = Vec::new();
    if globals.state_dir != braid_console::state_dir() {
        words.push(option_words("--state-dir", &globals.state_dir.display().to_string()));
    }
    words.extend(globals.json.then(|| "--json".to_string()));
    words
}

pub(crate) fn run(mut args: Args, globals: &Globals) -> Result<Exit, CliError> {
    args.global_words = global_words(globals);
    args.named()?;
    let plan = plan::plan(&args)?;
    if args.dry_run {
        report::print_plan(&plan, globals);
        return Ok(Exit::Done);
    }
    let made = apply::apply(&plan, globals)?;
    report::print_made(&plan, &made, globals);
    Ok(Exit::Done)
}
