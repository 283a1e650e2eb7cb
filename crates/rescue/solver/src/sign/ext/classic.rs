//! ext2 and ext3: blocks without address or checksum, recognised by other metadata about them.
//!
//! ```text
//!   descriptors   each names bitmaps and an inode table in its own group,
//!                 so a block of them says which groups it is of
//!   bitmaps       as many free as the descriptor counts, the group's own metadata in use,
//!                 nothing free after the group's end
//!   inodes        the first block of the first table has the root,
//!                 and unused inodes at reserved numbers
//!   lists         of a file's further blocks: the kernel and e2fsprogs allocate a list
//!                 right before the first block in it
//! ```

use std::collections::BTreeMap;

use super::{ExtSuperblock, looks_like_inode};
use braid_byte_reader::{le16, le32};

use crate::bytes::{is_blank, small};
use crate::sign::Addresses;

/// A block list with at least this many blocks counts as a sign, although no known inode names it.
const LISTED_MIN: u64 = 8;
/// The most lists that are kept.
const LISTS_MAX: usize = 1 << 16;
/// The most versions of a group's descriptor that are kept: backups of descriptors are as old as
/// the file system.
const VERSIONS_MAX: usize = 4;
/// The most groups with equally many free blocks. If there are more such groups, a bitmap does not
/// reveal its group.
const ALIKE_MAX: usize = 64;
/// The most groups whose inode tables are used.
const GROUPS_MAX: usize = 1 << 16;

/// The content of a group's descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    number: u32,
    block_bitmap: u64,
    inode_bitmap: u64,
    table: u64,
    free_blocks: u32,
    free_inodes: u32,
}

/// The content of the group descriptors that were found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tables {
    /// The first block of each group's inode table; 0 if unknown.
    tables: Vec<u64>,
    /// The descriptors of each group of a classic file system, in the order in which they were
    /// seen.
    groups: BTreeMap<u32, Vec<Group>>,
    /// Groups by the number of their free blocks.
    by_free_blocks: BTreeMap<u32, Vec<Group>>,
    /// Groups by the number of their free inodes.
    by_free_inodes: BTreeMap<u32, Vec<Group>>,
}

impl Tables {
    /// The first block of a group's inode table.
    pub(super) fn of_group(&self, group: usize) -> Option<u64> {
        self.tables.get(group).copied().filter(|table| *table > 0)
    }

    fn add(&mut self, group: Group) {
        let at = group.number as usize;
        if at >= GROUPS_MAX {
            return;
        }
        let known = self.groups.entry(group.number).or_default();
        if known.len() >= VERSIONS_MAX || known.contains(&group) {
            return;
        }
        known.push(group);
        self.tables.resize(self.tables.len().max(at + 1), 0);
        self.tables[at] = known[0].table;
        self.by_free_blocks.entry(group.free_blocks).or_default().push(group);
        self.by_free_inodes.entry(group.free_inodes).or_default().push(group);
    }
}

/// A short form of a list of block numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct List {
    first: u64,
    last: u64,
    count: u64,
}

/// The block lists seen, by place. A list's place is right before the first block that the list
/// names.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    seen: BTreeMap<u64, List>,
}

impl Lists {
    /// Adds this block to the lists if it can be a block list.
    pub(crate) fn learn(&mut self, found: &ExtSuperblock, bytes: &[u8]) {
        if self.seen.len() < LISTS_MAX
            && let Some(list) = found.list(bytes)
        {
            self.seen.insert(list.first - 1, list);
        }
    }

    /// The last block of a file, which has index `listed` in the file's lists, and all known lists
    /// of the file.
    pub(crate) fn end(
        &self,
        found: &ExtSuperblock,
        [one, of_lists]: [u64; 2],
        listed: u64,
    ) -> (Option<u64>, Vec<u64>) {
        let named = found.block_bytes / 4;
        let last_of = |list: u64, count: u64| {
            self.seen.get(&list).filter(|list| list.count == count + 1).map(|list| list.last)
        };
        let Some(further) = listed.checked_sub(named) else {
            return (last_of(one, listed), vec![one]);
        };
        let mut lists = vec![one, of_lists];
        let last = self.seen.get(&of_lists).filter(|list| list.count == further / named + 1);
        lists.extend(last.map(|list| list.last));
        lists.retain(|list| *list > 0);
        let end = last.and_then(|list| last_of(list.last, further % named));
        (end, lists)
    }
}

