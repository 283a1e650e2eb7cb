//! `braid undo`: puts back the bytes that a command overwrote.
//!
//! ```text
//!   the record ─▶ open every device alone ─▶ read its ends ─▶ judge (pure)
//!     ─▶ save the current bytes ─▶ write ─▶ flush
//! ```
//!
//! `undo` writes all devices or none: it refuses if one device has changed since. An undo is saved
//! like any other command, so it can be undone itself. An interrupted undo resumes where it
//! stopped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use braid_member::Access;
use braid_ondisk::{Snippet, format_uuid, probe};
use serde_json::json;

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::utc::{format_utc, rfc3339_utc};
use braid_discovery::probe::{io_error, open_member};
use braid_discovery::running;
use braid_discovery::undo::judge::{Content, Verdict, decide, is_between, is_mute, why};
use braid_discovery::undo::present_devices::{self, PresentDevice};
use braid_discovery::undo::record::{Damage, Device, Record};
use braid_discovery::undo::{
    self, Mark, Overwrite, PlannedCommand, RecordFile, unfinished, writing,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of the command to undo, as `braid history` lists it; without it, the last one.
    #[arg(value_name = "NUMBER")]
    number: Option<u64>,
    /// Say what would be put back, and write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Put nothing back on this absent device; may be given more than once. Afterwards the device
    /// must not be used together with the other members.
    #[arg(long, value_name = "DEVICE")]
    without: Vec<PathBuf>,
    /// Put the bytes back although members of RAID-0 and linear arrays do not show whether the
    /// array was written since.
    #[arg(long)]
    nobody_wrote: bool,
    /// Put nothing back; write the saved data into files of this new folder.
    #[arg(long, value_name = "FOLDER", conflicts_with = "dry_run")]
    extract: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let record_file = find(args, globals)?;
    let record = match &record_file.record {
        Ok(record) => record,
        Err(damage) => return Err(damaged(&record_file, damage, globals)),
    };
    if let Some(folder) = &args.extract {
        extract(record, folder, globals)?;
        return Ok(Exit::Done);
    }
    // A dry run opens without a lock, so it need not wait for a server.
    let access = if args.dry_run { Access::Examine } else { Access::ReadWrite };
    let found = present_devices::all(record, &args.without, access);
    let found = found.map_err(|error| stopped_first(error, record))?;
    let contents: Vec<Content> = found.iter().map(|one| one.content).collect();
    let is_back = match decide(record.has_zeroed, &contents) {
        Verdict::Changed => return Err(changed(&record_file, record, &found)),
        Verdict::Zeroed => return Err(zeroed(&record_file, record, &found)),
        Verdict::IsBack => true,
        Verdict::PutBack => false,
    };
    if !is_back
        && !args.nobody_wrote
        && !is_between(&contents)
        && found.iter().any(|one| is_mute(one.device))
    {
        return Err(not_told(&record_file, record, &found, globals));
    }
    if args.dry_run && !is_back {
        // A dry run fails here if the real run could not open the device for writing.
        let open = |one: &PresentDevice<'_>| {
            open_member(Path::new(&one.label), Access::ReadWrite).map(drop)
        };
        let held = found.iter().try_for_each(open);
        held.map_err(|error| stopped_first(error.because("nothing was changed"), record))?;
    }
    let mut saved = None;
    if !args.dry_run {
        if !is_back {
            saved = Some(put_back(&record_file, record, &found, globals)?);
        }
        unfinished::end_undoing(&globals.state_dir, record_file.number);
        if args.without.is_empty() {
            unfinished::end(&globals.state_dir, record_file.number);
        }
    }
    // An undo of this undo would restore half-written content, so it is not offered.
    let redo = saved.filter(|_| !is_between(&contents));
    tell(&record_file, record, &found, (is_back, args.dry_run, redo), globals);
    Ok(Exit::Done)
}

