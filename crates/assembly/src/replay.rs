//! What parity logs, md's (PPL) or our own, have to say about an array that was not stopped cleanly.
//!
//! What it does not do: replay (the engine does), or read logs (`braid_ondisk::ppl_log`).
//!
//! A log is about the rows whose parity is on its own member, so those count whose member is in its slot; of one that is stale,
//! foreign or missing nothing is asked. md says 0 for `resync_offset` of an array that is being written, and of one whose resync was
//! interrupted alike, so an array with logs that can be read is believed to fit but for what they name, as md believes it. Where
//! `resync_offset` says how far a resync came, no log knows about what comes after.
//!
//! Logs may be made, or given up, while the array runs, and not all superblocks, or heads, be written yet. Whether it keeps md's the newest
//! superblock says; our own if there are heads for half of the slots, or superblocks say that it counts. Either comes about
//! and goes while superblocks say clean.
//!
//! Our own log counts only where superblocks say so ([`braid_ondisk::own_log`]): md writes without it. An update that was to say clean may
//! have come to some members only; then the others still say that the log counts, and rightly.

use std::collections::BTreeMap;

use braid_geometry::{Family, Level, SECTOR_BYTES, Slot};
use braid_hooks::{Bug, planted};
use braid_ondisk::{
    BitmapKind, LogPlace, OwnLogPlace, PPL_HEADER_SECTORS, PplLog, PplLogError, PplPlace,
    Superblock,
};

use crate::ProbedMember;
use crate::candidates::Candidate;
use crate::judge::Roster;

/// Sectors of the largest band.
const BAND_SECTORS_MAX: u32 = 128;

/// Logs of the members that are in their slots, in order of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledReplay {
    /// Those that could be read.
    pub logs: Vec<(Slot, PplLog)>,
    /// Those that could not, and why.
    pub unread: Vec<(Slot, PplLogError)>,
}

impl AssembledReplay {
    /// Entries that are to be replayed.
    #[must_use]
    pub fn entries(&self) -> usize {
        let newest = self.logs.iter().filter_map(|(_, log)| log.newest.as_ref());
        newest.map(|record| record.entries.len()).sum()
    }
}

/// The parity log of a member, for an array that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssembledParityLog {
    /// Where it is, and of which kind.
    pub place: LogPlace,
    /// The generation of its newest record, and sectors from the start of the area to behind it; none if it has no record.
    pub newest: Option<(u64, u64)>,
}

/// Which logs an array keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// md's, of so many sectors on the member whose superblock is newest.
    Ppl(u16),
    /// Our own, with rings of at least so much.
    Own(OwnLogPlace),
}

fn kept(roster: &Roster<'_>) -> Option<Kept> {
    let level = roster.newest.superblock.array.level;
    if let Some(place) = roster.newest.superblock.intent.ppl {
        return (level == Level::Raid5).then_some(Kept::Ppl(place.size_sectors));
    }
    let own = |one: &Candidate<'_>| one.member.own_log.as_ref()?.place.ok();
    let places: Vec<OwnLogPlace> =
        roster.active.iter().filter_map(|(_, candidate)| own(candidate)).collect();
    let smallest = places.iter().copied().min_by_key(|place| place.size_sectors)?;
    // A head may be of a log that the array has given up since its member went.
    let slots = u64::from(roster.newest.superblock.array.raid_slots);
    if 2 * (places.len() as u64) < slots && !log_counts(roster) {
        return None;
    }
    // What was never synced has no parity that partial parity could be about. None of ours is made beside such a bitmap.
    let is_lockless = |(_, one): &(u16, Candidate<'_>)| {
        let bitmap = one.member.bitmap.as_ref().and_then(|bitmap| bitmap.as_ref().ok());
        bitmap.is_some_and(|bitmap| bitmap.superblock.kind == BitmapKind::Lockless)
    };
    if roster.active.iter().any(is_lockless) {
        return None;
    }
    (level.family() == Family::Stripe).then_some(Kept::Own(smallest))
}

/// What a member's log of the kind says.
fn log_of<'a>(kept: Kept, candidate: &'a Candidate<'_>) -> Result<&'a PplLog, PplLogError> {
    let (log, absent) = match kept {
        Kept::Ppl(_) => (candidate.member.ppl.as_ref(), PplLogError::Absent),
        Kept::Own(_) => {
            (candidate.member.own_log.as_ref().map(|own| &own.log), PplLogError::NoHead)
        }
    };
    log.ok_or(absent)?.as_ref().map_err(|error| *error)
}

/// Where a member keeps such a log, or is to, if that is apart from everything else and has room for a band.
fn place(superblock: &Superblock, size_sectors: u16) -> Option<PplPlace> {
    let place = superblock.ppl_place_of(size_sectors)?;
    let start = superblock.log_start_bytes(place.into())?;
    let end = start + place.used_bytes();
    let is_apart = |from: u64, length: u64| end <= from || from.saturating_add(length) <= start;
    let device = &superblock.device;
    let data = device.data_offset_sectors.saturating_mul(SECTOR_BYTES);
    let data_bytes = device.data_size_sectors.saturating_mul(SECTOR_BYTES);
    let bad_blocks = device.bad_block_log.zip(superblock.bad_block_log_offset_bytes());
    let is_own = is_apart(superblock.offset_bytes(), superblock.written_bytes() as u64)
        && is_apart(data, data_bytes)
        && bad_blocks
            .is_none_or(|(log, start)| is_apart(start, u64::from(log.size_sectors) * SECTOR_BYTES));
    let band = u64::from(superblock.array.chunk_sectors.min(BAND_SECTORS_MAX));
    (is_own && place.used_sectors() >= PPL_HEADER_SECTORS + band).then_some(place)
}

