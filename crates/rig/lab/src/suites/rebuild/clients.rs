//! The effect of a rebuild on clients' reads, at the governor's default target.
//!
//! Clients read 4 KiB at random and pause after each read, on disks that serve one request after
//! the other. The governor gets time to find its allowance, at most half a minute (`braid-pace`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_geometry::Level;
use braid_runtime::{ClientRequest, GovernorSettings, Payload, Volume};

use super::{Devices, Kind, RebuildArray, Shape};
use crate::frame::{Case, Contender, Metric, Settings, Target, race};
use crate::random::Random;

const P99: &str = "read p99";
const METRICS: [Metric; 3] = [
    Metric::less(P99, "ms"),
    Metric::less("read p50", "ms"),
    Metric::more("written to one member", "MB/s"),
];
const CLIENTS: u64 = 4;
const READ_BYTES: usize = 4096;
/// How long a client rests after each read.
const REST: Duration = Duration::from_millis(2);

struct Times {
    warm_up: Duration,
    measured: Duration,
}

pub(super) fn case(settings: &Settings) -> Option<Case> {
    let name = "RAID-5 of 4, 4 clients, small disks";
    if !settings.wants(name) {
        return None;
    }
    let shape = Shape { name, level: Level::Raid5, slots: 4, lost: 1 };
    let seconds = |whole, small| Duration::from_millis(if settings.small { small } else { whole });
    let times = Times { warm_up: seconds(25_000, 100), measured: seconds(10_000, 100) };
    let folder = tempfile::tempdir().expect("a folder");
    let member_bytes = if settings.small { 8 << 20 } else { 768 << 20 };
    let devices = Devices::new(Kind::SmallDisks, folder.path(), member_bytes);
    let array = RebuildArray::open(shape, &devices);
    let alone = || {
        let (p99, p50) = reads(&array.volume, &times, || ());
        vec![p99, p50, 0.0]
    };
    // Runs clients during a rebuild, with or without the floor, which has priority over the target.
    let beside = |has_floor: bool| {
        let default = GovernorSettings::default();
        let floor_bytes_per_second = if has_floor { default.floor_bytes_per_second } else { 0 };
        array.volume.set_job_pace(GovernorSettings { floor_bytes_per_second, ..default });
        array.lose(shape, &devices);
        let mark = || (Instant::now(), array.volume.job().map_or(0, |job| job.done));
        let mut from = mark();
        let (p99, p50) = reads(&array.volume, &times, || from = mark());
        let until = mark();
        array.volume.set_job_pace(default);
        array.wait_until_filled(shape);
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let bytes = (until.1.saturating_sub(from.1) * 512) as f64;
        vec![p99, p50, bytes / (until.0 - from.0).as_secs_f64() / 1e6]
    };
    let contenders = vec![
        Contender::new("alone", alone),
        Contender::new("beside", || beside(true)),
        Contender::new("no floor", || beside(false)),
    ];
    let case = race(settings, name, &METRICS, contenders);
    let targets = ["beside", "no floor"].map(|variant| Target::ratio(P99, variant, "alone", 2.0));
    case.map(|case| case.with(targets))
}

/// The clients' p99 and p50 in milliseconds after the warm-up. `warm` is called at the end of the
/// warm-up.
fn reads(volume: &Volume, times: &Times, warm: impl FnOnce()) -> (f64, f64) {
    let (counts, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let read_bytes = READ_BYTES as u64;
    let places = volume.size_bytes() / read_bytes;
    let client = |number: u64| {
        let (mut random, mut took) = (Random::new(number), Vec::new());
        while !ends.load(Ordering::Relaxed) {
            let offset = random.below(places) * read_bytes;
            let payload = Payload::zeroed(READ_BYTES);
            let start = Instant::now();
            let done = volume.call(ClientRequest::Read { offset, payload });
            done.result.expect("it can be read");
            if counts.load(Ordering::Relaxed) {
                took.push(start.elapsed());
            }
            std::thread::sleep(REST);
        }
        took
    };
    let mut all: Vec<Duration> = std::thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        std::thread::sleep(times.warm_up);
        warm();
        counts.store(true, Ordering::Relaxed);
        std::thread::sleep(times.measured);
        ends.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().expect("it reads")).collect()
    });
    all.sort_unstable();
    let at = |percent: usize| all[(all.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    (at(99), at(50))
}