/// Adds the command that stops the array, if a running braid server has the devices.
fn stopped_first(error: CliError, record: &Record) -> CliError {
    if error.code() != Code::MemberLocked {
        return error;
    }
    let of = |device: &Device, ranges: &[Snippet]| {
        let uuid = probe(device.size_bytes, ranges).newest()?.array.uuid;
        running::find(&format_uuid(&uuid)).ok()
    };
    let mut served = record
        .devices
        .iter()
        .filter_map(|device| of(device, &device.after()).or_else(|| of(device, &device.before)));
    match served.next() {
        Some(served) => {
            let stop = format!("braid stop {}", shell_word(&served.array.name));
            error.remedy(Risk::Change, "Stop the array that is served from it, then undo", stop)
        }
        None => error,
    }
}

/// The record to undo: the one with this number, else the newest. If the newest is of an
/// interrupted undo, the record that this undo was putting back.
fn find(args: &Args, globals: &Globals) -> Result<RecordFile, CliError> {
    let find = |number| {
        let record_file = undo::find(&globals.state_dir, number);
        record_file.map_err(|error| unreadable(&globals.state_dir, &error))
    };
    let record_file = find(args.number)?.ok_or_else(|| nothing(args, globals))?;
    let undoes = record_file.record.as_ref().ok().and_then(|record| record.undoes);
    let stopped = undoes.filter(|_| {
        args.number.is_none() && unfinished::is_unfinished(&globals.state_dir, record_file.number)
    });
    let older = stopped.map(|number| find(Some(number))).transpose()?.flatten();
    Ok(older.unwrap_or(record_file))
}

/// Writes the old bytes of each device into files, for inspection or for restoring by hand.
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

