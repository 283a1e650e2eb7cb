//! Carries out the plan of `create`, so that a failure half-way leaves members as they were.
//!
//! ```text
//!   make files -> save wiped bytes -> wipe -> zero -> superblocks, durable -> read back, assemble
//!        on any failure: files made here are removed, first and last bytes of others put back
//! ```
//!
//! A signal counts as a failure between two steps. `--zero` cannot be undone; the operator asks for
//! it by name. Once its first byte is written, nothing is put back on any member: old superblocks
//! over zeroes would look like a healthy array that has lost its contents
//! (`tests::a_failure_after_zeroing_began_puts_no_old_superblock_back`).

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_assembly::{Choice, GivenBitmapFile, Options, ProbedMember, Verdict, assemble};
use braid_engine::array::{ParityLogRecord, parity_log_for};
use braid_geometry::SECTOR_BYTES;
use braid_member::{Member, create_file};
use braid_ondisk::{BitmapKind, Bits, LocklessMarks, Snippet, Superblock};

use super::candidates::Source;
use super::plan::{Plan, PlannedMember, Sync};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::signals::flag_ending;
use braid_console::state::remove_files;
use braid_discovery::bitmap_file;
use braid_discovery::contents::{read_ends, signature_sectors};
use braid_discovery::probe::{io_error, open_error, probe_member};
use braid_discovery::refusal;
use braid_discovery::undo::unfinished::end;
use braid_discovery::undo::{Mark, Overwrite, PlannedCommand, SavedRecord, save, standing};

/// Bytes that are zeroed before the progress is shown again.
const ZERO_STEP_BYTES: u64 = 64 << 20;

pub(super) struct CreatedArray {
    pub(super) array_uuid: [u8; 16],
    /// The record of the overwritten bytes, if any.
    pub(super) saved: Option<SavedRecord>,
}

/// The changes that a half-done plan has made. A drop undoes all of these changes.
struct TakeBack<'a> {
    plan: &'a Plan,
    files: Vec<PathBuf>,
    /// The record of the old bytes of members.
    saved: Option<SavedRecord>,
    /// Whether a member that existed before may have been written.
    has_written: bool,
    /// For each member, the old bytes of every range that the plan writes.
    old: Vec<Vec<Snippet>>,
    /// Members whose data area may already hold new zeroes.
    zeroed: Vec<String>,
    is_done: bool,
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        // This drop acts only after a panic: all other paths have undone every change and reported
        // the outcome.
        let _ = self.take_back();
    }
}

impl TakeBack<'_> {
    /// Undoes all changes, once. Returns members whose old bytes could not be put back.
    fn take_back(&mut self) -> Vec<&str> {
        if std::mem::replace(&mut self.is_done, true) {
            return Vec::new();
        }
        remove_files(&self.files);
        if !self.has_written || !self.zeroed.is_empty() {
            return Vec::new();
        }
        let mut failed = Vec::new();
        for (member, old) in self.plan.members.iter().zip(&self.old) {
            let Source::Existing(existing) = &member.source else { continue };
            // Not with durable writes: a device refuses durable writes after a failed flush.
            let device = existing.device.as_ref();
            let mut is_back = true;
            for snippet in old {
                is_back &= device.write_at(&snippet.bytes, snippet.offset, false).is_ok();
            }
            is_back &= device.flush().is_ok();
            if !is_back {
                failed.push(member.label.as_str());
            }
        }
        failed
    }

    /// Undoes all changes and adds the outcome to the error.
    fn explain(&mut self, mut error: CliError) -> CliError {
        let failed = self.take_back().join(", ");
        let record = self.saved.as_ref().map(|saved| saved.path.display().to_string());
        if !self.zeroed.is_empty() {
            let zeroed = self.zeroed.join(", ");
            error = error.because(format!("zeroes were written so far over: {zeroed}"));
            return match record {
                Some(record) => error.because(format!(
                    "the old superblocks saved in {record} were not put back, and must not be put \
                     back: their data is gone"
                )),
                None => error,
            };
        }
        if self.has_written && !failed.is_empty() {
            error = error.because(format!("the old bytes may not be back on: {failed}"));
        } else if self.has_written {
            error = error.because("new files were removed, and old superblocks put back");
        } else {
            error = error.because("nothing was changed");
        }
        match record {
            Some(record) => error.because(format!("a copy of the old superblocks is in {record}")),
            None => error,
        }
    }
}

/// A flag that a signal such as SIGINT sets.
#[derive(Clone)]
struct Signals(Arc<AtomicBool>);

