//! md's writes with a partial parity log, as the ordered requests to each disk.
//!
//! Each disk has a log for the rows whose parity it holds, so the logs do not depend on each other.
//! A log is a sequence of steps: a durable record; then the record's data and parity in any order;
//! then flushes; then the next record. The writer makes entries from the definition of their
//! layout, not with the engine's code.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_geometry::{ChunkRow, Geometry, Level, LogicalSector, Shape, Slot, StripeGeometry};
use braid_ondisk::{LoggedEntry, PplEntry, PplPlace, PplRecord};

use super::platter::{Op, Platter, SECTOR};
use crate::random::{Random, fold, mix};

pub(super) const UUID: [u8; 16] = *b"replayed-array--";
const CHUNK: u64 = 8;
/// The sector where a disk's log begins.
pub(super) const LOG_SECTOR: u64 = 8;

/// The array sectors of one log record, and the operations during which that record counts.
pub(super) struct Flight {
    /// From the operation that writes the record to the flush that ends it.
    pub(super) ops: Range<usize>,
    pub(super) changes: BTreeMap<u64, (u64, u64)>,
}

pub(super) struct LogHistory {
    pub(super) geometry: StripeGeometry,
    pub(super) place: PplPlace,
    /// The disks at the start of the array.
    pub(super) disks: Vec<Platter>,
    pub(super) ops: Vec<Op>,
    pub(super) flights: Vec<Flight>,
    /// The final content of each array sector.
    pub(super) content: Vec<u64>,
}

pub(super) fn bytes_of(content: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    let words = bytes.chunks_exact_mut(8).zip(0..);
    words.for_each(|(word, turn)| word.copy_from_slice(&content.rotate_left(turn).to_le_bytes()));
    bytes
}

pub(super) fn xor(target: &mut [u8], source: &[u8]) {
    target.iter_mut().zip(source).for_each(|(to, from)| *to ^= from);
}

fn geometry(random: &mut Random) -> StripeGeometry {
    let slots = 3 + random.below(3) as u16;
    let shape = Shape::uniform(
        Level::Raid5,
        random.below(6) as u32,
        CHUNK as u32,
        slots,
        CHUNK * u64::from(slots) * 2,
    );
    match Geometry::new(&shape) {
        Ok(Geometry::Stripe(stripe)) => stripe,
        other => unreachable!("a small RAID-5: {other:?}"),
    }
}

/// One write that becomes an entry of a record, and the place of its partial parity.
struct Range5 {
    /// The entry in the record's header.
    entry: PplEntry,
    sectors: Vec<u64>,
    /// For each sector of partial parity: its offset in the chunk.
    offsets: Vec<u64>,
}

struct Writer<'a> {
    random: &'a mut Random,
    /// Writes cover whole chunks, so that records fill a log's ring to its end more often.
    is_whole: bool,
    geometry: StripeGeometry,
    place: PplPlace,
    content: Vec<u64>,
}

/// The operations and the records of one log.
struct Stream {
    ops: Vec<Op>,
    /// The records of the log; their `ops` are indices into this stream.
    flights: Vec<Flight>,
}

