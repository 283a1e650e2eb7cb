//! Partition tables: GPT, its copy at the end, and MBR with its chain of logical partitions.
//!
//! ```text
//!   GPT   512 or 4096: head (sum) ─▶ entries (sum)       else the same at the last sector, a copy
//!   MBR   446: four entries ─▶ one of kind 5, 15, 133 ─▶ its sector: one entry, the next link
//! ```
//!
//! A partition that reaches beyond the device is counted and not listed: it reveals an array that
//! was cut short.

use std::ops::Range;

use crate::{PARTITIONS_MAX, Read};
use braid_byte_reader::{array, crc32, le16, le32, le64};

/// Bytes in a sector of an MBR.
const SECTOR_BYTES: u64 = 512;
/// Sector sizes that a GPT may have: the search tries each.
const SECTORS: [u64; 2] = [512, 4096];
/// The fewest bytes of a GPT's head.
const HEAD_BYTES_MIN: usize = 92;
/// The fewest bytes of a GPT entry; larger entries have this size times a power of two.
const ENTRY_BYTES_MIN: usize = 128;
const ENTRY_BYTES_MAX: usize = 4096;
/// The most bytes of entries that are read.
const ENTRIES_BYTES_MAX: usize = 1 << 20;
/// Kinds of MBR entries that lead to logical partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The kind of MBR entry that protects a GPT from tools that do not know GPT.
const SHIELD: u8 = 0xee;

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// A GPT.
    Gpt,
    /// A GPT whose first copy is damaged or overwritten; the copy at the end was read.
    GptCopy,
    /// An MBR.
    Mbr,
}

/// A partition of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The partition's number in Linux.
    pub number: u32,
    /// The partition's bytes, within the device.
    pub bytes: Range<u64>,
    /// The partition's name in a GPT, if any.
    pub name: Option<String>,
}

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The kind of table.
    pub scheme: Scheme,
    /// The partitions in order of their places.
    pub partitions: Vec<Partition>,
    /// The number of partitions that reach beyond the device, which are not listed.
    pub out_of_bounds: u32,
}

/// The partition table of a device, if a valid one exists.
pub(crate) fn read(size_bytes: u64, read: Read<'_>) -> Option<Table> {
    let mut table = gpt(size_bytes, read).or_else(|| mbr(size_bytes, read))?;
    table.partitions.sort_by_key(|partition| (partition.bytes.start, partition.number));
    Some(table)
}

fn gpt(size_bytes: u64, read: Read<'_>) -> Option<Table> {
    let first = SECTORS.into_iter().map(|sector| (sector, sector, Scheme::Gpt));
    let last = SECTORS.into_iter().filter_map(|sector| {
        let at = size_bytes.checked_div(sector)?.checked_sub(1)?.checked_mul(sector)?;
        Some((sector, at, Scheme::GptCopy))
    });
    first
        .chain(last)
        .find_map(|(sector, at, scheme)| gpt_at(size_bytes, (sector, at, scheme), read))
}

fn gpt_at(
    size_bytes: u64,
    (sector, at, scheme): (u64, u64, Scheme),
    read: Read<'_>,
) -> Option<Table> {
    if at.checked_add(sector)? > size_bytes {
        return None;
    }
    let head = read(at, usize::try_from(sector).ok()?)?;
    if !head.starts_with(b"EFI PART") {
        return None;
    }
    let length = usize::try_from(le32(&head, 12)?).ok()?;
    let mut summed = head.get(..length).filter(|_| length >= HEAD_BYTES_MIN)?.to_vec();
    summed.get_mut(16..20)?.fill(0);
    let is_sound = crc32(&summed) == le32(&head, 16)?;
    let is_here = le64(&head, 24)?.checked_mul(sector)? == at;
    let entry_bytes = usize::try_from(le32(&head, 84)?).ok()?;
    let is_size = (ENTRY_BYTES_MIN..=ENTRY_BYTES_MAX).contains(&entry_bytes);
    let count = usize::try_from(le32(&head, 80)?).ok()?;
    let bytes = count.checked_mul(entry_bytes)?;
    let is_known = is_sound && is_here && is_size && entry_bytes.is_power_of_two();
    if !is_known || bytes > ENTRIES_BYTES_MAX {
        return None;
    }
    let start = le64(&head, 72)?.checked_mul(sector)?;
    if start.checked_add(bytes as u64)? > size_bytes {
        return None;
    }
    let entries = read(start, bytes)?;
    if crc32(&entries) != le32(&head, 88)? {
        return None;
    }
    let mut table = Table { scheme, partitions: Vec::new(), out_of_bounds: 0 };
    for (number, entry) in (1_u32..).zip(entries.chunks_exact(entry_bytes)) {
        if array::<16>(entry, 0)? == [0; 16] || table.partitions.len() == PARTITIONS_MAX {
            continue;
        }
        let (first, last) = (le64(entry, 32)?, le64(entry, 40)?);
        let range = last.checked_add(1).and_then(|end| {
            let (start, end) = (first.checked_mul(sector)?, end.checked_mul(sector)?);
            (start < end && end <= size_bytes).then_some(start..end)
        });
        match range {
            Some(bytes) => {
                let name = name(entry.get(56..ENTRY_BYTES_MIN)?);
                table.partitions.push(Partition { number, bytes, name });
            }
            None => table.out_of_bounds = table.out_of_bounds.saturating_add(1),
        }
    }
    Some(table)
}

