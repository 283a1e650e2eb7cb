//! The clients: what they ask, and what they are told.
//!
//! Requests go to the engine directly, in sectors. Three shapes: anything anywhere (half of it near
//! the start, so that requests overlap), a journal (small durable writes one after another, and a
//! flush now and then), a copy (long writes one after another). Every request is numbered and draws
//! from a stream of its own; one that is left out takes its place in the sequence all the same.

use std::collections::BTreeMap;

use braid_engine::request::{Fault, Operation, Progress, Request, RequestId};
use braid_geometry::{Family, LogicalSector};

use crate::chances::Purpose;
use crate::content::{SECTOR, Version, fill};
use crate::cut::Kind;
use crate::memory::Payload;
use crate::model::End;
use crate::random::Random;
use crate::schedule::Event;
use crate::world::World;

/// A client's request under way.
pub(crate) struct Flight {
    pub(crate) request: Request,
    pub(crate) progress: Progress,
    pub(crate) began: u64,
    /// Where to put the bytes of a read that is to be kept.
    pub(crate) keep: bool,
}

pub(crate) struct Clients {
    pub(crate) flights: BTreeMap<RequestId, Flight>,
    /// Flushes under way and the step at which each was asked for.
    pub(crate) flushes: BTreeMap<RequestId, u64>,
}

impl Clients {
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() + self.flushes.len()
    }

    /// When the oldest read under way began; the end of time if there is none.
    pub(crate) fn oldest_read(&self) -> u64 {
        let reads = self.flights.values().filter(|flight| !flight.request.operation.is_write());
        reads.map(|flight| flight.began).min().unwrap_or(u64::MAX)
    }
}

/// What clients ask for, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Anything,
    Journal { next: u64 },
    Copy { next: u64 },
}

/// A request, before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Flush,
    Range { operation: Operation, start: u64, sectors: u64 },
}

/// The clients of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) shape: Shape,
    pub(crate) requests: u64,
    pub(crate) in_flight_max: usize,
    /// Requests that were drawn, left out or not.
    drawn: u64,
    /// The next request and its number in this cycle.
    ready: Option<(u64, Ask)>,
}

impl Workload {
    pub(crate) fn any(world: &World) -> Self {
        let capacity = world.geometry.capacity_sectors();
        let mut random = world.chances.of(Purpose::Workload, 0);
        let next = random.below(capacity);
        let shape = match random.below(4) {
            0 => Shape::Journal { next },
            1 => Shape::Copy { next },
            _ => Shape::Anything,
        };
        let in_flight_max = *random.pick(&[1, 2, 4, 8]);
        Self { shape, requests: 1 + random.below(10), in_flight_max, drawn: 0, ready: None }
    }

    /// Whether there is a request to issue; draws it.
    pub(crate) fn is_ready(&mut self, world: &World) -> bool {
        while self.ready.is_none() && self.drawn < self.requests {
            let ordinal = self.drawn;
            self.drawn += 1;
            let mut random = world.chances.of(Purpose::Workload, 1 + ordinal);
            let ask = self.draw(world.geometry.capacity_sectors(), &mut random);
            if !world.chances.leaves_out(Kind::Request, ordinal) {
                self.ready = Some((ordinal, ask));
            }
        }
        self.ready.is_some()
    }

    /// All requests with their numbers.
    #[cfg(test)]
    pub(crate) fn all(mut self, world: &World) -> Vec<(u64, Ask)> {
        let next = || {
            self.is_ready(world);
            self.ready.take()
        };
        std::iter::from_fn(next).collect()
    }

    /// Issues the next request, if one is ready.
    pub(crate) fn issue(&mut self, world: &mut World) {
        let Some((ordinal, ask)) = self.ready.take() else { return };
        world.trace.label(world.chances.number(Kind::Request, ordinal));
        match ask {
            Ask::Flush => world.flush(),
            Ask::Range { operation, start, sectors } => {
                world.issue(operation, start, world.chances.sectors(sectors))
            }
        };
    }

    fn draw(&mut self, capacity: u64, random: &mut Random) -> Ask {
        match &mut self.shape {
            Shape::Anything => anything(capacity, random),
            Shape::Journal { next } => {
                if random.chance(25) {
                    return Ask::Flush;
                }
                let sectors = (1 + random.below(4)).min(capacity);
                let start = if *next + sectors > capacity { 0 } else { *next };
                let durable = random.chance(50);
                *next = start + sectors;
                Ask::Range { operation: Operation::Write { durable }, start, sectors }
            }
            Shape::Copy { next } => {
                let sectors = (8 + random.below(56)).min(capacity);
                let start = if *next + sectors > capacity { 0 } else { *next };
                *next = start + sectors;
                Ask::Range { operation: Operation::Write { durable: false }, start, sectors }
            }
        }
    }
}

fn anything(capacity: u64, random: &mut Random) -> Ask {
    let durable = random.chance(25);
    let may_punch = random.chance(50);
    let operation = match random.below(100) {
        0..25 => Operation::Read,
        25..80 => Operation::Write { durable },
        80..86 => Operation::WriteZeroes { may_punch, durable },
        86..90 => Operation::Trim,
        _ => return Ask::Flush,
    };
    let longest = *random.pick(&[1, 4, 16, 64, 200]);
    let sectors = (1 + random.below(longest)).min(capacity);
    let room = capacity - sectors + 1;
    let room = if random.chance(50) { room.min(24) } else { room };
    let start = random.below(room);
    Ask::Range { operation, start, sectors }
}

