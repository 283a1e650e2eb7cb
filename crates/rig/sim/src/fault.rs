//! The fault atlas: which faults come, when, and to which disk.
//!
//! A run either keeps its faults within the level's tolerance, given the members already missing,
//! or goes deliberately beyond. Within tolerance no client sees an error. Beyond it errors are
//! right, and wrong bytes are not. This module alone decides between the two, before the run. Lies
//! (a disk acknowledges what it did not do, or its bytes rot) come on top and make a third kind of
//! run: [`crate::lie_plan`]. No level here detects lies.
//!
//! Every fault has a number within its cycle, its *ordinal*. Each disk has eight ordinals,
//! whichever other disks fail. A stall and its end share one ordinal.

use std::collections::BTreeSet;

use braid_engine::array::MemberId;
use braid_engine::{SitOut, Tuning};
use braid_geometry::{Family, Geometry, Slot};

use crate::chances::{Chances, Purpose};
use crate::cut::Kind;
use crate::disk::Disk;
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The disk fails every request from now on.
    Dies,
    /// The power of this disk is cut: the disk forgets unflushed writes and fails every request
    /// until the next start.
    PowerCut,
    WritesFail,
    FlushesFail,
    SuperblocksFail,
    /// The disk answers nothing for a while, not even an error.
    Stalls,
    Wakes,
    /// A run of sectors is unreadable until it is written.
    BadSectors {
        start: u64,
        sectors: u64,
    },
    /// The disk answers nothing for this long, and then continues.
    Slow {
        milliseconds: u64,
    },
    /// A lie: bits of a run of sectors change.
    Rots {
        start: u64,
        sectors: u64,
        seed: u64,
    },
    /// A lie: the disk acknowledges a write and does not do it.
    LosesWrite {
        about_superblock: bool,
    },
    /// A lie: the disk acknowledges a write and does it elsewhere.
    Misdirects {
        about_superblock: bool,
        to: u64,
    },
    /// A lie: the disk acknowledges flushes and FUA, and makes nothing durable.
    FlushesLie,
    /// Not a fault: an operator changes the settings of the cache.
    Tunes(Tuning),
    /// Not a fault: an operator replaces the bitmap by one with so many sectors for each bit;
    /// `None` drops the bitmap.
    ChangesBitmap(Option<u32>),
    /// Not a fault: an operator drops the parity logs, or creates them if the array has none.
    ChangesLogs,
    /// Not a fault: an operator sets when a slow member sits out.
    Watches(SitOut),
    /// The disk answers nothing for a while. No read may wait for it, if no other disk fails.
    Pauses,
    GoesOn,
    /// Not a fault: the driver reports that this disk has been silent for longer than the time
    /// limit.
    IsSilent,
    /// Not a fault: an operator changes the settings of elevators and multiplexer.
    SetsElevators {
        seed: u64,
    },
    /// Not a fault: from now on a driver limits jobs to small allowances.
    AllowsLittle {
        seed: u64,
    },
    /// Not a fault: a shard compares a band of this chunk row.
    Compares {
        row: u64,
        seed: u64,
    },
    /// Not a fault: a new disk takes the place of this disk, if the array has declared this disk
    /// out.
    Joins,
}

impl Mishap {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dies => "disk-dies",
            Self::PowerCut => "disk-power-cut",
            Self::WritesFail => "writes-fail",
            Self::FlushesFail => "flushes-fail",
            Self::SuperblocksFail => "superblocks-fail",
            Self::Stalls => "disk-stalls",
            Self::Wakes => "disk-wakes",
            Self::BadSectors { .. } => "bad-sectors",
            Self::Slow { .. } => "disk-slow",
            Self::Rots { .. } => "bit-rot",
            Self::LosesWrite { .. } => "loses-a-write",
            Self::Misdirects { .. } => "misdirects-a-write",
            Self::FlushesLie => "flushes-lie",
            Self::Tunes(_) => "cache-tuned",
            Self::ChangesBitmap(_) => "bitmap-changed",
            Self::ChangesLogs => "logs-changed",
            Self::Watches(_) => "members-watched",
            Self::Pauses => "disk-pauses",
            Self::GoesOn => "disk-goes-on",
            Self::IsSilent => "disk-is-silent",
            Self::SetsElevators { .. } => "elevators-set",
            Self::AllowsLittle { .. } => "jobs-allowed-little",
            Self::Compares { .. } => "band-is-compared",
            Self::Joins => "disk-comes",
        }
    }
}

