//! The write journal of an array: which device has it, and whether it can be believed.
//!
//! What it does not do: read it (`braid_ondisk::journal_log`), or replay it (the engine does).
//!
//! md counts its device in as it counts members: its events may be one behind the newest. Superblocks of an array with a journal say
//! "clean" while it is written, as the journal knows what was. So without it nobody knows whether any stripe was being written: members
//! may lack writes that were acknowledged, and parity may not fit, anywhere. The array then counts as one that was not stopped cleanly, all
//! of it in doubt.

use braid_geometry::Geometry;
use braid_ondisk::{
    Features, JOURNAL_BLOCK_SECTORS, JournalLog, JournalLogError, JournalRow, Role,
};

use crate::candidates::Candidate;
use crate::judge::Roster;
use crate::refusal::JournalFault;

/// Sectors of a stripe unit that is written at once, at most: the engine's own limit.
const UNIT_SECTORS_MAX: u64 = 128;
/// A record is written, one waits for room, and there is some to spare.
const BATCHES_MIN: u64 = 4;

/// Sectors of a ring that can be written for such an array: so that a batch always finds room when those before it are on the members. None
/// if no journal can be: its blocks are of 4 KiB, and a meta block names all that are beside each other.
#[must_use]
pub fn journal_sectors_min(geometry: &Geometry) -> Option<u64> {
    let Geometry::Stripe(stripe) = geometry else { return None };
    let chunk_sectors = u64::from(stripe.chunk_sectors());
    let has_blocks = chunk_sectors.is_multiple_of(JOURNAL_BLOCK_SECTORS);
    let is_named = usize::from(stripe.data_slots()) <= JournalRow::DATA_MAX;
    // Each row of blocks may have a meta block of its own.
    let batch = chunk_sectors.min(UNIT_SECTORS_MAX) * (u64::from(stripe.slots()) + 1);
    (has_blocks && is_named).then_some(BATCHES_MIN * batch + 8 * JOURNAL_BLOCK_SECTORS)
}

/// Whether a journal can be written.
pub(crate) fn can_be_written(geometry: &Geometry, journal: &AssembledJournal) -> bool {
    let ring_sectors = journal.log.area.ring_sectors;
    journal_sectors_min(geometry).is_some_and(|min| ring_sectors >= min)
}

/// An update of superblocks that was cut short may have reached the journal's device alone. Two have not: who knows of those is missing, and
/// what the journal has is newer than what the members hold that are here.
const EVENTS_AHEAD_MAX: u64 = 1;

/// Whether those are missing who know what the journal knows.
fn is_ahead(roster: &Roster<'_>, journal: &Candidate<'_>) -> bool {
    let newest = roster.newest.events();
    // The members that the update was written for are none of these.
    let roles = &journal.superblock.state.roles;
    let is_in = |(slot, one): &(u16, Candidate<'_>)| {
        let number = usize::try_from(one.superblock.device.number).ok();
        number.and_then(|number| roles.get(number)) == Some(&Role::Active(*slot))
    };
    let is_of_others = journal.events() > newest && !roster.active.iter().any(is_in);
    is_of_others || journal.events() > newest + EVENTS_AHEAD_MAX
}

/// A journal that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledJournal {
    /// Index into the members that were given.
    pub member: usize,
    /// What it says.
    pub log: JournalLog,
}

/// The journal, or why there is none; `None` of an array that has none.
pub(crate) fn journal(roster: &Roster<'_>) -> Option<Result<AssembledJournal, JournalFault>> {
    // One may have been made, or given up, and not all members' superblocks say so.
    if !roster.newest.superblock.state.features.contains(Features::JOURNAL) {
        return None;
    }
    let roles = &roster.newest.superblock.state.roles;
    let number = (0..).zip(roles).find(|(_, role)| **role == Role::Journal);
    let number = number.map(|(number, _)| number);
    Some(match roster.journals[..] {
        [] => Err(JournalFault::Absent { number }),
        [one] if is_ahead(roster, &one) => {
            let (label, events) = (one.label(), one.events());
            Err(JournalFault::Ahead { label, events, newest_events: roster.newest.events() })
        }
        [one] => match &one.member.journal {
            Some(Ok(log)) => Ok(AssembledJournal { member: one.index, log: log.clone() }),
            Some(Err(cause)) => Err(JournalFault::Unusable { label: one.label(), cause: *cause }),
            None => {
                let cause = JournalLogError::NoRoom;
                Err(JournalFault::Unusable { label: one.label(), cause })
            }
        },
        ref several => {
            let labels = several.iter().map(|one| one.label()).collect();
            Err(JournalFault::Several { labels })
        }
    })
}
