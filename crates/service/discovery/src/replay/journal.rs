//! Replays an array's write journal: onto its members, or in memory if nothing may be written.
//!
//! The engine's machine decides (`braid_engine::replay::journal`); this module reads and writes
//! members and journal for the machine, before anything else uses them.
//!
//! ```text
//!   assembled, with its journal ─┬▶ serve --read-only   blocks in memory, laid over the members
//!                                └▶ replay              blocks on the members, flushed
//! ```
//!
//! With `--read-only`, reads return the journal's blocks where these differ from the members, and
//! nothing changes. After a replay, the journal restarts after its content. Before the restart, the
//! journal's old superblock is saved for `braid undo`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_assembly::{AssembledArray, JournalFault};
use braid_engine::replay::Finish;
use braid_engine::replay::journal::{Devices, Replay, ReplayError, Report, Setup, run};
use braid_geometry::{Geometry, Slot};
use braid_member::MemberError;
use braid_ondisk::{JOURNAL_META_BYTES, JournalLog, Snippet};
use braid_runtime::OpenMember;
use serde_json::{Value, json};

use super::{MemberDevices, ReplayTarget, SECTOR_BYTES, lay_over, ranges_json, shown, sources};
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

/// The result of replaying a write journal.
#[derive(Clone, Debug)]
pub struct JournalResult {
    report: Report,
    target: ReplayTarget,
    /// Whether the replay empties the journal. A replay for serving does not empty it: the journal
    /// restarts after its content.
    empties: bool,
    /// The `braid undo` number of the overwritten superblock.
    saved: Option<u64>,
}

/// The members and the journal, as the replay reads and writes them.
struct JournalDevices<'a> {
    members: MemberDevices<'a>,
    log: &'a JournalLog,
    journal: &'a JournalDevice<'a>,
    saved: Option<u64>,
}

impl JournalDevices<'_> {
    /// Stores the error of a failed access to the journal; returns whether the access succeeded.
    fn of_journal(&mut self, doing: &str, done: Result<(), MemberError>) -> bool {
        let is_done = done.is_ok();
        if let Err(error) = done {
            self.members.failure = Some(io_error(self.journal.label, doing, &error));
        }
        is_done
    }

    /// Keeps in memory the sectors that the member lacks, which are few in write-through mode.
    /// Returns whether they fit in memory.
    fn keep(&mut self, slot: Slot, sector: u64, bytes: &[u8]) -> bool {
        let start = self.members.sector(slot, sector);
        let mut there = vec![0; bytes.len()];
        let is_read = self.members.read(slot, sector, &mut there);
        let ((new, _), (old, _)) = (bytes.as_chunks::<512>(), there.as_chunks::<512>());
        let pairs = (start..).zip(new.iter().zip(old));
        let differing = pairs.filter(|(_, (new, old))| !is_read || new != old);
        let differing = differing.map(|(sector, (new, _))| (sector, *new));
        let labels = self.members.labels;
        self.members.keep(slot, differing, |most| {
            let what = format!(
                "the journal has more than {most} that the members lack, too much for memory"
            );
            let command = format!("braid replay {}", words(labels, &[]));
            CliError::new(Code::JournalNeeded, what).remedy(
                Risk::Change,
                "Replay it onto the members first",
                command,
            )
        })
    }

    /// Saves the journal's old superblock for `braid undo`, then writes it with the new tail.
    fn record_tail(&self, position: u64) -> Result<u64, CliError> {
        let JournalDevice { label, device, state_dir } = *self.journal;
        let mut superblock = device.superblock.clone();
        let MemberDevices { array, labels, .. } = self.members;
        superblock.set_journal_tail(position, array.newest.state.events);
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
        let command = format!("braid replay {}", words(labels, &[]));
        let planned = PlannedCommand {
            command: &command,
            array: &array.newest.array.name,
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
        self.members.read(slot, sectors.start, bytes)
    }

    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool {
        match self.members.target {
            ReplayTarget::Nowhere => true,
            ReplayTarget::Memory => self.keep(slot, sectors.start, bytes),
            ReplayTarget::Members => self.members.write(slot, sectors.start, bytes),
        }
    }

    fn flush(&mut self, slot: Slot) -> bool {
        self.members.flush(slot)
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
            Err(error) => self.members.failure = Some(error),
        }
        self.members.failure.is_none()
    }
}

/// Replays the journal; `None` if it is empty. With [`ReplayTarget::Memory`], reads return the
/// journal's blocks.
///
/// # Errors
/// The journal is unfit, a device cannot be read or written, or the data exceeds the memory limit.
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
    let finish = if target == ReplayTarget::Members { finish } else { Finish::Written };
    let (geometry, may_return) = (*geometry, array.may_return());
    let setup = Setup { geometry, members: sources(array), may_return, log, finish };
    let refused = |error: ReplayError| not_replayed(error, labels);
    let machine = Replay::new(setup).map_err(refused)?;
    let uuid = array.newest.uuid_as_stored();
    let devices = MemberDevices::new(array, (members, labels), target);
    let mut devices = JournalDevices { members: devices, log, journal, saved: None };
    if target == ReplayTarget::Members {
        // A killed process may have left a record in the device's cache. The replay reads this
        // record, so the record must be durable before data that depend on it.
        let flushed = journal.device.device.flush();
        flushed.map_err(|error| io_error(journal.label, "flushing", &error))?;
    }
    let ended = run(machine, &geometry, &uuid, &mut devices);
    let JournalDevices { members: MemberDevices { patches, failure, .. }, saved, .. } = devices;
    let report = ended.map_err(|error| failure.unwrap_or_else(|| refused(error)))?;
    lay_over(array, members, patches);
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

    /// The result of the replay and the remaining damage, in words.
    pub(super) fn lines(&self) -> Vec<String> {
        let Report { stripes, pending_stripes, written_sectors, unsettled, is_settled } =
            &self.report;
        let size = format_size(written_sectors * SECTOR_BYTES);
        let noun = if *stripes == 1 { "stripe" } else { "stripes" };
        let (was, target) = self.target.words();
        let done = format!(
            "the write journal {was} replayed: {stripes} {noun} of 4 KiB, {pending_stripes} of them without parity in the journal; \
             {size} ({target})"
        );
        let mut lines = vec![done];
        if !unsettled.is_empty() {
            let shown = shown(unsettled);
            lines.push(format!(
                "the newest writes of array sectors {shown} stay in the journal: too much of \
                 their stripes is missing to compute parity; these sectors read as before the \
                 writes"
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
        json!({
            "journal_stripes": stripes,
            "pending_stripes": pending_stripes,
            "written_bytes": written_sectors * SECTOR_BYTES,
            "unsettled": ranges_json(unsettled),
            "journal_emptied": is_settled,
            "undo": self.saved,
            "where": self.target.to_json(),
        })
    }
}
