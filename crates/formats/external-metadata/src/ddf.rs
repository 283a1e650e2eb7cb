//! SNIA's Common RAID Disk Data Format 2.0, the part that braid reads.
//!
//! ```text
//!   ... │ primary header · sections ... │ secondary header · sections ... │ anchor: last sector
//!
//!   section                     signature    what is read of it
//!   physical disk records       0x22222222   disks: reference, state
//!   virtual disk records        0xdddddddd   volumes: name, state
//!   configuration records       0xeeeeeeee   level, chunk, members by reference, where each begins
//!   physical disk data          0x33333333   which of the disks this is
//! ```
//!
//! Numbers are big-endian; places of sections are counted from their header. Each section has a
//! CRC; if a CRC is wrong, the other header is used. A volume with a secondary level has a
//! configuration record for each part, and a disk may know only its own part: `gather` puts the
//! parts together.

use braid_geometry::{Level, SECTOR_BYTES};

use crate::Read;
use braid_byte_reader::{be16, be32, be64};

use crate::bytes::{guid, text};
use crate::crc::is_sound;
use crate::label::{Damage, DiskEntry, Element, Kind, Label, Record, State};

const HEADER: u32 = 0xde11_de11;
const PHYSICAL: u32 = 0x2222_2222;
const VIRTUAL: u32 = 0xdddd_dddd;
const CONFIGURATION: u32 = 0xeeee_eeee;
const OWN: u32 = 0x3333_3333;
/// The longest section that is read. By the specification's counts the longest is about 256 KiB.
const SECTION_BYTES_MAX: u64 = 1 << 20;
/// Bytes of an entry in the tables of disks and of volumes, and of the tables' heads.
const ENTRY_BYTES: usize = 64;
const MEMBERS_AT: usize = 512;
/// The most members of a part, and the most parts of a volume, that braid reads.
const MEMBERS_MAX: usize = 256;
const NONE: u32 = u32::MAX;

/// Bits in a disk's type (`SPARES`) and in its state (`FAILED`, `REBUILDING`, `MISSING`).
const SPARES: u16 = 0b1100;
const FAILED: u16 = 1 << 1;
const REBUILDING: u16 = 1 << 2;
const MISSING: u16 = 1 << 6;
/// Bits in a volume's state: a change of shape, and interrupted writes.
const MORPHING: u8 = 1 << 3;
const INCONSISTENT: u8 = 1 << 4;
/// The value in a volume's initialisation state that means done.
const INITIALISED: u8 = 2;

fn damaged(what: &'static str) -> Damage {
    Damage { kind: Kind::Ddf, what }
}

pub(crate) fn look(size_bytes: u64, read: Read<'_>) -> Option<Result<Label, Damage>> {
    let last = (size_bytes / SECTOR_BYTES).checked_sub(1)?;
    let anchor = read(last.checked_mul(SECTOR_BYTES)?, 512)?;
    (be32(&anchor, 0)? == HEADER).then(|| whole(&anchor, last, read))
}

fn whole(anchor: &[u8], last: u64, read: Read<'_>) -> Result<Label, Damage> {
    if !is_sound(anchor) {
        return Err(damaged("the checksum of its anchor is wrong"));
    }
    let mut why = damaged("neither of its headers can be read");
    for at in [96, 104] {
        let Some(sector) = be64(anchor, at).filter(|sector| *sector < last) else { continue };
        match copy(anchor, (sector, last), read) {
            Ok(label) => return Ok(label),
            Err(damage) => why = damage,
        }
    }
    Err(why)
}

