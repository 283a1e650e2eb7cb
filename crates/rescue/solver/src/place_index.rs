//! Places that file systems describe although the places hold no address: ends of files, starts of
//! directories, checksums of data.
//!
//! ```text
//!   learn      inodes, trees ─▶ a file ends in block b, with n bytes there;
//!                               a page at address a has this checksum
//!   belongs    a page that ends so, or has that checksum, is a sign: it belongs to b, or a
//!   facts      predicted content at its place counts for a guess; a missing one counts against it
//! ```
//!
//! A file's last block is zero after its last byte, which seldom is zero itself. Many files end
//! alike, so a sign from a file's end has a few addresses; with too many addresses it is dropped.
//! Pages are compared whole on a member: every md since 2009 begins data at a multiple of 4 KiB.

use std::collections::{BTreeMap, BTreeSet};

use crate::bytes::{SECTOR, small};
use crate::sign::ext::{self, InodeClaim};
use crate::sign::{ADDRESSES_MAX, ALIKE, Addresses, btrfs};
use crate::volume_metadata::VolumeMetadata;

/// The most ends of files, directories, and checksums of data that are kept.
const TAILS_MAX: usize = 1 << 16;
const DIRECTORIES_MAX: usize = 1 << 16;
const SUMS_MAX: usize = 1 << 18;
/// The most facts that are kept of a volume. If there are more facts, only every second, fourth or
/// eighth is kept.
const FACTS_MAX: usize = 4096;
/// In a run of inodes, one inode in this many becomes a fact: one of each page of 4 KiB.
const INODES_STEP: u64 = 8;

/// The predicted content of a place in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fact {
    /// The place in the volume: bytes from the start of the volume.
    pub(crate) byte: u64,
    pub(crate) length: usize,
    /// The member and sector from which the fact was learned. If this sector is parity, it mixes
    /// several sources, and the fact is void.
    pub(crate) source: (usize, u64),
    kind: FactKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FactKind {
    /// The first block of an ext directory.
    Directory,
    /// The last block of a file, with the number of the file's bytes in this block.
    Tail(usize),
    /// An inode of ext, with its number and kind.
    Inode(u32, u16),
    /// The bitmap of an ext group with this number: the block bitmap if true, else the inode
    /// bitmap.
    Bitmap(u32, bool),
    /// A block list of an ext file.
    List,
    /// An inode of XFS.
    XfsInode,
    /// A page with this checksum.
    Sum(u32),
}

/// A sample of facts, of bounded size.
#[derive(Debug, Default)]
struct Facts {
    kept: Vec<Fact>,
    seen: usize,
    step: usize,
}

impl Facts {
    fn add(&mut self, fact: Fact) {
        let step = self.step.max(1);
        if self.seen.is_multiple_of(step) {
            self.kept.push(fact);
        }
        self.seen += 1;
        if self.kept.len() > FACTS_MAX {
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.step = step * 2;
        }
    }
}

/// An ext file with block lists: the lists, the index of the last listed block, the bytes in that
/// block, and the source.
type Ends = ([u64; 2], u64, usize, (usize, u64));

#[derive(Debug, Default)]
pub(crate) struct PlaceIndex {
    /// Whether valid inodes are surely of this volume; without checksums they may be of any.
    pub(crate) is_heard: bool,
    /// For each number of file bytes in a last block, the first sectors of such last blocks.
    tails: BTreeMap<usize, Vec<u64>>,
    tails_count: usize,
    /// For each inode number, its ext directory's first sector; `None` if sources disagree.
    directories: BTreeMap<u32, Option<u64>>,
    /// Directories whose inode number is unknown, by the group in which they start: the first
    /// sector, and the number of directories in them.
    in_groups: BTreeMap<u32, Vec<(u64, Option<usize>)>>,
    in_groups_count: usize,
    /// Block lists of ext that were seen, and what inodes say about lists.
    lists: ext::Lists,
    ends: Vec<Ends>,
    /// Sectors that hold block lists.
    listed: BTreeSet<u64>,
    /// For each address of a page: the generation, the checksum, and the source of the checksum.
    sums: BTreeMap<u64, (u64, u32, (usize, u64))>,
    /// For each checksum, the sectors of pages that have it.
    pages: BTreeMap<u32, Vec<u64>>,
    facts: Facts,
}

impl PlaceIndex {
    /// Learns places from the structure at the start of `bytes`.
    pub(crate) fn learn(&mut self, metadata: &VolumeMetadata, source: (usize, u64), bytes: &[u8]) {
        match metadata {
            VolumeMetadata::Ext(found, _) if self.is_heard => {
                self.learn_ext(found, source, bytes);
            }
            VolumeMetadata::Xfs(found) => {
                if let Some((sector, length)) = found.tail(bytes) {
                    self.tail(sector * SECTOR as u64, found.block_bytes(), length, source);
                }
                for sector in found.inode_places(bytes).unwrap_or_default() {
                    for page in 0..64 / INODES_STEP {
                        let sector = sector + page * INODES_STEP;
                        self.fact(sector * SECTOR as u64, SECTOR, source, FactKind::XfsInode);
                    }
                }
            }
            VolumeMetadata::Btrfs(found, _) if found.node(bytes).is_some() => {
                let (generation, sums) = found.sums_of(bytes).unwrap_or_default();
                for (address, sum) in sums {
                    let is_newer = match self.sums.get(&address) {
                        Some((known, ..)) => *known < generation,
                        None => self.sums.len() < SUMS_MAX,
                    };
                    if is_newer {
                        self.sums.insert(address, (generation, sum, source));
                    }
                }
            }
            _ => {}
        }
    }

