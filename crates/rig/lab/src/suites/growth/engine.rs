//! The engine alone, under the tight driver and over null members, so that only the engine's own
//! work counts.

use braid_engine::request::Operation;
use braid_engine::{CacheMode, Tuning};

use super::{Axis, Measurement, Turn};
use crate::driver::{Driver, Kind, Load, Pattern, Places, Plan};
use crate::frame::{Metric, Report, Settings};

const MEMBERS: Axis = Axis {
    name: "members",
    ticks: &[(1.0, "3"), (2.0, "8"), (3.0, "16"), (4.0, "64"), (5.0, "128"), (6.0, "255")],
    values: &[3, 8, 16, 64, 128, 255],
};
const CHUNK: Axis = Axis {
    name: "chunk",
    ticks: &[(1.0, "4K"), (2.0, "16K"), (3.0, "64K"), (4.0, "256K"), (5.0, "1M"), (6.0, "4M")],
    values: &[8, 32, 128, 512, 2048, 8192],
};
const DEPTH: Axis = Axis {
    name: "requests at once",
    ticks: &[(1.0, "1"), (2.0, "4"), (3.0, "16"), (4.0, "64"), (5.0, "256"), (6.0, "1024")],
    values: &[1, 4, 16, 64, 256, 1024],
};
/// A stripe of four units of 64 KiB takes 256 KiB.
const CACHE: Axis = Axis {
    name: "stripe cache",
    ticks: &[(1.0, "1M"), (2.0, "16M"), (3.0, "256M"), (4.0, "1G"), (5.0, "4G")],
    values: &[4, 64, 1024, 4096, 16384],
};
#[cfg(test)]
pub(super) const AXES: &[Axis] = &[MEMBERS, CHUNK, DEPTH, CACHE];

const STRIPE_BYTES: u64 = 4 * (64 << 10);
const READ: Operation = Operation::Read;
const WRITE: Operation = Operation::Write { durable: false };
const BLOCK_SECTORS: u32 = 8;

/// One point of an axis: an array, a load, and the number of units in a request.
#[derive(Clone, Copy)]
struct Point {
    slots: u16,
    chunk_sectors: u32,
    stripes: u32,
    missing: Option<u16>,
    load: Load,
    units: f64,
}

const PLAIN: Point = Point {
    slots: 4,
    chunk_sectors: 128,
    stripes: 256,
    missing: None,
    load: Load {
        operation: READ,
        sectors: BLOCK_SECTORS,
        pattern: Pattern::Random,
        depth: 64,
        requests: 200_000,
    },
    units: 1.0,
};

const fn of(operation: Operation) -> Load {
    Load { operation, ..PLAIN.load }
}

fn members(value: u64, load: Load) -> Point {
    let slots = u16::try_from(value).expect("few");
    // The smallest chunk, so that one request is a full stripe of all members.
    Point { slots, chunk_sectors: BLOCK_SECTORS, load, ..PLAIN }
}

const READS: Metric = Metric::less("a read", "ns");
const WRITES: Metric = Metric::less("a write", "ns");

/// Makes the point for a value on an axis.
type PointBuilder = fn(u64) -> Point;

const FLAT: (f64, &str) = (1.5, "flat, but for what the processor's caches hold");

