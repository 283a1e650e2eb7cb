//! Turns members in their slots into an array that can run, or into a refusal.
//!
//! `judge` has already decided which member has which slot; this file does not judge members again.

use braid_sim_hooks::{Bug, planted, spoiled};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_geometry::{Family, Geometry, Level, Shape, Slot};
use braid_ondisk::{
    Bitmap, BitmapError, BitmapFile, BitmapKind, BitmapPlace, BitmapSuperblock, Bits, Features,
    LocklessMarks, Role, Superblock,
};

use crate::bad_records::bad_records_from;
use crate::bitmap_file::{self, AssembledBitmapFile};
use crate::candidates::Candidate;
use crate::damaged;
use crate::journal::{AssembledJournal, can_be_written, journal};
use crate::judge::Roster;
use crate::levelled_shapes::ShapeToWrite;
use crate::parity_log::AssembledParityLog;
use crate::refusal::{AtRisk, JournalFault, ReadOnlyReason, Refusal, ReshapeFault};
use crate::replay::{AssembledReplay, has_logs_that_count, keeps_logs, parity_logs, replay};
use crate::reshape::AssembledReshape;
use crate::risk::at_risk;
use crate::{Options, ProbedMember};

/// A member that has a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Index of the member in the input.
    pub member: usize,
    /// The member's data is up to date before this sector; `u64::MAX` means everywhere.
    pub recovered_until: u64,
    /// Unreadable sectors in the part of the data area that the array uses, from the member's
    /// bad-block log. Each entry is a record's sector of the log, and the range that the record
    /// names.
    pub bad_records: Vec<(u16, Range<u64>)>,
}

impl Occupant {
    /// Whether all data of the member is up to date.
    #[must_use]
    pub fn is_in_sync(&self) -> bool {
        self.recovered_until == u64::MAX
    }

    /// Unreadable sectors of the member's data area, as ordered and separate ranges.
    #[must_use]
    pub fn bad_sectors(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> =
            self.bad_records.iter().map(|(_, range)| range.clone()).collect();
        ranges.sort_by_key(|range| range.start);
        ranges.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            if touches {
                kept.end = kept.end.max(next.end);
            }
            touches
        });
        ranges
    }
}

/// An array that can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledArray {
    /// The numbers from which `geometry` is made.
    pub shape: Shape,
    /// The place of each of the array's sectors.
    pub geometry: Geometry,
    /// The member in each slot.
    pub slots: Vec<Option<Occupant>>,
    /// Replacements, at most one for a slot. The replaced member is still present and holds all
    /// data. A replacement takes every write and is not read.
    pub replacements: Vec<(Slot, Occupant)>,
    /// Indices of spares in the input.
    pub spares: Vec<usize>,
    /// The newest superblock: it describes the array, and has every device's role.
    pub newest: Superblock,
    /// The index of the member with the newest superblock.
    pub newest_member: usize,
    /// The write-intent bitmap, if the array has one that braid maintains.
    pub bitmap: Option<AssembledBitmap>,
    /// The bitmap file, if one was given. `bitmap` is then the content of this file.
    pub bitmap_file: Option<AssembledBitmapFile>,
    /// The parity logs to replay after an unclean stop, to make redundancy right.
    pub replay: Option<AssembledReplay>,
    /// Parity logs by member index, spares included; `None` if the array has no logs that braid can
    /// write.
    pub parity_logs: Option<BTreeMap<usize, AssembledParityLog>>,
    /// The array's write journal, which must be replayed before any read.
    pub journal: Option<AssembledJournal>,
    /// Why the array's journal does not count. The whole array is then in doubt: it may only be
    /// read, or runs without the journal ([`Options::without_journal`]).
    pub journal_fault: Option<JournalFault>,
    /// Redundancy is right before this sector; `u64::MAX` means everywhere. Counts sectors of each
    /// member, for raid10 sectors of the array.
    pub resync_offset: u64,
    /// Whether the array was not stopped cleanly.
    pub dirty: bool,
    /// The number of slots without a member that is wholly up to date.
    pub degraded: u16,
    /// The sectors that may read wrong, if the operator accepted this risk.
    pub accepted_risk: Option<AtRisk>,
    /// The sectors that may read wrong, if the operator did not accept this risk and the array is
    /// only read. These sectors cannot be read.
    pub withheld_risk: Option<AtRisk>,
    /// Why the array may only be read, whatever the options say.
    pub read_only: Option<ReadOnlyReason>,
    /// The reshape under way. `shape`, `geometry` and `slots` are then those of the shape with more
    /// slots, and bad sectors count from the lower of a member's two data areas.
    pub reshape: Option<AssembledReshape>,
    /// Shapes of members whose superblocks missed the last change of shape.
    pub shapes_to_write: Vec<ShapeToWrite>,
}

