//! The members of a new array as they are found: opened, measured and probed, or to be made.
//!
//! Opens members exclusively, as for writing. Writes nothing and decides nothing about the array.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use braid_geometry::SECTOR_BYTES;
use braid_member::{Access, IdentityKey, Reach};

use super::Args;
use super::words::ArraySpec;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::contents::Existing;
use braid_discovery::probe::{open_error, open_member};

pub(super) enum Source {
    /// An existing member, opened and probed.
    Existing(Existing),
    ToMake,
}

/// A member before it has a slot.
pub(super) struct Candidate {
    pub(super) label: String,
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
    pub(super) source: Source,
}

/// Opens the members and the journal's device; notes member files that are to be made.
pub(super) fn open_all(
    args: &Args,
    wanted: &ArraySpec,
    paths: &[&Path],
) -> Result<Vec<Candidate>, CliError> {
    let keys = keys(args, wanted, paths)?;
    let mut opened = Vec::new();
    for (path, key) in paths.iter().zip(keys) {
        opened.push(open(path, key, wanted)?);
    }
    Ok(opened)
}

/// The identity that two names of one member share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Existing(IdentityKey),
    /// The folder with links resolved, and the file's name.
    ToMake(PathBuf),
}

/// Looks at each path without a lock, so that a member named twice is not reported as busy.
fn keys(args: &Args, wanted: &ArraySpec, paths: &[&Path]) -> Result<Vec<Key>, CliError> {
    let mut seen: BTreeMap<Key, &Path> = BTreeMap::new();
    let mut reached: Vec<(&Path, Reach)> = Vec::new();
    let mut keys = Vec::new();
    for &path in paths {
        let key = match braid_member::open(path, Access::Examine) {
            Ok(device) => Key::Existing(device.identity().key),
            Err(braid_member::OpenError::Missing { .. }) => to_make(args, wanted, path)?,
            Err(error) => return Err(open_error(&error)),
        };
        let reach = Reach::of(path);
        let shared =
            reached.iter().find_map(|(before, other)| Some((*before, reach.shared_with(other)?)));
        reached.push((path, reach));
        let same = |before| (before, "they are the same file or device".to_owned());
        if let Some((before, how)) = seen.insert(key.clone(), path).map(same).or(shared) {
            let (label, before) = (path.display().to_string(), before.display().to_string());
            let what = format!("{label} was named twice");
            let twice = CliError::new(Code::SameMemberTwice, what).about(label.clone());
            let twice = twice.because(format!("{before} and {label} are the same storage: {how}"));
            let (words, command) = match &key {
                Key::Existing(_) if braid_member::is_uri(path) => {
                    ("See the export", format!("nbdinfo {}", shell_word(&label)))
                }
                Key::Existing(_) => {
                    let both = format!("{} {}", shell_word(&before), shell_word(&label));
                    ("Compare them", format!("ls -li {both}"))
                }
                Key::ToMake(file) => {
                    let folder = file.parent().unwrap_or(file).display().to_string();
                    ("See what is there", format!("ls -l {}", shell_word(&folder)))
                }
            };
            return Err(twice.remedy(Risk::Look, words, command));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn to_make(args: &Args, wanted: &ArraySpec, path: &Path) -> Result<Key, CliError> {
    let label = path.display().to_string();
    let missing = |what: String| CliError::new(Code::MemberMissing, what).about(label.clone());
    if wanted.member_bytes.is_none() {
        let mut better = args.clone();
        better.member_size = Some("1G".to_string());
        return Err(open_error(&braid_member::OpenError::Missing { path: path.into() }).remedy(
            Risk::Change,
            "Make it as a file",
            better.command_line(),
        ));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let folder_label = folder.display().to_string();
    let (Ok(real), Some(file_name)) = (folder.canonicalize(), path.file_name()) else {
        let command = format!("mkdir -p {}", shell_word(&folder_label));
        return Err(missing(format!("{label} cannot be made: there is no folder {folder_label}"))
            .remedy(Risk::Change, "Make the folder", command));
    };
    if real.starts_with("/dev") && !real.starts_with("/dev/shm") {
        return Err(missing(format!("{label} does not exist, and braid creates no files in /dev"))
            .remedy(Risk::Look, "See what is there", "lsblk"));
    }
    Ok(Key::ToMake(real.join(file_name)))
}

fn open(path: &Path, key: Key, wanted: &ArraySpec) -> Result<Candidate, CliError> {
    let label = path.display().to_string();
    let Key::Existing(key) = key else {
        let size_bytes = wanted.member_bytes.expect("checked when it was found missing");
        let size_bytes = size_bytes - size_bytes % SECTOR_BYTES;
        return Ok(Candidate { label, path: path.into(), size_bytes, source: Source::ToMake });
    };
    let device = open_member(path, Access::ReadWrite)?;
    if device.identity().key != key {
        return Err(open_error(&braid_member::OpenError::Replaced { path: path.into() }));
    }
    let size_bytes = device.size_bytes();
    let source = Source::Existing(Existing::look(device, &label)?);
    Ok(Candidate { label, path: path.into(), size_bytes, source })
}
