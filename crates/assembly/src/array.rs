//! From the members in their slots to an array that can be run, or to what stands in the way.
//!
//! What it does not do: look at members again; who is in which slot is settled (`judge`).

use braid_hooks::{Bug, planted, spoiled};
use std::collections::BTreeSet;
use std::ops::Range;

use braid_geometry::{Family, Geometry, Level, Shape, Slot};
use braid_ondisk::{BitmapError, BitmapKind, Features, Superblock};

use crate::candidates::Candidate;
use crate::damaged;
use crate::judge::Roster;
use crate::refusal::{AtRisk, ReadOnlyReason, Refusal};
use crate::risk::at_risk;
use crate::{Options, ProbedMember};

/// Who occupies a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Index into the members that were given.
    pub member: usize,
    /// Sectors of its data area before this one are up to date; `u64::MAX`: all of them.
    pub recovered_until: u64,
    /// Sectors of its data area that cannot be read, in order, apart from each other, within what the
    /// array uses.
    pub bad_sectors: Vec<Range<u64>>,
}

impl Occupant {
    /// Whether all of it is up to date.
    #[must_use]
    pub fn is_in_sync(&self) -> bool {
        self.recovered_until == u64::MAX
    }
}

/// An array that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledArray {
    /// The numbers that its geometry was made from.
    pub shape: Shape,
    /// Where its bytes live.
    pub geometry: Geometry,
    /// One per slot.
    pub slots: Vec<Option<Occupant>>,
    /// Who is to take the place of the member in a slot, which holds all itself: one for a slot at most. It takes every
    /// write, and is not read.
    pub replacements: Vec<(Slot, Occupant)>,
    /// Indices into the members that were given, of those that wait.
    pub spares: Vec<usize>,
    /// The newest superblock: what is true of the array, and every device's role.
    pub newest: Superblock,
    /// Index of the member that it is from.
    pub newest_member: usize,
    /// The first superblocks that a run writes must have at least this many events.
    pub events_next_min: u64,
    /// Redundancy is right before this sector (of each member; of the array for raid10); `u64::MAX`: everywhere.
    pub resync_offset: u64,
    /// Whether the array was not stopped cleanly.
    pub dirty: bool,
    /// Slots without a member that is wholly up to date.
    pub degraded: u16,
    /// What could read wrong, and was accepted.
    pub accepted_risk: Option<AtRisk>,
    /// Why the array may only be read, whatever was asked for.
    pub read_only: Option<ReadOnlyReason>,
}

/// What an array bears, as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// How many more members may be lost, whichever they are, without the array being refused at the next start or any of
    /// it becoming unreadable.
    pub can_lose: u16,
    /// Fewer than its level bears otherwise: parity may not fit, so nothing is computed from it until it is resynced.
    pub parity_in_doubt: bool,
    /// Copies may differ where it was being written when it was interrupted: each sector is read from one of them, and
    /// reads as another one if that is lost, until they are resynced.
    pub copies_in_doubt: bool,
}

