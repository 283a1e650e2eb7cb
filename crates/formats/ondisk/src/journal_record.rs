//! One write to a journal: rows of blocks, after the meta blocks that name them.
//!
//! [`journal_log`](crate::journal_log) reads these records back. The engine chooses the rows, the
//! place in the ring and the time; a driver writes the bytes, durably.
//!
//! ```text
//!   | meta 7 | data | data | P | data | P | meta 8 | data | P |
//! ```
//!
//! The blocks of a row stand together, after one meta block.
//!
//! # Invariants
//! - A written record is read, wherever in the ring it is
//!   [check: a_record_is_read_as_it_was_written].

use crate::Superblock;
use crate::journal::{
    JOURNAL_BLOCK_SECTORS, JOURNAL_META_BYTES, JournalMeta, JournalPayload, journal_block_checksum,
};
use crate::journal_log::JournalArea;
use crate::limits::SECTOR_BYTES;

/// Bytes of a payload in a meta block: type, flags, size, location, and one checksum.
const PAYLOAD_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 4;

/// The blocks of a stripe, 4 KiB of each member: the data that is written, and all of its parity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRow {
    /// First sector of the stripe, from the start of its members' data.
    pub stripe: u64,
    /// The first array sector of each block of data.
    pub data: Vec<u64>,
    /// Blocks of parity: P, and Q of a RAID-6.
    pub parities: usize,
    /// The bytes of the blocks: data in the order of `data`, then parity.
    pub bytes: Vec<u8>,
}

impl JournalRow {
    fn blocks(&self) -> usize {
        self.data.len() + self.parities
    }

    /// Bytes of the blocks.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.blocks() * JOURNAL_META_BYTES
    }

    fn meta_bytes(&self) -> usize {
        let parity = match self.parities {
            0 => 0,
            count => PAYLOAD_BYTES + (count - 1) * CHECKSUM_BYTES,
        };
        self.data.len() * PAYLOAD_BYTES + parity
    }

    /// The most data columns of an array with a journal: one meta block must name a whole row.
    pub const DATA_MAX: usize = (JournalMeta::PAYLOAD_BYTES - PAYLOAD_BYTES) / PAYLOAD_BYTES - 1;

    fn payloads(&self, uuid: &[u8; 16]) -> Vec<JournalPayload> {
        let (blocks, rest) = self.bytes.as_chunks::<JOURNAL_META_BYTES>();
        assert!(rest.is_empty() && blocks.len() == self.blocks(), "a row has its blocks");
        let (data, parity) = blocks.split_at(self.data.len());
        let checksum = |block: &[u8; JOURNAL_META_BYTES]| journal_block_checksum(&*uuid, block);
        let data = self.data.iter().zip(data).map(|(location, block)| JournalPayload::Data {
            location: *location,
            checksums: vec![checksum(block)],
        });
        let checksums = parity.iter().map(checksum).collect();
        let parity = JournalPayload::Parity { location: self.stripe, checksums };
        data.chain((self.parities > 0).then_some(parity)).collect()
    }
}

/// Rows after their meta blocks, and their place in the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRecord {
    /// The journal's ring.
    pub area: JournalArea,
    /// Sectors from the start of the ring to the first meta block.
    pub position: u64,
    /// Sequence of the first meta block.
    pub sequence: u64,
    /// The rows of each meta block, possibly none.
    pub metas: Vec<Vec<JournalRow>>,
}

/// One run of a record's bytes; a record that reaches the end of the ring continues at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalPiece {
    /// The run up to the end of the ring.
    First,
    /// The run from the start of the ring.
    Rest,
}

impl JournalRecord {
    /// Distributes rows over meta blocks.
    #[must_use]
    pub fn dealt(rows: Vec<JournalRow>) -> Vec<Vec<JournalRow>> {
        let mut metas: Vec<Vec<JournalRow>> = Vec::new();
        let mut left = 0;
        for row in rows {
            let needed = row.meta_bytes();
            assert!(needed <= JournalMeta::PAYLOAD_BYTES, "a row has at most so many columns");
            match metas.last_mut().filter(|_| needed <= left) {
                Some(meta) => meta.push(row),
                None => {
                    metas.push(vec![row]);
                    left = JournalMeta::PAYLOAD_BYTES;
                }
            }
            left -= needed;
        }
        metas
    }

    /// The most sectors that rows and their meta blocks take.
    #[must_use]
    pub fn sectors_of(rows: &[JournalRow]) -> u64 {
        let blocks: usize = rows.iter().map(JournalRow::blocks).sum();
        // A new meta block begins with a row that did not fit into the previous meta block. So two
        // neighbouring meta blocks hold more than one can.
        let metas = rows.len().min(
            1 + 2 * rows.iter().map(JournalRow::meta_bytes).sum::<usize>()
                / JournalMeta::PAYLOAD_BYTES,
        );
        JOURNAL_BLOCK_SECTORS * (blocks + metas) as u64
    }