impl ExtSuperblock {
    /// Whether the file system's blocks are recognised by the rules of this module.
    pub(crate) const fn is_classic(&self) -> bool {
        self.is_classic
    }

    /// Learns inode tables from this block, if the block holds group descriptors.
    pub(crate) fn learn(&self, block: &[u8], known: &mut Option<Tables>) {
        if self.is_classic {
            let groups = self.groups_of(block).into_iter().flatten();
            groups.for_each(|group| known.get_or_insert_default().add(group));
        } else if known.is_none() {
            *known = self.first_tables(block).map(|tables| Tables { tables, ..Tables::default() });
        }
    }

    const fn descriptors_in_block(&self) -> u64 {
        self.block_bytes / self.descriptor_bytes as u64
    }

    /// The group to which a block belongs.
    pub(crate) fn group_of(&self, block: u64) -> Option<u32> {
        let group = block.checked_sub(self.first_block)? / self.group_blocks;
        (block < self.blocks).then(|| u32::try_from(group).ok()).flatten()
    }

    /// The groups that this block of descriptors describes. A block list looks similar, but fails
    /// the checks made here.
    fn groups_of(&self, block: &[u8]) -> Option<Vec<Group>> {
        let first = self.group_of(le32(block, 0)?.into()).filter(|_| self.is_classic)?;
        let block = block.get(..small(self.block_bytes))?;
        let in_block = self.descriptors_in_block();
        let rest = self.groups().checked_sub(first.into())?;
        if u64::from(first) % in_block != 0 {
            return None;
        }
        let here = small(rest.min(in_block));
        let (descriptors, behind) = block.split_at(here * self.descriptor_bytes);
        let descriptors = (first..).zip(descriptors.chunks_exact(self.descriptor_bytes));
        let groups = descriptors.map(|(number, bytes)| self.group(number, bytes));
        let groups = groups.collect::<Option<Vec<Group>>>()?;
        is_blank(behind).then_some(groups)
    }

    fn group(&self, number: u32, bytes: &[u8]) -> Option<Group> {
        let found = Group {
            number,
            block_bitmap: le32(bytes, 0)?.into(),
            inode_bitmap: le32(bytes, 4)?.into(),
            table: le32(bytes, 8)?.into(),
            free_blocks: le16(bytes, 0xc)?.into(),
            free_inodes: le16(bytes, 0xe)?.into(),
        };
        let is_reserved = is_blank(bytes.get(0x12..0x20)?);
        let is_own = |block: u64| block > self.first_block && self.group_of(block) == Some(number);
        let is_sound = is_own(found.block_bitmap)
            && is_own(found.inode_bitmap)
            && is_own(found.table)
            && is_own(found.table + self.table_blocks() - 1)
            && found.block_bitmap != found.inode_bitmap
            && u64::from(found.free_blocks) <= self.group_blocks
            && found.free_inodes <= self.group_inodes
            && u32::from(le16(bytes, 0x10)?) <= self.group_inodes;
        (is_sound && is_reserved).then_some(found)
    }

    fn table_blocks(&self) -> u64 {
        (u64::from(self.group_inodes) * u64::from(self.inode_bytes)).div_ceil(self.block_bytes)
    }

    fn sector_of(&self, block: u64) -> u64 {
        block * self.block_bytes / braid_geometry::SECTOR_BYTES
    }

    /// The places of this block of descriptors: one place after every superblock.
    fn descriptors_places(&self, first: u32) -> impl Iterator<Item = u64> {
        let behind = 1 + u64::from(first) / self.descriptors_in_block();
        let groups = self.backups().into_iter();
        groups.map(move |group| {
            let at = self.first_block + u64::from(group) * self.group_blocks;
            self.sector_of(at + behind)
        })
    }