impl Tolerance {
    /// What an array bears of which these slots are in sync, and of which redundancy is right before this sector. By level, of
    /// an array that was not stopped cleanly (`resync_offset` is not `u64::MAX`) and was not resynced since:
    ///
    /// ```text
    ///   linear, 0     nothing is borne, nothing is in doubt
    ///   1, 10         as when clean; what was being written may change its content once when a member is lost
    ///   4, 5, 6       no member that holds data: dirty and degraded is refused, for RAID-6 as for RAID-5
    /// ```
    #[must_use]
    pub fn of(geometry: &Geometry, resync_offset: u64, in_sync: &dyn Fn(Slot) -> bool) -> Self {
        let slots = || (0..geometry.slots()).map(Slot);
        let lost = |also: Slot| slots().filter(move |&slot| slot == also || !in_sync(slot));
        let survives_without =
            |also: Slot| geometry.survives(&|slot: Slot| slot == also || !in_sync(slot));
        let computes_without = |also: Slot| {
            let lost: Vec<u16> = lost(also).map(|slot| slot.0).collect();
            at_risk(geometry, &lost, resync_offset).is_none()
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
    /// Everyone who is written: those in slots, in order of slots, and their replacements.
    pub fn occupants(&self) -> impl Iterator<Item = &Occupant> {
        let replacements = self.replacements.iter().map(|(_, occupant)| occupant);
        self.slots.iter().flatten().chain(replacements)
    }

    /// What it bears: [`Tolerance::of`] it as it stands.
    #[must_use]
    pub fn tolerance(&self) -> Tolerance {
        let in_sync = |slot: Slot| {
            let occupant = self.slots.get(slot.index()).and_then(Option::as_ref);
            occupant.is_some_and(Occupant::is_in_sync)
        };
        Tolerance::of(&self.geometry, self.resync_offset, &in_sync)
    }
}

/// Builds the array of a settled roster.
pub(crate) fn build(
    roster: &Roster<'_>,
    members: &[ProbedMember],
    options: &Options,
) -> Result<AssembledArray, Refusal> {
    check_servable(roster)?;
    check_agreement(roster)?;
    let slot_count = slot_count(roster)?;
    let lost = lost_slots(roster, slot_count);
    let shape = shape(roster, slot_count, &lost)?;
    let geometry = Geometry::new(&shape)?;
    let survives = geometry.survives(&|slot: Slot| lost.contains(&slot.0));
    let survives = spoiled(Bug::TooFewAccepted, survives, true);
    if !survives {
        return Err(too_few(slot_count, geometry.lost_max(), &lost));
    }
    damaged::check(roster, members, &geometry)?;
    let resync_offset = resync_offset(roster, &geometry);
    let accepted_risk = risk(roster, &geometry, (&lost, resync_offset), options)?;
    let read_only = read_only(roster);
    if let Some(reason) = read_only.filter(|_| !options.read_only) {
        return Err(reason.into());
    }
    let newest = roster.newest;
    Ok(AssembledArray {
        slots: occupants(roster, &geometry, slot_count),
        replacements: replacements(roster, &geometry),
        shape,
        geometry,
        spares: roster.spares.clone(),
        newest: newest.superblock.clone(),
        newest_member: newest.index,
        events_next_min: events_next_min(roster),
        resync_offset,
        dirty: resync_offset != u64::MAX,
        degraded: u16::try_from(lost.len()).unwrap_or(u16::MAX),
        accepted_risk,
        read_only,
    })
}

/// Everything that we do not serve, by name.
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
            return Err(Refusal::Reshaping { position_sectors: reshape.position_sectors });
        }
        if features.contains(Features::JOURNAL) {
            return Err(Refusal::Journal);
        }
        let bitmap = candidate.member.bitmap;
        if features.contains(Features::CLUSTERED) || bitmap == Some(Err(BitmapError::Clustered)) {
            return Err(Refusal::Clustered);
        }
    }
    Ok(())
}

/// Members of one array say the same of it, to the last field.
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

