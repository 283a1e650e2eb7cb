//! Suite `doors`: the cost of each door (a client's interface: NBD, FUSE, ublk) of one array.
//!
//! ```text
//!   fio ──libaio────────────────────────────────────────▶ files like the members        members
//!   threads of this process ────────▶ runtime, engine ──▶ members of an array like it   in process
//!   fio ──NBD: Unix, TCP, TLS──┐
//!   fio ──libaio─▶ FUSE, ublk ─┴─▶ braid serve ─────────▶ members                       the doors
//! ```
//!
//! One server has all doors of one array open, and each turn goes through one of them. The time of
//! *in process* contains no door. So the rest of a request's time is the door's share: sockets or
//! FUSE, copies, wake-ups, and fio's own part of them. Members are in memory (tmpfs) unless TMPDIR
//! names another place, because a slow disk would hide the cost of a door.

mod inside;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::nbd::fill;
use super::nbd::fio::{self, FioTarget, Job, Length};
use super::nbd::servers::{self, Server};
use crate::frame::{
    Case, Contender, Failed, Figure, Metric, Report, Series, Settings, Suite, race,
};
use inside::Inside;

pub(super) const SUITE: Suite = Suite {
    name: "doors",
    about: "one array through each door: NBD by Unix socket, TCP and TLS, a FUSE file, ublk",
    run,
};

const RATE: Metric = Metric::more("requests through a door", "1/s");
const BYTES: Metric = Metric::more("payload through a door", "GB/s");
const SHARE: Metric = Metric::less("share of the door", "%");
const MEMBERS: usize = 4;
/// Number of ublk devices that are tried to find a free one.
const UBLK_IDS: u32 = 16;
const IN_PROCESS: &str = "in process";

struct Work {
    name: &'static str,
    job: Job,
    metric: Metric,
}

impl Work {
    const fn new(name: &'static str, job: Job, metric: Metric) -> Self {
        Self { name, job, metric }
    }

    /// The share of the raw members' rate that belongs to the data members: full stripes of data go
    /// to them only.
    fn raw_share(&self) -> f64 {
        if self.job.rw == "write" { 0.75 } else { 1.0 }
    }
}

/// A depth that a small run skips.
const DEEP: u32 = 32;

const WORK: [Work; 6] = [
    Work::new("4 KiB random read, 1 at a time", Job::full("randread", 4, 1), RATE),
    Work::new("4 KiB random read, 32 at once", Job::full("randread", 4, DEEP), RATE),
    Work::new("4 KiB random write, 1 at a time", Job::full("randwrite", 4, 1), RATE),
    Work::new("4 KiB random write, 32 at once", Job::full("randwrite", 4, DEEP), RATE),
    Work::new("128 KiB sequential read, 8 at once", Job::full("read", 128, 8), BYTES),
    Work::new("128 KiB sequential write, 8 at once", Job::full("write", 128, 8), BYTES),
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    if !WORK.iter().any(|work| settings.wants(work.name)) {
        return report;
    }
    let opened = fio::missing().map_or_else(|| Doors::open(settings, &mut report), Err);
    let doors = match opened {
        Ok(doors) => doors,
        Err(why) => {
            report.note(format!("doors: skipped, {why}"));
            return report;
        }
    };
    // For a small run, requests one by one and in sequence are enough to show that a door works.
    for work in WORK.iter().filter(|work| !settings.small || work.job.depth < DEEP) {
        match doors.case(settings, work) {
            Ok(case) => report.add(case),
            Err(why) => report.note(format!("{}: {why}", work.name)),
        }
    }
    report.note(format!(
        "RAID-5 of four files in {}, chunk 64 KiB; fio, one connection or one job; members: four \
         files of the same kind, or one of them in cases with one request at a time; for \
         sequential writes three quarters of the four files' rate",
        members_folder().display()
    ));
    report.note(
        "share of the door: 1 minus the door's rate divided by the rate of the same runtime in \
         this process, in the same round, with one thread for each request at once; 0 if the door \
         was not slower (many threads cost more than one fio)",
    );
    report.note(
        "vhost-user-blk is qemu-storage-daemon's door, over NBD: docs/clients.md has its figures",
    );
    report
}

