//! Acknowledged writes that the members lack, in a tmpfs file that outlives the process.
//!
//! The engine decides which copies to keep ([`CacheRecord`]), and when; this file stores them. A
//! killed process leaves the file. The next process that serves the array reads it, and writes its
//! content to the array before it lets any client in. From then on it keeps a file of its own.
//!
//! ```text
//!   0          4096                         for each shard
//!   │ header   │ records, 64 bytes a block │ blocks of 4 KiB │ records … │ blocks … │
//!   │ stamps   │
//! ```
//!
//! - The *header* names the array and the layout. Two *stamps*, written in turn, name the
//!   superblocks that this process wrote last ([`CacheStamp`]). Each stamp has a number and a
//!   checksum, and the newest whole stamp counts.
//! - A *record* names sectors of the array, at most eight, whose bytes lie in the block of the same
//!   number. Its first word is the order of its write, and is stored last; zero means no record.
//!   After a kill between two stores, the record is whole or absent.
//!
//! The file belongs to this machine, this boot and this version: numbers have the processor's byte
//! order, and a file of another version is refused by name. A power cut loses it, with everything
//! else that was not flushed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use braid_engine::CacheStamp;
use braid_engine::buffer::Buffer;
use braid_engine::computation::Span;
use braid_engine::effect::{
    CACHED_BLOCK_SECTORS, CacheRecord, CachedContent, CachedRun, CachedWriteId,
};
use braid_engine::request::ShardIndex;
use braid_geometry::{LogicalSector, SECTOR_BYTES};
use braid_ondisk::Timestamp;
use braid_ring::FileMemory;
use smallvec::SmallVec;

use crate::arena::ShardMemory;
use crate::sync::{Mutex, MutexGuard};

const MAGIC: [u8; 8] = *b"braidCF1";
const HEADER_BYTES: usize = 4096;
/// Offset of the first stamp, and the distance to the second.
const STAMPS: (usize, usize) = (512, 256);
const STAMP_BYTES: usize = 72;
const RECORD_BYTES: usize = 64;
const BLOCK_BYTES: usize = 4096;
/// The number of a shard's blocks is a multiple of this, so that its records fill whole pages.
const BLOCKS_UNIT: u32 = 64;
/// Blocks of a stripe unit of 64 KiB: most writes need no more.
const UNIT_BLOCKS: usize = 16;
/// Maximum for shards and for blocks: no file of braid has more of either.
const SHARDS_MAX: u32 = 1 << 12;
const BLOCKS_MAX: u32 = 1 << 24;

/// The kind of a record whose content is the bytes in its block.
const BYTES: u32 = 1;
const ZEROES: u32 = 2;
const ZEROES_PUNCHED: u32 = 3;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum CacheFileError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not braid's, or of another version of braid.
    #[error("it is no file of answered writes of this version")]
    Foreign,
    /// The file belongs to another array.
    #[error("it is of another array")]
    OtherArray,
    /// The file is shorter than its header says, or a record is invalid.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

/// The cache file of one running array.
#[derive(Debug)]
pub struct CacheFile {
    file: File,
    stamped: Mutex<StampState>,
    shards: Vec<Mutex<ShardFile>>,
    blocks: u32,
}

/// The files in which updates of superblocks are stamped, and the last stamp.
#[derive(Debug)]
struct StampState {
    stamp: CacheStamp,
    number: u64,
    /// The file of the previous process, until all of its content is on the members.
    found: Option<File>,
}

#[derive(Debug)]
pub(crate) struct ShardFile {
    memory: FileMemory,
    blocks: u32,
    free: Vec<u32>,
    /// Numbers of the blocks of each write, indexed by the write's name.
    of_writes: Vec<SmallVec<[u32; UNIT_BLOCKS]>>,
}

