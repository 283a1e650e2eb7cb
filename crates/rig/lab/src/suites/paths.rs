//! For the suites `read` and `write`: the engine under the tight driver, over memory and null
//! members.
//!
//! *bare* makes the same copies and the same parity without any engine, so that the difference is
//! the engine. *bdevperf* is SPDK's raid5f, if its program is named; see [`Peer`].

use std::cell::RefCell;

use braid_engine::request::Operation;
use braid_engine::{CacheMode, Tuning};
use braid_parity::kernel;

use super::bdevperf::Peer;
use crate::driver::{Driver, Kind, Load, Pattern, Places, Plan};
use crate::frame::{Case, Contender, Metric, Report, Series, Settings, Target, race};
use crate::pages::Pages;
use crate::random::Random;

pub(super) const RATE: &str = "requests";
pub(super) const BYTES: &str = "payload";
const PEER: &str = "bdevperf";
const METRICS: [Metric; 3] = [
    Metric::more(RATE, "1/s"),
    Metric::more(BYTES, "GB/s"),
    Metric::less("time of a request", "ns"),
];

/// The number of slots in the peers' figures. The chunk and the full stripe are those of the peers
/// as well.
const SLOTS: u16 = 4;
pub(super) const CHUNK_SECTORS: u32 = 128;
pub(super) const ROW_SECTORS: u32 = 3 * CHUNK_SECTORS;
pub(super) const TUNING: Tuning = Tuning {
    stripes: 256,
    mode: CacheMode::WriteBack,
    bypass_threshold: 1,
    dirty_sectors_max: 32 << 10,
    age_max_ms: 500,
    expects_flushes: true,
};
pub(super) const BLOCK_SECTORS: u32 = 8;

#[derive(Clone, Copy)]
pub(super) struct Path {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) missing: Option<u16>,
    pub(super) load: Load,
    pub(super) targets: &'static [Target],
}

/// A load of this many requests, with as many requests at once as keep a worker busy.
pub(super) const fn load(operation: Operation, sectors: u32, pattern: Pattern) -> Load {
    let (depth, requests) = if sectors > 64 { (32, 8192) } else { (128, 400_000) };
    Load { operation, sectors, pattern, depth, requests }
}

impl Path {
    fn plan(&self, settings: &Settings) -> Plan {
        let member_bytes: u64 = if settings.small { 4 << 20 } else { 128 << 20 };
        Plan {
            kind: self.kind,
            slots: SLOTS,
            chunk_sectors: CHUNK_SECTORS,
            member_sectors: member_bytes / 512,
            missing: self.missing,
            tuning: TUNING,
            payloads: self.load.depth + (TUNING.dirty_sectors_max / self.load.sectors) as usize,
            payload_sectors: self.load.sectors,
        }
    }

    fn load(&self, settings: &Settings) -> Load {
        let requests = self.load.requests / if settings.small { 100 } else { 1 };
        Load { requests, ..self.load }
    }

    fn values(&self, requests: u64, seconds: f64) -> Vec<f64> {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let requests = requests as f64;
        let bytes = requests * f64::from(self.load.sectors) * 512.0;
        vec![requests / seconds, bytes / seconds / 1e9, seconds / requests * 1e9]
    }

    /// Runs the case with one worker. The bare copies take part if the case has them, and a peer if
    /// it supports the case.
    pub(super) fn run(&self, settings: &Settings, report: &mut Report, peer: Option<&Peer>) {
        if !settings.wants(self.name) {
            return;
        }
        let load = self.load(settings);
        let peer = peer.and_then(|peer| self.reached(settings, peer, report).map(|_| peer));
        let mut driver = Driver::new(self.plan(settings));
        let mut places = Places::new(&load, driver.capacity_sectors(), 1);
        let mut bare = (self.kind == Kind::Memory && self.missing.is_none())
            .then(|| Bare::new(self, settings));
        let shared = RefCell::new(report);
        let mut contenders = Vec::new();
        if let Some(bare) = &mut bare {
            contenders.push(Contender::new("bare", || self.values(load.requests, bare.run(&load))));
        }
        contenders.push(Contender::new("braid", || {
            let seconds = load.run(&mut driver, &mut places);
            driver.settle();
            shared.borrow_mut().engine(format!("{}, braid", self.name), &driver.counters());
            self.values(load.requests, seconds)
        }));
        if let Some(peer) = peer {
            contenders.push(Contender::new(PEER, || {
                let reached = self.reached(settings, peer, &mut shared.borrow_mut());
                // A failed turn has no figure, and makes the peer's whole series invalid.
                reached.unwrap_or_else(|| vec![f64::NAN; METRICS.len()])
            }));
        }
        let case = race(settings, self.name, &METRICS, contenders).map(whole);
        let beside = peer.map(|_| Target::ratio(RATE, "braid", PEER, 1.0));
        let targets = self.targets.iter().cloned().chain(beside);
        shared.into_inner().add(case.map(|case| case.with(targets)));
    }