/// The merged content of the members' bitmaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledBitmap {
    /// The superblock with the most events among the members' bitmaps.
    pub superblock: BitmapSuperblock,
    /// Whether the bits are believed.
    pub is_current: bool,
    /// Regions where members may differ: the set bits of all believed bitmaps, or everything if
    /// none is believed.
    pub bits: Bits,
    /// Marks of a lockless bitmap. A region is unwritten if all believed bitmaps mark it unwritten,
    /// and needs sync if any of them marks it so. If no bitmap is believed, everything needs sync.
    pub marks: Option<LocklessMarks>,
}

/// The losses that an array tolerates in its present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// How many more members may fail before a start is refused or a sector becomes unreadable.
    pub can_lose: u16,
    /// Whether parity may be wrong. Then nothing is computed from parity before a resync, and fewer
    /// losses are tolerated.
    pub parity_in_doubt: bool,
    /// Whether copies may differ, where an interrupted write was in flight. Each sector is read
    /// from one copy. If the member with that copy is lost before resync, the sector may change its
    /// content.
    pub copies_in_doubt: bool,
}

impl Tolerance {
    /// The losses that an array tolerates if the slots of `in_sync` are up to date, and redundancy
    /// is right before `resync_offset`. By level, for an array that was not stopped cleanly
    /// (`resync_offset` is not `u64::MAX`) and not resynced since:
    ///
    /// ```text
    ///   linear, 0     no loss tolerated, nothing in doubt
    ///   1, 10         as when clean; sectors in flight may change content once if a member is lost
    ///   4, 5, 6       no data member: dirty and degraded is refused, for RAID-6 as for RAID-5
    /// ```
    #[must_use]
    pub fn of(geometry: &Geometry, resync_offset: u64, in_sync: &dyn Fn(Slot) -> bool) -> Self {
        let slots = || (0..geometry.slots()).map(Slot);
        let lost = |also: Slot| slots().filter(move |&slot| slot == also || !in_sync(slot));
        let survives_without =
            |also: Slot| geometry.survives(&|slot: Slot| slot == also || !in_sync(slot));
        let computes_without = |also: Slot| {
            let lost: Vec<u16> = lost(also).map(|slot| slot.0).collect();
            at_risk(geometry, &lost, (resync_offset, None)).is_none()
        };
        let there = || slots().filter(|&slot| in_sync(slot));
        let survives = there().all(survives_without);
        let computes = there().all(computes_without);
        let degraded = slots().filter(|&slot| !in_sync(slot)).count();
        let degraded = u16::try_from(degraded).unwrap_or(u16::MAX);
        let more = geometry.lost_max().saturating_sub(degraded).max(1);
        let is_dirty = |family| resync_offset != u64::MAX && geometry.level().family() == family;
        Self {
            can_lose: if survives && computes { more } else { 0 },
            parity_in_doubt: is_dirty(Family::Stripe) && survives && !computes,
            copies_in_doubt: is_dirty(Family::Mirror),
        }
    }
}

impl AssembledArray {
    /// The members that take writes: those in slots, in order of slots, then replacements.
    pub fn occupants(&self) -> impl Iterator<Item = &Occupant> {
        let replacements = self.replacements.iter().map(|(_, occupant)| occupant);
        self.slots.iter().flatten().chain(replacements)
    }

