//! Slightly damaged superblocks (`braid_ondisk::damaged_superblock`): searched on disks without a
//! sound superblock, reported, and believed by `--with`.
//!
//! ```text
//!   a disk without a sound superblock
//!   ─▶ its ends, usual starts of partitions, ends of shorter disks, after its content
//!          │ each sector that begins a superblock, or nearly
//!          ▼
//!     named by --with? ─▶ a member: `DISK`, or `DISK@SECTOR` if it does not begin with the disk
//!                   no ─▶ reported, with the command that believes it
//! ```
//!
//! Superblocks are corrected in memory only, until a commit.
//!
//! Invariant: only named members are believed
//! `[check: members_that_wipefs_has_been_at_are_read_where_that_is_asked_for]`.

use std::ops::Range;
use std::sync::Arc;

use braid_geometry::{SECTOR_BYTES, layout_name};
use braid_member::Member;
use braid_member::layer::{Holes, Part};
use braid_ondisk::{
    DamagedSuperblock, Flaw, Role, Superblock, Version, format_uuid, may_be_damaged,
    recognise_damaged, recognise_damaged_v0,
};
use braid_signatures::Volume;
use serde_json::{Value, json};

use super::config::RescueConfig;
use super::copy_map;
use super::disk::{Disk, disk};
use super::memory_superblock::in_front;
use braid_console::error::CliError;
use braid_console::output::size::format_size;
use braid_discovery::open_commands::{Use, may_be_on_top, open_command};
use braid_discovery::ready::served_name;
use braid_discovery::status::words::level_word;

const SUPERBLOCK_LENGTH: usize = 4096;
const SUPERBLOCK_BYTES: u64 = SUPERBLOCK_LENGTH as u64;
/// Bytes searched at a disk's start: all partitions begin there, except on large systems.
const START_BYTES: u64 = 16 << 20;
/// Bytes searched at a disk's end, for the 1.0 superblock of a last partition, or of a disk that
/// was slightly enlarged.
const END_BYTES: u64 = 16 << 20;
/// Bytes searched after the content of a disk without a table, since a 1.0 superblock followed the
/// content.
const BEHIND_BYTES: u64 = 8 << 20;
/// Bytes searched before the former end of a smaller disk.
const OLD_END_BYTES: u64 = 2 << 20;
/// Bytes of one read of the search.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of one read where a read of `PIECE_BYTES` failed.
const SMALL_PIECE_BYTES: u64 = 64 << 10;
/// Sectors beyond 16 MiB at which partitions of NAS disks begin; `nas.rs` has the sources.
const STARTS: [u64; 10] = [
    771_120, 1_044_225, 1_060_296, 2_120_584, 4_980_736, 8_388_672, 9_437_248, 9_453_280,
    16_785_408, 21_241_856,
];
/// The most failing reads on a disk, since each takes seconds. Holes of a copy do not count.
const FAILURES_MAX: usize = 16;
/// The most superblocks reported for one disk; a disk with more holds remains of many arrays.
const REPORTED_MAX: usize = 16;

pub(super) struct Remnant {
    pub(super) label: String,
    pub(super) disk: usize,
    pub(super) damaged: DamagedSuperblock,
}

/// Whether the device holds the disk's bytes in another order, as an image does that is not raw.
fn is_wrapped(disk: &Disk) -> bool {
    let mut kinds = disk.probed.probe.foreign.iter().map(|foreign| foreign.kind);
    kinds
        .any(|kind| !may_be_on_top(kind) && open_command(kind, &disk.label, Use::Reading).is_some())
}

/// Turns believed damaged superblocks into members; returns all disks, and the superblocks to
/// report.
pub(super) fn taken(
    args: &RescueConfig,
    disks: Vec<Disk>,
) -> Result<(Vec<Disk>, Vec<Remnant>), CliError> {
    let sound = disks.iter().filter_map(|disk| disk.probed.probe.newest().cloned());
    let sound: Vec<Superblock> = sound.collect();
    let others: Vec<&Superblock> = sound.iter().collect();
    let (mut all, mut remnants) = (Vec::new(), Vec::new());
    for disk in disks {
        let is_none = disk.probed.probe.newest().is_none() && disk.volume.is_none();
        let found = match is_none && !is_wrapped(&disk) {
            true => look(&disk, &others),
            false => Vec::new(),
        };
        let label = |damaged: &DamagedSuperblock| match damaged.start_bytes / SECTOR_BYTES {
            0 => disk.label.clone(),
            start => format!("{}@{start}", disk.label),
        };
        // Commit and discard work on the overlay of an array that was served. The operator named
        // the array's members when the array was served.
        let is_believed = |label: &String| {
            let is_named =
                |name: &String| name == label || *name == disk.label || disk.path == **name;
            args.commit || args.discard || args.with.iter().any(is_named)
        };
        let found = found.into_iter().map(|damaged| (label(&damaged), damaged));
        let (believed, rest): (Vec<_>, Vec<_>) =
            found.partition(|(label, _)| !args.solve && is_believed(label));
        let members: Vec<Disk> = believed
            .into_iter()
            .map(|(label, damaged)| as_member(&disk, label, &damaged))
            .collect::<Result<_, _>>()?;
        let index = all.len();
        match members.is_empty() {
            true => all.push(disk),
            false => all.extend(members),
        }
        remnants.extend(rest.into_iter().map(|(label, damaged)| Remnant {
            label,
            disk: index,
            damaged,
        }));
    }
    Ok((all, remnants))
}

