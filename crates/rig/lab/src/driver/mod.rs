//! A tight driver of one engine shard: no threads, and no system calls but the clock.
//!
//! ```text
//!   issue(request) ─▶ Split ─▶ Shard ─▶ computations: computation::run over [`Bytes`]
//!                               ▲  └──▶ member I/O: a copy, or nothing
//!                               └──────  results, in batches: all that are out, again and again
//! ```
//!
//! Members are memory, where every request is one copy. Or they are null, where reads bring nothing
//! and writes vanish, so that only the engine is measured. Requests are in sectors; a request's
//! number is that of its payload.
//!
//! Invariants
//! - Reads return written bytes, healthy and degraded: `what_is_written_is_read`.

mod bytes;
mod free;
mod load;

use std::sync::Arc;

use crate::pages::Pages;
use braid_engine::array::ArrayView;
use braid_engine::effect::Report;
use braid_engine::effect::{MemberIo, MemberIoDone, MemberOperation};
use braid_engine::request::{Operation, Regions, Request, RequestId};
use braid_engine::{CacheConfig, Counters, Instant, Shard, Tuning, UNIT_SECTORS_MAX, computation};
use braid_geometry::{Geometry, Level, LogicalSector, SECTOR_BYTES, Shape, default_layout};
use braid_parity::Kernel;
use bytes::{Bytes, SECTOR};
use free::Free;
pub use load::{Load, Pattern, Places};

/// The byte that fills members at first. Parity over an even number of slots is then right.
const UNWRITTEN: u8 = 0x35;

/// Whether members store bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Members are memory: a request is one copy.
    Memory,
    /// Members are null: a request does nothing.
    Null,
}

/// The array of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The kind of the members.
    pub kind: Kind,
    /// Slots of the RAID-5.
    pub slots: u16,
    /// Sectors in a chunk.
    pub chunk_sectors: u32,
    /// Sectors of each member that the array uses.
    pub member_sectors: u64,
    /// A slot that has no member, if any.
    pub missing: Option<u16>,
    /// Settings of the stripe cache.
    pub tuning: Tuning,
    /// Number of payloads. They are needed for requests in flight, and for acknowledged writes that
    /// are not yet on the members.
    pub payloads: usize,
    /// Sectors of each payload.
    pub payload_sectors: u32,
}

#[derive(Clone, Copy, Debug)]
enum Clock {
    /// Real time since the driver was made.
    Real(std::time::Instant),
    /// A time that advances by [`TURN_NS`] in each turn.
    Turns,
}

const TURN_NS: u64 = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pieces {
    unanswered: u32,
    /// Number of acknowledged pieces whose payload is still in use.
    kept: u32,
}

/// A shard, and the code that carries out its effects.
#[derive(Debug)]
pub struct Driver {
    shard: Shard,
    regions: Regions,
    capacity_sectors: u64,
    bytes: Bytes,
    /// The members' bytes, indexed by slot; empty with null members.
    members: Vec<Pages>,
    kernel: &'static Kernel,
    now: Instant,
    results: Vec<MemberIoDone>,
    clock: Clock,
    is_writing_back: bool,
    rounds: u64,
    /// The pieces of each request, indexed by the request's number.
    pieces: Vec<Pieces>,
    /// Requests answered since the last count.
    answered: u64,
    free: Free,
}

