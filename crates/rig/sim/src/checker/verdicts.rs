//! The checker of verdicts: which disks assembly is allowed to believe, and which refusals are
//! right.
//!
//! Superblocks only imply which disks missed an acknowledged write; the simulator knows these
//! disks. So it checks, without looking at event counts:
//!
//! - A disk that is `out` is never chosen.
//! - A disk that never failed is always chosen.
//! - A refusal needs a reason that the simulator sees, too.
//! - An array whose missing column must be computed is not served if that stripe may be
//!   inconsistent (write hole).

use std::collections::BTreeSet;

use braid_assembly::{Assembly, BitmapFileFault, JournalFault, Reason, Refusal, Verdict};
use braid_geometry::{ChunkRow, Family, Geometry, Role, Slot};
use braid_ondisk::{Role as MemberRole, Superblock};

use crate::metadata::{JournalPresence, Metadata};

/// The simulator's knowledge about the presented disks.
pub(crate) struct DiskKnowledge<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) presented: &'a [usize],
    /// Disks that missed an acknowledged write.
    pub(crate) out: &'a BTreeSet<usize>,
    /// Disks that failed in the last run: assembly may choose them or not.
    pub(crate) unsure: &'a BTreeSet<usize>,
    /// The superblock of each presented disk, if it is sound.
    pub(crate) superblocks: &'a [Option<Superblock>],
    /// Disks that another disk has replaced.
    pub(crate) replaced: &'a BTreeSet<usize>,
    /// Disks that lied about their superblock: it is not the superblock last written to them.
    pub(crate) lying: &'a BTreeSet<usize>,
    pub(crate) metadata: &'a Metadata,
}

impl DiskKnowledge<'_> {
    /// Slots whose disk is presented and unharmed, so that assembly must choose it. In the
    /// simulator a disk's number is its slot.
    fn sure_slots(&self) -> BTreeSet<u16> {
        let is_sure = |disk: &&usize| {
            let is_harmed = self.out.contains(disk) || self.unsure.contains(disk);
            !is_harmed && !self.lying.contains(disk)
        };
        let slots = usize::from(self.geometry.slots());
        let members = self.presented.iter().filter(|disk| **disk < slots);
        members.filter(is_sure).map(|disk| *disk as u16).collect()
    }

    /// Slots whose member has a recovery offset in its superblock: the member is not recovered yet.
    fn recovering_slots(&self) -> BTreeSet<u16> {
        let presented = self.presented.iter().zip(self.superblocks);
        let is_recovering =
            |superblock: &Superblock| superblock.device.recovery_offset_sectors.is_some();
        let lacking = presented.filter(|(_, one)| one.as_ref().is_some_and(is_recovering));
        lacking.map(|(disk, _)| *disk as u16).collect()
    }

    fn may_be_dirty(&self) -> bool {
        let presented = self.presented.iter().zip(self.superblocks);
        let slots = usize::from(self.geometry.slots());
        let mut current = presented.filter(|(disk, _)| **disk < slots && !self.out.contains(disk));
        current.any(|(_, superblock)| superblock.as_ref().is_some_and(|one| !one.state.is_clean()))
    }
}

/// Checks the verdicts on disks beyond the slots. A spare with a sound superblock must wait as a
/// spare, serve as a replacement, or be out. Replaced disks must not be chosen.
fn check_spares(assembly: &Assembly, knowledge: &DiskKnowledge<'_>) {
    let slots = usize::from(knowledge.geometry.slots());
    let presented = knowledge.presented.iter().zip(knowledge.superblocks).zip(&assembly.verdicts);
    for ((disk, superblock), verdict) in presented.filter(|((disk, _), _)| **disk >= slots) {
        let is_spare = verdict.verdict == Verdict::Spare;
        if Some(*disk) == knowledge.metadata.design.journal_disk() {
            let counts = verdict.verdict == Verdict::Journal;
            let is_right = match knowledge.metadata.journal {
                JournalPresence::Kept => counts,
                JournalPresence::Either => true,
                JournalPresence::Without => !counts,
            };
            assert!(is_right, "the journal: {}", verdict.reason);
            continue;
        }
        let reason = &verdict.reason;
        if knowledge.replaced.contains(disk) {
            let chosen = assembly.array.iter().flat_map(|array| array.occupants());
            let is_chosen = chosen.into_iter().any(|one| knowledge.presented[one.member] == *disk);
            assert!(!is_chosen && !is_spare, "disk {disk} was replaced: {reason}");
            continue;
        }
        let says = superblock.as_ref().map(|superblock| superblock.state.role);
        if matches!(says, Some(MemberRole::Active(_))) {
            let is_out = knowledge.out.contains(disk) || knowledge.unsure.contains(disk);
            let is_it = matches!(verdict.verdict, Verdict::Replacement { .. });
            assert!(is_it || is_out, "replacement {disk} was left out: {reason}");
            assert!(
                !(is_it && knowledge.out.contains(disk)),
                "disk {disk} missed acknowledged writes"
            );
            continue;
        }
        // The spare failed. Or, at a power cut, other superblocks gave the spare a slot and its own
        // superblock did not.
        let is_called_up = matches!(reason, Reason::NumberTaken { .. });
        if knowledge.out.contains(disk) || knowledge.unsure.contains(disk) || is_called_up {
            continue;
        }
        assert_eq!(is_spare, superblock.is_some(), "spare {disk}: {reason}");
        if let Ok(array) = &assembly.array {
            let waits = array.spares.iter().any(|index| knowledge.presented[*index] == *disk);
            assert_eq!(waits, is_spare, "the array's spares and the verdict on disk {disk} differ");
        }
    }
}

