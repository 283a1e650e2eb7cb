//! Background work in one shard: what a comparison says, and how it stands beside clients' writes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::members::{SECTOR, bytes, parity};
use crate::memory::{Payload, Payloads, Reach};
use crate::random::Random;
use braid_engine::array::{ArrayView, Gate, MemberId, MemberView};
use braid_engine::cause::Answer;
use braid_engine::computation::{self, Computation};
use braid_engine::effect::{FaultKind, MemberIo, MemberIoDone, MemberOperation, Report};
use braid_engine::request::{Operation, Piece, RequestId};
use braid_engine::work::{Class, Difference, Outcome, Purpose, Task, Work, WorkId};
use braid_engine::{BadBlocks, CacheConfig, CacheMode, Instant, Shard, Tuning};
use braid_geometry::{ChunkRow, Geometry, Level, LogicalSector, MemberSector, Shape, Slot};

const CHUNK: u32 = 8;
const ROWS: u64 = 64;

/// A shard of one array over members in memory, whose requests and computations end when a test says so.
struct Bench {
    geometry: Geometry,
    shard: Shard,
    members: Vec<Vec<u8>>,
    arena: Vec<u8>,
    payloads: Payloads,
    ios: VecDeque<MemberIo>,
    computations: VecDeque<Computation>,
    outcomes: BTreeMap<WorkId, Outcome>,
    replies: usize,
    /// Members that cannot be read.
    bad: Vec<MemberId>,
    now: u64,
}

impl Bench {
    fn new(level: Level, slots: u16, missing: Option<u16>) -> Self {
        let shape = Shape {
            level,
            layout: braid_geometry::default_layout(level),
            chunk_sectors: CHUNK,
            slots,
            member_sectors: vec![u64::from(CHUNK) * ROWS; usize::from(slots)],
        };
        let geometry = Geometry::new(&shape).expect("a plain shape");
        let member = |slot: u16| {
            (Some(slot) != missing).then(|| MemberView {
                id: MemberId(slot),
                recovered_sectors: u64::MAX,
                bad_blocks: Arc::new(BadBlocks::default()),
            })
        };
        let view = ArrayView {
            epoch: 1,
            geometry: Arc::new(geometry.clone()),
            gate: Gate::Open,
            slots: (0..slots).map(member).collect(),
            resync_offset: u64::MAX,
            zero_is_fast: false,
        };
        let tuning = Tuning { stripes: 32, mode: CacheMode::WriteThrough, ..Tuning::default() };
        let cache = CacheConfig { unit_sectors_max: CHUNK, stripes_max: 32, tuning };
        let shard = Shard::new(cache, Arc::new(view));
        let arena = vec![0x44; shard.arena_blocks() as usize * CHUNK as usize * SECTOR];
        let mut bench = Self {
            geometry,
            shard,
            members: vec![vec![0; bytes(0, shape.member_sectors[0]).len()]; usize::from(slots)],
            arena,
            payloads: Payloads::new(),
            ios: VecDeque::new(),
            computations: VecDeque::new(),
            outcomes: BTreeMap::new(),
            replies: 0,
            bad: Vec::new(),
            now: 1,
        };
        let mut random = Random::new(7);
        bench.members.iter_mut().flatten().for_each(|byte| *byte = random.next() as u8);
        (0..ROWS).for_each(|row| bench.make_parity(row));
        bench
    }

    fn make_parity(&mut self, row: u64) {
        let Geometry::Stripe(stripe) = &self.geometry else { unreachable!("it has parity") };
        let map = stripe.row_map(ChunkRow(row));
        let run = bytes(row * u64::from(CHUNK), u64::from(CHUNK));
        let slots = (0..stripe.data_slots()).map(|index| usize::from(map.data_slot(index).0));
        let columns: Vec<&[u8]> = slots.map(|slot| &self.members[slot][run.clone()]).collect();
        for (slot, bytes) in parity(stripe, ChunkRow(row), &columns) {
            self.members[usize::from(slot.0)][run.clone()].copy_from_slice(&bytes);
        }
    }

    fn tick(&mut self) -> Instant {
        self.now += 1000;
        Instant(self.now)
    }

    fn drain(&mut self) {
        self.computations.extend(std::iter::from_fn(|| self.shard.poll_computation()));
        self.ios.extend(std::iter::from_fn(|| self.shard.poll_member_io()));
        while let Some(reply) = self.shard.poll_reply() {
            assert_eq!(reply.result, Ok(()));
            self.replies += 1;
        }
        while let Some(report) = self.shard.poll_report() {
            if let Report::WorkDone { id, outcome } = report {
                assert_eq!(self.outcomes.insert(id, outcome), None, "{id:?} has one result");
            }
        }
    }