impl Driver {
    /// A driver of a clean RAID-5.
    ///
    /// # Panics
    /// If such a RAID-5 is impossible.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let geometry = Geometry::new(&Shape::uniform(
            Level::Raid5,
            default_layout(Level::Raid5),
            plan.chunk_sectors,
            plan.slots,
            plan.member_sectors,
        ))
        .expect("a RAID-5");
        let regions = Regions::new(&geometry, 1);
        let capacity_sectors = geometry.capacity_sectors();
        let cache = CacheConfig::in_memory(plan.chunk_sectors.min(UNIT_SECTORS_MAX), plan.tuning);
        let mut view = ArrayView::consistent(geometry);
        if let Some(missing) = plan.missing {
            view.slots[usize::from(missing)] = None;
        }
        let shard = Shard::new(cache, Arc::new(view));
        let block_bytes = bytes_of(shard.block_sectors());
        let payload_bytes = bytes_of(plan.payload_sectors);
        let bytes = Bytes::new(
            (shard.arena_blocks() as usize, block_bytes),
            (plan.payloads, payload_bytes),
        );
        let size = usize::try_from(plan.member_sectors * SECTOR_BYTES).expect("fits into memory");
        let members = match plan.kind {
            // Members are filled, since unwritten memory is a single page of zeroes, which stays in
            // every cache.
            Kind::Memory => (0..plan.slots).map(|_| Pages::filled(size, UNWRITTEN)).collect(),
            Kind::Null => Vec::new(),
        };
        Self {
            shard,
            regions,
            capacity_sectors,
            bytes,
            members,
            kernel: braid_parity::kernel(),
            now: Instant(0),
            clock: Clock::Real(std::time::Instant::now()),
            is_writing_back: false,
            rounds: 0,
            results: Vec::new(),
            pieces: vec![Pieces::default(); plan.payloads],
            answered: 0,
            free: Free::new(plan.payloads),
        }
    }

    /// The same driver for counted work: with this parity kernel, and with a clock that only turns
    /// advance.
    #[must_use]
    pub fn counting(self, kernel: &'static Kernel) -> Self {
        Self { kernel, clock: Clock::Turns, ..self }
    }

    /// Sectors of the array.
    #[must_use]
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    /// The shard's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.shard.counters()
    }

    /// The payload of a request.
    pub fn payload(&mut self, request: RequestId) -> &mut [u8] {
        self.bytes.payload(request)
    }

    /// Gives a request to the shard, without carrying out any effects.
    pub fn issue(&mut self, id: RequestId, operation: Operation, start: u64, sectors: u32) {
        let request =
            Request { id, operation, start: LogicalSector(start), sectors: u64::from(sectors) };
        for (_, piece) in self.regions.split(&request) {
            self.pieces[index(id)].unanswered += 1;
            self.shard.handle_piece(self.now, piece);
        }
    }

    /// Carries out the shard's effects once, and delivers the results. Returns whether the shard
    /// had any effects.
    pub fn turn(&mut self) -> bool {
        self.now = self.time();

        let mut any = false;
        // Computations alternate with effects, so that a result is written while it is in the
        // processor's caches.
        loop {
            while let Some(io) = self.shard.poll_member_io() {
                carry_out(&mut self.members, &mut self.bytes, &io);
                self.results.push(MemberIoDone { id: io.id, result: Ok(()) });
            }
            let Some(mut computation) = self.shard.poll_computation() else { break };
            any = true;
            computation::run(&mut computation, self.kernel, &mut self.bytes);
            self.shard.handle_computation_done(self.now, computation);
        }
        any |= !self.results.is_empty();
        for done in self.results.drain(..) {
            self.shard.handle_member_io(self.now, done);
        }
        while let Some(reply) = self.shard.poll_reply() {
            assert!(reply.result.is_ok(), "no member fails here: {reply:?}");
            let pieces = &mut self.pieces[index(reply.request)];
            pieces.unanswered -= 1;
            pieces.kept += u32::from(reply.keeps_payload);
            self.answered += u64::from(pieces.unanswered == 0);
            self.give_back(reply.request);
        }
        while let Some(request) = self.shard.poll_release() {
            any = true;
            self.pieces[index(request)].kept -= 1;
            self.give_back(request);
        }
        while let Some(report) = self.shard.poll_report() {
            assert!(!matches!(report, Report::WriteLost { .. }), "no member fails here");
            self.is_writing_back &= !matches!(report, Report::WrittenBack { .. });
        }
        if self.shard.poll_timeout().is_some_and(|at| at <= self.now) {
            any = true;
            self.shard.handle_timeout(self.now);
        }
        any
    }

    /// Frees the payload of a request if no piece of the request needs it.
    fn give_back(&mut self, request: RequestId) {
        if self.pieces[index(request)] == Pieces::default() {
            self.free.give(request);
        }
    }

    /// A free payload for the next request.
    pub fn free_payload(&mut self) -> Option<RequestId> {
        self.free.take()
    }

    /// Requests answered since the last call.
    pub fn take_answered(&mut self) -> u64 {
        std::mem::take(&mut self.answered)
    }

    /// Whether the shard will have more work, even if it has none now.
    #[must_use]
    pub fn expects_more(&self) -> bool {
        self.shard.poll_timeout().is_some()
    }

    /// Runs until all data is on the members.
    pub fn settle(&mut self) {
        self.rounds += 1;
        self.is_writing_back = true;
        self.shard.handle_write_back(self.now, self.rounds);
        while self.turn() || self.is_writing_back {}
    }

    fn time(&self) -> Instant {
        Instant(match self.clock {
            Clock::Real(start) => u64::try_from(start.elapsed().as_nanos()).expect("some years"),
            Clock::Turns => self.now.0 + TURN_NS,
        })
    }
}

