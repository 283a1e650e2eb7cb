//! The partial parity log (PPL) of one member: the record that counts, and its entries.
//!
//! [`ppl`](crate::ppl) parses one header. The caller reads the area, the engine replays the log.
//! This module does not know the array's geometry, so an entry can name sectors beyond the array.
//!
//! A *record* is a header, then the partial parities of its entries, in their order. A small area
//! holds one record, always at its start. An area with room for two of md's largest records is a
//! ring: each record follows the previous record, and a record that would not fit begins at the
//! area's start.
//!
//! ```text
//!   | header 7 | partial parities | header 8 | ... | header 4 | ...   newest: 8; the next follows
//! ```
//!
//! md begins a record only when all writes of the previous record are complete. So only the newest
//! record counts, and a torn record protects no write yet. In our own log the newest record gives
//! the number of earlier records that count together with it ([`PplLog::older`]). The earlier
//! records were durable before the newest, so all must be present and whole, or the log is refused.
//! The cases of a torn record:
//!
//! - *Torn partial parity*: the entry is left out, and counted ([`PplRecord::torn`]).
//! - *Torn header*: the previous record counts, which does no harm; or no record exists
//!   ([`PplLog::newest`]).
//! - *Which is newest*: the highest generation at any sector, including a record that ends with the
//!   area (Linux 6.1 misses that record). Following records from the start fails: a torn record at
//!   the start can leave an old header that leads nowhere.
//! - *A header inside checksummed partial parity* is partial parity: clients can write anything.
//!
//! # Invariants
//! - A written record is read, wherever in the area it is [check: a_record_is_read_wherever_it_is].
//! - A torn newest record is read without the torn entries, or the previous record counts
//!   [check: a_record_cut_short_is_left_out].
//! - Records before those that count are ignored
//!   [check: records_of_a_lap_count_and_those_of_the_lap_before_do_not].
//! - No record that counts is missing [check: a_record_that_counts_and_is_not_whole_is_an_error].

use std::iter::repeat;
use std::ops::Range;

use braid_sim_hooks::{Bug, spoiled};
use thiserror::Error;

use crate::Superblock;
use crate::checksum::crc_of_parts;
use crate::limits::SECTOR_BYTES;
use crate::log_place::LogPlace;
use crate::ppl::{
    PPL_ENTRIES_MAX, PPL_HEADER_BYTES, PplEntry, PplHeader, PplPlace, UnvalidatedPplHeader,
};

use crate::log_place::PPL_HEADER_SECTORS;

impl Superblock {
    /// Byte offset of the member's partial parity log, and its place; `None` without one.
    #[must_use]
    pub fn ppl_area(&self) -> Option<(u64, PplPlace)> {
        let place = self.intent.ppl?;
        Some((self.ppl_start_bytes(place)?, place))
    }

    /// Byte offset on the device of a log at this place, whether the superblock names it or not;
    /// `None` if the log would be outside.
    pub(crate) fn ppl_start_bytes(&self, place: PplPlace) -> Option<u64> {
        let sector = self.device.super_offset_sectors;
        sector.checked_add_signed(i64::from(place.offset_sectors))?.checked_mul(SECTOR_BYTES)
    }
}

/// A whole entry with its partial parity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEntry {
    /// The entry in the header.
    pub entry: PplEntry,
    /// The exclusive-or of the unwritten data; empty if an entry writes all data of its rows.
    pub partial: Vec<u8>,
}

/// A record of the log that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PplRecord {
    /// Sectors from the start of the area to the record's header.
    pub header_sector: u64,
    /// Sectors from the start of the area to the end of the record.
    pub end_sector: u64,
    /// The header's generation.
    pub generation: u64,
    /// The whole entries, with their index in the header.
    pub entries: Vec<(u32, LoggedEntry)>,
    /// Number of entries whose partial parity has a wrong checksum.
    pub torn: u32,
}

