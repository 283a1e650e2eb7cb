//! Suite `priority`: the order of stripes, if some are full and others must read first.
//!
//! *before* and *seed* are models ([`md`]), *braid* is the engine ([`engine`]), and *knows all* is
//! the arms' limit ([`clairvoyant`]). All use the same modelled disks ([`crate::disk`]) in virtual
//! time, for the same clients. Every run gives the same figures, so the suite runs once.

mod backend;
mod clairvoyant;
mod engine;
mod md;
mod members;
mod throttled;
mod traffic;
mod world;

use std::cell::RefCell;

use braid_engine::{CacheMode, Tuning};
use braid_geometry::{Geometry, Level, Shape, StripeGeometry, default_layout};

use crate::disk::DiskPlan;
use crate::frame::{Contender, Metric, Report, Settings, Suite, Target, race};
use backend::Backend;
use clairvoyant::Clairvoyant;
use engine::Braid;
use md::{Md, Policy};
use members::MemberScheduler;
use world::{Outcome, Stream, World};

pub(super) const SUITE: Suite = Suite {
    name: "priority",
    about: "full stripes ahead of partial ones, on disks in virtual time",
    run,
};

const RATE: &str = "throughput";
const WRITTEN: &str = "written";
const PRE_READS: &str = "pre-reads";
const METRICS: [Metric; 5] = [
    Metric::more(RATE, "MB/s"),
    Metric::more(WRITTEN, "MB/s"),
    Metric::more("read", "MB/s"),
    Metric::less(PRE_READS, "MiB/GiB written"),
    Metric::less("arm movements", "1/GiB"),
];

/// The seed's array: four disks as a RAID-5, with a chunk of 64 KiB.
const DISKS: u16 = 4;
const CHUNK_SECTORS: u32 = 128;
/// Maximum sectors that clients have in flight: more than the larger cache holds.
const WINDOW_SECTORS: u64 = 16 << 10;
/// Time that a client takes to make 4 KiB: about 400 MB/s.
const THINK_NS: u64 = 10_000;

/// The name of the variant that knows all future writes.
const KNOWS_ALL: &str = "knows all";

/// Variants with a layer before the disks: name, variant without the layer, layer. The arms' limit
/// is among them.
const BEFORE_DISKS: [(&str, &str, MemberScheduler); 4] = [
    (KNOWS_ALL, KNOWS_ALL, MemberScheduler::Nothing),
    ("before sorted", "before", MemberScheduler::Elevators),
    ("braid sorted", "braid", MemberScheduler::Elevators),
    ("braid turns", "braid", MemberScheduler::Multiplexer),
];

struct Work {
    name: &'static str,
    tuning: Tuning,
    /// Phases, one after the other. The streams of a phase run at once.
    phases: Vec<Vec<Stream>>,
    bound: f64,
}

fn geometry() -> (Geometry, StripeGeometry) {
    // The array is a part of the disk, so that streams lie apart from each other, but not at the
    // disk's two ends.
    let geometry = Geometry::new(&Shape::uniform(
        Level::Raid5,
        default_layout(Level::Raid5),
        CHUNK_SECTORS,
        DISKS,
        DiskPlan::SATA_2005.sectors() / 4,
    ))
    .expect("a RAID-5");
    let Geometry::Stripe(stripe) = geometry.clone() else { unreachable!("a RAID-5 has stripes") };
    (geometry, stripe)
}

/// One stream like `dd` to the array: 4 KiB after 4 KiB.
fn sequential(region: (u64, u64), window: u64, bytes: u64) -> Stream {
    let (is_write, is_random, sectors) = (true, false, 8);
    let requests = bytes / 4096;
    Stream { is_write, is_random, sectors, window, think_ns: THINK_NS, region, requests }
}

/// Five streams at once. One writes a file in order in blocks of 4 KiB, one writes in blocks of 128
/// KiB, one reads in order in blocks of 128 KiB. The last two are random writes and random reads of
/// 4 KiB.
fn mix(capacity: u64, bytes: u64) -> Vec<Stream> {
    let part = capacity / 8 / 384 * 384;
    let region = |number: u64| (number * part, part);
    let write = sequential(region(0), WINDOW_SECTORS / 8 / 2, bytes);
    let large = Stream {
        sectors: 256,
        window: 16,
        think_ns: 32 * THINK_NS,
        requests: bytes / (128 << 10),
        ..write
    };
    let random = Stream { is_random: true, window: 64, requests: bytes / (128 << 10), ..write };
    vec![
        write,
        Stream { region: region(2), ..large },
        Stream { region: region(4), ..random },
        Stream { region: region(5), is_write: false, window: 2, ..large },
        Stream {
            region: region(7),
            is_write: false,
            window: 1,
            requests: random.requests / 4,
            ..random
        },
    ]
}

