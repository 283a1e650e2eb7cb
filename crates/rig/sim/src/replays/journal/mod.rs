//! Stories of write journals. A RAID-4, -5 or -6 is written as md writes it with a journal, in both
//! modes, and power is cut anywhere. The shipped machine replays the journal: with members
//! withheld, cut again in mid replay, and with the members back.
//!
//! ```text
//!   writer ─▶ operations ─ cut after each ─▶ disks ─ some withheld, or none ─▶ replay ─▶ checked
//!          ┌─ cut after each operation of its own ──────────────────────────────┘
//!          └─▶ disks ─ others withheld, or none ─▶ replay ─▶ the same
//! ```
//!
//! Every sector is checked, and computed if its disk is withheld. The sector has its newest durable
//! content, or the content of a write in flight. A second crash does not change that content.

mod writer;

use std::collections::BTreeSet;
use std::ops::Range;

use braid_engine::replay::journal::{Devices, Replay, Report, Setup, run};
use braid_engine::replay::{Finish, Member};
use braid_geometry::{LogicalSector, Slot};
use braid_ondisk::{JournalArea, JournalLog};
use braid_parity::definition;

use super::platter::{Platter, PoweredDisks, SECTOR, cut_after, second_cut};
use crate::random::Random;
use writer::{BLOCK, JOURNAL_START, JournalHistory, UUID, content, tail_of, tail_sector, written};

/// Checks replays of the arrays that these seeds draw.
///
/// # Panics
/// At the first error.
pub(super) fn tell(seeds: Range<u64>) {
    seeds.for_each(|seed| told(&mut Random::new(0x0a11 + seed)));
}

/// The disks after a crash (members by slot, then the journal), and the values that each array
/// block may have.
#[derive(Clone)]
struct JournalCrashState<'a> {
    of: &'a JournalHistory,
    disks: Vec<Platter>,
    /// By array block: the value of its newest durable write, and those of later writes in flight.
    allowed: Vec<Vec<u64>>,
    /// Whether a bad-block log names the bad sector. If not, the replay finds it by a read.
    is_bad_logged: bool,
}

type Withheld = BTreeSet<usize>;

/// The disks of a replay; the journal is at the index `journal`.
struct Bench<'a> {
    powered: PoweredDisks<'a>,
    journal: usize,
}

impl Devices for Bench<'_> {
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool {
        self.powered.disks[slot.index()].read(sectors.start, bytes)
    }

    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool {
        self.powered.operate(slot.index(), |disk| disk.write(sectors.start, bytes))
    }

    fn flush(&mut self, slot: Slot) -> bool {
        self.powered.operate(slot.index(), Platter::flush)
    }

    fn read_journal(&mut self, position: u64, bytes: &mut [u8]) -> bool {
        self.powered.disks[self.journal].read(JOURNAL_START + position, bytes)
    }

    fn write_journal(&mut self, position: u64, bytes: &[u8]) -> bool {
        self.powered.operate(self.journal, |disk| disk.write(JOURNAL_START + position, bytes))
    }

    fn flush_journal(&mut self) -> bool {
        self.powered.operate(self.journal, Platter::flush)
    }

    fn move_tail(&mut self, position: u64) -> bool {
        self.powered.operate(self.journal, |disk| disk.write_durably(0, &tail_sector(position)))
    }
}

