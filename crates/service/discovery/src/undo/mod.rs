//! Records of bytes that commands overwrite, for `braid undo`.
//!
//! ```text
//!   a command ─▶ save ─▶ <state folder>/undo/17.undo ─▶ only then is anything overwritten
//!                             ▲ read by `braid undo`: judges the devices, restores the old content
//! ```
//!
//! If devices are unusable while a command is incomplete, the command also leaves a mark,
//! `17.unfinished`, until it ends. Until the command is finished or undone, these devices are not
//! served.
//!
//! Record files are numbered consecutively, private (0600 in a folder of 0700) because they may
//! hold keys, and durable when [`save`] returns. Beyond a limit, the oldest records are removed.
//!
//! This module interprets no commands (`cmd/undo` does).

pub mod judge;
pub mod present_devices;
pub mod record;
pub mod unfinished;
pub mod writing;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use braid_member::{Member, MemberKind, is_uri};
use braid_ondisk::Snippet;
use rustix::fs::{FlockOperation, flock};

use crate::probe::io_error;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::state::make_folders;
use record::{Damage, Device, Record, covers, decode, encode, merged};

/// Most records: more than an operator undoes; some 100 MB with usual arrays.
const RECORDS_MAX: usize = 256;
/// Longest record file in bytes: enough for the ends of 1920 devices without a page of zeroes.
const FILE_BYTES_MAX: u64 = 1 << 30;
const ENDING: &str = "undo";
/// Extension of the marks of incomplete commands.
const UNFINISHED: &str = "unfinished";
/// The folder with the system's persistent names of disks.
const NAMES: &str = "/dev/disk/by-id";

/// A device to which a command is about to write.
pub struct Overwrite<'a> {
    /// The device's path.
    pub path: &'a Path,
    /// The device, open.
    pub device: &'a dyn Member,
    /// Whether the command creates the device's file.
    pub is_made: bool,
    /// The present bytes at the start and the end of the device.
    pub ends: &'a [Snippet],
    /// The command's writes, in order.
    pub writes: Vec<Snippet>,
    /// How many of the last writes must wait until all other writes are durable, on every device.
    pub last_writes: usize,
}

/// The facts about a command, before its first write.
#[derive(Debug, Clone, Copy)]
pub struct PlannedCommand<'a> {
    /// The command line of the command.
    pub command: &'a str,
    /// The name of the command's array.
    pub array: &'a str,
    /// Whether the command also zeroes data areas.
    pub zeroes: bool,
    /// The number of the record that this command undoes, if it is an undo.
    pub undoes: Option<u64>,
    /// The mark that lies next to the record until the command is complete.
    pub mark: Mark<'a>,
}

/// The mark that lies next to a command's record until the command is complete.
#[derive(Debug, Clone, Copy)]
pub enum Mark<'a> {
    /// No mark is made, since each of the command's writes leaves usable devices.
    Nothing,
    /// The command is incomplete.
    Unfinished,
    /// The command is incomplete; the mark holds the folder of the overlay that it commits.
    Commits(&'a Path),
}

/// A new record of overwritten bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedRecord {
    /// The record's number.
    pub number: u64,
    /// The path of the record's file.
    pub path: PathBuf,
    /// The record's content.
    pub record: Record,
}

/// The file of a record of overwritten bytes.
pub struct RecordFile {
    /// The record's number.
    pub number: u64,
    /// The path of the record's file.
    pub path: PathBuf,
    /// The record's content, if the file is intact.
    pub record: Result<Record, Damage>,
}

/// Saves bytes that are about to be overwritten.
///
/// # Errors
/// A device cannot be read, or the record cannot be written: then nothing may be overwritten.
pub fn save(
    state_dir: &Path,
    planned: PlannedCommand<'_>,
    overwritten: Vec<Overwrite<'_>>,
) -> Result<SavedRecord, CliError> {
    let devices = overwritten.into_iter().map(device).collect::<Result<_, _>>()?;
    let record = Record {
        time: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
        command: planned.command.to_owned(),
        array: planned.array.to_owned(),
        has_zeroed: planned.zeroes,
        undoes: planned.undoes,
        devices,
    };
    let written = write(&folder(state_dir), &encode(&record), planned.mark);
    let (number, path) = written.map_err(|failed| not_saved(state_dir, failed))?;
    Ok(SavedRecord { number, path, record })
}

