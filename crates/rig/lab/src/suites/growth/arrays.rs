//! Several arrays in one process: the cost of a request, and the memory, threads and wake-ups of an
//! array.

use std::time::{Duration, Instant};

use braid_geometry::Level;
use braid_runtime::{ClientRequest, Options, Payload, Volume};

use super::super::cost::process::{ProcessUsage, resident_bytes};
use super::{Axis, Measurement, Turn};
use crate::array::{self, Plan, Policy};
use crate::frame::{Metric, Report, Settings, Usage};
use crate::random::Random;

pub(super) const ARRAYS: Axis = Axis {
    name: "arrays",
    ticks: &[(1.0, "1"), (2.0, "4"), (3.0, "16"), (4.0, "64")],
    values: &[1, 4, 16, 64],
};
const READ_BYTES: usize = 4096;
const REQUEST: &str = "arrays: 4 KiB read";
const OPENED: &str = "arrays: opening one more";
const MEMORY: &str = "arrays: memory of one";
const WAKES: &str = "arrays: wake-ups of one that rests";
/// After this time without requests, an array no longer checks its members.
const REST: Duration = Duration::from_secs(5);

struct Arrays {
    volumes: Vec<Volume>,
    random: Random,
    opened_ns: f64,
    bytes: f64,
}

impl Arrays {
    fn open(count: u64) -> Self {
        let plan = Plan {
            level: Level::Raid5,
            slots: 3,
            chunk_sectors: 128,
            member_bytes: 16 << 20,
            policy: Policy::Resync,
        };
        let (start, before) = (Instant::now(), resident());
        let open = |_| array::open(plan, &Options::default(), |member| member);
        let volumes: Vec<Volume> = (0..count).map(open).collect();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = |sum: u128| sum as f64 / count as f64;
        let opened_ns = each(start.elapsed().as_nanos());
        let bytes = each(u128::from(resident().saturating_sub(before)));
        Self { volumes, random: Random::new(3), opened_ns, bytes }
    }

    /// Processor time of one read. Each read goes to another array than the one before.
    fn read(&mut self, requests: u32) -> f64 {
        let places = self.volumes[0].size_bytes() / READ_BYTES as u64;
        let before = Usage::now();
        for request in 0..requests as usize {
            let offset = self.random.below(places) * READ_BYTES as u64;
            let volume = &self.volumes[request % self.volumes.len()];
            let read = ClientRequest::Read { offset, payload: Payload::zeroed(READ_BYTES) };
            volume.call(read).result.expect("memory can be read");
        }
        let used = Usage::now() - before;
        (used.user_s + used.system_s) * 1e9 / f64::from(requests)
    }
}

fn resident() -> u64 {
    resident_bytes(std::process::id()).unwrap_or(0)
}

pub(super) fn run(settings: &Settings, report: &mut Report) {
    let wanted = [REQUEST, OPENED, MEMORY, WAKES];
    if !wanted.iter().any(|name| settings.wants(name)) {
        return;
    }
    let requests = if settings.small { 2000 } else { 100_000 };
    // The process's first array belongs to no point of the curve. It stays open, so that no other
    // array reuses its memory.
    let _first = Arrays::open(1);
    let mut all: Vec<(&str, Arrays)> = ARRAYS
        .points(settings)
        .into_iter()
        .map(|(count, name)| (name, Arrays::open(count)))
        .collect();
    if settings.wants(WAKES) {
        rest(settings, report, &all);
    }
    let measurement = |name, metric, most| Measurement { name, metric, most };
    let told = |of: fn(&Arrays) -> f64| {
        all.iter().map(|(name, arrays)| (*name, vec![of(arrays)])).collect::<Vec<_>>()
    };
    let opened = told(|arrays| arrays.opened_ns / 1e6);
    let bytes = told(|arrays| arrays.bytes / 1024.0);
    let each = Metric::less("opening an array", "ms");
    ARRAYS.told(settings, report, &measurement(OPENED, each, (1.5, "flat")), opened);
    let each = Metric::less("memory of an array", "KiB");
    ARRAYS.told(settings, report, &measurement(MEMORY, each, (1.5, "flat")), bytes);
    let reads = all
        .iter_mut()
        .map(|(name, arrays)| (*name, Box::new(move || arrays.read(requests)) as Turn<'_>));
    let each = Metric::less("processor time of a read", "ns");
    let why = (2.0, "arrays evict each other's data from the processor's caches");
    ARRAYS.race(settings, report, &measurement(REQUEST, each, why), reads.collect());
}

/// Counts wake-ups of this process while all arrays rest.
fn rest(settings: &Settings, report: &mut Report, all: &[(&'static str, Arrays)]) {
    let count: usize = all.iter().map(|(_, arrays)| arrays.volumes.len()).sum::<usize>() + 1;
    let (settle, look) = if settings.small {
        (Duration::ZERO, Duration::from_millis(200))
    } else {
        (REST, Duration::from_secs(10))
    };
    std::thread::sleep(settle);
    let before = ProcessUsage::by(std::process::id());
    std::thread::sleep(look);
    let after = ProcessUsage::by(std::process::id());
    let (Ok(before), Ok(after)) = (before, after) else {
        return report.note(format!("{WAKES}: the kernel does not report them"));
    };
    let woke: u64 = after
        .since(&before)
        .into_iter()
        .filter(|(name, _)| name.starts_with("braid-") && *name != "braid-lab")
        .map(|(_, switches)| switches.voluntary + switches.involuntary)
        .sum();
    report.note(format!(
        "{WAKES}: threads of {count} arrays woke {woke} times in {:.1} s",
        look.as_secs_f64()
    ));
}
