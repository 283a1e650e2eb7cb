//! Makes an array machine's setup from an assembled array, and its first superblock writes.
//!
//! Every driver starts an array this way. It opens and flushes the members, so that every
//! superblock it read is durable. It carries out [`levelling`] round by round and wave by wave.
//! Then it makes an [`Array`](crate::array::Array) of [`opening`], and numbers the members by
//! [`Opening::members`]. [`returns`] judges the superblock of a device that was a member before.
//! This file reads and writes no device, and does not judge members in slots.
//!
//! ```text
//!   assembled ──levelling──▶ wave ──durable──▶ wave ──durable──▶ ...
//!             ──opening────▶ ArraySetup + who is which MemberId
//! ```
//!
//! # Invariants
//! - A power cut during a wave tears no more superblocks than the array can miss
//!   [check: long_superblocks_are_levelled_one_half_after_the_other].
//! - A member that missed its superblock write is not believed
//!   [check: a_member_that_cannot_be_told_is_missed_or_needed].

use std::collections::BTreeSet;
use std::ops::Range;

use braid_assembly::{
    AssembledArray, AssembledBitmap, AssembledParityLog, AssembledReshape, MemberMove, Occupant,
    ShapeToWrite,
};
use braid_geometry::{Family, Geometry, MemberSector, SECTOR_BYTES, Slot};
use braid_ondisk::limits::BAD_BLOCK_LOG_SECTORS_MAX;
use braid_ondisk::{Features, JournalLog, Reshape, Role, Superblock};
use braid_sim_hooks::{Bug, planted, spoiled};

use crate::array::{
    AcceptedRisk, ArraySetup, BitmapSetup, DataMove, JournalSetup, MemberSetup, ParityLogSetup,
    ReplacementSetup, ReshapeSetup, ReturningMember, ShapeState, SpareSetup, level_with, next_wave,
};
use crate::ids::MemberId;
use crate::request::Regions;
use crate::reshape::{ReshapeFault, ReshapePlan};
use crate::{BadBlocks, BadLog, BadRange, CacheConfig};

/// The driver's settings for the array.
#[derive(Clone, Debug)]
pub struct OpeningSettings {
    /// Whether writes are refused.
    pub read_only: bool,
    /// The number of shards.
    pub shards: u16,
    /// The dimensions of each shard's stripe cache.
    pub cache: CacheConfig,
    /// Whether jobs start paused.
    pub jobs_paused: bool,
    /// Whether every member zeroes ranges without writing them out.
    pub zero_is_fast: bool,
    /// Milliseconds without a write after which the array marks its superblocks clean.
    pub clean_delay_ms: u64,
}

/// A member that takes part in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpeningMember {
    /// The member's index in assembly's input.
    pub index: usize,
    /// Sectors of the member's data area that are up to date; `u64::MAX` for all.
    pub recovered_sectors: u64,
}

/// The input of an array's machine.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The machine's setup.
    pub setup: ArraySetup,
    /// The members, by [`MemberId`]: occupants in the order of [`AssembledArray::occupants`], then
    /// spares, then the device of a journal that is written, or the bitmap file. The bitmap file's
    /// index follows those of assembly's input.
    pub members: Vec<OpeningMember>,
}

/// The reason why no machine can be made for an assembled array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// Assembly chose a member that the driver did not open.
    #[error("member {index} was chosen by assembly but is not open")]
    NotOpen {
        /// The member's index in assembly's input.
        index: usize,
    },
    /// The array's reshape cannot continue: its shapes or its direction allow no plan.
    #[error("the reshape cannot go on: {0}")]
    Reshape(#[source] ReshapeFault),
    /// Two members have the same number in the superblocks' role table.
    #[error("two members have the device number {number}")]
    NumberTwice {
        /// The number.
        number: u16,
    },
}

