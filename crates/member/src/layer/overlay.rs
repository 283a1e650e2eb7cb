//! A member whose writes go into files of their own: the member itself is only read.
//!
//! ```text
//!   read   block in the map? ── yes ─▶ NAME.data        NAME.data  sparse, as long as the member, each block at its own place
//!                            └─ no ──▶ the member       NAME.map   a head, then a bit for each block that NAME.data has
//!   write  ──▶ NAME.data, then the bit in memory;  flush ──▶ NAME.data durable, then the bits, then those durable
//! ```
//!
//! A block has 4 KiB. One that is written in part for the first time takes the rest from the member. A bit is never on the disk before
//! its block is, so after a crash a block holds what the member has or what was written; what was not flushed may be gone, as on a disk.
//!
//! The head names the member's size and a mark of what it held. An overlay over other contents says nothing: it is refused, and so is
//! one that another process has open.
//!
//! Invariants:
//! - nothing is written to the member, whatever is asked for `[check: an_overlay_takes_every_write_and_the_member_none]`;
//! - it reads as a member that was written `[check: an_overlay_reads_like_a_member_that_was_written]`;
//! - what was flushed is there when it is opened again `[check: an_overlay_survives_a_restart]`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use crate::{Identity, Member, MemberError, check_bounds};

/// Bytes that are kept together: what file systems and disks write at once.
pub const BLOCK_BYTES: u64 = 4096;
/// How a map begins.
const MAGIC: &[u8; 16] = b"braid-overlay 1\n";
/// Bytes before the bits.
const HEAD_BYTES: usize = 4096;
/// Bits are kept and written by so many words at once, and only where one is set.
const PAGE_WORDS: usize = 512;
/// Blocks of a page of bits.
const PAGE_BLOCKS: u64 = PAGE_WORDS as u64 * 64;
/// Bytes of a page of bits.
const PAGE_BYTES: usize = PAGE_WORDS * 8;
/// Zeroes that are written at once where the file system makes no holes.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Why an overlay cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The operating system said no.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The file was made over something else, or is none of ours.
    #[error("{} was not made over what this member holds now", .path.display())]
    OfOther {
        /// The file.
        path: PathBuf,
    },
    /// Another process has it open.
    #[error("{} is in use by another process", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

/// Pages of bits by their number, those that have a bit; and which of them the disk has not.
#[derive(Debug, Default)]
struct Map {
    pages: BTreeMap<u64, Box<[u64; PAGE_WORDS]>>,
    unsaved: BTreeSet<u64>,
}

impl Map {
    fn place(block: u64) -> (u64, usize, u64) {
        let within = usize::try_from(block % PAGE_BLOCKS).expect("small");
        (block / PAGE_BLOCKS, within / 64, 1 << (within % 64))
    }

    fn has(&self, block: u64) -> bool {
        let (page, word, bit) = Self::place(block);
        self.pages.get(&page).is_some_and(|page| page[word] & bit != 0)
    }

    fn set(&mut self, blocks: Range<u64>) {
        for block in blocks {
            let (page, word, bit) = Self::place(block);
            let words = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_WORDS]));
            if words[word] & bit == 0 {
                words[word] |= bit;
                self.unsaved.insert(page);
            }
        }
    }

    /// Blocks that it has, in runs.
    fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (page, words) in &self.pages {
            for (index, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
                let first = page * PAGE_BLOCKS + index as u64 * 64;
                for block in (0..64).filter(|bit| word & (1 << bit) != 0).map(|bit| first + bit) {
                    match runs.last_mut() {
                        Some(last) if last.end == block => last.end += 1,
                        _ => runs.push(block..block + 1),
                    }
                }
            }
        }
        runs
    }
}

/// A member that reads as if all that was asked for had been written to it.
#[derive(Debug)]
pub struct Overlay<M> {
    inner: M,
    data: File,
    file: File,
    map: RwLock<Map>,
    /// Held while a block is filled that is written in part.
    filling: Mutex<()>,
    /// Held while bits are saved; whether that has failed once.
    saving: Mutex<Option<MemberError>>,
}

fn system(path: &Path) -> impl Fn(io::Error) -> OverlayError {
    move |source| OverlayError::System { path: path.to_path_buf(), source }
}

/// The file of the map, and that of the blocks.
#[must_use]
pub fn files(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{name}.map")), folder.join(format!("{name}.data")))
}

