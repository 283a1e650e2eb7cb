//! The write journal of a RAID-4, -5 or -6: its blocks from the tail on, in the order of writing.
//!
//! [`journal`](crate::journal) parses one meta block. The caller reads the device, the engine
//! replays the journal. This module does not know the array's geometry, so an entry can name
//! sectors beyond the array.
//!
//! The journal is a ring of blocks of 4 KiB in the data area of its device. A meta block names the
//! blocks of data and parity after it; the next meta block follows these blocks. The device's
//! superblock has the *tail*: everything before it is durable on the members.
//!
//! ```text
//!   ring  | data | old ... | meta 7 | data | parity | meta 8 | data | meta 9 torn | old ... |
//!                            ^ tail                                   ^ end: sequence 9 expected
//! ```
//!
//! - *The end*: the first place without a meta block that has the array's checksum, its own
//!   position and the next sequence. A member write starts only when all meta blocks up to its own
//!   are durable, so no member holds data from after the end.
//! - *A data or parity block with a wrong checksum*: the journal ends at its meta block. md ignores
//!   that meta block too, and looks for the next one right after it, where the data begins.
//! - *Data that looks like a meta block* is never examined: each meta block gives the place of the
//!   next.
//! - *No meta block at the tail*: the device was overwritten or damaged, and its content is unknown
//!   ([`JournalLogError::NoStart`]). mdadm writes an empty meta block into a new journal, and md
//!   moves the tail only onto a meta block. In this case md begins an empty journal and loses the
//!   content.
//! - *A block that cannot be read* is not the end: members can hold parts of later blocks
//!   ([`JournalLogError::Unreadable`]).
//!
//! # Invariants
//! - A written journal is read, wherever in the ring it is
//!   [check: a_journal_is_read_wherever_it_is].
//! - Of a torn journal, exactly the meta blocks before the cut are read
//!   [check: a_journal_cut_short_ends_there].

use std::ops::Range;

use braid_sim_hooks::{Bug, spoiled};
use thiserror::Error;

use crate::Superblock;
use crate::journal::{
    JOURNAL_BLOCK_SECTORS, JOURNAL_META_BYTES, JournalError, JournalMeta, JournalPayload,
    UnvalidatedJournalMeta, journal_block_checksum,
};
use crate::limits::SECTOR_BYTES;

/// A new journal's sequence begins this far after the old one, past all old meta blocks; md's
/// number.
pub const JOURNAL_SEQUENCE_GAP: u64 = 10_000;

/// The place of a journal on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JournalArea {
    /// First sector of the ring on the device.
    pub start_sector: u64,
    /// Sectors of the ring: whole blocks.
    pub ring_sectors: u64,
    /// Sectors from the ring's start to the oldest meta block; whole blocks, inside the ring.
    pub tail_sectors: u64,
}

impl JournalArea {
    /// The position `sectors` after `position`, modulo the ring.
    #[must_use]
    pub fn after(&self, position: u64, sectors: u64) -> u64 {
        (position + sectors) % self.ring_sectors
    }

    /// Sectors forward in the ring from one position to another.
    #[must_use]
    pub fn distance(&self, from: u64, to: u64) -> u64 {
        (to + self.ring_sectors - from) % self.ring_sectors
    }
}

impl Superblock {
    /// The place of the journal, if this superblock is of a journal device with room for at least
    /// one block. A tail that cannot hold a meta block counts as the start, as in md.
    #[must_use]
    pub fn journal_area(&self) -> Option<JournalArea> {
        let tail = self.intent.journal?.tail_sectors?;
        let sectors = self.device.data_size_sectors;
        let ring_sectors = sectors - sectors % JOURNAL_BLOCK_SECTORS;
        let is_place = tail < ring_sectors && tail % JOURNAL_BLOCK_SECTORS == 0;
        let area = JournalArea {
            start_sector: self.device.data_offset_sectors,
            ring_sectors,
            tail_sectors: if is_place { tail } else { 0 },
        };
        (ring_sectors > 0).then_some(area)
    }

