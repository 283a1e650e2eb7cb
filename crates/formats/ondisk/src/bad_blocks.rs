//! The bad-block log: the sectors of one member that cannot be trusted.
//!
//! Up to eight sectors of 64-bit records, little endian, at a fixed distance from the superblock:
//!
//! ```text
//!  63                                   10 9          0
//! ┌───────────────────────────────────────┬────────────┐
//! │ first sector >> shift                 │ length >> shift │   all ones: end of the list
//! └───────────────────────────────────────┴────────────┘
//! ```
//!
//! **Which sectors?** md counts bad sectors from the start of the *device*, not of the data area:
//! md adds the data offset before a look-up. [`BadRange`] counts like md.
//!
//! **Which log sector?** The log has no checksum, and a power cut tears it between sectors. So each
//! [`BadRecord`] names its sector of the log: a record that stays in its sector survives any cut.
//! md stops reading at the first record of ones. So all sectors but the last are filled up with
//! copies of a record [check: a_log_is_read_to_its_end_though_a_sector_is_not_full].
//!
//! The log counts only if the superblock has [`crate::Features::BAD_BLOCKS`]: the caller checks it.

use thiserror::Error;

use crate::limits::{BAD_BLOCK_LOG_SECTORS_MAX, SECTOR_BYTES};

const LENGTH_BITS: u32 = 10;
/// The longest run that md puts in one record, in units of `1 << shift` sectors.
pub const RECORD_SECTORS_MAX: u64 = 512;
const END: u64 = u64::MAX;
const RECORD_BYTES: u64 = 8;
/// The most records of a log. The limit is checked before records are allocated.
const RECORDS_MAX: usize = BAD_BLOCK_LOG_SECTORS_MAX as usize * RECORDS_PER_SECTOR;
/// Records in one sector.
pub const RECORDS_PER_SECTOR: usize = (SECTOR_BYTES / RECORD_BYTES) as usize;

/// The place of a member's bad-block log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BadBlockLogPlace {
    /// Sectors from the superblock to the log; negative if the log is before it.
    pub offset_sectors: i32,
    /// Sectors reserved for the log.
    pub size_sectors: u16,
    /// The log's unit is `1 << shift` sectors.
    pub shift: u8,
}

/// A run of bad sectors of one member, counted from the start of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BadRange {
    /// First sector, from the start of the device (the data offset is included).
    pub start_sector: u64,
    /// Sectors; never 0.
    pub length_sectors: u64,
}

/// One record of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BadRecord {
    /// The bad sectors.
    pub range: BadRange,
    /// The sector of the log that holds the record, from 0.
    pub log_sector: u16,
}

/// Why a bad-block log is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadBlockLogError {
    /// Fewer bytes than the log has.
    #[error("cut off: {present_bytes} bytes are there, {needed_bytes} are needed")]
    CutOff {
        /// Bytes at hand.
        present_bytes: u64,
        /// Bytes needed.
        needed_bytes: u64,
    },
    /// A record whose length md would not accept.
    #[error("record {index} has length {length}")]
    Length {
        /// Index of the record.
        index: usize,
        /// The record's length in log units.
        length: u64,
    },
    /// A record whose sector number does not fit 64 bits once shifted.
    #[error("record {index} lies beyond any device")]
    Sector {
        /// Index of the record.
        index: usize,
    },
    /// On writing: a run that the log's unit cannot express.
    #[error("a run at sector {start_sector} is not a multiple of the log's unit")]
    Unaligned {
        /// First sector of the run.
        start_sector: u64,
    },
    /// On writing: more records than the log can hold.
    #[error("{records} records do not fit")]
    Full {
        /// Records needed.
        records: usize,
    },
}

/// Reads and writes bad-block logs. The type has no values: a log is represented by its list of
/// records.
#[derive(Debug, Clone, Copy)]
pub enum BadBlockLog {}

