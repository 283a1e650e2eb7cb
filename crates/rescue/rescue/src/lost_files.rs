//! `braid rescue --lost`: the unreadable bytes of the array, and the files to which they belong.
//!
//! A file system's own tools map blocks to files: debugfs for ext2 to ext4, xfs_db for XFS. The
//! tools need a file, so a second process of this program serves the array to the tools as a file
//! (FUSE, read-only). btrfs has no tool that maps blocks without a mount.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use braid_geometry::SECTOR_BYTES;
use braid_signatures::Volume;
use serde_json::{Value, json};

use super::config::RescueConfig;
use super::content_words::content_words;
use super::copy_map;
use super::rescue_array::RescueArray;
use braid_console::Globals;
use braid_console::error::{CliError, Exit};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_console::own_program::own_program;
use braid_discovery::refusal;

/// The most blocks in one command: systems refuse a longer command line.
const BLOCKS_MAX: usize = 4096;
const RANGES_SHOWN: usize = 64;

type Request<'a> = (&'a RescueConfig, &'a RescueArray, &'a Globals);

struct VolumeDamage {
    name: String,
    holds: String,
    /// The lost bytes of the volume.
    lost: Vec<Range<u64>>,
    /// The names of the files, or why no names are known.
    files: Result<Vec<String>, String>,
    /// The reason why more files may be affected; `None` if the list is complete.
    doubt: Option<String>,
}