    /// Whether the newest superblock has an active role for a member that is not present. If that
    /// member returns, it is believed, whatever writes it missed.
    #[must_use]
    pub fn may_return(&self) -> bool {
        let is_active = |role: &&Role| matches!(role, Role::Active(_));
        let counted = self.newest.state.roles.iter().filter(is_active).count();
        counted > self.occupants().count()
    }

    /// Notes that the logs were replayed, to members or in memory. `is_all` says whether all
    /// stripes that the logs name became consistent. Other doubts remain.
    pub fn note_replayed(&mut self, is_all: bool) {
        if is_all && settles(self.replay.as_ref(), self.resync_offset) {
            self.resync_offset = u64::MAX;
            self.dirty = false;
        }
        self.replay = None;
    }

    /// The losses that the array tolerates in its present state.
    #[must_use]
    pub fn tolerance(&self) -> Tolerance {
        let in_sync = |slot: Slot| {
            let occupant = self.slots.get(slot.index()).and_then(Option::as_ref);
            occupant.is_some_and(Occupant::is_in_sync)
        };
        Tolerance::of(&self.geometry, self.resync_offset, &in_sync)
    }
}

pub(crate) fn build(
    roster: &Roster<'_>,
    members: &[ProbedMember],
    options: &Options,
) -> Result<AssembledArray, Refusal> {
    check_servable(roster)?;
    check_agreement(roster)?;
    let slot_count = slot_count(roster)?;
    let lost = lost_slots(roster, slot_count);
    let mut shape = shape(roster, slot_count, &lost)?;
    if shape.level == Level::Raid0 && shape.layout == RAID0_UNSPECIFIED {
        // Superblocks keep the RAID-0 layout unspecified, as under md: another reader may choose
        // differently.
        shape.layout = options.raid0_layout.unwrap_or(RAID0_UNSPECIFIED);
    }
    let geometry = Geometry::new(&shape)?;
    let survives = geometry.survives(&|slot: Slot| lost.contains(&slot.0));
    if !survives {
        return Err(too_few(slot_count, geometry.lost_max(), &lost));
    }
    damaged::check(roster, members, &geometry)?;
    let (journal, journal_fault) = journal_of(roster, (&geometry, &lost), options)?;
    let resync_offset = match journal_fault {
        Some(_) => 0,
        None => resync_offset(roster, &geometry),
    };
    let file = bitmap_file::check(options.bitmap_file.as_ref(), roster)?;
    let in_file = file.map(|(_, file)| file);
    let replay = replay(roster, in_file, resync_offset);
    let bitmap = bitmap(roster, in_file, &geometry);
    let area_sectors = bitmap.as_ref().map_or(0, |bitmap| bitmap.superblock.area_sectors());
    bitmap_file::check_room(file.filter(|_| !options.read_only), roster, area_sectors)?;
    let doubt = bitmap.as_ref().filter(|bitmap| bitmap.is_current).map(|bitmap| &bitmap.bits);
    let at_risk = at_risk(&geometry, &lost, (resync_offset, doubt));
    let at_risk = at_risk.filter(|_| !settles(replay.as_ref(), resync_offset));
    let has_log = has_logs_that_count(roster, in_file);
    let (accepted_risk, withheld_risk) = risk(at_risk, (&lost, replay.as_ref(), has_log), options)?;
    let is_written = |journal| can_be_written(&geometry, journal) && bitmap.is_none();
    let is_left = journal.as_ref().is_some_and(|journal| !is_written(journal));
    let is_lacking = |fault: &JournalFault| !is_given_up(fault, options);
    let is_left = is_left || journal_fault.as_ref().is_some_and(is_lacking);
    let read_only =
        is_left.then_some(ReadOnlyReason::Journal).or_else(|| read_only(roster, members, in_file));
    if let Some(reason) = read_only.filter(|_| !options.read_only) {
        return Err(reason.into());
    }
    let newest = roster.newest;
    Ok(AssembledArray {
        slots: occupants(roster, &geometry, slot_count),
        replacements: replacements(roster, &geometry),
        bitmap,
        replay,
        parity_logs: parity_logs(roster, members, in_file),
        bitmap_file: file.map(|file| bitmap_file::assembled(file, roster, members.len())),
        journal,
        journal_fault,
        shape,
        geometry,
        spares: roster.spares.clone(),
        newest: newest.superblock.clone(),
        newest_member: newest.index,
        resync_offset,
        dirty: resync_offset != u64::MAX,
        degraded: u16::try_from(lost.len()).unwrap_or(u16::MAX),
        accepted_risk,
        withheld_risk,
        read_only,
        reshape: None,
        shapes_to_write: Vec::new(),
    })
}

