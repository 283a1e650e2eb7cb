//! `braid rescue --lost`: what of the array cannot be had, and which files are there.
//!
//! A file system's own tools know whose a block is: debugfs of ext2 to ext4, xfs_db of XFS. They want a file, so the array is served as
//! one to them (FUSE), for reading only, by this program started once more. btrfs has no tool that does without a mount.

use std::ops::Range;
use std::path::Path;
use std::process::Command;

use braid_contents::Volume;
use serde_json::{Value, json};

use super::args::Args;
use super::look::Found;
use crate::cmd::Globals;
use crate::error::{CliError, Exit};
use crate::output::printable::printable;
use crate::output::shell::shell_word;
use crate::output::size::format_size;
use crate::refusal;

/// Bytes in a sector.
const SECTOR_BYTES: u64 = 512;
/// Blocks that are asked about: more of them make a command line that no system takes.
const BLOCKS_MAX: usize = 4096;
/// Stretches that are named.
const RANGES_SHOWN: usize = 64;

/// What is lost of one volume.
struct OfVolume {
    name: String,
    holds: String,
    /// Bytes of the volume.
    lost: Vec<Range<u64>>,
    /// Names of files, or why there are none.
    files: Result<Vec<String>, String>,
}

pub(super) fn lost(args: &Args, found: &Found, globals: &Globals) -> Result<Exit, CliError> {
    if let Err(refused) = &found.plan.array {
        return Err(refusal::cli_error(refused, &found.plan.verdicts, &found.labels));
    }
    let volumes: Vec<&Volume> =
        found.contents.iter().flat_map(|contents| &contents.volumes).collect();
    let mut of_volumes = Vec::new();
    for volume in volumes {
        let within = super::sick::within(&found.lost, &volume.bytes);
        if !within.is_empty() {
            let number = volume.partition.as_ref().map(|partition| partition.number);
            let name = number.map_or_else(
                || found.group.name.clone(),
                |number| format!("{}-p{number}", found.group.name),
            );
            let files = files(args, found, (volume, &within), globals);
            of_volumes.push(OfVolume {
                name,
                holds: super::holds::holds(volume),
                lost: within,
                files,
            });
        }
    }
    let bytes: u64 = found.lost.iter().map(|range| range.end - range.start).sum();
    if globals.json {
        outjson!(&json!({
            "name": found.group.name,
            "lost_bytes": bytes,
            "lost": found.lost.iter().map(range_json).collect::<Vec<_>>(),
            "volumes": of_volumes.iter().map(|volume| json!({
                "name": volume.name,
                "holds": volume.holds,
                "lost": volume.lost.iter().map(range_json).collect::<Vec<_>>(),
                "files": volume.files.as_ref().ok(),
                "why_no_files": volume.files.as_ref().err(),
            })).collect::<Vec<_>>(),
        }));
        return Ok(exit(bytes));
    }
    let name = printable(&found.group.name).into_owned();
    if bytes == 0 {
        outln!("{name}: nothing is lost: what copies lack is made of the others, or holds no data");
        return Ok(Exit::Done);
    }
    outln!(
        "{name}: {} cannot be had, in {} places (sectors of the array)",
        format_size(bytes),
        found.lost.len()
    );
    outln!("  {}", sectors(&found.lost));
    for volume in &of_volumes {
        outln!("{}  {}", printable(&volume.name), printable(&volume.holds));
        match &volume.files {
            Err(why) => outln!("  {}", printable(why)),
            Ok(files) if files.is_empty() => {
                outln!("  no file is there: it is free, or the file system's own")
            }
            Ok(files) => files.iter().for_each(|file| outln!("  {}", printable(file))),
        }
    }
    Ok(exit(bytes))
}

fn exit(bytes: u64) -> Exit {
    if bytes == 0 { Exit::Done } else { Exit::Attention }
}

fn range_json(range: &Range<u64>) -> Value {
    json!({ "offset_bytes": range.start, "length_bytes": range.end - range.start })
}

