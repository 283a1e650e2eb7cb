//! Writes of clients as md makes them with a write journal, as the ordered requests to each disk.
//!
//! - In write-through mode one meta block takes a stripe's data and parity. When that block and all
//!   before it are durable, md writes the members.
//! - In write-back mode the journal first takes data alone. Parity follows later, with data that
//!   came meanwhile. Then md writes the members, and the journal records the stripe as flushed.
//!   That record does not promise that the members' caches are flushed.
//!
//! Now and then the writer flushes the members and moves the tail. The writer makes blocks from the
//! definition of their layout, not with the engine's code.

use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::{Geometry, Level, MemberSector, RowMap, Shape, StripeGeometry};
use braid_ondisk::{JournalMeta, JournalPayload, journal_block_checksum};
use braid_parity::definition;

use super::super::platter::{Op, Platter, SECTOR};
use crate::random::{Random, fold, mix};

pub(super) const UUID: [u8; 16] = *b"journaled-array-";
/// Sectors in a block.
pub(super) const BLOCK: u64 = 8;
/// The sector where the journal's ring begins, after the block that records its tail.
pub(super) const JOURNAL_START: u64 = 8;

/// A client's write of one array block.
pub(super) struct Write {
    pub(super) block: u64,
    pub(super) value: u64,
    /// The operation that begins the write's meta block.
    pub(super) begin: usize,
    /// The operation that makes the write's meta block durable, or `usize::MAX`.
    pub(super) durable: usize,
}

pub(super) struct JournalHistory {
    pub(super) geometry: StripeGeometry,
    pub(super) ring_sectors: u64,
    /// The disks at the start of the array: members by slot, then the journal.
    pub(super) disks: Vec<Platter>,
    pub(super) ops: Vec<Op>,
    /// Clients' writes, in the order in which the journal takes them.
    pub(super) writes: Vec<Write>,
    /// By array block: its value before these writes.
    pub(super) first: Vec<u64>,
}

/// The bytes of a sector of a block with this value.
pub(super) fn content(value: u64, sector: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    let word = mix(fold(value, sector % BLOCK));
    let words = bytes.chunks_exact_mut(8).zip(0..);
    words.for_each(|(to, turn)| to.copy_from_slice(&word.rotate_left(turn).to_le_bytes()));
    bytes
}

fn block_of(value: u64) -> Vec<u8> {
    (0..BLOCK).flat_map(|sector| content(value, sector)).collect()
}

pub(super) fn tail_sector(position: u64) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[..8].copy_from_slice(&position.to_le_bytes());
    sector
}

pub(super) fn tail_of(sector: &[u8; SECTOR]) -> u64 {
    u64::from_le_bytes(*sector.first_chunk().expect("a sector has eight bytes"))
}

fn geometry(random: &mut Random) -> StripeGeometry {
    let level =
        *random.pick(&[Level::Raid4, Level::Raid5, Level::Raid5, Level::Raid6, Level::Raid6]);
    let least = if level == Level::Raid6 { 4 } else { 3 };
    let slots = least + random.below(3) as u16;
    let chunk = BLOCK * (1 + random.below(2));
    let layout = if level == Level::Raid4 { 0 } else { random.below(6) as u32 };
    let member_sectors = vec![chunk * (2 + random.below(3)); usize::from(slots)];
    let shape = Shape { level, layout, chunk_sectors: chunk as u32, slots, member_sectors };
    match Geometry::new(&shape) {
        Ok(Geometry::Stripe(stripe)) => stripe,
        other => unreachable!("a small array: {other:?}"),
    }
}

#[derive(Default)]
struct Stripe {
    /// Columns whose new data is in the journal, while the journal has no parity for it.
    cached: BTreeSet<u16>,
    /// Number of the meta block with the oldest data of `cached`.
    since: usize,
}

/// A stripe whose parity is in the journal: the writes of that stripe to members.
struct Out {
    ops: Vec<Op>,
    /// Number of the meta block with the oldest of the stripe's data.
    since: usize,
}

/// A meta block that was written.
struct Unit {
    position: u64,
    /// Stripes whose parity this block has, with the writes to members that follow once the block
    /// is durable.
    members: BTreeMap<u64, Out>,
    /// The clients' writes in this block, as indices into the writer's list.
    writes: Vec<usize>,
    is_durable: bool,
}

