//! A pool of thin volumes: which of its blocks belong to a volume.
//!
//! ```text
//!   superblock, in block 0
//!   ├─▶ tree of volumes: number ─▶ tree of blocks: block of the volume ─▶ block of the pool's data
//!   └─▶ (QNAP) tree of tiers: block of the data ─▶ tier, block there
//!
//!   node: sum, kind, its own place, keys..., values...
//!     inner: value = the node that has keys from this one on
//!     leaf:  value = the entry of the key
//! ```
//!
//! A tree is walked from left to right. Each node records its own place and a checksum; its keys
//! rise and lie between the two keys of its parent. So a node that is damaged, misplaced, or leads
//! back is detected, and only the blocks under it are lost. A walk visits no more nodes than the
//! pool's metadata has.
//!
//! QNAP's own kernel makes pools of another format: nodes of 8 KiB, a superblock of version 4, and
//! with more than one tier a further tree.
//!
//! This file does not repair (`thin_repair` does), and does not use trees that the superblock does
//! not lead to.

use std::ops::Range;
use std::sync::Arc;

use crc32c::crc32c;

use crate::SECTOR_BYTES;
use crate::fault::Fault;
use crate::group::Pool;
use crate::limits::{RUNS_MAX, TREE_DEPTH_MAX};
use crate::map::{Map, PoolData, Run, ThinMap};
use braid_byte_reader::{le32, le64};

/// Possible sizes of a node in bytes: the kernel's, and QNAP's.
const BLOCKS: [u64; 2] = [4096, 8192];
const MAGIC: u64 = 27_022_010;
/// A constant that is mixed into a superblock's checksum, so that no other kind of block passes for
/// a superblock.
const SUPERBLOCK_SUM: u32 = 160_774;
const NODE_SUM: u32 = 121_107;
/// The version of QNAP's superblocks; the kernel's are 1 and 2.
const OF_QNAP: u32 = 4;
const INNER: u32 = 1;
const LEAF: u32 = 2;
const NODE_HEAD_BYTES: usize = 32;
/// In a value of a block tree, the number of low bits that hold the time of the mapping.
const TIME_BITS: u32 = 24;
/// In a value of a tier tree, the number of low bits that hold the block's place. The bits above
/// hold the tier.
const TIER_BITS: u32 = 61;

/// Reads bytes of a part: takes the part, an offset and a number of bytes; returns `None` if the
/// read fails.
pub type ReadPart<'a> = &'a mut dyn FnMut(usize, u64, usize) -> Option<Vec<u8>>;

struct Superblock {
    node_bytes: u64,
    volumes_root: u64,
    block_bytes: u64,
    /// The root of the tier tree and the size of its blocks, if the pool has such a tree.
    tiers: Option<(u64, u64)>,
}

fn is_sound(block: &[u8], kind: u32) -> bool {
    let sum = block.get(4..).map(|rest| !crc32c(rest) ^ kind);
    sum.is_some() && sum == le32(block, 0)
}

struct Metadata<'a, 'b> {
    map: &'a Map,
    read: ReadPart<'b>,
    node_bytes: u64,
    nodes_left: u64,
}

impl Metadata<'_, '_> {
    fn block(&mut self, number: u64) -> Option<Vec<u8>> {
        let offset = number.checked_mul(self.node_bytes)?;
        let end = offset.checked_add(self.node_bytes)?;
        if end > self.map.size_bytes() {
            return None;
        }
        self.map.read(offset, usize::try_from(self.node_bytes).ok()?, self.read)
    }

    fn superblock(&mut self) -> Result<Superblock, Fault> {
        const WHAT: &str = "the superblock of its pool";
        const NONSENSE: Fault = Fault::Nonsense(WHAT);
        let mut fault = Fault::Unreadable(WHAT);
        for node_bytes in BLOCKS {
            self.node_bytes = node_bytes;
            let Some(block) = self.block(0) else { continue };
            if !is_sound(&block, SUPERBLOCK_SUM) {
                fault = Fault::Sum(WHAT);
                continue;
            }
            let number = |at: usize| le64(&block, at).ok_or(NONSENSE);
            let sectors = |at: usize| {
                le32(&block, at)
                    .map(|sectors| u64::from(sectors).saturating_mul(SECTOR_BYTES))
                    .ok_or(NONSENSE)
            };
            let version = le32(&block, 40).ok_or(NONSENSE)?;
            let is_known = matches!(version, 1 | 2 | OF_QNAP) && le32(&block, 360) == Some(0);
            if number(32)? != MAGIC || number(8)? != 0 || !is_known || sectors(340)? != node_bytes {
                return Err(NONSENSE);
            }
            let block_bytes = sectors(336)?;
            if block_bytes == 0 {
                return Err(NONSENSE);
            }
            let has_tiers = version == OF_QNAP && le32(&block, 388).is_some_and(|count| count > 0);
            let tiers = if has_tiers { Some((number(392)?, sectors(400)?)) } else { None };
            return Ok(Superblock { node_bytes, volumes_root: number(320)?, block_bytes, tiers });
        }
        Err(fault)
    }

