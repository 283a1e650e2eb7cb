//! Marks of commands that have begun to write and are incomplete.
//!
//! ```text
//!   save: 17.unfinished, 17.undo ─▶ devices are written ─▶ end: the mark is gone
//!                 ▲ read before anything is served, rescued or added
//! ```
//!
//! The content of the devices decides whether they are usable, not the mark.
//!
//! The mark of `rescue --commit` holds the folder of the command's overlay, which is discarded when
//! the command ends.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use braid_member::{Access, Member, Reach};

use super::judge::Content;
use super::present_devices;
use super::record::Record;
use super::{UNFINISHED, files_with, folder};
use crate::probe::open_member;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::{option_words, shell_word};

const PATH_BYTES_MAX: u64 = 1 << 16;

/// A command that stopped in the middle of its writes.
pub struct UnfinishedCommand {
    /// The number of the command's record.
    pub number: u64,
    /// The command's record.
    pub record: Record,
    /// The folder of the overlay that the command was committing.
    pub overlay: Option<PathBuf>,
    /// The content of each device of the record; `None` if the device is absent.
    contents: Vec<Option<Content>>,
    /// Whether the operator named each device.
    named: Vec<bool>,
}

/// Removes the mark of a command that is complete or undone. A mark that stays does no harm.
pub fn end(state_dir: &Path, number: u64) {
    let _ = fs::remove_file(mark_of(state_dir, number));
}

/// Removes the marks of all commands that undo this record.
pub fn end_undoing(state_dir: &Path, number: u64) {
    for one in marks(state_dir).into_iter().filter(|one| one.record.undoes == Some(number)) {
        end(state_dir, one.number);
    }
}

/// Whether the command has a mark: the command has begun to write and is incomplete.
pub fn is_unfinished(state_dir: &Path, number: u64) -> bool {
    mark_of(state_dir, number).exists()
}

fn mark_of(state_dir: &Path, number: u64) -> PathBuf {
    folder(state_dir).join(format!("{number}.{UNFINISHED}"))
}

/// Incomplete commands, the newest first. An unreadable record is skipped.
fn marks(state_dir: &Path) -> Vec<UnfinishedCommand> {
    let files = files_with(&folder(state_dir), UNFINISHED).unwrap_or_default();
    let of = |(number, path): &(u64, PathBuf)| {
        let record = super::find(state_dir, Some(*number)).ok()??.record.ok()?;
        let mut overlay = Vec::new();
        File::open(path).ok()?.take(PATH_BYTES_MAX).read_to_end(&mut overlay).ok()?;
        let overlay = Some(OsString::from_vec(overlay)).filter(|path| !path.is_empty());
        let (contents, named) =
            (vec![None; record.devices.len()], vec![false; record.devices.len()]);
        Some(UnfinishedCommand {
            number: *number,
            record,
            overlay: overlay.map(PathBuf::from),
            contents,
            named,
        })
    };
    files.iter().rev().filter_map(of).collect()
}

/// The command that stopped in the middle of its writes and left one of these devices unusable.
pub fn unfinished(state_dir: &Path, paths: &[PathBuf]) -> Option<UnfinishedCommand> {
    let marks = marks(state_dir);
    if marks.is_empty() {
        return None;
    }
    let open = |path: &PathBuf| (open_member(path, Access::Examine).ok(), Reach::of(path));
    let opened: Vec<(Option<Box<dyn Member>>, Reach)> = paths.iter().map(open).collect();
    marks.into_iter().find_map(|mut one| {
        one.look(&opened);
        if one.contents.iter().all(|content| *content == Some(Content::Written)) {
            // The command was killed after its last write, before it removed its mark.
            end(state_dir, one.number);
            return None;
        }
        must_not_be_used(&one.contents, &one.named).then_some(one)
    })
}

/// Refuses an open device that an incomplete command has left half written.
pub fn refuse_half_written(state_dir: &Path, open: &dyn Member) -> Result<(), CliError> {
    for mut one in marks(state_dir) {
        for (index, device) in one.record.devices.iter().enumerate() {
            let found = present_devices::read(device, open).ok().map(|(_, content)| content);
            one.named[index] =
                found.is_some_and(|content| matches!(content, Content::Partly | Content::Written));
            one.contents[index] = found.filter(|_| one.named[index]);
        }
        if one.named.contains(&true) {
            return Err(one.refused(state_dir));
        }
    }
    Ok(())
}

/// Refuses devices that an incomplete command has left half written.
///
/// # Errors
/// A device is half written; the error says how to finish the command or undo it.
pub fn refuse_unfinished(state_dir: &Path, paths: &[PathBuf]) -> Result<(), CliError> {
    unfinished(state_dir, paths).map_or(Ok(()), |one| Err(one.refused(state_dir)))
}

/// Whether the named devices are unusable: one has a write of the command, or one is unwritten and
/// another device, named or not, is written. If the written device is absent, the unwritten devices
/// may be used.
fn must_not_be_used(contents: &[Option<Content>], named: &[bool]) -> bool {
    let is_written =
        |content: &Option<Content>| matches!(content, Some(Content::Partly | Content::Written));
    let is_any_written = contents.iter().any(is_written);
    contents.iter().zip(named).filter(|(_, is_named)| **is_named).any(|(content, _)| {
        is_written(content) || (*content == Some(Content::Before) && is_any_written)
    })
}

