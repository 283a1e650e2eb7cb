//! A bench for one shard, with members in memory. Requests and computations end when the test says
//! so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::members::{SECTOR, bytes, parity, places};
use crate::memory::{Payload, Payloads, ReachableMemory};
use crate::random::Random;
use braid_engine::array::{ArrayView, MemberId};
use braid_engine::cause::Answer;
use braid_engine::computation::{self, Computation};
use braid_engine::effect::{FaultKind, MemberIo, MemberIoDone, MemberOperation, Report};
use braid_engine::request::{Operation, Piece, RequestId};
use braid_engine::work::{Class, Finding, Outcome, Task, Work, WorkId};
use braid_engine::{CacheConfig, CacheMode, Instant, Shard, Tuning};
use braid_geometry::{ChunkRow, Geometry, Level, LogicalSector, Shape};

pub(crate) const CHUNK: u32 = 8;
pub(crate) const ROWS: u64 = 64;

pub(crate) struct Bench {
    pub(crate) geometry: Geometry,
    pub(crate) shard: Shard,
    pub(crate) members: Vec<Vec<u8>>,
    pub(crate) arena: Vec<u8>,
    pub(crate) payloads: Payloads,
    pub(crate) ios: VecDeque<MemberIo>,
    pub(crate) computations: VecDeque<Computation>,
    pub(crate) outcomes: BTreeMap<WorkId, Outcome>,
    pub(crate) found: Vec<Finding>,
    /// Members that acknowledge writes and lose them.
    pub(crate) deaf: Vec<MemberId>,
    /// Members that fail writes.
    pub(crate) stubborn: Vec<MemberId>,
    pub(crate) replies: usize,
    /// Members that fail reads.
    pub(crate) bad: Vec<MemberId>,
    /// Sectors that fail reads until they are written.
    pub(crate) bad_sectors: BTreeSet<(MemberId, u64)>,
    pub(crate) now: u64,
}

impl Bench {
    pub(crate) fn new(level: Level, slots: u16, missing: Option<u16>) -> Self {
        Self::with_view(level, slots, |view| {
            missing.into_iter().for_each(|slot| view.slots[usize::from(slot)] = None);
        })
    }

    /// A shard on members of this level, after `change` has changed its view.
    pub(crate) fn with_view(level: Level, slots: u16, change: impl FnOnce(&mut ArrayView)) -> Self {
        let shape = Shape::uniform(
            level,
            braid_geometry::default_layout(level),
            if level == Level::Raid1 { 0 } else { CHUNK },
            slots,
            u64::from(CHUNK) * ROWS,
        );
        let geometry = Geometry::new(&shape).expect("a plain shape");
        let mut view = ArrayView::consistent(geometry.clone());
        change(&mut view);
        let tuning = Tuning { stripes: 32, mode: CacheMode::WriteThrough, ..Tuning::default() };
        let shard = Shard::new(CacheConfig::in_memory(CHUNK, tuning), Arc::new(view));
        let block = bytes(0, u64::from(shard.block_sectors())).len();
        let arena = vec![0x44; shard.arena_blocks() as usize * block];
        let mut bench = Self {
            geometry,
            shard,
            members: vec![vec![0; bytes(0, shape.member_sectors[0]).len()]; usize::from(slots)],
            arena,
            payloads: Payloads::new(),
            ios: VecDeque::new(),
            computations: VecDeque::new(),
            outcomes: BTreeMap::new(),
            found: Vec::new(),
            deaf: Vec::new(),
            stubborn: Vec::new(),
            replies: 0,
            bad: Vec::new(),
            bad_sectors: BTreeSet::new(),
            now: 1,
        };
        let mut random = Random::new(7);
        bench.members.iter_mut().flatten().for_each(|byte| *byte = random.next() as u8);
        match bench.geometry.level() {
            Level::Raid1 | Level::Raid10 => bench.make_copies(),
            _ => (0..ROWS).for_each(|row| bench.make_parity(row)),
        }
        bench
    }

    /// The bytes of an array sector in one of its copies.
    pub(crate) fn held(&self, sector: u64, copy: usize) -> &[u8] {
        let (slot, place) = places(&self.geometry, sector)[copy];
        &self.members[usize::from(slot.0)][bytes(place.0, 1)]
    }

    fn make_copies(&mut self) {
        for sector in 0..self.geometry.capacity_sectors() {
            let all = places(&self.geometry, sector);
            let held = self.held(sector, 0).to_vec();
            for (slot, place) in &all[1..] {
                self.members[usize::from(slot.0)][bytes(place.0, 1)].copy_from_slice(&held);
            }
        }
    }

    pub(crate) fn make_parity(&mut self, row: u64) {
        let Geometry::Stripe(stripe) = &self.geometry else { unreachable!("it has parity") };
        let map = stripe.row_map(ChunkRow(row));
        let run = bytes(row * u64::from(CHUNK), u64::from(CHUNK));
        let slots = (0..stripe.data_slots()).map(|index| usize::from(map.data_slot(index).0));
        let columns: Vec<&[u8]> = slots.map(|slot| &self.members[slot][run.clone()]).collect();
        for (slot, bytes) in parity(stripe, ChunkRow(row), &columns) {
            self.members[usize::from(slot.0)][run.clone()].copy_from_slice(&bytes);
        }
    }

