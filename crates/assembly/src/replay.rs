//! What partial parity logs (PPL) have to say about an array that was not stopped cleanly.
//!
//! What it does not do: replay (the engine does), or read logs (`braid_ondisk::ppl_log`).
//!
//! A log is about the rows whose parity is on its own member, so those count whose member is in its slot; of one that is stale,
//! foreign or missing nothing is asked. md says 0 for `resync_offset` of an array that is being written, and of one whose resync was
//! interrupted alike, so an array with logs that can be read is believed to fit but for what they name, as md believes it. Where
//! `resync_offset` says how far a resync came, no log knows about what comes after.

use std::collections::BTreeMap;

use braid_geometry::{Level, SECTOR_BYTES, Slot};
use braid_ondisk::{PPL_HEADER_SECTORS, PplLog, PplLogError, PplPlace, Superblock};

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

/// The partial parity log of a member, for an array that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssembledParityLog {
    /// Where it is.
    pub place: PplPlace,
    /// The generation of its newest record, and sectors from the start of the area to behind it; none if it has no record.
    pub newest: Option<(u64, u64)>,
}

/// Where a member keeps such a log, if it has one that is apart from everything else and has room for a band.
fn place(superblock: &Superblock) -> Option<PplPlace> {
    let (start, place) = superblock.ppl_area()?;
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

/// The logs of everybody, by index; none if the array keeps none that can be written.
pub(crate) fn parity_logs(
    roster: &Roster<'_>,
    members: &[ProbedMember],
) -> Option<BTreeMap<usize, AssembledParityLog>> {
    let is_raid5 = roster.newest.superblock.array.level == Level::Raid5;
    if !has_ppl(roster) || !is_raid5 {
        return None;
    }
    let log = |candidate: &Candidate<'_>| {
        let found = candidate.member.ppl.as_ref().and_then(|log| log.as_ref().ok());
        let newest = found.and_then(|log| log.newest.as_ref());
        let newest = newest.map(|record| (record.generation, record.end_sector));
        let place = place(candidate.superblock)?;
        Some((candidate.index, AssembledParityLog { place, newest }))
    };
    let uuid = roster.newest.superblock.array.uuid;
    let of_spare = |index: &usize| {
        let superblocks = &members[*index].probe.superblocks;
        let mut own = superblocks.iter().flatten().filter(|one| one.array.uuid == uuid);
        Some((*index, AssembledParityLog { place: place(own.next()?)?, newest: None }))
    };
    roster.in_use().map(log).chain(roster.spares.iter().map(of_spare)).collect()
}

/// Whether members have such a log.
pub(crate) fn has_ppl(roster: &Roster<'_>) -> bool {
    roster.active.iter().any(|(_, candidate)| candidate.superblock.intent.ppl.is_some())
}

/// What is to be replayed: nothing of an array that is clean, or has no log that md would keep.
pub(crate) fn replay(roster: &Roster<'_>, resync_offset: u64) -> Option<AssembledReplay> {
    let is_raid5 = roster.newest.superblock.array.level == Level::Raid5;
    if !has_ppl(roster) || !is_raid5 || resync_offset == u64::MAX {
        return None;
    }
    let (mut logs, mut unread) = (Vec::new(), Vec::new());
    for (slot, candidate) in &roster.active {
        match &candidate.member.ppl {
            Some(Ok(log)) => logs.push((Slot(*slot), log.clone())),
            Some(Err(error)) => unread.push((Slot(*slot), *error)),
            None => unread.push((Slot(*slot), PplLogError::Absent)),
        }
    }
    logs.sort_by_key(|(slot, _)| *slot);
    unread.sort_by_key(|(slot, _)| *slot);
    Some(AssembledReplay { logs, unread })
}
