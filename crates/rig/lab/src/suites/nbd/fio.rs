//! The load generator: fio, as a process, for exports and for raw files alike.

use std::process::Command;

use serde_json::Value;

#[derive(Clone, Copy, Debug)]
pub(in crate::suites) struct Job {
    /// fio's own keyword: read, write, randread, randwrite.
    pub(in crate::suites) rw: &'static str,
    pub(in crate::suites) block_kib: u32,
    pub(in crate::suites) depth: u32,
    /// Limit of requests a second, if any.
    pub(in crate::suites) rate: Option<u32>,
    /// The share of reads, if `rw` has both reads and writes.
    pub(in crate::suites) reads_percent: u32,
    pub(in crate::suites) durability: Durability,
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::suites) enum Durability {
    /// A write is done when it is answered.
    Answered,
    /// A write is done when it is on stable storage (`RWF_DSYNC`); for files only.
    Durable,
    /// A write is done when the flush after it is answered.
    Flushed,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::suites) enum Length {
    Seconds(u32),
    Mebibytes(u32),
    /// Runs for this many counted seconds, after one second that is not counted.
    Warm(u32),
}

#[derive(Clone, Debug)]
pub(in crate::suites) enum FioTarget {
    Export(String),
    /// Files with O_DIRECT, each with a job of its own. The first `skip_bytes` of each are left
    /// out.
    Files {
        paths: Vec<String>,
        skip_bytes: u64,
    },
    /// A folder in which each writer has a file, with an fsync after each write. The job's depth is
    /// ignored.
    Durably {
        folder: String,
        writers: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(in crate::suites) struct FioResult {
    pub(in crate::suites) requests: f64,
    pub(in crate::suites) requests_per_second: f64,
    pub(in crate::suites) gigabytes_per_second: f64,
}

/// The reason why fio cannot run on this machine; `None` if it can.
pub(in crate::suites) fn missing() -> Option<String> {
    let output = Command::new("fio").arg("--enghelp").output();
    let Ok(output) = output else { return Some("fio is not installed".to_owned()) };
    let engines = String::from_utf8_lossy(&output.stdout).into_owned();
    let has = |name: &str| engines.split_whitespace().any(|word| word == name);
    let lacking: Vec<&str> = ["nbd", "libaio"].into_iter().filter(|name| !has(name)).collect();
    (!lacking.is_empty()).then(|| format!("this fio has no engine {}", lacking.join(", ")))
}

impl Job {
    pub(in crate::suites) const fn full(rw: &'static str, block_kib: u32, depth: u32) -> Self {
        let durability = Durability::Answered;
        Self { rw, block_kib, depth, rate: None, reads_percent: 50, durability }
    }

    /// Runs the job; returns the sum over all its files. If the job has reads and writes, only the
    /// writes count.
    pub(in crate::suites) fn run(
        &self,
        target: &FioTarget,
        length: Length,
    ) -> Result<FioResult, String> {
        let mut fio = Command::new("fio");
        fio.args(["--output-format=json", "--group_reporting", "--end_fsync=1", "--thread"]);
        fio.arg(format!("--rw={}", self.rw)).arg(format!("--bs={}k", self.block_kib));
        match length {
            Length::Seconds(seconds) => {
                fio.arg("--time_based").arg(format!("--runtime={seconds}"));
            }
            Length::Warm(seconds) => {
                fio.args(["--time_based", "--ramp_time=1"]).arg(format!("--runtime={seconds}"));
            }
            Length::Mebibytes(size) => {
                fio.arg(format!("--io_size={size}M"));
            }
        }
        fio.arg(format!("--rwmixread={}", self.reads_percent));
        match self.durability {
            Durability::Answered => {}
            Durability::Durable => {
                fio.arg("--sync=dsync");
            }
            Durability::Flushed => {
                fio.arg("--fsync=1");
            }
        }
        if let Some(rate) = self.rate {
            fio.arg(format!("--rate_iops={rate}"));
        }
        match target {
            FioTarget::Export(uri) => {
                fio.arg("--ioengine=nbd").arg(format!("--uri={uri}"));
                fio.arg(format!("--iodepth={}", self.depth)).arg("--name=export");
            }
            FioTarget::Files { paths, skip_bytes } => {
                let count = u32::try_from(paths.len()).expect("few files");
                fio.args(["--ioengine=libaio", "--direct=1"]);
                fio.arg(format!("--iodepth={}", (self.depth / count).max(1)));
                fio.arg(format!("--offset={skip_bytes}"));
                for path in paths {
                    fio.arg(format!("--name={}", path.replace('/', "_")));
                    fio.arg(format!("--filename={path}"));
                }
            }
            FioTarget::Durably { folder, writers } => {
                fio.args(["--ioengine=psync", "--fsync=1", "--size=1M", "--name=writer"]);
                fio.arg(format!("--directory={folder}")).arg(format!("--numjobs={writers}"));
            }
        }
        let report = report(&mut fio)?;
        let side = if self.rw.ends_with("read") { "read" } else { "write" };
        let sum = |key: &str| -> f64 {
            let jobs = report["jobs"].as_array().into_iter().flatten();
            jobs.filter_map(|job| job[side][key].as_f64()).sum()
        };
        Ok(FioResult {
            requests: sum("total_ios"),
            requests_per_second: sum("iops"),
            gigabytes_per_second: sum("bw_bytes") / 1e9,
        })
    }
}

pub(in crate::suites) fn report(fio: &mut Command) -> Result<Value, String> {
    let output = fio.output().map_err(|error| format!("fio: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr)));
    }
    // Warnings may precede the JSON.
    let json = text.find('{').map_or("", |at| &text[at..]);
    serde_json::from_str(json).map_err(|error| format!("fio's report: {error}"))
}
