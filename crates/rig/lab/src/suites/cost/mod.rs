//! Suite `cost`: the machine's cost of serving, at an equal load for all servers, and when idle.
//! ```text
//!   fio, so many requests a second ──NBD──▶ braid serve │ nbdkit │ qemu-nbd ──▶ files
//!        ramp     ├────── looked at: here ─────────── and here ──┤
//!                     processor time, sleeps, switches between the two; a pass for system calls
//! ```
//! A server's top speed says nothing of its cost at a load that all servers can bear. If a server
//! does not reach the load, the note says its rate, and its cost is that of the requests it served.
//! The kernel's work on other threads (interrupts, writing back) is not counted for any server.

mod idle;
pub(super) mod process;
mod trace;

use std::path::Path;
use std::time::Duration;

use braid_engine::Tuning;
use braid_engine::request::Operation;

use super::bdevperf::Peer;
use super::nbd::fio::{self, FioResult, FioTarget, Job, Length};
use super::nbd::servers::{self, Server};
use crate::driver::{Kind, Load, Pattern, Plan};
use crate::frame::{
    Case, Contender, Figure, Metric, Report, Series, Settings, Suite, Target, race,
};
use process::ProcessUsage;

pub(super) const SUITE: Suite = Suite {
    name: "cost",
    about: "processor time, sleeps and system calls of a request at a fixed load; wake-ups of an idle server",
    run,
};

const TIME: &str = "processor time of a request";
const METRICS: [Metric; 5] = [
    Metric::less(TIME, "us"),
    Metric::less("processor time of a GiB", "s"),
    Metric::less("sleeps of a request", "sleeps"),
    Metric::less("preemptions of a request", "switches"),
    Metric::more(REACHED, "1/s"),
];
const REACHED: &str = "load that was reached";
const CALLS: Metric = Metric::less("system calls of a request", "calls");

const MEMBERS: usize = 4;
const DEPTH: u32 = 64;
const BLOCK_KIB: u32 = 4;
/// The time of fio's start-up, and of the part of its run that does not count.
const BEGIN: Duration = Duration::from_millis(1500);
/// A load counts as reached if the rate is at least this part of the load.
const REACHED_MIN: f64 = 0.98;

#[derive(Clone, Copy)]
struct Fixed {
    name: &'static str,
    rw: &'static str,
    rate: u32,
}

const LOADS: [Fixed; 6] = [
    Fixed { name: "4 KiB random read, 10 K/s", rw: "randread", rate: 10_000 },
    Fixed { name: "4 KiB random read, 50 K/s", rw: "randread", rate: 50_000 },
    Fixed { name: "4 KiB random read, 100 K/s", rw: "randread", rate: 100_000 },
    Fixed { name: "4 KiB random write, 10 K/s", rw: "randwrite", rate: 10_000 },
    Fixed { name: "4 KiB random write, 50 K/s", rw: "randwrite", rate: 50_000 },
    Fixed { name: "4 KiB random write, 100 K/s", rw: "randwrite", rate: 100_000 },
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    let is_wanted =
        LOADS.iter().map(|load| load.name).chain(idle::CASES).any(|name| settings.wants(name));
    if !is_wanted {
        return report;
    }
    match fio::missing().map_or_else(|| Servers::start(settings, &mut report), Err) {
        Ok(servers) => servers.run(settings, &mut report),
        Err(why) => report.note(format!("cost: skipped, {why}")),
    }
    report
}

