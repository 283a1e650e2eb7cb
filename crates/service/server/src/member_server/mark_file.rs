//! The file that keeps a member's highest epoch over restarts of its server.

use std::io;
use std::path::{Path, PathBuf};

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::state::write_whole;
use braid_ownership::Mark;

/// `STATE/members/NAME-CHECKSUM.epoch`; the checksum is of the member's absolute path.
#[derive(Debug)]
pub(super) struct MarkFile(PathBuf);

impl MarkFile {
    pub(super) fn of(state_dir: &Path, member: &Path) -> Self {
        let whole = std::path::absolute(member).unwrap_or_else(|_| member.to_path_buf());
        let sum = crc32c::crc32c(whole.as_os_str().as_encoded_bytes());
        let name = member.file_name().unwrap_or_default().to_string_lossy();
        Self(state_dir.join("members").join(format!("{name}-{sum:08x}.epoch")))
    }

    /// Reads the mark; `None` if the member has never had an owner.
    pub(super) fn read(&self) -> Result<Option<Mark>, CliError> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unreadable(&error.to_string())),
        };
        let mark = text.trim_end().parse().map_err(|error| self.unreadable(&format!("{error}")));
        mark.map(Some)
    }

    /// Writes a mark to the file durably.
    pub(super) fn write(&self, mark: Mark) -> io::Result<()> {
        write_whole(&self.0, &format!("{mark}\n"))
    }

    fn unreadable(&self, why: &str) -> CliError {
        let path = self.0.display().to_string();
        let what = format!("the epoch of a member cannot be read from {path}");
        let word = shell_word(&path);
        let error = CliError::new(Code::EpochUnreadable, what).because(why);
        let error = error.remedy(Risk::Look, "See what it says", format!("cat {word}"));
        error.remedy(
            Risk::Destroy,
            "If no other owner can be alive, forget the epoch",
            format!("rm {word}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_ownership::OwnerId;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_damage_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = MarkFile::of(folder.path(), Path::new("/dev/sdz"));
        assert_eq!(file.read().expect("none yet"), None);
        let mark = Mark { epoch: 9, owner: OwnerId([3; 16]) };
        file.write(mark).expect("it writes");
        assert_eq!(file.read().expect("it reads"), Some(mark));
        let other = MarkFile::of(folder.path(), Path::new("/mnt/sdz"));
        assert_eq!(other.read().expect("another member of that name"), None);
        std::fs::write(&file.0, "epoch=9").expect("it writes");
        assert_eq!(file.read().expect_err("damaged").code(), Code::EpochUnreadable);
    }
}