/// One fault of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) step: u64,
    pub(crate) disk: usize,
    pub(crate) mishap: Mishap,
    /// The fault's number in this cycle.
    pub(crate) ordinal: u64,
}

impl Fault {
    /// Whether no disk reports this fault: a disk lies, or the fault concerns no disk.
    pub(crate) fn is_lie(&self) -> bool {
        self.ordinal >= FIRST_LIE
    }
}

const ORDINALS_PER_DISK: u64 = 8;

/// Faults of a cycle are numbered: each disk has eight numbers, all below this one. Lies (a disk
/// acknowledges what it did not do, or its bytes rot) have the numbers from here on.
pub(crate) const FIRST_LIE: u64 = 1000;

/// The faults of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) faults: Vec<Fault>,
    /// Disks that are allowed to fail; all others must stay in the array.
    pub(crate) victims: BTreeSet<usize>,
    /// Members that the operator has set faulty.
    pub(crate) failed_by_person: BTreeSet<MemberId>,
    pub(crate) errors_allowed: bool,
    pub(crate) lies: bool,
    /// Faults that happen when the array reaches a chosen phase ([`crate::moments`]).
    pub(crate) held: Vec<Fault>,
    /// Several disks fail at the same step.
    pub(crate) is_ruin: bool,
}

/// The array's state when a run begins.
pub(crate) struct ArrayCondition {
    pub(crate) geometry: Geometry,
    /// The disk in each slot.
    pub(crate) occupants: Vec<Option<usize>>,
    pub(crate) spares: BTreeSet<usize>,
    /// The disk with the write journal. No redundancy covers the loss of this disk.
    pub(crate) journal: Option<usize>,
    pub(crate) is_dirty: bool,
    /// Sets of disks whose bad-block logs name sectors of the same row (in a mirror: of any place).
    /// These disks cannot be read together in that row.
    pub(crate) logged: BTreeSet<BTreeSet<usize>>,
}

impl ArrayCondition {
    /// Whether the level tolerates the loss of all disks in `harmed` and of the missing members.
    pub(crate) fn tolerates(&self, harmed: &BTreeSet<usize>) -> bool {
        let with = |logged: &BTreeSet<usize>| harmed.union(logged).copied().collect();
        self.bears(harmed) && self.logged.iter().all(|logged| self.bears(&with(logged)))
    }

    fn bears(&self, harmed: &BTreeSet<usize>) -> bool {
        let (is_dirty, is_degraded) = (self.is_dirty, self.occupants.contains(&None));
        let is_dirty = is_dirty && self.geometry.level().family() == Family::Stripe;
        if self.journal.is_some_and(|journal| harmed.contains(&journal)) {
            return false;
        }
        if harmed.is_subset(&self.spares) {
            // A dirty and degraded array cannot recover some rows, even if only spares are harmed.
            return !(is_dirty && is_degraded);
        }
        if is_dirty {
            return false;
        }
        let is_lost =
            |slot: Slot| self.occupants[slot.index()].is_none_or(|disk| harmed.contains(&disk));
        self.geometry.survives(&is_lost)
    }
}

