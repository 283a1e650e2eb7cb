//! Words about arrays that several verbs use.

use braid_control::model::{Array, Job, JobKind, JobState, State};
use braid_geometry::SECTOR_BYTES;
use braid_pace::Left;

use crate::error::CliError;
use crate::error::code::Code;
use crate::output::bar::{bar, is_unicode};
use crate::output::size::format_size;
use crate::output::utc::now_seconds;

/// What words depend on beside the array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Whether more than ASCII is shown.
    pub(crate) is_unicode: bool,
    /// The time at which it is said, in seconds since 1970.
    pub(crate) utc_seconds: u64,
}

impl Manner {
    /// Of this process, now.
    pub(crate) fn now() -> Self {
        Self { is_unicode: is_unicode(), utc_seconds: now_seconds() }
    }
}

/// `41.2 %  ████████▎···········  312 MiB/s  1h 52m left (done about 17:40 UTC)`
pub(crate) fn progress_words(job: &Job, manner: Manner) -> String {
    let bar = bar(job.percent, manner.is_unicode);
    let mut text = format!("{:.1} %  {bar}", down_to_a_tenth(job.percent));
    if job.state == JobState::Paused {
        return text + "  paused";
    }
    if let Some(rate) = job.bytes_per_second.filter(|rate| *rate > 0) {
        text.push_str(&format!("  {}/s", format_size(rate)));
    }
    let left = match (job.seconds_left, job.bytes_per_second) {
        (Some(seconds), _) => Some(Left::Seconds(seconds)),
        (None, Some(0)) => Some(Left::Unknown),
        (None, Some(_)) => Some(Left::Long),
        (None, None) => None,
    };
    if let Some(left) = left {
        text.push_str(&format!("  {}", left.words(manner.utc_seconds)));
    }
    text
}

/// So that 100 is said of nothing that is not over.
pub(crate) fn down_to_a_tenth(percent: f64) -> f64 {
    (percent * 10.0).floor() / 10.0
}

/// What the job does, as people say it: `rebuilding`.
pub(crate) fn doing_word(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Resync => "resyncing",
        JobKind::Recovery => "rebuilding",
        JobKind::Check => "checking",
    }
}

/// Sectors of redundancy, as a person reads them: `16 sectors (8 KiB)`.
pub(crate) fn sectors_words(sectors: u64) -> String {
    let word = if sectors == 1 { "sector" } else { "sectors" };
    format!("{sectors} {word} ({})", format_size(sectors * SECTOR_BYTES))
}

/// Whether the level keeps more than one copy, or parity.
pub(crate) fn is_redundant(array: &Array) -> bool {
    !matches!(array.level.as_str(), "linear" | "raid0")
}

/// `raid6` as people write it: `RAID-6`.
pub(crate) fn level_word(level: &str) -> String {
    level.strip_prefix("raid").map_or_else(|| level.to_owned(), |number| format!("RAID-{number}"))
}

/// How an array is, in a word or two.
pub(crate) fn state_word(array: &Array) -> &'static str {
    match (array.server.stopping, array.state) {
        (true, _) => "stopping",
        (false, State::Ok) if array.dirty => "ok, dirty",
        (false, State::Degraded) if array.dirty => "DEGRADED, dirty",
        (false, State::Ok) => "ok",
        (false, State::Degraded) => "DEGRADED",
        (false, State::Failed) => "FAILED",
    }
}

/// How a socket is at which no array can be asked.
pub(crate) fn silent_word(error: &CliError) -> &'static str {
    match error.code() {
        Code::ServerGone => "gone",
        Code::ControlDenied => "denied",
        Code::NotServed => "no server",
        _ => "silent",
    }
}

/// `can lose 1 more member`.
pub(crate) fn can_lose_words(can_lose: u16) -> String {
    match can_lose {
        0 => "cannot lose a member".to_owned(),
        1 => "can lose 1 more member".to_owned(),
        more => format!("can lose {more} more members"),
    }
}
