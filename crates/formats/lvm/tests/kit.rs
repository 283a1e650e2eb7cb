//! Physical volumes and pools in memory, as LVM and the kernel write them. This code shares nothing
//! with the reading code.

use braid_lvm::{Group, PhysicalVolume, groups, physical};

pub(crate) const EXTENT: usize = 4 << 20;
pub(crate) const START: usize = 1 << 20;

fn crc(bytes: &[u8], first: u32, polynomial: u32) -> u32 {
    bytes.iter().fold(first, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { polynomial } else { 0 }
        })
    })
}

pub(crate) fn lvm_sum(bytes: &[u8]) -> u32 {
    crc(bytes, 0xf597_a6cf, 0xedb8_8320)
}

pub(crate) fn uuid(letter: char) -> String {
    [6, 4, 4, 4, 4, 4, 6].map(|count| String::from(letter).repeat(count)).join("-")
}

/// The first bytes of a physical volume, with `text` at offset `at` of its metadata ring.
pub(crate) fn head(letter: char, device_bytes: u64, text: &[u8], at: usize) -> Vec<u8> {
    let mut head = vec![0; START];
    let (area, area_bytes) = (4096, START - 4096);
    let label = &mut head[512..1024];
    label[..8].copy_from_slice(b"LABELONE");
    label[8] = 1;
    label[20] = 32;
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].copy_from_slice(uuid(letter).replace('-', "").as_bytes());
    label[64..72].copy_from_slice(&device_bytes.to_le_bytes());
    for (place, value) in [(72, START), (104, area), (112, area_bytes)] {
        label[place..place + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    let sum = lvm_sum(&label[20..]);
    label[16..20].copy_from_slice(&sum.to_le_bytes());
    let ring = area_bytes - 512;
    for (index, byte) in text.iter().enumerate() {
        head[area + 512 + (at - 512 + index) % ring] = *byte;
    }
    let header = &mut head[area..area + 512];
    header[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    header[20] = 1;
    for (place, value) in [(24, area), (32, area_bytes), (40, at), (48, text.len())] {
        header[place..place + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    header[56..60].copy_from_slice(&lvm_sum(text).to_le_bytes());
    let sum = lvm_sum(&header[4..]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    head
}

/// The text of a group `vg`: parts by letter and number of extents, and the text of its volumes.
pub(crate) fn text(sequence: u64, parts: &[(char, u64)], volumes: &str) -> Vec<u8> {
    let part = |(index, (letter, extents)): (usize, &(char, u64))| {
        format!(
            "pv{index} {{\nid = \"{}\"\ndevice = \"/dev/x\"\nstatus = [\"ALLOCATABLE\"]\npe_start = 2048\npe_count = {extents}\n}}\n",
            uuid(*letter)
        )
    };
    let parts: String = parts.iter().enumerate().map(part).collect();
    format!(
        "vg {{\nid = \"{}\"\nseqno = {sequence}\nstatus = [\"READ\"]\nextent_size = 8192\nphysical_volumes {{\n{parts}}}\n\
         logical_volumes {{\n{volumes}}}\n}}\ncontents = \"Text Format Volume Group\"\nversion = 1\n\0",
        uuid('g')
    )
    .into_bytes()
}

/// The text of a volume with these segments: first extent, extents, kind, and the other entries.
pub(crate) fn volume(name: &str, is_visible: bool, segments: &[(u64, u64, &str, &str)]) -> String {
    let status =
        if is_visible { "\"READ\", \"WRITE\", \"VISIBLE\"" } else { "\"READ\", \"WRITE\"" };
    let segment = |(index, (start, count, kind, rest)): (usize, &(u64, u64, &str, &str))| {
        format!(
            "segment{} {{\nstart_extent = {start}\nextent_count = {count}\ntype = \"{kind}\"\n{rest}\n}}\n",
            index + 1
        )
    };
    let count = segments.len();
    let segments: String = segments.iter().enumerate().map(segment).collect();
    format!(
        "{name} {{\nid = \"{}\"\nstatus = [{status}]\nsegment_count = {count}\n{segments}}}\n",
        uuid('v')
    )
}

pub(crate) fn read_of(bytes: &[u8]) -> impl FnMut(u64, usize) -> Option<Vec<u8>> {
    |offset, length| bytes.get(usize::try_from(offset).ok()?..)?.get(..length).map(<[u8]>::to_vec)
}

pub(crate) fn look(bytes: &[u8]) -> PhysicalVolume {
    physical(bytes.len() as u64, &mut read_of(bytes)).expect("a label").expect("sound")
}

pub(crate) fn group(devices: &[Vec<u8>]) -> Group {
    let physical: Vec<PhysicalVolume> = devices.iter().map(|bytes| look(bytes)).collect();
    let mut groups = groups(&physical);
    assert_eq!(groups.len(), 1, "{groups:?}");
    groups.remove(0)
}

pub(crate) fn sealed(mut block: Vec<u8>, kind: u32) -> Vec<u8> {
    let sum = crc(&block[4..], u32::MAX, 0x82f6_3b78) ^ kind;
    block[..4].copy_from_slice(&sum.to_le_bytes());
    block
}

pub(crate) fn node(
    node_bytes: usize,
    place: u64,
    is_leaf: bool,
    entries: &[(u64, u64)],
) -> Vec<u8> {
    let mut block = vec![0; node_bytes];
    let room = (node_bytes - 32) / 16 / 3 * 3;
    block[4] = if is_leaf { 2 } else { 1 };
    block[8..16].copy_from_slice(&place.to_le_bytes());
    for (at, value) in [(16, entries.len()), (20, room), (24, 8)] {
        block[at..at + 4].copy_from_slice(&u32::try_from(value).expect("small").to_le_bytes());
    }
    for (index, (key, value)) in entries.iter().enumerate() {
        block[32 + 8 * index..][..8].copy_from_slice(&key.to_le_bytes());
        block[32 + 8 * (room + index)..][..8].copy_from_slice(&value.to_le_bytes());
    }
    sealed(block, 121_107)
}

/// A pool's superblock: the root of its tree of volumes, sectors of a block, and for QNAP the root
/// of its tree of tiers.
pub(crate) fn superblock(
    node_bytes: usize,
    root: u64,
    block_sectors: u32,
    tiers: Option<u64>,
) -> Vec<u8> {
    let mut block = vec![0; node_bytes];
    block[32..40].copy_from_slice(&27_022_010_u64.to_le_bytes());
    block[40] = if node_bytes == 4096 { 2 } else { 4 };
    block[320..328].copy_from_slice(&root.to_le_bytes());
    block[336..340].copy_from_slice(&block_sectors.to_le_bytes());
    block[340..344].copy_from_slice(&u32::try_from(node_bytes / 512).expect("small").to_le_bytes());
    if let Some(root) = tiers {
        block[388] = 3;
        block[392..400].copy_from_slice(&root.to_le_bytes());
        block[400..404].copy_from_slice(&8192_u32.to_le_bytes());
    }
    sealed(block, 160_774)
}