struct Writer<'a> {
    random: &'a mut Random,
    is_write_back: bool,
    geometry: StripeGeometry,
    ring_sectors: u64,
    content: Vec<u64>,
    stripes: BTreeMap<u64, Stripe>,
    /// Stripes that were written to members. The next meta block records them as flushed.
    told_flushed: Vec<u64>,
    units: Vec<Unit>,
    /// The position and the sequence number of the next meta block.
    head: (u64, u64),
    /// The number of the meta block at the tail.
    tail: usize,
    ops: Vec<Op>,
    writes: Vec<Write>,
    values: u64,
}

impl Writer<'_> {
    fn journal(&self) -> usize {
        usize::from(self.geometry.slots())
    }

    fn map(&self, sector: u64) -> RowMap {
        self.geometry.row_map(self.geometry.row_of(MemberSector(sector)))
    }

    fn array_block(&self, sector: u64, index: u16) -> u64 {
        let row = self.geometry.row_of(MemberSector(sector));
        let offset = sector - self.geometry.row_start(row).0;
        self.geometry.logical(row, index, offset as u32).0 / BLOCK
    }

    /// The parity of a stripe: P, and Q on RAID-6.
    fn parity(&self, sector: u64) -> Vec<Vec<u8>> {
        let map = self.map(sector);
        let data: Vec<Vec<u8>> = (0..map.data_slots())
            .map(|index| block_of(self.content[self.array_block(sector, index) as usize]))
            .collect();
        let mut sources: Vec<Option<&[u8]>> = vec![None; usize::from(map.exponents_count())];
        for (index, column) in (0..).zip(&data) {
            sources[usize::from(map.exponent(index))] = Some(column);
        }
        let (mut p, mut q) = (vec![0; 4096], vec![0; 4096]);
        definition::pq(&sources, &mut p, &mut q);
        std::iter::once(p).chain(map.q_slot().map(|_| q)).collect()
    }

    fn free_blocks(&self) -> u64 {
        let tail = self.units[self.tail].position;
        let used = (self.head.0 + self.ring_sectors - tail) % self.ring_sectors;
        (self.ring_sectors - used) / BLOCK
    }

    /// How many blocks the parity of all cached data needs in the journal.
    fn reserved_blocks(&self) -> u64 {
        let cached =
            self.stripes.values().filter(|stripe| !stripe.cached.is_empty()).count() as u64;
        2 * cached + 6
    }

    /// Stripes without a write to members that is due.
    fn idle(&self) -> Vec<u64> {
        let is_busy =
            |sector: &u64| self.units.iter().any(|unit| unit.members.contains_key(sector));
        let sectors = (0..self.geometry.used_sectors()).step_by(BLOCK as usize);
        sectors.filter(|sector| !is_busy(sector)).collect()
    }

    /// Draws new data for a stripe and adds it to a meta block. Returns the changed columns.
    fn change(&mut self, sector: u64, content: &mut MetaBlockContent) -> Vec<u16> {
        let count = self.geometry.data_slots();
        let percent = *self.random.pick(&[20, 50, 100]);
        let must = self.random.below(u64::from(count)) as u16;
        let mut changed = Vec::new();
        for index in 0..count {
            if index != must && !self.random.chance(percent) {
                continue;
            }
            let block = self.array_block(sector, index);
            self.values += 1;
            let value = self.values;
            self.content[block as usize] = value;
            content.data(block, block_of(value));
            content.writes.push((block, value));
            changed.push(index);
        }
        changed
    }

    /// Adds a stripe's parity to a meta block, and the writes to members that follow once the block
    /// is durable.
    fn commit(&mut self, sector: u64, stripe: &Stripe, content: &mut MetaBlockContent) {
        let map = self.map(sector);
        let parity = self.parity(sector);
        let mut ops = Vec::new();
        let mut write = |disk: usize, bytes: Vec<u8>| ops.push(Op::Write { disk, sector, bytes });
        for index in &stripe.cached {
            let value = self.content[self.array_block(sector, *index) as usize];
            write(map.data_slot(*index).index(), block_of(value));
        }
        let slots = std::iter::once(map.p_slot()).chain(map.q_slot());
        slots.zip(&parity).for_each(|(slot, bytes)| write(slot.index(), bytes.clone()));
        self.random.shuffle(&mut ops);
        content.parity(sector, parity);
        content.members.insert(sector, Out { ops, since: stripe.since });
    }

    /// Writes a meta block of new data for some stripes. Stripes that are written out get parity in
    /// the block: all in write-through mode, some in write-back mode.
    fn unit(&mut self) {
        let mut idle = self.idle();
        self.random.shuffle(&mut idle);
        idle.truncate(1 + self.random.below(3) as usize);
        let mut content = MetaBlockContent::default();
        content.flushed(std::mem::take(&mut self.told_flushed));
        let number = self.units.len();
        for sector in idle {
            let mut stripe = self.stripes.remove(&sector).unwrap_or_default();
            if stripe.cached.is_empty() {
                stripe.since = number;
            }
            let is_out = !self.is_write_back || !stripe.cached.is_empty() && self.random.chance(40);
            let changes = !self.is_write_back || !is_out || self.random.chance(50);
            let changed = if changes { self.change(sector, &mut content) } else { Vec::new() };
            stripe.cached.extend(changed);
            if is_out {
                self.commit(sector, &stripe, &mut content);
            } else if !stripe.cached.is_empty() {
                self.stripes.insert(sector, stripe);
            }
        }
        self.append(content);
    }

    /// Writes the parity of all cached data to the journal.
    fn write_out(&mut self) {
        let cached: Vec<u64> = self.stripes.keys().copied().collect();
        for sector in cached {
            let mut content = MetaBlockContent::default();
            let stripe = self.stripes.remove(&sector).unwrap_or_default();
            self.commit(sector, &stripe, &mut content);
            self.append(content);
        }
    }

    /// Writes a meta block and the blocks after it, in any order.
    fn append(&mut self, content: MetaBlockContent) {
        let (position, sequence) = self.head;
        let begin = self.ops.len();
        let meta = JournalMeta { sequence, position_sectors: position, payloads: content.payloads };
        let mut ops = vec![(position, meta.to_bytes(&UUID))];
        let mut at = position;
        for block in content.blocks {
            at = (at + BLOCK) % self.ring_sectors;
            ops.push((at, block));
        }
        self.head = ((at + BLOCK) % self.ring_sectors, sequence + 1);
        self.random.shuffle(&mut ops);
        let disk = self.journal();
        self.ops.extend(ops.into_iter().map(|(position, bytes)| Op::Write {
            disk,
            sector: JOURNAL_START + position,
            bytes,
        }));
        let first = self.writes.len();
        let durable = usize::MAX;
        let writes = content.writes.into_iter();
        self.writes.extend(writes.map(|(block, value)| Write { block, value, begin, durable }));
        let writes = (first..self.writes.len()).collect();
        self.units.push(Unit { position, members: content.members, writes, is_durable: false });
    }

    /// Flushes the journal, which makes all its meta blocks durable.
    fn flush_journal(&mut self) {
        self.ops.push(Op::Flush { disk: self.journal() });
        for unit in self.units.iter_mut().filter(|unit| !unit.is_durable) {
            unit.is_durable = true;
            for write in &unit.writes {
                self.writes[*write].durable = self.ops.len();
            }
        }
    }

    /// Writes to members some of the stripes that are due, in any order.
    fn write_members(&mut self, percent: u64) {
        let mut due = Vec::new();
        for unit in self.units.iter_mut().filter(|unit| unit.is_durable) {
            let sectors: Vec<u64> = unit.members.keys().copied().collect();
            for sector in sectors {
                if self.random.chance(percent) {
                    due.extend(unit.members.remove(&sector).map(|out| (sector, out.ops)));
                }
            }
        }
        self.random.shuffle(&mut due);
        for (sector, ops) in due {
            self.ops.extend(ops);
            if self.is_write_back {
                self.told_flushed.push(sector);
            }
        }
    }

    /// Flushes the members, and moves the tail to the last meta block before which a replay needs
    /// nothing.
    fn reclaim(&mut self) {
        let needed =
            self.units.iter().position(|unit| !unit.is_durable || !unit.members.is_empty());
        let out = self.units.iter().flat_map(|unit| unit.members.values().map(|out| out.since));
        let cached = self.stripes.values().map(|stripe| stripe.since).chain(out).min();
        let done = needed.unwrap_or(self.units.len()).saturating_sub(1);
        let tail = done.min(cached.unwrap_or(done)).max(self.tail);
        if tail == self.tail {
            return;
        }
        self.ops.extend((0..self.journal()).map(|disk| Op::Flush { disk }));
        let bytes = tail_sector(self.units[tail].position).to_vec();
        self.ops.push(Op::WriteDurably { disk: self.journal(), sector: 0, bytes });
        self.tail = tail;
    }

    fn make_room(&mut self) {
        self.flush_journal();
        self.write_members(100);
        if self.is_write_back {
            self.write_out();
            self.flush_journal();
            self.write_members(100);
        }
        self.reclaim();
    }

    fn step(&mut self) {
        // The largest meta block: three stripes with all data and parity.
        let most = 1 + 3 * u64::from(self.geometry.slots());
        if self.free_blocks() < most + self.reserved_blocks() + 8 {
            self.make_room();
        }
        match self.random.below(10) {
            0..=4 => self.unit(),
            5..=6 => self.flush_journal(),
            7..=8 => self.write_members(60),
            _ => self.reclaim(),
        }
    }
}

