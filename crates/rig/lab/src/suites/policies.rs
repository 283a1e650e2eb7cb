//! Suite `policies`: the cost of keeping redundancy right over a crash.
//!
//! Clients write 4 KiB at random, through the cache; each write is acknowledged when its members
//! have it. In addition to the speed the suite counts durable writes to the members' bitmaps, logs
//! and superblocks (with a journal, its records), and all flushes together.
//!
//! Members are memory, or memory as slow as a solid-state disk with a cache: a time for each
//! request, and more for a durable one. Memory shows the processor's work, slow members the
//! waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_engine::CacheMode;
use braid_geometry::Level;
use braid_member::{Identity, Member, MemberError, MemoryMember};
use braid_runtime::{ClientRequest, Options, Payload, Volume};

use crate::array::{self, Plan, Policy};
use crate::frame::{Case, Contender, Metric, Report, Settings, Suite, Target, race};
use crate::random::Random;

pub(super) const SUITE: Suite = Suite {
    name: "policies",
    about: "4 KiB writes with a bitmap, partial parity logs, our own log or a write journal, beside none",
    run,
};

const RATE: &str = "writes";
const METRICS: [Metric; 3] = [
    Metric::more(RATE, "/s"),
    Metric::less("durable metadata per 1000", "writes"),
    Metric::less("flushes per 1000", "flushes"),
];
const CLIENTS: u64 = 32;
const WRITE_BYTES: usize = 4096;
/// Bytes of a member. With a bit for each megabyte this gives as many regions as terabyte disks
/// have with md's default.
const MEMBER_BYTES: u64 = 256 << 20;
const BIT_BYTES: u32 = 1 << 20;
/// The time of a request at the modelled solid-state disk. Durable ones take `DURABLE` in addition.
const REQUEST: Duration = Duration::from_micros(60);
const DURABLE: Duration = Duration::from_micros(200);

/// Requests to members other than data writes.
#[derive(Debug, Default)]
struct RequestCounts {
    metadata: AtomicU64,
    flushes: AtomicU64,
}

/// A member that counts its requests, and is slow if it models a disk.
struct CountingMember {
    inner: Arc<MemoryMember>,
    requests: Arc<RequestCounts>,
    is_disk: bool,
}

impl CountingMember {
    fn take(&self, time: Duration) {
        if self.is_disk {
            std::thread::sleep(time);
        }
    }
}

impl Member for CountingMember {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        self.take(REQUEST);
        self.inner.read_at(buffer, offset_bytes)
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        // No client request is durable here, so durable writes are metadata.
        self.requests.metadata.fetch_add(u64::from(durable), Ordering::Relaxed);
        self.take(if durable { REQUEST + DURABLE } else { REQUEST });
        self.inner.write_at(buffer, offset_bytes, durable)
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.requests.flushes.fetch_add(1, Ordering::Relaxed);
        self.take(DURABLE);
        self.inner.flush()
    }

    fn zero(&self, offset_bytes: u64, bytes: u64, may_punch: bool) -> Result<(), MemberError> {
        self.inner.zero(offset_bytes, bytes, may_punch)
    }

    fn can_zero_fast(&self) -> bool {
        self.inner.can_zero_fast()
    }
}

const SHAPES: [(&str, Level, u16); 3] = [
    ("RAID-4 of 4", Level::Raid4, 4),
    ("RAID-5 of 4", Level::Raid5, 4),
    ("RAID-6 of 6", Level::Raid6, 6),
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    for is_disk in [false, true] {
        for (name, level, slots) in SHAPES {
            report.add(case(settings, (name, level, slots), is_disk));
        }
    }
    report.note("disks: 60 us a request, 200 us more for a durable one, any number at once");
    report.note("counted over all members; writes of a band to its members are not counted");
    report
}

fn case(
    settings: &Settings,
    (name, level, slots): (&str, Level, u16),
    is_disk: bool,
) -> Option<Case> {
    let name = format!("{name}, {}", if is_disk { "disks" } else { "memory" });
    if !settings.wants(&name) {
        return None;
    }
    let writes = match (settings.small, is_disk) {
        (true, _) => 200,
        (false, false) => 40_000,
        (false, true) => 20_000,
    };
    let policies = [
        ("none", Policy::Resync),
        ("bitmap", Policy::Bitmap(BIT_BYTES)),
        ("ppl", Policy::Ppl),
        ("log", Policy::Log(BIT_BYTES)),
        ("journal", Policy::Journal),
    ];
    let has = |policy: Policy| policy != Policy::Ppl || level == Level::Raid5;
    let member_bytes = if settings.small { 16 << 20 } else { MEMBER_BYTES };
    let arrays: Vec<(&str, Array)> = policies
        .into_iter()
        .filter(|(_, policy)| has(*policy))
        .map(|(name, policy)| {
            let plan = Plan { level, slots, chunk_sectors: 128, member_bytes, policy };
            (name, Array::open(plan, is_disk))
        })
        .collect();
    let contenders =
        arrays.iter().map(|(name, array)| Contender::new(name, || array.write(writes))).collect();
    let case = race(settings, &name, &METRICS, contenders);
    case.map(|case| case.with([Target::ratio(RATE, "bitmap", "none", 0.8)]))
}

struct Array {
    volume: Volume,
    requests: Arc<RequestCounts>,
}

impl Array {
    fn open(plan: Plan, is_disk: bool) -> Self {
        let requests: Arc<RequestCounts> = Arc::default();
        let mut options = Options::default();
        options.cache.mode = CacheMode::WriteThrough;
        let counted = |inner| CountingMember { inner, requests: Arc::clone(&requests), is_disk };
        let volume = array::open(plan, &options, counted);
        Self { volume, requests }
    }

    /// Returns the writes a second, and the counts for each thousand writes.
    fn write(&self, writes: u64) -> Vec<f64> {
        let places = self.volume.size_bytes() / WRITE_BYTES as u64;
        let before = self.counts();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    let mut random = Random::new(client);
                    for _ in 0..writes / CLIENTS {
                        let offset = random.below(places) * WRITE_BYTES as u64;
                        let payload = Payload::zeroed(WRITE_BYTES);
                        let write = ClientRequest::Write { offset, payload, durable: false };
                        self.volume.call(write).result.expect("it can be written");
                    }
                });
            }
        });
        let took = start.elapsed();
        let after = self.counts();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = |count: u64| count as f64 * 1000.0 / writes as f64;
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let rate = writes as f64 / took.as_secs_f64();
        vec![rate, each(after.0 - before.0), each(after.1 - before.1)]
    }

    fn counts(&self) -> (u64, u64) {
        let RequestCounts { metadata, flushes } = &*self.requests;
        (metadata.load(Ordering::Relaxed), flushes.load(Ordering::Relaxed))
    }
}
