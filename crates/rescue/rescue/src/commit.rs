//! `braid rescue --commit` writes the overlay's content to the members. No other code of this crate
//! writes to them.
//!
//! ```text
//!   overlay ─▶ sectors that differ ─▶ shown ─▶ members opened alone, unchanged?
//!                                                                    │ yes
//!      ┌─────────────────────────────────────────────────────────────┘
//!      └─▶ saved for undo ───────────────────┬─▶ data ─▶ superblocks
//!          a commit that stopped: its record ┘
//! ```
//!
//! Superblocks are written last, when all data are durable. A commit that stops anywhere leaves its
//! record and a mark (`undo/unfinished.rs`). The same command then finishes the commit, and `braid
//! undo` reverts it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_geometry::SECTOR_BYTES;
use braid_member::layer::Part;
use braid_member::{Access, Member, MemberError};
use braid_ondisk::Snippet;
use serde_json::{Value, json};

use super::config::RescueConfig;
use super::disks::{Disk, Disks, mark};
use super::group::Group;
use super::overlay::{self, MemberOverlay};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_discovery::contents::read_ends;
use braid_discovery::probe::{io_error, open_member};
use braid_discovery::undo::judge::Content;
use braid_discovery::undo::present_devices::{self, PresentDevice};
use braid_discovery::undo::record::differing;
use braid_discovery::undo::unfinished::{UnfinishedCommand, end};
use braid_discovery::undo::{Mark, Overwrite, PlannedCommand, save, writing};

/// Bytes that are compared at once, and the most bytes of one write.
const PIECE_BYTES: u64 = 1 << 20;
/// The most bytes that a commit may change. Old and new bytes are both saved, in one file of at
/// most 1 GiB.
const COMMIT_BYTES_MAX: u64 = 256 << 20;

struct Change {
    label: String,
    path: PathBuf,
    part: Option<Range<u64>>,
    mark: u64,
    /// The position of the member's superblock, relative to `part`.
    superblock: Range<u64>,
    /// Runs of bytes that differ from the member in every sector, with offsets relative to `part`.
    pieces: Vec<Snippet>,
}

impl Change {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }

    /// The changed sectors of the device, with adjacent ranges merged.
    fn sectors(&self) -> Vec<Range<u64>> {
        let start = self.start();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut pieces: Vec<&Snippet> = self.pieces.iter().collect();
        pieces.sort_by_key(|piece| piece.offset);
        for piece in pieces {
            let from = (start + piece.offset) / SECTOR_BYTES;
            let until = from + piece.bytes.len() as u64 / SECTOR_BYTES;
            match ranges.last_mut() {
                Some(last) if last.end == from => last.end = until,
                _ => ranges.push(from..until),
            }
        }
        ranges
    }

    fn start(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.start)
    }

    /// Runs of bytes to write on the device: those of the superblock, and all other runs.
    fn writes(&self) -> (Vec<Snippet>, Vec<Snippet>) {
        let start = self.start();
        let moved = |piece: &Snippet| Snippet { offset: start + piece.offset, ..piece.clone() };
        let is_superblock = |piece: &&Snippet| self.superblock.contains(&piece.offset);
        let (last, first): (Vec<&Snippet>, Vec<&Snippet>) =
            self.pieces.iter().partition(is_superblock);
        (last.into_iter().map(moved).collect(), first.into_iter().map(moved).collect())
    }
}

pub(super) fn commit(
    args: &RescueConfig,
    disks: Disks,
    group: &Group,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let folder = overlay::folder(args, &group.uuid, globals);
    let overlays = overlay::open(args, (&disks, group), globals)?;
    if overlays.iter().all(Option::is_none) {
        return Err(overlay::missing(args, &folder));
    }
    let members = group.members.iter().map(|index| &disks.all[*index]);
    let mut changes = Vec::new();
    let mut bytes = 0;
    for (disk, overlay) in members.zip(&overlays) {
        let Some(overlay) = overlay else { continue };
        let change = change(disk, overlay)?;
        bytes += change.bytes();
        if bytes > COMMIT_BYTES_MAX {
            let all: u64 = overlays.iter().flatten().map(|one| one.used_bytes()).sum();
            return Err(too_much(args, all));
        }
        changes.push(change);
    }
    show(&changes, &group.name, (args.dry_run, globals));
    if args.dry_run {
        return Ok(Exit::Done);
    }
    // Devices that are open for reading keep writers out, so these devices are closed before the
    // write.
    drop((overlays, disks));
    let saved = write(args, (&changes, &folder), group, globals)?;
    finished((&group.name, saved), &folder, globals)
}