/// Refuses unsupported arrays.
fn check_servable(roster: &Roster<'_>) -> Result<(), Refusal> {
    for candidate in roster.in_use() {
        let superblock = candidate.superblock;
        let features = superblock.state.features;
        match features.unknown() {
            0 => {}
            bits => return Err(Refusal::UnknownFeatures { bits }),
        }
        if superblock.state.reserved_bytes_in_use {
            return Err(Refusal::NewerFormat);
        }
        if let Some(reshape) = superblock.reshape {
            let position_sectors = reshape.position_sectors;
            return Err(Refusal::Reshaping { position_sectors, fault: ReshapeFault::Shapes });
        }
        let is_clustered = candidate.member.bitmap == Some(Err(BitmapError::Clustered));
        if features.contains(Features::CLUSTERED) || is_clustered {
            return Err(Refusal::Clustered);
        }
    }
    Ok(())
}

/// Refuses members that disagree about the array in any field.
fn check_agreement(roster: &Roster<'_>) -> Result<(), Refusal> {
    let newest = roster.newest.superblock;
    for candidate in roster.in_use() {
        let superblock = candidate.superblock;
        let (ours, theirs) = (&newest.array, &superblock.array);
        let fields = [
            ("metadata version", newest.version == superblock.version),
            ("level", ours.level == theirs.level),
            ("layout", layout(newest) == layout(superblock)),
            ("chunk size", ours.chunk_sectors == theirs.chunk_sectors),
            ("number of slots", ours.raid_slots == theirs.raid_slots),
            ("member size", ours.member_size_sectors == theirs.member_size_sectors),
            ("creation time", ours.creation_time == theirs.creation_time),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, agree)| !agree) {
            let (label, other) = (candidate.label(), roster.newest.label());
            return Err(Refusal::ConflictingGeometry { label, other, field });
        }
    }
    Ok(())
}

const RAID0_UNSPECIFIED: u32 = 0;

/// The layout number; the layout of a raid0 counts only if its feature bit is set.
fn layout(superblock: &Superblock) -> u32 {
    let is_said = superblock.state.features.contains(Features::RAID0_LAYOUT);
    match superblock.array.level {
        Level::Raid0 if !is_said => RAID0_UNSPECIFIED,
        _ => superblock.array.layout,
    }
}

fn slot_count(roster: &Roster<'_>) -> Result<u16, Refusal> {
    let array = &roster.newest.superblock.array;
    u16::try_from(array.raid_slots).map_err(|_| {
        let (level, max) = (array.level, braid_geometry::SLOTS_MAX);
        braid_geometry::GeometryError::SlotsOutOfRange { level, slots: u16::MAX, min: 1, max }
            .into()
    })
}

/// Slots without a fully recovered member, in order.
fn lost_slots(roster: &Roster<'_>, slot_count: u16) -> Vec<u16> {
    let in_sync: BTreeSet<u16> = roster
        .active
        .iter()
        .filter(|(_, candidate)| candidate.superblock.device.recovery_offset_sectors.is_none())
        .map(|(slot, _)| *slot)
        .collect();
    (0..slot_count).filter(|slot| !in_sync.contains(slot)).collect()
}

fn too_few(slots: u16, lost_max: u16, lost: &[u16]) -> Refusal {
    let lost_count = u16::try_from(lost.len()).unwrap_or(u16::MAX);
    Refusal::TooFewMembers {
        have: slots.saturating_sub(lost_count),
        need: slots.saturating_sub(lost_max),
        slots,
        missing: lost.to_vec(),
    }
}

