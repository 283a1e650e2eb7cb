//! Suite `small-writes`: 4 KiB writes through NBD, compared with the bound that the members set.
//!
//! A small write of a RAID-5 reads a block and its parity, and writes both. So a *bound* is
//! measured on raw files like the members, in the same round:
//!
//! - many at once: fio reads and writes four files, half and half; a quarter of its requests is the
//!   bound;
//! - one at a time: the sum of the steps that one write takes, each measured alone. The steps are a
//!   read, a write, and the round trip to a server that does nothing (`nbdkit null`). A log adds a
//!   durable write before the write, a flush adds the flush.
//!
//! Each turn starts a server over members of its own, and fio loads it through one connection.
//! `BRAID_LAB_BEFORE` names another build of the command, which takes part as *before*.

use std::path::{Path, PathBuf};

use super::cost::process::ProcessUsage;
use super::nbd::fio::{self, Durability, FioTarget, Job, Length};
use super::nbd::servers;
use super::nbd::{SKIP_BYTES, fill};
use crate::frame::{Case, Contender, Failed, Metric, Report, Settings, Suite, Target, race};

pub(super) const SUITE: Suite = Suite {
    name: "small-writes",
    about: "4 KiB writes through NBD with a bitmap and with a log, each acknowledged early or \
            late, compared with the members' limit",
    run,
};

const RATE: &str = "requests";
const METRICS: [Metric; 2] =
    [Metric::more(RATE, "/s"), Metric::less("server's processor time", "us each")];
const MEMBERS: usize = 4;
/// Requests in flight at each raw member, in cases with many requests at once.
const RAW_DEPTH: u32 = 32;

struct Work {
    name: &'static str,
    job: Job,
    bound: Bound,
    /// The targets as parts of the bound: first with a bitmap, then with a log.
    aims: [f64; 2],
}

enum Bound {
    /// The bound is shared: each write of a member stands for this many of the clients' requests.
    Shared(f64),
    /// The bound is the sum of steps that follow each other.
    Steps,
    /// No bound is known: writes in order are merged.
    None,
}

const fn flushed(job: Job) -> Job {
    Job { durability: Durability::Flushed, ..job }
}

const WORK: [Work; 5] = [
    Work {
        name: "random writes, 1 at a time",
        job: Job::full("randwrite", 4, 1),
        bound: Bound::Steps,
        aims: [0.75, 0.75],
    },
    Work {
        name: "random writes, 32 at once",
        job: Job::full("randwrite", 4, 32),
        bound: Bound::Shared(0.5),
        aims: [0.85, 0.7],
    },
    Work {
        name: "random writes, a flush after each",
        job: flushed(Job::full("randwrite", 4, 1)),
        bound: Bound::Steps,
        aims: [0.7, 0.7],
    },
    Work {
        name: "writes in order, 32 at once",
        job: Job::full("write", 4, 32),
        bound: Bound::None,
        aims: [0.0, 0.0],
    },
    Work {
        name: "70 % reads, 30 % writes, 32 at once",
        job: Job { reads_percent: 70, ..Job::full("randrw", 4, 32) },
        // A read is one request, a write two reads and two writes: 0.6 of 1.9 requests are writes.
        bound: Bound::Shared(1.0 / 0.6),
        aims: [0.85, 0.7],
    },
];

const POLICIES: [&str; 2] = ["bitmap", "log"];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    for (at, policy) in POLICIES.into_iter().enumerate() {
        let name = |work: &Work| format!("{policy}: {}", work.name);
        if !WORK.iter().any(|work| settings.wants(&name(work))) {
            continue;
        }
        let opened = fio::missing().map_or_else(|| Arrays::new(settings, policy), Err);
        let arrays = match opened {
            Ok(arrays) => arrays,
            Err(why) => {
                report.note(format!("{policy}: skipped, {why}"));
                continue;
            }
        };
        for work in &WORK {
            match arrays.case(settings, &name(work), work) {
                Ok(case) => {
                    let aim = Target::ratio(RATE, "write-back", "bound", work.aims[at]);
                    let has_aim = !matches!(work.bound, Bound::None);
                    let aims = [
                        has_aim.then_some(aim),
                        Some(Target::ratio(RATE, "write-back", "write-through", 1.0)),
                    ];
                    report.add(case.map(|case| case.with(aims.into_iter().flatten())));
                }
                Err(why) => report.note(format!("{}: {why}", name(work))),
            }
        }
    }
    report.note(format!(
        "RAID-5 of four files in {}, chunk 64 KiB, --direct on; fio, NBD through a Unix socket, one connection",
        std::env::temp_dir().display()
    ));
    report
}

/// Arrays with members of their own, one for each build of the command, and raw files like the
/// members.
struct Arrays {
    policy: &'static str,
    builds: Vec<Build>,
    raw: Vec<String>,
    nothing: servers::Server,
    // Declared last, so that the folder outlives the servers.
    _folder: tempfile::TempDir,
}

