//! A member whose writes go into files of their own: the member itself is only read.
//!
//! ```text
//!  NAME.data  a head, then slots of 4 KiB
//!  NAME.map   a head, then the log of the map
//!
//!  read   block in the map? ── yes ─▶ its slot in NAME.data, and its checksum
//!                           └─ no ──▶ the member
//!  write  ─▶ a free slot, then the map in memory
//!  flush  ─▶ NAME.data durable ─▶ log longer, durable ─▶ head says so, durable
//! ```
//!
//! A block has 4 KiB. The first partial write of a block takes the rest from the member. A slot
//! that the log on the disk names is not written again before a later log has replaced it. A slot
//! that the log never named may be written at any time. So after a crash every block holds its last
//! flushed bytes.
//!
//! The log is a list of runs: the first block, the count, the first slot, and a CRC-32C of each
//! block's bytes; zeroes have no slot. The head holds the length of the valid log and its checksum.
//! So a map that was cut, a flipped bit in it, and a block of NAME.data with other bytes than
//! written are found and reported. None of them is taken for a client's write.
//!
//! The head also names the member's size, a mark of its content, and an identity that NAME.data has
//! as well. An overlay over other content is meaningless, so it is refused. So is an overlay that
//! another process has open.
//!
//! Invariants:
//! - nothing is written to the member `[check: an_overlay_takes_every_write_and_the_member_none]`;
//! - an overlay reads as a member that was written
//!   `[check: an_overlay_reads_like_a_member_that_was_written]`;
//! - flushed bytes survive a restart `[check: an_overlay_survives_a_restart]`;
//! - a changed byte in either file is found
//!   `[check: an_overlay_that_was_changed_in_any_byte_is_refused]`.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crc32c::{crc32c, crc32c_append};
use rangemap::RangeSet;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::{Identity, Member, MemberError, check_bounds, lock_exclusively};

/// Unit of the overlay, in bytes: the unit in which file systems and disks write.
pub const BLOCK_BYTES: u64 = 4096;
const MAGIC: &[u8; 16] = b"braid-overlay 2\n";
const DATA_MAGIC: &[u8; 16] = b"braid-blocks  2\n";
/// Bytes of a head: a sector, which is written whole or not at all.
const HEAD_BYTES: usize = 512;
const LOG_START: u64 = 4096;
/// Bytes of a run in the log, before its checksums.
const RUN_BYTES: usize = 16;
const NO_SLOT: u32 = u32::MAX;
/// Blocks of a group, for which slots are stored together.
const GROUP_BLOCKS: u64 = 64;

const GROUP_LENGTH: usize = 64;
const _: () = assert!(GROUP_LENGTH as u64 == GROUP_BLOCKS);
type Group = [StoredBlock; GROUP_LENGTH];
/// A log with this many bytes more than necessary is rewritten at the next open.
const LOG_WASTE_BYTES: u64 = 1 << 20;
/// Maximum runs that are not yet in the log: some 5 MB of memory.
const UNSAVED_RUNS_MAX: usize = 1 << 16;

/// The random identity that both files of an overlay carry.
pub type OverlayId = [u8; 16];

/// Why an overlay cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// An error of the operating system.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The file was made over a member with other content.
    #[error("{} was made over other contents of this member", .path.display())]
    OfOther {
        /// The file.
        path: PathBuf,
    },
    /// The file is gone, or holds other bytes than were written to it.
    #[error("{} {why}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage, in words.
        why: &'static str,
    },
    /// Another process has the file open.
    #[error("{} is in use by another process", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

/// A block's slot, and the checksum of its bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct StoredBlock {
    /// The slot's number; 0 means that the block has no slot, since the head occupies slot 0.
    slot: u32,
    checksum: u32,
}

/// Where the bytes of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockLocation {
    Member,
    Zeroes,
    Slot(StoredBlock),
}

/// The blocks with slots, in groups, and the blocks of zeroes. A group without a block in a slot is
/// left out.
#[derive(Debug, Default)]
struct Map {
    groups: BTreeMap<u64, Box<Group>>,
    zeroes: RangeSet<u64>,
}

impl Map {
    fn location(&self, block: u64) -> BlockLocation {
        let stored = self.groups.get(&(block / GROUP_BLOCKS)).map(|group| group[within(block)]);
        match stored {
            Some(stored) if stored.slot != 0 => BlockLocation::Slot(stored),
            _ if self.zeroes.contains(&block) => BlockLocation::Zeroes,
            _ => BlockLocation::Member,
        }
    }