impl JournalCrashState<'_> {
    fn slots(&self) -> usize {
        self.disks.len() - 1
    }

    fn log(&self) -> JournalLog {
        let journal = &self.disks[self.slots()];
        let mut sector = [0; SECTOR];
        assert!(journal.read(0, &mut sector), "the journal is sound");
        let (ring_sectors, tail_sectors) = (self.of.ring_sectors, tail_of(&sector));
        let area = JournalArea { start_sector: JOURNAL_START, ring_sectors, tail_sectors };
        let mut read =
            |position: u64, bytes: &mut [u8]| journal.read(JOURNAL_START + position, bytes);
        let log = JournalLog::read(area, &UUID, &mut read);
        log.expect("answers: the tail is where a meta block is")
    }

    /// Replays the journal as a server does at a start, with power for `ops_left` operations.
    /// Returns how many operations the replay has.
    fn start(&mut self, withheld: &Withheld, ops_left: usize, finish: Finish) -> (usize, Report) {
        let log = self.log();
        let member = |slot: usize| {
            let bad = self.disks[slot].bad_sector.filter(|_| self.is_bad_logged);
            let bad_sectors = bad.into_iter().map(|sector| sector..sector + 1).collect();
            Member { recovered_sectors: u64::MAX, bad_sectors }
        };
        let slots = 0..self.slots();
        let members = slots.map(|slot| (!withheld.contains(&slot)).then(|| member(slot))).collect();
        let (geometry, may_return) = (self.of.geometry, !withheld.is_empty());
        let setup = Setup { geometry, members, may_return, log: &log, finish };
        let replay =
            Replay::new(setup).expect("md keeps room for parity, and writes what there is");
        let journal = self.slots();
        let mut bench = Bench { powered: PoweredDisks::new(&mut self.disks, ops_left), journal };
        let report = run(replay, &geometry, &UUID, &mut bench).expect("no disk fails to write");
        (bench.powered.ops, report)
    }

    fn cut(&mut self, random: &mut Random) {
        self.disks.iter_mut().for_each(|disk| disk.cut(random));
    }

    /// The data of a row at one sector of its members, in the array's order. Data of a withheld
    /// disk is computed.
    fn row(&self, sector: u64, withheld: &Withheld) -> Vec<Option<[u8; SECTOR]>> {
        let geometry = &self.of.geometry;
        let map = geometry.row_map(geometry.row_of(braid_geometry::MemberSector(sector)));
        let read = |slot: Slot| {
            let mut bytes = [0; SECTOR];
            let disk = &self.disks[slot.index()];
            let is_there = !withheld.contains(&slot.index()) && disk.read(sector, &mut bytes);
            is_there.then_some(bytes)
        };
        let indices = || 0..map.data_slots();
        let mut data: Vec<_> = indices().map(|index| read(map.data_slot(index))).collect();
        let lost: Vec<u16> =
            indices().filter(|index| data[usize::from(*index)].is_none()).collect();
        let (p, q) = (read(map.p_slot()), map.q_slot().and_then(read));
        let mut sources: Vec<Option<&[u8]>> = vec![None; usize::from(map.exponents_count())];
        for index in indices() {
            let column = data[usize::from(index)].as_ref().map(|bytes| &bytes[..]);
            sources[usize::from(map.exponent(index))] = column;
        }
        let (mut first, mut second) = ([0; SECTOR], [0; SECTOR]);
        match (&lost[..], p, q) {
            ([_], Some(p), _) => {
                let known: Vec<&[u8]> = sources.into_iter().flatten().chain([&p[..]]).collect();
                definition::xor(&mut first, &known);
            }
            ([one], None, Some(q)) => {
                definition::recover_data_from_q(&sources, &q, map.exponent(*one), &mut first);
            }
            ([one, other], Some(p), Some(q)) => {
                let exponents = (map.exponent(*one), map.exponent(*other));
                let out = (&mut first[..], &mut second[..]);
                definition::recover_two_data(&sources, &p, &q, exponents, out);
            }
            _ => return data,
        }
        for (index, bytes) in lost.into_iter().zip([first, second]) {
            data[usize::from(index)] = Some(bytes);
        }
        data
    }

    /// Every sector of the array; `None` for each that cannot be read.
    fn sectors(&self, withheld: &Withheld) -> Vec<Option<[u8; SECTOR]>> {
        let geometry = &self.of.geometry;
        let mut sectors = vec![None; geometry.capacity_sectors() as usize];
        for sector in 0..geometry.used_sectors() {
            let row = geometry.row_of(braid_geometry::MemberSector(sector));
            let offset = (sector - geometry.row_start(row).0) as u32;
            for (index, bytes) in (0..).zip(self.row(sector, withheld)) {
                sectors[geometry.logical(row, index, offset).0 as usize] = bytes;
            }
        }
        sectors
    }

    /// Array sectors that do not have an allowed value.
    fn wrong(&self, withheld: &Withheld, unsettled: &[Range<u64>]) -> Vec<u64> {
        let is_wrong = |(sector, bytes): (u64, Option<[u8; SECTOR]>)| {
            let allowed = &self.allowed[(sector / BLOCK) as usize];
            let is_left = unsettled.iter().any(|range| range.contains(&sector));
            let is_right = |bytes| allowed.iter().any(|value| content(*value, sector) == bytes);
            (!is_left && !bytes.is_none_or(is_right)).then_some(sector)
        };
        (0..).zip(self.sectors(withheld)).filter_map(is_wrong).collect()
    }

    fn check(&self, withheld: &Withheld, report: &Report) {
        let wrong = self.wrong(withheld, &report.unsettled);
        assert!(wrong.is_empty(), "answers: sectors {wrong:?}, without {withheld:?}");
    }

    /// Checks that parity fits in every row whose sectors can all be read.
    fn check_parity(&self) {
        let geometry = &self.of.geometry;
        for slot in 0..self.slots() {
            // Every row must read the same with this member's data computed.
            let without = Withheld::from([slot]);
            let (with, without) = (self.sectors(&Withheld::new()), self.sectors(&without));
            for (sector, (one, other)) in with.iter().zip(&without).enumerate() {
                let slot_of = geometry.locate(LogicalSector(sector as u64));
                let differ = one.is_some() && other.is_some() && one != other;
                assert!(!differ, "redundancy: sector {sector} in {slot_of:?}, without slot {slot}");
            }
        }
    }
}