/// Finishes a commit that stopped: the commit's record has all bytes that the commit writes.
pub(super) fn go_on(
    args: &RescueConfig,
    stopped: &UnfinishedCommand,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let folder = stopped.overlay.as_deref().expect("a commit has an overlay");
    let access = if args.dry_run { Access::Examine } else { Access::ReadWrite };
    let found = present_devices::all(&stopped.record, &[], access)?;
    if found.iter().any(|one| one.content == Content::Changed) {
        return Err(stopped.refused(&globals.state_dir));
    }
    let of = |one: &PresentDevice<'_>| {
        let left = one
            .device
            .after()
            .iter()
            .zip(&one.now)
            .flat_map(|(after, now)| differing(now.offset, &after.bytes, &now.bytes))
            .collect();
        Change {
            label: one.label.clone(),
            path: one.device.path.clone(),
            part: None,
            mark: 0,
            superblock: 0..0,
            pieces: left,
        }
    };
    let changes: Vec<Change> = found.iter().map(of).collect();
    show(&changes, &stopped.record.array, (args.dry_run, globals));
    if args.dry_run {
        return Ok(Exit::Done);
    }
    let devices: Vec<_> = found.iter().map(|one| (one.device, one.open.as_ref())).collect();
    writing::forward(&devices)
        .map_err(|(index, error)| not_written(&found[index].label, &error, stopped.number))?;
    drop(found);
    finished((&stopped.record.array, stopped.number), folder, globals)
}

fn finished(
    (array, saved): (&str, u64),
    folder: &Path,
    globals: &Globals,
) -> Result<Exit, CliError> {
    // The mark of the unfinished commit is removed after the overlay: without an overlay, nothing
    // is left to commit.
    overlay::remove_committed(folder)?;
    end(&globals.state_dir, saved);
    if globals.json {
        outjson!(&json!({ "committed": array, "undo": saved }));
    } else {
        outln!(
            "written; `braid undo {saved}` takes it back, as long as no program writes to the \
             members"
        );
    }
    Ok(Exit::Done)
}

fn not_written(label: &str, error: &MemberError, saved: u64) -> CliError {
    io_error(label, "writing", error)
        .because(format!("`braid undo {saved}` takes back the writes before that"))
        .because("the same command, once the member can be written, goes on where it was")
}

/// The sectors in which an overlay differs from its member. Superblocks that are only in memory
/// count as differing sectors too.
fn change(disk: &Disk, overlay: &MemberOverlay) -> Result<Change, CliError> {
    let mut pieces: Vec<Snippet> = Vec::new();
    let (below, mark, in_memory): (&dyn Member, _, &[Range<u64>]) = match &disk.plain {
        None => (overlay.below(), disk.mark, &[]),
        Some(plain) => (&plain.device, plain.mark, &plain.ranges),
    };
    // Ranges of the overlay that are also in memory are compared once.
    let ranges = overlay.ranges();
    let is_over = |range: &&Range<u64>| {
        ranges.iter().any(|it| it.start <= range.start && range.end <= it.end)
    };
    let alone: Vec<Range<u64>> =
        in_memory.iter().filter(|range| !is_over(range)).cloned().collect();
    for range in ranges.iter().chain(&alone).cloned() {
        let mut at = range.start;
        while at < range.end {
            let length = PIECE_BYTES.min(range.end - at);
            let read = |device: &dyn Member| {
                let mut bytes = vec![0; usize::try_from(length).expect("a piece")];
                let read = device.read_at(&mut bytes, at);
                read.map(|()| bytes).map_err(|error| io_error(&disk.label, "reading", &error))
            };
            let (new, old) = (read(overlay)?, read(below)?);
            pieces.extend(differing(at, &new, &old));
            at += length;
        }
    }
    let found = disk.probed.probe.newest();
    let superblock = found.map_or(0..0, |it| it.offset_bytes()..it.offset_bytes() + 4096);
    let pieces = pieces.into_iter().flat_map(|piece| cut_at(superblock.start, piece)).collect();
    let (label, path) = (disk.label.clone(), disk.path.clone());
    Ok(Change { label, path, part: disk.part.clone(), mark, superblock, pieces })
}

/// Cuts a run in two where the run spans `place`.
fn cut_at(place: u64, piece: Snippet) -> Vec<Snippet> {
    let within = place.checked_sub(piece.offset).and_then(|within| usize::try_from(within).ok());
    match within.filter(|within| (1..piece.bytes.len()).contains(within)) {
        None => vec![piece],
        Some(within) => {
            let (first, last) = piece.bytes.split_at(within);
            let snippet = |offset, bytes: &[u8]| Snippet { offset, bytes: bytes.to_vec() };
            vec![snippet(piece.offset, first), snippet(place, last)]
        }
    }
}

