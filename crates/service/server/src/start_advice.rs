//! Advice in addition to the error for an unusable member: the command that serves the array
//! despite that member.
//!
//! ```text
//!   not writable; it and the others readable ──▶ the same command with --read-only
//!   missing; the level tolerates the loss ─────▶ the same command without it
//! ```
//!
//! This module serves nothing and does not change the error. It examines members as `braid examine`
//! does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use braid_assembly::{Options, ProbedMember, assemble};
use braid_member::Access;

use super::command_line::line_again;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_discovery::devices;
use braid_discovery::newest_state;
use braid_discovery::probe::open_member;

/// Adds a remedy to the error about a member: a command that serves the array read-only or without
/// the missing members.
pub(super) fn with_advice(
    error: CliError,
    members: &[PathBuf],
    options: &Options,
    state_dir: &Path,
) -> CliError {
    match error.code() {
        Code::MemberPermission if !options.read_only => read_only(error, members),
        Code::MemberMissing => without_missing(error, members, options, state_dir),
        _ => error,
    }
}

fn read_only(error: CliError, members: &[PathBuf]) -> CliError {
    if !members.iter().all(|path| open_member(path, Access::Examine).is_ok()) {
        return error;
    }
    let words = std::env::args_os().skip(1).flat_map(|word| {
        let is_verb = word == "serve";
        std::iter::once(word).chain(is_verb.then(|| OsString::from("--read-only")))
    });
    error.remedy(Risk::Look, "Serve the array for reading only", line_again(words))
}

fn without_missing(
    error: CliError,
    members: &[PathBuf],
    options: &Options,
    state_dir: &Path,
) -> CliError {
    let (there, missing): (Vec<_>, Vec<_>) =
        members.iter().cloned().partition(|path| braid_member::may_be_there(path));
    let probed: Vec<ProbedMember> =
        devices::look(&there).into_iter().map(|found| found.probed).collect();
    let options = Options { known: newest_state::of(state_dir, &probed), ..options.clone() };
    if missing.is_empty() || probed.is_empty() {
        return error;
    }
    if assemble(&probed, &options).array.is_err() {
        return error.because("the members that are here are not enough to start the array");
    }
    let is_missing = |word: &OsString| missing.iter().any(|path| path.as_os_str() == word);
    let words = std::env::args_os().skip(1);
    let line = line_again(words.filter(|word| !is_missing(word)));
    let missing: Vec<String> = missing.iter().map(|path| path.display().to_string()).collect();
    let why = format!("the array can be started without {}", missing.join(", "));
    error.because(why).remedy(Risk::Change, "If it is lost for good, start without it", line)
}
