//! `braid image`: copies the readable part of a failing disk into a file.
//!
//! ```text
//!   SOURCE (read-only, locked, past the page cache) ─▶ plan (braid-imaging) ─┬▶ IMAGE, sparse
//!                                                                            └▶ IMAGE.map
//! ```
//!
//! The copy writes `IMAGE.map` after the read sectors are durable.
//!
//! The copy can be stopped at any moment and resumed. The map has ddrescue's format: ddrescue can
//! resume from braid's map, and braid from ddrescue's. `braid rescue --fill` computes unreadable
//! sectors from the other members.
//!
//! Invariants:
//! - nothing is written to the disk `[check: a_failing_disk_is_copied_as_far_as_it_can_be_read]`;
//! - the map calls no sector read that the image does not durably have
//!   `[check: a_copy_that_was_killed_is_gone_on_with]`.

mod copy_run;
mod holes;
mod progress;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use braid_geometry::SECTOR_BYTES;
use braid_imaging::{Map, PIECE_BYTES, Plan, State};
use braid_member::{Access, Member, MemberKind, create_file};
use braid_ring::Payload;
use serde_json::json;

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_console::regular::open_with;
use braid_console::signals;
use braid_discovery::maps;
use braid_discovery::probe::{io_error, open_error, open_member};
use copy_run::{CopyEnd, CopyRun};

/// Places at which a resumed copy is compared with the disk.
const SAMPLES: u64 = 64;
/// Bytes that are compared with the disk at each place.
const SAMPLE_BYTES: usize = 4096;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The disk: a block device, or a file.
    #[arg(value_name = "DISK")]
    source: PathBuf,
    /// The copy: a new file, or a copy that was begun.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The map of sectors read so far, in ddrescue's format; without it IMAGE.map.
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// How often unreadable sectors are retried at the end, by turns from both ends of the disk.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    retries: u32,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let source = open_member(&args.source, Access::ReadOnly)?;
    // The page cache would read ahead into bad sectors. Without direct I/O the copy still works.
    let _ = source.go_direct();
    let map_path = args.map.clone().unwrap_or_else(|| maps::beside(&args.image));
    let (image, mut map) = image(args, source.as_ref(), &map_path)?;
    if source.identity().kind == MemberKind::File {
        holes::skip(&args.source, image.as_ref(), &mut map)
            .map_err(|error| io_error(&args.image.display().to_string(), "writing", &error))?;
    }
    let ends = Arc::new(AtomicBool::new(false));
    signals::flag_ending(&ends).map_err(|error| system("signals cannot be watched", &error))?;
    let plan = Plan::new(map, sector_bytes(source.as_ref()), args.retries);
    let remark = format!("Copied by braid from {}", args.source.display());
    let copying = CopyRun {
        source: source.as_ref(),
        image: image.as_ref(),
        map_path: &map_path,
        remark: &remark,
        ends: &ends,
    };
    let (map, ended) = copying.run(plan, globals)?;
    drop(image);
    Ok(told(args, &map_path, (&map, ended), globals))
}

/// Opens the copy and its map as an earlier run left them, or makes both if there was none.
fn image(
    args: &Args,
    source: &dyn Member,
    map_path: &Path,
) -> Result<(Box<dyn Member>, Map), CliError> {
    let size_bytes = source.size_bytes();
    let name = args.image.display().to_string();
    let refused = |what: &str, why: String| {
        let other = format!("braid image {} {}", word(&args.source), word(&free_name(&args.image)));
        CliError::new(Code::ImageUnfit, what).about(name.clone()).because(why).remedy(
            Risk::Change,
            "Copy into another file",
            other,
        )
    };
    match fs::metadata(&args.image) {
        Err(_) => {
            if let Some(map) = maps::read(map_path, size_bytes)?
                && map.bytes(State::Done) > 0
            {
                let why = format!(
                    "the map {} says that {} have been read",
                    map_path.display(),
                    format_size(map.bytes(State::Done))
                );
                return Err(refused("the copy does not exist, but its map does", why));
            }
            // The map comes first, because a copy without a map could not be resumed.
            let map = Map::new(size_bytes);
            maps::write(map_path, &map.to_text(&[], (0, '?'), 1))?;
            let image = create_file(&args.image, size_bytes).map_err(|error| open_error(&error))?;
            Ok((image, map))
        }
        Ok(there) if !there.is_file() => {
            let kind =
                if there.file_type().is_block_device() { "a block device" } else { "no file" };
            Err(refused(
                "a disk can only be copied into a file",
                format!("it is {kind}, which the copy would overwrite"),
            ))
        }
        Ok(there) => {
            let Some(map) = maps::read(map_path, size_bytes)? else {
                let why = format!("no map {} lists its copied parts", map_path.display());
                return Err(refused("the file exists already", why));
            };
            // ddrescue lets a copy grow, so a killed run may have left the copy short.
            let is_shorter = there.len() < size_bytes
                && map.of(State::Done).next_back().is_none_or(|done| done.end <= there.len());
            if is_shorter {
                let file = open_with(&args.image, fs::OpenOptions::new().write(true));
                let made = file.map_err(Into::into).and_then(|file| file.set_len(size_bytes));
                made.map_err(|error| system(format!("{name} cannot be written"), &error))?;
            } else if there.len() != size_bytes {
                let why = format!(
                    "it has {} bytes, and {} has {size_bytes}",
                    there.len(),
                    args.source.display()
                );
                return Err(refused("the file is not a copy of this disk", why));
            }
            let image = open_member(&args.image, Access::ReadWrite)?;
            if let Some(at) = differs(source, image.as_ref(), &map) {
                let why = format!(
                    "at byte {at} the disk and the copy differ: it is another disk, or was \
                     written to since"
                );
                return Err(refused("the file is not a copy of this disk", why));
            }
            Ok((image, map))
        }
    }
}

