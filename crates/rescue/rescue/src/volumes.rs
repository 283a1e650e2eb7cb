//! Volumes of LVM on the arrays, their content, and the arrays that each needs.
//!
//! ```text
//!   arrays ─▶ physical volumes on them ─▶ groups (braid-lvm) ─▶ volumes
//!     ├─▶ content of each (braid-signatures)
//!     └─▶ --serve: an export VG-LV each
//! ```
//!
//! A group may lie on several arrays, as Synology's SHR has it. Bytes on missing arrays are lost;
//! all other bytes are read.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use braid_lvm::{Group, LogicalVolume, Map, Shape, groups, physical, thin};
use braid_signatures::Contents;
use serde_json::{Value, json};

use super::config::RescueConfig;
use super::content_words::{content_words, signature_json};
use super::part_export::PartExport;
use super::rescue_array::RescueArray;
use super::volume_export::VolumePlaces;
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_console::output::table::{Align, Table};

struct ArrayRange {
    array: usize,
    bytes: Range<u64>,
}

struct Volume {
    /// The index of the volume's volume group.
    group: usize,
    /// The index of the volume within its volume group.
    index: usize,
    /// The name of the volume's export.
    export: String,
    /// The volume's content, or why it is not read.
    contents: Result<Contents, String>,
    /// The arrays that hold the volume's bytes.
    arrays: BTreeSet<usize>,
    /// The missing physical volumes of the group that held some of the volume's bytes.
    missing: Vec<String>,
}

pub(super) struct Volumes {
    groups: Vec<Group>,
    ranges: Vec<ArrayRange>,
    volumes: Vec<Volume>,
    /// Faults in the metadata of physical volumes, each with the number of the array.
    faults: Vec<(usize, String)>,
}

impl Volumes {
    pub(super) fn look(found: &[RescueArray]) -> Self {
        let (mut ranges, mut physical_volumes, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (array, one) in found.iter().enumerate() {
            let (Ok(contents), Some(reader)) = (&one.contents, &one.reader) else { continue };
            for volume in &contents.volumes {
                let bytes = volume.bytes.clone();
                let mut read = |offset: u64, length: usize| {
                    let end = offset.checked_add(length as u64)?;
                    let is_within = end <= bytes.end - bytes.start;
                    is_within.then(|| reader.read(bytes.start + offset, length)).flatten()
                };
                match physical(bytes.end - bytes.start, &mut read) {
                    None => {}
                    Some(Err(fault)) => faults.push((array, fault.to_string())),
                    Some(Ok(one)) => {
                        let same = |other: &braid_lvm::PhysicalVolume| other.uuid == one.uuid;
                        if physical_volumes.iter().any(same) {
                            let why = format!(
                                "the physical volume {} exists twice, so neither is believed; \
                                 look at one of the arrays alone (--array)",
                                one.uuid
                            );
                            faults.push((array, why));
                        }
                        faults.extend(one.faults.iter().map(|fault| (array, fault.to_string())));
                        ranges.push(ArrayRange { array, bytes });
                        physical_volumes.push(one);
                    }
                }
            }
        }
        let mut volumes =
            Self { groups: groups(&physical_volumes), ranges, volumes: Vec::new(), faults };
        let all = volumes.groups.iter().enumerate();
        let all =
            all.flat_map(|(group, one)| (0..one.volumes.len()).map(move |index| (group, index)));
        let is_listed = |(group, index): &(usize, usize)| {
            let volume = &volumes.groups[*group].volumes[*index];
            volume.is_visible && volume.shape != Shape::Pool
        };
        let listed: Vec<(usize, usize)> = all.filter(is_listed).collect();
        volumes.volumes = listed.into_iter().map(|one| volumes.volume(one, found)).collect();
        volumes
    }

    /// Whether any pool is of QNAP's own kind.
    pub(super) fn is_of_qnap(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.pools).any(|pool| pool.is_of_qnap)
    }

    /// Whether any group is on several arrays.
    pub(super) fn has_bands(&self) -> bool {
        self.groups.iter().any(|group| {
            let ranges = group.parts.iter().filter_map(|part| self.ranges.get(part.device?));
            ranges.map(|range| range.array).collect::<BTreeSet<_>>().len() > 1
        })
    }

    fn logical(&self, volume: &Volume) -> (&Group, &LogicalVolume) {
        let group = &self.groups[volume.group];
        (group, &group.volumes[volume.index])
    }