    /// The bitmaps that descriptors in this block name: byte offset, group, and whether the bitmap
    /// is a block bitmap (else an inode bitmap).
    pub(crate) fn bitmaps(&self, block: &[u8]) -> Vec<(u64, u32, bool)> {
        let groups = self.groups_of(block).unwrap_or_default();
        let of = |group: &Group| {
            [(group.block_bitmap, group.number, true), (group.inode_bitmap, group.number, false)]
        };
        let all = groups.iter().flat_map(of).filter(|it| it.2 || self.is_padded());
        all.map(|(at, group, of_blocks)| (at * self.block_bytes, group, of_blocks)).collect()
    }

    /// Whether inode bitmaps have padding bits, which are all set. Without padding, any bytes with
    /// the right number of clear bits look like an inode bitmap.
    const fn is_padded(&self) -> bool {
        self.group_inodes as u64 + 64 <= self.block_bytes * 8
    }

    /// Whether this block can be a group's bitmap: the group's metadata is in use, and nothing
    /// after the group's end is free.
    pub(crate) fn is_bitmap(
        &self,
        tables: &Tables,
        group: u32,
        of_blocks: bool,
        block: &[u8],
    ) -> bool {
        let group = tables.groups.get(&group).and_then(|known| known.first());
        group.is_some_and(|group| match of_blocks {
            true => self.is_block_bitmap(group, block),
            false => self.is_inode_bitmap(group, block),
        })
    }

    fn is_block_bitmap(&self, group: &Group, block: &[u8]) -> bool {
        let first = self.first_block + u64::from(group.number) * self.group_blocks;
        let is_used = |at: u64| is_set(block, at - first);
        let table = group.table..group.table + self.table_blocks();
        block.len() as u64 >= self.block_bytes
            && is_used(group.block_bitmap)
            && is_used(group.inode_bitmap)
            && table.into_iter().all(is_used)
            && (self.in_group(group)..self.block_bytes * 8).all(|at| is_set(block, at))
    }

    fn is_inode_bitmap(&self, group: &Group, block: &[u8]) -> bool {
        // The first ten inodes are reserved.
        let kept = if group.number == 0 { 10 } else { 0 };
        block.len() as u64 >= self.block_bytes
            && (0..kept).all(|at| is_set(block, at))
            && (u64::from(self.group_inodes)..self.block_bytes * 8).all(|at| is_set(block, at))
    }

    /// The number of blocks in a group: the last group may be shorter.
    fn in_group(&self, group: &Group) -> u64 {
        let before = self.first_block + u64::from(group.number) * self.group_blocks;
        (self.blocks - before).min(self.group_blocks)
    }

    /// The possible places of this block, if the block is a bitmap with as many free bits as a
    /// descriptor says.
    pub(crate) fn bitmap_place(&self, block: &[u8], tables: &Tables) -> Option<Addresses> {
        let block = block.get(..small(self.block_bytes))?;
        // A bitmap's first bytes are in use, or all bits after its end are set.
        if !self.is_classic || block.last() != Some(&0xff) && block.first() != Some(&0xff) {
            return None;
        }
        let zeroes: u32 = block.iter().map(|byte| byte.count_zeros()).sum();
        let places = |by: &BTreeMap<u32, Vec<Group>>, is_it: &dyn Fn(&Group) -> Option<u64>| {
            let groups = by.get(&zeroes).filter(|groups| groups.len() <= ALIKE_MAX)?.iter();
            let mut places: Vec<u64> =
                groups.filter_map(is_it).map(|at| self.sector_of(at)).collect();
            places.sort_unstable();
            places.dedup();
            Addresses::named(places)
        };
        let of_blocks =
            |group: &Group| self.is_block_bitmap(group, block).then_some(group.block_bitmap);
        let of_inodes =
            |group: &Group| self.is_inode_bitmap(group, block).then_some(group.inode_bitmap);
        // The bitmap of a full group has no clear bit, and looks like any bytes without clear bits.
        let of_blocks = places(&tables.by_free_blocks, &of_blocks).filter(|_| zeroes > 0);
        of_blocks
            .or_else(|| places(&tables.by_free_inodes, &of_inodes).filter(|_| self.is_padded()))
    }

