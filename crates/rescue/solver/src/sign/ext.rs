//! ext2, ext3 and ext4: superblocks, which record their group, and inodes, whose checksum covers
//! their number.

mod classic;

pub(crate) use classic::{Lists, Tables};

use super::Walk;
use braid_byte_reader::{array, le16, le32};
use braid_geometry::SECTOR_BYTES;

use crate::crc::{raw, unwound};

/// Bytes of a superblock.
const SUPER_BYTES: usize = 1024;
/// `s_magic`.
const MAGIC: u16 = 0xef53;
/// `s_feature_ro_compat`: every structure has a checksum.
const METADATA_CHECKSUMS: u32 = 0x400;
/// `s_feature_ro_compat`: group descriptors have a checksum of 16 bits.
const DESCRIPTOR_CHECKSUMS: u32 = 0x10;
/// `s_feature_ro_compat`: only few groups have backups.
const SPARSE_SUPER: u32 = 1;
/// `s_feature_compat`: two groups named in the superblock have backups.
const SPARSE_SUPER_2: u32 = 0x200;
/// `s_feature_incompat`: group descriptors of more than 32 bytes.
const WIDE: u32 = 0x80;
/// `s_feature_incompat`: descriptors, or bitmaps and inode tables, may be in other groups.
const META_GROUPS: u32 = 0x10;
const FLEXIBLE_GROUPS: u32 = 0x200;
/// `s_feature_incompat`: the seed of checksums is stored.
const SEED_STORED: u32 = 0x2000;
/// The magic number of an extent tree, at byte 40 of an inode with one.
const EXTENTS: u16 = 0xf30a;
/// `i_flags`: the inode has an extent tree.
const HAS_EXTENTS: u32 = 0x8_0000;
/// If a file system has this many inodes, an inode number that fits the checksum may be chance, so
/// the neighbour's number must fit as well.
const MANY_INODES: u32 = 1 << 22;
/// The most groups whose inode tables are used.
const GROUPS_MAX: u32 = 4096;

/// An ext superblock, or a backup of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtSuperblock {
    pub(crate) uuid: [u8; 16],
    /// The group whose superblock this is.
    pub(crate) group: u32,
    block_bytes: u64,
    blocks: u64,
    first_block: u64,
    group_blocks: u64,
    group_inodes: u32,
    inodes: u32,
    inode_bytes: u32,
    descriptor_bytes: usize,
    /// The seed of checksums; `None` if the file system has no checksums.
    seed: Option<u32>,
    has_descriptor_checksums: bool,
    is_sparse: bool,
    is_sparse_2: bool,
    /// Whether the file system has no checksums, and has bitmaps and inode tables in their own
    /// group: see `classic`.
    is_classic: bool,
}

