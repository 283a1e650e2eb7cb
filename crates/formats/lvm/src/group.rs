//! A group of physical volumes, and its logical volumes.
//!
//! Each physical volume has a text that describes the whole group at the time of writing: the
//! newest counts. A logical volume may be on another logical volume (copies, pools). Such
//! references are followed with a limit on steps, so that circles end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::SECTOR_BYTES;
use crate::fault::UnreadReason;
use crate::group_metadata::GroupMetadata;
use crate::limits::{NAME_BYTES_MAX, NESTING_MAX, PARTS_MAX, STEPS_MAX, STRIPES_MAX, VOLUMES_MAX};
use crate::map::{Leg, Map, Piece, Rule};
use crate::physical::PhysicalVolume;
use crate::text::{Section, Value};

/// One physical volume of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The part's name in the group, such as `pv0`.
    pub name: String,
    /// The part's UUID.
    pub uuid: String,
    /// The index of the physical volume; `None` if the physical volume is missing.
    pub device: Option<usize>,
    /// The first byte of the part's extents on its device.
    pub start_bytes: u64,
    /// The number of extents on the physical volume.
    pub extents: u64,
    /// Whether the device ends before the part's extents do.
    pub is_cut: bool,
}

/// The kind of a logical volume, and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// The volume's bytes are at fixed places.
    Direct(Map),
    /// The volume has several copies, and this is the map of the first copy.
    Copy(Map),
    /// The volume's bytes are in blocks of a pool.
    Thin {
        /// Index of the pool.
        pool: usize,
        /// The volume's number in the pool.
        device: u64,
    },
    /// The volume is a pool of thin volumes.
    Pool,
    /// The volume is not supported.
    Unsupported(UnreadReason),
}

/// A logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalVolume {
    /// The volume's name in the group.
    pub name: String,
    /// The volume's UUID.
    pub uuid: String,
    /// The volume's size in bytes.
    pub size_bytes: u64,
    /// Whether the operator created the volume; otherwise it is an internal part of another volume.
    pub is_visible: bool,
    /// Whether the volume may not be written: its owner chose so, or a write would diverge from its
    /// copies or change a snapshot.
    pub is_read_only: bool,
    /// The volume's kind, and where its bytes are.
    pub shape: Shape,
}

/// A pool with the data of thin volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The pool's name in the group.
    pub name: String,
    /// Whether the pool has QNAP's own format.
    pub is_of_qnap: bool,
    /// The map of the volume with the pool's metadata.
    pub metadata: Result<Map, UnreadReason>,
    /// The maps of the volumes with the pool's data: one, or QNAP's tiers by number.
    pub data: Result<Vec<Option<Map>>, UnreadReason>,
}

/// A volume group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// The group's UUID.
    pub uuid: String,
    /// The number of changes to the group.
    pub sequence: u64,
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// The group's physical volumes, including missing ones.
    pub parts: Vec<Part>,
    /// The group's logical volumes, by name.
    pub volumes: Vec<LogicalVolume>,
    /// The group's pools.
    pub pools: Vec<Pool>,
    /// The number of logical volumes beyond the limit, which are not read.
    pub left_out: usize,
}

/// The groups to which these physical volumes belong, by name.
#[must_use]
pub fn groups(physical: &[PhysicalVolume]) -> Vec<Group> {
    let mut newest: BTreeMap<&str, &GroupMetadata> = BTreeMap::new();
    for metadata in physical.iter().flat_map(|one| &one.metadata) {
        let known = newest.entry(&metadata.uuid).or_insert(metadata);
        if metadata.sequence > known.sequence {
            *known = metadata;
        }
    }
    let mut groups: Vec<Group> = newest.into_values().map(|one| group(one, physical)).collect();
    groups.sort_by(|one, other| (&one.name, &one.uuid).cmp(&(&other.name, &other.uuid)));
    groups
}