    /// The location of `block`, and the number of blocks up to `end` that continue the same run.
    fn run_at(&self, block: u64, end: u64) -> (BlockLocation, u64) {
        let first = self.location(block);
        let is_next = |next: u64| match (first, self.location(next)) {
            (BlockLocation::Slot(first), BlockLocation::Slot(one)) => {
                u64::from(one.slot) == u64::from(first.slot) + next - block
            }
            (first, location) => first == location,
        };
        (first, (block + 1..end).find(|next| !is_next(*next)).unwrap_or(end))
    }

    /// Sets a run in place of existing ones. Slots that are no longer named are added to `freed`.
    fn set(&mut self, run: &Run, freed: &mut Vec<u32>) {
        let (first, last) = (run.block, run.blocks().end - 1);
        for (number, group) in self.groups.range_mut(first / GROUP_BLOCKS..=last / GROUP_BLOCKS) {
            for (block, stored) in (number * GROUP_BLOCKS..).zip(group.iter_mut()) {
                if (first..=last).contains(&block) {
                    let old = std::mem::take(stored);
                    freed.extend(Some(old.slot).filter(|slot| *slot != 0));
                }
            }
        }
        match run.slot {
            NO_SLOT => self.zeroes.insert(run.blocks()),
            first => {
                self.zeroes.remove(run.blocks());
                for ((block, checksum), slot) in run.blocks().zip(&run.checksums).zip(first..) {
                    let group = self.groups.entry(block / GROUP_BLOCKS);
                    let group =
                        group.or_insert_with(|| Box::new([StoredBlock::default(); GROUP_LENGTH]));
                    group[within(block)] = StoredBlock { slot, checksum: *checksum };
                }
            }
        }
    }

    /// All blocks in slots, in order, with slot and checksum.
    fn stored_blocks(&self) -> impl Iterator<Item = (u64, StoredBlock)> {
        self.groups.iter().flat_map(|(number, group)| {
            (number * GROUP_BLOCKS..).zip(**group).filter(|(_, stored)| stored.slot != 0)
        })
    }

    fn runs(&self) -> Vec<Run> {
        let zeroes = |range: &Range<u64>| Run::zeroes(range.clone());
        let mut runs: Vec<Run> = self.zeroes.iter().flat_map(zeroes).collect();
        let mut last: Option<Run> = None;
        for (block, stored) in self.stored_blocks() {
            match last.as_mut().filter(|run| {
                run.block + u64::from(run.count) == block && run.slot + run.count == stored.slot
            }) {
                Some(run) => {
                    run.count += 1;
                    run.checksums.push(stored.checksum);
                }
                None => {
                    let (slot, checksums) = (stored.slot, vec![stored.checksum]);
                    runs.extend(last.replace(Run { block, count: 1, slot, checksums }));
                }
            }
        }
        runs.extend(last);
        runs
    }
}

fn within(block: u64) -> usize {
    small(block % GROUP_BLOCKS)
}

/// Consecutive blocks in consecutive slots.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    block: u64,
    count: u32,
    slot: u32,
    /// One checksum for each block; empty for zeroes.
    checksums: Vec<u32>,
}

impl Run {
    /// Runs of zeroes over these blocks; several if their count exceeds what one run can hold.
    fn zeroes(mut blocks: Range<u64>) -> Vec<Self> {
        let mut runs = Vec::new();
        while !blocks.is_empty() {
            let count = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
            runs.push(Self { block: blocks.start, count, slot: NO_SLOT, checksums: Vec::new() });
            blocks.start += u64::from(count);
        }
        runs
    }

    fn blocks(&self) -> Range<u64> {
        self.block..self.block + u64::from(self.count)
    }

    fn put(&self, log: &mut Vec<u8>) {
        log.extend(self.block.to_le_bytes());
        log.extend(self.count.to_le_bytes());
        log.extend(self.slot.to_le_bytes());
        self.checksums.iter().for_each(|checksum| log.extend(checksum.to_le_bytes()));
    }