impl UnfinishedCommand {
    /// Finds each device of the record: by its content among the opened devices, else by its
    /// recorded names.
    fn look(&mut self, opened: &[(Option<Box<dyn Member>>, Reach)]) {
        for (index, device) in self.record.devices.iter().enumerate() {
            let here = opened.iter().filter_map(|(open, _)| open.as_deref());
            let of = |open: &dyn Member| {
                present_devices::read(device, open).ok().map(|(_, content)| content)
            };
            let is_it = |content: &Content| *content != Content::Changed;
            let named = here.filter_map(of).find(is_it);
            let recorded =
                || present_devices::find(device, Access::Examine).ok().map(|found| found.content);
            // A member in a partition of a written disk counts as named, too.
            let reach = Reach::of(&device.path);
            self.named[index] = named.is_some()
                || opened.iter().any(|(_, other)| reach.shared_with(other).is_some());
            self.contents[index] = named.or_else(recorded);
        }
    }

    /// Whether the operator named all of the command's devices, and chose no other array.
    pub fn is_meant_by(&self, array: Option<&str>) -> bool {
        self.named.iter().all(|is_named| *is_named)
            && array.is_none_or(|array| array == self.record.array)
    }

    /// The error that refuses the command's devices.
    pub fn refused(&self, state_dir: &Path) -> CliError {
        let command = &self.record.command;
        let of = |wanted: &dyn Fn(Option<Content>) -> bool| {
            let devices = self
                .record
                .devices
                .iter()
                .zip(&self.contents)
                .filter(|(_, content)| wanted(**content));
            let paths: Vec<String> =
                devices.map(|(device, _)| device.path.display().to_string()).collect();
            paths
        };
        let what = format!("`{command}` stopped in the middle of writing these members");
        let mut error = CliError::new(Code::Unfinished, what).about(self.record.array.clone());
        let away = of(&|content| content.is_none());
        for (words, devices) in [
            ("as before", of(&|content| content == Some(Content::Before))),
            ("partly written", of(&|content| content == Some(Content::Partly))),
            ("written", of(&|content| content == Some(Content::Written))),
            ("changed by another program since", of(&|content| content == Some(Content::Changed))),
            ("not here", away.clone()),
        ] {
            if !devices.is_empty() {
                error = error.because(format!("{words}: {}", devices.join(", ")));
            }
        }
        if self.contents.contains(&Some(Content::Changed)) {
            let written =
                of(&|content| matches!(content, Some(Content::Partly | Content::Written)));
            let words: Vec<String> =
                written.iter().map(|path| shell_word(path).into_owned()).collect();
            let wipe = format!("wipefs --all {}", words.join(" "));
            return error
                .because(
                    "the array went on without these writes, so they can neither be finished \
                          nor undone",
                )
                .remedy(
                    Risk::Look,
                    "See the state of the members",
                    format!("braid examine {}", words.join(" ")),
                )
                .remedy(Risk::Destroy, "Discard its data; added again it is rebuilt", wipe);
        }
        let without: Vec<String> =
            away.iter().map(|path| format!(" --without {}", shell_word(path))).collect();
        let without = without.concat();
        if let Some(undone) = self.record.undoes {
            let finish = in_state_dir(format!("braid undo {undone}{without}"), state_dir);
            return error.remedy(Risk::Change, "Finish it", finish);
        }
        let undo = in_state_dir(format!("braid undo {}{without}", self.number), state_dir);
        let error = error.remedy(Risk::Change, "Undo its writes", undo);
        match self.overlay.as_ref().filter(|_| away.is_empty()) {
            Some(_) => {
                error.remedy(Risk::Change, "Finish it", in_state_dir(command.clone(), state_dir))
            }
            None => error,
        }
    }
}

/// The command line `command`, with the state folder as an option unless that is the usual folder.
pub fn in_state_dir(command: String, state_dir: &Path) -> String {
    if *state_dir == braid_console::state_dir() {
        return command;
    }
    format!("{command} {}", option_words("--state-dir", &state_dir.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_was_written_is_not_used_and_one_that_was_not_is_without_it() {
        use Content::{Before, Changed, Partly, Written};
        for (contents, named, wanted) in [
            // All devices are present and named.
            ([Some(Partly), Some(Before), Some(Before)], [true, true, true], true),
            ([Some(Written), Some(Before), Some(Before)], [true, true, true], true),
            ([Some(Before), Some(Before), Some(Before)], [true, true, true], false),
            // The written device is present, but not named.
            ([Some(Partly), Some(Before), Some(Before)], [false, true, true], true),
            // The written device is absent: the other devices are served without it.
            ([None, Some(Before), Some(Before)], [false, true, true], false),
            ([Some(Partly), Some(Changed), Some(Changed)], [true, false, false], true),
            ([Some(Written), Some(Changed), Some(Changed)], [true, true, true], true),
            ([Some(Changed), Some(Changed), Some(Changed)], [true, true, true], false),
            // No device is named.
            ([Some(Partly), Some(Before), Some(Before)], [false, false, false], false),
        ] {
            assert_eq!(must_not_be_used(&contents, &named), wanted, "{contents:?} {named:?}");
        }
    }
}