impl CacheFile {
    /// Makes a file of an array with this many shards, with room for `bytes` of acknowledged
    /// writes. Memory is not taken before [`CacheFile::reserve`].
    ///
    /// # Errors
    /// The file cannot be extended, written, or mapped.
    pub fn create(file: File, uuid: [u8; 16], shards: u16, bytes: u64) -> io::Result<Self> {
        let blocks = bytes / BLOCK_BYTES as u64 / u64::from(shards);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).clamp(BLOCKS_UNIT, BLOCKS_MAX);
        let blocks = blocks / BLOCKS_UNIT * BLOCKS_UNIT;
        let shard_bytes = shard_bytes(blocks);
        file.set_len(0)?;
        file.set_len(HEADER_BYTES as u64 + shard_bytes as u64 * u64::from(shards))?;
        let mut header = Vec::with_capacity(40);
        header.extend(MAGIC);
        header.extend(uuid);
        header.extend(u32::from(shards).to_ne_bytes());
        header.extend(blocks.to_ne_bytes());
        header.extend(crc32c::crc32c(&header).to_ne_bytes());
        file.write_all_at(&header, 0)?;
        let shard = |index: u16| {
            let offset = HEADER_BYTES as u64 + shard_bytes as u64 * u64::from(index);
            let memory = FileMemory::of(&file, offset, shard_bytes)?;
            let free = (0..blocks).rev().collect();
            Ok(Mutex::new(ShardFile { memory, blocks, free, of_writes: Vec::new() }))
        };
        let shards = (0..shards).map(shard).collect::<io::Result<_>>()?;
        let stamped = StampState { stamp: CacheStamp::default(), number: 0, found: None };
        Ok(Self { file, stamped: Mutex::new(stamped), shards, blocks })
    }

    /// Reserves the file's memory: without reserved memory a store to the file could kill the
    /// process.
    ///
    /// # Errors
    /// Memory is short, or the file system cannot reserve it.
    pub fn reserve(&self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let flags = rustix::fs::FallocateFlags::empty();
        Ok(rustix::fs::fallocate(&self.file, flags, 0, length)?)
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Whether the members have all acknowledged writes, so that the file has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_empty = |shard: &Mutex<ShardFile>| {
            let shard = shard.lock().expect("storing does not panic");
            shard.free.len() == shard.blocks as usize
        };
        self.shards.iter().all(is_empty)
    }

    /// Stamps updates of superblocks also in `found`, the file of the previous process, until
    /// [`CacheFile::unfollow`]. Meanwhile the content of `found` is written to the array. So a
    /// third process accepts the previous file if this process is killed.
    pub fn follow(&self, found: File, stamp: &CacheStamp) {
        let mut stamped = self.stamped();
        stamped.stamp = stamp.clone();
        stamped.found = Some(found);
    }

    /// Ends the stamps in the previous process's file: all its content is on the members.
    pub fn unfollow(&self) {
        self.stamped().found = None;
    }

    /// Stamps an update of superblocks that is about to be written, with its events and time.
    pub(crate) fn note_update(&self, events: u64, time: Timestamp) -> io::Result<()> {
        let mut stamped = self.stamped();
        let before = stamped.stamp.clone();
        stamped.stamp.note(events, time);
        if before == stamped.stamp {
            return Ok(());
        }
        stamped.number += 1;
        let number = stamped.number;
        write_stamp(&self.file, number, &stamped.stamp)?;
        stamped
            .found
            .iter()
            .try_for_each(|found| write_stamp(found, u64::MAX / 2 + number, &stamped.stamp))
    }

    fn stamped(&self) -> MutexGuard<'_, StampState> {
        self.stamped.lock().expect("noting does not panic")
    }

    /// A shard's part of the file, for the owner of the shard.
    pub(crate) fn part_of(&self, shard: ShardIndex) -> MutexGuard<'_, ShardFile> {
        self.shards[usize::from(shard.0)].lock().expect("storing does not panic")
    }
}

impl ShardFile {
    /// Carries out the shard's orders on its copies of acknowledged writes.
    pub(crate) fn carry_out(&mut self, record: CacheRecord, memory: &ShardMemory) {
        match record {
            CacheRecord::Put(run) => self.put(&run, memory),
            CacheRecord::Erase(id) => self.erase(id),
        }
    }