    /// Reads the next run of a log of which `left` bytes remain. `None` if the run does not fit a
    /// member of `blocks` blocks and a file of `slots` slots.
    fn read(
        log: &mut impl Read,
        left: u64,
        (blocks, slots): (u64, u64),
    ) -> io::Result<Option<Self>> {
        let mut head = [0; RUN_BYTES];
        log.read_exact(&mut head)?;
        let block = u64::from_le_bytes(head[..8].try_into().expect("eight"));
        let count = u32::from_le_bytes(head[8..12].try_into().expect("four"));
        let slot = u32::from_le_bytes(head[12..].try_into().expect("four"));
        let end = block.checked_add(u64::from(count));
        let is_in_file = slot != 0 && u64::from(slot) + u64::from(count) <= slots;
        let has_checksums = RUN_BYTES as u64 + u64::from(count) * 4 <= left;
        let has_slots = slot == NO_SLOT || (is_in_file && has_checksums);
        if count == 0 || end.is_none_or(|end| end > blocks) || !has_slots {
            return Ok(None);
        }
        let mut checksums = Vec::new();
        if slot != NO_SLOT {
            let mut bytes = vec![0; count as usize * 4];
            log.read_exact(&mut bytes)?;
            let (words, _) = bytes.as_chunks::<4>();
            checksums.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
        }
        Ok(Some(Self { block, count, slot, checksums }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    size_bytes: u64,
    mark: u64,
    id: OverlayId,
    /// Number of times that the map was saved.
    sequence: u64,
    log_bytes: u64,
    log_checksum: u32,
}

impl Head {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [self.size_bytes, self.mark] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.id);
        for number in [self.sequence, self.log_bytes] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.log_checksum.to_le_bytes());
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes.resize(HEAD_BYTES, 0);
        bytes
    }

    /// `None` if `bytes` are no head, or differ from the written head.
    fn of(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let head = Self {
            size_bytes: number(16),
            mark: number(24),
            id: bytes[32..48].try_into().expect("sixteen"),
            sequence: number(48),
            log_bytes: number(56),
            log_checksum: u32::from_le_bytes(bytes[64..68].try_into().expect("four")),
        };
        (head.to_bytes() == bytes).then_some(head)
    }
}

fn data_head(id: OverlayId) -> Vec<u8> {
    let mut bytes = [&DATA_MAGIC[..], &id].concat();
    bytes.resize(small(BLOCK_BYTES), 0);
    bytes
}

/// The free slots, and the changes that are not yet on the disk.
#[derive(Debug)]
struct Writer {
    head: Head,
    /// Slots from here on were never written.
    next: u32,
    free: Vec<u32>,
    /// Slots taken since the log was saved, so that the log on the disk names none of them.
    fresh: HashSet<u32>,
    /// Slots that only the log on the disk still names.
    freed: Vec<u32>,
    unsaved: Vec<Run>,
    /// The error of a failed flush: earlier writes may be lost.
    failed: Option<MemberError>,
}

impl Writer {
    /// Takes `wanted` consecutive slots, or fewer.
    fn take(&mut self, wanted: u32) -> Result<Range<u32>, MemberError> {
        if let Some(slot) = self.free.pop() {
            self.fresh.insert(slot);
            return Ok(slot..slot + 1);
        }
        let end = self.next.checked_add(wanted).filter(|end| *end < NO_SLOT);
        let end = end.ok_or(MemberError::OutOfSpace { errno: Errno::NOSPC.raw_os_error() })?;
        let slots = self.next..end;
        self.next = end;
        self.fresh.extend(slots.clone());
        Ok(slots)
    }

    /// Frees the slots of blocks that moved or became zeroes.
    fn give_back(&mut self, slots: &[u32]) {
        for slot in slots {
            match self.fresh.remove(slot) {
                true => self.free.push(*slot),
                false => self.freed.push(*slot),
            }
        }
    }
}

/// A member that reads as if all writes to it had reached the member below.
#[derive(Debug)]
pub struct Overlay<M> {
    inner: M,
    data: File,
    file: File,
    map: RwLock<Map>,
    /// The lock is held while blocks are written or saved.
    writer: Mutex<Writer>,
}

fn system(path: &Path) -> impl Fn(io::Error) -> OverlayError {
    move |source| OverlayError::System { path: path.to_path_buf(), source }
}

fn damaged(path: &Path, why: &'static str) -> OverlayError {
    OverlayError::Damaged { path: path.to_path_buf(), why }
}

/// The paths of two files: the map, then the blocks.
#[must_use]
pub fn files(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{name}.map")), folder.join(format!("{name}.data")))
}