/// The phases of tiobench, by its manual. For each block size and number of threads, files of one
/// size are written in order, then at random, then read in order, then at random. Each thread has
/// its own file; 4000 blocks are written and read at random for 2 GiB of files. All reads and
/// writes go through a page cache, which reads ahead and writes behind.
fn tiobench(capacity: u64, bytes: u64) -> Vec<Vec<Stream>> {
    let part = capacity / 8 / 384 * 384;
    let mut phases = Vec::new();
    for block_sectors in [8, 256] {
        for threads in [1, 2, 4, 8] {
            let think = |sectors: u32| u64::from(sectors) / 8 * THINK_NS;
            let block_bytes = u64::from(block_sectors) * 512;
            let anywhere = (bytes * 4000 / (2 << 30) / threads).max(1);
            let behind = |sectors: u32| (WINDOW_SECTORS / u64::from(sectors) / threads).max(1);
            let write = |thread: u64| Stream {
                is_write: true,
                is_random: false,
                sectors: block_sectors,
                window: behind(block_sectors),
                think_ns: think(block_sectors),
                region: (thread * part, part),
                requests: bytes / block_bytes / threads,
            };
            let write_anywhere =
                |thread| Stream { is_random: true, requests: anywhere, ..write(thread) };
            let read = |thread| Stream {
                is_write: false,
                sectors: 256,
                window: 2,
                think_ns: think(256),
                requests: bytes / (128 << 10) / threads,
                ..write(thread)
            };
            let read_anywhere =
                |thread| Stream { is_write: false, window: 1, ..write_anywhere(thread) };
            let all: [&dyn Fn(u64) -> Stream; 4] = [&write, &write_anywhere, &read, &read_anywhere];
            phases.extend(all.map(|stream| (0..threads).map(stream).collect()));
        }
    }
    phases
}

fn cache(stripes: u32) -> Tuning {
    Tuning { stripes, ..Tuning::default() }
}

/// A tuning that acknowledges only written requests, as md does.
fn through(stripes: u32) -> Tuning {
    Tuning { mode: CacheMode::WriteThrough, ..cache(stripes) }
}

fn works(settings: &Settings, capacity: u64) -> Vec<Work> {
    let bytes: u64 = if settings.small { 4 << 20 } else { 512 << 20 };
    let order = |name, tuning, bound| Work {
        name,
        tuning,
        phases: vec![vec![sequential((0, capacity / 384 * 384), WINDOW_SECTORS / 8, bytes)]],
        bound,
    };
    let mixed = |name, bypass_threshold, bound| Work {
        name,
        tuning: Tuning { bypass_threshold, ..cache(256) },
        phases: vec![mix(capacity, bytes / 4)],
        bound,
    };
    let tio = |name, bypass_threshold, bound| Work {
        phases: tiobench(capacity, bytes / 4),
        ..mixed(name, bypass_threshold, bound)
    };
    vec![
        order("sequential write, cache 256", cache(256), 1.33),
        order("sequential write, cache 512", cache(512), 1.25),
        order("sequential write, cache 256, write-through", through(256), 1.33),
        order("sequential write, cache 512, write-through", through(512), 1.25),
        tio("tiobench, threshold 1", 1, 1.13),
        tio("tiobench, threshold 0", 0, 1.37),
        mixed("all at once, threshold 1", 1, 1.13),
        mixed("all at once, threshold 0", 0, 1.37),
    ]
}

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    let capacity = geometry().0.capacity_sectors();
    // In virtual time every run gives the same figures, and no run needs a warm-up.
    let once = Settings { runs: 1, small: true, ..settings.clone() };
    for work in works(settings, capacity) {
        work.run(&once, &mut report, &BEFORE_DISKS, |backend, scheduler, phases| {
            World::new(backend, (scheduler, usize::from(DISKS)), phases).run()
        });
    }
    let bytes = if settings.small { 1 << 20 } else { 32 << 20 };
    let threads = Work {
        name: "threads, throttled members, sequential write",
        tuning: cache(256),
        phases: vec![vec![sequential((0, capacity / 384 * 384), WINDOW_SECTORS / 8, bytes)]],
        bound: 1.0,
    };
    threads.run(settings, &mut report, &[], |backend, _, phases| {
        throttled::run(backend, usize::from(DISKS), &phases[0])
    });
    report.note(format!("virtual time, but for the last case; {:?}", DiskPlan::SATA_2005));
    report.note(format!(
        "throttled members: {:?} for a run of reads, {:?} for one of writes, on threads of their own",
        throttled::READ,
        throttled::WRITE
    ));
    report
}

