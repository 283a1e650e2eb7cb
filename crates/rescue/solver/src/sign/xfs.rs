//! XFS: the headers of its allocation groups, and from version 5 on every block of metadata. Each
//! of these holds its own address.

use braid_byte_reader::{array, be16, be32, be64};

/// An XFS superblock, or its copy in another allocation group. Copies do not record their group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct XfsSuperblock {
    pub(crate) uuid: [u8; 16],
    /// The UUID that blocks of metadata hold.
    metadata_uuid: [u8; 16],
    block_sectors: u64,
    blocks: u64,
    group_blocks: u64,
    pub(crate) groups: u32,
    sector_sectors: u64,
    inode_bits: u32,
    group_bits: u32,
    is_version_5: bool,
}

/// `sb_features_incompat`: metadata has a UUID of its own.
const METADATA_UUID: u32 = 4;

impl XfsSuperblock {
    pub(crate) fn recognise(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"XFSB") {
            return None;
        }
        let (block_bytes, sector_bytes) = (be32(bytes, 4)?, u32::from(be16(bytes, 102)?));
        let is_size = |bytes: u32, max| bytes.is_power_of_two() && (512..=max).contains(&bytes);
        let is_version_5 = be16(bytes, 100)? & 0xf == 5;
        let own = array(bytes, 32)?;
        let has_own = is_version_5 && be32(bytes, 216)? & METADATA_UUID != 0;
        let it = Self {
            uuid: own,
            metadata_uuid: if has_own { array(bytes, 248)? } else { own },
            block_sectors: u64::from(block_bytes / 512),
            blocks: be64(bytes, 8)?,
            group_blocks: u64::from(be32(bytes, 84)?),
            groups: be32(bytes, 88)?,
            sector_sectors: u64::from(sector_bytes / 512),
            inode_bits: u32::from(*bytes.get(123)?),
            group_bits: u32::from(*bytes.get(124)?),
            is_version_5,
        };
        let is_sound = is_size(block_bytes, 65536)
            && is_size(sector_bytes, 32768)
            && it.group_blocks > 0
            && it.groups > 0
            && it.blocks < 1 << 44
            && it.blocks.div_ceil(it.group_blocks) == u64::from(it.groups)
            && it.inode_bits <= 8
            && it.group_bits <= 32;
        is_sound.then_some(it)
    }

    pub(crate) fn size_sectors(&self) -> u64 {
        self.blocks * self.block_sectors
    }

    /// The place of an allocation group's free-space header.
    pub(crate) fn header_place(&self, group: u32) -> u64 {
        u64::from(group) * self.group_blocks * self.block_sectors + self.sector_sectors
    }

    /// The allocation group that a free-space header names.
    pub(crate) fn header_group(&self, bytes: &[u8]) -> Option<u32> {
        let group = be32(bytes, 8)?;
        let is_ours = !self.is_version_5 || array(bytes, 64)? == self.metadata_uuid;
        let blocks = u64::from(be32(bytes, 12)?);
        let is_sound = bytes.starts_with(b"XAGF") && group < self.groups;
        let is_last = group + 1 == self.groups;
        (is_sound && is_ours && (blocks == self.group_blocks || is_last)).then_some(group)
    }

    /// The address that a block of metadata holds.
    pub(crate) fn place(&self, bytes: &[u8]) -> Option<u64> {
        let sector = match bytes.first_chunk::<4>()? {
            b"XAGF" => return self.header_group(bytes).map(|group| self.header_place(group)),
            b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"R3FC" | b"RMB3" => self.named(bytes, 16, 32),
            b"BMA3" => self.named(bytes, 24, 40),
            b"XDB3" | b"XDD3" | b"XDF3" => self.named(bytes, 8, 24),
            [b'I', b'N', ..] => self.inode(bytes),
            // A node or leaf of a directory or of attributes: its magic number follows two links.
            _ => match be16(bytes, 8)? {
                0x3ebe | 0x3df1 | 0x3dff | 0x3bee => self.named(bytes, 16, 32),
                _ => None,
            },
        }?;
        (sector < self.size_sectors()).then_some(sector)
    }

    /// The address at `address` in sectors of 512 bytes, if the UUID at `owner` is that of this
    /// file system.
    fn named(&self, bytes: &[u8], address: usize, owner: usize) -> Option<u64> {
        let is_ours = self.is_version_5 && array(bytes, owner)? == self.metadata_uuid;
        is_ours.then(|| be64(bytes, address)).flatten()
    }

    /// The address of an inode, from its number: allocation group, block, place in the block.
    fn inode(&self, bytes: &[u8]) -> Option<u64> {
        let is_ours = *bytes.get(4)? == 3 && array(bytes, 160)? == self.metadata_uuid;
        let number = be64(bytes, 152).filter(|_| is_ours && self.is_version_5)?;
        let in_group = self.group_bits + self.inode_bits;
        let group = number.checked_shr(in_group)?;
        let in_block = number & ((1 << self.inode_bits) - 1);
        let block = number >> self.inode_bits & ((1 << self.group_bits) - 1);
        if group >= u64::from(self.groups) || block >= self.group_blocks {
            return None;
        }
        let bytes_in = in_block * ((self.block_sectors * 512) >> self.inode_bits);
        bytes_in
            .is_multiple_of(512)
            .then(|| (group * self.group_blocks + block) * self.block_sectors + bytes_in / 512)
    }
}

