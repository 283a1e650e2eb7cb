//! Stories of partial parity logs (PPL), and of journals (`journal`). A RAID-5 is written as md
//! writes it, and power is cut anywhere. Then the shipped machine replays the logs: with any member
//! withheld, cut again in mid replay, and with the member back.
//!
//! ```text
//!   writer ─▶ operations ─ cut after each ─▶ disks ─ one withheld, or none ─▶ replay ─▶ checked
//!          ┌─ cut after each operation of its own ─────────────────────────────┘
//!          └─▶ disks ─ another one withheld, or none ─▶ replay ─▶ checked
//! ```
//!
//! Every sector is checked. A sector without a write in flight has its exact value, computed if its
//! disk is withheld. A sector with a write in flight has the old value or the new one, if its disk
//! is present.

mod journal;
mod platter;
mod writer;

use std::collections::BTreeMap;
use std::ops::Range;

use braid_engine::replay::{Devices, Finish, Log, Member, Replay, Report, Setup, run};
use braid_geometry::{LogicalSector, Slot};
use braid_ondisk::{PplLog, PplRecord};

use crate::random::Random;
use platter::{Platter, PoweredDisks, SECTOR, cut_after, second_cut};
use writer::{LOG_SECTOR, LogHistory, UUID, bytes_of, data_start, written, xor};

/// The sector of a disk that says whether the array is clean.
const SUPER_SECTOR: u64 = 0;
const CLEAN: [u8; SECTOR] = [1; SECTOR];

/// Checks replays of the arrays that these seeds draw, for parity logs and for journals.
///
/// # Panics
/// At the first error.
pub(crate) fn tell(seeds: Range<u64>) {
    seeds.clone().for_each(|seed| told(&mut Random::new(0x0991 + seed)));
    journal::tell(seeds);
}

/// Values that an array sector is allowed to hold.
#[derive(Clone, Copy)]
struct AllowedValues {
    new: u64,
    old: u64,
}

/// The disks after a crash, and the values that each array sector may have.
#[derive(Clone)]
struct CrashState<'a> {
    of: &'a LogHistory,
    disks: Vec<Platter>,
    allowed: Vec<AllowedValues>,
    /// Whether a bad-block log names the bad sector. If not, the replay finds it by a read.
    is_bad_logged: bool,
}

/// The disks of a replay, and the records of their logs.
struct Bench<'a> {
    powered: PoweredDisks<'a>,
    records: BTreeMap<usize, PplRecord>,
    data_start: u64,
    log_sectors: u64,
}

impl Devices for Bench<'_> {
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool {
        self.powered.disks[slot.index()].read(self.data_start + sectors.start, bytes)
    }

    fn partial(&self, slot: Slot, entry: u32, sectors: Range<u64>) -> &[u8] {
        let entries = &self.records[&slot.index()].entries;
        let (_, logged) = entries.iter().find(|(index, _)| *index == entry).expect("it is there");
        &logged.partial[sectors.start as usize * SECTOR..sectors.end as usize * SECTOR]
    }

    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool {
        let start = self.data_start + sectors.start;
        self.powered.operate(slot.index(), |disk| disk.write(start, bytes))
    }

    fn flush(&mut self, slot: Slot) -> bool {
        self.powered.operate(slot.index(), Platter::flush)
    }

    fn record_clean(&mut self, slot: Slot) -> bool {
        self.powered.operate(slot.index(), |disk| disk.write_durably(SUPER_SECTOR, &CLEAN))
    }

    fn void(&mut self, slot: Slot) -> bool {
        let generation = self.records.get(&slot.index()).map_or(0, |one| one.generation);
        let empty = PplRecord::bytes_of(generation + 1, &[], &UUID);
        let zeroes = vec![0; self.log_sectors as usize * SECTOR];
        self.powered.operate(slot.index(), |disk| {
            disk.write_durably(LOG_SECTOR, &zeroes);
            disk.write_durably(LOG_SECTOR, &empty);
        })
    }
}

impl<'a> CrashState<'a> {
    fn slots(&self) -> usize {
        self.disks.len()
    }

    fn is_there(&self, slot: usize, withheld: Option<usize>) -> bool {
        withheld != Some(slot)
    }

    /// Whether a presented disk says that the array is not clean.
    fn is_dirty(&self, withheld: Option<usize>) -> bool {
        let says_clean = |disk: &Platter| {
            let mut bytes = [0; SECTOR];
            disk.read(SUPER_SECTOR, &mut bytes);
            bytes == CLEAN
        };
        let there = (0..self.slots()).filter(|slot| self.is_there(*slot, withheld));
        there.into_iter().any(|slot| !says_clean(&self.disks[slot]))
    }

    fn record(&self, slot: usize) -> Option<PplRecord> {
        let place = self.of.place;
        let mut bytes = vec![0; place.used_bytes() as usize];
        assert!(self.disks[slot].read(LOG_SECTOR, &mut bytes), "no log is bad");
        PplLog::read(&bytes, place, &UUID).expect("it is on the disk").newest
    }