    fn put(&mut self, run: &CachedRun, memory: &ShardMemory) {
        let name = run.id.0 as usize;
        if self.of_writes.len() <= name {
            self.of_writes.resize_with(name + 1, SmallVec::new);
        }
        let Self { memory: file, free, of_writes, blocks: count } = self;
        let of_write = &mut of_writes[name];
        let first = of_write.len();
        of_write.extend((0..run.blocks()).map(|_| free.pop().expect("the engine counts blocks")));
        let blocks = &of_write[first..];
        let (kind, step) = match run.content {
            CachedContent::Payload { request, offset_sectors } => {
                let buffer = Buffer::Payload { request, offset_sectors };
                let span = Span { buffer, length_bytes: sectors_bytes(run.sectors) };
                let records = *count as usize * RECORD_BYTES;
                memory.read(span, |bytes| {
                    for (block, bytes) in blocks.iter().zip(bytes.chunks(BLOCK_BYTES)) {
                        file.store(records + *block as usize * BLOCK_BYTES, bytes);
                    }
                });
                (BYTES, CACHED_BLOCK_SECTORS)
            }
            CachedContent::Zeroes { may_punch: false } => (ZEROES, run.sectors),
            CachedContent::Zeroes { may_punch: true } => (ZEROES_PUNCHED, run.sectors),
        };
        for (block, done) in blocks.iter().zip((0..run.sectors).step_by(step as usize)) {
            let sectors = step.min(run.sectors - done);
            let start = run.start.0 + u64::from(done);
            record(file, *block, (run.order, start), (sectors, kind));
        }
    }

    fn erase(&mut self, CachedWriteId(name): CachedWriteId) {
        let Self { memory: file, free, of_writes, .. } = self;
        for block in of_writes[name as usize].drain(..) {
            file.publish(block as usize * RECORD_BYTES, 0);
            free.push(block);
        }
    }
}

/// Writes the record of a block. The block's bytes must be stored already.
fn record(
    file: &mut FileMemory,
    block: u32,
    (order, start): (u64, u64),
    (sectors, kind): (u32, u32),
) {
    let place = block as usize * RECORD_BYTES;
    file.store(place + 8, &record_fields(start, sectors, kind));
    file.publish(place, order);
}

/// The fields of a record after the order: the sectors, the kind of content, and a checksum of
/// both.
fn record_fields(start: u64, sectors: u32, kind: u32) -> [u8; 20] {
    let mut fields = [0; 20];
    fields[..8].copy_from_slice(&start.to_ne_bytes());
    fields[8..12].copy_from_slice(&sectors.to_ne_bytes());
    fields[12..16].copy_from_slice(&kind.to_ne_bytes());
    let sum = crc32c::crc32c(&fields[..16]);
    fields[16..].copy_from_slice(&sum.to_ne_bytes());
    fields
}

fn sectors_bytes(sectors: u32) -> usize {
    usize::try_from(u64::from(sectors) * SECTOR_BYTES).expect("addresses have 64 bits here")
}

fn shard_bytes(blocks: u32) -> usize {
    blocks as usize * (RECORD_BYTES + BLOCK_BYTES)
}

fn write_stamp(file: &File, number: u64, stamp: &CacheStamp) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(STAMP_BYTES);
    bytes.extend(number.to_ne_bytes());
    for update in stamp.updates {
        let (events, time) = update.unwrap_or((u64::MAX, Timestamp::default()));
        for field in [events, time.seconds, u64::from(time.microseconds)] {
            bytes.extend(field.to_ne_bytes());
        }
    }
    bytes.extend(u64::from(crc32c::crc32c(&bytes)).to_ne_bytes());
    let place = STAMPS.0 + (number % 2) as usize * STAMPS.1;
    file.write_all_at(&bytes, place as u64)
}

/// Sectors of an acknowledged write that an earlier process left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundWrite {
    /// First sector on the array.
    pub start: LogicalSector,
    /// Number of sectors.
    pub sectors: u32,
    /// The content to write.
    pub content: FoundContent,
}

/// The content of a found write: bytes or zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundContent {
    /// Bytes to write.
    Bytes(Vec<u8>),
    /// Zeroes. True allows the members to deallocate the space.
    Zeroes(bool),
}

/// The acknowledged writes that an earlier process left in its cache file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundWrites {
    /// The superblocks that the earlier process wrote last.
    pub stamp: CacheStamp,
    /// The writes, in the order in which the server applies them to the array.
    pub writes: Vec<FoundWrite>,
}

