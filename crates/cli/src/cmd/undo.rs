//! `braid undo`: puts back what a command overwrote.
//!
//! ```text
//!   the record ─▶ open every device alone ─▶ read its ends ─▶ judge (pure) ─▶ save what is there now ─▶ write ─▶ flush
//! ```
//!
//! All of it or nothing: one device that has changed since keeps the others as they are. An undo is saved like any other command, so
//! that it can be undone; one that was interrupted goes on where it was.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use braid_member::{Access, Member};
use braid_ondisk::Snippet;
use serde_json::json;

use super::{Globals, state_dir};
use crate::error::code::Code;
use crate::error::system::system;
use crate::error::{CliError, Exit, Risk};
use crate::output::printable::printable;
use crate::output::shell::{option_words, shell_word};
use crate::output::utc::{format_utc, rfc3339_utc};
use crate::probe::{io_error, open_member};
use crate::undo::judge::{Content, Verdict, content, decide, why};
use crate::undo::record::{Damage, Device, Record};
use crate::undo::{self, Deed, Kept, Overwrite};

/// Arguments of `braid undo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of what is to be undone, as `braid history` lists it; without it, what was done last.
    #[arg(value_name = "NUMBER")]
    number: Option<u64>,
    /// Say what would be put back, and write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Put nothing back; write what was saved into files of this folder, which is made.
    #[arg(long, value_name = "FOLDER", conflicts_with = "dry_run")]
    extract: Option<PathBuf>,
}

/// A device of the record as it is now.
struct Found<'a> {
    device: &'a Device,
    label: String,
    open: Box<dyn Member>,
    now: Vec<Snippet>,
    content: Content,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let kept = undo::find(&globals.state_dir, args.number);
    let kept = kept.map_err(|error| unreadable(&globals.state_dir, &error))?;
    let Some(kept) = kept else { return Err(nothing(args, globals)) };
    let record = match &kept.record {
        Ok(record) => record,
        Err(damage) => return Err(damaged(&kept, damage, globals)),
    };
    if let Some(folder) = &args.extract {
        extract(record, folder, globals)?;
        return Ok(Exit::Done);
    }
    let is_gone = |device: &Device| device.is_made && !device.path.exists();
    let devices = record.devices.iter().filter(|device| !is_gone(device));
    let found = devices.map(find).collect::<Result<Vec<_>, _>>()?;
    let contents: Vec<Content> = found.iter().map(|one| one.content).collect();
    let is_back = match decide(record.has_zeroed, &contents) {
        Verdict::Changed => return Err(changed(&kept, record, &found)),
        Verdict::Zeroed => return Err(zeroed(&kept, record, &found)),
        Verdict::IsBack => true,
        Verdict::PutBack => false,
    };
    let mut saved = None;
    if !is_back && !args.dry_run {
        saved = Some(save(&kept, record, &found, globals)?);
        put_back(&kept, &found)?;
    }
    tell(&kept, record, &found, (is_back, args.dry_run, saved), globals);
    Ok(Exit::Done)
}

/// Writes what stood on each device into files, for a person to look at or to put back by hand.
fn extract(record: &Record, folder: &Path, globals: &Globals) -> Result<(), CliError> {
    let failed = |path: &Path| {
        let what = format!("{} cannot be made", path.display());
        move |error: io::Error| system(what, &error)
    };
    fs::create_dir(folder).map_err(failed(folder))?;
    for (index, device) in record.devices.iter().enumerate() {
        for range in &device.before {
            let path = folder.join(format!("{index}-at-{}.bin", range.offset));
            fs::write(&path, &range.bytes).map_err(failed(&path))?;
            let (file, device) = (path.display().to_string(), device.path.display().to_string());
            let (offset, length) = (range.offset, range.bytes.len());
            if globals.json {
                outjson!(&json!({
                    "file": file, "member": device, "offset_bytes": offset, "length_bytes": length,
                }));
                continue;
            }
            let (file, device) = (printable(&file), printable(&device));
            outln!("{file}  {length} bytes of {device}, from byte {offset}");
        }
    }
    Ok(())
}

/// Opens a device by the name that leads to what the command left, and looks at it.
fn find(device: &Device) -> Result<Found<'_>, CliError> {
    let mut first = None;
    for path in std::iter::once(&device.path).chain(&device.names) {
        let found = look(device, path);
        let is_it = found.as_ref().is_ok_and(|found| found.content != Content::Changed);
        if is_it {
            return found;
        }
        first = first.or(Some(found));
    }
    let found = first.expect("a device has a path");
    found.map_err(|error| error.because("nothing was changed"))
}