    fn learn_ext(&mut self, found: &ext::ExtSuperblock, source: (usize, u64), bytes: &[u8]) {
        let block = found.block_bytes();
        // Only at the start of an inode table are the numbers of the inodes known.
        let is_first = found.is_first_table(bytes);
        for (at, claim) in (1..).zip(found.inode_claims(bytes)) {
            match claim {
                Some(InodeClaim::Directory(number, at_block, folders)) => {
                    let sector = at_block * block / SECTOR as u64;
                    let number = number.or(is_first.then_some(at));
                    let room = self.directories.len() + self.in_groups_count < DIRECTORIES_MAX;
                    match number.filter(|_| room) {
                        Some(number) => {
                            let known = self.directories.entry(number).or_insert(Some(sector));
                            *known = known.filter(|known| *known == sector);
                        }
                        None => self.add_in_group(found, at_block, (sector, folders)),
                    }
                    self.fact(at_block * block, SECTOR, source, FactKind::Directory);
                }
                Some(InodeClaim::Tail(at, length)) => self.tail(at * block, block, length, source),
                Some(InodeClaim::Lists(lists, listed, length)) if self.ends.len() < TAILS_MAX => {
                    self.ends.push((lists, listed, length, source));
                }
                Some(InodeClaim::Lists(..)) | None => {}
            }
        }
        for (byte, group, of_blocks) in found.bitmaps(bytes) {
            self.fact(byte, small(block), source, FactKind::Bitmap(group, of_blocks));
        }
        self.lists.learn(found, bytes);
    }

    fn add_in_group(&mut self, found: &ext::ExtSuperblock, block: u64, it: (u64, Option<usize>)) {
        let room = found.is_classic() && self.in_groups_count < DIRECTORIES_MAX;
        let Some(group) = found.group_of(block).filter(|_| room) else { return };
        let known = self.in_groups.entry(group).or_default();
        if !known.contains(&it) {
            known.push(it);
            self.in_groups_count += 1;
        }
    }

    fn tail(&mut self, byte: u64, block: u64, length: usize, source: (usize, u64)) {
        let sector = byte / SECTOR as u64;
        let known = self.tails.entry(length).or_default();
        if self.tails_count < TAILS_MAX && known.len() <= ADDRESSES_MAX && !known.contains(&sector)
        {
            known.push(sector);
            self.tails_count += 1;
        }
        self.fact(byte, small(block), source, FactKind::Tail(length));
    }

    fn fact(&mut self, byte: u64, length: usize, source: (usize, u64), kind: FactKind) {
        self.facts.add(Fact { byte, length, source, kind });
    }

    /// Called when all learning is done; after this call checksums of data can be looked up.
    pub(crate) fn conclude(&mut self, metadata: &VolumeMetadata) {
        if let VolumeMetadata::Ext(found, _) = metadata {
            let block = found.block_bytes();
            for (lists, listed, length, source) in std::mem::take(&mut self.ends) {
                let (end, lists) = self.lists.end(found, lists, listed);
                for list in lists {
                    self.fact(list * block, small(block), source, FactKind::List);
                    self.listed.insert(list);
                }
                if let Some(end) = end.filter(|_| (length as u64) < block) {
                    self.tail(end * block, block, length, source);
                }
            }
        }
        let VolumeMetadata::Btrfs(_, chunks) = metadata else { return };
        for (address, (_, sum, source)) in std::mem::take(&mut self.sums) {
            let Some(places) = chunks.place(address) else { continue };
            for sector in places.iter() {
                let known = self.pages.entry(sum).or_default();
                if known.len() <= ADDRESSES_MAX {
                    known.push(sector);
                }
                let byte = sector * SECTOR as u64;
                self.fact(byte, small(btrfs::SUM_BYTES), source, FactKind::Sum(sum));
            }
        }
    }

