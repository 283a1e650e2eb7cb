//! Job state saved in the state folder, so that a restart remembers the jobs' ends and the time of
//! the next check.
//!
//! ```text
//!   <state folder>/arrays/<UUID>.jobs  how the last job of each kind ended, the schedule of checks
//! ```
//!
//! The file may be deleted at any time: without the file, earlier jobs are unknown, and checks run
//! only on request. An unreadable file counts as empty, and the next save overwrites it. A job that
//! could not be finished is not saved, since the next start tries it again.

use std::io;
use std::path::{Path, PathBuf};

use braid_control::model::LastJob;
use serde_json::{Value, json};

use super::schedule::Schedule;
use braid_console::regular::read_text;
use braid_console::state::write_whole;

const FORMAT: u64 = 1;
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedJobs {
    pub(crate) ended_count: u64,
    pub(crate) last: Vec<LastJob>,
    pub(crate) schedule: Schedule,
}

/// The path of an array's file; `uuid` is in text form.
pub(crate) fn path_of(state_dir: &Path, uuid: &str) -> PathBuf {
    state_dir.join("arrays").join(format!("{}.jobs", uuid.replace(':', "")))
}

impl SavedJobs {
    /// Reads the file. If the file is missing or unreadable, the jobs have their defaults.
    pub(crate) fn read(path: &Path) -> Self {
        let text = read_text(path, FILE_BYTES_MAX).ok();
        let value = text.and_then(|text| serde_json::from_str(&text).ok());
        value.as_ref().and_then(Self::parse).unwrap_or_default()
    }

    fn parse(value: &Value) -> Option<Self> {
        (value["format"] == FORMAT).then_some(())?;
        let mut last: Vec<LastJob> = serde_json::from_value(value["last_jobs"].clone()).ok()?;
        let latest = last.iter().map(|job| job.number).max().unwrap_or(0);
        last.retain(|job| !job.result.is_refused());
        let every = match &value["check_every_seconds"] {
            Value::Null => None,
            seconds => Schedule::parse(&format!("{}s", seconds.as_u64()?)).ok()?,
        };
        Some(Self {
            ended_count: value["ended"].as_u64()?.max(latest),
            last,
            schedule: Schedule {
                every_seconds: every,
                counted_from: value["check_counted_from_seconds"].as_u64()?,
            },
        })
    }

    /// Writes the file of the jobs' state, atomically and durably.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let value = json!({
            "format": FORMAT,
            "ended": self.ended_count,
            "last_jobs": self.last,
            "check_every_seconds": self.schedule.every_seconds,
            "check_counted_from_seconds": self.schedule.counted_from,
        });
        write_whole(path, &format!("{value:#}\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use braid_control::model::{Found, JobKind, JobResult};

    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_nonsense_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = path_of(folder.path(), "a1b2c3d4:0:0:1");
        assert_eq!(SavedJobs::read(&path), SavedJobs::default());
        let check = LastJob {
            number: 7,
            kind: JobKind::Check,
            result: JobResult::Completed,
            began: "2026-11-22T14:00:00Z".into(),
            ended: "2026-11-22T15:00:00Z".into(),
            took_ms: 1,
            from_bytes: 0,
            done_bytes: 2,
            total_bytes: 2,
            differing_sectors: 8,
            written_sectors: 0,
            unmade_sectors: 0,
            named_sectors: 0,
            found: Found::default(),
        };
        let schedule = Schedule { every_seconds: Some(86_400), counted_from: 5 };
        let saved = SavedJobs { ended_count: 9, last: vec![check.clone()], schedule };
        saved.write(&path).expect("it can be written");
        saved.write(&path).expect("and again");
        assert_eq!(SavedJobs::read(&path), saved);
        // A job that could not be finished is not saved, because the next start tries it again.
        let result = JobResult::Unreadable;
        let refused = LastJob { kind: JobKind::Resync, result, number: 8, ..check.clone() };
        let with_refused = SavedJobs { last: vec![check, refused], ..saved.clone() };
        with_refused.write(&path).expect("it can be written");
        assert_eq!(SavedJobs::read(&path), saved);
        saved.write(&path).expect("it can be written");
        let text = fs::read_to_string(&path).expect("a file");
        for (from, to) in [
            ("\"format\": 1", "\"format\": 2"),
            ("\"check\"", "\"checks\""),
            ("86400", "86399.5"),
            ("86400", "5"),
            ("}", ""),
        ] {
            assert!(text.contains(from), "{from}");
            fs::write(&path, text.replace(from, to)).expect("a file");
            assert_eq!(SavedJobs::read(&path), SavedJobs::default(), "{from} {to}");
        }
        // The next job number is larger than all saved numbers, even if the file's count is not.
        fs::write(&path, text.replace("\"ended\": 9", "\"ended\": 2")).expect("a file");
        assert_eq!(SavedJobs::read(&path).ended_count, 7);
    }
}