impl<M: Member> Overlay<M> {
    /// Opens the overlay of this name, or makes it. `mark` stands for what the member holds.
    ///
    /// # Errors
    /// It is over something else, in use, or the files cannot be had.
    pub fn open(inner: M, folder: &Path, name: &str, mark: u64) -> Result<Self, OverlayError> {
        let (map_path, data_path) = files(folder, name);
        let head = head(inner.size_bytes(), mark);
        if !map_path.exists() {
            make(&inner, (&map_path, &data_path), &head)?;
        }
        let open = |path: &Path| {
            OpenOptions::new().read(true).write(true).open(path).map_err(system(path))
        };
        let (file, data) = (open(&map_path)?, open(&data_path)?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(OverlayError::Busy { path: map_path }),
            Err(error) => return Err(system(&map_path)(error.into())),
        }
        let map = read_map(&file, inner.size_bytes(), &head).map_err(system(&map_path))?;
        let length = data.metadata().map_err(system(&data_path))?.len();
        let Some(map) = map.filter(|_| length == inner.size_bytes()) else {
            return Err(OverlayError::OfOther { path: map_path });
        };
        let (map, filling, saving) = (RwLock::new(map), Mutex::new(()), Mutex::new(None));
        Ok(Self { inner, data, file, map, filling, saving })
    }

    /// Bytes that it has instead of the member.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let ranges = self.ranges();
        ranges.into_iter().map(|range| range.end - range.start).sum()
    }

    /// Where it has bytes instead of the member, in order; what it has there may be the same.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let size = self.inner.size_bytes();
        let bytes = |run: Range<u64>| run.start * BLOCK_BYTES..(run.end * BLOCK_BYTES).min(size);
        self.map().runs().into_iter().map(bytes).collect()
    }

    /// What it lies over.
    pub fn below(&self) -> &M {
        &self.inner
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// From `block` on, whether it is in the map, and up to which block before `end` the same is so.
    fn run_at(&self, block: u64, end: u64) -> (bool, u64) {
        let map = self.map();
        let is_here = map.has(block);
        let next = (block + 1..end).find(|next| map.has(*next) != is_here);
        (is_here, next.unwrap_or(end))
    }

    /// Bytes that a block has; the last one may be short.
    fn bytes_of(&self, block: u64) -> Range<u64> {
        block * BLOCK_BYTES..((block + 1) * BLOCK_BYTES).min(self.inner.size_bytes())
    }

    /// Puts bytes that lie in one block.
    fn put_in_part(&self, buffer: &[u8], offset_bytes: u64) -> Result<(), MemberError> {
        let block = offset_bytes / BLOCK_BYTES;
        let _filling = self.filling();
        if !self.map().has(block) {
            let bytes = self.bytes_of(block);
            let mut whole = vec![0; small(bytes.end - bytes.start)];
            self.inner.read_at(&mut whole, bytes.start)?;
            let at = small(offset_bytes - bytes.start);
            whole[at..at + buffer.len()].copy_from_slice(buffer);
            self.data.write_all_at(&whole, bytes.start)?;
            self.map_mut().set(block..block + 1);
            return Ok(());
        }
        Ok(self.data.write_all_at(buffer, offset_bytes)?)
    }

    fn filling(&self) -> MutexGuard<'_, ()> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts a range into what lies in one block and does not fill it, and whole blocks.
    fn parts(&self, offset_bytes: u64, length_bytes: u64) -> Vec<(Range<u64>, bool)> {
        let (end, size) = (offset_bytes + length_bytes, self.inner.size_bytes());
        let mut parts = Vec::new();
        let mut at = offset_bytes;
        while at < end {
            let block = self.bytes_of(at / BLOCK_BYTES);
            if at == block.start && block.end <= end {
                let whole = if end == size { end } else { end - end % BLOCK_BYTES };
                parts.push((at..whole, true));
                at = whole;
            } else {
                let until = block.end.min(end);
                parts.push((at..until, false));
                at = until;
            }
        }
        parts
    }

    /// Has blocks read as zeroes, by a hole where the file system makes one.
    fn put_zeroes(&self, range: &Range<u64>) -> Result<(), MemberError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.data, flags, range.start, range.end - range.start) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(ZEROES.len() as u64);
            self.data.write_all_at(&ZEROES[..small(length)], at)?;
            at += length;
        }
        Ok(())
    }

    /// Blocks first, then the bits that tell of them.
    fn save(&self) -> Result<(), MemberError> {
        let (unsaved, pages): (Vec<u64>, Vec<Vec<u8>>) = {
            let mut map = self.map_mut();
            let unsaved = std::mem::take(&mut map.unsaved);
            let bytes = |page: u64| {
                let words = map.pages[&page].iter();
                (page, words.flat_map(|word| word.to_le_bytes()).collect())
            };
            unsaved.into_iter().map(bytes).unzip()
        };
        self.data.sync_data()?;
        for (page, bytes) in unsaved.iter().zip(&pages) {
            self.file.write_all_at(bytes, HEAD_BYTES as u64 + page * PAGE_BYTES as u64)?;
        }
        if !unsaved.is_empty() {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// Within a buffer.
fn small(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it is in memory")
}

fn head(size_bytes: u64, mark: u64) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    head[..16].copy_from_slice(MAGIC);
    head[16..24].copy_from_slice(&size_bytes.to_le_bytes());
    head[24..32].copy_from_slice(&mark.to_le_bytes());
    head
}

/// Makes the files; the map comes last, and under its name only when it is whole.
fn make(
    inner: &impl Member,
    (map_path, data_path): (&Path, &Path),
    head: &[u8],
) -> Result<(), OverlayError> {
    let create = |path: &Path| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path).map_err(system(path))
    };
    let data = create(data_path)?;
    data.set_len(inner.size_bytes()).and_then(|()| data.sync_all()).map_err(system(data_path))?;
    let new = map_path.with_extension("new");
    let file = create(&new)?;
    file.write_all_at(head, 0).and_then(|()| file.sync_all()).map_err(system(&new))?;
    std::fs::rename(&new, map_path).map_err(system(map_path))?;
    let folder = map_path.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(system(folder))
}

