//! Through NBD: `braid serve` over files on a real disk, raw files, nbdkit and qemu-nbd, by fio.
//!
//! Place in the flow: the last cases of the suites `read` and `write`. Before each turn the files
//! leave the page cache, so that servers with buffered reads read from the disk as well. Members
//! and the raw file are fully written first: a hole is no disk. Needs fio with its engines nbd and
//! libaio, the built command, and for the peers nbdkit and qemu-nbd; a note names missing ones.

pub(super) mod fio;
pub(super) mod servers;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::fs::{Advice, fadvise, fsync};

use crate::frame::{Case, Contender, Failed, Metric, Report, Settings, Target, race};
use fio::{Job, Length};
use servers::Server;

const RATE: &str = "requests through NBD";
const BYTES: &str = "payload through NBD";
const METRICS: [Metric; 2] = [Metric::more(RATE, "1/s"), Metric::more(BYTES, "GB/s")];

const MEMBERS: usize = 4;
/// Maximum bytes of a member before its data.
pub(super) const SKIP_BYTES: u64 = 8 << 20;
/// Size of a full-stripe request: four rows.
const ROWS_KIB: u32 = 4 * 192;

#[derive(Clone, Copy)]
pub(super) struct NbdCase {
    pub(super) name: &'static str,
    pub(super) job: Job,
    /// The part of the raw members' total rate with which the case is compared.
    pub(super) raw_share: f64,
    pub(super) has_peers: bool,
    pub(super) targets: &'static [Target],
}

pub(super) const READS: &[NbdCase] = &[
    NbdCase {
        name: "NBD: sequential read",
        job: Job::full("read", ROWS_KIB, 8),
        raw_share: 1.0,
        has_peers: true,
        targets: &[Target::ratio(BYTES, "braid", "members", 0.9)],
    },
    NbdCase {
        name: "NBD: 4 KiB random read, depth 32",
        job: Job::full("randread", 4, 32),
        raw_share: 1.0,
        has_peers: true,
        targets: &[
            Target::ratio(RATE, "braid", "members", 0.8),
            Target::ratio(RATE, "braid", "nbdkit", 1.0),
            Target::ratio(RATE, "braid", "qemu-nbd", 1.0),
        ],
    },
];

pub(super) const WRITES: &[NbdCase] = &[
    NbdCase {
        name: "NBD: full-stripe write",
        job: Job::full("write", ROWS_KIB, 8),
        raw_share: 0.75,
        has_peers: true,
        targets: &[Target::ratio(BYTES, "braid", "members", 0.85)],
    },
    NbdCase {
        name: "NBD: 4 KiB random write, depth 32",
        job: Job::full("randwrite", 4, 32),
        raw_share: 1.0,
        has_peers: true,
        targets: &[],
    },
];