fn as_member(of: &Disk, label: String, damaged: &DamagedSuperblock) -> Result<Disk, CliError> {
    let bytes = damaged.start_bytes..damaged.start_bytes + damaged.length_bytes;
    let (mut device, mut holes, mut part) =
        (Arc::clone(&of.device), of.holes.clone(), of.part.clone());
    if bytes.end > device.size_bytes() {
        holes.push(device.size_bytes()..bytes.end);
        device = Arc::new(Holes::of_longer(device, bytes.end, &[]));
    }
    if bytes != (0..device.size_bytes()) {
        let within = Part::new(device, bytes.start, damaged.length_bytes);
        device = Arc::new(within.expect("it was made as long as that"));
        holes = copy_map::within(&holes, &bytes);
        let start = of.part.as_ref().map_or(0, |part| part.start);
        part = Some(start + bytes.start..start + bytes.end);
    }
    let member = disk(label, &of.path, (device, part), holes)?;
    let superblock = &damaged.superblock;
    if member.probed.probe.newest() == Some(superblock) {
        return Ok(member);
    }
    let data = superblock.device.data_offset_sectors;
    in_front(superblock, &(data..data + superblock.device.data_size_sectors), member)
}

fn look(disk: &Disk, others: &[&Superblock]) -> Vec<DamagedSuperblock> {
    let device = disk.device.as_ref();
    let size = device.size_bytes();
    let mut found: Vec<DamagedSuperblock> = Vec::new();
    let mut failures = 0;
    let lacks = |piece: &Range<u64>| {
        disk.holes.iter().any(|hole| hole.start < piece.end && piece.start < hole.end)
    };
    for piece in places(disk).iter().flat_map(|range| pieces(range, PIECE_BYTES)) {
        if found.len() > REPORTED_MAX || failures > FAILURES_MAX {
            break;
        }
        if look_through(device, &piece, others, &mut found) {
            continue;
        }
        // A bad sector hides only the sectors near it, so a failed read is repeated in small reads.
        for small in pieces(&piece, SMALL_PIECE_BYTES) {
            let is_read = look_through(device, &small, others, &mut found);
            failures += usize::from(!is_read && !lacks(&small));
        }
    }
    found.extend(old(device));
    found.sort_by_key(|one| (one.start_bytes, one.found_bytes));
    found.dedup_by_key(|one| one.found_bytes);
    // If one array lies on another, its superblocks are among the data of the lower array.
    let data_of = |one: &DamagedSuperblock| {
        let start = one.start_bytes + one.superblock.device.data_offset_sectors * SECTOR_BYTES;
        start..(start + one.superblock.device.data_size_sectors * SECTOR_BYTES).min(size)
    };
    let areas: Vec<Range<u64>> = found.iter().map(data_of).collect();
    found.retain(|one| !areas.iter().any(|area| area.contains(&one.found_bytes)));
    found.truncate(REPORTED_MAX);
    found
}

fn old(device: &dyn Member) -> Option<DamagedSuperblock> {
    let size = device.size_bytes();
    let sector = Version::V0_90.super_offset_sectors(size / SECTOR_BYTES)?;
    let mut bytes = vec![0; SUPERBLOCK_LENGTH];
    device.read_at(&mut bytes, sector * SECTOR_BYTES).ok()?;
    recognise_damaged_v0(&bytes, size)
}

/// Looks for superblocks at each sector of a read; `false` if the piece could not be read.
fn look_through(
    device: &dyn Member,
    piece: &Range<u64>,
    others: &[&Superblock],
    found: &mut Vec<DamagedSuperblock>,
) -> bool {
    let size = device.size_bytes();
    let end = (piece.end + SUPERBLOCK_BYTES).min(size);
    let mut bytes = vec![0; usize::try_from(end - piece.start).expect("a piece is small")];
    if device.read_at(&mut bytes, piece.start).is_err() {
        return false;
    }
    let sectors = (piece.start..piece.end).step_by(512).zip(bytes.chunks(512).enumerate());
    for (at, (sector, _)) in sectors {
        let rest = &bytes[sector * 512..];
        let block = &rest[..rest.len().min(SUPERBLOCK_LENGTH)];
        if may_be_damaged(block) {
            found.extend(recognise_damaged(block, size, at, others));
        }
    }
    true
}