impl World {
    fn name(&mut self) -> RequestId {
        let name = self.next_request;
        self.next_request = RequestId(name.0 + 1);
        self.tally.requests += 1;
        name
    }

    pub(crate) fn issue(&mut self, operation: Operation, start: u64, sectors: u64) -> RequestId {
        let id = self.name();
        let began = self.clock.step;
        let version = match operation {
            Operation::Write { .. } => Some(id.0 as Version + 1),
            Operation::WriteZeroes { .. } | Operation::Trim => Some(0),
            Operation::Read => None,
        };
        let word = match operation {
            Operation::Read => "ask-read",
            Operation::Write { durable: false } => "ask-write",
            Operation::Write { durable: true } => "ask-fua",
            Operation::WriteZeroes { .. } => "ask-zero",
            Operation::Trim => "ask-trim",
        };
        self.note(word, [id.0, start, sectors]);
        let request = Request { id, operation, start: LogicalSector(start), sectors };
        let progress = Progress::default();
        let mut flight = Flight { request, progress, began, keep: false };
        if let Some(version) = version {
            self.model.begin((start, sectors), id.0, version);
        }
        self.hand_payload(&request, version);
        for (shard, piece) in self.engine.machines.regions.split(&request) {
            flight.progress.issue();
            self.engine.pending.push(Event::Piece { shard: usize::from(shard.0), piece });
        }
        assert_eq!(flight.progress.issued_all(), None, "no piece has been answered yet");
        self.engine.clients.flights.insert(id, flight);
        id
    }

    fn hand_payload(&mut self, request: &Request, version: Option<Version>) {
        let is_read = request.operation == Operation::Read;
        let is_write = matches!(request.operation, Operation::Write { .. });
        if !is_read && !is_write {
            return;
        }
        let mut data = vec![0x77; request.sectors as usize * SECTOR];
        if let Some(version) = version {
            for (sector, out) in (request.start.0..).zip(data.chunks_exact_mut(SECTOR)) {
                fill(version, sector, out);
            }
        }
        self.engine.payloads.insert(request.id, Payload { data, may_change: is_read });
    }

    pub(crate) fn flush(&mut self) -> RequestId {
        let id = self.name();
        self.note("ask-flush", [id.0, 0, 0]);
        self.engine.clients.flushes.insert(id, self.clock.step);
        self.engine.machines.array.handle_flush_request(self.clock.now, id);
        self.drain_array();
        id
    }

    pub(crate) fn answered(&mut self, id: RequestId, result: Result<(), Fault>) {
        self.note("answer", [id.0, u64::from(result.is_ok()), 0]);
        let flight = self.engine.clients.flights.remove(&id).expect("a request under way");
        self.check_error_allowed(result, &flight.request);
        let Request { operation, start, sectors, .. } = flight.request;
        if operation.is_write() && result.is_ok() {
            self.superblocks_have_told();
        }
        let range = (start.0, sectors);
        let times = (flight.began, self.clock.step);
        match operation {
            Operation::Read => {
                if result.is_ok() {
                    let data = &self.engine.payloads[&id].data;
                    self.tally.sectors_checked += sectors;
                    self.model.check_read(range, data, times, self.engine.trust);
                }
            }
            Operation::Write { durable } | Operation::WriteZeroes { durable, .. } => {
                let end = if result.is_ok() { End::Done { durable } } else { End::Unsure };
                self.model.end(range, id.0, times, end);
            }
            Operation::Trim => self.model.end(range, id.0, times, End::Unsure),
        }
        if !(flight.keep && result.is_ok()) {
            self.engine.payloads.remove(&id);
        }
    }

    /// A write was answered: before it, superblocks were written to every member, by which those that
    /// are absent are out and those that take part are in, whatever happened before.
    fn superblocks_have_told(&mut self) {
        self.engine.has_written = true;
        self.out.append(&mut self.absent);
        if self.geometry.level().family() != Family::Direct {
            for member in &self.engine.machines.members {
                self.unsure.remove(&member.disk);
            }
        }
    }

    pub(crate) fn flush_answered(&mut self, id: RequestId, result: Result<(), Fault>) {
        self.note("answer", [id.0, u64::from(result.is_ok()), 1]);
        let asked = self.engine.clients.flushes.remove(&id).expect("a flush under way");
        if result.is_ok() {
            self.model.flushed(asked, self.engine.clients.oldest_read());
        } else {
            assert!(self.engine.trust.errors_allowed, "a flush failed within tolerance");
        }
    }

    /// The whole array, as clients read it; none if some of it cannot be read.
    pub(crate) fn read_all(&mut self) -> Option<Vec<u8>> {
        let capacity = self.geometry.capacity_sectors();
        let length = 64;
        let starts: Vec<u64> = (0..capacity).step_by(length as usize).collect();
        let mut reads = Vec::new();
        for start in starts {
            let id = self.issue(Operation::Read, start, length.min(capacity - start));
            self.engine.clients.flights.get_mut(&id).expect("just issued").keep = true;
            reads.push(id);
        }
        self.settle();
        let mut content = Vec::with_capacity(capacity as usize * SECTOR);
        let mut is_whole = true;
        for id in reads {
            match self.engine.payloads.remove(&id) {
                Some(payload) => content.extend_from_slice(&payload.data),
                None => is_whole = false,
            }
        }
        is_whole.then_some(content)
    }
}