impl FoundWrites {
    /// Reads a file of the array with this UUID. An empty file holds nothing.
    ///
    /// # Errors
    /// The file cannot be read, belongs to another array or version, or is damaged.
    pub fn read(file: &File, uuid: [u8; 16]) -> Result<Self, CacheFileError> {
        let length = file.metadata()?.len();
        if length == 0 {
            return Ok(Self::default());
        }
        let header =
            read(file, 0, HEADER_BYTES.min(usize::try_from(length).unwrap_or(usize::MAX)))?;
        if header.len() < HEADER_BYTES || header[..8] != MAGIC {
            return Err(CacheFileError::Foreign);
        }
        if number32(&header, 32) != crc32c::crc32c(&header[..32]) {
            return Err(CacheFileError::Damaged("its header"));
        }
        if header[8..24] != uuid {
            return Err(CacheFileError::OtherArray);
        }
        let (shards, blocks) = (number32(&header, 24), number32(&header, 28));
        if shards > SHARDS_MAX || blocks > BLOCKS_MAX {
            return Err(CacheFileError::Damaged("its header"));
        }
        let wanted = HEADER_BYTES as u64 + shard_bytes(blocks) as u64 * u64::from(shards);
        if length < wanted {
            return Err(CacheFileError::Damaged("it is shorter than it says"));
        }
        let stamps = [0, 1].map(|index| stamp(&header, STAMPS.0 + index * STAMPS.1));
        let newest = stamps.into_iter().flatten().max_by_key(|(number, _)| *number);
        let mut writes = Vec::new();
        for shard in 0..shards {
            let base = HEADER_BYTES as u64 + shard_bytes(blocks) as u64 * u64::from(shard);
            writes.extend(of_shard(file, base, blocks)?);
        }
        let stamp = newest.map(|(_, stamp)| stamp);
        if stamp.is_none() && !writes.is_empty() {
            return Err(CacheFileError::Damaged("its stamps"));
        }
        Ok(Self { stamp: stamp.unwrap_or_default(), writes })
    }
}

fn of_shard(file: &File, base: u64, blocks: u32) -> Result<Vec<FoundWrite>, CacheFileError> {
    let records = read(file, base, blocks as usize * RECORD_BYTES)?;
    let mut found = Vec::new();
    for (block, record) in records.chunks_exact(RECORD_BYTES).enumerate() {
        let order = number64(record, 0);
        if order == 0 {
            continue;
        }
        let (start, sectors, kind) =
            (number64(record, 8), number32(record, 16), number32(record, 20));
        let is_whole = record[8..28] == record_fields(start, sectors, kind)
            && sectors > 0
            && (kind != BYTES || sectors <= CACHED_BLOCK_SECTORS);
        if !is_whole {
            return Err(CacheFileError::Damaged("a record"));
        }
        let content = match kind {
            BYTES => {
                let place = base + records.len() as u64 + (block * BLOCK_BYTES) as u64;
                FoundContent::Bytes(read(file, place, sectors_bytes(sectors))?)
            }
            ZEROES => FoundContent::Zeroes(false),
            ZEROES_PUNCHED => FoundContent::Zeroes(true),
            _ => return Err(CacheFileError::Damaged("a record")),
        };
        found.push((order, FoundWrite { start: LogicalSector(start), sectors, content }));
    }
    found.sort_by_key(|(order, _)| *order);
    Ok(found.into_iter().map(|(_, write)| write).collect())
}

/// Reads the stamp at `place` and its number; `None` if the stamp is not whole.
fn stamp(header: &[u8], place: usize) -> Option<(u64, CacheStamp)> {
    let bytes = &header[place..place + STAMP_BYTES];
    let is_whole = number64(bytes, 56) == u64::from(crc32c::crc32c(&bytes[..56]));
    let update = |from: usize| {
        let events = number64(bytes, from);
        let microseconds = u32::try_from(number64(bytes, from + 16)).ok()?;
        let time = Timestamp { seconds: number64(bytes, from + 8), microseconds };
        (events != u64::MAX).then_some((events, time))
    };
    let updates = [update(8), update(32)];
    is_whole.then(|| (number64(bytes, 0), CacheStamp { updates }))
}