/// Plans the faults of a run of about `steps` steps from `now` on.
pub(crate) fn plan(
    standing: &ArrayCondition,
    disks: &[Disk],
    times: (u64, u64),
    chances: &Chances,
) -> Plan {
    let present: Vec<usize> = standing.occupants.iter().flatten().copied().collect();
    let scarred: BTreeSet<usize> =
        present.iter().copied().filter(|disk| !disks[*disk].bad.is_empty()).collect();
    let mut random = chances.of(Purpose::Faults, 0);
    let is_whole = !standing.is_dirty && !standing.occupants.contains(&None);
    let (ruin_percent, beyond_percent) = if is_whole { (4, 12) } else { (10, 30) };
    let is_ruin = random.chance(ruin_percent);
    let goes_beyond = random.chance(beyond_percent) || is_ruin;
    let (kind, several) = (random.below(10), random.next() >> 16);
    let wanted = match kind {
        0..7 if is_ruin => present.len() as u64,
        0..2 => 0,
        2..4 if is_whole => 0,
        4..8 => 1,
        _ => 1 + several % present.len() as u64,
    };
    let mut candidates: Vec<usize> = (0..disks.len()).collect();
    random.shuffle(&mut candidates);
    let is_journal = |disk: &usize| standing.journal == Some(*disk);
    candidates.retain(|disk| {
        present.contains(disk) || standing.spares.contains(disk) || is_journal(disk)
    });
    let mut victims = BTreeSet::new();
    for disk in candidates.into_iter().take(wanted as usize) {
        let harmed = victims.iter().copied().chain([disk]).chain(scarred.iter().copied());
        if goes_beyond || standing.tolerates(&harmed.collect()) {
            victims.insert(disk);
        }
    }
    let mut faults = Vec::new();
    let struck = if is_ruin { strike(&victims, times, chances) } else { Vec::new() };
    faults.extend(struck);
    for disk in victims {
        faults.extend(faults_of(disk, &disks[disk], times, chances));
    }
    // A start refuses an array whose journal cannot be read, as if the journal were missing.
    let is_unread = |fault: &Fault| matches!(fault.mishap, Mishap::BadSectors { .. });
    faults.retain(|fault| !(is_unread(fault) && is_journal(&fault.disk)));
    let harmed = faults.iter().map(|fault: &Fault| fault.disk);
    let victims = harmed.chain(scarred).collect();
    let errors_allowed = !standing.tolerates(&victims);
    Plan { faults, victims, errors_allowed, is_ruin, ..Plan::default() }
}

/// Several disks suffer the same fault at one early step. Such a simultaneous loss breaks an array,
/// even if no member was missing before. Each fault has the last ordinal of its disk.
fn strike(victims: &BTreeSet<usize>, (now, steps): (u64, u64), chances: &Chances) -> Vec<Fault> {
    let mut random = chances.of(Purpose::Faults, u64::MAX);
    let step = now + random.below(steps.div_ceil(3));
    let mishap = match random.below(8) {
        0..2 => Mishap::Dies,
        2 => Mishap::PowerCut,
        3 => Mishap::WritesFail,
        _ => Mishap::SuperblocksFail,
    };
    let fault = |disk: &usize| {
        let ordinal = (*disk as u64 + 1) * ORDINALS_PER_DISK - 1;
        Fault { step, disk: *disk, mishap, ordinal }
    };
    let faults = victims.iter().map(fault);
    faults.filter(|fault| !chances.leaves_out(Kind::Fault, fault.ordinal)).collect()
}

/// Draws the faults of one disk, without those that the cut leaves out.
fn faults_of(index: usize, disk: &Disk, (now, steps): (u64, u64), chances: &Chances) -> Vec<Fault> {
    let first = index as u64 * ORDINALS_PER_DISK;
    let mut random = chances.of(Purpose::Faults, 1 + index as u64);
    let mut faults = Vec::new();
    for ordinal in first..first + 1 + random.below(3) {
        let step = now + random.below(steps);
        let mishap = mishap(disk, &mut random);
        let woken = step + random.below(steps);
        if chances.leaves_out(Kind::Fault, ordinal) {
            continue;
        }
        faults.push(Fault { step, disk: index, mishap, ordinal });
        if mishap == Mishap::Stalls {
            faults.push(Fault { step: woken, disk: index, mishap: Mishap::Wakes, ordinal });
        }
    }
    faults
}

fn mishap(disk: &Disk, random: &mut Random) -> Mishap {
    match random.below(11) {
        0 => Mishap::Dies,
        1 | 2 => Mishap::PowerCut,
        3 => Mishap::WritesFail,
        4 => Mishap::FlushesFail,
        5 => Mishap::SuperblocksFail,
        6 | 7 => Mishap::Stalls,
        _ => {
            let sectors = *random.pick(&[1, 1, 2, 8]);
            let all = disk.size_bytes() / crate::content::SECTOR as u64;
            Mishap::BadSectors { start: random.below(all - sectors), sectors }
        }
    }
}
