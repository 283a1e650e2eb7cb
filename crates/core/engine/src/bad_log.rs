//! The records of a member's bad-block log, by sector, and the order of writes that changes them.
//!
//! The log has no checksum, and a power cut tears a write between sectors: each sector holds its
//! old or its new content. So a range that stays in the log stays in its sector.
//!
//! ```text
//!   before   │ a b c . │ d e . . │         a is taken out, f comes: into a sector with room
//!   after    │ b c f . │ d e . . │         whatever is torn: b, c, d, e
//! ```
//!
//! A hole in a record splits the record in two, and its sector may have no room for both halves.
//! Then one write copies some of the sector's records into another sector, and the next write
//! removes them from the first. So a change may take several writes, each submitted when the one
//! before is durable ([`BadLog::towards`]).
//!
//! ```text
//!   before   │ a b c d │ e . . . │         b is to be two, b and B
//!   then     │ a b c d │ d e . . │
//!   then     │ a b B c │ d e . . │
//! ```
//!
//! md stops reading at the first sector that is not full. So an empty sector before others gets a
//! record of the last sector. Every sector but the last is filled up with repeats of its own
//! records. At open the content of the sectors after the last is unknown: md may have left bytes
//! there that it does not read. So the first write places no record beyond the log's old end, and
//! writes all sectors of the log. From then on sectors after the last one are blank.
//!
//! # Invariants
//! - After a torn write the log names every range that is in its old and in its new content. It
//!   names no range that is in neither [check: a_torn_log_names_what_it_did_and_is_to].
//! - A log that is not full reaches its wanted content
//!   [check: a_log_takes_as_many_records_as_it_has_room_for].

use std::ops::Range;

use braid_ondisk::bad_blocks::RECORDS_PER_SECTOR;
use braid_sim_hooks::{Bug, Mark, reached, spoiled};

use crate::ranges::{BadBlocks, BadRange};

const ROOM: u64 = RECORDS_PER_SECTOR as u64;

/// A member's bad-block log, by sector. Without sectors, the array keeps no log for the member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadLog {
    sectors: Vec<BadBlocks>,
}

/// One write to a bad-block log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLogWrite {
    /// The log's content after the write.
    pub says: BadLog,
    /// The sectors of the log that the write covers; all other sectors have this content already.
    pub sectors: Range<usize>,
}

/// Whether the content of the sectors after the last one that names a range is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Blank,
    Unknown,
}

impl BadLog {
    /// A log of `sectors` sectors. Each of `records` comes with the index of its sector; a record
    /// beyond the log's last sector is dropped.
    #[must_use]
    pub fn new(sectors: u16, records: impl IntoIterator<Item = (u16, BadRange)>) -> Self {
        let mut ranges = vec![Vec::new(); usize::from(sectors)];
        for (sector, range) in records {
            if let Some(ranges) = ranges.get_mut(usize::from(sector)) {
                ranges.push(range);
            }
        }
        Self { sectors: ranges.into_iter().map(BadBlocks::new).collect() }
    }

    /// The ranges that each sector of the log names.
    #[must_use]
    pub fn sectors(&self) -> &[BadBlocks] {
        &self.sectors
    }

    /// Whether the array keeps the log.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.sectors.is_empty()
    }

    /// All ranges that the log names.
    #[must_use]
    pub fn named(&self) -> BadBlocks {
        named_by(&self.sectors)
    }

    /// The number of sectors up to the last one that names a range.
    fn used(&self) -> usize {
        let last = self.sectors.iter().rposition(|sector| !sector.is_empty());
        last.map_or(0, |last| last + 1)
    }

    /// Whether `sector` must be filled up with repeats, because sectors with records follow it.
    fn is_followed(&self, sector: usize) -> bool {
        sector + 1 < self.used()
    }

    /// The sectors that differ from `next`, by their records or by their fill.
    pub(crate) fn changed(&self, next: &Self, tail: Tail) -> Range<usize> {
        let all = 0..self.sectors.len();
        if tail == Tail::Unknown {
            return all;
        }
        let is_other = |sector: &usize| {
            self.sectors[*sector] != next.sectors[*sector]
                || self.is_followed(*sector) != next.is_followed(*sector)
        };
        let mut others = all.filter(is_other);
        let Some(first) = others.next() else { return 0..0 };
        first..others.next_back().unwrap_or(first) + 1
    }

    /// Whether writes can make the log name exactly `wanted`.
    pub(crate) fn reaches(&self, wanted: &BadBlocks, tail: Tail) -> bool {
        let (mut at, mut tail) = (self.clone(), tail);
        // The loop ends: each write only moves records out of a sector, or puts records in.
        for _ in 0..2 * self.sectors.len() + 2 {
            if at.named() == *wanted {
                return true;
            }
            let next = at.towards(wanted, tail);
            if next == at && tail == Tail::Blank {
                return false;
            }
            (at, tail) = (next, Tail::Blank);
        }
        false
    }

    /// The log after one write towards `wanted`; unchanged if no write gets it closer.
    pub(crate) fn towards(&self, wanted: &BadBlocks, tail: Tail) -> Self {
        let step = Step::new(self, wanted, tail);
        let mut next = step.take_out();
        let is_moved = next.make_room(wanted);
        if is_moved {
            reached(Mark::BadBlockMoved);
        }
        next.put_in(wanted);
        next.fill_gaps();
        Self { sectors: next.sectors }
    }
}

