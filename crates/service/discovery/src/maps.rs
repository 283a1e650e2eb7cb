//! Maps of copied disks: a map is a file next to a copy, and lists the ranges of the disk that the
//! copy has.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use braid_imaging::{Map, MapError, TEXT_BYTES_MAX};

use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::regular::{self, NotRead};

/// The default path of a copy's map: `IMAGE.map`.
pub fn beside(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".map");
    name.into()
}

/// Reads the map of the copy of a disk of `size_bytes`; `None` if the map's file does not exist.
pub fn read(path: &Path, size_bytes: u64) -> Result<Option<Map>, CliError> {
    parsed(path, |text| Map::parse(text, size_bytes))
}

/// Reads the map of a copy, which may be shorter than its disk; `None` if the map does not exist.
pub fn read_of_copy(path: &Path, copy_bytes: u64) -> Result<Option<Map>, CliError> {
    parsed(path, |text| Map::parse_of_copy(text, copy_bytes))
}

fn parsed(
    path: &Path,
    parse: impl Fn(&str) -> Result<Map, MapError>,
) -> Result<Option<Map>, CliError> {
    let text = match regular::read_text(path, TEXT_BYTES_MAX) {
        Err(error) if error.is_missing() => return Ok(None),
        Err(NotRead::System(error)) if error.kind() != io::ErrorKind::InvalidData => {
            return Err(cannot_read(path, &error));
        }
        Err(error) => return Err(unfit(path, &error.to_string())),
        Ok(text) => text,
    };
    parse(&text).map(Some).map_err(|error| unfit(path, &error.to_string()))
}

/// Replaces a map durably.
pub fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let written = || -> io::Result<()> {
        // If the path is a link, replaces the file that the link leads to: readers continue to use
        // the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        File::open(folder)?.sync_all()
    };
    written()
        .map_err(|error| system(format!("the map {} cannot be written", path.display()), &error))
}

fn cannot_read(path: &Path, error: &io::Error) -> CliError {
    system(format!("the map {} cannot be read", path.display()), error)
}

/// Error for a map that does not fit this disk.
pub fn unfit(path: &Path, why: &str) -> CliError {
    let name = path.display().to_string();
    // Suggests no `head` for a pipe: reading the pipe would block the operator, too.
    let verb = if path.is_file() { "head -n 20" } else { "ls -l" };
    let see = format!("{verb} {}", shell_word(&name));
    CliError::new(Code::MapUnfit, "the map of the copy cannot be used")
        .about(name)
        .because(why)
        .remedy(Risk::Look, "See what it is", see)
}