/// Makes the machine's setup. `superblock_of` returns the superblocks of the members that the
/// driver opened, by their index in assembly's input. The index after the last member is the
/// stand-in for a bitmap file ([`Superblock::for_bitmap_file`]).
///
/// # Errors
/// If a chosen member is not open, or two members have the same device number.
pub fn opening<'a>(
    assembled: &AssembledArray,
    superblock_of: impl Fn(usize) -> Option<&'a Superblock>,
    settings: &OpeningSettings,
) -> Result<Opening, OpeningError> {
    let mut members: Vec<OpeningMember> = Vec::new();
    let mut numbers: Vec<u16> = Vec::new();
    let (mut tears, mut write_mostly) = (false, BTreeSet::new());
    let mut join = |index: usize, recovered_sectors: u64| {
        let superblock = superblock_of(index).ok_or(OpeningError::NotOpen { index })?;
        let number = u16::try_from(superblock.device.number);
        let number = number.expect("validated: at most 1920 devices");
        if numbers.contains(&number) {
            return Err(OpeningError::NumberTwice { number });
        }
        let id = MemberId(u16::try_from(members.len()).expect("md's limit is far lower"));
        members.push(OpeningMember { index, recovered_sectors });
        numbers.push(number);
        tears |= can_tear(superblock);
        write_mostly.extend(superblock.device.flags.write_mostly.then_some(id));
        Ok(Name { id, number, bad_log_sectors: bad_log_sectors(superblock) })
    };
    let mut slots = Vec::new();
    for occupant in &assembled.slots {
        let Some(occupant) = occupant else {
            slots.push(None);
            continue;
        };
        let named = join(occupant.member, occupant.recovered_until)?;
        slots.push(Some(member_setup(occupant, named)));
    }
    let mut replacements = Vec::new();
    for (slot, occupant) in &assembled.replacements {
        let held = replacement_held(assembled, occupant);
        let named = join(occupant.member, held)?;
        let mut member = member_setup(occupant, named);
        member.recovered_sectors = held;
        replacements.push(ReplacementSetup { slot: *slot, member });
    }
    let parity_log = |index: usize| {
        let logs = assembled.parity_logs.as_ref()?;
        logs.get(&index).map(|log| log.place)
    };
    let spare = |index: usize, name: Name| SpareSetup {
        id: name.id,
        device_number: name.number,
        bad_log_sectors: name.bad_log_sectors,
        tears: false,
        returns: None,
        parity_log: parity_log(index),
    };
    // A spare that was away while the bitmap was made may have no room for the bitmap.
    let on_members = assembled.bitmap.as_ref().filter(|_| assembled.bitmap_file.is_none());
    let needed = on_members.map_or(0, |bitmap| bitmap.superblock.area_sectors());
    let has_room = |index: &&usize| {
        superblock_of(**index).is_none_or(|spare| needed == 0 || spare.room_for_bitmap() >= needed)
    };
    let waiting = assembled.spares.iter().filter(has_room);
    let spares: Result<Vec<SpareSetup>, _> =
        waiting.map(|&i| join(i, u64::MAX).map(|name| spare(i, name))).collect();
    let spares = spares?;
    // A read-only open replays the journal in memory, and never reads the journal again.
    let written = assembled.journal.as_ref().filter(|_| !settings.read_only);
    let journal = written.map(|journal| {
        join(journal.member, u64::MAX).map(|name| journal_setup(&journal.log, &name))
    });
    let journal = journal.transpose()?;
    // A bitmap file has no device number, as no superblock names it.
    let file = assembled.bitmap_file.as_ref().map(|file| {
        let id = MemberId(u16::try_from(members.len()).expect("md's limit is far lower"));
        superblock_of(file.member).ok_or(OpeningError::NotOpen { index: file.member })?;
        members.push(OpeningMember { index: file.member, recovered_sectors: u64::MAX });
        Ok((id, file.parity_log))
    });
    let file = file.transpose()?;
    // With a journal, superblocks always say clean: entries in the journal show an unclean stop.
    let has_entries = written.is_some_and(|journal| !journal.log.entries.is_empty());
    let ids: Vec<(usize, MemberId)> =
        (0..).map(MemberId).zip(&members).map(|(id, joined)| (joined.index, id)).collect();
    let log_of = |(index, id): (usize, MemberId)| {
        let log = assembled.parity_logs.as_ref()?.get(&index)?;
        let AssembledParityLog { place, newest } = *log;
        Some((id, ParityLogSetup { place, newest }))
    };
    let parity_logs = assembled.parity_logs.as_ref().filter(|_| file.is_none());
    let parity_logs = parity_logs.map(|_| ids.into_iter().filter_map(log_of).collect());
    let in_file = file.and_then(|(id, log)| {
        let AssembledParityLog { place, newest } = log?;
        Some([(id, ParityLogSetup { place, newest })].into_iter().collect())
    });
    let setup = ArraySetup {
        geometry: assembled.geometry.clone(),
        reshape: reshape_setup(assembled, &members).map_err(OpeningError::Reshape)?,
        slots,
        replacements,
        spares,
        write_mostly,
        events: assembled.newest.state.events,
        resync_offset: resync_offset(assembled),
        accepted_risk: accepted_risk(assembled),
        bitmap: assembled.bitmap.as_ref().map(|bitmap| bitmap_setup(assembled, bitmap)),
        names_bitmap: names_bitmap(assembled),
        bitmap_file: file.map(|(id, _)| id),
        parity_logs: parity_logs.or(in_file),
        log_counts: assembled.newest.state.log_counts.is_some(),
        journal,
        is_unclean: keeps_intent(assembled)
            && (assembled.newest.state.resync_offset != u64::MAX || has_entries),
        read_only: settings.read_only,
        regions: regions(assembled, settings.shards),
        work_sectors: settings.cache.block_sectors(&assembled.geometry),
        jobs_paused: settings.jobs_paused,
        zero_is_fast: settings.zero_is_fast,
        clean_delay_ms: settings.clean_delay_ms,
        superblocks_tear: tears,
    };
    Ok(Opening { setup, members })
}

