//! Intel's metadata, the part that braid reads.
//!
//! ```text
//!   ... │ sectors n .. 2, in this order │ sector 1: the anchor │ last sector
//!       └──── continued anchor ─────────┘   header · disks · volumes ...
//!
//!   header  216 bytes: signature, checksum, size, family, generation, counts
//!   disk     48 bytes: serial number, status
//!   volume  112 bytes: name, size, migration · one map, or two during a migration
//!   map      48 bytes: first sector, sectors, chunk, level, members
//!          + 4 bytes a member: number of the disk, flags above
//! ```
//!
//! Numbers are little-endian, sectors have 512 bytes. While a volume migrates, the first map is its
//! future shape, the second its present one. All disks carry the same bytes.

use braid_geometry::{Level, SECTOR_BYTES};

use crate::Read;
use braid_byte_reader::{le16, le32};

use crate::bytes::{halves, text};
use crate::label::{Damage, DiskEntry, Element, Kind, Label, Record, State};

const SIGNATURE: &[u8] = b"Intel Raid ISM Cfg Sig. ";
/// The most bytes of metadata that are read. Firmware writes a few KiB at most.
const SIZE_BYTES_MAX: usize = 64 << 10;
const HEADER_BYTES: usize = 216;
const DISK_BYTES: usize = 48;
const VOLUME_BYTES: usize = 112;
const MAP_BYTES: usize = 48;
const NUMBER_BYTES: usize = 4;
/// Bits in a disk's status.
const SPARE: u32 = 1;
const FAILED: u32 = 4;
/// The bits of a member's entry that hold the number of its disk; the bits above are flags. The
/// first flag marks a member that is not up to date.
const NUMBER_MASK: u32 = 0x00ff_ffff;
const REBUILD: u32 = 0x0100_0000;
/// Bit in a volume's status: the machine stopped without a clean shutdown.
const SHUTDOWN_DIRTY: u32 = 0x10;
/// Value in a map's state: not initialised.
const UNINITIALISED: u8 = 1;
/// Values in a migration's kind: a rebuild, or a change of shape.
const REBUILDING: u8 = 1;
const GENERAL_MIGRATION: u8 = 3;
const STATE_CHANGE: u8 = 4;
/// md's layout number for RAID-10 with two near copies.
const NEAR_2: u32 = 0x102;

fn damaged(what: &'static str) -> Damage {
    Damage { kind: Kind::Imsm, what }
}

pub(crate) fn look(size_bytes: u64, read: Read<'_>) -> Option<Result<Label, Damage>> {
    let sectors = size_bytes / SECTOR_BYTES;
    let anchor_at = sectors.checked_sub(2)?.checked_mul(SECTOR_BYTES)?;
    let anchor = read(anchor_at, 512)?;
    anchor.starts_with(SIGNATURE).then(|| whole(anchor, anchor_at, read))
}

fn whole(anchor: Vec<u8>, anchor_at: u64, read: Read<'_>) -> Result<Label, Damage> {
    let size = le32(&anchor, 36).and_then(|size| usize::try_from(size).ok());
    let size = size.filter(|size| (HEADER_BYTES..=SIZE_BYTES_MAX).contains(size));
    let size = size.ok_or(damaged("its size makes no sense"))?;
    let mut bytes = anchor;
    if size > bytes.len() {
        let more = size.saturating_sub(bytes.len()).next_multiple_of(512);
        let before = anchor_at.checked_sub(more as u64);
        let rest = before.and_then(|at| read(at, more));
        bytes.extend(rest.ok_or(damaged("not all of it can be read"))?);
    }
    bytes.truncate(size);
    let stored = le32(&bytes, 32).unwrap_or(0);
    let (words, _) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(0u32, |sum, word| sum.wrapping_add(u32::from_le_bytes(*word)));
    if sum.wrapping_sub(stored) != stored {
        return Err(damaged("its checksum is wrong"));
    }
    label(&bytes).ok_or(damaged("what it lists does not fit into it"))
}

