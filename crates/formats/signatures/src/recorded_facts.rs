//! The size and state that a file system or other content records about itself.
//!
//! The caller compares the size with the device. A file system that is larger than its device shows
//! that members are missing or out of order, or that the data begins elsewhere.

use braid_ondisk::{ForeignKind, ForeignSignature, Snippet};

use braid_byte_reader::{array, be16, be32, be64, le16, le32, le64};

/// The size and state that content records about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedFacts {
    /// The recorded size of the content in bytes.
    pub size_bytes: Option<u64>,
    /// Whether the content was in use when it was last written. A mount then replays the content's
    /// log (in memory if read-only), or refuses.
    pub was_in_use: bool,
    /// Whether the content recorded errors of its own.
    pub has_errors: bool,
    /// The number of devices that the content is spread over, if more than one.
    pub devices: Option<u64>,
    /// Whether the content is encrypted, so that braid cannot recognise the content inside.
    pub is_encrypted: bool,
    /// Whether the content is for a volume manager to open.
    pub is_volume_manager: bool,
}

/// The bytes of `snippets` from an offset of the device on.
fn from(snippets: &[Snippet], offset: u64) -> &[u8] {
    let found = snippets.iter().find_map(|snippet| {
        let skip = usize::try_from(offset.checked_sub(snippet.offset)?).ok()?;
        snippet.bytes.get(skip..)
    });
    found.unwrap_or_default()
}

/// The name that the content's own tools use, and the content's recorded size and state.
pub(crate) fn recorded_facts(
    foreign: &ForeignSignature,
    snippets: &[Snippet],
) -> (&'static str, RecordedFacts) {
    let found = match foreign.kind {
        ForeignKind::Ext => ext(from(snippets, 1024)),
        ForeignKind::Xfs => xfs(from(snippets, 0)).map(|facts| ("xfs", facts)),
        ForeignKind::Btrfs => btrfs(from(snippets, 65536)).map(|facts| ("btrfs", facts)),
        ForeignKind::Lvm2 => lvm(from(snippets, foreign.offset)).map(|facts| ("lvm2", facts)),
        ForeignKind::Luks => {
            let bytes = from(snippets, foreign.offset);
            let is_first = be16(bytes, 6) == Some(1);
            let name = if is_first { "luks1" } else { "luks2" };
            let size_bytes = if is_first { None } else { luks2(bytes) };
            let facts =
                RecordedFacts { size_bytes, is_encrypted: true, ..RecordedFacts::default() };
            Some((name, facts))
        }
        ForeignKind::Bitlocker => {
            Some(("bitlocker", RecordedFacts { is_encrypted: true, ..RecordedFacts::default() }))
        }
        _ => None,
    };
    found.unwrap_or((foreign.kind.name(), RecordedFacts::default()))
}

/// ext2, ext3, ext4: `s_blocks_count`, `s_log_block_size`, `s_state`, feature maps.
fn ext(bytes: &[u8]) -> Option<(&'static str, RecordedFacts)> {
    const HAS_JOURNAL: u32 = 0x4;
    const NEEDS_RECOVERY: u32 = 0x4;
    const OF_64_BITS: u32 = 0x80;
    // Features that only ext4 has: extents, 64 bits, flexible groups, inline data.
    const OF_EXT4: u32 = 0x40 | OF_64_BITS | 0x200 | 0x8000;
    const IS_CLEAN: u16 = 1;
    const HAS_ERRORS: u16 = 2;
    let (compatible, incompatible) = (le32(bytes, 92)?, le32(bytes, 96)?);
    let high = if incompatible & OF_64_BITS == 0 { 0 } else { le32(bytes, 336)? };
    let blocks = (u64::from(high) << 32) | u64::from(le32(bytes, 4)?);
    let log = le32(bytes, 24)?;
    let block_bytes = 1024_u64.checked_shl(log).filter(|_| log <= 6)?;
    let state = le16(bytes, 58)?;
    let name = match (incompatible & OF_EXT4, compatible & HAS_JOURNAL) {
        (0, 0) => "ext2",
        (0, _) => "ext3",
        _ => "ext4",
    };
    let facts = RecordedFacts {
        size_bytes: blocks.checked_mul(block_bytes),
        was_in_use: incompatible & NEEDS_RECOVERY != 0 || state & IS_CLEAN == 0,
        has_errors: state & HAS_ERRORS != 0,
        ..RecordedFacts::default()
    };
    Some((name, facts))
}

/// xfs: `sb_blocksize`, `sb_dblocks`. The superblock does not show whether the file system's log is
/// empty.
fn xfs(bytes: &[u8]) -> Option<RecordedFacts> {
    let block_bytes = u64::from(be32(bytes, 4)?);
    let is_sane = block_bytes.is_power_of_two() && (512..=65536).contains(&block_bytes);
    let size_bytes = be64(bytes, 8)?.checked_mul(block_bytes).filter(|_| is_sane)?;
    Some(RecordedFacts { size_bytes: Some(size_bytes), ..RecordedFacts::default() })
}

/// btrfs: `num_devices`, and this device's `total_bytes`.
fn btrfs(bytes: &[u8]) -> Option<RecordedFacts> {
    let (devices, size_bytes) = (le64(bytes, 136)?, le64(bytes, 209)?);
    let devices = (devices > 1).then_some(devices);
    Some(RecordedFacts { size_bytes: Some(size_bytes), devices, ..RecordedFacts::default() })
}

/// LUKS2: the end of its segments, from the JSON text behind the binary header. `None` if a segment
/// reaches to the end of its device, as most do.
fn luks2(bytes: &[u8]) -> Option<u64> {
    const BINARY_BYTES: usize = 4096;
    let header = usize::try_from(be64(bytes, 8)?).ok()?;
    let text = bytes.get(BINARY_BYTES..header.min(bytes.len()))?;
    let text = text.split(|byte| *byte == 0).next()?;
    let (_, rest) = std::str::from_utf8(text).ok()?.split_once("\"segments\":{")?;
    let mut depth = 1_usize;
    let end = rest.find(|letter: char| {
        match letter {
            '{' => depth = depth.saturating_add(1),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })?;
    let segments = rest.get(..end)?;
    let numbers = |key: &str| -> Option<Vec<u64>> {
        let found = segments.split(key).skip(1);
        found.map(|value| value.split('"').next()?.parse().ok()).collect()
    };
    let (starts, sizes) = (numbers("\"offset\":\"")?, numbers("\"size\":\"")?);
    if starts.len() != sizes.len() {
        return None;
    }
    let ends = starts.iter().zip(&sizes).map(|(start, size)| start.checked_add(*size));
    ends.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

/// An LVM physical volume: the header follows the label, the size follows the UUID.
fn lvm(bytes: &[u8]) -> Option<RecordedFacts> {
    let header = usize::try_from(le32(bytes, 20)?).ok()?;
    array::<32>(bytes, header)?;
    let size_bytes = le64(bytes, header.checked_add(32)?)?;
    let size_bytes = (size_bytes != 0).then_some(size_bytes);
    Some(RecordedFacts { size_bytes, is_volume_manager: true, ..RecordedFacts::default() })
}