struct Servers {
    /// All servers; braid is the last.
    all: Vec<(&'static str, Server)>,
    files: Vec<String>,
    // Declared last, so that the folder outlives the servers.
    _folder: tempfile::TempDir,
}

impl Servers {
    fn start(settings: &Settings, report: &mut Report) -> Result<Self, String> {
        let braid = servers::braid()?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let member_mib = if settings.small { 16 } else { 256 };
        let path = |name: &str| folder.path().join(name).display().to_string();
        let members: Vec<String> = (0..MEMBERS).map(|n| path(&format!("{n}.member"))).collect();
        let raw = path("raw");
        for member in &members {
            super::nbd::fill(Path::new(member), member_mib)?;
        }
        super::nbd::fill(Path::new(&raw), member_mib * (MEMBERS - 1))?;
        let mut all = Vec::new();
        for (name, started) in [
            ("nbdkit", servers::serve_nbdkit(folder.path(), &raw)),
            ("qemu-nbd", servers::serve_qemu(folder.path(), &raw)),
        ] {
            match started {
                Ok(peer) => all.push((name, peer)),
                Err(why) => report.note(format!("cost: without {name}, {why}")),
            }
        }
        servers::create_braid(&braid, folder.path(), &members)?;
        let serve =
            |direct| servers::serve_braid(&braid, folder.path(), &members, &["--direct", direct]);
        let server = serve("on").or_else(|why| {
            // Direct I/O fails if a file system in memory does not report the alignment.
            report.note(format!("cost: braid goes through the page cache, {}", first_line(&why)));
            serve("off")
        });
        all.push(("braid", server?));
        report.note(format!(
            "files in {} (TMPDIR names another folder), with direct I/O if the server has it; \
             fio, one connection, {DEPTH} requests at once; only the server's own threads are \
             counted, none of the kernel's",
            std::env::temp_dir().display()
        ));
        let files = members.into_iter().chain([raw]).collect();
        Ok(Self { all, files, _folder: folder })
    }

    fn run(&self, settings: &Settings, report: &mut Report) {
        // Idle servers must not have been busy just before, so the idle cases come first.
        idle::run(settings, report, &self.all);
        let peer = Peer::look();
        if let Err(why) = &peer {
            report.note(format!("SPDK: skipped, {why}"));
        }
        // For a small run one load of each kind is enough to show that the suite works.
        let loads = LOADS.iter().filter(|load| !settings.small || load.rate == 10_000);
        for load in loads.filter(|load| settings.wants(load.name)) {
            match self.case(settings, *load, peer.as_ref().ok(), report) {
                Ok(case) => report.add(case),
                Err(why) => report.note(format!("{}: {why}", load.name)),
            }
        }
    }

    /// Drops the page cache, so that servers with buffered reads read from the disk as well.
    fn anew(&self, settings: &Settings) -> Result<(), String> {
        if settings.small { Ok(()) } else { super::nbd::forget(&self.files) }
    }

    fn case(
        &self,
        settings: &Settings,
        load: Fixed,
        peer: Option<&Peer>,
        report: &mut Report,
    ) -> Result<Option<Case>, String> {
        let failed = std::cell::RefCell::new(None);
        let kept = |values: Result<Vec<f64>, String>| {
            values.unwrap_or_else(|why| {
                failed.borrow_mut().get_or_insert(why);
                vec![0.0; METRICS.len()]
            })
        };
        let peer = peer.filter(|_| load.rw == "randread");
        let peer = peer.filter(|peer| match polling(peer, load.rate) {
            Ok(_) => true,
            Err(why) => {
                report.note(format!("{}: without bdevperf, {why}", load.name));
                false
            }
        });
        let polled = peer.map(|peer| Contender::new("bdevperf", || kept(polling(peer, load.rate))));
        let kept = &kept;
        let served = self.all.iter().map(|(name, server)| {
            let turn =
                move || self.anew(settings).and_then(|()| load.looked_at(settings, server, used));
            Contender::new(name, move || kept(turn()))
        });
        let contenders = polled.into_iter().chain(served).collect();
        let case = race(settings, load.name, &METRICS, contenders);
        if let Some(why) = failed.into_inner() {
            return Err(why);
        }
        let Some(mut case) = case else { return Ok(None) };
        load.say_what_was_missed(&case, report);
        match self.calls(settings, load) {
            Ok(figure) => case.figures.push(figure),
            Err(why) => report.note(format!("{}: system calls are not counted, {why}", load.name)),
        }
        let is_read = load.rw == "randread";
        let against = |peer| Target::ratio(TIME, "braid", peer, 1.0);
        Ok(Some(case.with(["nbdkit", "qemu-nbd"].map(against).into_iter().filter(|_| is_read))))
    }