fn members_folder() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from)
}

/// A server with every door open, and the references for comparison.
struct Doors {
    /// Each door's name and fio's target for it.
    targets: Vec<(&'static str, FioTarget)>,
    raw_members: Vec<String>,
    inside: Inside,
    _server: Server,
    // Declared last, so that the folder outlives the servers.
    _folder: tempfile::TempDir,
}

/// A door that `serve` opens by these options, in addition to the Unix socket, which is always
/// open.
struct Door {
    name: &'static str,
    words: Vec<String>,
    target: FioTarget,
}

impl Doors {
    fn open(settings: &Settings, report: &mut Report) -> Result<Self, String> {
        let braid = servers::braid()?;
        let folder = tempfile::tempdir_in(members_folder()).map_err(|error| error.to_string())?;
        let member_mib = if settings.small { 16 } else { 256 };
        let files = |kind: &str| -> Result<Vec<String>, String> {
            let path = |n| folder.path().join(format!("{n}.{kind}")).display().to_string();
            let files: Vec<String> = (0..MEMBERS).map(path).collect();
            files.iter().try_for_each(|file| fill(Path::new(file), member_mib))?;
            Ok(files)
        };
        let (members, raw_members, inside) = (files("member")?, files("raw")?, files("inside")?);
        servers::create_braid(&braid, folder.path(), &members)?;
        let mut doors = Vec::new();
        for door in [tcp(), tls(folder.path()), fuse(folder.path()), ublk(&braid)] {
            match door {
                Ok(door) => doors.push(door),
                Err(why) => report.note(format!("doors: without {why}")),
            }
        }
        let words: Vec<&str> =
            doors.iter().flat_map(|door| &door.words).map(String::as_str).collect();
        let server = servers::serve_braid(&braid, folder.path(), &members, &words)?;
        for door in &doors {
            if let FioTarget::Files { paths, .. } = &door.target {
                paths.iter().try_for_each(|path| servers::wait_for(Path::new(path)))?;
            }
        }
        let unix = ("NBD, Unix", FioTarget::Export(server.uri()));
        let targets =
            [unix].into_iter().chain(doors.into_iter().map(|door| (door.name, door.target)));
        Ok(Self {
            targets: targets.collect(),
            raw_members,
            inside: Inside::open(&inside)?,
            _server: server,
            _folder: folder,
        })
    }

    /// fio's target on the raw files for this work. Requests one by one use a single file.
    fn raw(&self, work: &Work) -> FioTarget {
        let count = if work.job.depth == 1 { 1 } else { MEMBERS };
        FioTarget::Files { paths: self.raw_members[..count].to_vec(), skip_bytes: 0 }
    }