impl Writer<'_> {
    fn data_sector(&self, sector: u64) -> (Slot, u64) {
        let address = self.geometry.locate(LogicalSector(sector));
        let slot = self.geometry.row_map(address.row).data_slot(address.data_index);
        let start = self.geometry.row_start(address.row).0;
        (slot, start + u64::from(address.offset_sectors))
    }

    /// The array sectors of a row at one offset, one of each data chunk.
    fn across(&self, row: ChunkRow, offset: u64) -> Vec<u64> {
        let logical = |index| self.geometry.logical(row, index, offset as u32).0;
        (0..self.geometry.data_slots()).map(logical).collect()
    }

    /// Draws a write in a row.
    fn range(&mut self, row: ChunkRow) -> Range5 {
        let data_slots = u64::from(self.geometry.data_slots());
        let first = self.geometry.logical(row, 0, 0).0;
        let parity_slot = u32::from(self.geometry.row_map(row).p_slot().0);
        let entry = |data_sector, data: u64, partial: u64| {
            let (data_bytes, parity_bytes) = (data as u32 * 512, partial as u32 * 512);
            PplEntry { data_sector, parity_bytes, data_bytes, parity_slot, checksum: 0 }
        };
        if self.random.chance(25) {
            // Any range of the row, with a whole chunk of partial parity.
            let start = first + self.random.below(CHUNK * data_slots);
            let left = first + CHUNK * data_slots - start;
            let length = 1 + self.random.below(left);
            return Range5 {
                entry: entry(start, length, CHUNK),
                sectors: (start..start + length).collect(),
                offsets: (0..CHUNK).map(|sector| (start + sector) % CHUNK).collect(),
            };
        }
        let height = if self.is_whole { CHUNK } else { 1 + self.random.below(CHUNK) };
        let offset = self.random.below(CHUNK - height + 1);
        let is_full = self.random.chance(25);
        let chunk = if is_full { 0 } else { self.random.below(data_slots) };
        let left = data_slots - chunk;
        let chunks = if is_full { left } else { 1 + self.random.below(left) };
        let start = first + chunk * CHUNK + offset;
        let sectors = (0..chunks).flat_map(|one| {
            let from = start + one * CHUNK;
            from..from + height
        });
        // A write to all data columns has no partial parity.
        let partial = if chunks == data_slots { 0 } else { height };
        Range5 {
            entry: entry(start, chunks * height, partial),
            sectors: sectors.collect(),
            offsets: (0..partial).map(|sector| offset + sector).collect(),
        }
    }

    /// The partial parity of a write: the exclusive-or of the data that it leaves unchanged.
    fn partial(&self, row: ChunkRow, range: &Range5) -> Vec<u8> {
        let mut partial = Vec::new();
        for &offset in &range.offsets {
            let mut sector = [0; SECTOR];
            let kept = self.across(row, offset).into_iter();
            for one in kept.filter(|one| !range.sectors.contains(one)) {
                xor(&mut sector, &bytes_of(self.content[one as usize]));
            }
            partial.extend_from_slice(&sector);
        }
        partial
    }

    /// The writes of a record's data and parity to members, sector by sector.
    fn members(&mut self, row: ChunkRow, range: &Range5, ops: &mut Vec<Op>) {
        let mut offsets: Vec<u64> = range.sectors.iter().map(|sector| sector % CHUNK).collect();
        offsets.sort_unstable();
        offsets.dedup();
        for &sector in &range.sectors {
            let (slot, at) = self.data_sector(sector);
            let bytes = bytes_of(self.content[sector as usize]).to_vec();
            ops.push(Op::Write { disk: slot.index(), sector: self.data_start() + at, bytes });
        }
        let parity = self.geometry.row_map(row).p_slot().index();
        for offset in offsets {
            let mut bytes = vec![0; SECTOR];
            for one in self.across(row, offset) {
                xor(&mut bytes, &bytes_of(self.content[one as usize]));
            }
            let sector = self.data_start() + self.geometry.row_start(row).0 + offset;
            ops.push(Op::Write { disk: parity, sector, bytes });
        }
    }

    fn data_start(&self) -> u64 {
        data_start(self.place)
    }

    fn stream(&mut self, log: Slot, records: u64) -> Stream {
        let rows = (0..self.geometry.rows()).map(ChunkRow);
        let rows: Vec<ChunkRow> =
            rows.filter(|row| self.geometry.row_map(*row).p_slot() == log).collect();
        let mut stream = Stream { ops: Vec::new(), flights: Vec::new() };
        let (mut at, area) = (0, self.place.used_sectors());
        for generation in (1..=records).map(|record| record * 3) {
            let mut rows = rows.clone();
            self.random.shuffle(&mut rows);
            rows.truncate(self.random.below(3) as usize + 1);
            let ranges: Vec<Range5> = rows.iter().map(|row| self.range(*row)).collect();
            let entries: Vec<LoggedEntry> = rows
                .iter()
                .zip(&ranges)
                .map(|(row, range)| LoggedEntry {
                    entry: range.entry,
                    partial: self.partial(*row, range),
                })
                .collect();
            let bytes = PplRecord::bytes_of(generation, &entries, &UUID);
            let length = (bytes.len() / SECTOR) as u64;
            if length > area {
                continue;
            }
            if !self.place.multiple || area - at < length {
                at = 0;
            }
            let begin = stream.ops.len();
            let disk = log.index();
            stream.ops.push(Op::Write { disk, sector: LOG_SECTOR + at, bytes });
            stream.ops.push(Op::Flush { disk });
            at += length;
            let mut changes = BTreeMap::new();
            for &sector in ranges.iter().flat_map(|range| &range.sectors) {
                let old = self.content[sector as usize];
                let new = mix(fold(generation, sector));
                self.content[sector as usize] = new;
                changes.insert(sector, (old, new));
            }
            let mut written = Vec::new();
            let of_rows = rows.iter().zip(&ranges);
            of_rows.for_each(|(row, range)| self.members(*row, range, &mut written));
            self.random.shuffle(&mut written);
            stream.ops.append(&mut written);
            let disks = 0..usize::from(self.geometry.slots());
            stream.ops.extend(disks.map(|disk| Op::Flush { disk }));
            stream.flights.push(Flight { ops: begin..stream.ops.len(), changes });
        }
        stream
    }
}

