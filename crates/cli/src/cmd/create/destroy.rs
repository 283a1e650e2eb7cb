//! What is on the members already, and whether all of it was named to be destroyed.
//!
//! A thing answers to its own name: an array's name (with or without `host:`), a file system's
//! label; without one to its kind (`ext4`, `gpt`, ...), a nameless array to its UUID. Wiping takes
//! away signatures until nothing is recognised, first in memory (`signature_sectors`), so that what
//! will be written is known before anything is.

use std::collections::{BTreeMap, BTreeSet};

use braid_ondisk::{ForeignKind, Probe, Role, Snippet, Superblock, format_uuid, probe};

use super::Args;
use super::plan::{Existing, Opened, Source};
use crate::error::code::Code;
use crate::error::{CliError, Risk};
use crate::output::shell::shell_word;

/// Bytes in a sector.
const SECTOR_BYTES: u64 = 512;
/// Sectors of an md superblock of any version.
const SUPERBLOCK_SECTORS: u64 = 8;
/// Signatures on one member; ZFS alone leaves 128.
const SIGNATURES_MAX: u32 = 1024;

/// One recognised thing on one member.
struct Thing {
    label: String,
    /// What it answers to, the one to be suggested first.
    names: Vec<String>,
    words: String,
    /// It is a sound member of this array.
    array: Option<[u8; 16]>,
}

/// Whether everything recognised was named, and nothing else. Returns the names, each once.
pub(super) fn check(args: &Args, opened: &[Opened]) -> Result<Vec<String>, CliError> {
    let things: Vec<Thing> = opened.iter().flat_map(things).collect();
    let answers = |thing: &Thing, name: &String| thing.names.contains(name);
    if let Some(name) =
        args.destroy.iter().find(|name| !things.iter().any(|thing| answers(thing, name)))
    {
        return Err(mismatch(args, name, &things));
    }
    let unnamed: Vec<&Thing> = things
        .iter()
        .filter(|thing| !args.destroy.iter().any(|name| answers(thing, name)))
        .collect();
    if unnamed.is_empty() {
        let names: BTreeSet<&String> = args.destroy.iter().collect();
        return Ok(names.into_iter().cloned().collect());
    }
    Err(holds_data(args, &unnamed))
}

fn things(opened: &Opened) -> Vec<Thing> {
    let Source::Existing(Existing { probe, .. }) = &opened.source else { return Vec::new() };
    let mut things = Vec::new();
    for found in &probe.superblocks {
        things.push(match found {
            Ok(superblock) => array_thing(&opened.label, superblock),
            Err(error) => Thing {
                label: opened.label.clone(),
                names: vec!["md".to_string()],
                words: format!("md, damaged: {error}"),
                array: None,
            },
        });
    }
    for foreign in &probe.foreign {
        let (names, words) = match &foreign.label {
            Some(label) => (vec![label.clone()], format!("{} \"{label}\"", foreign.kind)),
            None => (kind_names(foreign.kind), foreign.kind.to_string()),
        };
        things.push(Thing { label: opened.label.clone(), names, words, array: None });
    }
    things
}

fn array_thing(label: &str, superblock: &Superblock) -> Thing {
    let array = &superblock.array;
    let uuid = format_uuid(&array.uuid);
    let names = match array.name.split_once(':') {
        _ if array.name.is_empty() => vec![uuid.clone()],
        Some((_, bare)) if !bare.is_empty() => vec![bare.to_string(), array.name.clone()],
        _ => vec![array.name.clone()],
    };
    let role = match superblock.state.role {
        Role::Active(slot) => format!("member {slot} of {}", array.raid_slots),
        Role::Spare => "a spare".to_string(),
        Role::Faulty => "a faulty member".to_string(),
        Role::Journal => "the journal".to_string(),
    };
    let name = if array.name.is_empty() { uuid } else { format!("\"{}\"", array.name) };
    Thing {
        label: label.to_string(),
        names,
        words: format!("md array {name} {}, {role} (md {})", array.level, superblock.version),
        array: Some(array.uuid),
    }
}

fn kind_names(kind: ForeignKind) -> Vec<String> {
    let mut names = vec![kind.name().to_string()];
    if kind == ForeignKind::Ext {
        names.extend(["ext2", "ext3", "ext4"].map(String::from));
    }
    names
}

fn mismatch(args: &Args, name: &str, things: &[Thing]) -> CliError {
    let what = format!("there is no \"{name}\" on these members to destroy");
    let mut error = CliError::new(Code::DestroyNameMismatch, what).about(name);
    for thing in things {
        error = error.because(format!("{}  {}", thing.label, thing.words));
    }
    if things.is_empty() {
        let mut better = args.clone();
        better.destroy.clear();
        return error.because("nothing was recognised on any of them").remedy(
            Risk::Change,
            "Create without it",
            better.command_line(),
        );
    }
    error.remedy(Risk::Look, "See what is on them", examine(args))
}

fn holds_data(args: &Args, unnamed: &[&Thing]) -> CliError {
    let what = format!("refusing to create \"{}\": these members already hold data", args.name);
    let mut error = CliError::new(Code::HoldsData, what).about(args.name.clone());
    for thing in unnamed {
        error = error.because(format!("{}  {}", thing.label, thing.words));
    }
    let mut arrays: BTreeMap<[u8; 16], Vec<String>> = BTreeMap::new();
    for thing in unnamed {
        if let Some(uuid) = thing.array {
            arrays.entry(uuid).or_default().push(shell_word(&thing.label).into_owned());
        }
    }
    for mut members in arrays.into_values() {
        members.dedup();
        let command = format!("braid serve {}", members.join(" "));
        error = error.remedy(Risk::Change, "Serve what is there", command);
    }
    let mut better = args.clone();
    for name in unnamed.iter().filter_map(|thing| thing.names.first()) {
        if !better.destroy.contains(name) {
            better.destroy.push(name.clone());
        }
    }
    error.remedy(Risk::Look, "See what is on them", examine(args)).remedy(
        Risk::Destroy,
        "To destroy it, name it",
        better.command_line(),
    )
}

fn examine(args: &Args) -> String {
    let labels = args.members.iter().map(|path| path.display().to_string());
    let given = labels.filter(|label| label != "missing");
    let words: Vec<String> = given.map(|label| shell_word(&label).into_owned()).collect();
    format!("braid examine {}", words.join(" "))
}

/// The sectors to zero so that nothing is recognised any more. With `keeps_data` only md
/// superblocks go: what else is found is then the contents of the array that is made again.
pub(super) fn signature_sectors(existing: &Existing, keeps_data: bool) -> BTreeSet<u64> {
    let mut snippets = existing.snippets.clone();
    let mut sectors = BTreeSet::new();
    let size_bytes = existing.device.size_bytes();
    for _ in 0..SIGNATURES_MAX {
        let found = probe(size_bytes, &snippets);
        let wiped: Vec<u64> = signatures(&found, keeps_data)
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

/// The sectors of everything found.
fn signatures(found: &Probe, keeps_data: bool) -> impl Iterator<Item = u64> {
    let superblocks = found.superblocks.iter().flat_map(|found| {
        let offset_bytes = match found {
            Ok(superblock) => superblock.offset_bytes(),
            Err(error) => error.offset_bytes,
        };
        (0..SUPERBLOCK_SECTORS).map(move |sector| offset_bytes / SECTOR_BYTES + sector)
    });
    let foreign = found.foreign.iter().filter(move |_| !keeps_data);
    superblocks.chain(foreign.map(|foreign| foreign.offset / SECTOR_BYTES))
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
