//! Selects the parity logs, md's (PPL) or braid's own, that apply to an array that was not stopped
//! cleanly.
//!
//! The engine replays the logs, and `braid_ondisk::ppl_log` reads them.
//!
//! A log covers the rows whose parity is on its own member. So the log of a member counts if that
//! member is in its slot, and not if it is stale, foreign or missing. md writes a `resync_offset`
//! of 0 both while an array is written and while a resync is unfinished. Like md, braid takes an
//! array with readable logs for consistent except for the stripes that the logs name. If
//! `resync_offset` records the progress of a resync, no log covers the sectors after it.
//!
//! Logs may be added or dropped while the array runs, and an update may have reached only some
//! superblocks or log heads. The newest superblock says whether md's log is kept. braid's own log
//! is kept if half of the slots have heads, or if superblocks say that it counts. Logs are added
//! and dropped only while superblocks say clean.
//!
//! braid's own log may also be a single log for all members, in a bitmap file
//! ([`crate::bitmap_file`]): each slot is then given the entries that name it.
//!
//! braid's own log counts only if superblocks say that it counts ([`braid_ondisk::own_log`]),
//! because md writes without it. An interrupted update to clean reaches only some members; the
//! other superblocks still say that the log counts, and are right.

use std::collections::BTreeMap;

use braid_geometry::{Family, Level, SECTOR_BYTES, Slot};
use braid_ondisk::{
    BitmapFile, BitmapKind, LogHome, LogPlace, OwnLogPlace, PPL_HEADER_SECTORS, PplLog,
    PplLogError, PplPlace, Superblock,
};
use braid_sim_hooks::{Bug, planted};

use crate::ProbedMember;
use crate::bitmap_file;
use crate::candidates::Candidate;
use crate::judge::Roster;
use crate::parity_log::AssembledParityLog;

const BAND_SECTORS_MAX: u32 = 128;

/// The logs to replay, in order of slots. Only logs of members in their slots count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledReplay {
    /// Readable logs.
    pub logs: Vec<(Slot, PplLog)>,
    /// Unreadable logs, each with the reason.
    pub unread: Vec<(Slot, PplLogError)>,
}

impl AssembledReplay {
    /// The number of entries to replay.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.logs.iter().map(|(_, log)| log.entries().count()).sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogSource {
    /// braid's own log, in the bitmap file.
    File,
    /// md's logs; the newest member's log has this many sectors.
    Ppl(u16),
    /// braid's own logs on members. All rings are at least this large.
    Own(OwnLogPlace),
}

fn log_source(roster: &Roster<'_>, file: Option<&BitmapFile>) -> Option<LogSource> {
    if let Some(file) = file {
        return bitmap_file::log_place(file, roster).map(|_| LogSource::File);
    }
    // If the log is in a file, the members' log heads do not count.
    if bitmap_file::counts(roster, LogHome::File) {
        return None;
    }
    let level = roster.newest.superblock.array.level;
    if let Some(place) = roster.newest.superblock.intent.ppl {
        return (level == Level::Raid5).then_some(LogSource::Ppl(place.size_sectors));
    }
    let own = |one: &Candidate<'_>| one.member.own_log.as_ref()?.place.ok();
    let places: Vec<OwnLogPlace> =
        roster.active.iter().filter_map(|(_, candidate)| own(candidate)).collect();
    let smallest = places.iter().copied().min_by_key(|place| place.size_sectors)?;
    // A log head may belong to a log that the array dropped while this member was away.
    let slots = u64::from(roster.newest.superblock.array.raid_slots);
    if 2 * (places.len() as u64) < slots && !log_counts(roster) {
        return None;
    }
    // Unsynced regions have no parity to repair. An array with a lockless bitmap never has braid's
    // own log.
    let is_lockless = |(_, one): &(u16, Candidate<'_>)| {
        let bitmap = one.member.bitmap.as_ref().and_then(|bitmap| bitmap.as_ref().ok());
        bitmap.is_some_and(|bitmap| bitmap.superblock.kind == BitmapKind::Lockless)
    };
    if roster.active.iter().any(is_lockless) {
        return None;
    }
    (level.family() == Family::Stripe).then_some(LogSource::Own(smallest))
}

