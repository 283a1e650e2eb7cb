//! The file with a copy of a reshape's window, for windows that overwrite the sectors that they
//! read: braid's own format, next to the members.
//!
//! The runtime and the simulator write and read the file; this module has its bytes, and decides
//! which copy counts.
//!
//! ```text
//!   0        4096
//!   │ header │ the window's bytes │ lost ranges: start and length, 16 bytes each │
//! ```
//!
//! The header names the array, both shapes, the window and the superblocks' position, with CRC-32C
//! of all that follows it and of itself. The header is written after the rest of the file is
//! durable. A file without a window says that no window in place is under way. All numbers are
//! little-endian. Version 2 of the header has the number of lost ranges: sectors of the window that
//! no member could give. A file without such ranges has version 1.
//!
//! Invariants
//! - a copy counts only whole, for its array and reshape, at its position
//!   `[check: the_bytes_of_a_copy_count_only_whole]`,
//!   `[check: the_bytes_of_another_reshape_do_not_count]`;
//! - no byte sequence is believed without its checksums `[check: a_damaged_header_is_refused]`.

use std::ops::Range;

use braid_geometry::SECTOR_BYTES;

use crate::Superblock;

const MAGIC: [u8; 16] = *b"braid window v1\0";
const MAGIC_WITH_LOST: [u8; 16] = *b"braid window v2\0";
/// The header's length, and the start of the window's bytes.
pub const WINDOW_HEADER_BYTES: usize = 4096;
/// The most sectors of a window that is copied: 512 MiB.
pub const COPIED_SECTORS_MAX: u64 = 1 << 20;
/// The most lost ranges of a copy.
const LOST_RANGES_MAX: u64 = 1 << 16;
const RANGE_BYTES: usize = 16;
/// First byte of the numbers: magic and UUID come before.
const NUMBERS_AT: usize = 32;
/// Numbers of version 1: start, length, position, the two sums.
const NUMBERS: usize = 5;

/// A reshape at a position. If it differs between the header and the superblocks, the copy is of
/// another reshape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapePoint {
    /// The position that superblocks have, in sectors of the array.
    pub position: u64,
    /// A checksum of both shapes and the direction.
    pub shapes: u32,
    /// The same checksum for the other direction: a reshape reversed at this position has the file
    /// of the direction before.
    pub turned: u32,
}

/// Level, layout and chunk.
type Side = [i64; 3];

impl ReshapePoint {
    /// The reshape that a superblock records; `None` without one.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Option<Self> {
        let shape = superblock.shape();
        let reshape = shape.reshape?;
        let sum = |old: Side, new: Side, (slots, delta): (i64, i64), backwards: bool| {
            let size = shape.member_size_sectors.cast_signed();
            let numbers = old.into_iter().chain([size, slots, delta]).chain(new);
            let numbers = numbers.chain([i64::from(backwards)]);
            crc32c::crc32c(&numbers.flat_map(i64::to_le_bytes).collect::<Vec<u8>>())
        };
        let side =
            |level: i32, layout: u32, chunk: u32| [level.into(), layout.into(), chunk.into()];
        let old = side(shape.level.md_number(), shape.layout, shape.chunk_sectors);
        let new =
            side(reshape.new_level.md_number(), reshape.new_layout, reshape.new_chunk_sectors);
        let (slots, delta) = (i64::from(shape.raid_slots), i64::from(reshape.delta_disks));
        Some(Self {
            position: reshape.position_sectors,
            shapes: sum(old, new, (slots, delta), reshape.backwards),
            turned: sum(new, old, (slots - delta, -delta), !reshape.backwards),
        })
    }

    /// The same reshape at another position.
    #[must_use]
    pub fn moved_to(self, position: u64) -> Self {
        Self { position, ..self }
    }
}

/// The copy of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedWindow {
    /// Sectors of the array.
    pub sectors: Range<u64>,
    /// The bytes of these sectors.
    pub bytes: Vec<u8>,
    /// Sectors of the window that no member could read.
    pub lost: Vec<Range<u64>>,
}

impl CopiedWindow {
    /// The bytes that follow the header.
    fn body(&self) -> Vec<u8> {
        let ranges = self.lost.iter().flat_map(|range| [range.start, range.end - range.start]);
        let ranges = ranges.flat_map(u64::to_le_bytes);
        self.bytes.iter().copied().chain(ranges).collect()
    }

