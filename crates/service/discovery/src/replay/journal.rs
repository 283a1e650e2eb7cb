//! Replays an array's write journal: onto its members, or in memory if nothing may be written.
//!
//! The engine's machine decides (`braid_engine::replay::journal`); this module reads and writes
//! members and the journal for it, before anything else uses them.
//!
//! ```text
//!   assembled, with its journal ─┬▶ serve --read-only   blocks in memory, laid over the members
//!                                └▶ replay              blocks on the members, flushed
//! ```
//!
//! With `--read-only` blocks are laid over the members where they differ, and nothing changes.
//! After a replay the journal restarts after its content. Before that its old superblock is saved
//! for `braid undo`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_assembly::{AssembledArray, JournalFault, Occupant};
use braid_engine::replay::journal::{Devices, Replay, ReplayError, Report, Setup, run};
use braid_engine::replay::{Finish, Member as Source};
use braid_geometry::{Geometry, Slot};
use braid_member::MemberError;
use braid_member::layer::Sectors;
use braid_ondisk::{JOURNAL_META_BYTES, JournalLog, Snippet};
use braid_runtime::OpenMember;
use serde_json::{Value, json};

use super::{MEMORY_BYTES_MAX, RANGES_SHOWN, ReplayTarget, SECTOR_BYTES, lay_over};
use crate::contents::read_ends;
use crate::probe::io_error;
use crate::refusal::words;
use crate::undo::{self, Mark, Overwrite, PlannedCommand};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::size::format_size;

/// The journal's device.
pub struct JournalDevice<'a> {
    /// The device's label.
    pub label: &'a str,
    /// The device, open.
    pub device: &'a OpenMember,
    /// The folder for copies of bytes that the replay overwrites.
    pub state_dir: &'a PathBuf,
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct JournalResult {
    report: Report,
    target: ReplayTarget,
    /// Whether to empty the journal. For serving it is not emptied: it restarts after its content.
    empties: bool,
    /// The `braid undo` number of the overwritten superblock.
    saved: Option<u64>,
}

/// Gives the replay access to the members and the journal.
struct JournalDevices<'a> {
    array: &'a AssembledArray,
    log: &'a JournalLog,
    members: &'a [Option<OpenMember>],
    labels: &'a [String],
    journal: &'a JournalDevice<'a>,
    target: ReplayTarget,
    patches: Vec<Sectors>,
    saved: Option<u64>,
    /// The cause of the last failure.
    failure: Option<CliError>,
}

impl JournalDevices<'_> {
    fn index(&self, slot: Slot) -> usize {
        let occupant = self.array.slots.get(slot.index()).and_then(Option::as_ref);
        occupant.expect("a replay asks only those that are there").member
    }

    fn open(&self, index: usize) -> &OpenMember {
        let open = self.members.get(index).and_then(Option::as_ref);
        open.expect("members of the array are open")
    }

    /// Runs `act` for the slot's member and for its replacement, if any. Returns whether both
    /// succeeded.
    fn each_of_slot(
        &mut self,
        slot: Slot,
        doing: &str,
        act: impl Fn(&OpenMember) -> Result<(), MemberError>,
    ) -> bool {
        let replacements = self.array.replacements.iter().filter(|(of, _)| *of == slot);
        let replacements = replacements.map(|(_, occupant)| occupant.member);
        let indices: Vec<usize> = std::iter::once(self.index(slot)).chain(replacements).collect();
        for index in indices {
            if let Err(error) = act(self.open(index)) {
                let label = self.labels.get(index).map_or("a member", String::as_str);
                self.failure = Some(io_error(label, doing, &error));
                return false;
            }
        }
        true
    }

    /// Notes the result of an access to the journal; returns whether it succeeded.
    fn of_journal(&mut self, doing: &str, done: Result<(), MemberError>) -> bool {
        let is_done = done.is_ok();
        if let Err(error) = done {
            self.failure = Some(io_error(self.journal.label, doing, &error));
        }
        is_done
    }

    /// Keeps sectors that the member lacks; in write-through mode these are few. Returns whether
    /// they fit in memory.
    fn keep(&mut self, slot: Slot, sector: u64, bytes: &[u8]) -> bool {
        let open = self.open(self.index(slot));
        let start = open.superblock.device.data_offset_sectors + sector;
        let mut there = vec![0; bytes.len()];
        let is_read = open.device.read_at(&mut there, start * SECTOR_BYTES).is_ok();
        let ((new, _), (old, _)) = (bytes.as_chunks::<512>(), there.as_chunks::<512>());
        let pairs = (start..).zip(new.iter().zip(old));
        let differing = pairs.filter(|(_, (new, old))| !is_read || new != old);
        self.patches[slot.index()].extend(differing.map(|(sector, (new, _))| (sector, *new)));
        let count: u64 = self.patches.iter().map(|sectors| sectors.len() as u64).sum();
        let has_room = count * SECTOR_BYTES <= MEMORY_BYTES_MAX;
        if !has_room {
            let most = format_size(MEMORY_BYTES_MAX);
            let what = format!(
                "the journal has more than {most} that the members lack, too much for memory"
            );
            let command = format!("braid replay {}", words(self.labels, &[]));
            let error = CliError::new(Code::JournalNeeded, what);
            self.failure =
                Some(error.remedy(Risk::Change, "Replay it onto the members first", command));
        }
        has_room
    }

    /// Saves the journal's superblock, and writes it with its new tail.
    fn record_tail(&self, position: u64) -> Result<u64, CliError> {
        let JournalDevice { label, device, state_dir } = *self.journal;
        let mut superblock = device.superblock.clone();
        superblock.set_journal_tail(position, self.array.newest.state.events);
        let ends = read_ends(&*device.device, label)?;
        let new = Snippet { offset: superblock.offset_bytes(), bytes: superblock.to_bytes() };
        let overwritten = Overwrite {
            path: Path::new(label),
            device: &*device.device,
            is_made: false,
            ends: &ends,
            writes: vec![new.clone()],
            last_writes: 0,
        };
        let command = format!("braid replay {}", words(self.labels, &[]));
        let array = &self.array.newest.array.name;
        let planned = PlannedCommand {
            command: &command,
            array,
            zeroes: false,
            undoes: None,
            mark: Mark::Nothing,
        };
        let saved = undo::save(state_dir, planned, vec![overwritten])?;
        let write = device.device.write_at(&new.bytes, new.offset, true);
        let done = write.and_then(|()| device.device.flush());
        done.map_err(|error| io_error(label, "writing", &error))?;
        Ok(saved.number)
    }
}