impl<M: Member> Overlay<M> {
    /// Makes an empty overlay of this name. `mark` identifies the member's content.
    ///
    /// # Errors
    /// The files cannot be made.
    pub fn make(
        inner: M,
        folder: &Path,
        name: &str,
        (mark, id): (u64, OverlayId),
    ) -> Result<Self, OverlayError> {
        let (map_path, data_path) = files(folder, name);
        let create = |path: &Path, bytes: &[u8]| {
            // Removes a file that was begun and never used. If the path is a link, only the link is
            // removed.
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(system(path)(error));
                }
                _ => {}
            }
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let file = options.open(path).map_err(system(path))?;
            file.write_all_at(bytes, 0).and_then(|()| file.sync_all()).map_err(system(path))
        };
        let head = Head {
            size_bytes: inner.size_bytes(),
            mark,
            id,
            sequence: 0,
            log_bytes: 0,
            log_checksum: 0,
        };
        create(&data_path, &data_head(id))?;
        let new = map_path.with_extension("new");
        create(&new, &head.to_bytes())?;
        replace(&new, &map_path)?;
        Self::open(inner, folder, name, mark)
    }

    /// Opens the overlay of this name. `mark` identifies the member's content.
    ///
    /// # Errors
    /// The overlay is over other content, damaged or in use, or the files cannot be opened.
    pub fn open(inner: M, folder: &Path, name: &str, mark: u64) -> Result<Self, OverlayError> {
        let (map_path, data_path) = files(folder, name);
        let (file, data) = (open_file(&map_path)?, open_file(&data_path)?);
        if !lock_exclusively(&file).map_err(|error| system(&map_path)(error.into()))? {
            return Err(OverlayError::Busy { path: map_path });
        }
        // Another process may have replaced the log between the open and the lock.
        let is_it =
            |there: std::fs::Metadata| file.metadata().is_ok_and(|ours| ours.ino() == there.ino());
        if !std::fs::symlink_metadata(&map_path).is_ok_and(is_it) {
            return Err(OverlayError::Busy { path: map_path });
        }
        let head = read_head(&file, &map_path)?;
        if (head.size_bytes, head.mark) != (inner.size_bytes(), mark) {
            return Err(OverlayError::OfOther { path: map_path });
        }
        let length = data.metadata().map_err(system(&data_path))?.len();
        let mut found = vec![0; small(BLOCK_BYTES)];
        let is_read = data.read_exact_at(&mut found, 0).is_ok();
        if !is_read || found != data_head(head.id) {
            return Err(damaged(&data_path, "is not the file of blocks that belongs to this map"));
        }
        let map = read_map(&file, &head, length.div_ceil(BLOCK_BYTES))
            .map_err(system(&map_path))?
            .ok_or_else(|| {
                damaged(&map_path, "was changed: it was cut or edited, or its blocks are gone")
            })?;
        let next = map.stored_blocks().map(|(_, stored)| stored.slot + 1).max().unwrap_or(1);
        let mut is_free = vec![true; next as usize];
        map.stored_blocks().for_each(|(_, stored)| is_free[stored.slot as usize] = false);
        let free = (1..next).filter(|slot| is_free[*slot as usize]).collect();
        let writer = Writer {
            head,
            next,
            free,
            fresh: HashSet::new(),
            freed: Vec::new(),
            unsaved: Vec::new(),
            failed: None,
        };
        let mut overlay =
            Self { inner, data, file, map: RwLock::new(map), writer: Mutex::new(writer) };
        overlay.shorten(&map_path)?;
        Ok(overlay)
    }

    /// Rewrites a log that is much longer than necessary.
    fn shorten(&mut self, map_path: &Path) -> Result<(), OverlayError> {
        let head = self.writer().head;
        // The minimum size of the log: a checksum for each block.
        let least = self.map().stored_blocks().count() as u64 * 4;
        if head.log_bytes <= 2 * least + LOG_WASTE_BYTES {
            return Ok(());
        }
        let mut log = Vec::new();
        self.map().runs().iter().for_each(|run| run.put(&mut log));
        let needed = log.len() as u64;
        if head.log_bytes <= 2 * needed + LOG_WASTE_BYTES {
            return Ok(());
        }
        let head = Head {
            sequence: head.sequence + 1,
            log_bytes: needed,
            log_checksum: crc32c(&log),
            ..head
        };
        let new = map_path.with_extension("new");
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .map_err(system(&new))?;
        if !lock_exclusively(&file).map_err(|error| system(&new)(error.into()))? {
            return Err(OverlayError::Busy { path: new });
        }
        let write = || {
            file.write_all_at(&log, LOG_START)?;
            file.write_all_at(&head.to_bytes(), 0)?;
            file.sync_all()
        };
        write().map_err(system(&new))?;
        replace(&new, map_path)?;
        self.file = file;
        self.writer().head = head;
        Ok(())
    }

    /// The identity that both files carry, and the number of times that the map was saved.
    #[must_use]
    pub fn identity_and_sequence(&self) -> (OverlayId, u64) {
        let head = self.writer().head;
        (head.id, head.sequence)
    }

    /// Number of bytes that the overlay holds instead of the member.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let ranges = self.ranges();
        ranges.into_iter().map(|range| range.end - range.start).sum()
    }

    /// Ranges that are in the overlay, in order; their bytes may equal the member's.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let map = self.map();
        let mut blocks = map.zeroes.clone();
        map.runs().iter().for_each(|run| blocks.insert(run.blocks()));
        blocks.iter().map(|run| self.bytes_of_blocks(run)).collect()
    }

    /// Reads every block. Returns the ranges that changed since they were written, in bytes of the
    /// member and in order.
    ///
    /// # Errors
    /// The file cannot be read at all.
    pub fn changed(&self) -> io::Result<Vec<Range<u64>>> {
        let mut changed = RangeSet::new();
        let map = self.map();
        let mut buffer = vec![0; small(BLOCK_BYTES)];
        for (block, stored) in map.stored_blocks() {
            let bytes = &mut buffer[..self.length_of(block)];
            match self.data.read_exact_at(bytes, slot_start(stored.slot)) {
                Ok(()) if crc32c(bytes) == stored.checksum => {}
                Err(error)
                    if error.kind() != io::ErrorKind::UnexpectedEof
                        && error.raw_os_error() != Some(Errno::IO.raw_os_error()) =>
                {
                    return Err(error);
                }
                _ => changed.insert(block..block + 1),
            }
        }
        Ok(changed.iter().map(|run| self.bytes_of_blocks(run)).collect())
    }

    /// The member below.
    pub fn below(&self) -> &M {
        &self.inner
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of these blocks; the member's last block may be short.
    fn bytes_of_blocks(&self, blocks: &Range<u64>) -> Range<u64> {
        blocks.start * BLOCK_BYTES..(blocks.end * BLOCK_BYTES).min(self.inner.size_bytes())
    }

    fn length_of(&self, block: u64) -> usize {
        let bytes = self.bytes_of_blocks(&(block..block + 1));
        small(bytes.end - bytes.start)
    }

    /// Reads blocks in consecutive slots, and compares each with its checksum.
    fn read_slots(&self, blocks: Range<u64>, first: u32) -> Result<Vec<u8>, MemberError> {
        let bytes = self.bytes_of_blocks(&blocks);
        let mut buffer = vec![0; small(bytes.end - bytes.start)];
        let read = self.data.read_exact_at(&mut buffer, slot_start(first));
        for (block, bytes) in blocks.zip(buffer.chunks_mut(small(BLOCK_BYTES))) {
            // If a block does not match its checksum, look up its slot again. Another thread may
            // have written the block meanwhile, which gives it a new slot and frees the old one for
            // reuse.
            let mut tried = None;
            loop {
                let location = self.map().location(block);
                let BlockLocation::Slot(stored) = location else {
                    bytes.fill(0);
                    break;
                };
                if tried.is_none() && read.is_ok() && crc32c(bytes) == stored.checksum {
                    break;
                }
                if tried == Some(stored) {
                    return Err(MemberError::Media { errno: Errno::BADMSG.raw_os_error() });
                }
                self.data.read_exact_at(bytes, slot_start(stored.slot)).map_err(changed_below)?;
                if crc32c(bytes) == stored.checksum {
                    break;
                }
                tried = Some(stored);
            }
        }
        Ok(buffer)
    }

    /// Writes whole blocks into free slots, and then puts them into the map in memory.
    fn put_blocks(
        &self,
        writer: &mut Writer,
        first: u64,
        buffer: &[u8],
    ) -> Result<(), MemberError> {
        let (mut block, mut rest) = (first, buffer);
        while !rest.is_empty() {
            let wanted = rest.len().div_ceil(small(BLOCK_BYTES));
            let slots = writer.take(u32::try_from(wanted).unwrap_or(u32::MAX))?;
            let count = slots.end - slots.start;
            let (bytes, others) =
                rest.split_at(rest.len().min(count as usize * small(BLOCK_BYTES)));
            if let Err(error) = self.data.write_all_at(bytes, slot_start(slots.start)) {
                writer.give_back(&slots.collect::<Vec<_>>());
                return Err(error.into());
            }
            let checksums = bytes.chunks(small(BLOCK_BYTES)).map(crc32c).collect();
            let run = Run { block, count, slot: slots.start, checksums };
            self.put_run(writer, run)?;
            block += u64::from(count);
            rest = others;
        }
        Ok(())
    }

    /// Puts a run into the map in memory. If too many runs are missing from the log, saves them.
    fn put_run(&self, writer: &mut Writer, run: Run) -> Result<(), MemberError> {
        let mut freed = Vec::new();
        self.map_mut().set(&run, &mut freed);
        writer.give_back(&freed);
        writer.unsaved.push(run);
        if writer.unsaved.len() < UNSAVED_RUNS_MAX { Ok(()) } else { self.flush_with(writer) }
    }

    /// Writes bytes within one block, and fills the rest of the block from its present content.
    fn put_in_part(
        &self,
        writer: &mut Writer,
        buffer: &[u8],
        offset_bytes: u64,
    ) -> Result<(), MemberError> {
        let block = offset_bytes / BLOCK_BYTES;
        let mut whole = vec![0; self.length_of(block)];
        self.read_at(&mut whole, block * BLOCK_BYTES)?;
        let at = small(offset_bytes % BLOCK_BYTES);
        whole[at..at + buffer.len()].copy_from_slice(buffer);
        self.put_blocks(writer, block, &whole)
    }

    /// Cuts a range into partial blocks and runs of whole blocks.
    fn parts(&self, offset_bytes: u64, length_bytes: u64) -> Vec<(Range<u64>, bool)> {
        let (end, size) = (offset_bytes + length_bytes, self.inner.size_bytes());
        let mut parts = Vec::new();
        let mut at = offset_bytes;
        while at < end {
            let block = at / BLOCK_BYTES;
            let block = self.bytes_of_blocks(&(block..block + 1));
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

    /// Makes the blocks durable, then the log that names them, then the head that covers the log.
    fn save(&self, writer: &mut Writer) -> Result<(), MemberError> {
        if writer.unsaved.is_empty() {
            return Ok(());
        }
        self.data.sync_data()?;
        let mut log = Vec::new();
        writer.unsaved.iter().for_each(|run| run.put(&mut log));
        let head = Head {
            sequence: writer.head.sequence + 1,
            log_bytes: writer.head.log_bytes + log.len() as u64,
            log_checksum: crc32c_append(writer.head.log_checksum, &log),
            ..writer.head
        };
        self.file.write_all_at(&log, LOG_START + writer.head.log_bytes)?;
        self.file.sync_data()?;
        self.file.write_all_at(&head.to_bytes(), 0)?;
        self.file.sync_data()?;
        writer.head = head;
        writer.unsaved.clear();
        writer.fresh.clear();
        let freed = std::mem::take(&mut writer.freed);
        writer.free.extend(freed);
        Ok(())
    }

    fn flush_with(&self, writer: &mut Writer) -> Result<(), MemberError> {
        if writer.failed.is_some() {
            return Err(MemberError::FlushFailedBefore { errno: None });
        }
        self.save(writer).inspect_err(|error| writer.failed = Some(*error))
    }
}

/// If the file of blocks became shorter, written bytes are lost.
fn changed_below(error: io::Error) -> MemberError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => MemberError::Media { errno: Errno::BADMSG.raw_os_error() },
        _ => error.into(),
    }
}