impl PplRecord {
    /// A record as on disk: header and partial parities.
    ///
    /// # Panics
    /// With more entries than fit a header, or partial parity whose length differs from its
    /// entry's.
    #[must_use]
    pub fn bytes_of(generation: u64, entries: &[LoggedEntry], array_uuid: &[u8; 16]) -> Vec<u8> {
        Self::bytes_beside(0, generation, entries, array_uuid)
    }

    /// A record of our own log; `before` earlier records count together with it.
    ///
    /// # Panics
    /// As [`Self::bytes_of`].
    #[must_use]
    pub fn bytes_beside(
        before: u32,
        generation: u64,
        entries: &[LoggedEntry],
        array_uuid: &[u8; 16],
    ) -> Vec<u8> {
        let is_as_long =
            |one: &LoggedEntry| one.partial.len() as u64 == one.entry.parity_bytes.into();
        assert!(entries.iter().all(is_as_long), "an entry says how long its partial parity is");
        let sealed = entries
            .iter()
            .map(|one| PplEntry { checksum: crc_of_parts(&[&one.partial]), ..one.entry });
        let header = PplHeader { generation, before, entries: sealed.collect() };
        let mut bytes = header.to_bytes(array_uuid);
        entries.iter().for_each(|one| bytes.extend_from_slice(&one.partial));
        bytes
    }
}

/// The content of a member's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PplLog {
    /// The newest record; `None` if the area has no header, because the only one was being
    /// overwritten.
    pub newest: Option<PplRecord>,
    /// Earlier records that count in addition to the newest, oldest first. Empty in md's logs.
    pub older: Vec<PplRecord>,
}

/// Why a log cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PplLogError {
    /// The member's superblock names no log.
    #[error("its superblock tells of none")]
    Absent,
    /// The log was created without a record: no write was logged.
    #[error("nothing was logged, as parity was not right everywhere")]
    Void,
    /// The array keeps braid's own log, and this member has no usable head before its data.
    #[error("there is no head of it before its data")]
    NoHead,
    /// The array keeps its log in a bitmap file, and the operator did not pass the file.
    #[error("it is in the array's bitmap file, which is not given")]
    NoFile,
    /// The bitmap file is older than the array.
    #[error("it is in the array's bitmap file, and the one that is given is an older copy")]
    OldFile,
    /// The device could not read the log.
    #[error("its sectors cannot be read")]
    Unreadable,
    /// A record that counts in addition to the newest is missing or damaged.
    #[error("record {generation}, which counts, is not whole")]
    Broken {
        /// The generation of the missing or damaged record.
        generation: u64,
    },
    /// The log is outside the device, or is too small for a header.
    #[error("{present_bytes} bytes of it are on the device, {needed_bytes} are needed")]
    CutOff {
        /// Bytes at hand.
        present_bytes: u64,
        /// Bytes according to the superblock.
        needed_bytes: u64,
    },
}

struct LocatedHeader {
    sector: u64,
    header: PplHeader,
}

impl LocatedHeader {
    /// The entries, and the byte ranges in the area of their partial parities.
    fn parts(&self) -> impl Iterator<Item = (&PplEntry, Range<u64>)> {
        let mut at = (self.sector + PPL_HEADER_SECTORS) * SECTOR_BYTES;
        self.header.entries.iter().map(move |entry| {
            let start = at;
            at += u64::from(entry.parity_bytes);
            (entry, start..at)
        })
    }

    fn end_sector(&self) -> u64 {
        let parity: u64 = self.header.entries.iter().map(|one| u64::from(one.parity_bytes)).sum();
        self.sector + PPL_HEADER_SECTORS + parity / SECTOR_BYTES
    }
}

/// An area, and the key that signs its records.
struct Area<'a> {
    bytes: &'a [u8],
    sectors: u64,
    key: &'a [u8; 16],
}