fn group(metadata: &GroupMetadata, physical: &[PhysicalVolume]) -> Group {
    let section = &metadata.section;
    let parts: Vec<Part> = section
        .section("physical_volumes")
        .into_iter()
        .flat_map(Section::sections)
        .take(PARTS_MAX)
        .map(|(name, section)| part(name, section, metadata.extent_bytes, physical))
        .collect();
    let volumes = || section.section("logical_volumes").into_iter().flat_map(Section::sections);
    let total = volumes().count();
    let mut reader = GroupReader {
        extent_bytes: metadata.extent_bytes,
        parts: &parts,
        by_name: parts
            .iter()
            .enumerate()
            .map(|(index, part)| (part.name.as_str(), index))
            .collect(),
        volumes: volumes().take(VOLUMES_MAX).collect(),
        steps_left: STEPS_MAX,
        has_copies: false,
    };
    let (volumes, pools) = reader.all();
    Group {
        name: metadata.name.clone(),
        uuid: metadata.uuid.clone(),
        sequence: metadata.sequence,
        extent_bytes: metadata.extent_bytes,
        volumes,
        pools,
        left_out: total.saturating_sub(VOLUMES_MAX),
        parts,
    }
}

fn part(name: &str, section: &Section, extent_bytes: u64, physical: &[PhysicalVolume]) -> Part {
    let uuid = told(section.text("id").unwrap_or_default());
    // If two physical volumes have one UUID, such as an array and its clone, neither is believed:
    // their texts could mix.
    let mut same = physical.iter().enumerate().filter(|(_, one)| one.uuid == uuid);
    let device = same.next().map(|(index, _)| index).filter(|_| same.next().is_none());
    let start_bytes = section.number("pe_start").unwrap_or(0).saturating_mul(SECTOR_BYTES);
    let extents = section.number("pe_count").unwrap_or(0);
    let end = start_bytes.saturating_add(extents.saturating_mul(extent_bytes));
    let here = device.and_then(|index| physical.get(index));
    let is_cut = here.is_some_and(|one| end > one.device_bytes);
    Part { name: name.to_owned(), uuid, device, start_bytes, extents, is_cut }
}

struct GroupReader<'a> {
    extent_bytes: u64,
    parts: &'a [Part],
    by_name: BTreeMap<&'a str, usize>,
    volumes: BTreeMap<&'a str, &'a Section>,
    steps_left: usize,
    /// Whether the last map that was followed contains copies.
    has_copies: bool,
}

/// The segments of a volume, in order. Each entry is a segment's first extent, number of extents,
/// kind, and section.
fn segments(section: &Section) -> Vec<(u64, u64, &str, &Section)> {
    let is_segment = |(name, _): &(&str, &Section)| name.starts_with("segment");
    let mut found: Vec<_> = section
        .sections()
        .filter(is_segment)
        .map(|(_, one)| {
            let (start, count) = (one.number("start_extent"), one.number("extent_count"));
            (
                start.unwrap_or(u64::MAX),
                count.unwrap_or(0),
                one.text("type").unwrap_or_default(),
                one,
            )
        })
        .collect();
    found.sort_by_key(|(start, ..)| *start);
    found
}

/// The text, cut to the longest name that LVM allows.
fn told(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}

fn pairs(values: &[Value]) -> Vec<(String, u64)> {
    let (pairs, _) = values.as_chunks::<2>();
    let pair = |pair: &'_ [Value; 2]| match pair {
        [Value::Text(name), Value::Number(place)] => Some((name.clone(), *place)),
        _ => None,
    };
    // One pair more than the limit is enough to detect too many pairs.
    pairs.iter().take(STRIPES_MAX.saturating_add(1)).map_while(pair).collect()
}

