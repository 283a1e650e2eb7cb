//! Contents of a device, and the names by which the operator confirms their destruction.
//!
//! A recognised thing has its own name: an array's name (with or without `host:`) or a file
//! system's label. A thing without a name is called by its kind (`ext4`, `gpt`, ...), a nameless
//! array by its UUID. Each thing can also be called by its UUID, or without a UUID by
//! `KIND@MEMBER`. A name that several things have is refused, and the error lists these things.
//! Unrecognised bytes are `data`.
//!
//! Wiping removes signatures until no signature is recognised. Wiping runs first in memory
//! ([`signature_sectors`]), so that all writes are known before the first write.
//!
//! The callers decide and write; they are `create`, and a server that adds a device.

use std::collections::BTreeSet;
use std::ops::Range;

use braid_geometry::SECTOR_BYTES;
use braid_member::Member;
use braid_ondisk::{
    ForeignKind, ForeignSignature, Probe, Role, Snippet, Superblock, format_uuid, probe,
    probe_ranges,
};

use crate::probe::io_error;
use braid_console::error::CliError;

const SUPERBLOCK_SECTORS: u64 = 8;
/// Most signatures on one member; ZFS alone leaves 128.
const SIGNATURES_MAX: u32 = 1024;

/// One recognised thing on one member.
#[derive(Debug, Clone)]
pub struct Thing {
    /// The label of the member that has the thing.
    pub label: String,
    /// The thing's names, the recommended one first; the last is unique.
    pub names: Vec<String>,
    /// The thing's description.
    pub words: String,
    /// The thing's UUID, if it has one.
    pub uuid: Option<String>,
    /// The thing's kind; kind and UUID together identify the thing.
    pub kind: &'static str,
    /// The array whose sound member this thing is.
    pub array: Option<[u8; 16]>,
    /// The sector of a foreign signature; `None` for md's superblocks.
    pub foreign_sector: Option<u64>,
}

impl Thing {
    /// The thing's key: equal contents have equal keys.
    pub fn key(&self) -> (&'static str, Option<&str>) {
        (self.kind, self.uuid.as_deref())
    }

    /// The thing's unique name, with which the operator can confirm its destruction.
    pub fn own_name(&self) -> &str {
        self.names.last().expect("every thing has a name")
    }

    /// Whether `name` is one of the thing's names.
    pub fn answers(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The thing in one line.
    pub fn line(&self) -> String {
        match &self.uuid {
            Some(uuid) => format!("{}  {} ({uuid})", self.label, self.words),
            None => format!("{}  {}", self.label, self.words),
        }
    }
}

/// An existing member.
pub struct Existing {
    /// The device, open.
    pub device: Box<dyn Member>,
    /// The first and last bytes that the device has now.
    pub snippets: Vec<Snippet>,
    /// The superblocks and signatures on the device.
    pub probe: Probe,
}

impl Existing {
    /// Examines an open device.
    ///
    /// # Errors
    /// A read failed.
    pub fn look(device: Box<dyn Member>, label: &str) -> Result<Self, CliError> {
        let snippets = read_ends(device.as_ref(), label)?;
        let probe = probe(device.size_bytes(), &snippets);
        Ok(Self { device, snippets, probe })
    }

    /// Whether the device's first and last bytes are all zero.
    pub fn is_zero(&self) -> bool {
        self.snippets.iter().all(|snippet| snippet.bytes.iter().all(|byte| *byte == 0))
    }
}

/// The first and last bytes of a device, which contain all its signatures.
pub fn read_ends(device: &dyn Member, label: &str) -> Result<Vec<Snippet>, CliError> {
    let mut snippets = Vec::new();
    for range in probe_ranges(device.size_bytes()) {
        let length = usize::try_from(range.end - range.start).expect("under 400 KiB");
        let mut bytes = vec![0; length];
        device
            .read_at(&mut bytes, range.start)
            .map_err(|error| io_error(label, "reading", &error))?;
        snippets.push(Snippet { offset: range.start, bytes });
    }
    Ok(snippets)
}

/// Keys of the different things that have this name.
pub fn keys_of<'a>(name: &str, things: &'a [Thing]) -> BTreeSet<(&'static str, Option<&'a str>)> {
    things.iter().filter(|thing| thing.answers(name)).map(Thing::key).collect()
}

/// All things on a device that the operator calls `label`.
pub fn things(label: &str, existing: &Existing) -> Vec<Thing> {
    if existing.probe.is_blank() {
        let words = "data of a kind that braid does not know".to_string();
        let unknown = nameless_thing(label, "data", vec!["data".to_string()], words);
        return if existing.is_zero() { Vec::new() } else { vec![unknown] };
    }
    let superblocks = existing.probe.superblocks.iter().map(|found| match found {
        Ok(superblock) => array_thing(label, superblock),
        Err(error) => {
            let words = format!("md, damaged: {error}");
            nameless_thing(label, "md", vec!["md".to_string()], words)
        }
    });
    superblocks.chain(existing.probe.foreign.iter().map(|it| foreign_thing(label, it))).collect()
}

