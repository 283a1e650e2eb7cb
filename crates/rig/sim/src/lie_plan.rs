//! The third kind of run in the fault atlas, `run-lying`: which disk lies, when and about what.
//!
//! This module stands next to [`crate::fault`], which decides about faults that disks report. Lies
//! come on top of those faults, in chosen worlds, from a random stream of their own, so that other
//! worlds do not change. [`crate::taint`] works out which bytes can be wrong because of lies.
//!
//! | Lie | Amount, target |
//! |---|---|
//! | bit rot | one bit, or bits of a run of sectors; data |
//! | a lost or astray write | the next write of data |
//! | a superblock rots (one bit), is lost, or lands elsewhere | a disk the array can spare |
//! | flushes and FUA are only claimed | as for superblocks: one of them can be lost |
//!
//! Data lies can hit any number of disks: the array promises only that wrong bytes do not spread.
//! Superblocks say which member missed a write. If every superblock lied about that, assembly would
//! rightly believe a stale member. So disks that lie about superblocks count as harmed.

use std::collections::BTreeSet;

use braid_engine::effect::FaultKind;
use braid_geometry::{Family, Slot};

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::fault::{FIRST_LIE, Fault, Mishap};
use crate::lie_overlay::Fate;
use crate::random::Random;
use crate::world::World;

const LYING_WORLDS_PERCENT: u64 = 20;
/// Longest pause of a slow disk: longer than the array waits before it turns clean.
const SLOW_MAX_MS: u64 = 500;
/// Time that passes whenever the schedule tries an event that waits for a slow disk.
const SLOW_STEP_NS: u64 = 10_000_000;

pub(crate) fn is_lying_world(mut random: Random) -> bool {
    random.chance(LYING_WORLDS_PERCENT)
}

impl World {
    pub(crate) fn plan_lies(&mut self, (now, steps): (u64, u64)) {
        let mut random = self.chances.of(Purpose::Lies, 0);
        if !self.taint.may_lie || random.chance(50) {
            return;
        }
        let standing = self.standing();
        let present: Vec<usize> = standing.occupants.iter().flatten().copied().collect();
        let is_direct = standing.geometry.level().family() == Family::Direct;
        let is_doubted =
            |disk: &usize| self.is_superblock_tainted(*disk) || self.disks[*disk].lies.has_claims();
        let mut harmed = self.engine.plan.victims.clone();
        harmed.extend((0..self.disks.len()).filter(is_doubted));
        for number in 0..1 + random.below(4) {
            let disk = *random.pick(&present);
            let mut with: BTreeSet<usize> = harmed.clone();
            with.insert(disk);
            let about_superblock = !is_direct && standing.tolerates(&with) && random.chance(50);
            let step = now + random.below(steps);
            let mishap = self.lie(disk, about_superblock, &mut random);
            let ordinal = FIRST_LIE + number;
            if self.chances.leaves_out(Kind::Fault, ordinal) {
                continue;
            }
            if about_superblock {
                harmed = with;
            }
            self.engine.plan.faults.push(Fault { step, disk, mishap, ordinal });
            self.engine.plan.lies = true;
        }
    }

    fn lie(&self, disk: usize, about_superblock: bool, random: &mut Random) -> Mishap {
        let superblock = &self.taint.superblock;
        let data = self.taint.data_offset;
        let end = self.disks[disk].size_bytes() / crate::content::SECTOR as u64;
        let slots = 0..self.geometry.slots();
        let used = slots.map(|slot| self.geometry.used_sectors(Slot(slot))).min();
        let used = used.expect("an array has slots");
        let kind = random.below(if about_superblock { 5 } else { 4 });
        let (to, seed) = (random.below(end), random.next());
        match (kind, about_superblock) {
            (0, false) => {
                let sectors = *random.pick(&[1, 1, 2, 8]);
                let start = data + random.below(used.saturating_sub(8).max(1));
                Mishap::Rots { start, sectors, seed }
            }
            (0, true) => Mishap::Rots { start: superblock.start, sectors: 1, seed },
            (1, _) => Mishap::LosesWrite { about_superblock },
            (2, _) => Mishap::Misdirects { about_superblock, to },
            (3, false) => Mishap::Slow { milliseconds: 1 + random.below(SLOW_MAX_MS) },
            _ => Mishap::FlushesLie,
        }
    }

    /// Flips bits of these sectors now.
    pub(crate) fn rot(&mut self, disk: usize, (start, sectors): (u64, u64), seed: u64) {
        let superblock = self.taint.superblock.clone();
        if start == superblock.start && self.is_superblock_tainted(disk) {
            // The superblock has a flipped bit already, and a second flip could undo the first.
            return;
        }
        for sector in start..start + sectors {
            // A superblock's checksum is sure to notice one flipped bit, so larger rot spares
            // superblocks.
            let one_bit = sectors == 1;
            if start == superblock.start && self.is_superblock_tainted(disk) {
                // The superblock has a flipped bit already, and a second flip could undo the first.
                continue;
            }
            if start == superblock.start || !superblock.contains(&sector) {
                self.disks[disk].rot(sector, seed ^ sector, one_bit);
            }
        }
        self.hear_of_lies(disk);
    }

    /// Writes to a disk, or loses or misplaces the write if the disk is to lie about it.
    pub(crate) fn write_to(
        &mut self,
        disk: usize,
        (start, data): (u64, &[u8]),
        durable: bool,
    ) -> Result<(), FaultKind> {
        let sectors = (data.len() / crate::content::SECTOR) as u64;
        let about_superblock = self.taint.superblock.contains(&start);
        let one = &mut self.disks[disk];
        let fate = std::mem::take(match about_superblock {
            true => &mut one.ills.next_superblock,
            false => &mut one.ills.next_data,
        });
        let is_able = !one.ills.gone && !one.ills.writes_fail;
        let hits =
            |to: u64| to < self.taint.superblock.end && self.taint.superblock.start < to + sectors;
        // A misplaced write must not hit a superblock, unless the lie is about superblocks, and
        // never a bad-block log.
        let is_logged = |to: u64| self.bad_logs.is_in(disk, &(to..to + sectors));
        let is_allowed = match fate {
            Fate::Astray(to) => (about_superblock || !hits(to)) && !is_logged(to),
            Fate::Lands | Fate::Lost => true,
        };
        if fate != Fate::Lands
            && is_able
            && is_allowed
            && one.put_falsely(fate, (start, data), durable)
        {
            let name = match (fate, about_superblock) {
                (Fate::Lost, false) => "write-lost",
                (Fate::Lost, true) => "superblock-lost",
                (_, false) => "write-astray",
                (_, true) => "superblock-astray",
            };
            self.tally.count(name);
            self.note(name, [disk as u64, start, sectors]);
            self.assess_write(disk, (start, sectors));
            return Ok(());
        }
        let result = one.write((start, data), durable, &mut self.chances.disks);
        self.assess_write(disk, (start, sectors));
        result
    }

    /// Whether a slow disk is still pausing. If it is, a little time passes.
    pub(crate) fn is_late(&mut self, disk: usize) -> bool {
        let is_late = self.disks[disk].ills.slow_until_ns > self.clock.now.0;
        if is_late {
            self.clock.now.0 += SLOW_STEP_NS;
        }
        is_late
    }
}