fn slot_start(slot: u32) -> u64 {
    u64::from(slot) * BLOCK_BYTES
}

fn small(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it is in memory")
}

/// Replaces a file by another, durably.
fn replace(new: &Path, path: &Path) -> Result<(), OverlayError> {
    std::fs::rename(new, path).map_err(system(path))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(system(folder))
}

/// Opens one of the two files. Refuses a link, which may lead to another user's file.
fn open_file(path: &Path) -> Result<File, OverlayError> {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.read(true).write(true).custom_flags(i32::try_from(flags.bits()).expect("flags fit"));
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged(path, "is gone"));
        }
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(damaged(path, "is a link, where a file of its own was made"));
        }
        opened => opened.map_err(system(path))?,
    };
    let about = file.metadata().map_err(system(path))?;
    if !about.is_file() || about.nlink() != 1 {
        return Err(damaged(path, "is not a file with one name, as it was made"));
    }
    Ok(file)
}

fn read_head(file: &File, path: &Path) -> Result<Head, OverlayError> {
    let mut bytes = vec![0; HEAD_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(damaged(path, "was cut"));
        }
        read => read.map_err(system(path))?,
    }
    if bytes.starts_with(b"braid-overlay 1\n") {
        return Err(damaged(
            path,
            "was made by an older braid, which has to commit it or throw it away",
        ));
    }
    Head::of(&bytes).ok_or_else(|| damaged(path, "does not begin like an overlay"))
}