fn log_of<'a>(source: LogSource, candidate: &'a Candidate<'_>) -> Result<&'a PplLog, PplLogError> {
    let (log, absent) = match source {
        LogSource::Ppl(_) => (candidate.member.ppl.as_ref(), PplLogError::Absent),
        LogSource::File => (None, PplLogError::NoHead),
        LogSource::Own(_) => {
            (candidate.member.own_log.as_ref().map(|own| &own.log), PplLogError::NoHead)
        }
    };
    log.ok_or(absent)?.as_ref().map_err(|error| *error)
}

/// A member's place for a partial parity log, if it overlaps no other area and holds a band.
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

/// A member's place for braid's own log, if it fits and holds a band. The place is from the log's
/// head, or the default.
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

/// The parity logs of all members by index; `None` if the array has no logs that braid can write.
pub(crate) fn parity_logs(
    roster: &Roster<'_>,
    members: &[ProbedMember],
    file: Option<&BitmapFile>,
) -> Option<BTreeMap<usize, AssembledParityLog>> {
    let source = log_source(roster, file)?;
    if source == LogSource::File {
        return Some(BTreeMap::new());
    }
    let place = |superblock: &Superblock, member: &ProbedMember| match source {
        LogSource::Ppl(size_sectors) => place(superblock, size_sectors).map(LogPlace::Ppl),
        LogSource::Own(smallest) => own_place(superblock, member, smallest).map(LogPlace::Own),
        LogSource::File => unreachable!("members have none then"),
    };
    let is_believed = matches!(source, LogSource::Ppl(_)) || log_counts(roster);
    let log = |candidate: &Candidate<'_>| {
        let newest = log_of(source, candidate).ok().and_then(|log| log.newest.as_ref());
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

/// Whether superblocks say that braid's own log on members covers all doubt.
pub(crate) fn log_counts(roster: &Roster<'_>) -> bool {
    if planted(Bug::LogOutlivesOthers) {
        return true;
    }
    bitmap_file::counts(roster, LogHome::Members)
}

pub(crate) fn keeps_logs(roster: &Roster<'_>, file: Option<&BitmapFile>) -> bool {
    has_ppl(roster) || log_source(roster, file).is_some()
}

/// Whether all doubt is in stripes that parity logs name.
pub(crate) fn has_logs_that_count(roster: &Roster<'_>, file: Option<&BitmapFile>) -> bool {
    match log_source(roster, file) {
        _ if bitmap_file::counts(roster, LogHome::File) => true,
        Some(LogSource::Own(_)) => log_counts(roster),
        Some(LogSource::Ppl(_)) | None => has_ppl(roster),
        Some(LogSource::File) => false,
    }
}

fn has_ppl(roster: &Roster<'_>) -> bool {
    roster.newest.superblock.intent.ppl.is_some()
}

/// The logs to replay; `None` if the array is clean, or has no log that counts.
pub(crate) fn replay(
    roster: &Roster<'_>,
    file: Option<&BitmapFile>,
    resync_offset: u64,
) -> Option<AssembledReplay> {
    let source = log_source(roster, file);
    // mdadm's --force writes "clean" but keeps the mark that the log counts: the log's stripes
    // still need repair.
    let is_forced = match source {
        Some(LogSource::Ppl(_)) => false,
        Some(LogSource::Own(_) | LogSource::File) | None => {
            roster.newest.superblock.state.log_counts.is_some()
        }
    };
    let is_clean = resync_offset == u64::MAX && !is_forced;
    if !has_logs_that_count(roster, file) || is_clean {
        return None;
    }
    let (mut logs, mut unread) = (Vec::new(), Vec::new());
    let mut found: Vec<_> = match source {
        _ if bitmap_file::counts(roster, LogHome::File) => bitmap_file::logs_by_slot(file, roster),
        None => return None,
        Some(source) => {
            let of_slot = |(slot, candidate): &(u16, Candidate<'_>)| {
                (Slot(*slot), log_of(source, candidate).cloned())
            };
            roster.active.iter().map(of_slot).collect()
        }
    };
    found.sort_by_key(|(slot, _)| *slot);
    for (slot, log) in found {
        match log {
            Ok(log) => logs.push((slot, log)),
            Err(error) => unread.push((slot, error)),
        }
    }
    Some(AssembledReplay { logs, unread })
}