impl ExtSuperblock {
    /// Recognises a superblock at the start of `bytes`.
    pub(crate) fn recognise(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SUPER_BYTES)?;
        let shift = le32(bytes, 0x18)?;
        if le16(bytes, 0x38)? != MAGIC || shift > 6 {
            return None;
        }
        let (compatible, incompatible, read_only) =
            (le32(bytes, 0x5c)?, le32(bytes, 0x60)?, le32(bytes, 0x64)?);
        let has_checksums = read_only & METADATA_CHECKSUMS != 0;
        if has_checksums && raw(!0, bytes.get(..0x3fc)?) != le32(bytes, 0x3fc)? {
            return None;
        }
        let is_wide = incompatible & WIDE != 0;
        let high = if is_wide { u64::from(le32(bytes, 0x150)?) } else { 0 };
        let uuid = array(bytes, 0x68)?;
        let is_old = le32(bytes, 0x4c)? == 0;
        let it = Self {
            uuid,
            group: u32::from(le16(bytes, 0x5a)?),
            block_bytes: 1024 << shift,
            blocks: u64::from(le32(bytes, 4)?) | high << 32,
            first_block: u64::from(le32(bytes, 0x14)?),
            group_blocks: u64::from(le32(bytes, 0x20)?),
            group_inodes: le32(bytes, 0x28)?,
            inodes: le32(bytes, 0)?,
            inode_bytes: if is_old { 128 } else { u32::from(le16(bytes, 0x58)?) },
            descriptor_bytes: if is_wide { usize::from(le16(bytes, 0xfe)?) } else { 32 },
            seed: match incompatible & SEED_STORED {
                _ if !has_checksums => None,
                0 => Some(raw(!0, &uuid)),
                _ => Some(le32(bytes, 0x270)?),
            },
            has_descriptor_checksums: read_only & DESCRIPTOR_CHECKSUMS != 0,
            is_sparse: read_only & SPARSE_SUPER != 0,
            is_sparse_2: compatible & SPARSE_SUPER_2 != 0,
            is_classic: read_only & (METADATA_CHECKSUMS | DESCRIPTOR_CHECKSUMS) == 0
                && incompatible & (META_GROUPS | FLEXIBLE_GROUPS | WIDE) == 0,
        };
        it.is_sound().then_some(it)
    }

    /// The superblock without the fields that differ between groups.
    pub(crate) fn of_all_groups(&self) -> Self {
        Self { group: 0, ..self.clone() }
    }

    fn is_sound(&self) -> bool {
        let sizes = self.blocks < 1 << 44
            && (1..=self.block_bytes * 8).contains(&self.group_blocks)
            && self.group_inodes > 0
            && (128..=4096).contains(&self.inode_bytes)
            && self.inode_bytes.is_power_of_two()
            && (32..=1024).contains(&self.descriptor_bytes);
        sizes
            && self.first_block == u64::from(self.block_bytes == 1024)
            && self.blocks > self.first_block
            && u64::from(self.group) < self.groups()
    }

    fn groups(&self) -> u64 {
        (self.blocks - self.first_block).div_ceil(self.group_blocks)
    }

    pub(crate) fn size_sectors(&self) -> u64 {
        self.blocks * self.block_bytes / SECTOR_BYTES
    }

    /// The place of this group's superblock.
    pub(crate) fn place(&self, group: u32) -> u64 {
        if group == 0 {
            return 1024 / SECTOR_BYTES;
        }
        (self.first_block + u64::from(group) * self.group_blocks) * self.block_bytes / SECTOR_BYTES
    }

    /// The groups that have a superblock.
    pub(crate) fn backups(&self) -> Vec<u32> {
        let groups = u32::try_from(self.groups()).unwrap_or(u32::MAX);
        match (self.is_sparse_2, self.is_sparse) {
            // Only group 0 is named: the numbers of the other two groups with backups are not read,
            // and a missing prediction only costs a vote.
            (true, _) => vec![0],
            (_, false) => (0..groups.min(64)).collect(),
            (_, true) => {
                let powers = [3_u32, 5, 7].into_iter().flat_map(|base| {
                    std::iter::successors(Some(base), move |it| it.checked_mul(base))
                        .take_while(|it| *it < groups)
                });
                [0, 1].into_iter().filter(|it| *it < groups).chain(powers).collect()
            }
        }
    }

    /// The first groups' inode tables, if this block is the first of the group descriptors.
    fn first_tables(&self, block: &[u8]) -> Option<Vec<u64>> {
        let blocks = usize::try_from(self.block_bytes).ok()?;
        let groups = u32::try_from(self.groups()).ok()?.min(GROUPS_MAX);
        let descriptors = block.get(..blocks)?.chunks_exact(self.descriptor_bytes);
        let tables: Vec<u64> = (0..groups)
            .zip(descriptors)
            .map_while(|(group, bytes)| self.table(group, bytes))
            .collect();
        let expected = groups.min(u32::try_from(blocks / self.descriptor_bytes).ok()?) as usize;
        // A descriptor's checksum has only 16 bits, so two descriptors must fit. Without checksums,
        // all tables must be plausible.
        let has_checksums = self.seed.is_some() || self.has_descriptor_checksums;
        let is_enough = tables.len() == expected || has_checksums && tables.len() >= 2;
        is_enough.then_some(tables)
    }

    /// The inode table that a descriptor names, if this group can own the table.
    fn table(&self, group: u32, bytes: &[u8]) -> Option<u64> {
        let is_wide = self.descriptor_bytes >= 64;
        let number = |low, high| {
            let high = if is_wide { u64::from(le32(bytes, high)?) } else { 0 };
            Some(u64::from(le32(bytes, low)?) | high << 32)
        };
        let is_inside = |block: u64| block > self.first_block && block < self.blocks;
        let (block_bitmap, inode_bitmap, table) =
            (number(0, 0x20)?, number(4, 0x24)?, number(8, 0x28)?);
        let holds = match self.seed {
            Some(seed) => {
                let checksum = raw(raw(seed, &group.to_le_bytes()), bytes.get(..0x1e)?);
                let checksum = raw(raw(checksum, &[0; 2]), bytes.get(0x20..)?);
                u32::from(le16(bytes, 0x1e)?) == checksum & 0xffff
            }
            None if self.has_descriptor_checksums => {
                let checksum = crc16(crc16(!0, &self.uuid), &group.to_le_bytes());
                let checksum = crc16(checksum, bytes.get(..0x1e)?);
                le16(bytes, 0x1e)? == crc16(checksum, bytes.get(0x20..)?)
            }
            None => {
                // A block list looks similar to a descriptor, but has no zeroes at these bytes.
                let is_reserved =
                    bytes.get(0x14..0x20)?.iter().all(|byte| *byte == 0) && le16(bytes, 0x12)? < 8;
                let counts = [(0xc, self.group_blocks), (0xe, u64::from(self.group_inodes))];
                let fit = |(at, max): (usize, u64)| {
                    le16(bytes, at).is_some_and(|count| u64::from(count) <= max)
                };
                is_reserved
                    && is_inside(block_bitmap)
                    && is_inside(inode_bitmap)
                    && block_bitmap != inode_bitmap
                    && table != inode_bitmap
                    && counts.into_iter().all(fit)
                    && le16(bytes, 0x10).is_some_and(|dirs| u32::from(dirs) <= self.group_inodes)
            }
        };
        (holds && is_inside(table)).then_some(table)
    }

    /// The place of the first inode in this sector, computed from the inode's checksum.
    pub(crate) fn inode_place(&self, sector: &[u8], tables: &Tables) -> Option<u64> {
        let seed = self.seed?;
        let size = usize::try_from(self.inode_bytes).ok()?;
        let first = sector.get(..size)?;
        if size < 256 || !looks_like_inode(first) {
            return None;
        }
        let number = inode_number(seed, first)?;
        let place = self.place_of_inode(number, tables)?;
        if place % SECTOR_BYTES != 0 {
            return None;
        }
        if self.inodes > MANY_INODES {
            let next = sector.get(size..2 * size).filter(|it| looks_like_inode(it))?;
            (inode_number(seed, next)? == number + 1).then_some(())?;
        }
        Some(place / SECTOR_BYTES)
    }

    /// The group whose table has the inode with this number.
    pub(crate) const fn group_of_inode(&self, number: u32) -> u32 {
        number.saturating_sub(1) / self.group_inodes
    }

    /// The place of an inode, in bytes from the start of the file system.
    pub(crate) fn place_of_inode(&self, number: u32, tables: &Tables) -> Option<u64> {
        let index = number.checked_sub(1).filter(|index| *index < self.inodes)?;
        let group = usize::try_from(index / self.group_inodes).ok()?;
        let inside = u64::from(index % self.group_inodes) * u64::from(self.inode_bytes);
        Some(tables.of_group(group)? * self.block_bytes + inside)
    }
}