    fn read_part(
        &self,
        group: &Group,
        found: &[RescueArray],
        (part, offset, length): (usize, u64, usize),
    ) -> Option<Vec<u8>> {
        let range = self.ranges.get(group.parts.get(part)?.device?)?;
        let end = offset.checked_add(length as u64)?;
        let reader = found.get(range.array)?.reader.as_ref()?;
        let is_within = end <= range.bytes.end - range.bytes.start;
        is_within.then(|| reader.read(range.bytes.start + offset, length)).flatten()
    }

    /// The map of a volume to arrays; for a thin volume only the part for the wanted bytes.
    fn map(
        &self,
        (group, volume): (&Group, &LogicalVolume),
        found: &[RescueArray],
        wanted: &Range<u64>,
    ) -> Result<(Map, u64), String> {
        match &volume.shape {
            Shape::Direct(map) | Shape::Copy(map) => Ok((map.clone(), 0)),
            Shape::Unsupported(why) => Err(why.to_string()),
            Shape::Pool => Err("a pool".to_owned()),
            Shape::Thin { pool, device } => {
                let pool = &group.pools[*pool];
                if let Err(why) = pool.metadata.as_ref().and(pool.data.as_ref().map(|_| ())) {
                    return Err(format!("of its pool {}: {why}", pool.name));
                }
                let mut read = |part: usize, offset: u64, length: usize| {
                    self.read_part(group, found, (part, offset, length))
                };
                let mapped = thin::map(pool, (*device, volume.size_bytes), wanted, &mut read);
                mapped.map_err(|fault| fault.to_string())
            }
        }
    }

    fn volume(&self, (group, index): (usize, usize), found: &[RescueArray]) -> Volume {
        let (of, logical) = (&self.groups[group], &self.groups[group].volumes[index]);
        let export = format!("{}-{}", of.name, logical.name);
        let first = self.map((of, logical), found, &(0..1));
        let parts = first.as_ref().map(|(map, _)| map.parts()).unwrap_or_default();
        let range = |part: usize| self.ranges.get(of.parts[part].device?);
        let arrays = parts.0.iter().filter_map(|part| Some(range(*part)?.array)).collect();
        let missing = parts
            .1
            .iter()
            .map(|part| format!("{} ({})", of.parts[*part].name, of.parts[*part].uuid));
        let missing = missing.collect();
        let contents = first.map(|_| self.contents((of, logical), found));
        Volume { group, index, export, contents, arrays, missing }
    }

    /// The content of a volume. A thin volume is mapped only for the ranges that are read.
    fn contents(
        &self,
        (group, logical): (&Group, &LogicalVolume),
        found: &[RescueArray],
    ) -> Contents {
        let known: RefCell<Option<Map>> = RefCell::new(None);
        let mut read = |offset: u64, length: usize| {
            let end = offset.checked_add(length as u64)?;
            let is_direct = !matches!(logical.shape, Shape::Thin { .. });
            let mut known = known.borrow_mut();
            if known.is_none() || !is_direct {
                *known = self.map((group, logical), found, &(offset..end)).ok().map(|(map, _)| map);
            }
            let map = known.as_ref()?;
            map.read(offset, length, &mut |part, offset, length| {
                self.read_part(group, found, (part, offset, length))
            })
        };
        braid_signatures::look(logical.size_bytes, &mut read)
    }

    fn words(&self, volume: &Volume) -> String {
        let (_, logical) = self.logical(volume);
        let what = match &volume.contents {
            Err(why) => format!("not read: {why}"),
            Ok(contents) => {
                let words: Vec<String> = contents.volumes.iter().map(content_words).collect();
                let table = if contents.table.is_some() { "a table of partitions: " } else { "" };
                format!("{table}{}", words.join("; "))
            }
        };
        let how = match &logical.shape {
            Shape::Thin { .. } => ", thin",
            Shape::Copy(_) => ", the first of its copies",
            Shape::Direct(_) | Shape::Pool | Shape::Unsupported(_) => "",
        };
        let missing = match volume.missing.is_empty() {
            true => String::new(),
            false => {
                format!("; the data on {}, which is not here, is lost", volume.missing.join(", "))
            }
        };
        format!("{what}{how}{missing}")
    }

    /// Lines of the report on one array: the volumes that are on it.
    pub(super) fn lines_of(&self, array: usize, found: &[RescueArray]) -> Vec<String> {
        let faults = self.faults.iter().filter(|(of, _)| *of == array);
        let faults = faults.map(|(_, why)| format!("of LVM: {why}"));
        let here = self.volumes.iter().filter(|volume| volume.arrays.contains(&array));
        let line = |volume: &Volume| {
            let size = format_size(self.logical(volume).1.size_bytes);
            let others = volume.arrays.iter().filter(|other| **other != array);
            let others: Vec<&str> = others.map(|other| found[*other].group.name.as_str()).collect();
            let with = match others.is_empty() {
                true => String::new(),
                false => format!("; some of it is on {}", others.join(", ")),
            };
            format!("{}  {size}  {}{with}", volume.export, self.words(volume))
        };
        let left_out = self.groups.iter().filter(|group| group.left_out > 0);
        let left_out = left_out.map(|group| {
            format!("{} more volumes of {} are not examined", group.left_out, group.name)
        });
        faults.chain(here.map(line)).chain(left_out).collect()
    }

