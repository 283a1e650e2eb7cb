//! Finds the superblock of each member, or gives the member its verdict at once.
//!
//! This file does not compare superblocks with each other, except to notice a device that is given
//! twice.
//!
//! # A disk and its last partition
//!
//! Superblocks 0.90 and 1.0 are at the end of the device. So the superblock of a disk's last
//! partition can be where the disk's own would be. If the partition's superblock were taken for the
//! disk's, all data would be off by the partition's start, and the first stripe would overwrite the
//! partition table.
//!
//! - 0.90 does not record its position. If the disk starts with a partition table, the superblock
//!   is not used, unless the array uses more than a partition could have
//!   (`a_0_90_superblock_behind_a_partition_table_is_not_the_disks`).
//! - 1.0 records its own position, counted from the start of its device. Seen from the disk, that
//!   number is off by the partition's start, and validation has already refused it:
//!   `SuperblockFault::WrongPlace`.
//! - Superblocks 1.1 and 1.2 are at the start of the device, which differs between a disk and its
//!   partition.

use std::collections::BTreeMap;

use braid_geometry::SECTOR_BYTES;
use braid_ondisk::{ForeignKind, Role, Superblock, SuperblockFault, Version};

use crate::verdict::{Reason, Verdict};
use crate::{MemberVerdict, ProbedMember};

/// A partition table has its signature at this offset or before it: GPT's is at this offset on
/// disks with 4096-byte sectors.
const TABLE_OFFSET_BYTES_MAX: u64 = 4096;
/// The lowest start of a partition: the first multiple of 64 KiB after a partition table.
const PARTITION_START_SECTORS_MIN: u64 = 128;

/// A member with a valid superblock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
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

    /// Sets the verdict of the member with this index, once.
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

/// The members with a valid superblock, in order of labels; every other member gets a verdict.
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
    if could_be_a_partitions(member, superblock) {
        return Err((Verdict::NotAMember, Reason::LastPartition));
    }
    // The probe checked the superblock against the size that the device had then. Here the device's
    // present size counts.
    let device = &superblock.device;
    let used = match (superblock.array.member_size_sectors, superblock.state.role) {
        // A journal device has its own size.
        (0, _) | (_, Role::Journal) => device.data_size_sectors,
        (used, _) => used,
    };
    let end_bytes = device.data_offset_sectors.saturating_add(used).saturating_mul(SECTOR_BYTES);
    match end_bytes.checked_sub(member.size_bytes) {
        None | Some(0) => Ok(superblock),
        Some(missing_bytes) => Err((Verdict::Truncated, Reason::TooShort { missing_bytes })),
    }
}

/// Whether this 0.90 superblock may belong to the disk's last partition. A partition that begins at
/// a multiple of 64 KiB and ends with the disk has its superblock where the disk's superblock would
/// be. With a partition table at the start, the superblock is surely the disk's only if the array
/// uses more than such a partition has.
fn could_be_a_partitions(member: &ProbedMember, superblock: &Superblock) -> bool {
    let has_table = member.probe.foreign.iter().any(|foreign| {
        matches!(foreign.kind, ForeignKind::Mbr | ForeignKind::Gpt)
            && foreign.offset <= TABLE_OFFSET_BYTES_MAX
    });
    let partition_sectors_max =
        superblock.device.super_offset_sectors.saturating_sub(PARTITION_START_SECTORS_MIN);
    let used = superblock.array.member_size_sectors;
    superblock.version == Version::V0_90 && has_table && used <= partition_sectors_max
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