fn named_by<'a>(sectors: impl IntoIterator<Item = &'a BadBlocks>) -> BadBlocks {
    sectors.into_iter().fold(BadBlocks::default(), |all, sector| all.union(sector))
}

struct Step<'a> {
    before: &'a BadLog,
    /// The new content of each sector.
    sectors: Vec<BadBlocks>,
    /// Sectors that lack room for their remaining records.
    stuck: Vec<usize>,
    /// The number of sectors, from the log's start, that the write may use.
    within: usize,
    /// The number of records that a sector may hold.
    room: u64,
}

impl<'a> Step<'a> {
    fn new(before: &'a BadLog, wanted: &BadBlocks, tail: Tail) -> Self {
        let sectors: Vec<BadBlocks> =
            before.sectors.iter().map(|sector| sector.common(wanted)).collect();
        // With an unknown tail, the bytes after a full last sector need not end the log.
        let (within, room) = match tail {
            Tail::Blank => (sectors.len(), ROOM),
            Tail::Unknown => (before.used().max(1).min(sectors.len()), ROOM - 1),
        };
        Self { before, sectors, stuck: Vec::new(), within, room }
    }

    fn fits(&self, sector: usize, says: &BadBlocks) -> bool {
        says.records() <= self.room || *says == self.before.sectors[sector]
    }

    /// Removes unwanted ranges from each sector that has room for the remaining records. Of several
    /// sectors that name a range, one keeps the range.
    fn take_out(mut self) -> Self {
        let kept = std::mem::take(&mut self.sectors);
        self.sectors = vec![BadBlocks::default(); kept.len()];
        let all = 0..kept.len();
        let (fit, too_many): (Vec<_>, Vec<_>) =
            all.partition(|sector| self.fits(*sector, &kept[*sector]));
        let mut placed = BadBlocks::default();
        for sector in fit.into_iter().chain(too_many) {
            let alone = kept[sector].difference(&placed);
            let says = match () {
                () if self.fits(sector, &alone) => alone,
                () if self.fits(sector, &kept[sector]) => kept[sector].clone(),
                () => {
                    self.stuck.push(sector);
                    self.before.sectors[sector].clone()
                }
            };
            placed = placed.union(&says);
            self.sectors[sector] = says;
        }
        self
    }

    /// The sector where `record` costs the least room: a sector where `record` joins another
    /// record, or else the first sector with room.
    fn place_for(&self, record: BadRange) -> Option<(usize, BadBlocks)> {
        let record = BadBlocks::new(vec![record]);
        let may_be = (0..self.within).filter(|sector| !self.stuck.contains(sector));
        let with = may_be.map(|sector| (sector, self.sectors[sector].union(&record)));
        let taken = |(sector, with): &(usize, BadBlocks)| {
            with.records() - self.sectors[*sector].records().min(with.records())
        };
        with.filter(|(_, with)| with.records() <= self.room).min_by_key(taken)
    }

    fn elsewhere(&self, sector: usize) -> BadBlocks {
        let (before, behind) = (&self.sectors[..sector], &self.sectors[sector + 1..]);
        named_by(before.iter().chain(behind))
    }