fn not_saved(state_dir: &Path, (path, error): Failed) -> CliError {
    let label = path.display().to_string();
    CliError::new(Code::StateFolder, format!("cannot save the old superblocks in {label}"))
        .about(label)
        .because(error.to_string())
        .remedy(
            Risk::Look,
            "See who may write there",
            format!("ls -ld {}", shell_word(&state_dir.display().to_string())),
        )
        .remedy(Risk::Change, "Save them elsewhere: add", "--state-dir FOLDER")
}

fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("undo")
}

fn device(of: Overwrite<'_>) -> Result<Device, CliError> {
    let label = of.path.display().to_string();
    let identity = of.device.identity();
    let path = match is_uri(of.path) {
        true => Ok(of.path.to_path_buf()),
        false => fs::canonicalize(of.path),
    };
    let path = path.map_err(|error| {
        let what = format!("{label} is gone");
        CliError::new(Code::MemberMissing, what).about(label.clone()).caused_by(&error)
    })?;
    let is_block = identity.kind == MemberKind::BlockDevice;
    let names = if is_block { names_of(Path::new(NAMES), &path) } else { Vec::new() };
    let before = standing(&label, of.device, of.ends.to_vec(), &of.writes)?;
    Ok(Device {
        path,
        names,
        is_made: of.is_made,
        number: identity.device.map(|number| number.to_string()),
        inode: identity.inode,
        size_bytes: of.device.size_bytes(),
        before,
        writes: of.writes,
        last_writes: of.last_writes,
    })
}

/// The present bytes in the ranges of these writes: from `known` if it covers the ranges, else read
/// from the device.
///
/// # Errors
/// The device cannot be read.
pub fn standing(
    label: &str,
    device: &dyn Member,
    known: Vec<Snippet>,
    writes: &[Snippet],
) -> Result<Vec<Snippet>, CliError> {
    let ends = merged(known);
    let mut known = ends.clone();
    for write in writes {
        if !covers(&ends, write) {
            let mut bytes = vec![0; write.bytes.len()];
            let read = device.read_at(&mut bytes, write.offset);
            read.map_err(|error| io_error(label, "reading", &error))?;
            known.push(Snippet { offset: write.offset, bytes });
        }
    }
    Ok(merged(known))
}

/// The links in `folder` that lead to this device.
fn names_of(folder: &Path, device: &Path) -> Vec<PathBuf> {
    let links = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<PathBuf> =
        links.filter(|link| fs::canonicalize(link).is_ok_and(|path| path == device)).collect();
    names.sort();
    names
}

type Failed = (PathBuf, io::Error);

/// Writes a record under the next number. Other processes wait meanwhile to write a record.
fn write(folder: &Path, bytes: &[u8], mark: Mark<'_>) -> Result<(u64, PathBuf), Failed> {
    let failed = |error| (folder.to_owned(), error);
    make_folders(folder)?;
    let held = File::open(folder).map_err(failed)?;
    flock(&held, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let files = files(folder).map_err(failed)?;
    let number = files.last().map_or(1, |(number, _)| number + 1);
    let path = folder.join(format!("{number}.{ENDING}"));
    let new = path.with_extension("new");
    let make = |path: &Path, bytes: &[u8]| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    let write = || {
        make(&new, bytes)?;
        // Makes the mark before the record: a mark without a record means nothing, but a record
        // without its mark would pass for a complete command.
        match mark {
            Mark::Nothing => {}
            Mark::Unfinished => make(&path.with_extension(UNFINISHED), b"")?,
            Mark::Commits(overlay) => {
                let overlay = fs::canonicalize(overlay)?;
                make(&path.with_extension(UNFINISHED), overlay.as_os_str().as_bytes())?;
            }
        }
        fs::rename(&new, &path)?;
        held.sync_all()
    };
    write().map_err(|error| (path.clone(), error))?;
    for (_, old) in files.iter().take((files.len() + 1).saturating_sub(RECORDS_MAX)) {
        // Keeps records of incomplete commands. If an old record cannot be removed, it only takes
        // space.
        if !old.with_extension(UNFINISHED).exists() {
            let _ = fs::remove_file(old);
        }
    }
    Ok((number, path))
}

/// The files of a folder by number; empty if the folder does not exist.
fn files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    files_with(folder, ENDING)
}