impl Work {
    /// Lets every variant do the work, with `go` to run it.
    fn run(
        &self,
        settings: &Settings,
        report: &mut Report,
        more: &[(&'static str, &'static str, MemberScheduler)],
        go: impl Fn(&mut dyn Backend, MemberScheduler, &[Vec<Stream>]) -> Outcome,
    ) {
        let (geometry, stripe) = geometry();
        let counters = RefCell::new(&mut *report);
        let go = |variant: &str, scheduler: MemberScheduler, backend: &mut dyn Backend| {
            let outcome = go(backend, scheduler, &self.phases);
            let mut report = counters.borrow_mut();
            report.counter(format!("{}, {variant}", self.name), backend.counters());
            if outcome.account.all_ns() > 0 {
                report.counter(format!("{}, {variant}: arms", self.name), arms(&outcome));
            }
            drop(report);
            values(&outcome)
        };
        let hold = Policy::Hold { threshold: u64::from(self.tuning.bypass_threshold) };
        let md = |policy| Md::new(stripe, self.tuning.stripes as usize, policy);
        let bare = ["before", "seed", "braid"].map(|name| (name, name, MemberScheduler::Nothing));
        let contender = |(name, what, scheduler): (&'static str, &'static str, MemberScheduler)| {
            let (go, md, geometry) = (&go, &md, &geometry);
            Contender::new(name, move || match what {
                "before" => go(name, scheduler, &mut md(Policy::Dump)),
                "seed" => go(name, scheduler, &mut md(hold)),
                KNOWS_ALL => go(name, scheduler, &mut Clairvoyant::new(stripe, &self.phases)),
                _ => go(name, scheduler, &mut Braid::new(geometry, self.tuning)),
            })
        };
        let contenders = bare.into_iter().chain(more.iter().copied()).map(contender).collect();
        let case = race(settings, self.name, &METRICS, contenders);
        // With phases, the reads of one phase do not profit from another's stripes, so both figures
        // are reported.
        let metrics = if self.phases.len() > 1 { &[RATE, WRITTEN][..] } else { &[RATE] };
        let targets = metrics.iter().map(|name| Target::ratio(name, "braid", "before", self.bound));
        report.add(case.map(|case| case.with(targets)));
    }
}

/// The account of the arms' time. If some phases only read, only the phases that write count.
#[allow(clippy::cast_precision_loss, reason = "four figures are shown")]
fn arms(outcome: &Outcome) -> String {
    let busy =
        outcome.writing.all_ns() as f64 / (f64::from(DISKS) * outcome.write_ns.max(1) as f64);
    let seconds = outcome.write_ns as f64 / 1e9;
    format!(
        "{seconds:.2} s of write phases, busy {:.0} %: {}",
        100.0 * busy,
        outcome.writing.line()
    )
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn values(outcome: &Outcome) -> Vec<f64> {
    let rate = |sectors: u64, time_ns: u64| sectors as f64 * 512.0 * 1e3 / time_ns.max(1) as f64;
    let moved = outcome.written_sectors + outcome.read_sectors;
    let gibibytes = |sectors: u64| (sectors as f64 / f64::from(2 << 20)).max(f64::MIN_POSITIVE);
    vec![
        rate(moved, outcome.time_ns),
        rate(outcome.written_sectors, outcome.write_ns),
        rate(outcome.read_sectors, outcome.read_ns),
        outcome.pre_read_sectors as f64 / 2048.0 / gibibytes(outcome.written_sectors),
        outcome.positionings as f64 / gibibytes(moved),
    ]
}
