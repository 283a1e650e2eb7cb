//! A simulated disk: bytes, a volatile cache, and everything that can go wrong with it.
//!
//! ```text
//!   write ──▶ seen            what reads see
//!              │ the bytes before it go to the log
//!              ▼
//!   log: sector, bytes before ── a flush empties it, a durable write empties it for its sectors
//!              │
//!   power cut ─┴▶ walks back; each unflushed write of each sector is undone or not, by chance
//! ```
//!
//! Walking back and undoing by chance gives every sector any of the values that it had since it was
//! last on stable storage, each sector for itself: any subset, any order, torn at 512 bytes
//! [check: a_power_cut_can_leave_any_of_a_sectors_values].
//!
//! Not simulated: bytes that change on their own, writes that are lost or land elsewhere, a disk
//! that lies about a flush. The levels without checksums could only be wrong about them.

use std::collections::BTreeSet;

use braid_engine::effect::MemberFault;

use crate::content::{SECTOR, bytes};
use crate::random::Random;

/// What is wrong with a disk, beyond bad sectors; power brings all of it back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ills {
    /// Nothing works any more.
    pub(crate) gone: bool,
    pub(crate) writes_fail: bool,
    pub(crate) flushes_fail: bool,
    pub(crate) superblocks_fail: bool,
    /// It answers nothing, and does not say so.
    pub(crate) stalled: bool,
}

/// One unflushed write to one sector; its bytes before are at the same index of `before`.
#[derive(Clone, Copy, Debug)]
struct Logged {
    /// `DEAD` when a durable write has made the sector stable since.
    sector: u64,
    write: u32,
    /// It could not be read before; undone, it cannot again.
    was_bad: bool,
}

const DEAD: u64 = u64::MAX;

/// A disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// What reads see.
    pub(crate) seen: Vec<u8>,
    log: Vec<Logged>,
    before: Vec<u8>,
    next_write: u32,
    /// Sectors that cannot be read until they are written.
    pub(crate) bad: BTreeSet<u64>,
    pub(crate) ills: Ills,
    /// With sectors that cannot be read it says that it flushed, and did not: a bug that is planted for tests of the shrinker.
    #[cfg(test)]
    pub(crate) drops_flushes: bool,
}

impl Disk {
    pub(crate) fn new(sectors: u64) -> Self {
        Self {
            seen: vec![0; sectors as usize * SECTOR],
            log: Vec::new(),
            before: Vec::new(),
            next_write: 0,
            bad: BTreeSet::new(),
            ills: Ills::default(),
            #[cfg(test)]
            drops_flushes: false,
        }
    }

    pub(crate) fn read(&self, start: u64, sectors: u64) -> Result<&[u8], MemberFault> {
        if self.ills.gone {
            return Err(MemberFault::Gone);
        }
        if !self.bad.is_empty() && self.bad.range(start..start + sectors).next().is_some() {
            return Err(MemberFault::Media);
        }
        Ok(&self.seen[bytes(start, sectors)])
    }

    /// Writes, or fails and leaves any part of it written.
    pub(crate) fn write(
        &mut self,
        (start, data): (u64, &[u8]),
        durable: bool,
        random: &mut Random,
    ) -> Result<(), MemberFault> {
        if self.ills.gone {
            return Err(MemberFault::Gone);
        }
        if self.ills.writes_fail {
            self.tear((start, data), random);
            return Err(MemberFault::Media);
        }
        self.put(start, data, durable);
        Ok(())
    }

    /// Does any part of a write, sector by sector; none of it is durable.
    pub(crate) fn tear(&mut self, (start, data): (u64, &[u8]), random: &mut Random) {
        for (sector, data) in (start..).zip(data.chunks_exact(SECTOR)) {
            if random.chance(50) {
                self.put(sector, data, false);
            }
        }
    }

