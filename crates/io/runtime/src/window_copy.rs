//! The file with a copy of a reshape's window, for windows that overwrite the sectors that they
//! read.
//!
//! Most reshapes move data towards free space, and need no copy. Where a member has no such space,
//! the first windows overwrite the sectors that they read. The content of such a window is durable
//! in this file before the window moves. After a power cut or a kill, the next process moves the
//! window again, from the file.
//!
//! [`braid_ondisk::WindowHeader`] has the file's bytes, and decides which copy counts. This module
//! reads and writes the file.
//!
//! Invariants
//! - a copy counts only whole, for its array and reshape, at its position
//!   `[check: a_copy_counts_only_whole_and_at_its_position]`,
//!   `[check: a_copy_of_another_reshape_does_not_count]`.

use std::fs::File;
#[cfg(test)]
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use braid_ondisk::{
    COPIED_SECTORS_MAX, CopiedWindow, ReshapePoint, WINDOW_HEADER_BYTES, WindowHeader,
};

/// The file with the copy of an array's window. [`Self::prepare`] makes the file.
#[derive(Debug)]
pub struct WindowCopy {
    path: PathBuf,
    uuid: [u8; 16],
}

impl WindowCopy {
    /// Names the file of an array. The file need not exist yet.
    #[must_use]
    pub fn new(path: PathBuf, uuid: [u8; 16]) -> Self {
        Self { path, uuid }
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file anew, without a window. A reshape in place begins only with the file.
    ///
    /// # Errors
    /// The file cannot be made. An earlier file may be gone or remain.
    pub fn prepare(&self) -> io::Result<()> {
        self.make(|file| self.write_header(file, &WindowHeader::default()))
    }

    /// Makes the file anew, with a window of a reshape that another program was moving. Without the
    /// window no file may be there: it would say that none was under way.
    ///
    /// # Errors
    /// As for [`Self::prepare`].
    pub fn prepare_with(&self, window: &CopiedWindow, point: ReshapePoint) -> io::Result<()> {
        self.make(|file| {
            for (offset, bytes) in window.writes(&self.uuid, point) {
                file.write_all_at(&bytes, offset)?;
            }
            file.sync_all()
        })
    }

    fn make(&self, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        // A file under the final name is whole.
        let unfinished = self.path.with_extension("new");
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        let made = write(&file).and_then(|()| std::fs::rename(&unfinished, &self.path));
        if made.is_err() {
            // The error of the write says more than an error of the removal.
            let _ = std::fs::remove_file(&unfinished);
        }
        made?;
        File::open(folder)?.sync_all()
    }

    /// As [`Self::prepare`], unless the file belongs to this reshape in its direction: a window
    /// copied before a turn must not count after the next turn. A damaged file stays.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(crate) fn prepare_for(&self, point: ReshapePoint) -> io::Result<()> {
        match self.header() {
            Ok(Some((header, _))) if header.is_of(point) => Ok(()),
            Ok(_) => self.prepare(),
            Err(_) => Ok(()),
        }
    }

    /// Removes the file, if it exists, when no reshape is under way.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Whether the file knows the state of a reshape whose window at this point is in place
    /// ([`WindowHeader::knows`]).
    #[must_use]
    pub fn knows(&self, point: ReshapePoint) -> bool {
        matches!(self.header(), Ok(Some((header, _))) if header.knows(point))
    }

    /// The window that the file holds for a reshape at this point; `None` if it holds none.
    ///
    /// # Errors
    /// The file cannot be read, or is of another array or of no array.
    pub fn at(&self, point: ReshapePoint) -> io::Result<Option<CopiedWindow>> {
        let Some((header, file)) = self.header()? else { return Ok(None) };
        if !header.is_at(point) {
            return Ok(None);
        }
        let mut body = vec![0; header.body_bytes()];
        file.read_exact_at(&mut body, WINDOW_HEADER_BYTES as u64)?;
        Ok(header.window(&body))
    }