/// The information that an inode gives on a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InodeClaim {
    /// A directory: its number if the inode's checksum reveals it, its first block, and the number
    /// of directories in it if it is one block long.
    Directory(Option<u32>, u64, Option<usize>),
    /// A file's last block, and the number of the file's bytes in this block.
    Tail(u64, usize),
    /// A file whose last block is in a block list. The first field has the blocks of the file's
    /// list of blocks and of its list of lists. The second field is the last block's index in the
    /// lists, the third the number of the file's bytes in the last block.
    Lists([u64; 2], u64, usize),
}

impl ExtSuperblock {
    pub(crate) const fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    pub(crate) const fn inode_bytes(&self) -> u32 {
        self.inode_bytes
    }

    /// Whether inodes have a checksum, which reveals their number.
    pub(crate) const fn has_checksums(&self) -> bool {
        self.seed.is_some()
    }

    /// The information from each inode of this sector. An inode's checksum must fit, if the file
    /// system has checksums.
    pub(crate) fn inode_claims(&self, sector: &[u8]) -> Vec<Option<InodeClaim>> {
        let size = usize::try_from(self.inode_bytes).unwrap_or(usize::MAX);
        let sector = sector.get(..size.max(512)).unwrap_or_default();
        sector.chunks_exact(size).map(|inode| self.inode_claim(inode)).collect()
    }