/// The distribution of sectors over shards; during a reshape there are shards for each shape.
fn regions(assembled: &AssembledArray, shards: u16) -> Regions {
    let Some(reshape) = &assembled.reshape else {
        return Regions::new(&assembled.geometry, shards);
    };
    let [before, after] = reshape_geometries(reshape);
    let AssembledReshape { position_sectors, backwards, .. } = *reshape;
    let begun = if backwards { u64::MAX } else { 0 };
    let position_sectors = spoiled(Bug::BorderNotResumed, position_sectors, begun);
    Regions::new(&before, shards).with_reshape(&after, position_sectors, backwards)
}

fn reshape_geometries(reshape: &AssembledReshape) -> [Geometry; 2] {
    let of = |shape| Geometry::new(shape).expect("assembly made both shapes' geometries");
    [of(&reshape.before), of(&reshape.after)]
}

/// The setup with which the machine continues the reshape in progress.
fn reshape_setup(
    assembled: &AssembledArray,
    members: &[OpeningMember],
) -> Result<Option<ReshapeSetup>, ReshapeFault> {
    let Some(reshape) = &assembled.reshape else { return Ok(None) };
    let [before, after] = reshape_geometries(reshape);
    let gap = |one: &MemberMove| {
        let [from, to] = [one.before_sectors, one.after_sectors].map(u64::cast_signed);
        if reshape.backwards { to - from } else { from - to }
    };
    // Only a member of both shapes is read and written at once, so only its gap counts.
    let both = usize::from(before.slots().min(after.slots()));
    let seated = assembled.slots.iter().take(both).flatten().map(|one| one.member);
    let in_both = |member: usize| seated.clone().any(|seated| seated == member);
    let moves_of_both = reshape.moves.iter().filter(|one| in_both(one.member));
    let gap_sectors = moves_of_both.map(gap).min().unwrap_or(0);
    let plan = ReshapePlan::new((&before, &after), gap_sectors, reshape.backwards)?;
    let ids = (0..).map(MemberId).zip(members);
    let moves = ids.filter_map(|(id, member)| {
        let one = reshape.moves.iter().find(|one| one.member == member.index)?;
        let base = one.before_sectors.min(one.after_sectors);
        let (before_sectors, after_sectors) = (one.before_sectors - base, one.after_sectors - base);
        Some((id, DataMove { before_sectors, after_sectors }))
    });
    let moves = moves.collect();
    let said = assembled.newest.shape();
    let shape = ShapeState {
        level: said.level,
        layout: said.layout,
        chunk_sectors: said.chunk_sectors,
        member_size_sectors: said.member_size_sectors,
        raid_slots: said.raid_slots,
        // Each superblock keeps its own member's new data offset.
        reshape: said.reshape.map(|said| Reshape { new_data_offset_sectors: None, ..said }),
        data_areas: Vec::new(),
    };
    let (copied, window_sectors_max) = (None, None);
    Ok(Some(ReshapeSetup { before, after, plan, shape, moves, copied, window_sectors_max }))
}