    /// The file's header, validated, and the file; `None` without a file.
    fn header(&self) -> io::Result<Option<(WindowHeader, File)>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut header = vec![0; WINDOW_HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let Some(header) = WindowHeader::parse(&header, &self.uuid) else {
            let what = "it is no copy of this array's window, or it is damaged";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        Ok(Some((header, file)))
    }

    /// Writes the bytes of a window durably, for a reshape at this point.
    ///
    /// # Errors
    /// The file cannot be written. Then it holds no window, as far as the file system allows.
    pub fn keep(&self, window: &CopiedWindow, point: ReshapePoint) -> io::Result<()> {
        let length = window.sectors.end - window.sectors.start;
        assert!(length <= COPIED_SECTORS_MAX, "a longer window does not begin");
        let file = File::options().read(true).write(true).open(&self.path)?;
        let writes = window.writes(&self.uuid, point);
        let kept = writes.into_iter().try_for_each(|(offset, bytes)| {
            file.write_all_at(&bytes, offset)?;
            file.sync_all()
        });
        if kept.is_err() {
            // Clients still write to the window: a header that reached the disk must not count.
            let voided = self.write_header(&file, &WindowHeader::default());
            voided.or_else(|_| self.remove())?;
        }
        kept
    }

    fn write_header(&self, file: &File, header: &WindowHeader) -> io::Result<()> {
        file.write_all_at(&header.to_bytes(&self.uuid), 0)?;
        file.sync_all()
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    const fn at(position: u64) -> ReshapePoint {
        ReshapePoint { position, shapes: 5, turned: 4 }
    }

    fn window() -> CopiedWindow {
        CopiedWindow { sectors: 96..192, bytes: vec![5; 96 * 512], lost: Vec::new() }
    }

    #[test]
    fn a_copy_counts_only_whole_and_at_its_position() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("copy");
        let copy = WindowCopy::new(path.clone(), [7; 16]);
        assert_eq!(copy.at(at(0)).expect("there is none"), None);
        copy.prepare().expect("it is made");
        assert_eq!(copy.at(at(0)).expect("it reads"), None, "a new file has no window");
        copy.keep(&window(), at(96)).expect("it writes");
        let again = WindowCopy::new(path.clone(), [7; 16]);
        assert_eq!(again.at(at(96)).expect("it reads"), Some(window()));
        assert_eq!(again.at(at(192)).expect("it reads"), None, "the window is recorded");
        assert!(WindowCopy::new(path.clone(), [8; 16]).at(at(96)).is_err());
        let spoil = |at: u64| {
            let file = OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("it reads");
            file.write_all_at(&[byte[0] ^ 1], at).expect("it writes");
        };
        spoil(WINDOW_HEADER_BYTES as u64 + 1000);
        assert_eq!(again.at(at(96)).expect("it reads"), None, "the bytes are not whole");
        spoil(33);
        assert!(again.at(at(96)).is_err(), "the header is not whole");
    }

    /// Regression: a copy that a finished reshape had left overwrote the array when another reshape
    /// began at the same position.
    #[test]
    fn a_copy_of_another_reshape_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let copy = WindowCopy::new(folder.path().join("copy"), [7; 16]);
        copy.prepare().expect("it is made");
        copy.keep(&window(), at(96)).expect("it writes");
        let other = ReshapePoint { shapes: 6, turned: 7, ..at(96) };
        assert_eq!(copy.at(other).expect("it reads"), None);
        assert!(!copy.knows(other));
    }

    /// Regression: an array killed soon after its reshape turned round was refused, and a copy from
    /// before two turns counted at its position.
    #[test]
    fn a_reshape_that_turned_round_has_the_file_of_its_way_so_far() {
        let folder = tempfile::tempdir().expect("a folder");
        let copy = WindowCopy::new(folder.path().join("copy"), [7; 16]);
        copy.prepare_for(at(96)).expect("it is made");
        copy.keep(&window(), at(96)).expect("it writes");
        copy.prepare_for(at(96)).expect("it stays");
        assert_eq!(copy.at(at(96)).expect("it reads"), Some(window()));
        let back = |position| ReshapePoint { position, shapes: 4, turned: 5 };
        assert!(copy.knows(back(192)) && copy.knows(back(96)), "its window has moved");
        assert!(!copy.knows(back(288)), "braid was not there");
        assert_eq!(copy.at(back(96)).expect("it reads"), None, "no window of the way back moves");
        copy.prepare_for(back(192)).expect("it is made anew");
        assert_eq!(copy.at(at(96)).expect("it reads"), None, "the way before is forgotten");
        assert!(copy.knows(back(192)));
    }

    /// Regression: a file without its window said that none was under way, and md's was read as it
    /// was left.
    #[test]
    fn a_window_that_cannot_be_kept_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let copy = WindowCopy::new(folder.path().join("copy"), [7; 16]);
        let failing = copy.make(|file| {
            copy.write_header(file, &WindowHeader::default())?;
            Err(io::ErrorKind::StorageFull.into())
        });
        failing.expect_err("the file system is full");
        assert!(!copy.knows(at(96)));
        copy.prepare_with(&window(), at(96)).expect("it writes");
        assert_eq!(copy.at(at(96)).expect("it reads"), Some(window()));
    }

    /// Regression: as the file existed, an array started although md had moved its window in place.
    #[test]
    fn a_position_that_another_program_reached_is_not_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let copy = WindowCopy::new(folder.path().join("copy"), [7; 16]);
        assert!(!copy.knows(at(0)), "there is no file");
        copy.prepare().expect("it is made");
        assert!(copy.knows(at(0)), "no window was under way");
        copy.keep(&window(), at(96)).expect("it writes");
        assert!(copy.knows(at(96)) && copy.knows(at(192)));
        assert!(!copy.knows(at(288)), "braid was not there");
        copy.remove().expect("it goes");
        assert!(!copy.knows(at(96)));
    }
}