/// Bytes before the data fork of an inode of version 3.
const CORE: usize = 176;
/// Bytes of a block header in the inode tree.
const TREE_HEADER: usize = 56;
const TREE_RECORD: usize = 16;

impl XfsSuperblock {
    pub(crate) const fn block_bytes(&self) -> u64 {
        self.block_sectors * 512
    }

    /// The first sector of the last block of this inode's file, and the bytes in that block.
    pub(crate) fn tail(&self, inode: &[u8]) -> Option<(u64, usize)> {
        self.inode(inode)?;
        let (is_file, is_listed) = (be16(inode, 2)? >> 12 == 8, inode.get(5)? == &2);
        let extents =
            usize::try_from(be32(inode, 76)?).ok().filter(|count| (1..=16).contains(count))?;
        (is_file && is_listed).then_some(())?;
        let bytes = be64(inode, 56)?;
        let last = bytes.checked_sub(1)? / self.block_bytes();
        let tail = bytes - last * self.block_bytes();
        let block = (0..extents).find_map(|at| {
            let (high, low) = (be64(inode, CORE + 16 * at)?, be64(inode, CORE + 16 * at + 8)?);
            let first = high >> 9 & ((1 << 54) - 1);
            let start = (high & 0x1ff) << 43 | low >> 21;
            let inside = last.checked_sub(first).filter(|inside| *inside < low & 0x1f_ffff)?;
            Some(start + inside)
        })?;
        let group = block.checked_shr(self.group_bits)?;
        let within = block & ((1 << self.group_bits) - 1);
        let is_inside = group < u64::from(self.groups) && within < self.group_blocks;
        let sector = (group * self.group_blocks + within) * self.block_sectors;
        (is_inside && tail < self.block_bytes()).then_some((sector, usize::try_from(tail).ok()?))
    }

    /// The places of inodes in a leaf of the inode tree: the place of the first inode of each run.
    pub(crate) fn inode_places(&self, bytes: &[u8]) -> Option<Vec<u64>> {
        let is_tree = bytes.starts_with(b"IAB3") && be16(bytes, 4)? == 0;
        self.named(bytes, 16, 32).filter(|_| is_tree)?;
        let (count, group) = (usize::from(be16(bytes, 6)?), u64::from(be32(bytes, 48)?));
        let block = usize::try_from(self.block_bytes()).ok()?;
        let records = bytes.get(TREE_HEADER..block)?.chunks_exact(TREE_RECORD).take(count);
        let places = records.filter_map(|record| {
            let number = u64::from(be32(record, 0)?);
            let block = number >> self.inode_bits;
            let is_inside = group < u64::from(self.groups) && block < self.group_blocks;
            // Sparse runs are skipped, since braid does not look up which inodes of a run exist.
            let is_whole = be16(record, 4)? == 0;
            (is_inside && is_whole)
                .then(|| (group * self.group_blocks + block) * self.block_sectors)
        });
        Some(places.collect())
    }
}