fn label(bytes: &[u8]) -> Option<Label> {
    let (count_disks, count_volumes) = (*bytes.get(56)?, *bytes.get(57)?);
    // After a split of the container this field keeps the original family; before a split it is
    // zero.
    let family = bytes.get(64..68).filter(|it| **it != [0; 4]).or_else(|| bytes.get(40..44))?;
    let generation = le32(bytes, 44)?;
    let mut rest = bytes.get(HEADER_BYTES..)?;
    let mut disks = Vec::new();
    for _ in 0..count_disks {
        let (entry, behind) = rest.split_at_checked(DISK_BYTES)?;
        let status = le32(entry, 24)?;
        disks.push(DiskEntry {
            identity: text(entry.get(..16)?),
            is_spare: status & SPARE != 0,
            has_failed: status & FAILED != 0,
            is_rebuilding: false,
        });
        rest = behind;
    }
    let mut records = Vec::new();
    for number in 0..count_volumes {
        let (head, behind) = rest.split_at_checked(VOLUME_BYTES)?;
        let is_migrating = *head.get(88)? != 0;
        let (first, behind) = map(behind)?;
        let (second, behind) = match is_migrating {
            true => map(behind).map(|(second, behind)| (Some(second), behind))?,
            false => (None, behind),
        };
        let mut volume = family.to_vec();
        volume.extend(head.get(..16)?);
        volume.push(number);
        records.push(Record {
            generation: generation.into(),
            ..record(volume, head, (&first, second.as_ref()), &disks)?
        });
        rest = behind;
    }
    Some(Label {
        kind: Kind::Imsm,
        container: family.to_vec(),
        generation: generation.into(),
        own: None,
        disks,
        records,
    })
}

struct Map {
    start_sector: u64,
    sectors: u64,
    chunk_sectors: u16,
    state: u8,
    level: u8,
    domains: u8,
    numbers: Vec<u32>,
}

fn map(bytes: &[u8]) -> Option<(Map, &[u8])> {
    let (head, behind) = bytes.split_at_checked(MAP_BYTES)?;
    let count = usize::from(*head.get(16)?);
    let (numbers, behind) = behind.split_at_checked(count.checked_mul(NUMBER_BYTES)?)?;
    let (words, _) = numbers.as_chunks::<4>();
    let map = Map {
        start_sector: halves(head, 0, 20)?,
        sectors: halves(head, 4, 24)?,
        chunk_sectors: le16(head, 12)?,
        state: *head.get(14)?,
        level: *head.get(15)?,
        domains: *head.get(17)?,
        numbers: words.iter().map(|word| u32::from_le_bytes(*word)).collect(),
    };
    Some((map, behind))
}

fn record(
    volume: Vec<u8>,
    head: &[u8],
    (first, second): (&Map, Option<&Map>),
    disks: &[DiskEntry],
) -> Option<Record> {
    let size_sectors = halves(head, 16, 20)?;
    let status = le32(head, 24)?;
    let (kind, is_dirty) = (*head.get(89)?, *head.get(90)? != 0);
    // The shape that a migrating volume has at present.
    let now = second.unwrap_or(first);
    let is_reshaped = second.is_some() && matches!(kind, GENERAL_MIGRATION | STATE_CHANGE);
    let shape = match is_reshaped {
        true => Err("it is being changed to another shape".to_owned()),
        false => shape(first),
    };
    let is_uninitialised = first.state == UNINITIALISED || now.state == UNINITIALISED;
    let state = match second.is_some() {
        _ if is_uninitialised => State::Syncing,
        true if kind != REBUILDING => State::Syncing,
        _ if is_dirty || status & SHUTDOWN_DIRTY != 0 => State::Dirty,
        true => State::Rebuilding,
        false => State::Clean,
    };
    let elements = first.numbers.iter().enumerate().map(|(slot, number)| {
        let other = second.and_then(|map| map.numbers.get(slot)).copied().unwrap_or(0);
        let index = usize::try_from(number & NUMBER_MASK).ok();
        let disk = index.and_then(|index| disks.get(index));
        Element {
            identity: disk.map(|disk| disk.identity.clone()),
            start_sector: first.start_sector,
            sectors: first.sectors,
            is_incomplete: (number | other) & REBUILD != 0,
        }
    });
    Some(Record {
        volume,
        name: text(head.get(..16)?),
        generation: 0,
        shape,
        size_sectors,
        slots: first.numbers.len(),
        first_slot: 0,
        elements: elements.collect(),
        state,
    })
}

fn shape(map: &Map) -> Result<(Level, u32, u32), String> {
    let (count, chunk) = (map.numbers.len(), u32::from(map.chunk_sectors));
    match map.level {
        0 if count > 0 => Ok((Level::Raid0, 0, chunk)),
        1 if count == 2 || (count > 0 && usize::from(map.domains) == count) => {
            Ok((Level::Raid1, 0, 0))
        }
        1 | 10 if count >= 4 && count.is_multiple_of(2) => Ok((Level::Raid10, NEAR_2, chunk)),
        // Parity moves from the last member to the first, and each row starts at the first member.
        5 if count >= 2 => Ok((Level::Raid5, 0, chunk)),
        level => Err(format!("level {level} with {count} members is none that is known")),
    }
}