fn all() -> [(Axis, Measurement, PointBuilder); 11] {
    let measurement = |name, metric| Measurement { name, metric, most: FLAT };
    [
        (MEMBERS, measurement("members: 4 KiB read", READS), |n| members(n, of(READ))),
        (MEMBERS, measurement("members: 4 KiB write", WRITES), |n| members(n, of(WRITE))),
        (
            MEMBERS,
            measurement(
                "members: full-stripe write, for each member",
                Metric::less("a member's part", "ns"),
            ),
            |n| {
                let sectors = BLOCK_SECTORS * u32::try_from(n - 1).expect("few");
                let pattern = Pattern::Sequential;
                let load = Load { sectors, pattern, depth: 8, requests: 300_000 / n, ..of(WRITE) };
                Point { units: units(n), ..members(n, load) }
            },
        ),
        (
            MEMBERS,
            measurement(
                "members: degraded full-stripe read, for each member",
                Metric::less("a member's part", "ns"),
            ),
            |n| {
                let sectors = BLOCK_SECTORS * u32::try_from(n - 1).expect("few");
                let pattern = Pattern::Sequential;
                let load = Load { sectors, pattern, depth: 8, requests: 300_000 / n, ..of(READ) };
                Point { units: units(n), missing: Some(1), ..members(n, load) }
            },
        ),
        (CHUNK, measurement("chunk: 4 KiB read", READS), |sectors| chunk(sectors, of(READ))),
        (CHUNK, measurement("chunk: 4 KiB write", WRITES), |sectors| chunk(sectors, of(WRITE))),
        (
            CHUNK,
            measurement("chunk: 1 MiB write in order, for each MiB", Metric::less("a MiB", "ns")),
            |sectors| {
                let load = Load {
                    sectors: 2048,
                    pattern: Pattern::Sequential,
                    requests: 1000,
                    depth: 8,
                    ..of(WRITE)
                };
                chunk(sectors, load)
            },
        ),
        (DEPTH, measurement("depth: 4 KiB read", READS), |depth| at_once(depth, of(READ))),
        (DEPTH, measurement("depth: 4 KiB write", WRITES), |depth| at_once(depth, of(WRITE))),
        (CACHE, measurement("cache: 4 KiB read", READS), |stripes| cached(stripes, of(READ))),
        (CACHE, measurement("cache: 4 KiB write", WRITES), |stripes| cached(stripes, of(WRITE))),
    ]
}

fn chunk(sectors: u64, load: Load) -> Point {
    Point { chunk_sectors: u32::try_from(sectors).expect("short"), load, ..PLAIN }
}

fn at_once(depth: u64, load: Load) -> Point {
    Point { load: Load { depth: usize::try_from(depth).expect("few"), ..load }, ..PLAIN }
}

fn cached(stripes: u64, load: Load) -> Point {
    Point { stripes: u32::try_from(stripes).expect("few"), load, ..PLAIN }
}

fn units(count: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a few")]
    let units = count as f64;
    units
}

pub(super) fn run(settings: &Settings, report: &mut Report) {
    for (axis, measurement, made) in all() {
        if !settings.wants(measurement.name) {
            continue;
        }
        // All points are in memory at once, and the largest one takes most of that memory.
        let has_room = |stripes: u64| axis.name != CACHE.name || has_room(stripes * STRIPE_BYTES);
        let mut points: Vec<(&str, Turn<'_>)> = Vec::new();
        for (value, name) in axis.points(settings) {
            if !has_room(value) {
                report.note(format!(
                    "{}: not with {name}, which needs half of the free memory or more",
                    measurement.name
                ));
                continue;
            }
            let mut running = PointRun::new(made(value), settings);
            points.push((name, Box::new(move || running.turn())));
        }
        axis.race(settings, report, &measurement, points);
    }
}

/// Whether twice this number of bytes is free.
fn has_room(bytes: u64) -> bool {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.is_some_and(|kib| kib * 1024 / 2 > bytes)
}

struct PointRun {
    driver: Driver,
    places: Places,
    load: Load,
    units: f64,
}

impl PointRun {
    fn new(point: Point, settings: &Settings) -> Self {
        let requests = (point.load.requests / if settings.small { 100 } else { 1 }).max(16);
        let load = Load { requests, ..point.load };
        // Far more sectors than any cache holds.
        let member_sectors = (64 << 30) / 512;
        let dirty_sectors_max = 32 << 10;
        let driver = Driver::new(Plan {
            kind: Kind::Null,
            slots: point.slots,
            chunk_sectors: point.chunk_sectors,
            member_sectors,
            missing: point.missing,
            tuning: Tuning {
                stripes: point.stripes,
                mode: CacheMode::WriteBack,
                bypass_threshold: 1,
                dirty_sectors_max,
                age_max_ms: 500,
                expects_flushes: true,
            },
            payloads: load.depth + (dirty_sectors_max / load.sectors) as usize,
            payload_sectors: load.sectors,
        });
        let places = Places::new(&load, driver.capacity_sectors(), 1);
        Self { driver, places, load, units: point.units }
    }

    fn turn(&mut self) -> f64 {
        let seconds = self.load.run(&mut self.driver, &mut self.places);
        self.driver.settle();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let requests = self.load.requests as f64;
        seconds * 1e9 / (requests * self.units)
    }
}