pub(super) fn lost(
    args: &RescueConfig,
    found: &RescueArray,
    globals: &Globals,
) -> Result<Exit, CliError> {
    if let Err(refused) = &found.plan.array {
        return Err(refusal::cli_error(refused, &found.plan.verdicts, &found.labels));
    }
    let volumes: Vec<&Volume> =
        found.contents.iter().flat_map(|contents| &contents.volumes).collect();
    let mut of_volumes = Vec::new();
    for volume in volumes {
        let within = copy_map::within(&found.lost, &volume.bytes);
        if !within.is_empty() {
            let number = volume.partition.as_ref().map(|partition| partition.number);
            let name = number.map_or_else(
                || found.group.name.clone(),
                |number| format!("{}-p{number}", found.group.name),
            );
            let mut doubt = None;
            let files = files((args, found, globals), (volume, &within), &mut doubt);
            of_volumes.push(VolumeDamage {
                name,
                holds: content_words(volume),
                lost: within,
                files,
                doubt,
            });
        }
    }
    let bytes: u64 = found.lost.iter().map(|range| range.end - range.start).sum();
    if globals.json {
        outjson!(&json!({
            "name": found.group.name,
            "lost_bytes": bytes,
            "lost": found.lost.iter().map(range_json).collect::<Vec<_>>(),
            "is_all": !found.lost_is_cut,
            "volumes": of_volumes.iter().map(|volume| json!({
                "name": volume.name,
                "holds": volume.holds,
                "lost": volume.lost.iter().map(range_json).collect::<Vec<_>>(),
                "files": volume.files.as_ref().ok(),
                "why_no_files": volume.files.as_ref().err(),
                "why_more_files": volume.doubt,
            })).collect::<Vec<_>>(),
        }));
        return Ok(exit(bytes));
    }
    let name = printable(&found.group.name).into_owned();
    if found.lost_is_cut {
        outln!(
            "{name}: so much is lacking that only a first part was tried; more files may be \
             affected"
        );
    }
    if bytes == 0 && !found.lost_is_cut {
        outln!(
            "{name}: nothing is lost: the parts that copies lack are computed from the others, \
                or hold no data"
        );
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
        if let Some(doubt) = &volume.doubt {
            outln!("  there may be more than these: {}", printable(doubt));
        }
        match &volume.files {
            Err(why) => outln!("  {}", printable(why)),
            Ok(files) if files.is_empty() && volume.doubt.is_none() => {
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

/// The files to which a volume's lost bytes belong. `doubt` says why more files may be affected.
fn files(
    request: Request<'_>,
    (volume, lost): (&Volume, &[Range<u64>]),
    doubt: &mut Option<String>,
) -> Result<Vec<String>, String> {
    let kind = volume.signatures.first().map_or("", |signature| signature.name);
    match kind {
        "ext2" | "ext3" | "ext4" => ext_files(request, (volume.bytes.start, lost), doubt),
        "xfs" if volume.bytes.start == 0 => xfs_files(request, lost, doubt),
        "xfs" => {
            Err("xfs_db takes no part of a file: copy this volume out, and ask it there".to_owned())
        }
        "btrfs" => {
            Err("only a mounted btrfs tells: mount it read-only, copy its files, and look for I/O \
             errors"
                .to_owned())
        }
        "" => Err("the owner is unknown: the contents there are not recognised".to_owned()),
        other => Err(format!("the owner of {other} is unknown")),
    }
}

fn ext_files(
    request: Request<'_>,
    (start, lost): (u64, &[Range<u64>]),
    doubt: &mut Option<String>,
) -> Result<Vec<String>, String> {
    let head = served(request, &format!("dumpe2fs -h \"$file?offset={start}\""))?.0;
    let size = head.lines().find_map(|line| line.strip_prefix("Block size:")?.trim().parse().ok());
    let size = size.filter(|size: &u64| *size >= 1024).ok_or("dumpe2fs says no block size")?;
    let (blocks, count) = units(lost, size)?;
    let debugfs = |words: &str| format!("debugfs -R '{words}' \"$file?offset={start}\"");
    let (said, complaint) = served(request, &debugfs(&format!("icheck {blocks}")))?;
    // The output is a head, then a line for each block. If debugfs fails, it exits with success and
    // lists nothing.
    let found: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("Block")).collect();
    if found.len() <= count {
        let why = complaint.unwrap_or_else(|| "it lists too little".to_owned());
        return Err(format!("debugfs could not look whose it is: {why}"));
    }
    *doubt = complaint;
    let inode = |line: &&str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let mut inodes: Vec<u64> = found.iter().filter_map(inode).collect();
    inodes.sort_unstable();
    inodes.dedup();
    if inodes.is_empty() {
        return Ok(Vec::new());
    }
    let words: Vec<String> = inodes.iter().map(u64::to_string).collect();
    let (names, complaint) = served(request, &debugfs(&format!("ncheck {}", words.join(" "))))?;
    *doubt = doubt.take().or(complaint);
    // The output is a head, then `INODE<tab>PATH`. An inode without a name, such as the journal,
    // has no line.
    let named: Vec<(u64, &str)> = names
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(inode, path)| Some((inode.parse().ok()?, path)))
        .collect();
    let files = named.iter().map(|(_, path)| format!("/{}", path.trim_start_matches('/')));
    let nameless = inodes.iter().filter(|inode| !named.iter().any(|(of, _)| of == *inode));
    Ok(files.chain(nameless.map(|inode| format!("inode {inode}, which has no name"))).collect())
}

fn xfs_files(
    request: Request<'_>,
    lost: &[Range<u64>],
    doubt: &mut Option<String>,
) -> Result<Vec<String>, String> {
    let (blocks, _) = units(lost, 4096)?;
    let sectors = blocks.split(' ').filter_map(|block| Some(block.parse::<u64>().ok()? * 8));
    let words: String =
        sectors.map(|sector| format!(" -c 'daddr {sector}' -c 'blockuse -n'")).collect();
    let (said, complaint) =
        served(request, &format!("xfs_db -f -r -c 'blockget -n'{words} \"$file\""))?;
    if !said.lines().any(|line| line.starts_with("block ")) {
        let why = complaint.unwrap_or_else(|| "it lists nothing".to_owned());
        return Err(format!("xfs_db could not look whose it is: {why}"));
    }
    *doubt = complaint;
    let inodes = said.lines().filter_map(|line| line.split_once(" inode "));
    let mut files: Vec<String> = inodes
        .map(|(_, inode)| match inode.trim().split_once(' ') {
            None => format!("inode {}, which has no name", inode.trim()),
            Some((_, path)) => format!("/{}", path.trim().trim_start_matches('/')),
        })
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// The numbers of the lost blocks as text for a command, and their count.
fn units(lost: &[Range<u64>], size: u64) -> Result<(String, usize), String> {
    let blocks = lost.iter().flat_map(|range| range.start / size..range.end.div_ceil(size));
    let mut blocks: Vec<u64> = blocks.take(BLOCKS_MAX + 1).collect();
    blocks.dedup();
    if blocks.len() > BLOCKS_MAX {
        return Err(format!(
            "more than {BLOCKS_MAX} blocks are lost: too many to ask for one by one"
        ));
    }
    let words: Vec<String> = blocks.iter().map(u64::to_string).collect();
    Ok((words.join(" "), words.len()))
}

/// Runs a command that sees the served array as the file `$file`. Returns the command's output, and
/// its errors without the version.
fn served(
    (args, found, globals): Request<'_>,
    command: &str,
) -> Result<(String, Option<String>), String> {
    let program = command.split(' ').next().unwrap_or_default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let place = |name: &str| folder.path().join(name);
    let (file, said, errors) = (place("array"), place("said"), place("errors"));
    let line = format!("{command} > {} 2> {}", word(&said), word(&errors));
    let exe = own_program().map_err(|error| error.to_string())?;
    // The command line that serves the array again, with this executable and its state folder.
    let socket = format!("nbd+unix:///?socket={}", place("socket").display());
    let more = format!(
        "--serve --nbd {} --read-only --fuse {} --run {}",
        shell_word(&socket),
        word(&file),
        shell_word(&line)
    );
    let again = args.command_for(Some(&found.group.uuid), &more);
    let words = again.strip_prefix("braid ").expect("it begins so");
    let line = format!("exec {} --state-dir {} {words}", word(&exe), word(&globals.state_dir));
    let output = Command::new("sh").arg("-c").arg(line).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = |path: &Path| fs::read(path).map(|it| String::from_utf8_lossy(&it).into_owned());
    let complaints = text(&errors).unwrap_or_default();
    let complaint = complaints.lines().find(|line| !line.is_empty() && !is_banner(line));
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let served =
            errors.lines().find(|line| line.starts_with("error") && !line.contains("B073"));
        let why = served.or(complaint).unwrap_or("it failed, or is not installed");
        return Err(format!("{program} did not say whose it is: {why}"));
    }
    Ok((text(&said).unwrap_or_default(), complaint.map(ToOwned::to_owned)))
}

/// Whether a line is a tool's version, such as `debugfs 1.47.0 (5-Feb-2023)`.
fn is_banner(line: &str) -> bool {
    let is_program = ["debugfs ", "dumpe2fs "].iter().any(|program| line.starts_with(program));
    is_program && line.ends_with(')')
}

fn word(path: &Path) -> String {
    shell_word(&path.display().to_string()).into_owned()
}
