//! A simulated disk: bytes, a volatile cache, and all its faults.
//!
//! ```text
//!   write ──▶ seen            the bytes that reads return
//!              │ the bytes before it go to the log
//!              ▼
//!   log: sector, bytes before ── a flush empties it, a durable write empties it for its sectors
//!              │
//!   power cut ─┴▶ walks back; each unflushed write of each sector is undone or not, by chance
//! ```
//!
//! A power cut walks the log backwards and undoes each write by chance. So each sector, for itself,
//! ends with any content that it had since it was last on stable storage. Writes survive in any
//! subset and order, torn at 512 bytes [check: a_power_cut_can_leave_any_of_a_sectors_values].
//!
//! A disk can *lie*: bytes rot, a write is acknowledged and lost or lands elsewhere, a flush is
//! acknowledged and does nothing. For such a disk, [`crate::lie_overlay`] also keeps the content of
//! an honest disk.

use std::collections::BTreeSet;

use braid_engine::effect::FaultKind;

use crate::content::{SECTOR, bytes};
use crate::lie_overlay::{Change, Fate, LieOverlay};
use crate::random::{Random, mix};

/// Faults of a disk, except bad sectors. A power cycle cures them all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DiskFaults {
    /// The disk answers every request with an error.
    pub(crate) gone: bool,
    pub(crate) writes_fail: bool,
    pub(crate) flushes_fail: bool,
    pub(crate) superblocks_fail: bool,
    /// The disk answers nothing, not even an error.
    pub(crate) stalled: bool,
    /// The disk answers nothing until this time, in nanoseconds.
    pub(crate) slow_until_ns: u64,
    /// The disk lies about flushes and FUA: it acknowledges them and makes nothing durable.
    pub(crate) flushes_lie: bool,
    pub(crate) next_data: Fate,
    pub(crate) next_superblock: Fate,
}

impl DiskFaults {
    pub(crate) fn set_fate(&mut self, about_superblock: bool, fate: Fate) {
        let next = if about_superblock { &mut self.next_superblock } else { &mut self.next_data };
        *next = fate;
    }
}

/// One unflushed write to one sector. The sector's earlier bytes are at the same index in `before`.
#[derive(Clone, Copy, Debug)]
struct UnflushedWrite {
    /// The written sector; `DEAD` once a durable write has made the sector stable.
    sector: u64,
    write: u32,
    /// The sector was unreadable before this write, and is again if a power cut undoes the write.
    was_bad: bool,
}

const DEAD: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// The bytes that reads return.
    pub(crate) seen: Vec<u8>,
    log: Vec<UnflushedWrite>,
    before: Vec<u8>,
    next_write: u32,
    /// Sectors that cannot be read until they are written.
    pub(crate) bad: BTreeSet<u64>,
    /// Sectors that fail every write.
    pub(crate) stuck: BTreeSet<u64>,
    pub(crate) ills: DiskFaults,
    /// A bug planted for the shrinker's tests: flushes do nothing while any sector is unreadable.
    #[cfg(test)]
    pub(crate) drops_flushes: bool,
    /// The bytes of an honest disk, in the sectors where this disk differs.
    pub(crate) lies: LieOverlay,
}

impl Disk {
    pub(crate) fn new(sectors: u64) -> Self {
        Self {
            seen: vec![0; sectors as usize * SECTOR],
            log: Vec::new(),
            before: Vec::new(),
            next_write: 0,
            bad: BTreeSet::new(),
            stuck: BTreeSet::new(),
            ills: DiskFaults::default(),
            #[cfg(test)]
            drops_flushes: false,
            lies: LieOverlay::default(),
        }
    }

    /// Whether no written byte can be lost in a power cut.
    pub(crate) fn is_flushed(&self) -> bool {
        self.log.iter().all(|logged| logged.sector == DEAD)
    }

    pub(crate) fn read(&self, start: u64, sectors: u64) -> Result<&[u8], FaultKind> {
        if self.ills.gone {
            return Err(FaultKind::Gone);
        }
        if !self.bad.is_empty() && self.bad.range(start..start + sectors).next().is_some() {
            return Err(FaultKind::Media);
        }
        Ok(&self.seen[bytes(start, sectors)])
    }

    /// Writes the sectors, or fails and writes any part of them.
    pub(crate) fn write(
        &mut self,
        (start, data): (u64, &[u8]),
        durable: bool,
        random: &mut Random,
    ) -> Result<(), FaultKind> {
        if self.ills.gone {
            return Err(FaultKind::Gone);
        }
        if self.ills.writes_fail {
            self.tear((start, data), random);
            return Err(FaultKind::Media);
        }
        let range = start..start + (data.len() / SECTOR) as u64;
        if !self.stuck.is_empty() && self.stuck.range(range).next().is_some() {
            return Err(FaultKind::Media);
        }
        self.put(start, data, durable);
        Ok(())
    }