    pub(crate) fn tick(&mut self) -> Instant {
        self.now += 1000;
        Instant(self.now)
    }

    pub(crate) fn drain(&mut self) {
        self.computations.extend(std::iter::from_fn(|| self.shard.poll_computation()));
        self.ios.extend(std::iter::from_fn(|| self.shard.poll_member_io()));
        while let Some(reply) = self.shard.poll_reply() {
            assert_eq!(reply.result, Ok(()));
            self.replies += 1;
        }
        while let Some(report) = self.shard.poll_report() {
            match report {
                Report::WorkDone { id, outcome } => {
                    assert_eq!(self.outcomes.insert(id, outcome), None, "{id:?} has one result");
                }
                Report::Found { id, found } => {
                    assert!(!self.outcomes.contains_key(&id), "it is found before the end");
                    self.found.push(found);
                }
                _ => {}
            }
        }
    }

    pub(crate) fn ask(&mut self, id: u64, row: u64) {
        self.ask_for(id, row, Task::Compare);
    }

    pub(crate) fn ask_for(&mut self, id: u64, row: u64, task: Task) {
        let start = row * u64::from(self.shard.block_sectors());
        let block = u64::from(self.shard.block_sectors());
        // On levels with copies, the last work item ends where the array ends.
        let sectors = match &self.geometry {
            Geometry::Mirror(mirror) => block.min(mirror.capacity_sectors() - start),
            _ => block,
        };
        let sectors = u32::try_from(sectors).expect("a block");
        let work = Work { id: WorkId(id), class: Class::Idle, task, start, sectors };
        let now = self.tick();
        self.shard.handle_work(now, work);
        self.drain();
    }

    pub(crate) fn write(&mut self, id: u64, start: u64, fill: u8) {
        let data = vec![fill; CHUNK as usize * SECTOR];
        self.payloads.insert(RequestId(id), Payload::new(data, false));
        let now = self.tick();
        let piece = Piece {
            request: RequestId(id),
            operation: Operation::Write { durable: false },
            start: LogicalSector(start),
            sectors: CHUNK,
            payload_offset_sectors: 0,
        };
        self.shard.handle_piece(now, piece);
        self.drain();
    }

    /// Completes the request or computation at index `chosen` of all in flight.
    pub(crate) fn end(&mut self, chosen: usize) {
        let now = self.tick();
        let block_bytes = bytes(0, u64::from(self.shard.block_sectors())).len();
        let mut reach =
            ReachableMemory { arena: &mut self.arena, block_bytes, payloads: &mut self.payloads };
        if chosen < self.ios.len() {
            let io = self.ios.remove(chosen).expect("it is out");
            let run = bytes(io.sector.0, u64::from(io.sectors));
            let member = &mut self.members[usize::from(io.member.0)];
            let mut result = Ok(());
            let sectors =
                (io.member, io.sector.0)..(io.member, io.sector.0 + u64::from(io.sectors));
            let is_bad = self.bad.contains(&io.member);
            let is_bad = is_bad || self.bad_sectors.range(sectors.clone()).next().is_some();
            if io.operation.is_write() {
                self.bad_sectors.retain(|sector| !sectors.contains(sector));
            }
            match io.operation {
                MemberOperation::Read { .. } if is_bad => {
                    result = Err(io.fault(FaultKind::Media, 0, Answer::Os(5)));
                }
                MemberOperation::Read { buffer } => {
                    let run = &member[run];
                    reach.bytes(buffer, run.len(), true).copy_from_slice(run);
                }
                MemberOperation::Write { .. } if self.deaf.contains(&io.member) => {}
                MemberOperation::Write { .. } if self.stubborn.contains(&io.member) => {
                    result = Err(io.fault(FaultKind::Media, 0, Answer::Os(5)));
                }
                MemberOperation::Write { buffer, .. } => {
                    let run = &mut member[run];
                    run.copy_from_slice(reach.bytes(buffer, run.len(), false));
                }
                MemberOperation::Zero { .. } => member[run].fill(0),
            }
            self.shard.handle_member_io(now, MemberIoDone { id: io.id, result });
        } else {
            let chosen = chosen - self.ios.len();
            let mut computation = self.computations.remove(chosen).expect("it is out");
            computation::run(&mut computation, braid_parity::kernel(), &mut reach);
            self.shard.handle_computation_done(now, computation);
        }
        self.drain();
    }

    pub(crate) fn out(&self) -> usize {
        self.ios.len() + self.computations.len()
    }

    pub(crate) fn run(&mut self) {
        while self.out() > 0 {
            self.end(0);
        }
        assert!(self.shard.is_idle(), "nothing is under way, so nothing waits");
    }

    pub(crate) fn compare(&mut self, row: u64) -> Outcome {
        self.carry_out(row, Task::Compare)
    }

    pub(crate) fn carry_out(&mut self, row: u64, task: Task) -> Outcome {
        self.ask_for(1000 + row, row, task);
        self.run();
        self.outcomes.remove(&WorkId(1000 + row)).expect("it has a result")
    }
}
