//! The work in a file system: fs_mark, fio with an fsync after each write, reads while a member is
//! missing, and a rebuild.

use std::path::Path;
use std::process::Command;

use super::super::nbd::fio::{FioTarget, Job, Length};
use super::mounted::{Mounted, READ_FILE, output};
use crate::frame::Metric;

const FILES: Metric = Metric::more("files", "1/s");
const WRITES: Metric = Metric::more("durable writes", "1/s");
const READS: Metric = Metric::more("degraded reads", "1/s");
const REBUILD: Metric = Metric::less("until nothing is missing", "s");

/// Bytes of the longest file of a small run.
const SMALL_BYTES: u32 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    /// fs_mark writes and closes files, and makes each durable if `is_durable`.
    FsMark { threads: u32, files_each: u32, bytes: u32, is_durable: bool },
    /// fio writes 4 KiB at a time, with an fsync after each write.
    WriteDurably { writers: u32 },
    /// fio reads 4 KiB at a time with direct I/O, from a file that was written before a member went
    /// missing.
    ReadDegraded,
    /// A blank device replaces a missing one. Each round removes a device again.
    Rebuild,
}

pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) kind: WorkKind,
    pub(super) metric: Metric,
}

const fn files(
    name: &'static str,
    (threads, files_each): (u32, u32),
    bytes: u32,
    is_durable: bool,
) -> Work {
    Work { name, kind: WorkKind::FsMark { threads, files_each, bytes, is_durable }, metric: FILES }
}

/// All kinds of work. The last two run with a missing member.
pub(super) const ALL: [Work; 10] = [
    files("4 KiB files, fsync, 1 thread", (1, 300), 4 << 10, true),
    files("4 KiB files, fsync, 64 threads", (64, 16), 4 << 10, true),
    files("4 MiB files, fsync, 1 thread", (1, 32), 4 << 20, true),
    files("4 MiB files, fsync, 64 threads", (64, 1), 4 << 20, true),
    files("4 MiB files, no sync, 1 thread", (1, 32), 4 << 20, false),
    files("4 MiB files, no sync, 64 threads", (64, 1), 4 << 20, false),
    Work {
        name: "4 KiB random write, fsync, 1 writer",
        kind: WorkKind::WriteDurably { writers: 1 },
        metric: WRITES,
    },
    Work {
        name: "4 KiB random write, fsync, 64 writers",
        kind: WorkKind::WriteDurably { writers: 64 },
        metric: WRITES,
    },
    Work {
        name: "4 KiB random read, degraded, 32 at once",
        kind: WorkKind::ReadDegraded,
        metric: READS,
    },
    Work { name: "rebuild, a quarter full", kind: WorkKind::Rebuild, metric: REBUILD },
];

impl Work {
    pub(super) fn prepare(&self, mounted: &mut Mounted) -> Result<(), String> {
        match self.kind {
            WorkKind::FsMark { .. } | WorkKind::WriteDurably { .. } => Ok(()),
            WorkKind::ReadDegraded => mounted.degrade(),
            WorkKind::Rebuild => {
                if mounted.is_degraded() {
                    mounted.rebuild()?;
                }
                mounted.hold_much()
            }
        }
    }

    /// Does the work on this file system; returns the value of the work's metric.
    pub(super) fn run(&self, mounted: &mut Mounted, small: bool) -> Result<f64, String> {
        let folder = mounted.folder().to_owned();
        let length = if small { Length::Mebibytes(1) } else { Length::Seconds(1) };
        let fio = |job: Job, target: &FioTarget| {
            job.run(target, length).map(|reached| reached.requests_per_second)
        };
        match self.kind {
            WorkKind::FsMark { threads, files_each, bytes, is_durable } => {
                // 64 long files would fill the devices of a small run.
                let (files, bytes) =
                    if small { (1, bytes.min(SMALL_BYTES)) } else { (files_each, bytes) };
                fs_mark(&folder, [threads, files, bytes], is_durable)
            }
            WorkKind::WriteDurably { writers } => {
                let folder = folder.join(format!("writers-{writers}"));
                std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
                let target = FioTarget::Durably { folder: folder.display().to_string(), writers };
                // Each writer writes as many MiB as its job says, and 64 MiB are too much for a
                // small run.
                let job = Job::full("randwrite", if small { 64 } else { 4 }, 1);
                fio(job, &target)
            }
            WorkKind::ReadDegraded => {
                let paths = vec![folder.join(READ_FILE).display().to_string()];
                fio(Job::full("randread", 4, 32), &FioTarget::Files { paths, skip_bytes: 0 })
            }
            WorkKind::Rebuild => {
                mounted.degrade()?;
                mounted.rebuild()
            }
        }
    }
}

fn fs_mark(
    folder: &Path,
    [threads, files, bytes]: [u32; 3],
    is_durable: bool,
) -> Result<f64, String> {
    let place = tempfile::tempdir_in(folder).map_err(|error| error.to_string())?;
    let mut command = Command::new("fs_mark");
    // fs_mark takes no path of 40 bytes or more, and writes its log to its current folder, so it
    // runs there.
    command.current_dir(place.path()).args(["-d", "files"]);
    command.args(["-L", "1", "-S", if is_durable { "1" } else { "0" }]);
    command.arg("-t").arg(threads.to_string()).arg("-n").arg(files.to_string());
    command.arg("-s").arg(bytes.to_string());
    rate(&output(&mut command)?).ok_or_else(|| format!("{command:?} says no files a second"))
}

/// The files a second in fs_mark's output: the fourth column of the last line that begins with a
/// number.
fn rate(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let numbers: Vec<f64> = words.iter().map_while(|word| word.parse().ok()).collect();
    numbers.get(3).copied().filter(|rate| rate.is_finite() && *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn the_rate_is_read_from_the_last_line_only() {
        let head = "FSUse%        Count         Size    Files/sec     App Overhead\n";
        let text = format!(
            "#  fs_mark  -d  files\n\n{head}     1          300         4096       1234.5             4711\n"
        );
        assert_eq!(rate(&text), Some(1234.5));
        assert_eq!(rate(head), None, "it ended before its figure");
        assert_eq!(rate("     1          300         4096       0.0             4711\n"), None);
        assert_eq!(rate(""), None);
    }
}
