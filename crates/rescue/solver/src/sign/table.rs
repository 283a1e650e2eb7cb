//! Tables that say where volumes begin: partition tables (GPT, MBR), and LVM's physical volumes
//! with their text.

use braid_byte_reader::{array, le32, le64};

/// The most sectors of an array.
const SECTORS_MAX: u64 = 1 << 54;
/// The number of bytes of LVM's text that are searched.
const TEXT_BYTES: usize = 16 << 10;
/// The most starts of logical volumes that are taken from one text of LVM.
const STARTS_MAX: usize = 32;

/// The header of a GPT, or its backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpt {
    pub(crate) uuid: [u8; 16],
    /// The position of this header.
    pub(crate) place: u64,
    /// The position of the other header: the backup's, or the first header's.
    pub(crate) other: u64,
}

impl Gpt {
    pub(crate) fn recognise(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"EFI PART") || le32(bytes, 12)? != 92 {
            return None;
        }
        let (place, other) = (le64(bytes, 24)?, le64(bytes, 32)?);
        let (first, last) = (le64(bytes, 40)?, le64(bytes, 48)?);
        let is_sound = place.min(other) == 1
            && first <= last
            && last < place.max(other)
            && place.max(other) < SECTORS_MAX;
        is_sound.then(|| Some(Self { uuid: array(bytes, 56)?, place, other })).flatten()
    }

    pub(crate) fn size_sectors(&self) -> u64 {
        self.place.max(self.other) + 1
    }
}

/// Starts of partitions in a sector of GPT entries. Entries have 128 bytes, so a sector has four.
pub(crate) fn entries(sector: &[u8]) -> Vec<u64> {
    let sector = sector.get(..512).unwrap_or_default();
    let sound = sector.chunks_exact(128).map_while(|entry| {
        let (first, last) = (le64(entry, 32)?, le64(entry, 40)?);
        let has_kind = entry[..16].iter().any(|byte| *byte != 0);
        let has_name = entry[56..].chunks_exact(2).all(|letter| letter[1] == 0);
        let has_attributes = le64(entry, 48)? & 0x0000_ffff_ffff_fff8 == 0;
        let is_sound = has_kind && has_name && has_attributes;
        (is_sound && first >= 34 && first <= last && last < SECTORS_MAX).then_some(first)
    });
    sound.collect()
}

/// Starts of partitions in an MBR.
pub(crate) fn partitions(sector: &[u8]) -> Vec<u64> {
    if sector.get(510..512) != Some(&[0x55, 0xaa]) {
        return Vec::new();
    }
    let entries = sector[446..510].chunks_exact(16);
    if entries.clone().any(|entry| entry[0] & 0x7f != 0) {
        return Vec::new();
    }
    entries
        // A protective MBR entry for a GPT is not a partition.
        .filter(|entry| entry[4] != 0 && entry[4] != 0xee)
        .filter_map(|entry| {
            let (first, length) = (le32(entry, 8)?, le32(entry, 12)?);
            (first > 0 && length > 0).then(|| u64::from(first))
        })
        .collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) uuid: [u8; 16],
    /// The label's place, in sectors of the physical volume.
    pub(crate) place: u64,
    pub(crate) size_sectors: u64,
}

impl Label {
    pub(crate) fn recognise(bytes: &[u8]) -> Option<Self> {
        let place = le64(bytes, 8)?;
        let is_one = bytes.starts_with(b"LABELONE") && bytes.get(24..32)? == b"LVM2 001";
        let size_sectors = le64(bytes, 64)? / 512;
        (is_one && place < 4 && size_sectors < SECTORS_MAX)
            .then(|| Some(Self { uuid: array(bytes, 32)?, place, size_sectors }))
            .flatten()
    }
}

/// Starts of logical volumes, in sectors of the physical volume, from LVM's text at the start of
/// `bytes`.
pub(crate) fn logical_volumes(bytes: &[u8]) -> Vec<u64> {
    let text = bytes.get(..bytes.len().min(TEXT_BYTES)).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let Ok(text) = std::str::from_utf8(&text[..end]) else { return Vec::new() };
    let number = |word: &str, after: &str| {
        let rest = &after[after.find(word)? + word.len()..];
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    if !text.contains("extent_size = ") || !text.contains("physical_volumes {") {
        return Vec::new();
    }
    let (Some(extent), Some(start)) = (number("extent_size = ", text), number("pe_start = ", text))
    else {
        return Vec::new();
    };
    let stripes = text.match_indices("\"pv0\", ").take(STARTS_MAX);
    let starts = stripes.filter_map(|(at, _)| number("\"pv0\", ", &text[at..]));
    let places = starts.filter_map(|first| first.checked_mul(extent)?.checked_add(start));
    places.filter(|place| *place < SECTORS_MAX).collect()
}