/// A place where the copy differs from the disk. Disks may have another name when they reappear.
/// Nearly all disks differ at their ends, where superblocks are.
fn differs(source: &dyn Member, image: &dyn Member, map: &Map) -> Option<u64> {
    let mut of_disk = Payload::zeroed(SAMPLE_BYTES);
    let mut of_copy = Payload::zeroed(SAMPLE_BYTES);
    let size = map.size_bytes();
    let places = (0..=SAMPLES).map(|number| size / SAMPLES * number);
    let ends = [4096, 1 << 20, size.saturating_sub(8192), size.saturating_sub(128 << 10)];
    for place in places.chain(ends) {
        let sample = SAMPLE_BYTES as u64;
        let start_in = |done: std::ops::Range<u64>| {
            let start = done.start.max(place).next_multiple_of(sample);
            (start + sample <= done.end).then_some(start)
        };
        let Some(start) = map.of(State::Done).find_map(start_in) else { continue };
        // A read error at a sampled place proves nothing about the disk's identity.
        if source.read_at(&mut of_disk, start).is_ok()
            && image.read_at(&mut of_copy, start).is_ok()
            && of_disk[..] != of_copy[..]
        {
            return Some(start);
        }
    }
    None
}

/// A free file name in the folder of a file name that is taken.
fn free_name(path: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    (2..)
        .map(name)
        .find(|name| !name.exists() && !maps::beside(name).exists())
        .expect("numbers have no end")
}

fn word(path: &Path) -> String {
    shell_word(&path.display().to_string()).into_owned()
}

/// The disk's unit of reading: a read returns a whole unit or fails.
fn sector_bytes(source: &dyn Member) -> u64 {
    let identity = source.identity();
    let size = match identity.kind {
        MemberKind::BlockDevice => u64::from(identity.physical_block_bytes),
        _ => SECTOR_BYTES,
    };
    size.clamp(SECTOR_BYTES, PIECE_BYTES)
}

fn told(args: &Args, map_path: &Path, (map, ended): (&Map, CopyEnd), globals: &Globals) -> Exit {
    let bad = map.missing();
    let (size, done) = (map.size_bytes(), map.bytes(State::Done));
    let again = |more: &str| {
        let of = args.map.as_ref().map(|map| format!(" --map {}", word(map))).unwrap_or_default();
        let line = format!("braid image{of}{more} {} {}", word(&args.source), word(&args.image));
        printable(&line).into_owned()
    };
    if globals.json {
        outjson!(&json!({
            "image": args.image.display().to_string(),
            "map": map_path.display().to_string(),
            "size_bytes": size,
            "read_bytes": done,
            "untried_bytes": map.bytes(State::Untried),
            "missing": bad.iter().map(|range| json!({ "offset_bytes": range.start, "length_bytes": range.end - range.start })).collect::<Vec<_>>(),
            "interrupted": ended == CopyEnd::Interrupted,
        }));
    } else {
        let image = printable(&args.image.display().to_string()).into_owned();
        outln!("{image} has {} of {}", format_size(done), format_size(size));
        outln!("  its map is {}", printable(&map_path.display().to_string()));
        let places =
            if bad.len() == 1 { "1 place".to_owned() } else { format!("{} places", bad.len()) };
        match ended {
            CopyEnd::Interrupted => outln!("  go on:  {}", again("")),
            CopyEnd::Over if bad.is_empty() => outln!("  all of it was read"),
            CopyEnd::Over => {
                let untried = map.bytes(State::Untried);
                outln!("  {} in {places} could not be read", format_size(size - done - untried));
                if untried > 0 {
                    let untried = format_size(untried);
                    outln!("  {untried} were not tried: the disk fails in too many places");
                }
                outln!("  ask the disk again:                   {}", again(" --retries 3"));
                // A map not next to the copy must be named, or the copy counts as complete.
                let named = args.map.as_ref().map(|map| {
                    let named = format!("{}={}", args.image.display(), map.display());
                    format!(" --map {}", printable(&shell_word(&named)))
                });
                let (named, image) = (named.unwrap_or_default(), word(&args.image));
                let image = printable(&image);
                outln!(
                    "  compute it from the other members:    braid rescue --fill {image}{named} \
                     {image} OTHER..."
                );
                outln!(
                    "  go on without it (nothing is written): braid rescue{named} {image} OTHER..."
                );
            }
        }
    }
    match ended {
        CopyEnd::Interrupted => Exit::Interrupted,
        CopyEnd::Over if bad.is_empty() => Exit::Done,
        CopyEnd::Over => Exit::Attention,
    }
}