/// The ranges to search, in order and without overlap.
fn places(disk: &Disk) -> Vec<Range<u64>> {
    let size = disk.device.size_bytes();
    let near = |sector: &u64| {
        let at = sector.saturating_mul(SECTOR_BYTES);
        at..at.saturating_add(2 * SUPERBLOCK_BYTES)
    };
    let old_end = |end: u64| end.saturating_sub(OLD_END_BYTES)..end;
    let behind = |volume: &Volume| {
        let bytes = volume.signatures.iter().find_map(|signature| signature.facts.size_bytes);
        bytes
            .filter(|_| volume.partition.is_none())
            .map(|end| end..end.saturating_add(BEHIND_BYTES))
    };
    let mut ranges = vec![0..START_BYTES, size.saturating_sub(END_BYTES)..size];
    ranges.extend(STARTS.iter().map(near));
    ranges.extend(disk_sizes().map(old_end));
    ranges.extend(disk.contents.volumes.iter().filter_map(behind));
    let whole = |at: u64| at - at % SECTOR_BYTES;
    let mut ranges: Vec<Range<u64>> = ranges
        .into_iter()
        .map(|range| whole(range.start)..whole(range.end.min(size)))
        .filter(|range| range.start < range.end)
        .collect();
    ranges.sort_by_key(|range| range.start);
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match apart.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => apart.push(range),
        }
    }
    apart
}

/// Disk sizes by labelled capacity, as makers have agreed (IDEMA, LBA1-03): from 80 GB to 40 TB.
fn disk_sizes() -> impl Iterator<Item = u64> {
    const GIGABYTES: [u64; 24] = [
        80, 120, 160, 200, 250, 320, 400, 500, 640, 750, 1000, 1500, 2000, 3000, 4000, 5000, 6000,
        8000, 10_000, 12_000, 14_000, 16_000, 18_000, 20_000,
    ];
    GIGABYTES
        .into_iter()
        .map(|gigabytes| (97_696_368 + 1_953_504 * gigabytes - 1_953_504 * 50) * SECTOR_BYTES)
}

fn pieces(range: &Range<u64>, bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    let step = usize::try_from(bytes).expect("a piece is small");
    (range.start..end).step_by(step).map(move |start| start..(start + bytes).min(end))
}

impl Remnant {
    pub(super) fn words(&self) -> String {
        let DamagedSuperblock { start_bytes, length_bytes, flaw, superblock, .. } = &self.damaged;
        let is_at_old_end = *start_bytes == 0 && *flaw == Flaw::Place;
        let place = match (start_bytes / SECTOR_BYTES, is_at_old_end) {
            (_, true) => format!(
                "where a device of {} would have it: this one has grown since",
                format_size(*length_bytes)
            ),
            (0, _) => String::new(),
            (start, _) => format!("of a member that begins at sector {start}"),
        };
        let flaw = match flaw {
            Flaw::Place => String::new(),
            Flaw::Magic => "with only its magic gone (as wipefs leaves it)".to_owned(),
            Flaw::Bit => "with one bit that is wrong".to_owned(),
            Flaw::Bytes(1) => "with one byte that differs from the other members".to_owned(),
            Flaw::Bytes(count) => {
                format!("with {count} bytes that differ from the other members")
            }
        };
        let parts = [flaw, place].into_iter().filter(|part| !part.is_empty());
        let parts = parts.collect::<Vec<_>>().join(", ");
        format!("a superblock {parts}: {}", whose(superblock))
    }

    pub(super) fn to_json(&self) -> Value {
        let DamagedSuperblock { found_bytes, start_bytes, length_bytes, flaw, superblock } =
            &self.damaged;
        let slot = match superblock.state.role {
            Role::Active(slot) => Some(slot),
            _ => None,
        };
        let uuid = format_uuid(&superblock.array.uuid);
        json!({
            "member": self.label,
            "flaw": match flaw {
                Flaw::Place => "place",
                Flaw::Magic => "magic",
                Flaw::Bytes(_) => "bytes",
                Flaw::Bit => "bit",
            },
            "superblock_offset_bytes": found_bytes,
            "offset_bytes": start_bytes,
            "size_bytes": length_bytes,
            "array": served_name(&superblock.array.name, &uuid),
            "array_uuid": uuid,
            "slot": slot,
        })
    }
}

/// The array that a superblock names, and the role of the superblock's device in this array.
fn whose(superblock: &Superblock) -> String {
    let array = &superblock.array;
    let uuid = format_uuid(&array.uuid);
    let layout = layout_name(array.level, array.layout).map(|name| format!(", {name}"));
    let role = match superblock.state.role {
        Role::Active(slot) => format!("slot {slot}"),
        Role::Journal => "the write journal".to_owned(),
        Role::Spare | Role::Faulty => "a spare".to_owned(),
    };
    format!(
        "{role} of {}, {} of {} members{}, events {} ({uuid})",
        served_name(&array.name, &uuid),
        level_word(array.level.name()),
        array.raid_slots,
        layout.unwrap_or_default(),
        superblock.state.events,
    )
}

/// The command that believes all of these superblocks.
pub(super) fn believing(args: &RescueConfig, remnants: &[Remnant]) -> String {
    let mut names = args.with.clone();
    names.extend(remnants.iter().map(|one| one.label.clone()));
    RescueConfig { with: names, ..args.clone() }.command("")
}