fn nameless_thing(label: &str, kind: &'static str, mut names: Vec<String>, words: String) -> Thing {
    names.push(format!("{kind}@{label}"));
    let label = label.to_string();
    Thing { label, names, words, uuid: None, kind, array: None, foreign_sector: None }
}

fn foreign_thing(label: &str, foreign: &ForeignSignature) -> Thing {
    let kind = foreign.kind.name();
    let (mut names, words) = match &foreign.label {
        Some(label) => (vec![label.clone()], format!("{kind} \"{label}\"")),
        None => (kind_names(foreign.kind), kind.to_string()),
    };
    let foreign_sector = Some(foreign.offset / SECTOR_BYTES);
    let Some(uuid) = &foreign.uuid else {
        return Thing { foreign_sector, ..nameless_thing(label, kind, names, words) };
    };
    names.push(uuid.clone());
    let (label, uuid) = (label.to_string(), Some(uuid.clone()));
    Thing { label, names, words, uuid, kind, array: None, foreign_sector }
}

fn array_thing(label: &str, superblock: &Superblock) -> Thing {
    let array = &superblock.array;
    let uuid = format_uuid(&array.uuid);
    let mut names = match array.name.split_once(':') {
        _ if array.name.is_empty() => Vec::new(),
        Some((_, bare)) if !bare.is_empty() => vec![bare.to_string(), array.name.clone()],
        _ => vec![array.name.clone()],
    };
    names.push(uuid.clone());
    let role = match superblock.state.role {
        Role::Active(slot) => format!("member {slot} of {}", array.raid_slots),
        Role::Spare => "a spare".to_string(),
        Role::Faulty => "a faulty member".to_string(),
        Role::Journal => "the journal".to_string(),
    };
    let name = if array.name.is_empty() { String::new() } else { format!("\"{}\" ", array.name) };
    Thing {
        label: label.to_string(),
        names,
        words: format!("md array {name}{}, {role} (md {})", array.level, superblock.version),
        uuid: Some(uuid),
        kind: "md array",
        array: Some(array.uuid),
        foreign_sector: None,
    }
}

fn kind_names(kind: ForeignKind) -> Vec<String> {
    let mut names = vec![kind.name().to_string()];
    if kind == ForeignKind::Ext {
        names.extend(["ext2", "ext3", "ext4"].map(String::from));
    }
    names
}

/// The sectors to zero so that no signature is recognised any more. Foreign signatures within
/// `kept_sectors` stay; md superblocks never stay.
pub fn signature_sectors(existing: &Existing, kept_sectors: &Range<u64>) -> BTreeSet<u64> {
    let mut snippets = existing.snippets.clone();
    let mut sectors = BTreeSet::new();
    let size_bytes = existing.device.size_bytes();
    for _ in 0..SIGNATURES_MAX {
        let found = probe(size_bytes, &snippets);
        let wiped: Vec<u64> = signatures(&found, kept_sectors)
            .filter(|sector| !sectors.contains(sector) && *sector < size_bytes / SECTOR_BYTES)
            .collect();
        if wiped.is_empty() {
            break;
        }
        for sector in wiped {
            zero_sector(&mut snippets, sector);
            sectors.insert(sector);
        }
    }
    sectors
}

/// The sectors of all signatures, except foreign signatures within `kept_sectors`.
fn signatures(found: &Probe, kept_sectors: &Range<u64>) -> impl Iterator<Item = u64> {
    let superblocks = found.superblocks.iter().flat_map(|found| {
        let offset_bytes = match found {
            Ok(superblock) => superblock.offset_bytes(),
            Err(error) => error.offset_bytes,
        };
        (0..SUPERBLOCK_SECTORS).map(move |sector| offset_bytes / SECTOR_BYTES + sector)
    });
    let foreign = found.foreign.iter().map(|foreign| foreign.offset / SECTOR_BYTES);
    superblocks.chain(foreign.filter(|sector| !kept_sectors.contains(sector)))
}

fn zero_sector(snippets: &mut [Snippet], sector: u64) {
    for snippet in snippets {
        let start = (sector * SECTOR_BYTES).checked_sub(snippet.offset);
        let Some(start) = start.and_then(|start| usize::try_from(start).ok()) else { continue };
        let length = snippet.bytes.len();
        if let Some(bytes) = snippet.bytes.get_mut(start..(start + 512).min(length)) {
            bytes.fill(0);
        }
    }
}
