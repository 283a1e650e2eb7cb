//! Suite `seeds`: the measurements of two mechanisms' seeds, on file systems, over disks with one
//! arm.
//! ```text
//!   fio ─▶ xfs │ ext4 ─▶ loop ─▶ FUSE ─▶ braid serve, RAID-5 ─▶ 4 × [`disks`]
//! ```
//! The seed of priority stripes ran dd onto the array, and tiobench on XFS, with and without a
//! bypass threshold. The seed of the multiplexer ran blogbench. Here fio does the same work, equal
//! in every round. The designs before each mechanism are in the suites `priority` and
//! `multiplexer`, since no server has them.

mod disks;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::nbd::fio;
use super::nbd::servers::{self, Server};
use super::peers::may_mount;
use super::peers::mounted::{Loop, Mount, output};
use crate::frame::{Case, Contender, Failed, Metric, Report, Settings, Suite, race};
use disks::Disk;

pub(super) const SUITE: Suite = Suite {
    name: "seeds",
    about: "dd, tiobench and blogbench as the seeds ran them, on file systems over disks with one arm each",
    run,
};

const MEMBERS: usize = 4;
const MEMBER_MIB: usize = 256;
/// Options for a stripe cache so small that one second of writing fills it.
const CACHE: [&str; 2] = ["--cache-size", "16M"];
const SECONDS: u32 = 3;

const WRITTEN: Metric = Metric::more("written", "MB/s");
const READS: Metric = Metric::more("reads", "1/s");
const WRITES: Metric = Metric::more("writes", "1/s");

/// The options of `braid serve` in which the variants differ, by variant.
type Variants = &'static [(&'static str, &'static [&'static str])];

const THRESHOLDS: Variants = &[
    ("threshold 1", &["--bypass-threshold", "1"]),
    ("threshold 0", &["--bypass-threshold", "0"]),
    ("threshold 16", &["--bypass-threshold", "16"]),
];
const MULTIPLEXER: Variants = &[
    ("multiplexer off", &["--elevator", "deadline", "--multiplexer", "off"]),
    ("multiplexer on", &["--elevator", "deadline", "--multiplexer", "on"]),
];