fn journal_setup(log: &JournalLog, name: &Name) -> JournalSetup {
    let JournalLog { area, end_sectors, end_sequence, .. } = *log;
    let (member, device_number) = (name.id, name.number);
    let is_used = log.meta_blocks > 1 || !log.entries.is_empty();
    JournalSetup { member, device_number, area, end_sectors, end_sequence, is_used }
}

/// Sectors of a replacement that hold the member's data. If a write to member and replacement was
/// interrupted, the two may differ. A resync compares members only, and makes the other members
/// agree with the member. So the replacement is filled from its start again.
fn replacement_held(assembled: &AssembledArray, replacement: &Occupant) -> u64 {
    let is_dirty = assembled.dirty;
    let is_dirty = spoiled(Bug::ReplacementTrusted, is_dirty, false);
    if is_dirty { 0 } else { replacement.recovered_until }
}

struct Name {
    id: MemberId,
    number: u16,
    bad_log_sectors: u16,
}

/// Sectors of a member's bad-block log; 0 if the array writes none. A log in units of more than a
/// sector stays untouched, and so does a log that overlaps another area.
#[must_use]
pub fn bad_log_sectors(superblock: &Superblock) -> u16 {
    let Some(log) = superblock.device.bad_block_log else { return 0 };
    let Some(start) = superblock.bad_block_log_offset_bytes() else { return 0 };
    let end = start + u64::from(log.size_sectors) * SECTOR_BYTES;
    let is_apart = |from: u64, length: u64| end <= from || from.saturating_add(length) <= start;
    let device = &superblock.device;
    let data = device.data_offset_sectors.saturating_mul(SECTOR_BYTES);
    let data_length = device.data_size_sectors.saturating_mul(SECTOR_BYTES);
    let bitmap = superblock.bitmap_offset_bytes();
    let is_own = is_apart(superblock.offset_bytes(), superblock.written_bytes() as u64)
        && is_apart(data, data_length)
        && bitmap.is_none_or(|start| is_apart(start, SECTOR_BYTES));
    let is_plain = log.shift == 0 && (1..=BAD_BLOCK_LOG_SECTORS_MAX).contains(&log.size_sectors);
    if is_own && is_plain { log.size_sectors } else { 0 }
}

