//! The writes in doubt at a step: a power cut may keep or undo each of them.
//!
//! ```text
//!   cell    a sector of a disk that this telling writes, or that holds a superblock
//!   value   possible bytes of a cell; the first are those on stable storage, one for each cell
//!   write   its values, all of one disk: first the unflushed writes in order, then those in flight
//! ```
//!
//! A *telling* is one run of a story, with a schedule and perhaps a failing member
//! (`story.rs`). If only the process ends, disks keep unflushed writes, and any of the writes
//! in flight.
//!
//! All hashes are relative to the disks before the story. An unchanged cell has the hash zero, so
//! that stories of one array can be compared.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::content::{SECTOR, bytes};
use crate::disk::Disk;
use crate::model::Model;
use crate::random::{fold, mix};
use crate::schedule::Event;
use crate::world::World;

const NONE: usize = usize::MAX;

/// A sector of a disk.
pub(super) struct Cell {
    pub(super) disk: usize,
    pub(super) sector: u64,
    /// The hash of the cell's bytes before the story.
    first: u64,
    /// While values are gathered: the index of the cell's newest value.
    newest: usize,
}

/// A possible content of a cell.
pub(super) struct Value {
    pub(super) cell: usize,
    pub(super) hash: u64,
}

/// A write that a power cut may keep or undo.
pub(super) struct DoubtfulWrite {
    pub(super) disk: usize,
    pub(super) values: Range<usize>,
}

pub(super) struct Doubt {
    first: Vec<Disk>,
    /// By disk and sector: the index of the cell.
    places: Vec<Vec<usize>>,
    pub(super) cells: Vec<Cell>,
    /// First the value of each cell on stable storage, then the values of the writes in doubt.
    pub(super) values: Vec<Value>,
    bytes: Vec<u8>,
    pub(super) items: Vec<DoubtfulWrite>,
    /// How many of the first `items` have reached disks. The others are in flight.
    pub(super) unflushed: usize,
    /// The model after a power cut.
    pub(super) model: Model,
    /// The model after the end of the process alone.
    pub(super) killed: Model,
    pub(super) out: BTreeSet<usize>,
    pub(super) unsure: BTreeSet<usize>,
    /// Hash of the sets of disks that are out or unsure.
    pub(super) standing: u64,
    pub(super) knowledge: u64,
    /// Hash of the disks that are out or unsure, and of the model after the end of the process
    /// alone. `knowledge` is this hash after a power cut.
    pub(super) knowledge_killed: u64,
    /// Hook for tests: distorts the model before a power cut. The checkers must notice that.
    pub(super) distort: fn(&mut Model),
}

impl Doubt {
    /// Begins the stories of one array. `first`: its disks before each story.
    pub(super) fn new(first: &[Disk], model: Model) -> Self {
        let sectors = |disk: &Disk| vec![NONE; disk.size_bytes() as usize / SECTOR];
        Self {
            places: first.iter().map(sectors).collect(),
            first: first.to_vec(),
            cells: Vec::new(),
            values: Vec::new(),
            bytes: Vec::new(),
            items: Vec::new(),
            unflushed: 0,
            killed: model.clone(),
            model,
            out: BTreeSet::new(),
            unsure: BTreeSet::new(),
            standing: 0,
            knowledge: 0,
            knowledge_killed: 0,
            distort: |_| {},
        }
    }

    /// Begins another telling (one run of a story). The first cells are the superblocks, given as
    /// disk and sector.
    pub(super) fn begin(&mut self, superblocks: &[(usize, u64)]) {
        for cell in self.cells.drain(..) {
            self.places[cell.disk][cell.sector as usize] = NONE;
        }
        for (disk, sector) in superblocks {
            self.touch(*disk, *sector, 1);
        }
    }