    /// Moves records out of sectors that lack room for their remaining records. True if any record
    /// moved.
    fn make_room(&mut self, wanted: &BadBlocks) -> bool {
        let mut is_moved = false;
        for sector in self.stuck.clone() {
            let left = self.before.sectors[sector].common(wanted);
            let left = left.difference(&self.elsewhere(sector));
            let surplus = left.records().saturating_sub(self.room);
            let surplus = usize::try_from(surplus).expect("a few hundred records");
            for record in left.by_record().rev().take(surplus) {
                if let Some((other, with)) = self.place_for(record) {
                    self.sectors[other] = with;
                    is_moved = true;
                }
            }
            let moves_at_once = false;
            let moves_at_once = spoiled(Bug::BadRecordsMovedAtOnce, moves_at_once, true);
            if is_moved && moves_at_once {
                let rest = self.before.sectors[sector].common(wanted);
                self.sectors[sector] = rest.difference(&self.elsewhere(sector));
            }
        }
        is_moved
    }

    /// Puts wanted ranges that no sector names into sectors with room.
    fn put_in(&mut self, wanted: &BadBlocks) {
        for record in wanted.difference(&named_by(&self.sectors)).by_record() {
            if let Some((sector, with)) = self.place_for(record) {
                self.sectors[sector] = with;
            }
        }
    }