/// The ranges that a former member still holds, or `None` if it needs a full recovery. `found` is
/// the former member's superblock, `newest` that of a member in a slot; `seated` are the members in
/// slots, with their indices in the role table. `None` if the device never held all of its slot,
/// was written without a current member, or is not older than `newest`.
#[must_use]
pub fn returns(
    found: &Superblock,
    newest: &Superblock,
    seated: impl IntoIterator<Item = (Slot, u16)>,
) -> Option<ReturningMember> {
    let Role::Active(slot) = found.state.role else { return None };
    let (slot, events) = (Slot(slot), found.state.events);
    let unfit = [Features::REPLACEMENT, Features::BAD_BLOCKS, Features::RESHAPE];
    let held_all = found.device.recovery_offset_sectors.is_none()
        && !unfit.into_iter().any(|feature| found.state.features.contains(feature));
    let is_same = found.array.uuid == newest.array.uuid
        && found.array.member_size_sectors == newest.array.member_size_sectors
        && found.device.data_offset_sectors == newest.device.data_offset_sectors;
    let is_older = events < newest.state.events;
    let is_called_in = |(slot, number): (Slot, u16)| {
        found.state.roles.get(usize::from(number)) == Some(&Role::Active(slot.0))
    };
    let mut seated = seated.into_iter();
    let was_with_all = seated.all(|(other, number)| other != slot && is_called_in((other, number)));
    (held_all && is_same && is_older && was_with_all).then_some(ReturningMember { slot, events })
}

fn member_setup(occupant: &Occupant, name: Name) -> MemberSetup {
    let Name { id, number: device_number, bad_log_sectors } = name;
    let range = |range: &Range<u64>| BadRange {
        start: MemberSector(range.start),
        sectors: range.end - range.start,
    };
    let records = occupant.bad_records.iter().map(|(sector, named)| (*sector, range(named)));
    let bad_blocks = BadBlocks::new(records.clone().map(|(_, named)| named).collect());
    let bad_log = BadLog::new(bad_log_sectors, records);
    let recovered_sectors = occupant.recovered_until;
    MemberSetup { id, device_number, recovered_sectors, bad_blocks, bad_log }
}

/// Whether superblocks shall name a bitmap. The newest superblock decides: older ones may lack a
/// change.
fn names_bitmap(assembled: &AssembledArray) -> Option<bool> {
    let names = assembled.newest.intent.bitmap_offset_sectors.is_some();
    let is_on_members = assembled.bitmap.is_some() && assembled.bitmap_file.is_none();
    (names == is_on_members).then_some(names)
}

/// The bitmap that the array keeps from here on. md does not update `events_cleared` when it clears
/// marks of a lockless bitmap; but if all members are present, none has missed a write until now.
fn bitmap_setup(assembled: &AssembledArray, bitmap: &AssembledBitmap) -> BitmapSetup {
    let AssembledBitmap { superblock, is_current, bits, marks } = bitmap;
    let mut head = *superblock;
    if marks.is_some() && assembled.degraded == 0 {
        head.events_cleared = assembled.newest.state.events;
    }
    let (says, doubt) = (bits.clone(), is_current.then(|| bits.clone()));
    BitmapSetup { head, says, doubt, marks: marks.clone() }
}

/// The offset up to which redundancy agrees. On levels without redundancy, and if a believed bitmap
/// names nothing after the offset, redundancy agrees everywhere.
fn resync_offset(assembled: &AssembledArray) -> u64 {
    let end = accepted_risk(assembled).map_or(u64::MAX, |risk| risk.until_sectors);
    let says_none = |bitmap: &AssembledBitmap| {
        let first = bitmap.bits.next_sector(assembled.resync_offset);
        bitmap.is_current && first.is_none_or(|first| first >= end)
    };
    let agrees = assembled.bitmap.as_ref().is_some_and(says_none);
    match agrees || assembled.resync_offset >= end || !keeps_intent(assembled) {
        true => u64::MAX,
        false => assembled.resync_offset,
    }
}

