//! Copies of what stood on members before it was overwritten.
//!
//! ```text
//! <state folder>/undo/20261120T233603Z-tank/
//!     manifest.json          members by path, device and inode, their sizes, and which file is from where
//!     member-0-at-0.bin      the first bytes of the first member
//!     member-0-at-….bin      its last bytes
//! ```
//!
//! What it does not do: put anything back (a later `braid undo` will; `dd` can). Folders are 0700
//! and files 0600, for a copy may hold keys. Everything is on stable storage when [`save`] returns
//! (`tests/create_destroy.rs` puts the copies back and finds the old array).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use braid_member::Identity;
use braid_ondisk::Snippet;
use serde_json::{Value, json};

use crate::error::code::Code;
use crate::error::{CliError, Risk};
use crate::output::shell::shell_word;
use crate::output::utc::{compact_utc, now_seconds};

/// Most copies with one name within one second.
const SAME_SECOND_MAX: u32 = 100;

/// What is saved of one member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saved<'a> {
    /// Its path as given.
    pub(crate) path: &'a Path,
    /// What the system says it is.
    pub(crate) identity: &'a Identity,
    /// Its size.
    pub(crate) size_bytes: u64,
    /// The bytes, with their places.
    pub(crate) snippets: &'a [Snippet],
}

/// Saves these members' bytes in a new folder and returns it. `name` is the array that replaces
/// them.
///
/// # Errors
/// The folder cannot be made or written; nothing may then be overwritten.
pub(crate) fn save(
    state_dir: &Path,
    name: &str,
    members: &[Saved<'_>],
) -> Result<PathBuf, CliError> {
    write_all(state_dir, name, members).map_err(|(path, error)| {
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
    })
}

type Failed = (PathBuf, io::Error);

fn write_all(state_dir: &Path, name: &str, members: &[Saved<'_>]) -> Result<PathBuf, Failed> {
    let parent = state_dir.join("undo");
    make_folders(&parent)?;
    let folder = new_folder(&parent, &format!("{}-{name}", compact_utc(now_seconds())))?;
    let mut listed = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let mut ranges = Vec::new();
        for snippet in member.snippets {
            let file = format!("member-{index}-at-{}.bin", snippet.offset);
            write_file(&folder.join(&file), &snippet.bytes)?;
            ranges.push(json!({
                "offset_bytes": snippet.offset,
                "length_bytes": snippet.bytes.len(),
                "file": file,
            }));
        }
        listed.push(member_json(member, ranges)?);
    }
    let manifest: Value = json!({ "format": 1, "replaced_by": name, "members": listed });
    write_file(&folder.join("manifest.json"), format!("{manifest:#}\n").as_bytes())?;
    sync_folder(&folder)?;
    sync_folder(&parent)?;
    Ok(folder)
}

/// Enough to find the member again from another folder, and to see that a name now means another one.
fn member_json(member: &Saved<'_>, ranges: Vec<Value>) -> Result<Value, Failed> {
    let path = fs::canonicalize(member.path).map_err(|error| (member.path.into(), error))?;
    let identity = member.identity;
    Ok(json!({
        "path": path.display().to_string(),
        "given": member.path.display().to_string(),
        "device": identity.device.map(|number| format!("{}:{}", number.major, number.minor)),
        "inode": identity.inode,
        "size_bytes": member.size_bytes,
        "ranges": ranges,
    }))
}

/// Makes a folder and those above it, each on stable storage within the one above.
pub(crate) fn make_folders(folder: &Path) -> Result<(), Failed> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|path| !path.is_dir()).collect();
    for path in missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err((path.into(), error));
            }
            _ => {}
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

fn new_folder(parent: &Path, name: &str) -> Result<PathBuf, Failed> {
    let mut folder = parent.join(name);
    for again in 2..SAME_SECOND_MAX {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                folder = parent.join(format!("{name}-{again}"));
            }
            Err(error) => return Err((folder, error)),
        }
    }
    Err((folder, io::ErrorKind::AlreadyExists.into()))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failed> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error: io::Error| (path.into(), error))
}

fn sync_folder(folder: &Path) -> Result<(), Failed> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(|error| (folder.into(), error))
}

/// Writes a file durably, and its folder if need be: the old or the new is there, whatever happens.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().expect("it lies in a folder");
    make_folders(folder).map_err(|(_, error)| error)?;
    let mut name = path.file_name().expect("it is a file").to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

/// Removes files that were made for an array that did not come about.
pub(crate) fn remove_files(paths: &[PathBuf]) {
    for path in paths {
        // The error that made them useless is being reported; this one would only hide it.
        let _ = fs::remove_file(path);
    }
}