/// Saves the current bytes of devices that need an undo, and puts the overwritten bytes back.
fn put_back(
    record_file: &RecordFile,
    record: &Record,
    found: &[PresentDevice<'_>],
    globals: &Globals,
) -> Result<u64, CliError> {
    let written: Vec<&PresentDevice<'_>> = found
        .iter()
        .filter(|one| matches!(one.content, Content::Written | Content::Partly))
        .collect();
    let overwritten = written.iter().map(|one| Overwrite {
        path: Path::new(&one.label),
        device: one.open.as_ref(),
        is_made: false,
        ends: &one.now,
        writes: one.device.back(),
        last_writes: 0,
    });
    let command = command_line(record_file.number, globals);
    let (undoes, mark) = (Some(record_file.number), Mark::Unfinished);
    let planned =
        PlannedCommand { command: &command, array: &record.array, zeroes: false, undoes, mark };
    let saved = undo::save(&globals.state_dir, planned, overwritten.collect())?;
    let devices: Vec<_> = written.iter().map(|one| (one.device, one.open.as_ref())).collect();
    let now: Vec<&[Snippet]> = written.iter().map(|one| one.now.as_slice()).collect();
    writing::back(&devices, &now).map_err(|(index, error)| {
        let done: Vec<&str> = written[..index].iter().map(|one| one.label.as_str()).collect();
        let done = match done.is_empty() {
            true => "no bytes are known to be put back".to_owned(),
            false => format!("put back so far: {}", done.join(", ")),
        };
        io_error(&written[index].label, "writing", &error)
            .because(done)
            .because(format!("`braid undo {}` goes on where it was", record_file.number))
    })?;
    Ok(saved.number)
}

fn command_line(number: u64, globals: &Globals) -> String {
    unfinished::in_state_dir(format!("braid undo {number}"), &globals.state_dir)
}

fn tell(
    record_file: &RecordFile,
    record: &Record,
    found: &[PresentDevice<'_>],
    (is_back, dry_run, saved): (bool, bool, Option<u64>),
    globals: &Globals,
) {
    let effect = |one: &PresentDevice<'_>| match one.content {
        Content::Written | Content::Partly => "put-back",
        Content::Before | Content::Changed => "is-back",
    };
    if globals.json {
        let member =
            |one: &PresentDevice<'_>| json!({ "member": one.label, "effect": effect(one) });
        return outjson!(&json!({
            "undone": record_file.number,
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
    outln!("{verb} the bytes that `{command}` overwrote on {}", format_utc(record.time.as_secs()));
    for one in found {
        let words = match one.content {
            Content::Written | Content::Partly => verb,
            Content::Before | Content::Changed => "is back already",
        };
        outln!("  {}  {words}", printable(&one.label));
    }
    if let Some(number) = saved {
        outln!("`braid undo {number}` takes this back");
    }
}

/// An error for unreadable records.
pub(super) fn unreadable(state_dir: &Path, error: &io::Error) -> CliError {
    let what = format!("the record {} cannot be read", state_dir.display());
    let look = format!("ls -lR {}", shell_word(&state_dir.display().to_string()));
    CliError::new(Code::StateFolder, what).caused_by(error).remedy(Risk::Look, "See who may", look)
}

fn nothing(args: &Args, globals: &Globals) -> CliError {
    let what = match args.number {
        Some(number) => format!("there is no record {number} to undo"),
        None => "there is no command to undo".to_owned(),
    };
    let list = unfinished::in_state_dir("braid history --saved".to_owned(), &globals.state_dir);
    CliError::new(Code::NothingToUndo, what)
        .because(format!("the undo records are in {}", globals.state_dir.display()))
        .remedy(Risk::Look, "See what can be undone", list)
}

fn damaged(record_file: &RecordFile, damage: &Damage, globals: &Globals) -> CliError {
    let path = record_file.path.display().to_string();
    let look = format!("ls -l {}", shell_word(&path));
    let error = CliError::new(Code::UndoDamaged, format!("{path} is damaged"));
    let error = error.about(path).because(damage.to_string()).because("nothing was changed");
    let error = error.remedy(Risk::Look, "See when it was changed", look);
    let older = (1..record_file.number).rev().find(|number| {
        let found = undo::find(&globals.state_dir, Some(*number));
        found.is_ok_and(|found| found.is_some_and(|record_file| record_file.record.is_ok()))
    });
    match older {
        Some(number) => {
            let command = command_line(number, globals);
            error.remedy(Risk::Change, "Undo an earlier command", command)
        }
        None => error,
    }
}

fn refused(record_file: &RecordFile, record: &Record, found: &[PresentDevice<'_>]) -> CliError {
    let what =
        format!("the bytes that `{}` overwrote can no longer be put back safely", record.command);
    let members: Vec<_> = found.iter().map(|one| shell_word(&one.label)).collect();
    CliError::new(Code::UndoUnsafe, what).about(record_file.path.display().to_string()).remedy(
        Risk::Look,
        "See what is on them",
        format!("braid examine {}", members.join(" ")),
    )
}

fn changed(record_file: &RecordFile, record: &Record, found: &[PresentDevice<'_>]) -> CliError {
    let mut error = refused(record_file, record, found);
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

fn not_told(
    record_file: &RecordFile,
    record: &Record,
    found: &[PresentDevice<'_>],
    globals: &Globals,
) -> CliError {
    let line = format!("braid undo {} --nobody-wrote", record_file.number);
    refused(record_file, record, found)
        .because(
            "members of a RAID-0 or a linear array do not tell whether it was written since; \
                  if so, the old bytes would overwrite newer data",
        )
        .because("nothing was changed")
        .remedy(
            Risk::Destroy,
            "If no program has written to the array since",
            unfinished::in_state_dir(line, &globals.state_dir),
        )
}

fn zeroed(record_file: &RecordFile, record: &Record, found: &[PresentDevice<'_>]) -> CliError {
    refused(record_file, record, found)
        .because(
            "zeroes were written over the data areas (--zero): the data of the old \
                  superblocks is gone",
        )
        .because("nothing was changed")
}
