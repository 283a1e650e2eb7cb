//! The file with a copy of a reshape's window, for windows that overwrite the sectors that they
//! read.
//!
//! Most reshapes move data towards free space, and need no copy. Where a member has no such space,
//! the first windows overwrite the sectors that they read. The content of such a window is durable
//! in this file before the window moves. After a power cut or a kill, the next process moves the
//! window again, from the file.
//!
//! ```text
//!   0               4096
//!   │ header        │ the window's bytes │
//! ```
//!
//! The header names the array, both shapes, the window and the superblocks' position, with CRC-32C
//! of the bytes and of itself. It is written after the bytes are durable. A file without a window
//! says that no window in place is under way. All numbers are little-endian.
//!
//! Invariants
//! - a copy counts only whole, for its array and reshape, at its position
//!   `[check: a_copy_counts_only_whole_and_at_its_position]`,
//!   `[check: a_copy_of_another_reshape_does_not_count]`.

use std::fs::File;
#[cfg(test)]
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use braid_engine::reshape::COPIED_SECTORS_MAX;
use braid_geometry::SECTOR_BYTES;
use braid_ondisk::Superblock;

const MAGIC: [u8; 16] = *b"braid window v1\0";
const HEADER_BYTES: usize = 4096;
/// Bytes of the header that its checksum covers.
const SUMMED_BYTES: usize = 72;

/// The file with the copy of an array's window. [`Self::prepare`] makes the file.
#[derive(Debug)]
pub struct WindowCopy {
    path: PathBuf,
    uuid: [u8; 16],
}

/// A reshape at a position: the same in the header and in superblocks, or the copy is of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapePoint {
    /// The position that superblocks have, in sectors of the array.
    pub position: u64,
    /// A checksum of both shapes and the direction.
    shapes: u32,
    /// The same of the way back: a reshape that turned round here has the file of its way so far.
    turned: u32,
}

/// Level, layout and chunk.
type Side = [i64; 3];

impl ReshapePoint {
    /// The reshape that a superblock records; `None` without one.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Option<Self> {
        let shape = superblock.shape();
        let reshape = shape.reshape?;
        let sum = |old: Side, new: Side, (slots, delta): (i64, i64), backwards: bool| {
            let size = shape.member_size_sectors.cast_signed();
            let numbers = old.into_iter().chain([size, slots, delta]).chain(new);
            let numbers = numbers.chain([i64::from(backwards)]);
            crc32c::crc32c(&numbers.flat_map(i64::to_le_bytes).collect::<Vec<u8>>())
        };
        let side =
            |level: i32, layout: u32, chunk: u32| [level.into(), layout.into(), chunk.into()];
        let old = side(shape.level.md_number(), shape.layout, shape.chunk_sectors);
        let new =
            side(reshape.new_level.md_number(), reshape.new_layout, reshape.new_chunk_sectors);
        let (slots, delta) = (i64::from(shape.raid_slots), i64::from(reshape.delta_disks));
        Some(Self {
            position: reshape.position_sectors,
            shapes: sum(old, new, (slots, delta), reshape.backwards),
            turned: sum(new, old, (slots - delta, -delta), !reshape.backwards),
        })
    }

    /// The same reshape at another position.
    pub(crate) fn moved_to(self, position: u64) -> Self {
        Self { position, ..self }
    }
}

/// The copy of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedWindow {
    /// Sectors of the array.
    pub sectors: Range<u64>,
    /// The bytes of these sectors.
    pub bytes: Vec<u8>,
}

/// The numbers of a header.
#[derive(Clone, Debug, Default)]
struct Header {
    sectors: Range<u64>,
    position: u64,
    sum: u32,
    shapes: u32,
}

impl Header {
    /// Whether the file says something about this reshape in its direction.
    fn is_of(&self, point: ReshapePoint) -> bool {
        self.sectors.is_empty() || self.shapes == point.shapes
    }
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
    /// The file cannot be made. A file from before may be gone or be there.
    pub fn prepare(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        // A file that is there is whole.
        let unfinished = self.path.with_extension("new");
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        let made = self.write_header(&file, &Header::default());
        let made = made.and_then(|()| std::fs::rename(&unfinished, &self.path));
        if made.is_err() {
            // The first error says more.
            let _ = std::fs::remove_file(&unfinished);
        }
        made?;
        File::open(folder)?.sync_all()
    }

    /// [`Self::prepare`], unless the file is of this reshape in its direction: a window of the way
    /// before a turn must not count after the next turn. A damaged file stays.
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

