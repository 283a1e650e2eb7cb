//! `braid rescue --fill` computes the bytes that a copy of a disk lacks, and writes them into the
//! copy.
//!
//! ```text
//!   the copy's holes ─▶ rows of the array
//!   ─▶ read: the engine computes missing bytes from the others ─▶ written again, over an overlay
//!   ─▶ the overlay's blocks in the holes ─▶ the copy ─▶ its map
//! ```
//!
//! The rows are written with their own content, so that parity in a hole is computed as well. All
//! writes go to a separate overlay, which is deleted in the end. Only the bytes in holes are copied
//! from the overlay: byte for byte those of the disk.
//!
//! Invariants:
//! - only holes of the copy are written, and no other member
//!   `[check: a_copy_is_filled_from_the_others]`;
//! - nothing is computed while parity may be wrong: an array that was interrupted while writing is
//!   refused `[check: a_copy_of_an_interrupted_array_is_not_filled]`.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use braid_assembly::rescue::MemberUse;
use braid_geometry::{Geometry, SECTOR_BYTES, Slot};
use braid_imaging::{Map, State};
use braid_member::Member;
use braid_runtime::{ClientRequest, Io, Volume};
use serde_json::json;

use super::config::RescueConfig;
use super::copy_map::{self, CopyMap};
use super::disks::Disks;
use super::overlay::BLOCK_BYTES;
use super::rescue_array::RescueArray;
use super::serve::over_overlay;
use super::unreadable_ranges::{array_sectors, pieces, read};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_console::regular::open_with;
use braid_discovery::maps;
use braid_discovery::ready::Ready;

/// Sectors that are read and written at once in levels without rows.
const PIECE_SECTORS: u64 = 2048;
/// Sectors of a hole that are handled at once.
const STRETCH_SECTORS: u64 = 1 << 16;

