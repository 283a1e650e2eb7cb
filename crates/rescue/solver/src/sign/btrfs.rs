//! btrfs on one device: superblocks and nodes of its trees, which hold their own addresses.
//!
//! A node's address is logical, within the file system. Chunks map it to the device: first those in
//! the superblock, then those in the chunk tree's leaves.

use super::{Addresses, Walk};
use braid_byte_reader::{array, le16, le32, le64};
use braid_geometry::SECTOR_BYTES;

use crate::bytes::small;

/// Bytes of a page. Each chunk of an array holds whole pages.
const PAGE: usize = 4096;
/// Byte offsets of the superblock and its copies.
pub(crate) const COPIES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// Bytes of a node's header.
const HEADER: usize = 0x65;
/// Bytes of an item in a leaf.
const ITEM: usize = 25;
/// Bytes of a key.
const KEY: usize = 17;
/// The superblock's magic, at the offset where a node has the chunk tree's UUID.
const MAGIC: &[u8] = b"_BHRfS_M";
/// The most levels of a tree.
const LEVELS: u8 = 8;
/// Flags in a node's header that must be set.
const HEADS: u64 = 1 << 56;
/// Flags in a node's header that may be set.
const FLAGS: u64 = 0x3;
/// The key type of a chunk.
const CHUNK: u8 = 228;
/// The number of the chunk tree.
const CHUNK_TREE: u64 = 3;
/// The number of the tree of data checksums.
const SUM_TREE: u64 = 7;
/// The key type of a run of data checksums.
const SUMS: u8 = 128;
/// Bytes of data that each checksum covers.
pub(crate) const SUM_BYTES: u64 = 4096;
/// Bits in a chunk's `type` for profiles that span devices.
const SPANS: u64 = 0x8 | 0x10 | 0x40 | 0x80 | 0x100;
/// The most chunks of a file system that are kept.
const CHUNKS_MAX: usize = 1 << 16;

/// A btrfs superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BtrfsSuperblock {
    pub(crate) uuid: [u8; 16],
    /// The superblock's position on the device, in bytes.
    pub(crate) place: u64,
    bytes: u64,
    pub(crate) node_bytes: usize,
    /// The newest generation of the file system.
    generation: u64,
    /// The root of the root tree.
    root: u64,
    /// Whether the file system's checksums are CRC-32C, of pages.
    has_sums: bool,
    /// The chunks in the superblock.
    pub(crate) chunks: Vec<Chunk>,
}

/// The place on the device of a run of logical addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    address: u64,
    bytes: u64,
    first: u64,
    other: Option<u64>,
}

impl BtrfsSuperblock {
    pub(crate) fn recognise(bytes: &[u8]) -> Option<Self> {
        if bytes.get(0x40..0x48)? != MAGIC {
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
            uuid: array(bytes, 0x20)?,
            place,
            bytes: le64(bytes, 0x70)?,
            node_bytes,
            generation: le64(bytes, 0x48)?,
            root: le64(bytes, 0x50)?,
            has_sums: le16(bytes, 0xc4)? == 0 && u64::from(le32(bytes, 0x90)?) == SUM_BYTES,
            chunks,
        })
    }

    pub(crate) fn size_sectors(&self) -> u64 {
        self.bytes / SECTOR_BYTES
    }

    /// Whether these bytes are a node of this file system, and not its superblock.
    fn is_ours(&self, bytes: &[u8]) -> bool {
        array(bytes, 0x20) == Some(self.uuid) && bytes.get(0x40..0x48) != Some(MAGIC)
    }

    /// The address of the node in `bytes`, if its checksum fits.
    pub(crate) fn node(&self, bytes: &[u8]) -> Option<u64> {
        let checked = bytes.get(0x20..self.node_bytes).filter(|_| self.is_ours(bytes))?;
        (crc32c::crc32c(checked) == le32(bytes, 0)?).then(|| le64(bytes, 0x30)).flatten()
    }

    /// The address in the header of a node, for chunks smaller than nodes, since no member then has
    /// a whole node.
    pub(crate) fn head(&self, bytes: &[u8]) -> Option<u64> {
        let address = le64(bytes, 0x30)?;
        let is_written = le64(bytes, 0x38)? & !FLAGS == HEADS;
        let is_sane = (1..=self.generation.saturating_add(1)).contains(&le64(bytes, 0x50)?)
            && (1..=self.node_bytes / ITEM).contains(&usize::try_from(le32(bytes, 0x60)?).ok()?)
            && *bytes.get(0x64)? < LEVELS
            && address.is_multiple_of(PAGE as u64);
        (self.is_ours(bytes) && is_written && is_sane).then_some(address)
    }

    /// The end of the chunk tree's first leaf. The leaf's first item is the file system's only
    /// device. `bytes` start at the first byte of the leaf's end; the result ends with this item.
    fn tail<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let ends = (SECTOR_BYTES..=PAGE as u64).rev().step_by(small(SECTOR_BYTES));
        let mut pieces = ends.filter_map(|end| bytes.get(..small(end)));
        pieces.find(|piece| piece.ends_with(&self.uuid))
    }

    /// The chunks in a leaf of the chunk tree.
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