    /// Removes the file, if it is there: no reshape is under way.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Whether the file knows the state of a reshape whose window at this point is in place: it
    /// holds that window, or says that none was under way there. A window from elsewhere means that
    /// another program has moved data since.
    #[must_use]
    pub fn knows(&self, point: ReshapePoint) -> bool {
        let Ok(Some((header, _))) = self.header() else { return false };
        let Header { sectors, position, shapes, .. } = header;
        let is_behind = sectors.end == point.position || sectors.start == point.position;
        let is_here = shapes == point.shapes && (position == point.position || is_behind);
        // Before the first window of the way back is kept, the file has the last one of the way.
        sectors.is_empty() || is_here || shapes == point.turned && is_behind
    }

    /// The window that the file holds for a reshape at this point; `None` if it holds none.
    ///
    /// # Errors
    /// The file cannot be read, or is of another array or of no array.
    pub fn at(&self, point: ReshapePoint) -> io::Result<Option<CopiedWindow>> {
        let Some((header, file)) = self.header()? else { return Ok(None) };
        let Header { sectors, position, sum, shapes } = header;
        if sectors.is_empty() || position != point.position || shapes != point.shapes {
            return Ok(None);
        }
        let length = sectors.end - sectors.start;
        let length = usize::try_from(length * SECTOR_BYTES).expect("bounded by the header");
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, HEADER_BYTES as u64)?;
        // The header follows the bytes: bytes that do not fit were never relied on.
        let is_whole = sum == crc32c::crc32c(&bytes);
        Ok(is_whole.then_some(CopiedWindow { sectors, bytes }))
    }

    /// The file's header, validated, and the file; `None` without a file.
    fn header(&self) -> io::Result<Option<(Header, File)>> {
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
        let (start, sectors) = (number(32), number(40));
        let end = start.checked_add(sectors).filter(|_| sectors <= COPIED_SECTORS_MAX);
        let sums = (u32::try_from(number(56)), u32::try_from(number(64)));
        let is_sound = is_ours && sum == crc32c::crc32c(&header[..SUMMED_BYTES]);
        let (Some(end), (Ok(sum), Ok(shapes)), true) = (end, sums, is_sound) else {
            let what = "it is no copy of this array's window, or it is damaged";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        Ok(Some((Header { sectors: start..end, position: number(48), sum, shapes }, file)))
    }

    /// Keeps the bytes of a window durably, for a reshape at this point.
    ///
    /// # Errors
    /// The file cannot be written. Then it holds no window, as far as the file system allows.
    pub fn keep(&self, window: &CopiedWindow, point: ReshapePoint) -> io::Result<()> {
        let length = window.sectors.end - window.sectors.start;
        assert!(length <= COPIED_SECTORS_MAX, "a longer window does not begin");
        let file = File::options().read(true).write(true).open(&self.path)?;
        let kept = self.keep_in(&file, window, point);
        if kept.is_err() {
            // Clients go on to write there: a header that did reach the disk must not count.
            let voided = self.write_header(&file, &Header::default());
            voided.or_else(|_| self.remove())?;
        }
        kept
    }

    fn keep_in(&self, file: &File, window: &CopiedWindow, point: ReshapePoint) -> io::Result<()> {
        // First no window: the new bytes must not stand under the old header.
        self.write_header(file, &Header::default())?;
        file.write_all_at(&window.bytes, HEADER_BYTES as u64)?;
        file.sync_all()?;
        let ReshapePoint { position, shapes, .. } = point;
        let sum = crc32c::crc32c(&window.bytes);
        self.write_header(file, &Header { sectors: window.sectors.clone(), position, sum, shapes })
    }

    fn write_header(&self, file: &File, numbers: &Header) -> io::Result<()> {
        let Header { sectors, position, sum, shapes } = numbers;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(self.uuid);
        let length = sectors.end - sectors.start;
        for number in [sectors.start, length, *position, u64::from(*sum), u64::from(*shapes)] {
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

    const fn at(position: u64) -> ReshapePoint {
        ReshapePoint { position, shapes: 5, turned: 4 }
    }

    fn window() -> CopiedWindow {
        CopiedWindow { sectors: 96..192, bytes: vec![5; 96 * 512] }
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
        spoil(HEADER_BYTES as u64 + 1000);
        assert_eq!(again.at(at(96)).expect("it reads"), None, "the bytes are not whole");
        spoil(33);
        assert!(again.at(at(96)).is_err(), "the header is not whole");
    }

    /// Regression: a copy that a finished reshape had left went over the array when another reshape
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

    /// Regression: an array that was killed soon after a turn was refused, and the copy of the way
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

    /// Regression: the file's existence let an array start whose window in place md had moved.
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