pub(super) fn fill(
    args: &RescueConfig,
    image: &Path,
    (disks, mut found): (Disks, RescueArray),
    globals: &Globals,
) -> Result<Exit, CliError> {
    let is_of = |index: &usize| disks.all[found.group.members[*index]].path == image;
    let indices: Vec<usize> = (0..found.labels.len()).filter(is_of).collect();
    if indices.is_empty() {
        let what = format!("{} is not a member of this array", image.display());
        let labels = found.labels.join(", ");
        return Err(CliError::new(Code::Usage, what).because(format!("they are {labels}")).remedy(
            Risk::Look,
            "See what is",
            args.command(""),
        ));
    }
    if !fs::metadata(image).is_ok_and(|there| there.is_file()) {
        return Err(refused(image, "it is a device, and this command writes only to copies", args));
    }
    if found.overlays.iter().any(Option::is_some) {
        return Err(refused(
            image,
            "the members have an overlay, which would enter the computation",
            args,
        )
        .remedy(Risk::Destroy, "Throw it away", args.command("--discard")));
    }
    if found.plan.array.as_ref().is_ok_and(|array| array.dirty) {
        let why = "the array stopped during a write, so its parity may not fit, and computed data \
                   may be wrong";
        return Err(refused(image, why, args));
    }
    let left_out =
        indices.iter().find(|index| !matches!(found.plan.member_uses[**index], MemberUse::Used));
    if let Some(index) = left_out {
        let why = format!("the array leaves it out: {}", found.plan.verdicts[*index].reason);
        let newer = "data computed from the others is newer than the rest of the copy";
        return Err(refused(image, &why, args).because(newer));
    }
    let mut copy_map = map_of(args, image, (&disks, &found.group.members[indices[0]]))?;
    let folder = found.folder.join("fill");
    let temporary = TemporaryFolder(&folder);
    temporary.clear();
    let mut filled = Vec::new();
    found.folder.clone_from(&folder);
    let ready = over_overlay(args, &disks, &mut found, globals)?;
    let used = computed(ready, &indices, &disks, &found)?;
    let file = open_with(image, OpenOptions::new().write(true));
    let file = file
        .map_err(|error| system(format!("{} cannot be written", image.display()), &error.into()))?;
    for index in &indices {
        let disk = &disks.all[found.group.members[*index]];
        let start = disk.part.as_ref().map_or(0, |part| part.start);
        let overlay = found.overlays[*index].as_ref();
        let overlay = overlay.expect("who is used has one");
        // braid's own metadata next to the data is only in the overlay, so it is not copied.
        let sectors = used.iter().find(|(member, _)| member == index).map_or(0, |(_, used)| *used);
        let superblock = found.probed[*index].probe.newest();
        let data = superblock.map_or(0, |found| found.device.data_offset_sectors);
        let data = data * SECTOR_BYTES..(data + sectors) * SECTOR_BYTES;
        let of_data =
            disk.holes.iter().map(|hole| hole.start.max(data.start)..hole.end.min(data.end));
        for hole in &of_data.filter(|hole| hole.start < hole.end).collect::<Vec<_>>() {
            filled.extend(taken(overlay.as_ref(), hole, (&file, start)).map_err(|error| {
                system(format!("{} cannot be written", image.display()), &error)
            })?);
        }
    }
    file.sync_all()
        .map_err(|error| system(format!("{} cannot be written", image.display()), &error))?;
    for range in &filled {
        copy_map.map.set(range.clone(), State::Done);
    }
    let remark = "Filled by braid from other members of its array";
    maps::write(&copy_map.path, &copy_map.map.to_text(&[remark], (0, '+'), 1))?;
    let bytes: u64 = filled.iter().map(|range| range.end - range.start).sum();
    let missing = copy_map.map.missing();
    let left: u64 = missing.iter().map(|range| range.end - range.start).sum();
    if globals.json {
        outjson!(&json!({
            "image": image.display().to_string(),
            "filled_bytes": bytes,
            "missing": missing.iter().map(|range| json!({ "offset_bytes": range.start, "length_bytes": range.end - range.start })).collect::<Vec<_>>(),
        }));
    } else {
        let name = printable(&image.display().to_string()).into_owned();
        outln!(
            "{} of {name} computed from the others and written; nothing else was",
            format_size(bytes)
        );
        match left {
            0 => outln!("  it is complete now"),
            _ => outln!(
                "  it still lacks {} in {} places: too much is missing there, or the array does \
                 not use them",
                format_size(left),
                missing.len()
            ),
        }
        outln!("  see the contents of the array: {}", printable(&args.command("")));
    }
    Ok(if missing.is_empty() { Exit::Done } else { Exit::Attention })
}

/// The copy's map before the fill. A copy that is only shorter than its disk has no map yet.
fn map_of(
    args: &RescueConfig,
    image: &Path,
    (disks, index): (&Disks, &usize),
) -> Result<CopyMap, CliError> {
    let copy = fs::metadata(image).map_err(|error| system("the copy is gone", &error))?;
    let found = copy_map::of(args, image, copy.len())?;
    let size_bytes = disks.all[*index].device.size_bytes();
    match found {
        Some(copy_map) => Ok(copy_map),
        None if size_bytes > copy.len() => {
            let mut map = Map::new(size_bytes);
            map.set(0..copy.len(), State::Done);
            Ok(CopyMap { path: maps::beside(image), map })
        }
        None => Err(refused(image, "it has no map that lists its missing parts", args)),
    }
}

fn refused(image: &Path, why: &str, args: &RescueConfig) -> CliError {
    CliError::new(Code::ImageUnfit, "the copy is not filled")
        .about(image.display().to_string())
        .because(why)
        .remedy(Risk::Look, "See the state of the array", args.command(""))
}