    /// The possible places of this block, if the block holds descriptors or the first inodes.
    pub(crate) fn block_place(&self, block: &[u8], tables: &Tables) -> Option<Addresses> {
        if !self.is_classic {
            return None;
        }
        if let Some(groups) = self.groups_of(block) {
            return Addresses::named(self.descriptors_places(groups[0].number));
        }
        let table = tables.of_group(0).filter(|_| self.is_first_table(block))?;
        Some(Addresses::at(self.sector_of(table)))
    }

    /// Whether the inodes in this block begin with the reserved inodes, of which the second is the
    /// root.
    pub(crate) fn is_first_table(&self, block: &[u8]) -> bool {
        let size = small(self.inode_bytes.into());
        let mode =
            |number: usize| block.get(size * (number - 1)..).and_then(|inode| le16(inode, 0));
        let root = block.get(size..2 * size).unwrap_or_default();
        self.is_classic
            && block.len() as u64 >= self.block_bytes
            && mode(1) == Some(0)
            && mode(2).is_some_and(|mode| mode >> 12 == 4)
            && looks_like_inode(root)
            && [3, 4].into_iter().all(|number| mode(number) == Some(0))
    }

    /// An inode's list of blocks and its list of lists; `None` if the inode has no list of blocks.
    pub(super) fn lists_of(&self, inode: &[u8]) -> Option<[u64; 2]> {
        if !self.is_classic || le32(inode, 0x20)? & super::HAS_EXTENTS != 0 {
            return None;
        }
        let block = |at: usize| le32(inode, 0x28 + 4 * at).map(u64::from);
        let is_sound = (0..15).all(|at| block(at).is_some_and(|it| self.may_be_listed(it)));
        let (one, of_lists) = (block(12)?, block(13)?);
        (is_sound && one > 0).then_some([one, of_lists])
    }

    fn may_be_listed(&self, block: u64) -> bool {
        block == 0 || block > self.first_block && block < self.blocks
    }

    /// Whether this block can be a block list that is not empty.
    pub(crate) fn is_list(&self, block: &[u8]) -> bool {
        let Some(block) = block.get(..small(self.block_bytes)) else { return false };
        let mut listed = block.chunks_exact(4).filter_map(|it| le32(it, 0)).map(u64::from);
        !is_blank(block) && listed.all(|it| self.may_be_listed(it))
    }

    /// The block list in this block, if most entries are consecutive blocks, or are lists that are
    /// a list's length apart.
    fn list(&self, block: &[u8]) -> Option<List> {
        let (first, second) = (u64::from(le32(block, 0)?), u64::from(le32(block, 4)?));
        let apart = self.block_bytes / 4 + 1;
        let follows = |one: u64, two: u64| two == one + 1 || two == one + apart;
        let is_start = first > self.first_block + 1 && first < self.blocks;
        if !self.is_classic
            || !is_start
            || second != 0 && !follows(first, second)
            || !self.is_list(block)
        {
            return None;
        }
        let block = block.get(..small(self.block_bytes))?;
        let listed: Vec<u64> =
            block.chunks_exact(4).filter_map(|it| le32(it, 0)).map(u64::from).collect();
        let count = listed.iter().position(|it| *it == 0).unwrap_or(listed.len());
        let (listed, behind) = listed.split_at(count);
        let in_a_row = listed.windows(2).filter(|pair| follows(pair[0], pair[1])).count();
        let is_sound = behind.iter().all(|it| *it == 0) && (in_a_row + 1) * 4 >= count * 3;
        let count = count as u64;
        is_sound.then(|| List { first, last: listed[listed.len() - 1], count })
    }

    /// The place of this block if the block is a list, and whether the list is long enough to count
    /// by itself.
    pub(crate) fn list_place(&self, block: &[u8]) -> Option<(u64, bool)> {
        let list = self.list(block)?;
        Some((list.first - 1, list.count >= LISTED_MIN))
    }
}

fn is_set(block: &[u8], bit: u64) -> bool {
    block.get(small(bit / 8)).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}