impl<'a> GroupReader<'a> {
    fn all(&mut self) -> (Vec<LogicalVolume>, Vec<Pool>) {
        let mut pools: Vec<Pool> = Vec::new();
        let mut pool_of: BTreeMap<&str, usize> = BTreeMap::new();
        let all: Vec<(&'a str, &'a Section)> =
            self.volumes.iter().map(|(name, one)| (*name, *one)).collect();
        let mut changes: BTreeSet<&str> = BTreeSet::new();
        let mut merging: BTreeSet<&str> = BTreeSet::new();
        let mut origins: BTreeSet<&str> = BTreeSet::new();
        for (name, section) in &all {
            for (_, _, kind, segment) in segments(section) {
                if matches!(kind, "thin-pool" | "tier-thin-pool") && !pool_of.contains_key(name) {
                    pool_of.insert(name, pools.len());
                    pools.push(self.pool(name, kind, segment));
                }
                origins.extend(segment.text("external_origin"));
                if kind == "snapshot" {
                    origins.extend(segment.text("origin"));
                    changes.extend(segment.text("cow_store"));
                    changes.extend(segment.text("merging_store"));
                    merging.extend(
                        segment.text("origin").filter(|_| segment.text("merging_store").is_some()),
                    );
                }
            }
        }
        let mut volumes = Vec::new();
        for (name, section) in all {
            let segments = segments(section);
            let status = section.list("status").unwrap_or_default();
            let is = |word: &str| status.contains(&Value::Text(word.to_owned()));
            let (is_visible, may_be_written) = (is("VISIBLE"), is("WRITE"));
            let extents =
                segments.iter().fold(0_u64, |sum, (_, count, ..)| sum.saturating_add(*count));
            let shape = if changes.contains(name) {
                Shape::Unsupported(UnreadReason::Snapshot)
            } else if merging.contains(name) {
                Shape::Unsupported(UnreadReason::Kind("snapshot-merge".to_owned()))
            } else {
                self.shape(name, &segments, &pool_of)
            };
            volumes.push(LogicalVolume {
                name: name.to_owned(),
                uuid: told(section.text("id").unwrap_or_default()),
                size_bytes: extents.saturating_mul(self.extent_bytes),
                is_visible,
                is_read_only: !may_be_written
                    || origins.contains(name)
                    || !matches!(shape, Shape::Direct(_)),
                shape,
            });
        }
        (volumes, pools)
    }