/// The array's shape. Levels with redundancy use the superblock's size for every slot; levels
/// without redundancy use each member's own size.
fn shape(roster: &Roster<'_>, slots: u16, lost: &[u16]) -> Result<Shape, Refusal> {
    let superblock = roster.newest.superblock;
    let array = &superblock.array;
    let member_sectors = match array.level.family() {
        Family::Direct if !lost.is_empty() => return Err(too_few(slots, 0, lost)),
        // No slot is missing, so occupants are in order of slots.
        Family::Direct => roster
            .active
            .iter()
            .map(|(_, candidate)| candidate.superblock.device.data_size_sectors)
            .collect(),
        Family::Mirror | Family::Stripe => vec![array.member_size_sectors; usize::from(slots)],
    };
    Ok(Shape {
        level: array.level,
        layout: layout(superblock),
        chunk_sectors: array.chunk_sectors,
        slots,
        member_sectors,
    })
}

/// The lowest resync offset of the members in use. A level without redundancy has no redundancy
/// that could be wrong.
fn resync_offset(roster: &Roster<'_>, geometry: &Geometry) -> u64 {
    if geometry.level().family() == Family::Direct {
        return u64::MAX;
    }
    if planted(Bug::DirtyForgotten) {
        return u64::MAX;
    }
    let offsets =
        roster.active.iter().map(|(_, candidate)| candidate.superblock.state.resync_offset);
    offsets.min().unwrap_or(u64::MAX)
}

/// The array's journal, or the fault because of which the journal does not count. If the journal
/// has a fault, assembly refuses to start the array for writing.
fn journal_of(
    roster: &Roster<'_>,
    (geometry, lost): (&Geometry, &[u16]),
    options: &Options,
) -> Result<(Option<AssembledJournal>, Option<JournalFault>), Refusal> {
    match (journal(roster), options.read_only) {
        (None, _) => Ok((None, None)),
        (Some(Err(fault)), false) if is_given_up(&fault, options) => Ok((None, Some(fault))),
        (Some(Err(fault)), false) => {
            let array_sectors = geometry.capacity_sectors();
            Err(Refusal::JournalMissing { fault, missing: lost.to_vec(), array_sectors })
        }
        (Some(Ok(journal)), _) => Ok((Some(journal), None)),
        (Some(Err(fault)), true) => Ok((None, Some(fault))),
    }
}

/// Whether the array runs without its journal. A journal is not given up if newer members exist
/// elsewhere.
fn is_given_up(fault: &JournalFault, options: &Options) -> bool {
    let is_lost = matches!(fault, JournalFault::Absent { .. } | JournalFault::Unusable { .. });
    options.without_journal && is_lost
}

/// Whether replaying the logs removes all doubt.
fn settles(replay: Option<&AssembledReplay>, resync_offset: u64) -> bool {
    resync_offset == 0 && replay.is_some_and(|replay| replay.unread.is_empty())
}

/// Splits the sectors at risk into accepted and withheld ones; refuses if neither is allowed.
fn risk(
    at_risk: Option<AtRisk>,
    (lost, replay, has_log): (&[u16], Option<&AssembledReplay>, bool),
    options: &Options,
) -> Result<(Option<AtRisk>, Option<AtRisk>), Refusal> {
    let Some(risk) = at_risk else { return Ok((None, None)) };
    let is_accepted = options.accept_risk.is_some_and(|stripes| risk.stripes <= stripes);
    match () {
        () if is_accepted => Ok((Some(risk), None)),
        () if has_log => {
            let unread = replay.map(|replay| replay.unread.clone()).unwrap_or_default();
            let (missing, stripes) = (lost.to_vec(), risk.stripes);
            Err(Refusal::PplNotReplayed { missing, unread, stripes })
        }
        () if options.read_only => Ok((None, Some(risk))),
        () => Err(Refusal::DirtyAndDegraded(risk)),
    }
}

