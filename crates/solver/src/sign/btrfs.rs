//! btrfs on one device: superblocks and nodes of its trees, which have their addresses in them.
//!
//! A node's address is one of the file system. Where on the device that is, chunks say: those of the superblock, and those of the
//! tree of chunks, whose leaves are nodes like all others.

use super::Belongs;
use crate::bytes::{le16, le32, le64, uuid};

const SECTOR: u64 = 512;
/// Where the superblock and its copies stand.
pub(crate) const COPIES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// Bytes of a node's header, and of an item in a leaf.
const HEADER: usize = 0x65;
const ITEM: usize = 25;
/// Of a key.
const KEY: usize = 17;
/// The key's type of a chunk.
const CHUNK: u8 = 228;
/// The tree that chunks are in.
const CHUNK_TREE: u64 = 3;
/// `type` of a chunk: bits of what spans devices.
const SPANS: u64 = 0x8 | 0x10 | 0x40 | 0x80 | 0x100;
/// Most chunks of a file system that are kept.
const CHUNKS_MAX: usize = 1 << 16;

/// A superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Super {
    pub(crate) uuid: [u8; 16],
    /// Where it stands, in bytes.
    pub(crate) place: u64,
    bytes: u64,
    pub(crate) node_bytes: usize,
    /// The chunks that it names.
    pub(crate) chunks: Vec<Chunk>,
}

/// Where a run of addresses is on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    address: u64,
    bytes: u64,
    first: u64,
    other: Option<u64>,
}

impl Super {
    pub(crate) fn recognise(bytes: &[u8]) -> Option<Self> {
        if bytes.get(0x40..0x48)? != b"_BHRfS_M" {
            return None;
        }
        let checked = bytes.get(0x20..0x1000)?;
        let place = le64(bytes, 0x30)?;
        let node_bytes = usize::try_from(le32(bytes, 0x94)?).ok()?;
        let is_node = node_bytes.is_power_of_two() && (4096..=65536).contains(&node_bytes);
        if !COPIES.contains(&place) || !is_node || crc32c::crc32c(checked) != le32(bytes, 0)? {
            return None;
        }
        let size = usize::try_from(le32(bytes, 0xa0)?).ok().filter(|size| *size <= 2048)?;
        let mut rest = bytes.get(0x32b..0x32b + size)?;
        let mut chunks = Vec::new();
        while let Some((chunk, length)) =
            rest.get(KEY..).and_then(|item| Chunk::of(le64(rest, 9)?, item))
        {
            chunks.extend(chunk);
            rest = rest.get(KEY + length..).unwrap_or_default();
        }
        Some(Self {
            uuid: uuid(bytes, 0x20)?,
            place,
            bytes: le64(bytes, 0x70)?,
            node_bytes,
            chunks,
        })
    }

    pub(crate) fn size_sectors(&self) -> u64 {
        self.bytes / SECTOR
    }

    /// The address of the node that stands here; its checksum fits.
    pub(crate) fn node(&self, bytes: &[u8]) -> Option<u64> {
        let is_ours = uuid(bytes, 0x20)? == self.uuid && bytes.get(0x40..0x48)? != b"_BHRfS_M";
        let checked = bytes.get(0x20..self.node_bytes).filter(|_| is_ours)?;
        (crc32c::crc32c(checked) == le32(bytes, 0)?).then(|| le64(bytes, 0x30)).flatten()
    }

    /// The chunks that a leaf of their tree names.
    pub(crate) fn chunks_of(&self, bytes: &[u8]) -> Vec<Chunk> {
        let is_leaf = le64(bytes, 0x58) == Some(CHUNK_TREE) && bytes.get(0x64) == Some(&0);
        let count = le32(bytes, 0x60).filter(|_| is_leaf).unwrap_or(0);
        let items = bytes.get(HEADER..self.node_bytes).unwrap_or_default();
        let found = (0..count as usize).map_while(|at| items.get(at * ITEM..(at + 1) * ITEM));
        found
            .filter(|item| item.get(8) == Some(&CHUNK))
            .filter_map(|item| {
                let at = usize::try_from(le32(item, KEY)?).ok()?;
                Chunk::of(le64(item, 9)?, items.get(at..)?)?.0
            })
            .collect()
    }
}

impl Chunk {
    /// A chunk from its item, unless it spans devices, and how long the item is.
    fn of(address: u64, item: &[u8]) -> Option<(Option<Self>, usize)> {
        let stripes = usize::from(le16(item, 44)?);
        let length = 48 + 32 * stripes;
        let fits = (1..=64).contains(&stripes) && item.len() >= length;
        let (bytes, kind) = (le64(item, 0)?, le64(item, 24)?);
        fits.then_some(())?;
        let first = le64(item, 56)?;
        let other = if stripes == 2 { le64(item, 88) } else { None };
        let is_here = kind & SPANS == 0 && stripes <= 2;
        Some((is_here.then_some(Self { address, bytes, first, other }), length))
    }

    /// Where an address is, in sectors of the device.
    fn place(&self, address: u64) -> Option<Belongs> {
        let inside = address.checked_sub(self.address).filter(|inside| *inside < self.bytes)?;
        let on = |start: u64| start.checked_add(inside).map(|bytes| bytes / SECTOR);
        Some(Belongs { first: on(self.first)?, other: self.other.and_then(on) })
    }
}

/// All chunks of a file system.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunks(Vec<Chunk>);

impl Chunks {
    pub(crate) fn add(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            if self.0.len() < CHUNKS_MAX && !self.0.contains(chunk) {
                self.0.push(*chunk);
            }
        }
    }

    pub(crate) fn place(&self, address: u64) -> Option<Belongs> {
        self.0.iter().find_map(|chunk| chunk.place(address))
    }
}