    /// Gives each empty sector that lies before a used sector a record of the last sector.
    fn fill_gaps(&mut self) {
        let Some(last) = self.sectors.iter().rposition(|sector| !sector.is_empty()) else { return };
        let record = self.sectors[last].by_record().next().expect("it names something");
        for sector in self.sectors[..last].iter_mut().filter(|sector| sector.is_empty()) {
            *sector = BadBlocks::new(vec![record]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::MemberSector;
    use braid_ondisk::{BadBlockLog, BadBlockLogPlace, BadRange as Named};

    const SECTOR: usize = 512;

    fn range(start: u64, sectors: u64) -> BadRange {
        BadRange { start: MemberSector(start), sectors }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % bound
        }
    }

    fn place(sectors: usize) -> BadBlockLogPlace {
        let size_sectors = u16::try_from(sectors).expect("a few");
        BadBlockLogPlace { offset_sectors: 16, size_sectors, shift: 0 }
    }

    fn bytes_of(log: &BadLog) -> Vec<u8> {
        let named =
            |range: &BadRange| Named { start_sector: range.start.0, length_sectors: range.sectors };
        let ranges = log.sectors().iter().map(|one| one.ranges().iter().map(named).collect());
        let ranges: Vec<Vec<Named>> = ranges.collect();
        BadBlockLog::sectors_to_bytes(&ranges, place(ranges.len())).expect("it has room")
    }

    /// The log as assembly reads it.
    fn read(bytes: &[u8]) -> BadLog {
        let place = place(bytes.len() / SECTOR);
        let records = BadBlockLog::parse(bytes, place).expect("it makes sense");
        let records = records
            .iter()
            .map(|one| (one.log_sector, range(one.range.start_sector, one.range.length_sectors)));
        BadLog::new(place.size_sectors, records)
    }

    /// Checks every state of the log that a power cut may leave during one write, then applies the
    /// write.
    fn write(disk: &mut [u8], before: &BadLog, (wanted, tail): (&BadBlocks, Tail)) -> BadLog {
        let next = before.towards(wanted, tail);
        let changed = before.changed(&next, tail);
        let new = bytes_of(&next);
        let (old_names, new_names) = (before.named(), next.named());
        let kept = old_names.common(&new_names);
        let any = old_names.union(&new_names);
        for torn in 0..1_u32 << changed.len() {
            let mut left = disk.to_vec();
            for (index, sector) in changed.clone().enumerate() {
                if torn >> index & 1 == 1 {
                    let at = sector * SECTOR..(sector + 1) * SECTOR;
                    left[at.clone()].copy_from_slice(&new[at]);
                }
            }
            let says = read(&left).named();
            assert!(kept.difference(&says).is_empty(), "{torn:b}: {before:?} {next:?}");
            assert!(says.difference(&any).is_empty(), "{torn:b}: {before:?} {next:?}");
        }
        let at = changed.start * SECTOR..changed.end * SECTOR;
        disk[at.clone()].copy_from_slice(&new[at]);
        assert_eq!(read(disk).named(), new_names);
        next
    }

    fn small(number: u64) -> usize {
        usize::try_from(number).expect("a few")
    }

    /// Ranges of a small device, so that records meet, join and are cut.
    fn any_range(random: &mut Random) -> BadRange {
        let length = [1, 1, 2, 8, 40, 700][small(random.below(6))];
        range(random.below(2400), length)
    }

    #[test]
    fn a_torn_log_names_what_it_did_and_is_to() {
        for seed in 1..400 {
            let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
            let sectors = 1 + small(random.below(4));
            // md packs a log like this: all records in order, then old bytes.
            let mut disk: Vec<u8> = Vec::new();
            let junk = (0..sectors * RECORDS_PER_SECTOR).map(|_| random.below(2000) << 10 | 3);
            disk.extend(junk.collect::<Vec<_>>().iter().flat_map(|record| record.to_le_bytes()));
            let count = random.below(sectors as u64 * ROOM);
            let named =
                BadBlocks::new((0..count).map(|n| range(n * 9, 1 + random.below(8))).collect());
            let named: Vec<_> = named
                .ranges()
                .iter()
                .map(|one| Named { start_sector: one.start.0, length_sectors: one.sectors })
                .collect();
            let packed = BadBlockLog::to_bytes(&named, place(sectors)).expect("it has room");
            let end = (named.len() + 1) * 8;
            let end = end.min(packed.len());
            disk[..end].copy_from_slice(&packed[..end]);
            let mut log = read(&disk);
            let (mut wanted, mut tail) = (log.named(), Tail::Unknown);
            for _ in 0..60 {
                let one = any_range(&mut random);
                let change = match random.below(2) {
                    0 => wanted.without(one),
                    _ => wanted.union(&BadBlocks::new(vec![one])),
                };
                if log.reaches(&change, tail) {
                    wanted = change;
                }
                if random.below(3) > 0 {
                    continue; // Several changes are written at once.
                }
                while log.named() != wanted {
                    log = write(&mut disk, &log, (&wanted, tail));
                    tail = Tail::Blank;
                }
                if random.below(8) == 0 {
                    (log, tail) = (read(&disk), Tail::Unknown);
                }
            }
        }
    }

    #[test]
    fn a_log_takes_as_many_records_as_it_has_room_for() {
        let mut wanted = BadBlocks::default();
        let (mut log, mut tail) = (BadLog::new(8, []), Tail::Unknown);
        for block in 0..512 {
            wanted = wanted.union(&BadBlocks::new(vec![range(block * 16, 8)]));
            assert!(log.reaches(&wanted, tail), "{block}");
            while log.named() != wanted {
                let next = log.towards(&wanted, tail);
                let changed = log.changed(&next, tail).len();
                assert!(
                    changed <= 2 || tail == Tail::Unknown,
                    "its sector, or one that is followed now"
                );
                (log, tail) = (next, Tail::Blank);
            }
        }
        assert_eq!(log.sectors().iter().map(BadBlocks::records).collect::<Vec<_>>(), [64; 8]);
        let more = |range| wanted.union(&BadBlocks::new(vec![range]));
        assert!(!log.reaches(&more(range(9000, 1)), tail), "it is full");
        assert!(log.reaches(&more(range(8, 8)), tail), "two are joined");
        assert!(!log.reaches(&wanted.without(range(18, 1)), tail), "a hole takes a record");
        // A power cut may lose all sectors of the write but one: assembly still finds the remaining
        // records.
        let rest = BadBlocks::new((0..64).map(|block| range((block + 300) * 16, 8)).collect());
        assert!(log.reaches(&rest, tail));
        while log.named() != rest {
            log = log.towards(&rest, tail);
        }
        assert_eq!(read(&bytes_of(&log)).named(), rest);
    }

    #[test]
    fn a_hole_is_made_where_another_sector_has_room() {
        let blocks = (0..64).map(|block| (0, range(block * 16, 8)));
        let full = BadLog::new(2, blocks.chain([(1, range(5000, 8))]));
        let wanted = full.named().without(range(34, 2));
        assert!(full.reaches(&wanted, Tail::Blank));
        let first = full.towards(&wanted, Tail::Blank);
        assert_eq!(first.named(), full.named(), "a record is in two sectors");
        assert_eq!(full.changed(&first, Tail::Blank), 1..2);
        let second = first.towards(&wanted, Tail::Blank);
        assert_eq!(second.named(), wanted);
        assert_eq!(first.changed(&second, Tail::Blank), 0..1);
    }

    #[test]
    fn a_sector_that_others_follow_names_something() {
        let log = BadLog::new(3, [(0, range(8, 8)), (1, range(40, 8)), (2, range(80, 8))]);
        let wanted = log.named().without(range(40, 8));
        let next = log.towards(&wanted, Tail::Blank);
        assert_eq!(next.sectors()[1], BadBlocks::new(vec![range(80, 8)]));
        assert_eq!((next.named(), log.changed(&next, Tail::Blank)), (wanted, 1..2));
        assert_eq!(log.towards(&BadBlocks::default(), Tail::Blank), BadLog::new(3, []));
    }
}