fn index(request: RequestId) -> usize {
    usize::try_from(request.0).expect("payloads are numbered from zero")
}

fn bytes_of(sectors: u32) -> usize {
    sectors as usize * SECTOR
}

fn carry_out(members: &mut [Pages], bytes: &mut Bytes, io: &MemberIo) {
    let Some(member) = members.get_mut(usize::from(io.slot.0)) else { return };
    let start = usize::try_from(io.sector.0 * SECTOR_BYTES).expect("inside of memory");
    let length = bytes_of(io.sectors);
    let member = &mut member[start..start + length];
    match io.operation {
        MemberOperation::Read { buffer } => bytes.run(buffer, length).copy_from_slice(member),
        MemberOperation::Write { buffer, .. } => member.copy_from_slice(bytes.run(buffer, length)),
        MemberOperation::Zero { .. } => member.fill(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn plan(missing: Option<u16>) -> Plan {
        Plan {
            kind: Kind::Memory,
            slots: 4,
            chunk_sectors: 16,
            member_sectors: 4096,
            missing,
            tuning: Tuning { stripes: 16, ..Tuning::default() },
            payloads: 400,
            payload_sectors: 96,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for missing in [None, Some(2)] {
            let mut driver = Driver::new(plan(missing));
            let mut random = Random::new(3);
            let capacity = usize::try_from(driver.capacity_sectors()).unwrap();
            let mut wanted = vec![UNWRITTEN; capacity];
            for round in 1..2000_u32 {
                let sectors = 1 + random.below(96);
                let start = random.below(driver.capacity_sectors() - sectors);
                let sectors = u32::try_from(sectors).unwrap();
                let range = usize::try_from(start).unwrap()..;
                let wanted = &mut wanted[range][..sectors as usize];
                let byte = u8::try_from(round % 251).unwrap();
                let is_write = random.below(2) == 0;
                let id = driver.free_payload().expect("it was answered");
                let operation = if is_write {
                    driver.payload(id)[..bytes_of(sectors)].fill(byte);
                    wanted.fill(byte);
                    Operation::Write { durable: false }
                } else {
                    Operation::Read
                };
                driver.issue(id, operation, start, sectors);
                while driver.take_answered() == 0 {
                    driver.turn();
                }
                if random.below(50) == 0 {
                    driver.settle();
                }
                let read = driver.payload(id).chunks(SECTOR);
                for (read, wanted) in read.zip(wanted) {
                    assert!(read.iter().all(|byte| byte == wanted), "round {round}");
                }
            }
        }
    }
}