impl Signals {
    fn watch() -> Result<Self, CliError> {
        let seen: Arc<AtomicBool> = Arc::default();
        flag_ending(&seen).map_err(|error| system("signals cannot be watched", &error))?;
        Ok(Self(seen))
    }

    /// Fails with an error once a signal has come.
    fn check(&self) -> Result<(), CliError> {
        if !self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(CliError::new(Code::Interrupted, "interrupted: the array was not made"))
    }
}

/// Carries out the plan, or undoes all of its changes. The error says whether all changes were
/// undone, and where the old superblocks are saved.
pub(super) fn apply(plan: &Plan, globals: &Globals) -> Result<CreatedArray, CliError> {
    let signals = Signals::watch()?;
    let mut back = TakeBack {
        plan,
        files: Vec::new(),
        saved: None,
        has_written: false,
        old: Vec::new(),
        zeroed: Vec::new(),
        is_done: false,
    };
    match apply_steps(plan, globals, &signals, &mut back) {
        Ok(made) => {
            back.is_done = true;
            Ok(made)
        }
        Err(error) => Err(back.explain(error)),
    }
}

fn apply_steps(
    plan: &Plan,
    globals: &Globals,
    signals: &Signals,
    back: &mut TakeBack<'_>,
) -> Result<CreatedArray, CliError> {
    let new_files = make_files(plan, &mut back.files)?;
    let bitmap_file = make_bitmap_file(plan, &mut back.files)?;
    let devices = devices(plan, &new_files);
    back.old = read_old(plan, &devices)?;
    back.saved = save_old(plan, &devices, &back.old, globals)?;
    signals.check()?;
    back.has_written = true;
    wipe(plan)?;
    if plan.sync == Sync::Zeroed {
        zero(plan, globals, signals, &mut back.zeroed)?;
    }
    signals.check()?;
    for ((device, member), superblock) in devices.iter().zip(&plan.members).zip(&plan.superblocks) {
        let write = |piece: &Snippet| device.write_at(&piece.bytes, piece.offset, true);
        metadata(plan, superblock)
            .iter()
            .try_for_each(write)
            .and_then(|()| device.flush())
            .map_err(|error| io_error(&member.label, "writing", &error))?;
    }
    let array_uuid = plan.superblocks.first().expect("a plan has members").array.uuid;
    check(plan, &devices, (array_uuid, bitmap_file))?;
    back.saved.iter().for_each(|saved| end(&globals.state_dir, saved.number));
    Ok(CreatedArray { array_uuid, saved: back.saved.clone() })
}

/// Makes new member files. Returns an entry for each member: the file, or `None` if it existed.
fn make_files(
    plan: &Plan,
    made: &mut Vec<PathBuf>,
) -> Result<Vec<Option<Box<dyn Member>>>, CliError> {
    let make = |member: &PlannedMember| match member.source {
        Source::Existing(_) => Ok(None),
        Source::ToMake => {
            let device =
                create_file(&member.path, member.size_bytes).map_err(|e| open_error(&e))?;
            made.push(member.path.clone());
            Ok(Some(device))
        }
    };
    plan.members.iter().map(make).collect()
}

fn devices<'a>(plan: &'a Plan, files: &'a [Option<Box<dyn Member>>]) -> Vec<&'a dyn Member> {
    let device = |(member, file): (&'a PlannedMember, &'a Option<Box<dyn Member>>)| match (
        &member.source,
        file,
    ) {
        (Source::Existing(existing), _) => existing.device.as_ref(),
        (Source::ToMake, file) => file.as_deref().expect("made before"),
    };
    plan.members.iter().zip(files).map(device).collect()
}

/// The bytes at both ends of each member, and at all other places that the plan writes.
fn read_old(plan: &Plan, devices: &[&dyn Member]) -> Result<Vec<Vec<Snippet>>, CliError> {
    let members = plan.members.iter().zip(devices).zip(&plan.superblocks);
    let of_member =
        |((member, device), superblock): ((&PlannedMember, &&dyn Member), &Superblock)| {
            let ends = match &member.source {
                Source::Existing(existing) => existing.snippets.clone(),
                Source::ToMake => read_ends(*device, &member.label)?,
            };
            standing(&member.label, *device, ends, &writes(plan, member, superblock))
        };
    members.map(of_member).collect()
}