/// The map that the log describes; `None` if the log does not match the head, or is invalid.
fn read_map(file: &File, head: &Head, slots: u64) -> io::Result<Option<Map>> {
    let blocks = head.size_bytes.div_ceil(BLOCK_BYTES);
    let end = LOG_START.checked_add(head.log_bytes);
    if end.is_none_or(|end| {
        head.log_bytes > 0 && end > file.metadata().map_or(0, |about| about.len())
    }) {
        return Ok(None);
    }
    let mut log = ChecksumReader {
        inner: BufReader::new(LogReader { file, at: LOG_START, left: head.log_bytes }),
        sum: 0,
    };
    let mut map = Map::default();
    let mut left = head.log_bytes;
    while left > 0 {
        let run = match Run::read(&mut log, left, (blocks, slots)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            run => run?,
        };
        let Some(run) = run else { return Ok(None) };
        let length = (RUN_BYTES + run.checksums.len() * 4) as u64;
        let Some(rest) = left.checked_sub(length) else { return Ok(None) };
        left = rest;
        map.set(&run, &mut Vec::new());
    }
    Ok((log.sum == head.log_checksum).then_some(map))
}

/// A reader of the part of a file that holds the log.
struct LogReader<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for LogReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..length], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// A reader that computes a checksum.
struct ChecksumReader<R> {
    inner: R,
    sum: u32,
}

