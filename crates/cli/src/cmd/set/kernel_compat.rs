//! `braid set NAME kernel-compat MEMBER...`: clears a stopped array's logical block size.
//!
//! Linux 6.19 and later write the field, and older kernels refuse an array that has it. A value of
//! 512 bytes is the default anyway and may be cleared. A larger value may not be cleared, because
//! the data on the array may depend on it.
//!
//! braid reads an array with or without the field. The array must be stopped, so that no other
//! program uses it. Only the field and the checksum change, not the event count or the time. Every
//! reader treats members with and without the field alike. So a power cut between two members does
//! no harm, and `braid undo` restores the field.

use std::path::Path;

use braid_assembly::{AssembledArray, Choice, Options, ProbedMember, assemble};
use braid_member::{Access, Member};
use braid_ondisk::{Snippet, Superblock};
use serde_json::json;

use super::super::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_discovery::contents::read_ends;
use braid_discovery::probe::{io_error, open_member, probe_member};
use braid_discovery::refusal::{self, words};
use braid_discovery::running;
use braid_discovery::undo::{self, Mark, Overwrite, PlannedCommand};

pub(super) const WORD: &str = "kernel-compat";
/// The logical block size that every kernel assumes if the superblock has none.
const SECTOR_BYTES: u32 = 512;

/// A member whose logical block size is cleared.
struct ClearedMember<'a> {
    label: &'a str,
    device: &'a dyn Member,
    superblock: &'a Superblock,
}

pub(super) fn run(
    array: &str,
    members: &[String],
    dry_run: bool,
    globals: &Globals,
) -> Result<Exit, CliError> {
    if members.is_empty() {
        return Err(not_named(array));
    }
    let open = |label: &String| open_member(Path::new(label), Access::ReadWrite);
    let devices: Vec<Box<dyn Member>> = members.iter().map(open).collect::<Result<_, _>>()?;
    let mut probed = Vec::new();
    for (label, device) in members.iter().zip(&devices) {
        probed.push(probe_member(device.as_ref(), label)?);
    }
    let assembled = assembled(array, &probed, members)?;
    let uuid = assembled.newest.array.uuid;
    let mut cleared = Vec::new();
    for ((label, device), probed) in members.iter().zip(&devices).zip(&probed) {
        let superblock = probed.probe.newest().filter(|found| found.array.uuid == uuid);
        let superblock = superblock.ok_or_else(|| foreign(array, label))?;
        cleared.push(ClearedMember { label, device: device.as_ref(), superblock });
    }
    let largest =
        cleared.iter().filter_map(|member| member.superblock.array.logical_block_bytes).max();
    if let Some(bytes) = largest.filter(|bytes| *bytes > SECTOR_BYTES) {
        return Err(too_large(array, bytes, members));
    }
    cleared.retain(|member| member.superblock.array.logical_block_bytes.is_some());
    let mut saved = None;
    if !cleared.is_empty() && !dry_run {
        saved = Some(clear(array, members, &cleared, globals)?);
    }
    let missing: Vec<usize> = assembled
        .slots
        .iter()
        .enumerate()
        .filter_map(|(slot, occupant)| occupant.is_none().then_some(slot))
        .collect();
    tell(array, &cleared, &missing, (dry_run, saved), globals);
    Ok(Exit::Done)
}

/// The array of these members. If assembly is ambiguous, writing to the members would not help.
fn assembled(
    array: &str,
    probed: &[ProbedMember],
    members: &[String],
) -> Result<AssembledArray, CliError> {
    let digits = array.replace(':', "");
    let uuid = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    let uuid = uuid.map(u128::to_be_bytes);
    let name = uuid.is_none().then(|| array.to_owned());
    let options = Options {
        choice: Choice { uuid, name },
        // No array is served here, so the risks of serving do not matter.
        read_only: true,
        accept_risk: Some(u64::MAX),
        ..Options::default()
    };
    let assembly = assemble(probed, &options);
    let refused = |refused| refusal::cli_error(&refused, &assembly.verdicts, members);
    assembly.array.map_err(refused)
}