    /// The writes that store the window in the file of the array `uuid`: offsets and bytes. Each
    /// write must be durable before the next. The first write leaves the file without a window: new
    /// bytes must not stand under an old header.
    #[must_use]
    pub fn writes(&self, uuid: &[u8; 16], point: ReshapePoint) -> [(u64, Vec<u8>); 3] {
        let body = self.body();
        let lost_count = self.lost.len() as u64;
        let (sectors, sum) = (self.sectors.clone(), crc32c::crc32c(&body));
        let ReshapePoint { position, shapes, .. } = point;
        let header = WindowHeader { sectors, position, sum, shapes, lost_count };
        let none = WindowHeader::default().to_bytes(uuid);
        let behind = WINDOW_HEADER_BYTES as u64;
        [(0, none), (behind, body), (0, header.to_bytes(uuid))]
    }
}

/// The header of a file with a window's copy, validated. The default has no window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowHeader {
    sectors: Range<u64>,
    position: u64,
    sum: u32,
    shapes: u32,
    lost_count: u64,
}

impl WindowHeader {
    /// The header's bytes, for the array `uuid`.
    #[must_use]
    pub fn to_bytes(&self, uuid: &[u8; 16]) -> Vec<u8> {
        let Self { sectors, position, sum, shapes, lost_count } = self;
        let length = sectors.end - sectors.start;
        let mut numbers = vec![sectors.start, length, *position, (*sum).into(), (*shapes).into()];
        let magic = if *lost_count == 0 { MAGIC } else { MAGIC_WITH_LOST };
        numbers.extend((*lost_count > 0).then_some(*lost_count));
        let mut header: Vec<u8> = magic.into_iter().chain(*uuid).collect();
        header.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        header.extend(crc32c::crc32c(&header).to_le_bytes());
        header.resize(WINDOW_HEADER_BYTES, 0);
        header
    }