fn read(file: &File, offset_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length_bytes];
    file.read_exact_at(&mut bytes, offset_bytes)?;
    Ok(bytes)
}

fn number64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

fn number32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn at(seconds: u64) -> Timestamp {
        Timestamp { seconds, microseconds: 5 }
    }

    /// A file of two shards with zeroes recorded under two write names, and a handle to read it.
    fn file() -> (CacheFile, File) {
        let file = tempfile::tempfile().expect("a file");
        let reader = file.try_clone().expect("the same");
        let made = CacheFile::create(file, UUID, 2, 1 << 20).expect("a file of answered writes");
        made.note_update(4, at(10)).expect("a stamp");
        for (order, start) in [(9, 80), (3, 40)] {
            let mut shard = made.shards[1].lock().expect("alone");
            let block = shard.free.pop().expect("room");
            shard.of_writes.push(SmallVec::from_slice(&[block]));
            record(&mut shard.memory, block, (order, start), (16, ZEROES));
        }
        (made, reader)
    }

    #[test]
    fn what_was_put_is_found_in_its_order_until_it_is_erased() {
        let (made, reader) = file();
        let found = FoundWrites::read(&reader, UUID).expect("whole");
        let starts: Vec<u64> = found.writes.iter().map(|write| write.start.0).collect();
        assert_eq!(starts, [40, 80]);
        assert!(found.stamp.is_of(4, at(10)) && !found.stamp.is_of(4, at(11)));
        made.shards[1].lock().expect("alone").erase(CachedWriteId(0));
        let found = FoundWrites::read(&reader, UUID).expect("whole");
        assert_eq!(found.writes.len(), 1);
        assert!(!made.is_empty());
        made.shards[1].lock().expect("alone").erase(CachedWriteId(1));
        assert!(
            made.is_empty() && FoundWrites::read(&reader, UUID).expect("whole").writes.is_empty()
        );
        reader.set_len(0).expect("shorter");
        assert_eq!(FoundWrites::read(&reader, UUID).expect("nothing"), FoundWrites::default());
    }

    #[test]
    fn a_file_that_is_followed_is_stamped_as_well() {
        let ((before, reader), (made, own)) = (file(), file());
        let stamp = FoundWrites::read(&reader, UUID).expect("whole").stamp;
        made.follow(reader.try_clone().expect("the same"), &stamp);
        made.note_update(5, at(12)).expect("a stamp");
        made.unfollow();
        made.note_update(6, at(13)).expect("a stamp");
        let of = |file| FoundWrites::read(file, UUID).expect("whole").stamp;
        assert!(of(&reader).is_of(5, at(12)) && !of(&reader).is_of(6, at(13)));
        assert!(of(&own).is_of(6, at(13)) && !of(&own).is_of(4, at(10)));
        drop(before);
    }

    #[test]
    fn what_is_not_ours_or_not_whole_is_not_believed() {
        let (_, reader) = file();
        let read = |file: &File| FoundWrites::read(file, UUID).expect_err("not to be believed");
        assert!(matches!(FoundWrites::read(&reader, [8; 16]), Err(CacheFileError::OtherArray)));
        let record = HEADER_BYTES as u64 + shard_bytes(BLOCKS_UNIT * 2) as u64;
        for (place, byte) in [(30, 1), (record + 17, 3)] {
            let mut kept = [0];
            reader.read_exact_at(&mut kept, place).expect("a byte");
            reader.write_all_at(&[kept[0] ^ byte], place).expect("a byte");
            assert!(matches!(read(&reader), CacheFileError::Damaged(_)), "byte {place}");
            reader.write_all_at(&kept, place).expect("a byte");
        }
        for stamp in [STAMPS.0, STAMPS.0 + STAMPS.1] {
            reader.write_all_at(&[0xff; 8], stamp as u64).expect("a stamp");
        }
        assert!(matches!(read(&reader), CacheFileError::Damaged("its stamps")));
        reader.set_len(100_000).expect("shorter");
        assert!(matches!(read(&reader), CacheFileError::Damaged(_)));
        reader.write_all_at(b"braidCF2", 0).expect("another version");
        assert!(matches!(read(&reader), CacheFileError::Foreign));
    }
}