    fn touch(&mut self, disk: usize, start: u64, sectors: u64) {
        for sector in start..start + sectors {
            if self.places[disk][sector as usize] == NONE {
                self.places[disk][sector as usize] = self.cells.len();
                let first = hash(disk, sector, &self.first[disk].seen[bytes(sector, 1)]);
                self.cells.push(Cell { disk, sector, first, newest: NONE });
            }
        }
    }

    pub(super) fn bytes_of(&self, value: usize) -> &[u8] {
        &self.bytes[bytes(value as u64, 1)]
    }

    /// Makes cells of all sectors that a write in doubt can change. Must be called at every step.
    pub(super) fn notice(&mut self, world: &mut World) -> Vec<(usize, u64, Vec<u8>)> {
        let under_way = under_way(world);
        for (disk, start, data) in &under_way {
            self.touch(*disk, *start, (data.len() / SECTOR) as u64);
        }
        for (index, disk) in world.disks.iter().enumerate() {
            for (sector, _, _) in disk.logged() {
                self.touch(index, sector, 1);
            }
        }
        under_way
    }

    /// Gathers the writes in doubt if power is cut now. Disks that failed become `unsure`.
    pub(super) fn gather(&mut self, world: &mut World) {
        let under_way = self.notice(world);
        debug_assert!(self.is_noticed(&world.disks), "a sector changed without a noted write");
        self.values.clear();
        self.bytes.clear();
        self.items.clear();
        for cell in 0..self.cells.len() {
            let Cell { disk, sector, .. } = self.cells[cell];
            self.cells[cell].newest = cell;
            self.push(cell, &world.disks[disk].seen[bytes(sector, 1)]);
        }
        for (index, disk) in world.disks.iter().enumerate() {
            self.gather_unflushed(index, disk);
        }
        self.unflushed = self.items.len();
        for (disk, start, data) in &under_way {
            let from = self.values.len();
            for (sector, data) in (*start..).zip(data.chunks_exact(SECTOR)) {
                self.push(self.places[*disk][sector as usize], data);
            }
            self.items.push(DoubtfulWrite { disk: *disk, values: from..self.values.len() });
        }
        for (index, value) in self.values.iter_mut().enumerate() {
            let Cell { disk, sector, first, .. } = self.cells[value.cell];
            value.hash = first ^ hash(disk, sector, &self.bytes[bytes(index as u64, 1)]);
        }
        self.know(world);
    }

    fn is_noticed(&self, disks: &[Disk]) -> bool {
        let same = |disk: usize, sector: u64| {
            let (now, first) = (&disks[disk].seen, &self.first[disk].seen);
            let range = bytes(sector, 1);
            self.places[disk][sector as usize] != NONE || now[range.clone()] == first[range]
        };
        let sectors = |disk: &Disk| disk.size_bytes() / SECTOR as u64;
        let mut indexed = disks.iter().enumerate();
        indexed.all(|(index, disk)| (0..sectors(disk)).all(|sector| same(index, sector)))
    }

    fn push(&mut self, cell: usize, data: &[u8]) {
        self.values.push(Value { cell, hash: 0 });
        self.bytes.extend_from_slice(data);
    }

    /// Gathers the unflushed writes of a disk. The bytes of each write are those that the next
    /// write to the sector logged, or the present ones.
    fn gather_unflushed(&mut self, index: usize, disk: &Disk) {
        let mut last = None;
        for (sector, write, before) in disk.logged() {
            let cell = self.places[index][sector as usize];
            let earlier = self.cells[cell].newest;
            self.bytes[bytes(earlier as u64, 1)].copy_from_slice(before);
            let value = self.values.len();
            self.cells[cell].newest = value;
            self.push(cell, &disk.seen[bytes(sector, 1)]);
            if last != Some(write) {
                self.items.push(DoubtfulWrite { disk: index, values: value..value });
                last = Some(write);
            }
            if let Some(item) = self.items.last_mut() {
                item.values.end = value + 1;
            }
        }
    }