struct Build {
    /// Names of the array's contenders: write-through, then write-back.
    names: [&'static str; 2],
    braid: PathBuf,
    folder: PathBuf,
    members: Vec<String>,
}

impl Arrays {
    fn new(settings: &Settings, policy: &'static str) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mebibytes = if settings.small { 16 } else { 512 };
        let files = |folder: &Path| -> Result<Vec<String>, String> {
            std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
            let path = |n| folder.join(format!("{n}.img")).display().to_string();
            let files: Vec<String> = (0..MEMBERS).map(path).collect();
            files.iter().try_for_each(|file| fill(Path::new(file), mebibytes))?;
            Ok(files)
        };
        let before = std::env::var_os("BRAID_LAB_BEFORE").map(PathBuf::from);
        let names =
            [["write-through", "write-back"], ["before, write-through", "before, write-back"]];
        let mut builds = Vec::new();
        for (names, braid) in names.into_iter().zip([servers::braid()?].into_iter().chain(before)) {
            let folder = folder.path().join(builds.len().to_string());
            let members = files(&folder)?;
            let words =
                ["--level", "5", "--chunk", "64K", "--consistency", policy, "--destroy", "data"];
            servers::create_braid_as(&braid, &folder, &words, &members)?;
            builds.push(Build { names, braid, folder, members });
        }
        let raw = files(&folder.path().join("raw"))?;
        let nothing = servers::serve_nothing(folder.path(), mebibytes)?;
        Ok(Self { policy, builds, raw, nothing, _folder: folder })
    }

    fn case(&self, settings: &Settings, name: &str, work: &Work) -> Result<Option<Case>, String> {
        let failed = Failed::default();
        let turn = |build: &Build, cache: &str| {
            failed.or_zeroes(build.serve(settings, &work.job, cache), METRICS.len())
        };
        let mut contenders = Vec::new();
        if !matches!(work.bound, Bound::None) {
            let bound = || {
                let rate = self.bound(settings, work).map(|rate| vec![rate, 0.0]);
                failed.or_zeroes(rate, METRICS.len())
            };
            contenders.push(Contender::new("bound", bound));
        }
        for build in &self.builds {
            for (name, cache) in build.names.into_iter().zip(["writethrough", "writeback"]) {
                contenders.push(Contender::new(name, move || turn(build, cache)));
            }
        }
        let case = race(settings, name, &METRICS, contenders);
        failed.or_case(case)
    }

    fn bound(&self, settings: &Settings, work: &Work) -> Result<f64, String> {
        let length = if settings.small { Length::Mebibytes(1) } else { Length::Seconds(1) };
        let rate = |job: Job, target: &FioTarget| -> Result<f64, String> {
            Ok(job.run(target, length)?.requests_per_second)
        };
        let one = FioTarget::Files { paths: self.raw[..1].to_vec(), skip_bytes: SKIP_BYTES };
        let all = FioTarget::Files { paths: self.raw.clone(), skip_bytes: SKIP_BYTES };
        if let Bound::Shared(share) = work.bound {
            let members = u32::try_from(MEMBERS).expect("few");
            let reads_percent = if share > 1.0 { 68 } else { 50 };
            let depth = RAW_DEPTH * members;
            let job = Job { reads_percent, ..Job::full("randrw", 4, depth) };
            return Ok(rate(job, &all)? * share);
        }
        let small = Job::full("randwrite", 4, 1);
        let mut steps = vec![
            rate(Job::full("randread", 4, 1), &one)?,
            rate(work.job, &one)?,
            rate(work.job, &FioTarget::Export(self.nothing.uri()))?,
        ];
        if self.policy == "log" {
            steps.push(rate(Job { durability: Durability::Durable, ..small }, &one)?);
        }
        Ok(1.0 / steps.into_iter().map(|rate| 1.0 / rate).sum::<f64>())
    }
}

impl Build {
    /// Requests a second, and the server's microseconds for each request.
    fn serve(&self, settings: &Settings, job: &Job, cache: &str) -> Result<Vec<f64>, String> {
        let length = if settings.small { Length::Mebibytes(1) } else { Length::Seconds(3) };
        let words = ["--direct", "on", "--cache", cache];
        let server = servers::serve_braid(&self.braid, &self.folder, &self.members, &words)?;
        let before = ProcessUsage::by(server.pid())?;
        let reached = job.run(&FioTarget::Export(server.uri()), length)?;
        let used = ProcessUsage::by(server.pid())?;
        // The job's result counts only the writes.
        let share =
            if job.rw == "randrw" { f64::from(100 - job.reads_percent) / 100.0 } else { 1.0 };
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let processor_us = (used.processor_ns - before.processor_ns) as f64 / 1e3;
        let requests = reached.requests / share;
        Ok(vec![reached.requests_per_second / share, processor_us / requests])
    }
}