impl Area<'_> {
    /// The header at a sector, if its record ends within the area.
    fn header_at(&self, sector: u64) -> Option<LocatedHeader> {
        let start = usize::try_from(sector.checked_mul(SECTOR_BYTES)?).ok()?;
        let bytes = self.bytes.get(start..)?;
        let header = UnvalidatedPplHeader::recognise(bytes, self.key)?.validate().ok()?;
        let found = LocatedHeader { sector, header };
        let is_inside = found.end_sector() <= self.sectors;
        is_inside.then_some(found)
    }

    /// Headers at any sector of a ring, or at the first sector only, except headers inside partial
    /// parity.
    fn headers(&self, is_ring: bool) -> Vec<LocatedHeader> {
        let last = if is_ring { self.sectors.saturating_sub(PPL_HEADER_SECTORS) } else { 0 };
        let found: Vec<LocatedHeader> =
            (0..=last).filter_map(|sector| self.header_at(sector)).collect();
        let sound: Vec<Range<u64>> = found.iter().flat_map(|one| self.sound_parts(one)).collect();
        let is_inside = |one: &LocatedHeader| sound.iter().any(|part| part.contains(&one.sector));
        found.into_iter().filter(|one| !is_inside(one)).collect()
    }

    /// The sectors of a record's partial parities that have the right checksum.
    fn sound_parts(&self, found: &LocatedHeader) -> Vec<Range<u64>> {
        let sectors = |range: Range<u64>| range.start / SECTOR_BYTES..range.end / SECTOR_BYTES;
        let parts = found.parts().filter(|(entry, range)| self.has_checksum(entry, range));
        parts.map(|(_, range)| sectors(range)).collect()
    }

    fn part(&self, range: &Range<u64>) -> Option<&[u8]> {
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        self.bytes.get(start..end)
    }

    fn has_checksum(&self, entry: &PplEntry, range: &Range<u64>) -> bool {
        self.part(range).is_some_and(|part| crc_of_parts(&[part]) == entry.checksum)
    }

    /// The records that count in addition to the newest, oldest first. Each must be whole: the
    /// records were durable before the newest began. These records are overwritten only when a
    /// newer record that does not need them is durable.
    fn beside(
        &self,
        newest: &LocatedHeader,
        headers: &[LocatedHeader],
    ) -> Result<Vec<PplRecord>, PplLogError> {
        let PplHeader { generation, before, .. } = newest.header;
        let first = generation.saturating_sub(u64::from(before));
        let is_beside = |one: &&LocatedHeader| (first..generation).contains(&one.header.generation);
        let mut found: Vec<&LocatedHeader> = headers.iter().filter(is_beside).collect();
        found.sort_by_key(|one| one.header.generation);
        let mut records = Vec::new();
        for (generation, found) in
            (first..generation).zip(found.iter().map(Some).chain(repeat(None)))
        {
            let record = found.filter(|one| one.header.generation == generation);
            let record = record.map(|one| self.record(one)).filter(|record| record.torn == 0);
            records.push(record.ok_or(PplLogError::Broken { generation })?);
        }
        Ok(records)
    }

    fn record(&self, found: &LocatedHeader) -> PplRecord {
        let (mut entries, mut torn) = (Vec::new(), 0);
        for (index, (entry, range)) in (0..).zip(found.parts()) {
            let is_whole = self.has_checksum(entry, &range);
            let is_whole = spoiled(Bug::PplChecksumIgnored, is_whole, true);
            let partial = self.part(&range).filter(|_| is_whole).map(<[u8]>::to_vec);
            match partial {
                Some(partial) => entries.push((index, LoggedEntry { entry: *entry, partial })),
                None => torn += 1,
            }
        }
        let (header_sector, generation) = (found.sector, found.header.generation);
        let end_sector = found.end_sector();
        PplRecord { header_sector, end_sector, generation, entries, torn }
    }
}

