//! The bytes of a write to a member's write-intent bitmap.

use std::ops::Range;
use std::sync::Arc;

use braid_geometry::SECTOR_BYTES;
use braid_ondisk::{BitmapSuperblock, Bits, LocklessMarks, Superblock};

/// The bytes of a bitmap that are written at a time, counted from its start.
const WRITTEN_BYTES: u64 = 4096;

/// A summary of an array's write-intent bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapLook {
    /// Bytes that one bit covers: on each member, or on level 10 in the array.
    pub bit_bytes: u64,
    /// The number of bits.
    pub bits: u64,
    /// Bits whose sectors may differ between members, or had a recent write.
    pub bits_set: u64,
    /// In a lockless bitmap: bits whose sectors no client has written.
    pub unwritten: Option<u64>,
}

/// The new content of a member's write-intent bitmap, and the parts that differ on the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapRecord {
    /// The bitmap's superblock.
    pub head: BitmapSuperblock,
    /// All bits of the bitmap.
    pub bits: Arc<Bits>,
    /// The marks of a lockless bitmap.
    pub marks: Option<Arc<LocklessMarks>>,
    /// The range of the bits that differ from the member's bitmap.
    pub changed: Range<u64>,
    /// Whether the bitmap's superblock differs from the one on the member.
    pub has_new_head: bool,
    /// Whether the member's bitmap is unknown, so that all of it is written.
    pub is_whole: bool,
    /// Whether the members' old bits belong to no valid bitmap. Then the bitmap's superblock says
    /// *stale*.
    pub is_in_the_making: bool,
}

/// The write to a member's write-intent bitmap: the byte offset on the device, and the bytes to
/// write there. The write covers whole 4 KiB blocks, for devices that take no smaller writes.
///
/// # Panics
/// If the member has no room for a bitmap: the array checks that before.
#[must_use]
pub fn bitmap_for(superblock: &Superblock, record: &BitmapRecord) -> (u64, Vec<u8>) {
    let at = superblock.device.super_offset_sectors;
    let offset = superblock.bitmap_offset().expect("it has room for a bitmap");
    let start = at.checked_add_signed(offset.into()).expect("it is on the device") * SECTOR_BYTES;
    let (uuid, marks) = (superblock.uuid_as_stored(), record.marks.as_deref());
    let area = match record.is_in_the_making {
        true => record.head.area_in_the_making(&uuid, &record.bits, marks),
        false => record.head.area(&uuid, &record.bits, marks),
    };
    let sector = |bit: u64| record.head.sector_of(bit) * SECTOR_BYTES;
    let changed = &record.changed;
    let bits = (!changed.is_empty()).then(|| (sector(changed.start), sector(changed.end - 1)));
    let head = record.has_new_head.then_some((0, 0));
    let all = record.is_whole.then_some((0, area.len() as u64 - SECTOR_BYTES));
    let parts = || bits.into_iter().chain(head).chain(all);
    // If the changed bit was withdrawn meanwhile, the write repeats the first block.
    let (first, last) =
        (parts().map(|(first, _)| first).min(), parts().map(|(_, last)| last).max());
    let first = first.unwrap_or(0) / WRITTEN_BYTES * WRITTEN_BYTES;
    let end = (last.unwrap_or(0) + SECTOR_BYTES).next_multiple_of(WRITTEN_BYTES);
    let index = |offset: u64| usize::try_from(offset).expect("it is in memory");
    let end = index(end).min(area.len());
    (start + first, area[index(first)..end].to_vec())
}
