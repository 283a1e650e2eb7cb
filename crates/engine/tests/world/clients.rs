//! The clients: what they ask, and whether what they are told agrees with the oracle.

use braid_engine::request::{Fault, Operation, Progress, Request, RequestId};
use braid_geometry::LogicalSector;

use crate::SECTOR;
use crate::memory::Payload;
use crate::model::{End, Version, fill, version_of};
use crate::world::{Did, Event, Flight, World};

/// What clients of a story ask for, and how often.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) zeroes: u64,
    pub(crate) trims: u64,
    pub(crate) flushes: u64,
    pub(crate) requests: u32,
    pub(crate) in_flight_max: usize,
}

impl Mix {
    pub(crate) const ALL: Self = Self {
        reads: 40,
        writes: 50,
        zeroes: 6,
        trims: 4,
        flushes: 4,
        requests: 40,
        in_flight_max: 8,
    };
}

impl World {
    /// Clients ask for what `mix` says, until all is answered.
    pub(crate) fn run(&mut self, mix: &Mix) {
        self.run_some(mix, u64::MAX);
        self.settle();
    }

    /// The same, but stops in the middle after so many steps.
    pub(crate) fn run_some(&mut self, mix: &Mix, steps: u64) {
        let end = self.clock.step.saturating_add(steps);
        let mut left = mix.requests;
        while left > 0 && self.clock.step < end {
            let in_flight = self.clients.flights.len() + self.clients.flushes.len();
            match self.step(in_flight < mix.in_flight_max) {
                Did::Issue => {
                    self.issue_any(mix);
                    left -= 1;
                }
                Did::Nothing => panic!("seed {}: requests hang", self.scene.seed),
                Did::Tick | Did::Something => {}
            }
        }
    }

    pub(crate) fn issue_any(&mut self, mix: &Mix) {
        let kind =
            self.random.weighted(&[mix.reads, mix.writes, mix.zeroes, mix.trims, mix.flushes]);
        let durable = self.random.chance(25);
        let may_punch = self.random.chance(50);
        let operation = match kind {
            0 => Operation::Read,
            1 => Operation::Write { durable },
            2 => Operation::WriteZeroes { may_punch, durable },
            3 => Operation::Trim,
            _ => {
                self.flush();
                return;
            }
        };
        let capacity = self.geometry.capacity_sectors();
        let longest = *self.random.pick(&[1, 4, 16, 64, 400]);
        let sectors = (1 + self.random.below(longest)).min(capacity);
        // Half of the requests meet near the start, so that they overlap.
        let room = capacity - sectors + 1;
        let room = if self.random.chance(50) { room.min(40) } else { room };
        let start = self.random.below(room);
        self.issue(operation, start, sectors);
    }

    pub(crate) fn issue(&mut self, operation: Operation, start: u64, sectors: u64) -> RequestId {
        let id = self.name();
        let began = self.clock.step;
        let version = match operation {
            Operation::Write { .. } => Some(id.0 as Version + 1),
            Operation::WriteZeroes { .. } | Operation::Trim => Some(0),
            Operation::Read => None,
        };
        let request = Request { id, operation, start: LogicalSector(start), sectors };
        let mut flight = Flight {
            request,
            progress: Progress::default(),
            began,
            allowed: Vec::new(),
            alone: true,
            keep: false,
            is_early: false,
        };
        if let Some(version) = version {
            self.model.begin((start, sectors), id.0, version);
            self.tell_readers((start, sectors), version);
        } else {
            let sectors = start..start + sectors;
            flight.alone = sectors.clone().all(|sector| self.model.is_at_rest(sector));
            flight.allowed = sectors.map(|sector| self.model.allowed(sector)).collect();
        }
        self.hand_payload(&request, version);
        for (shard, piece) in self.regions.split(&request) {
            flight.progress.issue();
            self.pending.push(Event::Piece { shard: usize::from(shard.0), piece });
        }
        assert_eq!(flight.progress.issued_all(), None, "no piece has been answered yet");
        self.clients.flights.insert(id, flight);
        id
    }