/// The bits; none if the file does not begin as it should, or has bits behind the member's end.
fn read_map(file: &File, size_bytes: u64, head: &[u8]) -> io::Result<Option<Map>> {
    let length = file.metadata()?.len();
    let blocks = size_bytes.div_ceil(BLOCK_BYTES);
    let longest = HEAD_BYTES as u64 + blocks.div_ceil(PAGE_BLOCKS) * PAGE_BYTES as u64;
    if length < HEAD_BYTES as u64 || length > longest {
        return Ok(None);
    }
    let mut found = vec![0; HEAD_BYTES];
    file.read_exact_at(&mut found, 0)?;
    if found != head {
        return Ok(None);
    }
    let mut map = Map::default();
    let pages = (length - HEAD_BYTES as u64) / PAGE_BYTES as u64;
    let mut bytes = vec![0; PAGE_BYTES];
    for page in 0..pages {
        file.read_exact_at(&mut bytes, HEAD_BYTES as u64 + page * PAGE_BYTES as u64)?;
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut words = Box::new([0; PAGE_WORDS]);
        let (chunks, _) = bytes.as_chunks::<8>();
        words.iter_mut().zip(chunks).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        map.pages.insert(page, words);
    }
    let last = map.runs().last().map_or(0, |run| run.end);
    Ok((last <= blocks).then_some(map))
}

impl<M: Member> Member for Overlay<M> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        check_bounds(offset_bytes, buffer.len() as u64, self.size_bytes())?;
        let end = offset_bytes + buffer.len() as u64;
        let mut at = offset_bytes;
        while at < end {
            let (is_here, next) = self.run_at(at / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
            let until = (next * BLOCK_BYTES).min(end);
            let part = &mut buffer[small(at - offset_bytes)..small(until - offset_bytes)];
            match is_here {
                true => self.data.read_exact_at(part, at)?,
                false => self.inner.read_at(part, at)?,
            }
            at = until;
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        check_bounds(offset_bytes, buffer.len() as u64, self.size_bytes())?;
        for (range, is_whole) in self.parts(offset_bytes, buffer.len() as u64) {
            let part = &buffer[small(range.start - offset_bytes)..small(range.end - offset_bytes)];
            if is_whole {
                self.data.write_all_at(part, range.start)?;
                let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
                self.map_mut().set(blocks);
            } else {
                self.put_in_part(part, range.start)?;
            }
        }
        if durable { self.flush() } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), MemberError> {
        let mut saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        if saving.is_some() {
            return Err(MemberError::FlushFailedBefore { errno: None });
        }
        self.save().inspect_err(|error| *saving = Some(*error))
    }

    fn zero(&self, offset_bytes: u64, length_bytes: u64, _: bool) -> Result<(), MemberError> {
        check_bounds(offset_bytes, length_bytes, self.size_bytes())?;
        for (range, is_whole) in self.parts(offset_bytes, length_bytes) {
            if is_whole {
                self.put_zeroes(&range)?;
                let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
                self.map_mut().set(blocks);
            } else {
                self.put_in_part(&ZEROES[..small(range.end - range.start)], range.start)?;
            }
        }
        Ok(())
    }

    fn can_zero_fast(&self) -> bool {
        false
    }

    fn has_vanished(&self) -> bool {
        self.inner.has_vanished()
    }
}
