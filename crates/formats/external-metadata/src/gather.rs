//! Combines the labels of several disks: for each volume, which disk has which slot.
//!
//! ```text
//!   labels ─▶ containers ─▶ the newest record of each part ─▶ slots ─▶ their disks
//! ```
//!
//! The disk of a slot is found by identity, else by elimination.
//!
//! This file decides from labels and the serial numbers that the caller knows, without I/O.

use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::Level;

use crate::label::{Element, Kind, Label, Record, State};

/// A disk with its label.
#[derive(Debug, Clone, Copy)]
pub struct ScannedDisk<'a> {
    /// The disk's label; `None` without valid metadata.
    pub label: Option<&'a Label>,
    /// The disk's serial number, if the caller knows it.
    pub serial: Option<&'a str>,
}

/// A volume, with the disks that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The kind of the volume's metadata.
    pub kind: Kind,
    /// A number for the volume, which is the same in every run.
    pub id: [u8; 16],
    /// The volume's name.
    pub name: String,
    /// Level, layout in md's numbers, chunk sectors (0 for a mirror). An error says why braid does
    /// not read the volume.
    pub shape: Result<(Level, u32, u32), String>,
    /// Sectors of the whole volume.
    pub size_sectors: u64,
    /// The volume's slots, by slot number.
    pub slots: Vec<Slot>,
    /// The present disks that have a slot, whether their label is the newest or older.
    pub occupants: Vec<Occupant>,
    /// Present disks of the volume's container that could not be identified.
    pub unknown: Vec<usize>,
    /// Whether the volume is clean, or what was interrupted.
    pub state: State,
    /// The generation of the newest record.
    pub generation: u64,
}

/// A slot of a volume, from the newest record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The identity of the slot's disk; empty if the slot has none.
    pub identity: String,
    /// The first sector of the slot's data on its disk.
    pub start_sector: u64,
    /// The sectors of the slot's data.
    pub sectors: u64,
    /// Whether the slot's disk lacks a part of the data.
    pub is_incomplete: bool,
}

/// A disk that has a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// The disk's index in the input.
    pub disk: usize,
    /// The number of the disk's slot.
    pub slot: usize,
    /// The first sector of the slot's data, by the disk's own label.
    pub start_sector: u64,
    /// The sectors of the slot's data.
    pub sectors: u64,
    /// The generation of the disk's own record.
    pub generation: u64,
    /// Whether the disk is stale: its record is older than the newest record, or the newest record
    /// has given the disk up.
    pub is_stale: bool,
}