    fn inode_claim(&self, inode: &[u8]) -> Option<InodeClaim> {
        if !looks_like_inode(inode) || le32(inode, 0x20)? & IS_INLINE != 0 {
            return None;
        }
        let number = match self.seed {
            Some(seed) if inode.len() >= 256 => {
                let number = inode_number(seed, inode)?;
                (1..=self.inodes).contains(&number).then_some(())?;
                Some(number)
            }
            Some(_) => return None,
            None => None,
        };
        let is_block = |block: &u64| *block > self.first_block && *block < self.blocks;
        if le16(inode, 0)? >> 12 == 4 {
            let block = first_block(inode).filter(is_block)?;
            let is_one_block = u64::from(le32(inode, 4)?) == self.block_bytes;
            let folders = usize::from(le16(inode, 0x1a)?).checked_sub(2).filter(|_| is_one_block);
            return Some(InodeClaim::Directory(number, block, folders));
        }
        if le16(inode, 0)? >> 12 != 8 {
            return None;
        }
        let bytes = u64::from(le32(inode, 4)?) | u64::from(le32(inode, 0x6c)?) << 32;
        let last = bytes.checked_sub(1)? / self.block_bytes;
        let tail = usize::try_from(bytes - last * self.block_bytes).ok()?;
        if let Some(listed) = last.checked_sub(DIRECT).filter(|_| self.is_classic) {
            return Some(InodeClaim::Lists(self.lists_of(inode)?, listed, tail));
        }
        let block = block_of(inode, last).filter(is_block)?;
        ((tail as u64) < self.block_bytes).then_some(InodeClaim::Tail(block, tail))
    }

    /// A directory's number, if `bytes` begin with the first block of a directory.
    pub(crate) fn directory(&self, bytes: &[u8]) -> Option<u32> {
        let number = le32(bytes, 0)?;
        let entry = |at: usize, name: &[u8]| {
            let length = u8::try_from(name.len()).ok()?;
            let fits = bytes.get(at + 6)? == &length && bytes.get(at + 8..)?.starts_with(name);
            (fits && matches!(bytes.get(at + 7)?, 0 | 2)).then_some(())
        };
        entry(0, b".")?;
        entry(12, b"..")?;
        (le16(bytes, 4)? == 12 && (1..=self.inodes).contains(&number)).then_some(number)
    }

    /// The inodes in a directory's first block, with their kinds: directory 4, file 8.
    pub(crate) fn named(&self, block: &[u8]) -> Vec<(u32, u16)> {
        let block = block.get(..usize::try_from(self.block_bytes).unwrap_or(0)).unwrap_or_default();
        let kinds = entries(block).into_iter().filter_map(|(number, kind)| match kind {
            1 => Some((number, 8)),
            2 => Some((number, 4)),
            _ => None,
        });
        kinds.collect()
    }