    /// Writes any subset of the sectors, none of them durably.
    pub(crate) fn tear(&mut self, (start, data): (u64, &[u8]), random: &mut Random) {
        for (sector, data) in (start..).zip(data.chunks_exact(SECTOR)) {
            if random.chance(50) {
                self.put(sector, data, false);
            }
        }
    }

    /// Writes `data` from sector `start` on; the write never fails.
    pub(crate) fn put(&mut self, start: u64, data: &[u8], durable: bool) {
        let sectors = (data.len() / SECTOR) as u64;
        self.record(start, sectors, durable);
        self.lies.agree(start..start + sectors, Change::Healed);
        self.seen[bytes(start, sectors)].copy_from_slice(data);
        if !self.bad.is_empty() {
            self.bad.retain(|sector| !(start..start + sectors).contains(sector));
        }
    }

    /// Logs the present bytes of these sectors, so that a power cut can undo the next write.
    fn record(&mut self, start: u64, sectors: u64, durable: bool) {
        let range = start..start + sectors;
        let is_claimed = durable && self.ills.flushes_lie;
        if durable && !is_claimed {
            for logged in self.log.iter_mut().filter(|logged| range.contains(&logged.sector)) {
                logged.sector = DEAD;
            }
            return;
        }
        let (first, write) = (self.log.len(), self.next_write);
        self.next_write += 1;
        let bad = &self.bad;
        self.log.extend(range.clone().map(|sector| {
            let was_bad = !bad.is_empty() && bad.contains(&sector);
            UnflushedWrite { sector, write, was_bad }
        }));
        self.before.extend_from_slice(&self.seen[bytes(start, sectors)]);
        if !self.lies.is_silent() {
            (first..).zip(range.clone()).for_each(|(index, at)| self.lies.remember(index, at));
        }
        if is_claimed {
            let covered =
                self.log.iter().enumerate().filter(|(_, one)| range.contains(&one.sector));
            covered.for_each(|(index, _)| self.lies.claim(index));
        }
    }

    /// Lies about a write: acknowledges it, but loses it or writes it elsewhere. Returns false, and
    /// does nothing, if there is no room elsewhere.
    pub(crate) fn put_falsely(
        &mut self,
        fate: Fate,
        (start, data): (u64, &[u8]),
        durable: bool,
    ) -> bool {
        let sectors = (data.len() / SECTOR) as u64;
        if let Fate::Astray(to) = fate {
            let end = self.size_bytes() / SECTOR as u64;
            if to + sectors > end || (to < start + sectors && start < to + sectors) {
                return false;
            }
            self.record(to, sectors, durable);
            for (sector, data) in (to..).zip(data.chunks_exact(SECTOR)) {
                let honest = self.honest(sector).to_vec();
                self.seen[bytes(sector, 1)].copy_from_slice(data);
                self.bad.remove(&sector);
                self.lies.diverge(sector, &honest, data);
            }
        }
        self.record(start, sectors, durable);
        for (sector, data) in (start..).zip(data.chunks_exact(SECTOR)) {
            self.lies.diverge(sector, data, &self.seen[bytes(sector, 1)]);
        }
        true
    }

    /// The bytes that an honest disk would hold in this sector.
    pub(crate) fn honest(&self, sector: u64) -> &[u8] {
        self.lies.honest(sector).unwrap_or_else(|| &self.seen[bytes(sector, 1)])
    }

    /// Flips bits of a sector on stable storage: one bit, or up to 40 as `seed` says.
    pub(crate) fn rot(&mut self, sector: u64, seed: u64, one_bit: bool) {
        if self.bad.contains(&sector) || self.log.iter().any(|logged| logged.sector == sector) {
            return;
        }
        let honest = self.honest(sector).to_vec();
        let flips = if one_bit { 1 } else { 1 + mix(seed) % 40 };
        for flip in 1..=flips {
            let bit = mix(seed ^ flip << 32) as usize % (SECTOR * 8);
            self.seen[bytes(sector, 1)][bit / 8] ^= 1 << (bit % 8);
        }
        self.lies.diverge(sector, &honest, &self.seen[bytes(sector, 1)]);
    }