impl<R: Read> Read for ChecksumReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sum = crc32c_append(self.sum, &buffer[..read]);
        Ok(read)
    }
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
            let block = at / BLOCK_BYTES;
            let (location, next) = self.map().run_at(block, end.div_ceil(BLOCK_BYTES));
            let until = (next * BLOCK_BYTES).min(end);
            let part = &mut buffer[small(at - offset_bytes)..small(until - offset_bytes)];
            match location {
                BlockLocation::Member => self.inner.read_at(part, at)?,
                BlockLocation::Zeroes => part.fill(0),
                BlockLocation::Slot(stored) => {
                    let bytes = self.read_slots(block..next, stored.slot)?;
                    let from = small(at - block * BLOCK_BYTES);
                    part.copy_from_slice(&bytes[from..from + part.len()]);
                }
            }
            at = until;
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        check_bounds(offset_bytes, buffer.len() as u64, self.size_bytes())?;
        let mut writer = self.writer();
        for (range, is_whole) in self.parts(offset_bytes, buffer.len() as u64) {
            let part = &buffer[small(range.start - offset_bytes)..small(range.end - offset_bytes)];
            match is_whole {
                true => self.put_blocks(&mut writer, range.start / BLOCK_BYTES, part)?,
                false => self.put_in_part(&mut writer, part, range.start)?,
            }
        }
        if durable { self.flush_with(&mut writer) } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.flush_with(&mut self.writer())
    }

    fn zero(&self, offset_bytes: u64, length_bytes: u64, _: bool) -> Result<(), MemberError> {
        check_bounds(offset_bytes, length_bytes, self.size_bytes())?;
        let mut writer = self.writer();
        for (range, is_whole) in self.parts(offset_bytes, length_bytes) {
            if is_whole {
                for run in Run::zeroes(range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)) {
                    self.put_run(&mut writer, run)?;
                }
            } else {
                let zeroes = vec![0; small(range.end - range.start)];
                self.put_in_part(&mut writer, &zeroes, range.start)?;
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
