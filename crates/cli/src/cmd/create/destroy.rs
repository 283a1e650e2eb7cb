//! What is on the members already, and whether all of it was named to be destroyed.
//!
//! A thing answers to its own name: an array's name (with or without `host:`), a file system's
//! label; without one to its kind (`ext4`, `gpt`, ...), a nameless array to its UUID. Everything
//! answers to its UUID, too, or without one to `KIND@MEMBER`; a name that several different things
//! have is refused, and these are given instead. Bytes that are not recognised are a thing, `data`.
//!
//! Wiping takes away signatures until nothing is recognised, first in memory
//! (`signature_sectors`), so that what will be written is known before anything is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_ondisk::{Foreign, ForeignKind, Probe, Role, Snippet, Superblock, format_uuid, probe};

use super::Args;
use super::opened::{Existing, Opened, Source};
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
#[derive(Debug, Clone)]
pub(super) struct Thing {
    /// The member.
    label: String,
    /// What it answers to, the one to be suggested first; the last is its own alone.
    names: Vec<String>,
    words: String,
    uuid: Option<String>,
    /// What it is; with the UUID, what tells it from others.
    kind: &'static str,
    /// It is a sound member of this array.
    array: Option<[u8; 16]>,
    /// Where a stranger's signature is; md's go wherever they are.
    foreign_sector: Option<u64>,
}

impl Thing {
    fn key(&self) -> (&'static str, Option<&str>) {
        (self.kind, self.uuid.as_deref())
    }

    fn own_name(&self) -> &str {
        self.names.last().expect("every thing has a name")
    }

    fn answers(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    fn line(&self) -> String {
        match &self.uuid {
            Some(uuid) => format!("{}  {} ({uuid})", self.label, self.words),
            None => format!("{}  {}", self.label, self.words),
        }
    }
}

/// A thing that was named, for the plan: once, with all members that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doomed {
    /// As it was named.
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) uuid: Option<String>,
    pub(super) members: Vec<String>,
}

/// Whether everything recognised was named, and nothing else, and each name means one thing.
/// Returns all of it, each under the name that was given.
pub(super) fn check(args: &Args, opened: &[Opened]) -> Result<Vec<(String, Thing)>, CliError> {
    let things: Vec<Thing> = opened.iter().flat_map(things).collect();
    for name in &args.destroy {
        match keys_of(name, &things).len() {
            0 => return Err(mismatch(args, name, &things)),
            1 => {}
            _ => return Err(ambiguous(args, name, &things)),
        }
    }
    let named =
        |thing: &Thing| args.destroy.iter().find(|name| thing.answers(name.as_str())).cloned();
    if things.iter().any(|thing| named(thing).is_none()) {
        return Err(holds_data(args, &things));
    }
    let named = things.into_iter().filter_map(|thing| Some((named(&thing)?, thing)));
    Ok(named.collect())
}

/// The different things that answer to a name.
fn keys_of<'a>(name: &str, things: &'a [Thing]) -> BTreeSet<(&'static str, Option<&'a str>)> {
    things.iter().filter(|thing| thing.answers(name)).map(Thing::key).collect()
}

/// What is destroyed, and what stays because it is within the sectors that are kept of its member.
pub(super) fn split(
    named: &[(String, Thing)],
    kept_sectors: &BTreeMap<&str, Range<u64>>,
) -> (Vec<Doomed>, Vec<Doomed>) {
    let stays = |thing: &Thing| {
        let kept = kept_sectors.get(thing.label.as_str());
        thing.foreign_sector.zip(kept).is_some_and(|(sector, kept)| kept.contains(&sector))
    };
    let (kept, destroyed): (Vec<_>, Vec<_>) = named.iter().partition(|(_, thing)| stays(thing));
    (merge(&destroyed), merge(&kept))
}

fn merge(named: &[&(String, Thing)]) -> Vec<Doomed> {
    let mut merged: Vec<Doomed> = Vec::new();
    for (name, thing) in named {
        let known = merged.iter_mut().find(|doomed| {
            (doomed.kind, doomed.uuid.as_deref()) == thing.key() && doomed.name == *name
        });
        match known {
            Some(doomed) if doomed.members.contains(&thing.label) => {}
            Some(doomed) => doomed.members.push(thing.label.clone()),
            None => merged.push(Doomed {
                name: name.clone(),
                kind: thing.kind,
                uuid: thing.uuid.clone(),
                members: vec![thing.label.clone()],
            }),
        }
    }
    merged
}

fn things(opened: &Opened) -> Vec<Thing> {
    let Source::Existing(existing) = &opened.source else { return Vec::new() };
    let label = opened.label.as_str();
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

/// A thing without a UUID.
fn nameless_thing(label: &str, kind: &'static str, mut names: Vec<String>, words: String) -> Thing {
    names.push(format!("{kind}@{label}"));
    let label = label.to_string();
    Thing { label, names, words, uuid: None, kind, array: None, foreign_sector: None }
}

fn foreign_thing(label: &str, foreign: &Foreign) -> Thing {
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

fn ambiguous(args: &Args, name: &str, things: &[Thing]) -> CliError {
    let what = format!("\"{name}\" is the name of several different things on these members");
    let mut error = CliError::new(Code::DestroyNameMismatch, what).about(name);
    let mut better = args.clone();
    better.destroy.retain(|other| other != name);
    for thing in things.iter().filter(|thing| thing.answers(name)) {
        error = error.because(thing.line());
        if !better.destroy.iter().any(|other| thing.answers(other)) {
            better.destroy.push(thing.own_name().to_string());
        }
    }
    error.remedy(Risk::Look, "See what is on them", examine(args)).remedy(
        Risk::Destroy,
        "To destroy all of them, name each",
        better.command_line(),
    )
}

fn mismatch(args: &Args, name: &str, things: &[Thing]) -> CliError {
    let what = format!("there is no \"{name}\" on these members to destroy");
    let mut error = CliError::new(Code::DestroyNameMismatch, what).about(name);
    for thing in things {
        error = error.because(thing.line());
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

fn holds_data(args: &Args, things: &[Thing]) -> CliError {
    let unnamed: Vec<&Thing> = things
        .iter()
        .filter(|thing| !args.destroy.iter().any(|name| thing.answers(name)))
        .collect();
    let what = format!("refusing to create \"{}\": these members already hold data", args.name);
    let mut error = CliError::new(Code::HoldsData, what).about(args.name.clone());
    for thing in &unnamed {
        error = error.because(thing.line());
    }
    let mut arrays: BTreeMap<[u8; 16], Vec<String>> = BTreeMap::new();
    for thing in &unnamed {
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
    for thing in unnamed {
        if better.destroy.iter().any(|name| thing.answers(name)) {
            continue;
        }
        let is_clear = |name: &&String| keys_of(name, things).len() == 1;
        let name = thing.names.iter().find(is_clear).map_or(thing.own_name(), String::as_str);
        better.destroy.push(name.to_string());
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

/// The sectors to zero so that nothing is recognised any more. Strangers within `kept_sectors` are
/// left; md superblocks never are.
pub(super) fn signature_sectors(existing: &Existing, kept_sectors: &Range<u64>) -> BTreeSet<u64> {
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

/// The sectors of everything found that is not kept.
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