pub(crate) fn holds_data(geometry: &Geometry, slot: u16) -> bool {
    let Geometry::Stripe(stripe) = geometry else { return true };
    (0..stripe.rows())
        .any(|row| matches!(stripe.row_map(ChunkRow(row)).role(Slot(slot)), Role::Data(_)))
}

/// Checks the decision of assembly.
///
/// # Panics
/// If assembly chose a stale disk, left out a sound one, or refused without a reason.
pub(crate) fn check(assembly: &Assembly, knowledge: &DiskKnowledge<'_>) {
    let sure = knowledge.sure_slots();
    let recovering = knowledge.recovering_slots();
    let holds_all = |slot: &u16| sure.contains(slot) && !recovering.contains(slot);
    let is_stripe = knowledge.geometry.level().family() == Family::Stripe;
    let all = 0..knowledge.geometry.slots();
    check_spares(assembly, knowledge);
    match &assembly.array {
        Ok(array) => {
            assert_eq!(&array.geometry, knowledge.geometry, "assembly chose another geometry");
            let chosen: BTreeSet<u16> = array
                .slots
                .iter()
                .flatten()
                .map(|occupant| knowledge.presented[occupant.member] as u16)
                .collect();
            for (slot, occupant) in (0..).zip(&array.slots) {
                let disk = occupant.as_ref().map(|occupant| knowledge.presented[occupant.member]);
                assert!(disk.is_none_or(|disk| disk == slot), "disk {disk:?} is in slot {slot}");
            }
            let stale = chosen.iter().find(|slot| knowledge.out.contains(&usize::from(**slot)));
            assert!(stale.is_none(), "stale disk {stale:?} was chosen");
            let left = sure.difference(&chosen).next();
            assert!(left.is_none(), "disk {left:?} was left out: {:?}", assembly.verdicts);
            let mut lost = all.filter(|slot| !chosen.contains(slot) || recovering.contains(slot));
            // Replay closes the write hole if every log that it needs can be read.
            let is_logged = array.replay.as_ref().is_some_and(|replay| replay.unread.is_empty());
            let hole = is_stripe && knowledge.may_be_dirty() && array.dirty && !is_logged;
            let is_named = array.bitmap.as_ref().is_none_or(|bitmap| {
                let first = bitmap.bits.next_sector(array.resync_offset);
                !bitmap.is_current || first.is_some()
            });
            let served_hole =
                hole && is_named && lost.any(|slot| holds_data(knowledge.geometry, slot));
            let is_accepted = array.accepted_risk.is_some();
            assert!(!served_hole || is_accepted, "a write hole is served");
        }
        Err(Refusal::TooFewMembers { .. }) => {
            let survives = knowledge.geometry.survives(&|slot: Slot| !holds_all(&slot.0));
            assert!(!survives, "not too few: {sure:?} suffice: {:?}", assembly.verdicts);
        }
        // Logs of an array that was not in sync do not help, so the refusal is right with or
        // without logs.
        Err(Refusal::DirtyAndDegraded(_) | Refusal::PplNotReplayed { .. }) => {
            let mut lost = all.filter(|slot| !holds_all(slot));
            let is_hole = lost.any(|slot| holds_data(knowledge.geometry, slot));
            let right = is_stripe && knowledge.may_be_dirty() && is_hole;
            assert!(right, "no write hole: {sure:?} are present: {:?}", assembly.verdicts);
        }
        Err(Refusal::RolesContradict { .. }) => {
            // A disk that lost an update, and lied about it, has the table of the previous update.
            let lies = knowledge.presented.iter().any(|disk| knowledge.lying.contains(disk));
            let apart = lies || knowledge.metadata.ran_apart(knowledge.presented);
            assert!(apart, "contradictory? no disks ran apart: {:?}", assembly.verdicts);
        }
        Err(Refusal::NewestDamaged { labels, .. }) => {
            let is_damaged = |disk: &&usize| {
                knowledge.metadata.is_torn(**disk) || knowledge.lying.contains(disk)
            };
            let damaged = knowledge.presented.iter().filter(is_damaged).count();
            assert!(damaged >= labels.len(), "only {damaged} damaged: {:?}", assembly.verdicts);
        }
        Err(Refusal::JournalMissing { fault, .. }) => {
            let journal = knowledge.metadata.design.journal_disk();
            let is_withheld = journal.is_some_and(|disk| !knowledge.presented.contains(&disk));
            let is_right = match fault {
                JournalFault::Absent { .. } => is_withheld,
                JournalFault::Ahead { .. } => sure.is_empty(),
                _ => false,
            };
            assert!(is_right, "not {fault}: {sure:?} are present");
        }
        Err(Refusal::BitmapFile { fault: BitmapFileFault::Ahead { .. }, .. }) => {
            assert!(sure.is_empty(), "the file is not ahead: {sure:?} are present");
        }
        Err(Refusal::NoMembers { .. }) => {
            assert!(sure.is_empty(), "members exist: {sure:?}");
        }
        Err(refusal) => panic!("refused without reason: {refusal} ({:?})", assembly.verdicts),
    }
}