    /// Replays the logs as a server does at a start, with power for `ops_left` operations. Returns
    /// how many operations the replay has.
    fn start(&mut self, withheld: Option<usize>, ops_left: usize) -> (usize, Report) {
        if !self.is_dirty(withheld) {
            return (0, Report::default());
        }
        let there = |slot: &usize| self.is_there(*slot, withheld);
        let data_start = data_start(self.of.place);
        let member = |slot: usize| {
            let bad = self.disks[slot].bad_sector.filter(|_| self.is_bad_logged);
            let bad = bad.map(|sector| sector - data_start..sector - data_start + 1);
            Member { recovered_sectors: u64::MAX, bad_sectors: bad.into_iter().collect() }
        };
        let members = (0..self.slots()).map(|slot| there(&slot).then(|| member(slot))).collect();
        let records: BTreeMap<usize, PplRecord> = (0..self.slots())
            .filter(there)
            .filter_map(|slot| Some((slot, self.record(slot)?)))
            .collect();
        let log = |(slot, record): (&usize, &PplRecord)| Log {
            slot: Slot(*slot as u16),
            entries: record.entries.iter().map(|(index, one)| (*index, one.entry)).collect(),
        };
        let logs = records.iter().map(log).collect();
        let setup = Setup { geometry: self.of.geometry, members, logs, finish: Finish::Settled };
        let replay = Replay::new(setup).expect("the writer makes entries that the array can have");
        let log_sectors = self.of.place.used_sectors();
        let powered = PoweredDisks::new(&mut self.disks, ops_left);
        let mut bench = Bench { powered, records, data_start, log_sectors };
        let report = run(replay, &mut bench).expect("no disk fails to write");
        (bench.powered.ops, report)
    }

    fn cut(&mut self, random: &mut Random) {
        self.disks.iter_mut().for_each(|disk| disk.cut(random));
    }

    /// A sector of a member's data area, and whether it was computed from the other members. `None`
    /// if it cannot be read or computed.
    fn sector(
        &self,
        slot: usize,
        at: u64,
        withheld: Option<usize>,
    ) -> Option<([u8; SECTOR], bool)> {
        let mut bytes = [0; SECTOR];
        let sector = data_start(self.of.place) + at;
        if self.is_there(slot, withheld) && self.disks[slot].read(sector, &mut bytes) {
            return Some((bytes, false));
        }
        bytes.fill(0);
        for other in (0..self.slots()).filter(|other| *other != slot) {
            let mut column = [0; SECTOR];
            let is_read =
                self.is_there(other, withheld) && self.disks[other].read(sector, &mut column);
            if !is_read {
                return None;
            }
            xor(&mut bytes, &column);
        }
        Some((bytes, true))
    }

    /// Checks that each array sector has an allowed value.
    fn check(&self, withheld: Option<usize>) {
        let geometry = &self.of.geometry;
        for (sector, allowed) in (0..).zip(&self.allowed) {
            let address = geometry.locate(LogicalSector(sector));
            let slot = geometry.row_map(address.row).data_slot(address.data_index).index();
            let at = geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
            let Some((bytes, is_computed)) = self.sector(slot, at, withheld) else { continue };
            if is_computed && allowed.new != allowed.old {
                continue;
            }
            let is_right = bytes == bytes_of(allowed.new) || bytes == bytes_of(allowed.old);
            assert!(is_right, "answers: sector {sector} of slot {slot}, without {withheld:?}");
        }
    }

    /// Checks that parity fits in every row whose sectors can all be read.
    fn check_parity(&self) {
        let geometry = &self.of.geometry;
        for at in 0..geometry.used_sectors() {
            let mut sum = [0; SECTOR];
            let sector = data_start(self.of.place) + at;
            let is_read = self.disks.iter().all(|disk| {
                let mut column = [0; SECTOR];
                let is_read = disk.read(sector, &mut column);
                xor(&mut sum, &column);
                is_read
            });
            assert!(!is_read || sum == [0; SECTOR], "redundancy: sector {at} of members");
        }
    }
}

/// The disks if power is cut after the first `cut` operations, and the values allowed then for each
/// array sector.
fn crashed<'a>(of: &'a LogHistory, cut: usize, random: &mut Random) -> CrashState<'a> {
    let mut disks = cut_after(&of.disks, &of.ops[..cut], random);
    let allowed = of.content.iter().map(|content| AllowedValues { new: *content, old: *content });
    let mut allowed: Vec<AllowedValues> = allowed.collect();
    for flight in of.flights.iter().rev().filter(|flight| flight.ops.end > cut) {
        for (sector, (old, new)) in &flight.changes {
            let is_begun = flight.ops.start < cut;
            allowed[*sector as usize] =
                AllowedValues { new: if is_begun { *new } else { *old }, old: *old };
        }
    }
    if random.chance(30) {
        let sector = data_start(of.place) + random.below(of.geometry.used_sectors());
        let disk = random.below(disks.len() as u64) as usize;
        disks[disk].bad_sector = Some(sector);
    }
    CrashState { of, disks, allowed, is_bad_logged: random.chance(50) }
}

fn told(random: &mut Random) {
    let of = written(random);
    for cut in 0..=of.ops.len() {
        let crashed = crashed(&of, cut, random);
        for withheld in (0..crashed.slots()).map(Some).chain([None]) {
            let mut first = crashed.clone();
            let (ops, report) = first.start(withheld, usize::MAX);
            first.check(withheld);
            assert!(!report.is_settled || !first.disks.iter().any(Platter::has_volatile));
            if withheld.is_none() && report.unsettled.is_empty() {
                first.check_parity();
            }
            // Power is cut again somewhere in the replay, or right after it.
            let mut second = crashed.clone();
            second.start(withheld, second_cut(ops, random));
            second.cut(random);
            let other = random.below(second.slots() as u64 + 1) as usize;
            let other = (other < second.slots()).then_some(other);
            second.start(other, usize::MAX);
            second.check(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_keeps_what_nobody_wrote() {
        tell(0..12);
    }

    #[cfg(braid_sim_hooks)]
    #[test]
    fn every_mistake_in_a_replay_is_noticed() {
        let ours = |bug: &braid_sim_hooks::Bug| {
            bug.name().starts_with("replay-") || bug.name().starts_with("ppl-")
        };
        crate::mistakes::assert_noticed(ours, 4, || tell(0..12));
    }
}