    /// Sectors of the record.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        let rows = self.metas.iter().flatten();
        let blocks = self.metas.len() + rows.map(JournalRow::blocks).sum::<usize>();
        JOURNAL_BLOCK_SECTORS * blocks as u64
    }

    /// Whether the record continues at the start of the ring.
    #[must_use]
    pub fn wraps(&self) -> bool {
        self.position + self.sectors() > self.area.ring_sectors
    }

    fn to_bytes(&self, uuid: &[u8; 16]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, rows) in (0..).zip(&self.metas) {
            let payloads = rows.iter().flat_map(|row| row.payloads(uuid)).collect();
            let sectors = bytes.len() as u64 / SECTOR_BYTES;
            let position_sectors = self.area.after(self.position, sectors);
            let sequence = self.sequence.wrapping_add(index);
            let meta = JournalMeta { sequence, position_sectors, payloads };
            bytes.extend_from_slice(&meta.to_bytes(uuid));
            rows.iter().for_each(|row| bytes.extend_from_slice(&row.bytes));
        }
        bytes
    }
}

impl Superblock {
    /// The empty first meta block of a new journal: its byte offset on the device, and its bytes.
    /// `None` if this superblock is not of a journal device.
    #[must_use]
    pub fn first_journal_block(&self, sequence: u64) -> Option<(u64, Vec<u8>)> {
        let area = self.journal_area()?;
        let record = JournalRecord { area, position: 0, sequence, metas: vec![Vec::new()] };
        Some(self.journal_bytes(&record, JournalPiece::First))
    }

    /// One part of a record: its byte offset on the journal device, and its bytes.
    #[must_use]
    pub fn journal_bytes(&self, record: &JournalRecord, piece: JournalPiece) -> (u64, Vec<u8>) {
        let mut bytes = record.to_bytes(&self.uuid_as_stored());
        let sectors = record.area.ring_sectors - record.position;
        let end = usize::try_from(sectors * SECTOR_BYTES).unwrap_or(usize::MAX);
        let rest = bytes.split_off(end.min(bytes.len()));
        let (position, bytes) = match piece {
            JournalPiece::First => (record.position, bytes),
            JournalPiece::Rest => (0, rest),
        };
        ((record.area.start_sector + position) * SECTOR_BYTES, bytes)
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "rings here are small")]
mod tests {
    use super::*;
    use crate::journal_log::{JournalEnd, JournalEntry, JournalLog};
    use proptest::prelude::*;

    const UUID: [u8; 16] = *b"uuid-of-an-array";
    const RING: u64 = 512 * 8;

    fn area(tail_sectors: u64) -> JournalArea {
        JournalArea { start_sector: 0, ring_sectors: RING, tail_sectors }
    }

    /// A row with blocks of data and parity; each block is filled with a byte of its own.
    fn row(stripe: u64, data: usize, parities: usize, byte: u8) -> JournalRow {
        let blocks = (0..data + parities).map(|index| byte.wrapping_add(index as u8));
        let bytes = blocks.flat_map(|byte| [byte; JOURNAL_META_BYTES]).collect();
        let data = (0..data as u64).map(|index| (stripe + index) * 8).collect();
        JournalRow { stripe: stripe * 8, data, parities, bytes }
    }

    fn put(ring: &mut [u8], record: &JournalRecord) {
        let bytes = record.to_bytes(&UUID);
        let (first, rest) =
            bytes.split_at(bytes.len().min(((RING - record.position) * 512) as usize));
        ring[record.position as usize * 512..][..first.len()].copy_from_slice(first);
        assert_eq!(!rest.is_empty(), record.wraps());
        ring[..rest.len()].copy_from_slice(rest);
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            shapes in prop::collection::vec((1_usize..40, 1_usize..3, any::<u8>()), 0..10),
            tail in 0..RING / 8,
            sequence in 0..1_u64 << 40,
        ) {
            let rows: Vec<JournalRow> = (0..).zip(&shapes).map(|(n, (data, parities, byte))| row(n * 64, *data, *parities, *byte)).collect();
            let most = JournalRecord::sectors_of(&rows);
            let tail = tail * 8;
            let mut ring = vec![7; RING as usize * 512];
            let blank = JournalRecord { area: area(0), position: tail, sequence, metas: vec![Vec::new()] };
            put(&mut ring, &blank);
            let position = area(0).after(tail, blank.sectors());
            let metas = JournalRecord::dealt(rows.clone());
            let record = JournalRecord { area: area(0), position, sequence: sequence + 1, metas };
            prop_assert!(record.sectors() <= most && most <= record.sectors() + 8 * rows.len() as u64);
            put(&mut ring, &record);
            let log = JournalLog::read(area(tail), &UUID, &mut |position, bytes| {
                let start = position as usize * 512;
                bytes.copy_from_slice(&ring[start..start + bytes.len()]);
                true
            }).unwrap();
            prop_assert_eq!((log.end, log.is_write_back), (JournalEnd::NoBlock, false));
            prop_assert_eq!(log.used_sectors(), 8 + record.sectors());
            prop_assert_eq!(log.end_sequence, sequence + 1 + record.metas.len() as u64);
            let byte = |position: u64| ring[position as usize * 512];
            let mut entries = log.entries.iter();
            for row in &rows {
                let mut bytes = row.bytes.chunks(4096).map(|block| block[0]);
                for location in &row.data {
                    let Some(JournalEntry::Data { location: found, position }) = entries.next() else { panic!() };
                    prop_assert_eq!((found, byte(*position)), (location, bytes.next().unwrap()));
                }
                let Some(JournalEntry::Parity { location, position, q_position }) = entries.next() else { panic!() };
                prop_assert_eq!((*location, byte(*position)), (row.stripe, bytes.next().unwrap()));
                prop_assert_eq!(q_position.map(byte), bytes.next());
            }
            prop_assert!(entries.next().is_none());
        }
    }
}