    /// The peer's values under the same load. If the peer fails, its message is noted once.
    fn reached(&self, settings: &Settings, peer: &Peer, report: &mut Report) -> Option<Vec<f64>> {
        match peer.run(&self.plan(settings), &self.load(settings)) {
            Ok(reached) => Some(self.values(1, 1.0 / reached.requests_per_second)),
            Err(why) => {
                let line = format!("{}: without {PEER}, {why}", self.name);
                if !report.notes.contains(&line) {
                    report.note(line);
                }
                None
            }
        }
    }

    /// Compares two workers, each with a shard of its own, with one worker.
    pub(super) fn run_twice(&self, settings: &Settings) -> Option<Case> {
        if !settings.wants(self.name) {
            return None;
        }
        let load = self.load(settings);
        let worker = |seed: u64| {
            let driver = Driver::new(self.plan(settings));
            let places = Places::new(&load, driver.capacity_sectors(), seed);
            (driver, places)
        };
        let workers = RefCell::new([worker(1), worker(2)]);
        let go = |count: usize| {
            let mut workers = workers.borrow_mut();
            let start = std::time::Instant::now();
            std::thread::scope(|scope| {
                for (driver, places) in &mut workers[..count] {
                    scope.spawn(|| load.run(driver, places));
                }
            });
            let seconds = start.elapsed().as_secs_f64();
            workers.iter_mut().for_each(|(driver, _)| driver.settle());
            self.values(load.requests * count as u64, seconds)
        };
        let contenders =
            vec![Contender::new("one worker", || go(1)), Contender::new("two workers", || go(2))];
        let case = race(settings, self.name, &METRICS, contenders);
        case.map(|case| case.with([Target::ratio(RATE, "two workers", "one worker", 1.8)]))
    }
}

/// Drops the variants that failed in a turn.
fn whole(mut case: Case) -> Case {
    let has_all = |series: &Series| series.values.iter().all(|value| value.is_finite());
    case.figures.iter_mut().for_each(|figure| figure.series.retain(has_all));
    case
}

/// The peer that the environment names. Without one, adds a note and returns `None`.
pub(super) fn peer(settings: &Settings, report: &mut Report, paths: &[Path]) -> Option<Peer> {
    if !paths.iter().any(|path| settings.wants(path.name)) {
        return None;
    }
    match Peer::look() {
        Ok(peer) => {
            report.note(
                "bdevperf: SPDK's raid5f, of the named version, by its own clock; one \
                         polling core, huge pages, malloc or null members, the same chunk, depth \
                         and blocks",
            );
            Some(peer)
        }
        Err(why) => {
            report.note(format!("SPDK's raid5f beside braid: skipped, {why}"));
            None
        }
    }
}

/// A contender that makes the same copies and the same parity without an engine.
struct Bare {
    members: Vec<Pages>,
    payloads: Vec<Pages>,
    parity: Pages,
    random: Random,
    next: usize,
}

impl Bare {
    fn new(path: &Path, settings: &Settings) -> Self {
        let plan = path.plan(settings);
        let member_bytes = usize::try_from(plan.member_sectors * 512).expect("fits into memory");
        let payload_bytes = plan.payload_sectors as usize * 512;
        Self {
            members: (0..plan.slots).map(|_| Pages::filled(member_bytes, 1)).collect(),
            payloads: (0..path.load.depth).map(|_| Pages::filled(payload_bytes, 2)).collect(),
            parity: Pages::filled(payload_bytes, 0),
            random: Random::new(1),
            next: 0,
        }
    }