impl BtrfsSuperblock {
    /// The data checksums in a leaf: the leaf's generation, then the address and checksum of each
    /// page.
    pub(crate) fn sums_of(&self, bytes: &[u8]) -> Option<(u64, Vec<(u64, u32)>)> {
        let is_leaf = le64(bytes, 0x58) == Some(SUM_TREE) && bytes.get(0x64) == Some(&0);
        if !is_leaf || !self.has_sums {
            return None;
        }
        let count = usize::try_from(le32(bytes, 0x60)?).ok()?;
        let items = bytes.get(HEADER..self.node_bytes)?;
        let mut sums = Vec::new();
        // Items are packed from the end, in key order. Parity of three leaves has a right checksum,
        // but its items are not in this order.
        let (mut end, mut after) = (items.len(), 0);
        for item in (0..count).map_while(|at| items.get(at * ITEM..(at + 1) * ITEM)) {
            let (first, start) = (le64(item, 9)?, usize::try_from(le32(item, KEY)?).ok()?);
            let length = usize::try_from(le32(item, KEY + 4)?).ok()?;
            let is_packed = start.checked_add(length) == Some(end) && first >= after;
            let run = items.get(start..end).filter(|_| is_packed && item.get(8) == Some(&SUMS))?;
            end = start;
            after = first.checked_add(length as u64 / 4 * SUM_BYTES)?;
            for (page, sum) in (0..).zip(run.chunks_exact(4)) {
                let address = first.checked_add(page * SUM_BYTES);
                sums.extend(address.zip(le32(sum, 0)));
            }
        }
        Some((le64(bytes, 0x50)?, sums))
    }
}

/// The key type of the item for a tree's root.
const ROOT_ITEM: u8 = 132;
const ROOT_ADDRESS: usize = 176;
/// Bytes of a pointer to a node.
const POINTER: usize = 33;
/// The most nodes that a walk reads.
const NODES_MAX: usize = 48;
const REFUTED_MAX: usize = 6;
const SUMS_EACH: usize = 24;

impl BtrfsSuperblock {
    /// Walks from the root tree to all other trees, and from checksums to data. `read` returns
    /// bytes of the device, or `None` if they are unknown. `read` also gets a test for the right
    /// bytes, so that the caller can find the member with these bytes.
    pub(crate) fn walk(
        &self,
        chunks: &Chunks,
        mut read: impl FnMut(u64, usize, &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>>,
    ) -> Walk {
        let mut walk = Walk::default();
        let mut queue = std::collections::VecDeque::from([self.root]);
        let mut steps = 0;
        let mut sums = Vec::new();
        while let Some(address) = queue.pop_front() {
            steps += 1;
            if steps > NODES_MAX || walk.refuted > REFUTED_MAX {
                break;
            }
            let is_it = |bytes: &[u8]| self.node(bytes) == Some(address);
            // A node that has two copies is found if one of its copies is found.
            let places: Vec<u64> = chunks
                .place(address)
                .iter()
                .flat_map(Addresses::iter)
                .map(|at| at * SECTOR_BYTES)
                .collect();
            let mut copies = places.iter().filter_map(|at| read(*at, self.node_bytes, &is_it));
            let Some(first) = copies.next() else { continue };
            let is_first = is_it(&first);
            let Some(bytes) = (if is_first { Some(first) } else { copies.find(|it| is_it(it)) })
            else {
                walk.refuted += 1;
                continue;
            };
            walk.confirmed += 1;
            drop(copies);
            // Child nodes with data checksums are read first: they lead to data.
            for (child, is_sums) in self.children(&bytes) {
                if is_sums { queue.push_front(child) } else { queue.push_back(child) }
            }
            sums.extend(self.sums_of(&bytes).map(|(_, sums)| sums));
        }
        for leaf in sums {
            let step = leaf.len().div_ceil(SUMS_EACH).max(1);
            for (address, sum) in leaf.into_iter().step_by(step) {
                if walk.refuted > REFUTED_MAX + walk.confirmed / 4 {
                    return walk;
                }
                let is_it = |bytes: &[u8]| crc32c::crc32c(bytes) == sum;
                let Some(place) = chunks.place(address).and_then(|it| it.iter().next()) else {
                    continue;
                };
                let page = read(place * SECTOR_BYTES, small(SUM_BYTES), &is_it);
                walk.saw(page.map(|bytes| is_it(&bytes)));
            }
        }
        walk
    }

    /// The addresses of nodes that a node names (children, or roots of trees), and whether each of
    /// these nodes holds checksums.
    fn children(&self, bytes: &[u8]) -> Vec<(u64, bool)> {
        let count = le32(bytes, 0x60).and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
        let items = bytes.get(HEADER..self.node_bytes).unwrap_or_default();
        let owner = le64(bytes, 0x58);
        let is_sums = owner == Some(SUM_TREE);
        let nodes_below = || {
            let pointers = items.chunks_exact(POINTER).take(count);
            pointers.filter_map(|it| Some((le64(it, KEY)?, is_sums)))
        };
        let roots = || {
            let roots = items.chunks_exact(ITEM).take(count);
            roots.filter(|item| item.get(8) == Some(&ROOT_ITEM)).filter_map(|item| {
                let at = usize::try_from(le32(item, KEY)?).ok()?;
                let address = le64(items.get(at..)?, ROOT_ADDRESS)?;
                Some((address, le64(item, 0)? == SUM_TREE))
            })
        };
        match (bytes.get(0x64), owner) {
            (Some(0), Some(1)) => roots().collect(),
            (Some(0), _) => Vec::new(),
            _ => nodes_below().collect(),
        }
    }
}

impl Chunk {
    /// The chunk in an item, unless the chunk spans devices, and the item's length.
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