impl Devices for JournalDevices<'_> {
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool {
        let open = self.open(self.index(slot));
        let sector = open.superblock.device.data_offset_sectors + sectors.start;
        open.device.read_at(bytes, sector * SECTOR_BYTES).is_ok()
    }

    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool {
        match self.target {
            ReplayTarget::Nowhere => true,
            ReplayTarget::Memory => self.keep(slot, sectors.start, bytes),
            ReplayTarget::Members => self.each_of_slot(slot, "writing", |open| {
                let sector = open.superblock.device.data_offset_sectors + sectors.start;
                open.device.write_at(bytes, sector * SECTOR_BYTES, false)
            }),
        }
    }

    fn flush(&mut self, slot: Slot) -> bool {
        self.each_of_slot(slot, "flushing", |open| open.device.flush())
    }

    fn read_journal(&mut self, position: u64, bytes: &mut [u8]) -> bool {
        let at = self.log.device_bytes(position);
        let done = self.journal.device.device.read_at(bytes, at.start);
        self.of_journal("reading", done)
    }

    fn write_journal(&mut self, position: u64, bytes: &[u8]) -> bool {
        assert_eq!(bytes.len(), JOURNAL_META_BYTES, "a journal is written in blocks");
        let at = self.log.device_bytes(position);
        let done = self.journal.device.device.write_at(bytes, at.start, false);
        self.of_journal("writing", done)
    }

    fn flush_journal(&mut self) -> bool {
        let done = self.journal.device.device.flush();
        self.of_journal("flushing", done)
    }

    fn move_tail(&mut self, position: u64) -> bool {
        match self.record_tail(position) {
            Ok(number) => self.saved = Some(number),
            Err(error) => self.failure = Some(error),
        }
        self.failure.is_none()
    }
}

/// Replays the journal; `None` if it is empty. With [`ReplayTarget::Memory`] reads see its blocks.
///
/// # Errors
/// An unfit journal, a device that cannot be read or written, or more data than memory holds.
pub fn replay_journal(
    array: &mut AssembledArray,
    (members, labels): (&mut Vec<Option<OpenMember>>, &[String]),
    journal: &JournalDevice<'_>,
    (target, finish): (ReplayTarget, Finish),
) -> Result<Option<JournalResult>, CliError> {
    let (Some(assembled), Geometry::Stripe(geometry)) = (&array.journal, &array.geometry) else {
        return Ok(None);
    };
    let log = &assembled.log;
    let source = |occupant: &Occupant| Source {
        recovered_sectors: occupant.recovered_until,
        bad_sectors: occupant.bad_sectors(),
    };
    let sources = array.slots.iter().map(|slot| slot.as_ref().map(source)).collect();
    let finish = if target == ReplayTarget::Members { finish } else { Finish::Written };
    let (geometry, may_return) = (*geometry, array.may_return());
    let setup = Setup { geometry, members: sources, may_return, log, finish };
    let refused = |error: ReplayError| not_replayed(error, labels);
    let machine = Replay::new(setup).map_err(refused)?;
    let patches = vec![Sectors::new(); array.slots.len()];
    let uuid = array.newest.uuid_as_stored();
    let (saved, failure) = (None, None);
    let mut devices =
        JournalDevices { array, log, members, labels, journal, target, patches, saved, failure };
    if target == ReplayTarget::Members {
        // A killed process may have left a record in the device's cache. The replay reads it, so it
        // has to be durable before data that depend on it.
        let flushed = journal.device.device.flush();
        flushed.map_err(|error| io_error(journal.label, "flushing", &error))?;
    }
    let ended = run(machine, &geometry, &uuid, &mut devices);
    let JournalDevices { patches, saved, failure, .. } = devices;
    let report = ended.map_err(|error| failure.unwrap_or_else(|| refused(error)))?;
    if target == ReplayTarget::Memory {
        let indices = array.slots.iter().map(|slot| slot.as_ref().map(|one| one.member));
        for (index, sectors) in indices.zip(patches) {
            index.into_iter().for_each(|index| lay_over(&mut members[index], &sectors));
        }
    }
    let empties = finish == Finish::Settled;
    Ok((report.stripes > 0).then_some(JournalResult { report, target, empties, saved }))
}