    /// The possible addresses of the content at `place`, which is a member and a sector.
    pub(crate) fn addresses(
        &mut self,
        metadata: &VolumeMetadata,
        source: (usize, u64),
        bytes: &[u8],
    ) -> Option<Addresses> {
        if let VolumeMetadata::Ext(found, Some(tables)) = metadata
            && let Some(number) = found.directory(bytes)
        {
            for (child, kind) in found.named(bytes) {
                if let Some(byte) = found.place_of_inode(child, tables) {
                    let length = small(u64::from(found.inode_bytes()));
                    self.fact(byte, length, source, FactKind::Inode(child, kind));
                }
            }
            return match self.directories.get(&number) {
                Some(sector) => sector.map(Addresses::at),
                None => self.addresses_in_group(found, number, bytes),
            };
        }
        if let VolumeMetadata::Ext(found, _) = metadata
            && let Some((block, is_long)) = found.list_place(bytes)
            && self.is_heard
        {
            let sector = block * found.block_bytes() / SECTOR as u64;
            let is_listed = self.listed.contains(&block);
            return match is_listed {
                true => Some(Addresses::at(sector)),
                false => Addresses::any([sector]).filter(|_| is_long),
            };
        }
        let block = match metadata {
            VolumeMetadata::Ext(found, _) => found.block_bytes(),
            VolumeMetadata::Xfs(found) => found.block_bytes(),
            VolumeMetadata::Btrfs(..) => btrfs::SUM_BYTES,
            VolumeMetadata::Table(_) | VolumeMetadata::Lvm => return None,
        };
        if !(source.1 * SECTOR as u64).is_multiple_of(block) {
            return None;
        }
        let page = bytes.get(..small(block))?;
        if matches!(metadata, VolumeMetadata::Btrfs(..)) {
            let known = self.pages.get(&crc32c::crc32c(page)).filter(|_| !self.pages.is_empty())?;
            return Addresses::any(known.iter().copied());
        }
        if let VolumeMetadata::Ext(found, Some(tables)) = metadata
            && let Some(addresses) = found.bitmap_place(page, tables)
        {
            return Some(addresses);
        }
        let length = page.iter().rposition(|byte| *byte != 0)? + 1;
        Addresses::any(self.tails.get(&length)?.iter().copied())
    }

    /// The possible places of a directory: a group's directories begin in their group, while the
    /// group has room.
    fn addresses_in_group(
        &self,
        found: &ext::ExtSuperblock,
        number: u32,
        bytes: &[u8],
    ) -> Option<Addresses> {
        let known = self.in_groups.get(&found.group_of_inode(number))?;
        let folders = found.named(bytes).iter().filter(|(_, kind)| *kind == 4).count();
        let fit = known.iter().filter(|(_, said)| said.is_none_or(|said| said == folders));
        Addresses::any(fit.map(|(sector, _)| *sector))
    }

    /// Ends the learning of facts.
    pub(crate) fn finish(&mut self) {
        self.facts.kept.sort_unstable_by_key(|fact| (fact.byte, fact.length));
        self.facts.kept.dedup_by_key(|fact| (fact.byte, fact.length, fact.kind));
    }

    /// At most `max` facts, spread over the volume.
    pub(crate) fn facts(&self, max: usize) -> impl Iterator<Item = &Fact> {
        self.facts_that(max, |_| true)
    }

    /// At most `max` facts for which `is_it` is true, spread over the volume.
    pub(crate) fn facts_that(
        &self,
        max: usize,
        is_it: impl Fn(&Fact) -> bool,
    ) -> impl Iterator<Item = &Fact> {
        let those: Vec<&Fact> = self.facts.kept.iter().filter(|fact| is_it(fact)).collect();
        let step = those.len().div_ceil(max.max(1)).max(1);
        those.into_iter().step_by(step)
    }
}

impl Fact {
    /// The fact's weight, in weak votes: a checksum is unique; zeroes after the end of a file are
    /// not unique.
    pub(crate) fn strength(&self, metadata: &VolumeMetadata) -> usize {
        let is_named = match self.kind {
            FactKind::Directory | FactKind::Tail(_) => false,
            FactKind::Inode(..) => {
                matches!(metadata, VolumeMetadata::Ext(found, _) if found.has_checksums())
            }
            FactKind::Bitmap(..) | FactKind::List | FactKind::XfsInode | FactKind::Sum(_) => true,
        };
        if is_named { ALIKE } else { 1 }
    }

    /// Whether these bytes are the content that the fact predicts.
    pub(crate) fn holds(&self, metadata: &VolumeMetadata, bytes: &[u8]) -> bool {
        match (self.kind, metadata) {
            (FactKind::Directory, VolumeMetadata::Ext(found, _)) => {
                found.directory(bytes).is_some()
            }
            (FactKind::Inode(number, kind), VolumeMetadata::Ext(found, _)) => {
                found.is_inode(bytes, number, kind)
            }
            (FactKind::Bitmap(group, of_blocks), VolumeMetadata::Ext(found, Some(tables))) => {
                found.is_bitmap(tables, group, of_blocks, bytes)
            }
            (FactKind::List, VolumeMetadata::Ext(found, _)) => found.is_list(bytes),
            (FactKind::Tail(length), _) => {
                let last = length.checked_sub(1).and_then(|at| bytes.get(at));
                let rest = bytes.get(length..).unwrap_or_default();
                last.is_some_and(|byte| *byte != 0) && rest.iter().all(|byte| *byte == 0)
            }
            (FactKind::XfsInode, VolumeMetadata::Xfs(found)) => {
                found.place(bytes) == Some(self.byte / SECTOR as u64)
            }
            (FactKind::Sum(sum), _) => crc32c::crc32c(bytes) == sum,
            _ => false,
        }
    }
}