    /// The place of a logical address, in sectors of the device.
    fn place(&self, address: u64) -> Option<Addresses> {
        let inside = address.checked_sub(self.address).filter(|inside| *inside < self.bytes)?;
        let on = |start: u64| start.checked_add(inside).map(|bytes| bytes / SECTOR_BYTES);
        Addresses::named(std::iter::once(on(self.first)?).chain(self.other.and_then(on)))
    }
}

/// All chunks of a file system.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunks {
    known: Vec<Chunk>,
    /// First pages of the chunk tree's first leaf, kept in case no member has the whole leaf.
    heads: Vec<Vec<u8>>,
    tails: Vec<Vec<u8>>,
}

/// The most parts of leaves that are kept of each kind: beginnings of leaves, and ends.
const PIECES_MAX: usize = 16;

impl Chunks {
    pub(crate) fn add(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            if self.known.len() < CHUNKS_MAX && !self.known.contains(chunk) {
                self.known.push(*chunk);
            }
        }
    }

    /// Learns chunks from `bytes`, if they begin with a leaf of the chunk tree or a part of one.
    pub(crate) fn learn(&mut self, found: &BtrfsSuperblock, bytes: &[u8]) {
        if found.node(bytes).is_some() {
            self.add(&found.chunks_of(bytes));
        } else if found.head(bytes).is_some() {
            let is_leaf = le64(bytes, 0x58) == Some(CHUNK_TREE) && bytes.get(0x64) == Some(&0);
            if let Some(head) = bytes.get(..PAGE).filter(|_| is_leaf && found.node_bytes > PAGE) {
                let tails = self.tails.clone();
                keep(&mut self.heads, head);
                tails.iter().for_each(|tail| self.join(found, head, tail));
            }
        } else if let Some(tail) = found.tail(bytes).filter(|_| found.node_bytes > PAGE) {
            let heads = self.heads.clone();
            keep(&mut self.tails, tail);
            heads.iter().for_each(|head| self.join(found, head, tail));
        }
    }

    /// Joins a leaf's beginning and end, with zeroes between, as in a file system of few chunks.
    /// The two parts belong together if the checksum fits.
    fn join(&mut self, found: &BtrfsSuperblock, head: &[u8], tail: &[u8]) {
        let mut leaf = vec![0; found.node_bytes];
        leaf[..head.len()].copy_from_slice(head);
        let start = leaf.len() - tail.len();
        leaf[start..].copy_from_slice(tail);
        if found.node(&leaf).is_some() {
            self.add(&found.chunks_of(&leaf));
        }
    }

    pub(crate) fn place(&self, address: u64) -> Option<Addresses> {
        self.known.iter().find_map(|chunk| chunk.place(address))
    }
}

fn keep(pieces: &mut Vec<Vec<u8>>, piece: &[u8]) {
    if pieces.len() < PIECES_MAX && !pieces.iter().any(|known| known == piece) {
        pieces.push(piece.to_vec());
    }
}