    fn run(&mut self, load: &Load) -> f64 {
        let start = std::time::Instant::now();
        for request in 0..load.requests {
            let payload = usize::try_from(request).expect("few") % self.payloads.len();
            match (load.operation, load.pattern) {
                (Operation::Read, Pattern::Random) => self.read_block(payload),
                (Operation::Read, Pattern::Sequential) => self.read_row(payload),
                (_, Pattern::Random) => self.modify_block(payload),
                (_, Pattern::Sequential) => self.write_row(payload),
            }
        }
        start.elapsed().as_secs_f64()
    }

    fn somewhere(&mut self, bytes: usize) -> (usize, usize) {
        let slot = usize::try_from(self.random.below(self.members.len() as u64)).expect("few");
        let places = (self.members[slot].len() / bytes) as u64;
        (slot, usize::try_from(self.random.below(places)).expect("in memory") * bytes)
    }

    fn read_block(&mut self, payload: usize) {
        let length = self.payloads[payload].len();
        let (slot, at) = self.somewhere(length);
        self.payloads[payload].copy_from_slice(&self.members[slot][at..at + length]);
    }

    /// Xors old data and old parity in place, as code would that has both in memory already.
    fn modify_block(&mut self, payload: usize) {
        let length = self.payloads[payload].len();
        let (slot, at) = self.somewhere(length);
        let old = &mut self.parity[..length];
        old.copy_from_slice(&self.members[slot][at..at + length]);
        kernel().xor_into(old, &[&self.payloads[payload]]);
        let parity_slot = (slot + 1) % self.members.len();
        kernel().xor_into(&mut self.members[parity_slot][at..at + length], &[old]);
        self.members[slot][at..at + length].copy_from_slice(&self.payloads[payload]);
    }

    /// The place of the next row, and the length of its chunks.
    fn row(&mut self, payload: usize) -> (usize, usize) {
        let length = self.payloads[payload].len() / (self.members.len() - 1);
        self.next = (self.next + 1) % (self.members[0].len() / length);
        (self.next * length, length)
    }

    fn read_row(&mut self, payload: usize) {
        let (at, length) = self.row(payload);
        let slots = self.members.len();
        let begin = at / length % slots;
        for (index, chunk) in self.payloads[payload].chunks_exact_mut(length).enumerate() {
            chunk.copy_from_slice(&self.members[(begin + index) % slots][at..at + length]);
        }
    }

    fn write_row(&mut self, payload: usize) {
        let (at, length) = self.row(payload);
        let slots = self.members.len();
        let begin = at / length % slots;
        let chunks: Vec<&[u8]> = self.payloads[payload].chunks_exact(length).collect();
        let parity = &mut self.parity[..length];
        kernel().xor(parity, &chunks);
        for (index, chunk) in chunks.iter().chain([&&*parity]).enumerate() {
            self.members[(begin + index) % slots][at..at + length].copy_from_slice(chunk);
        }
    }
}

/// Measures memcpy on this machine, in this run: 4 KiB from random places, and 64 KiB in sequence,
/// out of far more memory than the caches hold.
pub(super) fn memcpy(settings: &Settings) -> Option<Case> {
    let metrics = [Metric::more("copied", "GB/s")];
    let size = if settings.small { 4 << 20 } else { 512 << 20 };
    let name = "memcpy, the yardstick";
    if !settings.wants(name) {
        return None;
    }
    let from = Pages::filled(size, 3);
    let turn = |block: usize, seed: u64| {
        let mut random = Random::new(seed);
        let mut to = Pages::filled(block * 64, 0);
        let count = size / block / 2;
        let start = std::time::Instant::now();
        for number in 0..count {
            let at = if block > 4096 {
                number * block
            } else {
                usize::try_from(random.below((size / block) as u64)).expect("in memory") * block
            };
            let to = &mut to[number % 64 * block..][..block];
            to.copy_from_slice(&from[at..at + block]);
            std::hint::black_box(&to);
        }
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let bytes = (count * block) as f64;
        vec![bytes / start.elapsed().as_secs_f64() / 1e9]
    };
    let contenders = vec![
        Contender::new("4 KiB random", || turn(4 << 10, 5)),
        Contender::new("64 KiB in order", || turn(64 << 10, 5)),
    ];
    race(settings, name, &metrics, contenders)
}

pub(super) const QUOTED: &str = "SPDK raid5f v26.05, quoted, not measured here";