/// Where a member keeps our own log: as its head says, or where it would come to be. None if it would be in the way of something.
fn own_place(
    superblock: &Superblock,
    member: &ProbedMember,
    smallest: OwnLogPlace,
) -> Option<OwnLogPlace> {
    let bitmap = member.bitmap.as_ref().and_then(|bitmap| bitmap.as_ref().ok());
    let bitmap_sectors = bitmap.map_or(1, |bitmap| bitmap.superblock.area_sectors());
    let room = superblock.own_log_place(bitmap_sectors)?;
    let place = member.own_log.as_ref().and_then(|own| own.place.ok()).unwrap_or(smallest);
    let band = u64::from(superblock.array.chunk_sectors.min(BAND_SECTORS_MAX));
    let fits = place.size_sectors <= room.size_sectors;
    let holds_a_band = u64::from(place.size_sectors) > PPL_HEADER_SECTORS + band;
    (fits && holds_a_band).then_some(place)
}

/// The logs of everybody, by index; none if the array keeps none that can be written.
pub(crate) fn parity_logs(
    roster: &Roster<'_>,
    members: &[ProbedMember],
) -> Option<BTreeMap<usize, AssembledParityLog>> {
    let kept = kept(roster)?;
    let place = |superblock: &Superblock, member: &ProbedMember| match kept {
        Kept::Ppl(size_sectors) => place(superblock, size_sectors).map(LogPlace::Ppl),
        Kept::Own(smallest) => own_place(superblock, member, smallest).map(LogPlace::Own),
    };
    let is_believed = matches!(kept, Kept::Ppl(_)) || log_counts(roster);
    let log = |candidate: &Candidate<'_>| {
        let newest = log_of(kept, candidate).ok().and_then(|log| log.newest.as_ref());
        let newest = newest.filter(|_| is_believed);
        let newest = newest.map(|record| (record.generation, record.end_sector));
        let place = place(candidate.superblock, candidate.member)?;
        Some((candidate.index, AssembledParityLog { place, newest }))
    };
    let uuid = roster.newest.superblock.array.uuid;
    let of_spare = |index: &usize| {
        let member = &members[*index];
        let superblocks = &member.probe.superblocks;
        let mut own = superblocks.iter().flatten().filter(|one| one.array.uuid == uuid);
        let place = place(own.next()?, member)?;
        Some((*index, AssembledParityLog { place, newest: None }))
    };
    roster.in_use().map(log).chain(roster.spares.iter().map(of_spare)).collect()
}

/// Whether superblocks say that our own log names all that may be in doubt.
pub(crate) fn log_counts(roster: &Roster<'_>) -> bool {
    let newest = &roster.newest.superblock.state;
    // An update to clean follows one that had the log count, and nothing was written between them.
    let mut before = roster.active.iter().map(|(_, candidate)| &candidate.superblock.state);
    let was_cut_short = newest.is_clean() && before.any(|state| state.log_counts);
    if planted(Bug::LogOutlivesOthers) {
        return true;
    }
    newest.log_counts || was_cut_short
}

/// Whether the array keeps logs of one kind or the other.
pub(crate) fn keeps_logs(roster: &Roster<'_>) -> bool {
    has_ppl(roster) || kept(roster).is_some()
}

/// Whether what is in doubt is what logs name.
pub(crate) fn has_logs_that_count(roster: &Roster<'_>) -> bool {
    match kept(roster) {
        Some(Kept::Own(_)) => log_counts(roster),
        Some(Kept::Ppl(_)) | None => has_ppl(roster),
    }
}

/// Whether members have md's log.
fn has_ppl(roster: &Roster<'_>) -> bool {
    roster.newest.superblock.intent.ppl.is_some()
}

/// What is to be replayed: nothing of an array that is clean, or has no log that counts.
pub(crate) fn replay(roster: &Roster<'_>, resync_offset: u64) -> Option<AssembledReplay> {
    let kept = kept(roster)?;
    // mdadm's force says clean of what was not, and leaves the mark: what the log names is to be made right all the same.
    let is_forced = matches!(kept, Kept::Own(_)) && roster.newest.superblock.state.log_counts;
    let is_clean = resync_offset == u64::MAX && !is_forced;
    if !has_logs_that_count(roster) || is_clean {
        return None;
    }
    let (mut logs, mut unread) = (Vec::new(), Vec::new());
    for (slot, candidate) in &roster.active {
        match log_of(kept, candidate) {
            Ok(log) => logs.push((Slot(*slot), log.clone())),
            Err(error) => unread.push((Slot(*slot), error)),
        }
    }
    logs.sort_by_key(|(slot, _)| *slot);
    unread.sort_by_key(|(slot, _)| *slot);
    Some(AssembledReplay { logs, unread })
}