/// raid0's layout counts only with its feature bit; 0 is geometry's word for "not said".
fn layout(superblock: &Superblock) -> u32 {
    let is_said = superblock.state.features.contains(Features::RAID0_LAYOUT);
    match superblock.array.level {
        Level::Raid0 if !is_said => 0,
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

/// Slots without a member that is wholly up to date, in order.
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

/// The superblock's one size for every slot, or, where there is no redundancy, each member's own.
fn shape(roster: &Roster<'_>, slots: u16, lost: &[u16]) -> Result<Shape, Refusal> {
    let superblock = roster.newest.superblock;
    let array = &superblock.array;
    let member_sectors = match array.level.family() {
        Family::Direct if !lost.is_empty() => return Err(too_few(slots, 0, lost)),
        // Nothing is lost, so the occupants are one per slot and in order.
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

/// The least that any member in use knows to be right. Without redundancy nothing can be wrong with it.
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

fn has_ppl(roster: &Roster<'_>) -> bool {
    roster.active.iter().any(|(_, candidate)| candidate.superblock.intent.ppl.is_some())
}

/// The risk that was accepted, if there is any; a refusal if it was not.
fn risk(
    roster: &Roster<'_>,
    geometry: &Geometry,
    (lost, resync_offset): (&[u16], u64),
    options: &Options,
) -> Result<Option<AtRisk>, Refusal> {
    match at_risk(geometry, lost, resync_offset) {
        None => Ok(None),
        Some(_) if has_ppl(roster) => Err(Refusal::PplNotReplayed { missing: lost.to_vec() }),
        Some(risk) if options.accept_risk => Ok(Some(risk)),
        Some(risk) => Err(Refusal::DirtyAndDegraded(risk)),
    }
}

fn read_only(roster: &Roster<'_>) -> Option<ReadOnlyReason> {
    if has_ppl(roster) {
        return Some(ReadOnlyReason::Ppl);
    }
    let bitmap = roster.active.iter().find_map(|(_, candidate)| {
        candidate.superblock.intent.bitmap_offset_sectors?;
        bitmap_reason(candidate, roster.newest.events())
    });
    // Where there is no redundancy there are no replacements either.
    let is_direct = roster.newest.superblock.array.level.family() == Family::Direct;
    let odd = roster.replacements.first().filter(|_| is_direct).map(|(slot, _)| slot);
    let replaced = roster.replaced.first().or(odd);
    bitmap.or(replaced.map(|&slot| ReadOnlyReason::Replacement { slot }))
}

/// Why the bitmap of one member forbids writing, if it does.
fn bitmap_reason(candidate: &Candidate<'_>, events: u64) -> Option<ReadOnlyReason> {
    let Some(Ok(bitmap)) = candidate.member.bitmap else {
        return Some(ReadOnlyReason::BitmapUnreadable);
    };
    match bitmap.kind {
        BitmapKind::Classic if bitmap.events > events.saturating_add(1) => {
            Some(ReadOnlyReason::BitmapAhead { bitmap_events: bitmap.events, events })
        }
        BitmapKind::Classic => None,
        BitmapKind::HostEndian => Some(ReadOnlyReason::BitmapKind("version 3")),
        BitmapKind::Lockless => Some(ReadOnlyReason::BitmapKind("lockless")),
    }
}

/// More than any superblock or bitmap in use has: see the crate's documentation.
fn events_next_min(roster: &Roster<'_>) -> u64 {
    let bitmaps = roster.active.iter().filter_map(|(_, candidate)| candidate.member.bitmap?.ok());
    let bitmap_events = bitmaps.map(|bitmap| bitmap.events).max().unwrap_or(0);
    bitmap_events.max(roster.newest.events()).saturating_add(1)
}

fn occupants(roster: &Roster<'_>, geometry: &Geometry, slot_count: u16) -> Vec<Option<Occupant>> {
    let mut slots = vec![None; usize::from(slot_count)];
    for (slot, candidate) in &roster.active {
        let mut place = slot % slot_count;
        if planted(Bug::NextSlot) {
            place = (slot + 1) % slot_count;
        }
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
        bad_sectors: bad_sectors(candidate, geometry.used_sectors(slot)),
    }
}

/// The bad-block log counts from the start of the device and may run into parts that the array does not use.
fn bad_sectors(candidate: &Candidate<'_>, used_sectors: u64) -> Vec<Range<u64>> {
    let superblock = candidate.superblock;
    if !superblock.state.features.contains(Features::BAD_BLOCKS) {
        return Vec::new();
    }
    let data_offset = superblock.device.data_offset_sectors;
    let logged = candidate.member.bad_blocks.as_deref().unwrap_or_default();
    let mut ranges: Vec<Range<u64>> = logged
        .iter()
        .map(|bad| {
            let end = bad.start_sector.saturating_add(bad.length_sectors);
            let start = bad.start_sector.saturating_sub(data_offset);
            start..end.saturating_sub(data_offset).min(used_sectors)
        })
        .filter(|range| !range.is_empty())
        .collect();
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
