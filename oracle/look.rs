//! Turns the bytes of a device into the facts that assembly needs.
//!
//! Included by path in the golden tests, the oracle and the lab, each of which has braid's `ondisk`
//! and `assembly`. It reads the ranges that `braid_ondisk::probe_ranges` asks for, and then the
//! bad-block log, the bitmap, the partial parity log and the journal, if the superblock names them.
//! It decides nothing, and it never writes.

use braid_assembly::ProbedMember;
use braid_ondisk::{
    BadBlockLog, Bitmap, BitmapSuperblock, Features, PplLog, Snippet, Superblock,
    UnvalidatedBitmap, probe, probe_ranges,
};

const SECTOR: u64 = 512;
/// Bytes of a bitmap's superblock.
const BITMAP_HEAD: usize = 256;

/// A device that `look` probes.
pub struct Device<'a> {
    /// The device's name and identity, so no two devices may have one label.
    pub label: &'a str,
    /// The device's size.
    pub bytes: u64,
    /// Reads a range inside the device: offset, length.
    pub read: &'a dyn Fn(u64, usize) -> Vec<u8>,
}

/// Probes a device.
#[must_use]
pub fn look(device: &Device<'_>) -> ProbedMember {
    let snippet = |range: std::ops::Range<u64>| Snippet {
        offset: range.start,
        bytes: (device.read)(range.start, small(range.end - range.start)),
    };
    let snippets: Vec<Snippet> = probe_ranges(device.bytes).into_iter().map(snippet).collect();
    let found = probe(device.bytes, &snippets);
    let (mut bad_blocks, mut bitmap, mut ppl) = (Ok(Vec::new()), None, None);
    let (mut journal, mut own_log) = (None, None);
    if let Some(superblock) = found.newest() {
        if let Some(place) = superblock.device.bad_block_log
            && superblock.state.features.contains(Features::BAD_BLOCKS)
        {
            let length = usize::from(place.size_sectors) * small(SECTOR);
            let bytes = beside(device, superblock, place.offset_sectors, length);
            bad_blocks = BadBlockLog::parse(&bytes, place);
        }
        bitmap = superblock.intent.bitmap_offset_sectors.and_then(|offset| {
            let bytes = beside(device, superblock, offset, BITMAP_HEAD);
            let uuid = superblock.uuid_as_stored();
            let found = UnvalidatedBitmap::recognise(&bytes)?.validate(&uuid);
            let area = |head: &BitmapSuperblock| {
                beside(device, superblock, offset, small(head.total_bytes()))
            };
            Some(found.and_then(|head| Bitmap::read(head, &area(&head))))
        });
        ppl = superblock.ppl_area().map(|(start, place)| {
            let bytes = (device.read)(start, small(place.used_bytes()));
            PplLog::read(&bytes, place, &superblock.uuid_as_stored())
        });
        let read =
            |start, length| Ok::<_, std::convert::Infallible>((device.read)(start, small(length)));
        own_log = superblock.read_own_log(read).unwrap_or_else(|never| match never {});
        journal = superblock.read_journal(&mut |offset, block| {
            block.copy_from_slice(&(device.read)(offset, block.len()));
            true
        });
    }
    ProbedMember {
        label: device.label.to_owned(),
        size_bytes: device.bytes,
        identity: device.label.to_owned(),
        probe: found,
        bad_blocks,
        bitmap,
        ppl,
        own_log,
        journal,
    }
}

/// Probes a whole image in memory.
#[must_use]
pub fn look_at_image(label: &str, image: &[u8]) -> ProbedMember {
    let read = |offset: u64, length: usize| image[small(offset)..small(offset) + length].to_vec();
    look(&Device { label, bytes: image.len() as u64, read: &read })
}

/// Reads bytes at an offset from the superblock.
fn beside(
    device: &Device<'_>,
    superblock: &Superblock,
    offset_sectors: i32,
    length: usize,
) -> Vec<u8> {
    let sector =
        superblock.device.super_offset_sectors.checked_add_signed(i64::from(offset_sectors));
    (device.read)(sector.expect("a validated place") * SECTOR, length)
}

fn small(number: u64) -> usize {
    usize::try_from(number).expect("what is looked at is small")
}
