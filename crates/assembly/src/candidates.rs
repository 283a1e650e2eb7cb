//! From a member to its one superblock, or to a verdict at once.
//!
//! What it does not do: compare superblocks. Only a device that is there twice is noticed here.

use std::collections::BTreeMap;

use braid_ondisk::{Superblock, SuperblockFault};

use crate::verdict::{Reason, Verdict};
use crate::{MemberVerdict, ProbedMember};

/// Sectors are 512 bytes.
const SECTOR_BYTES: u64 = 512;

/// A member with a superblock that passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// Index into the input.
    pub(crate) index: usize,
    pub(crate) member: &'a ProbedMember,
    pub(crate) superblock: &'a Superblock,
}

impl Candidate<'_> {
    pub(crate) fn label(&self) -> String {
        self.member.label.clone()
    }

    pub(crate) fn events(&self) -> u64 {
        self.superblock.state.events
    }
}

/// Collects one verdict per member.
#[derive(Debug)]
pub(crate) struct Verdicts {
    labels: Vec<String>,
    given: Vec<Option<(Verdict, Reason)>>,
}

impl Verdicts {
    pub(crate) fn new(members: &[ProbedMember]) -> Self {
        let labels: Vec<String> = members.iter().map(|member| member.label.clone()).collect();
        Self { given: vec![None; labels.len()], labels }
    }

    /// Gives the member with this index its one verdict.
    pub(crate) fn give(&mut self, index: usize, verdict: Verdict, reason: Reason) {
        let before = self.given[index].replace((verdict, reason));
        assert!(before.is_none(), "a member has two verdicts");
    }

    pub(crate) fn finish(self) -> Vec<MemberVerdict> {
        let pairs = self.labels.into_iter().zip(self.given);
        pairs
            .map(|(label, given)| {
                let (verdict, reason) = given.expect("a member has no verdict");
                MemberVerdict { label, verdict, reason }
            })
            .collect()
    }
}

/// The members that have a sound superblock, in order of their labels; everybody else gets a verdict.
pub(crate) fn candidates<'a>(
    members: &'a [ProbedMember],
    verdicts: &mut Verdicts,
) -> Vec<Candidate<'a>> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|&a, &b| members[a].label.cmp(&members[b].label));
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let mut candidates = Vec::new();
    for index in order {
        let member = &members[index];
        if let Some(used) = seen.get(member.identity.as_str()) {
            verdicts.give(
                index,
                Verdict::Duplicate,
                Reason::SameDevice { used: (*used).to_owned() },
            );
            continue;
        }
        seen.insert(&member.identity, &member.label);
        match sound_superblock(member) {
            Ok(superblock) => candidates.push(Candidate { index, member, superblock }),
            Err((verdict, reason)) => verdicts.give(index, verdict, reason),
        }
    }
    candidates
}

fn sound_superblock(member: &ProbedMember) -> Result<&Superblock, (Verdict, Reason)> {
    let Some(superblock) = member.probe.newest() else {
        return Err(without_superblock(member));
    };
    // Checked when it was probed, against the size that was given then; this is the size that counts.
    let device = &superblock.device;
    let used = match superblock.array.member_size_sectors {
        0 => device.data_size_sectors,
        used => used,
    };
    let end_bytes = device.data_offset_sectors.saturating_add(used).saturating_mul(SECTOR_BYTES);
    match end_bytes.checked_sub(member.size_bytes) {
        None | Some(0) => Ok(superblock),
        Some(missing_bytes) => Err((Verdict::Truncated, Reason::TooShort { missing_bytes })),
    }
}

fn without_superblock(member: &ProbedMember) -> (Verdict, Reason) {
    let damaged = member.probe.superblocks.iter().find_map(|found| found.as_ref().err());
    match damaged {
        Some(error) => match error.cause {
            SuperblockFault::Truncated { missing_bytes } => {
                (Verdict::Truncated, Reason::TooShort { missing_bytes })
            }
            _ => (Verdict::Damaged, Reason::Superblock(*error)),
        },
        None => {
            let reason = match member.probe.foreign.first() {
                Some(foreign) => Reason::Holds(foreign.kind),
                None => Reason::Blank,
            };
            (Verdict::NotAMember, reason)
        }
    }
}