impl BadBlockLog {
    /// The records of the log at `place`, in order of their first sector. A range appears once for
    /// each log sector that names it. `bytes` start at the log.
    ///
    /// All-zero records are skipped: some mdadm versions left logs of zeroes behind.
    ///
    /// # Errors
    /// Too few bytes, or a record that makes no sense; then no part of the log is believed.
    pub fn parse(
        bytes: &[u8],
        place: BadBlockLogPlace,
    ) -> Result<Vec<BadRecord>, BadBlockLogError> {
        let needed_bytes = u64::from(place.size_sectors) * SECTOR_BYTES;
        let cut_off = BadBlockLogError::CutOff { present_bytes: bytes.len() as u64, needed_bytes };
        let log = usize::try_from(needed_bytes)
            .ok()
            .and_then(|needed| bytes.get(..needed))
            .ok_or(cut_off)?;
        let mut records = Vec::new();
        for (index, record) in log.as_chunks::<8>().0.iter().enumerate() {
            let log_sector = u16::try_from(index / RECORDS_PER_SECTOR).expect("as many as it has");
            match u64::from_le_bytes(*record) {
                END => break,
                0 => {}
                record => {
                    let range = decode(index, record, place.shift)?;
                    records.push(BadRecord { range, log_sector });
                }
            }
        }
        records.sort_unstable();
        records.dedup();
        Ok(records)
    }

    /// The ranges that the records name, each once, in order.
    #[must_use]
    pub fn ranges(records: &[BadRecord]) -> Vec<BadRange> {
        let mut ranges: Vec<BadRange> = records.iter().map(|record| record.range).collect();
        ranges.sort_unstable();
        ranges.dedup();
        ranges
    }

    /// The bytes of a log at `place` with these ranges, packed like md's, without gaps. A run that
    /// is too long for one record takes several.
    ///
    /// # Errors
    /// A range that is not a multiple of the log's unit or beyond 54 bits, or too many ranges.
    pub fn to_bytes(
        ranges: &[BadRange],
        place: BadBlockLogPlace,
    ) -> Result<Vec<u8>, BadBlockLogError> {
        let records = encode(ranges, place.shift)?;
        let sectors: Vec<&[u64]> = records.chunks(RECORDS_PER_SECTOR).collect();
        lay_out(&sectors, place)
    }

    /// The bytes of a log at `place`, given the ranges of each log sector. Empty sectors at the end
    /// can be left out.
    ///
    /// # Errors
    /// As [`Self::to_bytes`]; each sector has room for [`RECORDS_PER_SECTOR`] records.
    ///
    /// # Panics
    /// An empty sector before a used one: md would not read the used one.
    pub fn sectors_to_bytes(
        sectors: &[Vec<BadRange>],
        place: BadBlockLogPlace,
    ) -> Result<Vec<u8>, BadBlockLogError> {
        let records = sectors.iter().map(|ranges| encode(ranges, place.shift));
        let records: Vec<Vec<u64>> = records.collect::<Result<_, _>>()?;
        let records: Vec<&[u64]> = records.iter().map(Vec::as_slice).collect();
        lay_out(&records, place)
    }
}

fn lay_out(sectors: &[&[u64]], place: BadBlockLogPlace) -> Result<Vec<u8>, BadBlockLogError> {
    let used = sectors.iter().rposition(|records| !records.is_empty()).map_or(0, |last| last + 1);
    let fullest = sectors.iter().map(|records| records.len()).max().unwrap_or(0);
    if used > usize::from(place.size_sectors) || fullest > RECORDS_PER_SECTOR {
        let records = sectors.iter().map(|records| records.len()).sum();
        return Err(BadBlockLogError::Full { records });
    }
    let mut bytes = Vec::new();
    for (index, records) in sectors.iter().enumerate().take(used) {
        let first = *records.first().expect("no sector is empty that others follow");
        let filler = if index + 1 < used { first } else { END };
        let all = records.iter().copied().chain(std::iter::repeat(filler));
        bytes.extend(all.take(RECORDS_PER_SECTOR).flat_map(u64::to_le_bytes));
    }
    bytes.resize(usize::from(place.size_sectors) * RECORDS_PER_SECTOR * 8, 0xff);
    Ok(bytes)
}