    /// Reads the journal of this superblock's device; `None` if it is not a journal device. `read`
    /// fills a buffer from a byte offset of the device, and returns whether it succeeded.
    #[must_use]
    pub fn read_journal(
        &self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<Result<JournalLog, JournalLogError>> {
        self.intent.journal?.tail_sectors?;
        let Some(area) = self.journal_area() else { return Some(Err(JournalLogError::NoRoom)) };
        let mut block = |position: u64, bytes: &mut [u8]| {
            read((area.start_sector + position) * SECTOR_BYTES, bytes)
        };
        Some(JournalLog::read(area, &self.uuid_as_stored(), &mut block))
    }
}

/// One step of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalEntry {
    /// A block of data.
    Data {
        /// First array sector.
        location: u64,
        /// Position in the ring, in sectors.
        position: u64,
    },
    /// Blocks of parity: they commit all journaled data of the stripe.
    Parity {
        /// First sector of the stripe, from the start of its members' data.
        location: u64,
        /// Position of P in the ring, in sectors.
        position: u64,
        /// Position of Q, on a RAID-6.
        q_position: Option<u64>,
    },
    /// The stripe was written to its members, but need not be durable on them.
    Flush {
        /// First sector of the stripe, from the start of its members' data.
        location: u64,
    },
}

/// Why a journal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JournalEnd {
    /// The expected place of the next meta block holds none.
    NoBlock,
    /// The expected place of the next meta block holds one with another sequence.
    Older,
    /// The next meta block is in its place, but some blocks of data or parity after it are not
    /// whole.
    Torn,
}

impl JournalEnd {
    /// The reason in one word for programs; the word never changes.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoBlock => "no-block",
            Self::Older => "older",
            Self::Torn => "torn",
        }
    }
}

/// The content of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalLog {
    /// The ring that holds the journal.
    pub area: JournalArea,
    /// The sequence of the meta block at the tail.
    pub first_sequence: u64,
    /// Number of consecutive meta blocks.
    pub meta_blocks: u64,
    /// Whether a meta block has entries that md writes only in write-back mode: data without
    /// parity, or flushed stripes.
    pub is_write_back: bool,
    /// The entries of all meta blocks, in order.
    pub entries: Vec<JournalEntry>,
    /// Position of the first free block, in sectors.
    pub end_sectors: u64,
    /// The sequence of the next meta block.
    pub end_sequence: u64,
    /// Why the journal ends at `end_sectors`.
    pub end: JournalEnd,
}

/// Why a journal cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum JournalLogError {
    /// The area in the superblock has no room for a journal.
    #[error("its device has no room for it")]
    NoRoom,
    /// The device could not read a block.
    #[error("its block at sector {position} cannot be read")]
    Unreadable {
        /// Position in the ring, in sectors.
        position: u64,
    },
    /// No meta block at the tail.
    #[error("there is no block of this array's journal at its tail, sector {position}")]
    NoStart {
        /// Position in the ring, in sectors.
        position: u64,
    },
    /// A meta block makes no sense although its checksum is right.
    #[error("its block at sector {position} makes no sense: {cause}")]
    Meta {
        /// Position in the ring, in sectors.
        position: u64,
        /// The fault.
        cause: JournalError,
    },
}

/// Reads a block at a position of the ring; returns whether it succeeded.
pub type ReadBlock<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> bool;

struct Ring<'a, 'b> {
    area: JournalArea,
    array_uuid: &'a [u8; 16],
    read: ReadBlock<'b>,
}

impl Ring<'_, '_> {
    fn block(&mut self, position: u64) -> Result<Vec<u8>, JournalLogError> {
        let mut block = vec![0; JOURNAL_META_BYTES];
        let is_read = (self.read)(position, &mut block);
        is_read.then_some(block).ok_or(JournalLogError::Unreadable { position })
    }

    /// The meta block at a position, or the reason why there is none.
    fn meta(&mut self, position: u64) -> Result<Result<JournalMeta, JournalEnd>, JournalLogError> {
        let block = self.block(position)?;
        let Some(found) = UnvalidatedJournalMeta::recognise(&block) else {
            return Ok(Err(JournalEnd::NoBlock));
        };
        match found.validate(self.array_uuid) {
            Ok(meta) if meta.position_sectors == position => Ok(Ok(meta)),
            Ok(_) => Ok(Err(JournalEnd::Older)),
            Err(JournalError::Checksum { .. }) => Ok(Err(JournalEnd::NoBlock)),
            Err(cause) => Err(JournalLogError::Meta { position, cause }),
        }
    }