fn read_only(
    roster: &Roster<'_>,
    members: &[ProbedMember],
    file: Option<&BitmapFile>,
) -> Option<ReadOnlyReason> {
    if keeps_logs(roster, file) && parity_logs(roster, members, file).is_none() {
        return Some(ReadOnlyReason::Ppl);
    }
    // A level without redundancy has no replacements.
    let is_direct = roster.newest.superblock.array.level.family() == Family::Direct;
    let odd = roster.replacements.first().filter(|_| is_direct).map(|(slot, _)| slot);
    let replaced = roster.replaced.first().or(odd);
    let replaced = replaced.map(|&slot| ReadOnlyReason::Replacement { slot });
    bitmap_reason(roster).or(replaced)
}

/// Whether any superblock names a bitmap. An interrupted update may have added or dropped a bitmap
/// on some members only.
fn names_bitmap(roster: &Roster<'_>) -> bool {
    roster.newest.superblock.intent.bitmap_offset_sectors.is_some()
}

fn with_bitmap<'a>(roster: &'a Roster<'a>) -> impl Iterator<Item = &'a Candidate<'a>> {
    let active = roster.active.iter().map(|(_, candidate)| candidate);
    active.filter(|candidate| candidate.superblock.intent.bitmap_offset_sectors.is_some())
}

/// Readable bitmaps of fully recovered members. Bitmaps of members in recovery do not count.
fn bitmaps<'a>(roster: &'a Roster<'a>) -> impl Iterator<Item = &'a Bitmap> {
    let is_whole =
        |one: &&'a Candidate<'a>| one.superblock.device.recovery_offset_sectors.is_none();
    let readable = |one: &'a Candidate<'a>| one.member.bitmap.as_ref()?.as_ref().ok();
    with_bitmap(roster).filter(is_whole).filter_map(readable)
}

/// The reason for which the members' bitmaps forbid writing, if they do.
fn bitmap_reason(roster: &Roster<'_>) -> Option<ReadOnlyReason> {
    names_bitmap(roster).then_some(())?;
    let other = bitmaps(roster).find_map(|bitmap| match bitmap.superblock.kind {
        BitmapKind::Classic | BitmapKind::Lockless => None,
        BitmapKind::HostEndian => Some(ReadOnlyReason::BitmapKind("version 3")),
    });
    // A bitmap of a kind that md adds later may hold data that braid must not overwrite.
    let is_unknown = |one: &Candidate<'_>| {
        matches!(one.member.bitmap, Some(Err(BitmapError::VersionUnknown { .. })))
    };
    let is_unknown = with_bitmap(roster).any(is_unknown);
    let needed = bitmaps(roster).map(|bitmap| bitmap.superblock.area_sectors()).max().unwrap_or(1);
    let room = |one: &Candidate<'_>| one.superblock.room_for_bitmap();
    let has_no_room = roster.in_use().any(|candidate| room(candidate) < needed);
    other
        .or(is_unknown.then_some(ReadOnlyReason::BitmapUnknown))
        .or(has_no_room.then_some(ReadOnlyReason::BitmapPlace))
}

/// The sectors that a resync covers, as md counts them: of each member, on level 10 of the array.
#[must_use]
pub fn resync_sectors(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Mirror(mirror) => mirror.capacity_sectors(),
        Geometry::Stripe(stripe) => stripe.used_sectors(),
        Geometry::Direct(_) => 0,
    }
}

/// A new bitmap superblock, if members should have a bitmap and none is readable.
fn anew(roster: &Roster<'_>, sectors: u64) -> Option<BitmapSuperblock> {
    let place = |one: &Candidate<'_>| {
        let offset_sectors = one.superblock.intent.bitmap_offset_sectors?;
        let room_sectors = one.superblock.bitmap_room_sectors()?;
        Some(BitmapPlace { offset_sectors, room_sectors })
    };
    let places = roster.in_use().filter_map(place);
    let smallest = places.min_by_key(|place| place.room_sectors)?;
    let chunk_bytes = smallest.chunk_bytes(sectors, None)?;
    Some(BitmapSuperblock::new(sectors, chunk_bytes, 0))
}

