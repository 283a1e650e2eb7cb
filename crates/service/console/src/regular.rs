//! Regular files at paths from an operator or a configuration: opened, and read up to a limit.
//!
//! A named pipe waits for a writer, and `/dev/zero` has no end. Opening a device may already have
//! an effect, so the path is checked before it is opened. The opened file is checked again, because
//! another file may have replaced the first one.
//!
//! Members, which may be block devices and are locked, are opened elsewhere (`braid_member::open`).
//!
//! Invariants:
//! - no path makes a command wait, or read without an end
//!   `[check: what_is_no_regular_file_is_refused_at_once, no_more_than_the_limit_is_read]`.

use std::error::Error;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use braid_member::FileKind;
use rustix::fs::OFlags;

/// Why a file is not opened or not read.
#[derive(Debug)]
pub enum NotRead {
    /// The path leads to a block device.
    BlockDevice,
    /// The path leads to another kind of file.
    Kind(FileKind),
    /// The file exceeds the limit.
    TooLong {
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// The operating system returned an error.
    System(io::Error),
}

impl NotRead {
    /// Whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::System(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for NotRead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlockDevice => out.write_str("it is a block device, not a regular file"),
            Self::Kind(FileKind::Other) => out.write_str("it is not a regular file"),
            Self::Kind(kind) => write!(out, "it is {kind}, not a regular file"),
            Self::TooLong { bytes_max } => {
                write!(out, "it has more than {bytes_max} bytes, the limit")
            }
            Self::System(error) => error.fmt(out),
        }
    }
}

impl Error for NotRead {}

impl From<io::Error> for NotRead {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<NotRead> for io::Error {
    fn from(why: NotRead) -> Self {
        match why {
            NotRead::System(error) => error,
            other => Self::other(other),
        }
    }
}

/// Opens a regular file for reading. Never waits.
///
/// # Errors
/// The path leads to no regular file, or the file cannot be opened.
pub fn open(path: &Path) -> Result<File, NotRead> {
    open_with(path, OpenOptions::new().read(true))
}

/// Opens an existing regular file with these options. Never waits.
///
/// # Errors
/// As for [`open`].
pub fn open_with(path: &Path, options: &mut OpenOptions) -> Result<File, NotRead> {
    check(&fs::metadata(path)?)?;
    // A pipe that replaced the file must not make braid wait; regular files ignore NONBLOCK.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a whole regular file of at most `bytes_max`. Files of /proc report a length of 0.
///
/// # Errors
/// As for [`open`]; or the file is longer, or a read failed.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, NotRead> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(NotRead::TooLong { bytes_max }),
        false => Ok(bytes),
    }
}

/// Reads a text file.
///
/// # Errors
/// As for [`read`]; [`io::ErrorKind::InvalidData`] if the file is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, NotRead> {
    let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    Ok(String::from_utf8(read(path, bytes_max)?).map_err(no_text)?)
}

fn check(found: &Metadata) -> Result<(), NotRead> {
    match found.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_block_device() => Err(NotRead::BlockDevice),
        _ => Err(NotRead::Kind(FileKind::of(found))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let _socket = UnixListener::bind(path("socket")).expect("a socket");
        symlink("/dev/zero", path("zero")).expect("a link");
        symlink("pipe", path("link")).expect("a link");
        for (name, is) in [
            ("pipe", "a named pipe"),
            ("link", "a named pipe"),
            ("socket", "a socket"),
            ("zero", "a character device"),
            (".", "a directory"),
        ] {
            let refused = read(&path(name), 100).expect_err(name);
            assert_eq!(refused.to_string(), format!("it is {is}, not a regular file"));
            assert!(!refused.is_missing(), "{name}");
            let mut writing = OpenOptions::new();
            let refused = open_with(&path(name), writing.write(true)).expect_err(name);
            assert_eq!(refused.to_string(), format!("it is {is}, not a regular file"));
        }
        assert!(read(&path("nothing"), 100).expect_err("missing").is_missing());
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "twelve bytes").expect("a file");
        assert_eq!(read_text(&path, 12).expect("it fits"), "twelve bytes");
        let longer = read(&path, 11).expect_err("longer").to_string();
        assert_eq!(longer, "it has more than 11 bytes, the limit");
        std::fs::write(&path, [0xff]).expect("a file");
        let no_text = io::Error::from(read_text(&path, 12).expect_err("no text"));
        assert_eq!(no_text.kind(), io::ErrorKind::InvalidData);
        assert!(read(Path::new("/proc/self/status"), 1 << 20).is_ok_and(|text| !text.is_empty()));
    }
}