    /// Reads under way may see what is being written from now on.
    fn tell_readers(&mut self, (start, sectors): (u64, u64), version: Version) {
        for flight in self.clients.flights.values_mut() {
            let first = flight.request.start.0;
            for (sector, allowed) in (first..).zip(&mut flight.allowed) {
                if (start..start + sectors).contains(&sector) {
                    allowed.push(version);
                    flight.alone = false;
                }
            }
        }
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
        self.payloads.insert(request.id, Payload::new(data, is_read));
    }

    pub(crate) fn flush(&mut self) -> RequestId {
        let id = self.name();
        self.clients.flushes.insert(id, self.clock.step);
        self.array.handle_flush_request(self.clock.now, id);
        self.drain_array();
        id
    }

    pub(crate) fn answered(&mut self, id: RequestId, result: Result<(), Fault>) {
        let flight = self.clients.flights.remove(&id).expect("a request under way");
        let is_held = self.clients.holds.contains_key(&id);
        self.payloads.join(id);
        let payload = if is_held { None } else { self.payloads.remove(&id) };
        self.clients.answers.insert(id, result);
        let seed = self.scene.seed;
        if !self.scene.errors_allowed {
            assert_eq!(result, Ok(()), "seed {seed}: {:?} failed within tolerance", flight.request);
        }
        let Request { operation, start, sectors, .. } = flight.request;
        let range = (start.0, sectors);
        let times = (flight.began, self.clock.step);
        match operation {
            Operation::Read => {
                if result.is_ok() {
                    let data = payload.expect("a read has a payload").data;
                    self.check_read(&flight, &data);
                    if flight.keep {
                        self.clients.kept.insert(id, data);
                    }
                }
            }
            Operation::Write { durable } | Operation::WriteZeroes { durable, .. } => {
                let end = if result.is_ok() { End::Done { durable } } else { End::Unsure };
                self.model.end(range, id.0, times, end);
                if result.is_ok() && !flight.is_early {
                    self.check_written(range, durable, 0..=self.clock.step);
                }
            }
            Operation::Trim => self.model.end(range, id.0, times, End::Unsure),
        }
    }

    fn check_read(&mut self, flight: &Flight, data: &[u8]) {
        let seed = self.scene.seed;
        let first = flight.request.start.0;
        for (index, data) in data.chunks_exact(SECTOR).enumerate() {
            let sector = first + index as u64;
            let allowed = &flight.allowed[index];
            let version = version_of(sector, data);
            let version = version.unwrap_or_else(|| {
                panic!("seed {seed}: sector {sector} reads as nothing that was ever written there")
            });
            assert!(
                allowed.contains(&version),
                "seed {seed}: sector {sector} reads as version {version}, not one of {allowed:?}"
            );
            if flight.alone && !self.scene.errors_allowed {
                self.model.settle(sector, version);
            }
        }
    }

    /// The whole array, as clients read it.
    pub(crate) fn read_all(&mut self) -> Vec<u8> {
        let capacity = self.geometry.capacity_sectors();
        let mut content = Vec::new();
        let mut start = 0;
        while start < capacity {
            let sectors = (capacity - start).min(1000);
            content.extend(self.read(start, sectors).expect("all can be read"));
            start += sectors;
        }
        content
    }

    /// One read, alone, and what came of it.
    pub(crate) fn read(&mut self, start: u64, sectors: u64) -> Result<Vec<u8>, Fault> {
        let id = self.issue(Operation::Read, start, sectors);
        self.clients.flights.get_mut(&id).expect("just issued").keep = true;
        self.settle();
        self.clients.answers[&id]?;
        Ok(self.clients.kept.remove(&id).expect("it was to be kept"))
    }

    /// One write, alone, and what came of it.
    pub(crate) fn write(&mut self, start: u64, sectors: u64) -> Result<(), Fault> {
        let id = self.issue(Operation::Write { durable: false }, start, sectors);
        self.settle();
        self.clients.answers[&id]
    }
}