    fn is_whole(&mut self, meta: &JournalMeta) -> Result<bool, JournalLogError> {
        let mut position = meta.position_sectors;
        for checksum in meta.payloads.iter().flat_map(JournalPayload::checksums) {
            position = self.area.after(position, JOURNAL_BLOCK_SECTORS);
            let block = self.block(position)?;
            if journal_block_checksum(self.array_uuid, &block) != *checksum {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_write_back(meta: &JournalMeta) -> bool {
    let has = |kind: fn(&JournalPayload) -> bool| meta.payloads.iter().any(kind);
    let has_data = has(|payload| matches!(payload, JournalPayload::Data { .. }));
    let has_parity = has(|payload| matches!(payload, JournalPayload::Parity { .. }));
    has_data && !has_parity || has(|payload| matches!(payload, JournalPayload::Flush { .. }))
}

fn entries_of(meta: &JournalMeta, area: JournalArea) -> Result<Vec<JournalEntry>, JournalLogError> {
    let mut entries = Vec::new();
    let mut position = area.after(meta.position_sectors, JOURNAL_BLOCK_SECTORS);
    for payload in &meta.payloads {
        let blocks = payload.checksums().len() as u64;
        match payload {
            JournalPayload::Data { location, .. } => entries.extend((0..blocks).map(|block| {
                let sectors = block * JOURNAL_BLOCK_SECTORS;
                let (location, position) = (location + sectors, area.after(position, sectors));
                JournalEntry::Data { location, position }
            })),
            JournalPayload::Parity { location, .. } if blocks <= 2 => {
                let q_position = area.after(position, JOURNAL_BLOCK_SECTORS);
                let q_position = (blocks == 2).then_some(q_position);
                entries.push(JournalEntry::Parity { location: *location, position, q_position });
            }
            JournalPayload::Parity { .. } => {
                let cause = JournalError::Payload { offset: 0 };
                return Err(JournalLogError::Meta { position: meta.position_sectors, cause });
            }
            JournalPayload::Flush { stripes } => {
                let flush = |location: &u64| JournalEntry::Flush { location: *location };
                entries.extend(stripes.iter().map(flush));
            }
        }
        position = area.after(position, blocks * JOURNAL_BLOCK_SECTORS);
    }
    Ok(entries)
}

impl JournalLog {
    /// Follows a journal from its tail. `read` returns blocks of 4 KiB.
    ///
    /// # Errors
    /// A block that cannot be read, no meta block at the tail, or a meta block that md would not
    /// write.
    pub fn read(
        area: JournalArea,
        array_uuid: &[u8; 16],
        read: ReadBlock<'_>,
    ) -> Result<Self, JournalLogError> {
        let position = area.tail_sectors;
        let mut ring = Ring { area, array_uuid, read };
        let Ok(first) = ring.meta(position)? else {
            return Err(JournalLogError::NoStart { position });
        };
        let mut log = Self {
            area,
            first_sequence: first.sequence,
            meta_blocks: 0,
            is_write_back: false,
            entries: Vec::new(),
            end_sectors: position,
            end_sequence: first.sequence,
            end: JournalEnd::Older,
        };
        let mut next = Ok(first);
        log.end = loop {
            let meta = match next {
                Ok(meta) => meta,
                Err(end) => break end,
            };
            let follows = meta.sequence == log.end_sequence;
            let follows = spoiled(Bug::JournalSequenceIgnored, follows, true);
            let length_sectors = meta.length_sectors();
            // One block stays free, so that a full ring and an empty one differ.
            let has_room = log.used_sectors() + length_sectors < area.ring_sectors;
            if !follows || !has_room {
                break JournalEnd::Older;
            }
            let is_whole = ring.is_whole(&meta)?;
            if !is_whole {
                break JournalEnd::Torn;
            }
            log.entries.extend(entries_of(&meta, area)?);
            log.is_write_back |= is_write_back(&meta);
            log.meta_blocks += 1;
            log.end_sectors = area.after(log.end_sectors, length_sectors);
            log.end_sequence = log.end_sequence.wrapping_add(1);
            next = ring.meta(log.end_sectors)?;
        };
        Ok(log)
    }

    /// Sectors between tail and end.
    #[must_use]
    pub fn used_sectors(&self) -> u64 {
        self.area.distance(self.area.tail_sectors, self.end_sectors)
    }

    /// Sectors that can be written without overwriting live blocks.
    #[must_use]
    pub fn free_sectors(&self) -> u64 {
        self.area.ring_sectors - self.used_sectors()
    }

    /// Number of data blocks.
    #[must_use]
    pub fn data_blocks(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry, JournalEntry::Data { .. })).count()
    }

    /// The byte range on the device of a block of the ring.
    #[must_use]
    pub fn device_bytes(&self, position: u64) -> Range<u64> {
        let start = (self.area.start_sector + position) * SECTOR_BYTES;
        start..start + JOURNAL_META_BYTES as u64
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "rings here are small")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = *b"uuid-of-an-array";
    const RING: u64 = 64 * 8;

    fn area(tail_sectors: u64) -> JournalArea {
        JournalArea { start_sector: 0, ring_sectors: RING, tail_sectors }
    }

    fn block(byte: u8) -> Vec<u8> {
        vec![byte; JOURNAL_META_BYTES]
    }

    fn put(ring: &mut [u8], position: u64, bytes: &[u8]) {
        let start = position as usize * 512;
        ring[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes one meta block, and a block of data for each byte in `data`, filled with that byte.
    /// Returns the place of the next meta block.
    fn write(ring: &mut [u8], position: u64, sequence: u64, data: &[u8]) -> u64 {
        let payload = |byte: &u8| JournalPayload::Data {
            location: u64::from(*byte) * 8,
            checksums: vec![journal_block_checksum(&UUID, &block(*byte))],
        };
        let payloads = data.iter().map(payload).collect();
        let meta = JournalMeta { sequence, position_sectors: position, payloads };
        put(ring, position, &meta.to_bytes(&UUID));
        let mut at = position;
        for byte in data {
            at = area(0).after(at, 8);
            put(ring, at, &block(*byte));
        }
        area(0).after(at, 8)
    }

    fn read(ring: &[u8], tail: u64) -> Result<JournalLog, JournalLogError> {
        JournalLog::read(area(tail), &UUID, &mut |position, bytes| {
            let start = position as usize * 512;
            bytes.copy_from_slice(&ring[start..start + bytes.len()]);
            true
        })
    }

    /// The bytes that fill the journal's data blocks.
    fn bytes(log: &JournalLog) -> Vec<u8> {
        let byte = |entry: &JournalEntry| match entry {
            JournalEntry::Data { location, .. } => (location / 8) as u8,
            other => panic!("{other:?}"),
        };
        log.entries.iter().map(byte).collect()
    }

    #[test]
    fn old_blocks_do_not_follow() {
        let mut ring = vec![0; RING as usize * 512];
        let second = write(&mut ring, 0, 7, &[1, 2]);
        let third = write(&mut ring, second, 8, &[3]);
        // A meta block from the previous lap around the ring.
        write(&mut ring, third, 5, &[4]);
        let log = read(&ring, 0).unwrap();
        assert_eq!(
            (bytes(&log), log.end, log.end_sectors),
            (vec![1, 2, 3], JournalEnd::Older, third)
        );
        assert_eq!((log.first_sequence, log.end_sequence, log.meta_blocks), (7, 9, 2));
        assert_eq!((log.used_sectors(), log.free_sectors()), (40, RING - 40));
        assert!(log.is_write_back, "data without parity");
        // A copied meta block names another position than that of the copy.
        let moved = ring[second as usize * 512..][..4096].to_vec();
        put(&mut ring, third, &moved);
        assert_eq!(read(&ring, 0).unwrap().end, JournalEnd::Older);
        put(&mut ring, third, &block(9));
        assert_eq!(read(&ring, 0).unwrap().end, JournalEnd::NoBlock);
    }

    #[test]
    fn a_torn_block_ends_it_though_sound_ones_follow() {
        let mut ring = vec![0; RING as usize * 512];
        let second = write(&mut ring, 0, 7, &[1]);
        let third = write(&mut ring, second, 8, &[2, 3]);
        write(&mut ring, third, 9, &[4]);
        assert_eq!(bytes(&read(&ring, 0).unwrap()), [1, 2, 3, 4]);
        ring[(second as usize + 16) * 512 + 77] ^= 1;
        let log = read(&ring, 0).unwrap();
        assert_eq!((bytes(&log), log.end, log.end_sectors), (vec![1], JournalEnd::Torn, second));
        assert_eq!(log.end_sequence, 8);
    }

    #[test]
    fn parity_and_flushed_stripes_are_told() {
        let mut ring = vec![0; RING as usize * 512];
        let (p, q) = (block(1), block(2));
        let checksums = vec![journal_block_checksum(&UUID, &p), journal_block_checksum(&UUID, &q)];
        let payloads = vec![
            JournalPayload::Flush { stripes: vec![8, 16] },
            JournalPayload::Parity { location: 24, checksums },
        ];
        let meta = JournalMeta { sequence: 3, position_sectors: RING - 16, payloads };
        put(&mut ring, RING - 16, &meta.to_bytes(&UUID));
        put(&mut ring, RING - 8, &p);
        put(&mut ring, 0, &q);
        let log = read(&ring, RING - 16).unwrap();
        let parity = JournalEntry::Parity { location: 24, position: RING - 8, q_position: Some(0) };
        let flushes = [8, 16].map(|location| JournalEntry::Flush { location });
        assert_eq!(log.entries, [flushes[0], flushes[1], parity]);
        assert_eq!((log.end_sectors, log.data_blocks(), log.is_write_back), (8, 0, true));
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let mut ring = vec![0; RING as usize * 512];
        assert_eq!(read(&ring, 0), Err(JournalLogError::NoStart { position: 0 }));
        write(&mut ring, 0, 7, &[1]);
        let unreadable = |bad: u64| {
            JournalLog::read(area(0), &UUID, &mut |position, bytes| {
                let start = position as usize * 512;
                bytes.copy_from_slice(&ring[start..start + bytes.len()]);
                position != bad
            })
        };
        for position in [0, 8, 16] {
            assert_eq!(unreadable(position), Err(JournalLogError::Unreadable { position }));
        }
        assert!(unreadable(24).is_ok());
        let checksums = vec![journal_block_checksum(&UUID, &block(0)); 3];
        let payloads = vec![JournalPayload::Parity { location: 0, checksums }];
        let meta = JournalMeta { sequence: 8, position_sectors: 16, payloads };
        put(&mut ring, 16, &meta.to_bytes(&UUID));
        let cause = JournalError::Payload { offset: 0 };
        assert_eq!(read(&ring, 0), Err(JournalLogError::Meta { position: 16, cause }));
    }

    #[test]
    fn a_ring_that_is_full_ends_before_its_tail() {
        let mut ring = vec![0; RING as usize * 512];
        // Meta blocks fill the ring, so that the chain has no end.
        for (sequence, position) in (0..RING).step_by(8).enumerate() {
            write(&mut ring, position, sequence as u64, &[]);
        }
        let log = read(&ring, 0).unwrap();
        assert_eq!((log.meta_blocks, log.end_sectors, log.free_sectors()), (63, RING - 8, 8));
    }

    #[test]
    fn areas_are_where_superblocks_say() {
        let ring = area(8);
        assert_eq!((ring.after(RING - 8, 8), ring.after(16, 24)), (0, 40));
        assert_eq!(
            (ring.distance(8, 8), ring.distance(RING - 8, 8), ring.distance(8, 24)),
            (0, 16, 16)
        );
    }

    fn records() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 1..12)
    }

    proptest! {
        #[test]
        fn a_journal_is_read_wherever_it_is(records in records(), tail in 0..RING / 8, noise in any::<u8>()) {
            let mut ring = vec![noise; RING as usize * 512];
            let (tail, mut at) = (tail * 8, tail * 8);
            for (record, sequence) in records.iter().zip(1000..) {
                at = write(&mut ring, at, sequence, record);
            }
            let log = read(&ring, tail).unwrap();
            prop_assert_eq!(bytes(&log), records.concat());
            prop_assert_eq!((log.meta_blocks, log.end_sectors), (records.len() as u64, at));
            for entry in &log.entries {
                let JournalEntry::Data { location, position } = entry else { panic!("{entry:?}") };
                prop_assert_eq!(u64::from(ring[*position as usize * 512]), location / 8);
            }
        }

        #[test]
        fn a_journal_cut_short_ends_there(records in records(), tail in 0..RING / 8, cut in any::<prop::sample::Index>(), spoils in 1..=255_u8) {
            let mut ring = vec![0; RING as usize * 512];
            let (tail, mut at) = (tail * 8, tail * 8);
            let mut blocks = Vec::new();
            for (index, record) in records.iter().enumerate() {
                blocks.extend(std::iter::repeat_n(index, record.len() + 1));
                at = write(&mut ring, at, index as u64, record);
            }
            let byte = cut.index(blocks.len() * JOURNAL_META_BYTES);
            let position = area(0).after(tail, (byte / 4096 * 8) as u64);
            ring[position as usize * 512 + byte % 4096] ^= spoils;
            let sound = blocks[byte / 4096];
            match read(&ring, tail) {
                Ok(log) => {
                    prop_assert_eq!(bytes(&log), records[..sound].concat());
                    prop_assert_eq!(log.meta_blocks, sound as u64);
                }
                Err(error) => {
                    prop_assert_eq!((error, byte / 4096), (JournalLogError::NoStart { position: tail }, 0));
                }
            }
        }

        #[test]
        fn any_ring_is_read_or_refused(noise in prop::collection::vec(any::<u8>(), 4 * 4096), length in 0_usize..5) {
            let mut ring = vec![0; RING as usize * 512];
            write(&mut ring, 0, 1, &vec![3; length]);
            put(&mut ring, 8 * (1 + length as u64), &noise);
            let _ = read(&ring, 0);
        }
    }
}