fn encode(ranges: &[BadRange], shift: u8) -> Result<Vec<u64>, BadBlockLogError> {
    let mut records = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        let unaligned = BadBlockLogError::Unaligned { start_sector: range.start_sector };
        let unit = 1_u64.checked_shl(u32::from(shift)).ok_or(unaligned)?;
        if !range.start_sector.is_multiple_of(unit)
            || !range.length_sectors.is_multiple_of(unit)
            || range.length_sectors == 0
        {
            return Err(unaligned);
        }
        let (mut start, mut left) = (range.start_sector / unit, range.length_sectors / unit);
        while left > 0 {
            let length = left.min(RECORD_SECTORS_MAX);
            if records.len() == RECORDS_MAX {
                return Err(BadBlockLogError::Full { records: RECORDS_MAX + 1 });
            }
            if start >= 1 << (u64::BITS - LENGTH_BITS) {
                return Err(BadBlockLogError::Sector { index });
            }
            records.push((start << LENGTH_BITS) | length);
            (start, left) = (start + length, left - length);
        }
    }
    Ok(records)
}

fn decode(index: usize, record: u64, shift: u8) -> Result<BadRange, BadBlockLogError> {
    let length = record & ((1 << LENGTH_BITS) - 1);
    if length == 0 || length > RECORD_SECTORS_MAX {
        return Err(BadBlockLogError::Length { index, length });
    }
    let unit = 1_u64.checked_shl(u32::from(shift)).ok_or(BadBlockLogError::Sector { index })?;
    let start_sector = (record >> LENGTH_BITS).checked_mul(unit);
    let length_sectors = length.checked_mul(unit);
    let range = start_sector
        .zip(length_sectors)
        .filter(|(start, length)| start.checked_add(*length).is_some());
    let (start_sector, length_sectors) = range.ok_or(BadBlockLogError::Sector { index })?;
    Ok(BadRange { start_sector, length_sectors })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: BadBlockLogPlace =
        BadBlockLogPlace { offset_sectors: 16, size_sectors: 8, shift: 0 };

    #[test]
    fn a_record_is_read_as_md_writes_it() {
        // 54 bits of sector, 10 bits of length: sector 2056, 3 sectors; the shift applies to both.
        let mut bytes = vec![0xff; 4096];
        bytes[..8].copy_from_slice(&((2056_u64 << 10) | 3).to_le_bytes());
        let range = BadRange { start_sector: 2056, length_sectors: 3 };
        assert_eq!(BadBlockLog::parse(&bytes, PLACE), Ok(vec![BadRecord { range, log_sector: 0 }]));
        let range = BadRange { start_sector: 2056 * 8, length_sectors: 24 };
        assert_eq!(
            BadBlockLog::parse(&bytes, BadBlockLogPlace { shift: 3, ..PLACE }),
            Ok(vec![BadRecord { range, log_sector: 0 }])
        );
    }

    #[test]
    fn nonsense_is_refused_and_zeroes_are_skipped() {
        let parse = |record: u64, shift| {
            let mut bytes = vec![0xff; 4096];
            bytes[..8].copy_from_slice(&0_u64.to_le_bytes());
            bytes[8..16].copy_from_slice(&record.to_le_bytes());
            BadBlockLog::parse(&bytes, BadBlockLogPlace { shift, ..PLACE })
        };
        assert_eq!(parse(END, 0), Ok(vec![]));
        assert_eq!(parse(5 << 10, 0), Err(BadBlockLogError::Length { index: 1, length: 0 }));
        assert_eq!(
            parse((5 << 10) | 513, 0),
            Err(BadBlockLogError::Length { index: 1, length: 513 })
        );
        assert_eq!(parse((1 << 62) | 1, 13), Err(BadBlockLogError::Sector { index: 1 }));
        assert_eq!(parse((5 << 10) | 1, 64), Err(BadBlockLogError::Sector { index: 1 }));
        let cut_off = BadBlockLogError::CutOff { present_bytes: 100, needed_bytes: 4096 };
        assert_eq!(BadBlockLog::parse(&[0; 100], PLACE), Err(cut_off));
    }

    #[test]
    fn a_full_log_says_so() {
        let ranges: Vec<_> =
            (0..513).map(|n| BadRange { start_sector: n * 10, length_sectors: 1 }).collect();
        assert_eq!(
            BadBlockLog::to_bytes(&ranges, PLACE),
            Err(BadBlockLogError::Full { records: 513 })
        );
        let bytes = BadBlockLog::to_bytes(&ranges[..512], PLACE).unwrap();
        let read = BadBlockLog::parse(&bytes, PLACE).unwrap();
        assert_eq!(BadBlockLog::ranges(&read), ranges[..512]);
        let sectors: Vec<_> = read.iter().map(|record| usize::from(record.log_sector)).collect();
        assert_eq!(sectors, (0..512).map(|index| index / 64).collect::<Vec<_>>());
    }

    #[test]
    fn a_log_is_read_to_its_end_though_a_sector_is_not_full() {
        let bad = |start_sector, length_sectors| BadRange { start_sector, length_sectors };
        let sectors = [vec![bad(70, 8), bad(90, 1)], vec![bad(10, 600)], Vec::new()];
        let bytes = BadBlockLog::sectors_to_bytes(&sectors, PLACE).unwrap();
        let expected = [(10, 512, 1), (70, 8, 0), (90, 1, 0), (522, 88, 1)];
        let expected = expected
            .map(|(start, length, log_sector)| BadRecord { range: bad(start, length), log_sector });
        assert_eq!(BadBlockLog::parse(&bytes, PLACE).unwrap(), expected);
        // md would stop reading at the first record of ones, and refuse a record of zeroes.
        assert!(
            bytes[..512 + 16]
                .as_chunks::<8>()
                .0
                .iter()
                .all(|one| *one != [0xff; 8] && *one != [0; 8])
        );
        assert!(bytes[512 + 16..].iter().all(|byte| *byte == 0xff));
        let too_many = [(0..65).map(|n| bad(n * 10, 1)).collect::<Vec<_>>()];
        let full = BadBlockLogError::Full { records: 65 };
        assert_eq!(BadBlockLog::sectors_to_bytes(&too_many, PLACE), Err(full));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            runs in prop::collection::vec((0_u64..1 << 40, 1_u64..2000), 0..100), shift in 0_u8..8,
        ) {
            let place = BadBlockLogPlace { shift, ..PLACE };
            let ranges: Vec<_> = runs.iter()
                .map(|(start, length)| BadRange { start_sector: start << shift, length_sectors: length << shift })
                .collect();
            let bytes = BadBlockLog::to_bytes(&ranges, place).unwrap();
            prop_assert_eq!(bytes.len(), 4096);
            let read = BadBlockLog::parse(&bytes, place).unwrap();
            let read: Vec<_> = read.iter().map(|record| record.range).collect();
            let sectors = |ranges: &[BadRange]| ranges.iter().map(|r| r.length_sectors).sum::<u64>();
            prop_assert_eq!(sectors(&read), sectors(&ranges));
            for part in &read {
                prop_assert!(ranges.iter().any(|r| r.start_sector <= part.start_sector
                    && part.start_sector + part.length_sectors <= r.start_sector + r.length_sectors));
            }
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..5000), shift: u8) {
            let _ = BadBlockLog::parse(&bytes, BadBlockLogPlace { shift, ..PLACE });
        }
    }
}