/// The risk that the operator accepted, and the offset up to which that risk leaves nothing to
/// resync. md's offset may lie inside a band; the array resyncs bands as a whole.
fn accepted_risk(assembled: &AssembledArray) -> Option<AcceptedRisk> {
    let Geometry::Stripe(stripe) = &assembled.geometry else { return None };
    assembled.accepted_risk.as_ref()?;
    let held = |occupant: &Option<Occupant>| occupant.as_ref().map_or(0, |one| one.recovered_until);
    let lacking = (0..).map(Slot).zip(assembled.slots.iter().map(held));
    let lacking: Vec<(Slot, u64)> = lacking.filter(|(_, held)| *held != u64::MAX).collect();
    let is_as_much_as_borne = lacking.len() == usize::from(stripe.parity_slots());
    let most = lacking.iter().map(|(_, held)| *held).max().filter(|_| is_as_much_as_borne);
    let chunk = u64::from(stripe.chunk_sectors());
    let until_sectors = most.map_or(u64::MAX, |held| held.next_multiple_of(chunk));
    let slots = lacking.into_iter().map(|(slot, _)| slot).collect();
    Some(AcceptedRisk { until_sectors, slots })
}

/// Whether the array records in its superblocks that writes may be under way. Levels without
/// redundancy write no superblocks while they run.
fn keeps_intent(assembled: &AssembledArray) -> bool {
    assembled.geometry.level().family() != Family::Direct
}

/// A superblock for one member, with the member's index in assembly's input.
pub type MemberSuperblock = (usize, Superblock);

/// The waves of superblock writes that bring members one event forward: mostly one wave, and none
/// if all members have the newest event count. Each wave starts when the wave before is durable or
/// failed; within a wave the order is free.
pub type Round = Vec<Vec<MemberSuperblock>>;

/// The rounds of superblock writes that *level* the members: they bring every member to the event
/// count at which the array starts.
///
/// The driver tries a failed write once more. If the second try fails too, the member is lost, even
/// if the next write succeeds. If the array kept the member, a power cut could leave it two events
/// behind, and assembly would call it stale. If the array [`can_miss`] the member, the driver
/// levels the other members. The driver then reports the loss to the machine before anything else
/// ([`Array::handle_member_gone`](crate::array::Array::handle_member_gone)). If the array needs the
/// member, the array does not start.
///
/// A member that is levelled is one event behind. It gets the update time of the newest superblock:
/// its own time would assign it to another update than the other members. If the first update then
/// reached only some members, the levelled member would be two events behind. Assembly would call
/// it stale though it missed nothing.
#[must_use]
pub fn levelling<'a>(
    assembled: &AssembledArray,
    superblock_of: impl Fn(usize) -> Option<&'a Superblock>,
) -> Round {
    // A power cut may have left some superblocks of a RAID-0 in the old shape.
    if !keeps_intent(assembled) && assembled.shapes_to_write.is_empty() {
        return Round::new();
    }
    let newest = &assembled.newest;
    let events = newest.state.events;
    // The array's first update records the replay; this levelling does not.
    let resync_offset = assembled.resync_offset.min(newest.state.resync_offset);
    let update_time = newest.state.update_time;
    let update = |index: usize| {
        let superblock = superblock_of(index)?;
        let level = (events, resync_offset);
        let mut update = level_with(superblock, newest, level, update_time)?;
        let mut levelled = superblock.clone();
        let shape = assembled.shapes_to_write.iter().find(|one| one.member == index);
        match shape {
            None => levelled.apply(&update),
            Some(ShapeToWrite { shape, role, recovery_offset, device_bytes, .. }) => {
                update.role_of_this = *role;
                update.recovery_offset = *recovery_offset;
                levelled
                    .apply_with_shape(&update, shape, *device_bytes)
                    .expect("assembly has tried the shape");
            }
        }
        // Every member had its bitmap, or its log, before the newest superblock was written.
        let log = assembled.parity_logs.as_ref().and_then(|logs| logs.get(&index));
        let ppl = log.and_then(|log| log.place.ppl());
        if newest.intent.ppl.is_none() {
            levelled.name_ppl(None);
        }
        if let Some(is_there) = names_bitmap(assembled) {
            levelled.name_bitmap(is_there);
        }
        if ppl.is_some() {
            levelled.name_ppl(ppl);
        }
        // Every member had its log before the newest superblock was written. If that superblock was
        // to say clean, the member is dirty only where its own log says.
        let was_cut_short = newest.state.is_clean() && !levelled.state.is_clean();
        let before = superblock.state.log_counts.filter(|_| was_cut_short);
        if let Some(home) = newest.state.log_counts.or(before) {
            levelled.set_log_counts(home);
        }
        Some((index, levelled))
    };
    // A spare that missed a change of shape would never get it: later updates keep its shape.
    let is_spare = |one: &&ShapeToWrite| assembled.spares.contains(&one.member);
    let spares = assembled.shapes_to_write.iter().filter(is_spare).map(|one| one.member);
    let mut behind: Vec<usize> = spares.collect();
    if planted(Bug::SpareKeepsShape) {
        behind.clear();
    }
    let occupants = assembled.occupants().map(|occupant| occupant.member);
    let behind = occupants.chain(behind);
    let behind: Vec<_> = behind.filter_map(update).collect();
    let mut round =
        if behind.is_empty() { Round::new() } else { waves(assembled, behind, &superblock_of) };
    // Assembly would ignore a journal that is two events behind.
    let journal = assembled.journal.as_ref().and_then(|journal| update(journal.member));
    round.extend(journal.map(|levelled| vec![levelled]));
    round
}