    fn case(&self, settings: &Settings, work: &Work) -> Result<Option<Case>, String> {
        let length = if settings.small { Length::Mebibytes(1) } else { Length::Seconds(1) };
        let failed = Failed::default();
        let figure =
            |rate: f64, gigabytes: f64| vec![if work.metric == RATE { rate } else { gigabytes }];
        let turn = |target: &FioTarget, share: f64| {
            let values = work.job.run(target, length).map(|reached| {
                figure(reached.requests_per_second * share, reached.gigabytes_per_second * share)
            });
            failed.or_zeroes(values, 1)
        };
        let raw = self.raw(work);
        let inside = || {
            let rate = self.inside.run(&work.job, length);
            figure(rate, rate * f64::from(work.job.block_kib) * 1024.0 / 1e9)
        };
        let mut contenders = vec![
            Contender::new("members", || turn(&raw, work.raw_share())),
            Contender::new(IN_PROCESS, inside),
        ];
        for (name, target) in &self.targets {
            contenders.push(Contender::new(name, || turn(target, 1.0)));
        }
        let case = race(settings, work.name, &[work.metric], contenders);
        failed.or_case(case.map(with_shares))
    }
}

fn tcp() -> Result<Door, String> {
    let uri =
        format!("nbd://127.0.0.1:{}/", servers::free_port().map_err(|why| format!("TCP, {why}"))?);
    let words = vec!["--nbd".to_owned(), uri.clone()];
    Ok(Door { name: "NBD, TCP", words, target: FioTarget::Export(uri) })
}

/// fio knows no certificates: the server accepts any client, and fio verifies no server. The check
/// would cost requests nothing.
fn tls(folder: &Path) -> Result<Door, String> {
    let port = servers::free_port().and_then(|port| servers::certify(folder).map(|()| port));
    let uri = format!("nbds://127.0.0.1:{}/", port.map_err(|why| format!("TLS, {why}"))?);
    let words = ["--nbd", &uri, "--tls", &folder.display().to_string(), "--tls-clients", "any"];
    let words = words.map(str::to_owned).to_vec();
    Ok(Door {
        name: "NBD, TLS",
        words,
        target: FioTarget::Export(format!("{uri}?tls-verify-peer=false")),
    })
}

fn fuse(folder: &Path) -> Result<Door, String> {
    if !Path::new("/dev/fuse").exists() {
        return Err("FUSE, /dev/fuse is not there".to_owned());
    }
    if !rustix::process::geteuid().is_root() && !super::peers::is_installed("fusermount3") {
        return Err("FUSE, who is not root needs fusermount3".to_owned());
    }
    let file = folder.join("file").display().to_string();
    let words = vec!["--fuse".to_owned(), file.clone()];
    Ok(Door { name: "FUSE", words, target: FioTarget::Files { paths: vec![file], skip_bytes: 0 } })
}

fn ublk(braid: &Path) -> Result<Door, String> {
    if !Path::new("/dev/ublk-control").exists() {
        return Err("ublk, this kernel has no /dev/ublk-control".to_owned());
    }
    let help = Command::new(braid).args(["serve", "--help"]).output();
    let help = help.map_err(|error| format!("ublk, {error}"))?.stdout;
    if !String::from_utf8_lossy(&help).contains("--ublk") {
        return Err("ublk, this braid has no such door".to_owned());
    }
    let device = (0..UBLK_IDS)
        .map(|id| (id, format!("/dev/ublkb{id}")))
        .find(|(_, device)| !Path::new(device).exists());
    let (id, device) = device.ok_or("ublk, all of its devices are there already")?;
    let words = vec![format!("--ublk={id}")];
    Ok(Door {
        name: "ublk",
        words,
        target: FioTarget::Files { paths: vec![device], skip_bytes: 0 },
    })
}

/// Adds the door's share of a request's time, round by round.
fn with_shares(mut case: Case) -> Case {
    let first = &case.figures[0];
    let share = |door: &Series, inside: &Series| -> Vec<f64> {
        let pairs = door.values.iter().zip(&inside.values);
        pairs.map(|(door, inside)| ((1.0 - door / inside) * 100.0).max(0.0)).collect()
    };
    let inside = first.series.iter().position(|series| series.variant == IN_PROCESS);
    if let Some(at) = inside {
        let doors = first.series[at + 1..].iter();
        let series = doors
            .map(|door| Series { variant: door.variant, values: share(door, &first.series[at]) })
            .collect();
        case.figures.push(Figure { metric: SHARE, series });
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_same_round_and_never_below_nothing() {
        let series = |variant, values: [f64; 2]| Series { variant, values: values.to_vec() };
        let series = vec![
            series("members", [90.0, 90.0]),
            series(IN_PROCESS, [20.0, 40.0]),
            series("FUSE", [5.0, 50.0]),
        ];
        let figures = vec![Figure { metric: RATE, series }];
        let case = with_shares(Case { name: "read".to_owned(), figures, targets: Vec::new() });
        let shares = case.series(SHARE.name, "FUSE").expect("it has one");
        assert_eq!(shares.values, [75.0, 0.0]);
        assert!(case.series(SHARE.name, IN_PROCESS).is_none());
    }
}