struct Exports {
    files: Vec<String>,
    /// Raw files like the members, since no other program may write the array's own members.
    raw_members: Vec<String>,
    braid: Server,
    peers: Vec<(&'static str, Server)>,
    // Declared last, so that the folder outlives the servers.
    _folder: tempfile::TempDir,
}

/// Runs the cases; adds a note if that is impossible.
pub(super) fn run(settings: &Settings, report: &mut Report, cases: &[NbdCase]) {
    if !cases.iter().any(|case| settings.wants(case.name)) {
        return;
    }
    if let Some(why) = fio::missing() {
        return report.note(format!("through NBD: skipped, {why}"));
    }
    let exports = match Exports::new(settings, report) {
        Ok(exports) => exports,
        Err(why) => return report.note(format!("through NBD: skipped, {why}")),
    };
    for case in cases {
        match case.run(settings, &exports) {
            Ok(found) => report.add(found),
            Err(why) => report.note(format!("{}: {why}", case.name)),
        }
    }
    report.note(format!(
        "through NBD: fio, one connection; members and raw files on {}; for full-stripe writes, \
         three quarters of the four raw members' rate is that of the data members; nothing: \
         `nbdkit null`, which neither reads nor writes, shows the limit of fio and a socket here",
        std::env::temp_dir().display()
    ));
}

impl Exports {
    fn new(settings: &Settings, report: &mut Report) -> Result<Self, String> {
        let braid = servers::braid()?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let member_mib = if settings.small { 16 } else { 512 };
        let path = |name: &str| folder.path().join(name).display().to_string();
        let members: Vec<String> = (0..MEMBERS).map(|n| path(&format!("{n}.member"))).collect();
        let raw_members: Vec<String> = (0..MEMBERS).map(|n| path(&format!("{n}.raw"))).collect();
        let raw = path("raw");
        for member in members.iter().chain(&raw_members) {
            fill(Path::new(member), member_mib)?;
        }
        fill(Path::new(&raw), member_mib * (MEMBERS - 1))?;
        servers::create_braid(&braid, folder.path(), &members)?;
        let server = servers::serve_braid(&braid, folder.path(), &members, &["--direct", "on"])?;
        let mut peers = Vec::new();
        let started = [
            ("nothing", servers::serve_nothing(folder.path(), member_mib * (MEMBERS - 1))),
            ("nbdkit", servers::serve_nbdkit(folder.path(), &raw)),
            ("qemu-nbd", servers::serve_qemu(folder.path(), &raw)),
        ];
        for (name, started) in started {
            match started {
                Ok(peer) => peers.push((name, peer)),
                Err(why) => report.note(format!("through NBD: without {name}, {why}")),
            }
        }
        let files = members.iter().chain(&raw_members).chain([&raw]).cloned().collect();
        Ok(Self { files, raw_members, braid: server, peers, _folder: folder })
    }
}

pub(super) fn forget(files: &[String]) -> Result<(), String> {
    for path in files {
        let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
        fsync(&file).map_err(|error| format!("{path}: {error}"))?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// Fills a file, so that it has no holes. All files are equal, so that four of them form a RAID-5
/// with right parity.
pub(super) fn fill(path: &Path, mebibytes: usize) -> Result<(), String> {
    let mut random = crate::random::Random::new(11);
    let block: Vec<u8> = (0..1 << 17).flat_map(|_| random.next().to_le_bytes()).collect();
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        // Each file begins with zeroes, so that it has no signature.
        file.write_all(&vec![0; 4 << 20])?;
        for _ in 4..mebibytes {
            file.write_all(&block)?;
        }
        file.sync_all()
    };
    write().map_err(|error| format!("{}: {error}", path.display()))
}

impl NbdCase {
    fn run(&self, settings: &Settings, exports: &Exports) -> Result<Option<Case>, String> {
        let length = if settings.small { Length::Mebibytes(1) } else { Length::Seconds(2) };
        let failed = Failed::default();
        let turn = |target: &fio::FioTarget, share: f64| {
            let forgotten = if settings.small { Ok(()) } else { forget(&exports.files) };
            let reached = forgotten.and_then(|()| self.job.run(target, length));
            let values = reached.map(|reached| {
                vec![reached.requests_per_second * share, reached.gigabytes_per_second * share]
            });
            failed.or_zeroes(values, METRICS.len())
        };
        let members =
            fio::FioTarget::Files { paths: exports.raw_members.clone(), skip_bytes: SKIP_BYTES };
        let braid = fio::FioTarget::Export(exports.braid.uri());
        let peers: Vec<_> = exports
            .peers
            .iter()
            .filter(|_| self.has_peers)
            .map(|(name, server)| (*name, fio::FioTarget::Export(server.uri())))
            .collect();
        let mut contenders = vec![Contender::new("members", || turn(&members, self.raw_share))];
        for (name, target) in &peers {
            contenders.push(Contender::new(name, || turn(target, 1.0)));
        }
        contenders.push(Contender::new("braid", || turn(&braid, 1.0)));
        let case = race(settings, self.name, &METRICS, contenders);
        failed.or_case(case.map(|case| case.with(self.targets.iter().cloned())))
    }
}