/// Saves the superblocks, and writes them without the logical block size.
fn clear(
    array: &str,
    members: &[String],
    cleared: &[ClearedMember<'_>],
    globals: &Globals,
) -> Result<u64, CliError> {
    let mut ends = Vec::new();
    for member in cleared {
        ends.push(read_ends(member.device, member.label)?);
    }
    let written = |member: &ClearedMember<'_>| {
        let mut superblock = member.superblock.clone();
        superblock.clear_logical_block();
        Snippet { offset: superblock.offset_bytes(), bytes: superblock.to_bytes() }
    };
    let overwritten = cleared.iter().zip(&ends).map(|(member, ends)| Overwrite {
        path: Path::new(member.label),
        device: member.device,
        is_made: false,
        ends,
        writes: vec![written(member)],
        last_writes: 0,
    });
    let command = command_line(array, members);
    let planned = PlannedCommand {
        command: &command,
        array,
        zeroes: false,
        undoes: None,
        mark: Mark::Nothing,
    };
    let saved = undo::save(&globals.state_dir, planned, overwritten.collect())?;
    for member in cleared {
        let new = written(member);
        let write = member.device.write_at(&new.bytes, new.offset, true);
        write.and_then(|()| member.device.flush()).map_err(|error| {
            let error = io_error(member.label, "writing", &error);
            error.because(format!("`braid undo {}` puts the old bytes back", saved.number))
        })?;
    }
    Ok(saved.number)
}

fn command_line(array: &str, members: &[String]) -> String {
    format!("braid set {} {WORD} {}", shell_word(array), words(members, &[]))
}

fn tell(
    array: &str,
    cleared: &[ClearedMember<'_>],
    missing: &[usize],
    (dry_run, saved): (bool, Option<u64>),
    globals: &Globals,
) {
    if globals.json {
        return outjson!(&json!({
            "array": array,
            "setting": WORD,
            "dry_run": dry_run,
            "members": cleared.iter().map(|member| member.label).collect::<Vec<_>>(),
            "missing_slots": missing,
            "undo": saved,
        }));
    }
    let name = printable(array);
    if cleared.is_empty() {
        outln!(
            "nothing to clear: {name} has no logical block size, and kernels before 6.19 \
                accept it"
        );
    } else {
        let verb = if dry_run { "would be cleared" } else { "cleared" };
        outln!("the logical block of {name} (512 B, which every kernel assumes anyway): {verb}");
        cleared.iter().for_each(|member| outln!("  {}", printable(member.label)));
    }
    if !missing.is_empty() {
        let slots: Vec<String> = missing.iter().map(ToString::to_string).collect();
        outln!("  slot {} has no member here; a member found later is unchanged", slots.join(", "));
    }
    if let Some(number) = saved {
        outln!("`braid undo {number}` takes this back, until {name} is served");
    }
}

/// The error if the operator gave no members: braid knows only a served array's members, and for
/// this command the array must be stopped first.
fn not_named(array: &str) -> CliError {
    let running = match running::find(array) {
        Ok(running) => running,
        Err(error) if matches!(error.code(), Code::NotServed | Code::ServerGone) => {
            let what = format!("the members of '{array}' were not named");
            let command = command_line(array, &[]);
            return CliError::new(Code::Usage, what)
                .about(array)
                .because("it is not served, so braid does not know its members")
                .remedy(Risk::Change, "Name them", format!("{command}MEMBER..."));
        }
        Err(error) => return error,
    };
    let slots = running.array.slots.iter().filter_map(|slot| slot.member.clone());
    let members: Vec<String> = slots.collect();
    let word = shell_word(array).into_owned();
    CliError::new(Code::MemberLocked, format!("{} is being served", running.array.name))
        .about(array)
        .because("braid keeps writing its superblocks; a kernel can take it over after a stop")
        .remedy(Risk::Change, "Stop it first", format!("braid stop {word}"))
        .remedy(Risk::Change, "Then name its members", command_line(array, &members))
}

fn foreign(array: &str, label: &str) -> CliError {
    let what = format!("{label} is no member of {array}");
    let command = format!("braid examine {}", shell_word(label));
    let error = CliError::new(Code::ForeignMember, what).about(label);
    error.because("nothing was changed").remedy(Risk::Look, "See what is on it", command)
}

fn too_large(array: &str, bytes: u32, members: &[String]) -> CliError {
    let size = format_size(u64::from(bytes));
    let what = format!("the logical block of {array} is of {size}, and cannot be cleared");
    CliError::new(Code::LogicalBlockLarge, what)
        .about(array)
        .because(
            "its users wrote blocks of that size, and kernels before 6.19 would offer \
                  smaller ones",
        )
        .remedy(Risk::Look, "See what it says", format!("braid examine {}", words(members, &[])))
}