    /// Counts system calls, once for each server.
    fn calls(&self, settings: &Settings, load: Fixed) -> Result<Figure, String> {
        let mut series = Vec::new();
        for (name, server) in &self.all {
            self.anew(settings)?;
            let values = load.looked_at(settings, server, |process, window| {
                Ok(vec![float(trace::system_calls(process, window)?)])
            })?;
            series.push(Series { variant: name, values: vec![values[0]] });
        }
        Ok(Figure { metric: CALLS, series })
    }
}

/// A process's use during `window`: nanoseconds of processor time, sleeps, switches.
fn used(process: u32, window: Duration) -> Result<Vec<f64>, String> {
    let before = ProcessUsage::by(process)?;
    std::thread::sleep(window);
    let after = ProcessUsage::by(process)?;
    let switches = after.sum_since(&before);
    let nanoseconds = after.processor_ns - before.processor_ns;
    Ok(vec![float(nanoseconds), float(switches.voluntary), float(switches.involuntary)])
}

impl Fixed {
    /// Observes a server under the load with `look`, and returns the counts for each request.
    /// Counts from `used` become the figures of a case.
    fn looked_at(
        &self,
        settings: &Settings,
        server: &Server,
        look: fn(u32, Duration) -> Result<Vec<f64>, String>,
    ) -> Result<Vec<f64>, String> {
        let (begin, window, length) = if settings.small {
            (Duration::from_millis(600), Duration::from_millis(300), Length::Seconds(1))
        } else {
            (BEGIN, Duration::from_secs(2), Length::Warm(3))
        };
        let job = Job { rate: Some(self.rate), ..Job::full(self.rw, BLOCK_KIB, DEPTH) };
        let (counted, took, reached) = std::thread::scope(|scope| {
            let loading = scope.spawn(|| job.run(&FioTarget::Export(server.uri()), length));
            std::thread::sleep(begin);
            let start = std::time::Instant::now();
            let counted = look(server.pid(), window);
            let took = start.elapsed();
            (counted, took, loading.join().expect("it does not panic"))
        });
        let FioResult { requests_per_second, .. } = reached?;
        let requests = requests_per_second * took.as_secs_f64();
        let each: Vec<f64> = counted?.into_iter().map(|count| count / requests.max(1.0)).collect();
        Ok(match each[..] {
            [nanoseconds, sleeps, switches] => {
                values(nanoseconds, [sleeps, switches], requests_per_second)
            }
            _ => each,
        })
    }

    fn say_what_was_missed(&self, case: &Case, report: &mut Report) {
        let reached = case.figures.iter().find(|figure| figure.metric.name == REACHED);
        for series in reached.into_iter().flat_map(|figure| &figure.series) {
            let median = series.spread().median;
            if median < f64::from(self.rate) * REACHED_MIN {
                let line =
                    format!("{}: {} reached {median:.0} a second", self.name, series.variant);
                report.note(line);
            }
        }
    }
}

/// The figures of a case, computed from the cost of a request.
fn values(nanoseconds: f64, [sleeps, switches]: [f64; 2], rate: f64) -> Vec<f64> {
    let requests_in_gib = f64::from((1_u32 << 20) / BLOCK_KIB);
    vec![nanoseconds / 1e3, nanoseconds * requests_in_gib / 1e9, sleeps, switches, rate]
}

/// Runs SPDK under the load: throttled by its own limit of requests, on memory, without NBD. SPDK
/// polls, so it uses its whole processor.
fn polling(peer: &Peer, rate: u32) -> Result<Vec<f64>, String> {
    let plan = Plan {
        kind: Kind::Memory,
        slots: 4,
        chunk_sectors: 128,
        member_sectors: (64 << 20) / 512,
        missing: None,
        tuning: Tuning::default(),
        payloads: 1,
        payload_sectors: BLOCK_KIB * 2,
    };
    let load = Load {
        operation: Operation::Read,
        sectors: BLOCK_KIB * 2,
        pattern: Pattern::Random,
        depth: DEPTH as usize,
        requests: 1,
    };
    let cost = peer.cost(&plan, &load, rate)?;
    Ok(values(cost.processor_ns, [cost.sleeps, cost.switches], cost.requests_per_second))
}

/// The line of a message that names the error.
fn first_line(why: &str) -> &str {
    let error = |line: &&str| line.contains("error[");
    why.lines().find(error).or_else(|| why.lines().next()).unwrap_or(why)
}

fn float(count: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let float = count as f64;
    float
}