/// The bitmap of the bitmap file, or else the members' bitmaps merged.
fn bitmap(
    roster: &Roster<'_>,
    file: Option<&BitmapFile>,
    geometry: &Geometry,
) -> Option<AssembledBitmap> {
    let sectors = resync_sectors(geometry);
    (names_bitmap(roster) || file.is_some()).then_some(())?;
    let in_file = file.and_then(|file| file.bitmap.as_ref().ok());
    let bitmaps = || in_file.into_iter().chain(bitmaps(roster).filter(|_| file.is_none()));
    let kept = bitmaps().filter(|one| one.superblock.kind != BitmapKind::HostEndian);
    let newest = kept.max_by_key(|bitmap| bitmap.superblock.events);
    let superblock = match newest {
        // If the newest bitmap's size differs, it was not resized with the array. The bitmap then
        // gets the array's size: md makes it anew.
        Some(newest) => BitmapSuperblock { sync_size_sectors: sectors, ..newest.superblock },
        None => anew(roster, sectors)?,
    };
    let each = superblock.sectors_each();
    let none = Bits::none(sectors, each);
    let believed = || {
        let is_alike =
            |one: &&Bitmap| one.superblock.kind == superblock.kind && one.bits.is_alike(&none);
        let is_current = |one: &&Bitmap| one.is_current(roster.newest.events());
        bitmaps().filter(is_alike).filter(is_current)
    };
    let mut bits = none.clone();
    let mut is_current = false;
    for bitmap in believed() {
        bits.join(&bitmap.bits);
        is_current = true;
    }
    let is_current = spoiled(Bug::StaleBitmapBelieved, is_current, true);
    let bits = if is_current { bits } else { Bits::all(sectors, each) };
    let is_lockless = superblock.kind == BitmapKind::Lockless;
    let marks = || together(believed().filter_map(|one| one.marks.as_ref()), &bits);
    let marks = is_lockless.then(marks);
    Some(AssembledBitmap { superblock, is_current, bits, marks })
}

/// Merges the marks of several lockless bitmaps: a region is written if any believed bitmap says
/// so. If no bitmap is believed, braid cannot tell which regions are unwritten and have no parity.
/// Then no region counts as unwritten and everything needs sync, even after a clean stop.
fn together<'a, T>(
    mut all: impl Iterator<Item = &'a (LocklessMarks, T)>,
    bits: &Bits,
) -> LocklessMarks
where
    T: 'a,
{
    let Some((first, _)) = all.next() else {
        let none = LocklessMarks::clean(bits.sectors(), bits.sectors_each());
        return LocklessMarks { unsynced: bits.clone(), ..none };
    };
    let mut marks = first.clone();
    for (other, _) in all {
        marks.unwritten.intersect(&other.unwritten);
        marks.unsynced.join(&other.unsynced);
    }
    marks.unwritten.subtract(bits);
    marks.unsynced.intersect(bits);
    marks
}

fn occupants(roster: &Roster<'_>, geometry: &Geometry, slot_count: u16) -> Vec<Option<Occupant>> {
    let mut slots = vec![None; usize::from(slot_count)];
    for (slot, candidate) in &roster.active {
        let place = slot % slot_count;
        slots[usize::from(place)] = Some(occupant(candidate, geometry, Slot(*slot)));
    }
    slots
}

fn replacements(roster: &Roster<'_>, geometry: &Geometry) -> Vec<(Slot, Occupant)> {
    let ones = roster.replacements.iter();
    ones.map(|(slot, one)| (Slot(*slot), occupant(one, geometry, Slot(*slot)))).collect()
}

fn occupant(candidate: &Candidate<'_>, geometry: &Geometry, slot: Slot) -> Occupant {
    let recovered_until = candidate.superblock.device.recovery_offset_sectors;
    Occupant {
        member: candidate.index,
        recovered_until: recovered_until.unwrap_or(u64::MAX),
        bad_records: bad_records(candidate, geometry.used_sectors(slot)),
    }
}

/// The bad-block log counts sectors from the device's start, and may name parts that the array does
/// not use.
fn bad_records(candidate: &Candidate<'_>, used_sectors: u64) -> Vec<(u16, Range<u64>)> {
    let start = candidate.superblock.device.data_offset_sectors;
    bad_records_from(candidate.superblock, candidate.member, (start, used_sectors))
}