fn look<'a>(device: &'a Device, path: &Path) -> Result<Found<'a>, CliError> {
    let label = path.display().to_string();
    let open = open_member(path, Access::ReadWrite)?;
    let mut now = Vec::new();
    for range in &device.before {
        let mut bytes = vec![0; range.bytes.len()];
        let end = range.offset + bytes.len() as u64;
        if end <= open.size_bytes() {
            let read = open.read_at(&mut bytes, range.offset);
            read.map_err(|error| io_error(&label, "reading", &error))?;
        }
        now.push(Snippet { offset: range.offset, bytes });
    }
    let is_as_large = open.size_bytes() == device.size_bytes;
    let content = if is_as_large { content(device, &now) } else { Content::Changed };
    Ok(Found { device, label, open, now, content })
}

/// Those on which there is something to put back.
fn written<'a>(found: &'a [Found<'a>]) -> impl Iterator<Item = &'a Found<'a>> {
    found.iter().filter(|one| one.content == Content::Written)
}

fn save(
    kept: &Kept,
    record: &Record,
    found: &[Found<'_>],
    globals: &Globals,
) -> Result<u64, CliError> {
    let overwritten = written(found).map(|one| Overwrite {
        path: Path::new(&one.device.path),
        device: one.open.as_ref(),
        is_made: false,
        ends: &one.now,
        writes: one.device.back(),
    });
    let command = command_line(kept.number, globals);
    let deed = Deed { command: &command, array: &record.array, zeroes: false };
    Ok(undo::save(&globals.state_dir, deed, overwritten.collect())?.number)
}

fn put_back(kept: &Kept, found: &[Found<'_>]) -> Result<(), CliError> {
    let mut done: Vec<&str> = Vec::new();
    for one in written(found) {
        let write = || {
            for range in one.device.back() {
                one.open.write_at(&range.bytes, range.offset, true)?;
            }
            one.open.flush()
        };
        write().map_err(|error| {
            let error = io_error(&one.label, "writing", &error);
            let error = match done.is_empty() {
                true => error.because("nothing is known to be put back"),
                false => error.because(format!("put back before that: {}", done.join(", "))),
            };
            error.because(format!("`braid undo {}` goes on where it was", kept.number))
        })?;
        done.push(&one.label);
    }
    Ok(())
}

fn command_line(number: u64, globals: &Globals) -> String {
    in_state_dir(format!("braid undo {number}"), globals)
}

/// The command with the state folder, where it is not the usual one.
fn in_state_dir(command: String, globals: &Globals) -> String {
    if globals.state_dir == state_dir() {
        return command;
    }
    let folder = globals.state_dir.display().to_string();
    format!("{command} {}", option_words("--state-dir", &folder))
}

fn tell(
    kept: &Kept,
    record: &Record,
    found: &[Found<'_>],
    (is_back, dry_run, saved): (bool, bool, Option<u64>),
    globals: &Globals,
) {
    let effect = |one: &Found<'_>| match one.content {
        Content::Written => "put-back",
        Content::Before | Content::Changed => "is-back",
    };
    if globals.json {
        let member = |one: &Found<'_>| json!({ "member": one.label, "effect": effect(one) });
        return outjson!(&json!({
            "undone": kept.number,
            "command": record.command,
            "time": rfc3339_utc(record.time.as_secs()),
            "dry_run": dry_run,
            "members": found.iter().map(member).collect::<Vec<_>>(),
            "undo": saved,
        }));
    }
    let command = printable(&record.command);
    if is_back {
        outln!("everything is back already that `{command}` overwrote");
        return;
    }
    let verb = if dry_run { "would put back" } else { "put back" };
    outln!("{verb} what `{command}` overwrote on {}", format_utc(record.time.as_secs()));
    for one in found {
        let words = match one.content {
            Content::Written => verb,
            Content::Before | Content::Changed => "is back already",
        };
        outln!("  {}  {words}", printable(&one.label));
    }
    if let Some(number) = saved {
        outln!("`braid undo {number}` takes this back");
    }
}

/// What stands in the way of reading the records.
pub(super) fn unreadable(state_dir: &Path, error: &io::Error) -> CliError {
    let what = format!("what was saved in {} cannot be read", state_dir.display());
    let look = format!("ls -lR {}", shell_word(&state_dir.display().to_string()));
    CliError::new(Code::StateFolder, what).caused_by(error).remedy(Risk::Look, "See who may", look)
}

fn nothing(args: &Args, globals: &Globals) -> CliError {
    let what = match args.number {
        Some(number) => format!("there is no {number} to be undone"),
        None => "there is nothing to be undone".to_owned(),
    };
    let list = in_state_dir("braid history --saved".to_owned(), globals);
    CliError::new(Code::NothingToUndo, what)
        .because(format!(
            "records of what commands overwrote are in {}",
            globals.state_dir.display()
        ))
        .remedy(Risk::Look, "What can be undone", list)
}

fn damaged(kept: &Kept, damage: &Damage, globals: &Globals) -> CliError {
    let path = kept.path.display().to_string();
    let look = format!("ls -l {}", shell_word(&path));
    let error = CliError::new(Code::UndoDamaged, format!("{path} is damaged"));
    let error = error.about(path).because(damage.to_string()).because("nothing was changed");
    let error = error.remedy(Risk::Look, "See when it was changed", look);
    let older = (1..kept.number).rev().find(|number| {
        let found = undo::find(&globals.state_dir, Some(*number));
        found.is_ok_and(|found| found.is_some_and(|kept| kept.record.is_ok()))
    });
    match older {
        Some(number) => {
            let command = command_line(number, globals);
            error.remedy(Risk::Change, "Undo what was done before that", command)
        }
        None => error,
    }
}

fn refused(kept: &Kept, record: &Record, found: &[Found<'_>]) -> CliError {
    let what = format!("what `{}` overwrote cannot be put back safely any more", record.command);
    let members: Vec<_> = found.iter().map(|one| shell_word(&one.label)).collect();
    CliError::new(Code::UndoUnsafe, what).about(kept.path.display().to_string()).remedy(
        Risk::Look,
        "See what is on them",
        format!("braid examine {}", members.join(" ")),
    )
}

fn changed(kept: &Kept, record: &Record, found: &[Found<'_>]) -> CliError {
    let mut error = refused(kept, record, found);
    for one in found.iter().filter(|one| one.content == Content::Changed) {
        let (was, is) = (one.device.size_bytes, one.open.size_bytes());
        let why = match was == is {
            true => why(one.device, &one.now),
            false => format!("it had {was} bytes, and has {is}"),
        };
        error = error.because(format!("{}: {why}", one.label));
    }
    error.because("nothing was changed")
}

fn zeroed(kept: &Kept, record: &Record, found: &[Found<'_>]) -> CliError {
    refused(kept, record, found)
        .because("zeroes were written over the data areas (--zero): what the old superblocks describe is gone")
        .because("nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: PathBuf, names: Vec<PathBuf>) -> Device {
        Device {
            path,
            names,
            is_made: false,
            number: None,
            inode: None,
            size_bytes: 1 << 20,
            before: vec![Snippet { offset: 0, bytes: vec![5; 4096] }],
            writes: vec![Snippet { offset: 512, bytes: vec![6; 512] }],
        }
    }

    /// After a restart another disk may have the path, or none.
    #[test]
    fn a_device_is_found_by_the_name_that_leads_to_it() {
        let place = tempfile::tempdir().expect("a folder");
        let file = |name: &str, first: &[u8]| {
            let path = place.path().join(name);
            let mut bytes = first.to_vec();
            bytes.resize(1 << 20, 0);
            fs::write(&path, bytes).expect("a file");
            path
        };
        let written = device(PathBuf::new(), Vec::new()).after()[0].bytes.clone();
        let (sda, sdb) = (file("sda", &[5; 4096]), file("sdb", &written));
        let (other, gone) = (file("sdc", &[1; 4096]), place.path().join("gone"));
        for (path, names, label, content) in [
            (&sdb, vec![], &sdb, Content::Written),
            (&sda, vec![], &sda, Content::Before),
            (&other, vec![], &other, Content::Changed),
            (&other, vec![&gone, &sdb], &sdb, Content::Written),
            (&gone, vec![&sda], &sda, Content::Before),
            (&other, vec![&gone], &other, Content::Changed),
        ] {
            let one = device(path.clone(), names.into_iter().cloned().collect());
            let found = find(&one).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((found.label, found.content), (label.display().to_string(), content));
        }
        let missing = find(&device(gone, vec![place.path().join("nor this")])).err();
        assert_eq!(missing.map(|error| error.code()), Some(Code::MemberMissing));
    }
}