    fn shape(
        &mut self,
        name: &str,
        segments: &[(u64, u64, &str, &'a Section)],
        pool_of: &BTreeMap<&str, usize>,
    ) -> Shape {
        if pool_of.contains_key(name) {
            return Shape::Pool;
        }
        if let [(0, _, "thin" | "thick", segment)] = segments
            && let (Some(pool), Some(device)) =
                (segment.text("thin_pool"), segment.number("device_id"))
        {
            return match (segment.text("external_origin"), pool_of.get(pool)) {
                (Some(_), _) => Shape::Unsupported(UnreadReason::ExternalOrigin),
                (None, None) => Shape::Unsupported(UnreadReason::Astray(told(pool))),
                (None, Some(pool)) => Shape::Thin { pool: *pool, device },
            };
        }
        self.has_copies = false;
        match self.map(name, 0) {
            Ok(map) if self.has_copies => Shape::Copy(map),
            Ok(map) => Shape::Direct(map),
            Err(unread) => Shape::Unsupported(unread),
        }
    }

    fn pool(&mut self, name: &str, kind: &str, segment: &Section) -> Pool {
        let metadata = match segment.text("metadata") {
            Some(name) => self.map(name, 0),
            None => Err(UnreadReason::Nonsense("a pool without metadata")),
        };
        // A pool of QNAP's has its data in tiers, each in a volume of its own.
        let tiers: Vec<String> = (0..8).map(|tier| format!("{name}_tierdata_{tier}")).collect();
        let has_tiers = tiers.iter().any(|tier| self.volumes.contains_key(tier.as_str()));
        let data = match segment.text("pool") {
            Some(name) if !has_tiers => self.map(name, 0).map(|map| vec![Some(map)]),
            None if !has_tiers => Err(UnreadReason::Nonsense("a pool without data")),
            _ => Ok(tiers.iter().map(|tier| self.tier(tier)).collect()),
        };
        Pool { name: name.to_owned(), is_of_qnap: kind == "tier-thin-pool", metadata, data }
    }

    /// The map of a tier that holds real data. A NAS maps tiers without devices to errors or
    /// zeroes.
    fn tier(&mut self, name: &str) -> Option<Map> {
        let map = self.map(name, 0).ok()?;
        let is_real = |piece: &Piece| matches!(piece.rule, Rule::Linear(_) | Rule::Striped { .. });
        map.pieces().iter().any(is_real).then_some(map)
    }

    /// Counts `count` steps towards the limit.
    fn step(&mut self, count: usize) -> Result<(), UnreadReason> {
        self.steps_left = self
            .steps_left
            .checked_sub(count)
            .ok_or(UnreadReason::Nonsense("how its group nests"))?;
        Ok(())
    }

    fn map(&mut self, name: &str, depth: usize) -> Result<Map, UnreadReason> {
        let section = *self.volumes.get(name).ok_or_else(|| UnreadReason::Astray(told(name)))?;
        if depth > NESTING_MAX {
            return Err(UnreadReason::Astray(told(name)));
        }
        let (mut pieces, mut extents) = (Vec::new(), 0_u64);
        let all = segments(section);
        self.step(
            all.iter().fold(all.len(), |sum, (.., one)| sum.saturating_add(one.entries.len())),
        )?;
        for (start, count, kind, segment) in all {
            self.has_copies |= matches!(kind, "raid1" | "mirror");
            if start != extents || count == 0 {
                return Err(UnreadReason::Nonsense("the order of its segments"));
            }
            extents = extents.saturating_add(count);
            let sizes =
                (start.checked_mul(self.extent_bytes), count.checked_mul(self.extent_bytes));
            let (Some(start_bytes), Some(length_bytes)) = sizes else {
                return Err(UnreadReason::Nonsense("the size of its segments"));
            };
            let mut at = start_bytes;
            for (length_bytes, rule) in self.segment(kind, segment, (count, length_bytes), depth)? {
                pieces.push(Piece { start_bytes: at, length_bytes, rule });
                at = at
                    .checked_add(length_bytes)
                    .ok_or(UnreadReason::Nonsense("the size of its segments"))?;
            }
        }
        if pieces.is_empty() {
            return Err(UnreadReason::Nonsense("a volume without segments"));
        }
        Ok(Map::of_pieces(pieces))
    }

    fn segment(
        &mut self,
        kind: &str,
        segment: &Section,
        (extents, length_bytes): (u64, u64),
        depth: usize,
    ) -> Result<Vec<(u64, Rule)>, UnreadReason> {
        match kind {
            "striped" | "linear" => {
                let areas = pairs(segment.list("stripes").unwrap_or_default());
                let count = segment.number("stripe_count").unwrap_or(1);
                if areas.is_empty() || areas.len() as u64 != count || areas.len() > STRIPES_MAX {
                    return Err(UnreadReason::Nonsense("the number of its stripes"));
                }
                match &areas[..] {
                    [(name, start)] => self.area(name, *start, extents, depth),
                    _ => self
                        .striped(segment, &areas, (extents, length_bytes), depth)
                        .map(|rule| vec![(length_bytes, rule)]),
                }
            }
            "mirror" => {
                let areas = pairs(segment.list("mirrors").unwrap_or_default());
                self.first_copy(&areas, extents, depth)
            }
            "raid1" => {
                let names = segment.list("raids").unwrap_or_default();
                let names = names.iter().filter_map(|name| match name {
                    Value::Text(name) => Some(name.clone()),
                    Value::Number(_) => None,
                });
                // Names of metadata volumes and of images alternate.
                let images = names.skip(1).step_by(2).take(STRIPES_MAX);
                let areas: Vec<(String, u64)> = images.map(|name| (name, 0)).collect();
                self.first_copy(&areas, extents, depth)
            }
            "zero" => Ok(vec![(length_bytes, Rule::Zero)]),
            "error" => Ok(vec![(length_bytes, Rule::Lost)]),
            "cache" | "writecache" | "flashcache" => Err(UnreadReason::Cache(kind.to_owned())),
            "snapshot" => Err(UnreadReason::Snapshot),
            _ => Err(UnreadReason::Kind(told(kind))),
        }
    }

    /// The first copy without missing parts; if all have missing parts, the first copy.
    fn first_copy(
        &mut self,
        areas: &[(String, u64)],
        extents: u64,
        depth: usize,
    ) -> Result<Vec<(u64, Rule)>, UnreadReason> {
        let mut first = Err(UnreadReason::Nonsense("copies of which there are none"));
        for (name, start) in areas.iter().take(STRIPES_MAX) {
            let found = self.area(name, *start, extents, depth);
            let is_whole = |rules: &Vec<(u64, Rule)>| {
                rules.iter().all(|(_, rule)| match rule {
                    Rule::Linear(leg) => !leg.is_lost,
                    Rule::Striped { legs, .. } => legs.iter().all(|leg| !leg.is_lost),
                    Rule::Zero => true,
                    Rule::Lost => false,
                })
            };
            if found.as_ref().is_ok_and(is_whole) {
                return found;
            }
            if first.is_err() {
                first = found;
            }
        }
        first
    }

    /// The map of extents of a part, or of another volume.
    fn area(
        &mut self,
        name: &str,
        start: u64,
        extents: u64,
        depth: usize,
    ) -> Result<Vec<(u64, Rule)>, UnreadReason> {
        const PLACE: UnreadReason = UnreadReason::Nonsense("the place of its extents");
        let length_bytes = extents.checked_mul(self.extent_bytes).ok_or(PLACE)?;
        if self.by_name.contains_key(name) {
            return Ok(vec![(length_bytes, Rule::Linear(self.leg(name, start, extents)?))]);
        }
        let map = self.map(name, depth.saturating_add(1))?;
        let from = start.checked_mul(self.extent_bytes).ok_or(PLACE)?;
        let end =
            from.checked_add(length_bytes).filter(|end| *end <= map.size_bytes()).ok_or(PLACE)?;
        self.step(map.pieces().len())?;
        let mut rules = Vec::new();
        for piece in map.pieces() {
            let (start, stop) = (
                piece.start_bytes.max(from),
                piece.start_bytes.saturating_add(piece.length_bytes).min(end),
            );
            if start < stop {
                let length = stop.saturating_sub(start);
                rules.push((length, piece.cut(start.saturating_sub(piece.start_bytes), length)));
            }
        }
        Ok(rules)
    }

    /// The map of stripes over several areas. Each area is contiguous.
    fn striped(
        &mut self,
        segment: &Section,
        areas: &[(String, u64)],
        (extents, length_bytes): (u64, u64),
        depth: usize,
    ) -> Result<Rule, UnreadReason> {
        const NONSENSE: UnreadReason = UnreadReason::Nonsense("the size of its stripes");
        let count = areas.len() as u64;
        let stripe_bytes =
            segment.number("stripe_size").and_then(|sectors| sectors.checked_mul(SECTOR_BYTES));
        let stripe_bytes = stripe_bytes.filter(|bytes| *bytes > 0).ok_or(NONSENSE)?;
        let row = stripe_bytes.checked_mul(count).ok_or(NONSENSE)?;
        if extents.checked_rem(count) != Some(0) || length_bytes.checked_rem(row) != Some(0) {
            return Err(NONSENSE);
        }
        let of_each = extents.checked_div(count).ok_or(NONSENSE)?;
        let mut legs = Vec::new();
        for (name, start) in areas {
            match self.area(name, *start, of_each, depth)?[..] {
                [(_, Rule::Linear(leg))] => legs.push(leg),
                _ => {
                    return Err(UnreadReason::Kind(
                        "striped over volumes that are in pieces".to_owned(),
                    ));
                }
            }
        }
        Ok(Rule::Striped { stripe_bytes, skip_bytes: 0, legs: Arc::from(legs) })
    }

    fn leg(&self, name: &str, start: u64, extents: u64) -> Result<Leg, UnreadReason> {
        const PLACE: UnreadReason = UnreadReason::Nonsense("the place of its extents");
        let index = *self.by_name.get(name).ok_or(PLACE)?;
        let part = self.parts.get(index).ok_or(PLACE)?;
        start.checked_add(extents).filter(|end| *end <= part.extents).ok_or(PLACE)?;
        let offset_bytes = start
            .checked_mul(self.extent_bytes)
            .and_then(|bytes| bytes.checked_add(part.start_bytes));
        Ok(Leg {
            part: index,
            offset_bytes: offset_bytes.ok_or(PLACE)?,
            is_lost: part.device.is_none(),
        })
    }
}