/// Whether the array can start without the members `lost`, which are given by their index in
/// assembly's input. The level must tolerate these losses together with the members that are
/// already missing, with parity that agrees everywhere. The array cannot start without its journal.
#[must_use]
pub fn can_miss(assembled: &AssembledArray, lost: &[usize]) -> bool {
    let is_there = |occupant: &Occupant| occupant.is_in_sync() && !lost.contains(&occupant.member);
    let is_lost = |slot: Slot| !assembled.slots[slot.index()].as_ref().is_some_and(is_there);
    let is_parity = assembled.geometry.level().family() == Family::Stripe;
    let agrees = resync_offset(assembled) == u64::MAX;
    let journal = assembled.journal.as_ref().map(|journal| journal.member);
    if journal.is_some_and(|journal| lost.contains(&journal)) {
        return false;
    }
    lost.is_empty() || assembled.geometry.survives(&is_lost) && (agrees || !is_parity)
}

/// Whether a power cut can leave the superblock as a mix of old and new sectors.
#[must_use]
pub fn can_tear(superblock: &Superblock) -> bool {
    superblock.written_bytes() as u64 > SECTOR_BYTES
}

/// Returns a round as one wave, or as several waves if its superblocks can tear.
fn waves<'a>(
    assembled: &AssembledArray,
    round: Vec<MemberSuperblock>,
    superblock_of: &impl Fn(usize) -> Option<&'a Superblock>,
) -> Round {
    if !round.iter().any(|(index, _)| superblock_of(*index).is_some_and(can_tear)) {
        return vec![round];
    }
    let slots = (0..).map(Slot).zip(&assembled.slots);
    let slots: Vec<(Slot, usize)> =
        slots.filter_map(|(slot, one)| Some((slot, one.as_ref()?.member))).collect();
    let slot_of = |index: usize| slots.iter().find(|(_, member)| *member == index);
    let mut waiting: Vec<_> =
        round.into_iter().map(|one| (slot_of(one.0).map(|(slot, _)| *slot), one)).collect();
    let is_lost = |slot: Slot| {
        let occupant = assembled.slots[slot.index()].as_ref();
        occupant.is_none_or(|occupant| !occupant.is_in_sync())
    };
    let geometry = &assembled.geometry;
    let survives = |is_lost: &dyn Fn(Slot) -> bool| geometry.survives(is_lost);
    let mut waves = Vec::new();
    while !waiting.is_empty() {
        waves.push(next_wave((geometry.slots(), &survives), &is_lost, &mut waiting));
    }
    waves
}