struct Experiment {
    name: &'static str,
    /// The kind of file system on the array, if any.
    kind: Option<&'static str>,
    variants: Variants,
    metrics: &'static [Metric],
    /// Jobs of fio, each with its own options.
    jobs: &'static [&'static [&'static str]],
}

const EXPERIMENTS: [Experiment; 4] = [
    Experiment {
        name: "dd: sequential write of 1 MiB onto the array",
        kind: None,
        variants: THRESHOLDS,
        metrics: &[WRITTEN],
        jobs: &[&["--name=dd", "--rw=write", "--bs=1M", "--iodepth=4"]],
    },
    Experiment {
        name: "tiobench-like on xfs: 4 sequential writers of 128 KiB",
        kind: Some("xfs"),
        variants: THRESHOLDS,
        metrics: &[WRITTEN],
        jobs: &[&[
            "--name=sequential",
            "--rw=write",
            "--bs=128k",
            "--numjobs=4",
            "--size=32M",
            "--iodepth=4",
        ]],
    },
    Experiment {
        name: "tiobench-like on xfs: 4 random writers of 4 KiB",
        kind: Some("xfs"),
        variants: THRESHOLDS,
        metrics: &[WRITTEN],
        jobs: &[&[
            "--name=random",
            "--rw=randwrite",
            "--bs=4k",
            "--numjobs=4",
            "--size=32M",
            "--iodepth=16",
        ]],
    },
    Experiment {
        name: "blogbench-like on ext4: 16 readers beside 3 writers",
        kind: Some("ext4"),
        variants: MULTIPLEXER,
        metrics: &[READS, WRITES],
        jobs: &[
            &["--name=readers", "--rw=randread", "--bs=16k", "--numjobs=16", "--size=8M"],
            &[
                "--name=writers",
                "--rw=randwrite",
                "--bs=16k",
                "--numjobs=3",
                "--size=32M",
                "--iodepth=16",
            ],
        ],
    },
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    let programs =
        ["losetup", "mkfs.xfs", "mkfs.ext4", "fio", "nbdkit", "nbdfuse", "umount", "mount"];
    if let Err(why) = may_mount(&programs) {
        report.note(format!("seeds: skipped, {why}"));
        return report;
    }
    // A small run needs only one experiment, with a file system, to show that the suite works.
    let all = if settings.small { &EXPERIMENTS[2..3] } else { &EXPERIMENTS[..] };
    for experiment in all.iter().filter(|experiment| settings.wants(experiment.name)) {
        match case(settings, experiment) {
            Ok(case) => report.add(case),
            Err(why) => report.note(format!("{}: {why}", experiment.name)),
        }
    }
    report.note(
        "members are in memory, with one request at a time, 2 ms each (nbdkit: noparallel, delay; \
         nbdfuse; a loop device), 256 MiB, direct I/O; chunk 64 KiB, stripe cache 16 MiB, --cache \
         writeback; fio with direct I/O, for 3 s",
    );
    report
}

fn case(settings: &Settings, experiment: &Experiment) -> Result<Option<Case>, String> {
    let mut all = Vec::new();
    for (variant, words) in experiment.variants {
        all.push((*variant, ArrayUnderTest::new(experiment.kind, words)?));
    }
    let failed = Failed::default();
    let turn = |tested: &ArrayUnderTest| {
        failed.or_zeroes(experiment.run(tested, settings.small), experiment.metrics.len())
    };
    let contenders =
        all.iter().map(|(variant, tested)| Contender::new(variant, || turn(tested))).collect();
    let case = race(settings, experiment.name, experiment.metrics, contenders);
    failed.or_case(case)
}

impl Experiment {
    /// Runs the experiment once; returns the values of its metrics.
    fn run(&self, tested: &ArrayUnderTest, small: bool) -> Result<Vec<f64>, String> {
        let mut command = Command::new("fio");
        command.args(["--output-format=json", "--thread"]);
        for words in self.jobs {
            command.args(*words);
            match &tested.mount {
                Some(mount) => command.arg(format!("--directory={}", mount.folder().display())),
                None => command.arg(format!("--filename={}", tested.array.display())),
            };
            // Direct I/O, since a page cache would join repeated writes of one place.
            command.args(["--ioengine=libaio", "--direct=1"]);
            if small {
                command.arg("--io_size=64k");
            } else {
                command.args(["--time_based", &format!("--runtime={SECONDS}")]);
            }
        }
        let report = fio::report(&mut command)?;
        let jobs: Vec<&Value> = report["jobs"].as_array().into_iter().flatten().collect();
        let sum = |side: &str, key: &str| -> f64 {
            jobs.iter().filter_map(|job| job[side][key].as_f64()).sum()
        };
        let value = |metric: &Metric| match *metric {
            WRITTEN => sum("write", "bw_bytes") / 1e6,
            READS => sum("read", "iops"),
            _ => sum("write", "iops"),
        };
        Ok(self.metrics.iter().map(value).collect())
    }
}

/// An array over disks with one arm each, with or without a file system. The fields of this struct
/// are dropped in the order of declaration.
struct ArrayUnderTest {
    mount: Option<Mount>,
    _disk: Option<Loop>,
    _server: Server,
    _members: Vec<Disk>,
    array: PathBuf,
    _folder: tempfile::TempDir,
}

impl ArrayUnderTest {
    fn new(kind: Option<&str>, words: &[&str]) -> Result<Self, String> {
        let folder = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        let disk = |slot: usize| Disk::new(folder.path(), &format!("member-{slot}"), MEMBER_MIB);
        let members: Vec<Disk> = (0..MEMBERS).map(disk).collect::<Result<_, _>>()?;
        let paths: Vec<String> = members.iter().map(Disk::path).collect();
        let braid = servers::braid()?;
        servers::create_braid_as(
            &braid,
            folder.path(),
            &["--level", "5", "--chunk", "64K"],
            &paths,
        )?;
        let array = folder.path().join("array");
        let control = text(&folder.path().join("control"));
        let file = text(&array);
        let mut all = vec!["--direct", "on", "--cache", "writeback", "--control", &control];
        all.extend(CACHE);
        all.extend(["--fuse", &file]);
        all.extend(words);
        let server = servers::serve_braid(&braid, folder.path(), &paths, &all)?;
        servers::wait_for(&array)?;
        let (mut disk, mut mount) = (None, None);
        if let Some(kind) = kind {
            let device = Loop::attach(&array, &["--direct-io=on"])?;
            let quiet = if kind == "xfs" { ["-q", "-f"] } else { ["-q", "-F"] };
            output(Command::new(format!("mkfs.{kind}")).args(quiet).arg(device.path()))?;
            let place = folder.path().join("mounted");
            std::fs::create_dir(&place).map_err(|error| error.to_string())?;
            mount = Some(Mount::new(kind, "defaults", device.path(), &place)?);
            disk = Some(device);
        }
        Ok(Self { mount, _disk: disk, _server: server, _members: members, array, _folder: folder })
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