    /// Walks a tree from left to right over the `wanted` keys; reports leaf entries and lost keys.
    fn walk(
        &mut self,
        root: u64,
        wanted: &Range<u64>,
        visit: &mut dyn FnMut(TreeItem) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut ahead = vec![(root, 0..u64::MAX, 0_usize)];
        while let Some((block, keys, depth)) = ahead.pop() {
            let node = match depth <= TREE_DEPTH_MAX && self.nodes_left > 0 {
                true => self.block(block).and_then(|bytes| Node::of(&bytes, block, &keys)),
                false => None,
            };
            self.nodes_left = self.nodes_left.saturating_sub(1);
            let Some(node) = node else {
                visit(TreeItem::Lost(keys.start.max(wanted.start)..keys.end.min(wanted.end)))?;
                continue;
            };
            if node.is_leaf {
                for (key, value) in node.entries.into_iter().filter(|(key, _)| wanted.contains(key))
                {
                    visit(TreeItem::Entry(key, value))?;
                }
                continue;
            }
            let ends = node.entries.iter().skip(1).map(|(key, _)| *key).chain([keys.end]);
            let children: Vec<_> = node
                .entries
                .iter()
                .zip(ends)
                .map(|((key, child), end)| (*child, *key..end))
                .collect();
            let is_wanted = |keys: &Range<u64>| keys.start < wanted.end && wanted.start < keys.end;
            let deeper = depth.saturating_add(1);
            ahead.extend(
                children
                    .into_iter()
                    .rev()
                    .filter(|(_, keys)| is_wanted(keys))
                    .map(|(child, keys)| (child, keys, deeper)),
            );
        }
        Ok(())
    }
}

enum TreeItem {
    Entry(u64, u64),
    Lost(Range<u64>),
}

struct Node {
    is_leaf: bool,
    entries: Vec<(u64, u64)>,
}

impl Node {
    /// Validates a node: it is sound, at its own place, and all its keys are in `keys`.
    fn of(bytes: &[u8], place: u64, keys: &Range<u64>) -> Option<Self> {
        if !is_sound(bytes, NODE_SUM) || le64(bytes, 8)? != place {
            return None;
        }
        let is_leaf = match le32(bytes, 4)? {
            INNER => false,
            LEAF => true,
            _ => return None,
        };
        let (count, room, value_bytes) = (le32(bytes, 16)?, le32(bytes, 20)?, le32(bytes, 24)?);
        let (count, room) = (usize::try_from(count).ok()?, usize::try_from(room).ok()?);
        let values = room.checked_mul(8)?.checked_add(NODE_HEAD_BYTES)?;
        let end = values.checked_add(room.checked_mul(8)?)?;
        if value_bytes != 8 || count > room || end > bytes.len() || (count == 0 && !is_leaf) {
            return None;
        }
        let (all_keys, _) = bytes.get(NODE_HEAD_BYTES..values)?.as_chunks::<8>();
        let (all_values, _) = bytes.get(values..end)?.as_chunks::<8>();
        let entries = all_keys.iter().zip(all_values).take(count);
        let entries: Vec<(u64, u64)> = entries
            .map(|(key, value)| (u64::from_le_bytes(*key), u64::from_le_bytes(*value)))
            .collect();
        let goes_up = entries.is_sorted_by(|(one, _), (next, _)| one < next);
        let is_within = entries.iter().all(|(key, _)| keys.contains(key));
        (goes_up && is_within).then_some(Self { is_leaf, entries })
    }
}

/// Adds blocks to the runs; extends the last run if possible.
fn add(runs: &mut Vec<Run>, (block, count, to): (u64, u64, Option<u64>)) -> Result<(), Fault> {
    if let Some(last) = runs.last_mut() {
        let follows = last.block.checked_add(last.count) == Some(block);
        let goes_on = match (last.to, to) {
            (Some(before), Some(to)) => before.checked_add(last.count) == Some(to),
            (None, None) => true,
            _ => false,
        };
        if follows && goes_on {
            last.count = last.count.saturating_add(count);
            return Ok(());
        }
    }
    if runs.len() >= RUNS_MAX {
        return Err(Fault::TooLarge("the map of its pool"));
    }
    runs.push(Run { block, count, to });
    Ok(())
}