fn not_replayed(error: ReplayError, labels: &[String]) -> CliError {
    let all = words(labels, &[]);
    let (label, command) = match error {
        ReplayError::NoRoom { .. } => {
            ("Read it, with the journal in memory", format!("braid serve --read-only {all}"))
        }
        ReplayError::Entry(_) | ReplayError::Failed(_) => {
            ("See what it says", format!("braid examine {all}"))
        }
    };
    CliError::new(Code::JournalNeeded, "the write journal of the array could not be replayed")
        .because(error.to_string())
        .remedy(Risk::Look, label, command)
}

/// Error for a replay that the operator requested without a valid journal.
pub fn journal_needed(fault: &JournalFault, labels: &[&str]) -> CliError {
    let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    let all = words(&labels, &[]);
    CliError::new(Code::JournalNeeded, "the write journal of the array could not be replayed")
        .because(fault.to_string())
        .remedy(Risk::Look, "Best: connect the journal's device and name it, too", "")
        .remedy(Risk::Look, "See what each member is", format!("braid examine {all}"))
}

impl JournalResult {
    /// Whether some blocks stay in the journal, because too many members are missing.
    pub fn leaves_some(&self) -> bool {
        !self.report.unsettled.is_empty()
    }

    /// The result and the remaining damage, in words.
    pub(super) fn lines(&self) -> Vec<String> {
        let Report { stripes, pending_stripes, written_sectors, unsettled, is_settled } =
            &self.report;
        let size = format_size(written_sectors * SECTOR_BYTES);
        let noun = if *stripes == 1 { "stripe" } else { "stripes" };
        let (was, target) = match self.target {
            ReplayTarget::Memory => ("was", "in memory, nothing is written"),
            ReplayTarget::Members => ("was", "on the members"),
            ReplayTarget::Nowhere => ("would be", "nothing is written"),
        };
        let done = format!(
            "the write journal {was} replayed: {stripes} {noun} of 4 KiB, {pending_stripes} of them without parity in the journal; \
             {size} ({target})"
        );
        let mut lines = vec![done];
        if !unsettled.is_empty() {
            let shown = unsettled.iter().take(RANGES_SHOWN);
            let shown = shown.map(|range| format!("{} to {}", range.start, range.end - 1));
            let shown: Vec<String> = shown.collect();
            let more = unsettled.len().saturating_sub(RANGES_SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!(
                "the newest writes of array sectors {}{more} stay in the journal: too much of \
                 their stripes is missing to compute parity; these sectors read as before the \
                 writes",
                shown.join(", ")
            ));
        }
        if self.empties && !is_settled {
            let why = "it stays unchanged for a member that is missing now";
            lines.push(format!("the journal was not emptied: {why}"));
        }
        if let Some(number) = self.saved {
            lines.push(format!(
                "the journal starts empty; `braid undo {number}` puts its superblock back"
            ));
        }
        lines
    }

    pub(super) fn to_json(&self) -> Value {
        let Report { stripes, pending_stripes, written_sectors, unsettled, is_settled } =
            &self.report;
        let range = |range: &Range<u64>| {
            json!({
                "offset_bytes": range.start * SECTOR_BYTES,
                "length_bytes": (range.end - range.start) * SECTOR_BYTES,
            })
        };
        json!({
            "journal_stripes": stripes,
            "pending_stripes": pending_stripes,
            "written_bytes": written_sectors * SECTOR_BYTES,
            "unsettled": unsettled.iter().map(range).collect::<Vec<_>>(),
            "journal_emptied": is_settled,
            "undo": self.saved,
            "where": match self.target {
                ReplayTarget::Memory => "memory",
                ReplayTarget::Members => "members",
                ReplayTarget::Nowhere => "nowhere",
            },
        })
    }
}