fn sectors(ranges: &[Range<u64>]) -> String {
    let shown = ranges.iter().take(RANGES_SHOWN);
    let shown: Vec<String> = shown
        .map(|range| format!("{}..{}", range.start / SECTOR_BYTES, range.end / SECTOR_BYTES))
        .collect();
    let more = ranges.len().saturating_sub(RANGES_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// The files behind what is lost of a volume.
fn files(
    args: &Args,
    found: &Found,
    (volume, lost): (&Volume, &[Range<u64>]),
    globals: &Globals,
) -> Result<Vec<String>, String> {
    let thing = volume.things.first().map_or("", |thing| thing.name);
    let start = volume.bytes.start;
    match thing {
        "ext2" | "ext3" | "ext4" => {
            let head = served(args, found, &format!("dumpe2fs -h \"$file?offset={start}\""), globals)?;
            let size = head.lines().find_map(|line| line.strip_prefix("Block size:")?.trim().parse::<u64>().ok());
            let size = size.filter(|size| *size >= 1024).ok_or("dumpe2fs says no block size")?;
            let blocks = units(lost, size)?;
            let inodes = served(args, found, &format!("debugfs -R 'icheck {blocks}' \"$file?offset={start}\""), globals)?;
            let inodes = inodes.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            let mut inodes: Vec<String> = inodes.map(|inode| inode.to_string()).collect();
            inodes.sort();
            inodes.dedup();
            if inodes.is_empty() {
                return Ok(Vec::new());
            }
            let names = served(args, found, &format!("debugfs -R 'ncheck {}' \"$file?offset={start}\"", inodes.join(" ")), globals)?;
            // A head, then `INODE<tab>PATH`; of one without a name, such as the journal, nothing.
            let names = names.lines().filter_map(|line| line.split_once('\t'));
            let named: Vec<(&str, &str)> = names.filter(|(inode, _)| inode.parse::<u64>().is_ok()).collect();
            let files = named.iter().map(|(_, path)| format!("/{}", path.trim_start_matches('/')));
            let nameless = inodes.iter().filter(|inode| !named.iter().any(|(of, _)| of == inode));
            Ok(files.chain(nameless.map(|inode| format!("inode {inode}, which has no name"))).collect())
        }
        "xfs" if start == 0 => {
            let blocks = lost.iter().map(|range| range.start / SECTOR_BYTES).take(BLOCKS_MAX);
            let asked: String = blocks.map(|sector| format!(" -c 'daddr {sector}' -c 'blockuse -n'")).collect();
            let said = served(args, found, &format!("xfs_db -f -r -c 'blockget -n'{asked} \"$file\""), globals)?;
            let mut files: Vec<String> = said
                .lines()
                .filter_map(|line| line.split_once(" inode ").map(|(_, inode)| inode.trim().to_owned()))
                .map(|inode| inode.split_once(' ').map_or_else(|| format!("inode {inode}"), |(_, path)| path.trim().to_owned()))
                .collect();
            files.sort();
            files.dedup();
            Ok(files)
        }
        "xfs" => Err("xfs_db takes no part of a file: copy this volume out, and ask it there".to_owned()),
        "btrfs" => Err("btrfs says it of what is mounted: mount it read-only, copy, and see what is an I/O error".to_owned()),
        "" => Err("whose it is cannot be told: what stands there is not known".to_owned()),
        other => Err(format!("whose it is cannot be told of {other}")),
    }
}

/// The numbers of the blocks that are touched.
fn units(lost: &[Range<u64>], size: u64) -> Result<String, String> {
    let blocks = lost.iter().flat_map(|range| range.start / size..range.end.div_ceil(size));
    let mut blocks: Vec<u64> = blocks.take(BLOCKS_MAX + 1).collect();
    blocks.dedup();
    if blocks.len() > BLOCKS_MAX {
        return Err(format!(
            "more than {BLOCKS_MAX} blocks are lost: too many to ask for one by one"
        ));
    }
    Ok(blocks.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))
}

/// What a command says that has the array in `$file`.
fn served(args: &Args, found: &Found, command: &str, globals: &Globals) -> Result<String, String> {
    let program = command.split(' ').next().unwrap_or_default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (file, said) = (folder.path().join("array"), folder.path().join("said"));
    let line = format!("{command} > {} 2>/dev/null", word(&said));
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut serve = Command::new("sh");
    // The words that look at this array again, with this program and its state folder.
    let again = args.command_for(
        Some(&found.group.uuid),
        &format!("--serve --read-only --fuse {} --run {}", word(&file), shell_word(&line)),
    );
    let words = again.strip_prefix("braid ").expect("it begins so");
    let state = word(&globals.state_dir);
    let nbd =
        shell_word(&format!("nbd+unix:///?socket={}", folder.path().join("socket").display()))
            .into_owned();
    let words = words.replacen("--serve", &format!("--serve --nbd {nbd}"), 1);
    serve.arg("-c").arg(format!("exec {} --state-dir {state} {words}", word(&exe)));
    let output = serve.output().map_err(|error| error.to_string())?;
    let said = std::fs::read_to_string(&said).unwrap_or_default();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = errors
            .lines()
            .find(|line| line.starts_with("error"))
            .unwrap_or("it failed, or is not installed");
        return Err(format!("{program} did not say whose it is: {why}"));
    }
    Ok(said)
}

fn word(path: &Path) -> String {
    shell_word(&path.display().to_string()).into_owned()
}