fn show(changes: &[Change], array: &str, (is_dry, globals): (bool, &Globals)) {
    if globals.json {
        let of = |change: &Change| {
            let range = |range: &Range<u64>| json!([range.start, range.end]);
            let sectors: Value = change.sectors().iter().map(range).collect();
            json!({ "member": change.label, "sectors": sectors, "bytes": change.bytes() })
        };
        let changes: Vec<Value> = changes.iter().map(of).collect();
        return outjson!(&json!({ "array": array, "dry_run": is_dry, "changes": changes }));
    }
    let verb = if is_dry { "would be" } else { "are" };
    outln!("{}: these sectors of members {verb} written", printable(array));
    for change in changes {
        let size = format_size(change.bytes());
        outln!("  {}  {size}", printable(&change.label));
        for range in change.sectors() {
            outln!("    {}..{}", range.start, range.end);
        }
    }
}

struct CommitTarget {
    device: Box<dyn Member>,
    /// The bytes at the device's ends.
    ends: Vec<Snippet>,
    superblocks: Vec<Snippet>,
    others: Vec<Snippet>,
}

/// Saves the member's bytes that are to be overwritten, and then writes.
fn write(
    args: &RescueConfig,
    (changes, folder): (&[Change], &Path),
    group: &Group,
    globals: &Globals,
) -> Result<u64, CliError> {
    // Several partitions of a disk share one device.
    let mut devices: BTreeMap<&Path, CommitTarget> = BTreeMap::new();
    for change in changes.iter().filter(|change| !change.pieces.is_empty()) {
        let path = change.path.as_path();
        if !devices.contains_key(path) {
            let device = open_member(path, Access::ReadWrite)?;
            let ends = read_ends(device.as_ref(), &path.display().to_string())?;
            devices.insert(
                path,
                CommitTarget { device, ends, superblocks: Vec::new(), others: Vec::new() },
            );
        }
        let written = devices.get_mut(path).expect("it was just put there");
        check(args, change, &written.device)?;
        let (last, first) = change.writes();
        written.superblocks.extend(last);
        written.others.extend(first);
    }
    let command = args.command("--commit");
    let mark = Mark::Commits(folder);
    let planned =
        PlannedCommand { command: &command, array: &group.name, zeroes: false, undoes: None, mark };
    let overwritten = devices.iter().map(|(path, written)| Overwrite {
        path,
        device: written.device.as_ref(),
        is_made: false,
        ends: &written.ends,
        writes: written.others.iter().chain(&written.superblocks).cloned().collect(),
        last_writes: written.superblocks.len(),
    });
    let saved = save(&globals.state_dir, planned, overwritten.collect())?;
    let members: Vec<_> = saved
        .record
        .devices
        .iter()
        .zip(devices.values().map(|written| written.device.as_ref()))
        .collect();
    let label = |index: usize| saved.record.devices[index].path.display().to_string();
    writing::forward(&members)
        .map_err(|(index, error)| not_written(&label(index), &error, saved.number))?;
    Ok(saved.number)
}

/// Refuses if another program wrote to the member while braid did not hold it.
fn check(args: &RescueConfig, change: &Change, device: &dyn Member) -> Result<(), CliError> {
    let now = match &change.part {
        None => mark(device, &change.label)?,
        Some(part) => {
            let part = Part::new(device, part.start, part.end - part.start);
            let part = part.map_err(|error| io_error(&change.label, "reading", &error))?;
            mark(&part, &change.label)?
        }
    };
    if now == change.mark {
        return Ok(());
    }
    let what = format!("{} was written to in this moment", change.label);
    let error = CliError::new(Code::OverlayUnfit, what).about(change.label.clone());
    Err(error.because("nothing was written").remedy(
        Risk::Look,
        "Look at the array",
        args.command(""),
    ))
}

fn too_much(args: &RescueConfig, bytes: u64) -> CliError {
    let what = format!(
        "the overlay changes {} of the members, and only {} can be saved for an undo",
        format_size(bytes),
        format_size(COMMIT_BYTES_MAX)
    );
    CliError::new(Code::CommitTooLarge, what).because("nothing was written").remedy(
        Risk::Look,
        "Copy the files out of the array instead",
        args.command("--serve --read-only"),
    )
}