    fn know(&mut self, world: &World) {
        self.model.clone_from(&world.model);
        (self.distort)(&mut self.model);
        let held = &world.engine.held;
        self.model.lose_process(world.clock.step, Some(&|write| held.is_held(write)));
        self.killed.clone_from(&self.model);
        self.killed.begin_anew();
        self.model.lose_power(true);
        self.out.clone_from(&world.out);
        self.unsure.clone_from(&world.unsure);
        self.unsure.extend(&world.engine.plan.victims);
        let mask =
            |disks: &BTreeSet<usize>| disks.iter().fold(0_u64, |mask, disk| mask | 1 << disk);
        self.standing = fold(mask(&self.out), mask(&self.unsure));
        self.knowledge = fold(self.standing, self.model.digest());
        self.knowledge_killed = fold(fold(self.standing, 1), self.killed.digest());
    }

    /// A hash of everything that a power cut now can leave.
    pub(super) fn hash(&mut self) -> u64 {
        let stable = self.values[..self.cells.len()].iter().fold(0, |sum, one| sum ^ one.hash);
        let mut sum = fold(self.knowledge, stable);
        // Of the order of writes, only the order within one sector counts.
        self.cells.iter_mut().for_each(|cell| cell.newest = 0);
        for item in &self.items {
            let mut one = item.disk as u64;
            for value in &self.values[item.values.clone()] {
                let cell = &mut self.cells[value.cell];
                let place = (value.cell << 8 | cell.newest) as u64;
                one = fold(fold(one, place), value.hash);
                cell.newest += 1;
            }
            sum = sum.wrapping_add(mix(one));
        }
        sum
    }
}

/// Writes of data and superblocks that are at the disks: disk, first sector, bytes.
fn under_way(world: &mut World) -> Vec<(usize, u64, Vec<u8>)> {
    let mut ios = Vec::new();
    let mut writes = Vec::new();
    for event in world.engine.pending.iter() {
        match event {
            Event::Io(vector) => {
                ios.extend(vector.parts.iter().filter(|(_, io)| io.operation.is_write()).copied());
            }
            Event::Superblock { member, state, time } => {
                let mut side = world.engine.machines.members[usize::from(member.0)].clone();
                let (start, data) = side.superblock_for(&world.disks, *member, (state, *time));
                writes.push((side.disk, start, data));
            }
            Event::BadBlocks { .. } => unreachable!("jobs are paused in small worlds"),
            _ => {}
        }
    }
    for (shard, io) in ios {
        let (disk, start) = world.place_of(&io);
        let (data, _) = world.bytes_to_write(shard, &io);
        writes.push((disk, start, data));
    }
    writes
}

/// A number that changes whenever the writes in doubt, or the knowledge, can have changed.
pub(super) fn pulse(world: &World) -> u64 {
    let mut hash = fold(world.tally.requests, world.engine.clients.in_flight() as u64);
    hash = fold(hash, world.engine.held.pieces());
    hash = fold(hash, (world.out.len() << 8 | world.engine.plan.victims.len()) as u64);
    for event in world.engine.pending.iter() {
        match event {
            Event::Io(vector) => {
                for (shard, io) in vector.parts.iter().filter(|(_, io)| io.operation.is_write()) {
                    hash = fold(hash, io.id.0 << 8 | *shard as u64);
                }
            }
            Event::Superblock { member, state, .. } => {
                hash = fold(hash, 1 << 63 | state.events << 16 | u64::from(member.0));
            }
            _ => {}
        }
    }
    world.disks.iter().fold(hash, |hash, disk| fold(hash, disk.logged().count() as u64))
}

/// Hash of a sector's bytes and place, computed in four lanes.
fn hash(disk: usize, sector: u64, data: &[u8]) -> u64 {
    let mut lanes = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 7_u64];
    for words in data.as_chunks::<32>().0 {
        for (lane, word) in lanes.iter_mut().zip(words.as_chunks::<8>().0) {
            let word = u64::from_le_bytes(*word);
            *lane = (*lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    let place = (disk as u64) << 32 | sector;
    lanes.into_iter().fold(place, fold)
}
