//! The copy of a window of a reshape that overwrites what it reads.
//!
//! Most reshapes move data towards free space, and need no copy. Where a member has no such space,
//! the first windows overwrite the sectors that they read; then their content is in this file
//! first, durably. After a power cut or a kill, the next process moves the window again, from the
//! file.
//!
//! ```text
//!   0               4096
//!   │ header        │ the window's bytes │
//! ```
//!
//! The header names the array, the window and the superblocks' position, with CRC-32C of the bytes
//! and of itself. It is written after the bytes are durable. A file without a window says that no
//! window in place is under way. All numbers are little-endian.
//!
//! Invariants
//! - a copy counts only whole, for its array, at its position
//!   `[check: a_copy_counts_only_whole_and_at_its_position]`.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use braid_geometry::SECTOR_BYTES;

const MAGIC: [u8; 16] = *b"braid window v1\0";
const HEADER_BYTES: usize = 4096;
/// Bytes of the header that its checksum covers.
const SUMMED_BYTES: usize = 72;
/// The longest window that a file may claim.
const SECTORS_MAX: u64 = 1 << 20;

/// The file with the copy of one array's windows. It is made by [`Self::prepare`].
#[derive(Debug)]
pub struct WindowCopy {
    path: PathBuf,
    uuid: [u8; 16],
}

/// A window that a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedWindow {
    /// Sectors of the array.
    pub sectors: Range<u64>,
    /// Their bytes.
    pub bytes: Vec<u8>,
}

impl WindowCopy {
    /// The file of an array, which may not exist yet.
    #[must_use]
    pub fn new(path: PathBuf, uuid: [u8; 16]) -> Self {
        Self { path, uuid }
    }

    /// Makes the file, without a window. A reshape in place begins only with the file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn prepare(&self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        self.write_header(&self.file()?, &(0..0), 0, 0)?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }

    /// [`Self::prepare`], unless the file exists.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(crate) fn prepare_once(&self) -> io::Result<()> {
        if self.path.exists() { Ok(()) } else { self.prepare() }
    }

    fn file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(&self.path)
    }

    /// The window that the file holds for a reshape at `position`; `None` if it holds none.
    ///
    /// # Errors
    /// The file cannot be read, or is of another array or of no array.
    pub fn at(&self, position: u64) -> io::Result<Option<CopiedWindow>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut header = vec![0; SUMMED_BYTES + 4];
        file.read_exact_at(&mut header, 0)?;
        let number =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let sum = u32::from_le_bytes(header[SUMMED_BYTES..].try_into().expect("four bytes"));
        let is_ours = header[..16] == MAGIC && header[16..32] == self.uuid;
        if !is_ours || sum != crc32c::crc32c(&header[..SUMMED_BYTES]) {
            let what = "it is no copy of this array's window, or it is damaged";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let (start, sectors, at) = (number(32), number(40), number(48));
        if sectors == 0 || at != position {
            return Ok(None);
        }
        let end = start.checked_add(sectors).filter(|_| sectors <= SECTORS_MAX);
        let Some(end) = end else { return Ok(None) };
        let length = usize::try_from(sectors * SECTOR_BYTES).expect("bounded");
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, HEADER_BYTES as u64)?;
        let is_whole = number(56) == u64::from(crc32c::crc32c(&bytes));
        // The header follows the bytes: bytes that do not fit were never relied on.
        Ok(is_whole.then_some(CopiedWindow { sectors: start..end, bytes }))
    }

    /// Keeps the bytes of a window durably, for a reshape at `position`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, window: &CopiedWindow, position: u64) -> io::Result<()> {
        let file = self.file()?;
        // First no window: the new bytes must not stand under the old header.
        self.write_header(&file, &(0..0), 0, 0)?;
        file.write_all_at(&window.bytes, HEADER_BYTES as u64)?;
        file.sync_all()?;
        self.write_header(&file, &window.sectors, position, crc32c::crc32c(&window.bytes))
    }

    fn write_header(
        &self,
        file: &File,
        sectors: &Range<u64>,
        position: u64,
        sum: u32,
    ) -> io::Result<()> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(self.uuid);
        for number in [sectors.start, sectors.end - sectors.start, position, u64::from(sum), 0] {
            header.extend(number.to_le_bytes());
        }
        assert_eq!(header.len(), SUMMED_BYTES, "the fields before the checksum");
        header.extend(crc32c::crc32c(&header).to_le_bytes());
        header.resize(HEADER_BYTES, 0);
        file.write_all_at(&header, 0)?;
        file.sync_all()
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_only_whole_and_at_its_position() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("copy");
        let copy = WindowCopy::new(path.clone(), [7; 16]);
        assert_eq!(copy.at(0).expect("there is none"), None);
        copy.prepare().expect("it is made");
        assert_eq!(copy.at(0).expect("it reads"), None, "a new file has no window");
        let window = CopiedWindow { sectors: 96..192, bytes: vec![5; 96 * 512] };
        copy.keep(&window, 96).expect("it writes");
        let again = WindowCopy::new(path.clone(), [7; 16]);
        assert_eq!(again.at(96).expect("it reads"), Some(window));
        assert_eq!(again.at(192).expect("it reads"), None, "the window is recorded");
        assert!(WindowCopy::new(path.clone(), [8; 16]).at(96).is_err());
        let spoil = |at: u64| {
            let file = OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("it reads");
            file.write_all_at(&[byte[0] ^ 1], at).expect("it writes");
        };
        spoil(HEADER_BYTES as u64 + 1000);
        assert_eq!(again.at(96).expect("it reads"), None, "the bytes are not whole");
        spoil(33);
        assert!(again.at(96).is_err(), "the header is not whole");
    }
}