    /// Whether these bytes can be the inode of this number and kind.
    pub(crate) fn is_inode(&self, bytes: &[u8], number: u32, kind: u16) -> bool {
        let is_kind = le16(bytes, 0).is_some_and(|mode| mode >> 12 == kind);
        let is_used = le16(bytes, 0x1a).is_some_and(|links| links > 0);
        let is_numbered = match self.seed {
            Some(seed) if bytes.len() >= 256 => inode_number(seed, bytes) == Some(number),
            _ => true,
        };
        is_kind && is_used && is_numbered
    }
}

/// The number of blocks that an inode without extents names directly.
const DIRECT: u64 = 12;

/// The place of the block with this index in a file, if the inode itself names the block.
fn block_of(inode: &[u8], block: u64) -> Option<u64> {
    if le32(inode, 0x20)? & HAS_EXTENTS == 0 {
        let index = usize::try_from(block).ok().filter(|_| block < DIRECT)?;
        return le32(inode, 0x28 + 4 * index).map(u64::from);
    }
    let (count, depth) = (le16(inode, 0x2a)?, le16(inode, 0x2e)?);
    (depth == 0 && (1..=4).contains(&count)).then_some(())?;
    (0..usize::from(count)).find_map(|at| {
        let at = 0x34 + 12 * at;
        let (first, length) = (u64::from(le32(inode, at)?), u64::from(le16(inode, at + 4)?));
        let start = u64::from(le32(inode, at + 8)?) | u64::from(le16(inode, at + 6)?) << 32;
        let inside = block.checked_sub(first).filter(|inside| *inside < length)?;
        Some(start + inside)
    })
}

/// CRC-16 (the polynomial 0x8005, bits reversed), used by descriptors without longer checksums.
fn crc16(state: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(state, |state, byte| {
        (0..8).fold(state ^ u16::from(*byte), |state, _| {
            if state & 1 == 1 { state >> 1 ^ 0xa001 } else { state >> 1 }
        })
    })
}

/// The number of the root directory's inode.
const ROOT: u32 = 2;
/// The most steps of a walk.
const STEPS_MAX: usize = 64;
const REFUTED_MAX: usize = 4;
/// The most files of a directory whose inodes are read.
const FILES_MAX: usize = 4;
/// `i_flags`: the file is inside the inode.
const IS_INLINE: u32 = 0x1000_0000;