fn files_with(folder: &Path, ending: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_ours = path.extension().is_some_and(|it| it == ending);
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        files.extend(number.filter(|_| is_ours).map(|number| (number, path)));
    }
    files.sort_unstable();
    Ok(files)
}

/// Lists all records, the oldest first.
///
/// # Errors
/// The folder or a file in it cannot be read.
pub fn list(state_dir: &Path) -> io::Result<Vec<RecordFile>> {
    let read = |(number, path): (u64, PathBuf)| {
        let record = read(&path)?;
        Ok(RecordFile { number, path, record })
    };
    files(&folder(state_dir))?.into_iter().map(read).collect()
}

/// The record of this number, or the newest; `None` if there is no such record.
///
/// # Errors
/// The folder or the file cannot be read.
pub fn find(state_dir: &Path, wanted: Option<u64>) -> io::Result<Option<RecordFile>> {
    let mut files = files(&folder(state_dir))?;
    files.retain(|(number, _)| wanted.is_none_or(|wanted| wanted == *number));
    let Some((number, path)) = files.pop() else { return Ok(None) };
    let record = read(&path)?;
    Ok(Some(RecordFile { number, path, record }))
}

fn read(path: &Path) -> io::Result<Result<Record, Damage>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(decode(&bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn records_are_numbered_and_the_oldest_go() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = folder(place.path());
        for number in 1..=RECORDS_MAX as u64 + 3 {
            let (saved, _) = write(&folder, b"not a record", Mark::Nothing).expect("it is written");
            assert_eq!(saved, number);
        }
        fs::write(folder.join("notes.undo"), "").expect("a file");
        let kept = files(&folder).expect("readable");
        assert_eq!((kept.len(), kept[0].0), (RECORDS_MAX, 4));
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!((mode(&folder), mode(&kept[0].1)), (0o700, 0o600));
        let newest = find(place.path(), None).expect("readable").expect("there is one");
        assert_eq!((newest.number, newest.record), (RECORDS_MAX as u64 + 3, Err(Damage::Head)));
        assert!(find(place.path(), Some(3)).expect("readable").is_none(), "it has gone");
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_records() {
        let place = tempfile::tempdir().expect("a folder");
        assert!(list(place.path()).expect("readable").is_empty());
        assert!(find(place.path(), None).expect("readable").is_none());
    }

    #[test]
    fn names_are_the_links_that_lead_there() {
        let place = tempfile::tempdir().expect("a folder");
        let path = |name: &str| place.path().join(name);
        fs::write(path("disk"), "").expect("a file");
        fs::write(path("other"), "").expect("a file");
        symlink("disk", path("ata-B")).expect("a link");
        symlink(path("disk"), path("ata-A")).expect("a link");
        symlink("other", path("ata-C")).expect("a link");
        symlink("gone", path("ata-D")).expect("a link");
        let device = fs::canonicalize(path("disk")).expect("it is there");
        let names = names_of(place.path(), &device);
        let names: Vec<_> = names.iter().filter_map(|name| name.file_name()?.to_str()).collect();
        assert_eq!(names, ["ata-A", "ata-B", "disk"]);
        assert!(names_of(&path("nothing"), &device).is_empty());
    }
}