    /// The header in the first bytes of a file of the array `uuid`; `None` if they are of another
    /// array, of no such file, or damaged.
    #[must_use]
    pub fn parse(bytes: &[u8], uuid: &[u8; 16]) -> Option<Self> {
        let magic = bytes.get(..MAGIC.len())?;
        let has_lost = magic == MAGIC_WITH_LOST;
        let is_ours = (has_lost || magic == MAGIC) && bytes.get(MAGIC.len()..NUMBERS_AT)? == uuid;
        let numbers = NUMBERS + usize::from(has_lost);
        let summed = NUMBERS_AT + 8 * numbers;
        let sum = bytes.get(summed..summed + 4)?;
        let is_sound = crc32c::crc32c(bytes.get(..summed)?).to_le_bytes() == *sum;
        let number = |index: usize| {
            let at = NUMBERS_AT + 8 * index;
            let number: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(number))
        };
        let (start, sectors, position) = (number(0)?, number(1)?, number(2)?);
        let lost_count = if has_lost { number(NUMBERS)? } else { 0 };
        let fits = sectors <= COPIED_SECTORS_MAX && lost_count <= LOST_RANGES_MAX;
        let end = start.checked_add(sectors)?;
        let (sum, shapes) = (u32::try_from(number(3)?).ok()?, u32::try_from(number(4)?).ok()?);
        let header = Self { sectors: start..end, position, sum, shapes, lost_count };
        (is_ours && is_sound && fits).then_some(header)
    }

    /// Length of the bytes that follow the header.
    ///
    /// # Panics
    /// Never: a validated header has a limit.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        let length = self.sectors.end - self.sectors.start;
        let length = usize::try_from(length * SECTOR_BYTES).expect("bounded by the header");
        length + usize::try_from(self.lost_count).expect("bounded by the header") * RANGE_BYTES
    }

    /// Whether the file has no window, or a window of this reshape in its direction.
    #[must_use]
    pub fn is_of(&self, point: ReshapePoint) -> bool {
        self.sectors.is_empty() || self.is_same(point)
    }

    fn is_same(&self, point: ReshapePoint) -> bool {
        self.shapes == point.shapes
    }

    /// Whether the file records the state of a reshape whose window at this point is in place. The
    /// file holds that window, or says that no window was under way. A window of another position
    /// means that another program has moved data since.
    #[must_use]
    pub fn knows(&self, point: ReshapePoint) -> bool {
        let Self { sectors, position, shapes, .. } = self;
        let is_behind = sectors.end == point.position || sectors.start == point.position;
        let is_here = self.is_same(point) && (*position == point.position || is_behind);
        // Until a reversed reshape has stored its first window, the file holds the last window of
        // the direction before.
        sectors.is_empty() || is_here || *shapes == point.turned && is_behind
    }

    /// Whether the file claims to hold the window of a reshape at this point.
    #[must_use]
    pub fn is_at(&self, point: ReshapePoint) -> bool {
        !self.sectors.is_empty() && self.position == point.position && self.is_same(point)
    }

    /// The window whose bytes follow the header; `None` if these bytes are not whole. The header is
    /// written after the bytes, so bytes that do not fit it were never relied on.
    #[must_use]
    pub fn window(&self, body: &[u8]) -> Option<CopiedWindow> {
        let is_whole = body.len() == self.body_bytes() && crc32c::crc32c(body) == self.sum;
        if !is_whole {
            return None;
        }
        let length = self.body_bytes() - RANGE_BYTES * usize::try_from(self.lost_count).ok()?;
        let (bytes, ranges) = body.split_at_checked(length)?;
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let range = |bytes: &[u8]| {
            let (start, length) = (number(bytes.get(..8)?)?, number(bytes.get(8..)?)?);
            let range = start..start.checked_add(length)?;
            let is_inside = self.sectors.start <= range.start && range.end <= self.sectors.end;
            is_inside.then_some(range)
        };
        let lost = ranges.chunks_exact(RANGE_BYTES).map(range).collect::<Option<_>>()?;
        Some(CopiedWindow { sectors: self.sectors.clone(), bytes: bytes.to_vec(), lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    const fn at(position: u64) -> ReshapePoint {
        ReshapePoint { position, shapes: 5, turned: 4 }
    }

    fn window() -> CopiedWindow {
        CopiedWindow { sectors: 96..192, bytes: vec![5; 96 * 512], lost: Vec::new() }
    }

    /// The file after the first `count` writes that store the window.
    fn file(window: &CopiedWindow, point: ReshapePoint, count: usize) -> Vec<u8> {
        let mut file = Vec::new();
        for (offset, bytes) in window.writes(&UUID, point).into_iter().take(count) {
            let start = usize::try_from(offset).expect("small");
            file.resize(file.len().max(start + bytes.len()), 0);
            file[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        file
    }

    fn held(file: &[u8], point: ReshapePoint) -> Option<CopiedWindow> {
        let header = WindowHeader::parse(file, &UUID)?;
        header.window(&file[WINDOW_HEADER_BYTES..]).filter(|_| header.is_at(point))
    }

    #[test]
    fn the_bytes_of_a_copy_count_only_whole() {
        let lost = CopiedWindow { lost: vec![100..103, 150..151], ..window() };
        for window in [window(), lost] {
            let whole = file(&window, at(96), 3);
            assert_eq!(held(&whole, at(96)), Some(window.clone()));
            assert_eq!(held(&whole, at(192)), None, "the window is recorded");
            for count in 1..3 {
                assert_eq!(held(&file(&window, at(96), count), at(96)), None, "{count} writes");
            }
            for at_byte in [WINDOW_HEADER_BYTES + 1000, whole.len() - 1] {
                let mut spoiled = whole.clone();
                spoiled[at_byte] ^= 1;
                assert_eq!(held(&spoiled, at(96)), None, "the bytes are not whole");
            }
        }
    }

    #[test]
    fn a_damaged_header_is_refused() {
        let lost = CopiedWindow { lost: vec![100..101, 102..103], ..window() };
        for (window, summed) in [(window(), 72), (lost, 80)] {
            let whole = file(&window, at(96), 3);
            assert!(WindowHeader::parse(&whole, &[8; 16]).is_none(), "another array");
            for bit in 0..8 * (summed + 4) {
                let mut spoiled = whole.clone();
                spoiled[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(WindowHeader::parse(&spoiled, &UUID), None, "bit {bit}");
            }
            for length in 0..summed + 4 {
                assert_eq!(WindowHeader::parse(&whole[..length], &UUID), None);
            }
        }
    }

    /// Regression: a copy that a finished reshape had left overwrote the array when another reshape
    /// began at the same position.
    #[test]
    fn the_bytes_of_another_reshape_do_not_count() {
        let file = file(&window(), at(96), 3);
        let other = ReshapePoint { shapes: 6, turned: 7, ..at(96) };
        assert_eq!(held(&file, other), None);
        let header = WindowHeader::parse(&file, &UUID).expect("a header");
        assert!(!header.knows(other) && !header.is_of(other));
        assert!(WindowHeader::default().knows(other) && WindowHeader::default().is_of(other));
    }
}
