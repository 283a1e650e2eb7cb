//! Marks of commands that have begun to write and have not come to their end.
//!
//! ```text
//!   save ─▶ begin: 17.unfinished ─▶ devices are written ─▶ end: it is gone
//!                       ▲ read before anything is served or rescued; what stands on the devices decides, not the mark
//! ```
//!
//! The mark of `rescue --commit` holds the folder of its overlay, which is thrown away once the commit is finished.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_member::Access;

use super::found;
use super::judge::{Content, is_between};
use super::record::{Device, Record};
use super::{Failed, Saved, UNFINISHED, files_with, folder, not_saved};
use crate::cmd;
use crate::error::code::Code;
use crate::error::{CliError, Risk};
use crate::output::shell::option_words;

/// No path is longer.
const PATH_BYTES_MAX: u64 = 1 << 16;

/// A command that stopped in the middle of writing.
pub(crate) struct Unfinished {
    pub(crate) number: u64,
    pub(crate) record: Record,
    /// The folder of the overlay that was being committed.
    pub(crate) overlay: Option<PathBuf>,
}

impl Saved {
    /// Says, durably, that devices are about to be written.
    ///
    /// # Errors
    /// The mark cannot be made; nothing may then be overwritten.
    pub(crate) fn begin(&self, state_dir: &Path, overlay: Option<&Path>) -> Result<(), CliError> {
        let path = self.path.with_extension(UNFINISHED);
        let make = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(overlay.unwrap_or(Path::new("")).as_os_str().as_bytes())?;
            file.sync_all()?;
            File::open(folder(state_dir))?.sync_all()
        };
        make().map_err(|error: io::Error| not_saved(state_dir, Failed::from((path.clone(), error))))
    }
}

/// Says that a command has come to its end, or was taken back. A mark that stays is of no harm: the devices tell.
pub(crate) fn end(state_dir: &Path, number: u64) {
    let _ = fs::remove_file(folder(state_dir).join(format!("{number}.{UNFINISHED}")));
}

/// The same of every undo of a record that has stopped.
pub(crate) fn end_undoing(state_dir: &Path, number: u64) {
    end(state_dir, number);
    for one in marks(state_dir).into_iter().filter(|one| one.record.undoes == Some(number)) {
        end(state_dir, one.number);
    }
}

/// Whether a command has begun to write and not come to its end, as far as it could say.
pub(crate) fn is_unfinished(state_dir: &Path, number: u64) -> bool {
    folder(state_dir).join(format!("{number}.{UNFINISHED}")).exists()
}

/// Commands that have not come to their end, the newest first. A record that cannot be read says nothing of any device.
fn marks(state_dir: &Path) -> Vec<Unfinished> {
    let files = files_with(&folder(state_dir), UNFINISHED).unwrap_or_default();
    let of = |(number, path): &(u64, PathBuf)| {
        let kept = super::find(state_dir, Some(*number)).ok()??;
        let mut overlay = Vec::new();
        File::open(path).ok()?.take(PATH_BYTES_MAX).read_to_end(&mut overlay).ok()?;
        let overlay = Some(OsString::from_vec(overlay)).filter(|path| !path.is_empty());
        Some(Unfinished {
            number: *number,
            record: kept.record.ok()?,
            overlay: overlay.map(PathBuf::from),
        })
    };
    files.iter().rev().filter_map(of).collect()
}

/// The command that stopped in the middle of writing one of these devices, and of which all devices hold what it left.
pub(crate) fn unfinished(state_dir: &Path, paths: &[PathBuf]) -> Option<Unfinished> {
    let marks = marks(state_dir);
    if marks.is_empty() {
        return None;
    }
    let real = |path: &PathBuf| fs::canonicalize(path).ok();
    let named: Vec<PathBuf> = paths.iter().filter_map(real).collect();
    let is_named = |device: &Device| {
        let mut names = std::iter::once(&device.path).chain(&device.names);
        names.any(|name| real(name).is_some_and(|path| named.contains(&path)))
    };
    let is_halfway = |one: &Unfinished| {
        // One that is away is neither here nor there.
        let found = one
            .record
            .devices
            .iter()
            .filter_map(|device| found::find(device, Access::Examine).ok());
        let contents: Vec<Content> = found.map(|found| found.content).collect();
        is_between(&contents)
    };
    marks.into_iter().find(|one| one.record.devices.iter().any(is_named) && is_halfway(one))
}

/// Refuses devices that a command has left half written.
///
/// # Errors
/// There is such a command; how it is finished or taken back.
pub(crate) fn refuse_unfinished(state_dir: &Path, paths: &[PathBuf]) -> Result<(), CliError> {
    unfinished(state_dir, paths).map_or(Ok(()), |one| Err(one.refused(state_dir)))
}

impl Unfinished {
    /// The refusal.
    pub(crate) fn refused(&self, state_dir: &Path) -> CliError {
        let command = &self.record.command;
        let devices: Vec<String> =
            self.record.devices.iter().map(|device| device.path.display().to_string()).collect();
        let error = CliError::new(
            Code::Unfinished,
            format!("`{command}` stopped in the middle of writing these members"),
        )
        .about(self.record.array.clone())
        .because(format!(
            "part of {} is as before, part is as the command leaves it",
            devices.join(", ")
        ));
        if let Some(undone) = self.record.undoes {
            return error.remedy(
                Risk::Change,
                "Finish it",
                in_state_dir(format!("braid undo {undone}"), state_dir),
            );
        }
        let undo = in_state_dir(format!("braid undo {}", self.number), state_dir);
        let error = error.remedy(Risk::Change, "Take back what it wrote", undo);
        match self.overlay {
            Some(_) => {
                error.remedy(Risk::Change, "Finish it", in_state_dir(command.clone(), state_dir))
            }
            None => error,
        }
    }
}

/// The command with the state folder, where it is not the usual one.
pub(crate) fn in_state_dir(command: String, state_dir: &Path) -> String {
    if *state_dir == cmd::state_dir() {
        return command;
    }
    format!("{command} {}", option_words("--state-dir", &state_dir.display().to_string()))
}