/// Lets the engine read the bytes that copies lack and write them again, over the overlay. Returns
/// the used data sectors of each copy.
fn computed(
    ready: Ready,
    indices: &[usize],
    disks: &Disks,
    found: &RescueArray,
) -> Result<Vec<(usize, u64)>, CliError> {
    let options = braid_runtime::Options {
        jobs_paused: true,
        io: Io::Threads,
        ..braid_runtime::Options::default()
    };
    let geometry = ready.array.geometry.clone();
    let slots: Vec<(Slot, usize)> = (0..)
        .map(Slot)
        .zip(&ready.array.slots)
        .filter_map(|(slot, occupant)| Some((slot, occupant.as_ref()?.member)))
        .filter(|(_, member)| indices.contains(member))
        .collect();
    let volume = Volume::open(&ready.array, ready.members, &options, |_| {});
    let volume = volume.map_err(|error| CliError::new(Code::MemberIo, error.to_string()))?;
    for (slot, member) in &slots {
        // Holes are handled in pieces of `STRETCH_SECTORS`, to keep the lists of sectors short.
        let holes = found.holes_of(disks, *member);
        for hole in holes.iter().flat_map(|hole| pieces(hole, STRETCH_SECTORS)) {
            let touched = array_sectors(&geometry, *slot, &hole, true);
            for row in touched.iter().flat_map(|range| rows_of(&geometry, range)) {
                let bytes = row.start * SECTOR_BYTES..row.end * SECTOR_BYTES;
                if let Some(payload) = read(&volume, &bytes) {
                    // Bytes that cannot be written stay a hole of the copy.
                    let offset = bytes.start;
                    let write = ClientRequest::Write { offset, payload, durable: false };
                    let _ = volume.call(write);
                }
            }
        }
    }
    let flushed = volume.call(ClientRequest::Flush);
    volume.stop();
    flushed.result.map_err(|error| CliError::new(Code::MemberIo, error.to_string()))?;
    let used = |(slot, member): &(Slot, usize)| (*member, geometry.used_sectors(*slot));
    Ok(slots.iter().map(used).collect())
}

/// Splits a range into whole rows, if the level has rows: a full-stripe write includes parity
/// without reading.
fn rows_of(geometry: &Geometry, range: &Range<u64>) -> Vec<Range<u64>> {
    let length = match geometry {
        Geometry::Stripe(stripe) => {
            u64::from(stripe.chunk_sectors()) * u64::from(stripe.data_slots())
        }
        Geometry::Direct(_) | Geometry::Mirror(_) => PIECE_SECTORS,
    };
    pieces(range, length).collect()
}

/// Writes the bytes of a hole that `overlay` can now read into the copy. Returns their ranges in
/// the copy.
fn taken(
    overlay: &dyn Member,
    hole: &Range<u64>,
    (file, start): (&File, u64),
) -> std::io::Result<Vec<Range<u64>>> {
    let mut filled: Vec<Range<u64>> = Vec::new();
    let mut buffer = vec![0; usize::try_from(BLOCK_BYTES).expect("small")];
    let mut at = hole.start;
    while at < hole.end {
        let until = (at - at % BLOCK_BYTES + BLOCK_BYTES).min(hole.end);
        let bytes = &mut buffer[..usize::try_from(until - at).expect("small")];
        if overlay.read_at(bytes, at).is_ok() {
            file.write_all_at(bytes, start + at)?;
            match filled.last_mut().filter(|last| last.end == start + at) {
                Some(last) => last.end = start + until,
                None => filled.push(start + at..start + until),
            }
        }
        at = until;
    }
    Ok(filled)
}

/// The folder of the temporary overlay, deleted at the end in any case.
pub(super) struct TemporaryFolder<'a>(pub(super) &'a Path);

impl TemporaryFolder<'_> {
    pub(super) fn clear(&self) {
        // Usually the overlay's folder no longer exists, and a leftover only takes space.
        let _ = fs::remove_dir_all(self.0);
        // The array's folder goes as well, if it is empty.
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

impl Drop for TemporaryFolder<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}