/// The map of a thin volume within the bytes `wanted`, and how many of these bytes are lost to
/// damaged pool metadata. Outside of `wanted` all bytes of the map are lost.
///
/// # Errors
/// If the pool cannot be read, does not have this volume, or is scattered over too many runs.
pub fn map(
    pool: &Pool,
    (device, size_bytes): (u64, u64),
    wanted: &Range<u64>,
    read: ReadPart<'_>,
) -> Result<(Map, u64), Fault> {
    let places = pool.metadata.as_ref().map_err(|_| Fault::Nonsense("the metadata of its pool"))?;
    let data = pool.data.as_ref().map_err(|_| Fault::Nonsense("the data of its pool"))?;
    let mut metadata = Metadata { map: places, read, node_bytes: 0, nodes_left: 0 };
    let superblock = metadata.superblock()?;
    let nodes = places.size_bytes().checked_div(superblock.node_bytes).unwrap_or(0);
    metadata.nodes_left = nodes;
    let mut root = None;
    let one = device..device.saturating_add(1);
    metadata.walk(superblock.volumes_root, &one, &mut |item| {
        match item {
            TreeItem::Entry(_, value) => root = Some(value),
            TreeItem::Lost(_) => return Err(Fault::Sum("the list of volumes in its pool")),
        }
        Ok(())
    })?;
    let root = root.ok_or(Fault::NoDevice { device })?;
    let blocks = superblock.block_bytes;
    let known =
        wanted.start.checked_div(blocks).unwrap_or(0)..wanted.end.min(size_bytes).div_ceil(blocks);
    metadata.nodes_left = nodes;
    let (mut runs, mut lost) = (Vec::new(), 0_u64);
    metadata.walk(root, &known, &mut |item| match item {
        TreeItem::Entry(key, value) => add(&mut runs, (key, 1, Some(value >> TIME_BITS))),
        TreeItem::Lost(keys) => {
            let count = keys.end.saturating_sub(keys.start);
            lost = lost.saturating_add(count.saturating_mul(blocks));
            if count == 0 { Ok(()) } else { add(&mut runs, (keys.start, count, None)) }
        }
    })?;
    let data = Arc::new(of_pool(data, &superblock, &runs, &mut metadata)?);
    let thin = ThinMap { block_bytes: blocks, runs, known, data };
    Ok((Map::of_thin(size_bytes, thin), lost))
}

/// The map of a pool's data, with the map of the pool's tiers as far as these runs need it.
fn of_pool(
    volumes: &[Option<Map>],
    superblock: &Superblock,
    runs: &[Run],
    metadata: &mut Metadata<'_, '_>,
) -> Result<PoolData, Fault> {
    let real: Vec<&Map> = volumes.iter().flatten().collect();
    if let Some((root, block_bytes)) =
        superblock.tiers.filter(|(root, block_bytes)| *root != 0 && *block_bytes != 0)
    {
        let ends = runs.iter().filter_map(|run| Some((run.to?, run.to?.checked_add(run.count)?)));
        let (first, last) = ends
            .fold((u64::MAX, 0), |(first, last), (start, end)| (first.min(start), last.max(end)));
        let to_tier = |block: u64| block.saturating_mul(superblock.block_bytes);
        let wanted = to_tier(first).checked_div(block_bytes).unwrap_or(0)
            ..to_tier(last).div_ceil(block_bytes);
        let mut tiers: [Vec<Run>; 8] = std::array::from_fn(|_| Vec::new());
        let nodes = metadata.map.size_bytes().checked_div(superblock.node_bytes).unwrap_or(0);
        metadata.nodes_left = nodes;
        let mut is_lost = false;
        metadata.walk(root, &wanted, &mut |item| {
            let TreeItem::Entry(key, value) = item else {
                is_lost = true;
                return Ok(());
            };
            let tier = usize::try_from(value >> TIER_BITS).unwrap_or(usize::MAX);
            let block = (value & (1_u64 << TIER_BITS).wrapping_sub(1)) >> TIME_BITS;
            let runs = tiers.get_mut(tier).ok_or(Fault::Tiers)?;
            add(runs, (key, 1, Some(block)))
        })?;
        // A pool that uses no tiers has no map of tiers, and one volume holds all data.
        if is_lost || tiers.iter().any(|runs| !runs.is_empty()) {
            return Ok(PoolData::Tiered { block_bytes, runs: tiers, tiers: volumes.to_vec() });
        }
    }
    match real[..] {
        [only] => Ok(PoolData::Plain(only.clone())),
        _ => Err(Fault::Tiers),
    }
}