/// Reads one of the two copies of the metadata.
fn copy(anchor: &[u8], (sector, last): (u64, u64), read: Read<'_>) -> Result<Label, Damage> {
    let header = sector.checked_mul(SECTOR_BYTES).and_then(|at| read(at, 512));
    let header = header.ok_or(damaged("its headers cannot be read"))?;
    if be32(&header, 0) != Some(HEADER)
        || !is_sound(&header)
        || header.get(8..32) != anchor.get(8..32)
    {
        return Err(damaged("the checksum of a header is wrong"));
    }
    // The header has each section's place, followed by its length.
    let mut section = |at: usize| -> Option<Vec<u8>> {
        let from = u64::from(be32(&header, at)?).checked_add(sector)?;
        let length = u64::from(be32(&header, at.checked_add(4)?)?).checked_mul(SECTOR_BYTES)?;
        let end = from.checked_add(length / SECTOR_BYTES)?;
        let is_sane = (1..=SECTION_BYTES_MAX).contains(&length) && end <= last;
        let length = usize::try_from(length).ok().filter(|_| is_sane)?;
        read(from.checked_mul(SECTOR_BYTES)?, length)
    };
    let sections = [section(200), section(208), section(216), section(224)];
    let [Some(disks), Some(volumes), Some(records), Some(own)] = sections else {
        return Err(damaged("not all of its sections can be read"));
    };
    let is = |section: &[u8], signature| be32(section, 0) == Some(signature) && is_sound(section);
    if !is(&disks, PHYSICAL) || !is(&volumes, VIRTUAL) || !is(&own, OWN) {
        return Err(damaged("the checksum of a section is wrong"));
    }
    label(&header, (&disks, &volumes), (&records, &own))
        .ok_or(damaged("what it lists does not fit into it"))
}

fn label(
    header: &[u8],
    (disks, volumes): (&[u8], &[u8]),
    (records, own): (&[u8], &[u8]),
) -> Option<Label> {
    let entries = |table: &[u8], from: usize| -> Vec<[u8; ENTRY_BYTES]> {
        let (all, _) = table.get(ENTRY_BYTES..).unwrap_or(&[]).as_chunks();
        // Uses the table's capacity, not the number of entries: removed entries leave gaps.
        let most = be16(table, from).map_or(0, usize::from);
        all.iter().take(most).copied().collect()
    };
    let disk = |entry: &[u8; ENTRY_BYTES]| {
        let reference = be32(entry, 24).filter(|reference| !matches!(*reference, NONE | 0))?;
        let (kind, state) = (be16(entry, 28)?, be16(entry, 30)?);
        Some(DiskEntry {
            identity: identity(reference),
            is_spare: kind & SPARES != 0,
            has_failed: state & (FAILED | MISSING) != 0,
            is_rebuilding: state & REBUILDING != 0,
        })
    };
    let disks: Vec<DiskEntry> = entries(disks, 10).iter().filter_map(disk).collect();
    let volumes = entries(volumes, 10);
    let record_bytes = usize::from(be16(header, 134)?).checked_mul(512)?;
    let members_max = usize::from(be16(header, 136)?);
    if record_bytes == 0 {
        return None;
    }
    // The generation of the whole container. Some writers leave it blank; then only the records'
    // generations count.
    let generation = be32(header, 40).filter(|count| *count != u32::MAX).unwrap_or(0);
    let mut found = Vec::new();
    for bytes in records.chunks_exact(record_bytes) {
        if be32(bytes, 0) == Some(CONFIGURATION) && is_sound(bytes) {
            let entry = volumes.iter().find(|entry| entry.get(..24) == bytes.get(8..32));
            let record = record(bytes, members_max, entry, &disks);
            found.extend(record.map(|record| {
                // The failure of a disk shows only in the tables, a change of the volume only in
                // its record. The generations of tables and records never fall, so their sum shows
                // either change.
                let generation = record.generation.saturating_add(generation.into());
                Record { generation, ..record }
            }));
        }
    }
    Some(Label {
        kind: Kind::Ddf,
        container: header.get(8..32)?.to_vec(),
        generation: generation.into(),
        own: Some(identity(be32(own, 32)?)),
        disks,
        records: found,
    })
}

fn identity(reference: u32) -> String {
    format!("{reference:08x}")
}