impl PplLog {
    /// Parses the first [`LogPlace::used_bytes`] of an area; `key` signs its records
    /// ([`Superblock::log_key`]).
    ///
    /// # Errors
    /// An area that is cut off, or contradicts itself.
    pub fn read(
        bytes: &[u8],
        place: impl Into<LogPlace>,
        key: &[u8; 16],
    ) -> Result<Self, PplLogError> {
        let place = place.into();
        let (present_bytes, needed_bytes) = (bytes.len() as u64, place.used_bytes());
        if needed_bytes < PPL_HEADER_BYTES as u64 || present_bytes < needed_bytes {
            return Err(PplLogError::CutOff { present_bytes, needed_bytes });
        }
        let area = Area { bytes, sectors: place.used_sectors(), key };
        let headers = area.headers(place.is_ring());
        let begins_empty = bytes.iter().take(PPL_HEADER_BYTES).all(|byte| *byte == 0);
        if headers.is_empty() && begins_empty {
            return Err(PplLogError::Void);
        }
        let newest = headers.iter().max_by_key(|one| one.header.generation);
        let Some(newest) = newest else { return Ok(Self { newest: None, older: Vec::new() }) };
        let older = match place {
            LogPlace::Own(_) => area.beside(newest, &headers)?,
            LogPlace::Ppl(_) => Vec::new(),
        };
        Ok(Self { newest: Some(area.record(newest)), older })
    }