/// Payloads of a meta block, and the blocks that follow it.
#[derive(Default)]
struct MetaBlockContent {
    payloads: Vec<JournalPayload>,
    blocks: Vec<Vec<u8>>,
    writes: Vec<(u64, u64)>,
    members: BTreeMap<u64, Out>,
}

impl MetaBlockContent {
    fn data(&mut self, block: u64, bytes: Vec<u8>) {
        let checksums = vec![journal_block_checksum(&UUID, &bytes)];
        self.payloads.push(JournalPayload::Data { location: block * BLOCK, checksums });
        self.blocks.push(bytes);
    }

    fn parity(&mut self, location: u64, blocks: Vec<Vec<u8>>) {
        let checksums = blocks.iter().map(|block| journal_block_checksum(&UUID, block)).collect();
        self.payloads.push(JournalPayload::Parity { location, checksums });
        self.blocks.extend(blocks);
    }

    fn flushed(&mut self, stripes: Vec<u64>) {
        let flush = |stripe| JournalPayload::Flush { stripes: vec![stripe] };
        self.payloads.extend(stripes.into_iter().map(flush));
    }
}

/// Draws an array with a journal, and the operations of clients' writes.
pub(super) fn written(random: &mut Random) -> JournalHistory {
    let geometry = geometry(random);
    let slots = u64::from(geometry.slots());
    // A ring with room for few meta blocks, so that it wraps.
    let ring_sectors = BLOCK * (60 + 8 * slots + random.below(30));
    let blocks = geometry.capacity_sectors() / BLOCK;
    let first: Vec<u64> = (0..blocks).map(|block| mix(block) | 1 << 63).collect();
    let start = BLOCK * random.below(ring_sectors / BLOCK);
    let is_write_back = random.chance(60);
    let mut writer = Writer {
        random,
        is_write_back,
        geometry,
        ring_sectors,
        content: first.clone(),
        stripes: BTreeMap::new(),
        told_flushed: Vec::new(),
        units: Vec::new(),
        head: (start, 77),
        tail: 0,
        ops: Vec::new(),
        writes: Vec::new(),
        values: 0,
    };
    let mut disks = vec![Platter::new(geometry.used_sectors()); geometry.slots().into()];
    disks.push(Platter::new(JOURNAL_START + ring_sectors));
    for sector in (0..geometry.used_sectors()).step_by(BLOCK as usize) {
        let map = writer.map(sector);
        for index in 0..map.data_slots() {
            let value = first[writer.array_block(sector, index) as usize];
            disks[map.data_slot(index).index()].write_durably(sector, &block_of(value));
        }
        let slots = std::iter::once(map.p_slot()).chain(map.q_slot());
        for (slot, bytes) in slots.zip(writer.parity(sector)) {
            disks[slot.index()].write_durably(sector, &bytes);
        }
    }
    // mdadm creates a journal with an empty meta block.
    writer.append(MetaBlockContent::default());
    let journal = writer.journal();
    for op in std::mem::take(&mut writer.ops) {
        disks[journal].carry_out(&op);
    }
    disks[journal].flush();
    disks[journal].write_durably(0, &tail_sector(start));
    writer.units[0].is_durable = true;
    for _ in 0..30 {
        writer.step();
    }
    let Writer { ops, writes, .. } = writer;
    JournalHistory { geometry, ring_sectors, disks, ops, writes, first }
}