    /// The report's list of volumes over all arrays; empty if one array's lines name them all.
    pub(super) fn list(&self, args: &RescueConfig, found: &[RescueArray]) -> Vec<String> {
        if found.len() < 2 && self.volumes.is_empty() {
            return Vec::new();
        }
        let mut table = Table::new(&[
            ("volume", Align::Left),
            ("size", Align::Right),
            ("holds", Align::Left),
            ("on", Align::Left),
        ]);
        for one in found {
            let Ok(contents) = &one.contents else { continue };
            for volume in &contents.volumes {
                let number = volume.partition.as_ref().map(|partition| partition.number);
                let name = number.map_or_else(
                    || one.group.name.clone(),
                    |number| format!("{}-p{number}", one.group.name),
                );
                let is_physical =
                    volume.signatures.iter().any(|signature| signature.facts.is_volume_manager);
                if is_physical && !self.volumes.is_empty() {
                    continue;
                }
                let size = format_size(volume.bytes.end - volume.bytes.start);
                table.row([&*name, &size, &content_words(volume), &one.group.name]);
            }
        }
        for volume in &self.volumes {
            let size = format_size(self.logical(volume).1.size_bytes);
            let on: Vec<&str> =
                volume.arrays.iter().map(|array| found[*array].group.name.as_str()).collect();
            table.row([&*volume.export, &size, &self.words(volume), &on.join(", ")]);
        }
        let mut lines: Vec<String> = table.render("").lines().map(ToOwned::to_owned).collect();
        let is_any_readable = found.iter().any(RescueArray::is_readable);
        if is_any_readable {
            lines.push("Each is an export of its own, for reading:".to_owned());
            lines.push(format!("  {}", printable(&args.command("--serve --read-only"))));
        }
        lines
    }

    /// Exports for the LVM volumes, fully mapped. Arrays are numbered as served, by `order`.
    pub(super) fn served(&self, found: &[RescueArray], order: &[usize]) -> Vec<PartExport> {
        let mut parts = Vec::new();
        for volume in &self.volumes {
            let (group, logical) = self.logical(volume);
            let number = |array: usize| order.iter().position(|one| *one == array);
            let is_served = volume.arrays.iter().any(|array| number(*array).is_some());
            if volume.contents.is_err() || !is_served {
                continue;
            }
            let wanted = 0..logical.size_bytes;
            let (map, lost) = match self.map((group, logical), found, &wanted) {
                Ok(mapped) => mapped,
                Err(why) => {
                    errln!(
                        "warning: {} is not served: {}",
                        printable(&volume.export),
                        printable(&why)
                    );
                    continue;
                }
            };
            if lost > 0 {
                let name = printable(&volume.export).into_owned();
                errln!(
                    "warning: the place of a part of {name} is unknown, because its pool's \
                     metadata is damaged; reads there fail"
                );
            }
            let place = |part: &braid_lvm::Part| {
                let range = self.ranges.get(part.device?)?;
                Some((number(range.array)?, range.bytes.clone()))
            };
            let is_read_only = logical.is_read_only;
            let places =
                VolumePlaces { map, parts: group.parts.iter().map(place).collect(), is_read_only };
            parts.push(PartExport::mapped(volume.export.clone(), places, self.words(volume)));
        }
        parts
    }

    pub(super) fn to_json(&self, found: &[RescueArray]) -> Value {
        let one = |volume: &Volume| {
            let (group, logical) = self.logical(volume);
            let signatures = volume.contents.as_ref().ok();
            let signatures = signatures
                .into_iter()
                .flat_map(|contents| &contents.volumes)
                .flat_map(|one| &one.signatures);
            let on = volume.arrays.iter().map(|array| found[*array].group.name.as_str());
            json!({
                "export": volume.export,
                "group": group.name,
                "name": logical.name,
                "uuid": logical.uuid,
                "size_bytes": logical.size_bytes,
                "thin": matches!(logical.shape, Shape::Thin { .. }),
                "arrays": on.collect::<Vec<_>>(),
                "missing_parts": volume.missing,
                "things": signatures.map(signature_json).collect::<Vec<_>>(),
                "not_read": volume.contents.as_ref().err(),
            })
        };
        self.volumes.iter().map(one).collect()
    }
}