pub(super) fn data_start(place: PplPlace) -> u64 {
    LOG_SECTOR + u64::from(place.size_sectors)
}

/// Merges the streams at random; each stream's operations keep their order.
fn merged(streams: Vec<Stream>, random: &mut Random) -> (Vec<Op>, Vec<Flight>) {
    let (mut ops, mut flights) = (Vec::new(), Vec::new());
    let mut left: Vec<_> = streams.iter().map(|stream| stream.ops.len() as u64).collect();
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); streams.len()];
    while left.iter().any(|left| *left > 0) {
        let chosen = random.weighted(&left);
        left[chosen] -= 1;
        let next = places[chosen].len();
        places[chosen].push(ops.len());
        ops.push(streams[chosen].ops[next].clone());
    }
    for (stream, places) in streams.into_iter().zip(places) {
        flights.extend(stream.flights.into_iter().map(|flight| {
            let ops = places[flight.ops.start]..places[flight.ops.end - 1] + 1;
            Flight { ops, ..flight }
        }));
    }
    (ops, flights)
}

/// Draws an array with parity logs, and the operations of clients' writes.
pub(super) fn written(random: &mut Random) -> LogHistory {
    let geometry = geometry(random);
    // A log with room for one large record, or (`multiple`) a ring with room for a few.
    let multiple = random.chance(70);
    let size_sectors = (8 * (5 + random.below(if multiple { 8 } else { 1 }))) as u16;
    let place = PplPlace { offset_sectors: LOG_SECTOR as i16, size_sectors, multiple };
    let content: Vec<u64> = (0..geometry.capacity_sectors()).map(mix).collect();
    let mut disks =
        vec![Platter::new(data_start(place) + geometry.used_sectors()); geometry.slots().into()];
    let empty = PplRecord::bytes_of(0, &[], &UUID);
    disks.iter_mut().for_each(|disk| disk.write_durably(LOG_SECTOR, &empty));
    let is_whole = random.chance(40);
    let mut writer = Writer { random, is_whole, geometry, place, content };
    let mut ops = Vec::new();
    for row in (0..geometry.rows()).map(ChunkRow) {
        let first = geometry.logical(row, 0, 0).0;
        let sectors = (first..first + CHUNK * u64::from(geometry.data_slots())).collect();
        let entry = PplEntry {
            data_sector: 0,
            parity_bytes: 0,
            data_bytes: 0,
            parity_slot: 0,
            checksum: 0,
        };
        writer.members(row, &Range5 { entry, sectors, offsets: Vec::new() }, &mut ops);
    }
    for op in &ops {
        if let Op::Write { disk, sector, bytes } = op {
            disks[*disk].write_durably(*sector, bytes);
        }
    }
    let logs = (0..geometry.slots()).map(Slot);
    let streams: Vec<Stream> = logs
        .map(|log| {
            let records = writer.random.below(5);
            writer.stream(log, records)
        })
        .collect();
    let Writer { random, content, .. } = writer;
    let (ops, flights) = merged(streams, random);
    LogHistory { geometry, place, disks, ops, flights, content }
}
