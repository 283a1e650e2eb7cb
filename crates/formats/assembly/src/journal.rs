//! The write journal of an array: which device has it, and whether it counts.
//!
//! This file does not read the journal (`braid_ondisk::journal_log` does) and does not replay it
//! (the engine does).
//!
//! md treats the journal device as a member: its events may be one behind the newest. Superblocks
//! of an array with a journal say "clean" while the array is written, because the journal covers
//! writes in flight. Without the journal any stripe may have been in flight: members may lack
//! acknowledged writes, and parity may be wrong. The array then counts as not stopped cleanly, and
//! the whole array is in doubt.

use braid_geometry::Geometry;
use braid_ondisk::{
    Features, JOURNAL_BLOCK_SECTORS, JournalLog, JournalLogError, JournalRow, Role,
};

use crate::candidates::Candidate;
use crate::judge::Roster;
use crate::refusal::JournalFault;

/// The most sectors of a stripe unit in one write: the engine's own limit.
const UNIT_SECTORS_MAX: u64 = 128;
/// The least number of batches that the ring must hold: one batch that is written, one batch that
/// waits for room, and two spare batches.
const BATCHES_MIN: u64 = 4;

/// The least size of a journal's ring in sectors. In such a ring a batch always finds room once the
/// earlier batches are on the members. `None` if the array can have no journal: journal blocks are
/// 4 KiB, and a meta block must name all blocks that belong together.
#[must_use]
pub fn journal_sectors_min(geometry: &Geometry) -> Option<u64> {
    let Geometry::Stripe(stripe) = geometry else { return None };
    let chunk_sectors = u64::from(stripe.chunk_sectors());
    let has_blocks = chunk_sectors.is_multiple_of(JOURNAL_BLOCK_SECTORS);
    let is_named = usize::from(stripe.data_slots()) <= JournalRow::DATA_MAX;
    // The size of a batch assumes a meta block for each row of blocks.
    let batch = chunk_sectors.min(UNIT_SECTORS_MAX) * (u64::from(stripe.slots()) + 1);
    (has_blocks && is_named).then_some(BATCHES_MIN * batch + 8 * JOURNAL_BLOCK_SECTORS)
}

pub(crate) fn can_be_written(geometry: &Geometry, journal: &AssembledJournal) -> bool {
    let ring_sectors = journal.log.area.ring_sectors;
    journal_sectors_min(geometry).is_some_and(|min| ring_sectors >= min)
}

/// The most events by which a journal device may be ahead of the members: one interrupted update
/// may have reached the journal device alone. If the journal device is two events ahead, two
/// updates reached members that are missing here.
const EVENTS_AHEAD_MAX: u64 = 1;

/// Whether the journal device saw updates that reached only missing members.
fn is_ahead(roster: &Roster<'_>, journal: &Candidate<'_>) -> bool {
    let newest = roster.newest.events();
    // Whether the journal's last update has none of the present members in its table.
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
    /// The index of the journal device in the input.
    pub member: usize,
    /// The journal's content.
    pub log: JournalLog,
}

/// The write journal, or the fault because of which it does not count; `None` for an array without
/// a journal.
pub(crate) fn journal(roster: &Roster<'_>) -> Option<Result<AssembledJournal, JournalFault>> {
    // An interrupted update may have added or dropped the journal on some members only.
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