/// All writes to a member except the zeroes over its data.
fn writes(plan: &Plan, member: &PlannedMember, superblock: &Superblock) -> Vec<Snippet> {
    wiped_sectors(plan, member).map(zeroes).chain(metadata(plan, superblock)).collect()
}

/// Saves the bytes that the plan overwrites, unless the ends of every member are all zero.
fn save_old(
    plan: &Plan,
    devices: &[&dyn Member],
    old: &[Vec<Snippet>],
    globals: &Globals,
) -> Result<Option<SavedRecord>, CliError> {
    let has_something = |member: &PlannedMember| matches!(&member.source, Source::Existing(existing) if !existing.is_zero());
    if !plan.members.iter().any(has_something) {
        return Ok(None);
    }
    let members = plan.members.iter().zip(devices).zip(&plan.superblocks).zip(old);
    let overwritten = members.map(|(((member, device), superblock), before)| {
        let is_made = matches!(member.source, Source::ToMake);
        let writes = writes(plan, member, superblock);
        Overwrite {
            path: &member.path,
            device: *device,
            is_made,
            ends: before,
            writes,
            last_writes: 0,
        }
    });
    let command = plan.args.command_line();
    let zeroes = plan.sync == Sync::Zeroed;
    // Once data areas are zeroed, an undo does not help.
    let mark = if zeroes { Mark::Nothing } else { Mark::Unfinished };
    let planned =
        PlannedCommand { command: &command, array: &plan.wanted.name, zeroes, undoes: None, mark };
    save(&globals.state_dir, planned, overwritten.collect()).map(Some)
}

/// The metadata writes of a member, in order; last the superblock, which names bitmap or log.
fn metadata(plan: &Plan, superblock: &Superblock) -> Vec<Snippet> {
    let kept = match plan.bitmap_file {
        Some(_) => Vec::new(),
        None => kept_for_a_crash(plan, superblock),
    };
    let own = Snippet { offset: superblock.offset_bytes(), bytes: superblock.to_bytes() };
    let sequence = plan.consistency.journal_sequence();
    let journal = sequence.and_then(|sequence| superblock.first_journal_block(sequence));
    let journal = journal.map(|(offset, bytes)| Snippet { offset, bytes });
    kept.into_iter().chain(journal).chain([own]).collect()
}

/// The bitmap and the log, on a member or in a bitmap file.
fn kept_for_a_crash(plan: &Plan, superblock: &Superblock) -> Vec<Snippet> {
    let bitmap = plan.consistency.bitmap().zip(superblock.bitmap_offset_bytes());
    let bitmap = bitmap.map(|(head, offset)| {
        // Until redundancy is right, every bit is set.
        let bits = match plan.sync {
            Sync::Pending => Bits::all(head.sync_size_sectors, head.sectors_each()),
            _ => Bits::none(head.sync_size_sectors, head.sectors_each()),
        };
        let (sectors, each) = (head.sync_size_sectors, head.sectors_each());
        let is_lockless = head.kind == BitmapKind::Lockless;
        // With `--assume-clean` every region counts as written; otherwise all are unwritten.
        let marks = is_lockless.then(|| match plan.args.assume_clean {
            true => LocklessMarks::clean(sectors, each),
            false => LocklessMarks::unwritten(sectors, each),
        });
        let bytes = head.area(&superblock.uuid_as_stored(), &bits, marks.as_ref());
        Snippet { offset, bytes }
    });
    let log = plan.consistency.log_place(superblock).map(|place| {
        // A log with a record claims to name every stripe that may be inconsistent. Until parity is
        // right, the log stays empty.
        let generation = (plan.sync != Sync::Pending).then_some(1);
        let (sector, before, entries) = (0, 0, Vec::new());
        let record = ParityLogRecord {
            place,
            sector,
            generation,
            before,
            entries,
            is_whole: true,
            is_end: false,
        };
        let (offset, bytes) = parity_log_for(superblock, &record);
        Snippet { offset, bytes }
    });
    bitmap.into_iter().chain(log).collect()
}

/// Makes the bitmap file with its content.
fn make_bitmap_file(
    plan: &Plan,
    made: &mut Vec<PathBuf>,
) -> Result<Option<GivenBitmapFile>, CliError> {
    let (Some(path), Some(bitmap)) = (&plan.bitmap_file, plan.consistency.bitmap()) else {
        return Ok(None);
    };
    let device = bitmap_file::create(path, &bitmap)?;
    made.push(path.clone());
    let label = path.display().to_string();
    let first = plan.superblocks.first().expect("an array has members");
    for snippet in kept_for_a_crash(plan, &first.for_bitmap_file(device.size_bytes())) {
        let written = device.write_at(&snippet.bytes, snippet.offset, true);
        written.map_err(|error| io_error(&label, "writing", &error))?;
    }
    bitmap_file::look(&*device, &label).map(Some)
}