    /// Writes the bytes of an honest disk to these sectors.
    pub(crate) fn heal(&mut self, sectors: std::ops::Range<u64>) {
        for sector in sectors {
            let honest = self.honest(sector).to_vec();
            self.put(sector, &honest, true);
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
        if self.ills.flushes_lie {
            self.lies.claim_until(self.log.len());
        } else {
            self.settle();
        }
        true
    }

    /// Makes all written bytes durable.
    pub(crate) fn settle(&mut self) {
        self.log.clear();
        self.lies.settle();
        self.before.clear();
        self.next_write = 0;
    }

    /// Cuts power: in every sector with unflushed writes, any subset of them survives. An honest
    /// disk loses the same writes, except those that this disk falsely claimed to be durable.
    pub(crate) fn lose_power(&mut self, random: &mut Random) -> u64 {
        // The percentage of writes that are undone varies, so that some cuts spare a whole disk.
        let percent = *random.pick(&[0, 10, 50, 50, 90, 100]);
        let mut undone = 0;
        for (index, logged) in self.log.iter().enumerate().rev() {
            if logged.sector != DEAD && random.chance(percent) {
                let (sector, before) = (logged.sector, &self.before[bytes(index as u64, 1)]);
                if self.lies.is_claimed(index) {
                    let seen = &self.seen[bytes(sector, 1)];
                    let honest = self.lies.honest(sector).unwrap_or(seen).to_vec();
                    self.lies.diverge(sector, &honest, before);
                } else if !self.lies.is_silent() {
                    self.lies.undo(index, sector, before);
                }
                self.seen[bytes(sector, 1)].copy_from_slice(before);
                if logged.was_bad {
                    self.bad.insert(logged.sector);
                }
                undone += 1;
            }
        }
        self.settle();
        undone
    }

    /// Every unflushed write, in order: its sector, its number, and the bytes before it. Writes to
    /// sectors that a later durable write has made stable are left out.
    pub(crate) fn logged(&self) -> impl Iterator<Item = (u64, u32, &[u8])> {
        let before = self.before.chunks_exact(SECTOR);
        let live = self.log.iter().zip(before).filter(|(logged, _)| logged.sector != DEAD);
        live.map(|(logged, before)| (logged.sector, logged.write, before))
    }

    /// Whether a power cut could undo any write.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.log.iter().any(|logged| logged.sector != DEAD)
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
            assert_eq!(disk.seen[3 * SECTOR], 0, "it was not written");
        }
        // The first sector can have 2 values, the second 3, the third 2.
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

    /// Two disks get the same requests, and one of them lies. In sectors without an overlay entry
    /// both disks return the same bytes. In all others the overlay holds the honest disk's bytes.
    #[test]
    fn the_overlay_holds_exactly_what_differs() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (mut liar, mut honest) = (Disk::new(16), Disk::new(16));
            for step in 0..40_u8 {
                let start = random.below(13);
                let data = vec![step + 1; SECTOR * (1 + random.below(3) as usize)];
                let durable = random.chance(30);
                match random.below(6) {
                    0 => liar.rot(start, seed ^ u64::from(step), random.chance(50)),
                    1 if liar.put_falsely(Fate::Lost, (start, &data), durable) => {
                        honest.put(start, &data, durable);
                    }
                    2 => {
                        let to = random.below(16);
                        if liar.put_falsely(Fate::Astray(to), (start, &data), durable) {
                            honest.put(start, &data, durable);
                        }
                    }
                    3 => assert_eq!(liar.flush(), honest.flush()),
                    _ => {
                        liar.put(start, &data, durable);
                        honest.put(start, &data, durable);
                    }
                }
                for sector in 0..16 {
                    assert_eq!(liar.honest(sector), &honest.seen[bytes(sector, 1)], "seed {seed}");
                    let differs = liar.seen[bytes(sector, 1)] != honest.seen[bytes(sector, 1)];
                    assert_eq!(liar.lies.is_tainted(sector..sector + 1), differs, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn a_disk_that_lies_about_flushes_loses_what_it_claimed_and_the_overlay_knows() {
        let (mut lost, mut kept) = (0, 0);
        for seed in 0..200 {
            let mut disk = Disk::new(3);
            disk.put(0, &[1; SECTOR], false);
            assert!(disk.flush());
            disk.ills.flushes_lie = true;
            disk.put(0, &[2; SECTOR], false);
            assert!(disk.flush());
            disk.put(1, &[3; SECTOR], true);
            disk.put(2, &[4; SECTOR], false);
            disk.lose_power(&mut Random::new(seed));
            assert!([1, 2].contains(&disk.seen[0]) && [0, 3].contains(&disk.seen[SECTOR]));
            assert_eq!((disk.honest(0)[0], disk.honest(1)[0]), (2, 3), "it was claimed");
            assert_eq!(disk.honest(2)[0], disk.seen[2 * SECTOR], "it was not claimed");
            assert_eq!(disk.lies.is_tainted(0..1), disk.seen[0] == 1);
            assert_eq!(disk.lies.is_tainted(1..2), disk.seen[SECTOR] == 0);
            lost += u64::from(disk.seen[0] == 1);
            kept += u64::from(disk.seen[0] == 2);
            assert!(!disk.lies.has_claims());
        }
        assert!(lost > 0 && kept > 0);
    }

    #[test]
    fn an_undone_write_brings_back_the_lie_that_was_there_before() {
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let mut disk = Disk::new(1);
            disk.put(0, &[1; SECTOR], true);
            assert!(disk.put_falsely(Fate::Lost, (0, &[2; SECTOR]), true));
            disk.put(0, &[3; SECTOR], false);
            assert!(!disk.lies.is_tainted(0..1), "healed");
            disk.lose_power(&mut Random::new(seed));
            seen.insert((disk.seen[0], disk.honest(0)[0]));
        }
        assert_eq!(seen, BTreeSet::from([(1, 2), (3, 3)]));
    }
}