/// The disks if power is cut after the first `cut` operations, and the values allowed then for each
/// array block.
fn crashed<'a>(of: &'a JournalHistory, cut: usize, random: &mut Random) -> JournalCrashState<'a> {
    let mut disks = cut_after(&of.disks, &of.ops[..cut], random);
    let mut allowed: Vec<Vec<u64>> = of.first.iter().map(|value| vec![*value]).collect();
    for write in of.writes.iter().filter(|write| write.begin < cut) {
        let values = &mut allowed[write.block as usize];
        if write.durable <= cut {
            values.clear();
        }
        values.push(write.value);
    }
    if random.chance(30) {
        let disk = random.below(disks.len() as u64 - 1) as usize;
        disks[disk].bad_sector = Some(random.below(of.geometry.used_sectors()));
    }
    JournalCrashState { of, disks, allowed, is_bad_logged: random.chance(50) }
}

/// Sets of disks to withhold: none, each member alone, and for a RAID-6 some pairs.
fn choices(of: &JournalHistory, random: &mut Random) -> Vec<Withheld> {
    let slots = usize::from(of.geometry.slots());
    let mut choices: Vec<Withheld> = (0..slots).map(|slot| Withheld::from([slot])).collect();
    choices.push(Withheld::new());
    if of.geometry.parity_slots() == 2 {
        let mut one = || random.below(slots as u64) as usize;
        choices.extend((0..3).map(|_| Withheld::from([one(), one()])));
    }
    choices
}

fn told(random: &mut Random) {
    let of = written(random);
    for cut in 0..=of.ops.len() {
        let crashed = crashed(&of, cut, random);
        for withheld in choices(&of, random) {
            let mut first = crashed.clone();
            let (ops, report) = first.start(&withheld, usize::MAX, Finish::Settled);
            first.check(&withheld, &report);
            assert!(!report.is_settled || !first.disks.iter().any(Platter::has_volatile));
            let is_parity_looked_at = random.chance(5);
            if is_parity_looked_at && withheld.is_empty() && report.unsettled.is_empty() {
                first.check_parity();
            }
            // A replay that only reads into memory must give the same content, and must not write
            // the journal.
            if random.chance(20) {
                let mut shown = crashed.clone();
                let (_, shown_report) = shown.start(&withheld, usize::MAX, Finish::Written);
                assert_eq!(shown_report.unsettled, report.unsettled);
                let (one, other) = (shown.sectors(&withheld), first.sectors(&withheld));
                assert!(one == other, "answers: in memory it reads otherwise");
            }
            // Power is cut again somewhere in the replay, or right after it.
            let mut second = crashed.clone();
            second.start(&withheld, second_cut(ops, random), Finish::Settled);
            second.cut(random);
            let others = choices(&of, random);
            let other = random.pick(&others).clone();
            let (_, again) = second.start(&other, usize::MAX, Finish::Settled);
            second.check(&other, &again);
            second.check_same(&other, &again, (&first, &withheld, &report));
        }
    }
}

impl JournalCrashState<'_> {
    /// Checks that a second crash does not change content that clients could read before it.
    fn check_same(
        &self,
        withheld: &Withheld,
        report: &Report,
        (before, without, told): (&Self, &Withheld, &Report),
    ) {
        let unsettled = || report.unsettled.iter().chain(&told.unsettled);
        let both = self.sectors(withheld).into_iter().zip(before.sectors(without));
        for (sector, (now, then)) in (0_u64..).zip(both) {
            let is_left = unsettled().any(|range| range.contains(&sector));
            let differ = now.is_some() && then.is_some() && now != then;
            assert!(is_left || !differ, "answers: sector {sector} changes by a second crash");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_keeps_every_sector() {
        tell(0..12);
    }

    #[test]
    fn without_its_journal_an_array_would_read_wrong() {
        let mut wrong = [0_usize; 2];
        for seed in 0..12 {
            let random = &mut Random::new(0x0a11 + seed);
            let of = written(random);
            for cut in 0..=of.ops.len() {
                let crashed = crashed(&of, cut, random);
                wrong[0] += crashed.wrong(&Withheld::new(), &[]).len();
                wrong[1] += crashed.wrong(&Withheld::from([0]), &[]).len();
            }
        }
        assert!(wrong[0] > 0 && wrong[1] > wrong[0], "{wrong:?}");
    }

    #[cfg(braid_sim_hooks)]
    #[test]
    fn every_mistake_with_a_journal_is_noticed() {
        // Bugs in writing a journal are noticed by stories, not by these replays.
        let is_written = |bug: &braid_sim_hooks::Bug| bug.text().starts_with("Journal, writing");
        let ours =
            |bug: &braid_sim_hooks::Bug| bug.name().starts_with("journal-") && !is_written(bug);
        crate::mistakes::assert_noticed(ours, 3, || tell(0..12));
    }
}