    fn ask(&mut self, id: u64, row: u64) {
        let start = MemberSector(row * u64::from(CHUNK));
        let work = Work { id: WorkId(id), class: Class::Idle, task: Task::Compare, start };
        let now = self.tick();
        self.shard.handle_work(now, work);
        self.drain();
    }

    fn write(&mut self, id: u64, start: u64, fill: u8) {
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

    /// Lets a request or a computation end: the one at `chosen`, of all that are out.
    fn end(&mut self, chosen: usize) {
        let now = self.tick();
        let block_bytes = CHUNK as usize * SECTOR;
        let mut reach = Reach { arena: &mut self.arena, block_bytes, payloads: &mut self.payloads };
        if chosen < self.ios.len() {
            let io = self.ios.remove(chosen).expect("it is out");
            let run = bytes(io.sector.0, u64::from(io.sectors));
            let member = &mut self.members[usize::from(io.member.0)];
            let mut result = Ok(());
            match io.operation {
                MemberOperation::Read { .. } if self.bad.contains(&io.member) => {
                    result = Err(io.fault(FaultKind::Media, 0, Answer::Os(5)));
                }
                MemberOperation::Read { buffer } => {
                    let run = &member[run];
                    reach.bytes(buffer, run.len(), true).copy_from_slice(run);
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

    fn out(&self) -> usize {
        self.ios.len() + self.computations.len()
    }

    fn run(&mut self) {
        while self.out() > 0 {
            self.end(0);
        }
        assert!(self.shard.is_idle(), "nothing is under way, so nothing waits");
    }

    /// Compares one row, alone.
    fn compare(&mut self, row: u64) -> Outcome {
        self.ask(1000 + row, row);
        self.run();
        self.outcomes.remove(&WorkId(1000 + row)).expect("it has a result")
    }
}

fn sectors(difference: &Difference) -> (Vec<u32>, Vec<u32>) {
    (difference.p.offsets().collect(), difference.q.offsets().collect())
}

#[test]
fn a_comparison_says_which_sectors_differ_and_in_which_parity() {
    for (level, slots) in [
        (Level::Raid4, 3),
        (Level::Raid5, 4),
        (Level::Raid5, 3),
        (Level::Raid6, 4),
        (Level::Raid6, 6),
    ] {
        let mut bench = Bench::new(level, slots, None);
        let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!() };
        for row in [0, 1, 5, ROWS - 1] {
            assert_eq!(bench.compare(row), Outcome::Compared(Difference::default()), "{level:?}");
            let map = stripe.row_map(ChunkRow(row));
            for slot in 0..slots {
                let mut bad = Vec::new();
                for sector in [0, 3, CHUNK - 1] {
                    let first = bytes(row * u64::from(CHUNK) + u64::from(sector), 1).start;
                    bench.members[usize::from(slot)][first + 77] ^= 0x10;
                    bad.push(sector);
                    let Outcome::Compared(found) = bench.compare(row) else {
                        panic!("all of it can be read")
                    };
                    let is_p = map.p_slot() == Slot(slot);
                    let is_q = map.q_slot() == Some(Slot(slot));
                    let p = if is_q { vec![] } else { bad.clone() };
                    let q = if is_p || map.q_slot().is_none() { vec![] } else { bad.clone() };
                    assert_eq!(sectors(&found), (p, q), "{level:?} row {row} slot {slot}");
                }
                for sector in bad {
                    let first = bytes(row * u64::from(CHUNK) + u64::from(sector), 1).start;
                    bench.members[usize::from(slot)][first + 77] ^= 0x10;
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_read_is_not_compared() {
    let mut bench = Bench::new(Level::Raid6, 5, Some(2));
    assert_eq!(bench.compare(3), Outcome::Unreadable, "a slot is empty");
    let mut bench = Bench::new(Level::Raid6, 5, None);
    bench.bad.push(MemberId(4));
    assert_eq!(bench.compare(3), Outcome::Unreadable, "a member has a bad sector");
    bench.bad.clear();
    assert_eq!(bench.compare(3), Outcome::Compared(Difference::default()));
}

/// A write that was half done while its band was read would differ.
#[test]
fn a_band_is_compared_between_two_writes() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(Level::Raid6, 5, None);
        let (mut written, mut asked) = (0, 0);
        while written < 12 || asked < 12 || bench.out() > 0 {
            match random.below(4) {
                0 if written < 12 => {
                    written += 1;
                    // Two rows, of which one is compared: some writes meet it, some do not.
                    let start = random.below(6) * u64::from(CHUNK);
                    bench.write(written, start, random.next() as u8);
                }
                1 if asked < 12 => {
                    asked += 1;
                    bench.ask(asked, 0);
                }
                _ if bench.out() > 0 => bench.end(random.below(bench.out() as u64) as usize),
                _ => {}
            }
        }
        assert!(bench.shard.is_idle(), "seed {seed}");
        assert_eq!((bench.outcomes.len(), bench.replies), (12, 12), "seed {seed}");
        for outcome in bench.outcomes.values() {
            assert_eq!(*outcome, Outcome::Compared(Difference::default()), "seed {seed}");
        }
        assert_eq!(bench.compare(1), Outcome::Compared(Difference::default()), "seed {seed}");
    }
}

/// A job that asks for much at once took all places, and a client's read of a lost member waited for it.
#[test]
fn background_work_leaves_places_for_clients() {
    let mut bench = Bench::new(Level::Raid5, 4, None);
    (0..ROWS).for_each(|row| bench.ask(row, row));
    let asked = bench.ios.len();
    assert!(asked > 0 && asked <= 16 * 4, "a part of the places: {asked} requests");
    let purpose = Purpose::Background(Class::Idle);
    assert!(bench.ios.iter().all(|io| bench.shard.purpose_of(io) == purpose));
    assert!(!bench.shard.is_idle(), "most of it waits");
    bench.bad.push(MemberId(0));
    let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!() };
    let map = stripe.row_map(ChunkRow(40));
    let index = (0..3).find(|index| map.data_slot(*index) == Slot(0)).expect("it has data here");
    let start = stripe.logical(ChunkRow(40), index, 0);
    let data = vec![0; CHUNK as usize * SECTOR];
    bench.payloads.insert(RequestId(1), Payload::new(data, true));
    let now = bench.tick();
    let piece = Piece {
        request: RequestId(1),
        operation: Operation::Read,
        start,
        sectors: CHUNK,
        payload_offset_sectors: 0,
    };
    bench.shard.handle_piece(now, piece);
    bench.drain();
    // Its own member fails it twice: read past the stripes, and as one column of its band.
    (0..2).for_each(|_| bench.end(bench.ios.len() - 1));
    let newcomers = bench.ios.iter().skip(asked).collect::<Vec<_>>();
    assert_eq!(newcomers.len(), 3, "the others of its row are read at once: {newcomers:?}");
    assert!(newcomers.iter().all(|io| bench.shard.purpose_of(io) == Purpose::Client));
    let run = bytes(40 * u64::from(CHUNK), u64::from(CHUNK));
    let held = bench.members[0][run].to_vec();
    bench.run();
    assert_eq!(bench.payloads[&RequestId(1)].data, held);
    assert!((0..ROWS).all(|row| bench.outcomes.contains_key(&WorkId(row))), "and all work is done");
}

/// Work that bands with a batch had kept out was not counted: it took every place when the batches ended.
#[test]
fn work_that_was_kept_out_leaves_places_for_clients() {
    let mut bench = Bench::new(Level::Raid5, 4, None);
    let rows = 24;
    for row in 0..rows {
        bench.write(1000 + row, row * 3 * u64::from(CHUNK), 7);
    }
    (0..rows).for_each(|row| bench.ask(row, row));
    let purpose = Purpose::Background(Class::Idle);
    let mut most = 0;
    while bench.out() > 0 {
        let is_work = |io: &&MemberIo| bench.shard.purpose_of(io) == purpose;
        let starts = bench.ios.iter().filter(is_work).map(|io| io.sector.0);
        most = most.max(starts.collect::<std::collections::BTreeSet<_>>().len());
        // What a client waits for first, so that much work begins before any ends.
        let is_client = |io: &MemberIo| bench.shard.purpose_of(io) != purpose;
        let chosen = bench.ios.iter().position(is_client);
        let computes = bench.computations.front().map(|_| bench.ios.len());
        bench.end(chosen.or(computes).unwrap_or(0));
    }
    assert!(most > 1 && most <= 16, "{most} bands at once");
    assert_eq!(bench.outcomes.len(), 24);
}

/// A job's reads wait behind those of clients, for seconds where an elevator lets clients go first; a client's write of the band
/// waited with them.
#[test]
fn idle_work_gives_its_band_up_to_a_write() {
    let mut bench = Bench::new(Level::Raid5, 4, None);
    bench.ask(1, 0);
    let idle = std::mem::take(&mut bench.ios);
    assert_eq!(idle.len(), 4, "all of the band is read");
    bench.write(2, 0, 9);
    while bench.out() > 0 && bench.replies == 0 {
        bench.end(0);
    }
    assert_eq!(bench.replies, 1, "the write is over before the reads");
    assert_eq!(bench.outcomes.len(), 0, "the work is not");
    let again = bench.ios.iter().map(|io| bench.shard.purpose_of(io)).collect::<Vec<_>>();
    assert_eq!(again, [Purpose::Background(Class::BestEffort); 4], "it begins again, in its turn");
    bench.write(3, 0, 10);
    bench.ios.extend(idle);
    bench.run();
    assert_eq!((bench.replies, bench.outcomes.len()), (2, 1));
    assert_eq!(bench.outcomes[&WorkId(1)], Outcome::Compared(Difference::default()));
}