/// A name in UTF-16, up to the first zero.
fn name(bytes: &[u8]) -> Option<String> {
    let (units, _) = bytes.as_chunks::<2>();
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit)).take_while(|unit| *unit != 0);
    let text: String = char::decode_utf16(units).map(|one| one.unwrap_or('\u{fffd}')).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// An MBR entry: kind, first sector, sectors. `None` if the entry is empty.
fn entry(sector: &[u8], index: usize) -> Option<(u8, u64, u64)> {
    let at = index.checked_mul(16)?.checked_add(446)?;
    let entry = array::<16>(sector, at)?;
    let (kind, start, count) = (*entry.get(4)?, le32(&entry, 8)?, le32(&entry, 12)?);
    (kind != 0 && count != 0).then_some((kind, u64::from(start), u64::from(count)))
}

fn mbr(size_bytes: u64, read: Read<'_>) -> Option<Table> {
    if size_bytes < SECTOR_BYTES {
        return None;
    }
    let sector = read(0, 512)?;
    let is_marked = le16(&sector, 510)? == 0xaa55;
    let flags =
        (0_usize..4).filter_map(|index| sector.get(index.checked_mul(16)?.checked_add(446)?));
    let is_sane = flags.clone().count() == 4 && flags.clone().all(|flag| matches!(flag, 0 | 0x80));
    let words = [
        (3, b"NTFS    "),
        (3, b"EXFAT   "),
        (54, b"FAT12   "),
        (54, b"FAT16   "),
        (82, b"FAT32   "),
    ];
    let is_boot_sector = words.iter().any(|(at, word)| array::<8>(&sector, *at) == Some(**word));
    if !is_marked || !is_sane || is_boot_sector {
        return None;
    }
    let entries: Vec<(u32, (u8, u64, u64))> = (1_u32..)
        .zip(0_usize..4)
        .filter_map(|(number, index)| Some((number, entry(&sector, index)?)))
        .collect();
    // If the MBR has only a protective entry, the GPT itself is damaged, and the MBR lists no
    // partition.
    if entries.iter().all(|(_, (kind, ..))| *kind == SHIELD) {
        return None;
    }
    let mut table = Table { scheme: Scheme::Mbr, partitions: Vec::new(), out_of_bounds: 0 };
    for (number, (kind, start, count)) in entries {
        if EXTENDED.contains(&kind) {
            logical(size_bytes, start, &mut table, read);
        } else {
            add(&mut table, size_bytes, (number, start, count));
        }
    }
    Some(table)
}

fn add(table: &mut Table, size_bytes: u64, (number, start, count): (u32, u64, u64)) {
    let bytes = |sector: u64| sector.saturating_mul(SECTOR_BYTES);
    let range = bytes(start)..bytes(start.saturating_add(count));
    if start == 0 || range.end > size_bytes {
        table.out_of_bounds = table.out_of_bounds.saturating_add(1);
    } else if table.partitions.len() < PARTITIONS_MAX {
        table.partitions.push(Partition { number, bytes: range, name: None });
    }
}

/// Lists the logical partitions. Each link of the chain gives one partition, relative to the link,
/// and the next link, relative to the first link. A link that does not lead forwards ends the
/// chain.
fn logical(size_bytes: u64, first: u64, table: &mut Table, read: Read<'_>) {
    let (mut at, mut number) = (first, 5_u32);
    while table.partitions.len() < PARTITIONS_MAX {
        let start = at.saturating_mul(SECTOR_BYTES);
        if start == 0 || start.saturating_add(SECTOR_BYTES) > size_bytes {
            return;
        }
        let Some(sector) = read(start, 512) else { return };
        if le16(&sector, 510) != Some(0xaa55) {
            return;
        }
        if let Some((_, start, count)) = entry(&sector, 0) {
            add(table, size_bytes, (number, at.saturating_add(start), count));
            number = number.saturating_add(1);
        }
        match entry(&sector, 1) {
            Some((kind, next, _)) if EXTENDED.contains(&kind) => {
                let next = first.saturating_add(next);
                if next <= at {
                    return;
                }
                at = next;
            }
            _ => return,
        }
    }
}
