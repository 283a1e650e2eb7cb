//! The write journal of an array: which device has it, and whether it can be believed.
//!
//! What it does not do: read it (`braid_ondisk::journal_log`), or replay it (the engine does).
//!
//! md counts its device in as it counts members: its events may be one behind the newest. Superblocks of an array with a journal say
//! "clean" while it is written, as the journal knows what was. So without it nobody knows whether any stripe was being written: members
//! may lack writes that were acknowledged, and parity may not fit, anywhere. The array then counts as one that was not stopped cleanly, all
//! of it in doubt.

use braid_ondisk::{Features, JournalLog, JournalLogError, Role};

use crate::judge::Roster;
use crate::refusal::JournalFault;

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
    let has_journal = |features: Features| features.contains(Features::JOURNAL);
    let mut in_use = roster.in_use();
    if !in_use.any(|candidate| has_journal(candidate.superblock.state.features)) {
        return None;
    }
    let roles = &roster.newest.superblock.state.roles;
    let number = (0..).zip(roles).find(|(_, role)| **role == Role::Journal);
    let number = number.map(|(number, _)| number);
    Some(match roster.journals[..] {
        [] => Err(JournalFault::Absent { number }),
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