/// The volumes of all disks, by container, in the order of the container's table.
#[must_use]
pub fn gather(disks: &[ScannedDisk<'_>]) -> Vec<Array> {
    let mut containers: BTreeMap<(Kind, &[u8]), Vec<usize>> = BTreeMap::new();
    for (disk, scanned) in disks.iter().enumerate() {
        let Some(label) = scanned.label else { continue };
        containers.entry((label.kind, label.container.as_slice())).or_default().push(disk);
    }
    containers.values().flat_map(|members| of_container(disks, members)).collect()
}

fn of_container(disks: &[ScannedDisk<'_>], members: &[usize]) -> Vec<Array> {
    let label = |disk: usize| disks.get(disk).and_then(|scanned| scanned.label);
    let labels = || members.iter().filter_map(|disk| Some((*disk, label(*disk)?)));
    let newest_label = labels().map(|(_, label)| label.generation).max().unwrap_or(0);
    let mut order: Vec<&[u8]> = Vec::new();
    for (_, label) in labels() {
        // A volume that only an older table has was deleted since. DDF has no reliable count of
        // tables, so with DDF every volume counts.
        let counts = label.kind == Kind::Ddf || label.generation == newest_label;
        let volumes = label.records.iter().map(|record| record.volume.as_slice());
        for volume in volumes.filter(|_| counts) {
            if !order.contains(&volume) {
                order.push(volume);
            }
        }
    }
    let owners = owners(disks, members);
    let of_volume = |volume: &&[u8]| of_volume(disks, (members, &owners), volume);
    order.iter().filter_map(of_volume).collect()
}

fn owners(disks: &[ScannedDisk<'_>], members: &[usize]) -> BTreeMap<usize, String> {
    let mut owners: BTreeMap<usize, String> = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let label = |disk: &usize| disks.get(*disk).and_then(|scanned| scanned.label);
    for disk in members {
        let serial = disks.get(*disk).and_then(|scanned| scanned.serial).map(ToOwned::to_owned);
        let own = label(disk).and_then(|label| label.own.clone()).or(serial);
        // Two disks may have one identity. No rule tells which disk is right, so both disks keep
        // the identity.
        if let Some(own) = own {
            taken.insert(own.clone());
            owners.insert(*disk, own);
        }
    }
    // If one disk is unidentified and one identity has no disk, the two belong together.
    let nameless: Vec<&usize> = members.iter().filter(|disk| !owners.contains_key(disk)).collect();
    if let [one] = nameless.as_slice()
        && let Some(label) = label(one)
    {
        let is_free = |identity: &&String| !taken.contains(*identity);
        let free: Vec<&String> = label
            .disks
            .iter()
            .filter(|disk| !disk.has_failed)
            .map(|disk| &disk.identity)
            .filter(is_free)
            .collect();
        if let [identity] = free.as_slice() {
            owners.insert(**one, (*identity).clone());
        }
    }
    owners
}

fn of_volume(
    disks: &[ScannedDisk<'_>],
    (members, owners): (&[usize], &BTreeMap<usize, String>),
    volume: &[u8],
) -> Option<Array> {
    let label = |disk: usize| disks.get(disk).and_then(|scanned| scanned.label);
    let records_of = |disk: usize| {
        let records = label(disk).map_or(&[][..], |label| label.records.as_slice());
        records.iter().filter(move |record| record.volume == volume)
    };
    // The newest record of each part of the volume.
    let mut parts: BTreeMap<usize, &Record> = BTreeMap::new();
    for record in members.iter().flat_map(|disk| records_of(*disk)) {
        let known = parts.entry(record.first_slot).or_insert(record);
        if known.generation < record.generation {
            *known = record;
        }
    }
    let newest = parts.values().max_by_key(|record| record.generation).copied()?;
    let mut slots =
        vec![
            Slot { identity: String::new(), start_sector: 0, sectors: 0, is_incomplete: true };
            newest.slots
        ];
    for record in parts.values().filter(|record| record.slots == newest.slots) {
        for (slot, element) in slots.iter_mut().skip(record.first_slot).zip(&record.elements) {
            *slot = Slot {
                identity: element.identity.clone().unwrap_or_default(),
                start_sector: element.start_sector,
                sectors: element.sectors,
                is_incomplete: element.is_incomplete,
            };
        }
    }
    let element = |disk: usize, owner: &str| -> Option<(usize, &Record, &Element)> {
        let mut all = records_of(disk).filter(|record| record.slots == newest.slots);
        all.find_map(|record| {
            let is_own = |element: &Element| element.identity.as_deref() == Some(owner);
            let place = record.elements.iter().position(is_own)?;
            let slot = record.first_slot.checked_add(place)?;
            Some((slot, record, record.elements.get(place)?))
        })
    };
    let mut occupants: Vec<Occupant> = Vec::new();
    for (disk, owner) in members.iter().filter_map(|disk| Some((*disk, owners.get(disk)?))) {
        let Some((slot, record, element)) = element(disk, owner) else { continue };
        let counted = slots.get(slot).is_some_and(|slot| slot.identity == *owner);
        let of_part = parts.get(&record.first_slot).map_or(0, |part| part.generation);
        occupants.push(Occupant {
            disk,
            slot,
            start_sector: element.start_sector,
            sectors: element.sectors,
            generation: record.generation,
            is_stale: !counted || record.generation < of_part,
        });
    }
    let mut unknown: Vec<usize> =
        members.iter().copied().filter(|disk| !owners.contains_key(disk)).collect();
    // In a mirror a disk's identity does not matter if every disk of the container is in the mirror
    // and holds all data. A spare has the same label, but holds no data.
    let is_whole = |disk: &usize| {
        let table = label(*disk).map_or(&[][..], |label| label.disks.as_slice());
        let is_in = |identity: &String| slots.iter().any(|slot| slot.identity == *identity);
        table.len() == slots.len() && table.iter().all(|entry| is_in(&entry.identity))
    };
    if matches!(newest.shape, Ok((Level::Raid1, ..)))
        && slots.iter().all(|slot| !slot.is_incomplete)
    {
        unknown.retain(|disk| {
            let own = records_of(*disk).next().filter(|own| own.generation == newest.generation);
            !own.is_some_and(|own| {
                is_whole(disk) && place_in_mirror(*disk, own, &slots, &mut occupants)
            })
        });
    }
    let mut shape = newest.shape.clone();
    let sectors = || slots.iter().map(|slot| slot.sectors).filter(|sectors| *sectors > 0);
    if matches!(shape, Ok((Level::Raid10, ..))) && sectors().min() != sectors().max() {
        shape = Err("its mirrors are of different sizes, one behind the other".to_owned());
    }
    Some(Array {
        kind: label(*members.first()?)?.kind,
        id: id(label(*members.first()?)?, volume),
        name: newest.name.clone(),
        shape,
        size_sectors: newest.size_sectors,
        slots,
        occupants,
        unknown,
        state: newest.state,
        generation: newest.generation,
    })
}

/// Gives a disk of a mirror a free slot; returns `false` if the mirror has no free slot.
fn place_in_mirror(
    disk: usize,
    own: &Record,
    slots: &[Slot],
    occupants: &mut Vec<Occupant>,
) -> bool {
    let is_free = |number: usize| {
        !occupants.iter().any(|occupant| occupant.slot == number && !occupant.is_stale)
    };
    let mut free = slots.iter().enumerate().filter(|(number, _)| is_free(*number));
    let Some((number, slot)) = free.next() else { return false };
    let (start_sector, sectors) = (slot.start_sector, slot.sectors);
    let (generation, is_stale) = (own.generation, false);
    occupants.push(Occupant { disk, slot: number, start_sector, sectors, generation, is_stale });
    true
}

/// 16 bytes that identify a volume of a container: FNV-1a over the volume's identity, twice.
fn id(label: &Label, volume: &[u8]) -> [u8; 16] {
    let mut id = [0; 16];
    for (half, basis) in
        id.chunks_exact_mut(8).zip([0xcbf2_9ce4_8422_2325u64, 0x6c62_272e_07bb_0142])
    {
        let kind = label.kind.name().as_bytes();
        let all = kind.iter().chain(&label.container).chain(volume);
        let sum =
            all.fold(basis, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        half.copy_from_slice(&sum.to_be_bytes());
    }
    id
}