    /// Writes for sure.
    pub(crate) fn put(&mut self, start: u64, data: &[u8], durable: bool) {
        let sectors = (data.len() / SECTOR) as u64;
        if durable {
            for logged in &mut self.log {
                if (start..start + sectors).contains(&logged.sector) {
                    logged.sector = DEAD;
                }
            }
        } else {
            let write = self.next_write;
            self.next_write += 1;
            let bad = &self.bad;
            self.log.extend((start..start + sectors).map(|sector| {
                let was_bad = !bad.is_empty() && bad.contains(&sector);
                Logged { sector, write, was_bad }
            }));
            self.before.extend_from_slice(&self.seen[bytes(start, sectors)]);
        }
        self.seen[bytes(start, sectors)].copy_from_slice(data);
        if !self.bad.is_empty() {
            self.bad.retain(|sector| !(start..start + sectors).contains(sector));
        }
    }

    pub(crate) fn flush(&mut self) -> bool {
        if self.ills.gone || self.ills.flushes_fail {
            return false;
        }
        #[cfg(test)]
        if self.drops_flushes && !self.bad.is_empty() {
            return true;
        }
        self.settle();
        true
    }

    /// What is seen is on stable storage.
    pub(crate) fn settle(&mut self) {
        self.log.clear();
        self.before.clear();
        self.next_write = 0;
    }

    /// Power is cut: of every unflushed sector, any of its writes or none survives.
    pub(crate) fn lose_power(&mut self, random: &mut Random) -> u64 {
        // Some cuts are kind to a whole disk, some are cruel.
        let percent = *random.pick(&[0, 10, 50, 50, 90, 100]);
        let mut undone = 0;
        for (index, logged) in self.log.iter().enumerate().rev() {
            if logged.sector != DEAD && random.chance(percent) {
                let before = &self.before[bytes(index as u64, 1)];
                self.seen[bytes(logged.sector, 1)].copy_from_slice(before);
                if logged.was_bad {
                    self.bad.insert(logged.sector);
                }
                undone += 1;
            }
        }
        self.settle();
        undone
    }

    /// Every unflushed write of every sector that no durable write has overtaken, in order: its
    /// sector, the number of its write, and the bytes before it.
    pub(crate) fn logged(&self) -> impl Iterator<Item = (u64, u32, &[u8])> {
        let before = self.before.chunks_exact(SECTOR);
        let live = self.log.iter().zip(before).filter(|(logged, _)| logged.sector != DEAD);
        live.map(|(logged, before)| (logged.sector, logged.write, before))
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.seen.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_can_leave_any_of_a_sectors_values() {
        let mut left = BTreeSet::new();
        for seed in 0..400 {
            let mut disk = Disk::new(4);
            disk.put(0, &[1; 2 * SECTOR], false);
            disk.put(1, &[2; 2 * SECTOR], false);
            disk.lose_power(&mut Random::new(seed));
            left.insert([disk.seen[0], disk.seen[SECTOR], disk.seen[2 * SECTOR]]);
            assert_eq!(disk.seen[3 * SECTOR], 0, "nobody wrote it");
        }
        // 2 values of the first, 3 of the second, 2 of the third.
        assert_eq!(left.len(), 12);
    }

    #[test]
    fn what_was_flushed_or_durable_stays() {
        for seed in 0..50 {
            let mut disk = Disk::new(3);
            disk.put(0, &[1; SECTOR], false);
            assert!(disk.flush());
            disk.put(1, &[2; SECTOR], false);
            disk.put(1, &[3; SECTOR], true);
            disk.put(2, &[4; SECTOR], false);
            let logged: Vec<_> =
                disk.logged().map(|(sector, _, before)| (sector, before)).collect();
            assert_eq!(logged, [(2, &[0; SECTOR][..])]);
            disk.lose_power(&mut Random::new(seed));
            assert_eq!((disk.seen[0], disk.seen[SECTOR]), (1, 3));
        }
    }
}