    /// All entries that count, oldest first, with a number for each. In md's logs the number is the
    /// entry's index in the header.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &LoggedEntry)> {
        let mut first = 0;
        self.older.iter().chain(&self.newest).flat_map(move |record| {
            let from = first;
            first += PPL_ENTRIES_MAX;
            record.entries.iter().map(move |(index, one)| (from + index, one))
        })
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "areas here are small")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = *b"uuid-of-an-array";

    fn place(size_sectors: u16) -> PplPlace {
        PplPlace { offset_sectors: 8, size_sectors, multiple: false }
    }

    /// An entry that writes one block; its partial parity is a page filled with `byte`.
    fn entry(data_sector: u64, byte: u8) -> LoggedEntry {
        let (parity_bytes, data_bytes) = (4096, 4096);
        let entry = PplEntry { data_sector, parity_bytes, data_bytes, parity_slot: 1, checksum: 0 };
        LoggedEntry { entry, partial: vec![byte; 4096] }
    }

    fn put(area: &mut [u8], sector: u64, generation: u64, entries: &[LoggedEntry]) -> u64 {
        let bytes = PplRecord::bytes_of(generation, entries, &UUID);
        let start = sector as usize * 512;
        area[start..start + bytes.len()].copy_from_slice(&bytes);
        sector + bytes.len() as u64 / 512
    }

    fn newest(area: &[u8], place: PplPlace) -> (u64, u64, usize, u32) {
        let newest = PplLog::read(area, place, &UUID).unwrap().newest.unwrap();
        (newest.header_sector, newest.generation, newest.entries.len(), newest.torn)
    }

    #[test]
    fn the_newest_of_a_ring_counts() {
        let mut area = vec![0; 2048 * 512];
        let mut at = put(&mut area, 0, 7, &[entry(0, 1), entry(8, 2)]);
        at = put(&mut area, at, 8, &[entry(16, 3)]);
        assert_eq!(newest(&area, place(2048)), (24, 8, 1, 0));
        // Remains of an older lap around the ring.
        put(&mut area, at + 8, 3, &[entry(24, 4)]);
        assert_eq!(newest(&area, place(2048)), (24, 8, 1, 0));
        // The ring wraps.
        put(&mut area, 0, 9, &[entry(32, 5)]);
        assert_eq!(newest(&area, place(2048)), (0, 9, 1, 0));
    }

    /// Puts a record of our own log into an area; `before` is the number of earlier records that
    /// count.
    fn put_beside(area: &mut [u8], sector: u64, (before, generation): (u32, u64), byte: u8) -> u64 {
        let bytes = PplRecord::bytes_beside(before, generation, &[entry(0, byte)], &UUID);
        let start = sector as usize * 512;
        area[start..start + bytes.len()].copy_from_slice(&bytes);
        sector + bytes.len() as u64 / 512
    }

    fn generations(area: &[u8]) -> Result<Vec<u64>, PplLogError> {
        let log = PplLog::read(area, crate::OwnLogPlace::of(1024), &UUID)?;
        let numbers: Vec<u32> = log.entries().map(|(number, _)| number).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "each entry has its own number");
        Ok(log.older.iter().chain(&log.newest).map(|record| record.generation).collect())
    }

    #[test]
    fn records_of_a_lap_count_and_those_of_the_lap_before_do_not() {
        let mut area = vec![0; 1024 * 512];
        let mut at = put_beside(&mut area, 0, (0, 1), 1);
        for (generation, before) in [(2, 0), (3, 1), (4, 2)] {
            at = put_beside(&mut area, at, (before, generation), generation as u8);
        }
        assert_eq!(generations(&area), Ok(vec![2, 3, 4]));
        // A torn record contributes no entry, and its header alone still makes the earlier records
        // count.
        let whole = area.clone();
        put_beside(&mut area, at, (3, 5), 5);
        area[(at as usize + 8) * 512] ^= 1;
        let log = PplLog::read(&area, crate::OwnLogPlace::of(1024), &UUID).unwrap();
        assert_eq!((log.newest.map(|newest| newest.torn), log.older.len()), (Some(1), 3));
        area[at as usize * 512 + 600] ^= 1;
        assert_eq!(generations(&area), Ok(vec![2, 3, 4]));
        // The first record of the next lap counts alone.
        area = whole;
        put_beside(&mut area, at, (0, 5), 5);
        assert_eq!(generations(&area), Ok(vec![5]));
    }

    #[test]
    fn a_record_that_counts_and_is_not_whole_is_an_error() {
        let mut area = vec![0; 1024 * 512];
        let mut at = 0;
        for (generation, before) in [(7, 0), (8, 1), (9, 2)] {
            at = put_beside(&mut area, at, (before, generation), 1);
        }
        for (byte, generation) in [(600, 7), (9 * 512, 7), (16 * 512 + 600, 8), (24 * 512, 8)] {
            let mut area = area.clone();
            area[byte] ^= 1;
            assert_eq!(generations(&area), Err(PplLogError::Broken { generation }), "byte {byte}");
        }
        // A huge count in a header does not take long.
        put_beside(&mut area, at, (u32::MAX, u64::MAX), 1);
        assert!(generations(&area).is_err());
        // In md's log no earlier records count.
        let log = PplLog::read(&area, place(1024), &UUID).unwrap();
        assert_eq!(log.older, []);
    }

    #[test]
    fn a_header_that_ends_with_the_area_is_found() {
        for end in [0, 8] {
            let mut area = vec![0; 2048 * 512];
            let mut at = put(&mut area, 0, 1, &[entry(0, 1)]);
            for generation in 2..126 {
                at = put(&mut area, at, generation, &[entry(0, 1)]);
            }
            assert_eq!(at, 2000);
            at = put(&mut area, at, 126, &[entry(8, 1), entry(16, 1), entry(24, 1)]);
            put(&mut area, at, 127, &vec![entry(8, 2); end / 8]);
            assert_eq!(newest(&area, place(2048)), (2032, 127, end / 8, 0));
        }
    }

    #[test]
    fn the_newest_record_of_a_crash_that_linux_6_1_loses_is_found() {
        // Seen in practice: a header at sector 2016 of 2048, with three entries of a page each.
        let mut area = vec![0; 2048 * 512];
        let mut at = put(&mut area, 0, 165, &[entry(0, 1); 1]);
        for generation in 166..249 {
            at = put(&mut area, at, generation, &[entry(0, 1), entry(8, 1)]);
        }
        assert_eq!(at, 16 + 83 * 24);
        let at = put(&mut area, at, 249, &[]);
        assert_eq!(at, 2016);
        put(&mut area, at, 250, &[entry(1976 * 8, 1), entry(11_760 * 8, 2), entry(0, 3)]);
        assert_eq!(newest(&area, place(2048)), (2016, 250, 3, 0));
    }

    #[test]
    fn a_header_that_was_cut_short_over_the_first_leaves_the_one_before() {
        let mut area = vec![0; 2048 * 512];
        let at = put(&mut area, 0, 7, &[entry(0, 1)]);
        put(&mut area, at, 8, &[entry(8, 1)]);
        area[700] ^= 1;
        assert_eq!(newest(&area, place(2048)), (16, 8, 1, 0));
        // A small area holds a single record, so no record is left if that record is torn.
        let small = place(264);
        assert_eq!(
            PplLog::read(&area, small, &UUID),
            Ok(PplLog { newest: None, older: Vec::new() })
        );
    }

    #[test]
    fn what_looks_like_a_header_in_partial_parity_is_none() {
        let mut area = vec![0; 2048 * 512];
        let mut forged = entry(0, 0);
        forged.partial =
            PplHeader { generation: u64::MAX, before: 0, entries: vec![] }.to_bytes(&UUID);
        let at = put(&mut area, 0, 7, &[entry(0, 1), forged]);
        assert_eq!(newest(&area, place(2048)), (0, 7, 2, 0));
        put(&mut area, at, 8, &[entry(0, 1)]);
        assert_eq!(newest(&area, place(2048)), (24, 8, 1, 0));
    }

    #[test]
    fn one_that_was_cut_short_before_its_header_hides_none() {
        // Old headers at the start name records that do not exist.
        let mut area = vec![0; 528 * 512];
        let mut at = put(&mut area, 0, 1, &[]);
        while at <= 528 - 16 {
            at = put(&mut area, at, 1 + at / 8, &[entry(0, 1)]);
        }
        let last = at - 16;
        area[8 * 512..16 * 512].fill(7);
        assert_eq!(newest(&area, place(528)), (last, 1 + last / 8, 1, 0));
    }

    #[test]
    fn the_log_of_another_array_says_nothing() {
        let mut area = vec![0; 264 * 512];
        put(&mut area, 0, 7, &[entry(0, 1)]);
        let log = PplLog::read(&area, place(264), b"uuid-of-another-");
        assert_eq!(log, Ok(PplLog { newest: None, older: Vec::new() }));
    }

    #[test]
    fn an_area_that_is_cut_off_or_too_small_is_an_error() {
        let area = vec![0; 264 * 512];
        let cut = |size_sectors, present_bytes: usize| {
            PplLog::read(&area[..present_bytes], place(size_sectors), &UUID)
        };
        let error =
            |present_bytes, needed_bytes| Err(PplLogError::CutOff { present_bytes, needed_bytes });
        assert_eq!(cut(264, 1000), error(1000, 264 * 512));
        assert_eq!(cut(7, 4096), error(4096, 0));
        assert_eq!(cut(8, 4096), Err(PplLogError::Void), "it was made so");
        // md ignores a partial page at the end.
        assert_eq!(place(271).used_sectors(), 264);
        assert!(!place(527).is_ring() && place(528).is_ring());
    }

    fn records() -> impl Strategy<Value = Vec<Vec<(u64, u32, u8)>>> {
        let entry = (0_u64..1 << 20, 0_u32..5, any::<u8>());
        prop::collection::vec(prop::collection::vec(entry, 0..6), 1..60)
    }

    fn made(entries: &[(u64, u32, u8)]) -> Vec<LoggedEntry> {
        let one = |&(data_sector, pages, byte): &(u64, u32, u8)| {
            let partial = vec![byte; pages as usize * 4096];
            let (parity_bytes, data_bytes) = (pages * 4096, (pages + 1) * 4096);
            let checksum = crc_of_parts(&[&partial]);
            let entry =
                PplEntry { data_sector, parity_bytes, data_bytes, parity_slot: 0, checksum };
            LoggedEntry { entry, partial }
        };
        entries.iter().map(one).collect()
    }

    /// Writes records like md; returns their starts.
    fn written(area: &mut [u8], records: &[Vec<(u64, u32, u8)>]) -> Vec<u64> {
        let (mut at, mut places) = (0, Vec::new());
        let sectors = area.len() as u64 / 512;
        for (generation, record) in (1..).zip(records) {
            let entries = made(record);
            let length = PplRecord::bytes_of(generation, &entries, &UUID).len() as u64 / 512;
            if sectors - at < length {
                at = 0;
            }
            places.push(at);
            at = put(area, at, generation, &entries);
        }
        places
    }

    proptest! {
        #[test]
        fn a_record_is_read_wherever_it_is(records in records()) {
            let mut area = vec![0; 528 * 512];
            let places = written(&mut area, &records);
            let newest = PplLog::read(&area, place(528), &UUID).unwrap().newest.unwrap();
            prop_assert_eq!(newest.generation, records.len() as u64);
            prop_assert_eq!(newest.header_sector, *places.last().unwrap());
            let entries: Vec<LoggedEntry> = newest.entries.into_iter().map(|(_, one)| one).collect();
            prop_assert_eq!(entries, made(records.last().unwrap()));
        }

        #[test]
        fn a_record_cut_short_is_left_out(records in records(), cut in any::<prop::sample::Index>(), is_head in any::<bool>()) {
            let mut area = vec![0; 528 * 512];
            written(&mut area, &records[..records.len() - 1]);
            let read = |area: &[u8]| match PplLog::read(area, place(528), &UUID) {
                Ok(log) => log.newest,
                Err(error) => {
                    assert_eq!(error, PplLogError::Void, "nothing but zeroes is there");
                    None
                }
            };
            let before = read(&area);
            let old = area.clone();
            let places = written(&mut area, &records);
            let entries = made(records.last().unwrap());
            let length = PplRecord::bytes_of(1, &entries, &UUID).len() / 512;
            let start = *places.last().unwrap() as usize * 512;
            // Only the first sectors of the last record are written, or only its last sectors.
            let cut = cut.index(length + 1) * 512;
            let lost = if is_head { start..start + cut } else { start + cut..start + length * 512 };
            area[lost.clone()].copy_from_slice(&old[lost.clone()]);
            let newest = read(&area);
            match newest {
                Some(newest) if newest.generation == records.len() as u64 => {
                    prop_assert_eq!(newest.entries.len() + newest.torn as usize, entries.len());
                    for (index, one) in &newest.entries {
                        prop_assert_eq!(one, &entries[*index as usize]);
                    }
                }
                // If the newest record is torn, the previous record protects no write any more,
                // whether that record still exists or not.
                Some(newest) => prop_assert!(newest.generation < records.len() as u64),
                None => prop_assert!(before.is_none_or(|before| before.header_sector < start as u64 / 512 + length as u64)),
            }
        }

        #[test]
        fn any_area_is_read_or_refused(noise in prop::collection::vec(any::<u8>(), 8 * 4096), at in 0_u64..40, count in 0_usize..9) {
            let mut area = noise;
            put(&mut area, at.min(64 - 8 - count.min(2) as u64 * 8), 3, &vec![entry(0, 1); count.min(2)]);
            for multiple in [false, true] {
                let place = PplPlace { offset_sectors: 8, size_sectors: 64, multiple };
                let _ = PplLog::read(&area, place, &UUID);
            }
        }
    }
}
