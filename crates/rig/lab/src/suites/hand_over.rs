//! Suite `hand-over`: one connection that writes, and two workers. Does the second worker help?
//!
//! The servers run one binary over members in memory (tmpfs), with one connection of fio each. In
//! *kept* (`serve --hand-over never`) the worker that receives a write executes it. In *handed
//! over* (the default) that worker may wake the other one for the write. *kept too* is a second
//! *kept*, and shows by how much two equal servers differ. Members are in memory, since a disk
//! would be too slow.

use std::path::Path;

use super::nbd::fill;
use super::nbd::fio::{FioTarget, Job, Length, missing};
use super::nbd::servers::{self, Server};
use crate::frame::{Contender, Metric, Report, Settings, Suite, Target, race};

pub(super) const SUITE: Suite = Suite {
    name: "hand-over",
    about: "one NBD connection that writes: a second worker takes part, or not",
    run,
};

const BYTES: &str = "payload";
const METRICS: [Metric; 1] = [Metric::more(BYTES, "GB/s")];
const KEPT: &str = "kept";
const HANDED_OVER: &str = "handed over";
const KEPT_TOO: &str = "kept too";
const WORKERS: &str = "2";
const MEMBERS: usize = 4;

struct Load {
    name: &'static str,
    job: Job,
    aim: f64,
}

const LOADS: [Load; 8] = [
    Load { name: "write 768 KiB, 8 at once", job: Job::full("write", 768, 8), aim: 1.3 },
    Load { name: "write 256 KiB, 8 at once", job: Job::full("write", 256, 8), aim: 1.3 },
    Load { name: "write 64 KiB, 16 at once", job: Job::full("write", 64, 16), aim: 1.0 },
    Load { name: "write 16 KiB, 32 at once", job: Job::full("write", 16, 32), aim: 1.0 },
    Load { name: "write 256 KiB, one at a time", job: Job::full("write", 256, 1), aim: 1.0 },
    Load { name: "random write 64 KiB, 8 at once", job: Job::full("randwrite", 64, 8), aim: 1.0 },
    Load { name: "random write 4 KiB, 32 at once", job: Job::full("randwrite", 4, 32), aim: 1.0 },
    Load { name: "read 256 KiB, 8 at once", job: Job::full("read", 256, 8), aim: 1.0 },
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    if !LOADS.iter().any(|load| settings.wants(load.name)) {
        return report;
    }
    if let Some(why) = missing() {
        report.note(format!("skipped, {why}"));
        return report;
    }
    let servers = match Servers::new(settings) {
        Ok(servers) => servers,
        Err(why) => {
            report.note(format!("skipped, {why}"));
            return report;
        }
    };
    for load in &LOADS {
        servers.case(settings, &mut report, load);
    }
    report.note("two workers, RAID-5 of four members of tmpfs, chunk 64 KiB; the client is a third thread on the same cores");
    report
}

/// Servers that differ in one option.
struct Servers {
    kept: Server,
    handed_over: Server,
    kept_too: Server,
    // Declared last, so that the folders outlive the servers.
    _folders: [tempfile::TempDir; 3],
}

impl Servers {
    fn new(settings: &Settings) -> Result<Self, String> {
        let braid = servers::braid()?;
        let folder = || tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string());
        let folders = [folder()?, folder()?, folder()?];
        let start = |folder: &Path, more: &[&str]| -> Result<Server, String> {
            let member = |number| folder.join(format!("{number}.member")).display().to_string();
            let members: Vec<String> = (0..MEMBERS).map(member).collect();
            for member in &members {
                fill(Path::new(member), if settings.small { 16 } else { 256 })?;
            }
            servers::create_braid(&braid, folder, &members)?;
            let more: Vec<&str> =
                ["--workers", WORKERS].into_iter().chain(more.iter().copied()).collect();
            servers::serve_braid(&braid, folder, &members, &more)
        };
        Ok(Self {
            kept: start(folders[0].path(), &["--hand-over", "never"])?,
            handed_over: start(folders[1].path(), &[])?,
            kept_too: start(folders[2].path(), &["--hand-over", "never"])?,
            _folders: folders,
        })
    }

    fn case(&self, settings: &Settings, report: &mut Report, load: &Load) {
        let length = if settings.small { Length::Mebibytes(1) } else { Length::Seconds(1) };
        let failed = std::cell::RefCell::new(None);
        let turn = |server: &Server| match load.job.run(&FioTarget::Export(server.uri()), length) {
            Ok(reached) => vec![reached.gigabytes_per_second],
            Err(why) => {
                failed.borrow_mut().get_or_insert(why);
                vec![0.0]
            }
        };
        let contenders = vec![
            Contender::new(KEPT, || turn(&self.kept)),
            Contender::new(HANDED_OVER, || turn(&self.handed_over)),
            Contender::new(KEPT_TOO, || turn(&self.kept_too)),
        ];
        let case = race(settings, load.name, &METRICS, contenders);
        match failed.into_inner() {
            Some(why) => report.note(format!("{}: {why}", load.name)),
            None => report.add(
                case.map(|case| case.with([Target::ratio(BYTES, HANDED_OVER, KEPT, load.aim)])),
            ),
        }
    }
}