fn record(
    bytes: &[u8],
    members_max: usize,
    entry: Option<&[u8; ENTRY_BYTES]>,
    disks: &[DiskEntry],
) -> Option<Record> {
    let volume = bytes.get(8..32)?;
    let count = usize::from(be16(bytes, 64)?);
    let (parts, part) = (usize::from(*bytes.get(69)?).max(1), usize::from(*bytes.get(70)?));
    let part = if parts == 1 { 0 } else { part };
    if count == 0 || count > MEMBERS_MAX.min(members_max) || part >= parts {
        return None;
    }
    let slots = count.checked_mul(parts).filter(|slots| *slots <= MEMBERS_MAX)?;
    let sectors = be64(bytes, 72)?;
    let starts_at = members_max.checked_mul(4)?.checked_add(MEMBERS_AT)?;
    let mut elements = Vec::new();
    for place in 0..count {
        let reference = be32(bytes, place.checked_mul(4)?.checked_add(MEMBERS_AT)?)?;
        let start_sector = be64(bytes, place.checked_mul(8)?.checked_add(starts_at)?)?;
        let identity = (!matches!(reference, NONE | 0)).then(|| identity(reference));
        let entry = disks.iter().find(|disk| Some(&disk.identity) == identity.as_ref());
        let is_incomplete = entry.is_none_or(|disk| disk.has_failed || disk.is_rebuilding);
        elements.push(Element { identity, start_sector, sectors, is_incomplete });
    }
    let (state, initialised) = match entry {
        Some(entry) => (*entry.get(32)?, *entry.get(33)? & 3 == INITIALISED),
        None => (0, true),
    };
    let shape = match state & MORPHING {
        0 => shape(bytes, count, parts),
        _ => Err("it is being changed to another shape".to_owned()),
    };
    let name = entry.and_then(|entry| entry.get(48..64)).map(text).unwrap_or_default();
    let is_rebuilt = elements.iter().any(|element| {
        disks
            .iter()
            .any(|disk| Some(&disk.identity) == element.identity.as_ref() && disk.is_rebuilding)
    });
    Some(Record {
        volume: volume.to_vec(),
        name: if name.is_empty() { guid(volume) } else { name },
        generation: be32(bytes, 36)?.into(),
        shape,
        size_sectors: be64(bytes, 80)?,
        slots,
        first_slot: part.checked_mul(count)?,
        elements,
        state: match () {
            () if !initialised => State::Syncing,
            () if state & INCONSISTENT != 0 => State::Dirty,
            () if is_rebuilt => State::Rebuilding,
            () => State::Clean,
        },
    })
}

/// Level, layout and chunk in md's numbers, from DDF's level and qualifier.
fn shape(bytes: &[u8], count: usize, parts: usize) -> Result<(Level, u32, u32), String> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0xff);
    let (level, qualifier, secondary) = (byte(67), byte(68), byte(71));
    // Bytes of a block: 512, or blank before 2.0.
    let block_bytes = be16(bytes, 88).unwrap_or(0);
    if !matches!(block_bytes, 0 | 512 | u16::MAX) {
        return Err(format!("blocks of {block_bytes} bytes are not read"));
    }
    let chunk = 1u32.checked_shl(byte(66).into()).filter(|chunk| *chunk <= 1 << 20).unwrap_or(0);
    let near = u32::try_from(count).unwrap_or(0) | 0x100;
    let unknown = || {
        let secondary = match parts {
            1 => String::new(),
            _ => format!(", {parts} of them joined by secondary level {secondary}"),
        };
        Err(format!(
            "RAID level {level:#04x} with qualifier {qualifier} of {count} members{secondary} is none that braid reads"
        ))
    };
    if parts > 1 {
        // Striped mirrors, or "spanned" mirrors, which equal striped mirrors if all disks have one
        // size (`gather` checks that). md has no other combination of levels.
        return match (level, secondary) {
            (1, 0 | 3) if count > 1 => Ok((Level::Raid10, near, chunk)),
            _ => unknown(),
        };
    }
    match (level, qualifier) {
        (0, 0) => Ok((Level::Raid0, 0, chunk)),
        (1, 0 | 1) => Ok((Level::Raid1, 0, 0)),
        (4, 1) => Ok((Level::Raid4, 0, chunk)),
        // By qualifier, the first parity is on member 0 or on the last member. Data restarts at
        // member 0, or follows parity.
        (5, 0) => Ok((Level::Raid5, 1, chunk)),
        (5, 2) => Ok((Level::Raid5, 0, chunk)),
        (5, 3) => Ok((Level::Raid5, 2, chunk)),
        (6, 1) => Ok((Level::Raid6, 8, chunk)),
        (6, 2) => Ok((Level::Raid6, 9, chunk)),
        (6, 3) => Ok((Level::Raid6, 10, chunk)),
        // By qualifier, copies are on adjacent members, or one row further.
        (0x11, 0) => Ok((Level::Raid10, 0x102, chunk)),
        (0x11, 1) => Ok((Level::Raid10, 0x1_0201, chunk)),
        (0x0f, _) if count == 1 => Ok((Level::Raid1, 0, 0)),
        (0x1f, _) => Ok((Level::Linear, 0, 0)),
        _ => unknown(),
    }
}