impl ExtSuperblock {
    /// Walks directories from the root on. Each directory has its own number in its first entry,
    /// and its entries name the kinds of inodes. `read` returns bytes of the file system, from a
    /// byte offset and a length, or `None` if they are unknown. `read` also gets a test for the
    /// right bytes, so that the caller can find the member with these bytes.
    pub(crate) fn walk(
        &self,
        tables: &Tables,
        mut read: impl FnMut(u64, usize, &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>>,
    ) -> Walk {
        let mut walk = Walk::default();
        let mut queue = std::collections::VecDeque::from([ROOT]);
        let mut seen = std::collections::BTreeSet::from([ROOT]);
        let size = usize::try_from(self.inode_bytes).unwrap_or(0);
        while let Some(number) = queue.pop_front() {
            if walk.refuted >= REFUTED_MAX || walk.confirmed + walk.refuted >= STEPS_MAX {
                break;
            }
            let is_directory = |inode: &[u8]| {
                let is_kind = le16(inode, 0).is_some_and(|mode| mode >> 12 == 4);
                is_kind && le16(inode, 0x1a).is_some_and(|links| links >= 2)
            };
            let place = self.place_of_inode(number, tables);
            let Some(inode) = place.and_then(|place| read(place, size, &is_directory)) else {
                continue;
            };
            if !is_directory(&inode) {
                walk.refuted += 1;
                continue;
            }
            let Some(block) = first_block(&inode) else { continue };
            let length = usize::try_from(self.block_bytes.min(4096)).unwrap_or(0);
            let names_itself = |bytes: &[u8]| {
                le32(bytes, 0) == Some(number)
                    && le16(bytes, 4) == Some(12)
                    && bytes.get(6) == Some(&1)
                    && bytes.get(8) == Some(&b'.')
            };
            let place = block.checked_mul(self.block_bytes);
            let Some(bytes) = place.and_then(|at| read(at, length, &names_itself)) else {
                continue;
            };
            if !names_itself(&bytes) {
                walk.refuted += 1;
                continue;
            }
            walk.confirmed += 1;
            let mut files = 0;
            for (child, kind) in entries(&bytes) {
                match kind {
                    2 if seen.insert(child) => queue.push_back(child),
                    1 if files < FILES_MAX => {
                        files += 1;
                        let place = self.place_of_inode(child, tables);
                        let is_file =
                            |inode: &[u8]| le16(inode, 0).is_some_and(|mode| mode >> 12 == 8);
                        let inode = place.and_then(|place| read(place, size, &is_file));
                        let Some(inode) = inode else { continue };
                        walk.saw(Some(is_file(&inode)));
                        let lists = self.lists_of(&inode).filter(|_| is_file(&inode));
                        for list in lists.into_iter().flatten().filter(|list| *list > 0) {
                            let is_list = |bytes: &[u8]| self.is_list(bytes);
                            let place = list * self.block_bytes;
                            let whole = usize::try_from(self.block_bytes).unwrap_or(0);
                            let bytes = read(place, whole, &is_list);
                            walk.saw(bytes.map(|bytes| is_list(&bytes)));
                        }
                    }
                    _ => {}
                }
            }
        }
        walk
    }
}

/// The first block of a directory, unless the directory is inside the inode or under index blocks.
fn first_block(inode: &[u8]) -> Option<u64> {
    let flags = le32(inode, 0x20)?;
    if flags & IS_INLINE != 0 {
        return None;
    }
    if flags & HAS_EXTENTS == 0 {
        return le32(inode, 0x28).map(u64::from);
    }
    let (magic, depth) = (le16(inode, 0x28)?, le16(inode, 0x2e)?);
    if magic != EXTENTS {
        // The inode is impossible, not unknown: the result is a block that no directory has.
        return Some(0);
    }
    (depth == 0).then_some(())?;
    Some(u64::from(le32(inode, 0x3c)?) | u64::from(le16(inode, 0x3a)?) << 32)
}

/// The inode and kind of each entry except `.` and `..`.
fn entries(block: &[u8]) -> Vec<(u32, u8)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let (Some(inode), Some(length)) = (le32(block, at), le16(block, at + 4)) {
        let (Some(name), Some(kind)) = (block.get(at + 6), block.get(at + 7)) else { break };
        let is_sound =
            length >= 8 && length % 4 == 0 && usize::from(*name) + 8 <= usize::from(length);
        if !is_sound {
            break;
        }
        if inode != 0 && block.get(at + 8) != Some(&b'.') {
            found.push((inode, *kind));
        }
        at += usize::from(length);
    }
    found
}

/// Whether these bytes are a used inode of a known kind.
fn looks_like_inode(bytes: &[u8]) -> bool {
    let kind = le16(bytes, 0).map(|mode| mode >> 12);
    let links = le16(bytes, 0x1a);
    let is_mapped = le32(bytes, 0x20).is_some_and(|flags| flags & HAS_EXTENTS != 0);
    let is_tree = le16(bytes, 0x28) == Some(EXTENTS);
    matches!(kind, Some(4 | 8 | 10)) && links.is_some_and(|links| links > 0) && is_mapped == is_tree
}

/// The inode's number, computed from the inode's checksum: see `crate::crc`.
fn inode_number(seed: u32, bytes: &[u8]) -> Option<u32> {
    let stored = u32::from(le16(bytes, 0x7c)?) | u32::from(le16(bytes, 0x82)?) << 16;
    let generation = bytes.get(0x64..0x68)?;
    let mut blank = [0; 4096];
    let blank = blank.get_mut(..bytes.len())?;
    blank.copy_from_slice(bytes);
    blank.get_mut(0x7c..0x7e)?.fill(0);
    blank.get_mut(0x82..0x84)?.fill(0);
    let after = unwound(unwound(stored, blank), generation);
    Some(seed ^ unwound(after, &[0; 4]))
}