/// The sectors of a member that hold recognisable signatures.
fn wiped_sectors(plan: &Plan, member: &PlannedMember) -> impl Iterator<Item = u64> + use<> {
    let sectors = match &member.source {
        Source::Existing(existing) => signature_sectors(existing, &plan.kept_sectors(member)),
        Source::ToMake => BTreeSet::new(),
    };
    sectors.into_iter()
}

fn zeroes(sector: u64) -> Snippet {
    Snippet { offset: sector * SECTOR_BYTES, bytes: vec![0; 512] }
}

fn wipe(plan: &Plan) -> Result<(), CliError> {
    for member in &plan.members {
        let Source::Existing(existing) = &member.source else { continue };
        let device = existing.device.as_ref();
        for wipe in wiped_sectors(plan, member).map(zeroes) {
            device
                .write_at(&wipe.bytes, wipe.offset, false)
                .map_err(|error| io_error(&member.label, "wiping", &error))?;
        }
        device.flush().map_err(|error| io_error(&member.label, "wiping", &error))?;
    }
    Ok(())
}

/// Zeroes the data areas of existing members; new files are zero already. A member is added to
/// `zeroed` before its first byte is written.
fn zero(
    plan: &Plan,
    globals: &Globals,
    signals: &Signals,
    zeroed: &mut Vec<String>,
) -> Result<(), CliError> {
    let shows = std::io::stderr().is_terminal() && !globals.json;
    for member in &plan.members {
        let Source::Existing(existing) = &member.source else { continue };
        if member.is_journal {
            continue; // Its bytes are written before any read.
        }
        let failed = |error| io_error(&member.label, "zeroing", &error);
        let end = (member.placement.data_offset_sectors + plan.member_size_sectors) * SECTOR_BYTES;
        let start = member.placement.data_offset_sectors * SECTOR_BYTES;
        let mut at = start;
        while at < end {
            signals.check()?;
            if at == start {
                zeroed.push(member.label.clone());
            }
            let length = ZERO_STEP_BYTES.min(end - at);
            existing.device.zero(at, length, true).map_err(failed)?;
            at += length;
            if shows {
                let percent = (at - start) * 100 / (end - start);
                // Progress is a courtesy: a closed standard error does not stop the work.
                let mut err = std::io::stderr();
                let _ = write!(err, "\rzeroing {}  {percent:>3} %", member.label)
                    .and_then(|()| err.flush());
            }
        }
        existing.device.flush().map_err(failed)?;
        if shows {
            errln!("");
        }
    }
    Ok(())
}

/// Reads the new members back: each must belong to the one new array.
fn check(
    plan: &Plan,
    devices: &[&dyn Member],
    (uuid, bitmap_file): ([u8; 16], Option<GivenBitmapFile>),
) -> Result<(), CliError> {
    let mut probed: Vec<ProbedMember> = Vec::new();
    for (device, member) in devices.iter().zip(&plan.members) {
        probed.push(probe_member(*device, &member.label)?);
    }
    let choice = Choice { uuid: Some(uuid), name: None };
    let assembly = assemble(&probed, &Options { choice, bitmap_file, ..Options::default() });
    let labels: Vec<String> = plan.members.iter().map(|member| member.label.clone()).collect();
    let mut failed =
        CliError::new(Code::VerifyFailed, "the new array reads back other bytes than were written");
    let mut is_right = true;
    for (verdict, member) in assembly.verdicts.iter().zip(&plan.members) {
        let fits = match (verdict.verdict, member.slot) {
            (Verdict::Fresh { slot }, Some(planned)) => slot == planned,
            (Verdict::Spare, None) => !member.is_journal,
            (Verdict::Journal, None) => member.is_journal,
            _ => false,
        };
        if !fits {
            is_right = false;
            failed = failed.because(format!("{}: {}", verdict.label, verdict.reason));
        }
    }
    if let Err(refused) = &assembly.array {
        is_right = false;
        failed = failed.caused_by(&refusal::cli_error(refused, &assembly.verdicts, &labels));
    }
    if is_right {
        return Ok(());
    }
    let examine = format!("braid examine {}", refusal::words(&labels, &[]));
    Err(failed.remedy(Risk::Look, "See what is there", examine))
}
